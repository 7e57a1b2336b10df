//! Flows stay together and spread.

use proptest::prelude::*;
use sig_common::wire::flow::flow_hash;
use sig_common::wire::inner::InnerPacket;
use sig_common::wire::{ipv4, ipv6};

fn v4(source: u32, destination: u32, protocol: u8, ports: [u16; 2]) -> Vec<u8> {
    let header = ipv4::Header {
        tos: 0,
        total_len: 28,
        identification: 0,
        dont_fragment: false,
        ttl: 64,
        protocol,
        source: source.to_be_bytes(),
        destination: destination.to_be_bytes(),
    };
    let mut packet = header.encode().to_vec();
    packet.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
    packet.extend([0; 4]);
    packet
}

/// `chain`: type and bytes of each extension header, then protocol and bytes of the upper layer.
fn v6(source: u128, destination: u128, chain: &[(u8, usize)], ports: [u16; 2]) -> Vec<u8> {
    let len: usize = chain.iter().map(|header| header.1).sum();
    let header = ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        payload_len: len as u16,
        next_header: chain[0].0,
        hop_limit: 64,
        source: source.to_be_bytes(),
        destination: destination.to_be_bytes(),
    };
    let mut packet = vec![0; 40];
    header.emit(&mut packet).unwrap();
    for pair in chain.windows(2) {
        let mut extension = vec![0; pair[0].1];
        extension[0] = pair[1].0;
        if pair[0].0 != ipv6::FRAGMENT {
            extension[1] = (extension.len() / 8 - 1) as u8;
        }
        packet.extend(extension);
    }
    packet.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
    packet.extend([0; 4]);
    packet
}

fn hash(packet: &[u8]) -> u32 {
    flow_hash(&InnerPacket::parse(packet).expect("a packet"))
}

#[test]
fn ports_make_flows_of_tcp_udp_and_sctp_only() {
    for protocol in [6, 17, 132] {
        assert_ne!(
            hash(&v4(1, 2, protocol, [1, 2])),
            hash(&v4(1, 2, protocol, [2, 1]))
        );
        let chain = [(protocol, 8)];
        assert_ne!(
            hash(&v6(1, 2, &chain, [1, 2])),
            hash(&v6(1, 2, &chain, [2, 1]))
        );
    }
    for protocol in [1, 47, 50, 58] {
        assert_eq!(
            hash(&v4(1, 2, protocol, [1, 2])),
            hash(&v4(1, 2, protocol, [2, 1]))
        );
        let chain = [(protocol, 8)];
        assert_eq!(
            hash(&v6(1, 2, &chain, [1, 2])),
            hash(&v6(1, 2, &chain, [2, 1]))
        );
    }
}

#[test]
fn addresses_and_protocol_make_flows() {
    let flow = v4(1, 2, 17, [1, 2]);
    for other in [
        v4(3, 2, 17, [1, 2]),
        v4(1, 3, 17, [1, 2]),
        v4(1, 2, 6, [1, 2]),
    ] {
        assert_ne!(hash(&flow), hash(&other));
    }
    assert_ne!(hash(&v4(1, 2, 17, [1, 2])), hash(&v4(2, 1, 17, [1, 2])));
    let udp = [(17, 8)];
    let flow = v6(1, 2, &udp, [1, 2]);
    for other in [
        v6(1 << 64, 2, &udp, [1, 2]),
        v6(1, 3, &udp, [1, 2]),
        v6(1, 2, &[(6, 8)], [1, 2]),
    ] {
        assert_ne!(hash(&flow), hash(&other));
    }
}

#[test]
fn all_fragments_of_a_datagram_are_one_flow() {
    let whole = v4(1, 2, 17, [1, 2]);
    let fragment = |flags_and_offset: u16, ports| {
        let mut packet = v4(1, 2, 17, ports);
        packet[6..8].copy_from_slice(&flags_and_offset.to_be_bytes());
        hash(&packet)
    };
    let first = fragment(0x2000, [1, 2]);
    assert_eq!(first, fragment(0x2001, [77, 78]));
    assert_eq!(first, fragment(0x0002, [79, 80]));
    assert_eq!(
        fragment(0x4000, [1, 2]),
        hash(&whole),
        "don't fragment is no fragment"
    );

    let first = hash(&v6(1, 2, &[(44, 8), (17, 8)], [1, 2]));
    assert_eq!(first, hash(&v6(1, 2, &[(44, 8), (17, 8)], [77, 78])));
    assert_eq!(first, hash(&v6(1, 2, &[(44, 8), (60, 8)], [77, 78])));
    assert_eq!(
        first,
        hash(&v6(1, 2, &[(0, 8), (43, 24), (44, 8), (17, 8)], [1, 2]))
    );
}

#[test]
fn ipv6_extension_headers_do_not_change_the_flow() {
    let plain = hash(&v6(1, 2, &[(17, 8)], [1, 2]));
    for chain in [
        &[(0, 8), (17, 8)][..],
        &[(60, 2048), (17, 8)],
        &[(0, 16), (60, 8), (43, 24), (60, 8), (17, 8)],
    ] {
        assert_eq!(plain, hash(&v6(1, 2, chain, [1, 2])), "{chain:?}");
    }
    // Too many to follow: still one flow, without ports.
    let five = [(0, 8), (60, 8), (43, 24), (60, 8), (60, 8), (17, 8)];
    assert_eq!(
        hash(&v6(1, 2, &five, [1, 2])),
        hash(&v6(1, 2, &five, [3, 4]))
    );
}

#[test]
fn ipv4_options_do_not_change_the_flow() {
    let plain = v4(1, 2, 17, [1, 2]);
    let mut options = plain.clone();
    options[0] = 0x47;
    options[3] += 8;
    options.splice(20..20, [1; 8]);
    assert_eq!(hash(&plain), hash(&options));
}

#[test]
fn what_is_behind_a_packet_is_no_part_of_its_flow() {
    let mut packet = v4(1, 2, 17, [1, 2]);
    packet[3] = 23;
    let cut = hash(&packet[..23]);
    assert_eq!(hash(&packet), cut);
    packet[20] = 9;
    assert_eq!(hash(&packet), cut);
    let mut packet = v6(1, 2, &[(60, 8), (17, 8)], [1, 2]);
    packet[5] = 8 + 3;
    assert_eq!(hash(&packet), hash(&packet[..51]));
}

/// No bucket may hold much more than its share, for any part of the hash.
fn assert_spread(name: &str, hashes: &[u32]) {
    for shift in [0, 12, 24] {
        for buckets in [2, 3, 4, 7, 8, 16, 64] {
            let mut counts = vec![0u32; buckets];
            for hash in hashes {
                counts[(hash >> shift) as usize % buckets] += 1;
            }
            let share = hashes.len() as f64 / buckets as f64;
            // Six standard deviations of a random spread; a 256th is what is left of 8 bits.
            let allowed = share + 6.0 * share.sqrt() + share * 0.05;
            let most = *counts.iter().max().unwrap();
            assert!(
                f64::from(most) < allowed,
                "{name}: {most} of {} in one of {buckets} buckets, shift {shift}",
                hashes.len()
            );
        }
    }
}

#[test]
fn flows_as_they_come_spread_evenly() {
    let base = 0x0a00_0001;
    let hosts: Vec<_> = (0..8192)
        .map(|i| hash(&v4(base + i, base, 17, [53, 53])))
        .collect();
    assert_spread("neighbouring sources", &hosts);
    let ports: Vec<_> = (0..8192)
        .map(|i| hash(&v4(base, base + 9, 6, [32768 + i, 443])))
        .collect();
    assert_spread("neighbouring source ports", &ports);
    let ports: Vec<_> = (0..8192)
        .map(|i| hash(&v4(base, base + 9, 6, [443, 1024 + i])))
        .collect();
    assert_spread("neighbouring destination ports", &ports);
    let nets: Vec<_> = (0..8192)
        .map(|i| hash(&v4(i << 16, base, 17, [53, 53])))
        .collect();
    assert_spread("neighbouring networks", &nets);
    let pairs: Vec<_> = (0..8192)
        .map(|i| hash(&v4(base + i, base + i, 17, [5001, 5001])))
        .collect();
    assert_spread("sources and destinations that move together", &pairs);
    let net = 0xfd00_u128 << 112;
    let hosts: Vec<_> = (0..8192)
        .map(|i| hash(&v6(net + i, net, &[(6, 8)], [443, 443])))
        .collect();
    assert_spread("neighbouring IPv6 sources", &hosts);
    let nets: Vec<_> = (0..8192)
        .map(|i| hash(&v6(net + (i << 64), net, &[(6, 8)], [443, 443])))
        .collect();
    assert_spread("neighbouring IPv6 networks", &nets);
}

proptest! {
    #[test]
    fn payload_and_mutable_fields_do_not_change_the_flow(
        source in any::<u32>(),
        destination in any::<u32>(),
        ports in any::<[u16; 2]>(),
        (tos, ttl, identification) in any::<(u8, u8, u16)>(),
    ) {
        let packet = v4(source, destination, 17, ports);
        let mut other = packet.clone();
        other[1] = tos;
        other[8] = ttl;
        other[4..6].copy_from_slice(&identification.to_be_bytes());
        other.extend([1, 2, 3]);
        prop_assert_eq!(hash(&packet), hash(&other));
    }
}
