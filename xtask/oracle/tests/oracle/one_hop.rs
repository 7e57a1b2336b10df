//! One-hop paths, of which `sciparse` knows the second hop field.

use proptest::prelude::*;
use sciparse::{
    core::view::View as _,
    dataplane_path::{
        onehop::view::OneHopPathView,
        standard::mac::algo::{calculate_hop_mac, mac_beta_step},
    },
};
use sig_common::{
    addr::{HostAddr, IsdAs},
    wire::scion::path::{HopField, InfoField, ONE_HOP, ONE_HOP_LEN, Path, SCION},
};
use sig_core::scion::{
    packet::{self, Addresses},
    reverse,
};
use sig_router::forward::{Ingress, Verdict};

use super::{
    peer,
    support::asys::{FROM, LOCAL, SERVICE, address, host, key, neighbour, process},
};

/// Offset of paths behind two addresses of four bytes.
const PATH: usize = 12 + 24;

/// What our router makes of a packet, and the path in it then.
fn run(source: IsdAs, destination: IsdAs, path: &[u8], ingress: Ingress) -> (Verdict, Vec<u8>) {
    let addresses = Addresses {
        source: (source, FROM, 32000),
        destination: (destination, HostAddr::SVC_CS, 0),
    };
    let mut packet = packet::udp(&addresses, ONE_HOP, path, b"beacon").expect("a packet");
    let verdict = process(&mut packet, ingress).verdict;
    (verdict, packet[PATH..PATH + ONE_HOP_LEN].to_vec())
}

proptest! {
    #[test]
    fn one_hop_paths_are_the_same_in_both_routers_and_back(
        segment_id: u16,
        timestamp: u32,
        expiry: u8,
        interface in 1u16..9,
    ) {
        let hop = |ingress, egress, mac| HopField {
            ingress_alert: false,
            egress_alert: false,
            expiry,
            ingress,
            egress,
            mac,
        };
        let key = key();
        let mac = calculate_hop_mac(segment_id, timestamp, expiry, 0, interface, key.bytes());
        let info = InfoField {
            peering: false,
            construction_direction: true,
            segment_id,
            timestamp,
        };
        let mut path = info.encode().to_vec();
        path.extend(hop(0, interface, mac).encode());
        path.extend([0; 12]);

        // Out.
        let (verdict, sent) = run(LOCAL, neighbour(interface), &path, host());
        prop_assert_eq!(verdict, Verdict::Forward { interface });
        let mut theirs = path.clone();
        let (view, _) = OneHopPathView::try_from_mut_slice(&mut theirs).expect("a path");
        view.info_field_mut().set_segment_id(mac_beta_step(segment_id, mac));
        prop_assert_eq!(&sent, view.as_slice());

        // In, to a router with the same key.
        let ingress = Ingress::External(interface);
        let (verdict, ours) = run(neighbour(interface), LOCAL, &sent, ingress);
        prop_assert_eq!(verdict, Verdict::Deliver(address(SERVICE)));
        view.set_second_hop(interface, *key.bytes(), true);
        prop_assert_eq!(&ours, view.as_slice());

        // Back.
        let ours = Path::new_checked(ONE_HOP, &ours).expect("a path");
        let (path_type, mut back) = reverse::reply_path(&ours).expect("a way back");
        prop_assert_eq!(path_type, SCION);
        view.try_reverse().expect("a way back");
        let back = peer::view(&mut back);
        prop_assert_eq!(back.info_fields(), [*view.info_field()]);
        prop_assert_eq!(back.hop_fields(), view.hop_fields().map(|hop| *hop));
    }
}
