//! What packets are refused for, and what their senders are told.

use std::collections::BTreeSet;

use sig_common::wire::scion::{View, common};
use sig_core::scion::{
    packet::{self, Content},
    scmp::{Echo, MAX_ERROR_PACKET, Problem, Quote, Scmp},
};
use sig_router::forward::{Ingress, Links, Outcome, Reason, Verdict};

use crate::router_support::asys::{
    A, B, FROM, INTERNAL, LOCAL, NOW, Sent, TO, address, down, host, ip, ours, router, sibling,
    theirs, up,
};

/// Down a segment of three ASes.
fn transit() -> Sent {
    let segment = vec![theirs(0, 9), ours(1, 2), theirs(9, 0)];
    Sent::by(1, vec![down(segment)], 1)
}

/// Up one.
fn upwards() -> Sent {
    let segment = vec![theirs(0, 9), ours(1, 2), theirs(9, 0)];
    Sent::by(2, vec![up(segment)], 1)
}

/// By way of a segment crossing between two links.
fn crossing(ingress: u16, egress: u16) -> Sent {
    let first = up(vec![ours(0, ingress), theirs(9, 0)]);
    let second = down(vec![ours(0, egress), theirs(9, 0)]);
    Sent::by(ingress, vec![first, second], 1)
}

/// To a host of the AS.
fn inbound() -> Sent {
    let segment = vec![theirs(0, 9), ours(1, 0)];
    Sent::by(1, vec![down(segment)], 1).to(LOCAL, TO)
}

/// From a host of the AS.
fn outbound() -> Sent {
    let segment = vec![theirs(0, 9), ours(1, 0)];
    let sent = Sent::by(0, vec![up(segment)], 0);
    sent.from(host()).source(LOCAL, FROM)
}

const fn parameter(code: u8, pointer: usize) -> Problem {
    Problem::Parameter {
        code,
        pointer: pointer as u16,
    }
}

/// The error that an outcome answers with.
fn error(outcome: &Outcome) -> (packet::Packet<'_>, Problem, Quote) {
    let Verdict::Answer(answer) = &outcome.verdict else {
        panic!("no answer: {outcome:?}");
    };
    let answer = packet::parse(answer).expect("a packet with a right checksum");
    let Content::Scmp(Scmp::Error { problem, quote }) = answer.content.clone() else {
        panic!("no error: {answer:?}");
    };
    (answer, problem, quote)
}

/// The packet is refused for this reason, its sender is told so, and it is as it was.
fn answered(what: &str, sent: &Sent, packet: &[u8], reason: Reason, problem: Problem) {
    let mut after = packet.to_vec();
    let outcome = sent.run(&mut after);
    assert_eq!(outcome.reason, Some(reason), "{what}: {outcome:?}");
    assert_eq!(outcome.fast, Some(reason), "{what}");
    assert_eq!(after, packet, "{what}: it was written to");
    let (answer, told, quote) = error(&outcome);
    assert_eq!(told, problem, "{what}");
    assert_eq!(answer.source, (LOCAL, ip("10.0.0.1")), "{what}");
    assert_eq!(answer.destination, sent.source, "{what}");
    // All but the path is quoted as it came.
    let quote = quote.bytes();
    assert_eq!(quote.len(), packet.len(), "{what}");
    let path = sent.path_offset()..sent.path_offset() + sent.path().len();
    assert_eq!(quote[..path.start], packet[..path.start], "{what}");
    assert_eq!(quote[path.end..], packet[path.end..], "{what}");
}

fn dropped(what: &str, sent: &Sent, packet: &[u8], reason: Reason) {
    let mut after = packet.to_vec();
    let outcome = sent.run(&mut after);
    assert_eq!(outcome.verdict, Verdict::Drop(reason), "{what}");
    assert_eq!(outcome.reason, Some(reason), "{what}");
    assert_eq!(outcome.fast, Some(reason), "{what}");
    assert_eq!(after, packet, "{what}: it was written to");
}

#[test]
fn an_expired_hop_is_told_with_its_place() {
    let mut sent = transit();
    sent.segments[0].timestamp -= 21_600 - 60;
    assert!(matches!(
        sent.run(&mut sent.udp()).verdict,
        Verdict::Forward { .. }
    ));
    sent.segments[0].timestamp -= 1;
    let problem = parameter(52, sent.hop_offset(1));
    answered("transit", &sent, &sent.udp(), Reason::Expired, problem);

    let mut sent = crossing(2, 3);
    sent.segments[1].timestamp -= 86_400;
    let problem = parameter(52, sent.hop_offset(2));
    answered(
        "behind a crossing",
        &sent,
        &sent.udp(),
        Reason::Expired,
        problem,
    );
}

#[test]
fn a_hop_that_lives_from_the_future_on_is_none_of_our_business() {
    let mut sent = transit();
    sent.segments[0].timestamp += 86_400;
    assert!(matches!(
        sent.run(&mut sent.udp()).verdict,
        Verdict::Forward { .. }
    ));
}

#[test]
fn a_packet_by_another_link_than_its_hop_says_is_refused() {
    let sent = Sent {
        ingress: Ingress::External(7),
        ..transit()
    };
    let problem = parameter(49, sent.hop_offset(1));
    answered(
        "down",
        &sent,
        &sent.udp(),
        Reason::IngressInterface,
        problem,
    );
    let sent = Sent {
        ingress: Ingress::External(3),
        ..upwards()
    };
    let problem = parameter(50, sent.hop_offset(1));
    answered("up", &sent, &sent.udp(), Reason::IngressInterface, problem);
}

#[test]
fn a_payload_of_another_length_is_refused() {
    let sent = transit();
    for change in [1_u8, 255] {
        let mut packet = sent.udp();
        packet[7] = packet[7].wrapping_add(change);
        answered(
            "length",
            &sent,
            &packet,
            Reason::PayloadLength,
            parameter(19, 0),
        );
    }
}

#[test]
fn nobody_poses_as_a_router_by_which_a_packet_has_entered() {
    let segment = vec![theirs(0, 9), ours(1, 12), theirs(9, 0)];
    let entered = Sent::by(12, vec![up(segment)], 1);
    let sent = entered.clone().from(host());
    dropped("a host", &sent, &sent.udp(), Reason::TransitSource);
    let segment = vec![theirs(0, 9), ours(1, 2), theirs(9, 0)];
    let sent = Sent::by(2, vec![up(segment)], 1).from(sibling());
    dropped(
        "a sibling without the interface",
        &sent,
        &sent.udp(),
        Reason::TransitSource,
    );
    let first = up(vec![ours(0, 2), theirs(9, 0)]);
    let second = down(vec![ours(0, 3), theirs(9, 0)]);
    let sent = Sent::by(2, vec![first, second], 2).from(sibling());
    dropped(
        "behind a crossing",
        &sent,
        &sent.udp(),
        Reason::TransitSource,
    );
    let segment = vec![theirs(0, 9), ours(0, 1), theirs(9, 0)];
    let sent = Sent::by(2, vec![down(segment)], 1).from(host());
    dropped(
        "a hop without an ingress",
        &sent,
        &sent.udp(),
        Reason::TransitSource,
    );
}

#[test]
fn isd_ases_must_be_on_the_sides_that_the_packet_comes_from_and_goes_to() {
    let source = parameter(33, 20);
    let destination = parameter(34, 12);
    for (what, sent, reason, problem) in [
        (
            "our source from outside",
            transit().source(LOCAL, FROM),
            Reason::SourceAddress,
            source,
        ),
        (
            "our source to us",
            inbound().source(LOCAL, FROM),
            Reason::SourceAddress,
            source,
        ),
        (
            "to us, on the way",
            transit().to(LOCAL, TO),
            Reason::DestinationAddress,
            destination,
        ),
        (
            "not to us, at the end",
            inbound().to(B, TO),
            Reason::DestinationAddress,
            destination,
        ),
        (
            "foreign source from inside",
            outbound().source(A, FROM),
            Reason::SourceAddress,
            source,
        ),
        (
            "to us from inside",
            outbound().to(LOCAL, TO),
            Reason::DestinationAddress,
            destination,
        ),
    ] {
        answered(what, &sent, &sent.udp(), reason, problem);
    }
}

#[test]
fn a_host_of_ours_must_have_an_address_of_a_host() {
    let sent = outbound().source(LOCAL, ip("::ffff:10.0.0.1"));
    let problem = parameter(33, 0);
    answered("source", &sent, &sent.udp(), Reason::SourceAddress, problem);
    for host in ["::ffff:10.0.0.1", "0.0.0.0", "::", "224.0.0.1", "ff02::1"].map(ip) {
        let sent = inbound().to(LOCAL, host);
        answered(
            "destination",
            &sent,
            &sent.udp(),
            Reason::DestinationAddress,
            parameter(34, 0),
        );
        let sent = transit().source(A, host).to(B, host);
        assert!(matches!(
            sent.run(&mut sent.udp()).verdict,
            Verdict::Forward { .. }
        ));
    }
}

#[test]
fn a_forged_mac_is_told_with_its_place() {
    for (sent, hop) in [
        (transit(), 1),
        (upwards(), 1),
        (crossing(2, 3), 1),
        (crossing(2, 3), 2),
        (inbound(), 1),
        (outbound(), 0),
    ] {
        for byte in 6..12 {
            let mut packet = sent.udp();
            let offset = sent.hop_offset(hop);
            packet[offset + byte] ^= 0x80;
            answered(
                "mac",
                &sent,
                &packet,
                Reason::InvalidMac,
                parameter(51, offset),
            );
        }
    }
}

#[test]
fn a_way_out_that_is_not_ours_is_refused() {
    let segment = |egress| vec![theirs(0, 9), ours(1, egress), theirs(9, 0)];
    for egress in [0, 99] {
        let sent = Sent::by(1, vec![down(segment(egress))], 1);
        let problem = parameter(50, sent.hop_offset(1));
        answered("down", &sent, &sent.udp(), Reason::EgressInterface, problem);
    }
    let sent = Sent::by(
        2,
        vec![up(vec![theirs(0, 9), ours(99, 2), theirs(9, 0)])],
        1,
    );
    let problem = parameter(49, sent.hop_offset(1));
    answered("up", &sent, &sent.udp(), Reason::EgressInterface, problem);

    // From inside, not by way of a sibling again.
    let sent = Sent::by(0, vec![down(vec![ours(0, 12), theirs(9, 0)])], 0);
    let sent = sent.from(host()).source(LOCAL, FROM);
    let problem = parameter(50, sent.hop_offset(0));
    answered(
        "host to sibling",
        &sent,
        &sent.udp(),
        Reason::EgressInterface,
        problem,
    );
    let sent = Sent::by(
        11,
        vec![down(vec![theirs(0, 9), ours(11, 12), theirs(9, 0)])],
        1,
    );
    let sent = sent.from(sibling());
    let problem = parameter(50, sent.hop_offset(1));
    answered(
        "sibling to itself",
        &sent,
        &sent.udp(),
        Reason::EgressInterface,
        problem,
    );
}

#[test]
fn within_a_segment_traffic_goes_up_across_and_down_only() {
    // Parent, child, core, peer, by this router and by the sibling.
    let kinds = [[1, 7, 11], [2, 3, 12], [4, 6, 14], [5, 8, 15]];
    let allowed = [(0, 1), (1, 0), (2, 2), (1, 3), (3, 1)];
    for (from, ingress) in kinds.iter().enumerate() {
        for (to, egress) in kinds.iter().enumerate() {
            for egress in &egress[1..] {
                let hops = vec![theirs(0, 9), ours(ingress[0], *egress), theirs(9, 0)];
                let sent = Sent::by(ingress[0], vec![down(hops)], 1);
                let what = format!("{} to {egress}", ingress[0]);
                if allowed.contains(&(from, to)) {
                    assert_eq!(sent.run(&mut sent.udp()).fast, None, "{what}");
                } else {
                    let problem = parameter(48, sent.hop_offset(1));
                    answered(&what, &sent, &sent.udp(), Reason::PathForbidden, problem);
                }
            }
        }
    }
}

#[test]
fn segments_are_joined_at_core_and_child_links_only() {
    let kinds = [[1, 7, 11], [2, 3, 12], [4, 6, 14], [5, 8, 15]];
    let allowed = [(2, 1), (1, 2), (1, 1)];
    for (from, ingress) in kinds.iter().enumerate() {
        for (to, egress) in kinds.iter().enumerate() {
            for egress in &egress[1..] {
                let sent = crossing(ingress[0], *egress);
                let what = format!("{} to {egress}", ingress[0]);
                if allowed.contains(&(from, to)) {
                    assert_eq!(sent.run(&mut sent.udp()).fast, None, "{what}");
                } else {
                    let problem = parameter(53, sent.path_offset() + 4 + 8);
                    answered(&what, &sent, &sent.udp(), Reason::SegmentChange, problem);
                }
            }
        }
    }
}

#[test]
fn what_comes_from_a_sibling_has_changed_segments_already() {
    let first = up(vec![ours(0, 12), theirs(9, 0)]);
    let second = down(vec![ours(0, 3), theirs(9, 0)]);
    let sent = Sent::by(12, vec![first, second], 1).from(sibling());
    let problem = parameter(53, sent.path_offset() + 4 + 8);
    answered(
        "crossing",
        &sent,
        &sent.udp(),
        Reason::SegmentChange,
        problem,
    );
}

#[derive(Default)]
struct Some_ {
    down: BTreeSet<u16>,
    sibling_down: bool,
    most: Option<u16>,
}

impl Links for Some_ {
    fn is_interface_up(&self, interface: u16) -> bool {
        !self.down.contains(&interface)
    }

    fn is_sibling_up(&self, sibling: usize) -> bool {
        sibling != 0 || !self.sibling_down
    }

    fn most(&self, _interface: u16) -> Option<u16> {
        self.most
    }
}

fn run(sent: &Sent, links: &Some_, packet: &mut [u8]) -> Outcome {
    router().process(packet, sent.ingress, NOW, links)
}

#[test]
fn a_link_that_is_down_is_told() {
    let links = Some_ {
        down: [2].into(),
        sibling_down: true,
        most: None,
    };
    let outcome = run(&transit(), &links, &mut transit().udp());
    assert_eq!(
        (outcome.reason, outcome.fast),
        (Some(Reason::LinkDown), Some(Reason::LinkDown))
    );
    let down_problem = Problem::InterfaceDown {
        isd_as: LOCAL,
        interface: 2,
    };
    assert_eq!(error(&outcome).1, down_problem);

    let by_sibling = Sent::by(
        1,
        vec![down(vec![theirs(0, 9), ours(1, 12), theirs(9, 0)])],
        1,
    );
    let outcome = run(&by_sibling, &links, &mut by_sibling.udp());
    assert_eq!(outcome.reason, Some(Reason::LinkDown));
    let problem = Problem::ConnectivityDown {
        isd_as: LOCAL,
        ingress: 1,
        egress: 12,
    };
    assert_eq!(error(&outcome).1, problem);

    let outcome = run(&upwards(), &links, &mut upwards().udp());
    assert_eq!(
        outcome.verdict,
        Verdict::Forward { interface: 1 },
        "the other way is up"
    );
}

#[test]
fn a_packet_over_the_mtu_leaves_in_fragments_and_one_that_cannot_is_told_what_can() {
    let sent = transit();
    let headers = sent.udp_to(31000, &[]).len();
    let by_sibling = Sent::by(
        1,
        vec![down(vec![theirs(0, 9), ours(1, 12), theirs(9, 0)])],
        1,
    );
    let size = |sent: &Sent, len: usize| sent.udp_to(31000, &vec![0; len - headers]);
    // A link that nothing is known of, and one that fragments nothing.
    for (sent, limit, most) in [
        (&sent, None, 9000),
        (&by_sibling, None, 9000),
        (&sent, Some(1400), 1400),
        (&sent, Some(1472), 1472),
    ] {
        let links = Some_ {
            most: limit,
            ..Some_::default()
        };
        let mtu = most.min(1472);
        let plain = run(sent, &links, &mut size(sent, mtu));
        assert_eq!((plain.reason, plain.fast), (None, None));
        if most > 1472 {
            for len in [1473, most] {
                let outcome = run(sent, &links, &mut size(sent, len));
                assert_eq!(outcome.verdict, plain.verdict);
                let too_big = Some(Reason::TooBig);
                assert_eq!((outcome.reason, outcome.fast), (too_big, too_big));
                assert_eq!(outcome.traffic, plain.traffic);
            }
        }
        let outcome = run(sent, &links, &mut size(sent, most + 1));
        assert_eq!(outcome.reason, Some(Reason::TooBig));
        let told = Problem::PacketTooBig { mtu: mtu as u16 };
        assert_eq!(error(&outcome).1, told);
    }
}

#[test]
fn malformed_paths_are_dropped() {
    let sent = transit();
    let path = sent.path_offset();
    // First byte: pointers. The last three: lengths of the segments.
    for (what, offset, bytes) in [
        ("a hop pointer behind the end", path, vec![3]),
        ("an info pointer behind the end", path, vec![1 << 6 | 1]),
        ("no hop", path + 1, vec![0, 0, 0]),
        ("another length", path + 1, vec![0, 0x40, 0]),
        ("a gap before a segment", path + 1, vec![0, 0, 3]),
        ("too many hops", path + 1, vec![3, 0xf0, 0x42]),
    ] {
        let mut packet = sent.udp();
        packet[offset..offset + bytes.len()].copy_from_slice(&bytes);
        dropped(what, &sent, &packet, Reason::MalformedPath);
    }

    let sent = crossing(2, 3);
    let mut packet = sent.udp();
    packet[sent.path_offset()] = 1 << 6 | 1;
    dropped(
        "the info field of another hop",
        &sent,
        &packet,
        Reason::MalformedPath,
    );

    let mut sent = transit();
    sent.segments.push(down(vec![theirs(0, 8)]));
    dropped("one hop", &sent, &sent.udp(), Reason::OneHopSegment);

    let mut sent = transit();
    sent.segments[0].peer = Some(5);
    dropped(
        "a peer of one segment",
        &sent,
        &sent.udp(),
        Reason::MalformedPeering,
    );
    let mut sent = crossing(2, 3);
    sent.segments[0].peer = Some(5);
    sent.segments.push(down(vec![theirs(0, 8), theirs(8, 0)]));
    dropped(
        "a peer of three segments",
        &sent,
        &sent.udp(),
        Reason::MalformedPeering,
    );

    let segment = vec![theirs(0, 9), ours(1, 12)];
    let sent = Sent::by(12, vec![down(segment)], 1).from(sibling());
    let sent = Sent {
        segments: vec![up(vec![ours(2, 12), theirs(9, 0)])],
        ..sent
    };
    dropped("an end that is none", &sent, &sent.udp(), Reason::PathEnds);
}

#[test]
fn headers_that_cannot_be_read_are_not_answered() {
    let sent = transit();
    let valid = sent.udp();
    for len in [0, 11, 12, 27, 28, 40, valid.len() - 20] {
        let mut packet = valid[..len].to_vec();
        let outcome = sent.run(&mut packet);
        assert_eq!(
            outcome.verdict,
            Verdict::Drop(Reason::HeaderLength),
            "{len}"
        );
    }
    for words in [0, 2, 3, 6, 8] {
        let mut packet = valid.clone();
        packet[5] = words;
        dropped("header length", &sent, &packet, Reason::HeaderLength);
    }
    let mut packet = valid.clone();
    packet[5] += 1;
    dropped("one more word", &sent, &packet, Reason::MalformedPath);
    let mut packet = valid.clone();
    packet[8] = 9;
    dropped("path type", &sent, &packet, Reason::PathType);
}

#[test]
fn an_unknown_version_or_type_of_address_is_told_if_the_rest_can_be_read() {
    let sent = transit();
    let mut packet = sent.udp();
    packet[0] |= 0x10;
    answered("version", &sent, &packet, Reason::Version, parameter(17, 0));

    // A destination of four bytes.
    let mut packet = sent.udp();
    packet[9] |= 0x80;
    answered(
        "destination",
        &sent,
        &packet,
        Reason::AddressType,
        parameter(21, 9),
    );
    let mut packet = sent.udp();
    packet[9] |= 0x08;
    let outcome = sent.run(&mut packet);
    assert_eq!(
        outcome.verdict,
        Verdict::Drop(Reason::AnswersError),
        "no way to address the sender"
    );
    assert_eq!(outcome.fast, Some(Reason::AddressType));
    let mut packet = sent.udp();
    packet[9] = 0x21;
    packet[5] = 8;
    dropped(
        "lengths that do not fit",
        &sent,
        &packet,
        Reason::AddressType,
    );
}

#[test]
fn errors_have_the_flow_of_their_packet_and_are_cut() {
    let sent = transit();
    let mut packet = sent.udp_to(31000, &[7; 1300]);
    packet[..4].copy_from_slice(&0x0b8d_eadf_u32.to_be_bytes());
    packet[sent.hop_offset(1) + 6] ^= 1;
    let outcome = sent.run(&mut packet.clone());
    let Verdict::Answer(answer) = &outcome.verdict else {
        panic!("no answer");
    };
    assert_eq!(answer.len(), MAX_ERROR_PACKET);
    assert_eq!(answer[..4], packet[..4]);
    let (_, _, quote) = error(&outcome);
    let head = View::new_checked(answer)
        .expect("a packet")
        .common()
        .header_len();
    assert_eq!(quote.bytes(), &packet[..MAX_ERROR_PACKET - head - 8]);
    assert_eq!(common::FLOW_ID_MASK, 0xf_ffff);
}

#[test]
fn errors_are_not_answered_but_other_messages_are() {
    let sent = transit();
    let echo = Echo {
        id: 7,
        sequence: 1,
        data: Vec::new(),
    };
    for (message, is_answered) in [
        (Scmp::EchoRequest(echo.clone()), true),
        (Scmp::EchoReply(echo), true),
        (Scmp::TracerouteRequest { id: 7, sequence: 1 }, true),
        (
            Scmp::Error {
                problem: Problem::Unreachable { code: 1 },
                quote: Quote::new(&sent.udp()),
            },
            false,
        ),
    ] {
        let mut packet = sent.scmp(&message);
        packet[sent.hop_offset(1) + 6] ^= 1;
        let outcome = sent.run(&mut packet);
        assert_eq!(outcome.fast, Some(Reason::InvalidMac));
        if is_answered {
            assert!(matches!(outcome.verdict, Verdict::Answer(_)), "{message:?}");
        } else {
            assert_eq!(outcome.verdict, Verdict::Drop(Reason::AnswersError));
        }
    }
    // Types that nobody has defined: errors below 128.
    for (kind, is_answered) in [
        (0, false),
        (100, false),
        (127, false),
        (200, true),
        (255, true),
    ] {
        let mut packet = sent.scmp(&Scmp::TracerouteRequest { id: 7, sequence: 1 });
        let head = usize::from(packet[5]) * 4;
        packet[head] = kind;
        packet[sent.hop_offset(1) + 6] ^= 1;
        let outcome = sent.run(&mut packet);
        assert_eq!(
            matches!(outcome.verdict, Verdict::Answer(_)),
            is_answered,
            "{kind}"
        );
    }
}

#[test]
fn an_error_leaves_with_the_path_back_that_the_neighbour_expects() {
    // The neighbour's hop is the current one, and the segment identifier is that which it has sent.
    let sent = upwards();
    let mut packet = sent.udp();
    packet[sent.hop_offset(1) + 6] ^= 1;
    let outcome = sent.run(&mut packet.clone());
    let (answer, ..) = error(&outcome);
    let sig_common::wire::scion::path::Path::Scion(path) = answer.path else {
        panic!("no SCION path");
    };
    assert_eq!((path.meta().current_info, path.meta().current_hop), (0, 2));
    let info = path.infos().next().expect("an info field");
    assert!(info.construction_direction);
    let at = sent.path_offset() + 6;
    assert_eq!(info.segment_id.to_be_bytes(), packet[at..at + 2]);
    assert_eq!(
        address(INTERNAL).ip(),
        answer.source.1.ip().expect("an IP address")
    );
}
