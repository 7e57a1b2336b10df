//! The interfaces that the configuration names, and what becomes of them.

use std::sync::Arc;

use ipnet::IpNet;
use tokio::sync::watch;

use super::{Error, Shared, lock};
use crate::{
    control::config::{Config, XdpMode},
    kernel::{
        self, bpf,
        ethtool::Ethtool,
        link::{self, Link},
        netlink::Netlink,
        suited::{self, Unsuited, VlanTags},
        watch::InterfaceState,
    },
};

/// The interfaces of the gateway as they were at the start.
pub(super) struct Interfaces {
    pub(super) underlay: Link,
    pub(super) lan: Vec<Link>,
}

impl Interfaces {
    /// Looks them up and checks that they can be used.
    pub(super) async fn find(netlink: &Netlink, config: &Config) -> Result<Self, Error> {
        let data_ip = config.gateway.data_addr.ip();
        let has_data_ip = |link: &Link| link.addresses.iter().any(|net| net.addr() == data_ip);
        let underlay = match &config.dataplane.underlay {
            Some(name) => link::by_name(netlink, name).await?,
            None => link::all(netlink).await?.into_iter().find(has_data_ip).ok_or_else(|| {
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
        let mut lan = Vec::new();
        for name in &config.dataplane.lan {
            lan.push(link::by_name(netlink, name).await?);
        }
        let interfaces = Interfaces { underlay, lan };
        let links = link::all(netlink).await?;
        let ethtool = Ethtool::open().map_err(kernel::Error::doing("open an ethtool socket"))?;
        for link in interfaces.all() {
            let name = &link.name;
            mac(link)?;
            let is_generic = config.dataplane.mode == XdpMode::Generic;
            let refused = |why: Unsuited| Error::Interface(format!("interface {name} {why}"));
            suited::check_aggregate(link, &links, is_generic).map_err(refused)?;
            let tags = VlanTags::of(&ethtool, link, &links);
            match suited::check_vlans(link, &links, tags) {
                Err(why) if tags == VlanTags::Unknown => {
                    tracing::warn!("interface {name} {why}");
                }
                checked => checked.map_err(refused)?,
            }
            link::check_mtu(link).map_err(Error::Interface)?;
            if !link.up {
                return Err(Error::Interface(format!(
                    "interface {name} is down: `ip link set dev {name} up`",
                    name = link.name
                )));
            }
        }
        Ok(interfaces)
    }

    /// All interfaces, the underlay first.
    pub(super) fn all(&self) -> impl Iterator<Item = &Link> {
        std::iter::once(&self.underlay).chain(&self.lan)
    }

    /// The networks that they are connected to.
    pub(super) fn networks(&self) -> Vec<IpNet> {
        let addresses = self.all().flat_map(|link| &link.addresses);
        addresses.map(IpNet::trunc).collect()
    }

    /// Whether hosts behind a LAN interface may leave checksums to a card that is not there.
    pub(super) fn any_virtual_lan(&self) -> bool {
        const PARAVIRTUAL: [&str; 4] = ["virtio", "xen_netfront", "vmxnet3", "hv_netvsc"];
        let is_paravirtual =
            |driver: &String| PARAVIRTUAL.iter().any(|name| driver.starts_with(name));
        self.lan.iter().any(|link| {
            link.kind.is_some()
                || link.driver.as_deref() == Some("veth")
                || link.driver.as_ref().is_some_and(is_paravirtual)
        })
    }
}

/// The MAC address, which every interface of the gateway must have.
pub(super) fn mac(link: &Link) -> Result<[u8; 6], Error> {
    link.mac.ok_or_else(|| {
        Error::Interface(format!(
            "interface {} has no Ethernet address: the gateway works on Ethernet interfaces only",
            link.name
        ))
    })
}

/// `None`: native if the driver can.
pub(super) fn xdp_mode(mode: XdpMode) -> Option<bpf::XdpMode> {
    match mode {
        XdpMode::Auto => None,
        XdpMode::Native => Some(bpf::XdpMode::Native),
        XdpMode::Generic => Some(bpf::XdpMode::Generic),
    }
}

/// Follows one interface: another MAC address is taken over, another device under the same name ends
/// the gateway, since programs and sockets are on the old one.
pub(super) async fn follow(
    at_start: Link,
    mut state: watch::Receiver<InterfaceState>,
    shared: Arc<Shared>,
    fail: watch::Sender<Option<String>>,
) {
    let mut last = state.borrow_and_update().clone();
    loop {
        let name = at_start.name.as_str();
        let now = state.borrow_and_update().clone();
        if now.ifindex != Some(at_start.ifindex) {
            fail.send_replace(Some(format!(
                "interface {name} was removed, renamed or replaced"
            )));
            return;
        }
        if now.up != last.up {
            if now.up {
                tracing::info!(interface = name, "link is up");
            } else {
                tracing::warn!(interface = name, "link is down");
            }
        }
        let port = shared.ports.iter().find(|port| port.interface == name);
        if let Some(port) = port {
            port.set_up(now.up);
        }
        let is_lan = port.is_some_and(|port| port.is_lan());
        let changed = now.mac != last.mac || now.mtu != last.mtu;
        if let (true, Some(mac)) = (changed, now.mac) {
            tracing::info!(interface = name, "MAC address or MTU changed");
            let mut programs = lock(&shared.programs);
            let told = if is_lan {
                programs.set_lan_port(at_start.ifindex, mac, true, now.mtu)
            } else {
                programs.set_underlay_mac(at_start.ifindex, mac)
            };
            if let Err(error) = told {
                fail.send_replace(Some(error.to_string()));
                return;
            }
        }
        last = now;
        if state.changed().await.is_err() {
            return;
        }
    }
}
