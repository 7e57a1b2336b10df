//! SCION paths: empty, SCION, one-hop, EPIC.
//!
//! End hosts treat a path as opaque bytes; here its lengths are checked and its fields can be read.

use crate::wire::{Error, be16, split};

/// Path type of the empty path, within an AS.
pub const EMPTY: u8 = 0;
/// Path type of the SCION path.
pub const SCION: u8 = 1;
/// Path type of the one-hop path, used for beaconing.
pub const ONE_HOP: u8 = 2;
/// Path type of EPIC.
pub const EPIC: u8 = 3;

/// Bytes of the path meta header.
pub const META_LEN: usize = 4;
/// Bytes of an info field.
pub const INFO_LEN: usize = 8;
/// Bytes of a hop field.
pub const HOP_LEN: usize = 12;
/// Bytes of a one-hop path: an info field and two hop fields.
pub const ONE_HOP_LEN: usize = INFO_LEN + 2 * HOP_LEN;
/// Bytes of the EPIC header in front of its SCION path: packet id and two hop validation fields.
pub const EPIC_LEN: usize = 16;
/// The most hop fields a path may have.
pub const MAX_HOPS: usize = 64;

/// Flag of an info field: peering segment.
pub const INFO_PEERING: u8 = 0x02;
/// Flag of an info field: the hop fields are in construction direction.
pub const INFO_CONSTRUCTION_DIRECTION: u8 = 0x01;
/// Offset of the segment identifier in an info field.
pub const SEGMENT_ID_OFFSET: usize = 2;
/// Flag of a hop field: alert for the router at the ingress in construction direction.
pub const HOP_INGRESS_ALERT: u8 = 0x02;
/// Flag of a hop field: alert for the router at the egress in construction direction.
pub const HOP_EGRESS_ALERT: u8 = 0x01;

const NANOS_PER_SECOND: u64 = 1_000_000_000;
/// Unit of a hop field's lifetime, the 256th part of a day (SCION header specification, "Hop Field"): 337.5 s, in
/// nanoseconds.
const EXPIRY_UNIT: u64 = 24 * 60 * 60 * NANOS_PER_SECOND / 256;

/// When a hop field expires, nanoseconds since 1970: its lifetime is one unit longer than its field says.
#[inline(always)]
#[must_use]
pub const fn expires_at(timestamp: u32, expiry: u8) -> u64 {
    timestamp as u64 * NANOS_PER_SECOND + (expiry as u64 + 1) * EXPIRY_UNIT
}

/// What a hop field's MAC says (SCION header specification, "Hop Field MAC Computation"). Ingress and egress are those in
/// construction direction; alerts are not covered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacInput {
    /// The segment identifier "beta" that the hop was made with.
    pub segment_id: u16,
    /// When the segment was made, seconds since 1970.
    pub timestamp: u32,
    /// Relative expiry, as in the hop field.
    pub expiry: u8,
    /// Interface towards the start of the segment.
    pub ingress: u16,
    /// Interface towards its end.
    pub egress: u16,
}

impl MacInput {
    /// The block that the MAC is computed of, as four words, big endian.
    #[inline(always)]
    #[must_use]
    pub const fn words(&self) -> [u32; 4] {
        [
            self.segment_id as u32,
            self.timestamp,
            (self.expiry as u32) << 16 | self.ingress as u32,
            (self.egress as u32) << 16,
        ]
    }

    /// The same as 16 bytes.
    #[must_use]
    pub const fn block(&self) -> [u8; 16] {
        let [a, b, c, d] = self.words();
        ((a as u128) << 96 | (b as u128) << 64 | (c as u128) << 32 | d as u128).to_be_bytes()
    }
}

/// The path meta header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Index of the current info field.
    pub current_info: u8,
    /// Index of the current hop field.
    pub current_hop: u8,
    /// Hop fields in each segment.
    pub segments: [u8; 3],
}

impl Meta {
    /// Reads a header; any bytes are one.
    #[inline(always)]
    #[must_use]
    pub const fn decode(bytes: [u8; META_LEN]) -> Self {
        let word = u32::from_be_bytes(bytes);
        Self {
            current_info: (word >> 30) as u8,
            current_hop: (word >> 24) as u8 & 0x3f,
            segments: [
                (word >> 12) as u8 & 0x3f,
                (word >> 6) as u8 & 0x3f,
                word as u8 & 0x3f,
            ],
        }
    }

    /// The bytes on the wire. Bits that do not fit their fields are cut off.
    #[must_use]
    pub const fn encode(&self) -> [u8; META_LEN] {
        let [s0, s1, s2] = self.segments;
        ((self.current_info as u32 & 0x3) << 30
            | (self.current_hop as u32 & 0x3f) << 24
            | (s0 as u32 & 0x3f) << 12
            | (s1 as u32 & 0x3f) << 6
            | (s2 as u32 & 0x3f))
            .to_be_bytes()
    }

    /// How many info fields: segments that are not empty.
    #[inline(always)]
    #[must_use]
    pub const fn infos(&self) -> usize {
        let [s0, s1, s2] = self.segments;
        (s0 != 0) as usize + (s1 != 0) as usize + (s2 != 0) as usize
    }

    /// How many hop fields.
    #[inline(always)]
    #[must_use]
    pub const fn hops(&self) -> usize {
        let [s0, s1, s2] = self.segments;
        s0 as usize + s1 as usize + s2 as usize
    }

    /// The segment that a hop field is in.
    #[inline(always)]
    #[must_use]
    pub const fn segment_of(&self, hop: u8) -> u8 {
        let [s0, s1, _] = self.segments;
        (hop >= s0) as u8 + (hop >= s0 + s1) as u8
    }

    /// Bytes of the whole path with this header; `None` if it has no segment, an empty segment in
    /// front of another, more than [`MAX_HOPS`] hops, or points outside itself.
    #[inline(always)]
    #[must_use]
    pub const fn path_len(&self) -> Option<usize> {
        let [s0, s1, s2] = self.segments;
        let (infos, hops) = (self.infos(), self.hops());
        if s0 == 0
            || (s1 == 0 && s2 != 0)
            || hops > MAX_HOPS
            || self.current_info as usize >= infos
            || self.current_hop as usize >= hops
        {
            return None;
        }
        Some(META_LEN + INFO_LEN * infos + HOP_LEN * hops)
    }
}

/// An info field: what the hops of a segment have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InfoField {
    /// Peering segment.
    pub peering: bool,
    /// The hop fields are in the direction in which the segment was constructed.
    pub construction_direction: bool,
    /// Segment id, updated on the way.
    pub segment_id: u16,
    /// When the segment was created, Unix time in seconds.
    pub timestamp: u32,
}

impl InfoField {
    /// Reads a field; any bytes are one.
    #[inline(always)]
    #[must_use]
    pub const fn decode(bytes: [u8; INFO_LEN]) -> Self {
        let [flags, _, i0, i1, t0, t1, t2, t3] = bytes;
        Self {
            peering: flags & INFO_PEERING != 0,
            construction_direction: flags & INFO_CONSTRUCTION_DIRECTION != 0,
            segment_id: be16(i0, i1),
            timestamp: u32::from_be_bytes([t0, t1, t2, t3]),
        }
    }

    /// The bytes on the wire.
    #[must_use]
    pub const fn encode(&self) -> [u8; INFO_LEN] {
        let flags = (self.peering as u8 * INFO_PEERING)
            | (self.construction_direction as u8 * INFO_CONSTRUCTION_DIRECTION);
        let [i0, i1] = self.segment_id.to_be_bytes();
        let [t0, t1, t2, t3] = self.timestamp.to_be_bytes();
        [flags, 0, i0, i1, t0, t1, t2, t3]
    }
}

/// A hop field: one AS of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HopField {
    /// The router at the ingress (in construction direction) shall process the payload.
    pub ingress_alert: bool,
    /// The router at the egress (in construction direction) shall process the payload.
    pub egress_alert: bool,
    /// Lifetime in units of 337.5 s, less one, from the timestamp of the info field.
    pub expiry: u8,
    /// Interface the segment comes in by in construction direction, 0 for none.
    pub ingress: u16,
    /// Interface the segment goes out by in construction direction, 0 for none.
    pub egress: u16,
    /// Message authentication code.
    pub mac: [u8; 6],
}

impl HopField {
    /// Reads a field; any bytes are one.
    #[inline(always)]
    #[must_use]
    pub const fn decode(bytes: [u8; HOP_LEN]) -> Self {
        let [flags, expiry, i0, i1, e0, e1, m0, m1, m2, m3, m4, m5] = bytes;
        Self {
            ingress_alert: flags & HOP_INGRESS_ALERT != 0,
            egress_alert: flags & HOP_EGRESS_ALERT != 0,
            expiry,
            ingress: be16(i0, i1),
            egress: be16(e0, e1),
            mac: [m0, m1, m2, m3, m4, m5],
        }
    }

    /// What the hop changes in the segment identifier for the next one: the first two bytes of its MAC (SCION header
    /// specification, "Segment Identifier").
    #[must_use]
    pub const fn beta(&self) -> u16 {
        let [m0, m1, ..] = self.mac;
        be16(m0, m1)
    }

    /// What its MAC is of, in a segment with this info field.
    #[must_use]
    pub const fn mac_input(&self, info: &InfoField) -> MacInput {
        MacInput {
            segment_id: info.segment_id,
            timestamp: info.timestamp,
            expiry: self.expiry,
            ingress: self.ingress,
            egress: self.egress,
        }
    }

    /// The bytes on the wire.
    #[must_use]
    pub const fn encode(&self) -> [u8; HOP_LEN] {
        let flags = (self.ingress_alert as u8 * HOP_INGRESS_ALERT)
            | (self.egress_alert as u8 * HOP_EGRESS_ALERT);
        let [i0, i1] = self.ingress.to_be_bytes();
        let [e0, e1] = self.egress.to_be_bytes();
        let [m0, m1, m2, m3, m4, m5] = self.mac;
        [flags, self.expiry, i0, i1, e0, e1, m0, m1, m2, m3, m4, m5]
    }
}

/// A path of type SCION.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScionPath<'a> {
    meta: Meta,
    bytes: &'a [u8],
    infos: &'a [[u8; INFO_LEN]],
    hops: &'a [[u8; HOP_LEN]],
}

impl<'a> ScionPath<'a> {
    /// Takes `bytes`, all of them, for a SCION path.
    ///
    /// # Errors
    /// [`Error::Path`]: see [`Meta::path_len`]; also if the length differs from the one stated.
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, Error> {
        let (meta, rest) = split(bytes).map_err(|_| Error::Path)?;
        let meta = Meta::decode(*meta);
        if meta.path_len() != Some(bytes.len()) {
            return Err(Error::Path);
        }
        let (infos, hops) = rest
            .split_at_checked(INFO_LEN * meta.infos())
            .ok_or(Error::Path)?;
        Ok(Self {
            meta,
            bytes,
            infos: infos.as_chunks().0,
            hops: hops.as_chunks().0,
        })
    }

    /// The path meta header.
    #[must_use]
    pub const fn meta(&self) -> Meta {
        self.meta
    }

    /// The path as on the wire.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The info fields, in order.
    pub fn infos(&self) -> impl ExactSizeIterator<Item = InfoField> + use<'a> {
        self.infos.iter().copied().map(InfoField::decode)
    }

    /// The hop fields of all segments, in order.
    pub fn hops(&self) -> impl ExactSizeIterator<Item = HopField> + use<'a> {
        self.hops.iter().copied().map(HopField::decode)
    }

    /// Writes the path back to the sender to the start of `out`: segments and hop fields in
    /// reverse order, each segment's direction flipped, the pointers mirrored. Returns the bytes
    /// written.
    ///
    /// # Errors
    /// [`Error::NoRoom`].
    pub fn emit_reversed(&self, out: &mut [u8]) -> Result<usize, Error> {
        let [s0, s1, s2] = self.meta.segments;
        let segments = match self.infos.len() {
            3 => [s2, s1, s0],
            2 => [s1, s0, 0],
            _ => [s0, 0, 0],
        };
        // `path_len` has checked that both pointers lie inside.
        let mirrored = |pointer: u8, count: usize| count as u8 - 1 - pointer;
        let meta = Meta {
            current_info: mirrored(self.meta.current_info, self.infos.len()),
            current_hop: mirrored(self.meta.current_hop, self.hops.len()),
            segments,
        };
        let out = out.get_mut(..self.bytes.len()).ok_or(Error::NoRoom)?;
        let (first, rest) = super::super::split_mut(out)?;
        *first = meta.encode();
        let (infos, hops) = rest
            .split_at_mut_checked(INFO_LEN * self.infos.len())
            .ok_or(Error::NoRoom)?;
        let (infos, hops) = (infos.as_chunks_mut().0, hops.as_chunks_mut().0);
        for (to, from) in infos.iter_mut().zip(self.infos.iter().rev()) {
            *to = *from;
            to[0] ^= INFO_CONSTRUCTION_DIRECTION;
        }
        for (to, from) in hops.iter_mut().zip(self.hops.iter().rev()) {
            *to = *from;
        }
        Ok(self.bytes.len())
    }
}

/// A path of any defined type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path<'a> {
    /// Within the AS.
    Empty,
    /// Made of path segments.
    Scion(ScionPath<'a>),
    /// Between neighbours, used for beaconing: an info field and two hop fields.
    OneHop(&'a [u8; ONE_HOP_LEN]),
    /// EPIC: all bytes, and the SCION path among them.
    Epic(&'a [u8], ScionPath<'a>),
}

impl<'a> Path<'a> {
    /// Takes `bytes`, all of them, for a path.
    ///
    /// # Errors
    /// [`Error::PathType`] for an undefined type, [`Error::Path`] if the length is not what the
    /// type or the path itself states.
    pub fn new_checked(path_type: u8, bytes: &'a [u8]) -> Result<Self, Error> {
        match path_type {
            EMPTY if bytes.is_empty() => Ok(Self::Empty),
            SCION => ScionPath::new_checked(bytes).map(Self::Scion),
            ONE_HOP => bytes.try_into().map(Self::OneHop).map_err(|_| Error::Path),
            EPIC => {
                let scion = bytes.get(EPIC_LEN..).ok_or(Error::Path)?;
                Ok(Self::Epic(bytes, ScionPath::new_checked(scion)?))
            }
            EMPTY => Err(Error::Path),
            _ => Err(Error::PathType),
        }
    }

    /// The path type.
    #[must_use]
    pub const fn path_type(&self) -> u8 {
        match self {
            Self::Empty => EMPTY,
            Self::Scion(_) => SCION,
            Self::OneHop(_) => ONE_HOP,
            Self::Epic(..) => EPIC,
        }
    }

    /// The path as on the wire.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        match self {
            Self::Empty => &[],
            Self::Scion(path) => path.bytes(),
            Self::OneHop(bytes) => *bytes,
            Self::Epic(bytes, _) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hop_fields_live_from_337_5_seconds_to_a_day() {
        assert_eq!(expires_at(0, 0), 337_500_000_000);
        assert_eq!(
            expires_at(1_700_000_000, 255),
            1_700_086_400 * NANOS_PER_SECOND
        );
        assert!(expires_at(u32::MAX, u8::MAX) > expires_at(u32::MAX, 0));
    }
}
