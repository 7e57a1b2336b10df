//! The flow of an inner IP packet, as a hash.
//!
//! Keeps packets of a flow together: the LAN program chooses the worker by it, the engine the path
//! and the SCION flow id. Not keyed: whoever knows the code can make flows collide, which costs
//! nothing but balance.

use super::ipv6::{self, UpperLayer};
use super::{Load, PROTO_SCTP, PROTO_TCP, PROTO_UDP, be16, ipv4};

/// Hash of the flow of the IP packet at `offset`.
///
/// Over source, destination and protocol and, for TCP, UDP and SCTP, both ports. Fragments are
/// hashed without ports, the first one too, so that all fragments of a datagram hash alike; those
/// of IPv6 without protocol as well, because only the first one's is defined. In IPv6, hop-by-hop,
/// routing and destination headers are followed ([`ipv6::MAX_EXTENSIONS`] of them); behind any other
/// header there are no ports. Bytes that are no IP packet hash to 0.
///
/// `offset` must be bounded by a constant in BPF.
#[inline(always)]
#[must_use]
pub fn flow_hash<L: Load + ?Sized>(packet: &L, offset: usize) -> u32 {
    let Some([first]) = packet.bytes(offset) else {
        return 0;
    };
    match first >> 4 {
        4 => hash_ipv4(packet, offset),
        6 => hash_ipv6(packet, offset),
        _ => 0,
    }
}

#[inline(always)]
fn hash_ipv4<L: Load + ?Sized>(packet: &L, offset: usize) -> u32 {
    let Some(header) = packet.bytes::<{ ipv4::HEADER_LEN }>(offset) else {
        return 0;
    };
    let [
        version_ihl,
        _,
        _,
        _,
        _,
        _,
        f0,
        f1,
        _,
        protocol,
        _,
        _,
        s0,
        s1,
        s2,
        s3,
        d0,
        d1,
        d2,
        d3,
    ] = header;
    let header_len = usize::from(version_ihl & 0x0f) * 4;
    let ports = if ipv4::is_fragment(be16(f0, f1)) || header_len < ipv4::HEADER_LEN {
        0
    } else {
        ports(packet, protocol, offset + header_len)
    };
    let addresses = u64::from_be_bytes([s0, s1, s2, s3, d0, d1, d2, d3]);
    finish(mix(mix(SEED, addresses), layer4(protocol, ports)))
}

#[inline(always)]
fn hash_ipv6<L: Load + ?Sized>(packet: &L, offset: usize) -> u32 {
    // One by one: if all are loaded before any is checked, LLVM leaves out checks that the later ones
    // imply, and the BPF verifier cannot follow.
    let Some([next_header]) = packet.bytes(offset + 6) else {
        return 0;
    };
    let Some(source) = packet.bytes::<16>(offset + 8) else {
        return 0;
    };
    let Some(destination) = packet.bytes::<16>(offset + 24) else {
        return 0;
    };
    let end = offset + ipv6::HEADER_LEN;
    let (protocol, ports) = match ipv6::upper_layer(packet, next_header, end) {
        UpperLayer::At { protocol, offset } => (protocol, ports(packet, protocol, offset)),
        UpperLayer::Fragment => (ipv6::FRAGMENT, 0),
        UpperLayer::Unknown(protocol) => (protocol, 0),
    };
    let mut hash = SEED;
    for address in [source, destination] {
        let [
            a0,
            a1,
            a2,
            a3,
            a4,
            a5,
            a6,
            a7,
            b0,
            b1,
            b2,
            b3,
            b4,
            b5,
            b6,
            b7,
        ] = address;
        hash = mix(hash, u64::from_be_bytes([a0, a1, a2, a3, a4, a5, a6, a7]));
        hash = mix(hash, u64::from_be_bytes([b0, b1, b2, b3, b4, b5, b6, b7]));
    }
    finish(mix(hash, layer4(protocol, ports)))
}

/// Both ports, or 0 when the protocol has none.
#[inline(always)]
fn ports<L: Load + ?Sized>(packet: &L, protocol: u8, offset: usize) -> u32 {
    if !matches!(protocol, PROTO_TCP | PROTO_UDP | PROTO_SCTP) {
        return 0;
    }
    packet.bytes(offset).map_or(0, u32::from_be_bytes)
}

#[inline(always)]
fn layer4(protocol: u8, ports: u32) -> u64 {
    u64::from(protocol) << 32 | u64::from(ports)
}

const SEED: u64 = 0x243f_6a88_85a3_08d3;
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// One to one in `word`, so flows that differ in one word never collide before [`finish`].
#[inline(always)]
fn mix(hash: u64, word: u64) -> u64 {
    let product = (hash ^ word).wrapping_mul(FACTOR);
    product ^ product >> 32
}

#[inline(always)]
fn finish(hash: u64) -> u32 {
    let product = hash.wrapping_mul(FACTOR);
    (product >> 32) as u32
}
