//! Whose hop fields a path has.

use sig_common::wire::scion::path::{HopField, InfoField, ScionPath};

use super::{HopKey, MacInput};

impl HopKey {
    /// Whether a hop field was made with this key, and with one of these segment identifiers: see [`segment_ids`].
    #[must_use]
    pub fn has_made(&self, info: &InfoField, hop: &HopField, segment_ids: &[u16]) -> bool {
        segment_ids.iter().any(|segment_id| {
            let input = MacInput {
                segment_id: *segment_id,
                ..hop.mac_input(info)
            };
            self.mac(&input) == hop.mac
        })
    }
}

/// For each hop field of a path, the segment identifiers that it may have been made with.
///
/// Routers change the identifier in the info field on the way. Against the construction direction, one that received the
/// packet has done so before it moves the pointer to the next hop field: whether it has cannot be seen, so there are two.
#[must_use]
pub fn segment_ids(path: &ScionPath<'_>) -> Vec<Vec<u16>> {
    let hops: Vec<HopField> = path.hops().collect();
    let current = usize::from(path.meta().current_hop);
    let mut ids = Vec::with_capacity(hops.len());
    let mut start = 0;
    for (info, length) in path.infos().zip(path.meta().segments) {
        let end = start + usize::from(length);
        let segment = hops.get(start..end).unwrap_or_default();
        // The hop field in the segment that the identifier is for now.
        let now = current.clamp(start, end.saturating_sub(1)) - start;
        let mut known = vec![Vec::new(); segment.len()];
        let moved = !info.construction_direction && (start + 1..end).contains(&current);
        for at in [Some(now), moved.then(|| now - 1)].into_iter().flatten() {
            for (ids, id) in known.iter_mut().zip(from(&info, segment, at)) {
                if !ids.contains(&id) {
                    ids.push(id);
                }
            }
        }
        ids.extend(known);
        start = end;
    }
    ids
}

/// The identifiers of all hop fields of a segment, of which the one at `now` has that of the info field.
fn from(info: &InfoField, segment: &[HopField], now: usize) -> Vec<u16> {
    // By what the identifiers of each hop field and the next one differ.
    let differs: Vec<u16> = (1..segment.len())
        .map(|next| {
            let peering = if info.construction_direction {
                next == 1
            } else {
                next + 1 == segment.len()
            };
            // The MAC of the one that was made first, unless it is that of a peering link.
            let first = if info.construction_direction {
                next - 1
            } else {
                next
            };
            match segment.get(first) {
                Some(hop) if !(info.peering && peering) => hop.beta(),
                _ => 0,
            }
        })
        .collect();
    let sum = |from: usize, to: usize| {
        let between = differs.get(from..to).unwrap_or_default();
        between.iter().fold(0, |sum, differs| sum ^ differs)
    };
    (0..segment.len())
        .map(|at| info.segment_id ^ sum(at.min(now), at.max(now)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scion::network::tests::{VALIDITY, number, vectors};
    use sig_common::wire::scion::path::{META_LEN, Meta};

    /// Whether the hop fields of a path were made by these ASes, by the digit that their keys are made of.
    fn assert_made_by(raw: &[u8], makers: &[u8]) {
        let path = ScionPath::new_checked(raw).unwrap();
        let infos: Vec<_> = path.infos().collect();
        let of = path.meta().segments.into_iter().zip(&infos);
        let of = of.flat_map(|(length, info)| std::iter::repeat_n(info, usize::from(length)));
        let ids = segment_ids(&path);
        assert_eq!(ids.len(), makers.len());
        for (((hop, info), ids), maker) in path.hops().zip(of).zip(&ids).zip(makers) {
            for key in b'1'..=b'4' {
                let made = HopKey::new([key; 16]).has_made(info, &hop, ids);
                assert_eq!(made, key == *maker, "{hop:?} {}", char::from(key));
            }
        }
    }

    #[test]
    fn the_makers_of_all_hop_fields_are_found_at_the_sender() {
        let network = vectors();
        for (from, to, makers) in [
            ("1", "3", &["123"][..]),
            ("3", "1", &["321"]),
            ("3", "4", &["324", "32114"]),
            ("4", "3", &["423", "41123"]),
        ] {
            let paths = network.paths(number(from), number(to), VALIDITY).unwrap();
            assert_eq!(paths.len(), makers.len());
            for (path, makers) in paths.iter().zip(makers) {
                assert_made_by(&path.raw, makers.as_bytes());
            }
        }
    }

    #[test]
    fn the_makers_are_found_while_the_packet_is_under_way() {
        let network = vectors();
        // Against construction direction; the identifiers are those of the reference's vectors.
        let path = network
            .paths(number("3"), number("1"), VALIDITY)
            .unwrap()
            .remove(0);
        let own = ScionPath::new_checked(&path.raw).unwrap();
        let ids: Vec<u16> = segment_ids(&own).concat();
        for (hop, id) in [(1, ids[0]), (1, ids[1]), (2, ids[1]), (2, ids[2])] {
            let mut raw = path.raw.clone();
            let meta = Meta {
                current_hop: hop,
                ..own.meta()
            };
            raw[..META_LEN].copy_from_slice(&meta.encode());
            raw[META_LEN + 2..META_LEN + 4].copy_from_slice(&id.to_be_bytes());
            assert_made_by(&raw, b"321");
        }
    }

    #[test]
    fn a_changed_hop_field_was_made_by_nobody() {
        let path = vectors()
            .paths(number("1"), number("3"), VALIDITY)
            .unwrap()
            .remove(0);
        let mut raw = path.raw;
        // The expiry of the last hop field.
        let at = raw.len() - 11;
        raw[at] ^= 1;
        assert_made_by(&raw, b"12-");
    }
}
