//! The last line of defence against prefixes of remotes that would capture the gateway's own traffic.

use std::{collections::HashSet, net::IpAddr};

use ipnet::IpNet;

use super::interfaces::Interfaces;
use crate::control::plan::Plan;

/// What the gateway itself must reach without the tunnel.
#[derive(Debug, Default)]
pub(super) struct Guard {
    /// Networks of the underlay interface: border routers and control services are there.
    underlay: Vec<IpNet>,
    /// Networks of all interfaces of the gateway. The kernel and the LAN programs prefer them to wider
    /// prefixes.
    connected: Vec<IpNet>,
    /// The gateway's own addresses.
    own: Vec<IpAddr>,
    /// Prefixes refused so far, which have been logged.
    refused: HashSet<IpNet>,
}

impl Guard {
    pub(super) fn new(interfaces: &Interfaces) -> Self {
        let underlay = interfaces.underlay.addresses.iter();
        let all = interfaces.all().flat_map(|link| &link.addresses);
        Guard {
            underlay: underlay.map(IpNet::trunc).collect(),
            connected: interfaces.networks(),
            own: all.map(IpNet::addr).collect(),
            refused: HashSet::new(),
        }
    }

    /// The plan without dangerous prefixes.
    pub(super) fn admit(&mut self, mut plan: Plan) -> Plan {
        let hops = plan.outside();
        let mut refused = HashSet::new();
        for site in &mut plan.sites {
            site.prefixes.retain(|prefix| {
                let Some(captured) = self.captured(prefix, &hops) else {
                    return true;
                };
                if !self.refused.contains(prefix) {
                    tracing::warn!(
                        isd_as = %site.isd_as, %prefix,
                        "not taken into the tunnel: it would capture the gateway's own traffic to {captured}"
                    );
                }
                refused.insert(*prefix);
                false
            });
        }
        self.refused = refused;
        plan
    }

    /// What of ours packets to the prefix would take into the tunnel.
    fn captured(&self, prefix: &IpNet, hops: &[IpAddr]) -> Option<String> {
        let within = |net: &&IpNet| net.contains(prefix);
        if let Some(net) = self.underlay.iter().find(within) {
            return Some(format!("the underlay network {net}"));
        }
        let is_captured = |address: &&IpAddr| {
            let stays =
                |net: &IpNet| net.contains(*address) && net.prefix_len() > prefix.prefix_len();
            prefix.contains(*address) && !self.connected.iter().any(stays)
        };
        let mut addresses = self.own.iter().chain(hops);
        addresses.find(is_captured).map(IpAddr::to_string)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        control::plan::{Gateway, Rule, Session, SessionKey, SessionPath, Site},
        policy::class::Condition,
        scion,
    };

    fn net(text: &str) -> IpNet {
        text.parse().expect("a prefix")
    }

    /// Of these prefixes of a remote that is reached through 10.50.0.1, those that are taken.
    fn taken(prefixes: &[&str]) -> Vec<String> {
        let mut guard = Guard {
            underlay: vec![net("10.10.0.0/24")],
            connected: vec![net("10.10.0.0/24"), net("192.168.1.0/24")],
            own: ["10.10.0.2", "192.168.1.1"]
                .map(|address| address.parse().expect("an address"))
                .into(),
            refused: HashSet::new(),
        };
        let isd_as = "1-ff00:0:111".parse().expect("an ISD-AS");
        let data_addr = "10.11.0.2:30056".parse().expect("an address");
        let hop = "10.50.0.1:30042".parse().expect("an address");
        let plan = Plan {
            served: None,
            must_reach: Vec::new(),
            gateways: vec![Gateway {
                isd_as,
                host: "10.11.0.2".parse().expect("an address"),
                accepted: Vec::new(),
            }],
            sessions: vec![Session {
                key: SessionKey(1),
                gateway: 0,
                data_addr,
                number: 0,
                policy_id: 0,
                paths: vec![SessionPath {
                    name: "0".into(),
                    path: scion::Path::configured(&[1], hop, 1400),
                    mtu: 1400,
                    source_port: 30056,
                    expired: false,
                }],
            }],
            sites: vec![Site {
                isd_as,
                prefixes: prefixes.iter().map(|prefix| net(prefix)).collect(),
                rules: vec![Rule {
                    condition: Arc::new(Condition::ALWAYS),
                    session: Some(0),
                }],
                exported: true,
            }],
        };
        let admitted = guard.admit(plan);
        assert_eq!(
            guard.refused.len() + admitted.sites[0].prefixes.len(),
            prefixes.len()
        );
        let left = admitted.sites[0].prefixes.iter();
        left.map(ToString::to_string).collect()
    }

    #[test]
    fn prefixes_that_would_capture_our_own_traffic_are_refused() {
        let harmless = [
            "10.2.0.0/16",
            "192.168.0.0/16",
            "192.168.1.128/25",
            "fd00::/8",
            "::/0",
        ];
        let dangerous = [
            "10.10.0.0/24",   // the underlay network
            "10.10.0.128/25", // a part of it
            "10.50.0.0/16",   // the next hop, which no connected network protects
            "0.0.0.0/0",      // the same
            "192.168.1.0/24", // the LAN as a whole
            "192.168.1.0/25", // its part with our address
            "192.168.1.1/32", // our address
        ];
        assert_eq!(taken(&harmless), harmless);
        assert_eq!(taken(&dangerous), [""; 0]);
        let all = [&harmless[..], &dangerous[..]].concat();
        assert_eq!(taken(&all), harmless);
    }
}
