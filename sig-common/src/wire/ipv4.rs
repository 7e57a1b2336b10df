//! IPv4 (RFC 791).

use super::checksum::Sum;
use super::{Error, PROTO_UDP, be16, split, split_mut};

/// Bytes of the header without options.
pub const HEADER_LEN: usize = 20;

/// Flag "don't fragment" in the flags and fragment offset field.
const DONT_FRAGMENT: u16 = 0x4000;
/// Flag "more fragments".
const MORE_FRAGMENTS: u16 = 0x2000;
/// The fragment offset in units of 8 bytes.
const OFFSET: u16 = 0x1fff;

/// Whether this flags and fragment offset field is a fragment's.
#[inline(always)]
#[must_use]
pub const fn is_fragment(flags_and_offset: u16) -> bool {
    flags_and_offset & (MORE_FRAGMENTS | OFFSET) != 0
}

/// Whether this flags and fragment offset field is that of a fragment other than the first.
#[inline(always)]
#[must_use]
pub const fn is_later_fragment(flags_and_offset: u16) -> bool {
    flags_and_offset & OFFSET != 0
}

/// Bytes of a header with this first byte, options included.
#[inline(always)]
#[must_use]
pub const fn header_len(first: u8) -> usize {
    (first & 0x0f) as usize * 4
}

/// Whether this is the fixed part of an IPv4 header with a UDP datagram behind it that is no fragment.
#[inline(always)]
#[must_use]
pub const fn is_around_udp(header: &[u8; HEADER_LEN]) -> bool {
    header[0] >> 4 == 4
        && header_len(header[0]) >= HEADER_LEN
        && !is_fragment(be16(header[6], header[7]))
        && header[9] == PROTO_UDP
}

/// An IPv4 packet.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    fixed: &'a [u8; HEADER_LEN],
    options: &'a [u8],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Takes `packet` for an IPv4 packet. Bytes beyond its total length are left out. The header
    /// checksum is not verified: see [`View::checksum_is_valid`].
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::Version`], [`Error::HeaderLength`] below five words, and
    /// [`Error::Length`] if the total length is below the header length or more than there is.
    pub fn new_checked(packet: &'a [u8]) -> Result<Self, Error> {
        let (fixed, _) = split::<HEADER_LEN>(packet)?;
        if fixed[0] >> 4 != 4 {
            return Err(Error::Version);
        }
        let header_len = usize::from(fixed[0] & 0x0f) * 4;
        if header_len < HEADER_LEN {
            return Err(Error::HeaderLength);
        }
        let total_len = usize::from(be16(fixed[2], fixed[3]));
        let packet = packet.get(..total_len).ok_or(Error::Length)?;
        let options = packet.get(HEADER_LEN..header_len).ok_or(Error::Length)?;
        let payload = packet.get(header_len..).ok_or(Error::Length)?;
        Ok(Self {
            fixed,
            options,
            payload,
        })
    }

    /// Bytes of the header with options, 20 to 60.
    #[must_use]
    pub const fn header_len(&self) -> usize {
        HEADER_LEN + self.options.len()
    }

    /// Type of service: DSCP and ECN.
    #[must_use]
    pub const fn tos(&self) -> u8 {
        self.fixed[1]
    }

    /// Bytes of header and payload.
    #[must_use]
    pub const fn total_len(&self) -> u16 {
        be16(self.fixed[2], self.fixed[3])
    }

    /// Identification, common to the fragments of a datagram.
    #[must_use]
    pub const fn identification(&self) -> u16 {
        be16(self.fixed[4], self.fixed[5])
    }

    const fn flags_and_offset(&self) -> u16 {
        be16(self.fixed[6], self.fixed[7])
    }

    /// Flag "don't fragment".
    #[must_use]
    pub const fn dont_fragment(&self) -> bool {
        self.flags_and_offset() & DONT_FRAGMENT != 0
    }

    /// Flag "more fragments".
    #[must_use]
    pub const fn more_fragments(&self) -> bool {
        self.flags_and_offset() & MORE_FRAGMENTS != 0
    }

    /// Fragment offset in bytes.
    #[must_use]
    pub const fn fragment_offset(&self) -> u16 {
        (self.flags_and_offset() & OFFSET) << 3
    }

    /// Whether this is one of several fragments, also the first.
    #[must_use]
    pub const fn is_fragment(&self) -> bool {
        is_fragment(self.flags_and_offset())
    }

    /// Time to live.
    #[must_use]
    pub const fn ttl(&self) -> u8 {
        self.fixed[8]
    }

    /// Protocol of the payload.
    #[must_use]
    pub const fn protocol(&self) -> u8 {
        self.fixed[9]
    }

    /// Header checksum field.
    #[must_use]
    pub const fn checksum(&self) -> u16 {
        be16(self.fixed[10], self.fixed[11])
    }

    /// Whether the header checksum is correct.
    #[must_use]
    pub fn checksum_is_valid(&self) -> bool {
        Sum::of(self.fixed).add_bytes(self.options).is_valid()
    }

    /// Source address.
    #[must_use]
    pub const fn source(&self) -> [u8; 4] {
        let [.., a, b, c, d, _, _, _, _] = *self.fixed;
        [a, b, c, d]
    }

    /// Destination address.
    #[must_use]
    pub const fn destination(&self) -> [u8; 4] {
        let [.., a, b, c, d] = *self.fixed;
        [a, b, c, d]
    }

    /// Options, with padding.
    #[must_use]
    pub const fn options(&self) -> &'a [u8] {
        self.options
    }

    /// What follows the header, up to the total length.
    #[must_use]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// An IPv4 header without options, not of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Type of service: DSCP and ECN.
    pub tos: u8,
    /// Bytes of header and payload.
    pub total_len: u16,
    /// Identification.
    pub identification: u16,
    /// Flag "don't fragment".
    pub dont_fragment: bool,
    /// Time to live.
    pub ttl: u8,
    /// Protocol of the payload.
    pub protocol: u8,
    /// Source address.
    pub source: [u8; 4],
    /// Destination address.
    pub destination: [u8; 4],
}

impl Header {
    /// The bytes on the wire, with the header checksum.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let (tos, ttl, protocol) = (self.tos, self.ttl, self.protocol);
        let [l0, l1] = self.total_len.to_be_bytes();
        let [i0, i1] = self.identification.to_be_bytes();
        let flags = if self.dont_fragment { 0x40 } else { 0 };
        let [s0, s1, s2, s3] = self.source;
        let [d0, d1, d2, d3] = self.destination;
        let mut bytes = [
            0x45, tos, l0, l1, i0, i1, flags, 0, ttl, protocol, 0, 0, s0, s1, s2, s3, d0, d1, d2,
            d3,
        ];
        [bytes[10], bytes[11]] = Sum::of(&bytes).checksum().to_be_bytes();
        bytes
    }

    /// Writes the header to the start of `out`; returns the bytes written.
    ///
    /// # Errors
    /// [`Error::NoRoom`].
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, Error> {
        let (header, _) = split_mut(out)?;
        *header = self.encode();
        Ok(HEADER_LEN)
    }
}
