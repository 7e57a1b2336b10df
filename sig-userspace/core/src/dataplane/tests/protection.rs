//! Frames under a key, through whole workers.

use sig_common::wire::{
    sig_frame::{PROTECTION_LEN, VERSION_PROTECTED},
    underlay,
};

use super::*;
use crate::{
    framing::Packer,
    protection::{Keyring, tests::pair},
};

const MS: u64 = 1_000_000;

/// Lets frames from `a` to `b` be protected, and `b` refuse others.
fn protect(a: &mut Gateway, b: &mut Gateway, is_strict: bool) {
    let (send, receive) = pair(7, 1);
    let rings: [Arc<Keyring>; 2] = Default::default();
    rings[0].set_send(Some(send));
    rings[1].set_receive(vec![receive]);
    let path = &mut a.tables.paths[0];
    path.id += 100;
    path.template = path.template.protected();
    path.packer = Packer::new(path.packer.capacity() - PROTECTION_LEN).expect("room");
    path.keyring = Some(rings[0].clone());
    a.tables.generation += 100;
    let remote = &b.tables.remotes[0];
    let source = (remote.isd_as, remote.host);
    b.tables
        .protect_remote(source, Some(rings[1].clone()), is_strict);
    b.tables.generation += 100;
}

/// Where the SIG frame begins in a frame of these gateways.
const FRAME: usize = 14 + 28 + 12 + 24 + PATH.len() + 8;

#[test]
fn packets_of_every_size_cross_under_protection() {
    for path_mtu in [300, 1280, 1472, 3200] {
        let (mut a, mut b) = (gateway(1, path_mtu), gateway(2, path_mtu));
        protect(&mut a, &mut b, true);
        for payload in [
            0, 1, 20, 100, 1000, 1100, 1120, 1128, 1132, 1300, 1320, 1348, 1472, 2800, 3400, 3460,
        ] {
            for packet in [udp(payload, 4000, 64), udp6(payload, 64)] {
                let (frames, icmp) = a.send_lan(std::slice::from_ref(&packet));
                assert!(icmp.is_empty());
                for frame in &frames {
                    assert!(frame.len() <= 14 + 28 + path_mtu, "{payload}");
                    assert_eq!(frame[FRAME], VERSION_PROTECTED);
                    let parsed = underlay::parse(frame.as_slice(), &b.tables.local);
                    let parsed = parsed.expect("a sound frame").expect("for the gateway");
                    assert!(parsed.is_protected && parsed.checksum_is_valid(frame));
                    // The payload is not to be seen.
                    let end = &packet[packet.len() - 16.min(packet.len())..];
                    assert!(payload < 16 || !frame.windows(16).any(|part| part == end));
                }
                assert_eq!(b.send_underlay(0, &frames), [one_hop_on(packet)]);
            }
        }
        a.assert_no_chunk_is_lost();
        b.assert_no_chunk_is_lost();
    }
}

#[test]
fn packets_that_wait_together_share_protected_frames() {
    let (mut a, mut b) = (gateway(1, 1472), gateway(2, 1472));
    protect(&mut a, &mut b, true);
    let small = (0..40).map(|n| udp(72, 1000 + n, 64));
    let large = (0..20).map(|n| udp(1472, n, 64));
    for packets in [small.collect::<Vec<_>>(), large.collect()] {
        let (frames, _) = a.send_lan(&packets);
        assert!(frames.iter().all(|frame| frame.len() <= 14 + 28 + 1472));
        let expected: Vec<Vec<u8>> = packets.into_iter().map(one_hop_on).collect();
        assert_eq!(b.send_underlay(0, &frames), expected);
    }
    let sent = a.worker.counters().sent.frames.get();
    assert_eq!(a.worker.counters().frames_protected.get(), sent);
    assert_eq!(b.worker.counters().frames_opened.get(), sent);
    a.assert_no_chunk_is_lost();
    b.assert_no_chunk_is_lost();
}

#[test]
fn what_is_forged_or_comes_again_leaves_no_trace() {
    let (mut a, mut b) = (gateway(1, 1472), gateway(2, 1472));
    let (mut stranger, mut other) = (gateway(1, 1472), gateway(2, 1472));
    protect(&mut a, &mut b, true);
    protect(&mut stranger, &mut other, true);
    let other_key = Arc::new(Keyring::default());
    other_key.set_send(Some(pair(7 + 256, 1).0));
    stranger.tables.paths[0].keyring = Some(other_key);
    let (unknown, _) = stranger.send_lan(&[udp(1000, 6, 64)]);
    let mut plain = gateway(1, 1472);
    for number in 0..200 {
        let packets = [udp(900, number, 64)];
        let (honest, _) = a.send_lan(&packets);
        let mut forged = honest.clone();
        forged[0][FRAME + 100] ^= 1;
        assert_eq!(b.send_underlay(u64::from(number) * MS, &forged).len(), 0);
        let (unprotected, _) = plain.send_lan(&[udp(3000, number, 64)]);
        for frames in [&unprotected, &unknown] {
            assert_eq!(b.send_underlay(u64::from(number) * MS, frames).len(), 0);
        }
        let delivered = b.send_underlay(u64::from(number) * MS, &honest);
        assert_eq!(delivered, packets.map(one_hop_on));
        assert_eq!(b.send_underlay(u64::from(number) * MS, &honest).len(), 0);
    }
    assert_eq!(b.drops(DropReason::Forged), 200);
    assert_eq!(b.drops(DropReason::Replayed), 200);
    assert_eq!(b.drops(DropReason::UnknownKey), 200);
    assert_eq!(b.drops(DropReason::Unprotected), 600);
    let counters = b.worker.counters();
    assert_eq!((counters.frames_held.get(), counters.gaps.get()), (0, 0));
    assert_eq!(counters.received.frames.get(), 200);
    for gateway in [a, b, stranger, other, plain] {
        gateway.assert_no_chunk_is_lost();
    }
}

#[test]
fn without_a_key_nothing_is_sent_and_nothing_protected_is_taken() {
    let (mut a, mut b) = (gateway(1, 1472), gateway(2, 1472));
    protect(&mut a, &mut b, false);
    let (frames, _) = a.send_lan(&[udp(100, 1, 64)]);
    let mut plain = gateway(2, 1472);
    assert_eq!(plain.send_underlay(0, &frames).len(), 0);
    assert_eq!(plain.drops(DropReason::UnknownKey), 1);
    // Who is not strict takes both.
    let mut unprotected = gateway(1, 1472);
    unprotected.tables.paths[0].streams = Box::new([78]);
    let (unprotected, _) = unprotected.send_lan(&[udp(100, 2, 64)]);
    assert_eq!(b.send_underlay(0, &unprotected).len(), 1);
    assert_eq!(b.send_underlay(0, &frames).len(), 1);
    let keyring = a.tables.paths[0].keyring.clone().expect("a keyring");
    keyring.set_send(None);
    let (frames, _) = a.send_lan(&[udp(100, 3, 64)]);
    assert!(frames.is_empty());
    assert_eq!(a.drops(DropReason::NoKey), 1);
    a.assert_no_chunk_is_lost();
    b.assert_no_chunk_is_lost();
}
