//! The Internet checksum: one's complement sums (RFC 1071) and incremental update (RFC 1624).

/// A one's complement sum over 16-bit words.
///
/// Sums are made over runs of bytes that start at an even offset of the summed message; a run of
/// odd length counts as padded with a zero byte, so only the last run may be odd. For a run that
/// starts at an odd offset use [`Sum::at_odd_offset`].
///
/// Kept as 64 bits in native byte order: the sum of words does not depend on their byte order
/// (RFC 1071, section 2), so bytes are swapped once at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum(u64);

impl Sum {
    /// The sum of nothing.
    pub const ZERO: Self = Self(0);

    /// The sum over a run of bytes.
    #[inline]
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        // Two chains, so that one addition does not wait for the other; the carries gather in the
        // upper halves.
        let (mut a, mut b) = (0u128, 0u128);
        let (blocks, rest) = bytes.as_chunks::<32>();
        for block in blocks {
            let (words, _) = block.as_chunks::<8>();
            let [w0, w1, w2, w3] = [words[0], words[1], words[2], words[3]].map(word);
            a += w0;
            b += w1;
            a += w2;
            b += w3;
        }
        let (words, rest) = rest.as_chunks::<8>();
        for &bytes in words {
            a += word(bytes);
        }
        let total = a + b;
        let mut sum = Self(total as u64).combine(Self((total >> 64) as u64));
        let (words, rest) = rest.as_chunks::<4>();
        if let Some(&bytes) = words.first() {
            sum = sum.combine(Self(u32::from_ne_bytes(bytes).into()));
        }
        let (words, rest) = rest.as_chunks::<2>();
        if let Some(&bytes) = words.first() {
            sum = sum.combine(Self(u16::from_ne_bytes(bytes).into()));
        }
        if let &[last] = rest {
            sum = sum.combine(Self(u16::from_ne_bytes([last, 0]).into()));
        }
        sum
    }

    /// The sum of two runs.
    #[inline(always)]
    #[must_use]
    pub const fn combine(self, other: Self) -> Self {
        let (sum, carry) = self.0.overflowing_add(other.0);
        // Cannot overflow again: a sum that carried is at most 2^64 - 2.
        Self(sum + carry as u64)
    }

    /// Adds a run of bytes.
    #[inline]
    #[must_use]
    pub fn add_bytes(self, bytes: &[u8]) -> Self {
        self.combine(Self::of(bytes))
    }

    /// Adds one 16-bit word (host byte order).
    #[inline(always)]
    #[must_use]
    pub const fn add_u16(self, word: u16) -> Self {
        self.combine(Self(word.to_be() as u64))
    }

    /// Adds two 16-bit words (host byte order).
    #[inline(always)]
    #[must_use]
    pub const fn add_u32(self, words: u32) -> Self {
        self.combine(Self(words.to_be() as u64))
    }

    /// Adds four 16-bit words (host byte order).
    #[inline(always)]
    #[must_use]
    pub const fn add_u64(self, words: u64) -> Self {
        self.combine(Self(words.to_be()))
    }

    /// The sum the same bytes have when they start at an odd offset of the message.
    #[inline(always)]
    #[must_use]
    pub const fn at_odd_offset(self) -> Self {
        // A shift by one byte is a multiplication by 2^8, which modulo 2^64-1 is a rotation.
        Self(self.0.rotate_left(8))
    }

    /// The sum in 16 bits, not complemented, host byte order.
    #[inline(always)]
    #[must_use]
    pub const fn fold(self) -> u16 {
        let sum = (self.0 >> 32) + (self.0 & 0xffff_ffff);
        let sum = (sum >> 16) + (sum & 0xffff);
        let sum = (sum >> 16) + (sum & 0xffff);
        let sum = (sum >> 16) + (sum & 0xffff);
        u16::from_be(sum as u16)
    }

    /// The checksum to write into a header whose checksum field was zero in the sum.
    #[inline(always)]
    #[must_use]
    pub const fn checksum(self) -> u16 {
        !self.fold()
    }

    /// Whether the sum over a message that includes its checksum says that it is undamaged.
    #[inline(always)]
    #[must_use]
    pub const fn is_valid(self) -> bool {
        self.fold() == 0xffff
    }
}

#[inline(always)]
fn word(bytes: [u8; 8]) -> u128 {
    u64::from_ne_bytes(bytes).into()
}

/// The sum over the pseudo header of UDP and SCMP over SCION (SCION header specification).
///
/// `addresses` is the whole SCION address header as on the wire: both ISD-AS numbers, then both
/// host addresses. `len` is the length of the UDP or SCMP message, `protocol` its next header value.
#[inline]
#[must_use]
pub fn scion_pseudo_header(addresses: &[u8], len: u32, protocol: u8) -> Sum {
    Sum::of(addresses).add_u32(len).add_u32(u32::from(protocol))
}

/// The sum over the IPv4 pseudo header of UDP (RFC 768) and TCP.
#[inline]
#[must_use]
pub const fn ipv4_pseudo_header(src: [u8; 4], dst: [u8; 4], len: u16, protocol: u8) -> Sum {
    Sum::ZERO
        .add_u32(u32::from_be_bytes(src))
        .add_u32(u32::from_be_bytes(dst))
        .add_u16(len)
        .add_u16(protocol as u16)
}

/// The sum over the IPv6 pseudo header (RFC 8200, section 8.1).
#[inline]
#[must_use]
pub fn ipv6_pseudo_header(src: &[u8; 16], dst: &[u8; 16], len: u32, protocol: u8) -> Sum {
    Sum::of(src)
        .add_bytes(dst)
        .add_u32(len)
        .add_u32(u32::from(protocol))
}

/// The checksum after one 16-bit word of the message changed (RFC 1624, equation 3).
#[inline(always)]
#[must_use]
pub const fn update(checksum: u16, old: u16, new: u16) -> u16 {
    let sum = !checksum as u32 + !old as u32 + new as u32;
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use proptest::prelude::*;

    /// RFC 1071 as it is written.
    fn naive(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
            sum = (sum >> 16) + (sum & 0xffff);
        }
        sum as u16
    }

    /// 0 and 0xffff are the same number in one's complement.
    fn same(a: u16, b: u16) -> bool {
        a == b || (a ^ b == 0xffff && (a == 0 || b == 0))
    }

    #[test]
    fn example_of_rfc_1071() {
        let sum = Sum::of(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(sum.fold(), 0xddf2);
        assert_eq!(sum.checksum(), 0x220d);
    }

    #[test]
    fn words_are_summed_like_bytes() {
        assert_eq!(Sum::ZERO.add_u16(0x1234).fold(), 0x1234);
        assert_eq!(Sum::ZERO.add_u32(0x1234_0001).fold(), 0x1235);
        assert_eq!(Sum::ZERO.add_u64(0x1234_0001_0002_0003).fold(), 0x123a);
        assert_eq!(Sum::of(&[0xff; 64]).add_u16(1).fold(), 1);
    }

    #[test]
    fn the_carry_of_rfc_1624_is_not_lost() {
        // The example of RFC 1624, section 4.
        assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
        // Carries twice.
        assert_eq!(update(0x0000, 0x0000, 0x0001), 0xfffe);
    }

    proptest! {
        #[test]
        fn sums_equal_the_naive_sum(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(same(Sum::of(&bytes).fold(), naive(&bytes)));
        }

        #[test]
        fn runs_combine_at_any_offset(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            at in 0usize..200,
        ) {
            let (head, tail) = bytes.split_at(at.min(bytes.len()));
            let tail = Sum::of(tail);
            let tail = if head.len() % 2 == 1 { tail.at_odd_offset() } else { tail };
            prop_assert!(same(Sum::of(head).combine(tail).fold(), naive(&bytes)));
        }

        #[test]
        fn updating_equals_summing_again(
            mut bytes in proptest::collection::vec(any::<u8>(), 20..=20),
            at in 0usize..10,
            new in any::<u16>(),
        ) {
            bytes[0] = 0x45; // never all zero, like any real header
            bytes[10..12].fill(0);
            prop_assume!(at != 5 && at != 0);
            let before = Sum::of(&bytes).checksum();
            let old = u16::from_be_bytes([bytes[2 * at], bytes[2 * at + 1]]);
            bytes[2 * at..2 * at + 2].copy_from_slice(&new.to_be_bytes());
            prop_assert_eq!(update(before, old, new), Sum::of(&bytes).checksum());
        }
    }
}
