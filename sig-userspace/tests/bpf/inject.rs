//! The real program `sig_inject` over single packets, with routes and neighbours of a namespace of its own.

use std::time::Duration;

use crate::packets::Underlay;
use crate::support::netns::{Netns, root_or_skip, veth, wait_until};
use crate::support::wire::PacketSocket;
use sig_common::maps::Stat;
use sig_common::mark::Mark;
use sig_common::reason::DropReason;
use sig_common::wire::checksum::Sum;
use sig_common::wire::ethernet::ETHERTYPE_IPV4;
use sig_common::wire::inner::BACK_TO_SENDER;
use sig_common::wire::ipv4;
use sig_linux::bpf::{Logging, Program, Programs, TestOutcome};

const PATIENCE: Duration = Duration::from_secs(5);
const TC_ACT_OK: u32 = 0;
const TC_ACT_SHOT: u32 = 2;
const TC_ACT_REDIRECT: u32 = 7;
const IP: usize = 14;

/// A namespace in which packets come in through `lo` (as test runs have it) and leave through `lan`, which has
/// neighbours 10.1.0.2 and fd01::2 and an MTU of 1400.
struct Host {
    netns: Netns,
    _lan: Netns,
    programs: Programs,
}

impl Host {
    fn new() -> Self {
        let (netns, lan) = (Netns::new("inject"), Netns::new("lan"));
        veth((&netns, "lan"), (&lan, "host"));
        for command in [
            "link set lan address 02:00:00:00:00:11 mtu 1400",
            "addr add 10.1.0.1/24 dev lan",
            "addr add fd01::1/64 dev lan nodad",
            "neigh add 10.1.0.2 lladdr 02:00:00:00:00:99 dev lan nud permanent",
            "neigh add fd01::2 lladdr 02:00:00:00:00:99 dev lan nud permanent",
            "route add 10.5.0.0/16 via 10.1.0.2",
            "route add 10.9.0.0/16 dev lo",
            "route add fd09::/32 dev lo",
            "route add unreachable 10.8.0.0/16",
        ] {
            netns.ip(command);
        }
        netns.run(|| {
            for family in ["ipv4", "ipv6"] {
                for device in ["all", "lo", "lan"] {
                    let file = format!("/proc/sys/net/{family}/conf/{device}/forwarding");
                    std::fs::write(file, "1").unwrap();
                }
            }
        });
        Self {
            netns,
            _lan: lan,
            programs: Programs::load(Logging::Off).unwrap(),
        }
    }

    /// Runs the program; exactly this verdict must have been counted.
    fn run(&self, that: &str, frame: &[u8], counted: Stat) -> TestOutcome {
        let before = self.programs.counters().unwrap();
        let outcome = self
            .netns
            .run(|| self.programs.test_run(Program::Inject, frame))
            .unwrap();
        let after = self.programs.counters().unwrap();
        let moved: Vec<_> = after
            .stats()
            .filter(|(stat, n)| *n != before.stat(*stat))
            .map(|(stat, _)| stat)
            .collect();
        assert_eq!(moved, [counted], "{that}");
        outcome
    }

    /// The packet must go up the stack as it is.
    fn passes(&self, that: &str, frame: &[u8]) {
        let outcome = self.run(that, frame, Stat::InjectPassed);
        assert_eq!(outcome.action, TC_ACT_OK, "{that}");
        assert_eq!(outcome.frame, frame, "{that}: must be unchanged");
    }
}

fn index(name: &str) -> u32 {
    let name = std::ffi::CString::new(name).unwrap();
    // SAFETY: a string with its end mark.
    unsafe { libc::if_nametoindex(name.as_ptr()) }
}

fn to(destination: &str) -> Vec<u8> {
    Underlay::to(destination, 53).wrap(b"hello")
}

fn changed(mut frame: Vec<u8>, offset: usize, value: u8) -> Vec<u8> {
    frame[offset] = value;
    frame
}

#[test]
fn a_packet_to_a_known_neighbour_is_sent_with_its_addresses_and_one_hop_less() {
    if !root_or_skip() {
        return;
    }
    let host = Host::new();
    for (that, destination) in [
        ("IPv4", "10.1.0.2"),
        ("IPv4 through a gateway", "10.5.1.1"),
        ("IPv6", "fd01::2"),
    ] {
        let frame = to(destination);
        let outcome = host.run(that, &frame, Stat::InjectRedirected);
        assert_eq!(outcome.action, TC_ACT_REDIRECT, "{that}");
        assert_eq!(outcome.frame[..6], [2, 0, 0, 0, 0, 0x99], "{that}");
        assert_eq!(outcome.frame[6..12], [2, 0, 0, 0, 0, 0x11], "{that}");
        let mut expected = frame;
        expected[..12].copy_from_slice(&outcome.frame[..12]);
        let hops = if that == "IPv6" { IP + 7 } else { IP + 8 };
        expected[hops] = 63;
        if that != "IPv6" {
            let packet = ipv4::View::new_checked(&outcome.frame[IP..]).unwrap();
            assert!(packet.checksum_is_valid(), "{that}");
            let checksum = packet.checksum().to_be_bytes();
            expected[IP + 10..IP + 12].copy_from_slice(&checksum);
        }
        assert_eq!(outcome.frame, expected, "{that}: nothing else changed");
    }
}

#[test]
fn a_packet_to_an_unknown_neighbour_is_sent_by_way_of_resolution() {
    if !root_or_skip() {
        return;
    }
    let host = Host::new();
    for (that, destination, hops) in [("IPv4", "10.1.0.3", IP + 8), ("IPv6", "fd01::3", IP + 7)] {
        let outcome = host.run(that, &to(destination), Stat::InjectResolving);
        assert_eq!(outcome.action, TC_ACT_REDIRECT, "{that}");
        assert_eq!(outcome.frame[hops], 63, "{that}");
    }
}

#[test]
fn the_checksum_stays_right_for_every_ttl() {
    if !root_or_skip() {
        return;
    }
    let host = Host::new();
    for ttl in 2..=255 {
        let mut frame = to("10.1.0.2");
        let header = &mut frame[IP..][..ipv4::HEADER_LEN];
        header[8] = ttl;
        header[10..12].fill(0);
        let checksum = Sum::of(header).checksum();
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
        let outcome = host.run("TTL", &frame, Stat::InjectRedirected);
        let packet = ipv4::View::new_checked(&outcome.frame[IP..]).unwrap();
        assert_eq!(packet.ttl(), ttl - 1);
        assert!(packet.checksum_is_valid(), "TTL {ttl}");
    }
}

#[test]
fn what_needs_more_than_forwarding_goes_up_the_stack_unchanged() {
    if !root_or_skip() {
        return;
    }
    let host = Host::new();
    let large = Underlay::to("10.1.0.2", 53).wrap(&[0; 1373]);
    let large_v6 = Underlay::to("fd01::2", 53).wrap(&[0; 1353]);
    let mut arp = vec![0; 60];
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    for (that, frame) in [
        ("for this host", to("10.1.0.1")),
        ("IPv6 for this host", to("fd01::1")),
        ("no route", to("192.0.2.1")),
        ("unreachable", to("10.8.0.1")),
        ("larger than the MTU", large),
        ("IPv6 larger than the MTU", large_v6),
        ("TTL 1", changed(to("10.1.0.2"), IP + 8, 1)),
        ("TTL 0", changed(to("10.1.0.2"), IP + 8, 0)),
        ("hop limit 1", changed(to("fd01::2"), IP + 7, 1)),
        ("IPv4 options", changed(to("10.1.0.2"), IP, 0x46)),
        ("ARP", arp),
        ("multicast", to("224.0.0.5")),
        ("broadcast", to("255.255.255.255")),
    ] {
        host.passes(that, &frame);
    }
    let fits = Underlay::to("10.1.0.2", 53).wrap(&[0; 1372]);
    host.run("as large as the MTU", &fits, Stat::InjectRedirected);
}

#[test]
fn without_forwarding_nothing_is_forwarded() {
    if !root_or_skip() {
        return;
    }
    let host = Host::new();
    host.netns.run(|| {
        std::fs::write("/proc/sys/net/ipv4/conf/lo/forwarding", "0").unwrap();
    });
    host.passes("forwarding is off on the device", &to("10.1.0.2"));
}

#[test]
fn a_packet_for_another_remote_goes_into_the_tunnel_again_with_one_hop_less() {
    if !root_or_skip() {
        return;
    }
    let host = Host::new();
    for (that, destination, hops) in [("IPv4", "10.9.0.1", IP + 8), ("IPv6", "fd09::1", IP + 7)] {
        let frame = to(destination);
        let outcome = host.run(that, &frame, Stat::InjectRedirected);
        assert_eq!(outcome.action, TC_ACT_REDIRECT, "{that}");
        assert_eq!(outcome.frame[..14], frame[..14], "{that}: Ethernet header");
        assert_eq!(outcome.frame[hops], 63, "{that}");
        host.passes("a last hop", &changed(frame, hops, 1));
    }
}

#[test]
fn what_comes_out_of_the_tunnel_for_another_remote_goes_into_it_again() {
    if !root_or_skip() {
        return;
    }
    // The tunnel device and its far end, where a worker would be.
    let (hub, far) = (Netns::new("hub"), Netns::new("far"));
    veth((&hub, "sig"), (&far, "peer"));
    hub.ip("link set sig address 02:00:00:00:00:02 arp off");
    hub.ip("addr add 10.0.0.1/32 dev sig");
    hub.ip("route add 10.9.0.0/16 dev sig");
    hub.run(|| std::fs::write("/proc/sys/net/ipv4/conf/sig/forwarding", "1").unwrap());
    let mut programs = Programs::load(Logging::Off).unwrap();
    let sig = hub.run(|| index("sig"));
    let _attached = hub.run(|| programs.attach_inject(sig)).unwrap();
    let worker = PacketSocket::open(&far, "peer", ETHERTYPE_IPV4);
    let frame = to("10.9.0.1");
    worker.send(&frame);
    let mut returned = None;
    wait_until("the packet comes back", PATIENCE, || {
        returned = worker.receive();
        returned.is_some()
    });
    let returned = returned.unwrap_or_default();
    assert_eq!(returned[IP + 8], 63);
    assert_eq!(returned[IP + 12..], frame[IP + 12..]);
    let counters = programs.counters().unwrap();
    assert_eq!(counters.stat(Stat::InjectRedirected), 1);
}

#[test]
fn a_packet_that_would_go_back_to_its_remote_is_dropped() {
    if !root_or_skip() {
        return;
    }
    let host = Host::new();
    let mut frame = to("10.9.0.1");
    frame[6..12].copy_from_slice(&BACK_TO_SENDER);
    let outcome = host.run("loop", &frame, Stat::InjectDropped);
    assert_eq!(outcome.action, TC_ACT_SHOT);
    let counters = host.programs.counters().unwrap();
    assert_eq!(counters.dropped(DropReason::RoutingLoop), 1);
}

#[test]
fn a_packet_for_a_chain_that_is_not_there_is_dropped() {
    if !root_or_skip() {
        return;
    }
    let host = Host::new();
    let mut frame = to("10.9.0.1");
    frame[..6].copy_from_slice(&Mark::Policy(7).address());
    let outcome = host.run("no chain", &frame, Stat::InjectDropped);
    assert_eq!(outcome.action, TC_ACT_SHOT);
    let counters = host.programs.counters().unwrap();
    assert_eq!(counters.dropped(DropReason::NoChain), 1);
}
