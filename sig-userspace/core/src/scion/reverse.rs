//! What the path of a received packet tells: the way back, and where the packet entered the AS.

use sig_common::wire::{
    Error,
    scion::path::{
        HOP_EGRESS_ALERT, HOP_INGRESS_ALERT, HOP_LEN, INFO_CONSTRUCTION_DIRECTION, INFO_LEN,
        META_LEN, Meta, Path, SCION, ScionPath,
    },
};

/// Flags of a hop field that mean something: both router alerts.
const ALERTS: u8 = HOP_INGRESS_ALERT | HOP_EGRESS_ALERT;

/// The path that leads back to the sender of a packet that arrived with `path`: its type and bytes.
///
/// A SCION path is reversed as it arrived, that of EPIC without the EPIC header in front. A one-hop path
/// becomes a SCION path of two hops, if the router at the end of the link has filled its hop field in. An
/// empty path leads back too.
///
/// # Errors
/// [`Error::Path`] for a one-hop path that is not complete.
pub fn reply_path(path: &Path<'_>) -> Result<(u8, Vec<u8>), Error> {
    match path {
        Path::Empty => Ok((path.path_type(), Vec::new())),
        Path::Scion(path) | Path::Epic(_, path) => reversed(path),
        Path::OneHop(bytes) => {
            let (info, hops) = bytes.split_at(INFO_LEN);
            let (first, second) = hops.split_at(HOP_LEN);
            // Interface by which the segment comes in.
            if second.get(2..4) == Some(&[0, 0]) {
                return Err(Error::Path);
            }
            let meta = Meta {
                current_info: 0,
                current_hop: 1,
                segments: [2, 0, 0],
            };
            let mut raw = Vec::with_capacity(META_LEN + bytes.len());
            raw.extend(meta.encode());
            raw.extend([INFO_CONSTRUCTION_DIRECTION, 0]);
            raw.extend(&info[2..]);
            for hop in [first, second] {
                raw.push(hop[0] & ALERTS);
                raw.extend(&hop[1..]);
            }
            reversed(&ScionPath::new_checked(&raw)?)
        }
    }
}

fn reversed(path: &ScionPath<'_>) -> Result<(u8, Vec<u8>), Error> {
    let mut raw = vec![0; path.bytes().len()];
    path.emit_reversed(&mut raw)?;
    Ok((SCION, raw))
}

/// The number of the local interface by which a packet that arrived with `path` entered this AS; `None`
/// for a packet from within it.
#[must_use]
pub fn arrived_by(path: &Path<'_>) -> Option<u16> {
    match path {
        Path::Empty => None,
        Path::Scion(path) | Path::Epic(_, path) => {
            let meta = path.meta();
            let info = path.infos().nth(meta.current_info.into())?;
            let hop = path.hops().nth(meta.current_hop.into())?;
            Some(if info.construction_direction {
                hop.ingress
            } else {
                hop.egress
            })
        }
        Path::OneHop(bytes) => {
            let second = &bytes[INFO_LEN + HOP_LEN..];
            let at = if bytes[0] & INFO_CONSTRUCTION_DIRECTION != 0 {
                2
            } else {
                4
            };
            let interface: [u8; 2] = second.get(at..)?.first_chunk().copied()?;
            Some(u16::from_be_bytes(interface))
        }
    }
}

/// A copy of a SCION path that asks the router by which it enters the last AS to process the packet:
/// with an SCMP traceroute request, to answer it. `raw` is the path as the daemon gives it.
///
/// # Errors
/// [`Error::Path`] if `raw` is no SCION path: an empty one has no router to ask.
pub fn with_alert_at_last_hop(raw: &[u8]) -> Result<Vec<u8>, Error> {
    let path = ScionPath::new_checked(raw)?;
    let info = path.infos().last().ok_or(Error::Path)?;
    let mut raw = raw.to_vec();
    let flags = raw
        .len()
        .checked_sub(HOP_LEN)
        .and_then(|at| raw.get_mut(at))
        .ok_or(Error::Path)?;
    *flags |= if info.construction_direction {
        HOP_INGRESS_ALERT
    } else {
        HOP_EGRESS_ALERT
    };
    Ok(raw)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sig_common::wire::scion::path::{EPIC, ONE_HOP};

    use super::*;
    use crate::scion::packet::tests::hex;

    const ARRIVED: &str =
        "01002000 0100123466000000 003f00000001010203040506 003f000200000708090a0b0c";
    const REVERSED: &str =
        "00002000 0000123466000000 003f000200000708090a0b0c 003f00000001010203040506";

    #[test]
    fn a_path_is_reversed_as_the_reference_does() {
        let arrived = hex(ARRIVED);
        let path = Path::new_checked(SCION, &arrived).expect("a path");
        assert_eq!(reply_path(&path), Ok((SCION, hex(REVERSED))));
        assert_eq!(arrived_by(&path), Some(2));
    }

    #[test]
    fn an_epic_path_is_answered_on_its_scion_path() {
        let arrived = hex(&format!("0011223344556677 8899aabb ccddeeff {ARRIVED}"));
        let path = Path::new_checked(EPIC, &arrived).expect("a path");
        assert_eq!(reply_path(&path), Ok((SCION, hex(REVERSED))));
        assert_eq!(arrived_by(&path), Some(2));
    }

    #[test]
    fn a_complete_one_hop_path_is_answered_on_a_scion_path() {
        let arrived = hex("0100123466000000 003f00000001010203040506 003f000200000708090a0b0c");
        let path = Path::new_checked(ONE_HOP, &arrived).expect("a path");
        assert_eq!(reply_path(&path), Ok((SCION, hex(REVERSED))));
        assert_eq!(arrived_by(&path), Some(2));

        let started = hex("0100123466000000 003f00000001010203040506 000000000000000000000000");
        let path = Path::new_checked(ONE_HOP, &started).expect("a path");
        assert_eq!(reply_path(&path), Err(Error::Path));
    }

    #[test]
    fn an_empty_path_leads_back_and_came_by_no_interface() {
        assert_eq!(reply_path(&Path::Empty), Ok((0, Vec::new())));
        assert_eq!(arrived_by(&Path::Empty), None);
    }

    #[test]
    fn against_the_construction_direction_a_packet_comes_in_by_the_egress() {
        let arrived =
            hex("01002000 0000123466000000 003f000200000708090a0b0c 003f00000001010203040506");
        let path = Path::new_checked(SCION, &arrived).expect("a path");
        assert_eq!(arrived_by(&path), Some(1));
    }

    #[test]
    fn the_alert_goes_to_the_side_at_which_the_path_enters_the_last_as() {
        let with = |path: &str| with_alert_at_last_hop(&hex(path)).expect("a path");
        let construction =
            with("00002000 0100123466000000 003f00000001010203040506 003f000200000708090a0b0c");
        assert_eq!(construction[24], 2);
        let against = with(REVERSED);
        assert_eq!(against[24], 1);
        // Two segments: the flag of the second info field decides.
        let two = with(
            "00001040 0000123466000000 0100123466000000
             003f00000001010203040506 003f000200000708090a0b0c",
        );
        assert_eq!(two[32], 2);
        assert_eq!(with_alert_at_last_hop(&[]), Err(Error::Path));
    }

    proptest! {
        #[test]
        fn the_way_back_of_the_way_back_is_the_way(
            segments in (1u8..8, 0u8..8, 0u8..8),
            pointers in (0u8..3, 0u8..64),
            fields in proptest::collection::vec(any::<u8>(), 300),
        ) {
            let (s0, s1, s2) = segments;
            let meta = Meta {
                current_info: pointers.0,
                current_hop: pointers.1,
                segments: [s0, s1, if s1 == 0 { 0 } else { s2 }],
            };
            let Some(len) = meta.path_len() else {
                return Ok(());
            };
            let mut raw = meta.encode().to_vec();
            raw.extend(&fields[..len - META_LEN]);
            let path = Path::new_checked(SCION, &raw).expect("a path");
            let (_, back) = reply_path(&path).expect("a way back");
            let path = Path::new_checked(SCION, &back).expect("a path");
            prop_assert_eq!(reply_path(&path), Ok((SCION, raw)));
        }
    }
}
