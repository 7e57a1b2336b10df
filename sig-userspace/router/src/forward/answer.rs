//! SCMP answers, and the way that they take back.

use sig_common::{
    router::passage::Passage,
    wire::scion::{
        NEXT_SCMP,
        path::{self, EPIC_LEN, ScionPath},
        scmp::FIRST_INFORMATIONAL,
    },
};

use super::{Context, Origin, Router, changes::Changes, halt::Alert};
use sig_core::scion::{
    packet::{self, Content, Flow},
    scmp::{Problem, Quote, Scmp},
};

impl Router {
    /// An SCMP error about the packet, as it stands after `changes`. None about an SCMP error, nor about what cannot be
    /// told from one.
    pub(super) fn report(
        &self,
        context: &Context<'_>,
        problem: Problem,
        changes: &Changes,
    ) -> Option<Vec<u8>> {
        match context.header.upper_layer()? {
            (NEXT_SCMP, [kind, _, _, _, ..]) if *kind >= FIRST_INFORMATIONAL => (),
            (NEXT_SCMP, _) => return None,
            _ => (),
        }
        let mut quoted = context.packet.to_vec();
        changes.write(&mut quoted);
        let quote = Quote::new(&quoted);
        self.answer(context, &Scmp::Error { problem, quote })
    }

    /// The answer to a traceroute request that asks for this interface. The flag that asked does not go back with it: the
    /// sender knows the path by its bytes.
    pub(super) fn traceroute_reply(
        &self,
        context: &Context<'_>,
        interface: u16,
        alert: Alert,
    ) -> Option<Vec<u8>> {
        let (NEXT_SCMP, message) = context.header.upper_layer()? else {
            return None;
        };
        let Scmp::TracerouteRequest { id, sequence } = Scmp::decode(message)? else {
            return None;
        };
        let reply = Scmp::TracerouteReply {
            id,
            sequence,
            isd_as: self.model.isd_as,
            interface: interface.into(),
        };
        let mut path = context.header.path_bytes().to_vec();
        let offset = alert.offset.checked_sub(context.header.path_offset())?;
        *path.get_mut(offset)? &= !alert.flag;
        self.answer_along(context, &path, &reply)
    }

    /// The answer to an echo request to this router.
    pub(super) fn echo(&self, context: &Context<'_>) -> Option<Scmp> {
        let request = packet::parse(context.packet).ok()?;
        if request.destination.1.ip() != Some(self.model.internal.ip()) {
            return None;
        }
        match request.content {
            Content::Scmp(Scmp::EchoRequest(echo)) => Some(Scmp::EchoReply(echo)),
            _ => None,
        }
    }

    /// A message to the sender of a packet, the way that the packet came.
    pub(super) fn answer(&self, context: &Context<'_>, message: &Scmp) -> Option<Vec<u8>> {
        self.answer_along(context, context.header.path_bytes(), message)
    }

    /// The same, with `forth` as the path that the packet has.
    fn answer_along(&self, context: &Context<'_>, forth: &[u8], message: &Scmp) -> Option<Vec<u8>> {
        let header = context.header;
        let flow = Flow {
            traffic_class: header.traffic_class(),
            flow_id: header.flow_id(),
        };
        let from = (self.model.isd_as, self.model.internal.ip().into());
        let to = (header.source_isd_as, header.source?);
        let (path_type, back) = way_back(context, forth)?;
        packet::scmp_in_flow(flow, from, to, path_type, &back, message).ok()
    }
}

/// The path back, as the neighbour or sibling expects it from us, or the host: its type and bytes.
///
/// It starts from the path as it came in, where our hop field is the current one and no segment identifier has been
/// touched yet; against the direction, the neighbour expects just those.
fn way_back(context: &Context<'_>, forth: &[u8]) -> Option<(u8, Vec<u8>)> {
    let forth = match context.header.path_type() {
        path::EMPTY => return Some((path::EMPTY, Vec::new())),
        path::SCION => forth,
        path::EPIC => forth.get(EPIC_LEN..)?,
        _ => return None,
    };
    let forth = ScionPath::new_checked(forth).ok()?;
    let mut back = vec![0; forth.bytes().len()];
    forth.emit_reversed(&mut back).ok()?;
    let mut passage = Passage::on_path(&back).ok()?;
    match context.origin {
        Origin::Link(_) if passage.is_last() => return None,
        Origin::Link(_) => passage.advance(),
        // The sibling has changed segments already; back, it does not.
        _ if passage.is_before_change() && !passage.is_at_peering_link().ok()? => passage.advance(),
        _ => (),
    }
    Changes::of(&passage).write(&mut back);
    Some((path::SCION, back))
}
