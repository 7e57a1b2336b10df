//! The SRH of a packet, found and checked: the source that XDP programs and the engine share.

use super::{FIXED_LEN, Fields, Problem, SEGMENT_LEN, SEGMENTS_LEFT};
use crate::wire::{Error, Load, be16, ipv6};

/// How many extension headers in front of an SRH are followed: hop-by-hop options, which only come first, and destination
/// options.
pub const MAX_BEFORE: usize = 2;

/// All offsets in a packet up to the end of its SRH are below this power of two. The BPF verifier needs to see it.
const OFFSETS: usize = 8192;

/// Why a packet has no SRH to process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reject {
    /// No complete IPv6 packet, or one whose first headers are not within reach.
    Packet(Error),
    /// An IPv6 packet without an SRH, or with one behind headers that are not followed.
    Absent,
    /// The SRH is malformed.
    Malformed {
        /// What is wrong.
        problem: Problem,
        /// Offset of the SRH in the packet.
        offset: u16,
    },
}

impl Reject {
    /// Where the pointer of the ICMPv6 Parameter Problem (code 0) goes that the sender is due: the offset in the packet of the
    /// field Segments Left (RFC 8754, section 4.3.1.1). `None` if there is no malformed SRH to tell about.
    #[inline(always)]
    #[must_use]
    pub const fn pointer(self) -> Option<u16> {
        match self {
            Self::Malformed { offset, .. } => Some(offset + SEGMENTS_LEFT as u16),
            Self::Packet(_) | Self::Absent => None,
        }
    }
}

/// An SRH in a packet. Offsets count from the start of the IPv6 header and are below 8192.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Srh {
    /// Offset of the SRH.
    pub offset: u16,
    /// Offset of the Next Header field that announces it: of the IPv6 header, or of an extension header in front. Who
    /// removes the SRH puts [`Srh::next_header`] there.
    pub announced_at: u16,
    /// Bytes of the SRH, a multiple of 8; at most 2048.
    pub len: u16,
    /// Bytes of the whole packet, never more than there were.
    pub packet_len: u16,
    /// What follows the SRH.
    pub next_header: u8,
    /// Segments still to be visited, without the active one; at most `last_entry + 1`.
    pub segments_left: u8,
    /// Index of the last element of the list, at most 126.
    pub last_entry: u8,
    /// Flags; RFC 8754 defines none.
    pub flags: u8,
    /// Tag, for those who know what it means.
    pub tag: u16,
}

/// Finds the SRH of the IPv6 packet that `packet` starts with, right behind the IPv6 header or behind at most [`MAX_BEFORE`]
/// headers with hop-by-hop and destination options, and checks it as RFC 8754, section 4.3.1.1, demands. TLVs are not looked at.
///
/// # Errors
/// See [`Reject`].
#[inline(always)]
pub fn parse<L: Load + ?Sized>(packet: &L) -> Result<Srh, Reject> {
    const TRUNCATED: Reject = Reject::Packet(Error::Truncated);

    if packet.len() < ipv6::HEADER_LEN {
        return Err(TRUNCATED);
    }
    let Some([first, _, _, _, l0, l1, next, _]) = packet.bytes(0) else {
        return Err(TRUNCATED);
    };
    if first >> 4 != 6 {
        return Err(Reject::Packet(Error::Version));
    }
    let payload_len = be16(l0, l1);
    let is_jumbogram = payload_len == 0 && next == ipv6::HOP_BY_HOP;
    let Some(packet_len) = payload_len.checked_add(ipv6::HEADER_LEN as u16) else {
        return Err(Reject::Packet(Error::Length));
    };
    if is_jumbogram || usize::from(packet_len) > packet.len() {
        return Err(Reject::Packet(Error::Length));
    }
    let end = usize::from(packet_len);
    let (mut next, mut at, mut announced_at) = (next, ipv6::HEADER_LEN, 6);
    for place in 0..MAX_BEFORE {
        let is_followed = next == ipv6::DESTINATION || (next == ipv6::HOP_BY_HOP && place == 0);
        if !is_followed {
            break;
        }
        if at + 2 > end {
            return Err(TRUNCATED);
        }
        let Some([following, words]) = packet.bytes(at) else {
            return Err(TRUNCATED);
        };
        announced_at = at;
        next = following;
        at += (usize::from(words) + 1) * 8;
    }
    if next != ipv6::ROUTING {
        return Err(Reject::Absent);
    }
    if at + FIXED_LEN > end {
        return Err(TRUNCATED);
    }
    let Some(fixed) = packet.bytes(at) else {
        return Err(TRUNCATED);
    };
    let Some(fields) = Fields::read(fixed) else {
        return Err(Reject::Absent);
    };
    let offset = at as u16;
    if let Err(problem) = fields.check(end - at) {
        return Err(Reject::Malformed { problem, offset });
    }
    Ok(Srh {
        offset,
        announced_at: announced_at as u16,
        len: fields.len,
        packet_len,
        next_header: fields.next_header,
        segments_left: fields.segments_left,
        last_entry: fields.last_entry,
        flags: fields.flags,
        tag: fields.tag,
    })
}

impl Srh {
    /// Offset of what follows the SRH.
    #[inline(always)]
    #[must_use]
    pub const fn after(&self) -> u16 {
        self.offset + self.len
    }

    /// Offset of the TLVs, which go on until [`Srh::after`].
    #[inline(always)]
    #[must_use]
    pub const fn tlvs(&self) -> u16 {
        self.offset + FIXED_LEN as u16 + (self.last_entry as u16 + 1) * SEGMENT_LEN as u16
    }

    /// Whether the active segment is in the destination address alone: the first one of a reduced list.
    #[inline(always)]
    #[must_use]
    pub const fn is_first_left_out(&self) -> bool {
        self.segments_left > self.last_entry
    }

    /// Element `index` of the list in `packet`, in the order on the wire: 0 is the last segment on the way. `None` if the list
    /// ends before, or where a packet is within reach only in part.
    #[inline(always)]
    #[must_use]
    pub fn segment<L: Load + ?Sized>(&self, packet: &L, index: u8) -> Option<[u8; SEGMENT_LEN]> {
        packet.bytes(self.segment_at(index)?)
    }

    /// Where in the packet that element is. `None` if the list ends before.
    #[inline(always)]
    #[must_use]
    pub const fn segment_at(&self, index: u8) -> Option<usize> {
        if index > self.last_entry {
            return None;
        }
        let list = self.offset as usize + FIXED_LEN;
        Some((list + index as usize * SEGMENT_LEN) & (OFFSETS - 1))
    }

    /// The segment that becomes active next: element `segments_left - 1` of the list. `None` if no segments are left, or as in
    /// [`Srh::segment`].
    #[inline(always)]
    #[must_use]
    pub fn next_segment<L: Load + ?Sized>(&self, packet: &L) -> Option<[u8; SEGMENT_LEN]> {
        self.segment(packet, self.segments_left.checked_sub(1)?)
    }
}
