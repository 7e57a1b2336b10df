//! Generated packets against other parsers, and the sink's program over single frames.

use aya::{TestRun as _, TestRunOptions, programs::Xdp};
use etherparse::{NetHeaders, PacketHeaders, TransportHeader};
use sig_common::{
    addr::HostAddr,
    wire::{
        PROTO_UDP,
        scion::{View, address::AddressHeader, udp as scion_udp},
        underlay::{self, Local},
    },
};
use sig_core::scion::{Endpoints, NextHop};
use testbed::Netns;

use super::{
    live_frames::LiveFrames,
    pace,
    packet::{Expect, IpLoad, Load, Outer, ScionLoad},
    sink::{Arrived, Sink},
    template::Templates,
};
use crate::throughput::{
    experiment::{Mix, Size},
    layout::{MAX_FRAME, Progress, Setup, Template, write},
    trial::Rate,
};

const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;

/// Whether BPF programs can be run; says so if not.
fn root_or_skip() -> bool {
    // SAFETY: no arguments, cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        eprintln!("left out: needs root for BPF");
    }
    root
}

fn ip_load(v6: bool, size: Size) -> IpLoad {
    let (source, destination) = match v6 {
        false => ("10.1.0.1", "10.2.0.1"),
        true => ("fd00:1::1", "fd00:2::1"),
    };
    IpLoad {
        source_mac: [2, 0, 0, 0, 0, 1],
        destination_mac: [2, 0, 0, 0, 0, 2],
        source: source.parse().expect("an address"),
        destination: destination.parse().expect("an address"),
        size,
        flows: 6,
        alternate_class: true,
    }
}

fn outer(v6: bool, path: &[u8]) -> Outer {
    let (local, remote) = match v6 {
        false => ("192.0.2.1:30056", "192.0.2.2:30056"),
        true => ("[2001:db8::1]:30056", "[2001:db8::2]:30056"),
    };
    Outer {
        endpoints: Endpoints {
            local_isd_as: "1-ff00:0:110".parse().expect("an ISD-AS"),
            local: local.parse().expect("an address"),
            remote_isd_as: "1-ff00:0:111".parse().expect("an ISD-AS"),
            remote: remote.parse().expect("an address"),
        },
        next_hop: NextHop {
            address: remote.parse().expect("an address"),
            source_mac: [2, 0, 0, 0, 0, 1],
            destination_mac: [2, 0, 0, 0, 0, 2],
        },
        path_type: u8::from(!path.is_empty()),
        path: path.to_vec(),
        session: 1,
        stream: 0x1230,
    }
}

/// A path of one segment with two hops.
const PATH: [u8; 36] = [
    0, 0, 0x20, 0, 1, 0, 0x12, 0x34, 0x66, 0, 0, 0, 0, 0x3f, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 0, 0x3f,
    0, 2, 0, 0, 7, 8, 9, 10, 11, 12,
];

/// SCION packets between hosts of both families.
fn scion_load(v6: bool, size: u16) -> ScionLoad {
    ScionLoad {
        underlay: ip_load(v6, Size::Fixed(size)),
        ports: [50_000, 50_001],
        addresses: AddressHeader {
            destination_isd_as: "1-ff00:0:111".parse().expect("an ISD-AS"),
            source_isd_as: "1-ff00:0:110".parse().expect("an ISD-AS"),
            destination: HostAddr::V4([10, 0, 0, 1]),
            source: HostAddr::V6([0xfd; 16]),
        },
        path: PATH.to_vec(),
    }
}

/// An IPv6 header in front of packets of this family.
fn outer_ipv6(v6: bool) -> Vec<u8> {
    let mut header = vec![0; 40];
    header[0] = 0x60;
    header[6] = if v6 { 41 } else { 4 };
    header[7] = 64;
    header
}

/// Loads of every kind.
fn loads() -> Vec<Load> {
    let mut loads = Vec::new();
    for v6 in [false, true] {
        for size in [
            Size::Fixed(64),
            Size::Fixed(101),
            Size::Fixed(1500),
            Size::Mix(Mix::Imix),
        ] {
            loads.push(Load::Ip(ip_load(v6, size)));
            loads.push(Load::Behind {
                inner: ip_load(v6, size),
                headers: outer_ipv6(v6),
            });
        }
        // Odd lengths: inner packets start at odd offsets.
        for (size, per_frame) in [
            (Size::Fixed(1300), 1),
            (Size::Fixed(101), 40),
            (Size::Fixed(100), 5),
            (Size::Fixed(64), 40),
            (Size::Mix(Mix::Imix), 1),
            (Size::Mix(Mix::Imix), 40),
        ] {
            for path in [&PATH[..], &[]] {
                loads.push(Load::SigFrames {
                    inner: ip_load(v6, size),
                    outer: outer(v6, path),
                    per_frame,
                });
            }
        }
        for size in [157, 1500] {
            loads.push(Load::Scion(scion_load(v6, size)));
        }
    }
    loads
}

/// Flow, sequence number and time of a packet.
type Marker = (u16, u32, u64);

/// Checks an IP packet that etherparse has taken apart, and returns its marker.
fn check_packet(packet: &PacketHeaders<'_>, load: &IpLoad) -> Marker {
    let payload = packet.payload.slice();
    let Some(TransportHeader::Udp(udp)) = &packet.transport else {
        panic!("not UDP: {packet:?}");
    };
    let checksum = match &packet.net {
        Some(NetHeaders::Ipv4(ip, _)) => {
            assert_eq!(ip.header_checksum, ip.calc_header_checksum());
            udp.calc_checksum_ipv4(ip, payload)
        }
        Some(NetHeaders::Ipv6(ip, _)) => udp.calc_checksum_ipv6(ip, payload),
        other => panic!("not IP: {other:?}"),
    };
    assert_eq!(
        udp.checksum,
        checksum.expect("a packet of a possible length")
    );
    assert_ne!(udp.checksum, 0, "none at all");
    assert_eq!(usize::from(udp.length), 8 + payload.len());
    check_payload(udp.source_port, payload, load)
}

/// Checks what follows a UDP header, and returns the marker.
fn check_payload(source_port: u16, payload: &[u8], load: &IpLoad) -> Marker {
    let bytes = |range: std::ops::Range<usize>| &payload[range];
    assert_eq!(bytes(0..2), 0x5349u16.to_be_bytes());
    let flow = u16::from_be_bytes(bytes(2..4).try_into().expect("two bytes"));
    assert_eq!(source_port, 10_000 + flow);
    assert!(flow < load.flows);
    (
        flow,
        u32::from_be_bytes(bytes(4..8).try_into().expect("four bytes")),
        u64::from_be_bytes(bytes(8..16).try_into().expect("eight bytes")),
    )
}

/// Checks a frame and returns the markers in it.
fn check_frame(frame: &[u8], load: &Load) -> Vec<Marker> {
    let headers = PacketHeaders::from_ethernet_slice(frame).expect("a frame");
    let (inner, outer) = match load {
        Load::Ip(inner) => return vec![check_packet(&headers, inner)],
        Load::Behind { inner, .. } => {
            let packet = headers.payload.slice();
            let Some(NetHeaders::Ipv6(ip, _)) = &headers.net else {
                panic!("not IPv6: {headers:?}");
            };
            assert_eq!(usize::from(ip.payload_length), packet.len());
            let headers = PacketHeaders::from_ip_slice(packet).expect("a packet");
            return vec![check_packet(&headers, inner)];
        }
        Load::SigFrames { inner, outer, .. } => (inner, Some(outer)),
        Load::Scion(load) => (&load.underlay, None),
    };
    let Some(TransportHeader::Udp(udp)) = &headers.transport else {
        panic!("not UDP: {headers:?}");
    };
    let scion = headers.payload.slice();
    let checksum = match &headers.net {
        Some(NetHeaders::Ipv4(ip, _)) => udp.calc_checksum_ipv4(ip, scion),
        Some(NetHeaders::Ipv6(ip, _)) => udp.calc_checksum_ipv6(ip, scion),
        other => panic!("not IP: {other:?}"),
    };
    assert_eq!(udp.checksum, checksum.expect("a possible length"), "outer");

    let Some(outer) = outer else {
        return vec![check_scion(scion, inner)];
    };
    let ends = &outer.endpoints;
    let local = Local::new(
        ends.remote_isd_as,
        ends.remote.ip(),
        ends.remote.port(),
        false,
    );
    let parsed = underlay::parse(frame, &local)
        .expect("not bad")
        .expect("ours");
    assert!(parsed.checksum_is_valid(frame), "UDP/SCION");
    assert_eq!(parsed.header.index, 0);
    assert_eq!(parsed.header.stream, outer.stream);

    let mut rest = &frame[parsed.payload()];
    let mut markers = Vec::new();
    while !rest.is_empty() {
        let len = match rest[0] >> 4 {
            4 => usize::from(u16::from_be_bytes([rest[2], rest[3]])),
            _ => usize::from(u16::from_be_bytes([rest[4], rest[5]])) + 40,
        };
        let (packet, behind) = rest.split_at(len);
        let headers = PacketHeaders::from_ip_slice(packet).expect("a packet");
        markers.push(check_packet(&headers, inner));
        rest = behind;
    }
    markers
}

/// Checks a SCION packet and returns its marker.
fn check_scion(packet: &[u8], load: &IpLoad) -> Marker {
    let view = View::new_checked(packet).expect("a SCION packet");
    let (next, datagram) = view.upper_layer().expect("no extensions");
    assert_eq!(next, PROTO_UDP);
    assert!((1..=load.flows.into()).contains(&view.common().flow_id));
    assert!(scion_udp::checksum_is_valid(view.address_bytes(), datagram));
    let port = u16::from_be_bytes([datagram[0], datagram[1]]);
    check_payload(port, &datagram[8..], load)
}

/// A generator in user space.
struct Writer {
    templates: Templates,
    setup: Setup,
    progress: Progress,
    now: u64,
}

impl Writer {
    fn new(load: &Load) -> Self {
        let templates = Templates::new(load).expect("a possible load");
        Writer {
            setup: pace::setup(templates.setup, Rate::Max).expect("a rate"),
            templates,
            progress: pace::fresh(),
            now: 1_000_000_007,
        }
    }

    fn frame(&mut self) -> Vec<u8> {
        let mut frame = vec![0xee; MAX_FRAME];
        let template: &Template = &self.templates.frames[self.progress.template as usize];
        self.now += 12_345_678_901;
        let packets = template.packets.into();
        assert!(self.setup.take_turn(&mut self.progress, self.now, packets));
        let len = write(
            &mut frame,
            template,
            &self.setup,
            &mut self.progress,
            self.now,
        );
        self.progress.step(&self.setup);
        frame.truncate(len.expect("a template that fits"));
        frame
    }
}

/// Every flow's numbers rise by one.
#[derive(Default)]
struct Sequences(std::collections::BTreeMap<u16, u32>);

impl Sequences {
    fn check(&mut self, markers: &[Marker]) {
        for &(flow, sequence, _) in markers {
            let last = self.0.insert(flow, sequence);
            assert!(
                last.is_none_or(|last| sequence == last.wrapping_add(1)),
                "flow {flow}: {sequence} behind {last:?}"
            );
        }
    }
}

#[test]
fn written_frames_are_what_other_parsers_expect() {
    for load in loads() {
        let mut writer = Writer::new(&load);
        let mut sequences = Sequences::default();
        let mut packets = 0;
        for _ in 0..40 {
            let frame = writer.frame();
            let markers = check_frame(&frame, &load);
            assert!(markers.iter().all(|marker| marker.2 == writer.now));
            sequences.check(&markers);
            packets += markers.len() as u64;
        }
        assert_eq!(writer.progress.packets, packets, "{load:?}");
        assert_eq!(sequences.0.len(), 6, "all flows take part");
    }
}

#[test]
fn frames_of_the_bpf_program_are_the_same_as_those_of_user_space() {
    if !root_or_skip() {
        return;
    }
    let netns = Netns::new("generate").expect("a namespace");
    for load in loads() {
        let mut generator = LiveFrames::new(&netns, "lo", &load, None).expect("a generator");
        generator.plan = pace::setup(generator.plan, Rate::Max).expect("a rate");
        generator
            .setup
            .set(0, generator.plan, 0)
            .expect("a map of the generator");
        let program: &Xdp = generator
            .ebpf
            .program("generate")
            .expect("the program")
            .try_into()
            .expect("of XDP");
        let mut sequences = Sequences::default();
        // As a page that was used before: headers are written by whoever had it.
        let mut page = generator.page.clone();
        page[..40].fill(0xee);
        for _ in 0..14 {
            let mut out = vec![0; MAX_FRAME];
            let result = program
                .test_run(TestRunOptions {
                    data_in: Some(&page),
                    data_out: Some(&mut out),
                    ..TestRunOptions::new()
                })
                .expect("it runs");
            assert_eq!(result.return_value, XDP_REDIRECT, "{load:?}");
            out.truncate(result.data_size_out as usize);
            sequences.check(&check_frame(&out, &load));
        }
    }
}

fn run(sink: &Sink, frame: &[u8]) -> u32 {
    let program: &Xdp = sink
        .ebpf
        .program("sink")
        .expect("the program")
        .try_into()
        .expect("of XDP");
    program
        .test_run(TestRunOptions {
            data_in: Some(frame),
            ..TestRunOptions::new()
        })
        .expect("it runs")
        .return_value
}

/// What a sink says about frames `0..`, arriving in this order.
fn arrived(load: &Load, expect: &Expect, order: &[usize]) -> Arrived {
    let mut writer = Writer::new(load);
    let last = order.iter().max().map_or(0, |last| last + 1);
    let frames: Vec<_> = (0..last).map(|_| writer.frame()).collect();
    let sink = Sink::load(expect).expect("the sink loads");
    for &number in order {
        assert_eq!(run(&sink, &frames[number]), XDP_DROP);
    }
    sink.arrived().expect("it counts")
}

#[test]
fn the_sink_tells_loss_duplicates_and_reordering_apart() {
    if !root_or_skip() {
        return;
    }
    let one_flow = |v6| IpLoad {
        flows: 1,
        ..ip_load(v6, Size::Fixed(100))
    };
    let mut cases = Vec::new();
    for v6 in [false, true] {
        cases.push((Load::Ip(one_flow(v6)), Expect::Ip { at: 14 }));
        for path in [&PATH[..], &[]] {
            let frames = Load::SigFrames {
                inner: one_flow(v6),
                outer: outer(v6, path),
                per_frame: 1,
            };
            cases.push((frames.clone(), Expect::SigFrames { packet_len: 100 }));
            cases.push((frames, Expect::SigFrames { packet_len: 0 }));
        }
        let mut scion = scion_load(v6, 300);
        scion.underlay.flows = 1;
        cases.push((Load::Scion(scion), expect_scion(v6)));
    }
    for (load, expect) in cases {
        for (order, duplicates, reordered) in [
            (&[0, 1, 2, 3, 4][..], 0, 0),
            // Lost: neither duplicates nor reordered.
            (&[0, 2, 7, 8], 0, 0),
            (&[0, 1, 1, 2, 0], 2, 0),
            (&[0, 2, 1, 3], 0, 1),
            (&[3, 0, 1, 2, 4], 0, 3),
            (&[0, 2, 1, 1, 2, 3], 2, 1),
        ] {
            let arrived = arrived(&load, &expect, order);
            assert_eq!(
                (arrived.packets, arrived.duplicates, arrived.reordered),
                (order.len() as u64, duplicates, reordered),
                "{order:?} of {load:?} for {expect:?}"
            );
        }
    }
}

/// What a sink sees of [`scion_load`] if no router is in between.
fn expect_scion(v6: bool) -> Expect {
    let scion = 14 + if v6 { 40 } else { 20 } + 8;
    let path_at = scion + 12 + 16 + 4 + 16;
    Expect::Scion {
        at: path_at + PATH.len() as u16,
        path_at,
        path: PATH[..8].try_into().expect("eight bytes"),
    }
}

#[test]
fn the_sink_takes_scion_packets_only_at_the_right_place_of_their_path() {
    if !root_or_skip() {
        return;
    }
    for v6 in [false, true] {
        let frame = Writer::new(&Load::Scion(scion_load(v6, 400))).frame();
        let sink = Sink::load(&expect_scion(v6)).expect("the sink loads");
        assert_eq!(run(&sink, &frame), XDP_DROP);
        let Expect::Scion { path_at, .. } = expect_scion(v6) else {
            unreachable!("it is one of SCION packets");
        };
        for byte in [0, 7] {
            let mut elsewhere = frame.clone();
            elsewhere[usize::from(path_at) + byte] ^= 1;
            assert_eq!(run(&sink, &elsewhere), XDP_PASS);
        }
        assert_eq!(sink.arrived().expect("it counts").packets, 1);
    }
}

#[test]
fn the_sink_counts_the_packets_in_packed_frames() {
    if !root_or_skip() {
        return;
    }
    for (size, packet_len) in [(Size::Fixed(100), 100), (Size::Mix(Mix::Imix), 0)] {
        for v6 in [false, true] {
            let load = Load::SigFrames {
                inner: ip_load(v6, size),
                outer: outer(v6, &PATH),
                per_frame: 40,
            };
            let expect = Expect::SigFrames { packet_len };
            let order: Vec<usize> = (0..9).collect();
            let mut writer = Writer::new(&load);
            order.iter().for_each(|_| drop(writer.frame()));
            let arrived = arrived(&load, &expect, &order);
            assert_eq!(arrived.frames, 9);
            assert_eq!(arrived.packets, writer.progress.packets, "{load:?}");
            assert!(arrived.packets > 9, "they are packed");
        }
    }
}

#[test]
fn the_sink_forgets_sequence_numbers_at_a_new_beginning() {
    if !root_or_skip() {
        return;
    }
    let load = Load::Ip(ip_load(false, Size::Fixed(100)));
    let frame = Writer::new(&load).frame();
    let mut sink = Sink::load(&Expect::Ip { at: 14 }).expect("the sink loads");
    for _ in 0..2 {
        sink.begin().expect("it begins");
        assert_eq!(run(&sink, &frame), XDP_DROP);
        let arrived = sink.arrived().expect("it counts");
        assert_eq!((arrived.packets, arrived.duplicates), (1, 0));
        // The clock of the frame is made up; that there is a time is what counts.
        assert_eq!(
            sink.latency().expect("it counts").map(|l| l.samples),
            Some(1)
        );
    }
}

#[test]
fn what_is_not_generated_goes_to_the_kernel() {
    if !root_or_skip() {
        return;
    }
    let mut arp = vec![0xff; 6];
    arp.extend([2, 0, 0, 0, 0, 1, 0x08, 0x06]);
    arp.resize(60, 0);
    let mut packet = Writer::new(&Load::Ip(ip_load(false, Size::Fixed(100)))).frame();
    packet[42] ^= 1;
    for expect in [
        Expect::Ip { at: 14 },
        Expect::SigFrames { packet_len: 100 },
        expect_scion(false),
    ] {
        let sink = Sink::load(&expect).expect("the sink loads");
        assert_eq!(run(&sink, &arp), XDP_PASS);
        assert_eq!(run(&sink, &packet), XDP_PASS);
        let arrived = sink.arrived().expect("it counts");
        assert_eq!((arrived.packets, arrived.foreign), (0, 2));
    }
}

#[test]
fn impossible_loads_are_refused() {
    let load = ip_load(false, Size::Fixed(100));
    for refused in [
        IpLoad {
            size: Size::Fixed(43),
            ..load.clone()
        },
        IpLoad {
            flows: 0,
            ..load.clone()
        },
        IpLoad {
            flows: 50_001,
            ..load.clone()
        },
        IpLoad {
            destination: "fd00::1".parse().expect("an address"),
            ..load.clone()
        },
        IpLoad {
            size: Size::Fixed(3000),
            ..load
        },
    ] {
        assert!(
            Templates::new(&Load::Ip(refused.clone())).is_err(),
            "{refused:?}"
        );
    }
}
