//! UDP (RFC 768). UDP over SCION has the same header; its length rules differ, see
//! [`super::scion::udp`].

use super::checksum::Sum;
use super::{Error, be16, split, split_mut};

/// Bytes of the header.
pub const HEADER_LEN: usize = 8;

/// The checksum of a datagram over IP, of `sum` with its pseudo header and without its checksum. Never
/// 0, which says that there is none (RFC 768).
#[inline(always)]
#[must_use]
pub const fn checksum(sum: Sum) -> u16 {
    match sum.checksum() {
        0 => 0xffff,
        checksum => checksum,
    }
}

/// A UDP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Header {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Header and payload, in bytes.
    pub length: u16,
    /// Checksum.
    pub checksum: u16,
}

impl Header {
    /// Reads a header; any bytes are one.
    #[inline(always)]
    #[must_use]
    pub const fn decode(bytes: &[u8; HEADER_LEN]) -> Self {
        let [s0, s1, d0, d1, l0, l1, c0, c1] = *bytes;
        Self {
            source_port: be16(s0, s1),
            destination_port: be16(d0, d1),
            length: be16(l0, l1),
            checksum: be16(c0, c1),
        }
    }

    /// The bytes on the wire.
    #[inline(always)]
    #[must_use]
    pub const fn encode(&self) -> [u8; HEADER_LEN] {
        let [s0, s1] = self.source_port.to_be_bytes();
        let [d0, d1] = self.destination_port.to_be_bytes();
        let [l0, l1] = self.length.to_be_bytes();
        let [c0, c1] = self.checksum.to_be_bytes();
        [s0, s1, d0, d1, l0, l1, c0, c1]
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

/// A UDP datagram.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    header: Header,
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Takes `datagram`, the payload of an IP packet, for a UDP datagram. Bytes beyond the length
    /// in the header are left out.
    ///
    /// # Errors
    /// [`Error::Truncated`] below 8 bytes; [`Error::Length`] if the length is below 8 (also 0, which
    /// only IPv6 jumbograms may have) or more than there is.
    pub fn new_checked(datagram: &'a [u8]) -> Result<Self, Error> {
        let (header, rest) = split(datagram)?;
        let header = Header::decode(header);
        let payload = usize::from(header.length)
            .checked_sub(HEADER_LEN)
            .and_then(|len| rest.get(..len))
            .ok_or(Error::Length)?;
        Ok(Self { header, payload })
    }

    /// The header.
    #[must_use]
    pub const fn header(&self) -> Header {
        self.header
    }

    /// The payload.
    #[must_use]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }
}
