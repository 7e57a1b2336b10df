//! The same packets through the kernel and through ours, byte by byte.
//!
//! Two routers have the same addresses, MAC addresses included, the same routes and neighbours. One has kernel routes with segment
//! routing, the other a node of ours.

use sig_common::wire::{checksum::Sum, ipv6};

use super::{
    net::{Node, frame_of, mac, namespace, socket, v6},
    packets::{at_its_end, behind, frame, is_of, router, v4_packet, v6_packet},
};
use crate::support::wire::PacketSocket;

/// A packet to all that the routers do; what comes out is compared.
struct Case {
    name: &'static str,
    input: Vec<u8>,
    /// What is different on purpose.
    mask: fn(&mut [u8]),
}

/// Both take all bytes from the packet.
fn nothing(_: &mut [u8]) {}

/// The flow label of the outer header is a hash of the flow, for routers to spread flows by (RFC 6437); ours and the kernel's hash are
/// not the same.
fn flow_label(frame: &mut [u8]) {
    assert_ne!(flow_label_of(frame), 0, "of {frame:x?}");
    frame[15] &= 0xf0;
    frame[16..18].fill(0);
}

fn flow_label_of(frame: &[u8]) -> u32 {
    u32::from_be_bytes(*frame[14..].first_chunk().unwrap()) & 0xf_ffff
}

/// Beside the flow label: ours takes one from the hop limit of the packet that is put behind headers, as from any packet that is
/// forwarded (RFC 2473, section 3.1); the kernel takes it from the outer one, which in ours is as small because it is a copy of it.
fn encapsulated_v6(frame: &mut [u8]) {
    flow_label(frame);
    let inner = inner(frame);
    assert!(matches!(frame[inner + 7], 60 | 61));
    frame[inner + 7] = 60;
}

/// The same, and of IPv4 the checksum; and of the outer hop limit, for which there is none to copy, one that the kernel takes from the
/// default that both begin with.
fn encapsulated_v4(frame: &mut [u8]) {
    flow_label(frame);
    assert!(matches!(frame[14 + 7], 63 | 64));
    frame[14 + 7] = 63;
    let inner = inner(frame);
    let header = &mut frame[inner..inner + 20];
    assert!(Sum::of(header).is_valid(), "{header:x?}");
    assert!(matches!(header[8], 60 | 61));
    header[8] = 60;
    header[10..12].fill(0);
}

/// The kernel inserts an SRH before hop-by-hop options too, where RFC 8200, section 4.1, has them first.
fn hop_by_hop_first(frame: &mut [u8]) {
    let [srh, options] = [54, 54 + 8 + 8 * usize::from(frame[55])];
    if frame[20] == ipv6::ROUTING {
        assert_eq!(frame[srh], ipv6::HOP_BY_HOP);
        frame.swap(20, srh);
        frame.swap(srh, options);
        frame[srh..options + 8].rotate_right(8);
    }
}

/// Where the packet behind an IPv6 header, and an SRH if there is one, begins in a frame.
fn inner(frame: &[u8]) -> usize {
    match frame[14 + 6] {
        ipv6::ROUTING => 14 + 40 + 8 + usize::from(frame[14 + 41]) * 8,
        _ => 14 + 40,
    }
}

const KERNEL: &str = "sr tunsrc set fc00:1::1\n\
    route add fc00:22::e/128 encap seg6local action End dev out\n\
    route add fc00:22::ea/128 encap seg6local action End.X nh6 fc00:2::3 dev out\n\
    route add fc00:22::eb/128 encap seg6local action End.T table 100 dev out\n\
    route add fc00:22::ec/128 encap seg6local action End flavors psp dev out\n\
    route add fc00:22::d4/128 encap seg6local action End.DX4 nh4 10.9.0.3 dev out\n\
    route add fc00:22::d6/128 encap seg6local action End.DX6 nh6 fc00:2::3 dev out\n\
    route add fc00:22::d8/128 encap seg6local action End.DT6 table main dev out\n\
    route add 10.2.1.1 encap seg6 mode encap segs fc00:33::e,fc00:44::e,fc00:33::d4 dev out\n\
    route add 10.2.1.2 encap seg6 mode encap.red segs fc00:33::e,fc00:44::e,fc00:33::d4 dev out\n\
    route add 10.2.1.3 encap seg6 mode encap segs fc00:33::d4 dev out\n\
    route add 10.2.1.4 encap seg6 mode encap.red segs fc00:33::d4 dev out\n\
    route add fd00:2:1::1 encap seg6 mode encap segs fc00:33::e,fc00:44::e,fc00:33::d4 dev out\n\
    route add fd00:2:1::2 encap seg6 mode encap.red segs fc00:33::e,fc00:44::e,fc00:33::d4 dev out\n\
    route add fd00:2:1::3 encap seg6 mode encap segs fc00:33::d4 dev out\n\
    route add fd00:2:1::4 encap seg6 mode encap.red segs fc00:33::d4 dev out\n\
    route add fd00:2:1::5 encap seg6 mode inline segs fc00:33::e,fc00:44::e dev out\n\
    route add fd00:2:1::6 encap seg6 mode inline segs fc00:33::e dev out";

const OURS: &str = r#"
[srv6]
source = "fc00:1::1"
locators = ["fc00:22::/48"]
trusted = ["in", "out"]
hop_limit = "inherit"
allow_insert = true
sid = [
    { sid = "fc00:22::e", behavior = "End" },
    { sid = "fc00:22::ea", behavior = "End.X", next_hop = "fc00:2::3" },
    { sid = "fc00:22::eb", behavior = "End.T", table = 100 },
    { sid = "fc00:22::ec", behavior = "End", flavors = ["PSP"] },
    { sid = "fc00:22::d4", behavior = "End.DX4", next_hop = "10.9.0.3" },
    { sid = "fc00:22::d6", behavior = "End.DX6", next_hop = "fc00:2::3" },
    { sid = "fc00:22::d8", behavior = "End.DT6", table = "main" },
]
policy = [
    { name = "1", reduced = false, segments = ["fc00:33::e", "fc00:44::e", "fc00:33::d4"], destinations = ["10.2.1.1/32", "fd00:2:1::1/128"] },
    { name = "2", reduced = true, segments = ["fc00:33::e", "fc00:44::e", "fc00:33::d4"], destinations = ["10.2.1.2/32", "fd00:2:1::2/128"] },
    { name = "3", reduced = false, segments = ["fc00:33::d4"], destinations = ["10.2.1.3/32", "fd00:2:1::3/128"] },
    { name = "4", reduced = true, segments = ["fc00:33::d4"], destinations = ["10.2.1.4/32", "fd00:2:1::4/128"] },
    { name = "5", insert = true, reduced = false, segments = ["fc00:33::e", "fc00:44::e"], destinations = ["fd00:2:1::5/128"] },
    { name = "6", insert = true, reduced = false, segments = ["fc00:33::e"], destinations = ["fd00:2:1::6/128"] },
]
"#;

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |name, mask, make: &dyn Fn(u8) -> Vec<u8>| {
        let input = make(cases.len() as u8);
        cases.push(Case { name, input, mask });
    };
    let far4 = [10, 2, 0, 9];
    let far6 = v6("fd00:2::9");
    for (name, sid) in [
        ("End", "fc00:22::e"),
        ("End.X", "fc00:22::ea"),
        ("End.T", "fc00:22::eb"),
    ] {
        add(name, nothing, &|n| {
            behind(&[sid, "fc00:33::d4"], 0x1234, &v4_packet(n, far4))
        });
        add(name, nothing, &|n| {
            behind(
                &[sid, "fc00:33::e", "fc00:44::e", "fc00:33::d4"],
                0,
                &v6_packet(n, far6),
            )
        });
    }
    add("PSP, the SRH goes", nothing, &|n| {
        behind(&["fc00:22::ec", "fc00:33::d4"], 0, &v4_packet(n, far4))
    });
    add("PSP, the SRH stays", nothing, &|n| {
        behind(
            &["fc00:22::ec", "fc00:33::e", "fc00:33::d4"],
            0,
            &v6_packet(n, far6),
        )
    });
    for (name, sid) in [("DX6", "fc00:22::d6"), ("DT6", "fc00:22::d8")] {
        add(name, nothing, &|n| behind(&[sid], 0, &v6_packet(n, far6)));
        add(name, nothing, &|n| {
            at_its_end(behind(&["fc00:33::e", sid], 0, &v6_packet(n, far6)))
        });
    }
    add("DX4", nothing, &|n| {
        behind(&["fc00:22::d4"], 0, &v4_packet(n, far4))
    });
    add("DX4", nothing, &|n| {
        at_its_end(behind(
            &["fc00:33::e", "fc00:22::d4"],
            0,
            &v4_packet(n, far4),
        ))
    });
    for x in 1..=4 {
        let name = [
            "H.Encaps",
            "H.Encaps.Red",
            "H.Encaps, one segment",
            "H.Encaps.Red, one segment",
        ][x - 1];
        add(name, encapsulated_v4, &|n| {
            v4_packet(n, [10, 2, 1, x as u8])
        });
        add(name, encapsulated_v6, &|n| {
            v6_packet(n, v6(&format!("fd00:2:1::{x}")))
        });
    }
    for to in ["fd00:2:1::5", "fd00:2:1::6"] {
        add("H.Insert", nothing, &|n| v6_packet(n, v6(to)));
        add("H.Insert before an SRH", nothing, &|n| {
            behind(&[to, "fc00:33::d6"], 7, &v6_packet(n, far6))
        });
        add("H.Insert and options", hop_by_hop_first, &|n| {
            let mut packet = v6_packet(n, v6(to));
            let len = packet.len() as u16 - 32;
            packet[4..6].copy_from_slice(&len.to_be_bytes());
            let next = std::mem::replace(&mut packet[6], 0);
            packet.splice(40..40, [next, 0, 1, 4, 0, 0, 0, 0]);
            packet
        });
    }
    cases
}

#[test]
fn the_kernel_and_ours_make_the_same_bytes() {
    if !super::net::may_run() {
        return;
    }
    let bench = namespace("bytes", "bench");
    let kernel = router("bytes", &bench, "kernel");
    let ours = router("bytes", &bench, "ours");
    // Flow labels from a hash, as ours.
    kernel
        .set_sysctls(&[("net/ipv6/seg6_flowlabel", "1")])
        .unwrap();
    kernel.ip(KERNEL).unwrap();
    let node = Node::start(&ours, OURS);
    let ends = ["kernel", "ours"].map(|name| {
        let open = |end: &str| socket(&bench, &format!("{name}-{end}"));
        (open("in"), open("out"))
    });
    let mut different = Vec::new();
    for (number, case) in cases().iter().enumerate() {
        let frame = frame(&case.input);
        let [kernel, ours] = ends.each_ref().map(|(input, output)| {
            input.send(&frame);
            let mut frame = take(output, number as u8, case, &node);
            let plain = frame.clone();
            (case.mask)(&mut frame);
            (frame, plain)
        });
        if kernel.0 != ours.0 {
            different.push(format!(
                "{}\n  kernel {}\n  ours   {}",
                case.name,
                hex(&kernel.1),
                hex(&ours.1)
            ));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
    // Alone, ours sends to the next hop whatever the destination is.
    let (input, output) = &ends[1];
    for (number, packet) in [
        (
            100,
            behind(&["fc00:22::d4"], 0, &v4_packet(100, [10, 2, 7, 7])),
        ),
        (
            101,
            behind(&["fc00:22::d6"], 0, &v6_packet(101, v6("fd00:2::7"))),
        ),
    ] {
        input.send(&frame(&packet));
        let sent = frame_of(output, "a packet to the next hop", |frame| {
            is_of(frame, number)
        });
        assert_eq!(sent[..6], mac(0x43), "{sent:x?}");
    }
    assert!(node.status().reasons().is_empty(), "{:#?}", node.status());
}

/// Frames behind headers: the kernel's of a packet that it routes, ours of all that comes in by a device.
#[test]
fn the_kernel_and_ours_put_frames_behind_the_same_bytes() {
    if !super::net::may_run() {
        return;
    }
    let bench = namespace("l2", "bench");
    let kernel = router("l2", &bench, "kernel");
    let ours = router("l2", &bench, "ours");
    kernel
        .set_sysctls(&[("net/ipv6/seg6_flowlabel", "1")])
        .unwrap();
    kernel.ip("sr tunsrc set fc00:1::1").unwrap();
    let ends = ["kernel", "ours"].map(|name| {
        let open = |end: &str| socket(&bench, &format!("{name}-{end}"));
        (open("in"), open("out"))
    });
    let config = |mode: &str, segments: &str| {
        format!(
            "[srv6]\nsource = \"fc00:1::1\"\ntrusted = [\"out\"]\n\
             [[srv6.policy]]\nname = \"wire\"\nsegments = [\"{}\"]\nreduced = {}\nmtu = 1800\n\
             frames_from = [\"in\"]\n",
            segments.replace(',', "\", \""),
            mode.ends_with("red"),
        )
    };
    let (one, three) = ("fc00:33::d2", "fc00:33::e,fc00:44::e,fc00:33::d2");
    let modes = [
        ("l2encap", three),
        ("l2encap.red", three),
        ("l2encap", one),
        ("l2encap.red", one),
    ];
    let node = Node::start(&ours, &config(modes[0].0, modes[0].1));
    let mut number = 0;
    for (mode, segments) in modes {
        for to in ["10.2.1.1", "fd00:2:1::1"] {
            kernel
                .ip(&format!(
                    "route replace {to} encap seg6 mode {mode} segs {segments} dev out"
                ))
                .unwrap();
        }
        node.reload(&config(mode, segments), "follows the file as it is now");
        for packet in [
            v4_packet(number, [10, 2, 1, 1]),
            v6_packet(number + 1, v6("fd00:2:1::1")),
        ] {
            let is_v6 = packet[0] >> 4 == 6;
            let frame = frame(&packet);
            let [kernel, ours] = ends.each_ref().map(|(input, output)| {
                input.send(&frame);
                let what = format!("{mode}; {:?}", node.status().reasons());
                let mut made = frame_of(output, &what, |frame| is_of(frame, number));
                flow_label(&mut made);
                // The kernel copies the hop limit of IPv6 packets and takes one from it; that of a frame is another network's.
                assert_eq!(made.split_off(inner(&made)), frame, "the frame is whole");
                made
            });
            assert_eq!(kernel[21], if is_v6 { 60 } else { 63 });
            assert_eq!(ours[21], 64);
            let mut same = ours.clone();
            same[21] = kernel[21];
            assert_eq!(
                kernel,
                same,
                "{mode}, {segments}\n{}\n{}",
                hex(&kernel),
                hex(&ours)
            );
            number += 1;
        }
    }
    assert!(node.status().reasons().is_empty(), "{:#?}", node.status());
}

fn take(output: &PacketSocket, number: u8, case: &Case, node: &Node) -> Vec<u8> {
    let what = format!("{}; {:?}", case.name, node.status().reasons());
    frame_of(output, &what, |frame| is_of(frame, number))
}

fn hex(bytes: &[u8]) -> String {
    let groups = bytes.chunks(4);
    let groups = groups.map(|group| group.iter().map(|byte| format!("{byte:02x}")).collect());
    groups.collect::<Vec<String>>().join(" ")
}
