//! Any packets, any frame size, any network.

use std::collections::HashSet;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::framing::{Encoder, FrameView, MAX_FRAMES_PER_PACKET, MIN_CAPACITY};

/// The packet number `n` of a stream: unlike every other one, also at 20 bytes.
pub(super) fn packet(n: usize, v6: bool, len: usize) -> Vec<u8> {
    let mut packet = if v6 {
        ipv6(len.max(40), n as u8)
    } else {
        ipv4(len as u16, n as u8)
    };
    let number = (n as u32).to_be_bytes();
    let source = if v6 { 8 } else { 12 };
    packet[source..source + 4].copy_from_slice(&number);
    packet
}

fn number(packet: &[u8]) -> u32 {
    let source = if packet[0] >> 4 == 6 { 8 } else { 12 };
    u32::from_be_bytes(packet[source..source + 4].try_into().expect("4 bytes"))
}

pub(super) fn encode(
    stream: u32,
    capacity: usize,
    packets: &[Vec<u8>],
    flush: &[bool],
) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut encoder = Encoder::new(1, stream, capacity).expect("a valid capacity");
    for (n, packet) in packets.iter().enumerate() {
        encoder
            .push(packet, |frame| frames.push(frame.to_vec()))
            .expect("a valid packet");
        if flush.get(n) == Some(&true) {
            encoder.flush(|frame| frames.push(frame.to_vec()));
        }
    }
    encoder.flush(|frame| frames.push(frame.to_vec()));
    frames
}

fn feed(receiver: &mut Receiver, frame: &[u8]) -> Outcome {
    let view = FrameView::new_checked(frame).expect("a frame");
    let (header, payload) = (view.header(), view.payload());
    let key = key(header.stream as u16 % 4, header.stream);
    receiver.frame_of(key, header.sequence, header.index, false, payload)
}

/// Packets that fit 100 frames of the capacity; lengths around the frame size are favoured.
fn packets(capacity: usize, many: usize) -> impl Strategy<Value = Vec<Vec<u8>>> {
    let longest = (capacity * MAX_FRAMES_PER_PACKET).min(65_535);
    let len = prop_oneof![
        4 => 20..=longest.min(200),
        4 => 20..=longest.min(1_600),
        2 => capacity.saturating_sub(45).max(20)..=(capacity + 45).min(longest),
        1 => 20..=longest,
    ];
    vec((any::<bool>(), len), 1..many).prop_map(|all| {
        all.into_iter()
            .enumerate()
            .map(|(n, (v6, len))| packet(n, v6, len))
            .collect()
    })
}

fn traffic(many: usize) -> impl Strategy<Value = (usize, Vec<Vec<u8>>, Vec<bool>)> {
    let capacity = prop_oneof![MIN_CAPACITY..200, 200usize..1_500, 1_500usize..9_200];
    capacity.prop_flat_map(move |capacity| {
        (
            Just(capacity),
            packets(capacity, many),
            vec(prop::bool::weighted(0.3), many),
        )
    })
}

pub(super) fn wide() -> Limits {
    Limits {
        max_packet: 65_575,
        max_frame_payload: 9_200,
        held_total: 128,
        held_per_remote: 64,
        remotes: 4,
        streams_total: 8,
        packets_total: 8,
        ..Limits::default()
    }
}

/// The frames of `packets` that each packet lies in: payloads are back to back.
fn spans(packets: &[Vec<u8>], frames: &[Vec<u8>]) -> Vec<core::ops::RangeInclusive<usize>> {
    let ends: Vec<usize> = frames
        .iter()
        .scan(0, |sum, frame| {
            *sum += frame.len() - 16;
            Some(*sum)
        })
        .collect();
    let mut start = 0;
    packets
        .iter()
        .map(|packet| {
            let end = start + packet.len();
            let span = ends.partition_point(|&e| e <= start)..=ends.partition_point(|&e| e < end);
            start = end;
            span
        })
        .collect()
}

/// What the network does to one frame.
#[derive(Clone, Debug)]
struct Fate {
    copies: usize,
    delay: usize,
    pause: u64,
}

fn fate(longest_delay: usize) -> impl Strategy<Value = Fate> {
    (
        prop_oneof![1 => Just(0usize), 12 => Just(1), 1 => Just(2)],
        prop_oneof![3 => Just(0), 1 => 0..=longest_delay],
        prop_oneof![6 => Just(0u64), 2 => 0..2 * MS, 1 => 0..100 * MS],
    )
        .prop_map(|(copies, delay, pause)| Fate {
            copies,
            delay,
            pause,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn packets_survive_encode_and_decode((capacity, packets, flush) in traffic(40)) {
        let mut receiver = Receiver::new(wide());
        for frame in encode(3, capacity, &packets, &flush) {
            prop_assert!(frame.len() <= 16 + capacity);
            let _ = feed(&mut receiver, &frame);
        }
        prop_assert_eq!(receiver.taken(), packets);
        prop_assert_eq!(receiver.all_discards(), []);
    }

    #[test]
    fn a_packet_that_fits_a_frame_is_never_split((capacity, packets, flush) in traffic(40)) {
        let frames = encode(3, capacity, &packets, &flush);
        for (packet, span) in packets.iter().zip(spans(&packets, &frames)) {
            if packet.len() <= capacity {
                prop_assert_eq!(span.start(), span.end());
            }
            prop_assert!(span.count() <= MAX_FRAMES_PER_PACKET);
        }
    }

    #[test]
    fn reordering_within_the_window_loses_nothing(
        (capacity, packets, flush) in traffic(80),
        delays in vec(0usize..=32, 1..200),
    ) {
        let frames = encode(3, capacity, &packets, &flush);
        let mut order: Vec<usize> = (0..frames.len()).collect();
        order.sort_by_key(|&n| n + delays[n % delays.len()]);
        let mut receiver = Receiver::new(wide());
        for n in order {
            let _ = feed(&mut receiver, &frames[n]);
        }
        prop_assert_eq!(receiver.taken(), packets);
        prop_assert_eq!(receiver.all_discards(), []);
    }

    #[test]
    fn what_arrives_is_delivered_however_late(
        (capacity, packets, flush) in traffic(80),
        delays in vec(0usize..=60, 1..200),
        pauses in vec(prop_oneof![3 => Just(0u64), 1 => 0..3 * MS], 1..20),
        reorder_frames in prop_oneof![Just(0usize), 1usize..=40],
    ) {
        let frames = encode(3, capacity, &packets, &flush);
        // Without a window, a packet needs one buffer for each place where it was cut.
        prop_assume!(frames.len() < 400);
        let mut order: Vec<usize> = (0..frames.len()).collect();
        order.sort_by_key(|&n| if n == 0 { 0 } else { n + delays[n % delays.len()] });
        let mut receiver = Receiver::new(Limits {
            reorder_frames,
            held_total: 400,
            held_per_remote: 400,
            packets_total: 400,
            packets_per_remote: 400,
            pending_timeout_ns: u64::MAX,
            ..wide()
        });
        for (at, n) in order.into_iter().enumerate() {
            let _ = feed(&mut receiver, &frames[n]);
            let _ = feed(&mut receiver, &frames[n]);
            // Parts are kept for 100 ms.
            if at < 30 {
                receiver.wait(pauses[at % pauses.len()]);
            }
        }
        receiver.wait(MS);
        let mut taken = receiver.taken();
        taken.sort_by_key(|packet| number(packet));
        prop_assert!(taken == packets, "{} of {}", taken.len(), packets.len());
    }

    #[test]
    fn loss_costs_only_the_packets_it_touches(
        (capacity, packets, flush) in traffic(80),
        lost in vec(prop::bool::weighted(0.1), 1..100),
        reorder_frames in prop_oneof![Just(0usize), 1usize..=63],
    ) {
        let frames = encode(3, capacity, &packets, &flush);
        let is_lost = |n: usize| lost[n % lost.len()];
        let whole: Vec<&Vec<u8>> = packets
            .iter()
            .zip(spans(&packets, &frames))
            .filter(|(_, span)| !span.clone().any(is_lost))
            .map(|(packet, _)| packet)
            .collect();
        let mut receiver = Receiver::new(Limits { reorder_frames, ..wide() });
        for (n, frame) in frames.iter().enumerate() {
            if !is_lost(n) {
                let _ = feed(&mut receiver, frame);
            }
        }
        receiver.wait(MS);
        let taken = receiver.taken();
        prop_assert_eq!(taken.iter().collect::<Vec<_>>(), whole);
    }

    #[test]
    fn whatever_the_network_does_packets_are_as_sent_and_delivered_once(
        sent in vec(traffic(30), 1..4),
        fates in vec(fate(80), 1..200),
        (reorder_frames, held_per_remote, max_packet) in
            (0usize..=63, prop_oneof![0usize..5, 0usize..70], prop_oneof![Just(65_575usize), 1_000usize..2_000]),
    ) {
        let mut arrivals = Vec::new();
        for (stream, (capacity, packets, flush)) in sent.iter().enumerate() {
            for (n, frame) in encode(stream as u32, *capacity, packets, flush).into_iter().enumerate() {
                let fate = &fates[(n * 3 + stream) % fates.len()];
                for copy in 0..fate.copies {
                    let delay = fate.delay + copy * 7;
                    arrivals.push((n + delay, fate.pause, frame.clone()));
                }
            }
        }
        arrivals.sort_by_key(|&(at, ..)| at);
        let mut receiver = Receiver::new(Limits {
            reorder_frames,
            held_per_remote,
            max_packet,
            pending_timeout_ns: 50 * MS,
            ..wide()
        });
        for (_, pause, frame) in &arrivals {
            let _ = feed(&mut receiver, frame);
            if *pause > 0 {
                receiver.wait(*pause);
            }
        }
        receiver.wait(61_000 * MS);
        receiver.wait(61_000 * MS);
        prop_assert_eq!(receiver.inner.occupancy(), Occupancy::default());
        prop_assert_eq!(receiver.inner.counters().packets, receiver.out.len() as u64);
        prop_assert_eq!(receiver.inner.next_deadline(), None);
        for (stream, (_, packets, _)) in sent.iter().enumerate() {
            let of_stream: Vec<_> = receiver
                .out
                .iter()
                .filter(|d| d.key.stream == stream as u32)
                .map(|d| &d.packet)
                .collect();
            for packet in &of_stream {
                prop_assert_eq!(*packet, &packets[number(packet) as usize]);
            }
            let once: HashSet<_> = of_stream.iter().map(|packet| number(packet)).collect();
            prop_assert_eq!(once.len(), of_stream.len());
            prop_assert!(
                receiver.inner.counters().late > 0
                    || of_stream.is_sorted_by(|a, b| number(a) < number(b)),
                "in order but for late frames"
            );
        }
    }

    #[test]
    fn garbage_leaves_nothing_behind(
        frames in vec(
            (0u16..6, 0u32..6, 0u64..80, prop_oneof![Just(0u16), Just(0xffffu16), 0u16..300],
             vec(prop_oneof![Just(0x45u8), Just(0x60), Just(0), any::<u8>()], 0..300), 0u64..2 * MS),
            0..300,
        ),
    ) {
        let mut receiver = Receiver::new(Limits { max_packet: 500, ..small() });
        for (remote, stream, sequence, index, payload, pause) in frames {
            let outcome = receiver.frame_of(key(remote, stream), sequence, index, false, &payload);
            prop_assert_eq!(outcome.reason.is_some(), outcome.discarded > 0);
            if pause < MS {
                receiver.wait(pause);
            }
        }
        for delivered in &receiver.out {
            let len = crate::framing::packet_len(&delivered.packet);
            prop_assert_eq!(len, Ok(delivered.packet.len()));
            prop_assert!(delivered.packet.len() <= 500);
        }
        receiver.wait(62_000 * MS);
        receiver.wait(1_000 * MS);
        prop_assert_eq!(receiver.inner.occupancy(), Occupancy::default());
    }

    #[test]
    fn forged_numbers_on_a_stream_repeat_nothing_and_end(
        steps in vec((0u8..12, prop_oneof![3 => 1u64..3, 3 => 62u64..67, 1 => 1_983u64..1_986, 1 => 2_047u64..2_050], 0u64..3 * MS), 1..400),
    ) {
        let mut receiver = Receiver::new(Limits {
            reorder_frames: 1_024,
            held_total: 512,
            held_per_remote: 512,
            ..wide()
        });
        let (mut honest, mut top, mut forged) = (0u64, 0u64, 0usize);
        for (kind, distance, pause) in steps {
            let sequence = match kind {
                0 => top.wrapping_add(distance),
                1 => top.saturating_sub(distance),
                2 => honest.saturating_sub(distance),
                3 => {
                    receiver.wait(pause);
                    continue;
                }
                _ => honest,
            };
            let is_forged = kind < 2;
            forged += usize::from(is_forged);
            if !is_forged {
                honest = honest.max(sequence + 1);
            }
            if sequence.wrapping_sub(top) <= u64::MAX / 2 {
                top = sequence;
            }
            let mark = packet(sequence as usize & 0xff_ffff | usize::from(is_forged) << 24, false, 20);
            let _ = receiver.frame(sequence, 0, &mark);
        }
        receiver.wait(61_000 * MS);
        receiver.wait(61_000 * MS);
        prop_assert_eq!(receiver.inner.occupancy(), Occupancy::default());
        let numbers: Vec<u32> = receiver.out.iter().map(|d| number(&d.packet)).collect();
        let real: HashSet<_> = numbers.iter().filter(|&n| n >> 24 == 0).collect();
        // Each forged frame may take the number of one honest one.
        prop_assert!(real.len() + forged >= honest as usize, "{} of {honest}", real.len());
        // Nor does an honest frame come after a forged one of its number.
        let once: HashSet<_> = numbers.iter().map(|n| n & 0xff_ffff).collect();
        if receiver.inner.counters().streams_evicted == 0 && top <= 1_984 {
            prop_assert_eq!(once.len(), numbers.len());
        }
    }
}
