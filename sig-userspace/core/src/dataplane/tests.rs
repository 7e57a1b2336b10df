//! Two workers, each the other's remote, over packets in memory.

mod fast_path;
mod filter;
mod hub;
mod jumbo;
mod lan;
mod mss;
mod protection;
mod trace;

use std::{net::SocketAddr, sync::Arc};

use etherparse::PacketBuilder;
use sig_common::{
    reason::DropReason,
    wire::{inner::InnerPacket, underlay::Local},
};

use super::{
    Action, Input, Output, Path, PathSpec, Routing, Rule, Session, Tables, Worker, WorkerConfig,
    icmp::Sources,
};
use crate::{
    framing::Limits,
    policy::class::Condition,
    port::umem::{Area, Frame, FreeList, HEADROOM, Pool},
    scion::{Endpoints, NextHop},
};

const CHUNKS: u32 = 512;
const PATH: [u8; 36] = [
    0, 0, 0x20, 0, 1, 0, 0x12, 0x34, 0x66, 0, 0, 0, 0, 0x3f, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 0, 0x3f,
    0, 2, 0, 0, 7, 8, 9, 10, 11, 12,
];

/// The bytes of packets or frames.
type Packets = Vec<Vec<u8>>;

/// One gateway: AS number, its worker and tables.
struct Gateway {
    area: Arc<Area>,
    pool: Arc<Pool>,
    worker: Worker,
    tables: Tables,
    address: SocketAddr,
}

fn isd_as(number: u8) -> sig_common::addr::IsdAs {
    format!("1-ff00:0:{number}").parse().expect("an ISD-AS")
}

/// A rule that sends everything into a session.
fn always(session: u16) -> Rule {
    Rule {
        condition: Arc::new(Condition::ALWAYS),
        action: Action::Session(session),
    }
}

/// Gateway `number` of the pair 1 and 2. Serves 10.`number`.0.0/16 and fd00:`number`::/32.
fn gateway(number: u8, path_mtu: usize) -> Gateway {
    gateway_with(number, path_mtu, true)
}

fn gateway_with(number: u8, path_mtu: usize, clamp_mss: bool) -> Gateway {
    gateway_in(Area::on_heap(CHUNKS), number, path_mtu, clamp_mss)
}

fn gateway_in(
    (area, pool): (Arc<Area>, Arc<Pool>),
    number: u8,
    path_mtu: usize,
    clamp_mss: bool,
) -> Gateway {
    let limits = Limits {
        remotes: 4,
        ..Limits::default()
    };
    let config = WorkerConfig {
        limits,
        verify_checksums: true,
        clamp_mss,
        partial_checksums: false,
    };
    let free = FreeList::new(pool.clone(), 128);
    let worker = Worker::new(0, &config, area.clone(), free).expect("valid limits");
    let address = SocketAddr::from(([192, 0, 2, number], 30056));
    let other = 3 - number;
    let remote = SocketAddr::from(([192, 0, 2, other], 30056));
    let local = Local::new(isd_as(number), address.ip(), 30056, false);
    let mut tables = Tables::empty(local);
    let prefixes = |n| {
        [format!("10.{n}.0.0/16"), format!("fd00:{n}::/32")]
            .map(|prefix| prefix.parse().expect("a prefix"))
    };
    let lpm = |n| Arc::new(prefixes(n).into_iter().map(|prefix| (prefix, ())).collect());
    tables.served = Some(lpm(number));
    tables.icmp = Sources {
        v4: Some([10, number, 0, 1].into()),
        v6: "fd00:9::1".parse().ok(),
    };
    let path = Path::new(PathSpec {
        id: 1,
        ends: Endpoints {
            local_isd_as: isd_as(number),
            local: address,
            remote_isd_as: isd_as(other),
            remote,
        },
        // As if the remote gateway were the next hop, so that no router is needed between.
        next_hop: NextHop {
            address: remote,
            source_mac: [2; 6],
            destination_mac: [4; 6],
        },
        path_type: 1,
        path: &PATH,
        session: 0,
        path_mtu,
        link_mtu: 1500.max(path_mtu + 28),
        streams: Box::new([77]),
        counters: Arc::new([Default::default()]),
        keyring: None,
    })
    .expect("a usable path");
    let source = (isd_as(other), remote.ip().into());
    tables.add_remote(0, source, lpm(other), Arc::new([Default::default()]));
    let session = tables.add_session(source, vec![path], None);
    let mut routing = Routing::default();
    routing.add_site(&prefixes(other), vec![always(session)]);
    tables.routing = Arc::new(routing);
    Gateway {
        area,
        pool,
        worker,
        tables,
        address,
    }
}

impl Gateway {
    fn frame(&mut self, bytes: &[u8]) -> Frame {
        let (area, free) = self.worker.memory();
        let mut frame = free.take_for(bytes.len()).expect("a free chunk");
        frame.place(HEADROOM, bytes.len());
        frame.bytes_mut(area).copy_from_slice(bytes);
        frame.set_metadata(area, 0);
        frame
    }

    /// Runs a batch and returns the Ethernet frames for the underlay and the tunnel device.
    fn run(&mut self, now: u64, input: &mut Input) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let (underlay, inner, _) = self.run_with_lan(0, now, input);
        (underlay, inner)
    }

    /// The same, and the frames for each of `ports` LAN ports.
    fn run_with_lan(
        &mut self,
        ports: usize,
        now: u64,
        input: &mut Input,
    ) -> (Packets, Packets, Vec<Packets>) {
        let mut output = Output::with_capacity(64, ports);
        self.worker.process(now, &self.tables, input, &mut output);
        let mut take = |frames: Vec<Frame>| -> Vec<Vec<u8>> {
            let (area, free) = self.worker.memory();
            let copy = |frame: Frame| {
                let bytes = frame.bytes(area).to_vec();
                free.put(frame);
                bytes
            };
            frames.into_iter().map(copy).collect()
        };
        let lan = output
            .lan
            .into_iter()
            .map(|lan| take(lan.unwrap_or_default()))
            .collect();
        (take(output.underlay), take(output.tunnel), lan)
    }

    fn send_lan(&mut self, packets: &[Vec<u8>]) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let lan = packets
            .iter()
            .map(|packet| self.frame(&ethernet(packet)))
            .collect();
        self.run(
            0,
            &mut Input {
                lan,
                ..Input::default()
            },
        )
    }

    /// The inner packets, without Ethernet header.
    fn send_underlay(&mut self, now: u64, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let underlay = frames.iter().map(|frame| self.frame(frame)).collect();
        let (_, inner) = self.run(
            now,
            &mut Input {
                underlay,
                ..Input::default()
            },
        );
        inner.iter().map(|frame| frame[14..].to_vec()).collect()
    }

    fn drops(&self, reason: DropReason) -> u64 {
        self.worker.counters().drops[reason as usize].get()
    }

    /// Ends the worker: every chunk must be back.
    fn assert_no_chunk_is_lost(self) {
        drop(self.worker);
        assert_eq!(self.pool.len(), CHUNKS as usize);
        assert_eq!(self.pool.jumbo_len(), self.area.jumbo_frames() as usize);
        drop(self.area);
    }
}

fn ethernet(packet: &[u8]) -> Vec<u8> {
    let ethertype: [u8; 2] = if packet[0] >> 4 == 4 {
        [8, 0]
    } else {
        [0x86, 0xdd]
    };
    let mut frame = [&[6; 12][..], &ethertype, packet].concat();
    // Short Ethernet frames are padded.
    frame.resize(frame.len().max(60), 0xee);
    frame
}

fn udp(payload: usize, port: u16, ttl: u8) -> Vec<u8> {
    let mut packet = Vec::new();
    let bytes: Vec<u8> = (0..payload)
        .map(|n| (n * 7 + usize::from(port)) as u8)
        .collect();
    PacketBuilder::ipv4([10, 1, 0, 5], [10, 2, 0, 6], ttl)
        .udp(port, 9)
        .write(&mut packet, &bytes)
        .expect("a packet");
    packet
}

fn udp6(payload: usize, hop_limit: u8) -> Vec<u8> {
    let address = |n| {
        let mut address = [0u8; 16];
        (address[0], address[3], address[15]) = (0xfd, n, 9);
        address
    };
    let mut packet = Vec::new();
    PacketBuilder::ipv6(address(1), address(2), hop_limit)
        .udp(5, 9)
        .write(&mut packet, &vec![0x5a; payload])
        .expect("a packet");
    packet
}

/// As the gateway hands it on: one hop further.
fn one_hop_on(mut packet: Vec<u8>) -> Vec<u8> {
    assert!(summary(&packet).decrement_ttl(&mut packet[..]));
    packet
}

fn summary(packet: &[u8]) -> InnerPacket {
    InnerPacket::parse(packet).expect("a packet")
}

#[test]
fn packets_of_every_size_cross_two_gateways() {
    for path_mtu in [300, 1280, 1472] {
        let (mut a, mut b) = (gateway(1, path_mtu), gateway(2, path_mtu));
        for payload in [
            0, 1, 20, 100, 1000, 1156, 1160, 1300, 1348, 1400, 1472, 2800, 3400,
        ] {
            for packet in [udp(payload, 4000, 64), udp6(payload, 64)] {
                let (frames, icmp) = a.send_lan(std::slice::from_ref(&packet));
                assert!(icmp.is_empty());
                assert!(frames.iter().all(|frame| frame.len() <= 14 + 28 + path_mtu));
                assert_eq!(b.send_underlay(0, &frames), [one_hop_on(packet)]);
            }
        }
        a.assert_no_chunk_is_lost();
        b.assert_no_chunk_is_lost();
    }
}

#[test]
fn packets_that_wait_together_share_frames_and_keep_their_order() {
    let (mut a, mut b) = (gateway(1, 1472), gateway(2, 1472));
    let packets: Vec<Vec<u8>> = (0..40).map(|n| udp(72, 1000 + n, 64)).collect();
    let (frames, _) = a.send_lan(&packets);
    // 13 packets of 100 bytes fit 1376 bytes.
    assert_eq!(frames.len(), 4);
    let expected: Vec<Vec<u8>> = packets.into_iter().map(one_hop_on).collect();
    assert_eq!(b.send_underlay(0, &frames), expected);
    a.assert_no_chunk_is_lost();
    b.assert_no_chunk_is_lost();
}

#[test]
fn a_train_of_large_packets_fills_its_frames() {
    let (mut a, mut b) = (gateway(1, 1472), gateway(2, 1472));
    let packets: Vec<Vec<u8>> = (0..20).map(|n| udp(1472, n, 64)).collect();
    let (frames, _) = a.send_lan(&packets);
    assert_eq!(frames.len(), (20usize * 1500).div_ceil(1376));
    let expected: Vec<Vec<u8>> = packets.into_iter().map(one_hop_on).collect();
    assert_eq!(b.send_underlay(0, &frames), expected);
    a.assert_no_chunk_is_lost();
    b.assert_no_chunk_is_lost();
}

#[test]
fn packets_of_different_traffic_class_do_not_share_a_frame() {
    let (mut a, mut b) = (gateway(1, 1472), gateway(2, 1472));
    let mut marked = udp(72, 1, 64);
    summary(&marked).set_tos(&mut marked[..], 0xb8);
    let (frames, _) = a.send_lan(&[udp(72, 2, 64), marked.clone(), udp(72, 3, 64)]);
    assert_eq!(
        frames.iter().map(|frame| frame[15]).collect::<Vec<u8>>(),
        [0, 0xb8, 0]
    );
    assert_eq!(b.send_underlay(0, &frames)[1], one_hop_on(marked));
    a.assert_no_chunk_is_lost();
    b.assert_no_chunk_is_lost();
}

#[test]
fn a_congestion_mark_on_the_way_reaches_the_packet_or_drops_it() {
    for (ecn, delivered) in [(0b00, 0), (0b10, 1)] {
        let (mut a, mut b) = (gateway(1, 1472), gateway(2, 1472));
        let mut packet = udp(72, 1, 64);
        summary(&packet).set_tos(&mut packet[..], ecn);
        let (mut frames, _) = a.send_lan(&[packet]);
        // A router on the underlay marks the outer header; its checksum is not ours to check.
        frames[0][15] |= 0b11;
        let packets = b.send_underlay(0, &frames);
        assert_eq!(packets.len(), delivered);
        assert!(packets.iter().all(|packet| packet[1] & 0b11 == 0b11));
        assert_eq!(b.drops(DropReason::EcnDrop), 1 - delivered as u64);
        b.assert_no_chunk_is_lost();
    }
}

#[test]
fn the_last_hop_is_answered_with_time_exceeded_and_no_more_often_than_allowed() {
    let mut a = gateway(1, 1472);
    let (frames, icmp) = a.send_lan(&[udp(72, 1, 1), udp6(72, 1)]);
    assert!(frames.is_empty());
    assert_eq!(icmp.len(), 2);
    assert_eq!((icmp[0][14 + 9], icmp[0][14 + 20]), (1, 11));
    assert_eq!(icmp[0][14 + 16..14 + 20], [10, 1, 0, 5]);
    assert_eq!((icmp[1][14 + 6], icmp[1][14 + 40]), (58, 3));
    let (_, icmp) = a.send_lan(&vec![udp(72, 1, 1); 100]);
    assert!(icmp.len() < 20);
    assert_eq!(a.drops(DropReason::TtlExpired), 102);
    a.assert_no_chunk_is_lost();
}

#[test]
fn a_remote_without_path_makes_the_destination_unreachable() {
    let mut a = gateway(1, 1472);
    a.tables.sessions[0] = Session::Pathless;
    let (frames, icmp) = a.send_lan(&[udp(72, 1, 64)]);
    assert!(frames.is_empty());
    assert_eq!((icmp[0][14 + 20], icmp[0][14 + 21]), (3, 1));
    assert_eq!(a.drops(DropReason::NoPath), 1);
    a.assert_no_chunk_is_lost();
}

#[test]
fn a_frame_as_wrong_as_its_only_packet_is_left_to_the_host() {
    let (mut a, mut b) = (gateway(1, 1472), gateway(2, 1472));
    let (mut frames, _) = a.send_lan(&[udp(10, 1, 64)]);
    let len = frames[0].len();
    frames[0][len - 1] ^= 1;
    assert_eq!(b.send_underlay(0, &frames).len(), 1);
    // Of several packets, none says what the checksum of the frame should be.
    let (mut frames, _) = a.send_lan(&[udp(10, 1, 64), udp(10, 1, 64)]);
    assert_eq!(frames.len(), 1);
    let len = frames[0].len();
    frames[0][len - 1] ^= 1;
    assert!(b.send_underlay(0, &frames).is_empty());
    assert_eq!(b.drops(DropReason::BadChecksum), 1);
}

#[test]
fn strangers_and_foreign_addresses_are_refused_by_reason() {
    let (mut a, mut b) = (gateway(1, 1472), gateway(2, 1472));
    let spoofed = {
        let mut packet = Vec::new();
        PacketBuilder::ipv4([10, 3, 0, 5], [10, 2, 0, 6], 9)
            .udp(1, 2)
            .write(&mut packet, b"x")
            .expect("a packet");
        packet
    };
    let (frames, _) = a.send_lan(&[spoofed]);
    assert!(b.send_underlay(0, &frames).is_empty());
    assert_eq!(b.drops(DropReason::InnerSource), 1);

    let (mut frames, _) = a.send_lan(&[udp(10, 1, 64)]);
    let scion_source_isd_as = 42 + 12 + 8;
    frames[0][scion_source_isd_as + 7] ^= 1;
    assert!(b.send_underlay(0, &frames).is_empty());
    assert_eq!(b.drops(DropReason::UnknownRemote), 1);

    let (mut frames, _) = a.send_lan(&[udp(10, 1, 64)]);
    let sequence = frames[0].len() - udp(10, 1, 64).len() - 1;
    frames[0][sequence] ^= 1;
    assert!(b.send_underlay(0, &frames).is_empty());
    assert_eq!(b.drops(DropReason::BadChecksum), 1);

    b.tables.served = Some(Arc::default());
    b.tables.generation += 1;
    let (frames, _) = a.send_lan(&[udp(10, 1, 64)]);
    // The two refused frames are missing in the stream, so this one waits for them first.
    assert!(b.send_underlay(0, &frames).is_empty());
    assert!(b.send_underlay(2_000_000, &[]).is_empty());
    assert_eq!(b.drops(DropReason::InnerDestination), 1);
    a.assert_no_chunk_is_lost();
    b.assert_no_chunk_is_lost();
}

#[test]
fn frames_come_by_border_routers_or_are_relayed_by_this_host_and_never_by_a_closed_interface() {
    const LAN: u32 = 7;
    let mut a = gateway(1, 1472);
    let (frames, _) = a.send_lan(&[udp(10, 1, 64)]);
    let mut frame = frames[0].clone();
    let mut may = |interface: u32, host: u8, port: u16, allowed: Option<&str>| {
        frame[6..10].copy_from_slice(&interface.to_be_bytes());
        frame[29] = host;
        frame[34..36].copy_from_slice(&port.to_be_bytes());
        let mut b = gateway(2, 1472);
        let sources = super::sources::Sources::closed_to(vec![LAN]);
        sources.set(allowed.map(|net| [net.parse().expect("a prefix")]));
        b.worker.check_sources(Arc::new(sources));
        let passed = b.send_underlay(0, std::slice::from_ref(&frame)).len() == 1;
        assert_eq!(b.drops(DropReason::UnderlaySource), u64::from(!passed));
        passed
    };
    let router = Some("192.0.2.9/32");
    assert!(may(2, 9, 50_000, router), "a border router");
    assert!(!may(2, 8, 30041, router), "another host");
    assert!(may(1, 2, 30041, router), "relayed");
    assert!(!may(1, 2, 30042, router), "another program of this host");
    assert!(!may(LAN, 9, 50_000, router), "a LAN host in its name");
    assert!(!may(LAN, 9, 50_000, None), "where anybody else may");
}

#[test]
fn what_is_held_of_a_remote_that_leaves_is_forgotten() {
    let (mut a, mut b) = (gateway(1, 1472), gateway(2, 1472));
    let packets: Vec<Vec<u8>> = (0..3).map(|n| udp(1300, n, 64)).collect();
    let (frames, _) = a.send_lan(&packets);
    assert_eq!(b.send_underlay(0, &frames[..1]).len(), 1);
    assert!(b.send_underlay(0, &frames[2..]).is_empty(), "it is held");
    assert!(b.worker.next_deadline().is_some());
    // Its number goes to another remote.
    b.tables = gateway(2, 1472).tables;
    let mut stranger = std::mem::take(&mut b.tables.remotes).remove(0);
    b.tables.admitted.clear();
    stranger.host = std::net::IpAddr::from([192, 0, 2, 77]).into();
    let source = (stranger.isd_as, stranger.host);
    b.tables
        .add_remote(stranger.id, source, stranger.accepted, stranger.counters);
    b.tables.generation = 9;
    assert!(b.send_underlay(0, &[]).is_empty());
    assert_eq!(b.worker.next_deadline(), None);
    assert_eq!(b.drops(DropReason::UnknownRemote), 1);
    assert!(b.send_underlay(0, &frames[1..2]).is_empty());
    assert_eq!(b.drops(DropReason::UnknownRemote), 2);
    b.assert_no_chunk_is_lost();
}

#[test]
fn without_served_prefixes_remotes_reach_all_that_does_not_lead_back_into_the_tunnel() {
    let send = |home: &[&str], wide: &str| {
        let (mut a, mut b) = (gateway(1, 1472), gateway(2, 1472));
        b.tables.served = None;
        let mut routing = Routing::default();
        let net = |text: &str| text.parse().expect("a prefix");
        routing.add_site(&[net(wide)], vec![always(0)]);
        home.iter().for_each(|home| routing.add_home(net(home)));
        b.tables.routing = Arc::new(routing);
        let (frames, _) = a.send_lan(&[udp(10, 1, 64)]);
        let arrived = b.send_underlay(0, &frames).len();
        assert_eq!(b.drops(DropReason::InnerDestination), 1 - arrived as u64);
        // From the tunnel device, as the kernel would send it there.
        let own = b.frame(&ethernet(&udp(10, 1, 64)));
        let inner = Input {
            tunnel: vec![own],
            ..Input::default()
        };
        let (sent, _) = b.run(0, &mut { inner });
        assert_eq!(b.drops(DropReason::NoRoute), 1 - sent.len() as u64);
        (arrived, sent.len())
    };
    // The packet goes to 10.2.0.6.
    assert_eq!(send(&[], "10.1.0.0/16"), (1, 0));
    assert_eq!(send(&[], "10.0.0.0/8"), (0, 1));
    assert_eq!(send(&["10.2.0.0/16"], "10.0.0.0/8"), (1, 0));
    assert_eq!(send(&["10.2.0.0/16"], "10.2.0.0/24"), (0, 1));
}

#[test]
fn a_lost_frame_delays_the_others_no_longer_than_the_reorder_window() {
    let (mut a, mut b) = (gateway(1, 1472), gateway(2, 1472));
    let packets: Vec<Vec<u8>> = (0..4).map(|n| udp(1300, n, 64)).collect();
    let (frames, _) = a.send_lan(&packets);
    assert_eq!(frames.len(), 4);
    assert_eq!(b.send_underlay(0, &frames[..1]).len(), 1);
    assert!(b.send_underlay(1000, &frames[2..]).is_empty());
    let deadline = b.worker.next_deadline().expect("frames are held");
    assert!(deadline <= 1_001_000);
    let late: Vec<Vec<u8>> = packets[2..].iter().cloned().map(one_hop_on).collect();
    assert_eq!(b.send_underlay(deadline, &[]), late);
    b.assert_no_chunk_is_lost();
}

#[test]
fn new_tables_keep_the_stream_of_a_path_that_stayed() {
    let mut a = gateway(1, 1472);
    let sequence = |frame: &[u8]| frame[42 + 72 + 8 + 15];
    let (first, _) = a.send_lan(&[udp(10, 1, 64)]);
    a.tables.generation += 1;
    let (second, _) = a.send_lan(&[udp(10, 1, 64)]);
    assert_eq!((sequence(&first[0]), sequence(&second[0])), (0, 1));
    a.tables.generation += 1;
    a.tables.paths[0].id = 2;
    let (third, _) = a.send_lan(&[udp(10, 1, 64)]);
    assert_eq!(sequence(&third[0]), 0);
    assert_eq!(a.address.port(), 30056);
}

#[test]
fn any_bytes_from_either_side_lose_no_chunk() {
    let (mut a, mut b) = (gateway(1, 1472), gateway(2, 1472));
    let (frames, _) = a.send_lan(&[udp(72, 1, 64), udp(1472, 1, 64)]);
    for frame in &frames {
        for cut in 0..frame.len() {
            b.send_underlay(cut as u64 * 10_000_000, &[frame[..cut].to_vec()]);
            let mut flipped = frame.clone();
            flipped[cut] ^= 0xff;
            b.send_underlay(cut as u64 * 10_000_000, &[flipped.clone()]);
            let inner = vec![b.frame(&flipped)];
            b.run(
                0,
                &mut Input {
                    tunnel: inner,
                    ..Input::default()
                },
            );
        }
    }
    b.assert_no_chunk_is_lost();
    a.assert_no_chunk_is_lost();
}

#[test]
fn a_full_batch_of_new_streams_does_not_crowd_out_a_known_one() {
    let mut b = gateway(2, 1472);
    let honest: Packets = (0..80).map(|n| udp(100, n, 64)).collect();
    let mut a = gateway(1, 1472);
    let known: Packets = honest
        .iter()
        .flat_map(|p| a.send_lan(std::slice::from_ref(p)).0)
        .collect();
    assert_eq!(b.send_underlay(0, &known[..40]).len(), 40);
    // Each frame on a stream of its own, without a checksum.
    let mut stream = 1_000u32;
    let mut wild = |count: usize| -> Packets {
        let mut next = || {
            stream += 1;
            let mut frame = known[0].clone();
            let udp = 42 + 72;
            frame[udp + 6..udp + 8].fill(0);
            frame[udp + 8 + 4..udp + 8 + 8].copy_from_slice(&stream.to_be_bytes());
            frame
        };
        (0..count).map(|_| next()).collect()
    };
    for batch in 0..5 {
        let frames = wild(60);
        assert_eq!(
            b.send_underlay(batch, &frames).len(),
            60,
            "what waits is taken"
        );
    }
    for frame in &known[40..80] {
        let mut frames = wild(63);
        frames.push(frame.clone());
        // Four of the new ones and the known one.
        assert_eq!(b.send_underlay(9, &frames).len(), 5);
    }
    assert_eq!(b.drops(DropReason::NewStreamLimit), 40 * 59);
    b.assert_no_chunk_is_lost();
}

#[test]
fn a_packet_whose_parts_come_late_is_delivered_once() {
    let (mut a, mut b) = (gateway(1, 1472), gateway(2, 1472));
    let packets: Packets = (0..3).map(|n| udp(1472, n, 64)).collect();
    let frames: Packets = packets
        .iter()
        .flat_map(|p| a.send_lan(std::slice::from_ref(p)).0)
        .collect();
    assert_eq!(frames.len(), 6);
    // Of each packet the one part, far later the other; and then everything again.
    let order = [0, 3, 4, 1, 2, 5].into_iter().chain(0..6);
    let mut delivered = Vec::new();
    for (n, frame) in order.enumerate() {
        delivered.extend(b.send_underlay(n as u64 * 10_000_000, &frames[frame..=frame]));
    }
    delivered.extend(b.send_underlay(1_000_000_000, &[]));
    delivered.sort();
    let mut expected: Packets = packets.into_iter().map(one_hop_on).collect();
    expected.sort();
    assert_eq!(delivered, expected);
    assert_eq!(b.drops(DropReason::FrameDuplicate), 6);
    b.assert_no_chunk_is_lost();
}
