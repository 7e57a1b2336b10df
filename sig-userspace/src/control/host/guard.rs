//! The last line of defence against prefixes that would capture the traffic of this host.

use std::{collections::HashSet, fmt, net::IpAddr};

use ipnet::IpNet;

use crate::control::plan::Plan;
use sig_linux::networks::Networks;

/// Keeps prefixes out of the tunnel that would take this host's networks, or the way of its own traffic, away.
#[derive(Debug, Default)]
pub(super) struct Guard {
    /// Addresses that must stay within reach whatever the plan is: those of the SCION daemon.
    needed: Vec<IpAddr>,
    /// Prefixes refused so far, which have been logged.
    refused: HashSet<IpNet>,
}

/// What packets to a prefix would take into the tunnel.
#[derive(Debug, PartialEq, Eq)]
enum Captured<'a> {
    /// All of the prefix is in this network of the host, which is on this interface.
    Network(IpNet, &'a str),
    /// The gateway's own packets to this address.
    Traffic(IpAddr),
}

impl fmt::Display for Captured<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(net, interface) if net.prefix_len() == net.max_prefix_len() => {
                write!(
                    f,
                    "{} is an address of this host, on {interface}",
                    net.addr()
                )
            }
            Self::Network(net, interface) => {
                write!(f, "it lies in {net}, a network connected on {interface}")
            }
            Self::Traffic(address) => write!(
                f,
                "it would capture the gateway's own traffic to {address}, which has \
                 no more specific route"
            ),
        }
    }
}

impl Guard {
    pub(super) fn new(needed: Vec<IpAddr>) -> Self {
        Guard {
            needed,
            refused: HashSet::new(),
        }
    }

    /// The plan without the prefixes that would harm a host with these networks. A prefix around one of
    /// them is ordinary routing: the more specific route wins.
    pub(super) fn admit(&mut self, mut plan: Plan, networks: &Networks) -> Plan {
        let mut needed = plan.outside();
        needed.extend(&self.needed);
        let mut refused = HashSet::new();
        for site in &mut plan.sites {
            site.prefixes.retain(|prefix| {
                let known = self.refused.contains(prefix);
                let Some(captured) = captured(prefix, networks, &needed) else {
                    if known {
                        tracing::info!(isd_as = %site.isd_as, %prefix, "prefix is tunnelled again");
                    }
                    return true;
                };
                if !known {
                    tracing::warn!(
                        isd_as = %site.isd_as, %prefix, "prefix excluded from the tunnel: {captured}"
                    );
                }
                refused.insert(*prefix);
                false
            });
        }
        self.refused = refused;
        plan
    }
}

fn captured<'a>(prefix: &IpNet, networks: &'a Networks, needed: &[IpAddr]) -> Option<Captured<'a>> {
    if let Some((net, interface)) = networks.around(prefix) {
        return Some(Captured::Network(net, interface));
    }
    let mut needed = needed.iter().copied();
    let taken = needed.find(|ip| prefix.contains(ip) && !networks.keeps(*ip, prefix));
    taken.map(Captured::Traffic)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::control::plan::{Action, Gateway, Rule, Session, SessionKey, SessionPath, Site};
    use sig_core::{policy::class::Condition, scion};

    fn net(text: &str) -> IpNet {
        text.parse().expect("a prefix")
    }

    /// A remote that is reached through 10.50.0.1 and has these prefixes.
    fn plan(prefixes: &[&str]) -> Plan {
        let isd_as = "1-ff00:0:111".parse().expect("an ISD-AS");
        let data_addr = "10.11.0.2:30056".parse().expect("an address");
        let hop = "10.50.0.1:30042".parse().expect("an address");
        Plan {
            served: None,
            must_reach: Vec::new(),
            gateways: vec![Gateway {
                isd_as,
                host: "10.11.0.2".parse().expect("an address"),
                keyring: None,
                is_strict: false,
                accepted: Vec::new(),
            }],
            sessions: vec![Session {
                key: SessionKey(1),
                gateway: 0,
                data_addr,
                number: 0,
                policy_id: 0,
                keyring: None,
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
                    action: Action::Session(0),
                }],
                exported: true,
            }],
        }
    }

    /// Of these prefixes of a remote that is reached through 10.50.0.1, those that are taken. The daemon is at
    /// 10.60.0.1.
    fn taken(networks: &Networks, prefixes: &[&str]) -> Vec<String> {
        let mut guard = Guard::new(vec!["10.60.0.1".parse().expect("an address")]);
        let admitted = guard.admit(plan(prefixes), networks);
        assert_eq!(
            guard.refused.len() + admitted.sites[0].prefixes.len(),
            prefixes.len()
        );
        let left = admitted.sites[0].prefixes.iter();
        left.map(ToString::to_string).collect()
    }

    fn networks(own: &[(&str, &str)], routes: &[(&str, u32)]) -> Networks {
        let own = own
            .iter()
            .map(|(prefix, name)| (net(prefix), (*name).into()));
        let routes = routes.iter().map(|(prefix, metric)| (net(prefix), *metric));
        Networks {
            own: own.collect(),
            routes: routes.collect(),
            ..Networks::default()
        }
    }

    /// A host with an underlay, a LAN, and a management network that is not in the configuration.
    const OWN: [(&str, &str); 7] = [
        ("10.10.0.0/24", "wan0"),
        ("10.10.0.2/32", "wan0"),
        ("192.168.1.0/24", "lan0"),
        ("192.168.1.1/32", "lan0"),
        ("172.16.5.0/24", "mg0"),
        ("fd00:5::/64", "mg0"),
        ("203.0.113.7/32", "lo"),
    ];

    #[test]
    fn no_network_of_this_host_is_taken_into_the_tunnel() {
        let networks = networks(&OWN, &[]);
        let harmless = [
            "10.2.0.0/16",
            "10.10.0.0/16",
            "192.168.0.0/16",
            "172.16.0.0/12",
            "172.16.6.0/24",
            "203.0.113.0/24",
            "fd00::/8",
            "fd00:5::/63",
            "::/0",
        ];
        let dangerous = [
            "10.10.0.0/24",     // the underlay network
            "10.10.0.128/25",   // a part of it
            "192.168.1.0/24",   // the LAN as a whole
            "192.168.1.128/25", // a part of it without our address
            "192.168.1.1/32",   // our address
            "172.16.5.0/24",    // the management network
            "172.16.5.0/25",    // a part of it
            "fd00:5::/64",      // the same of IPv6
            "fd00:5::8/126",
            "203.0.113.7/32", // an address without a network
        ];
        assert_eq!(taken(&networks, &harmless), harmless);
        assert_eq!(taken(&networks, &dangerous), [""; 0]);
        let all = [&harmless[..], &dangerous[..]].concat();
        assert_eq!(taken(&networks, &all), harmless);
    }

    #[test]
    fn border_router_and_daemon_stay_within_reach() {
        let wide = ["0.0.0.0/0", "10.0.0.0/8", "10.50.0.0/16", "10.60.0.1/32"];
        let with = |routes: &[(&str, u32)]| taken(&networks(&OWN, routes), &wide);
        assert_eq!(with(&[]), [""; 0]);
        assert_eq!(with(&[("10.50.0.0/24", 1000)]), ["10.50.0.0/16"]);
        let routes = [("10.50.0.0/24", 1000), ("10.60.0.0/16", 1000)];
        assert_eq!(with(&routes), wide[..3]);
        assert_eq!(with(&[("0.0.0.0/0", 0)]), ["0.0.0.0/0"], "a lower metric");
        assert_eq!(with(&[("0.0.0.0/0", 100)]), [""; 0], "a higher metric");
    }

    #[test]
    fn what_is_refused_follows_the_networks() {
        let mut guard = Guard::default();
        let (before, after) = (networks(&[], &[]), networks(&OWN, &[]));
        let plan = plan(&["172.16.5.0/25"]);
        for (networks, taken) in [(&before, 1), (&after, 0), (&before, 1)] {
            let admitted = guard.admit(plan.clone(), networks);
            assert_eq!(admitted.sites[0].prefixes.len(), taken);
        }
    }

    #[test]
    fn a_refusal_names_network_and_interface() {
        let networks = networks(&OWN, &[]);
        let refusal = |prefix| captured(&net(prefix), &networks, &[]).map(|c| c.to_string());
        assert_eq!(
            refusal("172.16.5.0/25").as_deref(),
            Some("it lies in 172.16.5.0/24, a network connected on mg0")
        );
        assert_eq!(
            refusal("203.0.113.7/32").as_deref(),
            Some("203.0.113.7 is an address of this host, on lo")
        );
    }
}
