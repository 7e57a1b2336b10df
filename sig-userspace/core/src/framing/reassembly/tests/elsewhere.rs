//! Streams that another receiver goes on with for a while.

use proptest::collection::vec;
use proptest::prelude::*;
use sig_common::reason::DropReason;

use super::super::line::{AHEAD, PAST};
use super::wild::{encode, packet, wide};
use super::*;
use crate::framing::{FrameView, NO_START, packet_len};

/// As many frames, 10 ms apart, as make a line proven.
const PROOF: u64 = 20;

impl Receiver {
    fn resume(&mut self, key: StreamKey, next: u64) {
        let out = &mut self.out;
        self.inner.resume(self.now, key, next, |key, piece, _| {
            let Piece::Assembled(packet) = piece else {
                panic!("there is no frame of the caller")
            };
            out.push(Delivered {
                key,
                packet: packet.to_vec(),
                congestion: false,
            });
        });
        self.check("invariants hold after frames elsewhere");
    }

    fn settled(&self) -> Option<u64> {
        self.inner.settled(key(0, 1))
    }

    /// Proves a stream, whose next number is then `first` + [`PROOF`].
    fn prove(&mut self, key: StreamKey, first: u64) {
        for n in 0..PROOF {
            let _ = self.frame_of(key, first.wrapping_add(n), 0, false, &ipv4(40, 0));
            self.wait(10 * MS);
        }
    }

    fn proven() -> Self {
        let mut receiver = Self::new(small());
        receiver.prove(key(0, 1), 0);
        receiver.out.clear();
        receiver
    }

    /// What becomes of a whole packet in a frame: delivered, or the reason.
    fn fate(&mut self, sequence: u64) -> Result<(), Option<DropReason>> {
        let outcome = self.frame(sequence, 0, &ipv4(40, sequence as u8));
        if outcome.delivered > 0 {
            return Ok(());
        }
        Err(outcome.reason)
    }

    fn fills(&mut self) -> Vec<u8> {
        self.taken().iter().map(|packet| packet[20]).collect()
    }
}

const DUPLICATE: Result<(), Option<DropReason>> = Err(Some(DropReason::FrameDuplicate));
const HELD: Result<(), Option<DropReason>> = Err(None);

#[test]
fn a_stream_is_settled_once_it_is_proven() {
    let mut receiver = Receiver::new(small());
    for sequence in 0..200 {
        assert_eq!(receiver.fate(sequence), Ok(()));
        assert_eq!(receiver.settled(), None, "many packets prove nothing");
    }
    receiver.prove(key(0, 1), 200);
    assert_eq!(receiver.settled(), Some(200 + PROOF));
    assert_eq!(receiver.inner.settled(key(0, 2)), None);
    // Also if the last frame was of another stream.
    let _ = receiver.frame_of(key(0, 2), 0, 0, false, &ipv4(40, 0));
    assert_eq!(receiver.settled(), Some(200 + PROOF));
    assert_eq!(receiver.inner.settled(key(0, 2)), None);
    receiver.wait(61_000 * MS);
    assert_eq!(receiver.settled(), None);
}

#[test]
fn a_stream_that_waits_for_a_frame_is_not_settled() {
    let mut receiver = Receiver::proven();
    assert_eq!(receiver.fate(PROOF + 1), HELD);
    assert_eq!(receiver.settled(), None);
    assert_eq!(receiver.fate(PROOF), Ok(()));
    assert_eq!(receiver.settled(), Some(PROOF + 2));
}

#[test]
fn a_stream_with_a_packet_that_lacks_its_end_is_not_settled() {
    for len in [100, small().max_packet as u16 + 1] {
        let mut receiver = Receiver::proven();
        let packet = ipv4(len, 1);
        let _ = receiver.frame(PROOF, 0, &packet[..50]);
        assert_eq!(receiver.settled(), None);
        let _ = receiver.frame(PROOF + 1, len - 50, &packet[50..]);
        assert_eq!(receiver.settled(), Some(PROOF + 2));
    }
}

#[test]
fn a_line_with_another_one_ahead_is_not_settled() {
    let mut receiver = Receiver::proven();
    assert_eq!(receiver.fate(1 << 40), Ok(()));
    assert_eq!(receiver.settled(), Some((1 << 40) + 1));
    receiver.resume(key(0, 1), (1 << 40) + 1);
    assert_eq!(receiver.fate(PROOF), Ok(()));
    assert_eq!(receiver.settled(), None);
    assert_eq!(receiver.fate(PROOF + 1), Ok(()));
    assert_eq!(receiver.settled(), None);
}

#[test]
fn a_line_that_stopped_behind_keeps_no_stream_here() {
    let mut receiver = Receiver::proven();
    assert_eq!(receiver.fate(PROOF + 1_000), Ok(()), "many were lost");
    let next = PROOF + 1_001;
    assert_eq!(receiver.settled(), Some(next));
    receiver.resume(key(0, 1), next + 500);
    // One of those was late only.
    assert_eq!(receiver.fate(PROOF), Ok(()));
    assert_eq!(receiver.fate(PROOF), DUPLICATE);
    assert_eq!(receiver.settled(), None);
    assert_eq!(receiver.fate(next + 499), DUPLICATE);
    assert_eq!(receiver.fate(next + 500), Ok(()));
    assert_eq!(receiver.settled(), Some(next + 501));
    // What waits there is delivered before the next one.
    assert_eq!(receiver.fate(PROOF + 2), HELD);
    assert_eq!(receiver.settled(), None);
    let outcome = receiver.frame(next + 501, 0, &ipv4(40, 0));
    assert_eq!(outcome.delivered, 2);
    assert_eq!(receiver.settled(), Some(next + 502));
}

#[test]
fn a_number_that_was_given_up_is_late_wherever_the_stream_went_on() {
    let mut receiver = Receiver::proven();
    let packet = ipv4(300, 7);
    let _ = receiver.frame(PROOF, 0, &packet[..100]);
    let rest = [&packet[200..], &ipv4(40, 8)].concat();
    let _ = receiver.frame(PROOF + 2, 100, &rest);
    receiver.wait(MS);
    assert_eq!(receiver.fills(), [8]);
    assert_eq!(receiver.inner.occupancy().packets, 1, "parked");
    assert_eq!(receiver.inner.occupancy().held, 1, "spent");
    assert_eq!(receiver.settled(), Some(PROOF + 3));
    receiver.resume(key(0, 1), PROOF + 500);
    let _ = receiver.frame(PROOF + 1, NO_START, &packet[100..200]);
    assert_eq!(receiver.taken(), [packet]);
    assert_eq!(receiver.inner.counters().late, 1);
    assert_eq!(receiver.fate(PROOF + 1), DUPLICATE);
    assert_eq!(receiver.settled(), Some(PROOF + 500));
}

#[test]
fn what_was_received_elsewhere_is_refused_and_nothing_else() {
    let jumps = [
        1,
        2,
        63,
        64,
        65,
        127,
        128,
        PAST - 1,
        PAST,
        PAST + 1,
        AHEAD - 1,
        AHEAD,
        AHEAD + 1,
        4_095,
        4_096,
        4_097,
        5_000_000,
        u64::MAX / 2,
    ];
    for first in [0, 1, 62, 63, 64, 65, u64::MAX - 100, u64::MAX - 63] {
        for jump in jumps {
            let mut receiver = Receiver::new(small());
            receiver.audited = false;
            // One number is missing.
            let begin = first + 10 * u64::from(first == 0);
            for sequence in [begin, begin.wrapping_add(2)] {
                let _ = receiver.frame(sequence, 0, &ipv4(40, 1));
            }
            receiver.wait(MS);
            receiver.wait(MS);
            let from = begin.wrapping_add(3);
            let next = from.wrapping_add(jump);
            receiver.resume(key(0, 1), next);
            receiver.inner.audit().expect("invariants hold");
            for back in 1..=jump.min(PAST) {
                let sequence = next.wrapping_sub(back);
                assert_eq!(receiver.fate(sequence), DUPLICATE, "{sequence} {jump}");
            }
            if jump > PAST {
                let sequence = next.wrapping_sub(PAST + 1);
                assert_eq!(receiver.fate(sequence), Err(Some(DropReason::FrameOld)));
            }
            if jump < PAST - 1 {
                assert_eq!(receiver.fate(from.wrapping_sub(1)), DUPLICATE);
                assert_eq!(receiver.fate(from.wrapping_sub(2)), Ok(()), "late");
                assert_eq!(receiver.fate(from.wrapping_sub(2)), DUPLICATE);
            }
            assert_eq!(receiver.fate(next.wrapping_add(32)), HELD);
            assert_eq!(receiver.fate(next), Ok(()));
            assert_eq!(receiver.fate(next.wrapping_add(2)), HELD);
            assert_eq!(receiver.fate(next.wrapping_add(1)), Ok(()));
            receiver.inner.audit().expect("invariants hold");
        }
    }
}

#[test]
fn a_stream_does_not_go_back() {
    let mut receiver = Receiver::proven();
    let touched = receiver.now - 10 * MS;
    receiver.wait(50_000 * MS);
    for back in [0, 1, PROOF, PAST, PAST + 64, 1 << 40, u64::MAX / 2] {
        receiver.resume(key(0, 1), PROOF.wrapping_sub(back));
        assert_eq!(receiver.settled(), Some(PROOF));
    }
    assert_eq!(receiver.fate(0), DUPLICATE);
    // Nor does one that stands still stay.
    receiver.wait(touched + 60_100 * MS - receiver.now);
    assert_eq!(receiver.inner.occupancy(), Occupancy::default());
}

#[test]
fn a_stream_that_goes_on_elsewhere_is_in_use() {
    let mut receiver = Receiver::new(small());
    let _ = receiver.frame(0, 0, &ipv4(40, 0));
    for n in 1..=PROOF {
        receiver.wait(50_000 * MS);
        receiver.resume(key(0, 1), 100 * n);
    }
    assert_eq!(receiver.settled(), Some(100 * PROOF));
    assert_eq!(receiver.inner.counters().streams_opened, 1);
}

#[test]
fn a_forgotten_stream_begins_again_where_it_was_elsewhere() {
    for next in [0, 1, 5, 1_000, PAST, 1 << 40, u64::MAX] {
        let mut receiver = Receiver::new(small());
        receiver.resume(key(0, 1), next);
        for back in [1, 2, 64, PAST] {
            assert_eq!(receiver.fate(next.wrapping_sub(back)), DUPLICATE);
        }
        assert_eq!(receiver.fate(next.wrapping_add(1)), HELD);
        assert_eq!(receiver.fate(next), Ok(()));
        assert_eq!(receiver.inner.counters().streams_opened, 1);
        receiver.wait(61_000 * MS);
        // It has delivered, so the start of a packet is kept for longer than 100 ms.
        receiver.resume(key(0, 1), next);
        let _ = receiver.frame(next, 0, &ipv4(40, 1)[..30]);
        receiver.wait(999 * MS);
        assert_eq!(receiver.inner.occupancy().packets, 1);
        receiver.wait(61_000 * MS);
        assert_eq!(receiver.inner.occupancy(), Occupancy::default());
    }
}

#[test]
fn a_forgotten_stream_has_the_rights_of_a_new_one() {
    let mut receiver = Receiver::new(small());
    for stream in 2..5 {
        let _ = receiver.frame_of(key(0, stream), 3, 0, false, &ipv4(40, stream as u8));
    }
    receiver.inner.begin_batch(true);
    receiver.resume(key(0, 1), 1_000);
    assert_eq!(receiver.inner.counters().streams_evicted, 1);
    assert_eq!(receiver.fills(), [2], "held by the one that gave way");
    for stream in 10..20 {
        receiver.resume(key(0, stream), 1_000);
    }
    assert!(receiver.discards(DropReason::NewStreamLimit) > 0);
    assert_eq!(receiver.inner.occupancy().streams, 3);
    receiver.resume(key(4, 1), 1_000);
    assert_eq!(receiver.discards(DropReason::StreamLimit), 1);
}

#[test]
fn a_number_from_elsewhere_that_cannot_be_true_costs_no_frame_that_is_held() {
    for next in [12, 13, 14, 16, 17, 18, 30, 5_000, u64::MAX / 2] {
        let mut receiver = Receiver::new(small());
        for sequence in [10, 13, 14, 17] {
            let _ = receiver.frame(sequence, 0, &ipv4(40, sequence as u8));
        }
        receiver.wait(MS / 2);
        let _ = receiver.frame(11, 0, &ipv4(90, 11)[..50]);
        receiver.resume(key(0, 1), next);
        receiver.wait(3 * MS);
        assert_eq!(receiver.fills(), [10, 13, 14, 17], "{next}");
        receiver.wait(101 * MS);
        assert_eq!(receiver.inner.occupancy().held, 0);
        assert_eq!(receiver.inner.occupancy().packets, 0);
        for sequence in [10, 13, 14, 17] {
            assert_ne!(receiver.fate(sequence), Ok(()), "{sequence} {next}");
        }
    }
}

#[test]
fn a_packet_does_not_end_in_a_frame_behind_others_from_elsewhere() {
    let mut receiver = Receiver::proven();
    let packet = ipv4(100, 1);
    let _ = receiver.frame(PROOF, 0, &packet[..50]);
    receiver.resume(key(0, 1), PROOF + 2);
    assert_eq!(receiver.inner.occupancy().packets, 0);
    let rest = [&packet[50..], &ipv4(40, 2)].concat();
    let _ = receiver.frame(PROOF + 2, 50, &rest);
    assert_eq!(receiver.fills(), [2]);
    assert_eq!(receiver.all_discards(), [(DropReason::FrameGap, 2)]);
}

#[test]
fn lines_that_meet_elsewhere_become_one() {
    // The second line begins at 100, and is at 102.
    let two = || {
        let mut receiver = Receiver::new(small());
        for sequence in [10, 100, 101] {
            let _ = receiver.frame(sequence, 0, &ipv4(40, 1));
        }
        receiver.wait(MS);
        let _ = receiver.taken();
        assert_eq!(receiver.inner.occupancy().streams, 2);
        receiver
    };
    for next in [99, 100, 101, 102, 103, 200, 1 << 40] {
        let mut receiver = two();
        receiver.resume(key(0, 1), next);
        let after = next.max(102);
        assert_eq!(receiver.fate(after), Ok(()), "{next}");
        assert_eq!(receiver.fate(after), DUPLICATE, "{next}");
        assert_eq!(receiver.fate(after - 1), DUPLICATE, "{next}");
        for sequence in [10, 100, 101] {
            assert_ne!(receiver.fate(sequence), Ok(()), "{sequence} {next}");
        }
        assert_eq!(receiver.fate(after + 1), Ok(()), "{next}");
    }
}

#[test]
fn a_line_that_goes_on_elsewhere_to_another_one_ends_there() {
    let mut receiver = Receiver::new(small());
    for sequence in [100_010, 100_014, 1_000] {
        let _ = receiver.frame(sequence, 0, &ipv4(40, 1));
    }
    // The lower line goes on to the upper one, which then goes on over what it holds.
    receiver.resume(key(0, 1), 100_010);
    assert_eq!(receiver.fate(100_010), DUPLICATE);
    receiver.resume(key(0, 1), 100_015);
    receiver.resume(key(0, 1), 100_014);
    assert_eq!(receiver.taken().len(), 3);
    assert_eq!(receiver.fate(100_015), Ok(()));
    assert_eq!(receiver.fate(100_015), DUPLICATE);
}

/// A receiver together with one elsewhere, which takes frames of one whole packet.
struct Both {
    here: Receiver,
    elsewhere: [Option<u64>; 4],
    taken: u64,
}

impl Both {
    fn frame(&mut self, key: StreamKey, sequence: u64, index: u16, payload: &[u8]) {
        let elsewhere = &mut self.elsewhere[key.stream as usize];
        if let Some(next) = *elsewhere {
            if sequence == next && index == 0 && packet_len(payload) == Ok(payload.len()) {
                *elsewhere = Some(next.wrapping_add(1));
                self.taken += 1;
                self.here.out.push(Delivered {
                    key,
                    packet: payload.to_vec(),
                    congestion: false,
                });
                return;
            }
            *elsewhere = None;
            self.here.resume(key, next);
        }
        let _ = self.here.frame_of(key, sequence, index, false, payload);
    }

    /// Gives the stream away, if that is possible, or tells how far it is.
    fn turn(&mut self, key: StreamKey, give: bool) {
        let elsewhere = &mut self.elsewhere[key.stream as usize];
        match *elsewhere {
            None if give => *elsewhere = self.here.inner.settled(key),
            Some(next) if !give => self.here.resume(key, next),
            _ => {}
        }
    }
}

const CAPACITY: usize = 200;

/// The length of a packet, and whether the frame ends behind it: most frames are one packet.
fn sending() -> impl Strategy<Value = (usize, bool)> {
    let len = prop_oneof![12 => 20..=CAPACITY, 1 => CAPACITY..5 * CAPACITY];
    (len, prop::bool::weighted(0.9))
}

/// What the network does to a frame: how many copies come, how late, and the time after each.
fn fate() -> impl Strategy<Value = (usize, usize, u64)> {
    (
        prop_oneof![1 => Just(0usize), 25 => Just(1), 1 => Just(2)],
        prop_oneof![12 => Just(0usize), 1 => 0usize..6, 1 => 0usize..=80],
        prop_oneof![4 => Just(0u64), 2 => 0..2 * MS, 1 => 0..20 * MS],
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn who_receives_makes_no_difference(
        sent in vec(vec(sending(), 1..200), 1..4),
        fates in vec(fate(), 1..200),
        turns in vec(prop_oneof![2 => Just(None), 2 => Just(Some(true)), 1 => Just(Some(false))], 1..100),
        (reorder_frames, first) in (
            0usize..=63,
            prop_oneof![Just(0), any::<u64>(), (0u64..200).prop_map(|n| u64::MAX - n)],
        ),
    ) {
        let limits = Limits {
            reorder_frames,
            idle_timeout_ns: 1 << 44,
            pending_timeout_ns: 50 * MS,
            ..wide()
        };
        let mut alone = Receiver::new(limits);
        let mut both = Both { here: Receiver::new(limits), elsewhere: [None; 4], taken: 0 };
        let mut arrivals = Vec::new();
        for (stream, sent) in sent.iter().enumerate() {
            let key = key(stream as u16, stream as u32);
            alone.prove(key, first);
            both.here.prove(key, first);
            prop_assert_eq!(both.here.inner.settled(key), Some(first.wrapping_add(PROOF)));
            let packets: Vec<_> = sent.iter().enumerate().map(|(n, &(len, _))| packet(n, false, len)).collect();
            let flush: Vec<_> = sent.iter().map(|&(_, flush)| flush).collect();
            for (n, frame) in encode(stream as u32, CAPACITY, &packets, &flush).into_iter().enumerate() {
                let (copies, delay, pause) = fates[(n * 3 + stream) % fates.len()];
                for copy in 0..copies {
                    arrivals.push((n + delay + copy * 7, pause, key, frame.clone()));
                }
            }
        }
        arrivals.sort_by_key(|&(at, ..)| at);
        for (n, (_, pause, key, frame)) in arrivals.iter().enumerate() {
            let view = FrameView::new_checked(frame).expect("a frame");
            let (header, payload) = (view.header(), view.payload());
            let sequence = header.sequence.wrapping_add(first).wrapping_add(PROOF);
            let _ = alone.frame_of(*key, sequence, header.index, false, payload);
            both.frame(*key, sequence, header.index, payload);
            if let Some(give) = turns[n % turns.len()] {
                both.turn(*key, give);
            }
            if *pause > 0 {
                alone.wait(*pause);
                both.here.wait(*pause);
            }
            prop_assert_eq!(&alone.out, &both.here.out);
            alone.out.clear();
            both.here.out.clear();
        }
        for receiver in [&mut alone, &mut both.here] {
            receiver.wait(1 << 45);
            receiver.wait(1 << 45);
            prop_assert_eq!(receiver.inner.occupancy(), Occupancy::default());
            prop_assert_eq!(receiver.inner.next_deadline(), None);
        }
        prop_assert_eq!(&alone.out, &both.here.out);
        prop_assert_eq!(alone.all_discards(), both.here.all_discards());
        let (alone, here) = (alone.inner.counters(), both.here.inner.counters());
        prop_assert_eq!((alone.late, alone.gaps), (here.late, here.gaps));
        prop_assert_eq!(alone.frames, here.frames + both.taken);
    }
}
