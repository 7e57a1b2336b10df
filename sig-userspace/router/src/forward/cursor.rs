//! A SCION path, where a packet is on it, and how both are to be changed.

use sig_common::wire::scion::path::{
    HOP_LEN, HopField, INFO_LEN, InfoField, META_LEN, Meta, ScionPath,
};

/// Bit offset of CurrINF in the first byte of a path.
const INFO_SHIFT: u32 = 6;
/// Offset of the segment identifier in an info field.
const SEGMENT_ID_OFFSET: usize = 2;

/// Flags of a hop field, in construction direction.
const INGRESS_ALERT: u8 = 0x02;
const EGRESS_ALERT: u8 = 0x01;

/// A place on a well-formed path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    path: ScionPath<'a>,
    current_info: u8,
    current_hop: u8,
    /// The current info field; its segment identifier as it is to be.
    info: InfoField,
    hop: HopField,
    /// Segment identifiers that are to be written.
    segment_ids: [Option<u16>; 3],
}

impl<'a> Cursor<'a> {
    /// `None` if the path is malformed: lengths, pointers, or an info field that is not that of the hop field.
    pub(super) fn new(path: &'a [u8]) -> Option<Self> {
        let path = ScionPath::new_checked(path).ok()?;
        let meta = path.meta();
        if segment_of(&meta, meta.current_hop) != meta.current_info {
            return None;
        }
        Self::at(path, meta.current_hop, [None; 3])
    }

    fn at(path: ScionPath<'a>, current_hop: u8, segment_ids: [Option<u16>; 3]) -> Option<Self> {
        let current_info = segment_of(&path.meta(), current_hop);
        let mut info = path.infos().nth(current_info.into())?;
        if let Some(Some(segment_id)) = segment_ids.get(usize::from(current_info)) {
            info.segment_id = *segment_id;
        }
        Some(Self {
            path,
            current_info,
            current_hop,
            info,
            hop: path.hops().nth(current_hop.into())?,
            segment_ids,
        })
    }

    pub(super) fn meta(&self) -> Meta {
        self.path.meta()
    }

    pub(super) fn info(&self) -> InfoField {
        self.info
    }

    pub(super) fn hop(&self) -> HopField {
        self.hop
    }

    /// The first info field of the path.
    pub(super) fn first_info(&self) -> Option<InfoField> {
        self.path.infos().next()
    }

    /// Interface that the packet comes in by at this hop.
    pub(super) fn ingress(&self) -> u16 {
        if self.info.construction_direction {
            self.hop.ingress
        } else {
            self.hop.egress
        }
    }

    /// Interface that it goes out by.
    pub(super) fn egress(&self) -> u16 {
        if self.info.construction_direction {
            self.hop.egress
        } else {
            self.hop.ingress
        }
    }

    /// The flag by which the router at that interface shall process the packet, if it is set.
    pub(super) fn ingress_alert(&self) -> Option<u8> {
        if self.info.construction_direction {
            self.hop.ingress_alert.then_some(INGRESS_ALERT)
        } else {
            self.hop.egress_alert.then_some(EGRESS_ALERT)
        }
    }

    /// See [`Self::ingress_alert`].
    pub(super) fn egress_alert(&self) -> Option<u8> {
        if self.info.construction_direction {
            self.hop.egress_alert.then_some(EGRESS_ALERT)
        } else {
            self.hop.ingress_alert.then_some(INGRESS_ALERT)
        }
    }

    pub(super) fn is_first(&self) -> bool {
        self.current_hop == 0
    }

    pub(super) fn is_last(&self) -> bool {
        self.hops_behind() == 0
    }

    /// How many hops come after this one.
    pub(super) fn hops_behind(&self) -> usize {
        self.meta()
            .hops()
            .saturating_sub(usize::from(self.current_hop) + 1)
    }

    /// Whether this is one of the two hop fields of a peering link; `None` if the path is none that has such a link,
    /// although its info field says so.
    pub(super) fn is_peering(&self) -> Option<bool> {
        if !self.info.peering {
            return Some(false);
        }
        let [first, second, third] = self.meta().segments;
        if first == 0 || second == 0 || third != 0 {
            return None;
        }
        Some(self.current_hop + 1 == first || self.current_hop == first)
    }

    /// Whether any segment has one hop field only.
    pub(super) fn has_segment_of_one_hop(&self) -> bool {
        self.meta().segments.contains(&1)
    }

    /// The hop before this one, if it is of another segment.
    pub(super) fn before_change(&self) -> Option<Self> {
        let before = self.current_hop.checked_sub(1)?;
        let before = Self::at(self.path, before, self.segment_ids)?;
        (before.current_info != self.current_info).then_some(before)
    }

    /// Whether the next hop is of another segment.
    pub(super) fn is_before_change(&self) -> bool {
        !self.is_last() && segment_of(&self.meta(), self.current_hop + 1) != self.current_info
    }

    /// On to the next hop. `None` at the end of the path.
    pub(super) fn advance(&mut self) -> Option<()> {
        if self.is_last() {
            return None;
        }
        *self = Self::at(self.path, self.current_hop + 1, self.segment_ids)?;
        Some(())
    }

    /// Chains the current hop's MAC to the segment identifier, or takes it off again.
    pub(super) fn chain(&mut self) {
        let [first, second, ..] = self.hop.mac;
        self.info.segment_id ^= u16::from_be_bytes([first, second]);
        if let Some(place) = self.segment_ids.get_mut(usize::from(self.current_info)) {
            *place = Some(self.info.segment_id);
        }
    }

    /// Offset of the current info field in the path.
    pub(super) fn info_offset(&self) -> usize {
        META_LEN + INFO_LEN * usize::from(self.current_info)
    }

    /// Offset of the current hop field in the path.
    pub(super) fn hop_offset(&self) -> usize {
        META_LEN + INFO_LEN * self.meta().infos() + HOP_LEN * usize::from(self.current_hop)
    }

    /// What is to be written, to a packet that has the path at `offset`.
    pub(super) fn changes(&self, offset: usize) -> Changes {
        let mut changes = Changes::default();
        let meta = self.meta();
        if (self.current_info, self.current_hop) != (meta.current_info, meta.current_hop) {
            changes.add(
                offset,
                &[self.current_info << INFO_SHIFT | self.current_hop],
            );
        }
        for (index, segment_id) in self.segment_ids.into_iter().enumerate() {
            if let Some(segment_id) = segment_id {
                let at = offset + META_LEN + INFO_LEN * index + SEGMENT_ID_OFFSET;
                changes.add(at, &segment_id.to_be_bytes());
            }
        }
        changes
    }
}

/// The segment that a hop field is in.
fn segment_of(meta: &Meta, hop: u8) -> u8 {
    let [first, second, _] = meta.segments;
    u8::from(hop >= first) + u8::from(hop >= first + second)
}

/// Bytes to be written to a packet: offset and value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Changes(Vec<(usize, Vec<u8>)>);

impl Changes {
    pub(super) fn add(&mut self, offset: usize, bytes: &[u8]) {
        self.0.push((offset, bytes.to_vec()));
    }

    /// Writes them. Offsets were taken from the packet itself; one that were not would be left out.
    pub(super) fn write(&self, packet: &mut [u8]) {
        for (offset, bytes) in &self.0 {
            if let Some(place) = packet.get_mut(*offset..offset + bytes.len()) {
                place.copy_from_slice(bytes);
            }
        }
    }
}
