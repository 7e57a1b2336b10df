//! One-hop paths: how beacons reach a neighbouring AS before there is any segment.
//!
//! The sender signs the first hop field, the router of the other AS makes the second.

use sig_common::{
    router::{Reason, passage::Passage},
    wire::{
        Load as _,
        scion::path::{HOP_LEN, HopField, INFO_LEN, InfoField, ONE_HOP_LEN, SEGMENT_ID_OFFSET},
    },
};

use super::{Context, Exit, Origin, Outcome, Router, changes::Changes, epic::starts_with};
use crate::Owner;

impl Router {
    /// A packet with a one-hop path. What is wrong with it is not answered: it has no way back.
    pub(super) fn one_hop(&self, context: &Context<'_>, passage: &Passage) -> (Outcome, Changes) {
        match self.forward_one_hop(context, passage) {
            Ok((exit, changes)) => {
                let outcome = Outcome::stopped(exit.into(), Reason::OneHop);
                (outcome, changes)
            }
            Err(reason) => {
                let outcome = Outcome {
                    fast: Some(Reason::OneHop),
                    ..Outcome::dropped(reason)
                };
                (outcome, Changes::default())
            }
        }
    }

    fn forward_one_hop(
        &self,
        context: &Context<'_>,
        passage: &Passage,
    ) -> Result<(Exit, Changes), Reason> {
        let header = context.header;
        let path = header.path_bytes();
        let (Some(info), Some(hop), ONE_HOP_LEN) =
            (path.bytes(0), path.bytes(INFO_LEN), path.len())
        else {
            return Err(Reason::MalformedPath);
        };
        let (info, hop) = (InfoField::decode(info), HopField::decode(hop));
        if !info.construction_direction {
            return Err(Reason::MalformedPath);
        }
        if !header.has_right_payload_length() {
            return Err(Reason::PayloadLength);
        }
        match context.origin {
            Origin::Link(_) => self.one_hop_in(context, passage, &info, &hop),
            Origin::Sibling(_) | Origin::Host => self.one_hop_out(context, &info, &hop),
        }
    }

    /// Out: to the neighbour at the interface that the first hop field names.
    fn one_hop_out(
        &self,
        context: &Context<'_>,
        info: &InfoField,
        hop: &HopField,
    ) -> Result<(Exit, Changes), Reason> {
        let header = context.header;
        if header.source_isd_as != self.model.isd_as {
            return Err(Reason::SourceAddress);
        }
        // A sibling would find the segment identifier changed already.
        let interface = match self.model.interfaces.get(&hop.egress) {
            Some(interface) if matches!(interface.owner, Owner::Here { .. }) => interface,
            _ => return Err(Reason::EgressInterface),
        };
        if header.destination_isd_as != interface.neighbour {
            return Err(Reason::DestinationAddress);
        }
        let mac = self.model.key.cmac(&hop.mac_input(info));
        if !starts_with(&mac, &hop.mac) {
            return Err(Reason::InvalidMac);
        }
        let mut changes = Changes::default();
        let segment_id = info.segment_id ^ hop.beta();
        let at = header.path_offset() + SEGMENT_ID_OFFSET;
        changes.add(at, &segment_id.to_be_bytes());
        Ok((Exit::Link(hop.egress), changes))
    }

    /// In: makes the second hop field, and delivers.
    fn one_hop_in(
        &self,
        context: &Context<'_>,
        passage: &Passage,
        info: &InfoField,
        first: &HopField,
    ) -> Result<(Exit, Changes), Reason> {
        let header = context.header;
        if header.destination_isd_as != self.model.isd_as {
            return Err(Reason::DestinationAddress);
        }
        let ingress = passage.ingress;
        let interface = self.model.interfaces.get(&ingress);
        if interface.is_none_or(|interface| header.source_isd_as != interface.neighbour) {
            return Err(Reason::SourceAddress);
        }
        let mut second = HopField {
            ingress_alert: false,
            egress_alert: false,
            expiry: first.expiry,
            ingress,
            egress: 0,
            mac: [0; 6],
        };
        second.mac = self.model.key.mac(&second.mac_input(info));
        let (exit, _) = self.deliver(context, passage).map_err(|halt| halt.reason)?;
        let mut changes = Changes::default();
        let at = header.path_offset() + INFO_LEN + HOP_LEN;
        changes.add(at, &second.encode());
        Ok((exit, changes))
    }
}
