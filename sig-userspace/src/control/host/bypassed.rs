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
    pub(crate) underlay: Vec<&'a str>,
    pub(crate) lan: Vec<&'a str>,
    /// All packets from and to the tunnel pass through the kernel.
    pub(crate) has_tun: bool,
}

/// Whether it is bypassed, and somebody could expect otherwise.
pub(crate) fn concerns(found: &Bypassed, taken: &Taken<'_>, transmit: LanTransmit) -> bool {
    let to_kernel = taken.has_tun || transmit == LanTransmit::Kernel;
    let kernel_forwards = taken.lan.is_empty() && to_kernel;
    let is_lan = |name: &str| taken.lan.contains(&name);
    let is_underlay = |name: &str| taken.underlay.contains(&name);
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

/// Says in the log what packets of a LAN interface bypass: there, and on the interface below that it is served on.
pub(super) async fn tell_of(
    netlink: &Netlink,
    links: [&Link; 2],
    has_tun: bool,
    transmit: LanTransmit,
) {
    let taken = Taken {
        underlay: Vec::new(),
        lan: links.iter().map(|link| &*link.name).collect(),
        has_tun,
    };
    look(netlink, &taken, &links, transmit).await;
}

/// Says in the log what packets bypass.
pub(super) async fn tell(
    netlink: &Netlink,
    interfaces: &Interfaces,
    has_tun: bool,
    transmit: LanTransmit,
) {
    let both = |link| [link, interfaces.below(link)];
    let underlay: Vec<&Link> = interfaces.underlay.iter().flat_map(both).collect();
    let lan: Vec<&Link> = interfaces.lan.iter().flat_map(both).collect();
    let taken = Taken {
        underlay: underlay.iter().map(|link| &*link.name).collect(),
        lan: lan.iter().map(|link| &*link.name).collect(),
        has_tun,
    };
    look(netlink, &taken, &[underlay, lan].concat(), transmit).await;
}

async fn look(netlink: &Netlink, taken: &Taken<'_>, links: &[&Link], transmit: LanTransmit) {
    let names = links.iter().map(|link| (link.ifindex, link.name.as_str()));
    let names: std::collections::BTreeMap<u32, &str> = names.collect();
    let names: Vec<_> = names.into_iter().collect();
    for found in netfilter::bypassed(netlink, &names).await {
        if concerns(&found, taken, transmit) {
            tracing::warn!("{found}; {}", netfilter::REMEDY);
        }
    }
}
