//! Limits: per remote, per stream, in total.

use sig_common::reason::DropReason;

use super::*;
use crate::framing::NO_START;

#[test]
fn streams_do_not_mix() {
    let mut receiver = Receiver::new(Limits {
        packets_total: 5,
        packets_per_remote: 3,
        ..small()
    });
    let base = key(0, 1);
    let keys = [
        base,
        StreamKey { stream: 2, ..base },
        StreamKey { session: 2, ..base },
        StreamKey { remote: 1, ..base },
        StreamKey {
            src_port: 1,
            remote: 1,
            ..base
        },
    ];
    let sent: Vec<_> = (0..).map(|n| ipv4(100, n)).zip(keys).collect();
    for (packet, key) in &sent {
        let _ = receiver.frame_of(*key, 0, 0, false, &packet[..50]);
    }
    for (packet, key) in &sent {
        let _ = receiver.frame_of(*key, 1, NO_START, false, &packet[50..]);
    }
    let delivered: Vec<_> = receiver.out.drain(..).map(|d| (d.packet, d.key)).collect();
    assert_eq!(delivered, sent);
}

#[test]
fn reserved_bits_do_not_make_another_stream() {
    let mut receiver = Receiver::new(small());
    let _ = receiver.frame_of(key(0, 5), 0, 0, false, &ipv4(40, 1));
    let _ = receiver.frame_of(key(0, 5 | 1 << 20), 1, 0, false, &ipv4(40, 1));
    assert_eq!(receiver.inner.occupancy().streams, 1);
    assert!(receiver.out.iter().all(|d| d.key == key(0, 5)));
}

#[test]
fn the_least_recently_used_stream_of_the_same_remote_gives_way() {
    let second = 1000 * MS;
    let mut receiver = Receiver::new(small());
    let packet = ipv4(40, 1);
    let _ = receiver.frame_of(key(1, 0), 0, 0, false, &packet);
    for stream in 0..3 {
        receiver.now += 2 * second;
        let _ = receiver.frame_of(key(0, stream), 0, 0, false, &packet);
    }
    receiver.now += 2 * second;
    let _ = receiver.frame_of(key(0, 0), 1, 0, false, &packet);
    let _ = receiver.frame_of(key(0, 3), 0, 0, false, &packet);
    assert_eq!(receiver.inner.counters().streams_evicted, 1);
    for known in [key(1, 0), key(0, 2), key(0, 0)] {
        let outcome = receiver.frame_of(known, 0, 0, false, &packet);
        assert_eq!(
            outcome.reason,
            Some(DropReason::FrameDuplicate),
            "{known:?}"
        );
    }
    let outcome = receiver.frame_of(key(0, 1), 0, 0, false, &packet);
    assert_eq!(outcome.reason, None, "forgotten, so it begins anew");
}

#[test]
fn a_stream_that_gives_way_delivers_what_it_held() {
    let mut receiver = Receiver::new(small());
    let _ = receiver.frame_of(key(0, 0), 3, 0, false, &ipv4(40, 3));
    let _ = receiver.frame_of(key(0, 0), 5, 0, false, &ipv4(90, 5)[..50]);
    for stream in 1..=3 {
        let _ = receiver.frame_of(key(0, stream), 0, 0, false, &ipv4(40, 0));
    }
    assert!(receiver.out.iter().any(|d| d.key == key(0, 0)));
    assert_eq!(receiver.all_discards(), [(DropReason::FrameExpired, 1)]);
    assert_eq!(receiver.inner.occupancy().held, 0);
    assert_eq!(receiver.inner.occupancy().packets, 0);
}

#[test]
fn a_flood_of_streams_from_one_remote_does_not_disturb_another() {
    let mut receiver = Receiver::new(small());
    let packet = ipv4(1000, 1);
    let calm = key(1, 7);
    let mut sequence = 0;
    for stream in 0..1_000 {
        // The flood: starts of packets that never end, and frames ahead of their turn.
        let _ = receiver.frame_of(key(0, stream), 1, 0, false, &packet[..100]);
        let _ = receiver.frame_of(key(0, stream), 0, 0, false, &packet[..100]);
        let _ = receiver.frame_of(key(0, stream), 9, 0, false, &packet[..100]);
        // The calm one: packets in two frames, the second one first.
        let _ = receiver.frame_of(calm, sequence + 1, NO_START, false, &packet[500..]);
        let outcome = receiver.frame_of(calm, sequence, 0, false, &packet[..500]);
        assert_eq!(outcome.delivered, 1);
        assert_eq!(outcome.discarded, 0);
        sequence += 2;
    }
    let occupancy = receiver.inner.occupancy();
    assert!(
        occupancy.streams <= 4 && occupancy.packets <= 2,
        "{occupancy:?}"
    );
}

#[test]
fn a_remote_within_its_share_gets_a_stream_though_others_have_all() {
    let mut receiver = Receiver::new(small());
    let packet = ipv4(40, 1);
    for n in 0..8 {
        let _ = receiver.frame_of(key(n % 3, u32::from(n)), 0, 0, false, &packet);
    }
    assert_eq!(receiver.inner.occupancy().streams, 8);
    let outcome = receiver.frame_of(key(3, 0), 0, 0, false, &packet);
    assert_eq!(outcome.delivered, 1);
    let outcome = receiver.frame_of(key(0, 0), 0, 0, false, &packet);
    assert_eq!(outcome.reason, None, "the oldest one was forgotten");
    let outcome = receiver.frame_of(key(3, 0), 0, 0, false, &packet);
    assert_eq!(outcome.reason, Some(DropReason::FrameDuplicate));
}

#[test]
fn an_unknown_remote_number_is_refused() {
    let mut receiver = Receiver::new(small());
    let outcome = receiver.frame_of(key(4, 0), 0, 0, false, &ipv4(40, 1));
    assert_eq!(outcome.reason, Some(DropReason::StreamLimit));
}

#[test]
fn without_a_buffer_the_oldest_packet_gives_way() {
    let mut receiver = Receiver::new(small());
    let (packet, next) = (ipv4(100, 1), ipv4(40, 2));
    for stream in 0..2 {
        let _ = receiver.frame_of(key(0, stream), 0, 0, false, &packet[..50]);
    }
    let outcome = receiver.frame_of(key(0, 2), 0, 0, false, &packet[..50]);
    assert_eq!(outcome.reason, Some(DropReason::BufferLimit));
    for stream in 0..3 {
        let rest = [&packet[50..], &next].concat();
        let outcome = receiver.frame_of(key(0, stream), 1, 50, false, &rest);
        assert_eq!(
            (outcome.delivered, outcome.discarded),
            (1 + u32::from(stream > 0), 0)
        );
    }
    let outcome = receiver.frame_of(key(1, 0), 0, 0, false, &packet[..50]);
    assert_eq!(outcome.reason, None, "the other remote has its own share");
}

#[test]
fn without_room_to_hold_a_frame_the_wait_ends() {
    let mut receiver = Receiver::new(Limits {
        held_per_remote: 2,
        ..small()
    });
    for n in [0, 2, 4, 6] {
        let _ = receiver.frame(n, 0, &ipv4(40, n as u8));
    }
    let fills: Vec<u8> = receiver.taken().iter().map(|p| p[20]).collect();
    assert_eq!(fills, [0, 2], "6 takes the room of 2");
    assert_eq!(receiver.inner.occupancy().held, 2);
    assert_eq!(receiver.all_discards(), []);
}

#[test]
fn a_frame_without_room_goes_before_those_held() {
    let mut receiver = Receiver::new(Limits {
        held_per_remote: 1,
        ..small()
    });
    for n in [0, 5, 4, 3, 6] {
        let _ = receiver.frame(n, 0, &ipv4(40, n as u8));
    }
    let fills: Vec<u8> = receiver.taken().iter().map(|p| p[20]).collect();
    assert_eq!(fills, [0, 4, 5, 3, 6]);
    assert_eq!(receiver.all_discards(), []);
}

#[test]
fn a_frame_too_long_to_hold_ends_the_wait() {
    let mut receiver = Receiver::new(Limits {
        max_frame_payload: 100,
        ..small()
    });
    let _ = receiver.frame(0, 0, &ipv4(101, 0));
    let _ = receiver.frame(2, 0, &ipv4(100, 2));
    let _ = receiver.frame(4, 0, &ipv4(101, 4));
    let fills: Vec<u8> = receiver.taken().iter().map(|p| p[20]).collect();
    assert_eq!(fills, [0, 2, 4]);
}

#[test]
fn a_forgotten_remote_leaves_nothing_behind() {
    let mut receiver = Receiver::new(small());
    let packet = ipv4(100, 1);
    for remote in 0..2 {
        let _ = receiver.frame_of(key(remote, 1), 0, 0, false, &packet[..50]);
        let _ = receiver.frame_of(key(remote, 1), 3, 0, false, &packet);
    }
    let mut delivered = Vec::new();
    receiver
        .inner
        .forget_remote(0, 0, |key, _, _| delivered.push(key));
    assert_eq!(delivered, [key(0, 1)]);
    receiver.inner.audit().unwrap();
    assert_eq!(
        receiver.inner.occupancy(),
        Occupancy {
            streams: 1,
            packets: 1,
            held: 1
        }
    );
    receiver.inner.forget_remote(0, 60_000, |_, _, _| panic!());
}

#[test]
fn spent_frames_of_others_give_way_when_nothing_is_free() {
    let mut receiver = Receiver::new(Limits {
        held_total: 6,
        held_per_remote: 2,
        remotes: 4,
        ..small()
    });
    // Rests of packets whose starts may still come.
    let rest = [&[9; 20][..], &ipv4(40, 1)].concat();
    for remote in 0..3 {
        for sequence in [100, 102, 104] {
            let _ = receiver.frame_of(key(remote, 1), sequence, 20, false, &rest);
        }
        receiver.wait(MS);
    }
    assert_eq!(receiver.inner.occupancy().held, 6);
    receiver.taken();
    for sequence in [0, 2, 3, 1] {
        let _ = receiver.frame_of(key(3, 1), sequence, 0, false, &ipv4(40, sequence as u8));
    }
    let fills: Vec<u8> = receiver.taken().iter().map(|p| p[20]).collect();
    assert_eq!(fills, [0, 1, 2, 3]);
}
