//! The SCION common header, 12 bytes.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | version (4 bits), traffic class (8), flow id (20) |
//! | 4 | 1 | next header |
//! | 5 | 1 | header length in words of 4 bytes: common and address header and path |
//! | 6 | 2 | payload length: extension headers and upper layer |
//! | 8 | 1 | path type |
//! | 9 | 1 | types and lengths of the host addresses: destination in the high nibble, source in the low |
//! | 10 | 2 | reserved |

use crate::wire::{Error, be16};

/// Bytes of the header.
pub const HEADER_LEN: usize = 12;
/// The largest flow id.
pub const FLOW_ID_MASK: u32 = 0x000f_ffff;

/// Offset of next header in a SCION header.
pub const NEXT_HEADER_OFFSET: usize = 4;
/// Offset of payload length in a SCION header.
pub const PAYLOAD_LEN_OFFSET: usize = 6;
/// Offset of types and lengths of the host addresses in a SCION header.
pub const ADDRESS_TYPES_OFFSET: usize = 9;

/// The common header of version 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Common {
    /// Traffic class: DSCP and ECN.
    pub traffic_class: u8,
    /// Flow id, 20 bits.
    pub flow_id: u32,
    /// What follows the SCION header.
    pub next_header: u8,
    /// Length of the SCION header in words of 4 bytes.
    pub header_words: u8,
    /// Bytes after the SCION header.
    pub payload_len: u16,
    /// Path type.
    pub path_type: u8,
    /// Types and lengths of the host addresses, see [`super::address`].
    pub address_types: u8,
}

impl Common {
    /// Reads a header.
    ///
    /// # Errors
    /// [`Error::Version`] for any version but 0.
    #[inline(always)]
    pub const fn decode(bytes: &[u8; HEADER_LEN]) -> Result<Self, Error> {
        let first = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        if first >> 28 != 0 {
            return Err(Error::Version);
        }
        Ok(Self {
            traffic_class: (first >> 20) as u8,
            flow_id: first & FLOW_ID_MASK,
            next_header: bytes[NEXT_HEADER_OFFSET],
            header_words: bytes[5],
            payload_len: be16(bytes[PAYLOAD_LEN_OFFSET], bytes[PAYLOAD_LEN_OFFSET + 1]),
            path_type: bytes[8],
            address_types: bytes[9],
        })
    }

    /// The bytes on the wire. Bits of `flow_id` above the 20 of the field are cut off.
    #[inline(always)]
    #[must_use]
    pub const fn encode(&self) -> [u8; HEADER_LEN] {
        let [w0, w1, w2, w3] = encode_first_word(self.traffic_class, self.flow_id);
        let (next, words) = (self.next_header, self.header_words);
        let [l0, l1] = self.payload_len.to_be_bytes();
        let (path, types) = (self.path_type, self.address_types);
        [w0, w1, w2, w3, next, words, l0, l1, path, types, 0, 0]
    }

    /// Length of the SCION header in bytes, at most [`super::MAX_HEADER_LEN`].
    #[inline(always)]
    #[must_use]
    pub const fn header_len(&self) -> usize {
        self.header_words as usize * 4
    }
}

/// The first four bytes of a SCION header of version 0: what changes from packet to packet of a
/// path, besides [`PAYLOAD_LEN_OFFSET`].
#[inline(always)]
#[must_use]
pub const fn encode_first_word(traffic_class: u8, flow_id: u32) -> [u8; 4] {
    ((traffic_class as u32) << 20 | (flow_id & FLOW_ID_MASK)).to_be_bytes()
}
