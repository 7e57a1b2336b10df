//! The real programs `sig_lan` and `sig_tunnel` over single packets.

use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::AsFd as _;

use crate::frames::{Bench, Expect, Fixture, LO, Stats, check, xdp_socket};
use crate::packets::Underlay;
use crate::support::netns::root_or_skip;
use ipnet::IpNet;
use sig_common::maps::{LanRoute, Sockets, Stat, TUNNEL_PORT};
use sig_common::scope::may_cross;
use sig_common::wire::ethernet::{TPID_8021Q, Tag};
use sig_linux::bpf::Program;

const LAN: Stats = Stats {
    redirected: Stat::LanRedirected,
    passed: Stat::LanPassed,
    no_socket: Stat::LanNoSocket,
    dropped: None,
};
const INNER: Stats = Stats {
    redirected: Stat::TunnelRedirected,
    passed: Stat::TunnelPassed,
    no_socket: Stat::TunnelNoSocket,
    dropped: None,
};

/// The MAC address that packets of the tests are sent to.
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const IP: usize = 14;
const MTU: u32 = 1500;

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

/// A UDP packet to this address.
fn to(destination: &str) -> Vec<u8> {
    Underlay::to(destination, 53).wrap(b"hello")
}

fn changed(mut frame: Vec<u8>, offset: usize, value: u8) -> Vec<u8> {
    frame[offset] = value;
    frame
}

fn lan() -> Bench {
    let mut bench = Bench::new(LO, 1);
    bench.programs.set_lan_port(LO, MAC, true, MTU).unwrap();
    bench
        .programs
        .set_lan_routes([
            (net("10.2.0.0/16"), LanRoute::TUNNEL),
            (net("10.2.7.0/24"), LanRoute::PASS),
            (net("fd02::/32"), LanRoute::TUNNEL),
        ])
        .unwrap();
    bench
}

fn worker(that: &str, frame: Vec<u8>) -> Fixture {
    Fixture::new(that, frame, Expect::Worker)
}

fn pass(that: &str, frame: Vec<u8>) -> Fixture {
    Fixture::new(that, frame, Expect::Pass)
}

#[test]
fn packets_to_prefixes_of_remotes_go_to_a_worker() {
    if !root_or_skip() {
        return;
    }
    let mut padded = to("10.2.0.1");
    padded.extend([0; 20]);
    let bench = lan();
    check(
        &bench.programs,
        Program::Lan,
        LAN,
        &[
            worker("IPv4", to("10.2.0.1")),
            worker("IPv6", to("fd02::1")),
            worker("the last address of the prefix", to("10.2.255.255")),
            worker("a first fragment", changed(to("10.2.0.1"), IP + 6, 0x20)),
            worker("a later fragment", changed(to("10.2.0.1"), IP + 7, 1)),
            worker("padded", padded),
            worker("TTL 2", changed(to("10.2.0.1"), IP + 8, 2)),
            worker("TCP", changed(to("10.2.0.1"), IP + 9, 6)),
            worker("an unknown protocol", changed(to("10.2.0.1"), IP + 9, 99)),
            worker(
                "IPv6 with an unknown header",
                changed(to("fd02::1"), IP + 6, 99),
            ),
            worker(
                "IPv6 with a cut off extension header",
                changed(to("fd02::1"), IP + 6, 43),
            ),
        ],
    );
}

#[test]
fn packets_in_several_buffers_are_taken_if_all_of_them_is_there() {
    if !root_or_skip() {
        return;
    }
    let mut bench = lan();
    bench.programs.set_lan_port(LO, MAC, true, 9000).unwrap();
    let mut fixtures = Vec::new();
    // The first buffer of a test run holds about 3500 bytes.
    for len in [3400, 3500, 3600, 5000, 8900] {
        for destination in ["10.2.0.1", "fd02::1"] {
            let whole = Underlay::to(destination, 53).wrap(&vec![1; len]);
            let mut cut = whole.clone();
            cut.pop();
            fixtures.push(worker(&format!("{len} bytes to {destination}"), whole));
            fixtures.push(pass(&format!("{len} to {destination}, cut off"), cut));
        }
    }
    let too_long = Underlay::to("10.2.0.1", 53).wrap(&[1; 9000]);
    fixtures.push(pass("longer than the MTU", too_long));
    check(&bench.programs, Program::Lan, LAN, &fixtures);
}

#[test]
fn all_else_from_the_lan_is_left_to_the_kernel() {
    if !root_or_skip() {
        return;
    }
    let mut arp = vec![0; 60];
    arp[..6].copy_from_slice(&MAC);
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    let tagged = Underlay {
        tags: [
            Some(Tag {
                tpid: TPID_8021Q,
                tci: 5,
            }),
            None,
        ],
        ..Underlay::to("10.2.0.1", 53)
    };
    let mut bench = lan();
    // Every address has a route into the tunnel, also those that must not take it.
    bench
        .programs
        .set_lan_routes([
            (net("0.0.0.0/0"), LanRoute::TUNNEL),
            (net("::/0"), LanRoute::TUNNEL),
        ])
        .unwrap();
    check(
        &bench.programs,
        Program::Lan,
        LAN,
        &[
            pass("ARP", arp),
            pass("VLAN tagged", tagged.wrap(b"hello")),
            pass("to another MAC address", changed(to("10.2.0.1"), 5, 3)),
            pass("to the broadcast MAC address", {
                let mut frame = to("10.2.0.1");
                frame[..6].fill(0xff);
                frame
            }),
            pass("longer than the MTU, as merged by the kernel", {
                let mut frame = to("10.2.0.1");
                frame.resize(IP + MTU as usize + 1, 0);
                frame[IP + 2..IP + 4].copy_from_slice(&(MTU as u16 + 1).to_be_bytes());
                frame
            }),
            pass("TTL 1", changed(to("10.2.0.1"), IP + 8, 1)),
            pass("TTL 0", changed(to("10.2.0.1"), IP + 8, 0)),
            pass("hop limit 1", changed(to("fd02::1"), IP + 7, 1)),
            pass("an Ethernet header alone", to("10.2.0.1")[..14].to_vec()),
            pass(
                "cut off in the IPv4 header",
                to("10.2.0.1")[..IP + 19].to_vec(),
            ),
            pass(
                "cut off in the IPv6 header",
                to("fd02::1")[..IP + 39].to_vec(),
            ),
            pass(
                "IPv4 longer than the frame",
                changed(to("10.2.0.1"), IP + 2, 1),
            ),
            pass(
                "IPv4 shorter than its header",
                changed(to("10.2.0.1"), IP + 3, 19),
            ),
            pass("IPv4 header of 16 bytes", changed(to("10.2.0.1"), IP, 0x44)),
            pass(
                "IPv6 longer than the frame",
                changed(to("fd02::1"), IP + 4, 1),
            ),
            pass("IPv6 in IPv4 clothes", changed(to("10.2.0.1"), IP, 0x65)),
        ],
    );
}

#[test]
fn addresses_enter_the_tunnel_that_may_cross_and_no_others() {
    if !root_or_skip() {
        return;
    }
    let mut bench = lan();
    bench
        .programs
        .set_lan_routes([
            (net("0.0.0.0/0"), LanRoute::TUNNEL),
            (net("::/0"), LanRoute::TUNNEL),
        ])
        .unwrap();
    // Every first byte, and both sides of the ends that lie further back.
    let mut addresses: Vec<IpAddr> = (0..=255)
        .flat_map(|first| {
            let v6 = u128::from(first) << 120 | 1;
            [IpAddr::from([first, 254, 1, 1]), Ipv6Addr::from(v6).into()]
        })
        .collect();
    addresses.extend(
        [
            "169.253.255.255",
            "169.255.0.0",
            "::",
            "::ffff:10.0.0.1",
            "::ffff:0:10.0.0.1",
            "::ffff:ffff:ffff:ffff",
            "0:0:0:1::",
            "64:ff9b::10.0.0.1",
            "fe7f:ffff::",
            "fe80::1",
            "febf:ffff::",
            "fec0::",
        ]
        .map(|text| text.parse::<IpAddr>().unwrap()),
    );
    let fixtures: Vec<Fixture> = addresses
        .iter()
        .map(|address| {
            let text = address.to_string();
            let expect = if may_cross(*address) {
                Expect::Worker
            } else {
                Expect::Pass
            };
            Fixture::new(&text, to(&text), expect)
        })
        .collect();
    check(&bench.programs, Program::Lan, LAN, &fixtures);
}

#[test]
fn the_longest_prefix_decides() {
    if !root_or_skip() {
        return;
    }
    let mut bench = lan();
    let fixtures = [
        pass("without a route", to("10.3.0.1")),
        pass("IPv6 without a route", to("fd03::1")),
        pass("to a local network inside", to("10.2.7.1")),
        worker("beside it", to("10.2.8.1")),
    ];
    check(&bench.programs, Program::Lan, LAN, &fixtures);

    bench
        .programs
        .set_lan_routes([
            (net("10.2.7.0/24"), LanRoute::TUNNEL),
            (net("10.3.0.1/32"), LanRoute::TUNNEL),
        ])
        .unwrap();
    let fixtures = [
        worker("a changed route", to("10.2.7.1")),
        worker("a new route", to("10.3.0.1")),
        pass("beside a host route", to("10.3.0.2")),
        pass("a removed route", to("10.2.8.1")),
        pass("a removed IPv6 route", to("fd02::1")),
    ];
    check(&bench.programs, Program::Lan, LAN, &fixtures);
}

#[test]
fn a_port_without_mac_check_takes_packets_to_any_mac_address() {
    if !root_or_skip() {
        return;
    }
    let mut bench = lan();
    bench.programs.set_lan_port(LO, MAC, false, MTU).unwrap();
    let fixtures = [worker(
        "to another MAC address",
        changed(to("10.2.0.1"), 5, 3),
    )];
    check(&bench.programs, Program::Lan, LAN, &fixtures);
}

#[test]
fn a_device_that_is_no_lan_port_keeps_its_packets() {
    if !root_or_skip() {
        return;
    }
    let mut bench = Bench::new(LO, 1);
    bench
        .programs
        .set_lan_routes([(net("0.0.0.0/0"), LanRoute::TUNNEL)])
        .unwrap();
    check(
        &bench.programs,
        Program::Lan,
        LAN,
        &[pass("IPv4", to("10.2.0.1"))],
    );
}

#[test]
fn flows_spread_over_the_sockets_of_a_queue_and_stay_on_one() {
    if !root_or_skip() {
        return;
    }
    let mut bench = lan();
    let sockets = [xdp_socket(), xdp_socket()];
    let steering = Sockets {
        first: 10,
        count: 2,
    };
    bench.programs.set_steering(LO, 0, steering).unwrap();
    let packets: Vec<_> = (0..64)
        .map(|port| Underlay::to("10.2.0.1", port).wrap(b"x"))
        .collect();
    let redirected = |bench: &Bench| -> Vec<bool> {
        let action = |frame| bench.programs.test_run(Program::Lan, frame).unwrap().action;
        packets
            .iter()
            .map(|frame| action(frame) == crate::frames::XDP_REDIRECT)
            .collect()
    };
    bench.programs.set_socket(10, sockets[0].as_fd()).unwrap();
    let first = redirected(&bench);
    let share = first.iter().filter(|taken| **taken).count();
    assert!(
        (16..=48).contains(&share),
        "{share} of 64 flows on socket 0"
    );
    assert_eq!(redirected(&bench), first, "a flow stays on its socket");
    bench.programs.set_socket(11, sockets[1].as_fd()).unwrap();
    assert!(redirected(&bench).into_iter().all(|taken| taken));
}

#[test]
fn what_the_kernel_routed_into_the_tunnel_goes_to_a_worker_whatever_its_route_and_hops() {
    if !root_or_skip() {
        return;
    }
    let bench = Bench::new(TUNNEL_PORT, 1);
    check(
        &bench.programs,
        Program::Tunnel,
        INNER,
        &[
            worker("IPv4", to("10.2.0.1")),
            worker("IPv6", to("fd02::1")),
            worker("TTL 1", changed(to("10.2.0.1"), IP + 8, 1)),
            worker("to another MAC address", changed(to("10.2.0.1"), 5, 3)),
            pass("to IPv6 multicast", to("ff02::2")),
            pass("cut off", to("10.2.0.1")[..IP + 19].to_vec()),
        ],
    );
    let bench = Bench::new(LO, 1);
    let fixtures = [Fixture::new("IPv4", to("10.2.0.1"), Expect::NoSocket)];
    check(&bench.programs, Program::Tunnel, INNER, &fixtures);
}
