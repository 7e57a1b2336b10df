//! What is no plain packet with a SCION path: BFD, STUN, empty and one-hop paths, EPIC, router alerts.

use sig_common::{
    addr::{HostAddr, IsdAs},
    wire::scion::path::{EMPTY, EPIC, HopField, InfoField, ONE_HOP, SCION},
};
use sig_core::scion::{
    HopKey, MacInput,
    packet::{self, Addresses, Content},
    scmp::{Echo, Scmp},
};
use sig_router::forward::{AllUp, Ingress, Peer, Reason, Verdict};

use crate::router_support::asys::{
    A, B, FROM, LOCAL, NOW, SERVICE, Sent, T, TO, address, down, host, ip, key, neighbour, ours,
    process, router, sibling, theirs, up,
};

fn udp(source: IsdAs, destination: IsdAs, path_type: u8, path: &[u8]) -> Vec<u8> {
    let addresses = Addresses {
        source: (source, FROM, 32000),
        destination: (destination, HostAddr::SVC_CS, 0),
    };
    packet::udp(&addresses, path_type, path, b"payload").expect("a packet")
}

/// A one-hop path by the interface `egress`, signed with `key`; its second hop field is empty.
fn one_hop(key: &HopKey, egress: u16) -> Vec<u8> {
    let input = MacInput {
        segment_id: 0x1234,
        timestamp: T,
        expiry: 63,
        ingress: 0,
        egress,
    };
    let first = HopField {
        ingress_alert: false,
        egress_alert: false,
        expiry: 63,
        ingress: 0,
        egress,
        mac: key.mac(&input),
    };
    let mut path = vec![1, 0, 0x12, 0x34];
    path.extend(T.to_be_bytes());
    path.extend(first.encode());
    path.extend([0; 12]);
    path
}

/// Offset of paths behind two addresses of four bytes.
const PATH: usize = 12 + 24;

fn dropped(packet: &[u8], ingress: Ingress, fast: Reason, reason: Reason) {
    let mut after = packet.to_vec();
    let outcome = process(&mut after, ingress);
    assert_eq!(outcome.verdict, Verdict::Drop(reason));
    assert_eq!(outcome.fast, Some(fast));
    assert_eq!(after, packet);
}

#[test]
fn bfd_is_for_the_session_with_its_sender() {
    let message = [0x20, 0xc0, 3, 24, 0, 0, 0, 1];
    let bfd = |source, destination, path_type, path: &[u8]| {
        let mut packet = udp(source, destination, path_type, path);
        packet.truncate(PATH + path.len());
        packet[4] = 203;
        packet[6..8].copy_from_slice(&(message.len() as u16).to_be_bytes());
        packet.extend(message);
        packet
    };
    let external = bfd(neighbour(1), LOCAL, ONE_HOP, &one_hop(&key(), 9));
    let internal = bfd(LOCAL, LOCAL, EMPTY, &[]);
    for (packet, ingress, peer) in [
        (&external, Ingress::External(1), Peer::Interface(1)),
        (&internal, sibling(), Peer::Sibling(0)),
    ] {
        let outcome = process(&mut packet.clone(), ingress);
        assert_eq!(outcome.fast, Some(Reason::Bfd));
        let Verdict::Bfd {
            peer: is,
            message: at,
        } = outcome.verdict
        else {
            panic!("{outcome:?}");
        };
        assert_eq!((is, &packet[at]), (peer, &message[..]));
    }
    // Not from others, so that nobody gets around the rate limits.
    dropped(&internal, host(), Reason::EmptyPath, Reason::EmptyPath);
    dropped(
        &internal,
        Ingress::External(1),
        Reason::EmptyPath,
        Reason::EmptyPath,
    );
    let sent = process(&mut external.clone(), host());
    assert_eq!(sent.fast, Some(Reason::OneHop));
    assert!(matches!(sent.verdict, Verdict::Drop(_)));
}

#[test]
fn stun_is_recognised_at_the_internal_address_only() {
    let mut request = vec![0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42];
    request.extend([7; 12]);
    for ingress in [host(), sibling()] {
        let outcome = process(&mut request.clone(), ingress);
        assert_eq!(
            (outcome.verdict, outcome.fast),
            (Verdict::Stun, Some(Reason::Stun))
        );
    }
    let is_stun = |packet: &[u8], ingress| {
        let outcome = process(&mut packet.to_vec(), ingress);
        outcome.verdict == Verdict::Stun
    };
    assert!(!is_stun(&request, Ingress::External(1)));
    assert!(!is_stun(&request[..19], host()));
    request[0] = 0x40;
    assert!(!is_stun(&request, host()));
}

#[test]
fn with_an_empty_path_only_an_echo_request_to_the_router_is_answered() {
    let echo = Echo {
        id: 7,
        sequence: 9,
        data: vec![1; 4],
    };
    let request = |source, to| {
        let message = Scmp::EchoRequest(echo.clone());
        packet::scmp((source, FROM), (LOCAL, to), EMPTY, &[], &message).expect("a packet")
    };
    let outcome = process(&mut request(LOCAL, ip("10.0.0.1")), host());
    let Verdict::Answer(answer) = outcome.verdict else {
        panic!("{outcome:?}");
    };
    let answer = packet::parse(&answer).expect("a packet");
    assert_eq!(answer.path.path_type(), EMPTY);
    assert_eq!(answer.destination, (LOCAL, FROM));
    assert_eq!(answer.content, Content::Scmp(Scmp::EchoReply(echo.clone())));

    let empty = Reason::EmptyPath;
    dropped(&request(LOCAL, TO), host(), empty, empty);
    dropped(&request(A, ip("10.0.0.1")), host(), empty, empty);
    dropped(
        &request(LOCAL, ip("10.0.0.1")),
        Ingress::External(1),
        empty,
        empty,
    );
    dropped(&udp(LOCAL, LOCAL, EMPTY, &[]), host(), empty, empty);
}

#[test]
fn a_beacon_leaves_by_the_link_that_it_is_signed_for() {
    let path = one_hop(&key(), 2);
    let mut packet = udp(LOCAL, neighbour(2), ONE_HOP, &path);
    let before = packet.clone();
    let outcome = process(&mut packet, host());
    assert_eq!(outcome.verdict, Verdict::Forward { interface: 2 });
    assert_eq!(outcome.fast, Some(Reason::OneHop));
    let mac = HopField::decode(path[8..20].try_into().expect("a hop field")).mac;
    let info = InfoField::decode(packet[PATH..PATH + 8].try_into().expect("an info field"));
    assert_eq!(
        info.segment_id,
        0x1234 ^ u16::from_be_bytes([mac[0], mac[1]])
    );
    assert_eq!(packet[..PATH + 2], before[..PATH + 2]);
    assert_eq!(packet[PATH + 4..], before[PATH + 4..]);

    for (packet, reason) in [
        (udp(A, neighbour(2), ONE_HOP, &path), Reason::SourceAddress),
        (
            udp(LOCAL, neighbour(3), ONE_HOP, &path),
            Reason::DestinationAddress,
        ),
        (
            udp(
                LOCAL,
                neighbour(2),
                ONE_HOP,
                &one_hop(&HopKey::new([1; 16]), 2),
            ),
            Reason::InvalidMac,
        ),
        (
            udp(LOCAL, neighbour(12), ONE_HOP, &one_hop(&key(), 12)),
            Reason::EgressInterface,
        ),
        (
            udp(LOCAL, neighbour(99), ONE_HOP, &one_hop(&key(), 99)),
            Reason::EgressInterface,
        ),
    ] {
        dropped(&packet, host(), Reason::OneHop, reason);
    }
    let mut backwards = before.clone();
    backwards[PATH] = 0;
    dropped(&backwards, host(), Reason::OneHop, Reason::MalformedPath);
    let mut cut = before;
    cut.pop();
    dropped(&cut, host(), Reason::OneHop, Reason::PayloadLength);
}

#[test]
fn a_beacon_comes_in_with_a_hop_field_of_this_as() {
    let path = one_hop(&HopKey::new([9; 16]), 77);
    let mut packet = udp(neighbour(1), LOCAL, ONE_HOP, &path);
    let before = packet.clone();
    let outcome = process(&mut packet, Ingress::External(1));
    assert_eq!(outcome.verdict, Verdict::Deliver(address(SERVICE)));
    assert_eq!(outcome.fast, Some(Reason::OneHop));
    let second = PATH + 20..PATH + 32;
    assert_eq!(packet[..second.start], before[..second.start]);
    assert_eq!(packet[second.end..], before[second.end..]);
    let hop = HopField::decode(packet[second].try_into().expect("a hop field"));
    let input = MacInput {
        segment_id: 0x1234,
        timestamp: T,
        expiry: 63,
        ingress: 1,
        egress: 0,
    };
    assert_eq!((hop.ingress, hop.egress, hop.expiry), (1, 0, 63));
    assert_eq!(hop.mac, key().mac(&input));
    // The way back is a path that this router takes.
    let packet = packet::parse(&packet).expect("a packet");
    let (path_type, back) = sig_core::scion::reverse::reply_path(&packet.path).expect("a way back");
    let mut answer = udp(LOCAL, neighbour(1), path_type, &back);
    let outcome = process(&mut answer, host());
    assert_eq!(outcome.verdict, Verdict::Forward { interface: 1 });

    let link = Ingress::External(1);
    for (packet, reason) in [
        (
            udp(neighbour(1), A, ONE_HOP, &path),
            Reason::DestinationAddress,
        ),
        (
            udp(neighbour(2), LOCAL, ONE_HOP, &path),
            Reason::SourceAddress,
        ),
        (udp(LOCAL, LOCAL, ONE_HOP, &path), Reason::SourceAddress),
    ] {
        dropped(&packet, link, Reason::OneHop, reason);
    }
}

/// An EPIC packet of this path, sent at `sent` microseconds after the first info field's timestamp, with the validation
/// fields of the hops that follow `macs` (whole MACs of the last hop but one and of the last).
fn epic(sent: &Sent, micros: u64, macs: [[u8; 16]; 2]) -> Vec<u8> {
    use aes::{
        Aes128,
        cipher::{BlockCipherEncrypt as _, KeyInit as _},
    };
    let units = (micros / 21 - 1) as u32;
    let mut packet_id = units.to_be_bytes().to_vec();
    packet_id.extend([0, 0, 0, 1]);
    let payload_len = 8 + b"payload".len() as u16;
    let mut input = vec![0];
    input.extend(T.to_be_bytes());
    input.extend(&packet_id);
    input.extend(sent.source.0.to_bytes());
    input.extend([10, 1, 0, 1]);
    input.extend(payload_len.to_be_bytes());
    input.resize(32, 0);
    let mut path = packet_id;
    for mac in macs {
        let cipher = Aes128::new(&mac.into());
        let mut block = [0_u8; 16];
        for part in input.chunks(16) {
            block.iter_mut().zip(part).for_each(|(a, b)| *a ^= b);
            let mut state = block.into();
            cipher.encrypt_block(&mut state);
            block = state.into();
        }
        path.extend(&block[..4]);
    }
    path.extend(sent.path());
    let addresses = Addresses {
        source: (sent.source.0, FROM, 32000),
        destination: (sent.destination.0, TO, 31000),
    };
    packet::udp(&addresses, EPIC, &path, b"payload").expect("a packet")
}

fn full_mac(segment_id: u16, ingress: u16, egress: u16) -> [u8; 16] {
    key().cmac(&MacInput {
        segment_id,
        timestamp: T,
        expiry: 63,
        ingress,
        egress,
    })
}

#[test]
fn epic_is_verified_at_the_last_two_hops() {
    let now = NOW.as_micros() as u64 - u64::from(T) * 1_000_000;
    let segment_id = |sent: &Sent| {
        let path = sent.path();
        u16::from_be_bytes([path[6], path[7]])
    };
    let last = Sent::by(1, vec![down(vec![theirs(0, 9), ours(1, 0)])], 1).to(LOCAL, TO);
    let last_but_one = Sent::by(
        1,
        vec![down(vec![theirs(0, 9), ours(1, 2), theirs(9, 0)])],
        1,
    );
    let host = Verdict::Deliver(address("10.2.0.1:31000"));
    for (sent, egress, verdict) in [
        (last, 0, host),
        (last_but_one, 2, Verdict::Forward { interface: 2 }),
    ] {
        let mac = full_mac(segment_id(&sent), 1, egress);
        let other = [0x55; 16];
        let (right, wrong) = if egress == 0 {
            ([other, mac], [mac, other])
        } else {
            ([mac, other], [other, mac])
        };
        let mut packet = epic(&sent, now, right);
        let before = packet.clone();
        let outcome = sent.run(&mut packet);
        assert_eq!(
            (outcome.verdict, outcome.fast),
            (verdict, Some(Reason::Epic))
        );
        assert_eq!(
            packet == before,
            egress == 0,
            "written to as a SCION path is"
        );

        for (packet, what) in [
            (epic(&sent, now, wrong), "field"),
            (epic(&sent, now + 1_100_000, right), "future"),
            (epic(&sent, now - 3_100_000, right), "past"),
        ] {
            let mut after = packet.clone();
            let outcome = sent.run(&mut after);
            assert_eq!(outcome.verdict, Verdict::Drop(Reason::Epic), "{what}");
            assert_eq!(after, packet, "{what}");
        }
        for (micros, what) in [(now + 900_000, "clocks"), (now - 2_900_000, "late")] {
            let outcome = sent.run(&mut epic(&sent, micros, right));
            assert!(!matches!(outcome.verdict, Verdict::Drop(_)), "{what}");
        }
    }

    // Others have nothing to verify.
    let hops = vec![theirs(0, 9), ours(1, 2), theirs(9, 8), theirs(8, 0)];
    let sent = Sent::by(1, vec![down(hops)], 1);
    let mut packet = epic(&sent, now, [[0; 16]; 2]);
    assert_eq!(
        sent.run(&mut packet).verdict,
        Verdict::Forward { interface: 2 }
    );
}

#[test]
fn errors_about_epic_point_behind_its_header_and_come_on_a_scion_path() {
    let sent = Sent::by(
        1,
        vec![down(vec![theirs(0, 9), ours(1, 2), theirs(9, 0)])],
        1,
    );
    let mut packet = epic(&sent, 1_000_000, [[0; 16]; 2]);
    let hop = sent.hop_offset(1) + 16;
    packet[hop + 6] ^= 1;
    let outcome = sent.run(&mut packet);
    assert_eq!(
        (outcome.reason, outcome.fast),
        (Some(Reason::InvalidMac), Some(Reason::Epic))
    );
    let Verdict::Answer(answer) = outcome.verdict else {
        panic!("no answer");
    };
    let answer = packet::parse(&answer).expect("a packet");
    assert_eq!(answer.path.path_type(), SCION);
    let Content::Scmp(Scmp::Error { problem, .. }) = answer.content else {
        panic!("no error");
    };
    let expected = sig_core::scion::scmp::Problem::Parameter {
        code: 51,
        pointer: hop as u16,
    };
    assert_eq!(problem, expected);
}

#[test]
fn router_alerts_are_answered_with_the_interface_that_was_asked_for() {
    let request = Scmp::TracerouteRequest {
        id: 31007,
        sequence: 3,
    };
    let hops = |ingress_alert, egress_alert| {
        let mut hop = ours(1, 2);
        (hop.ingress_alert, hop.egress_alert) = (ingress_alert, egress_alert);
        vec![theirs(0, 9), hop, theirs(9, 0)]
    };
    let (in_alert, out_alert) = (Reason::IngressAlert, Reason::EgressAlert);
    for (sent, interface, fast) in [
        (Sent::by(1, vec![down(hops(true, false))], 1), 1, in_alert),
        (Sent::by(1, vec![down(hops(false, true))], 1), 2, out_alert),
        (Sent::by(1, vec![down(hops(true, true))], 1), 1, in_alert),
        (Sent::by(2, vec![up(hops(true, false))], 1), 1, out_alert),
        (Sent::by(2, vec![up(hops(false, true))], 1), 2, in_alert),
    ] {
        let mut packet = sent.scmp(&request);
        let before = packet.clone();
        let outcome = sent.run(&mut packet);
        assert_eq!((outcome.fast, &packet), (Some(fast), &before));
        let Verdict::Answer(answer) = outcome.verdict else {
            panic!("{outcome:?}");
        };
        let answer = packet::parse(&answer).expect("a packet");
        assert_eq!(answer.destination, (A, FROM));
        let reply = Scmp::TracerouteReply {
            id: 31007,
            sequence: 3,
            isd_as: LOCAL,
            interface,
        };
        assert_eq!(answer.content, Content::Scmp(reply));
        // Nothing else is asked by an alert.
        dropped(&sent.udp(), sent.ingress, fast, fast);
    }
    // The alert of the way out is for the router that has it.
    let mut hop = ours(1, 12);
    hop.egress_alert = true;
    let sent = Sent::by(
        1,
        vec![down(vec![theirs(0, 9), hop.clone(), theirs(9, 0)])],
        1,
    );
    assert_eq!(
        sent.run(&mut sent.scmp(&request)).verdict,
        Verdict::Sibling(0)
    );
    // And that of the way in, too.
    let mut hop = ours(11, 2);
    hop.ingress_alert = true;
    let sent = Sent::by(11, vec![down(vec![theirs(0, 9), hop, theirs(9, 0)])], 1).from(sibling());
    let outcome = sent.run(&mut sent.scmp(&request));
    assert_eq!(outcome.verdict, Verdict::Forward { interface: 2 });
}

#[test]
fn what_comes_by_a_link_of_others_is_dropped() {
    let sent = Sent::by(
        1,
        vec![down(vec![theirs(0, 9), ours(1, 2), theirs(9, 0)])],
        1,
    );
    for interface in [11, 99] {
        let outcome = router().process(&mut sent.udp(), Ingress::External(interface), NOW, &AllUp);
        assert_eq!(outcome.verdict, Verdict::Drop(Reason::WrongPeer));
    }
    assert_ne!(A, B);
}
