//! Gateways find each other and carry packets, however they are configured.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use scion_net::SimOptions;
use sig::config::RpcProtocols;
use testbed::{Family, Site, Underlay};

use crate::bed::{self, Bed, Files, PATIENCE, known, wait};

/// Bytes sent over TCP in each direction.
const TRANSFER: usize = 1 << 20;

/// Everything sent over TCP comes back.
fn assert_echoed(from: &Site, to: &Site, family: Family) {
    let address = SocketAddr::new(to.client_ip(family), 7200);
    let listener = to.client.run(|| TcpListener::bind(address));
    let listener = listener.expect("the namespace").expect("a listener");
    let stream = from
        .client
        .run(|| TcpStream::connect_timeout(&address, PATIENCE));
    let mut stream = stream.expect("the namespace").expect("a connection");
    let (mut accepted, _) = listener.accept().expect("the same connection");
    for stream in [&stream, &accepted] {
        stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        stream
            .set_write_timeout(Some(PATIENCE))
            .expect("a time-out");
    }
    let sent: Vec<u8> = (0..TRANSFER).map(|at| (at % 251) as u8).collect();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut bytes = vec![0; 1 << 16];
            let mut left = TRANSFER;
            while left > 0 {
                let length = accepted.read(&mut bytes).expect("data");
                accepted.write_all(&bytes[..length]).expect("room");
                left = left.saturating_sub(length.max(1));
            }
        });
        let mut writing = stream.try_clone().expect("a descriptor");
        let sent = &sent;
        scope.spawn(move || writing.write_all(sent).expect("room"));
        let mut received = vec![0; TRANSFER];
        stream.read_exact(&mut received).expect("data");
        assert!(received == *sent, "other bytes");
    });
}

fn assert_carries(bed: &mut Bed) {
    bed.assert_pings(50);
    let network = &bed.net.network;
    assert_echoed(&network.a, &network.b, Family::V4);
    assert_echoed(&network.b, &network.a, Family::V6);
}

#[test]
fn static_prefixes_are_reached() {
    let mut bed = Bed::running(&bed::options(), |_, remote| Files::with_nets(remote));
    assert_carries(&mut bed);
}

#[test]
fn announced_prefixes_are_reached() {
    let mut bed = Bed::running(&bed::options(), Files::with_routing_policy);
    assert_carries(&mut bed);
}

#[test]
fn the_gateway_owns_the_end_host_port_where_routers_deliver_to_it() {
    // The ports of the gateway lie outside of the dispatched range.
    let mut bed = Bed::running(&SimOptions::default(), Files::with_routing_policy);
    assert_carries(&mut bed);
    let control = bed::status(&bed.net.network.a).control;
    assert_eq!(control.expect("it finds its remotes").endhost_port, "own");
}

#[test]
fn sockets_share_data_and_end_host_port_with_the_control_plane() {
    let options = SimOptions::default();
    let mut bed = Bed::running(&options, |own, remote| Files {
        dataplane: SOCKETS,
        ..Files::with_routing_policy(own, remote)
    });
    assert_carries(&mut bed);
    let status = bed::status(&bed.net.network.a);
    assert!(
        status
            .ports
            .iter()
            .any(|port| port.mode.as_str() == "socket")
    );
    let control = status.control.expect("it finds its remotes");
    assert_eq!(control.endhost_port, "own");
}

const SOCKETS: &str = "workers = 2\nunderlay_port = \"socket\"";

#[test]
fn prefixes_are_exchanged_in_each_variant_of_rpcs() {
    // What gateways ask in, what they answer in, and what control services answer in.
    for (client, server, service) in [
        ("grpc", "all", RpcProtocols::Grpc),
        ("connectrpc", "all", RpcProtocols::Connect),
        ("all", "grpc", RpcProtocols::All),
    ] {
        // Where paths name the discovery service, gRPC does without a resolution, as the reference does.
        let announces_discovery = client == "grpc";
        let mut bed = Bed::new(&SimOptions {
            announces_discovery,
            ..bed::options()
        });
        for services in [&mut bed.net.a, &mut bed.net.b] {
            services.control_service.set_protocols(service);
            services
                .control_service
                .restart()
                .expect("its addresses are free");
        }
        bed.configure(|own, remote| {
            let rpc =
                format!("[rpc]\nclient_protocol = \"{client}\"\nserver_protocol = \"{server}\"\n");
            Files::with_routing_policy(own, remote).and(&rpc)
        });
        bed.start();
        bed.assert_pings(10);
        let network = &bed.net.network;
        let found = known(&network.a, network.b.isd_as()).expect("the AS of the policy");
        assert_eq!(
            (found.discovery_errors, found.fetch_errors),
            (0, 0),
            "{found:#?}"
        );
        let resolutions = bed.net.b.control_service.calls().resolutions;
        assert_eq!(resolutions == 0, announces_discovery);
    }
}

#[test]
fn a_gateway_waits_for_its_daemon() {
    let mut bed = Bed::new(&bed::options());
    bed.configure(Files::with_routing_policy);
    bed.net.a.daemon.stop();
    let network = &mut bed.net.network;
    network.b.spawn_gateway().expect("it starts");
    network.a.spawn_gateway().expect("it starts");
    thread::sleep(Duration::from_secs(3));
    let ended = network.a.process().and_then(|process| process.ended());
    assert_eq!(ended.expect("the kernel tells"), None, "{}", bed.logs());
    bed.net.a.daemon.restart().expect("its address is free");
    for site in [&mut bed.net.network.a, &mut bed.net.network.b] {
        site.wait_ready()
            .unwrap_or_else(|error| panic!("{error:#}"));
    }
    bed.assert_pings(10);
}

#[test]
fn an_underlay_of_ipv6_works_the_same() {
    let options = SimOptions {
        underlay: Underlay::V6,
        mtu: 1452,
        ..SimOptions::default()
    };
    let mut bed = Bed::running(&options, Files::with_routing_policy);
    assert_carries(&mut bed);
}

#[test]
fn links_as_long_as_oceans_and_smaller_than_announced_are_no_obstacle() {
    long_and_small_links("");
}

#[test]
fn nor_are_they_for_sockets() {
    long_and_small_links(SOCKETS);
}

fn long_and_small_links(dataplane: &'static str) {
    let mut bed = Bed::new(&bed::options());
    for link in &bed.net.links {
        link.set_delay(Duration::from_millis(100));
        link.set_mtu(1300);
    }
    bed.configure(|own, remote| Files {
        dataplane,
        ..Files::with_routing_policy(own, remote)
    });
    bed.start();
    let path_mtu_found = || {
        let network = &bed.net.network;
        let sites = [(&network.a, &network.b), (&network.b, &network.a)];
        sites.iter().all(|(site, remote)| {
            let to = remote.client_ip(Family::V4);
            let ping = testbed::ping(&site.client, to, 1, 1400, Duration::from_millis(20));
            let known = known(site, remote.isd_as()).expect("the AS of the policy");
            let mut used = known.paths.iter().filter(|path| !path.used_by.is_empty());
            ping.is_ok_and(|ping| ping.received == 1) && used.all(|path| path.mtu == 1300)
        })
    };
    wait("the MTU of the paths", path_mtu_found);
    assert_carries(&mut bed);
}
