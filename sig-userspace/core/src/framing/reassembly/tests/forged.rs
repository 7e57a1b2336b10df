//! Frames that somebody else made: they must not cost those who send honestly.

use sig_common::reason::DropReason;

use super::*;
use crate::framing::NO_START;

/// A sender of packets that each take two frames, every `gap` nanoseconds.
struct Honest {
    key: StreamKey,
    sequence: u64,
    sent: u64,
    delivered: u64,
    /// When a packet was delivered last, and the longest time without one.
    last: u64,
    silence: u64,
}

impl Honest {
    fn new(sequence: u64) -> Self {
        Self {
            key: key(0, 1),
            sequence,
            sent: 0,
            delivered: 0,
            last: 0,
            silence: 0,
        }
    }

    fn send(&mut self, receiver: &mut Receiver) {
        let packet = ipv4(1_400, self.sent as u8);
        let (head, tail) = packet.split_at(1_000);
        let _ = receiver.frame_of(self.key, self.sequence, 0, false, head);
        let _ = receiver.frame_of(self.key, self.sequence + 1, NO_START, false, tail);
        self.sequence += 2;
        self.sent += 1;
        let now = receiver.now;
        for got in receiver.out.drain(..) {
            if got.key == self.key && got.packet.len() == 1_400 {
                self.delivered += 1;
                self.silence = self.silence.max(now - self.last);
                self.last = now;
            }
        }
    }
}

fn default_with_few_remotes() -> Receiver {
    let mut receiver = Receiver::new(Limits {
        remotes: 4,
        streams_total: 1_024,
        ..Limits::default()
    });
    receiver.audited = false;
    receiver
}

/// Honest packets every 2 ms for `seconds`, `forge` before each; how many were lost.
fn lost_while(mut forge: impl FnMut(&mut Receiver, &Honest)) -> (u64, u64) {
    let mut receiver = default_with_few_remotes();
    let mut honest = Honest::new(0);
    for _ in 0..500 {
        honest.send(&mut receiver);
        receiver.wait(2 * MS);
    }
    assert_eq!(honest.delivered, 500);
    for _ in 0..1_500 {
        forge(&mut receiver, &honest);
        receiver.wait(MS / 10);
        honest.send(&mut receiver);
        receiver.wait(2 * MS);
    }
    receiver.inner.audit().expect("invariants hold");
    (honest.sent - honest.delivered, honest.silence)
}

#[test]
fn first_parts_of_packets_that_never_end_cost_nothing() {
    for per_packet in [1, 40, 400] {
        let part = ipv4(3_000, 9);
        let mut n = 0u64;
        let (lost, _) = lost_while(|receiver, _| {
            for _ in 0..per_packet {
                n += 1;
                let wild = key(0, 1_000 + (n * 7_919 % (1 << 19)) as u32);
                let _ = receiver.frame_of(wild, n << 20, 0, false, &part[..1_300]);
            }
        });
        assert_eq!(lost, 0, "{per_packet} parts for each packet");
    }
}

#[test]
fn streams_that_delivered_once_do_not_displace_those_that_delivered_much() {
    let part = ipv4(3_000, 9);
    let whole = ipv4(40, 9);
    let mut n = 0u64;
    let (lost, _) = lost_while(|receiver, _| {
        for _ in 0..400 {
            n += 1;
            let wild = key(0, 1_000 + (n * 7_919 % (1 << 19)) as u32);
            let first = n << 20;
            let _ = receiver.frame_of(wild, first, 0, false, &whole);
            let _ = receiver.frame_of(wild, first + 1, 0, false, &part[..1_300]);
            let _ = receiver.frame_of(wild, first + 5, 0, false, &part[..1_300]);
        }
    });
    assert_eq!(lost, 0);
}

#[test]
fn a_number_far_ahead_costs_nothing_once_or_often() {
    for ahead in [70u64, 1_500, 5_000, 1 << 62, u64::MAX / 2 + 9] {
        let mut n = 0;
        let (lost, silence) = lost_while(|receiver, honest| {
            n += 1;
            if n == 1 || n % 5 == 0 && ahead > 100 {
                let sequence = honest.sequence.wrapping_add(ahead + n);
                let _ = receiver.frame_of(honest.key, sequence, 0, false, &ipv4(40, 9));
            }
        });
        // The frame whose number was forged, when its turn comes.
        assert!(lost <= 1, "{lost} lost, {ahead} ahead");
        assert!(silence <= 10 * MS, "{silence} ns, {ahead} ahead");
    }
}

#[test]
fn forged_frames_shortly_ahead_cost_no_more_than_their_own_numbers() {
    for (ahead, often) in [(3u64, 5), (20, 5), (40, 5), (60, 2), (63, 5)] {
        let mut n = 0;
        let (lost, silence) = lost_while(|receiver, honest| {
            n += 1;
            if n % often == 0 {
                let sequence = honest.sequence + ahead;
                let _ = receiver.frame_of(honest.key, sequence, 0, false, &ipv4(40, 9));
            }
        });
        // Each takes the number of one half of a packet.
        assert!(lost <= n / often, "{lost} lost of {n}, {ahead} ahead");
        assert!(silence <= 100 * MS, "{silence} ns, {ahead} ahead");
    }
}

#[test]
fn a_ladder_of_forged_numbers_does_not_lead_away() {
    let mut top = 0;
    let (lost, silence) = lost_while(|receiver, honest| {
        top = honest.sequence.max(top) + 63;
        let _ = receiver.frame_of(honest.key, top, 0, false, &ipv4(40, 9));
    });
    assert!(lost <= 150, "{lost}");
    assert!(silence <= 100 * MS, "{silence} ns");
}

#[test]
fn a_jump_that_goes_on_is_believed_and_nothing_is_lost() {
    let mut receiver = Receiver::new(small());
    let packet = ipv4(1_000, 1);
    let mut sequence = 0;
    for jump in [0u64, 100, 2_000, 5_000, 1 << 50] {
        sequence += jump;
        for _ in 0..200 {
            receiver.now += MS;
            let _ = receiver.frame(sequence, 0, &packet[..600]);
            let _ = receiver.frame(sequence + 1, NO_START, &packet[600..]);
            sequence += 2;
        }
        assert_eq!(receiver.taken().len(), 200, "after a jump of {jump}");
    }
    assert_eq!(receiver.all_discards(), []);
}

#[test]
fn a_sender_that_begins_anew_with_its_stream_is_heard_after_32_frames() {
    let mut receiver = Receiver::new(small());
    let packet = ipv4(40, 1);
    for sequence in 0..5_000 {
        receiver.now += MS / 10;
        let _ = receiver.frame(sequence, 0, &packet);
    }
    receiver.out.clear();
    receiver.now += 1_000 * MS;
    for sequence in 0..5_000 {
        receiver.now += MS / 10;
        let _ = receiver.frame(sequence, 0, &packet);
    }
    assert_eq!(receiver.taken().len(), 5_000 - 31);
    assert_eq!(receiver.all_discards(), [(DropReason::FrameOld, 31)]);
}

#[test]
fn old_frames_between_new_ones_are_no_new_beginning() {
    let mut receiver = Receiver::new(small());
    let packet = ipv4(40, 1);
    for sequence in 0..5_000 {
        let _ = receiver.frame(sequence, 0, &packet);
    }
    receiver.out.clear();
    for n in 0..1_000 {
        let _ = receiver.frame(n, 0, &packet);
        if n % 20 == 0 {
            let _ = receiver.frame(5_000 + n / 20, 0, &packet);
        }
    }
    assert_eq!(receiver.taken().len(), 50);
}

#[test]
fn under_pressure_few_new_streams_take_the_place_of_others() {
    let mut receiver = default_with_few_remotes();
    let packet = ipv4(40, 1);
    let mut stream = 1_000;
    let mut wild = |receiver: &mut Receiver, frames: u32| {
        for _ in 0..frames {
            stream += 1;
            let _ = receiver.frame_of(key(0, stream), 0, 0, false, &packet);
        }
        receiver.taken().len()
    };
    for sequence in 0..100 {
        receiver.now += 2 * MS;
        let _ = receiver.frame_of(key(0, 5), sequence, 0, false, &packet);
    }
    receiver.out.clear();
    // As long as there is room, and without pressure, all may begin.
    receiver.inner.begin_batch(true);
    assert_eq!(wild(&mut receiver, 255), 255);
    receiver.inner.begin_batch(false);
    assert_eq!(wild(&mut receiver, 60), 60);
    receiver.inner.begin_batch(true);
    assert_eq!(wild(&mut receiver, 60), 4);
    assert_eq!(receiver.discards(DropReason::NewStreamLimit), 56);
    // A stream that has delivered may go on after a long gap.
    let _ = receiver.frame_of(key(0, 5), 1_000, 0, false, &packet);
    assert_eq!(receiver.taken().len(), 1);
    // Another remote is not concerned, nor are known streams.
    for sequence in 0..60 {
        let _ = receiver.frame_of(key(1, 7), sequence, 0, false, &packet);
    }
    assert_eq!(receiver.taken().len(), 60);
    receiver.inner.begin_batch(true);
    assert_eq!(wild(&mut receiver, 60), 4);
}

#[test]
fn a_remote_that_has_filled_the_buffers_does_not_starve_another() {
    let mut receiver = Receiver::new(Limits {
        packets_total: 4,
        packets_per_remote: 2,
        ..small()
    });
    let packet = ipv4(100, 1);
    for stream in 0..4 {
        let _ = receiver.frame_of(key(stream as u16 / 2, stream), 0, 0, false, &packet[..50]);
    }
    assert_eq!(receiver.inner.occupancy().packets, 4);
    let _ = receiver.frame_of(key(2, 0), 0, 0, false, &packet[..50]);
    let outcome = receiver.frame_of(key(2, 0), 1, NO_START, false, &packet[50..]);
    assert_eq!(outcome.delivered, 1);
}

/// Honest frames of one packet each, every `gap`, and now and then a forged one full of packets,
/// first and after every 30 of them: how many packets of the honest ones were lost.
fn lost_at_pace(gap: u64, number: impl Fn(u64, u64) -> u64) -> u64 {
    let mut receiver = default_with_few_remotes();
    let full = ipv4(20, 9).repeat(170);
    let mut forged = 0;
    let mut delivered = 0;
    for sequence in 0..900 {
        receiver.wait(gap - gap / 20);
        if sequence >= 300 && sequence % 30 == 0 {
            for _ in 0..if forged == 0 { 2 } else { 1 } {
                let forged_number = number(sequence, forged);
                let _ = receiver.frame_of(key(0, 1), forged_number, 0, false, &full);
                forged += 1;
            }
        }
        receiver.wait(gap / 20);
        let _ = receiver.frame(sequence, 0, &ipv4(100, sequence as u8));
        receiver.out.retain(|got| got.packet.len() == 100);
        delivered += receiver.out.drain(..).count() as u64;
    }
    receiver.wait(100 * MS);
    receiver.inner.audit().expect("invariants hold");
    900 - delivered
        - receiver
            .out
            .iter()
            .filter(|got| got.packet.len() == 100)
            .count() as u64
}

#[test]
fn forged_frames_far_away_cost_a_stream_of_any_pace_nothing() {
    for gap in [MS / 10, 2 * MS, 20 * MS, 25 * MS, 100 * MS, 1_000 * MS] {
        let lost = lost_at_pace(gap, |_, forged| (1 << 62) + forged);
        assert_eq!(lost, 0, "a run of its own, {gap} ns");
        let lost = lost_at_pace(gap, |_, forged| (1 << 62) + (forged << 30));
        assert_eq!(lost, 0, "everywhere, {gap} ns");
        let lost = lost_at_pace(gap, |honest, forged| honest + 30_000 + forged);
        assert_eq!(lost, 0, "not reached, {gap} ns");
    }
}

#[test]
fn forged_frames_near_a_stream_of_any_pace_cost_no_more_than_their_own_numbers() {
    for gap in [MS / 10, 2 * MS, 20 * MS, 25 * MS, 100 * MS, 1_000 * MS] {
        for ahead in [5, 60, 100, 300] {
            let lost = lost_at_pace(gap, |honest, forged| honest + ahead + forged % 2);
            assert!(lost <= 21, "{lost} lost, {ahead} ahead, {gap} ns");
        }
        // Ever higher, each as far from the last as a line reaches.
        let lost = lost_at_pace(gap, |_, forged| 310 + forged * 63);
        assert!(lost <= 21, "{lost} lost on a ladder, {gap} ns");
        let lost = lost_at_pace(gap, |_, forged| 310 + forged * 1_000);
        assert!(lost <= 21, "{lost} lost on wide steps, {gap} ns");
    }
}

#[test]
fn a_trap_below_and_above_does_not_silence_a_stream() {
    // Lines far away displace that of a slow stream, then a ladder spans its numbers.
    let mut receiver = default_with_few_remotes();
    let full = ipv4(20, 9).repeat(170);
    let mut delivered = 0;
    for sequence in 10_000..10_600u64 {
        if sequence == 10_300 {
            for far in 1..6 {
                let _ = receiver.frame_of(key(0, 1), far << 40, 0, false, &full);
            }
            for step in 0..80 {
                let _ = receiver.frame_of(key(0, 1), sequence - 10 + step * 63, 0, false, &full);
                receiver.wait(2 * MS);
            }
        } else if sequence > 10_300 && sequence % 30 == 0 {
            let _ = receiver.frame_of(key(0, 1), sequence - 100, 0, false, &full);
        }
        receiver.wait(1_000 * MS);
        let _ = receiver.frame(sequence, 0, &ipv4(100, sequence as u8));
        receiver.out.retain(|got| got.packet.len() == 100);
        delivered += receiver.out.drain(..).count();
    }
    assert!(delivered >= 580, "{delivered} of 600");
}

#[test]
fn streams_full_of_packets_do_not_keep_out_those_that_begin() {
    let mut receiver = default_with_few_remotes();
    let full = ipv4(20, 9).repeat(170);
    for n in 0..300 {
        for stream in 1_000..1_256 {
            let _ = receiver.frame_of(key(0, stream), n, 0, false, &full);
        }
        receiver.wait(10 * MS);
    }
    receiver.out.clear();
    // The rest of each packet comes behind the first frames of other streams.
    let packet = ipv4(1_400, 1);
    let mut wild = 2_000;
    for n in 0..200 {
        let _ = receiver.frame_of(key(0, 1), 2 * n, 0, false, &packet[..1_000]);
        for _ in 0..40 {
            let _ = receiver.frame_of(key(0, wild), 0, 0, false, &full);
            wild += 1;
        }
        let _ = receiver.frame_of(key(0, 1), 2 * n + 1, NO_START, false, &packet[1_000..]);
        receiver.wait(2 * MS);
    }
    let whole = receiver.out.iter().filter(|got| got.packet == packet);
    assert_eq!(whole.count(), 200);
}
