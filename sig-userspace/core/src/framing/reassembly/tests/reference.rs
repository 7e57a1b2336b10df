//! The vectors of the reference's worker tests, one worker, one stream.
//!
//! Its pseudo headers have a header length of 0, which is refused here: ours say 5. Its step 9,
//! old sequence numbers accepted while nothing is pending, is different on purpose: refused.

use sig_common::reason::DropReason;

use super::*;
use crate::framing::NO_START;

fn h4(len: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend(len.to_be_bytes());
    packet.resize(20, 0);
    packet.extend(payload);
    packet
}

fn h6(payload_len: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend(payload_len.to_be_bytes());
    packet.resize(40, 0);
    packet.extend(payload);
    packet
}

/// Steps 1 to 9 with what each delivers once the window has passed.
fn steps(mut receiver: Receiver) {
    let abc = h4(23, b"efg");
    let other = h4(23, &[0xc9, 0xca, 0xcb]);
    let whole = h4(28, &[0x33, 0x34, 0x35, 0x36, 0x37, 0x38, 0x39, 0x3a]);
    let (head, tail) = whole.split_at(26);
    let last = h4(23, &[0x3d, 0x3e, 0x3f]);

    let mut step = |frames: &[(u16, u64, Vec<u8>)], expected: &[&Vec<u8>]| {
        for (index, sequence, payload) in frames {
            let _ = receiver.frame(*sequence, *index, payload);
        }
        receiver.wait(MS);
        let taken = receiver.taken();
        assert_eq!(taken.iter().collect::<Vec<_>>(), expected, "{frames:?}");
    };

    step(&[(0, 1, abc.clone())], &[&abc]);
    let v6 = h6(3, b"efg");
    step(&[(0, 2, v6.clone())], &[&v6]);
    step(&[(0, 3, [&abc[..], &other].concat())], &[&abc, &other]);
    step(
        &[(0, 4, head.to_vec()), (NO_START, 5, tail.to_vec())],
        &[&whole],
    );
    step(
        &[(0, 6, head.to_vec()), (2, 7, [tail, &last].concat())],
        &[&whole, &last],
    );
    step(
        &[(0, 8, abc.clone()), (0, 10, other.clone())],
        &[&abc, &other],
    );
    step(
        &[
            (0, 11, head.to_vec()),
            (8, 13, [&[0x46; 8], &other[..]].concat()),
        ],
        &[&other],
    );
    let fine = h4(23, &[0x51, 0x52, 0x53]);
    let behind = h4(23, &[0x5b, 0x5c, 0x5d]);
    let garbage = [
        0x50, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 16, 18, 19, 20,
    ];
    step(
        &[
            (0, 14, [&fine[..], &garbage].concat()),
            (8, 15, [&[0x15; 8], &behind[..]].concat()),
        ],
        &[&fine, &behind],
    );
    let three = h4(30, &[0x33; 10]);
    step(
        &[
            (0, 4, three[..26].to_vec()),
            (NO_START, 5, three[26..28].to_vec()),
            (NO_START, 6, three[28..].to_vec()),
        ],
        &[],
    );
    step(
        &[
            (0, 16, three[..26].to_vec()),
            (NO_START, 17, three[26..28].to_vec()),
            (NO_START, 18, three[28..].to_vec()),
        ],
        &[&three],
    );

    receiver.wait(100 * MS);
    assert_eq!(
        receiver.all_discards(),
        [
            // 13 and 15 begin with tails of nothing.
            (DropReason::FrameOld, 0),
            (DropReason::FrameDuplicate, 3),
            (DropReason::FrameGap, 2),
            (DropReason::FrameEvicted, 1),
            (DropReason::FrameInvalidPacket, 1),
        ]
        .into_iter()
        .filter(|&(_, count)| count > 0)
        .collect::<Vec<_>>()
    );
}

#[test]
fn the_reference_steps_hold_with_the_window() {
    steps(Receiver::new(small()));
}

#[test]
fn the_reference_steps_hold_without_the_window() {
    steps(Receiver::without_window());
}

#[test]
fn while_a_packet_is_pending_old_frames_duplicates_and_gaps_are_told_apart() {
    let mut receiver = Receiver::without_window();
    let packet = ipv4(1000, 7);
    let _ = receiver.frame(4, 0, &packet[..400]);
    let _ = receiver.frame(5, NO_START, &packet[400..700]);
    let early = ipv4(20, 0);
    let _ = receiver.frame(3, 0, &early);
    assert_eq!(receiver.taken(), [early]);
    for sequence in [4, 5] {
        let outcome = receiver.frame(sequence, 0, &ipv4(20, 0));
        assert_eq!(outcome.reason, Some(DropReason::FrameDuplicate));
    }
    let next = ipv4(50, 1);
    let _ = receiver.frame(7, 0, &next);
    assert_eq!(receiver.taken(), [next]);
    receiver.wait(100 * MS);
    assert_eq!(receiver.discards(DropReason::FrameEvicted), 1);
}

#[test]
fn a_packet_over_100_frames_is_delivered_and_one_over_101_is_not() {
    for (frames, delivered) in [(100, 1), (101, 0)] {
        let mut receiver = Receiver::without_window();
        let packet = ipv4(20 * frames, 3);
        let mut last = Outcome::default();
        for (n, part) in packet.chunks(20).enumerate() {
            last = receiver.frame(n as u64, if n == 0 { 0 } else { NO_START }, part);
        }
        assert_eq!(receiver.out.len(), delivered);
        assert_eq!(
            last.reason,
            (delivered == 0).then_some(DropReason::FrameTooManyParts)
        );
        let next = ipv4(30, 4);
        let _ = receiver.frame(u64::from(frames), 0, &next);
        assert_eq!(receiver.taken().last(), Some(&next));
    }
}

#[test]
fn a_continuation_with_too_few_bytes_ends_the_packet() {
    let mut receiver = Receiver::without_window();
    let packet = ipv4(1000, 7);
    let next = ipv4(23, 8);
    let _ = receiver.frame(1, 0, &packet[..400]);
    let outcome = receiver.frame(2, 8, &[&packet[400..408], &next[..]].concat());
    assert_eq!(outcome.reason, Some(DropReason::IndexMismatch));
    assert_eq!(
        receiver.taken(),
        [next],
        "the frame's own packet is not lost"
    );
}
