//! What is told of a packet that is only asked about is what becomes of one that is sent.

use sig_common::reason::DropReason;

use super::*;
use crate::{
    dataplane::{
        filter::{Chain, Decision, Filter, FilterAction, FilterRule, Hits},
        trace::{Delivery, Route},
    },
    trace::Question,
};

fn question(source: &str, destination: &str, port: u16) -> Question {
    Question {
        source: source.parse().expect("an address"),
        destination: destination.parse().expect("an address"),
        protocol: 17,
        source_port: 1000,
        destination_port: port,
        tos: 0,
        ttl: 64,
        length: 100,
        from_remote: None,
    }
}

fn rule(condition: &str, action: FilterAction) -> FilterRule {
    FilterRule {
        condition: Arc::new(condition.parse().expect("a condition")),
        action,
        hits: Arc::new([Hits::default()]),
    }
}

const CHAIN: FilterAction = FilterAction::Chain(Chain {
    policy: 7,
    room: 1400,
    segment: 1400,
});

/// Gateway 1 with rules, and with classes for one prefix.
fn gateway_with_rules() -> Gateway {
    let mut gateway = gateway(1, 1472);
    let rules = vec![
        rule("dstport=5000-5999", FilterAction::Count),
        rule("dstport=5001", FilterAction::Drop),
        rule("dstport=5002", CHAIN),
    ];
    gateway.tables.filter = Arc::new(Filter::new(rules, Vec::new(), Default::default()));
    let nets = |text: &str| [text.parse().expect("a prefix")];
    let class = |condition: &str, action| Rule {
        condition: Arc::new(condition.parse().expect("a condition")),
        action,
    };
    let mut routing = Routing::default();
    routing.add_site(&nets("10.2.0.0/16"), vec![always(0)]);
    routing.add_site(&nets("fd00:2::/32"), vec![always(0)]);
    let classes = vec![
        class("dstport=7", Action::Drop),
        class("dstport=8-9", Action::Session(0)),
    ];
    routing.add_site(&nets("10.2.1.0/24"), classes);
    routing.add_site(&nets("10.2.2.0/24"), Vec::new());
    routing.add_site(&nets("10.2.4.0/24"), vec![always(1)]);
    routing.add_home("10.2.3.0/24".parse().expect("a prefix"));
    gateway.tables.routing = Arc::new(routing);
    gateway.tables.add_session(
        (isd_as(2), std::net::IpAddr::from([192, 0, 2, 2]).into()),
        Vec::new(),
        None,
    );
    gateway.tables.generation += 1;
    gateway
}

#[test]
fn packets_to_remotes_do_what_the_trace_says() {
    let mut gateway = gateway_with_rules();
    let mut seen = Vec::new();
    for source in ["10.1.0.5", "fe80::1", "fd00:1::9"] {
        for destination in [
            "10.2.0.7",
            "10.2.1.7",
            "10.2.2.7",
            "10.2.3.7",
            "10.2.4.7",
            "10.9.0.1",
            "224.0.0.1",
            "fd00:2::7",
        ] {
            for (port, ttl, length) in [
                (7, 64, 100),
                (8, 64, 100),
                (10, 64, 100),
                (5000, 64, 1500),
                (5001, 64, 100),
                (5002, 64, 100),
                (5002, 64, 1401),
                (8, 1, 100),
            ] {
                let mut question = question(source, destination, port);
                (question.ttl, question.length) = (ttl, length);
                let Ok(packet) = question.packet() else {
                    continue;
                };
                let trace = gateway.tables.trace_egress(&summary(&packet));
                let before = DropReason::ALL.map(|reason| gateway.drops(reason));
                let (frames, tunnel) = gateway.send_lan(&[packet]);
                let dropped = DropReason::ALL
                    .into_iter()
                    .find(|reason| gateway.drops(*reason) > before[*reason as usize]);
                assert_eq!(trace.verdict.err(), dropped, "{question:?}");
                let is_chained = tunnel.iter().any(|frame| frame[..6] != [0; 6]);
                match trace.verdict {
                    Ok(()) if is_chained => {
                        assert!(matches!(trace.decision, Decision::Chain(_)), "{question:?}");
                    }
                    Ok(()) => assert_eq!(frames.len(), trace.frames, "{question:?}"),
                    Err(_) => assert!(frames.is_empty(), "{question:?}"),
                }
                seen.push(trace.verdict.err());
            }
        }
    }
    for reason in [
        DropReason::AddressScope,
        DropReason::NoRoute,
        DropReason::TtlExpired,
        DropReason::Filtered,
        DropReason::PacketTooBig,
        DropReason::NoSession,
        DropReason::NoPath,
    ] {
        assert!(seen.contains(&Some(reason)), "{reason}");
    }
    gateway.assert_no_chunk_is_lost();
}

#[test]
fn a_trace_names_the_entries_that_decide() {
    let gateway = gateway_with_rules();
    let trace = |destination, port| {
        let packet = question("10.1.0.5", destination, port).packet();
        gateway
            .tables
            .trace_egress(&summary(&packet.expect("one IP version")))
    };
    let net = |text: &str| text.parse().expect("a prefix");
    let found = trace("10.2.1.7", 9);
    assert_eq!(
        found.route,
        Some((net("10.2.1.0/24"), Route::Class(Some(1))))
    );
    assert_eq!((found.session, found.path), (Some(0), Some(0)));
    assert!(found.rules.is_empty() && found.is_simple);
    let found = trace("10.2.1.7", 10);
    assert_eq!(found.route, Some((net("10.2.1.0/24"), Route::Class(None))));
    let found = trace("10.2.0.7", 5001);
    assert_eq!(found.route, Some((net("10.2.0.0/16"), Route::Site)));
    assert_eq!(found.rules, [0, 1]);
    let found = trace("10.2.0.7", 5000);
    assert!(!found.is_simple, "it is counted");
    assert_eq!(
        trace("10.2.3.7", 9).route,
        Some((net("10.2.3.0/24"), Route::Home))
    );
    assert_eq!(trace("10.9.0.7", 9).route, None);
}

#[test]
fn packets_from_remotes_do_what_the_trace_says() {
    let (mut a, mut b) = (gateway(2, 1472), gateway(1, 1472));
    b.tables.filter = Arc::new(Filter::new(
        Vec::new(),
        vec![rule("dstport=5001", FilterAction::Drop)],
        Default::default(),
    ));
    // Whoever sends it cares for nothing.
    let mut routing = Routing::default();
    let all = ["0.0.0.0/0", "::/0"].map(|net| net.parse().expect("a prefix"));
    routing.add_site(&all, vec![always(0)]);
    a.tables.routing = Arc::new(routing);
    for (source, destination, port, expected) in [
        ("10.2.0.7", "10.1.0.5", 9, Ok(())),
        ("10.2.0.7", "10.1.0.5", 5001, Err(DropReason::Filtered)),
        ("10.1.0.7", "10.1.0.5", 9, Err(DropReason::InnerSource)),
        ("10.3.0.7", "10.1.0.5", 9, Err(DropReason::InnerSource)),
        ("10.2.0.7", "10.3.0.5", 9, Err(DropReason::InnerDestination)),
    ] {
        let packet = question(source, destination, port).packet();
        let packet = packet.expect("one IP version");
        let trace = b.tables.trace_ingress(0, &summary(&packet));
        assert_eq!(trace.verdict, expected, "{source} {destination} {port}");
        let before = DropReason::ALL.map(|reason| b.drops(reason));
        let (frames, _) = a.send_lan(&[packet]);
        let delivered = b.send_underlay(0, &frames);
        let dropped = DropReason::ALL
            .into_iter()
            .find(|reason| b.drops(*reason) > before[*reason as usize]);
        assert_eq!(dropped, expected.err(), "{source} {destination} {port}");
        assert_eq!(delivered.len(), usize::from(expected.is_ok()));
        if expected.is_ok() {
            let by_kernel = Delivery::Kernel {
                but_not_back: false,
            };
            assert_eq!(trace.delivery, Some(by_kernel));
        }
    }
    a.assert_no_chunk_is_lost();
    b.assert_no_chunk_is_lost();
}
