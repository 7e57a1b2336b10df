//! Segment routing header of IPv6 (SRH, RFC 8754).
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | next header |
//! | 1 | 1 | header length in units of 8 bytes, without the first 8 |
//! | 2 | 1 | routing type, 4 |
//! | 3 | 1 | segments left |
//! | 4 | 1 | last entry: index of the last element of the list |
//! | 5 | 1 | flags |
//! | 6 | 2 | tag |
//! | 8 | 16 each | segment list; its first element is the *last* segment on the way |
//! | | | TLVs |
//!
//! [`parse()`] finds the SRH of a packet and checks it, for XDP programs and the engine alike. [`View`] shows all of an SRH,
//! [`Header`] writes one.

mod header;
mod parse;
mod tlv;
mod view;

pub use header::{Header, len};
pub use parse::{MAX_BEFORE, Reject, Srh, parse};
pub use tlv::{HMAC, HMAC_D, Hmac, HmacText, MAX_MAC, PAD1, Tlv, Tlvs};
pub use view::View;

use super::be16;

/// Bytes of the fixed fields.
pub const FIXED_LEN: usize = 8;
/// Bytes of a segment, an IPv6 address.
pub const SEGMENT_LEN: usize = 16;
/// Bytes of the longest SRH.
pub const MAX_LEN: usize = 256 * 8;
/// Segments in the longest list.
pub const MAX_SEGMENTS: usize = (MAX_LEN - FIXED_LEN) / SEGMENT_LEN;
/// Routing type of the SRH (RFC 8754, section 8).
pub const ROUTING_TYPE: u8 = 4;
/// Offset of the field Segments Left, at which ICMPv6 errors about an SRH point.
pub const SEGMENTS_LEFT: usize = 3;

/// Next header value of an IPv4 packet.
pub const NEXT_IPV4: u8 = 4;
/// Next header value of an IPv6 packet.
pub const NEXT_IPV6: u8 = 41;
/// Next header value of an Ethernet frame (RFC 8986, section 10.1).
pub const NEXT_ETHERNET: u8 = 143;

/// What is wrong with an SRH.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Problem {
    /// Fewer than the 8 bytes of the fixed fields.
    Truncated,
    /// Another routing type.
    RoutingType,
    /// The header is longer than what there is.
    Length,
    /// The segment list, as long as Last Entry says, is longer than the header.
    LastEntry,
    /// Segments Left is more than Last Entry plus one.
    SegmentsLeft,
    /// A TLV is longer than the header, or an HMAC has an impossible length.
    Tlv,
}

impl core::fmt::Display for Problem {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Truncated => "truncated",
            Self::RoutingType => "another routing type",
            Self::Length => "longer than the packet",
            Self::LastEntry => "the segment list is longer than the header",
            Self::SegmentsLeft => "more segments left than there are",
            Self::Tlv => "malformed TLV",
        })
    }
}

impl core::error::Error for Problem {}

/// The fixed fields.
#[derive(Clone, Copy, Debug)]
struct Fields {
    next_header: u8,
    /// Bytes of the header, 8 to 2048.
    len: u16,
    segments_left: u8,
    last_entry: u8,
    flags: u8,
    tag: u16,
}

impl Fields {
    /// `None` if the routing type is another.
    #[inline(always)]
    const fn read(fixed: [u8; FIXED_LEN]) -> Option<Self> {
        let [
            next_header,
            words,
            kind,
            segments_left,
            last_entry,
            flags,
            t0,
            t1,
        ] = fixed;
        if kind != ROUTING_TYPE {
            return None;
        }
        Some(Self {
            next_header,
            len: (words as u16 + 1) * 8,
            segments_left,
            last_entry,
            flags,
            tag: be16(t0, t1),
        })
    }

    /// The checks of RFC 8754, section 4.3.1.1, and whether the header is within the `room` bytes that there are from its
    /// start on. The RFC asks for them only while segments are left; a list that is not there is of no use afterwards either.
    #[inline(always)]
    const fn check(self, room: usize) -> Result<(), Problem> {
        if self.len as usize > room {
            return Err(Problem::Length);
        }
        if FIXED_LEN as u16 + (self.last_entry as u16 + 1) * SEGMENT_LEN as u16 > self.len {
            return Err(Problem::LastEntry);
        }
        if self.segments_left as u16 > self.last_entry as u16 + 1 {
            return Err(Problem::SegmentsLeft);
        }
        Ok(())
    }
}
