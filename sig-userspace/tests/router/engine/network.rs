//! Packets on their whole way through a network of routers, and the answers on theirs back.

mod made;

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use sig_common::{
    addr::{HostAddr, IsdAs},
    wire::scion::{
        View,
        path::{Path, SCION},
    },
};
use sig_core::scion::{
    HopKey,
    packet::{self, Addresses, Content, Host},
    reverse,
    scmp::{Problem, Scmp},
};
use sig_router::{
    AsModel, Bfd, Interface, Owner, Sibling,
    forward::{Ingress, Links, Reason, Router, Verdict},
    model::LinkType,
};

use crate::router_support::{
    asys::{NOW, T},
    path::{Hop, Segment, Stage, path},
};

/// An end of a link: AS, router, interface, kind of the link as seen from here.
type End = (u8, usize, u16, LinkType);

/// ASes 1 and 2 are core. 3 and 5 have two routers each, and peer.
const LINKS: [(End, End); 9] = {
    use LinkType::{Child, Core, Parent, Peer};
    [
        ((1, 0, 1, Core), (2, 0, 1, Core)),
        ((1, 0, 2, Child), (3, 0, 1, Parent)),
        ((1, 0, 3, Child), (4, 0, 1, Parent)),
        ((2, 0, 2, Child), (5, 0, 1, Parent)),
        ((3, 0, 2, Peer), (5, 1, 2, Peer)),
        ((3, 1, 3, Child), (6, 0, 1, Parent)),
        ((3, 0, 4, Child), (9, 0, 1, Parent)),
        ((4, 0, 2, Child), (7, 0, 1, Parent)),
        ((5, 1, 3, Child), (8, 0, 1, Parent)),
    ]
};

const fn isd_as(number: u8) -> IsdAs {
    IsdAs::new(1, 0xff00_0000_0000 + number as u64)
}

fn key(number: u8) -> HopKey {
    HopKey::new([number; 16])
}

/// The internal address of a router.
fn internal(number: u8, router: usize) -> SocketAddr {
    SocketAddr::new([10, number, 0, router as u8 + 1].into(), 30001)
}

/// A host of an AS.
fn host(number: u8) -> Host {
    (isd_as(number), HostAddr::V4([10, number, 0, 100]))
}

/// Its socket.
fn socket(number: u8) -> SocketAddr {
    SocketAddr::new([10, number, 0, 100].into(), 32000)
}

fn ends() -> impl Iterator<Item = (End, End)> {
    LINKS.into_iter().flat_map(|(a, b)| [(a, b), (b, a)])
}

/// The routers of an AS besides one of them, in the order of its siblings.
fn siblings(number: u8, router: usize) -> Vec<usize> {
    let all: BTreeSet<usize> = ends()
        .filter(|(end, _)| end.0 == number)
        .map(|(end, _)| end.1)
        .collect();
    all.into_iter().filter(|other| *other != router).collect()
}

fn router(number: u8, router: usize) -> Router {
    let siblings = siblings(number, router);
    let interface = |(here, there): (End, End)| {
        let owner = match siblings.iter().position(|sibling| *sibling == here.1) {
            Some(place) => Owner::Sibling(place),
            None => Owner::Here {
                local: internal(number, router),
                remote: internal(there.0, there.1),
            },
        };
        let interface = Interface {
            owner,
            neighbour: isd_as(there.0),
            neighbour_interface: Some(there.2),
            link_type: here.3,
            mtu: 1472,
            bfd: Bfd::default(),
        };
        (here.2, interface)
    };
    let model = AsModel {
        router: format!("br-{number}-{router}"),
        isd_as: isd_as(number),
        core: number < 3,
        mtu: 1472,
        internal: internal(number, router),
        ports: Some(31000..=32767),
        interfaces: ends()
            .filter(|(end, _)| end.0 == number)
            .map(interface)
            .collect(),
        siblings: siblings
            .iter()
            .map(|sibling| Sibling {
                name: format!("br-{number}-{sibling}"),
                internal: internal(number, *sibling),
            })
            .collect(),
        control_services: Vec::new(),
        discovery_services: Vec::new(),
        services: Default::default(),
        sibling_bfd: Bfd::default(),
        key: key(number),
    };
    Router::new(model.into())
}

/// What is down in an AS: an interface of the router that has it, or the way to a sibling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Down {
    interface: Option<(u8, u16)>,
    siblings_of: Option<u8>,
}

struct DownIn(u8, Down);

impl Links for DownIn {
    fn is_interface_up(&self, interface: u16) -> bool {
        self.1.interface != Some((self.0, interface))
    }

    fn is_sibling_up(&self, _sibling: usize) -> bool {
        self.1.siblings_of != Some(self.0)
    }
}

/// What has become of a packet, in which AS.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// It has come to a host.
    Arrived(u8, SocketAddr, Vec<u8>),
    Dropped(u8, Reason),
}

/// Carries a packet from a router to the next, until it comes to a host.
fn carry(mut packet: Vec<u8>, from: u8, egress: u16, now: Duration, down: Down) -> Fate {
    let owner = |number, interface| {
        let (end, _) = ends()
            .find(|(end, _)| (end.0, end.2) == (number, interface))
            .expect("an interface");
        end.1
    };
    let mut place = (from, owner(from, egress));
    let mut ingress = Ingress::Internal(socket(from));
    for _ in 0..40 {
        let (number, index) = place;
        let links = DownIn(number, down);
        let outcome = router(number, index).process(&mut packet, ingress, now, &links);
        let across = |interface| {
            let (_, there) = ends()
                .find(|(end, _)| (end.0, end.1, end.2) == (number, index, interface))
                .expect("an interface of this router");
            ((there.0, there.1), Ingress::External(there.2))
        };
        let aside = |sibling| {
            (
                (number, sibling),
                Ingress::Internal(internal(number, index)),
            )
        };
        (place, ingress) = match outcome.verdict {
            Verdict::Forward { interface } => across(interface),
            Verdict::Sibling(place) => aside(siblings(number, index)[place]),
            Verdict::Deliver(address) => return Fate::Arrived(number, address, packet),
            Verdict::Answer(answer) => {
                packet = answer;
                match ingress {
                    Ingress::External(interface) => across(interface),
                    Ingress::Internal(source) => {
                        let sibling = siblings(number, index)
                            .into_iter()
                            .find(|sibling| internal(number, *sibling) == source);
                        match sibling {
                            Some(sibling) => aside(sibling),
                            None => return Fate::Arrived(number, source, packet),
                        }
                    }
                }
            }
            Verdict::Drop(reason) => return Fate::Dropped(number, reason),
            other => panic!("{other:?}"),
        };
    }
    panic!("the packet goes in circles");
}

/// A hop: the AS, and its interfaces in construction direction.
type At = (u8, u16, u16);

#[derive(Clone)]
struct Route {
    name: &'static str,
    /// Segments, and the ASes of their hops in travel direction.
    segments: Vec<Segment>,
    ases: Vec<u8>,
}

impl Route {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            segments: Vec::new(),
            ases: Vec::new(),
        }
    }

    fn part(mut self, construction_direction: bool, peer: Option<u16>, hops: &[At]) -> Self {
        let mut ases: Vec<u8> = hops.iter().map(|at| at.0).collect();
        if !construction_direction {
            ases.reverse();
        }
        self.ases.extend(ases);
        self.segments.push(Segment {
            construction_direction,
            beta: 0x1111 * hops.len() as u16,
            timestamp: T,
            hops: hops
                .iter()
                .map(|(number, ingress, egress)| Hop::new(&key(*number), *ingress, *egress))
                .collect(),
            peer,
        });
        self
    }

    fn up(self, hops: &[At]) -> Self {
        self.part(false, None, hops)
    }

    fn down(self, hops: &[At]) -> Self {
        self.part(true, None, hops)
    }

    fn source(&self) -> u8 {
        self.ases[0]
    }

    fn destination(&self) -> u8 {
        self.ases[self.ases.len() - 1]
    }

    /// The segment and the place in it, in construction direction, of a hop in travel direction.
    fn place(&self, hop: usize) -> (usize, usize) {
        let mut first = 0;
        for (index, segment) in self.segments.iter().enumerate() {
            let len = segment.hops.len();
            if hop < first + len {
                let place = hop - first;
                let place = if segment.construction_direction {
                    place
                } else {
                    len - 1 - place
                };
                return (index, place);
            }
            first += len;
        }
        panic!("no such hop");
    }

    fn hop(&mut self, hop: usize) -> &mut Hop {
        let (segment, place) = self.place(hop);
        &mut self.segments[segment].hops[place]
    }

    /// The interfaces of a hop in travel direction.
    fn interfaces(&self, hop: usize) -> (u16, u16) {
        let (index, place) = self.place(hop);
        let segment = &self.segments[index];
        let hop = &segment.hops[place];
        let ingress = segment.peer.filter(|_| place == 0).unwrap_or(hop.ingress);
        if segment.construction_direction {
            (ingress, hop.egress)
        } else {
            (hop.egress, ingress)
        }
    }

    /// Sets the alert flag of a hop, by travel direction.
    fn alert(&mut self, hop: usize, at_ingress: bool) {
        let (index, _) = self.place(hop);
        let forward = self.segments[index].construction_direction;
        let hop = self.hop(hop);
        if at_ingress == forward {
            hop.ingress_alert = true;
        } else {
            hop.egress_alert = true;
        }
    }

    fn path(&self) -> Vec<u8> {
        path(&self.segments, 0, Stage::Inside)
    }

    fn udp(&self) -> Vec<u8> {
        udp(host(self.source()), host(self.destination()), &self.path())
    }

    fn carry(&self, packet: Vec<u8>, now: Duration, down: Down) -> Fate {
        carry(packet, self.source(), self.interfaces(0).1, now, down)
    }

    /// Carries the packet, of which an error shall come back to the sender; from which AS it is, and what it says.
    fn error(&self, packet: Vec<u8>, now: Duration, down: Down) -> (IsdAs, Problem) {
        let what = format!("{}: {down:?}", self.name);
        let Fate::Arrived(number, address, packet) = self.carry(packet, now, down) else {
            panic!("{what}: dropped");
        };
        assert_eq!(
            (number, address),
            (self.source(), socket(self.source())),
            "{what}"
        );
        let packet = packet::parse(&packet).expect("a packet");
        assert_eq!(packet.destination, host(self.source()), "{what}");
        match packet.content {
            Content::Scmp(Scmp::Error { problem, .. }) => (packet.source.0, problem),
            other => panic!("{what}: {other:?}"),
        }
    }

    /// Whether a packet enters an AS at this hop, and whether it leaves it there.
    fn borders(&self, hop: usize) -> (bool, bool) {
        let number = self.ases[hop];
        let enters = hop > 0 && self.ases[hop - 1] != number;
        let leaves = self.ases.get(hop + 1).is_some_and(|next| *next != number);
        (enters, leaves)
    }
}

fn udp(source: Host, destination: Host, path: &[u8]) -> Vec<u8> {
    let addresses = Addresses {
        source: (source.0, source.1, 32000),
        destination: (destination.0, destination.1, 32000),
    };
    packet::udp(&addresses, SCION, path, b"payload").expect("a packet")
}

fn routes() -> Vec<Route> {
    let to_6 = [(1, 0, 2), (3, 1, 3), (6, 1, 0)];
    let to_7 = [(1, 0, 3), (4, 1, 2), (7, 1, 0)];
    let to_8 = [(2, 0, 2), (5, 1, 3), (8, 1, 0)];
    let to_9 = [(1, 0, 2), (3, 1, 4), (9, 1, 0)];
    let core = [(2, 0, 1), (1, 1, 0)];
    let core_back = [(1, 0, 1), (2, 1, 0)];
    vec![
        Route::new("up and down").up(&to_6).down(&to_7),
        Route::new("up, across, down")
            .up(&to_6)
            .up(&core)
            .down(&to_8),
        Route::new("up, across the other way, down")
            .up(&to_6)
            .down(&core_back)
            .down(&to_8),
        Route::new("back").up(&to_8).up(&core_back).down(&to_6),
        Route::new("peering")
            .part(false, Some(2), &to_6[1..])
            .part(true, Some(2), &to_8[1..]),
        Route::new("peering, back")
            .part(false, Some(2), &to_8[1..])
            .part(true, Some(2), &to_6[1..]),
        Route::new("from a peer's host")
            .part(false, Some(2), &[(3, 1, 0)])
            .part(true, Some(2), &to_8[1..]),
        Route::new("to a peer's host")
            .part(false, Some(2), &to_8[1..])
            .part(true, Some(2), &[(3, 1, 0)]),
        Route::new("shortcut").up(&to_6[1..]).down(&to_9[1..]),
        Route::new("shortcut, back").up(&to_9[1..]).down(&to_6[1..]),
        Route::new("to an AS on the way up").up(&to_6[1..]),
        Route::new("to the core").up(&to_6),
        Route::new("from the core").down(&to_6),
        Route::new("from an AS on the way down").down(&to_8[1..]),
        Route::new("between core ASes").up(&core),
        Route::new("up and across").up(&to_9).up(&core),
        Route::new("across and down").down(&core_back).down(&to_8),
    ]
}

#[test]
fn packets_arrive_and_so_do_their_answers() {
    for route in routes() {
        let (from, to) = (route.source(), route.destination());
        let fate = route.carry(route.udp(), NOW, Down::default());
        let Fate::Arrived(number, address, packet) = fate else {
            panic!("{}: {fate:?}", route.name);
        };
        assert_eq!((number, address), (to, socket(to)), "{}", route.name);

        let packet = packet::parse(&packet).expect("a packet");
        let (_, back) = reverse::reply_path(&packet.path).expect("a way back");
        let answer = udp(packet.destination, packet.source, &back);
        let entered = reverse::arrived_by(&packet.path).expect("an interface");
        let fate = carry(answer, to, entered, NOW, Down::default());
        let Fate::Arrived(number, address, _) = fate else {
            panic!("{}, back: {fate:?}", route.name);
        };
        assert_eq!((number, address), (from, socket(from)), "{}", route.name);
    }
}

#[test]
fn errors_of_any_hop_come_back_to_the_sender() {
    for route in routes() {
        for hop in 0..route.ases.len() {
            let fields = 12 + 24 + 4 + 8 * route.segments.len();
            let pointer = (fields + 12 * hop) as u16;
            let of = |code| {
                (
                    isd_as(route.ases[hop]),
                    Problem::Parameter { code, pointer },
                )
            };
            let mut packet = route.udp();
            packet[usize::from(pointer) + 11] ^= 1;
            let error = route.error(packet, NOW, Down::default());
            assert_eq!(error, of(51), "{} {hop}", route.name);

            let mut expired = route.clone();
            expired.hop(hop).expiry = 0;
            let later = Duration::from_secs(u64::from(T) + 400);
            let error = expired.error(expired.udp(), later, Down::default());
            assert_eq!(error, of(52), "{} {hop}", route.name);
        }
    }
}

#[test]
fn links_that_are_down_are_told_to_the_sender() {
    for route in routes() {
        let mut entered = 0;
        for hop in 0..route.ases.len() {
            let (enters, leaves) = route.borders(hop);
            let number = route.ases[hop];
            let (ingress, egress) = route.interfaces(hop);
            if enters {
                entered = ingress;
            }
            if !leaves {
                continue;
            }
            let down = Down {
                interface: Some((number, egress)),
                siblings_of: None,
            };
            let problem = Problem::InterfaceDown {
                isd_as: isd_as(number),
                interface: egress.into(),
            };
            let error = route.error(route.udp(), NOW, down);
            assert_eq!(error, (isd_as(number), problem), "{}", route.name);

            let router_of = |interface| {
                let (end, _) = ends().find(|(end, _)| (end.0, end.2) == (number, interface))?;
                Some(end.1)
            };
            if hop == 0 || router_of(entered) == router_of(egress) {
                continue;
            }
            let down = Down {
                interface: None,
                siblings_of: Some(number),
            };
            let problem = Problem::ConnectivityDown {
                isd_as: isd_as(number),
                ingress: entered.into(),
                egress: egress.into(),
            };
            let error = route.error(route.udp(), NOW, down);
            assert_eq!(error, (isd_as(number), problem), "{}", route.name);
        }
    }
}

/// Whether a hop field asks for a router's attention. Senders know the path of a reply by its bytes.
fn has_alert(packet: &[u8]) -> bool {
    let Path::Scion(path) = View::new_checked(packet).expect("a packet").path() else {
        panic!("a SCION path");
    };
    path.hops().any(|hop| hop.ingress_alert || hop.egress_alert)
}

#[test]
fn a_traceroute_is_answered_by_every_interface_on_the_way() {
    for route in routes() {
        for hop in 0..route.ases.len() {
            let (ingress, egress) = route.interfaces(hop);
            let (enters, leaves) = route.borders(hop);
            for (asked, at_ingress, interface) in [(enters, true, ingress), (leaves, false, egress)]
            {
                if !asked {
                    continue;
                }
                let mut alerting = route.clone();
                alerting.alert(hop, at_ingress);
                let (from, to) = (host(route.source()), host(route.destination()));
                let request = Scmp::TracerouteRequest {
                    id: 32000,
                    sequence: 5,
                };
                let packet = packet::scmp(from, to, SCION, &alerting.path(), &request);
                let packet = packet.expect("a packet");
                let fate = alerting.carry(packet, NOW, Down::default());
                let what = format!("{} {hop} {at_ingress}", route.name);
                let Fate::Arrived(number, address, packet) = fate else {
                    panic!("{what}: {fate:?}");
                };
                assert_eq!(
                    (number, address),
                    (route.source(), socket(number)),
                    "{what}"
                );
                assert!(!has_alert(&packet), "{what}");
                let packet = packet::parse(&packet).expect("a packet");
                let reply = Scmp::TracerouteReply {
                    id: 32000,
                    sequence: 5,
                    isd_as: isd_as(route.ases[hop]),
                    interface: interface.into(),
                };
                assert_eq!(packet.content, Content::Scmp(reply), "{what}");
            }
        }
    }
}
