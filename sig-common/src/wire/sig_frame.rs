//! The header of a SIG frame, 16 bytes (source: SIG frame, doc/sig of SCION).
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | version, 0 |
//! | 1 | 1 | session |
//! | 2 | 2 | index: byte offset, from the end of this header, of the first packet that starts in this frame |
//! | 4 | 4 | 12 reserved bits, then the stream, 20 bits |
//! | 8 | 8 | sequence number |

use super::{Error, split, split_mut};

/// Bytes of the header.
pub const HEADER_LEN: usize = 16;
/// The only version there is.
pub const VERSION: u8 = 0;
/// Value of the index when no packet starts in the frame.
pub const NO_PACKET_STARTS: u16 = 0xffff;
/// The largest stream id; the bits above are reserved: zero when sent, ignored when received.
pub const STREAM_MASK: u32 = 0x000f_ffff;

/// The header of a SIG frame of version 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Header {
    /// Session the frame belongs to.
    pub session: u8,
    /// Byte offset, from the end of the header, of the first packet that starts in this frame, or
    /// [`NO_PACKET_STARTS`]. Not checked against the payload here.
    pub index: u16,
    /// Stream within the session, 20 bits.
    pub stream: u32,
    /// Counts the frames of the stream from 0.
    pub sequence: u64,
}

impl Header {
    /// Reads a header.
    ///
    /// # Errors
    /// [`Error::Version`] for any version but 0.
    #[inline(always)]
    pub const fn decode(bytes: &[u8; HEADER_LEN]) -> Result<Self, Error> {
        let words = u128::from_be_bytes(*bytes);
        let (first, sequence) = ((words >> 64) as u64, words as u64);
        if (first >> 56) as u8 != VERSION {
            return Err(Error::Version);
        }
        Ok(Self {
            session: (first >> 48) as u8,
            index: (first >> 32) as u16,
            stream: first as u32 & STREAM_MASK,
            sequence,
        })
    }

    /// The bytes on the wire. Bits of `stream` above the 20 of the field are cut off.
    #[inline(always)]
    #[must_use]
    pub const fn encode(&self) -> [u8; HEADER_LEN] {
        let first = (VERSION as u64) << 56
            | (self.session as u64) << 48
            | (self.index as u64) << 32
            | (self.stream & STREAM_MASK) as u64;
        ((first as u128) << 64 | self.sequence as u128).to_be_bytes()
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

/// A SIG frame: header and payload.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    header: Header,
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Takes `frame` for a SIG frame.
    ///
    /// # Errors
    /// [`Error::Truncated`] below 16 bytes, [`Error::Version`].
    pub fn new_checked(frame: &'a [u8]) -> Result<Self, Error> {
        let (header, payload) = split(frame)?;
        let header = Header::decode(header)?;
        Ok(Self { header, payload })
    }

    /// The header.
    #[must_use]
    pub const fn header(&self) -> Header {
        self.header
    }

    /// Raw IP packets and parts of packets, back to back.
    #[must_use]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }
}
