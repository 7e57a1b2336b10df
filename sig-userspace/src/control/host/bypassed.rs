//! Rules and settings of the host that packets of this gateway do not meet.

use sig_linux::{
    link::Link,
    netfilter::{self, Bypassed},
    netlink::Netlink,
};

use super::interfaces::Interfaces;
use crate::control::config::LanTransmit;

/// What the gateway takes packets from by XDP.
pub(crate) struct Taken<'a> {
    pub(crate) underlay: Option<&'a str>,
    pub(crate) lan: Vec<&'a str>,
    /// All packets from and to the tunnel pass through the kernel.
    pub(crate) has_tun: bool,
}

/// Whether it is bypassed, and somebody could expect otherwise.
pub(crate) fn concerns(found: &Bypassed, taken: &Taken<'_>, transmit: LanTransmit) -> bool {
    let to_kernel = taken.has_tun || transmit == LanTransmit::Kernel;
    let kernel_forwards = taken.lan.is_empty() && to_kernel;
    let is_lan = |name: &str| taken.lan.contains(&name);
    let is_underlay = |name: &str| taken.underlay == Some(name);
    match found {
        Bypassed::Nftables { device: None, .. } | Bypassed::Iptables { .. } => !kernel_forwards,
        Bypassed::Nftables {
            device: Some(name), ..
        } => is_lan(name) || is_underlay(name),
        Bypassed::Qdisc { interface, kind } if is_lan(interface) => {
            transmit == LanTransmit::Auto || matches!(&**kind, "ingress" | "clsact")
        }
        Bypassed::Qdisc { interface, .. } => is_underlay(interface),
        // Who sends frames is checked otherwise.
        Bypassed::ReversePath { interface } => is_lan(interface),
    }
}

/// Says in the log what packets of a LAN interface bypass.
pub(super) async fn tell_of(netlink: &Netlink, link: &Link, has_tun: bool, transmit: LanTransmit) {
    let taken = Taken {
        underlay: None,
        lan: vec![&link.name],
        has_tun,
    };
    look(netlink, &taken, &[(link.ifindex, &link.name)], transmit).await;
}

/// Says in the log what packets bypass.
pub(super) async fn tell(
    netlink: &Netlink,
    interfaces: &Interfaces,
    has_tun: bool,
    transmit: LanTransmit,
) {
    let taken = Taken {
        underlay: interfaces.underlay.as_ref().map(|link| link.name.as_str()),
        lan: interfaces.lan.iter().map(|link| &*link.name).collect(),
        has_tun,
    };
    let links = interfaces.all();
    let names: Vec<_> = links
        .map(|link| (link.ifindex, link.name.as_str()))
        .collect();
    look(netlink, &taken, &names, transmit).await;
}

async fn look(netlink: &Netlink, taken: &Taken<'_>, names: &[(u32, &str)], transmit: LanTransmit) {
    for found in netfilter::bypassed(netlink, names).await {
        if concerns(&found, taken, transmit) {
            tracing::warn!("{found}; {}", netfilter::REMEDY);
        }
    }
}
