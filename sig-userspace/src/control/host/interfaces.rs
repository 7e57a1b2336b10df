//! The interfaces that the configuration names, and what becomes of them.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
};

use tokio::sync::watch;

use super::{
    Error, Shared,
    choice::Choice,
    lock,
    ports::PortFacts,
    trunks::{RefusedTrunks, Trunk, Trunks},
};
use crate::control::{
    config::{Config, XdpMode},
    rules::Rules,
};
use sig_core::port::Role;
use sig_linux::{
    self, bpf,
    ethtool::Ethtool,
    link::{self, Link},
    netlink::Netlink,
    suited::{self, Unsuited, VlanTags},
    watch::InterfaceState,
};

/// The interfaces of the gateway as they were at the start.
pub(super) struct Interfaces {
    /// `None`: frames leave by UDP sockets.
    pub(super) underlay: Option<Link>,
    /// Those with ports.
    pub(super) lan: Vec<Link>,
    /// Indexes of all LAN interfaces that the configuration names.
    pub(super) around: Vec<u32>,
    /// Those of them that do not have the data address, too.
    pub(super) without_data: Vec<u32>,
    pub(super) trunks: Trunks,
    /// By index of interfaces with ports, the trunks on which they are served.
    pub(super) served_on: HashMap<u32, Trunk>,
}

impl Interfaces {
    /// Looks them up and checks that they can be used.
    pub(super) async fn find(
        netlink: &Netlink,
        config: &Config,
        (rules, refused): (&Rules, &RefusedTrunks),
        choice: Choice,
    ) -> Result<Self, Error> {
        let mut lan = Vec::new();
        for name in &config.dataplane.lan {
            // One that is missing may come.
            if let Some(link) = link::find(netlink, name).await? {
                lan.push(link);
            }
        }
        for link in &lan {
            compare_with_tunnel(link, config);
        }
        let around = lan.iter().map(|link| link.ifindex).collect();
        let data_ip = config.gateway.data_addr.ip();
        let without_data = lan.iter().filter(|link| !link.has_address(data_ip));
        let without_data = without_data.map(|link| link.ifindex).collect();
        if !choice.has_bpf {
            lan.clear();
        }
        let underlay = match choice.has_sockets {
            true => None,
            false => Some(underlay(netlink, config).await?),
        };
        let mut interfaces = Interfaces {
            underlay,
            lan,
            around,
            without_data,
            trunks: Trunks::new(config.dataplane.mode, rules, refused.clone()),
            served_on: HashMap::new(),
        };
        let links = link::all(netlink).await?;
        interfaces.find_trunks(&links)?;
        interfaces.check(config, &links)?;
        Ok(interfaces)
    }

    /// Finds out which of them are served on trunks.
    fn find_trunks(&mut self, links: &[Link]) -> Result<(), Error> {
        let used: Vec<&Link> = self.underlay.iter().chain(&self.lan).collect();
        for link in &used {
            // What is said of LAN interfaces is said when they come into service.
            let is_underlay = Some(*link) == self.underlay.as_ref();
            match self.trunks.find(link, &used, links, link::max_mtu()) {
                Ok(Some(trunk)) => {
                    self.served_on.insert(link.ifindex, trunk);
                }
                Ok(None) => {}
                // One that is down may come up later.
                Err(_) if !link.up => {}
                Err(why) => self.trunks.tell_generic(link, &why, is_underlay)?,
            }
        }
        Ok(())
    }

    /// The interface whose programs and sockets an interface has: usually its own.
    pub(super) fn below<'a>(&'a self, link: &'a Link) -> &'a Link {
        let trunk = self.served_on.get(&link.ifindex);
        trunk.map_or(link, |trunk| &trunk.link)
    }

    /// Checks that ports can be opened on them.
    fn check(&self, config: &Config, links: &[Link]) -> Result<(), Error> {
        let ethtool = Ethtool::open().map_err(sig_linux::Error::doing("open an ethtool socket"))?;
        // A LAN interface that is down may come up later.
        let lan = self.lan.iter().filter(|link| link.up);
        for link in self.underlay.iter().chain(lan) {
            check(&ethtool, config, link, links, true)?;
        }
        Ok(())
    }

    /// All interfaces with ports, the underlay first.
    pub(super) fn all(&self) -> impl Iterator<Item = &Link> {
        self.underlay.iter().chain(&self.lan)
    }
}

/// Checks that ports can be opened on an interface; `links` are all of this host. Whether doubts are `told` in the log.
pub(super) fn check(
    ethtool: &Ethtool,
    config: &Config,
    link: &Link,
    links: &[Link],
    told: bool,
) -> Result<(), Error> {
    let name = &link.name;
    mac(link)?;
    let is_native = config.dataplane.mode == XdpMode::Native;
    let refused = |why: Unsuited| Error::Interface(format!("interface {name} {why}"));
    suited::check_aggregate(link, links, is_native).map_err(refused)?;
    let tags = VlanTags::of(ethtool, link, links);
    match suited::check_vlans(link, links, tags) {
        Err(_) if tags == VlanTags::Unknown && !told => {}
        Err(why) if tags == VlanTags::Unknown => {
            tracing::warn!("interface {name} {why}");
        }
        checked => checked.map_err(refused)?,
    }
    link::check_mtu(link).map_err(Error::Interface)?;
    if !link.up {
        return Err(Error::Interface(format!(
            "interface {name} is down: `ip link set dev {name} up`"
        )));
    }
    Ok(())
}

/// Whether hosts behind a LAN interface may leave checksums to a card that is not there.
pub(super) fn is_virtual(link: &Link) -> bool {
    const PARAVIRTUAL: [&str; 4] = ["virtio", "xen_netfront", "vmxnet3", "hv_netvsc"];
    let is_paravirtual = |driver: &String| PARAVIRTUAL.iter().any(|name| driver.starts_with(name));
    link.kind.is_some()
        || link.driver.as_deref() == Some("veth")
        || link.driver.as_ref().is_some_and(is_paravirtual)
}

/// Says in the log if the LAN takes packets that the tunnel device does not.
pub(super) fn compare_with_tunnel(link: &Link, config: &Config) {
    let tunnel_mtu = u32::from(config.tunnel.mtu);
    if link.mtu > tunnel_mtu {
        tracing::warn!(
            "interface {}: {}",
            link.name,
            larger_than_tunnel(link, tunnel_mtu)
        );
    }
}

/// The interface of the data address.
async fn underlay(netlink: &Netlink, config: &Config) -> Result<Link, Error> {
    let data_ip = config.gateway.data_addr.ip();
    let has_data_ip = |link: &Link| link.has_address(data_ip);
    let underlay = match &config.dataplane.underlay {
        Some(name) => link::by_name(netlink, name).await?,
        None => link::all(netlink)
            .await?
            .into_iter()
            .find(has_data_ip)
            .ok_or_else(|| {
                Error::Interface(format!(
                    "no interface has the address {data_ip} of `[gateway] data_addr`: add it with \
                 `ip address add`, or correct the configuration"
                ))
            })?,
    };
    if !has_data_ip(&underlay) {
        return Err(Error::Interface(format!(
            "the underlay interface {} does not have the address {data_ip} of `[gateway] \
             data_addr`: add it with `ip address add {data_ip}/LENGTH dev {}`",
            underlay.name, underlay.name
        )));
    }
    Ok(underlay)
}

/// The MAC address, which every interface of the gateway must have.
pub(super) fn mac(link: &Link) -> Result<[u8; 6], Error> {
    link.mac.ok_or_else(|| {
        Error::Interface(format!(
            "interface {} has no Ethernet address: the gateway supports only Ethernet interfaces",
            link.name
        ))
    })
}

/// What becomes of packets that the LAN takes and the tunnel device does not.
pub(crate) fn larger_than_tunnel(link: &Link, tunnel_mtu: u32) -> String {
    format!(
        "MTU {mtu} is larger than that of the tunnel device, {tunnel_mtu}: larger packets that are left to the kernel, such as to hosts \
         whose MAC address is not known yet, are dropped, and their senders told to send smaller ones; set `mtu = {mtu}` in [tunnel]",
        mtu = link.mtu
    )
}

/// `None`: native if the driver can.
pub(super) fn xdp_mode(mode: XdpMode, link: Option<&Link>) -> Option<bpf::XdpMode> {
    match mode {
        XdpMode::Auto if link.is_some_and(suited::is_aggregate) => Some(bpf::XdpMode::Generic),
        XdpMode::Auto => None,
        XdpMode::Native => Some(bpf::XdpMode::Native),
        XdpMode::Generic => Some(bpf::XdpMode::Generic),
    }
}

/// What is known of an interface that is followed.
pub(super) struct Followed {
    /// Name at the start.
    name: String,
    last: InterfaceState,
    max_mtu: u32,
}

impl Followed {
    pub(super) fn new(link: &Link, max_mtu: u32) -> Self {
        Followed {
            name: link.name.clone(),
            last: InterfaceState {
                // What is too large is told.
                mtu: link.mtu.min(max_mtu),
                ..InterfaceState::from(link)
            },
            max_mtu,
        }
    }
}

impl Shared {
    /// Takes over another name, MAC address or MTU of an interface that is there.
    ///
    /// # Errors
    ///
    /// If the programs do not take them.
    pub(super) fn follow_port(
        &self,
        followed: &mut Followed,
        now: InterfaceState,
        port: &PortFacts,
    ) -> Result<(), Error> {
        let Followed {
            name: configured,
            last,
            max_mtu,
        } = followed;
        let (is_lan, max_mtu) = (port.is_lan(), *max_mtu);
        let name = now.name.as_deref().unwrap_or(configured);
        if now.name != last.name && name == configured {
            tracing::info!(
                interface = name,
                "the interface has its configured name again"
            );
        } else if now.name != last.name {
            let effect = if is_lan {
                "it stays in service, but the next start looks for the configured name: update `lan` in [dataplane]"
            } else {
                "update `underlay` in [dataplane] if it is set there, or the next start will fail"
            };
            tracing::warn!(
                interface = name,
                "interface {} has been renamed: {effect}",
                last.name.as_ref().unwrap_or(configured)
            );
        }
        if now.up != last.up {
            if now.up {
                tracing::info!(interface = name, "link is up");
            } else {
                tracing::warn!(interface = name, "link is down");
            }
        }
        port.set_up(now.up);
        port.mtu.store(now.mtu, Ordering::Relaxed);
        // What comes in for a VLAN device that is down goes nowhere: the kernel drops it.
        if now.up != last.up
            && let Some(trunk) = &port.trunk
            && let Some(programs) = lock(&self.programs).as_mut()
        {
            trunk.serve(programs, (port.role, port.ifindex), now.up)?;
        }
        if now.mtu != last.mtu && now.mtu > max_mtu {
            let effect = if is_lan {
                "hosts that send larger packets receive ICMP packet-too-big messages"
            } else {
                "larger frames are lost"
            };
            tracing::warn!(
                interface = name,
                mtu = now.mtu,
                "the MTU is too large: the packet buffers are for at most {max_mtu} bytes; {effect}; {}",
                if now.mtu <= link::max_mtu() {
                    "restart the gateway".to_owned()
                } else {
                    link::lower_mtu(name, max_mtu)
                }
            );
        }
        let changed = now.mac != last.mac || now.mtu != last.mtu;
        if let (true, Some(mac)) = (changed, now.mac) {
            tracing::info!(interface = name, "MAC address or MTU changed");
            let mut programs = lock(&self.programs);
            match programs.as_mut() {
                Some(programs) if is_lan => {
                    programs.set_lan_port(port.ifindex, mac, true, now.mtu.min(max_mtu))?;
                }
                Some(programs) => programs.set_underlay_mac(port.ifindex, mac)?,
                None => {}
            }
        }
        *last = now;
        Ok(())
    }
}

/// Follows the underlay interface. Its end ends the gateway, since programs and sockets are on it, even if another one gets its name.
pub(super) async fn follow_underlay(
    at_start: Link,
    mut state: watch::Receiver<InterfaceState>,
    shared: Arc<Shared>,
    fail: watch::Sender<Option<String>>,
) {
    let mut ports = shared.ports.iter();
    let Some(port) = ports.find(|port| port.role == Role::Underlay).cloned() else {
        return;
    };
    let mut followed = Followed::new(&at_start, shared.max_mtu);
    loop {
        let now = state.borrow_and_update().clone();
        if now.name.is_none() {
            let name = followed.last.name.as_ref().unwrap_or(&at_start.name);
            fail.send_replace(Some(format!("interface {name} was removed or replaced")));
            return;
        }
        if let Err(error) = shared.follow_port(&mut followed, now, &port) {
            fail.send_replace(Some(error.to_string()));
            return;
        }
        if state.changed().await.is_err() {
            return;
        }
    }
}

/// Follows the tunnel device. Its end ends the gateway: the kernel has nowhere to send packets for remotes.
pub(super) async fn follow_tunnel(
    mut state: watch::Receiver<InterfaceState>,
    shared: Arc<Shared>,
    fail: watch::Sender<Option<String>>,
) {
    let mut name = String::new();
    loop {
        let now = state.borrow_and_update().clone();
        match now.name {
            Some(known) => name = known,
            None => {
                fail.send_replace(Some(format!("tunnel device {name} was removed")));
                return;
            }
        }
        let mut ports = shared.ports.iter();
        if let Some(port) = ports.find(|port| port.role == Role::Tunnel) {
            port.set_up(now.up);
        }
        if state.changed().await.is_err() {
            return;
        }
    }
}
