//! STUN messages (RFC 8489), as far as they have to be told from SCION packets.

/// The magic cookie, as on the wire.
pub const COOKIE: [u8; 4] = [0x21, 0x12, 0xa4, 0x42];
/// Bytes of the header.
pub const HEADER_LEN: usize = 20;

/// Whether a datagram of `len` bytes that starts like this is a STUN message: its first two bits are zeros, and the cookie
/// is in the place of SCION's next header, which has no such value.
#[inline(always)]
#[must_use]
pub const fn is_message(first: [u8; 8], len: usize) -> bool {
    let word = u64::from_be_bytes(first);
    len >= HEADER_LEN && word >> 62 == 0 && word as u32 == u32::from_be_bytes(COOKIE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_from_scion_packets_by_the_cookie() {
        let first = [0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42];
        assert!(is_message(first, HEADER_LEN));
        assert!(!is_message(first, HEADER_LEN - 1));
        for (at, bit) in [(0, 0x40), (0, 0x80), (4, 1), (7, 0x80)] {
            let mut other = first;
            other[at] ^= bit;
            assert!(!is_message(other, HEADER_LEN), "{at}");
        }
    }
}
