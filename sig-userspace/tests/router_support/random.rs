//! Random ASes, and random packets for them: most are in order or nearly so.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use sig_common::{
    addr::{HostAddr, IsdAs},
    wire::{
        PROTO_UDP,
        scion::{
            NEXT_SCMP,
            path::{HOP_LEN, HopField, INFO_LEN, InfoField, META_LEN, ScionPath},
        },
    },
};
use sig_core::scion::{
    HopKey, MacInput,
    packet::{self, Addresses, Host},
    scmp::{Echo, Problem, Quote, Scmp},
};
use sig_router::{
    AsModel, Bfd, Interface, Owner, Sibling,
    forward::{Ingress, Links},
    model::LinkType,
};

use super::{
    asys::{T, ip},
    path::{Hop, Segment, Stage, path},
};

/// A source of random decisions.
pub(crate) struct Dice(StdRng);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }

    /// Below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0.random_range(0..end)
    }

    /// True in so many of a hundred cases.
    pub(crate) fn percent(&mut self, percent: u32) -> bool {
        self.0.random_ratio(percent, 100)
    }

    pub(crate) fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.0.random()
    }

    pub(crate) fn number(&mut self) -> u16 {
        self.0.random()
    }

    pub(crate) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        self.0.random()
    }
}

/// Hosts that tests of delivery make known to the kernel: with a neighbour of their own and behind a gateway.
pub(crate) const HOSTS: [&str; 4] = ["10.0.0.50", "172.16.5.5", "fd00::50", "fd77::7"];
/// Internal addresses of the router.
pub(crate) const INTERNALS: [&str; 2] = ["10.0.0.1:30001", "[fd00::1]:30001"];

/// An AS and the state of its links.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) model: AsModel,
    pub(crate) interfaces_down: BTreeSet<u16>,
    pub(crate) siblings_down: BTreeSet<usize>,
    /// Largest SCION packets that leave a device in one piece, where they are smaller than what the topology says.
    pub(crate) interface_mtus: BTreeMap<u16, u16>,
    pub(crate) sibling_mtus: BTreeMap<usize, u16>,
}

impl Links for Place {
    fn is_interface_up(&self, interface: u16) -> bool {
        !self.interfaces_down.contains(&interface)
    }

    fn is_sibling_up(&self, sibling: usize) -> bool {
        !self.siblings_down.contains(&sibling)
    }
}

fn mtu(dice: &mut Dice) -> u16 {
    if dice.percent(90) {
        1472
    } else {
        150 + dice.below(1400) as u16
    }
}

/// Any AS.
pub(crate) fn place(dice: &mut Dice) -> Place {
    let core = dice.percent(40);
    let internal: SocketAddr = dice.one(&INTERNALS).parse().expect("an address");
    let sibling = |number: u8| {
        let ip = match internal {
            SocketAddr::V4(_) => IpAddr::from([10, 0, 1, number]),
            SocketAddr::V6(_) => IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 1, u16::from(number)]),
        };
        Sibling {
            name: format!("br-{number}"),
            internal: SocketAddr::new(ip, 30002),
        }
    };
    let siblings: Vec<_> = (0..dice.below(3) as u8).map(sibling).collect();
    let mut interfaces = BTreeMap::new();
    while interfaces.len() < 6 {
        let number = 1 + dice.below(60) as u16;
        let local = |last: u8| {
            let ip = if number.is_multiple_of(3) {
                IpAddr::from([0xfd01, number, 0, 0, 0, 0, 0, u16::from(last)])
            } else {
                IpAddr::from([192, 168, number as u8, last])
            };
            SocketAddr::new(ip, 50000 + number)
        };
        let here = siblings.is_empty() || interfaces.len() < 3 || dice.percent(30);
        let owner = if here {
            Owner::Here {
                local: local(1),
                remote: local(2),
            }
        } else {
            Owner::Sibling(dice.below(siblings.len()))
        };
        let types = if core {
            [LinkType::Core, LinkType::Core, LinkType::Child]
        } else {
            [LinkType::Parent, LinkType::Child, LinkType::Peer]
        };
        let interface = Interface {
            owner,
            neighbour: IsdAs(0x0001_ff00_0000_1000 + u64::from(number)),
            neighbour_interface: None,
            link_type: dice.one(&types),
            mtu: mtu(dice),
            bfd: Bfd::default(),
        };
        interfaces.insert(number, interface);
    }
    let ports = [
        None,
        Some(31000..=32767),
        Some(1..=65535),
        Some(40000..=40000),
    ];
    let service = SocketAddr::new(internal.ip(), 30252);
    let model = AsModel {
        router: "br".to_owned(),
        isd_as: IsdAs(0x0001_ff00_0000_0110),
        core,
        mtu: mtu(dice),
        internal,
        ports: dice.one(&ports),
        siblings,
        control_services: vec![service; dice.below(2)],
        discovery_services: Vec::new(),
        services: match dice.percent(50) {
            true => [
                service,
                SocketAddr::new(HOSTS[0].parse().expect("an address"), 30256),
            ]
            .into(),
            false => BTreeSet::new(),
        },
        sibling_bfd: Bfd::default(),
        key: HopKey::new(dice.bytes()),
        interfaces,
    };
    let (numbers, places) = (model.interfaces.keys().copied(), 0..model.siblings.len());
    let narrow = if dice.percent(20) { 80 } else { 0 };
    let mut limit = || dice.percent(narrow).then(|| 150 + dice.below(1400) as u16);
    let interface_mtus = numbers
        .clone()
        .filter_map(|n| Some((n, limit()?)))
        .collect();
    let sibling_mtus = places.clone().filter_map(|n| Some((n, limit()?))).collect();
    Place {
        interfaces_down: numbers.filter(|_| dice.percent(5)).collect(),
        siblings_down: places.filter(|_| dice.percent(5)).collect(),
        interface_mtus,
        sibling_mtus,
        model,
    }
}

/// A SCION packet and where it comes in.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) packet: Vec<u8>,
    pub(crate) ingress: Ingress,
}

/// A host of the AS in the underlay.
pub(crate) fn underlay_host(model: &AsModel) -> SocketAddr {
    let host = if model.internal.is_ipv4() {
        HOSTS[0]
    } else {
        HOSTS[2]
    };
    SocketAddr::new(host.parse().expect("an address"), 45000)
}

/// Any packet for the router of an AS.
pub(crate) fn arrival(dice: &mut Dice, model: &AsModel) -> Arrival {
    let mut arrival = if dice.percent(3) {
        stray(dice, model)
    } else {
        regular(dice, model)
    };
    if dice.percent(50) {
        for _ in 0..1 + dice.below(2) {
            mutate(dice, model, &mut arrival);
        }
        if dice.percent(70) {
            sign(&mut arrival, &model.key);
        }
    }
    arrival
}

/// An interface of the AS, of a kind that goes with another one most of the time.
fn interface(dice: &mut Dice, model: &AsModel, to: Option<u16>, crosses: bool) -> u16 {
    use LinkType::{Child, Core, Parent};
    let kind = |number: &u16| model.interfaces[number].link_type;
    let fits = |number: &u16| match to {
        None => true,
        Some(to) if crosses => matches!(
            (kind(&to), kind(number)),
            (Core, Child) | (Child, Core | Child)
        ),
        Some(to) => matches!(
            (kind(&to), kind(number)),
            (Core, Core) | (Child, Parent) | (Parent, Child)
        ),
    };
    let all: Vec<u16> = model.interfaces.keys().copied().collect();
    let fitting: Vec<u16> = all.iter().copied().filter(fits).collect();
    if fitting.is_empty() || dice.percent(10) {
        dice.one(&all)
    } else {
        dice.one(&fitting)
    }
}

fn foreign(dice: &mut Dice) -> Hop {
    let key = HopKey::new([0xee; 16]);
    Hop::new(&key, dice.number(), dice.number())
}

/// A segment in which we have the hop `ours` (interfaces in travel direction), with so many hops of others around.
fn segment(
    dice: &mut Dice,
    key: &HopKey,
    before: usize,
    ours: Option<(u16, u16)>,
    after: usize,
) -> Segment {
    let construction_direction = dice.percent(50);
    let mut hops: Vec<Hop> = (0..before).map(|_| foreign(dice)).collect();
    if let Some((from, to)) = ours {
        hops.push(if construction_direction {
            Hop::new(key, from, to)
        } else {
            Hop::new(key, to, from)
        });
    }
    hops.extend((0..after).map(|_| foreign(dice)));
    if !construction_direction {
        hops.reverse();
    }
    for hop in &mut hops {
        hop.ingress_alert = dice.percent(2);
        hop.egress_alert = dice.percent(2);
        hop.expiry = 20 + dice.byte() / 2;
    }
    Segment {
        construction_direction,
        beta: dice.number(),
        timestamp: T - 3600 + dice.below(3500) as u32,
        hops,
        peer: None,
    }
}

/// A packet with a path that leads through the AS.
fn regular(dice: &mut Dice, model: &AsModel) -> Arrival {
    let key = &model.key;
    let starts = dice.percent(20);
    let ends = !starts && dice.percent(25);
    let crosses = !starts && !ends && dice.percent(40);
    let from = if starts {
        0
    } else {
        interface(dice, model, None, false)
    };
    let to = match (starts, ends) {
        (_, true) => 0,
        (true, _) => interface(dice, model, None, false),
        _ => interface(dice, model, Some(from), crosses),
    };
    let owner = |number| model.interfaces.get(number).map(|i| i.owner);
    let peer_out = !starts && !ends && dice.percent(15);
    let peer_in = !starts && !ends && !peer_out && dice.percent(15);
    let (before, after) = (1 + dice.below(3), 1 + dice.below(3));
    let mut segments = Vec::new();
    let mut current;
    if peer_out || peer_in {
        let hop = |hop: (u16, u16)| Hop::new(key, hop.0, hop.1);
        let mut first = segment(dice, key, before + 1, None, 0);
        let mut second = segment(dice, key, 0, None, after + 1);
        first.construction_direction = false;
        second.construction_direction = true;
        (first.peer, second.peer) = (Some(dice.number()), Some(dice.number()));
        if peer_out {
            first.hops[0] = hop((dice.number(), from));
            first.peer = Some(to);
            current = first.hops.len() - 1;
        } else {
            second.hops[0] = hop((dice.number(), to));
            second.peer = Some(from);
            current = first.hops.len();
        }
        segments.extend([first, second]);
    } else if crosses {
        if dice.percent(20) {
            segments.push(segment(dice, key, 2, None, 0));
        }
        let other = [0, dice.number()];
        let (leaves, enters) = (dice.one(&other), dice.one(&other));
        let first = segment(dice, key, before, Some((from, leaves)), 0);
        let second = segment(dice, key, 0, Some((enters, to)), after);
        segments.extend([first, second]);
        current = segments.iter().map(|s| s.hops.len()).sum::<usize>() - after - 2;
        if segments.len() < 3 && dice.percent(20) {
            segments.push(segment(dice, key, 0, None, 2));
        }
    } else {
        let before = if starts { 0 } else { before };
        // Some paths end too early.
        let after = if ends || dice.percent(8) { 0 } else { after };
        if !starts && dice.percent(30) {
            segments.push(segment(dice, key, 1, None, 1));
        }
        segments.push(segment(dice, key, before, Some((from, to)), after));
        current = segments.iter().map(|s| s.hops.len()).sum::<usize>() - after - 1;
        if !ends && after > 0 && dice.percent(30) {
            // One hop is too few.
            let hops = usize::from(!dice.percent(10));
            segments.push(segment(dice, key, hops, None, 1));
        }
    }
    let ingress = match owner(&from) {
        Some(Owner::Here { .. }) => Ingress::External(from),
        Some(Owner::Sibling(place)) => {
            if crosses && !peer_out && !peer_in {
                current += 1;
            }
            Ingress::Internal(model.siblings[place].internal)
        }
        None => Ingress::Internal(underlay_host(model)),
    };
    let stage = match ingress {
        Ingress::External(_) => Stage::Arriving,
        Ingress::Internal(_) => Stage::Inside,
    };
    let isd_as = |dice: &mut Dice| IsdAs(0x0001_ff00_0000_0200 + dice.below(9) as u64);
    let source = if starts { model.isd_as } else { isd_as(dice) };
    let destination = if ends { model.isd_as } else { isd_as(dice) };
    let (source, destination) = ((source, host(dice)), (destination, host(dice)));
    let path = path(&segments, current, stage);
    Arrival {
        packet: carrying(dice, source, destination, &path),
        ingress,
    }
}

fn host(dice: &mut Dice) -> HostAddr {
    if dice.percent(94) {
        return ip(dice.one(&HOSTS));
    }
    let odd = [
        "::ffff:10.0.0.50",
        "0.0.0.0",
        "::",
        "224.0.0.1",
        "ff02::1",
        "10.0.0.1",
        "fd00::1",
    ];
    match dice.below(4) {
        0 => HostAddr::SVC_CS,
        1 => HostAddr::Svc(dice.number()),
        _ => ip(dice.one(&odd)),
    }
}

/// A packet with any upper layer.
fn carrying(dice: &mut Dice, source: Host, destination: Host, path: &[u8]) -> Vec<u8> {
    let len = match dice.below(20) {
        0 => 1450,
        1 => 1330 + dice.below(80),
        _ => dice.below(120),
    };
    let payload = vec![0xa5; len];
    let port = dice.one(&[0, 30041, 31000, 31999, 40000]);
    let udp = |source: Host, destination: Host, path: &[u8]| {
        let addresses = Addresses {
            source: (source.0, source.1, port),
            destination: (destination.0, destination.1, port),
        };
        packet::udp(&addresses, 1, path, &payload).expect("a packet")
    };
    let echo = |data: &[u8]| Echo {
        id: port,
        sequence: 1,
        data: data.to_vec(),
    };
    let message = match dice.below(12) {
        0 => Scmp::EchoRequest(echo(&payload)),
        1 => Scmp::EchoReply(echo(&payload)),
        2 => Scmp::TracerouteRequest {
            id: port,
            sequence: 1,
        },
        3 => Scmp::TracerouteReply {
            id: port,
            sequence: 1,
            isd_as: source.0,
            interface: 7,
        },
        4 | 5 => {
            let problems = [
                Problem::Unreachable { code: 4 },
                Problem::PacketTooBig { mtu: 1400 },
                Problem::Parameter {
                    code: 51,
                    pointer: 9,
                },
                Problem::InterfaceDown {
                    isd_as: source.0,
                    interface: 3,
                },
                Problem::ConnectivityDown {
                    isd_as: source.0,
                    ingress: 3,
                    egress: 4,
                },
            ];
            let quoted = match dice.below(4) {
                0 => Scmp::EchoRequest(echo(&[])),
                1 => Scmp::TracerouteRequest {
                    id: port,
                    sequence: 1,
                },
                _ => Scmp::EchoReply(echo(&[])),
            };
            let mut quote = if dice.percent(50) {
                udp(destination, source, path)
            } else {
                packet::scmp(destination, source, 1, path, &quoted).expect("a packet")
            };
            if dice.percent(20) {
                quote.truncate(dice.below(quote.len()));
            }
            if dice.percent(20) {
                extend(dice, &mut quote);
            }
            Scmp::Error {
                problem: dice.one(&problems),
                quote: Quote::new(&quote),
            }
        }
        _ => {
            let mut packet = udp(source, destination, path);
            if dice.percent(10) {
                packet[4] = dice.one(&[6, 99, 203]);
            }
            if dice.percent(10) {
                extend(dice, &mut packet);
            }
            return packet;
        }
    };
    let mut packet = packet::scmp(source, destination, 1, path, &message).expect("a packet");
    if dice.percent(10) {
        extend(dice, &mut packet);
    }
    packet
}

/// Puts extension headers in front of the upper layer, in any order.
fn extend(dice: &mut Dice, packet: &mut Vec<u8>) {
    for _ in 0..1 + dice.below(3) {
        let Some([_, _, _, _, next, words, l0, l1]) = packet.first_chunk().copied() else {
            return;
        };
        let at = usize::from(words) * 4;
        if at > packet.len() {
            return;
        }
        let words = dice.below(4);
        let mut header = vec![next, words as u8, 0, 0];
        header.resize(4 * (words + 1), 0);
        let len = u16::from_be_bytes([l0, l1]).saturating_add(header.len() as u16);
        packet.splice(at..at, header);
        packet[4] = dice.one(&[200, 201]);
        packet[6..8].copy_from_slice(&len.to_be_bytes());
    }
}

/// A packet of another kind than those with a SCION path.
fn stray(dice: &mut Dice, model: &AsModel) -> Arrival {
    let regular = regular(dice, model);
    let ingress = regular.ingress;
    let path_type = dice.below(5) as u8;
    let raw: Vec<u8> = match path_type {
        2 => (0..32).map(|_| dice.byte()).collect(),
        3 => (0..16).map(|_| dice.byte()).collect(),
        _ => Vec::new(),
    };
    let mut packet = vec![
        0,
        0,
        0,
        1,
        dice.one(&[PROTO_UDP, NEXT_SCMP, 203]),
        0,
        0,
        8,
        path_type,
        0,
        0,
        0,
    ];
    packet.extend(model.isd_as.to_bytes());
    packet.extend(model.isd_as.to_bytes());
    packet.extend([10, 0, 0, 50, 10, 0, 0, 51]);
    packet.extend(raw);
    packet[5] = (packet.len() / 4) as u8;
    packet.extend([0x79, 0x18, 0x79, 0x18, 0, 8, 0, 0]);
    if dice.percent(20) {
        packet = vec![0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42];
        packet.resize(20, 7);
    }
    Arrival { packet, ingress }
}

/// Changes a field, whatever it is.
fn mutate(dice: &mut Dice, model: &AsModel, arrival: &mut Arrival) {
    let Arrival { packet, ingress } = arrival;
    let header = usize::from(packet.get(5).copied().unwrap_or(0)) * 4;
    let path = match packet.get(9) {
        Some(types) => 28 + 4 * (usize::from(types >> 4 & 3) + usize::from(types & 3) + 2),
        None => 0,
    };
    let mut set = |at: usize, byte: u8| {
        if let Some(place) = packet.get_mut(at) {
            *place = byte;
        }
    };
    match dice.below(14) {
        // A bit of the header.
        0..=3 => {
            let at = dice.below(header.max(1));
            let bit = 1 << dice.below(8);
            let byte = packet.get(at).copied().unwrap_or(0);
            if let Some(place) = packet.get_mut(at) {
                *place = byte ^ bit;
            }
        }
        // Any byte.
        4 => set(dice.below(header + 40), dice.byte()),
        // The common header.
        5 => {
            let (at, byte) = dice.one(&[
                (0, 0x10),
                (4, 200),
                (4, 201),
                (4, 202),
                (4, 6),
                (5, 9),
                (7, 3),
                (8, 0),
                (8, 2),
                (8, 3),
                (8, 4),
                (9, 0x30),
                (9, 0x04),
                (9, 0x40),
                (9, 0x11),
            ]);
            set(at, byte);
        }
        // The pointers and lengths of the path.
        6 => set(path, dice.byte()),
        7 => set(path + 1 + dice.below(3), dice.byte()),
        // Flags of the info fields.
        8 => set(path + META_LEN + INFO_LEN * dice.below(3), dice.byte() & 3),
        // Timestamps.
        9 => set(path + META_LEN + 4 + INFO_LEN * dice.below(3), dice.byte()),
        // The length of the packet.
        10 => packet.truncate(dice.below(packet.len() + 1)),
        11 => packet.extend([0; 3]),
        // ISD-AS numbers.
        12 => {
            let at = dice.one(&[12, 20]);
            let isd_as = model.isd_as.to_bytes();
            if let Some(place) = packet.get_mut(at..at + 8) {
                place.copy_from_slice(&isd_as);
            }
        }
        _ => {
            let links: Vec<u16> = model.links().map(|(number, ..)| number).collect();
            *ingress = match dice.below(3) {
                0 => Ingress::Internal(underlay_host(model)),
                1 => model
                    .siblings
                    .first()
                    .map_or(*ingress, |sibling| Ingress::Internal(sibling.internal)),
                _ => Ingress::External(dice.one(&links)),
            };
        }
    }
}

/// Signs the current hop, and that behind it if there the segment changes, so that later checks are reached.
pub(crate) fn sign(arrival: &mut Arrival, key: &HopKey) {
    let Some(header) = arrival.packet.get(5).map(|words| usize::from(*words) * 4) else {
        return;
    };
    let Some(types) = arrival.packet.get(9).copied() else {
        return;
    };
    let start = 28 + 4 * (usize::from(types >> 4 & 3) + usize::from(types & 3) + 2);
    let Some(bytes) = arrival.packet.get_mut(start..header) else {
        return;
    };
    let Ok(path) = ScionPath::new_checked(bytes) else {
        return;
    };
    let meta = path.meta();
    let [first, second, _] = meta.segments;
    let segment = |hop: u8| u8::from(hop >= first) + u8::from(hop >= first + second);
    let current = meta.current_hop;
    let peers = |info: u8, hop: u8| {
        let peering = path
            .infos()
            .nth(info.into())
            .is_some_and(|info| info.peering);
        peering && (hop + 1 == first || hop == first)
    };
    let chained = matches!(arrival.ingress, Ingress::External(_));
    let mut places = vec![(current, chained && !peers(segment(current), current))];
    if usize::from(current) + 1 < meta.hops() && segment(current) != segment(current + 1) {
        places.push((current + 1, false));
    }
    for (hop, chained) in places {
        let info_at = META_LEN + INFO_LEN * usize::from(segment(hop));
        let hop_at = META_LEN + INFO_LEN * meta.infos() + HOP_LEN * usize::from(hop);
        let field: [u8; HOP_LEN] = bytes[hop_at..hop_at + HOP_LEN]
            .try_into()
            .expect("a hop field");
        let info: [u8; INFO_LEN] = bytes[info_at..info_at + INFO_LEN]
            .try_into()
            .expect("an info field");
        let hop = HopField::decode(field);
        let info = InfoField::decode(info);
        let mac = key.mac(&MacInput {
            segment_id: info.segment_id,
            timestamp: info.timestamp,
            expiry: hop.expiry,
            ingress: hop.ingress,
            egress: hop.egress,
        });
        bytes[hop_at + 6..hop_at + HOP_LEN].copy_from_slice(&mac);
        if chained && !info.construction_direction {
            bytes[info_at + 2] ^= mac[0];
            bytes[info_at + 3] ^= mac[1];
        }
    }
}
