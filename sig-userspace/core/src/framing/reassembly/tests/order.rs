//! Reordering, loss, duplicates and time.

use sig_common::reason::DropReason;

use super::super::line::PAST;
use super::*;
use crate::framing::NO_START;

fn numbered(n: u8) -> Vec<u8> {
    ipv4(40, n)
}

fn fills(receiver: &mut Receiver) -> Vec<u8> {
    receiver.taken().iter().map(|p| p[20]).collect()
}

#[test]
fn frames_reordered_within_the_window_are_put_in_order() {
    let mut receiver = Receiver::new(small());
    for n in [0, 3, 1, 2, 6, 5, 4, 7] {
        let _ = receiver.frame(u64::from(n), 0, &numbered(n));
    }
    assert_eq!(fills(&mut receiver), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(receiver.all_discards(), []);
    assert_eq!(receiver.inner.occupancy().held, 0);
}

#[test]
fn the_very_first_frames_of_a_stream_may_be_reordered_too() {
    let mut receiver = Receiver::new(small());
    for n in [2, 0, 1] {
        let _ = receiver.frame(u64::from(n), 0, &numbered(n));
    }
    assert_eq!(fills(&mut receiver), [0, 1, 2]);
}

#[test]
fn a_receiver_may_start_in_the_middle_of_a_stream() {
    let mut receiver = Receiver::new(small());
    let outcome = receiver.frame(1000, 20, &[&[9; 20][..], &numbered(1)].concat());
    assert_eq!(
        (outcome.delivered, outcome.reason),
        (1, Some(DropReason::FrameGap))
    );
    for sequence in [999, 1001, 999] {
        let _ = receiver.frame(sequence, 0, &numbered((sequence - 999) as u8));
    }
    assert_eq!(fills(&mut receiver), [1, 0, 2]);
    assert_eq!(receiver.discards(DropReason::FrameDuplicate), 1);
}

#[test]
fn a_split_packet_survives_reordering_of_its_frames() {
    let mut receiver = Receiver::new(small());
    let (packet, next) = (ipv6(300, 5), ipv4(50, 6));
    let _ = receiver.frame(2, 100, &[&packet[200..], &next[..]].concat());
    let _ = receiver.frame(1, NO_START, &packet[100..200]);
    assert!(receiver.out.is_empty());
    let outcome = receiver.frame(0, 0, &packet[..100]);
    assert_eq!(outcome.delivered, 2);
    assert_eq!(receiver.taken(), [packet, next]);
}

#[test]
fn a_held_frame_is_reported_and_waits_1_ms_at_most() {
    let mut receiver = Receiver::new(small());
    let _ = receiver.frame(0, 0, &numbered(0));
    receiver.now = 500;
    let outcome = receiver.frame(2, 0, &numbered(2));
    assert_eq!(
        outcome,
        Outcome {
            held: true,
            ..Outcome::default()
        }
    );
    assert_eq!(receiver.inner.next_deadline(), Some(500 + MS));
    receiver.wait(MS - 1);
    assert_eq!(fills(&mut receiver), [0]);
    receiver.wait(1);
    assert_eq!(fills(&mut receiver), [2]);
    let _ = receiver.frame(1, 0, &numbered(1));
    assert_eq!(fills(&mut receiver), [1], "late, but not lost");
    assert_eq!(receiver.inner.counters().gaps, 1);
    assert_eq!(receiver.inner.counters().late, 1);
}

#[test]
fn each_held_frame_waits_by_its_own_clock() {
    let mut receiver = Receiver::new(small());
    let _ = receiver.frame(0, 0, &numbered(0));
    let _ = receiver.frame(4, 0, &numbered(4));
    receiver.wait(MS / 2);
    let _ = receiver.frame(2, 0, &numbered(2));
    let _ = receiver.frame(6, 0, &numbered(6));
    receiver.wait(MS / 2);
    assert_eq!(fills(&mut receiver), [0, 2, 4], "4 is due, 2 is before it");
    receiver.wait(MS / 2);
    assert_eq!(fills(&mut receiver), [6]);
}

#[test]
fn a_lost_frame_delays_the_others_by_the_window_only() {
    let mut receiver = Receiver::new(small());
    let _ = receiver.frame(0, 0, &numbered(0));
    for n in 2..=33 {
        assert!(receiver.frame(u64::from(n), 0, &numbered(n)).held);
    }
    assert_eq!(receiver.inner.occupancy().held, 32);
    let outcome = receiver.frame(34, 0, &numbered(34));
    assert_eq!(outcome.delivered, 33);
    let mut expected: Vec<u8> = (2..=34).collect();
    expected.insert(0, 0);
    assert_eq!(fills(&mut receiver), expected);
}

/// The sender's programs are so far ahead of its worker, whose frame 80 is lost.
fn overtake(ahead: core::ops::RangeInclusive<u8>, then: &[u8]) -> (Receiver, Vec<u8>) {
    let mut receiver = Receiver::new(small());
    let of_worker = (1..=79).chain(81..*ahead.start());
    let sent: Vec<u8> = [0].into_iter().chain(ahead).chain(of_worker).collect();
    for n in sent.iter().chain(then) {
        let _ = receiver.frame(u64::from(*n), 0, &numbered(*n));
    }
    (receiver, [&sent, then].concat())
}

#[test]
fn a_line_delivers_what_others_hold_of_before() {
    for ahead in [100..=100, 105..=180] {
        // The next one of its line; one behind another gap; one that begins a third line.
        for more in [1, 50, 66] {
            let (mut receiver, sent) = overtake(ahead.clone(), &[ahead.end() + more]);
            receiver.wait(MS);
            assert_eq!(fills(&mut receiver), sent, "{ahead:?}, {more} more");
        }
    }
}

#[test]
fn of_several_lines_the_one_furthest_behind_delivers_first() {
    // Two lines hold something when a third one goes on, and when one of them gives way to a new one.
    for (streams_per_remote, last) in [(4, 201), (2, 255)] {
        let mut receiver = Receiver::new(Limits {
            streams_per_remote,
            ..small()
        });
        let before = if streams_per_remote == 2 { 100 } else { 200 };
        let sent: Vec<u8> = [0, 100, before]
            .into_iter()
            .chain(1..=79)
            .chain(81..=99)
            .collect();
        for n in sent.iter().chain(&[102, last]) {
            let _ = receiver.frame(u64::from(*n), 0, &numbered(*n));
        }
        receiver.wait(MS);
        let wanted = fills(&mut receiver);
        let place = |n| {
            wanted
                .iter()
                .position(|fill| *fill == n)
                .expect("delivered")
        };
        assert!(
            place(99) < place(102) && place(102) < place(last),
            "{wanted:?}"
        );
    }
}

#[test]
fn a_line_that_moves_while_room_is_made_for_a_frame_does_not_hold_it() {
    let mut receiver = Receiver::new(Limits {
        held_per_remote: 3,
        ..small()
    });
    for n in [0, 100, 102, 2, 104, 3, 4, 5, 105] {
        let _ = receiver.frame(u64::from(n), 0, &numbered(n));
    }
    receiver.wait(MS);
    assert_eq!(fills(&mut receiver), [0, 100, 2, 102, 3, 4, 5, 104, 105]);
    assert_eq!(receiver.inner.occupancy().held, 0);
}

#[test]
fn a_late_frame_delivers_what_other_lines_hold_of_before() {
    let mut receiver = Receiver::new(small());
    for n in [0, 110, 112] {
        let _ = receiver.frame(u64::from(n), 0, &numbered(n));
    }
    receiver.wait(MS);
    for n in [2, 111] {
        let _ = receiver.frame(u64::from(n), 0, &numbered(n));
    }
    assert_eq!(fills(&mut receiver), [0, 110, 112, 2, 111]);
}

#[test]
fn a_gap_evicts_the_pending_packet_and_nothing_else() {
    let mut receiver = Receiver::new(small());
    let packet = ipv4(100, 1);
    let _ = receiver.frame(0, 0, &packet[..50]);
    let _ = receiver.frame(2, 50, &[&packet[50..], &numbered(2)].concat());
    receiver.wait(MS);
    assert_eq!(fills(&mut receiver), [2]);
    receiver.wait(100 * MS);
    assert_eq!(
        receiver.all_discards(),
        [(DropReason::FrameGap, 1), (DropReason::FrameEvicted, 1)]
    );
    assert_eq!(receiver.inner.occupancy().packets, 0);
}

#[test]
fn duplicates_are_refused_delivered_or_held() {
    let mut receiver = Receiver::new(small());
    for sequence in [0, 0, 2, 2, 1, 1, 2, 0] {
        let _ = receiver.frame(sequence, 0, &numbered(sequence as u8));
    }
    assert_eq!(fills(&mut receiver), [0, 1, 2]);
    assert_eq!(receiver.all_discards(), [(DropReason::FrameDuplicate, 5)]);
}

#[test]
fn a_late_frame_is_delivered_and_a_duplicate_is_not() {
    let mut receiver = Receiver::without_window();
    for sequence in [100, 103, 102, 103, 100, 101, 30] {
        let _ = receiver.frame(sequence, 0, &numbered(1));
    }
    assert_eq!(receiver.taken().len(), 5);
    assert_eq!(receiver.all_discards(), [(DropReason::FrameDuplicate, 2)]);
}

#[test]
fn without_a_window_a_gap_ends_the_pending_packet_at_once() {
    let mut receiver = Receiver::without_window();
    let packet = ipv4(100, 1);
    let _ = receiver.frame(0, 0, &packet[..50]);
    let outcome = receiver.frame(2, 0, &numbered(2));
    assert!(!outcome.held);
    assert_eq!(fills(&mut receiver), [2]);
    receiver.wait(100 * MS);
    assert_eq!(receiver.all_discards(), [(DropReason::FrameEvicted, 1)]);
}

#[test]
fn a_stream_may_run_beyond_the_last_sequence_number() {
    let mut receiver = Receiver::new(small());
    for sequence in [u64::MAX - 1, u64::MAX, 1, 0, u64::MAX, 2] {
        let _ = receiver.frame(sequence, 0, &numbered(sequence as u8));
    }
    assert_eq!(fills(&mut receiver), [254, 255, 0, 1, 2]);
    assert_eq!(receiver.all_discards(), [(DropReason::FrameDuplicate, 1)]);
}

#[test]
fn the_rest_of_a_packet_is_not_waited_for_forever() {
    let mut receiver = Receiver::new(small());
    let packet = ipv4(100, 1);
    let _ = receiver.frame(0, 0, &packet[..50]);
    assert_eq!(receiver.inner.next_deadline(), Some(100 * MS));
    receiver.wait(100 * MS);
    assert_eq!(receiver.inner.occupancy().packets, 0);
    assert_eq!(receiver.all_discards(), [(DropReason::FrameExpired, 1)]);
    let _ = receiver.frame(1, 50, &[&packet[50..], &numbered(3)].concat());
    assert_eq!(fills(&mut receiver), [3], "the stream goes on");
    assert_eq!(receiver.all_discards(), [(DropReason::FrameExpired, 1)]);
    // Now it has delivered something.
    let _ = receiver.frame(2, 0, &packet[..50]);
    receiver.wait(999 * MS);
    assert_eq!(receiver.inner.occupancy().packets, 1);
    receiver.wait(MS);
    assert_eq!(receiver.inner.occupancy().packets, 0);
}

#[test]
fn a_stream_is_remembered_until_it_was_silent_for_60_s() {
    let second = 1000 * MS;
    let mut receiver = Receiver::new(small());
    let _ = receiver.frame(0, 0, &numbered(0));
    receiver.wait(59 * second);
    let outcome = receiver.frame(0, 0, &numbered(0));
    assert_eq!(outcome.reason, Some(DropReason::FrameDuplicate));
    let _ = receiver.frame(1, 0, &numbered(1));
    receiver.wait(59 * second);
    assert_eq!(receiver.inner.occupancy().streams, 1, "59 s after frame 1");
    let outcome = receiver.frame(1, 0, &numbered(1));
    assert_eq!(outcome.reason, Some(DropReason::FrameDuplicate));
    receiver.wait(2 * second);
    assert_eq!(receiver.inner.occupancy(), Occupancy::default());
    assert_eq!(receiver.inner.next_deadline(), None);
    let outcome = receiver.frame(0, 0, &numbered(0));
    assert_eq!(outcome.delivered, 1, "forgotten");
}

#[test]
fn a_clock_that_stands_still_or_jumps_does_no_harm() {
    let mut receiver = Receiver::new(small());
    receiver.now = u64::MAX;
    let _ = receiver.frame(0, 0, &numbered(0));
    let _ = receiver.frame(2, 0, &numbered(2));
    receiver.now = 0;
    let _ = receiver.frame(4, 0, &ipv4(100, 4)[..50]);
    receiver.inner.poll(0, |_, _, _| panic!("not due"));
    receiver.now = u64::MAX;
    let out = &mut receiver.out;
    receiver.inner.poll(u64::MAX, |key, piece, congestion| {
        let Piece::Assembled(packet) = piece else {
            panic!("a timer has no frame of the caller")
        };
        out.push(Delivered {
            key,
            packet: packet.to_vec(),
            congestion,
        });
    });
    assert_eq!(fills(&mut receiver), [0, 2]);
    assert_eq!(receiver.inner.occupancy(), Occupancy::default());
}

#[test]
fn lines_that_join_hold_no_more_than_they_have() {
    let mut receiver = Receiver::new(Limits {
        reorder_frames: 1_024,
        ..small()
    });
    let begin = 6_400;
    let run = |receiver: &mut Receiver, numbers: &[u64]| {
        for offset in numbers {
            let sequence = (begin + offset).wrapping_sub(10_000);
            let _ = receiver.frame(sequence, 0, &numbered(*offset as u8));
        }
    };
    let late = 10_006 - PAST;
    run(&mut receiver, &[10_000, 10_005]);
    receiver.wait(MS + MS / 10);
    run(&mut receiver, &[10_020, late, late + 1, 10_010]);
    run(
        &mut receiver,
        &[10_006, 10_007, 10_008, 10_009, 10_012, 10_011],
    );
    run(
        &mut receiver,
        &[10_013, 10_014, 10_015, 10_016, 10_017, 10_018],
    );
    run(&mut receiver, &[10_019, 10_021]);
    receiver.wait(3 * MS);
    assert_eq!(receiver.inner.occupancy().held, 0);
    let mut sent: Vec<u8> = [0, 5, 20]
        .into_iter()
        .chain(6..20)
        .map(|n| (10_000u64 + n) as u8)
        .collect();
    sent.extend([late as u8, late as u8 + 1, 10_021u64 as u8]);
    let mut got = fills(&mut receiver);
    sent.sort_unstable();
    got.sort_unstable();
    assert_eq!(got, sent);
}

#[test]
fn lines_that_go_leave_what_they_received_to_the_next_one() {
    let mut receiver = Receiver::new(Limits {
        reorder_frames: 1_024,
        ..small()
    });
    let mut sequence = 0;
    let mut sent = Vec::new();
    for _ in 0..9 {
        for _ in 0..50 {
            let _ = receiver.frame(sequence, 0, &numbered(0));
            sent.push(sequence);
            sequence += 1;
        }
        sequence += 100;
        receiver.wait(MS / 10);
    }
    assert_eq!(receiver.taken().len(), sent.len());
    for sequence in sent {
        let outcome = receiver.frame(sequence, 0, &numbered(0));
        assert_eq!(outcome.reason, Some(DropReason::FrameDuplicate));
    }
}

#[test]
fn a_late_run_long_ago_does_not_end_the_line() {
    let mut receiver = Receiver::new(small());
    for sequence in (0..10).chain(12..20) {
        let _ = receiver.frame(sequence, 0, &numbered(0));
    }
    receiver.wait(MS);
    for sequence in (10..12).chain(20..5_000) {
        let _ = receiver.frame(sequence, 0, &numbered(0));
    }
    receiver.out.clear();
    let opened = receiver.inner.counters().streams_opened;
    for sequence in (5_001..5_201).step_by(2) {
        assert!(receiver.frame(sequence, 0, &numbered(1)).held);
        receiver.wait(60 * MS);
    }
    assert_eq!(receiver.taken().len(), 100);
    assert_eq!(receiver.inner.counters().streams_opened, opened);
}
