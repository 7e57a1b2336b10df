//! Packets, and a router that they are sent to.

use std::net::Ipv6Addr;

use etherparse::PacketBuilder;
use sig_common::wire::{
    ipv6,
    srv6::{Header, NEXT_IPV4, NEXT_IPV6},
};
use testbed::Netns;

use super::net::{mac, namespace, v6, wire};

/// What comes in has these addresses: to the router's device `in`.
pub(super) const MACS: [[u8; 6]; 2] = [mac(0x20), mac(0x10)];

/// Where the UDP payload begins with the number of the case.
pub(super) const MARK: [u8; 8] = *b"the case";

pub(super) fn udp(number: u8) -> Vec<u8> {
    // Of different lengths.
    let padding = vec![number; usize::from(number) * 5];
    [&MARK[..], &[number], &padding].concat()
}

/// An IPv4 packet, with traffic class 0: ours copies it to the outside, the kernel does not.
pub(super) fn v4_packet(number: u8, to: [u8; 4]) -> Vec<u8> {
    let builder = PacketBuilder::ipv4([10, 1, 0, 2], to, 61).udp(1000, 2000 + u16::from(number));
    let payload = udp(number);
    let mut packet = Vec::new();
    builder.write(&mut packet, &payload).unwrap();
    packet
}

/// An IPv6 packet, with a traffic class and a flow label.
pub(super) fn v6_packet(number: u8, to: Ipv6Addr) -> Vec<u8> {
    let builder = PacketBuilder::ipv6(v6("fd00:1::2").octets(), to.octets(), 61)
        .udp(1000, 2000 + u16::from(number));
    let payload = udp(number);
    let mut packet = Vec::new();
    builder.write(&mut packet, &payload).unwrap();
    packet[..4].copy_from_slice(&[0x6b, 0x81, 0x23, 0x45]);
    packet
}

/// `inside` behind an IPv6 header and an SRH on its way to the first of `segments`; a single one has no SRH.
pub(super) fn behind(segments: &[&str], tag: u16, inside: &[u8]) -> Vec<u8> {
    let segments: Vec<_> = segments.iter().map(|sid| v6(sid).octets()).collect();
    let next_header = match inside[0] >> 4 {
        4 => NEXT_IPV4,
        _ => NEXT_IPV6,
    };
    let mut srh = vec![0; 1024];
    let len = match &segments[..] {
        [_] => 0,
        _ => Header {
            next_header,
            segments: &segments,
            reduced: false,
            flags: 0,
            tag,
            tlvs: &[],
        }
        .emit(&mut srh)
        .unwrap(),
    };
    let outer = ipv6::Header {
        traffic_class: 0xb8,
        flow_label: 0x54321,
        payload_len: (len + inside.len()) as u16,
        next_header: match len {
            0 => next_header,
            _ => ipv6::ROUTING,
        },
        hop_limit: 33,
        source: v6("fc00:1::9").octets(),
        destination: segments[0],
    };
    let mut packet = vec![0; ipv6::HEADER_LEN];
    outer.emit(&mut packet).unwrap();
    [&packet, &srh[..len], inside].concat()
}

/// The packet as it arrives at the last of its segments.
pub(super) fn at_its_end(mut packet: Vec<u8>) -> Vec<u8> {
    packet[40 + 3] = 0;
    let (start, list) = packet.split_at_mut(48);
    start[24..40].copy_from_slice(&list[..16]);
    packet
}

/// A frame to the router with this packet.
pub(super) fn frame(packet: &[u8]) -> Vec<u8> {
    let ethertype: u16 = match packet[0] >> 4 {
        4 => 0x0800,
        _ => 0x86dd,
    };
    [&MACS.concat()[..], &ethertype.to_be_bytes(), packet].concat()
}

/// Whether the frame has the payload of the case with this number.
pub(super) fn is_of(frame: &[u8], number: u8) -> bool {
    let mark = [&MARK[..], &[number]].concat();
    frame.windows(mark.len()).any(|bytes| bytes == mark)
}

/// A router between devices `NAME-in` and `NAME-out` of the bench. Packets to 10.2.0.0/16, fd00:2::/32 and fc00:33::/48 leave it by its
/// device `out`; answers to senders by `in`.
pub(super) fn router(test: &str, bench: &Netns, name: &str) -> Netns {
    let router = namespace(test, name);
    wire((bench, &format!("{name}-in"), 0x10), (&router, "in", 0x20));
    wire(
        (&router, "out", 0x30),
        (bench, &format!("{name}-out"), 0x40),
    );
    let mut lines = "addr add 10.8.0.1/24 dev in\n\
                     addr add fc00:1::1/64 dev in nodad\n\
                     addr add 10.9.0.1/24 dev out\n\
                     addr add fc00:2::1/64 dev out nodad\n\
                     neigh add 10.8.0.2 lladdr 02:00:00:00:00:10 dev in\n\
                     neigh add fc00:1::2 lladdr 02:00:00:00:00:10 dev in\n\
                     neigh add fc00:1::9 lladdr 02:00:00:00:00:10 dev in\n\
                     route add 10.1.0.0/24 via 10.8.0.2\n\
                     route add fd00:1::/64 via fc00:1::2\n\
                     neigh add 10.9.0.2 lladdr 02:00:00:00:00:40 dev out\n\
                     neigh add fc00:2::2 lladdr 02:00:00:00:00:40 dev out\n\
                     neigh add 10.9.0.3 lladdr 02:00:00:00:00:43 dev out\n\
                     neigh add fc00:2::3 lladdr 02:00:00:00:00:43 dev out\n\
                     route add 10.2.0.0/16 via 10.9.0.2\n\
                     route add fd00:2::/32 via fc00:2::2\n\
                     route add fc00:33::/48 via fc00:2::2\n\
                     route add default via fc00:2::3 table 100\n"
        .to_owned();
    // The kernel's End.DX4 and End.DX6 send to the neighbour that has the destination of the packet inside if the next hop is on the
    // link; ours sends to the next hop. Here both have the same MAC address.
    lines += "neigh add 10.2.0.9 lladdr 02:00:00:00:00:43 dev out\n\
              neigh add fd00:2::9 lladdr 02:00:00:00:00:43 dev out";
    router.ip(&lines).unwrap();
    router
}
