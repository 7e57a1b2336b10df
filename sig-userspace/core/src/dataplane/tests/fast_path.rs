//! What a worker tells the XDP programs, and what it learns from them. The programs are the test.

use std::{
    collections::HashMap,
    io,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use sig_common::{
    fast_path::{StreamKey, flow_key, flow_place, pair_key, pair_place, slot, stream, tickets},
    wire::flow::flow_hash,
};

use super::*;
use crate::fast_path::{Shared, StreamIndex};

const SOCKET: u32 = 2;
const SOCKETS: u32 = 3;
/// The number of the path for the programs, and the id of its streams.
const NUMBER: u32 = 9;
const STREAM: u32 = 1 << 19;

/// Where the programs find their streams.
#[derive(Default)]
struct Index(Arc<Mutex<HashMap<StreamKey, u32>>>);

impl StreamIndex for Index {
    fn insert(&self, key: &StreamKey, place: u32) -> io::Result<()> {
        self.0.lock().expect("no panic").insert(*key, place);
        Ok(())
    }

    fn remove(&self, key: &StreamKey) {
        self.0.lock().expect("no panic").remove(key);
    }
}

type Streams = Arc<Mutex<HashMap<StreamKey, u32>>>;

impl Gateway {
    /// Gives the worker programs to teach.
    fn with_programs(&mut self) -> (Arc<Shared>, Streams) {
        let index = Index::default();
        let streams = index.0.clone();
        let shared = Arc::new(Shared::on_heap(SOCKETS, Box::new(index)));
        shared.begin_path(NUMBER, |socket| STREAM + socket);
        self.worker.teach(shared.clone(), 1);
        self.tables.generation += 1;
        self.tables.fast_generation = 5;
        self.tables.paths[0].fast = Some(NUMBER);
        (shared, streams)
    }

    /// Sends packets that were handed over with a ticket.
    fn send_with_tickets(&mut self, packets: &[Vec<u8>]) -> Packets {
        let frames = packets.iter().map(|packet| {
            let mut frame = self.frame(&ethernet(packet));
            let (area, _) = self.worker.memory();
            frame.set_metadata(area, tickets::compose(1, SOCKET));
            frame
        });
        let lan = frames.collect();
        let input = &mut Input {
            lan,
            ..Input::default()
        };
        self.run(0, input).0
    }
}

fn decision(shared: &Shared, packet: &[u8], generation: u16) -> Option<u32> {
    let packet = summary(packet);
    let place = flow_place(flow_hash(&packet), false) as usize * slot::WORDS;
    open(&shared.flows.all()[place..], generation, &flow_key(&packet))
}

fn open(words: &[AtomicU64], generation: u16, key: &[u64; 5]) -> Option<u32> {
    let words = std::array::from_fn(|word| words[word].load(Ordering::Relaxed));
    slot::open(&words, generation, key)
}

#[test]
fn packets_with_tickets_go_alone_on_the_shared_stream_and_their_flows_are_taught() {
    let (mut a, mut b) = (gateway(1, 1472), gateway(2, 1472));
    let (shared, _) = a.with_programs();
    let packets = [udp(72, 1, 64), udp(1400, 1, 64), udp(72, 2, 64)];
    let frames = a.send_with_tickets(&packets);
    // The second one needs two frames, whose numbers follow each other.
    let header = |frame: &Vec<u8>| frame[14 + 28 + 12 + 24 + PATH.len() + 8..][..16].to_vec();
    let ids: Vec<(u32, u64)> = frames
        .iter()
        .map(|frame| {
            let header = header(frame);
            let word = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().expect("4"));
            (word(4), (u64::from(word(8)) << 32) + u64::from(word(12)))
        })
        .collect();
    let stream = STREAM + SOCKET;
    assert_eq!(ids, [(stream, 0), (stream, 1), (stream, 2), (stream, 3)]);
    let expected = packets.clone().map(one_hop_on);
    assert_eq!(b.send_underlay(0, &frames), expected);
    assert_eq!(decision(&shared, &packets[0], 5), Some(NUMBER));
    assert_eq!(decision(&shared, &packets[2], 5), Some(NUMBER));
    assert_eq!(decision(&shared, &udp(72, 3, 64), 5), None);
    // Without a ticket, the packets share a frame of the worker's own stream.
    let (frames, _) = a.send_lan(&[udp(72, 1, 64), udp(72, 2, 64)]);
    assert_eq!(frames.len(), 1);
    a.assert_no_chunk_is_lost();
    b.assert_no_chunk_is_lost();
}

#[test]
fn decisions_outlive_tables_that_say_the_same() {
    let mut a = gateway(1, 1472);
    let (shared, _) = a.with_programs();
    let packet = udp(72, 1, 64);
    a.send_with_tickets(std::slice::from_ref(&packet));
    a.tables.fast_generation = 6;
    shared.renew(5, &a.tables);
    assert_eq!(decision(&shared, &packet, 6), Some(NUMBER));
    // Another path.
    a.tables.fast_generation = 7;
    a.tables.paths[0].fast = Some(11);
    shared.renew(6, &a.tables);
    assert_eq!(decision(&shared, &packet, 7), Some(11));
    // No route any more.
    a.tables.fast_generation = 8;
    a.tables.routing = Arc::default();
    shared.renew(7, &a.tables);
    assert_eq!(decision(&shared, &packet, 8), None);
}

#[test]
fn next_hops_are_taught_for_pairs_that_are_delivered() {
    let (mut a, mut b) = (gateway(1, 1472), gateway(2, 1472));
    let (shared, _) = b.with_programs();
    b.learn(&lan::facts());
    b.tables.fast_hops = vec![3; 2];
    let packet = udp(72, 1, 64);
    let (frames, _) = a.send_lan(std::slice::from_ref(&packet));
    b.deliver(&frames);
    let decision = |remote, generation| {
        let key = pair_key(&summary(&packet), remote, false);
        let place = pair_place(&key) as usize * slot::WORDS;
        open(&shared.pairs.all()[place..], generation, &key)
    };
    assert_eq!(decision(0, 5), Some(3));
    assert_eq!(decision(1, 5), None, "another remote");
    // The remote may not send from there any more.
    b.tables.fast_generation = 6;
    b.tables.remotes[0].accepted = Arc::default();
    shared.renew(5, &b.tables);
    assert_eq!(decision(0, 6), None);
}

#[test]
fn a_stream_goes_to_the_programs_when_it_is_in_order_and_back_with_what_they_delivered() {
    let (mut a, mut b) = (gateway(1, 1472), gateway(2, 1472));
    let (shared, streams) = b.with_programs();
    let mut now = 0;
    let mut port = 0;
    let mut send = |a: &mut Gateway| {
        port += 1;
        let packet = udp(72, port, 64);
        let (frames, _) = a.send_lan(std::slice::from_ref(&packet));
        (frames, one_hop_on(packet))
    };
    for _ in 0..40 {
        let (frames, packet) = send(&mut a);
        assert_eq!(b.send_underlay(now, &frames), [packet]);
        now += 20_000_000;
    }
    let place = *streams
        .lock()
        .expect("no panic")
        .values()
        .next()
        .expect("a stream");
    let next = &shared.streams.all()[place as usize * stream::WORDS + stream::NEXT];
    assert_eq!(next.load(Ordering::Relaxed), 40, "given, after 40 frames");

    // The programs deliver three frames; the next one, and the second of the three again, come to the worker.
    let [_, again, _] = [(); 3].map(|()| send(&mut a).0);
    next.fetch_add(3, Ordering::Relaxed);
    let (frames, packet) = send(&mut a);
    assert_eq!(b.send_underlay(now, &frames), [packet]);
    assert_eq!(b.worker.counters().gaps.get(), 0);
    assert!(b.send_underlay(now, &again).is_empty());
    assert_eq!(b.drops(DropReason::FrameDuplicate), 1);

    // One is lost: the stream stays with the worker until the one behind it has been delivered.
    let _lost = send(&mut a);
    let (frames, packet) = send(&mut a);
    assert!(b.send_underlay(now, &frames).is_empty(), "held");
    assert_ne!(next.load(Ordering::Relaxed) & stream::WITH_ENGINE, 0);
    now += 100_000_000;
    assert_eq!(b.send_underlay(now, &[]), [packet]);
    let (frames, packet) = send(&mut a);
    assert_eq!(b.send_underlay(now, &frames), [packet]);
    assert_eq!(next.load(Ordering::Relaxed), 47);

    // The remote goes, and its streams with it.
    b.tables.remotes.clear();
    b.tables.generation += 1;
    b.run(now, &mut Input::default());
    assert!(streams.lock().expect("no panic").is_empty());
    assert_ne!(next.load(Ordering::Relaxed) & stream::WITH_ENGINE, 0);
    a.assert_no_chunk_is_lost();
    b.assert_no_chunk_is_lost();
}

/// Gateway 2, which knows its LAN and tells programs, and what it tells.
fn teaching() -> (Gateway, Arc<Shared>) {
    let shared = Arc::new(Shared::on_heap(SOCKETS, Box::new(Index::default())));
    let mut gateway = gateway(2, 1472);
    gateway.tables.lan = Arc::new(crate::dataplane::lan::LanTable::new(&lan::facts()));
    gateway.tables.fast_generation = 1;
    gateway.tables.fast_hops = vec![5, 6];
    gateway.worker.teach(shared.clone(), 1);
    (gateway, shared)
}

fn deliver(gateway: &mut Gateway, now: u64, frames: &[Vec<u8>]) -> usize {
    let underlay = frames.iter().map(|frame| gateway.frame(frame)).collect();
    let input = &mut Input {
        underlay,
        ..Input::default()
    };
    let (_, _, lan) = gateway.run_with_lan(2, now, input);
    lan[1].len()
}

#[test]
fn the_word_of_a_router_on_the_way_says_nothing_of_other_packets_from_there() {
    let (mut a, (mut b, shared)) = (gateway(1, 1472), teaching());
    let mut quoted = Vec::new();
    PacketBuilder::ipv4([10, 2, 0, 6], [10, 1, 0, 5], 1)
        .udp(1, 2)
        .write(&mut quoted, b"sent")
        .expect("a packet");
    let mut error = Vec::new();
    PacketBuilder::ipv4([172, 16, 0, 1], [10, 2, 0, 6], 64)
        .icmpv4_raw(11, 0, [0; 4])
        .write(&mut error, &quoted)
        .expect("a packet");
    let is_taught = || {
        let words = shared.pairs.all();
        words.iter().any(|word| word.load(Ordering::Relaxed) != 0)
    };
    let (frames, _) = a.send_lan(&[error]);
    assert_eq!(deliver(&mut b, 0, &frames), 1);
    assert!(!is_taught());
    let (frames, _) = a.send_lan(&[udp(72, 1, 64)]);
    assert_eq!(deliver(&mut b, 0, &frames), 1);
    assert!(is_taught());
    a.assert_no_chunk_is_lost();
    b.assert_no_chunk_is_lost();
}

#[test]
fn a_sender_that_begins_anew_is_followed() {
    let (mut b, _shared) = teaching();
    let mut now = 0;
    let mut send = |frames: usize| {
        let mut a = gateway(1, 1472);
        let mut delivered = 0;
        for _ in 0..frames {
            now += 1_000_000;
            let (frames, _) = a.send_lan(&[udp(72, 1, 64)]);
            delivered += deliver(&mut b, now, &frames);
        }
        delivered
    };
    assert_eq!(send(2100), 2100);
    // All that the stream remembers is older than these; 32 of them show that it is no mistake.
    assert_eq!(send(116), 116 - 31);
}

#[test]
fn a_fragment_says_nothing_of_packets_with_ports() {
    let (mut a, shared) = teaching();
    a.tables.paths[0].fast = Some(3);
    let mut send = |fragment: [u8; 2]| {
        let mut packet = udp(72, 0, 64);
        packet[12..20].copy_from_slice(&[10, 2, 0, 5, 10, 1, 0, 6]);
        packet[6..8].copy_from_slice(&fragment);
        let mut frame = a.frame(&ethernet(&packet));
        frame.set_metadata(&a.area, tickets::compose(1, 0));
        let input = &mut Input {
            lan: vec![frame],
            ..Input::default()
        };
        let (frames, _) = a.run(0, input);
        assert_eq!(frames.len(), 1);
        let words = shared.flows.all();
        words.iter().any(|word| word.load(Ordering::Relaxed) != 0)
    };
    assert!(!send([0x20, 0]));
    assert!(!send([0, 9]));
    assert!(send([0x40, 0]));
}
