//! The flow of an inner IP packet, as a hash.
//!
//! Keeps packets of a flow together: the LAN program chooses the worker by it, the engine the path
//! and the SCION flow id. Not keyed: whoever knows the code can make flows collide, which costs
//! nothing but balance.

use core::net::IpAddr;

use super::inner::InnerPacket;

/// Hash of the flow of a packet.
///
/// Over source, destination and protocol and, for TCP, UDP and SCTP, both ports. Fragments are
/// hashed without ports, the first one too, so that all fragments of a datagram hash alike; those
/// of IPv6 without protocol as well, because only the first one's is defined. In IPv6, hop-by-hop,
/// routing and destination headers are followed ([`super::ipv6::MAX_EXTENSIONS`] of them); behind any other
/// header there are no ports.
#[inline(always)]
#[must_use]
pub const fn flow_hash(packet: &InnerPacket) -> u32 {
    let hash = match (packet.source, packet.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let addresses = (source.to_bits() as u64) << 32 | destination.to_bits() as u64;
            mix(SEED, addresses)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let hash = mix_address(SEED, source.to_bits());
            mix_address(hash, destination.to_bits())
        }
        // There are no such packets.
        _ => SEED,
    };
    finish(mix(hash, packet.protocol_and_ports()))
}

/// As [`flow_hash`], of the packets with this [key](crate::fast_path::flow_key).
#[must_use]
pub const fn hash_of_key(key: &[u64; 5]) -> u32 {
    let [a, b, c, d, rest] = *key;
    let mut hash = mix(SEED, a);
    if rest >> 56 == 6 {
        hash = mix(mix(mix(hash, b), c), d);
    }
    finish(mix(hash, rest & 0xff_ffff_ffff))
}

const SEED: u64 = 0x243f_6a88_85a3_08d3;
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// One to one in `word`, so flows that differ in one word never collide before [`finish`].
#[inline(always)]
const fn mix(hash: u64, word: u64) -> u64 {
    let product = (hash ^ word).wrapping_mul(FACTOR);
    product ^ product >> 32
}

#[inline(always)]
const fn mix_address(hash: u64, address: u128) -> u64 {
    mix(mix(hash, (address >> 64) as u64), address as u64)
}

#[inline(always)]
const fn finish(hash: u64) -> u32 {
    let product = hash.wrapping_mul(FACTOR);
    (product >> 32) as u32
}
