//! The simulated network as hosts see it: over real sockets in network namespaces. Needs root.

use std::{
    fs::File,
    net::{SocketAddr, UdpSocket},
    path::Path,
    sync::Arc,
    time::Duration,
};

use scion_net::{Cut, DAEMON, SimNetwork, SimOptions, gateway_entry};
use sig_common::addr::{HostAddr, IsdAs};
use sig_core::{
    peer::{GatewayAddresses, PeerLimits, RpcProtocols},
    scion::{
        self,
        packet::{self, Addresses, Content},
        reverse,
        scmp::{Problem, Scmp},
    },
};
use sig_rpc::{
    RpcClient,
    daemon::{Daemon, LocalAs},
    sockets::{Local, PortChoice, ScionSocket},
};
use testbed::{Site, TimeLimit, Underlay};

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long nothing must come. What should not come would take far less.
const SILENCE: Duration = Duration::from_millis(300);

/// The network of one test, alone on the machine.
struct Bed {
    net: SimNetwork,
    _lock: File,
    _limit: TimeLimit,
}

impl Bed {
    fn new(options: &SimOptions) -> Self {
        let lock = testbed::exclusive().unwrap();
        let limit = testbed::time_limit("a test of scion-net", Duration::from_secs(180));
        testbed::sweep();
        let net = SimNetwork::build(Path::new("no-gateway"), options);
        Self {
            net: net.unwrap_or_else(|error| panic!("{error:#}")),
            _lock: lock,
            _limit: limit,
        }
    }

    fn host(&self, site: &Site, port: u16) -> Host {
        let address = SocketAddr::new(site.data_addr().ip(), port);
        let socket = site.gateway.run(|| UdpSocket::bind(address));
        Host {
            isd_as: site.isd_as().parse().unwrap(),
            address,
            socket: socket.unwrap().unwrap(),
        }
    }
}

/// What the daemon of a site tells, asked from its gateway's host.
fn ask<T: Send>(site: &Site, question: impl AsyncFnOnce(Daemon) -> T + Send) -> T {
    let answer = site.gateway.run(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(question(Daemon::new(&DAEMON.to_string())))
    });
    answer.unwrap()
}

fn paths(from: &Site, to: &Site) -> Vec<scion::Path> {
    let [local, remote] = [from, to].map(|site| site.isd_as().parse().unwrap());
    ask(from, async |daemon| {
        daemon.paths(local, remote).await.unwrap()
    })
}

/// A socket of a gateway's host.
struct Host {
    isd_as: IsdAs,
    address: SocketAddr,
    socket: UdpSocket,
}

impl Host {
    fn send(&self, to: (IsdAs, HostAddr, u16), path: &scion::Path, payload: &[u8]) {
        let addresses = Addresses {
            source: (self.isd_as, self.address.ip().into(), self.address.port()),
            destination: to,
        };
        let packet = packet::udp(&addresses, path.path_type(), &path.raw, payload).unwrap();
        self.socket.send_to(&packet, path.next_hop).unwrap();
    }

    fn endpoint(&self) -> (IsdAs, HostAddr, u16) {
        (self.isd_as, self.address.ip().into(), self.address.port())
    }

    fn receive(&self) -> (Vec<u8>, SocketAddr) {
        self.socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut packet = vec![0; 1 << 16];
        let (len, from) = self.socket.recv_from(&mut packet).unwrap();
        packet.truncate(len);
        (packet, from)
    }

    /// The payload of the next packet, and the answer to it sent.
    fn echo(&self) -> Vec<u8> {
        let (packet, from) = self.receive();
        let packet = packet::parse(&packet).unwrap();
        let Content::Udp {
            source_port,
            payload,
            ..
        } = packet.content
        else {
            panic!("{packet:?}")
        };
        let (_, back) = reverse::reply_path(&packet.path).unwrap();
        let path = scion::Path::configured(&back, from, 1472);
        let (isd_as, host) = packet.source;
        self.send((isd_as, host, source_port), &path, payload);
        payload.to_vec()
    }

    fn receive_udp(&self) -> Vec<u8> {
        let (packet, _) = self.receive();
        match packet::parse(&packet).unwrap().content {
            Content::Udp { payload, .. } => payload.to_vec(),
            other => panic!("{other:?}"),
        }
    }

    fn receive_scmp(&self) -> Scmp {
        let (packet, _) = self.receive();
        match packet::parse(&packet).unwrap().content {
            Content::Scmp(message) => message,
            other => panic!("{other:?}"),
        }
    }

    fn assert_silent(&self) {
        self.socket.set_read_timeout(Some(SILENCE)).unwrap();
        assert!(self.socket.recv_from(&mut [0; 2000]).is_err());
    }
}

#[test]
fn packets_probes_and_errors_find_their_way() {
    for underlay in [Underlay::V4, Underlay::V6] {
        let bed = Bed::new(&SimOptions {
            underlay,
            mtu: 1452,
            transit: true,
            ..SimOptions::default()
        });
        let (a, b) = (&bed.net.network.a, &bed.net.network.b);
        let (at_a, at_b) = (bed.host(a, 31001), bed.host(b, 31002));
        let at_a_endhost = bed.host(a, 30041);
        let ways = paths(a, b);
        let interfaces: Vec<_> = ways.iter().map(|path| path.interfaces.len()).collect();
        assert_eq!(interfaces, [2, 2, 4]);
        for path in &ways {
            assert_eq!(path.mtu, 1452);
            let payload = vec![1; 1300];
            at_a.send(at_b.endpoint(), path, &payload);
            assert_eq!(at_b.echo(), payload);
            assert_eq!(at_a.receive_udp(), payload);

            let us = (at_a.isd_as, at_a.address.ip().into());
            let probe = packet::path_probe(us, at_b.isd_as, &path.raw, 31001, 9).unwrap();
            at_a.socket.send_to(&probe, path.next_hop).unwrap();
            let expected = Scmp::TracerouteReply {
                id: 31001,
                sequence: 9,
                isd_as: at_b.isd_as,
                interface: path.interfaces.last().unwrap().id,
            };
            assert_eq!(at_a.receive_scmp(), expected);

            // The answer to the port outside of the range.
            at_a_endhost.send(at_b.endpoint(), path, &[2]);
            at_b.echo();
            assert_eq!(at_a_endhost.receive_udp(), [2]);
        }

        let [first, second, _] = &ways[..] else {
            panic!("three paths")
        };
        let [link, other, ..] = &bed.net.links[..] else {
            panic!("links")
        };
        link.cut(Cut::Announced);
        at_a.send(at_b.endpoint(), first, &[3]);
        let expected = Problem::InterfaceDown {
            isd_as: at_a.isd_as,
            interface: 1,
        };
        match at_a.receive_scmp() {
            Scmp::Error { problem, .. } => assert_eq!(problem, expected),
            message => panic!("{message:?}"),
        }
        link.cut(Cut::Silent);
        at_a.send(at_b.endpoint(), first, &[4]);
        at_a.send(at_b.endpoint(), second, &[5]);
        assert_eq!(at_b.receive_udp(), [5]);
        at_a.assert_silent();

        link.restore();
        other.set_delay(Duration::from_millis(500));
        at_a.send(at_b.endpoint(), second, &[6]);
        at_a.send(at_b.endpoint(), first, &[7]);
        assert_eq!([at_b.receive_udp(), at_b.receive_udp()], [[7], [6]]);
        other.set_mtu(1000);
        at_a.send(at_b.endpoint(), second, &[0; 1100]);
        match at_a.receive_scmp() {
            Scmp::Error { problem, .. } => {
                assert_eq!(problem, Problem::PacketTooBig { mtu: 1000 });
            }
            message => panic!("{message:?}"),
        }
        let counters = bed.net.a.router.counters();
        assert_eq!((counters.lost, counters.answered), (1, 2), "{counters:?}");
        assert!(counters.dropped.is_empty(), "{counters:?}");
        assert_eq!(bed.net.transit().unwrap().counters().answered, 0);
        assert!(link.carried()[0] > 0);
    }
}

#[test]
fn the_daemon_tells_of_its_as_and_can_be_restarted() {
    let mut bed = Bed::new(&SimOptions {
        announced_latency: [Some(Duration::from_millis(4)), None],
        announces_discovery: true,
        ..SimOptions::default()
    });
    let net = &mut bed.net;
    let (a, b) = (&net.network.a, &net.network.b);
    let [isd_as, remote] = [a, b].map(|site| site.isd_as().parse::<IsdAs>().unwrap());
    let local = ask(a, async |daemon| daemon.local().await.unwrap());
    let expected = LocalAs {
        isd_as,
        core: true,
        mtu: 1472,
        ports: (31000, 32767),
        interfaces: [(1, a.router_inside()), (2, a.router_inside())].into(),
    };
    assert_eq!(local, expected);
    let control = ask(a, async |daemon| daemon.control_service_ip().await.unwrap());
    assert_eq!(control, Some(a.router_inside().ip()));

    let before = paths(a, b);
    assert_eq!(before[0].announced_latency, Some(Duration::from_millis(4)));
    assert_eq!(before[1].announced_latency, None);
    let discovery = net.topology.find(remote).unwrap().control_service;
    assert_eq!(*before[0].discovery, [discovery]);
    assert_eq!(paths(a, b), before);

    net.a.daemon.set_paths_refresh(Duration::from_secs(60));
    let [first, second] = [paths(a, b), paths(a, b)];
    assert!(first[0].expiry < before[0].expiry);
    assert!(first[0].expiry < second[0].expiry);
    assert_ne!(first[0].raw, second[0].raw);
    assert_eq!(first[0].fingerprint, second[0].fingerprint);

    net.a.daemon.hide(&net.links[..1]);
    assert_eq!(paths(a, b).len(), 1);
    net.a.daemon.set_failing(true);
    let failure = ask(a, async |daemon| daemon.paths(isd_as, remote).await);
    assert!(failure.is_err());

    net.a.daemon.stop();
    let absent = ask(a, async |daemon| daemon.local().await);
    assert!(absent.is_err());
    net.a.daemon.restart().unwrap();
    ask(a, async |daemon| {
        daemon.notify_interface_down(remote, 7).await.unwrap();
    });
    let asked = net.a.daemon.asked();
    assert_eq!(asked.paths, [remote; 6]);
    assert_eq!((asked.down[0].isd_as, asked.down[0].id), (remote, 7));
}

#[test]
fn the_control_service_is_resolved() {
    let mut bed = Bed::new(&SimOptions::default());
    let (a, b) = (&bed.net.network.a, &bed.net.network.b);
    let at_a = bed.host(a, 31001);
    let remote: IsdAs = b.isd_as().parse().unwrap();
    let path = paths(a, b).swap_remove(1);
    let service = (remote, HostAddr::SVC_DS, 0);
    at_a.send(service, &path, &[]);
    let control = bed.net.topology.find(remote).unwrap().control_service;
    let text = control.to_string();
    let length = text.len() as u8;
    let mut expected = vec![0x0a, length + 10, 0x0a, 4];
    expected.extend(*b"QUIC");
    expected.extend([0x12, length + 2, 0x0a, length]);
    expected.extend(text.into_bytes());
    assert_eq!(at_a.receive_udp(), expected);
    assert_eq!(bed.net.b.control_service.calls().resolutions, 1);

    bed.net.b.control_service.stop();
    at_a.send(service, &path, &[]);
    at_a.assert_silent();
    bed.net.b.control_service.restart().unwrap();
    at_a.send(service, &path, &[]);
    at_a.receive();
}

#[test]
fn the_control_service_tells_gateways_in_both_variants() {
    for underlay in [Underlay::V4, Underlay::V6] {
        let mut bed = Bed::new(&SimOptions {
            underlay,
            mtu: 1452,
            transit: true,
            ..SimOptions::default()
        });
        for protocols in [RpcProtocols::Connect, RpcProtocols::Grpc] {
            let service = &mut bed.net.b.control_service;
            service.set_protocols(protocols);
            service.restart().unwrap();
            let net = &bed.net.network;
            let mut entry = gateway_entry(&net.b);
            assert_eq!(discover(&net.a, &net.b, protocols), vec![entry.clone(); 3]);

            entry.allow_interfaces = vec![2];
            bed.net.b.control_service.set_gateways(vec![entry.clone()]);
            assert_eq!(discover(&net.a, &net.b, protocols), vec![entry.clone(); 3]);
            entry.allow_interfaces.clear();
            bed.net.b.control_service.set_gateways(vec![entry]);
        }
        let calls = bed.net.b.control_service.calls();
        let asker = bed.net.network.a.isd_as().parse().unwrap();
        assert_eq!(calls.gateways, [asker; 12]);
    }
}

/// The gateways of an AS, asked for on each path to it.
fn discover(from: &Site, to: &Site, protocols: RpcProtocols) -> Vec<GatewayAddresses> {
    let limits = PeerLimits {
        gateways_per_as: 16,
        prefixes_per_gateway: 16,
        message_bytes: 1 << 16,
        connections: 16,
        paths_per_as: 16,
    };
    let [local, remote] = [from, to].map(|site| site.isd_as().parse().unwrap());
    ask(from, async |daemon| {
        let own = daemon.local().await.unwrap();
        let sockets = Local::new(own.isd_as, own.ports.0..=own.ports.1);
        let ip = from.data_addr().ip();
        let mut found = Vec::new();
        for path in daemon.paths(local, remote).await.unwrap() {
            let socket = ScionSocket::bind(&sockets, ip, PortChoice::Free).unwrap();
            let client = RpcClient::new(Arc::new(socket), protocols, &limits).unwrap();
            let client = client.with_timeout(PATIENCE);
            found.extend(client.gateways(remote, &path).await.unwrap());
        }
        found
    })
}

#[test]
fn nothing_is_left_of_a_network() {
    let bed = Bed::new(&SimOptions::default());
    let ours = std::process::id();
    assert!(!testbed::left_by(ours).unwrap().is_empty());
    // The lock stays, so no other test has a network.
    let Bed { net, _lock, .. } = bed;
    drop(net);
    assert_eq!(testbed::left_by(ours).unwrap(), Vec::<String>::new());
    // The kernel may show a thread for a moment after it has been waited for.
    let gone = testbed::wait_until("the end of its threads", PATIENCE, || {
        let mut left = false;
        for task in std::fs::read_dir("/proc/self/task")? {
            let name = std::fs::read_to_string(task?.path().join("comm")).unwrap_or_default();
            left |= ["router", "daemon", "control"]
                .iter()
                .any(|start| name.starts_with(start));
        }
        Ok(!left)
    });
    gone.unwrap();
}
