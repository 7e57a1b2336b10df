//! Which inner addresses may cross a gateway.
//!
//! One rule for the XDP programs, the engine and everything that takes prefixes from people or
//! peers: an address crosses unless it lies in one of the ranges of this module, whose addresses
//! mean something else, or nothing, in another network. A prefix is refused if none of its
//! addresses may cross; one that also holds others, such as `0.0.0.0/0`, is fine, and packets are
//! judged one by one.

use core::net::IpAddr;

/// Addresses that begin alike and must not cross. All ranges fit the high 64 bits of an address;
/// those of an IPv4 address are the address and zeros.
struct Range {
    bits: u64,
    length: u8,
    kind: &'static str,
}

impl Range {
    const fn v4(octets: [u8; 4], length: u8, kind: &'static str) -> Self {
        Self {
            bits: high_v4(octets),
            length,
            kind,
        }
    }

    const fn v6(group: u16, length: u8, kind: &'static str) -> Self {
        Self {
            bits: (group as u64) << 48,
            length,
            kind,
        }
    }

    #[inline(always)]
    const fn contains(&self, high: u64) -> bool {
        (self.bits ^ high) >> (64 - self.length) == 0
    }
}

const V4: [Range; 5] = [
    Range::v4([0, 0, 0, 0], 8, "\"this network\" (RFC 1122)"),
    Range::v4([127, 0, 0, 0], 8, "loopback"),
    Range::v4([169, 254, 0, 0], 16, "link-local"),
    Range::v4([224, 0, 0, 0], 4, "multicast"),
    // 240.0.0.0/4 (RFC 1112, with the broadcast address), joined with the row above: a prefix that
    // spans both is refused, too.
    Range::v4([224, 0, 0, 0], 3, "reserved (RFC 1112)"),
];

const V6: [Range; 3] = [
    // ::, ::1 and all forms that embed nothing but an IPv4 address: IPv4-compatible and -mapped
    // (RFC 4291 section 2.5.5), IPv4-translated (RFC 2765). Not 64:ff9b::/96, which is routed (RFC 6052).
    Range::v6(
        0,
        64,
        "reserved for loopback and embedded IPv4 addresses (RFC 4291)",
    ),
    Range::v6(0xfe80, 10, "link-local"),
    Range::v6(0xff00, 8, "multicast"),
];

#[inline(always)]
const fn high_v4([a, b, c, d]: [u8; 4]) -> u64 {
    u64::from_be_bytes([a, b, c, d, 0, 0, 0, 0])
}

#[inline(always)]
const fn high_v6([a, b, c, d, e, f, g, h, ..]: [u8; 16]) -> u64 {
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// Whether an IPv4 address may be source or destination of a packet that crosses the gateway.
#[inline(always)]
#[must_use]
pub fn may_cross_v4(address: [u8; 4]) -> bool {
    !V4.iter().any(|range| range.contains(high_v4(address)))
}

/// Whether an IPv6 address may be source or destination of a packet that crosses the gateway.
#[inline(always)]
#[must_use]
pub fn may_cross_v6(address: [u8; 16]) -> bool {
    !V6.iter().any(|range| range.contains(high_v6(address)))
}

/// Whether an address may be source or destination of a packet that crosses the gateway.
#[inline(always)]
#[must_use]
pub fn may_cross(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => may_cross_v4(v4.octets()),
        IpAddr::V6(v6) => may_cross_v6(v6.octets()),
    }
}

/// What the addresses of the prefix `network/length` are, if none of them may cross: for people,
/// behind "is".
#[must_use]
pub fn refused_prefix(network: IpAddr, length: u8) -> Option<&'static str> {
    let (ranges, high): (&[Range], u64) = match network {
        IpAddr::V4(v4) => (&V4, high_v4(v4.octets())),
        IpAddr::V6(v6) => (&V6, high_v6(v6.octets())),
    };
    ranges
        .iter()
        .find(|range| range.length <= length && range.contains(high))
        .map(|range| range.kind)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use core::net::{Ipv4Addr, Ipv6Addr};
    use std::vec::Vec;

    use super::*;
    use proptest::prelude::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect(text)
    }

    #[test]
    fn unicast_addresses_of_networks_cross_and_no_others() {
        for (first, last, crosses) in [
            ("0.0.0.0", "0.255.255.255", false),
            ("1.0.0.0", "126.255.255.255", true),
            ("127.0.0.0", "127.255.255.255", false),
            ("128.0.0.0", "169.253.255.255", true),
            ("169.254.0.0", "169.254.255.255", false),
            ("169.255.0.0", "223.255.255.255", true),
            ("224.0.0.0", "239.255.255.255", false),
            ("240.0.0.0", "255.255.255.255", false),
            ("::", "::ffff:ffff:ffff:ffff", false),
            ("::ffff:10.0.0.1", "::ffff:0:10.0.0.1", false),
            ("0:0:0:1::", "fe7f:ffff:ffff:ffff:ffff:ffff:ffff:ffff", true),
            ("64:ff9b::10.0.0.1", "fdff::1", true),
            ("fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", false),
            ("fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", true),
            ("ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", false),
        ] {
            assert_eq!(may_cross(ip(first)), crosses, "{first}");
            assert_eq!(may_cross(ip(last)), crosses, "{last}");
        }
    }

    #[test]
    fn a_refused_prefix_says_what_it_is() {
        for (network, length, kind) in [
            ("0.0.0.0", 8, Some("\"this network\" (RFC 1122)")),
            ("127.0.0.1", 32, Some("loopback")),
            ("169.254.0.0", 16, Some("link-local")),
            ("224.0.0.0", 4, Some("multicast")),
            ("240.0.0.0", 4, Some("reserved (RFC 1112)")),
            ("224.0.0.0", 3, Some("reserved (RFC 1112)")),
            ("fe80::", 64, Some("link-local")),
            ("0.0.0.0", 0, None),
            ("192.0.0.0", 2, None),
            ("169.254.0.0", 15, None),
            ("::", 63, None),
            ("fe00::", 9, None),
        ] {
            assert_eq!(
                refused_prefix(ip(network), length),
                kind,
                "{network}/{length}"
            );
        }
        assert!(refused_prefix(ip("::1"), 128).is_some());
    }

    /// Whether an address of the prefix crosses: as the answer changes only at the ends of ranges, it is
    /// enough to ask there.
    fn some_may_cross(network: IpAddr, length: u8) -> bool {
        let is_v4 = network.is_ipv4();
        let (width, network) = match network {
            IpAddr::V4(v4) => (32, u128::from(v4.to_bits())),
            IpAddr::V6(v6) => (128, v6.to_bits()),
        };
        let ones = |bits: u32| 1u128.checked_shl(bits).map_or(u128::MAX, |n| n - 1);
        let last = network | ones(width - u32::from(length));
        let ranges: &[Range] = if is_v4 { &V4 } else { &V6 };
        let mut points: Vec<u128> = [network, last].into();
        for range in ranges {
            let first = if is_v4 {
                u128::from(range.bits >> 32)
            } else {
                u128::from(range.bits) << 64
            };
            let end = first | ones(width - u32::from(range.length));
            points.extend([first.wrapping_sub(1), first, end, end.wrapping_add(1)]);
        }
        points
            .iter()
            .filter(|at| (network..=last).contains(*at))
            .any(|at| {
                may_cross(if is_v4 {
                    Ipv4Addr::from_bits(*at as u32).into()
                } else {
                    Ipv6Addr::from_bits(*at).into()
                })
            })
    }

    proptest! {
        #[test]
        fn prefixes_are_refused_if_all_their_addresses_are(
            is_v4: bool,
            range in 0usize..8,
            noise: u128,
            kept in 0u32..12,
            length in 0u8..=128,
        ) {
            // Near the ranges: their first bits, then noise.
            let ranges: &[Range] = if is_v4 { &V4 } else { &V6 };
            let range = &ranges[range % ranges.len()];
            let bits = u128::from(range.bits) << 64 ^ noise >> (u32::from(range.length) + kept).saturating_sub(6).min(127);
            let width = if is_v4 { 32 } else { 128 };
            let length = length % (width + 1);
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            let network: IpAddr = if is_v4 {
                Ipv4Addr::from_bits(((bits & mask) >> 96) as u32).into()
            } else {
                Ipv6Addr::from_bits(bits & mask).into()
            };
            prop_assert_eq!(refused_prefix(network, length).is_none(), some_may_cross(network, length), "{}/{}", network, length);
        }
    }
}
