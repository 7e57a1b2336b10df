//! Packets on their way through several routers, without sockets.

use std::net::IpAddr;

use sig_common::{
    addr::HostAddr,
    wire::scion::path::{SCION, ScionPath},
};
use sig_core::scion::{
    packet::{self, Addresses, Content, Packet},
    reverse,
    scmp::{Echo, Problem, Scmp},
};
use sig_router::forward::Reason;

use super::*;
use crate::{
    link::Cut,
    paths::{Lifetime, PathInfo},
    topology::tests::{A, B, CORE, triangle},
};

/// Within the lifetime of the paths.
const NOW: Duration = Duration::from_secs(1_700_000_000 - 3600);

struct World(Arc<Topology>);

/// The links of an AS.
struct LinksOf<'a>(&'a Topology, IsdAs);

impl LinksOf<'_> {
    fn at(&self, interface: u16) -> &Link {
        self.0.at(self.1, interface).unwrap().0
    }
}

impl Links for LinksOf<'_> {
    fn is_interface_up(&self, interface: u16) -> bool {
        self.at(interface).is_up()
    }

    fn is_sibling_up(&self, _: usize) -> bool {
        true
    }

    fn most(&self, interface: u16) -> Option<u16> {
        Some(self.at(interface).current_mtu())
    }
}

/// Where a packet ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// Delivered within the AS.
    At(IsdAs, SocketAddr),
    /// Answered by the router of the AS; the answer came back there.
    Answered(IsdAs, Vec<u8>, Box<End>),
    Dropped(IsdAs, Reason),
    Lost(IsdAs),
}

impl World {
    fn new() -> Self {
        Self(Arc::new(triangle()))
    }

    fn paths(&self, from: IsdAs, to: IsdAs) -> Vec<PathInfo> {
        let expiry = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        self.0.paths(from, to, Lifetime::until(expiry), |_| true)
    }

    fn host(&self, isd_as: IsdAs, host: u8) -> SocketAddr {
        let mut address = self.0.find(isd_as).unwrap().router;
        let IpAddr::V4(ip) = address.ip() else {
            panic!("IPv4")
        };
        let [a, b, c, _] = ip.octets();
        address.set_ip([a, b, c, host].into());
        address
    }

    fn engine(&self, isd_as: IsdAs) -> forward::Router {
        let own = self.0.find(isd_as).unwrap();
        forward::Router::new(Arc::new(self.0.model(own)))
    }

    /// Sends a packet from a host in `from`.
    fn send(&self, from: IsdAs, packet: &mut [u8]) -> End {
        let host = self.host(from, 2);
        self.carry(from, Ingress::Internal(host), packet, NOW)
    }

    fn carry(&self, mut at: IsdAs, mut ingress: Ingress, packet: &mut [u8], now: Duration) -> End {
        loop {
            let links = LinksOf(&self.0, at);
            match self
                .engine(at)
                .process(packet, ingress, now, &links)
                .verdict
            {
                Verdict::Deliver(to) => return End::At(at, to),
                Verdict::Drop(reason) => return End::Dropped(at, reason),
                Verdict::Forward { interface } => {
                    if links.at(interface).fate() == Fate::Vanishes {
                        return End::Lost(at);
                    }
                    (at, ingress) = self.across(at, interface);
                }
                Verdict::Answer(answer) => {
                    let mut back = answer.clone();
                    let end = match ingress {
                        Ingress::Internal(from) => End::At(at, from),
                        Ingress::External(interface) => {
                            let (neighbour, ingress) = self.across(at, interface);
                            self.carry(neighbour, ingress, &mut back, now)
                        }
                    };
                    return End::Answered(at, back, Box::new(end));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn across(&self, from: IsdAs, interface: u16) -> (IsdAs, Ingress) {
        let (link, end) = self.0.at(from, interface).unwrap();
        let far = link.ends[1 - end];
        (far.isd_as, Ingress::External(far.interface))
    }

    fn udp(&self, from: IsdAs, to: IsdAs, port: u16, raw: &[u8]) -> Vec<u8> {
        let addresses = Addresses {
            source: (from, self.host(from, 2).ip().into(), 31001),
            destination: (to, self.host(to, 2).ip().into(), port),
        };
        packet::udp(&addresses, SCION, raw, &[7; 100]).unwrap()
    }

    fn scmp(&self, from: IsdAs, to: (IsdAs, HostAddr), raw: &[u8], message: &Scmp) -> Vec<u8> {
        let source = (from, self.host(from, 2).ip().into());
        packet::scmp(source, to, SCION, raw, message).unwrap()
    }
}

fn parsed(packet: &[u8]) -> Packet<'_> {
    packet::parse(packet).expect("a packet")
}

/// The SCMP message in a packet that came back to port 31001 of the host in A.
fn answer(world: &World, end: End) -> (IsdAs, Scmp) {
    let End::Answered(by, answer, at) = end else {
        panic!("{end:?}")
    };
    let Content::Scmp(message) = parsed(&answer).content else {
        panic!("no SCMP")
    };
    let host = world.host(A, 2);
    let port = if by == A { host.port() } else { 31001 };
    assert_eq!(*at, End::At(A, SocketAddr::new(host.ip(), port)));
    (by, message)
}

fn error(world: &World, end: End) -> (IsdAs, Problem) {
    match answer(world, end) {
        (by, Scmp::Error { problem, quote }) => {
            assert_eq!(quote.packet().unwrap().destination.0, B);
            (by, problem)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn packets_arrive_on_every_path_and_so_do_answers() {
    let world = World::new();
    for (from, to) in [(A, B), (B, A), (A, CORE), (CORE, B)] {
        for path in world.paths(from, to) {
            let mut packet = world.udp(from, to, 31002, &path.raw);
            let at = SocketAddr::new(world.host(to, 2).ip(), 31002);
            assert_eq!(world.send(from, &mut packet), End::At(to, at), "{path:?}");

            let (path_type, back) = reverse::reply_path(&parsed(&packet).path).unwrap();
            assert_eq!(path_type, SCION);
            let mut reply = world.udp(to, from, 31001, &back);
            let at = SocketAddr::new(world.host(from, 2).ip(), 31001);
            assert_eq!(world.send(to, &mut reply), End::At(from, at), "{path:?}");
        }
    }
}

#[test]
fn what_is_for_ports_out_of_range_arrives_at_the_end_host_port() {
    let world = World::new();
    let raw = &world.paths(A, B)[0].raw;
    for (port, delivered) in [
        (31000, 31000),
        (32767, 32767),
        (30999, 30041),
        (32768, 30041),
        (0, 30041),
    ] {
        let mut packet = world.udp(A, B, port, raw);
        let at = SocketAddr::new(world.host(B, 2).ip(), delivered);
        assert_eq!(world.send(A, &mut packet), End::At(B, at));
    }
}

#[test]
fn the_control_service_is_reached_as_service_and_at_its_own_port() {
    let world = World::new();
    let raw = &world.paths(A, B)[0].raw;
    let remote = world.0.find(B).unwrap();
    for (host, port, at) in [
        (HostAddr::SVC_DS, 0, remote.resolution),
        (HostAddr::SVC_CS, 0, remote.resolution),
        // The router finds the service there.
        (
            remote.control_service.ip().into(),
            remote.control_service.port(),
            SocketAddr::new(remote.control_service.ip(), ENDHOST_PORT),
        ),
    ] {
        let addresses = Addresses {
            source: (A, world.host(A, 2).ip().into(), 31001),
            destination: (B, host, port),
        };
        let mut packet = packet::udp(&addresses, SCION, raw, &[]).unwrap();
        assert_eq!(world.send(A, &mut packet), End::At(B, at));
    }
}

#[test]
fn a_path_probe_is_answered_by_the_last_router() {
    let world = World::new();
    let host = (A, world.host(A, 2).ip().into());
    for path in world.paths(A, B) {
        let mut probe = packet::path_probe(host, B, &path.raw, 31001, 5).unwrap();
        let expected = Scmp::TracerouteReply {
            id: 31001,
            sequence: 5,
            isd_as: B,
            interface: path.interfaces.last().unwrap().id,
        };
        let end = world.send(A, &mut probe);
        assert_eq!(answer(&world, end), (B, expected));
    }
}

#[test]
fn every_alert_flag_asks_one_router() {
    let world = World::new();
    for path in world.paths(A, B) {
        let mut answers = Vec::new();
        let hops = hops(&path.raw);
        let start = path.raw.len() - 12 * hops;
        for hop in 0..hops {
            for flag in [1, 2] {
                let mut raw = path.raw.clone();
                raw[start + 12 * hop] |= flag;
                let request = Scmp::TracerouteRequest {
                    id: 31001,
                    sequence: 1,
                };
                let destination = (B, world.host(B, 2).ip().into());
                let mut packet = world.scmp(A, destination, &raw, &request);
                match world.send(A, &mut packet) {
                    end @ End::Answered(..) => match answer(&world, end) {
                        (
                            by,
                            Scmp::TracerouteReply {
                                isd_as, interface, ..
                            },
                        ) => {
                            assert_eq!(by, isd_as);
                            answers.push((isd_as, interface));
                        }
                        other => panic!("{other:?}"),
                    },
                    // A flag at an end of a segment asks nobody; then the host gets the request.
                    end => assert!(
                        matches!(end, End::At(B, at) if at.port() == 30041),
                        "{end:?}"
                    ),
                }
            }
        }
        answers.sort();
        let mut interfaces: Vec<_> = path
            .interfaces
            .iter()
            .map(|interface| (interface.isd_as, interface.id))
            .collect();
        interfaces.sort();
        assert_eq!(answers, interfaces);
    }
}

/// How many hop fields a path has.
fn hops(raw: &[u8]) -> usize {
    ScionPath::new_checked(raw).unwrap().hops().len()
}

#[test]
fn an_echo_request_to_a_router_is_answered() {
    let world = World::new();
    let echo = Echo {
        id: 31001,
        sequence: 3,
        data: vec![1, 2, 3],
    };
    for path in world.paths(A, B) {
        let router = (B, world.host(B, 1).ip().into());
        let request = Scmp::EchoRequest(echo.clone());
        let mut packet = world.scmp(A, router, &path.raw, &request);
        let end = world.send(A, &mut packet);
        assert_eq!(answer(&world, end), (B, Scmp::EchoReply(echo.clone())));
    }
}

#[test]
fn a_cut_link_is_announced_or_not() {
    let world = World::new();
    let path = world.paths(A, B).swap_remove(2);
    let (link, _) = world.0.at(CORE, 2).unwrap();
    link.cut(Cut::Announced);
    let end = world.send(A, &mut world.udp(A, B, 31002, &path.raw));
    let problem = Problem::InterfaceDown {
        isd_as: CORE,
        interface: 2,
    };
    assert_eq!(error(&world, end), (CORE, problem));

    link.cut(Cut::Silent);
    let end = world.send(A, &mut world.udp(A, B, 31002, &path.raw));
    assert_eq!(end, End::Lost(CORE));

    link.restore();
    let end = world.send(A, &mut world.udp(A, B, 31002, &path.raw));
    assert!(matches!(end, End::At(B, _)), "{end:?}");
}

#[test]
fn the_first_router_reports_to_its_own_host() {
    let world = World::new();
    let path = world.paths(A, B).swap_remove(0);
    world.0.links()[0].cut(Cut::Announced);
    let end = world.send(A, &mut world.udp(A, B, 31002, &path.raw));
    let problem = Problem::InterfaceDown {
        isd_as: A,
        interface: 1,
    };
    assert_eq!(error(&world, end), (A, problem));
}

#[test]
fn a_packet_that_is_too_long_for_a_link_is_refused_with_its_mtu() {
    let world = World::new();
    let path = world.paths(A, B).swap_remove(2);
    let (link, _) = world.0.at(CORE, 2).unwrap();
    let mut packet = world.udp(A, B, 31002, &path.raw);
    let length = packet.len() as u16;
    link.set_mtu(length - 1);
    let end = world.send(A, &mut packet.clone());
    let problem = Problem::PacketTooBig { mtu: length - 1 };
    assert_eq!(error(&world, end), (CORE, problem));
    link.set_mtu(length);
    assert!(matches!(world.send(A, &mut packet), End::At(B, _)));
}

#[test]
fn loss_takes_packets() {
    let world = World::new();
    let path = world.paths(A, B).swap_remove(0);
    world.0.links()[0].set_loss(1.0);
    let end = world.send(A, &mut world.udp(A, B, 31002, &path.raw));
    assert_eq!(end, End::Lost(A));
}

#[test]
fn errors_are_not_answered() {
    let world = World::new();
    let path = world.paths(A, B).swap_remove(0);
    world.0.links()[0].cut(Cut::Announced);
    let message = Scmp::Error {
        problem: Problem::PacketTooBig { mtu: 1300 },
        quote: sig_core::scion::scmp::Quote::new(&[0; 40]),
    };
    let host = (B, world.host(B, 2).ip().into());
    let end = world.send(A, &mut world.scmp(A, host, &path.raw, &message));
    assert_eq!(end, End::Dropped(A, Reason::AnswersError));
}

#[test]
fn hop_fields_expire() {
    let world = World::new();
    let path = world.paths(A, B).swap_remove(0);
    let mut packet = world.udp(A, B, 31002, &path.raw);
    let ingress = Ingress::Internal(world.host(A, 2));
    let end = world.carry(A, ingress, &mut packet, Duration::from_secs(1_700_000_001));
    match error(&world, end) {
        (A, Problem::Parameter { code: 52, pointer }) => {
            assert_eq!(pointer, 12 + 24 + 4 + 8);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn forged_hop_fields_are_refused() {
    let world = World::new();
    for path in world.paths(A, B) {
        let hops = hops(&path.raw);
        let start = path.raw.len() - 12 * hops;
        for hop in 0..hops {
            let mut raw = path.raw.clone();
            raw[start + 12 * hop + 11] ^= 1;
            let end = world.send(A, &mut world.udp(A, B, 31002, &raw));
            let (_, problem) = error(&world, end);
            assert!(matches!(problem, Problem::Parameter { code: 51, .. }));
        }
    }
}
