mod endhost;
mod support;

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    ops::RangeInclusive,
    sync::Arc,
};

use sig_common::{addr::HostAddr, wire::scion::ENDHOST_PORT};

use self::support::*;
use super::{Local, MAX_DATAGRAM, Payload, PortChoice, ScionSocket, local::QUEUE};
use sig_core::scion::{
    packet::{self, Addresses},
    scmp::{Problem, Quote, Scmp},
};

fn bind(local: &Arc<Local>, ip: IpAddr) -> ScionSocket {
    ScionSocket::bind(local, ip, PortChoice::Free).expect("a socket")
}

fn udp(payload: &Payload) -> &[u8] {
    match payload {
        Payload::Udp(bytes) => bytes,
        Payload::Scmp(message) => panic!("{message:?}"),
    }
}

#[tokio::test]
async fn a_datagram_arrives_and_is_answered_on_the_way_back() {
    for ip in both_families() {
        let ours = bind(&local(), ip);
        let peer = bind(&Local::new(PEER, 0..=0), ip);
        let via = super::Via {
            path_type: 1,
            raw: ARRIVED.into(),
            next_hop: ours.local_addr(),
        };
        peer.send_to(ours.endpoint(), &via, b"question")
            .await
            .expect("sent");
        let received = receive(&ours).await;
        assert_eq!(received.sender(), peer.endpoint());
        assert_eq!(received.destination, host(ip));
        assert_eq!(udp(&received.payload), b"question");
        assert_eq!(received.reply.next_hop, peer.local_addr());
        assert_eq!(received.reply.raw[..], REVERSED);

        ours.send_to(received.sender(), &received.reply, b"")
            .await
            .expect("sent");
        let received = receive(&peer).await;
        assert_eq!(received.sender(), ours.endpoint());
        assert_eq!(udp(&received.payload), b"");
        for socket in [&ours, &peer] {
            let counters = &socket.local().counters;
            assert_eq!(get(&counters.written_packets), 1);
            assert_eq!(get(&counters.read_packets), 1);
        }
        assert_eq!(
            get(&ours.local().counters.read_bytes),
            get(&peer.local().counters.written_bytes)
        );
    }
}

#[tokio::test]
async fn packets_for_somebody_else_are_skipped_and_counted() {
    for ip in both_families() {
        let ours = bind(&local(), ip);
        let (router, from) = plain(ip, 0).await;
        let (isd_as, host, port) = ours.endpoint();
        let other_host = HostAddr::V4([10, 9, 8, 7]);
        for to in [
            (PEER, host, port),
            (isd_as, other_host, port),
            (isd_as, HostAddr::SVC_CS, port),
            (isd_as, host, port ^ 1),
            (isd_as, host, port),
        ] {
            router
                .send_to(&datagram(to, b"data"), ours.local_addr())
                .await
                .expect("sent");
        }
        let received = receive(&ours).await;
        assert_eq!(udp(&received.payload), b"data");
        assert_eq!(received.reply.next_hop, from);
        let counters = &ours.local().counters;
        assert_eq!(get(&counters.strays), 4);
        assert_eq!(get(&counters.read_packets), 5);
    }
}

#[tokio::test]
async fn garbage_is_skipped_and_counted() {
    let ip = own_ip();
    let ours = bind(&local(), ip);
    let (router, _) = plain(ip, 0).await;
    let good = datagram(ours.endpoint(), b"data");
    let mut damaged = good.clone();
    *damaged.last_mut().expect("bytes") ^= 1;
    let largest = datagram(ours.endpoint(), &vec![7; MAX_DATAGRAM - 80]);
    assert_eq!(largest.len(), MAX_DATAGRAM);
    let too_large = datagram(ours.endpoint(), &vec![7; MAX_DATAGRAM - 79]);
    // A one-hop path that no router has completed leads nowhere.
    let mut incomplete = ARRIVED[4..].to_vec();
    incomplete[22..24].fill(0);
    let addresses = Addresses {
        source: (PEER, PEER_HOST, 7000),
        destination: ours.endpoint(),
    };
    let incomplete = packet::udp(&addresses, 2, &incomplete, &[]).expect("a packet");
    for bytes in [
        &b""[..],
        b"\0",
        &[0xff; 1500],
        &good[..good.len() - 1],
        &damaged,
        &too_large,
        &incomplete,
        &largest,
    ] {
        router
            .send_to(bytes, ours.local_addr())
            .await
            .expect("sent");
    }
    let received = receive(&ours).await;
    assert_eq!(udp(&received.payload).len(), MAX_DATAGRAM - 80);
    let counters = &ours.local().counters;
    assert_eq!(get(&counters.parse_errors), 6);
    assert_eq!(get(&counters.strays), 1);
    assert_eq!(get(&counters.underlay_errors), 0);
}

#[tokio::test]
async fn a_flood_of_garbage_does_not_hide_what_follows() {
    let ip = own_ip();
    let ours = bind(&local(), ip);
    let (router, _) = plain(ip, 0).await;
    let good = datagram(ours.endpoint(), b"data");
    for _ in 0..100 {
        router.send_to(b"x", ours.local_addr()).await.expect("sent");
    }
    router
        .send_to(&good, ours.local_addr())
        .await
        .expect("sent");
    assert_eq!(udp(&receive(&ours).await.payload), b"data");
    assert_eq!(get(&ours.local().counters.parse_errors), 100);
}

#[tokio::test]
async fn scmp_reaches_the_reader() {
    let ip = own_ip();
    let ours = bind(&local(), ip);
    let (router, from) = plain(ip, 0).await;
    let error = Scmp::Error {
        problem: Problem::InterfaceDown {
            isd_as: PEER,
            interface: 1,
        },
        quote: Quote::new(&datagram(ours.endpoint(), b"data")),
    };
    let message = packet::scmp((PEER, PEER_HOST), host(ip), 1, &ARRIVED, &error).expect("a packet");
    router
        .send_to(&message, ours.local_addr())
        .await
        .expect("sent");
    let received = receive(&ours).await;
    assert_eq!(received.payload, Payload::Scmp(error));
    assert_eq!(received.sender(), (PEER, PEER_HOST, 0));
    assert_eq!(received.reply.next_hop, from);
    assert_eq!(get(&ours.local().counters.scmp_errors), 1);
}

#[tokio::test]
async fn behind_a_relay_the_router_of_the_interface_is_the_way_back() {
    let ip = own_ip();
    let ours = bind(&local(), ip);
    // A relay sends from our own address, or from another one of the loopback device.
    for relay_ip in [ip, own_ip()] {
        let (relay, _) = plain(relay_ip, ENDHOST_PORT).await;
        let router: SocketAddr = "192.0.2.1:30042".parse().expect("an address");
        ours.local().interfaces.store(Arc::default());
        let packet = |payload: &[u8]| datagram(ours.endpoint(), payload);
        let to = ours.local_addr();
        relay.send_to(&packet(b"lost"), to).await.expect("sent");
        // The packet below is only read when the one above has been.
        let straight = Addresses {
            source: (US, PEER_HOST, 7000),
            destination: ours.endpoint(),
        };
        let straight = packet::udp(&straight, 0, &[], b"straight").expect("a packet");
        relay.send_to(&straight, to).await.expect("sent");
        let received = receive(&ours).await;
        assert_eq!(udp(&received.payload), b"straight");
        assert_eq!(
            received.reply.next_hop,
            "10.0.0.1:7000".parse().expect("an address")
        );

        ours.local()
            .interfaces
            .store(Arc::new(HashMap::from([(INTERFACE, router)])));
        relay.send_to(&packet(b"far"), to).await.expect("sent");
        let received = receive(&ours).await;
        assert_eq!(udp(&received.payload), b"far");
        assert_eq!(received.reply.next_hop, router);
    }
    assert_eq!(get(&ours.local().counters.strays), 2);
}

#[tokio::test]
async fn free_ports_come_from_the_end_of_the_dispatched_range() {
    let ip = own_ip();
    let local = Local::new(US, 40000..=40002);
    let taken = std::net::UdpSocket::bind((ip, 40001)).expect("a socket");
    let ports = || ScionSocket::bind(&local, ip, PortChoice::Free);
    let (first, second) = (ports().expect("a socket"), ports().expect("a socket"));
    assert_eq!(first.local_addr().port(), 40002);
    assert_eq!(second.local_addr().port(), 40000);
    let error = ports().expect_err("all are taken");
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    drop((taken, first));
    assert_eq!(ports().expect("a socket").local_addr().port(), 40002);
    assert_eq!(get(&local.counters.listens), 3);
    assert_eq!(get(&local.counters.closes), 2);
}

#[tokio::test]
async fn a_range_below_the_unprivileged_ports_is_empty() {
    for range in [0..=0, RangeInclusive::new(1, 0), 1..=1023] {
        let local = Local::new(US, range);
        let socket = bind(&local, own_ip());
        assert!(socket.local_addr().port() >= 1024);
    }
}

#[tokio::test]
async fn a_fixed_port_is_that_port_or_an_error() {
    let ip = own_ip();
    let local = local();
    let socket = ScionSocket::bind(&local, ip, 30256.into()).expect("a socket");
    assert_eq!(socket.local_addr(), SocketAddr::new(ip, 30256));
    let error = ScionSocket::bind(&local, ip, 30256.into()).expect_err("it is taken");
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    assert_eq!(PortChoice::from(0), PortChoice::Free);
}

#[tokio::test]
async fn an_unspecified_address_is_refused() {
    for ip in [
        IpAddr::from(Ipv4Addr::UNSPECIFIED),
        Ipv6Addr::UNSPECIFIED.into(),
    ] {
        let error = ScionSocket::bind(&local(), ip, PortChoice::Free).expect_err("refused");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}

#[tokio::test]
async fn a_packet_that_cannot_be_built_or_sent_is_an_error_of_the_sender_only() {
    let ip = own_ip();
    let ours = bind(&local(), ip);
    let via = straight(ours.local_addr());
    let to = ours.endpoint();
    let error = ours
        .try_send_to(to, &via, &[0; 65536])
        .expect_err("too long");
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    let other_family = straight(SocketAddr::new(Ipv6Addr::LOCALHOST.into(), 1));
    assert!(ours.send_to(to, &other_family, b"").await.is_err());
    assert_eq!(get(&ours.local().counters.underlay_errors), 1);
    // Nobody listens there: the host says so with ICMP.
    let nobody = straight(SocketAddr::new(own_ip(), 9));
    let _ = ours.send_to(to, &nobody, b"").await;

    ours.writable().await.expect("room");
    ours.try_send_to(to, &via, b"still works").expect("sent");
    assert_eq!(udp(&receive(&ours).await.payload), b"still works");
}

#[test]
fn within_the_as_packets_go_straight_to_dispatched_ports_or_to_the_end_host_port() {
    let local = Local::new(US, 31000..=32767);
    for (port, underlay) in [
        (31000, 31000),
        (32767, 32767),
        (30999, ENDHOST_PORT),
        (32768, ENDHOST_PORT),
    ] {
        let via = local.via((US, PEER_HOST, port)).expect("a host");
        assert_eq!(
            via,
            straight(SocketAddr::new(Ipv4Addr::new(10, 0, 0, 1).into(), underlay))
        );
    }
    assert_eq!(local.via((US, HostAddr::SVC_CS, 0)), None);
    let via = Local::new(US, 0..=0).via((US, PEER_HOST, 0));
    assert_eq!(via.expect("a host").next_hop.port(), ENDHOST_PORT);
}
