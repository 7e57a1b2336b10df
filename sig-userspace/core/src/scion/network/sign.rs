//! Path headers with signed hop fields.

use sha2::{Digest as _, Sha256};
use sig_common::wire::scion::path::{HOP_LEN, HopField, INFO_LEN, InfoField, META_LEN, Meta};

use super::{
    Network, Validity,
    combine::{Combination, Piece},
    segment::Segment,
};
use crate::scion::MacInput;

/// Bytes of the header of a way.
pub(super) fn header_len(way: &Combination<'_>) -> usize {
    META_LEN + INFO_LEN * way.pieces.len() + HOP_LEN * way.hops()
}

/// The path header of a way as its sender writes it.
pub(super) fn header(network: &Network, way: &Combination<'_>, validity: Validity) -> Vec<u8> {
    let mut meta = Meta {
        current_info: 0,
        current_hop: 0,
        segments: [0; 3],
    };
    let (mut infos, mut hops) = (Vec::new(), Vec::new());
    for (length, piece) in meta.segments.iter_mut().zip(&way.pieces) {
        let (info, fields) = sign(network, piece, initial_id(network, piece.segment), validity);
        // No path has more than fit: see `MAX_HOPS`.
        *length = fields.len() as u8;
        infos.extend(info.encode());
        hops.extend(fields.iter().flat_map(HopField::encode));
    }
    let mut raw = Vec::with_capacity(header_len(way));
    raw.extend(meta.encode());
    raw.extend(infos);
    raw.extend(hops);
    raw
}

/// The segment identifier that a segment begins with. Beacons take a random one; here it follows from the segment, so that
/// paths are always the same.
fn initial_id(network: &Network, segment: &Segment) -> u16 {
    let mut hash = Sha256::new();
    for at in 0..segment.ases.len() {
        let (ingress, egress) = interfaces(network, segment, at);
        if let Some(found) = segment.ases.get(at).and_then(|at| network.ases.get(*at)) {
            hash.update(found.isd_as.to_bytes());
        }
        hash.update(ingress.to_be_bytes());
        hash.update(egress.to_be_bytes());
    }
    let [first, second, ..]: [u8; 32] = hash.finalize().into();
    u16::from_be_bytes([first, second])
}

/// Info field and hop fields of a piece as a path has them, if the segment begins with this identifier.
///
/// The identifier of a hop is that of the hop before, changed by its MAC. Of a peering link, the AS at it has another hop
/// field, made with the identifier that follows after its ordinary one.
pub(super) fn sign(
    network: &Network,
    piece: &Piece<'_>,
    mut id: u16,
    validity: Validity,
) -> (InfoField, Vec<HopField>) {
    let mut fields = Vec::with_capacity(piece.hops());
    // The identifiers that the hop fields in the path were made with.
    let mut ids = Vec::with_capacity(piece.hops());
    for (at, place) in piece.segment.ases.iter().enumerate() {
        let Some(found) = network.ases.get(*place) else {
            continue;
        };
        let (ingress, egress) = interfaces(network, piece.segment, at);
        let hop = |segment_id, ingress| {
            let input = MacInput {
                segment_id,
                timestamp: validity.timestamp,
                expiry: validity.expiry,
                ingress,
                egress,
            };
            HopField {
                ingress_alert: false,
                egress_alert: false,
                expiry: validity.expiry,
                ingress,
                egress,
                mac: found.key.mac(&input),
            }
        };
        let ordinary = hop(id, ingress);
        let [first, second, ..] = ordinary.mac;
        let next = id ^ u16::from_be_bytes([first, second]);
        if at == piece.first
            && let Some(link) = piece.peering
        {
            fields.push(hop(next, interface_of(network, link, *place)));
            ids.push(next);
        } else if at >= piece.first {
            fields.push(ordinary);
            ids.push(id);
        }
        id = next;
    }
    if !piece.in_construction_direction {
        fields.reverse();
        ids.reverse();
    }
    let info = InfoField {
        peering: piece.peering.is_some(),
        construction_direction: piece.in_construction_direction,
        segment_id: ids.first().copied().unwrap_or_default(),
        timestamp: validity.timestamp,
    };
    (info, fields)
}

/// Ingress and egress interface of an AS of a segment, in construction direction; 0: it begins or ends there.
fn interfaces(network: &Network, segment: &Segment, at: usize) -> (u16, u16) {
    let place = segment.ases.get(at).copied();
    let interface = |link: Option<&usize>| {
        link.zip(place)
            .map_or(0, |(link, place)| interface_of(network, *link, place))
    };
    let before = at
        .checked_sub(1)
        .and_then(|before| segment.links.get(before));
    (interface(before), interface(segment.links.get(at)))
}

/// The interface that an AS has at a link.
fn interface_of(network: &Network, link: usize, place: usize) -> u16 {
    let ends = network.links.get(link).zip(network.ases.get(place));
    let end =
        ends.and_then(|(link, found)| link.ends.iter().find(|end| end.isd_as == found.isd_as));
    end.map_or(0, |end| end.interface)
}
