//! The path header of a packet on its way.

use sig_common::{
    addr::IsdAs,
    wire::scion::path::{HOP_LEN, HopField, INFO_LEN, InfoField, META_LEN, Meta, ScionPath},
};

use crate::paths::mac;

const INGRESS_ALERT: u8 = 0x02;
const EGRESS_ALERT: u8 = 0x01;

/// A path header that is well-formed, and its current fields.
pub(super) struct Pointers<'a> {
    raw: &'a mut [u8],
    meta: Meta,
}

impl<'a> Pointers<'a> {
    /// `None` if it is malformed.
    pub(super) fn new(raw: &'a mut [u8]) -> Option<Self> {
        let meta = ScionPath::new_checked(raw).ok()?.meta();
        let pointers = Self { raw, meta };
        let info = pointers.info_of(meta.current_hop);
        (info == meta.current_info).then_some(pointers)
    }

    pub(super) fn meta(&self) -> Meta {
        self.meta
    }

    pub(super) fn set_meta(&mut self, meta: Meta) {
        self.meta = meta;
        self.raw[..META_LEN].copy_from_slice(&meta.encode());
    }

    pub(super) fn info(&self) -> InfoField {
        let mut infos = self.view().infos();
        infos.nth(self.meta.current_info.into()).expect("checked")
    }

    pub(super) fn hop(&self) -> HopField {
        let mut hops = self.view().hops();
        hops.nth(self.meta.current_hop.into()).expect("checked")
    }

    /// Interface that the packet comes in by.
    pub(super) fn ingress(&self) -> u16 {
        let hop = self.hop();
        if self.info().construction_direction {
            hop.ingress
        } else {
            hop.egress
        }
    }

    /// Interface that the packet goes out by.
    pub(super) fn egress(&self) -> u16 {
        let hop = self.hop();
        if self.info().construction_direction {
            hop.egress
        } else {
            hop.ingress
        }
    }

    pub(super) fn is_at_start(&self) -> bool {
        self.meta.current_hop == 0
    }

    pub(super) fn is_at_end(&self) -> bool {
        usize::from(self.meta.current_hop) + 1 == self.meta.hops()
    }

    /// Whether the next hop field is of another segment, but of the same AS.
    pub(super) fn is_at_crossover(&self) -> bool {
        !self.is_at_end() && self.info_of(self.meta.current_hop + 1) != self.meta.current_info
    }

    /// Whether the current hop field is one that `isd_as` has issued.
    pub(super) fn has_mac_of(&self, isd_as: IsdAs) -> bool {
        let (info, hop) = (self.info(), self.hop());
        let expected = mac(
            isd_as,
            info.segment_id,
            info.timestamp,
            hop.expiry,
            hop.ingress,
            hop.egress,
        );
        hop.mac == expected
    }

    /// What is due when the packet comes from another AS.
    pub(super) fn arrive(&mut self) {
        if !self.info().construction_direction {
            self.update_segment_id();
        }
    }

    /// Goes on to the next segment, within the AS.
    pub(super) fn cross(&mut self) {
        self.advance();
    }

    /// What is due when the packet goes to another AS.
    pub(super) fn leave(&mut self) {
        if self.info().construction_direction {
            self.update_segment_id();
        }
        self.advance();
    }

    /// Clears the flag that asks the router at the ingress to process the packet.
    pub(super) fn take_ingress_alert(&mut self) -> bool {
        self.take(if self.info().construction_direction {
            INGRESS_ALERT
        } else {
            EGRESS_ALERT
        })
    }

    /// Clears the flag that asks the router at the egress to process the packet.
    pub(super) fn take_egress_alert(&mut self) -> bool {
        self.take(if self.info().construction_direction {
            EGRESS_ALERT
        } else {
            INGRESS_ALERT
        })
    }

    /// Offset of the current hop field in the path.
    pub(super) fn offset_of_hop(&self) -> usize {
        let current = usize::from(self.meta.current_hop);
        META_LEN + INFO_LEN * self.meta.infos() + HOP_LEN * current
    }

    /// The path back to the sender.
    pub(super) fn reversed(&self) -> Vec<u8> {
        let mut back = vec![0; self.raw.len()];
        let written = self.view().emit_reversed(&mut back);
        debug_assert_eq!(written, Ok(back.len()));
        back
    }

    fn view(&self) -> ScionPath<'_> {
        ScionPath::new_checked(self.raw).expect("checked")
    }

    /// The segment that a hop field is in.
    fn info_of(&self, hop: u8) -> u8 {
        let [first, second, _] = self.meta.segments;
        u8::from(hop >= first) + u8::from(hop >= first + second)
    }

    fn advance(&mut self) {
        if self.is_at_end() {
            return;
        }
        let current_hop = self.meta.current_hop + 1;
        self.set_meta(Meta {
            current_hop,
            current_info: self.info_of(current_hop),
            ..self.meta
        });
    }

    fn update_segment_id(&mut self) {
        let [first, second, ..] = self.hop().mac;
        let at = META_LEN + INFO_LEN * usize::from(self.meta.current_info) + 2;
        self.raw[at] ^= first;
        self.raw[at + 1] ^= second;
    }

    fn take(&mut self, flag: u8) -> bool {
        let flags = &mut self.raw[self.offset_of_hop()];
        let was_set = *flags & flag != 0;
        *flags &= !flag;
        was_set
    }
}
