//! Random inner packets: most are simple ones of a few flows, the others nearly.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sig_common::wire::{
    PROTO_ICMP, PROTO_ICMPV6, PROTO_SCTP, PROTO_TCP, PROTO_UDP,
    checksum::{Sum, ipv4_pseudo_header, ipv6_pseudo_header},
    flow::flow_hash,
    inner::InnerPacket,
    ipv6::{DESTINATION, FRAGMENT, HOP_BY_HOP, ROUTING},
};

use crate::router_support::random::Dice;

/// What packets of a flow have in common.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) protocol: u8,
    pub(crate) ports: [u16; 2],
    pub(crate) tos: u8,
}

/// What a packet is, beside a packet of its flow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Packet {
    pub(crate) bytes: Vec<u8>,
    /// In words, what is special about it.
    pub(crate) that: Vec<&'static str>,
}

/// Where packets may come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    /// A host whose network card computes checksums.
    Virtual,
    Any,
}

const ETHERNET_PROTOCOLS: [u8; 14] = [
    PROTO_TCP,
    PROTO_TCP,
    PROTO_TCP,
    PROTO_UDP,
    PROTO_UDP,
    PROTO_UDP,
    PROTO_ICMP,
    PROTO_ICMPV6,
    PROTO_SCTP,
    47,
    50,
    51,
    136,
    41,
];
const PORTS: [u16; 6] = [0, 53, 443, 5000, 40000, 65535];
const TOS: [u8; 6] = [0, 0, 0xb8, 0x28, 2, 1];

impl Flow {
    pub(crate) fn any(dice: &mut Dice, source: IpAddr, destination: IpAddr) -> Self {
        let mut flow = Self {
            source,
            destination,
            protocol: dice.one(&ETHERNET_PROTOCOLS),
            ports: [dice.one(&PORTS), dice.one(&PORTS)],
            tos: dice.one(&TOS),
        };
        // The other family's ICMP is rare.
        if flow.protocol == PROTO_ICMP && source.is_ipv6() && dice.percent(80) {
            flow.protocol = PROTO_ICMPV6;
        } else if flow.protocol == PROTO_ICMPV6 && source.is_ipv4() && dice.percent(80) {
            flow.protocol = PROTO_ICMP;
        }
        flow
    }

    fn header_len(&self) -> usize {
        match self.source {
            IpAddr::V4(_) => 20,
            IpAddr::V6(_) => 40,
        }
    }

    /// A packet of this flow around `upper`, without options.
    fn wrap(&self, dice: &mut Dice, ttl: u8, upper: &[u8]) -> Vec<u8> {
        let len = upper.len() as u16;
        let mut packet = Vec::with_capacity(40 + upper.len());
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                packet.extend([0x45, self.tos]);
                packet.extend((20 + len).to_be_bytes());
                packet.extend(dice.bytes::<2>());
                packet.extend([0x40, 0, ttl, self.protocol, 0, 0]);
                packet.extend(source.octets());
                packet.extend(destination.octets());
                finish_ipv4(&mut packet);
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let label = dice.bytes::<3>();
                packet.extend([0x60 | self.tos >> 4, self.tos << 4 | label[0] & 0xf]);
                packet.extend(&label[1..]);
                packet.extend(len.to_be_bytes());
                packet.extend([self.protocol, ttl]);
                packet.extend(source.octets());
                packet.extend(destination.octets());
            }
            _ => panic!("addresses of different versions"),
        }
        packet.extend(upper);
        packet
    }

    fn pseudo(&self, len: usize) -> Sum {
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => ipv4_pseudo_header(
                source.octets(),
                destination.octets(),
                len as u16,
                self.protocol,
            ),
            (IpAddr::V6(source), IpAddr::V6(destination)) => ipv6_pseudo_header(
                &source.octets(),
                &destination.octets(),
                len as u32,
                self.protocol,
            ),
            _ => panic!("addresses of different versions"),
        }
    }

    /// Header and payload of the upper layer, `len` bytes or more, with what there is to be summed.
    fn upper(
        &self,
        dice: &mut Dice,
        len: usize,
        sender: Sender,
        that: &mut Vec<&'static str>,
    ) -> Vec<u8> {
        let [a, b] = self.ports;
        let ports = [a.to_be_bytes(), b.to_be_bytes()].concat();
        let mut upper = match self.protocol {
            PROTO_TCP => {
                let mut tcp = [&ports[..], &dice.bytes::<8>()].concat();
                let opens = dice.percent(10);
                let options = dice.percent(30);
                let flags = if opens {
                    dice.one(&[0x02, 0x12, 0xc2])
                } else {
                    dice.one(&[0x10, 0x18, 0x11, 0x04])
                };
                tcp.extend([if options { 0x80 } else { 0x50 }, flags, 1, 0, 0, 0, 0, 0]);
                if options {
                    tcp.extend([1, 2, 4, 5, 0xb4, 1, 1, 0, 8, 10, 1, 2].iter().take(12));
                }
                if opens {
                    that.push("SYN");
                }
                tcp
            }
            PROTO_UDP => [&ports[..], &[0; 4]].concat(),
            PROTO_SCTP => [
                &ports[..],
                &dice.bytes::<4>(),
                &if dice.percent(50) {
                    [0; 4]
                } else {
                    dice.bytes()
                },
            ]
            .concat(),
            PROTO_ICMP => vec![dice.one(&[0, 8, 3, 11]), 0, 0, 0, 1, 2, 3, 4],
            PROTO_ICMPV6 => vec![dice.one(&[128, 129, 1, 2, 3]), 0, 0, 0, 1, 2, 3, 4],
            _ => Vec::new(),
        };
        let fill = dice.byte();
        while upper.len() < len {
            upper.push((upper.len() as u8).wrapping_mul(31) ^ fill);
        }
        if self.protocol == PROTO_UDP {
            let mut udp_len = upper.len();
            if dice.percent(3) && udp_len > 8 {
                udp_len = 8 + dice.below(udp_len - 8);
                that.push("UDP shorter than its packet");
            }
            upper[4..6].copy_from_slice(&(udp_len as u16).to_be_bytes());
        }
        self.finish(dice, &mut upper, sender, that);
        upper
    }

    /// Writes the upper layer's checksum.
    fn finish(
        &self,
        dice: &mut Dice,
        upper: &mut [u8],
        sender: Sender,
        that: &mut Vec<&'static str>,
    ) {
        let (at, pseudo) = match self.protocol {
            PROTO_TCP => (16, true),
            PROTO_UDP => (6, true),
            PROTO_ICMPV6 => (2, true),
            PROTO_ICMP => (2, false),
            _ => return,
        };
        let covered = match self.protocol {
            PROTO_UDP => usize::from(u16::from_be_bytes([upper[4], upper[5]])),
            _ => upper.len(),
        };
        let mut sum = if pseudo {
            self.pseudo(covered)
        } else {
            Sum::ZERO
        };
        upper[at..at + 2].fill(0);
        sum = sum.add_bytes(&upper[..covered]);
        let mut checksum = sum.checksum();
        if self.protocol == PROTO_UDP && checksum == 0 {
            checksum = 0xffff;
        }
        if self.protocol == PROTO_UDP && dice.percent(15) {
            that.push("no checksum");
            checksum = 0;
        } else if dice.percent(4) {
            that.push("wrong checksum");
            checksum ^= 1 << dice.below(16);
        } else if matches!(self.protocol, PROTO_TCP | PROTO_UDP)
            && dice.percent(if sender == Sender::Virtual { 30 } else { 2 })
        {
            that.push("partial checksum");
            checksum = self.pseudo(upper.len()).fold();
        }
        upper[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    }

    /// Any packet of this flow, of about at most `largest` bytes. Most are simple, and all but one in `calm` of the others.
    pub(crate) fn packet(
        &self,
        dice: &mut Dice,
        largest: usize,
        sender: Sender,
        calm: usize,
    ) -> Packet {
        let mut that = Vec::new();
        let len = match dice.below(10) {
            0 => dice.below(64),
            1 => largest + dice.below(40),
            2 => largest - dice.below(64).min(largest),
            3..6 => dice.below(200),
            _ => dice.below(largest),
        };
        let upper = self.upper(
            dice,
            len.saturating_sub(self.header_len()),
            sender,
            &mut that,
        );
        let ttl = match dice.below(20 * calm) {
            0 => 0,
            1 => 1,
            2 => 2,
            3 => 3,
            _ => 64,
        };
        let mut bytes = self.wrap(dice, ttl, &upper);
        if ttl <= 1 {
            that.push("last hop");
        }
        for _ in 0..4 {
            if dice.below(16 * calm) == 0 {
                self.change(dice, &mut bytes, &mut that);
            }
        }
        Packet { bytes, that }
    }

    /// Makes something special of a packet.
    fn change(&self, dice: &mut Dice, bytes: &mut Vec<u8>, that: &mut Vec<&'static str>) {
        let is_v4 = self.source.is_ipv4();
        if bytes.len() < self.header_len() {
            return;
        }
        match dice.below(9) {
            0 if is_v4 && bytes[0] == 0x45 => {
                that.push("IPv4 options");
                let words = 1 + dice.below(10);
                bytes.splice(20..20, std::iter::repeat_n(1, 4 * words));
                bytes[0] += words as u8;
                let len = u16::from_be_bytes([bytes[2], bytes[3]]) + 4 * words as u16;
                bytes[2..4].copy_from_slice(&len.to_be_bytes());
                finish_ipv4(bytes);
            }
            0 | 1 if !is_v4 => {
                that.push("extension header");
                for _ in 0..1 + dice.below(5) {
                    let kind = dice.one(&[HOP_BY_HOP, ROUTING, DESTINATION, FRAGMENT]);
                    let words = if kind == FRAGMENT { 0 } else { dice.below(2) };
                    let mut header = vec![bytes[6], words as u8, 0, dice.one(&[0, 1, 4, 8])];
                    header.resize(8 * (1 + words), 0);
                    bytes.splice(40..40, header.iter().copied());
                    bytes[6] = kind;
                    let len = u16::from_be_bytes([bytes[4], bytes[5]]) + header.len() as u16;
                    bytes[4..6].copy_from_slice(&len.to_be_bytes());
                }
            }
            1 if is_v4 => {
                that.push("fragment");
                bytes[6..8].copy_from_slice(&dice.one(&[
                    [0x20, 0],
                    [0, 1],
                    [0x20, 0x10],
                    [0x80, 0],
                ]));
                finish_ipv4(bytes);
            }
            2 => {
                that.push("padded");
                let more = dice.one(&[1, 6, 26, 60, 64, 65, 100]);
                for _ in 0..more {
                    bytes.push(dice.byte());
                }
            }
            3 => {
                that.push("another length");
                let at = if is_v4 { 2 } else { 4 };
                let len = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
                let by = dice.one(&[1, 2, 7, 20, 300]);
                let len = if dice.percent(60) {
                    len.saturating_sub(by)
                } else {
                    len + by
                };
                bytes[at..at + 2].copy_from_slice(&len.to_be_bytes());
                if is_v4 && dice.percent(80) {
                    finish_ipv4(bytes);
                }
            }
            4 => {
                that.push("cut off");
                let len = dice.below(bytes.len() + 1);
                bytes.truncate(len.max(1));
            }
            5 => {
                that.push("changed bytes");
                for _ in 0..=dice.below(3) {
                    let at = dice.below(bytes.len().min(64));
                    bytes[at] ^= 1 << dice.below(8);
                }
            }
            6 => {
                that.push("changed payload");
                let at = dice.below(bytes.len());
                bytes[at] = dice.byte();
            }
            7 if is_v4 => {
                that.push("wrong IPv4 checksum");
                bytes[10] ^= 0x40;
            }
            _ => {
                that.push("congestion");
                let mut bytes_of = InnerPacket::parse(&bytes[..]).ok();
                if let Some(inner) = &mut bytes_of {
                    inner.set_tos(&mut bytes[..], inner.tos | 3);
                }
            }
        }
    }
}

fn finish_ipv4(packet: &mut [u8]) {
    let len = usize::from(packet[0] & 0xf) * 4;
    let Some(header) = packet.get_mut(..len.max(20)) else {
        return;
    };
    header[10..12].fill(0);
    let checksum = Sum::of(header).checksum();
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// Whether the upper layer's checksum, if there is one, is right: summed up byte by byte, by the rules of the upper layer. With
/// `partial`, also if it is left open.
pub(crate) fn is_sound(packet: &[u8], partial: bool) -> bool {
    let Ok(inner) = InnerPacket::parse(packet) else {
        return false;
    };
    let Some(upper) = inner.payload(packet) else {
        return false;
    };
    let flow = Flow {
        source: inner.source,
        destination: inner.destination,
        protocol: inner.protocol,
        ports: [0; 2],
        tos: 0,
    };
    let open = match inner.protocol {
        PROTO_TCP => upper.get(16..18),
        PROTO_UDP => upper.get(6..8),
        _ => None,
    };
    if partial && open == Some(&flow.pseudo(upper.len()).fold().to_be_bytes()) {
        return true;
    }
    let sum = |covered: &[u8]| flow.pseudo(covered.len()).combine(Sum::of(covered));
    match inner.protocol {
        PROTO_TCP => sum(upper).is_valid(),
        PROTO_UDP if upper.get(6..8) == Some(&[0, 0]) => true,
        PROTO_UDP => {
            let len = upper
                .get(4..6)
                .map_or(0, |len| u16::from_be_bytes([len[0], len[1]]));
            upper
                .get(..len.into())
                .is_some_and(|covered| sum(covered).is_valid())
        }
        PROTO_ICMPV6 if inner.source.is_ipv6() => sum(upper).is_valid(),
        PROTO_ICMP if inner.source.is_ipv4() => upper.is_empty() || Sum::of(upper).is_valid(),
        _ => true,
    }
}

/// The flow hash of a packet.
pub(crate) fn hash_of(packet: &[u8]) -> Option<u32> {
    InnerPacket::parse(packet)
        .ok()
        .map(|inner| flow_hash(&inner))
}

/// An Ethernet frame around a packet.
pub(crate) fn ethernet(destination: [u8; 6], packet: &[u8]) -> Vec<u8> {
    let ethertype: [u8; 2] = match packet.first().map(|first| first >> 4) {
        Some(6) => [0x86, 0xdd],
        _ => [8, 0],
    };
    [&destination[..], &[2, 0, 0, 0, 0, 9], &ethertype, packet].concat()
}

/// Two flows between different hosts whose decisions have the same place.
pub(crate) fn colliding(dice: &mut Dice, hosts: [(IpAddr, IpAddr); 2]) -> Option<[Flow; 2]> {
    let candidates =
        |(source, destination): (IpAddr, IpAddr), dice: &mut Dice| -> Vec<(u32, Flow)> {
            let flow = |n: u16| {
                let flow = Flow {
                    source,
                    destination,
                    protocol: PROTO_UDP,
                    ports: [1000 + n, 443],
                    tos: 0,
                };
                (n, flow)
            };
            let flows = (0..600).map(flow);
            flows
                .filter_map(|(_, flow)| {
                    let upper = [
                        &flow.ports[0].to_be_bytes()[..],
                        &flow.ports[1].to_be_bytes(),
                        &[0; 4],
                    ]
                    .concat();
                    let packet = flow.wrap(dice, 64, &upper);
                    Some((hash_of(&packet)? & 0xffff, flow))
                })
                .collect()
        };
    let first: std::collections::HashMap<u32, Flow> =
        candidates(hosts[0], dice).into_iter().collect();
    let second = candidates(hosts[1], dice);
    second
        .into_iter()
        .find_map(|(place, flow)| Some([first.get(&place)?.clone(), flow]))
}

/// An ICMP error of a router `from`, about a packet from `to` to `about`.
pub(crate) fn icmp_error(dice: &mut Dice, from: IpAddr, to: IpAddr, about: IpAddr) -> Vec<u8> {
    let quoted = Flow {
        source: to,
        destination: about,
        protocol: PROTO_UDP,
        ports: [1, 2],
        tos: 0,
    };
    let quote = quoted.wrap(dice, 1, &[0; 8]);
    let (protocol, kind) = match from {
        IpAddr::V4(_) => (PROTO_ICMP, 11),
        IpAddr::V6(_) => (PROTO_ICMPV6, 3),
    };
    let error = Flow {
        source: from,
        destination: to,
        protocol,
        ports: [0; 2],
        tos: 0,
    };
    let mut upper = [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &quote].concat();
    let pseudo = if protocol == PROTO_ICMPV6 {
        error.pseudo(upper.len())
    } else {
        Sum::ZERO
    };
    let checksum = pseudo.add_bytes(&upper).checksum();
    upper[2..4].copy_from_slice(&checksum.to_be_bytes());
    error.wrap(dice, 64, &upper)
}

/// An address of this version within a network of tests: 10.`net`.0.`host`, or fd00:`net`::`host`.
pub(crate) fn address(v6: bool, net: u8, host: u8) -> IpAddr {
    if v6 {
        Ipv6Addr::from([0xfd00, net.into(), 0, 0, 0, 0, 0, host.into()]).into()
    } else {
        Ipv4Addr::from([10, net, 0, host]).into()
    }
}
