//! The tunnel port: the `sig` device to which the kernel routes remote prefixes, and its other end, where the engine is.
//!
//! ```text
//!   gateway's network namespace          private namespace, held by this process alone
//!   kernel routes ──> sig ═════════════ sig-x ──> XDP, AF_XDP sockets
//! ```
//!
//! The pair exists as long as the private namespace does. A process that dies, however it dies, closes the last file
//! descriptor of that namespace; the kernel then deletes the pair and with it every route that points at `sig`.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use rtnetlink::packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use rtnetlink::packet_route::tc::{TcAttribute, TcHandle, TcMessage};

use super::Error;
use super::capabilities;
use super::cpus;
use super::ethtool::{Ethtool, Offload};
use super::facts;
use super::link::{self, Link, MAX_XDP_MTU};
use super::netlink::Netlink;
use super::netns::PrivateNetns;
use super::sysctl::{self, Family};

/// Name of the end in the private namespace. It cannot collide: nothing else is there.
pub const PEER_NAME: &str = "sig-x";

/// Packets the `sig` device queues when the engine does not keep up, as the reference gateway's TUN device does.
pub(crate) const TX_QUEUE_LEN: u32 = 1000;

/// How long a predecessor's pair may take to vanish.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(3);
pub(crate) const BUSY_RETRY: Duration = Duration::from_millis(20);

/// First words of the alias by which we recognise a pair made by a gateway.
pub const ALIAS: &str = "SCION-IP gateway";

/// What the pair shall be like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelPairConfig {
    /// Name of the device that the kernel routes to (`[tunnel] name`)
    pub name: String,
    /// Receive and transmit queues of both ends: one per worker
    pub queues: u32,
    /// MTU of both ends in bytes
    pub mtu: u32,
    /// Who makes it.
    pub owner: Owner,
}

/// Who makes a pair: what its alias says, and what an operator can do about a name that is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Owner {
    /// A gateway, with its tunnel device.
    #[default]
    Gateway,
    /// An SR node, for functions in its process.
    SrNode,
    /// An accelerator, which cuts segments with it. Packets of a flow must not overtake each other on the way, so its far end
    /// sorts them by flow: each has one CPU there.
    Accelerator,
}

impl Owner {
    const fn alias(self) -> &'static str {
        match self {
            Self::Gateway => ALIAS,
            Self::SrNode => "SR node",
            Self::Accelerator => "SCION-IP accelerator",
        }
    }

    const fn noun(self) -> &'static str {
        match self {
            Self::Gateway => "a gateway",
            Self::SrNode => "an SR node",
            Self::Accelerator => "an accelerator",
        }
    }

    const fn hint(self) -> &'static str {
        match self {
            Self::Gateway => "choose another `name` in [tunnel]",
            Self::SrNode => "run one with functions in the process per network namespace",
            Self::Accelerator => "stop the accelerator that runs for this gateway",
        }
    }
}

/// MTUs of a pair other than a gateway's, which has up to [`link::max_mtu`].
pub const MTUS: std::ops::RangeInclusive<u32> = 1280..=MAX_XDP_MTU;

/// One end of the pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Name in its namespace
    pub name: String,
    /// Index in its namespace
    pub ifindex: u32,
    /// Hardware address
    pub mac: [u8; 6],
}

/// The pair, both ends up. Dropping it lets the kernel delete it a moment later; [`TunnelPair::delete`] waits for that.
#[derive(Debug)]
pub struct TunnelPair {
    host: End,
    peer: End,
    netlink: Netlink,
    netns: PrivateNetns,
}

impl TunnelPair {
    /// Creates the pair: one end in the calling thread's network namespace, the other in a new private one.
    ///
    /// A pair left by a predecessor that was killed is waited for: its namespace is torn down in the background.
    pub async fn create(config: &TunnelPairConfig) -> Result<Self, Error> {
        check(config)?;
        let netlink = Netlink::open().map_err(Error::doing("open a netlink socket"))?;
        let netns = PrivateNetns::create().map_err(cannot_create)?;
        if config.owner == Owner::Accelerator {
            spread_by_flow(&netns);
        }
        add_when_free(&netlink, &netns, config).await?;
        // From here on an error drops `netns`, which deletes the pair.
        let inside = netns.netlink().map_err(Error::doing(
            "open a netlink socket in the private namespace",
        ))?;
        let host = end(&link::by_name(&netlink, &config.name).await?)?;
        let peer = end(&link::by_name(&inside, PEER_NAME).await?)?;
        prepare_host(&netlink, &host, config.owner).await?;
        let ethtool = netns
            .run(Ethtool::open)
            .and_then(|opened| opened)
            .map_err(Error::doing(
                "open an ethtool socket in the private namespace",
            ))?;
        switch_offloads_off(&ethtool, &peer.name)?;
        // The peer first: `sig` then finds a carrier when it comes up and is usable at once.
        set_up(&inside, &peer).await?;
        set_up(&netlink, &host).await?;
        Ok(Self {
            host,
            peer,
            netlink,
            netns,
        })
    }

    /// The end in the gateway's namespace. Frames for the kernel's stack must be addressed to its hardware address.
    pub fn host(&self) -> &End {
        &self.host
    }

    /// The end in the private namespace, with the AF_XDP sockets.
    pub fn peer(&self) -> &End {
        &self.peer
    }

    /// The private namespace; open the peer's sockets and attach its programs with [`PrivateNetns::run`].
    pub fn netns(&self) -> &PrivateNetns {
        &self.netns
    }

    /// Deletes the pair (and the routes that point at it) and waits until it is gone.
    pub async fn delete(self) -> Result<(), Error> {
        delete_link(&self.netlink, &self.host.name, self.host.ifindex).await
    }
}

/// Deletes a device (and the routes that point at it) and waits until it is gone.
pub(crate) async fn delete_link(netlink: &Netlink, name: &str, ifindex: u32) -> Result<(), Error> {
    let doing = format!("delete interface {name}");
    let mut message = LinkMessage::default();
    message.header.index = ifindex;
    match netlink
        .execute(RouteNetlinkMessage::DelLink(message), 0)
        .await
    {
        Err(error) if error.raw_os_error() != Some(libc::ENODEV) => {
            return Err(Error::doing(doing)(error));
        }
        _ => {}
    }
    let deadline = Instant::now() + BUSY_TIMEOUT;
    while link::by_index(netlink, ifindex).await?.is_some() {
        if Instant::now() > deadline {
            return Err(Error::doing(doing)(io::ErrorKind::TimedOut.into()));
        }
        tokio::time::sleep(BUSY_RETRY).await;
    }
    Ok(())
}

fn cannot_create(error: io::Error) -> Error {
    let doing = "cannot create a private network namespace";
    Error::Refused(
        match capabilities::remedy_for(&error, &[facts::CAP_SYS_ADMIN]) {
            Some(remedy) => format!("{doing}: {error}; {remedy}"),
            None => format!("{doing}: {error}"),
        },
    )
}

pub(crate) fn check(config: &TunnelPairConfig) -> Result<(), Error> {
    let name = &config.name;
    let valid = (1..=15).contains(&name.len())
        && name != "."
        && name != ".."
        && name
            .chars()
            .all(|c| c.is_ascii_graphic() && !matches!(c, '/' | ':' | '%'));
    if !valid {
        return Err(Error::Refused(format!(
            "{name:?} cannot be the name of an interface; choose 1 to 15 letters, digits or -"
        )));
    }
    let largest = match config.owner {
        Owner::Gateway => link::max_mtu(),
        Owner::SrNode | Owner::Accelerator => MAX_XDP_MTU,
    };
    if !(*MTUS.start()..=largest).contains(&config.mtu) {
        return Err(Error::Refused(format!(
            "MTU {} of {name} is out of range; choose 1280 (the least IPv6 needs) to {largest}: {}",
            config.mtu,
            link::mtu_limit(largest)
        )));
    }
    if !(1..=1024).contains(&config.queues) {
        return Err(Error::Refused(format!(
            "{} is not a valid number of queues for {name}; choose 1 to 1024",
            config.queues
        )));
    }
    Ok(())
}

/// Both ends come into being by one request, already in their namespaces: there is no moment at which a crash could
/// leave an end that nothing would clean up.
fn add_request(netns: &PrivateNetns, config: &TunnelPairConfig) -> LinkMessage {
    let end = |name: &str| {
        let mut message = LinkMessage::default();
        // NOARP: there is one neighbour only. The kernel sends to the device's own address without asking.
        message.header.flags = LinkFlags::Noarp;
        message.header.change_mask = LinkFlags::Noarp;
        message.attributes = vec![
            LinkAttribute::IfName(name.into()),
            LinkAttribute::Mtu(config.mtu),
            LinkAttribute::TxQueueLen(TX_QUEUE_LEN),
            LinkAttribute::NumTxQueues(config.queues),
            LinkAttribute::NumRxQueues(config.queues),
        ];
        message
    };
    let mut peer = end(PEER_NAME);
    peer.attributes
        .push(LinkAttribute::NetNsFd(netns.as_fd().as_raw_fd()));
    let mut host = end(&config.name);
    host.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Veth),
        LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
    ]));
    host
}

async fn add_when_free(
    netlink: &Netlink,
    netns: &PrivateNetns,
    config: &TunnelPairConfig,
) -> Result<(), Error> {
    let name = &config.name;
    let deadline = Instant::now() + BUSY_TIMEOUT;
    loop {
        let request = RouteNetlinkMessage::NewLink(add_request(netns, config));
        match netlink.execute(request, NLM_F_CREATE | NLM_F_EXCL).await {
            Ok(()) => return Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {}
            Err(error) => {
                return Err(Error::doing(format!("create the interface pair {name}"))(
                    error,
                ));
            }
        }
        may_wait_for(netlink, config, deadline).await?;
        tokio::time::sleep(BUSY_RETRY).await;
    }
}

/// Looks whether a device that has the name may be a predecessor's, which vanishes.
pub(crate) async fn may_wait_for(
    netlink: &Netlink,
    config: &TunnelPairConfig,
    deadline: Instant,
) -> Result<(), Error> {
    let (name, owner, hint) = (&config.name, config.owner.noun(), config.owner.hint());
    let Some(link) = link::find(netlink, name).await? else {
        return Ok(());
    };
    // An end whose peer is in another namespace may be a killed predecessor's, also one that died before it could set the
    // alias.
    let is_pair = link.kind.as_deref() == Some("veth") && link.peer_elsewhere;
    let alias = link.alias.as_deref();
    let by = alias.filter(|alias| alias.starts_with(config.owner.alias()));
    if !is_pair && by.is_none() {
        return Err(Error::Refused(format!(
            "interface {name} exists and does not belong to {owner} ({}); delete it with `ip link del {name}` or {hint}",
            link.kind
                .or(link.driver)
                .unwrap_or_else(|| "a physical device".into()),
        )));
    }
    if Instant::now() > deadline {
        return Err(Error::Refused(format!(
            "interface {name} belongs to {owner} that runs ({}); stop it or {hint}",
            by.unwrap_or("it has no alias, so it may be another program's veth pair"),
        )));
    }
    Ok(())
}

fn end(link: &Link) -> Result<End, Error> {
    let mac = link.mac.ok_or_else(|| {
        Error::Refused(format!("interface {} has no hardware address", link.name))
    })?;
    Ok(End {
        name: link.name.clone(),
        ifindex: link.ifindex,
        mac,
    })
}

/// Settings of the `sig` device, made while it is down so that nothing is ever sent with others.
async fn prepare_host(netlink: &Netlink, host: &End, owner: Owner) -> Result<(), Error> {
    prepare(netlink, &host.name, host.ifindex, owner).await?;
    let ethtool = Ethtool::open().map_err(Error::doing("open an ethtool socket"))?;
    switch_offloads_off(&ethtool, &host.name)?;
    if let Err(error) = add_queue(netlink, host).await {
        tracing::warn!(
            "no packet queue on {}: {error}; bursts from the kernel into the tunnel may be dropped",
            host.name
        );
    }
    Ok(())
}

/// Alias and settings of the device that the kernel routes to.
pub(crate) async fn prepare(
    netlink: &Netlink,
    name: &str,
    ifindex: u32,
    owner: Owner,
) -> Result<(), Error> {
    let mut alias = LinkMessage::default();
    alias.header.index = ifindex;
    alias.attributes.push(LinkAttribute::IfAlias(format!(
        "{}, process {}",
        owner.alias(),
        std::process::id()
    )));
    netlink
        .execute(RouteNetlinkMessage::SetLink(alias), 0)
        .await
        .map_err(Error::doing(format!("set the alias of {name}")))?;
    for &(family, key, value) in SETTINGS {
        // A kernel without IPv6, or without a newer setting, needs no setting.
        let written = sysctl::write(family, name, key, value);
        // Containers may see their settings without being allowed to write them, and have the right ones.
        let is_right = || matches!(sysctl::read(family, name, key), Ok(Some(now)) if now == value);
        match written {
            Err(error) if !is_right() => {
                return Err(Error::doing(format!("set {key} = {value} on {name}"))(
                    error,
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

const SETTINGS: &[(Family, &str, i64)] = &[
    // Decapsulated packets enter the host here and are routed on to the LAN.
    (Family::V4, "forwarding", 1),
    // An address of this very host may be the source: a packet that left by one gateway and came back by this one.
    // Who may send what is policed by the engine, which knows the prefixes of every remote.
    (Family::V4, "accept_local", 1),
    // The way back to a source may be another interface (a remote reached by several gateways). The kernel takes the
    // stricter of this and conf.all.
    (Family::V4, "rp_filter", 0),
    // A redirect would tell a host beyond the tunnel to use a router that it cannot reach.
    (Family::V4, "send_redirects", 0),
    // Present on every host, even where IPv6 is off by default for new interfaces.
    (Family::V6, "disable_ipv6", 0),
    (Family::V6, "forwarding", 1),
    // The stack forwards IPv6 only when conf.all says so, or, since Linux 6.17, this.
    (Family::V6, "force_forwarding", 1),
    // No link-local address (1 = none), so no duplicate address detection and no multicast chatter into the tunnel.
    (Family::V6, "addr_gen_mode", 1),
    (Family::V6, "dad_transmits", 0),
    (Family::V6, "router_solicitations", 0),
    // No router advertisement is ever meant for this interface.
    (Family::V6, "accept_ra", 0),
    (Family::V6, "autoconf", 0),
];

/// The engine sees packets as they are in memory, so they must be complete on the device: checksums filled in
/// (`tx`), cut to the MTU (`tso`, `gso`), in one piece (`sg`), and not merged on reception (`gro`), since a merged packet
/// would have to be cut again before it fits the LAN.
fn switch_offloads_off(ethtool: &Ethtool, interface: &str) -> Result<(), Error> {
    for offload in Offload::ALL {
        ethtool
            .set_offload(interface, offload, false)
            .map_err(Error::doing(format!(
                "switch `{}` off on {interface}",
                offload.keyword()
            )))?;
    }
    Ok(())
}

/// A veth device has no queue by itself and drops what its 256-slot ring cannot take. With a queue the kernel holds
/// packets back instead (its length is the device's, 1000).
async fn add_queue(netlink: &Netlink, host: &End) -> io::Result<()> {
    let mut message = TcMessage::default();
    message.header.index = i32::try_from(host.ifindex).map_err(io::Error::other)?;
    message.header.parent = TcHandle::ROOT;
    message.attributes.push(TcAttribute::Kind("pfifo".into()));
    netlink
        .execute(
            RouteNetlinkMessage::NewQueueDiscipline(message),
            NLM_F_CREATE | NLM_F_EXCL,
        )
        .await
}

/// Devices made in the namespace from now on hand received packets to the CPU of their flow (receive packet steering). Each CPU
/// that sends would else have a queue of its own at the far end.
fn spread_by_flow(netns: &PrivateNetns) {
    let set = || std::fs::write(RPS_DEFAULT_MASK, mask(cpus::possible()));
    // An older kernel has no such setting (before 6.3), and some containers may not write it.
    if let Err(error) = netns.run(set).and_then(|set| set) {
        tracing::warn!(
            "cannot write {RPS_DEFAULT_MASK}: {error}; packets of a flow that several CPUs send may be reordered"
        );
    }
}

/// Which CPUs take received packets of new devices of the namespace.
const RPS_DEFAULT_MASK: &str = "/proc/sys/net/core/rps_default_mask";

/// All CPUs below `cpus`, as the kernel writes masks: words of 32 bits, the last first.
fn mask(cpus: u32) -> String {
    let words: Vec<String> = (0..cpus.div_ceil(32))
        .rev()
        .map(|word| format!("{:x}", u32::MAX >> 32u32.saturating_sub(cpus - word * 32)))
        .collect();
    words.join(",")
}

async fn set_up(netlink: &Netlink, end: &End) -> Result<(), Error> {
    let mut message = LinkMessage::default();
    message.header.index = end.ifindex;
    message.header.flags = LinkFlags::Up;
    message.header.change_mask = LinkFlags::Up;
    netlink
        .execute(RouteNetlinkMessage::SetLink(message), 0)
        .await
        .map_err(Error::doing(format!("bring {} up", end.name)))
}

#[cfg(test)]
mod tests {
    #[test]
    fn masks_have_a_bit_for_each_cpu() {
        for (cpus, expected) in [
            (1, "1"),
            (2, "3"),
            (32, "ffffffff"),
            (34, "3,ffffffff"),
            (64, "ffffffff,ffffffff"),
        ] {
            assert_eq!(super::mask(cpus), expected);
        }
    }
}
