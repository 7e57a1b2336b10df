//! Delivery to hosts and services of the AS.

use sig_common::{addr::HostAddr, wire::scion::path::SCION};
use sig_core::scion::{
    packet::{self, Content},
    scmp::{Echo, Problem, Quote, Scmp},
};
use sig_router::forward::{AllUp, Reason, Router, Verdict};

use crate::router_support::asys::{
    A, FROM, LOCAL, NOW, SERVICE, Sent, TO, address, down, ip, model, ours, theirs,
};

fn inbound() -> Sent {
    let segment = vec![theirs(0, 9), ours(1, 0)];
    Sent::by(1, vec![down(segment)], 1).to(LOCAL, TO)
}

fn echo() -> Echo {
    Echo {
        id: 31005,
        sequence: 1,
        data: vec![1, 2, 3],
    }
}

/// The port of the host that a packet is delivered to.
fn port(packet: &[u8]) -> Result<u16, Reason> {
    let mut after = packet.to_vec();
    let outcome = inbound().run(&mut after);
    match outcome.verdict {
        Verdict::Deliver(host) => {
            assert_eq!(host.ip(), TO.ip().expect("an address"));
            assert_eq!(outcome.fast, None);
            Ok(host.port())
        }
        Verdict::Drop(reason) => {
            assert_eq!((outcome.fast, &after[..]), (Some(reason), packet));
            Err(reason)
        }
        other => panic!("{other:?}"),
    }
}

/// A packet with this upper layer, whatever it is.
fn carrying(protocol: u8, upper: &[u8]) -> Vec<u8> {
    let mut packet = inbound().udp();
    packet.truncate(usize::from(packet[5]) * 4);
    packet[4] = protocol;
    packet[6..8].copy_from_slice(&(upper.len() as u16).to_be_bytes());
    packet.extend(upper);
    packet
}

fn error_about(packet: &[u8]) -> Vec<u8> {
    inbound().scmp(&Scmp::Error {
        problem: Problem::Unreachable { code: 4 },
        quote: Quote::new(packet),
    })
}

#[test]
fn datagrams_go_to_their_port_if_it_is_dispatched_and_else_to_30041() {
    for (to, goes_to) in [
        (31000, 31000),
        (32767, 32767),
        (30999, 30041),
        (32768, 30041),
        (0, 30041),
        (30041, 30041),
    ] {
        assert_eq!(port(&inbound().udp_to(to, b"data")), Ok(goes_to), "{to}");
    }
    let mut all = model();
    all.ports = Some(1..=65535);
    let mut none = model();
    none.ports = None;
    for (model, to, goes_to) in [
        (&all, 9, 9),
        (&all, 0, 30041),
        (&none, 31000, 30041),
        (&none, 0, 30041),
    ] {
        let router = Router::new(model.clone().into());
        let mut packet = inbound().udp_to(to, b"data");
        let outcome = router.process(&mut packet, inbound().ingress, NOW, &AllUp);
        let Verdict::Deliver(host) = outcome.verdict else {
            panic!("{outcome:?}");
        };
        assert_eq!(host.port(), goes_to);
    }
}

#[test]
fn other_protocols_go_to_30041() {
    let ports = [0x79, 0x18, 0x79, 0x19];
    let tcp = [&ports[..], &[0; 16]].concat();
    assert_eq!(port(&carrying(6, &tcp)), Ok(31001));
    assert_eq!(port(&carrying(6, &tcp[..19])), Err(Reason::NoPort));
    assert_eq!(port(&carrying(17, &tcp[..7])), Err(Reason::NoPort));
    assert_eq!(port(&carrying(17, &tcp[..8])), Ok(31001));
    assert_eq!(port(&carrying(99, &[])), Ok(30041));
    assert_eq!(port(&carrying(203, &tcp)), Ok(30041));
}

#[test]
fn services_of_the_topology_get_packets_at_their_ports_and_only_they() {
    let mut model = model();
    let service = address("10.0.0.9:30256");
    model.services = [service].into();
    let router = Router::new(model.into());
    for (host, port, expected) in [
        ("10.0.0.9", 30256, "10.0.0.9:30256"),
        ("10.0.0.9", 30257, "10.0.0.9:30041"),
        ("10.0.0.8", 30256, "10.0.0.8:30041"),
        ("10.0.0.8", 31000, "10.0.0.8:31000"),
    ] {
        let sent = inbound().to(LOCAL, ip(host));
        let mut packet = sent.udp_to(port, b"request");
        let outcome = router.process(&mut packet, sent.ingress, NOW, &AllUp);
        assert_eq!(outcome.verdict, Verdict::Deliver(address(expected)));
        assert_eq!(outcome.fast, None);
    }
}

#[test]
fn extension_headers_are_skipped_in_their_order() {
    let udp = [0x79, 0x18, 0x79, 0x19, 0, 8, 0, 0];
    let ext = |next| [next, 1, 0, 0, 0, 0, 0, 0];
    let both = [&ext(201)[..], &ext(17)[..], &udp[..]].concat();
    assert_eq!(port(&carrying(200, &both)), Ok(31001));
    assert_eq!(port(&carrying(201, &both[8..])), Ok(31001));
    assert_eq!(
        port(&carrying(200, &[&ext(17)[..], &udp[..]].concat())),
        Ok(31001)
    );
    let deep = Err(Reason::DeepExtensions);
    assert_eq!(
        port(&carrying(
            201,
            &[&ext(200)[..], &ext(17)[..], &udp[..]].concat()
        )),
        deep
    );
    assert_eq!(
        port(&carrying(
            201,
            &[&ext(201)[..], &ext(17)[..], &udp[..]].concat()
        )),
        deep
    );
    assert_eq!(port(&carrying(200, &both[..7])), deep);
    assert_eq!(port(&carrying(200, &both[..15])), deep);
}

#[test]
fn scmp_messages_go_to_the_socket_that_they_answer() {
    assert_eq!(port(&inbound().scmp(&Scmp::EchoRequest(echo()))), Ok(30041));
    assert_eq!(port(&inbound().scmp(&Scmp::EchoReply(echo()))), Ok(31005));
    let request = Scmp::TracerouteRequest {
        id: 31006,
        sequence: 0,
    };
    assert_eq!(port(&inbound().scmp(&request)), Ok(30041));
    let reply = Scmp::TracerouteReply {
        id: 31006,
        sequence: 0,
        isd_as: A,
        interface: 1,
    };
    let reply = inbound().scmp(&reply);
    assert_eq!(port(&reply), Ok(31006));
    assert_eq!(
        port(&carrying(202, &reply[reply.len() - 24..reply.len() - 1])),
        Err(Reason::NoPort)
    );
    assert_eq!(
        port(&carrying(202, &[129, 0, 0, 0, 0x79, 0x18, 0])),
        Err(Reason::NoPort)
    );
    assert_eq!(port(&carrying(202, &[129, 0, 0])), Err(Reason::NoPort));
    for kind in [0, 3, 7, 100, 127, 132, 200, 255] {
        assert_eq!(
            port(&carrying(202, &[kind; 40])),
            Err(Reason::NoPort),
            "{kind}"
        );
    }
}

#[test]
fn errors_go_to_the_socket_whose_packet_they_are_about() {
    let back = inbound().source(LOCAL, TO).to(A, FROM);
    assert_eq!(port(&error_about(&back.udp())), Ok(32000));
    assert_eq!(
        port(&error_about(&back.scmp(&Scmp::EchoRequest(echo())))),
        Ok(31005)
    );
    let request = Scmp::TracerouteRequest {
        id: 31006,
        sequence: 0,
    };
    assert_eq!(port(&error_about(&back.scmp(&request))), Ok(31006));
    // Replies and errors are never answered, and there is no port 0.
    let none = Err(Reason::NoPort);
    assert_eq!(
        port(&error_about(&back.scmp(&Scmp::EchoReply(echo())))),
        none
    );
    assert_eq!(port(&error_about(&error_about(&back.udp()))), none);
    let mut anonymous = back.udp();
    let head = usize::from(anonymous[5]) * 4;
    anonymous[head..head + 2].fill(0);
    assert_eq!(port(&error_about(&anonymous)), none);
    // Cut off behind the ports, and before.
    assert_eq!(port(&error_about(&back.udp()[..head + 8])), Ok(32000));
    assert_eq!(port(&error_about(&back.udp()[..head + 7])), none);
    assert_eq!(port(&error_about(&[])), none);
}

#[test]
fn services_are_delivered_to_an_instance() {
    for service in [HostAddr::SVC_CS, HostAddr::Svc(0x8002)] {
        let sent = inbound().to(LOCAL, service);
        let outcome = sent.run(&mut sent.udp());
        assert_eq!(outcome.verdict, Verdict::Deliver(address(SERVICE)));
        assert_eq!(outcome.fast, Some(Reason::Service));
    }
    for service in [HostAddr::SVC_DS, HostAddr::SVC_WILDCARD, HostAddr::SVC_NONE] {
        let sent = inbound().to(LOCAL, service);
        let mut packet = sent.udp();
        let outcome = sent.run(&mut packet);
        assert_eq!(outcome.reason, Some(Reason::NoService));
        assert_eq!(outcome.fast, Some(Reason::Service));
        let Verdict::Answer(answer) = outcome.verdict else {
            panic!("no answer");
        };
        let answer = packet::parse(&answer).expect("a packet");
        let Content::Scmp(Scmp::Error { problem, .. }) = answer.content else {
            panic!("no error");
        };
        assert_eq!(problem, Problem::Unreachable { code: 0 });
    }
}

#[test]
fn a_flow_stays_with_its_instance_and_flows_are_spread() {
    let mut model = model();
    model.control_services.push(address("10.0.0.4:30252"));
    let router = Router::new(model.into());
    let instance = |flow: u8| {
        let sent = inbound().to(LOCAL, HostAddr::SVC_CS);
        let mut packet = sent.udp();
        packet[3] = flow;
        router
            .process(&mut packet, sent.ingress, NOW, &AllUp)
            .verdict
    };
    assert_eq!(instance(6), instance(6));
    assert_ne!(instance(6), instance(7));
}

#[test]
fn an_echo_request_to_the_router_is_answered() {
    let sent = inbound().to(LOCAL, ip("10.0.0.1"));
    let outcome = sent.run(&mut sent.scmp(&Scmp::EchoRequest(echo())));
    assert_eq!(outcome.fast, Some(Reason::Local));
    let Verdict::Answer(answer) = outcome.verdict else {
        panic!("{outcome:?}");
    };
    let answer = packet::parse(&answer).expect("a packet");
    assert_eq!(answer.source, (LOCAL, ip("10.0.0.1")));
    assert_eq!(answer.destination, (A, FROM));
    assert_eq!(answer.content, Content::Scmp(Scmp::EchoReply(echo())));
    assert_eq!(answer.path.path_type(), SCION);

    // Not one that is damaged, and nothing else.
    let mut packet = sent.scmp(&Scmp::EchoRequest(echo()));
    *packet.last_mut().expect("bytes") ^= 1;
    assert!(matches!(
        sent.run(&mut packet).verdict,
        Verdict::Drop(Reason::Local)
    ));
    let outcome = sent.run(&mut sent.udp());
    assert_eq!(outcome.verdict, Verdict::Deliver(address("10.0.0.1:31000")));
    assert_eq!(outcome.fast, Some(Reason::Local));
}
