//! What the kernel knows of a network interface.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use ipnet::IpNet;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage};
use rtnetlink::packet_route::link::{
    InfoBridge, InfoData, InfoVlan, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, LinkXdp, State,
};

use sig_common::wire::ethernet::{TPID_8021Q, Tag};

use super::Error;
use super::af_xdp::set_option;
use super::ethtool::Ethtool;
use super::facts;
use super::netlink::Netlink;

/// A network interface at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Name in its network namespace
    pub name: String,
    /// Index in its network namespace, never 0
    pub ifindex: u32,
    /// Hardware address; `None` when the interface is not Ethernet-like
    pub mac: Option<[u8; 6]>,
    /// Largest packet in bytes, from the IP header on
    pub mtu: u32,
    /// Largest MTU the driver allows as things are now (an attached XDP program lowers it); 0: no limit known
    pub max_mtu: u32,
    /// Administratively up
    pub up: bool,
    /// Has a carrier
    pub carrier: bool,
    /// Operational state (RFC 2863) as `ip link` words it, in lower case
    pub oper_state: String,
    /// No neighbour resolution on this interface
    pub noarp: bool,
    /// The loopback interface
    pub loopback: bool,
    /// Transmit queue length in packets
    pub tx_queue_len: u32,
    /// Receive queues in use
    pub rx_queues: u32,
    /// Transmit queues in use
    pub tx_queues: u32,
    /// Driver name from ethtool, if it tells
    pub driver: Option<String>,
    /// Kind of a virtual interface, such as `veth`
    pub kind: Option<String>,
    /// Of an interface of kind `vlan`, the tag with which [`Self::peer_ifindex`] carries its frames; priority 0
    pub vlan: Option<Tag>,
    /// Index of the bond, team or bridge that this interface is a port of
    pub controller: Option<u32>,
    /// A bridge that tells VLANs apart
    pub vlan_filtering: bool,
    /// Free text set by an administrator or by us
    pub alias: Option<String>,
    /// Id of the attached XDP program
    pub xdp_program: Option<u32>,
    /// The other end of a pair is in another network namespace
    pub peer_elsewhere: bool,
    /// Index of the interface below or the other end of a pair
    pub peer_ifindex: Option<u32>,
    /// Addresses with their prefix lengths, in the kernel's order
    pub addresses: Vec<IpNet>,
}

impl Link {
    /// Whether the interface carries this address.
    pub fn has_address(&self, ip: IpAddr) -> bool {
        self.addresses.iter().any(|net| net.addr() == ip)
    }
}

/// Whether sockets can have the address. One of IPv6 that the kernel still looks for duplicates of is not here yet.
#[must_use]
pub fn can_bind(ip: IpAddr) -> bool {
    match UdpSocket::bind((ip, 0)) {
        // Whatever else is wrong is told by who needs the address.
        Err(error) => error.kind() != io::ErrorKind::AddrNotAvailable,
        Ok(_) => true,
    }
}

/// The interface called `name`, `None` when there is none.
pub async fn find(netlink: &Netlink, name: &str) -> Result<Option<Link>, Error> {
    let mut request = LinkMessage::default();
    request.attributes.push(LinkAttribute::IfName(name.into()));
    get(netlink, request)
        .await
        .map_err(Error::doing(format!("look up interface {name}")))
}

/// The interface called `name`, or an error that says so.
pub async fn by_name(netlink: &Netlink, name: &str) -> Result<Link, Error> {
    find(netlink, name).await?.ok_or_else(|| {
        Error::Refused(format!(
            "there is no interface {name} here; `ip -br link` lists the existing ones"
        ))
    })
}

/// The interface with index `ifindex`, `None` when there is none.
pub async fn by_index(netlink: &Netlink, ifindex: u32) -> Result<Option<Link>, Error> {
    let mut request = LinkMessage::default();
    request.header.index = ifindex;
    get(netlink, request)
        .await
        .map_err(Error::doing(format!("look up interface number {ifindex}")))
}

/// All interfaces of the network namespace.
pub async fn all(netlink: &Netlink) -> Result<Vec<Link>, Error> {
    let doing = || Error::doing("list the network interfaces");
    let answers = netlink
        .dump(RouteNetlinkMessage::GetLink(LinkMessage::default()))
        .await
        .map_err(doing())?;
    let addresses = addresses(netlink).await.map_err(doing())?;
    let links = answers.into_iter().filter_map(|answer| match answer {
        RouteNetlinkMessage::NewLink(message) => Some(from_message(&message, &addresses)),
        _ => None,
    });
    Ok(links.collect())
}

/// By interface index, packets that the interface could not send (`tx_dropped` of `ip -s link`). Which of those that XDP
/// programs send are among them is the driver's choice.
pub async fn not_sent(netlink: &Netlink) -> Result<HashMap<u32, u64>, Error> {
    let answers = netlink
        .dump(RouteNetlinkMessage::GetLink(LinkMessage::default()))
        .await
        .map_err(Error::doing("read the counters of the network interfaces"))?;
    let counts = answers.into_iter().filter_map(|answer| {
        let RouteNetlinkMessage::NewLink(message) = answer else {
            return None;
        };
        let stats = message
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                LinkAttribute::Stats64(stats) => Some(stats),
                _ => None,
            })?;
        Some((message.header.index, stats.tx_dropped))
    });
    Ok(counts.collect())
}

async fn get(netlink: &Netlink, request: LinkMessage) -> io::Result<Option<Link>> {
    match netlink.get(RouteNetlinkMessage::GetLink(request)).await {
        Ok(Some(RouteNetlinkMessage::NewLink(message))) => {
            Ok(Some(from_message(&message, &addresses(netlink).await?)))
        }
        Ok(_) => Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The names of all interfaces by their index.
pub(super) async fn names(netlink: &Netlink) -> io::Result<HashMap<u32, String>> {
    let answers = netlink
        .dump(RouteNetlinkMessage::GetLink(LinkMessage::default()))
        .await?;
    let names = answers.into_iter().filter_map(|answer| {
        let RouteNetlinkMessage::NewLink(message) = answer else {
            return None;
        };
        let mut attributes = message.attributes.into_iter();
        attributes.find_map(|attribute| match attribute {
            LinkAttribute::IfName(name) => Some((message.header.index, name)),
            _ => None,
        })
    });
    Ok(names.collect())
}

/// All addresses with the index of their interface.
pub(super) async fn addresses(netlink: &Netlink) -> io::Result<Vec<(u32, IpNet)>> {
    let answers = netlink
        .dump(RouteNetlinkMessage::GetAddress(AddressMessage::default()))
        .await?;
    let addresses = answers.into_iter().filter_map(|answer| match answer {
        RouteNetlinkMessage::NewAddress(message) => address(&message),
        _ => None,
    });
    Ok(addresses.collect())
}

fn vlan_tag(info: &LinkInfo) -> Option<Tag> {
    let LinkInfo::Data(InfoData::Vlan(values)) = info else {
        return None;
    };
    let id = values.iter().find_map(|value| match value {
        InfoVlan::Id(id) => Some(*id),
        _ => None,
    })?;
    let protocol = values.iter().find_map(|value| match value {
        InfoVlan::Protocol(protocol) => Some((*protocol).into()),
        _ => None,
    });
    Some(Tag {
        tpid: protocol.unwrap_or(TPID_8021Q),
        tci: id & 0x0fff,
    })
}

fn filters_vlans(info: &LinkInfo) -> bool {
    let LinkInfo::Data(InfoData::Bridge(values)) = info else {
        return false;
    };
    values.contains(&InfoBridge::VlanFiltering(true))
}

/// On a point-to-point interface `Address` is the other side's, so `Local` goes first.
fn address(message: &AddressMessage) -> Option<(u32, IpNet)> {
    let find = |wanted: fn(&AddressAttribute) -> Option<IpAddr>| {
        message.attributes.iter().find_map(wanted)
    };
    let ip = find(|attribute| match attribute {
        AddressAttribute::Local(ip) => Some(*ip),
        _ => None,
    })
    .or_else(|| {
        find(|attribute| match attribute {
            AddressAttribute::Address(ip) => Some(*ip),
            _ => None,
        })
    })?;
    Some((
        message.header.index,
        IpNet::new(ip, message.header.prefix_len).ok()?,
    ))
}

fn from_message(message: &LinkMessage, addresses: &[(u32, IpNet)]) -> Link {
    let flags = message.header.flags;
    let ifindex = message.header.index;
    let mut link = Link {
        name: String::new(),
        ifindex,
        mac: None,
        mtu: 0,
        max_mtu: 0,
        up: flags.contains(LinkFlags::Up),
        carrier: flags.contains(LinkFlags::LowerUp),
        oper_state: State::Unknown.to_string().to_lowercase(),
        noarp: flags.contains(LinkFlags::Noarp),
        loopback: flags.contains(LinkFlags::Loopback),
        tx_queue_len: 0,
        rx_queues: 1,
        tx_queues: 1,
        driver: None,
        kind: None,
        vlan: None,
        controller: None,
        vlan_filtering: false,
        alias: None,
        xdp_program: None,
        peer_elsewhere: false,
        peer_ifindex: None,
        addresses: addresses
            .iter()
            .filter(|(of, _)| *of == ifindex)
            .map(|(_, net)| *net)
            .collect(),
    };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            LinkAttribute::Address(bytes) => link.mac = bytes.as_slice().try_into().ok(),
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            LinkAttribute::MaxMtu(mtu) => link.max_mtu = *mtu,
            LinkAttribute::OperState(state) => link.oper_state = state.to_string().to_lowercase(),
            LinkAttribute::TxQueueLen(length) => link.tx_queue_len = *length,
            LinkAttribute::NumRxQueues(count) => link.rx_queues = *count,
            LinkAttribute::NumTxQueues(count) => link.tx_queues = *count,
            LinkAttribute::IfAlias(alias) => link.alias = Some(alias.clone()),
            LinkAttribute::LinkNetNsId(_) => link.peer_elsewhere = true,
            LinkAttribute::Controller(index) => link.controller = Some(*index),
            LinkAttribute::Link(index) => link.peer_ifindex = Some(*index),
            LinkAttribute::LinkInfo(infos) => {
                link.kind = infos.iter().find_map(|info| match info {
                    LinkInfo::Kind(kind) => Some(kind.to_string()),
                    _ => None,
                });
                link.vlan = infos.iter().find_map(vlan_tag);
                link.vlan_filtering = infos.iter().any(filters_vlans);
            }
            LinkAttribute::Xdp(infos) => {
                link.xdp_program = infos.iter().find_map(|info| match info {
                    LinkXdp::ProgId(id) if *id != 0 => Some(*id),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    // Netlink tells how many queues were allocated; a driver with channels tells how many of them are in use.
    if let Ok(ethtool) = Ethtool::open() {
        if let Ok(channels) = ethtool.channels(&link.name)
            && channels.rx > 0
            && channels.tx > 0
        {
            (link.rx_queues, link.tx_queues) = (channels.rx, channels.tx);
        }
        link.driver = ethtool.driver(&link.name).ok();
    }
    link
}

/// Largest MTU of an interface whose packets fit one UMEM chunk, and the largest that veth takes with an XDP program
/// that does not understand packets in several pieces: a page less headroom and the kernel's bookkeeping.
pub const MAX_XDP_MTU: u32 = 3506;

/// Largest MTU of an interface where AF_XDP takes packets in several chunks.
pub const MAX_JUMBO_MTU: u32 = 9216;

/// The first kernel whose AF_XDP does.
const JUMBO_KERNEL: (u32, u32) = (6, 6);

/// The largest MTU of an interface that works on a kernel, by the first two numbers of its release, if they are known.
#[must_use]
pub fn max_mtu_on(kernel: Option<(u32, u32)>) -> u32 {
    if kernel.is_none_or(|kernel| kernel >= JUMBO_KERNEL) {
        MAX_JUMBO_MTU
    } else {
        MAX_XDP_MTU
    }
}

/// The largest MTU of an interface that works on this kernel.
#[must_use]
pub fn max_mtu() -> u32 {
    max_mtu_on(facts::kernel_version())
}

/// What to say of an MTU beyond [`max_mtu`].
#[must_use]
pub fn mtu_limit(max_mtu: u32) -> &'static str {
    match max_mtu {
        MAX_XDP_MTU => "an MTU above 3506 needs Linux 6.6",
        _ => "the maximum is 9216",
    }
}

/// Keeps a device promiscuous until dropped, also if the process is killed: it takes frames for all addresses.
#[derive(Debug)]
pub struct Promiscuous {
    _socket: OwnedFd,
}

impl Promiscuous {
    /// Of a device of the calling thread's network namespace. Needs CAP_NET_RAW.
    ///
    /// # Errors
    /// No such device, or no privilege.
    pub fn new(ifindex: u32) -> io::Result<Self> {
        // SAFETY: takes no pointer. Protocol 0: the socket never receives anything.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just opened, and nobody else's.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let membership = libc::packet_mreq {
            mr_ifindex: ifindex.cast_signed(),
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        set_option(
            socket.as_fd(),
            libc::SOL_PACKET,
            libc::PACKET_ADD_MEMBERSHIP,
            &membership,
        )?;
        Ok(Self { _socket: socket })
    }
}

/// Refuses interfaces whose MTU our packet buffers cannot carry on this kernel.
pub fn check_mtu(link: &Link) -> Result<(), String> {
    let max_mtu = max_mtu();
    if link.mtu <= max_mtu {
        return Ok(());
    }
    Err(format!(
        "interface {name} has MTU {mtu}, but {}; {}",
        mtu_limit(max_mtu),
        lower_mtu(&link.name, max_mtu),
        name = link.name,
        mtu = link.mtu,
    ))
}

/// What to do about an MTU beyond `max_mtu`.
pub fn lower_mtu(name: &str, max_mtu: u32) -> String {
    format!(
        "lower it with `ip link set dev {name} mtu {max_mtu}`, on the hosts of that network too; if it is the \
         underlay, lower `mtu` in topology.json of the AS as well, to {} (IPv6: {}), or other ASes send larger frames",
        max_mtu - underlay_headers(Ipv4Addr::UNSPECIFIED.into()),
        max_mtu - underlay_headers(Ipv6Addr::UNSPECIFIED.into()),
    )
}

/// Bytes of the IP and UDP headers in front of a SCION packet to this next hop.
pub const fn underlay_headers(next_hop: IpAddr) -> u32 {
    match next_hop {
        IpAddr::V4(_) => 20 + 8,
        IpAddr::V6(_) => 40 + 8,
    }
}

#[cfg(test)]
mod tests {
    use rtnetlink::packet_route::link::InfoKind;

    use super::*;

    fn parsed(attributes: Vec<LinkAttribute>) -> Link {
        let mut message = LinkMessage::default();
        message.attributes = attributes;
        from_message(&message, &[])
    }

    #[test]
    fn bonds_their_ports_and_bridges_with_vlans_are_told() {
        for (kind, name) in [
            (InfoKind::Bond, "bond"),
            (InfoKind::Team, "team"),
            (InfoKind::Other("team".into()), "team"),
        ] {
            let link = parsed(vec![LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind)])]);
            assert_eq!(link.kind.as_deref(), Some(name));
            assert!(!link.vlan_filtering);
        }
        let port = parsed(vec![LinkAttribute::Controller(7)]);
        assert_eq!(port.controller, Some(7));
        for filters in [false, true] {
            let data = InfoData::Bridge(vec![InfoBridge::VlanFiltering(filters)]);
            let infos = vec![LinkInfo::Kind(InfoKind::Bridge), LinkInfo::Data(data)];
            let bridge = parsed(vec![LinkAttribute::LinkInfo(infos)]);
            assert_eq!(bridge.vlan_filtering, filters);
        }
    }
}
