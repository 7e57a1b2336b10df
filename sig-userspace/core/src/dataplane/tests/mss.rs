//! The maximum segment size of TCP connections through the gateways.

use etherparse::{SlicedPacket, TcpOptionElement, TransportSlice};

use super::*;

/// What fits a frame of these gateways.
fn capacity(gateway: &Gateway) -> usize {
    gateway.tables.paths[0].packer.capacity()
}

/// A SYN that announces this size.
fn syn(v6: bool, size: u16) -> Vec<u8> {
    let options = [
        TcpOptionElement::Noop,
        TcpOptionElement::MaximumSegmentSize(size),
    ];
    let mut packet = Vec::new();
    let (v4, ip6) = (
        [[10, 1, 0, 5], [10, 2, 0, 6]],
        [1, 2].map(|n| {
            let mut address = [0u8; 16];
            (address[0], address[3]) = (0xfd, n);
            address
        }),
    );
    let builder = match v6 {
        false => PacketBuilder::ipv4(v4[0], v4[1], 64),
        true => PacketBuilder::ipv6(ip6[0], ip6[1], 64),
    };
    let builder = builder.tcp(40000, 443, 1, 65535).syn();
    let builder = builder.options(&options).expect("options");
    builder.write(&mut packet, &[]).expect("a packet");
    packet
}

/// The size that a SYN announces, whose checksum is right.
fn announced(packet: &[u8]) -> u16 {
    let sliced = SlicedPacket::from_ip(packet).expect("an IP packet");
    let Some(TransportSlice::Tcp(tcp)) = &sliced.transport else {
        panic!("not TCP");
    };
    let header = tcp.to_header();
    let expected = match sliced.net {
        Some(etherparse::NetSlice::Ipv4(ip)) => {
            header.calc_checksum_ipv4(&ip.header().to_header(), &[])
        }
        Some(etherparse::NetSlice::Ipv6(ip)) => {
            header.calc_checksum_ipv6(&ip.header().to_header(), &[])
        }
        _ => panic!("not IP"),
    };
    assert_eq!(header.checksum, expected.expect("a checksum"));
    let mut options = header.options_iterator();
    options
        .find_map(|option| match option {
            Ok(TcpOptionElement::MaximumSegmentSize(size)) => Some(size),
            _ => None,
        })
        .expect("the option")
}

#[test]
fn segments_fit_a_frame_in_both_directions() {
    for (v6, headers) in [(false, 40), (true, 60)] {
        // The sender's gateway knows the smaller frames, then the receiver's.
        for mtus in [(1400, 1472), (1472, 1400)] {
            let (mut a, mut b) = (gateway(1, mtus.0), gateway(2, mtus.1));
            let smallest = capacity(&a).min(capacity(&b));
            let (frames, _) = a.send_lan(&[syn(v6, 1460), syn(v6, 600)]);
            let received = b.send_underlay(0, &frames);
            let sizes: Vec<u16> = received.iter().map(|packet| announced(packet)).collect();
            assert_eq!(sizes, [(smallest - headers) as u16, 600]);
            let clamped = [&a, &b].map(|gateway| gateway.worker.counters().mss_clamped.get());
            assert_eq!(clamped[0], 1);
            assert_eq!(clamped[1], u64::from(mtus.1 < mtus.0));
            a.assert_no_chunk_is_lost();
            b.assert_no_chunk_is_lost();
        }
    }
}

#[test]
fn no_size_is_lowered_below_what_every_host_takes() {
    let (mut a, mut b) = (gateway(1, 300), gateway(2, 300));
    let (frames, _) = a.send_lan(&[syn(false, 1460)]);
    assert_eq!(announced(&b.send_underlay(0, &frames)[0]), 536);
}

#[test]
fn it_can_be_switched_off() {
    let [mut a, mut b] = [1, 2].map(|number| gateway_with(number, 1400, false));
    let (frames, _) = a.send_lan(&[syn(false, 1460)]);
    assert_eq!(announced(&b.send_underlay(0, &frames)[0]), 1460);
    assert_eq!(a.worker.counters().mss_clamped.get(), 0);
}
