//! Packets for the tests.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "shared by the test files, each of which uses a part of it"
)]

pub mod oracle;

use std::net::IpAddr;

use sig_common::wire::{PROTO_UDP, checksum, ethernet, ipv4, ipv6, udp};

/// Bytes from hexadecimal digits; white space is ignored.
pub fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .bytes()
        .filter(|b| !b.is_ascii_whitespace())
        .map(|b| (b as char).to_digit(16).expect("a hexadecimal digit") as u8)
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

/// Data frame 10.0.0.1:32000 to 10.0.0.2:30056, session 1, index 0, stream 2, sequence 0.
pub const V1: &str = "
    00000001 1112002f 01000000 0001ff0000000111 0001ff0000000110 0a000002 0a000001
    00002000 0100123466000000 003f00000001010203040506 003f000200000708090a0b0c
    7d00 7568 002f b4e3
    0001000000000002 0000000000000000 40000017 00000000000000000000000000000000 010203";
/// The same with hosts fd00::1 and fd00::2.
pub const V2: &str = "
    00000001 1118002f 01330000 0001ff0000000111 0001ff0000000110
    fd000000000000000000000000000002 fd000000000000000000000000000001
    00002000 0100123466000000 003f00000001010203040506 003f000200000708090a0b0c
    7d00 7568 002f cee1
    0001000000000002 0000000000000000 40000017 00000000000000000000000000000000 010203";
/// Session probe over the empty path.
pub const V3: &str = "
    00000001 1109000c 00000000 0001ff0000000111 0001ff0000000110 0a000002 0a000001
    7d01 7888 000c e41d 0a020805";
/// SCMP traceroute request to the service "none".
pub const V4: &str = "
    00000001 ca120018 01400000 0001ff0000000111 0001ff0000000110 ffff0000 0a000001
    00002000 0100123466000000 003f00000001010203040506 023f000200000708090a0b0c
    82 00 f5f3 7d02 0001 0000000000000000 0000000000000000";
/// Service address resolution.
pub const V5: &str = "
    00000001 11120008 01400000 0001ff0000000111 0001ff0000000110 00010000 0a000001
    00002000 0100123466000000 003f00000001010203040506 003f000200000708090a0b0c
    7d03 0000 0008 78b4";

/// A UDP datagram in an IP packet in an Ethernet frame.
#[derive(Clone, Debug)]
pub struct Underlay {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub port: u16,
    pub tos: u8,
    pub tags: [Option<ethernet::Tag>; 2],
}

impl Underlay {
    /// From a border router to `destination`.
    pub fn to(destination: &str, port: u16) -> Self {
        let destination: IpAddr = destination.parse().unwrap();
        let source = if destination.is_ipv4() {
            "10.0.0.99"
        } else {
            "fd00::99"
        };
        Self {
            source: source.parse().unwrap(),
            destination,
            port,
            tos: 0,
            tags: [None; 2],
        }
    }

    pub fn wrap(&self, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 2048.max(payload.len() + 128)];
        let ethernet = ethernet::Header {
            destination: [2, 0, 0, 0, 0, 2],
            source: [2, 0, 0, 0, 0, 1],
            tags: self.tags,
            ethertype: if self.destination.is_ipv4() {
                ethernet::ETHERTYPE_IPV4
            } else {
                ethernet::ETHERTYPE_IPV6
            },
        };
        let mut at = ethernet.emit(&mut frame).unwrap();
        let udp_len = (udp::HEADER_LEN + payload.len()) as u16;
        let mut header = udp::Header {
            source_port: 30042,
            destination_port: self.port,
            length: udp_len,
            checksum: 0,
        };
        let sum = checksum::Sum::of(&header.encode()).add_bytes(payload);
        let pseudo = match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let ip = ipv4::Header {
                    tos: self.tos,
                    total_len: ipv4::HEADER_LEN as u16 + udp_len,
                    identification: 7,
                    dont_fragment: true,
                    ttl: 64,
                    protocol: PROTO_UDP,
                    source: source.octets(),
                    destination: destination.octets(),
                };
                at += ip.emit(&mut frame[at..]).unwrap();
                checksum::ipv4_pseudo_header(ip.source, ip.destination, udp_len, PROTO_UDP)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let ip = ipv6::Header {
                    traffic_class: self.tos,
                    flow_label: 0x12345,
                    payload_len: udp_len,
                    next_header: PROTO_UDP,
                    hop_limit: 64,
                    source: source.octets(),
                    destination: destination.octets(),
                };
                at += ip.emit(&mut frame[at..]).unwrap();
                checksum::ipv6_pseudo_header(&ip.source, &ip.destination, udp_len.into(), PROTO_UDP)
            }
            _ => panic!("source and destination of different families"),
        };
        // Zero stands for no checksum (RFC 768).
        header.checksum = match pseudo.combine(sum).checksum() {
            0 => u16::MAX,
            sum => sum,
        };
        at += header.emit(&mut frame[at..]).unwrap();
        frame[at..at + payload.len()].copy_from_slice(payload);
        frame.truncate(at + payload.len());
        frame
    }
}
