//! Packets, byte by byte.

use std::net::{Ipv4Addr, Ipv6Addr};

pub(crate) const OURS: [u8; 6] = [2, 0, 0, 0, 0, 2];
pub(crate) const THEIRS: [u8; 6] = [2, 0, 0, 0, 0, 3];

pub(crate) const IPV4: u8 = 4;
pub(crate) const UDP: u8 = 17;
pub(crate) const IPV6: u8 = 41;
pub(crate) const ROUTING: u8 = 43;
pub(crate) const FRAGMENT: u8 = 44;
pub(crate) const ICMPV6: u8 = 58;
pub(crate) const OPTIONS: u8 = 60;
pub(crate) const ETHERNET: u8 = 143;

pub(crate) fn address(text: &str) -> [u8; 16] {
    let address: Ipv6Addr = text.parse().expect("an IPv6 address");
    address.octets()
}

/// A frame for the node; its type is that of the packet's version.
pub(crate) fn frame(packet: &[u8]) -> Vec<u8> {
    ether(OURS, THEIRS, packet)
}

pub(crate) fn ether(destination: [u8; 6], source: [u8; 6], packet: &[u8]) -> Vec<u8> {
    let kind: [u8; 2] = match packet.first().map_or(6, |first| first >> 4) {
        4 => [0x08, 0x00],
        _ => [0x86, 0xdd],
    };
    [&destination[..], &source, &kind, packet].concat()
}

/// RFC 8200, section 3.
pub(crate) fn ipv6(hops: u8, next: u8, destination: &str, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u16).to_be_bytes();
    [
        &[0x60, 0, 0, 0, len[0], len[1], next, hops][..],
        &address("2001:db8:5::5"),
        &address(destination),
        payload,
    ]
    .concat()
}

/// RFC 8754, section 2; the list as on the wire, so that the last segment comes first.
pub(crate) fn srh(next: u8, left: u8, list: &[&str]) -> Vec<u8> {
    let mut bytes = vec![
        next,
        2 * list.len() as u8,
        4,
        left,
        list.len() as u8 - 1,
        0,
        0,
        0,
    ];
    for segment in list {
        bytes.extend(address(segment));
    }
    bytes
}

/// Destination or hop-by-hop options: padding, 8 bytes.
pub(crate) const fn options(next: u8) -> [u8; 8] {
    [next, 0, 1, 4, 0, 0, 0, 0]
}

/// RFC 791.
pub(crate) fn ipv4(ttl: u8, destination: &str, payload: &[u8]) -> Vec<u8> {
    ipv4_with(&[], ttl, destination, payload)
}

pub(crate) fn ipv4_with(options: &[u8], ttl: u8, destination: &str, payload: &[u8]) -> Vec<u8> {
    let destination: Ipv4Addr = destination.parse().expect("an IPv4 address");
    let words = 5 + options.len() as u8 / 4;
    let len = (20 + options.len() + payload.len()) as u16;
    let [l0, l1] = len.to_be_bytes();
    let mut packet = vec![
        0x40 | words,
        0,
        l0,
        l1,
        0x12,
        0x34,
        0,
        0,
        ttl,
        UDP,
        0,
        0,
        10,
        9,
        0,
        1,
    ];
    packet.extend(destination.octets());
    packet.extend(options);
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(payload);
    packet
}

/// RFC 1071.
pub(crate) fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// A UDP datagram of ports 7 to 9.
pub(crate) fn udp(len: usize) -> Vec<u8> {
    let [l0, l1] = (8 + len as u16).to_be_bytes();
    let mut bytes = vec![0, 7, 0, 9, l0, l1, 0, 0];
    bytes.extend((0..len).map(|i| i as u8));
    bytes
}

/// A packet for 10.2.0.9.
pub(crate) fn small_v4() -> Vec<u8> {
    ipv4(64, "10.2.0.9", &udp(4))
}

/// A packet for 2001:db8:b::9.
pub(crate) fn small_v6() -> Vec<u8> {
    ipv6(64, UDP, "2001:db8:b::9", &udp(4))
}

/// Text in hexadecimal digits, with any space between.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits
        .chunks(2)
        .map(|pair| (pair[0] << 4 | pair[1]) as u8)
        .collect()
}
