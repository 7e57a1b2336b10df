//! What is found in frames that come in order.

use sig_common::reason::DropReason;

use super::*;
use crate::framing::NO_START;

fn receiver() -> Receiver {
    Receiver::new(small())
}

#[test]
fn a_whole_packet_is_delivered_where_it_lies() {
    let mut inner = Reassembler::new(small(), 1).unwrap();
    let packet = ipv4(100, 1);
    let payload = [&packet[..], &packet, &packet].concat();
    let mut ranges = Vec::new();
    let frame = FrameRef {
        sequence: 0,
        index: 0,
        congestion: false,
        payload: &payload,
    };
    let outcome = inner.insert(0, key(0, 1), frame, |_, piece, _| match piece {
        Piece::InFrame(range) => ranges.push(range),
        Piece::Assembled(_) => panic!("copied"),
    });
    assert_eq!(ranges, [0..100, 100..200, 200..300]);
    assert_eq!(
        outcome,
        Outcome {
            delivered: 3,
            ..Outcome::default()
        }
    );
}

#[test]
fn a_tail_may_end_its_frame_with_or_without_an_index() {
    for index in [NO_START, 60] {
        let mut receiver = receiver();
        let packet = ipv4(100, 1);
        let _ = receiver.frame(0, 0, &packet[..40]);
        let _ = receiver.frame(1, index, &packet[40..]);
        assert_eq!(receiver.taken(), [packet]);
        assert_eq!(receiver.all_discards(), []);
    }
}

#[test]
fn a_wrong_index_never_makes_a_packet() {
    for index in [0, 1, 59, 61, 100, 0xfffe] {
        let mut receiver = receiver();
        let packet = ipv4(100, 1);
        let _ = receiver.frame(0, 0, &packet[..40]);
        let outcome = receiver.frame(1, index, &packet[40..]);
        assert_eq!(outcome.reason, Some(DropReason::IndexMismatch));
        assert_eq!(receiver.taken(), [] as [Vec<u8>; 0]);
        assert_eq!(receiver.inner.occupancy().packets, 0);
    }
}

#[test]
fn bytes_behind_a_tail_need_an_index() {
    let mut receiver = receiver();
    let packet = ipv4(100, 1);
    let _ = receiver.frame(0, 0, &packet[..40]);
    let outcome = receiver.frame(1, NO_START, &[&packet[40..], &[0; 4]].concat());
    assert_eq!(outcome.reason, Some(DropReason::IndexMismatch));
    assert_eq!(receiver.out, []);
}

#[test]
fn an_empty_frame_in_the_middle_of_a_packet_does_no_harm() {
    let mut receiver = receiver();
    let packet = ipv4(100, 1);
    let _ = receiver.frame(0, 0, &packet[..40]);
    let _ = receiver.frame(1, NO_START, &[]);
    let _ = receiver.frame(2, NO_START, &packet[40..]);
    assert_eq!(receiver.taken(), [packet]);
}

#[test]
fn an_index_beyond_the_payload_discards_the_frame_only() {
    let mut receiver = receiver();
    let packet = ipv4(100, 1);
    for index in [100, 101, 0xfffe] {
        let sequence = receiver.inner.counters().frames;
        let _ = receiver.frame(sequence, index, &packet);
    }
    assert_eq!(receiver.discards(DropReason::IndexOutOfRange), 3);
    let _ = receiver.frame(3, 0, &packet);
    assert_eq!(receiver.taken(), [packet]);
}

#[test]
fn padding_behind_a_packet_is_ignored() {
    let mut receiver = receiver();
    let packet = ipv4(100, 1);
    let outcome = receiver.frame(0, 0, &[&packet[..], &[0; 10]].concat());
    assert_eq!(outcome.reason, Some(DropReason::FrameInvalidPacket));
    assert_eq!(receiver.taken(), [packet]);
}

#[test]
fn a_split_ip_header_is_no_start_of_a_packet() {
    for (packet, stub) in [(ipv4(100, 1), 19), (ipv6(100, 1), 39)] {
        let mut receiver = receiver();
        let next = ipv4(40, 2);
        let outcome = receiver.frame(0, 0, &packet[..stub]);
        assert_eq!(outcome.reason, Some(DropReason::FrameInvalidPacket));
        let index = (100 - stub) as u16;
        let _ = receiver.frame(1, index, &[&packet[stub..], &next[..]].concat());
        assert_eq!(receiver.taken(), [next]);

        let _ = receiver.frame(2, 0, &packet[..stub + 1]);
        let _ = receiver.frame(3, NO_START, &packet[stub + 1..]);
        assert_eq!(receiver.taken(), [packet]);
    }
}

#[test]
fn impossible_ipv4_lengths_are_refused() {
    let mut short = ipv4(40, 1);
    short[2..4].copy_from_slice(&19u16.to_be_bytes());
    let mut long_header = ipv4(40, 1);
    long_header[0] = 0x4b;
    let mut no_header = ipv4(40, 1);
    no_header[0] = 0x40;
    let mut receiver = receiver();
    for packet in [short, long_header, no_header] {
        let sequence = receiver.inner.counters().frames;
        let outcome = receiver.frame(sequence, 0, &packet);
        assert_eq!(outcome.reason, Some(DropReason::FrameInvalidPacket));
    }
    assert_eq!(receiver.out, []);
}

#[test]
fn a_packet_beyond_the_limit_is_skipped_and_the_next_one_is_not() {
    let mut receiver = Receiver::new(Limits {
        max_packet: 500,
        ..small()
    });
    let (long, fine) = (ipv6(501, 1), ipv6(500, 2));
    let outcome = receiver.frame(0, 0, &[&long[..], &fine].concat());
    assert_eq!(outcome.reason, Some(DropReason::PacketTooBig));
    assert_eq!(receiver.taken(), [&fine[..]]);

    let _ = receiver.frame(1, 0, &long[..100]);
    let _ = receiver.frame(2, NO_START, &long[100..300]);
    let _ = receiver.frame(3, 201, &[&long[300..], &fine[..]].concat());
    assert_eq!(receiver.taken(), [fine]);
    assert_eq!(receiver.all_discards(), [(DropReason::PacketTooBig, 2)]);
}

#[test]
fn a_packet_is_marked_if_any_of_its_frames_was() {
    for marked in 0..3 {
        let mut receiver = receiver();
        let (packet, next) = (ipv4(300, 1), ipv4(20, 2));
        let _ = receiver.frame_of(key(0, 1), 0, 0, marked == 0, &packet[..100]);
        let _ = receiver.frame_of(key(0, 1), 1, NO_START, marked == 1, &packet[100..200]);
        let last = [&packet[200..], &next[..]].concat();
        let _ = receiver.frame_of(key(0, 1), 2, 100, marked == 2, &last);
        let marks: Vec<bool> = receiver.out.iter().map(|d| d.congestion).collect();
        assert_eq!(marks, [true, marked == 2]);
    }
}

#[test]
fn the_mark_of_one_packet_does_not_stick_to_the_next() {
    let mut receiver = receiver();
    let packet = ipv4(100, 1);
    let _ = receiver.frame_of(key(0, 1), 0, 0, true, &packet[..50]);
    let _ = receiver.frame(1, NO_START, &packet[50..]);
    let _ = receiver.frame(2, 0, &packet[..50]);
    let _ = receiver.frame(3, NO_START, &packet[50..]);
    let marks: Vec<bool> = receiver.out.iter().map(|d| d.congestion).collect();
    assert_eq!(marks, [true, false]);
}

#[test]
fn a_frame_without_anything_is_counted() {
    let mut receiver = receiver();
    let _ = receiver.frame(0, 0, &[]);
    let _ = receiver.frame(1, NO_START, &[]);
    assert_eq!(
        receiver.all_discards(),
        [(DropReason::IndexOutOfRange, 1), (DropReason::FrameGap, 1)]
    );
}
