//! Rules and settings of the host that packets of this gateway do not meet.

use sig_linux::{
    netfilter::{self, Bypassed},
    netlink::Netlink,
};

use super::interfaces::Interfaces;
use crate::control::config::{Config, LanTransmit};

/// Whether it is bypassed with this configuration, and somebody could expect otherwise.
pub(crate) fn concerns(found: &Bypassed, config: &Config, underlay: Option<&str>) -> bool {
    let dataplane = &config.dataplane;
    let kernel_forwards = dataplane.lan.is_empty() && dataplane.lan_transmit == LanTransmit::Kernel;
    let is_lan = |name: &str| dataplane.lan.iter().any(|lan| lan == name);
    match found {
        Bypassed::Nftables { device: None, .. } | Bypassed::Iptables { .. } => !kernel_forwards,
        Bypassed::Nftables {
            device: Some(name), ..
        } => is_lan(name) || underlay == Some(name),
        Bypassed::Qdisc { interface, kind } if is_lan(interface) => {
            dataplane.lan_transmit == LanTransmit::Auto || matches!(&**kind, "ingress" | "clsact")
        }
        Bypassed::Qdisc { interface, .. } => underlay == Some(interface),
        // Who sends frames is checked otherwise.
        Bypassed::ReversePath { interface } => is_lan(interface),
    }
}

/// Says in the log what packets bypass.
pub(super) async fn tell(netlink: &Netlink, interfaces: &Interfaces, config: &Config) {
    let underlay = interfaces.underlay.as_ref().map(|link| link.name.as_str());
    let links = interfaces.all();
    let names: Vec<_> = links
        .map(|link| (link.ifindex, link.name.as_str()))
        .collect();
    for found in netfilter::bypassed(netlink, &names).await {
        if concerns(&found, config, underlay) {
            tracing::warn!("{found}; {}", netfilter::REMEDY);
        }
    }
}
