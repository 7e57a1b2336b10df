//! The end host port with an owner of ours.

use std::collections::HashSet;

use sig_common::wire::scion::path::SCION;

use super::*;
use crate::sockets::EndhostPort;
use sig_core::scion::{packet::Content, scmp::Echo};

fn open(local: &Arc<Local>, ip: IpAddr) -> EndhostPort {
    EndhostPort::open(local, ip).expect("the end host port")
}

fn scmp(to: IpAddr, message: &Scmp) -> Vec<u8> {
    packet::scmp((PEER, PEER_HOST), host(to), SCION, &ARRIVED, message).expect("a packet")
}

fn echo(id: u16) -> Echo {
    Echo {
        id,
        sequence: 3,
        data: b"data".into(),
    }
}

/// Waits until everything sent to the port so far has been handled: a later echo is answered.
async fn settle(port: &EndhostPort) {
    let ip = port.local_addr().ip();
    let (asker, _) = plain(ip, 0).await;
    asker
        .send_to(&scmp(ip, &Scmp::EchoRequest(echo(1))), port.local_addr())
        .await
        .expect("sent");
    receive_plain(&asker).await;
}

#[tokio::test]
async fn an_echo_is_answered_to_the_router_that_brought_it() {
    let (local, ip) = (local(), own_ip());
    let port = open(&local, ip);
    let (router, _) = plain(ip, 0).await;
    router
        .send_to(&scmp(ip, &Scmp::EchoRequest(echo(77))), port.local_addr())
        .await
        .expect("sent");
    let (reply, from) = receive_plain(&router).await;
    assert_eq!(from, port.local_addr());
    let reply = packet::parse(&reply).expect("a packet");
    assert_eq!(reply.source, host(ip));
    assert_eq!(reply.destination, (PEER, PEER_HOST));
    assert_eq!(reply.path.bytes(), REVERSED);
    assert_eq!(reply.content, Content::Scmp(Scmp::EchoReply(echo(77))));
    assert_eq!(get(&local.counters.written_packets), 1);
}

#[tokio::test]
async fn packets_reach_the_sockets_that_border_routers_would_choose() {
    let (local, ip) = (local(), own_ip());
    let port = open(&local, ip);
    let sockets = [bind(&local, ip), bind(&local, ip)];
    let (router, from) = plain(own_ip(), 0).await;
    for (socket, other) in [(0, 1), (1, 0)].map(|(a, b)| (&sockets[a], &sockets[b])) {
        let (endpoint, id) = (socket.endpoint(), socket.local_addr().port());
        let sent = Addresses {
            source: endpoint,
            destination: (PEER, PEER_HOST, other.local_addr().port()),
        };
        let sent = packet::udp(&sent, SCION, &ARRIVED, b"sent").expect("a packet");
        let probe = packet::path_probe(host(ip), PEER, &ARRIVED, id, 1).expect("a packet");
        let error = |packet: &[u8]| Scmp::Error {
            problem: Problem::Unreachable { code: 4 },
            quote: Quote::new(packet),
        };
        let answer = Scmp::TracerouteReply {
            id,
            sequence: 1,
            isd_as: PEER,
            interface: 4,
        };
        let packets = [
            datagram(endpoint, b"data"),
            scmp(ip, &answer),
            scmp(ip, &Scmp::EchoReply(echo(id))),
            scmp(ip, &error(&sent)),
            scmp(ip, &error(&probe)),
        ];
        for packet in &packets {
            router
                .send_to(packet, port.local_addr())
                .await
                .expect("sent");
            let received = receive(socket).await;
            assert_eq!(received.reply.next_hop, from);
            let expected = packet::parse(packet).expect("a packet");
            match (received.payload, expected.content) {
                (Payload::Udp(bytes), Content::Udp { payload, .. }) => assert_eq!(bytes, payload),
                (Payload::Scmp(message), Content::Scmp(expected)) => assert_eq!(message, expected),
                (payload, _) => panic!("{payload:?}"),
            }
        }
    }
}

#[tokio::test]
async fn both_families_have_an_end_host_port() {
    let local = local();
    let ip = Ipv6Addr::LOCALHOST.into();
    // Another process on this machine may test the same.
    let port = loop {
        match EndhostPort::open(&local, ip) {
            Ok(port) => break port,
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::AddrInUse),
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    let socket = bind(&local, ip);
    let (router, from) = plain(ip, 0).await;
    router
        .send_to(&datagram(socket.endpoint(), b"data"), port.local_addr())
        .await
        .expect("sent");
    assert_eq!(receive(&socket).await.reply.next_hop, from);
}

#[tokio::test]
async fn direct_and_handed_over_packets_both_get_their_turn() {
    let (local, ip) = (local(), own_ip());
    let port = open(&local, ip);
    let socket = bind(&local, ip);
    let (router, _) = plain(ip, 0).await;
    for _ in 0..20 {
        for to in [port.local_addr(), socket.local_addr()] {
            router
                .send_to(&datagram(socket.endpoint(), to.to_string().as_bytes()), to)
                .await
                .expect("sent");
        }
    }
    settle(&port).await;
    let mut seen = HashSet::new();
    for _ in 0..20 {
        seen.insert(udp(&receive(&socket).await.payload).to_vec());
    }
    assert_eq!(
        seen.len(),
        2,
        "one of them had to wait for all of the other"
    );
}

#[tokio::test]
async fn data_frames_vanish_and_errors_about_them_arrive() {
    let (local, ip) = (local(), own_ip());
    let port = open(&local, ip);
    let data = std::net::UdpSocket::bind((ip, 30056)).expect("a socket");
    let data = ScionSocket::scmp_only(&local, data).expect("a socket");
    let (router, _) = plain(ip, 0).await;
    let frame = datagram(data.endpoint(), b"frame");
    let sent = Addresses {
        source: data.endpoint(),
        destination: (PEER, PEER_HOST, 30056),
    };
    let sent = packet::udp(&sent, SCION, &ARRIVED, b"frame").expect("a packet");
    let error = Scmp::Error {
        problem: Problem::PacketTooBig { mtu: 1400 },
        quote: Quote::new(&sent),
    };
    for to in [port.local_addr(), data.local_addr()] {
        for _ in 0..QUEUE + 1 {
            router.send_to(&frame, to).await.expect("sent");
        }
        router.send_to(&scmp(ip, &error), to).await.expect("sent");
        assert_eq!(receive(&data).await.payload, Payload::Scmp(error.clone()));
    }
    assert_eq!(get(&local.counters.read_packets), 2);
    assert_eq!(get(&local.counters.strays), 0);
    assert_eq!(get(&local.counters.overflows), 0);
}

#[tokio::test]
async fn what_is_for_nobody_here_is_counted() {
    let (local, ip) = (local(), own_ip());
    let port = open(&local, ip);
    let gone = bind(&local, ip);
    let gone_endpoint = gone.endpoint();
    drop(gone);
    let (router, _) = plain(ip, 0).await;
    let request = Scmp::TracerouteRequest { id: 7, sequence: 1 };
    let unknown = Scmp::Error {
        problem: Problem::Unreachable { code: 0 },
        quote: Quote::new(b"cut off"),
    };
    for packet in [
        datagram(gone_endpoint, b"data"),
        datagram((PEER, ip.into(), 7000), b"data"),
        datagram((US, HostAddr::SVC_CS, 0), b"data"),
        scmp(own_ip(), &Scmp::EchoRequest(echo(1))),
        scmp(ip, &request),
        scmp(ip, &unknown),
        b"garbage".to_vec(),
        Vec::new(),
        vec![0; MAX_DATAGRAM + 1],
    ] {
        router
            .send_to(&packet, port.local_addr())
            .await
            .expect("sent");
    }
    settle(&port).await;
    assert_eq!(get(&local.counters.strays), 6);
    assert_eq!(get(&local.counters.parse_errors), 3);
    assert_eq!(get(&local.counters.written_packets), 1);
}

#[tokio::test]
async fn a_socket_that_is_not_read_keeps_a_bounded_number_of_packets() {
    let (local, ip) = (local(), own_ip());
    let port = open(&local, ip);
    let socket = bind(&local, ip);
    let (router, _) = plain(ip, 0).await;
    let packet = datagram(socket.endpoint(), b"data");
    for _ in 0..QUEUE + 5 {
        router
            .send_to(&packet, port.local_addr())
            .await
            .expect("sent");
        // The kernel's queue is bounded too.
        settle(&port).await;
    }
    assert_eq!(get(&local.counters.overflows), 5);
    for _ in 0..QUEUE {
        receive(&socket).await;
    }
}

#[tokio::test]
async fn a_port_that_another_program_owns_is_left_to_it() {
    let (local, ip) = (local(), own_ip());
    let (other, _) = plain(ip, ENDHOST_PORT).await;
    let error = EndhostPort::open(&local, ip).expect_err("it is taken");
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    drop(other);
    drop(open(&local, ip));
    // The port is free again as soon as the task has ended.
    for _ in 0..1000 {
        if EndhostPort::open(&local, ip).is_ok() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("the port is still taken");
}
