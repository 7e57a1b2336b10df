//! Simple inner packets: those that the XDP programs can send and deliver by themselves.
//!
//! A simple packet is whole, has a header of fixed length with nothing between it and the upper layer, and room for the
//! fields of that. What [`super::inner::InnerPacket`] says of such a packet, this says with a few loads of words; it says
//! nothing of others.

use super::checksum::{self, Sum};
use super::ipv6::{DESTINATION, FRAGMENT, HOP_BY_HOP, ROUTING};
use super::{
    Load, PROTO_ICMP, PROTO_ICMPV6, PROTO_SCTP, PROTO_TCP, PROTO_UDP, Store, ipv4, ipv6, tcp, udp,
};
use crate::fast_path::pair_rest;

/// The summary of a simple packet, of IPv6 if `V6`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Simple<const V6: bool> {
    /// Bytes of the whole packet.
    pub total_len: u16,
    /// Type of service or traffic class.
    pub tos: u8,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// Protocol of the upper layer.
    pub protocol: u8,
    /// Source and destination: of IPv4 in the first word, source in its upper half. Host byte order.
    addresses: [u64; 4],
    /// Both ports, source port in the upper half; 0 without.
    ports: u32,
    /// Sum over the IP header, as it came.
    header: Sum,
}

impl<const V6: bool> Simple<V6> {
    /// Bytes of the IP header.
    pub const HEADER_LEN: usize = if V6 {
        ipv6::HEADER_LEN
    } else {
        ipv4::HEADER_LEN
    };

    /// Reads the packet that `packet` starts with; `None` if it is not a simple one.
    #[inline(always)]
    pub fn parse<L: Load + ?Sized>(packet: &L) -> Option<Self> {
        let simple = if V6 {
            Self::parse_v6(packet)
        } else {
            Self::parse_v4(packet)
        }?;
        let upper = match simple.protocol {
            PROTO_TCP => tcp::HEADER_LEN,
            PROTO_UDP | PROTO_SCTP => udp::HEADER_LEN,
            _ => return Some(simple),
        };
        if usize::from(simple.total_len) < Self::HEADER_LEN + upper {
            return None;
        }
        let ports = u32::from_be_bytes(packet.bytes(Self::HEADER_LEN)?);
        Some(Self { ports, ..simple })
    }

    #[inline(always)]
    fn parse_v4<L: Load + ?Sized>(packet: &L) -> Option<Self> {
        let first = u64::from_be_bytes(packet.bytes(0)?);
        let second = u64::from_be_bytes(packet.bytes(8)?);
        let destination = u32::from_be_bytes(packet.bytes(16)?);
        let total_len = (first >> 32) as u16;
        if first >> 56 != 0x45
            || ipv4::is_fragment(first as u16)
            || usize::from(total_len) > packet.len()
            || usize::from(total_len) < ipv4::HEADER_LEN
        {
            return None;
        }
        Some(Self {
            total_len,
            tos: (first >> 48) as u8,
            ttl: (second >> 56) as u8,
            protocol: (second >> 48) as u8,
            addresses: [second << 32 | destination as u64, 0, 0, 0],
            ports: 0,
            header: Sum::ZERO
                .add_u64(first)
                .add_u64(second)
                .add_u32(destination),
        })
    }

    #[inline(always)]
    fn parse_v6<L: Load + ?Sized>(packet: &L) -> Option<Self> {
        let first = u64::from_be_bytes(packet.bytes(0)?);
        let a = u64::from_be_bytes(packet.bytes(8)?);
        let b = u64::from_be_bytes(packet.bytes(16)?);
        let c = u64::from_be_bytes(packet.bytes(24)?);
        let d = u64::from_be_bytes(packet.bytes(32)?);
        let protocol = (first >> 8) as u8;
        let total_len = (first >> 16 & 0xffff) + ipv6::HEADER_LEN as u64;
        if first >> 60 != 6
            || matches!(protocol, HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION)
            || total_len > 0xffff
            || total_len as usize > packet.len()
        {
            return None;
        }
        Some(Self {
            total_len: total_len as u16,
            tos: (first >> 52) as u8,
            ttl: first as u8,
            protocol,
            addresses: [a, b, c, d],
            ports: 0,
            header: Sum::ZERO
                .add_u64(first)
                .add_u64(a)
                .add_u64(b)
                .add_u64(c)
                .add_u64(d),
        })
    }

    /// The addresses and `rest` as the key of a [`crate::fast_path::slot`].
    #[inline(always)]
    const fn key(&self, rest: u64) -> [u64; 5] {
        let [a, b, c, d] = self.addresses;
        let version = if V6 { 6 } else { 4 };
        [a, b, c, d, rest | version << 56]
    }

    /// The key of [`crate::fast_path::flow_key`].
    #[inline(always)]
    #[must_use]
    pub const fn flow_key(&self) -> [u64; 5] {
        self.key(self.flow())
    }

    /// The key of [`crate::fast_path::pair_key`].
    #[inline(always)]
    #[must_use]
    pub const fn pair_key(&self, remote: u32, by_flow: bool) -> [u64; 5] {
        self.key(pair_rest(self.flow(), remote, by_flow))
    }

    /// Traffic class, protocol and ports, as they are in the keys of flows.
    #[inline(always)]
    const fn flow(&self) -> u64 {
        (self.tos as u64) << 40 | (self.protocol as u64) << 32 | self.ports as u64
    }

    /// The sum over the pseudo header of the upper layer, folded.
    #[inline(always)]
    #[must_use]
    pub const fn pseudo_header(&self) -> u16 {
        let [a, b, c, d] = self.addresses;
        Sum::ZERO
            .add_u64(a)
            .add_u64(b)
            .add_u64(c)
            .add_u64(d)
            .add_u16(self.total_len.wrapping_sub(Self::HEADER_LEN as u16))
            .add_u16(self.protocol as u16)
            .fold()
    }

    /// Whether the packet asks for a TCP connection or grants it.
    #[inline(always)]
    pub fn opens_tcp<L: Load + ?Sized>(&self, packet: &L) -> bool {
        const SYN: u8 = 0x02;
        self.protocol == PROTO_TCP
            && !matches!(packet.bytes(Self::HEADER_LEN + 13), Some([flags]) if flags & SYN == 0)
    }

    /// Offset of the checksum of TCP and UDP.
    #[inline(always)]
    const fn checksum_offset(&self) -> Option<usize> {
        match self.protocol {
            PROTO_TCP => Some(Self::HEADER_LEN + 16),
            PROTO_UDP => Some(Self::HEADER_LEN + 6),
            _ => None,
        }
    }

    /// Where the checksum stands, if it holds the pseudo header's sum because it was left to a network card.
    #[inline(always)]
    pub fn partial_checksum<L: Load + ?Sized>(&self, packet: &L) -> Option<usize> {
        let at = self.checksum_offset()?;
        let found = u16::from_be_bytes(packet.bytes(at)?);
        (found == self.pseudo_header()).then_some(at)
    }

    /// The sum over the whole packet, told from the checksum of the upper layer without reading what it covers; `None`
    /// if there is none, or it does not cover all.
    ///
    /// Segment and pseudo header add up to zero (Linux calls it local checksum offload). With a wrong checksum inside, what
    /// is made of the sum is wrong by as much.
    #[inline(always)]
    pub fn known_sum<L: Load + ?Sized>(&self, packet: &L) -> Option<Sum> {
        let covers_pseudo_header = match self.protocol {
            PROTO_TCP => true,
            PROTO_UDP => {
                let [l0, l1, c0, c1] = packet.bytes(Self::HEADER_LEN + 4)?;
                // What is behind the datagram, its checksum does not cover.
                let len = usize::from(u16::from_be_bytes([l0, l1])) + Self::HEADER_LEN;
                len == usize::from(self.total_len) && [c0, c1] != [0, 0]
            }
            PROTO_ICMPV6 if V6 => true,
            PROTO_ICMP if !V6 => return Some(self.header),
            _ => return None,
        };
        match covers_pseudo_header {
            true => Some(self.header.add_u16(!self.pseudo_header())),
            false => None,
        }
    }

    /// The sum over the whole packet, given that over the upper layer.
    #[inline(always)]
    #[must_use]
    pub const fn sum_with(&self, upper: Sum) -> Sum {
        self.header.combine(upper)
    }

    /// Takes one from TTL or hop limit in `packet`, as [`super::inner::InnerPacket::decrement_ttl`] does, and
    /// returns what that adds to the sum over the packet. There must be one to take.
    #[inline(always)]
    pub fn decrement_ttl<P: Load + Store + ?Sized>(&self, packet: &mut P) -> Option<Sum> {
        let ttl = self.ttl.wrapping_sub(1);
        if V6 {
            packet.store(7, [ttl])?;
            return Some(Sum::ZERO.add_u16(!1));
        }
        let checksum = u16::from_be_bytes(packet.bytes(10)?);
        let word = |ttl: u8| (ttl as u16) << 8 | self.protocol as u16;
        packet.store(8, [ttl])?;
        let checksum = checksum::update(checksum, word(self.ttl), word(ttl));
        packet.store(10, checksum.to_be_bytes())?;
        // The checksum takes up what the other field loses.
        Some(Sum::ZERO)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use crate::fast_path::{flow_key, pair_key, remote_of_pair};
    use crate::wire::flow::{flow_hash, hash_of_key};
    use crate::wire::inner::InnerPacket;
    use crate::wire::ipv6::UpperLayer;

    /// Bytes that are nearly a packet: what decides is often right.
    fn packet() -> impl Strategy<Value = Vec<u8>> {
        let protocols = [0, 1, 4, 6, 17, 43, 44, 50, 58, 60, 132];
        let protocol = proptest::sample::select(protocols.to_vec());
        let bytes = proptest::collection::vec(any::<u8>(), 0..120);
        (bytes, any::<bool>(), protocol, 0u8..6, any::<bool>()).prop_map(
            |(mut bytes, is_v6, protocol, padding, is_sound)| {
                let len = bytes.len().saturating_sub(padding.into()) as u16;
                let mut set = |at: usize, value: &[u8]| {
                    if let Some(place) = bytes.get_mut(at..at + value.len()) {
                        place.copy_from_slice(value);
                    }
                };
                if is_v6 {
                    set(0, &[0x60]);
                    set(4, &len.saturating_sub(40).to_be_bytes());
                    set(6, &[protocol]);
                } else {
                    set(0, &[0x45]);
                    set(2, &len.to_be_bytes());
                    set(9, &[protocol]);
                    if is_sound {
                        set(6, &[0x40, 0]);
                    }
                }
                bytes
            },
        )
    }

    fn check<const V6: bool>(simple: &Simple<V6>, bytes: &[u8]) -> Result<(), TestCaseError> {
        let inner = InnerPacket::parse(bytes).expect("a simple packet is a packet");
        let InnerPacket {
            total_len,
            tos,
            ttl,
            protocol,
            ..
        } = inner;
        prop_assert_eq!(
            (simple.total_len, simple.tos, simple.ttl, simple.protocol),
            (total_len, tos, ttl, protocol)
        );
        let at = UpperLayer::At {
            protocol,
            offset: Simple::<V6>::HEADER_LEN,
        };
        prop_assert_eq!(inner.upper(), at);
        prop_assert_eq!(simple.flow_key(), flow_key(&inner));
        for by_flow in [false, true] {
            let key = pair_key(&inner, 0xabc, by_flow);
            prop_assert_eq!(simple.pair_key(0xabc, by_flow), key);
            prop_assert_eq!(remote_of_pair(&key, by_flow), 0xabc);
        }
        let mut same = InnerPacket::of_flow(&simple.flow_key());
        (same.total_len, same.ttl) = (total_len, ttl);
        prop_assert_eq!(same, inner);
        prop_assert_eq!(hash_of_key(&simple.flow_key()), flow_hash(&inner));

        // With the right checksum inside, the sum is known; after the hop, too.
        let mut bytes = bytes[..usize::from(total_len)].to_vec();
        if let Some(at) = simple.checksum_offset() {
            if protocol == PROTO_UDP {
                let at = Simple::<V6>::HEADER_LEN + 4;
                let len = total_len - Simple::<V6>::HEADER_LEN as u16;
                let shorter = len.wrapping_sub(1);
                bytes[at..at + 4].copy_from_slice(&[shorter.to_be_bytes(), [1; 2]].concat());
                prop_assert_eq!(simple.known_sum(&bytes[..]), None);
                bytes[at..at + 2].copy_from_slice(&len.to_be_bytes());
            }
            let pseudo = simple.pseudo_header();
            bytes[at..at + 2].fill(0);
            let sum = Sum::ZERO
                .add_u16(pseudo)
                .add_bytes(&bytes[Simple::<V6>::HEADER_LEN..]);
            bytes[at..at + 2].copy_from_slice(&udp::checksum(sum).to_be_bytes());
            let known = simple.known_sum(&bytes[..]).expect("there is a checksum");
            prop_assert_eq!(known.fold(), Sum::of(&bytes).fold());
            bytes[at..at + 2].copy_from_slice(&pseudo.to_be_bytes());
            prop_assert_eq!(simple.partial_checksum(&bytes[..]), Some(at));
        }
        if simple.ttl > 1 {
            let mut other = bytes.clone();
            let mut inner = inner;
            prop_assert!(inner.decrement_ttl(&mut other[..]));
            let before = Sum::of(&bytes);
            let change = simple.decrement_ttl(&mut bytes[..]).expect("there is room");
            prop_assert_eq!(before.combine(change).fold(), Sum::of(&bytes).fold());
            prop_assert_eq!(bytes, other);
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn a_simple_packet_is_summarized_as_any_other(bytes in packet()) {
            if let Some(simple) = Simple::<false>::parse(&bytes[..]) {
                check(&simple, &bytes)?;
            }
            if let Some(simple) = Simple::<true>::parse(&bytes[..]) {
                check(&simple, &bytes)?;
            }
        }
    }

    #[test]
    fn what_opens_a_connection_is_told_from_what_belongs_to_one() {
        let mut packet = [0; 40];
        packet[..10].copy_from_slice(&[0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, PROTO_TCP]);
        for (flags, opens) in [(0x02, true), (0x12, true), (0x10, false), (0x04, false)] {
            packet[33] = flags;
            let simple = Simple::<false>::parse(&packet[..]).expect("simple");
            assert_eq!(simple.opens_tcp(&packet[..]), opens);
        }
    }
}
