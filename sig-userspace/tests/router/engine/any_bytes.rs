//! Whatever the bytes are, the router does not panic, and writes to what it forwards only.

use proptest::{collection::vec, prelude::*};
use sig_router::forward::{Ingress, Verdict};

use crate::router_support::asys::{
    LOCAL, Sent, TO, down, host, ours, process, sibling, theirs, up,
};

fn ingress() -> impl Strategy<Value = Ingress> {
    prop_oneof![
        Just(host()),
        Just(sibling()),
        (0_u16..10).prop_map(Ingress::External),
    ]
}

fn sent() -> impl Strategy<Value = Vec<u8>> {
    let transit = Sent::by(
        1,
        vec![down(vec![theirs(0, 9), ours(1, 2), theirs(9, 0)])],
        1,
    );
    let first = up(vec![ours(0, 2), theirs(9, 0)]);
    let second = down(vec![ours(0, 3), theirs(9, 0)]);
    let crossing = Sent::by(2, vec![first, second], 1);
    let inbound = Sent::by(1, vec![down(vec![theirs(0, 9), ours(1, 0)])], 1).to(LOCAL, TO);
    prop_oneof![
        Just(transit.udp()),
        Just(crossing.udp()),
        Just(inbound.udp()),
    ]
}

fn check(packet: &[u8], ingress: Ingress) -> Result<(), TestCaseError> {
    let mut after = packet.to_vec();
    let outcome = process(&mut after, ingress);
    match outcome.verdict {
        Verdict::Forward { .. } | Verdict::Sibling(_) | Verdict::Deliver(_) => {}
        verdict => {
            prop_assert_eq!(&after, packet, "it was written to");
            prop_assert!(outcome.reason.is_some() && outcome.fast.is_some());
            if let Verdict::Drop(reason) = verdict {
                prop_assert_eq!(outcome.reason, Some(reason));
            }
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn arbitrary_packets_do_no_harm(packet in vec(any::<u8>(), 0..300), ingress in ingress()) {
        check(&packet, ingress)?;
    }

    #[test]
    fn mutated_packets_do_no_harm(
        packet in sent(),
        changes in vec((0_usize..120, any::<u8>()), 0..6),
        len in prop_oneof![Just(usize::MAX), 0_usize..160],
        ingress in ingress(),
    ) {
        let mut packet = packet;
        for (at, byte) in changes {
            if let Some(place) = packet.get_mut(at) {
                *place = byte;
            }
        }
        packet.truncate(len);
        check(&packet, ingress)?;
    }
}
