//! The copy of the kernel's tables that workers send to hosts by: complete where it may be, and never ahead of the
//! kernel.

use std::net::IpAddr;
use std::time::Duration;

use crate::support::netns::{Netns, root_or_skip, veth};
use sig_linux::lan::{LanHops, LanPort, Reason, Snapshot};
use sig_linux::link;
use sig_linux::netlink::Netlink;
use sig_linux::watch::Watch;
use tokio::sync::watch::Receiver;
use tokio::time::timeout;

const OTHER_MAC: &str = "02:00:00:00:77:01";
const SOON: Duration = Duration::from_secs(3);
/// For what a neighbour that does not answer takes: a few probes a second apart.
const LATER: Duration = Duration::from_secs(20);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn mac(text: &str) -> [u8; 6] {
    let bytes: Vec<u8> = text
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).unwrap())
        .collect();
    bytes.try_into().unwrap()
}

/// A gateway that forwards, with `lan` and a device `tun` in the tunnel's place, and a host with `eth`.
fn gateway_and_host(label: &str) -> (Netns, Netns) {
    let (gateway, host) = (Netns::new(label), Netns::new(label));
    gateway.exec("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
    veth((&gateway, "lan"), (&host, "eth"));
    gateway.ip("link add tun type veth peer name tun-peer");
    gateway.ip("link set tun up");
    gateway.ip("addr add 10.1.0.1/24 dev lan");
    gateway.ip("addr add fd00:1::1/64 dev lan nodad");
    host.ip(&format!("link set eth address {HOST_MAC}"));
    host.ip("addr add 10.1.0.2/24 dev eth");
    host.ip("addr add fd00:1::2/64 dev eth nodad");
    (gateway, host)
}

const HOST_MAC: &str = "02:00:00:00:66:01";

struct Follower {
    snapshots: Receiver<Snapshot>,
    _hops: LanHops,
    _watch: Watch,
}

impl Follower {
    async fn start() -> Self {
        let (netlink, watch) = (Netlink::open().unwrap(), Watch::open().unwrap());
        let lan = link::by_name(&netlink, "lan").await.unwrap();
        let port = LanPort {
            number: 0,
            ifindex: lan.ifindex,
            name: lan.name,
        };
        let served = ["10.1.0.0/16", "fd00:1::/32"].map(|net| net.parse().unwrap());
        let hops = LanHops::new(&netlink, &watch, vec![port], served.into(), "tun");
        Self {
            snapshots: hops.subscribe(),
            _hops: hops,
            _watch: watch,
        }
    }

    /// Waits until the MAC address for packets to `destination` is `expected`; `None`: they are the kernel's.
    async fn until(&mut self, limit: Duration, destination: &str, expected: Option<&str>) {
        let destination = ip(destination);
        let expected = expected.map(mac);
        self.wait(limit, |now| now.table.next_mac(destination) == expected)
            .await;
    }

    async fn wait(&mut self, limit: Duration, condition: impl Fn(&Snapshot) -> bool) {
        if timeout(limit, self.snapshots.wait_for(&condition))
            .await
            .is_err()
        {
            panic!("still {:?} after {limit:?}", self.snapshots.borrow());
        }
    }
}

/// Has the kernel resolve the host in both families.
fn resolve(gateway: &Netns) {
    for address in ["10.1.0.2", "fd00:1::2"] {
        gateway.exec(&format!("ping -n -c 1 -w 5 {address}"));
    }
}

#[test]
fn a_host_gets_into_the_table_with_its_entry_and_leaves_with_it() {
    if !root_or_skip() {
        return;
    }
    let (gateway, host) = gateway_and_host("lan");
    gateway.block_on(async || {
        let mut follower = Follower::start().await;
        follower.until(SOON, "10.1.0.2", None).await;
        resolve(&gateway);
        for address in ["10.1.0.2", "fd00:1::2"] {
            follower.until(SOON, address, Some(HOST_MAC)).await;
        }
        assert_eq!(
            follower.snapshots.borrow().table.next_mac(ip("10.1.0.1")),
            None
        );
        assert_eq!(
            follower.snapshots.borrow().table.next_mac(ip("10.1.0.255")),
            None
        );

        // The host moves to another MAC address and asks for the gateway with it.
        host.ip(&format!("link set eth address {OTHER_MAC}"));
        host.exec("ping -n -c 1 -w 5 10.1.0.1");
        follower.until(SOON, "10.1.0.2", Some(OTHER_MAC)).await;

        gateway.ip("neigh del 10.1.0.2 dev lan");
        follower.until(SOON, "10.1.0.2", None).await;
        gateway.exec("ping -n -c 1 -w 5 10.1.0.2");
        follower.until(SOON, "10.1.0.2", Some(OTHER_MAC)).await;
        host.ip("link set eth down");
        follower.until(SOON, "10.1.0.2", None).await;
    });
}

#[test]
fn a_stale_neighbour_is_asked_once_it_is_used_and_leaves_if_it_does_not_answer() {
    if !root_or_skip() {
        return;
    }
    let (gateway, host) = gateway_and_host("use");
    // The kernel waits this long before it probes a neighbour in use, 5 s by default.
    for family in ["ipv4", "ipv6"] {
        gateway.exec(&format!(
            "sysctl -qw net.{family}.neigh.lan.delay_first_probe_time=1"
        ));
    }
    gateway.block_on(async || {
        let mut follower = Follower::start().await;
        resolve(&gateway);
        for address in ["10.1.0.2", "fd00:1::2"] {
            follower.until(SOON, address, Some(HOST_MAC)).await;
            let show = || gateway.ip(&format!("neigh show {address} dev lan"));
            gateway.ip(&format!(
                "neigh replace {address} dev lan lladdr {HOST_MAC} nud stale"
            ));
            tokio::time::sleep(Duration::from_millis(2500)).await;
            let shown = show();
            assert!(shown.contains("STALE"), "nobody uses it: {shown}");
            assert!(follower.snapshots.borrow().table.mark_used(ip(address)));
            let asked = async {
                while show().contains("STALE") {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            };
            timeout(SOON, asked).await.expect("the kernel is told");
            assert_eq!(
                follower.snapshots.borrow().table.next_mac(ip(address)),
                Some(mac(HOST_MAC)),
                "being asked does not stop the traffic"
            );
        }

        host.ip("addr del 10.1.0.2/24 dev eth");
        gateway.ip(&format!(
            "neigh replace 10.1.0.2 dev lan lladdr {HOST_MAC} nud stale"
        ));
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(follower.snapshots.borrow().table.mark_used(ip("10.1.0.2")));
        follower.until(LATER, "10.1.0.2", None).await;
    });
}

#[test]
fn routes_through_a_router_are_followed_and_forgotten() {
    if !root_or_skip() {
        return;
    }
    let (gateway, _host) = gateway_and_host("router");
    gateway.block_on(async || {
        let mut follower = Follower::start().await;
        resolve(&gateway);
        follower.until(SOON, "10.1.0.2", Some(HOST_MAC)).await;
        follower.until(SOON, "10.1.7.7", None).await;
        gateway.ip("route add 10.1.7.0/24 via 10.1.0.2");
        gateway.ip("route add fd00:1:7::/48 via fd00:1::2");
        for address in ["10.1.7.7", "fd00:1:7::7"] {
            follower.until(SOON, address, Some(HOST_MAC)).await;
        }
        gateway.ip("nexthop add id 7 via 10.1.0.2 dev lan");
        for odd in [
            "route replace blackhole 10.1.7.0/25",
            "route replace 10.1.7.0/25 via 10.1.0.2 mtu 1400",
            "route replace 10.1.7.0/25 nexthop via 10.1.0.2 nexthop via 10.1.0.3",
            "route replace 10.1.7.0/25 dev tun",
            "route replace 10.1.7.0/25 nhid 7",
            "route replace 10.1.7.0/25 tos 8 via 10.1.0.2",
        ] {
            gateway.ip(odd);
            follower.until(SOON, "10.1.7.7", None).await;
            let tos = if odd.contains("tos") { "tos 8" } else { "" };
            gateway.ip(&format!("route del 10.1.7.0/25 {tos}"));
            follower.until(SOON, "10.1.7.7", Some(HOST_MAC)).await;
        }
        gateway.ip("addr add 10.1.7.7/32 dev lo");
        follower.until(SOON, "10.1.7.7", None).await;
        gateway.ip("addr del 10.1.7.7/32 dev lo");
        follower.until(SOON, "10.1.7.7", Some(HOST_MAC)).await;
        gateway.ip("route del 10.1.7.0/24");
        follower.until(SOON, "10.1.7.7", None).await;
    });
}

#[test]
fn policy_routing_leaves_everything_of_its_family_to_the_kernel() {
    if !root_or_skip() {
        return;
    }
    let (gateway, _host) = gateway_and_host("policy");
    gateway.block_on(async || {
        let mut follower = Follower::start().await;
        resolve(&gateway);
        follower.until(SOON, "10.1.0.2", Some(HOST_MAC)).await;
        gateway.ip("rule add fwmark 7 table 77");
        follower
            .wait(SOON, |now| now.no_ipv4 == Some(Reason::Rules))
            .await;
        follower.until(SOON, "10.1.0.2", None).await;
        follower.until(SOON, "fd00:1::2", Some(HOST_MAC)).await;
        gateway.ip("rule del fwmark 7 table 77");
        follower.until(SOON, "10.1.0.2", Some(HOST_MAC)).await;
        gateway.ip("-6 rule add from fd00:1::/64 table 77");
        follower.until(SOON, "fd00:1::2", None).await;
        follower.until(SOON, "10.1.0.2", Some(HOST_MAC)).await;
    });
}

#[test]
fn a_host_that_stops_forwarding_leaves_everything_to_the_kernel() {
    if !root_or_skip() {
        return;
    }
    let (gateway, _host) = gateway_and_host("forward");
    gateway.block_on(async || {
        let mut follower = Follower::start().await;
        resolve(&gateway);
        follower.until(SOON, "10.1.0.2", Some(HOST_MAC)).await;
        gateway.exec("sysctl -qw net.ipv4.ip_forward=0");
        follower.until(SOON, "10.1.0.2", None).await;
        follower.until(SOON, "fd00:1::2", Some(HOST_MAC)).await;
        assert_eq!(
            follower.snapshots.borrow().no_ipv4,
            Some(Reason::NoForwarding)
        );
        gateway.exec("sysctl -qw net.ipv4.ip_forward=1");
        follower.until(SOON, "10.1.0.2", Some(HOST_MAC)).await;
    });
}
