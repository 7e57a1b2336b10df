//! A packet on its way through the AS: what is read of it, where it is on its path, and what is to be written.

use super::Reason;
use crate::wire::{
    Load,
    scion::{
        NEXT_BFD,
        address::{self, ISD_AS_LEN},
        common::{Common, HEADER_LEN},
        path::{
            self, HOP_EGRESS_ALERT, HOP_INGRESS_ALERT, HOP_LEN, INFO_CONSTRUCTION_DIRECTION,
            INFO_LEN, INFO_PEERING, META_LEN, MacInput, Meta, SEGMENT_ID_OFFSET,
        },
    },
};

/// Bytes of common header and both ISD-AS numbers: the offset of the destination host.
pub const FIXED_LEN: usize = HEADER_LEN + ISD_AS_LEN;

/// Offsets of the path, which is in front of all info fields, are below this.
const PATH_MASK: usize = 0x7f;
/// Offsets in a SCION header are below this.
const HEADER_MASK: usize = 0x3ff;

/// A packet on its way through the AS, filled step by step.
///
/// In the XDP programs it is part of a map, not on the stack: for the verifier everything read from a map is unknown, so
/// that it looks at what follows once and not for every combination of headers before. That is why offsets read from
/// here are masked, by what they are below in any case.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Passage {
    /// Destination ISD-AS.
    pub destination_isd_as: u64,
    /// Source ISD-AS.
    pub source_isd_as: u64,
    /// Bytes of the SCION packet.
    pub len: u32,
    /// Bytes of the SCION header.
    pub header_len: u32,
    /// Offset of the path in the SCION packet.
    pub path: u32,
    /// SCION interface that it came in by; 0: from inside.
    pub ingress: u16,
    /// Bytes after the SCION header, as the header says.
    pub payload_len: u16,
    /// What follows the SCION header.
    pub next_header: u8,
    /// Path type.
    pub path_type: u8,
    /// Types of the host addresses.
    pub address_types: u8,
    reserved: [u8; 3],
    /// Whether the current hop field is at a peering link.
    pub(super) peering: bool,
    /// Whether it has gone on to another segment here.
    pub(super) crossing: bool,
    /// Path meta header.
    meta: u32,
    /// Hop fields of the first segment, and of the first two.
    first: u32,
    second: u32,
    /// Hop fields and info fields of the path.
    hops: u32,
    infos: u32,
    /// Current hop field and its info field.
    hop: u32,
    info: u32,
    /// What they say. The segment identifier is as it is to be.
    pub fields: Fields,
    /// Segment identifiers to write: that of the info field at first, and where the segment changes of the next one.
    pub changes: [Change; 2],
}

/// An info field and a hop field of its segment.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Fields {
    /// Message authentication code of the hop field, in the low 48 bits.
    pub mac: u64,
    /// When the segment was made, seconds since 1970.
    pub timestamp: u32,
    /// Interface by which the segment comes in, in construction direction.
    pub ingress: u16,
    /// Interface by which it goes out, in construction direction.
    pub egress: u16,
    /// Segment identifier.
    pub segment_id: u16,
    info_flags: u8,
    hop_flags: u8,
    /// Lifetime.
    pub expiry: u8,
    reserved: [u8; 3],
}

/// A segment identifier before and after.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Change {
    /// Number of the info field.
    pub info: u32,
    /// What it was.
    pub old: u16,
    /// What it is to be.
    pub new: u16,
}

impl Change {
    /// Offset of the segment identifier in the path.
    #[inline(always)]
    pub const fn offset(&self) -> usize {
        META_LEN + INFO_LEN * (self.info & 3) as usize + SEGMENT_ID_OFFSET
    }
}

impl Fields {
    /// Reads both; any bytes are such fields.
    #[inline(always)]
    pub const fn decode(info: [u8; INFO_LEN], hop: [u8; HOP_LEN]) -> Self {
        // As numbers: put together of bytes, XDP programs would read them byte by byte.
        let info = u64::from_be_bytes(info);
        let [flags, expiry, i0, i1, e0, e1, m0, m1, m2, m3, m4, m5] = hop;
        Self {
            mac: u64::from_be_bytes([e0, e1, m0, m1, m2, m3, m4, m5]) & 0xffff_ffff_ffff,
            timestamp: info as u32,
            ingress: u16::from_be_bytes([i0, i1]),
            egress: u16::from_be_bytes([e0, e1]),
            segment_id: (info >> 32) as u16,
            info_flags: (info >> 56) as u8,
            hop_flags: flags,
            expiry,
            reserved: [0; 3],
        }
    }
    /// Whether the hop is passed in the direction in which its segment was made.
    #[inline(always)]
    pub const fn is_forward(&self) -> bool {
        self.info_flags & INFO_CONSTRUCTION_DIRECTION != 0
    }

    /// Whether the segment has a peering link.
    #[inline(always)]
    pub const fn is_peering(&self) -> bool {
        self.info_flags & INFO_PEERING != 0
    }

    /// The first in construction direction, else the second.
    #[inline(always)]
    const fn directed<T: Copy>(&self, forward: T, backward: T) -> T {
        if self.is_forward() { forward } else { backward }
    }

    /// The interface that the packet comes in by.
    #[inline(always)]
    pub const fn way_in(&self) -> u16 {
        self.directed(self.ingress, self.egress)
    }

    /// The interface that it leaves by.
    #[inline(always)]
    pub const fn way_out(&self) -> u16 {
        self.directed(self.egress, self.ingress)
    }

    /// The flag by which the router at the way in shall answer.
    #[inline(always)]
    pub const fn flag_in(&self) -> u8 {
        self.directed(HOP_INGRESS_ALERT, HOP_EGRESS_ALERT)
    }

    /// The flag by which the router at the way out shall answer.
    #[inline(always)]
    pub const fn flag_out(&self) -> u8 {
        self.directed(HOP_EGRESS_ALERT, HOP_INGRESS_ALERT)
    }

    /// Whether a flag of the hop field is set.
    #[inline(always)]
    pub const fn alerts(&self, flag: u8) -> bool {
        self.hop_flags & flag != 0
    }

    /// See [`path::HopField::beta`].
    #[inline(always)]
    pub const fn beta(&self) -> u16 {
        (self.mac >> 32) as u16
    }

    /// What the MAC is of.
    #[inline(always)]
    pub const fn mac_input(&self) -> MacInput {
        MacInput {
            segment_id: self.segment_id,
            timestamp: self.timestamp,
            expiry: self.expiry,
            ingress: self.ingress,
            egress: self.egress,
        }
    }
}

impl Passage {
    /// A packet of `len` bytes that came in by a SCION interface; 0: from inside.
    #[must_use]
    pub fn new(len: usize, ingress: u16) -> Self {
        Self {
            len: u32::try_from(len).unwrap_or(u32::MAX),
            ingress,
            ..Self::default()
        }
    }

    /// A SCION path alone.
    ///
    /// # Errors
    /// See [`Self::read_position`].
    pub fn on_path(path: &[u8]) -> Result<Self, Reason> {
        let mut passage = Self::new(path.len(), 0);
        passage.header_len = passage.len;
        passage.read_position(path)?;
        passage.read_fields(path)?;
        Ok(passage)
    }

    /// Reads what is in front of the ISD-AS numbers: version, lengths and types. [`Self::len`] must be known.
    ///
    /// # Errors
    /// The first that is wrong: [`Reason::Version`], [`Reason::AddressType`], [`Reason::HeaderLength`]; the latter also if
    /// there is less than a common header.
    #[inline(always)]
    pub fn read_header<L: Load + ?Sized>(&mut self, packet: &L) -> Result<(), Reason> {
        if self.len < HEADER_LEN as u32 {
            return Err(Reason::HeaderLength);
        }
        let header = packet.bytes(0).ok_or(Reason::HeaderLength)?;
        let Ok(header) = Common::decode(&header) else {
            return Err(Reason::Version);
        };
        self.next_header = header.next_header;
        self.header_len = header.header_len() as u32;
        self.payload_len = header.payload_len;
        self.path_type = header.path_type;
        self.address_types = header.address_types;
        let (Some(destination), Some(source)) = (
            address::host_len(header.address_types >> 4),
            address::host_len(header.address_types & 0x0f),
        ) else {
            return Err(Reason::AddressType);
        };
        self.path = (FIXED_LEN + destination + source) as u32;
        if self.header_len < self.path || self.header_len > self.len {
            return Err(Reason::HeaderLength);
        }
        Ok(())
    }

    /// Whether this is BFD, if what does not come over a link comes from a sibling: a message without extension headers in
    /// front, from a neighbour with a one-hop path, from a sibling with the empty one. What hosts send is none.
    #[inline(always)]
    pub const fn is_bfd(&self) -> bool {
        let of_session = if self.ingress != 0 {
            path::ONE_HOP
        } else {
            path::EMPTY
        };
        self.next_header == NEXT_BFD && self.path_type == of_session
    }

    /// Reads the ISD-AS numbers.
    ///
    /// # Errors
    /// [`Reason::HeaderLength`] if they are out of reach.
    #[inline(always)]
    pub fn read_isd_as<L: Load + ?Sized>(&mut self, packet: &L) -> Result<(), Reason> {
        let isd_as = |at| packet.bytes(at).map(u64::from_be_bytes);
        self.destination_isd_as = isd_as(HEADER_LEN).ok_or(Reason::HeaderLength)?;
        self.source_isd_as = isd_as(HEADER_LEN + 8).ok_or(Reason::HeaderLength)?;
        Ok(())
    }

    /// Reads the path meta header of a SCION path, which ends where the SCION header does.
    ///
    /// # Errors
    /// [`Reason::MalformedPath`] for lengths and pointers that do not fit: see [`Meta::path_len`]; the info field must be
    /// that of the hop field.
    #[inline(always)]
    pub fn read_position<L: Load + ?Sized>(&mut self, packet: &L) -> Result<(), Reason> {
        let bytes = packet
            .bytes(self.path as usize & PATH_MASK)
            .ok_or(Reason::MalformedPath)?;
        let meta = Meta::decode(bytes);
        let [first, second, third] = meta.segments;
        self.meta = u32::from_be_bytes(bytes);
        self.first = first.into();
        self.second = u32::from(first) + u32::from(second);
        self.hops = self.second + u32::from(third);
        self.infos = meta.infos() as u32;
        self.info = meta.current_info.into();
        self.hop = meta.current_hop.into();
        let len = self.header_len.wrapping_sub(self.path) as usize;
        if meta.path_len() != Some(len) || meta.current_info != meta.segment_of(meta.current_hop) {
            return Err(Reason::MalformedPath);
        }
        Ok(())
    }

    /// Reads the current info field and hop field.
    ///
    /// # Errors
    /// [`Reason::MalformedPath`] if they are out of reach.
    #[inline(always)]
    pub fn read_fields<L: Load + ?Sized>(&mut self, packet: &L) -> Result<(), Reason> {
        self.fields = self.fields_at(packet, self.info, self.hop)?;
        Ok(())
    }

    /// Whether the hop field before the current one is of another segment.
    #[inline(always)]
    pub const fn is_after_change(&self) -> bool {
        self.info != 0 && self.segment_of(self.hop.wrapping_sub(1)) != self.info
    }

    /// That hop field and its info field.
    ///
    /// # Errors
    /// [`Reason::MalformedPath`] if they are out of reach.
    #[inline(always)]
    pub fn fields_before<L: Load + ?Sized>(&self, packet: &L) -> Result<Fields, Reason> {
        self.fields_at(packet, self.info.wrapping_sub(1), self.hop.wrapping_sub(1))
    }

    #[inline(always)]
    fn fields_at<L: Load + ?Sized>(
        &self,
        packet: &L,
        info: u32,
        hop: u32,
    ) -> Result<Fields, Reason> {
        let at = self.info_offset(info) as usize & PATH_MASK;
        let info = packet.bytes(at).ok_or(Reason::MalformedPath)?;
        let at = self.hop_offset(hop) as usize & HEADER_MASK;
        let hop = packet.bytes(at).ok_or(Reason::MalformedPath)?;
        Ok(Fields::decode(info, hop))
    }

    #[inline(always)]
    const fn info_offset(&self, info: u32) -> u32 {
        self.path + META_LEN as u32 + INFO_LEN as u32 * info
    }

    #[inline(always)]
    const fn hop_offset(&self, hop: u32) -> u32 {
        self.info_offset(self.infos) + HOP_LEN as u32 * hop
    }

    /// Offset of the current info field in the packet.
    #[inline(always)]
    pub const fn current_info_offset(&self) -> usize {
        self.info_offset(self.info) as usize
    }

    /// Offset of the current hop field in the packet.
    #[inline(always)]
    pub const fn current_hop_offset(&self) -> usize {
        self.hop_offset(self.hop) as usize
    }

    /// Number of the current info field.
    #[inline(always)]
    pub const fn info(&self) -> u32 {
        self.info
    }

    /// The segment that a hop field is of.
    #[inline(always)]
    const fn segment_of(&self, hop: u32) -> u32 {
        if hop < self.first {
            0
        } else if hop < self.second {
            1
        } else {
            2
        }
    }

    /// Whether the packet comes over a link, from another AS.
    #[inline(always)]
    pub const fn is_from_outside(&self) -> bool {
        self.ingress != 0
    }

    /// Whether the current hop field is the first of the path.
    #[inline(always)]
    pub const fn is_first(&self) -> bool {
        self.hop == 0
    }

    /// Whether it is the last one.
    #[inline(always)]
    pub const fn is_last(&self) -> bool {
        self.hops_behind() == 0
    }

    /// How many hop fields come after it.
    #[inline(always)]
    pub const fn hops_behind(&self) -> u32 {
        self.hops.wrapping_sub(self.hop).wrapping_sub(1)
    }

    /// Whether the next hop field is of another segment.
    #[inline(always)]
    pub const fn is_before_change(&self) -> bool {
        !self.is_last() && self.segment_of(self.hop + 1) != self.info
    }

    /// Whether any segment has one hop field only.
    #[inline(always)]
    pub const fn has_segment_of_one_hop(&self) -> bool {
        self.first == 1
            || self.second.wrapping_sub(self.first) == 1
            || self.hops.wrapping_sub(self.second) == 1
    }

    /// Whether the current hop field is one of the two at a peering link (SCION data plane specification, "Peering
    /// Links"): the last one of the first of two segments, and the first one of the second.
    ///
    /// # Errors
    /// [`Reason::MalformedPeering`] if the path has no two segments, although its info field speaks of such a link.
    #[inline(always)]
    pub const fn is_at_peering_link(&self) -> Result<bool, Reason> {
        if !self.fields.is_peering() {
            return Ok(false);
        }
        if self.second == self.first || self.hops != self.second {
            return Err(Reason::MalformedPeering);
        }
        Ok(self.hop + 1 == self.first || self.hop == self.first)
    }

    /// Whether the current hop field has expired at `now`, nanoseconds since 1970.
    #[inline(always)]
    pub const fn has_expired(&self, now: u64) -> bool {
        path::expires_at(self.fields.timestamp, self.fields.expiry) < now
    }

    /// On to the next hop field; its contents are still to be read.
    #[inline(always)]
    pub const fn advance(&mut self) {
        self.hop += 1;
        self.info = self.segment_of(self.hop);
    }

    /// The path meta header as it was, and as it is to be.
    #[inline(always)]
    pub const fn meta(&self) -> (u32, u32) {
        let new = self.meta & 0x00ff_ffff | self.info << 30 | self.hop << 24;
        (self.meta, new)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::vec::Vec;

    /// A path with these pointers and segment lengths, of which each hop field has its number as its ingress interface.
    fn path(current: (u8, u8), segments: [u8; 3], info_flags: u8) -> Vec<u8> {
        let meta = Meta {
            current_info: current.0,
            current_hop: current.1,
            segments,
        };
        let mut path = meta.encode().to_vec();
        for _ in 0..meta.infos() {
            path.extend([info_flags, 0, 0, 0, 0, 0, 0, 0]);
        }
        for hop in 0..meta.hops() as u8 {
            path.extend([0, 0, 0, hop, 0, 0, 0, 0, 0, 0, 0, 0]);
        }
        path
    }

    #[test]
    fn a_packet_goes_from_hop_to_hop_and_over_changes_of_segments() {
        let mut passage = Passage::on_path(&path((0, 0), [2, 3, 2], 1)).unwrap();
        let mut seen = Vec::new();
        loop {
            seen.push((
                passage.info(),
                passage.is_after_change(),
                passage.is_before_change(),
            ));
            assert_eq!(passage.meta().1 >> 30, passage.info());
            if passage.is_last() {
                break;
            }
            passage.advance();
        }
        let expected = [
            (0, false, false),
            (0, false, true),
            (1, true, false),
            (1, false, false),
            (1, false, true),
            (2, true, false),
            (2, false, false),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn fields_are_those_of_the_pointers() {
        let bytes = path((1, 3), [2, 2, 0], 1);
        let passage = Passage::on_path(&bytes).unwrap();
        assert_eq!((passage.fields.way_in(), passage.hops_behind()), (3, 0));
        let passage = Passage::on_path(&path((1, 2), [2, 2, 0], 1)).unwrap();
        let before = passage.fields_before(&path((1, 2), [2, 2, 0], 1)[..]);
        assert_eq!(before.unwrap().way_in(), 1);
    }

    #[test]
    fn pointers_and_lengths_must_fit() {
        for (current, segments) in [
            ((0, 0), [0, 0, 0]),
            ((0, 0), [0, 2, 0]),
            ((0, 0), [2, 0, 2]),
            ((0, 4), [2, 2, 0]),
            ((1, 1), [2, 2, 0]),
            ((0, 2), [2, 2, 0]),
            ((0, 0), [63, 2, 0]),
        ] {
            let passage = Passage::on_path(&path(current, segments, 1));
            assert_eq!(passage.err(), Some(Reason::MalformedPath), "{segments:?}");
        }
        let mut long = path((0, 0), [2, 0, 0], 1);
        long.push(0);
        assert!(Passage::on_path(&long).is_err());
        assert!(Passage::on_path(&[0; 3]).is_err());
    }

    #[test]
    fn a_peering_link_is_where_two_segments_meet() {
        let at = |hop, segments| {
            let info = u8::from(hop >= 2);
            Passage::on_path(&path((info, hop), segments, INFO_PEERING))
                .unwrap()
                .is_at_peering_link()
        };
        let found: Vec<_> = (0..4).map(|hop| at(hop, [2, 2, 0]).unwrap()).collect();
        assert_eq!(found, [false, true, true, false]);
        assert_eq!(at(0, [2, 0, 0]), Err(Reason::MalformedPeering));
        assert_eq!(at(0, [2, 2, 2]), Err(Reason::MalformedPeering));
    }
}
