//! Where packets go that nothing is wrong with, and what is written to them.

use sig_common::wire::scion::path::ScionPath;
use sig_router::forward::{Ingress, Traffic, Verdict};

use crate::router_support::{
    asys::{A, B, FROM, LOCAL, Sent, TO, address, down, host, ours, sibling, theirs, up},
    path::{Stage, path},
};

/// Interfaces: 1 and 7 lead to parents, 2 and 3 to children, 4 and 6 to core ASes, 5 and 8 to peers; 11 to 16 are the
/// sibling's, of the same kinds.
struct Case {
    what: &'static str,
    sent: Sent,
    verdict: Verdict,
    traffic: Traffic,
    /// The current hop afterwards, and where the packet is then.
    after: (usize, Stage),
}

fn link(interface: u16) -> Verdict {
    Verdict::Forward { interface }
}

fn cases() -> Vec<Case> {
    let end = |n| theirs(n, 0);
    let start = |n| theirs(0, n);
    let mut cases = Vec::new();
    let mut case = |what, sent, verdict, traffic, after| {
        cases.push(Case {
            what,
            sent,
            verdict,
            traffic,
            after,
        });
    };
    let on = |hop| (hop, Stage::Arriving);

    let segment = vec![start(9), ours(1, 2), end(9)];
    let sent = Sent::by(1, vec![down(segment.clone())], 1);
    case("down", sent, link(2), Traffic::BrTransit, on(2));
    let sent = Sent::by(2, vec![up(segment)], 1);
    case("up", sent, link(1), Traffic::BrTransit, on(2));

    let core = vec![start(9), ours(4, 6), end(9)];
    let sent = Sent::by(4, vec![down(core.clone())], 1);
    case("across", sent, link(6), Traffic::BrTransit, on(2));
    let sent = Sent::by(6, vec![up(core)], 1);
    case("across, back", sent, link(4), Traffic::BrTransit, on(2));

    let segment = vec![start(9), ours(1, 12), end(9)];
    let sent = Sent::by(1, vec![down(segment.clone())], 1);
    let stay = (1, Stage::Inside);
    case(
        "down by sibling",
        sent,
        Verdict::Sibling(0),
        Traffic::InTransit,
        stay,
    );
    let sent = Sent::by(12, vec![up(segment)], 1).from(sibling());
    case("up from sibling", sent, link(1), Traffic::OutTransit, on(2));
    let segment = vec![start(9), ours(11, 2), end(9)];
    let sent = Sent::by(2, vec![up(segment.clone())], 1);
    case(
        "up by sibling",
        sent,
        Verdict::Sibling(0),
        Traffic::InTransit,
        stay,
    );
    let sent = Sent::by(11, vec![down(segment)], 1).from(sibling());
    case(
        "down from sibling",
        sent,
        link(2),
        Traffic::OutTransit,
        on(2),
    );

    // Segments of three and two hops.
    let first = up(vec![ours(1, 2), theirs(8, 7), end(6)]);
    let second = down(vec![ours(1, 3), end(9)]);
    let sent = Sent::by(2, vec![first.clone(), second.clone()], 2);
    case("shortcut", sent, link(3), Traffic::BrTransit, on(4));
    let third = down(vec![ours(1, 12), end(9)]);
    let sent = Sent::by(2, vec![first, third.clone()], 2);
    let crossed = (3, Stage::Inside);
    case(
        "shortcut by sibling",
        sent,
        Verdict::Sibling(0),
        Traffic::InTransit,
        crossed,
    );
    let first = up(vec![ours(1, 13), end(9)]);
    let sent = Sent::by(13, vec![first, second], 2).from(sibling());
    case(
        "shortcut from sibling",
        sent,
        link(3),
        Traffic::OutTransit,
        on(3),
    );

    let first = up(vec![ours(0, 2), end(9)]);
    for (name, core) in [
        ("up and across", down(vec![ours(0, 4), end(9)])),
        ("up and across, back", up(vec![start(9), ours(4, 0)])),
    ] {
        let sent = Sent::by(2, vec![first.clone(), core], 1);
        case(name, sent, link(4), Traffic::BrTransit, on(3));
    }
    let last = down(vec![ours(0, 2), end(9)]);
    for (name, core) in [
        ("across and down", down(vec![start(9), ours(4, 0)])),
        ("across, back, and down", up(vec![ours(0, 4), end(9)])),
    ] {
        let first = up(vec![start(8), theirs(3, 4)]);
        let sent = Sent::by(4, vec![first, core, last.clone()], 3);
        case(name, sent, link(2), Traffic::BrTransit, on(5));
    }

    let mut first = up(vec![ours(1, 2), end(9)]);
    first.peer = Some(5);
    let mut second = down(vec![theirs(7, 8), end(9)]);
    second.peer = Some(9);
    let sent = Sent::by(2, vec![first, second.clone()], 1);
    case("to a peer", sent, link(5), Traffic::BrTransit, on(2));
    let mut first = up(vec![theirs(7, 8), end(9)]);
    first.peer = Some(9);
    let mut second = down(vec![ours(1, 2), end(9)]);
    second.peer = Some(5);
    let sent = Sent::by(5, vec![first.clone(), second.clone()], 2);
    case("from a peer", sent, link(2), Traffic::BrTransit, on(3));
    second.peer = Some(15);
    let sent = Sent::by(15, vec![first.clone(), second], 2).from(sibling());
    case(
        "from a peer of the sibling",
        sent,
        link(2),
        Traffic::OutTransit,
        on(3),
    );
    let mut second = down(vec![ours(1, 12), end(9)]);
    second.peer = Some(5);
    let sent = Sent::by(5, vec![first.clone(), second], 2);
    case(
        "from a peer to the sibling",
        sent,
        Verdict::Sibling(0),
        Traffic::InTransit,
        (2, Stage::Inside),
    );

    let out = up(vec![start(9), ours(1, 0)]);
    let sent = Sent::by(0, vec![out], 0).from(host()).source(LOCAL, FROM);
    case("out, up", sent, link(1), Traffic::Out, on(1));
    let out = down(vec![ours(0, 2), end(9)]);
    let sent = Sent::by(0, vec![out], 0).from(host()).source(LOCAL, FROM);
    case("out, down", sent, link(2), Traffic::Out, on(1));
    let mut out = up(vec![ours(1, 0)]);
    out.peer = Some(5);
    let mut second = down(vec![theirs(7, 8)]);
    second.peer = Some(9);
    let sent = Sent::by(0, vec![out, second.clone()], 0)
        .from(host())
        .source(LOCAL, FROM);
    case("out to a peer", sent, link(5), Traffic::Out, on(1));

    let there = || Verdict::Deliver(address("10.2.0.1:31000"));
    let sent = Sent::by(1, vec![down(vec![start(9), ours(1, 0)])], 1).to(LOCAL, TO);
    case("in, down", sent, there(), Traffic::In, (1, Stage::Inside));
    let sent = Sent::by(2, vec![up(vec![ours(0, 2), end(9)])], 1).to(LOCAL, TO);
    case("in, up", sent, there(), Traffic::In, (1, Stage::Inside));
    let mut second = down(vec![ours(1, 0)]);
    second.peer = Some(5);
    let sent = Sent::by(5, vec![first, second], 2).to(LOCAL, TO);
    case(
        "in from a peer",
        sent,
        there(),
        Traffic::In,
        (2, Stage::Inside),
    );
    cases
}

#[test]
fn packets_go_on_with_the_path_that_the_next_router_expects() {
    for case in cases() {
        let sent = &case.sent;
        let mut packet = sent.udp();
        let before = packet.clone();
        let outcome = sent.run(&mut packet);
        assert_eq!(outcome.verdict, case.verdict, "{}: {outcome:?}", case.what);
        assert_eq!(outcome.traffic, Some(case.traffic), "{}", case.what);
        assert_eq!(
            (outcome.reason, outcome.fast),
            (None, None),
            "{}",
            case.what
        );

        let range = sent.path_offset()..sent.path_offset() + sent.path().len();
        assert_eq!(
            packet[..range.start],
            before[..range.start],
            "{}",
            case.what
        );
        assert_eq!(packet[range.end..], before[range.end..], "{}", case.what);
        let (hop, stage) = case.after;
        let expected = path(&sent.segments, hop, stage);
        let (is, should) = (read(&packet[range]), read(&expected));
        assert_eq!(is.0, should.0, "pointers: {}", case.what);
        // Of segments that are behind the packet, nobody cares for the identifier.
        let current = usize::from(should.0.current_info);
        assert_eq!(is.1[current..], should.1[current..], "{}", case.what);
        assert_eq!(is.2, should.2, "{}", case.what);
    }
}

type Read = (
    sig_common::wire::scion::path::Meta,
    Vec<sig_common::wire::scion::path::InfoField>,
    Vec<sig_common::wire::scion::path::HopField>,
);

fn read(path: &[u8]) -> Read {
    let path = ScionPath::new_checked(path).expect("a path");
    (path.meta(), path.infos().collect(), path.hops().collect())
}

#[test]
fn what_has_no_meaning_in_a_path_stays_as_it_is() {
    let segment = vec![theirs(0, 9), ours(1, 2), theirs(9, 0)];
    let sent = Sent::by(1, vec![down(segment)], 1);
    let mut packet = sent.udp();
    let path = sent.path_offset();
    // Reserved bits of the path meta header, of info and hop field; alerts of others.
    let odd = [
        (1, 0xfc),
        (4, 0xfc),
        (5, 0xff),
        (12, 0xff),
        (24, 0xfc),
        (36, 0xff),
    ];
    for (offset, bits) in odd {
        packet[path + offset] |= bits;
    }
    let before = packet.clone();
    let outcome = sent.run(&mut packet);
    assert_eq!(outcome.verdict, link(2));
    let changed: Vec<_> = (0..packet.len())
        .filter(|at| packet[*at] != before[*at])
        .collect();
    assert_eq!(changed, [path, path + 6, path + 7]);
}

#[test]
fn ipv6_hosts_do_not_matter_to_the_way() {
    let host: std::net::Ipv6Addr = "fd00::1".parse().expect("an address");
    let host = sig_common::addr::HostAddr::V6(host.octets());
    let segment = vec![theirs(0, 9), ours(1, 2), theirs(9, 0)];
    let sent = Sent::by(1, vec![down(segment)], 1)
        .source(A, host)
        .to(B, host);
    let mut packet = sent.udp();
    assert_eq!(sent.run(&mut packet).verdict, link(2));
    assert_eq!(sent.ingress, Ingress::External(1));
}
