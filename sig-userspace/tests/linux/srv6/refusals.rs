//! What the senders of packets are told that go nowhere, and who may not send any.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sig_common::wire::{
    PROTO_ICMP, PROTO_ICMPV6,
    checksum::{Sum, ipv6_pseudo_header},
};

use super::{
    net::{Line, Node, PATIENCE, namespace, socket, v6, wire},
    packets::{at_its_end, behind, frame, is_of, router, v4_packet, v6_packet},
};
use crate::support::{netns::wait_until, wire::PacketSocket};

/// An ICMP error.
#[derive(Debug, PartialEq)]
struct Told {
    from: IpAddr,
    to: IpAddr,
    kind: u8,
    code: u8,
    value: u32,
}

impl Told {
    /// Of ours about IPv6 packets, to the source of the outer header.
    fn v6(kind: u8, code: u8, value: u32) -> Self {
        Self {
            from: v6("fc00:1::1").into(),
            to: v6("fc00:1::9").into(),
            kind,
            code,
            value,
        }
    }

    /// To the source of the IPv6 packet inside.
    fn inside_v6(kind: u8, code: u8, value: u32) -> Self {
        Self {
            to: v6("fd00:1::2").into(),
            ..Self::v6(kind, code, value)
        }
    }

    /// About IPv4 packets.
    fn v4(kind: u8, code: u8, value: u32) -> Self {
        Self {
            from: Ipv4Addr::new(10, 8, 0, 1).into(),
            to: Ipv4Addr::new(10, 1, 0, 2).into(),
            kind,
            code,
            value,
        }
    }

    /// Reads one, with what it quotes. Its checksum must be right.
    fn read(frame: &[u8]) -> Option<(Self, &[u8])> {
        let ip = frame.get(14..)?;
        let (message, from, to) = match ip.first()? >> 4 {
            4 if ip[9] == PROTO_ICMP => {
                let address = |at: usize| Some(Ipv4Addr::from(*ip[at..].first_chunk::<4>()?));
                let message = &ip[20..];
                assert!(Sum::of(message).is_valid(), "{frame:x?}");
                (message, address(12)?.into(), address(16)?.into())
            }
            6 if ip[6] == PROTO_ICMPV6 => {
                let address = |at: usize| ip[at..].first_chunk::<16>();
                let (from, to) = (address(8)?, address(24)?);
                let message = &ip[40..];
                let sum = ipv6_pseudo_header(from, to, message.len() as u32, PROTO_ICMPV6);
                assert!(sum.add_bytes(message).is_valid(), "{frame:x?}");
                let from = Ipv6Addr::from(*from).into();
                (message, from, Ipv6Addr::from(*to).into())
            }
            _ => return None,
        };
        let told = Self {
            from,
            to,
            kind: message[0],
            code: message[1],
            value: u32::from_be_bytes(*message[4..].first_chunk()?),
        };
        Some((told, &message[8..]))
    }
}

/// A packet that goes nowhere.
struct Case {
    name: &'static str,
    packet: Vec<u8>,
    /// What is quoted of.
    quoted: Vec<u8>,
    told: Told,
    reason: &'static str,
}

const CONFIG: &str = r#"
[srv6]
source = "fc00:1::1"
locators = ["fc00:22::/48"]
trusted = ["in", "out"]
untrusted = ["far"]
sid = [
    { sid = "fc00:22::e", behavior = "End" },
    { sid = "fc00:22::ea", behavior = "End.X", next_hop = "fc00:2::3" },
    { sid = "fc00:22::eb", behavior = "End.T", table = 100 },
    { sid = "fc00:22::d2", behavior = "End.DX2", interface = "out" },
    { sid = "fc00:22::d4", behavior = "End.DX4", next_hop = "10.9.0.3" },
    { sid = "fc00:22::d6", behavior = "End.DX6", next_hop = "fc00:2::3" },
    { sid = "fc00:22::d46", behavior = "End.DT46", table = 100 },
    { sid = "fc00:22::d47", behavior = "End.DT46", table = 101 },
]
policy = [
    { name = "v4", segments = ["fc00:33::e", "fc00:33::d4"], mtu = 1280, destinations = ["10.2.1.0/24"] },
    { name = "v6", segments = ["fc00:33::e", "fc00:44::e", "fc00:33::d6"], mtu = 1400, destinations = ["fd00:2:1::/48"] },
]
"#;

fn with_hops(mut packet: Vec<u8>, hops: u8) -> Vec<u8> {
    match packet[0] >> 4 {
        4 => {
            packet[8] = hops;
            packet[10..12].fill(0);
            let sum = Sum::of(&packet[..20]).checksum();
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        _ => packet[7] = hops,
    }
    packet
}

/// The number of a case whose packet is as long as its MTU of 1500 bytes nearly allows.
const LONG: u8 = 255;

/// The name of a case.
const ON_ITS_WAY: &str = "too long on its way";

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let far4 = [10, 2, 0, 9];
    let far6 = v6("fd00:2::9");
    let (v4_inside, v6_inside) = (v4_packet(1, far4), v6_packet(1, far6));
    let (long_v4, long_v6) = (v4_packet(LONG, far4), v6_packet(LONG, far6));
    let (long_v4_len, long_v6_len) = (long_v4.len(), long_v6.len());
    assert!(long_v4_len > 1280 && long_v6_len > 1300);
    let mut add = |name, packet: Vec<u8>, quoted_from, told, reason| {
        let quoted = packet[quoted_from..].to_vec();
        cases.push(Case {
            name,
            packet,
            quoted,
            told,
            reason,
        });
    };
    for sid in ["fc00:22::e", "fc00:22::ea", "fc00:22::eb"] {
        let packet = behind(&[sid, "fc00:33::d4"], 0, &v4_inside);
        add(
            "the hop limit runs out",
            with_hops(packet, 1),
            0,
            Told::v6(3, 0, 0),
            "hop_limit",
        );
    }
    for sid in ["d2", "d4", "d6", "d46"] {
        let inside = if sid == "d6" { &v6_inside } else { &v4_inside };
        let sid = format!("fc00:22::{sid}");
        add(
            "segments are left at the last SID",
            behind(&[&sid, "fc00:33::e"], 0, inside),
            0,
            Told::v6(4, 0, 43),
            "bad_header",
        );
    }
    let mut packet = behind(&["fc00:22::e", "fc00:33::d4"], 0, &v4_inside);
    packet[40 + 3] = 3;
    add(
        "more segments are left than there are",
        packet,
        0,
        Told::v6(4, 0, 43),
        "bad_header",
    );
    let mut packet = behind(&["fc00:22::e", "fc00:33::d4"], 0, &v4_inside);
    packet[40 + 4] = 2;
    add(
        "more segments are listed than there is room for",
        packet,
        0,
        Told::v6(4, 0, 43),
        "bad_header",
    );
    add(
        "nothing that End processes",
        behind(&["fc00:22::e"], 0, &v4_inside),
        0,
        Told::v6(4, 4, 40),
        "upper_layer",
    );
    add(
        "nothing that End processes, with an SRH",
        at_its_end(behind(&["fc00:33::e", "fc00:22::e"], 0, &v4_inside)),
        0,
        Told::v6(4, 4, 40 + 8 + 32),
        "upper_layer",
    );
    add(
        "IPv6 at End.DX4",
        behind(&["fc00:22::d4"], 0, &v6_inside),
        0,
        Told::v6(4, 4, 40),
        "upper_layer",
    );
    add(
        "IPv4 at End.DX6, with an SRH",
        at_its_end(behind(&["fc00:33::e", "fc00:22::d6"], 0, &v4_inside)),
        0,
        Told::v6(4, 4, 40 + 8 + 32),
        "upper_layer",
    );
    add(
        "IPv6 at End.DX2",
        behind(&["fc00:22::d2"], 0, &v6_inside),
        0,
        Told::v6(4, 4, 40),
        "upper_layer",
    );
    // What is put behind headers, of 40 and 24 or 40 bytes.
    add(
        "too long for a policy, IPv4",
        v4_packet(LONG, [10, 2, 1, 9]),
        0,
        Told::v4(3, 4, 1280 - 40 - 24),
        "too_big",
    );
    add(
        "too long for a policy, IPv6",
        v6_packet(LONG, v6("fd00:2:1::9")),
        0,
        Told::inside_v6(2, 0, 1400 - 40 - 40),
        "too_big",
    );
    // The device `out` takes 1300 bytes.
    add(
        "too long for a next hop, IPv4",
        behind(&["fc00:22::d4"], 0, &long_v4),
        40,
        Told::v4(3, 4, 1300),
        "too_big",
    );
    add(
        "too long for a next hop, IPv6",
        behind(&["fc00:22::d6"], 0, &long_v6),
        40,
        Told::inside_v6(2, 0, 1300),
        "too_big",
    );
    add(
        ON_ITS_WAY,
        behind(&["fc00:22::ea", "fc00:33::d4"], 0, &long_v4),
        0,
        Told::v6(2, 0, 1300),
        "too_big",
    );
    add(
        "the hops of the packet inside end, IPv4",
        behind(&["fc00:22::d4"], 0, &with_hops(v4_inside.clone(), 1)),
        40,
        Told::v4(11, 0, 0),
        "hop_limit",
    );
    // What has happened to it already is there to see.
    for case in &mut cases {
        if case.name == ON_ITS_WAY {
            case.quoted = at_its_end(case.quoted.clone());
        }
    }
    cases
}

#[test]
fn senders_are_told_what_is_wrong() {
    if !super::net::may_run() {
        return;
    }
    let bench = namespace("refusals", "bench");
    let router = router("refusals", &bench, "ours");
    wire((&bench, "u0", 0x51), (&router, "far", 0x52));
    router.ip("link set out mtu 1300").unwrap();
    let (input, output) = (socket(&bench, "ours-in"), socket(&bench, "ours-out"));
    let node = Node::start(&router, CONFIG);
    let mut wrong = Vec::new();
    for case in cases() {
        let before = node.status().refused(case.reason);
        input.send(&frame(&case.packet));
        let mut told = None;
        let what = format!("{}, refused\n{:#?}", case.name, node.status());
        wait_until(&what, PATIENCE, || {
            node.status().refused(case.reason) == before + 1
        });
        let end = std::time::Instant::now() + PATIENCE / 6;
        while told.is_none() && std::time::Instant::now() < end {
            told = input
                .receive()
                .filter(|frame| Told::read(frame).is_some_and(|(told, _)| told.kind < 128));
        }
        let Some(told) = told else {
            wrong.push(format!("{}: nobody was told", case.name));
            continue;
        };
        let (told, quote) = Told::read(&told).unwrap();
        if told != case.told || !case.quoted.starts_with(quote) {
            wrong.push(format!(
                "{}: {:?} instead of {:?}, of\n{:x?}\n{quote:x?}",
                case.name, told, case.told, case.packet
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    nothing_came_of(&output);
    silent_ones(&input, &output, &node);
}

fn nothing_came_of(output: &PacketSocket) {
    while let Some(frame) = output.receive() {
        assert!(!is_of(&frame, 1) && !is_of(&frame, LONG), "{frame:x?}");
    }
}

/// What nobody is told about.
fn silent_ones(input: &PacketSocket, output: &PacketSocket, node: &Node) {
    let sent = node.status();
    let inside = v4_packet(1, [10, 2, 0, 9]);
    let mut wrong_inside = behind(&["fc00:22::d4"], 0, &inside);
    wrong_inside[40] = 0x65;
    let mut cut = behind(&["fc00:22::e", "fc00:33::d4"], 0, &inside);
    cut.truncate(60);
    // Who is told by another table than the main one?
    let elsewhere = behind(&["fc00:22::d46"], 0, &with_hops(inside.clone(), 1));
    for (packet, reason) in [
        (wrong_inside, "bad_inner"),
        (cut, "malformed"),
        (elsewhere, "hop_limit"),
    ] {
        input.send(&frame(&packet));
        wait_until(reason, PATIENCE, || {
            node.status().refused(reason) == sent.refused(reason) + 1
        });
    }
    // No error about an error, whatever is in front of it: else two nodes could keep each other busy.
    let mut error = v6_packet(1, v6("fd00:2::9"));
    error[6] = PROTO_ICMPV6;
    error[40..42].copy_from_slice(&[1, 0]);
    let before = node.status().refused("no_route");
    input.send(&frame(&behind(&["fc00:22::d47"], 0, &error)));
    wait_until("no route", PATIENCE, || {
        node.status().refused("no_route") == before + 1
    });
    // The next answer is the one to the next packet.
    let packet = with_hops(behind(&["fc00:22::e", "fc00:33::d4"], 0, &inside), 1);
    input.send(&frame(&packet));
    let mut told = None;
    wait_until("an answer", PATIENCE, || {
        told = input.receive();
        told.as_deref()
            .and_then(Told::read)
            .is_some_and(|(told, _)| {
                assert_eq!(told, Told::v6(3, 0, 0));
                true
            })
    });
    nothing_came_of(output);
}

/// RFC 8754, section 5: by interfaces that are not trusted, neither SIDs nor other addresses of the locator are reached; all else is.
#[test]
fn strangers_reach_no_sid() {
    if !super::net::may_run() {
        return;
    }
    let bench = namespace("strangers", "bench");
    let router = router("strangers", &bench, "ours");
    wire((&bench, "u0", 0x10), (&router, "far", 0x20));
    let (stranger, output) = (socket(&bench, "u0"), socket(&bench, "ours-out"));
    let node = Node::start(&router, CONFIG);
    let inside = v4_packet(1, [10, 2, 0, 9]);
    let packets = [
        behind(&["fc00:22::d4"], 0, &inside),
        behind(&["fc00:22::e", "fc00:33::d4"], 0, &inside),
        at_its_end(behind(&["fc00:33::e", "fc00:22::d46"], 0, &inside)),
        // No SID, but of the locator.
        behind(&["fc00:22::123"], 0, &inside),
        v6_packet(1, v6("fc00:22::")),
    ];
    for packet in &packets {
        stranger.send(&frame(packet));
    }
    wait_until("all are counted", PATIENCE, || {
        node.status().refused("untrusted") == packets.len() as u64
    });
    let status = node.status();
    for sid in ["e", "d4", "d46"] {
        assert_eq!(status.sid(&format!("fc00:22::{sid}")), 0);
    }
    assert_eq!(status.reasons().len(), 1, "{status:#?}");
    nothing_came_of(&output);
    // The packets of hosts are what policies are for.
    stranger.send(&frame(&v4_packet(2, [10, 2, 1, 9])));
    let crossed = super::net::frame_of(&output, "a steered packet", |frame| is_of(frame, 2));
    assert_eq!(crossed[12..14], [0x86, 0xdd], "{crossed:x?}");
    assert_eq!(node.status().policy("v4"), 1);
}

/// With whole hosts: they learn what fits.
#[test]
fn hosts_learn_how_long_packets_may_be() {
    if !super::net::may_run() {
        return;
    }
    let line = Line::new("mtu");
    let node = Node::start(
        &line.n,
        r#"
[srv6]
source = "fc00:1::1"
locators = ["fc00:22::/48"]
trusted = ["nr", "ns"]
policy = [
    { name = "v4", segments = ["fc00:33::e", "fc00:22::d4"], mtu = 1480, destinations = ["10.2.0.0/24"] },
    { name = "v6", segments = ["fc00:33::e", "fc00:22::d6"], mtu = 1480, destinations = ["fd00:2::/64"] },
]
sid = [
    { sid = "fc00:22::d4", behavior = "End.DX4", next_hop = "10.9.0.2" },
    { sid = "fc00:22::d6", behavior = "End.DX6", next_hop = "fc00:2::2" },
]
"#,
    );
    for to in Line::destination(7) {
        let payload = if to.is_ipv4() { 1472 } else { 1452 };
        let ping = format!("ping -q -n -c1 -W1 -M do -s {payload} {to}");
        assert!(line.a.exec(&ping).is_err());
        // Headers of 40 bytes and an SRH with one segment, as the first is the destination.
        let learnt = format!("mtu {}", 1480 - 40 - 24);
        wait_until(&format!("{to}: {learnt}"), PATIENCE, || {
            let route = line.a.exec(&format!("ip route get {to}")).unwrap();
            route.contains(&learnt)
        });
        let ping = format!("ping -q -n -c1 -W2 -M do -s {} {to}", payload - 84);
        line.a.exec(&ping).unwrap();
    }
    assert_eq!(node.status().refused("too_big"), 2, "{:#?}", node.status());
}
