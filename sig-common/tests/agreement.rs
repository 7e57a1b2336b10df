//! The underlay parser and the checked views are written apart: they must agree about every frame.

mod support;

use proptest::prelude::*;
use sig_common::wire::ethernet::{TPID_8021AD, TPID_8021Q, Tag};
use support::oracle::{check, touch};
use support::{Underlay, V1, V2, V3, V4, V5, hex};

prop_compose! {
    /// A good packet with some bytes changed, cut or padded.
    fn mutant()(
        vector in prop::sample::select(vec![V1, V1, V1, V2, V2, V3, V4, V5]),
        ipv6 in any::<bool>(),
        port in prop::sample::select(vec![30056u16, 30056, 30041, 30256]),
        tags in prop::sample::select(vec![
            vec![],
            vec![],
            vec![(TPID_8021Q, 0x6000)],
            vec![(TPID_8021Q, 5)],
            vec![(TPID_8021AD, 0)],
            vec![(TPID_8021Q, 0), (TPID_8021Q, 0)],
            vec![(TPID_8021AD, 5), (TPID_8021Q, 5)],
        ]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        len in prop::option::weighted(0.2, any::<prop::sample::Index>()),
        padding in 0usize..8,
        matching in prop::bool::weighted(0.9),
    ) -> Vec<u8> {
        let scion = hex(vector);
        // The underlay mostly has the family of the addresses.
        let ipv6 = if matching { vector == V2 } else { ipv6 };
        let mut underlay = Underlay::to(if ipv6 { "fd00::2" } else { "10.0.0.2" }, port);
        for (place, (tpid, tci)) in underlay.tags.iter_mut().zip(tags) {
            *place = Some(Tag { tpid, tci });
        }
        let mut packet = underlay.wrap(&scion);
        for (at, value) in changes {
            let at = at.index(packet.len());
            packet[at] = value;
        }
        if let Some(len) = len {
            packet.truncate(len.index(packet.len()));
        }
        packet.resize(packet.len() + padding, 0x5a);
        packet
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn parser_and_views_agree_about_damaged_packets(packet in mutant()) {
        check(&packet);
        touch(&packet);
        touch(packet.get(14..).unwrap_or_default());
        touch(packet.get(42..).unwrap_or_default());
    }

    #[test]
    fn parser_and_views_agree_about_any_bytes(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        start in prop::sample::select(vec![&[][..], &[0x45], &[0x60], &[0, 0, 0, 1]]),
    ) {
        let bytes = [start, &bytes].concat();
        check(&bytes);
        touch(&bytes);
    }

    #[test]
    fn any_bytes_behind_the_outer_headers_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        fixed in prop::bool::ANY,
    ) {
        let mut packet = Underlay::to("10.0.0.2", 30056).wrap(&bytes);
        if fixed && bytes.len() > 40 {
            let good = hex(V1);
            packet[42..42 + 36].copy_from_slice(&good[..36]);
            packet[42 + 5] = 4 * (bytes[5] % 20);
        }
        check(&packet);
    }
}

#[test]
fn every_change_of_one_byte_gets_the_same_verdict_from_parser_and_views() {
    for (vector, destination) in [(V1, "10.0.0.2"), (V2, "fd00::2")] {
        let good = Underlay::to(destination, 30056).wrap(&hex(vector));
        for at in 0..good.len() {
            let mut packet = good.clone();
            for value in 0..=255 {
                packet[at] = value;
                check(&packet);
            }
        }
    }
}
