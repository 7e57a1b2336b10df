//! What the gateway works with: AF_XDP or UDP sockets, a pair of devices with XDP or a TUN device.

use std::{collections::BTreeSet, net::IpAddr};

use rtnetlink::packet_route::route::RouteType;
use sig_common::wire::scion::ENDHOST_PORT;
use sig_linux::{
    bpf,
    link::{self, Link},
    neighbours,
    netlink::Netlink,
    netns::PrivateNetns,
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
        let has_sockets = match (config.dataplane.underlay_port, &bpf) {
            (UnderlayPort::Socket, _) => true,
            (UnderlayPort::Xdp, Err(why)) => return Err(no_xdp(why)),
            (UnderlayPort::Auto, Err(why)) => {
                tracing::info!("sending frames by UDP sockets, not by AF_XDP: {why}");
                true
            }
            (wish, Ok(())) => match obstacle(netlink, config, next_hops).await? {
                Some(why) if wish == UnderlayPort::Xdp => return Err(no_xdp(&why)),
                Some(why) => {
                    tracing::warn!(
                        "sending frames by UDP sockets, which are slower, not by AF_XDP: {why}; firewalls on the underlay apply now: \
                         let UDP in at the ports {} and {ENDHOST_PORT}; if this is meant, write `[dataplane] underlay_port = \"socket\"`",
                        config.gateway.data_addr.port()
                    );
                    true
                }
                None => false,
            },
        };
        let pair = bpf.clone().and_then(|()| PrivateNetns::permitted());
        let has_tun = match (config.tunnel.device, &pair, &bpf) {
            (TunnelDevice::Tun, ..) => true,
            (TunnelDevice::Auto, Err(why), _) => {
                tracing::info!("the tunnel device is a TUN device, without XDP programs: {why}");
                true
            }
            (TunnelDevice::Veth, _, Err(why)) => {
                return Err(Error::Interface(format!(
                    "`[tunnel] device = \"veth\"` is not possible: {why}; correct that, or write \"tun\""
                )));
            }
            // Without the namespace, the error tells more when it is made.
            (TunnelDevice::Auto, Ok(()), _) | (TunnelDevice::Veth, ..) => false,
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

fn no_xdp(why: &str) -> Error {
    Error::Interface(format!(
        "`[dataplane] underlay_port = \"xdp\"` is not possible: {why}; correct that, or write \"socket\""
    ))
}

/// Why AF_XDP cannot reach any next hop, if that is so.
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
    let mut first = None;
    for next_hop in next_hops.iter().collect::<BTreeSet<_>>() {
        let Ok(route) = neighbours::lookup(netlink, Some(data_ip), *next_hop).await else {
            // There may be one later.
            continue;
        };
        let why = if route.kind == RouteType::Local {
            format!("the border router {next_hop} is on this host")
        } else {
            let mut links = links.iter();
            match links.find(|link| Some(link.ifindex) == route.ifindex) {
                Some(by) if by.ifindex != underlay.ifindex => format!(
                    "the route to {next_hop} leads over {}, and not over the underlay interface {}",
                    by.name, underlay.name
                ),
                // AF_XDP reaches this one. Paths over others are reported as not usable.
                _ => return Ok(None),
            }
        };
        first.get_or_insert(why);
    }
    Ok(first)
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
