//! Next hops: found when they can be, followed when they change, and reported when they cannot be reached.

use std::net::IpAddr;
use std::time::Duration;

use crate::support::netns::{Netns, root_or_skip, veth, veth_with_queues};
use sig_linux::link::{self, MAX_JUMBO_MTU, check_mtu};
use sig_linux::neighbours::{NextHops, Reason, Resolution, Snapshot, Timing};
use sig_linux::netlink::Netlink;
use sig_linux::watch::{InterfaceState, Watch};
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, timeout};

const OTHER_MAC: &str = "02:00:00:00:77:01";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A gateway's namespace with `u0` and a router's with `r0`, addressed in both families.
fn gateway_and_router(label: &str) -> (Netns, Netns) {
    let (gateway, router) = (Netns::new(label), Netns::new(label));
    veth((&gateway, "u0"), (&router, "r0"));
    gateway.ip("addr add 10.0.0.1/24 dev u0");
    gateway.ip("addr add fd00::1/64 dev u0 nodad");
    router.ip("addr add 10.0.0.2/24 dev r0");
    router.ip("addr add fd00::2/64 dev r0 nodad");
    (gateway, router)
}

fn mac(netns: &Netns, interface: &str) -> [u8; 6] {
    let line = netns.ip(&format!("-br link show {interface}"));
    parse_mac(line.split_whitespace().nth(2).unwrap())
}

fn parse_mac(text: &str) -> [u8; 6] {
    let bytes: Vec<u8> = text
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).unwrap())
        .collect();
    bytes.try_into().unwrap()
}

struct Follower {
    hops: NextHops,
    snapshots: Receiver<Snapshot>,
    _watch: Watch,
}

impl Follower {
    async fn start(targets: &[&str]) -> Self {
        Self::start_from("10.0.0.1", targets).await
    }

    /// With frames from this address.
    async fn start_from(source: &str, targets: &[&str]) -> Self {
        let watch = Watch::open().unwrap();
        let timing = Timing {
            refresh: Duration::from_secs(1),
            retry: Duration::from_millis(300),
        };
        let netlink = Netlink::open().unwrap();
        let underlay = link::by_name(&netlink, "u0").await.unwrap().ifindex;
        let hops = NextHops::new(&netlink, &watch, underlay, ip(source), timing);
        hops.set_targets(targets.iter().map(|target| ip(target)).collect());
        let snapshots = hops.subscribe();
        Self {
            hops,
            snapshots,
            _watch: watch,
        }
    }

    /// Waits until what is known of `target` satisfies `condition`.
    async fn until(
        &mut self,
        target: &str,
        limit: Duration,
        condition: impl Fn(&Resolution) -> bool,
    ) -> (Resolution, Duration) {
        let start = Instant::now();
        let target = ip(target);
        let found = timeout(limit, async {
            loop {
                let found = self.snapshots.borrow_and_update().get(&target).cloned();
                if let Some(found) = found.filter(&condition) {
                    return found;
                }
                self.snapshots.changed().await.unwrap();
            }
        })
        .await;
        let Ok(found) = found else {
            panic!(
                "{target} is still {:?} after {limit:?}",
                self.snapshots.borrow().get(&target)
            );
        };
        (found, start.elapsed())
    }
}

const SOON: Duration = Duration::from_secs(2);

#[test]
fn a_neighbour_on_the_link_is_resolved_in_both_families() {
    if !root_or_skip() {
        return;
    }
    let (gateway, router) = gateway_and_router("nh");
    let (ours, theirs) = (mac(&gateway, "u0"), mac(&router, "r0"));
    gateway.block_on(async || {
        let mut follower = Follower::start(&["10.0.0.2", "fd00::2"]).await;
        for (target, source) in [("10.0.0.2", "10.0.0.1"), ("fd00::2", "fd00::1")] {
            let (found, _) = follower
                .until(target, SOON, |found| found.resolved().is_some())
                .await;
            let found = *found.resolved().unwrap();
            assert_eq!(found.destination_mac, theirs);
            assert_eq!(found.interface_mac, ours);
            assert_eq!(found.source, ip(source));
            assert_eq!(found.neighbour, ip(target));
            assert_eq!(found.mtu, 1500);
        }
        follower.hops.set_targets(vec![ip("10.0.0.2")]);
        timeout(SOON, follower.snapshots.changed())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(follower.snapshots.borrow().len(), 1);
    });
}

#[test]
fn a_next_hop_behind_a_router_gets_the_routers_address() {
    if !root_or_skip() {
        return;
    }
    let (gateway, router) = gateway_and_router("via");
    let theirs = mac(&router, "r0");
    gateway.ip("route add 192.0.2.0/24 via 10.0.0.2 mtu 1400");
    gateway.block_on(async || {
        let mut follower = Follower::start(&["192.0.2.7"]).await;
        let (found, _) = follower
            .until("192.0.2.7", SOON, |found| found.resolved().is_some())
            .await;
        let found = *found.resolved().unwrap();
        assert_eq!(
            (found.neighbour, found.destination_mac, found.mtu),
            (ip("10.0.0.2"), theirs, 1400)
        );
    });
}

#[test]
fn policy_rules_see_the_source_of_the_frames() {
    if !root_or_skip() {
        return;
    }
    let (gateway, router) = gateway_and_router("rule");
    let theirs = mac(&router, "r0");
    // Without the rule, both next hops are behind another interface, or nowhere.
    gateway.ip("route add 192.0.2.0/24 dev lo");
    for family in ["-4", "-6"] {
        let (source, router, net) = match family {
            "-4" => ("10.0.0.1", "10.0.0.2", "192.0.2.0/24"),
            _ => ("fd00::1", "fd00::2", "2001:db8::/32"),
        };
        gateway.ip(&format!("{family} route add {net} via {router} table 77"));
        gateway.ip(&format!("{family} rule add from {source} lookup 77"));
    }
    for (source, target) in [("10.0.0.1", "192.0.2.7"), ("fd00::1", "2001:db8::7")] {
        gateway.block_on(async || {
            let mut follower = Follower::start_from(source, &[target]).await;
            let (found, _) = follower
                .until(target, SOON, |found| found.resolved().is_some())
                .await;
            let found = *found.resolved().unwrap();
            assert_eq!((found.destination_mac, found.source), (theirs, ip(source)));
        });
    }
}

#[test]
fn a_neighbours_new_hardware_address_is_noticed_within_seconds_without_its_help() {
    if !root_or_skip() {
        return;
    }
    let (gateway, router) = gateway_and_router("mac");
    // The router asks for nobody and announces nothing: only our own probing can find out.
    router.ip("neigh add 10.0.0.1 dev r0 lladdr 02:00:00:00:00:01 nud permanent");
    gateway.block_on(async || {
        let mut follower = Follower::start(&["10.0.0.2", "fd00::2"]).await;
        for target in ["10.0.0.2", "fd00::2"] {
            follower
                .until(target, SOON, |found| found.resolved().is_some())
                .await;
        }
        router.ip("link set r0 down");
        router.ip(&format!("link set r0 address {OTHER_MAC}"));
        router.ip("link set r0 up");
        router.ip("addr replace fd00::2/64 dev r0 nodad");
        let new = parse_mac(OTHER_MAC);
        for target in ["10.0.0.2", "fd00::2"] {
            let (_, took) = follower
                .until(target, Duration::from_secs(8), |found| {
                    found
                        .resolved()
                        .is_some_and(|found| found.destination_mac == new)
                })
                .await;
            eprintln!("{target}: new hardware address after {took:?}");
        }
    });
}

#[test]
fn a_new_hardware_address_is_noticed_while_the_link_stays_up() {
    if !root_or_skip() {
        return;
    }
    let (gateway, router) = gateway_and_router("mac-up");
    gateway.block_on(async || {
        let mut follower = Follower::start(&["10.0.0.2"]).await;
        follower
            .until("10.0.0.2", SOON, |found| found.resolved().is_some())
            .await;
        router.ip(&format!("link set r0 address {OTHER_MAC}"));
        let new = parse_mac(OTHER_MAC);
        let (_, took) = follower
            .until("10.0.0.2", Duration::from_secs(8), |found| {
                found
                    .resolved()
                    .is_some_and(|found| found.destination_mac == new)
            })
            .await;
        eprintln!("new hardware address after {took:?}");
    });
}

#[test]
fn what_was_unresolved_is_resolved_once_the_other_side_comes_up() {
    if !root_or_skip() {
        return;
    }
    let (gateway, router) = gateway_and_router("late");
    router.ip("addr del 10.0.0.2/24 dev r0");
    gateway.block_on(async || {
        let mut follower = Follower::start(&["10.0.0.2"]).await;
        let silent = Resolution::Unresolved(Reason::NoAnswer(ip("10.0.0.2")));
        follower
            .until("10.0.0.2", Duration::from_secs(6), |found| *found == silent)
            .await;
        router.ip("addr add 10.0.0.2/24 dev r0");
        let (_, took) = follower
            .until("10.0.0.2", Duration::from_secs(3), |found| {
                found.resolved().is_some()
            })
            .await;
        eprintln!("resolved {took:?} after the other side was there");
        router.ip("link set r0 down");
        follower
            .until("10.0.0.2", SOON, |found| {
                *found == Resolution::Unresolved(Reason::InterfaceDown)
            })
            .await;
        router.ip("link set r0 up");
        follower
            .until("10.0.0.2", Duration::from_secs(5), |found| {
                found.resolved().is_some()
            })
            .await;
    });
}

#[test]
fn a_neighbour_that_falls_silent_is_reported_and_found_again() {
    if !root_or_skip() {
        return;
    }
    let (gateway, router) = gateway_and_router("silent");
    gateway.block_on(async || {
        let mut follower = Follower::start(&["10.0.0.2"]).await;
        follower
            .until("10.0.0.2", SOON, |found| found.resolved().is_some())
            .await;
        router.ip("addr del 10.0.0.2/24 dev r0");
        let (_, took) = follower
            .until("10.0.0.2", Duration::from_secs(8), |found| {
                found.resolved().is_none()
            })
            .await;
        eprintln!("silence reported after {took:?}");
        router.ip("addr add 10.0.0.2/24 dev r0");
        follower
            .until("10.0.0.2", Duration::from_secs(3), |found| {
                found.resolved().is_some()
            })
            .await;
    });
}

#[test]
fn a_flushed_entry_is_found_again_without_a_gap() {
    if !root_or_skip() {
        return;
    }
    let (gateway, _router) = gateway_and_router("flush");
    gateway.block_on(async || {
        let mut follower = Follower::start(&["10.0.0.2"]).await;
        follower
            .until("10.0.0.2", SOON, |found| found.resolved().is_some())
            .await;
        for _ in 0..5 {
            gateway.ip("neigh flush dev u0");
            let changed = timeout(Duration::from_millis(300), follower.snapshots.changed()).await;
            assert!(
                changed.is_err(),
                "reported {:?}",
                follower.snapshots.borrow()
            );
        }
        assert!(gateway.ip("neigh show 10.0.0.2 dev u0").contains("lladdr"));
    });
}

#[test]
fn an_administrators_entry_is_used_and_never_touched() {
    if !root_or_skip() {
        return;
    }
    let (gateway, _router) = gateway_and_router("perm");
    gateway.ip(&format!(
        "neigh add 10.0.0.9 dev u0 lladdr {OTHER_MAC} nud permanent"
    ));
    gateway.block_on(async || {
        let mut follower = Follower::start(&["10.0.0.9"]).await;
        let (found, _) = follower
            .until("10.0.0.9", SOON, |found| found.resolved().is_some())
            .await;
        assert_eq!(
            found.resolved().unwrap().destination_mac,
            parse_mac(OTHER_MAC)
        );
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let shown = gateway.ip("neigh show 10.0.0.9 dev u0");
        assert!(shown.contains("PERMANENT"), "{shown}");
    });
}

#[test]
fn targets_that_cannot_work_say_why() {
    if !root_or_skip() {
        return;
    }
    let (gateway, _router) = gateway_and_router("why");
    gateway.ip("route add 198.51.100.0/24 dev lo");
    gateway.block_on(async || {
        let mut follower =
            Follower::start(&["10.0.0.1", "203.0.113.1", "198.51.100.1", "2001:db8::1"]).await;
        for (target, reason) in [
            ("10.0.0.1", Reason::LocalAddress),
            ("203.0.113.1", Reason::NoRoute),
            ("198.51.100.1", Reason::OtherInterface(1)),
            ("2001:db8::1", Reason::NoRoute),
        ] {
            follower
                .until(target, SOON, |found| {
                    *found == Resolution::Unresolved(reason.clone())
                })
                .await;
        }
        gateway.ip("route add 203.0.113.0/24 via 10.0.0.2");
        follower
            .until("203.0.113.1", SOON, |found| found.resolved().is_some())
            .await;
        gateway.ip("route del 203.0.113.0/24");
        follower
            .until("203.0.113.1", SOON, |found| {
                *found == Resolution::Unresolved(Reason::NoRoute)
            })
            .await;
    });
}

#[test]
fn an_interface_is_followed_through_all_its_changes() {
    if !root_or_skip() {
        return;
    }
    let (gateway, router) = gateway_and_router("iface");
    gateway.block_on(async || {
        let (watch, netlink) = (Watch::open().unwrap(), Netlink::open().unwrap());
        let underlay = link::by_name(&netlink, "u0").await.unwrap();
        let mut state = watch.interface(&netlink, underlay.ifindex).await.unwrap();
        assert!(state.borrow().up);
        assert!(
            state
                .borrow()
                .addresses
                .contains(&"10.0.0.1/24".parse().unwrap())
        );
        let wait = Duration::from_secs(2);
        router.ip("link set r0 down");
        timeout(wait, state.wait_for(|state| !state.up))
            .await
            .unwrap()
            .unwrap();
        router.ip("link set r0 up");
        timeout(wait, state.wait_for(|state| state.up))
            .await
            .unwrap()
            .unwrap();
        gateway.ip("link set u0 mtu 1400");
        timeout(wait, state.wait_for(|state| state.mtu == 1400))
            .await
            .unwrap()
            .unwrap();
        gateway.ip(&format!("link set u0 address {OTHER_MAC}"));
        timeout(
            wait,
            state.wait_for(|state| state.mac == Some(parse_mac(OTHER_MAC))),
        )
        .await
        .unwrap()
        .unwrap();
        gateway.ip("addr add 10.0.7.1/24 dev u0");
        timeout(
            wait,
            state.wait_for(|state| state.addresses.contains(&"10.0.7.1/24".parse().unwrap())),
        )
        .await
        .unwrap()
        .unwrap();
        gateway.ip("link set u0 down");
        gateway.ip("link set u0 name wan0");
        gateway.ip("link set wan0 up");
        let renamed = |state: &InterfaceState| state.up && state.name.as_deref() == Some("wan0");
        timeout(wait, state.wait_for(renamed))
            .await
            .unwrap()
            .unwrap();
        gateway.ip("link del wan0");
        timeout(wait, state.wait_for(|state| state.name.is_none()))
            .await
            .unwrap()
            .unwrap();
    });
}

#[test]
fn a_link_is_described_and_an_mtu_beyond_xdp_is_refused_with_the_remedy() {
    if !root_or_skip() {
        return;
    }
    let (left, right) = (Netns::new("link"), Netns::new("link"));
    veth_with_queues((&left, "a0"), (&right, "b0"), 3);
    left.ip("addr add 10.0.0.1/24 dev a0");
    left.block_on(async || {
        let netlink = Netlink::open().unwrap();
        let link = link::by_name(&netlink, "a0").await.unwrap();
        assert_eq!((link.rx_queues, link.tx_queues), (3, 3));
        assert_eq!(link.driver.as_deref(), Some("veth"));
        assert_eq!(link.xdp_program, None);
        assert!(link.addresses.contains(&"10.0.0.1/24".parse().unwrap()));
        assert_eq!(check_mtu(&link), Ok(()));
        left.ip(&format!("link set a0 mtu {}", MAX_JUMBO_MTU + 1));
        let refused = check_mtu(&link::by_name(&netlink, "a0").await.unwrap()).unwrap_err();
        assert!(refused.contains("ip link set dev a0 mtu 9216"), "{refused}");
        let error = link::by_name(&netlink, "nosuch")
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("no interface nosuch"), "{error}");
        assert_eq!(link::all(&netlink).await.unwrap().len(), 2);
    });
}
