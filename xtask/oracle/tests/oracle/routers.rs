//! Random packets at the routers of random ASes.

use std::collections::BTreeMap;

use sciparse::{
    checksum::ChecksumDigest,
    core::view::View as _,
    dataplane_path::{standard::view::StandardPathView, view::ScionDpPathViewRef},
    packet::view::ScionRawPacketView,
    payload::scmp::view::ScmpMessageView,
};
use sig_core::scion::{
    packet::{self, Content},
    scmp::{Problem, Scmp},
};
use sig_router::{
    AsModel, Owner,
    forward::{Ingress, Outcome, Reason, Router, Verdict},
};

use super::{
    netns::{Netns, root_or_skip},
    number,
    peer::{self, Alert, Refusal, Side, To, advance},
    support::{
        asys::NOW,
        compare::{Hosts, Pair, Wrapping, load},
        random::{Arrival, Dice, arrival, place},
    },
};

/// ASes that are tried.
const CASES: u64 = 150;
/// Packets in each.
const PACKETS: usize = 60;

/// What all is compared: so many times.
#[derive(Debug, Default)]
struct Seen {
    forwarded: usize,
    to_sibling: usize,
    delivered: usize,
    refused: BTreeMap<Reason, usize>,
    answers: usize,
    ways_back: usize,
    /// About which `sciparse` has nothing to say.
    others: usize,
    peering: usize,
}

#[test]
fn any_packet_becomes_the_same() {
    let mut seen = Seen::default();
    each_packet(|dice, place, packets| {
        let router = Router::new(place.model.clone().into());
        for _ in 0..packets {
            let arrival = arrival(dice, &place.model);
            let mut after = arrival.packet.clone();
            let outcome = router.process(&mut after, arrival.ingress, NOW, place);
            check(&place.model, &arrival, &outcome, &after, &mut seen);
        }
    });
    println!("{seen:?}");
    if number("SIG_CASES", CASES) < CASES {
        return;
    }
    for (count, least) in [
        (seen.forwarded, 500),
        (seen.to_sibling, 50),
        (seen.delivered, 500),
        (seen.answers, 500),
        (seen.ways_back, 500),
    ] {
        assert!(count >= least, "{seen:?}");
    }
    for reason in [
        Reason::Expired,
        Reason::InvalidMac,
        Reason::IngressAlert,
        Reason::EgressAlert,
    ] {
        assert!(seen.refused.contains_key(&reason), "{reason:?}: {seen:?}");
    }
}

/// The same packets: the program does with them what the engine does, which the other test compares.
#[test]
fn the_program_makes_the_same_of_these_packets() {
    if !root_or_skip() {
        return;
    }
    let netns = Netns::new("oracle");
    netns.run(|| {
        let mut programs = load(Hosts::Unknown);
        each_packet(|dice, place, packets| {
            let mut wrappings = Dice::new(0);
            let pair = Pair::new(&mut programs, place, Hosts::Unknown, &mut wrappings);
            for _ in 0..packets {
                let arrival = arrival(dice, &place.model);
                let wrapping = Wrapping::any(&mut wrappings);
                pair.check(&arrival.packet, arrival.ingress, &wrapping)
                    .unwrap_or_else(|difference| panic!("{difference}"));
            }
        });
    });
}

fn each_packet(mut packets: impl FnMut(&mut Dice, &super::support::random::Place, usize)) {
    let (first, cases) = (number("SIG_SEED", 0), number("SIG_CASES", CASES));
    for seed in first..first + cases {
        println!("SIG_SEED={seed}");
        let mut dice = Dice::new(seed);
        let place = place(&mut dice);
        packets(&mut dice, &place, PACKETS);
    }
}

/// The SCION path of a packet, and where in it.
fn standard_path(packet: &[u8]) -> Option<(usize, &StandardPathView)> {
    let (view, _) = ScionRawPacketView::try_from_slice(packet).ok()?;
    let header = view.header();
    match header.path() {
        ScionDpPathViewRef::Standard(path) => Some((header.path_offset(), path)),
        _ => None,
    }
}

fn check(model: &AsModel, arrival: &Arrival, outcome: &Outcome, after: &[u8], seen: &mut Seen) {
    if let Verdict::Answer(answer) = &outcome.verdict {
        read_answer(answer);
        seen.answers += 1;
    }
    let passes = match outcome.verdict {
        Verdict::Forward { .. } | Verdict::Sibling(_) | Verdict::Deliver(_) => true,
        Verdict::Answer(_) | Verdict::Drop(_) | Verdict::Bfd { .. } | Verdict::Stun => false,
    };
    // Path types 0, 2 and 3 have tests of their own, or nothing in common.
    let is_scion = arrival.packet.get(8) == Some(&1);
    let Some((offset, path)) = standard_path(&arrival.packet) else {
        assert!(!(passes && is_scion), "{outcome:?} {:?}", arrival.packet);
        seen.others += 1;
        return;
    };
    if peer::is_at_peering_link(path) {
        seen.peering += 1;
        return;
    }
    let side = match arrival.ingress {
        Ingress::External(_) => Side::Link,
        Ingress::Internal(_) => Side::Inside,
    };
    let is_here = |interface: u16| {
        let interface = model.interfaces.get(&interface);
        interface.is_some_and(|i| matches!(i.owner, Owner::Here { .. }))
    };
    let before = path.as_slice();
    let mut moving = before.to_vec();
    let moved = advance(
        peer::view(&mut moving),
        model.key.bytes(),
        NOW,
        side,
        is_here,
    );
    let what = || {
        format!(
            "{outcome:?}\ntheirs: {moved:?}\n{:?} {before:02x?}",
            arrival.ingress
        )
    };

    if passes {
        let moved = moved.as_ref().unwrap_or_else(|_| panic!("{}", what()));
        assert_eq!(moved.alert, None, "{}", what());
        let to = match (&outcome.verdict, moved.to) {
            (Verdict::Forward { interface }, _) => To::Interface(*interface),
            (Verdict::Deliver(_), _) => To::Here,
            // Which of its interfaces it is says the path alone.
            (Verdict::Sibling(sibling), To::Interface(interface)) => {
                let owner = model.interfaces[&interface].owner;
                assert_eq!(owner, Owner::Sibling(*sibling), "{}", what());
                To::Interface(interface)
            }
            _ => panic!("{}", what()),
        };
        assert_eq!(moved.to, to, "{}", what());
        if let (Ingress::External(interface), Some(theirs)) = (arrival.ingress, moved.ingress) {
            assert_eq!(interface, theirs, "{}", what());
        }
        let mut expected = arrival.packet.clone();
        expected[offset..offset + moving.len()].copy_from_slice(&moving);
        assert_eq!(after, expected, "{}", what());
        match outcome.verdict {
            Verdict::Forward { .. } => seen.forwarded += 1,
            Verdict::Sibling(_) => seen.to_sibling += 1,
            _ => seen.delivered += 1,
        }
        return;
    }

    let Some(reason) = outcome.fast else {
        panic!("{}", what());
    };
    let alert = moved.as_ref().ok().and_then(|moved| moved.alert);
    match (reason, &moved) {
        (Reason::Expired, Err(Refusal::Expired(hop)))
        | (Reason::InvalidMac, Err(Refusal::Mac(hop))) => {
            let at = path.checked_hop_field_range(*hop).expect("a hop field");
            if let Verdict::Answer(answer) = &outcome.verdict {
                let pointer = (offset + at.start) as u16;
                let code = if reason == Reason::Expired { 52 } else { 51 };
                assert_eq!(problem(answer), Some(Problem::Parameter { code, pointer }));
            }
        }
        // At the way out, `sciparse` looks first whether the path goes on.
        (Reason::Expired | Reason::InvalidMac | Reason::EgressAlert, Err(Refusal::Path(_)))
            if side == Side::Inside =>
        {
            seen.others += 1;
            return;
        }
        (Reason::Expired | Reason::InvalidMac, _) => panic!("{}", what()),
        (Reason::PathEnds, moved) => assert!(
            matches!(
                moved,
                Err(Refusal::Path(_)) | Ok(peer::Moved { to: To::Here, .. })
            ),
            "{}",
            what()
        ),
        // The hop behind a change of segments is verified after the alert, or before.
        (Reason::IngressAlert, Ok(_)) => assert_eq!(alert, Some(Alert::Ingress), "{}", what()),
        (Reason::EgressAlert, _) => assert_eq!(alert, Some(Alert::Egress), "{}", what()),
        (Reason::IngressInterface, Ok(moved)) => {
            let Ingress::External(interface) = arrival.ingress else {
                panic!("{}", what());
            };
            assert!(moved.ingress.is_some_and(|i| i != interface), "{}", what());
        }
        _ => {
            seen.others += 1;
        }
    }
    *seen.refused.entry(reason).or_default() += 1;

    // No packet crosses a link at the start of a segment, but for peering links.
    let hop = usize::from(path.curr_hop_field_idx());
    let starts = path
        .calculate_segment_index(hop)
        .is_some_and(|(_, start, _)| start);
    if side == Side::Link && starts {
        return;
    }
    // Error messages take the path as it came, with its alerts, which `sciparse` clears.
    let alerts = path
        .hop_fields()
        .iter()
        .any(|hop| hop.flags().bits() & 3 != 0);
    if let Verdict::Answer(answer) = &outcome.verdict
        && !alerts
        && let Some((_, back)) = standard_path(answer)
    {
        let mut before = before.to_vec();
        // Reserved bits do not come back, as in the reference; `sciparse` keeps them.
        before[1] &= 0x03;
        let theirs = peer::answered(&before, side);
        assert_eq!(Ok(back.as_slice().to_vec()), theirs, "{}", what());
        seen.ways_back += 1;
    }
}

/// What an SCMP error of ours is about.
fn problem(answer: &[u8]) -> Option<Problem> {
    match packet::parse(answer).expect("a packet").content {
        Content::Scmp(Scmp::Error { problem, .. }) => Some(problem),
        _ => None,
    }
}

/// An SCMP message says the same to both, and its checksum is right.
fn read_answer(answer: &[u8]) {
    let (view, rest) = ScionRawPacketView::try_from_slice(answer).expect("a packet");
    assert!(rest.is_empty());
    let header = view.header();
    let payload = view.payload();
    let mut digest = ChecksumDigest::new();
    digest
        .add_slice(&answer[12..header.path_offset()])
        .add_u32(payload.len() as u32)
        .add_u32(202)
        .add_slice(payload);
    assert_eq!(digest.checksum(), 0, "{answer:02x?}");

    let ours = packet::parse(answer).expect("a packet");
    assert_eq!(
        (ours.source.0.0, ours.destination.0.0),
        (header.src_ia().to_u64(), header.dst_ia().to_u64())
    );
    let theirs = view.try_as_scmp().expect("SCMP").scmp();
    let Content::Scmp(ours) = ours.content else {
        panic!("{ours:?}");
    };
    let quote = match &ours {
        Scmp::Error { quote, .. } => quote.bytes(),
        _ => &[],
    };
    use ScmpMessageView as Theirs;
    let same = match (&ours, theirs.message()) {
        (Scmp::EchoReply(echo), Theirs::EchoReply(theirs)) => {
            (echo.id, echo.sequence) == (theirs.identifier(), theirs.sequence_number())
                && echo.data == theirs.data()
        }
        (
            Scmp::TracerouteReply {
                id,
                sequence,
                isd_as,
                interface,
            },
            Theirs::TracerouteReply(theirs),
        ) => {
            (*id, *sequence) == (theirs.identifier(), theirs.sequence_number())
                && (isd_as.0, *interface) == (theirs.isd_asn().to_u64(), theirs.interface_id())
        }
        (Scmp::Error { problem, .. }, message) => match (problem, message) {
            (Problem::Unreachable { code }, Theirs::DestinationUnreachable(message)) => {
                *code == theirs.code() && quote == message.offending_packet()
            }
            (Problem::PacketTooBig { mtu }, Theirs::PacketTooBig(message)) => {
                *mtu == message.mtu() && quote == message.offending_packet()
            }
            (Problem::Parameter { code, pointer }, Theirs::ParameterProblem(message)) => {
                (*code, *pointer) == (theirs.code(), message.pointer())
                    && quote == message.offending_packet()
            }
            (
                Problem::InterfaceDown { isd_as, interface },
                Theirs::ExternalInterfaceDown(message),
            ) => {
                (isd_as.0, *interface) == (message.isd_asn().to_u64(), message.interface_id())
                    && quote == message.offending_packet()
            }
            (
                Problem::ConnectivityDown {
                    isd_as,
                    ingress,
                    egress,
                },
                Theirs::InternalConnectivityDown(message),
            ) => {
                isd_as.0 == message.isd_asn().to_u64()
                    && (*ingress, *egress)
                        == (
                            message.ingress_interface_id(),
                            message.egress_interface_id(),
                        )
                    && quote == message.offending_packet()
            }
            _ => false,
        },
        _ => false,
    };
    assert!(same, "{ours:?}\n{theirs:?}");
}
