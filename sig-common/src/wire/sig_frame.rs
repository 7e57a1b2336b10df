//! The header of a SIG frame, 16 bytes (source: SIG frame, doc/sig of SCION).
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | version, 0 |
//! | 1 | 1 | session |
//! | 2 | 2 | index: byte offset, from the end of this header, of the first packet that starts in this frame |
//! | 4 | 4 | 12 reserved bits, then the stream, 20 bits |
//! | 8 | 8 | sequence number |
//!
//! # Protected frames
//!
//! Two `sig`s that have agreed on a key send each other frames of another version, which gateways without the key refuse.
//! The header is followed by 12 bytes, which with it are authenticated but not encrypted; then come the payload, encrypted,
//! and the tag of the AEAD.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 16 | the header as above, with version [`VERSION_PROTECTED`] |
//! | 16 | 4 | number of the key, as the receiver gave it |
//! | 20 | 8 | number of the frame under this key: 8 bits that tell the sender's workers apart, 56 bits that count from 0 |
//! | 28 | | encrypted payload |
//! | end - 16 | 16 | tag |

use super::{Error, split, split_mut};

/// Bytes of the header.
pub const HEADER_LEN: usize = 16;
/// The only version of SCION.
pub const VERSION: u8 = 0;
/// The version of protected frames: far from the numbers that the next versions of SCION would have.
pub const VERSION_PROTECTED: u8 = 0xae;
/// Bytes between the header and the payload of a protected frame.
pub const EXTENSION_LEN: usize = 12;
/// Bytes of the tag behind the payload of a protected frame.
pub const TAG_LEN: usize = 16;
/// Bytes by which a protected frame is longer than another one with the same payload.
pub const PROTECTION_LEN: usize = EXTENSION_LEN + TAG_LEN;
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

    /// Reads a header of either version. Whether the frame is protected.
    ///
    /// # Errors
    /// [`Error::Version`] for any version but these two.
    #[inline(always)]
    pub const fn decode_any(bytes: &[u8; HEADER_LEN]) -> Result<(Self, bool), Error> {
        let mut bytes = *bytes;
        let is_protected = bytes[0] == VERSION_PROTECTED;
        if is_protected {
            bytes[0] = VERSION;
        }
        match Self::decode(&bytes) {
            Ok(header) => Ok((header, is_protected)),
            Err(error) => Err(error),
        }
    }

    /// The bytes on the wire of the header of a protected frame.
    #[inline(always)]
    #[must_use]
    pub const fn encode_protected(&self) -> [u8; HEADER_LEN] {
        let mut bytes = self.encode();
        bytes[0] = VERSION_PROTECTED;
        bytes
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

/// What stands between header and payload of a protected frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Extension {
    /// Number of the key, as the receiver gave it.
    pub key: u32,
    /// Number of the frame under this key, never used twice.
    pub number: u64,
}

impl Extension {
    /// Reads it. Any bytes are one.
    #[inline]
    #[must_use]
    pub const fn decode(bytes: &[u8; EXTENSION_LEN]) -> Self {
        let [k0, k1, k2, k3, n0, n1, n2, n3, n4, n5, n6, n7] = *bytes;
        Self {
            key: u32::from_be_bytes([k0, k1, k2, k3]),
            number: u64::from_be_bytes([n0, n1, n2, n3, n4, n5, n6, n7]),
        }
    }

    /// The bytes on the wire.
    #[inline]
    #[must_use]
    pub const fn encode(&self) -> [u8; EXTENSION_LEN] {
        let [k0, k1, k2, k3] = self.key.to_be_bytes();
        let [n0, n1, n2, n3, n4, n5, n6, n7] = self.number.to_be_bytes();
        [k0, k1, k2, k3, n0, n1, n2, n3, n4, n5, n6, n7]
    }

    /// The sender's worker.
    #[must_use]
    pub const fn lane(&self) -> u8 {
        (self.number >> 56) as u8
    }

    /// How many frames that worker had sent before under this key.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.number << 8 >> 8
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

/// A protected SIG frame, of which nothing has been verified.
#[derive(Clone, Copy, Debug)]
pub struct ProtectedView<'a> {
    header: Header,
    extension: Extension,
    sealed: &'a [u8],
}

impl<'a> ProtectedView<'a> {
    /// Takes `frame` for a protected SIG frame.
    ///
    /// # Errors
    /// [`Error::Truncated`] below 44 bytes, [`Error::Version`].
    pub fn new_checked(frame: &'a [u8]) -> Result<Self, Error> {
        let (header, rest) = split(frame)?;
        let (header, is_protected) = Header::decode_any(header)?;
        if !is_protected {
            return Err(Error::Version);
        }
        let (extension, sealed) = split(rest)?;
        if sealed.len() < TAG_LEN {
            return Err(Error::Truncated);
        }
        Ok(Self {
            header,
            extension: Extension::decode(extension),
            sealed,
        })
    }

    /// The header.
    #[must_use]
    pub const fn header(&self) -> Header {
        self.header
    }

    /// Which key, and which of its frames.
    #[must_use]
    pub const fn extension(&self) -> Extension {
        self.extension
    }

    /// The encrypted payload and the tag behind it.
    #[must_use]
    pub const fn sealed(&self) -> &'a [u8] {
        self.sealed
    }
}
