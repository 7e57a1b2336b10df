//! Packets and frames larger than a chunk.

use super::*;

fn jumbo(number: u8, path_mtu: usize, frames: u32) -> Gateway {
    let memory = Area::on_heap_with_jumbo(CHUNKS, frames);
    gateway_in(memory, number, path_mtu, true)
}

fn assert_crosses(a: &mut Gateway, b: &mut Gateway, packets: &[Vec<u8>]) -> Packets {
    let (frames, answers) = a.send_lan(packets);
    assert!(answers.is_empty());
    let arrived = b.send_underlay(0, &frames);
    let expected: Packets = packets.iter().cloned().map(one_hop_on).collect();
    assert_eq!(arrived.len(), expected.len());
    assert!(arrived == expected, "a packet has changed");
    frames
}

#[test]
fn jumbo_packets_cross_in_frames_of_any_size() {
    for path_mtu in [300, 1472, 4000, 8900, 9188] {
        let (mut a, mut b) = (jumbo(1, path_mtu, 24), jumbo(2, path_mtu, 24));
        for payload in [3500, 3600, 4068, 8000, 8700, 8900, 9188] {
            for packet in [udp(payload, 1, 64), udp6(payload - 20, 64)] {
                if payload / path_mtu < 20 {
                    let frames = assert_crosses(&mut a, &mut b, &[packet]);
                    // Ethernet, IP and UDP around the SCION packet.
                    assert!(frames.iter().all(|frame| frame.len() <= path_mtu + 42));
                }
            }
        }
        let mixed = [8000, 10, 5000, 3000, 20, 9000, 1400].map(|len| udp(len, 3, 64));
        if path_mtu > 1000 {
            assert_crosses(&mut a, &mut b, &mixed);
        }
        a.assert_no_chunk_is_lost();
        b.assert_no_chunk_is_lost();
    }
}

#[test]
fn packets_share_a_jumbo_frame_as_long_as_there_are_some() {
    let packets: Packets = (0..40).map(|n| udp(1300 + n, 1, 64)).collect();
    for (jumbo_frames, at_least, most) in [(16, 4096, 8), (1, 2500, 20), (0, 2500, 20)] {
        let (mut a, mut b) = (jumbo(1, 8900, jumbo_frames), jumbo(2, 8900, 16));
        let frames = assert_crosses(&mut a, &mut b, &packets);
        assert!(frames.len() <= most, "{} frames", frames.len());
        let longest = frames.iter().map(Vec::len).max();
        assert!(longest > Some(at_least), "{longest:?}");
        assert_eq!(a.drops(DropReason::NoFreeChunk), 0);
        a.assert_no_chunk_is_lost();
        b.assert_no_chunk_is_lost();
    }
}

#[test]
fn a_packet_without_a_frame_to_be_put_together_in_is_counted() {
    let (mut a, mut b) = (jumbo(1, 1472, 2), gateway(2, 1472));
    let (frames, _) = a.send_lan(&[udp(8000, 1, 64), udp(100, 2, 64)]);
    assert_eq!(b.send_underlay(0, &frames), [one_hop_on(udp(100, 2, 64))]);
    assert_eq!(b.drops(DropReason::PacketTooBig), 1);
    let (mut a, mut b) = (jumbo(1, 1472, 2), jumbo(2, 1472, 1));
    let held = b.worker.memory().1.take_jumbo().expect("one is free");
    let (frames, _) = a.send_lan(&[udp(8000, 1, 64), udp(100, 2, 64)]);
    assert_eq!(b.send_underlay(0, &frames), [one_hop_on(udp(100, 2, 64))]);
    assert_eq!(b.drops(DropReason::NoFreeChunk), 1);
    b.worker.memory().1.put(held);
    b.assert_no_chunk_is_lost();
    a.assert_no_chunk_is_lost();
}

#[test]
fn what_the_tunnel_device_does_not_take_is_counted_and_its_sender_told() {
    let (mut a, mut b) = (jumbo(1, 8900, 8), jumbo(2, 8900, 8));
    b.tables.tunnel_mtu = 1500;
    for packet in [udp(3000, 1, 64), udp6(8000, 64)] {
        let (frames, _) = a.send_lan(&[packet.clone(), udp(1472, 2, 64)]);
        let arrived = b.send_underlay(0, &frames);
        let (answer, fits) = match &arrived[..] {
            [answer, fits] => (summary(answer), fits),
            other => panic!("{other:?}"),
        };
        assert_eq!(*fits, one_hop_on(udp(1472, 2, 64)));
        assert_eq!(answer.destination, summary(&packet).source);
        let message = answer.payload(&arrived[0]).expect("a payload");
        // Fragmentation needed, packet too big: the MTU is in the last two bytes of the second word of both.
        let kind = if packet[0] >> 4 == 4 { [3, 4] } else { [2, 0] };
        assert_eq!((&message[..2], &message[6..8]), (&kind[..], &[5, 0xdc][..]));
    }
    assert_eq!(b.drops(DropReason::PacketTooBig), 2);
    a.assert_no_chunk_is_lost();
    b.assert_no_chunk_is_lost();
}
