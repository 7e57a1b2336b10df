//! Plain IP: the kernel forwards in gateways and routers, with static routes.

use std::{net::Ipv6Addr, time::Duration};

use anyhow::Result;
use testbed::{Family, Netns, Network, Options};

use super::{Chain, End, links, wait_loss_free};
use crate::throughput::subject::Refusal;

/// Time from the last command until packets cross.
const READY: Duration = Duration::from_secs(10);

/// The chain without gateways.
pub(super) struct Ip {
    network: Network,
}

impl Ip {
    pub(super) fn build() -> Result<Self> {
        let network = Network::links(&Options::default())?;
        links::prepare(&network)?;
        for end in End::ALL {
            forward(&network, end)?;
        }
        let chain = Self { network };
        wait_loss_free(&chain, READY)?;
        Ok(chain)
    }
}

/// Makes the gateway and the router of a site forward.
fn forward(network: &Network, end: End) -> Result<()> {
    let other = end.other();
    let (own, far) = (end.site(network), other.site(network));
    own.router.set_sysctls(&[
        ("net/ipv4/ip_forward", "1"),
        ("net/ipv6/conf/all/forwarding", "1"),
    ])?;
    // IPv6 beside the IPv4 addresses that the links have: gateway, router inside, router outside.
    let site = end as u16;
    let [gateway, inside, outside] = [2, 1, 3].map(|host| link_address(site, host));
    let far_outside = link_address(other as u16, 3);
    let add = |netns: &Netns, device: &str, address: Ipv6Addr, length: u8| {
        netns.ip(&format!(
            "address add {address}/{length} dev {device} nodad"
        ))
    };
    add(&own.gateway, "underlay", gateway, 64)?;
    add(&own.router, "inside", inside, 64)?;
    own.router.ip(&format!(
        "address add {outside}/128 peer {far_outside} dev outside nodad"
    ))?;
    let routes = |netns: &Netns, to: [String; 2], via: [String; 2]| {
        let lines: Vec<_> = to
            .iter()
            .zip(via)
            .map(|(to, via)| format!("route add {to} via {via}"))
            .collect();
        netns.ip(&lines.join("\n"))
    };
    let prefixes = |site: &testbed::Site| Family::ALL.map(|family| site.prefix(family));
    let inside_v4 = own.router_inside().ip().to_string();
    let far_v4 = far.router_outside().ip().to_string();
    let gateway_v4 = own.data_addr().ip().to_string();
    routes(&own.gateway, prefixes(far), [inside_v4, inside.to_string()])?;
    routes(
        &own.router,
        prefixes(far),
        [far_v4, far_outside.to_string()],
    )?;
    routes(
        &own.router,
        prefixes(own),
        [gateway_v4, gateway.to_string()],
    )?;
    Ok(())
}

/// An IPv6 address between gateway and router of a site.
fn link_address(site: u16, host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0xb, site, 0, 0, 0, 0, host)
}

impl Chain for Ip {
    fn network(&self) -> &Network {
        &self.network
    }

    fn gateways(&self) -> Vec<u32> {
        Vec::new()
    }

    fn restart(&mut self, _: End) -> Result<(), Refusal> {
        Err(Refusal::NotHere(
            "the kernel forwards here: there is no gateway to restart".into(),
        ))
    }
}
