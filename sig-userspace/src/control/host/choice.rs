//! What the gateway works with: AF_XDP or UDP sockets, a pair of devices with XDP or a TUN device.

use std::{collections::BTreeSet, net::IpAddr};

use rtnetlink::packet_route::route::RouteType;
use sig_linux::{
    bpf,
    link::{self, Link},
    neighbours,
    netlink::Netlink,
};

use super::Error;
use crate::control::config::{Config, TunnelDevice, UnderlayPort};

/// What was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    /// UDP sockets towards the border routers.
    pub(super) has_sockets: bool,
    /// A TUN device.
    pub(super) has_tun: bool,
    /// XDP programs may run on LAN interfaces.
    pub(super) has_bpf: bool,
}

impl Choice {
    /// Chooses, given where paths go first, and says in the log why it is not XDP.
    ///
    /// # Errors
    /// What is configured is not possible, and why.
    pub(super) async fn make(
        netlink: &Netlink,
        config: &Config,
        next_hops: &[IpAddr],
    ) -> Result<Self, Error> {
        let bpf = bpf::permitted();
        let has_sockets = match config.dataplane.underlay_port {
            UnderlayPort::Socket => true,
            wish => {
                let obstacle = match &bpf {
                    Ok(()) => obstacle(netlink, config, next_hops).await?,
                    Err(why) => Some(why.clone()),
                };
                match (obstacle, wish) {
                    (Some(why), UnderlayPort::Xdp) => {
                        return Err(Error::Interface(format!(
                            "`[dataplane] underlay_port = \"xdp\"` is not possible: {why}; correct that, or write \"socket\""
                        )));
                    }
                    (Some(why), _) => {
                        tracing::info!("sending frames by UDP sockets, not by AF_XDP: {why}");
                        true
                    }
                    (None, _) => false,
                }
            }
        };
        let has_tun = match (config.tunnel.device, &bpf) {
            (TunnelDevice::Tun, _) => true,
            (_, Ok(())) => false,
            (TunnelDevice::Auto, Err(why)) => {
                tracing::info!("the tunnel device is a TUN device, without XDP programs: {why}");
                true
            }
            (TunnelDevice::Veth, Err(why)) => {
                return Err(Error::Interface(format!(
                    "`[tunnel] device = \"veth\"` is not possible: {why}; correct that, or write \"tun\""
                )));
            }
        };
        if let (Err(why), [_, ..]) = (&bpf, &*config.dataplane.lan) {
            tracing::info!("packets on LAN interfaces take the way through the kernel: {why}");
        }
        Ok(Choice {
            has_sockets,
            has_tun,
            has_bpf: bpf.is_ok(),
        })
    }
}

/// Why AF_XDP cannot reach the next hops, if that is so.
async fn obstacle(
    netlink: &Netlink,
    config: &Config,
    next_hops: &[IpAddr],
) -> Result<Option<String>, Error> {
    let data_ip = config.gateway.data_addr.ip();
    let links = link::all(netlink).await?;
    let underlay = links.iter().find(|link| match &config.dataplane.underlay {
        Some(name) => link.name == *name,
        None => link.has_address(data_ip),
    });
    // What is missing is an error, and told as one.
    let Some(underlay) = underlay else {
        return Ok(None);
    };
    if let Some(why) = not_ethernet(underlay) {
        let name = &underlay.name;
        return Ok(Some(format!("the underlay interface {name} is {why}")));
    }
    for next_hop in next_hops.iter().collect::<BTreeSet<_>>() {
        let Ok(route) = neighbours::lookup(netlink, Some(data_ip), *next_hop).await else {
            // There may be one later.
            continue;
        };
        if route.kind == RouteType::Local {
            return Ok(Some(format!(
                "the border router {next_hop} is on this host"
            )));
        }
        let by = links
            .iter()
            .find(|link| Some(link.ifindex) == route.ifindex);
        let Some(by) = by.filter(|by| by.ifindex != underlay.ifindex) else {
            continue;
        };
        return Ok(Some(format!(
            "the route to {next_hop} leads over {}, and not over the underlay interface {}",
            by.name, underlay.name
        )));
    }
    Ok(None)
}

fn not_ethernet(link: &Link) -> Option<&'static str> {
    if link.loopback {
        Some("the loopback interface")
    } else if link.mac.is_none() {
        Some("no Ethernet interface")
    } else {
        None
    }
}
