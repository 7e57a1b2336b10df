//! A border router of the AS 1-ff00:0:110 under test, packets for it, and what the program makes of them.
//!
//! Everything comes in through `lo` of a namespace of its own, as test runs have it. Hosts of the AS are 10.2.0.1 and fd00:2::1
//! behind the device `hosts`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use sig_common::addr::{HostAddr, IsdAs};
use sig_common::router::Reason;
use sig_common::router::maps::{Tags, Traffic};
use sig_common::wire::scion::address::AddressHeader;
use sig_common::wire::scion::path::Meta;
use sig_common::wire::{PROTO_UDP, checksum, ethernet, ipv4, udp};
use sig_core::scion::{HopKey, MacInput};
use sig_linux::bpf::{RouterOptions, RouterPrograms, TestOutcome};
use sig_router::fast::{self, Arrival, Port, Slots, Spread, Underlay as _, UnderlayRoute};
use sig_router::forward;
use sig_router::model::LinkType;
use sig_router::{AsModel, Bfd, Interface, Owner, Sibling};

use crate::frames::{LO, XDP_DROP, XDP_PASS, XDP_REDIRECT};
use crate::packets::Underlay;
use crate::support::netns::{Netns, veth};

pub(crate) const LOCAL: IsdAs = IsdAs::new(1, 0xff00_0000_0110);
pub(crate) const FAR: IsdAs = IsdAs::new(1, 0xff00_0000_0111);
pub(crate) const OTHER: IsdAs = IsdAs::new(2, 0xff00_0000_0222);
/// Timestamp of segments.
pub(crate) const T: u32 = 1_700_000_000;
/// When packets come.
pub(crate) const NOW: Duration = Duration::from_secs(T as u64 + 60);
const KEY: HopKey = HopKey::new(*b"a key for tests.");
/// UDP port of all who send to the router; that of the frames of [`Underlay`].
const PORT: u16 = 30042;
const INTERNAL: &str = "10.0.0.1:30001";
/// MAC address that frames come for.
pub(crate) const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const HOST_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x99];
const DEVICE_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x11];

/// Interfaces: below 10 of this router; tens: of siblings. 7 and 8 have IPv6 underlay.
const INTERFACES: [(u16, LinkType); 14] = [
    (1, LinkType::Parent),
    (2, LinkType::Child),
    (3, LinkType::Child),
    (4, LinkType::Core),
    (5, LinkType::Peer),
    (6, LinkType::Core),
    (7, LinkType::Parent),
    (8, LinkType::Child),
    (11, LinkType::Parent),
    (12, LinkType::Child),
    (14, LinkType::Core),
    (15, LinkType::Peer),
    (21, LinkType::Parent),
    (22, LinkType::Child),
];

pub(crate) fn local_of(interface: u16) -> SocketAddr {
    link_address(interface, 1, 50000)
}

pub(crate) fn remote_of(interface: u16) -> SocketAddr {
    link_address(interface, 2, PORT)
}

fn link_address(interface: u16, end: u8, port: u16) -> SocketAddr {
    let ip = match interface {
        7 | 8 => IpAddr::from([0xfd00, interface, 0, 0, 0, 0, 0, end.into()]),
        _ => IpAddr::from([192, 168, interface as u8, end]),
    };
    SocketAddr::new(ip, port)
}

pub(crate) fn sibling(place: usize) -> SocketAddr {
    SocketAddr::new([10, 0, 0, 11 + place as u8].into(), PORT)
}

pub(crate) fn internal() -> SocketAddr {
    INTERNAL.parse().unwrap()
}

pub(crate) fn model() -> AsModel {
    let interfaces = INTERFACES.into_iter().map(|(number, link_type)| {
        let owner = match number {
            ..10 => Owner::Here {
                local: local_of(number),
                remote: remote_of(number),
            },
            10..20 => Owner::Sibling(0),
            _ => Owner::Sibling(1),
        };
        let interface = Interface {
            owner,
            neighbour: IsdAs::new(1, u64::from(number)),
            neighbour_interface: None,
            link_type,
            mtu: 1400,
            bfd: Bfd::default(),
        };
        (number, interface)
    });
    AsModel {
        router: "br".to_owned(),
        isd_as: LOCAL,
        core: true,
        mtu: 1400,
        internal: internal(),
        ports: Some(31000..=32767),
        interfaces: interfaces.collect(),
        siblings: (0..2)
            .map(|place| Sibling {
                name: format!("br-{place}"),
                internal: sibling(place),
            })
            .collect(),
        control_services: vec!["10.2.0.1:30252".parse().unwrap()],
        discovery_services: Vec::new(),
        services: ["10.2.0.1:30252".parse().unwrap()].into(),
        sibling_bfd: Bfd::default(),
        key: KEY,
    }
}

/// What the underlay of a test is like.
#[derive(Clone, Debug)]
pub(crate) struct Conditions {
    pub(crate) mtu: u16,
    /// VLANs that packets leave in.
    pub(crate) tags: Tags,
    /// Whether the device that they leave by sends frames in several buffers.
    pub(crate) fragments: bool,
    pub(crate) down: BTreeSet<u16>,
    /// Interfaces without a known next hop.
    pub(crate) unknown: BTreeSet<IpAddr>,
    /// The device that packets leave by.
    pub(crate) ifindex: u32,
    /// The device that packets come in by.
    pub(crate) ingress: u32,
    /// The VLANs on it, untagged frames among them.
    pub(crate) vlans: Vec<Tags>,
    /// Addresses that are not on all of them: on these, or on no device in particular.
    pub(crate) places: BTreeMap<SocketAddr, Option<Vec<Tags>>>,
}

impl Conditions {
    fn port(&self, tags: Tags) -> Port {
        Port {
            ifindex: self.ingress,
            tags,
            mac: OUR_MAC,
        }
    }
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            mtu: 1500,
            tags: [0; 2],
            fragments: true,
            down: BTreeSet::new(),
            unknown: BTreeSet::new(),
            ifindex: LO,
            ingress: LO,
            vlans: vec![[0; 2]],
            places: BTreeMap::new(),
        }
    }
}

/// MAC addresses tell where a frame goes.
fn mac(address: SocketAddr, end: u8) -> [u8; 6] {
    match address.ip() {
        IpAddr::V4(ip) => [
            2,
            end,
            ip.octets()[0],
            ip.octets()[1],
            ip.octets()[2],
            ip.octets()[3],
        ],
        IpAddr::V6(ip) => [2, end, 6, 6, ip.octets()[3], ip.octets()[15]],
    }
}

impl fast::Underlay for Conditions {
    fn ports(&self) -> Vec<Port> {
        self.vlans.iter().map(|tags| self.port(*tags)).collect()
    }

    fn arrival(&self, local: SocketAddr) -> Arrival {
        match self.places.get(&local) {
            Some(None) => Arrival::Anywhere,
            Some(Some(vlans)) => Arrival::By(vlans.iter().map(|tags| self.port(*tags)).collect()),
            None => Arrival::By(self.ports()),
        }
    }

    fn route(&self, local: SocketAddr, remote: SocketAddr) -> Option<UnderlayRoute> {
        (!self.unknown.contains(&remote.ip())).then(|| UnderlayRoute {
            ifindex: self.ifindex,
            mtu: self.mtu,
            tags: self.tags,
            fragments: self.fragments,
            source_mac: mac(local, 1),
            destination_mac: mac(remote, 2),
        })
    }

    fn is_up(&self, interface: u16) -> bool {
        !self.down.contains(&interface)
    }
}

impl forward::Links for Conditions {
    fn is_interface_up(&self, interface: u16) -> bool {
        self.is_up(interface)
    }

    fn is_sibling_up(&self, _sibling: usize) -> bool {
        true
    }
}

/// The hop fields of a segment in travel direction: interfaces in construction direction.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) forward: bool,
    pub(crate) peering: bool,
    pub(crate) timestamp: u32,
    pub(crate) expiry: u8,
    pub(crate) beta: u16,
    pub(crate) hops: Vec<(u16, u16)>,
}

impl Segment {
    pub(crate) fn new(forward: bool, hops: &[(u16, u16)]) -> Self {
        Self {
            forward,
            peering: false,
            timestamp: T,
            expiry: 63,
            beta: 0x1234,
            hops: hops.to_vec(),
        }
    }

    pub(crate) fn peering(forward: bool, hops: &[(u16, u16)]) -> Self {
        Self {
            peering: true,
            ..Self::new(forward, hops)
        }
    }

    /// The segment identifier that each hop is made with, and its MAC, in travel direction.
    fn signed(&self) -> Vec<(u16, [u8; 6])> {
        let mut beta = self.beta;
        let mut signed = Vec::new();
        let count = self.hops.len();
        for at in 0..count {
            let (ingress, egress) = self.hops[if self.forward { at } else { count - 1 - at }];
            let mac = KEY.mac(&MacInput {
                segment_id: beta,
                timestamp: self.timestamp,
                expiry: self.expiry,
                ingress,
                egress,
            });
            signed.push((beta, mac));
            // The hop after a peering link and that link's own hop have the same parent.
            if !(self.peering && at == 0) {
                beta ^= u16::from_be_bytes([mac[0], mac[1]]);
            }
        }
        if !self.forward {
            signed.reverse();
        }
        signed
    }
}

/// A path with its pointers, signed.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub(crate) segments: Vec<Segment>,
    pub(crate) hop: u8,
    /// Whether the packet comes from another AS: then segment identifiers against construction direction are still to be
    /// changed.
    pub(crate) from_outside: bool,
}

impl Path {
    pub(crate) fn new(segments: &[Segment], hop: u8, from_outside: bool) -> Self {
        Self {
            segments: segments.to_vec(),
            hop,
            from_outside,
        }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut lengths = [0; 3];
        for (length, segment) in lengths.iter_mut().zip(&self.segments) {
            *length = segment.hops.len() as u8;
        }
        let (mut first, mut current) = (0, 0);
        let mut infos = Vec::new();
        let mut hops = Vec::new();
        for (number, segment) in self.segments.iter().enumerate() {
            let signed = segment.signed();
            let count = signed.len() as u8;
            let here = (first..first + count).contains(&self.hop);
            let place = if here {
                usize::from(self.hop - first)
            } else {
                0
            };
            let (mut beta, mac) = signed[place];
            if here {
                current = number as u8;
                let is_peer_hop =
                    segment.peering && place == if segment.forward { 0 } else { signed.len() - 1 };
                if !segment.forward && self.from_outside && !is_peer_hop {
                    beta ^= u16::from_be_bytes([mac[0], mac[1]]);
                }
            }
            infos.extend([
                u8::from(segment.peering) << 1 | u8::from(segment.forward),
                0,
            ]);
            infos.extend(beta.to_be_bytes());
            infos.extend(segment.timestamp.to_be_bytes());
            for ((ingress, egress), (_, mac)) in segment.hops.iter().zip(signed) {
                hops.extend([0, segment.expiry]);
                hops.extend(ingress.to_be_bytes());
                hops.extend(egress.to_be_bytes());
                hops.extend(mac);
            }
            first += count;
        }
        let meta = Meta {
            current_info: current,
            current_hop: self.hop,
            segments: lengths,
        };
        [meta.encode().to_vec(), infos, hops].concat()
    }
}

/// A SCION packet.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) source: (IsdAs, HostAddr),
    pub(crate) destination: (IsdAs, HostAddr),
    pub(crate) path_type: u8,
    pub(crate) path: Vec<u8>,
    pub(crate) next_header: u8,
    pub(crate) payload: Vec<u8>,
}

pub(crate) fn host(text: &str) -> HostAddr {
    match text.parse().unwrap() {
        IpAddr::V4(ip) => HostAddr::V4(ip.octets()),
        IpAddr::V6(ip) => HostAddr::V6(ip.octets()),
    }
}

impl Packet {
    /// UDP from one AS to another.
    pub(crate) fn new(source: IsdAs, destination: IsdAs, path: &Path) -> Self {
        Self {
            source: (source, host("10.1.0.1")),
            destination: (destination, host("10.2.0.1")),
            path_type: 1,
            path: path.bytes(),
            next_header: PROTO_UDP,
            payload: [&[0x7d, 0, 0x79, 0x18, 0, 12, 0, 0][..], b"data"].concat(),
        }
    }

    /// Bytes in front of the path.
    pub(crate) fn path_offset(&self) -> usize {
        12 + self.addresses().len()
    }

    fn addresses(&self) -> AddressHeader {
        AddressHeader {
            destination_isd_as: self.destination.0,
            source_isd_as: self.source.0,
            destination: self.destination.1,
            source: self.source.1,
        }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let addresses = self.addresses();
        let mut bytes = vec![0; self.path_offset()];
        let words = (bytes.len() + self.path.len()) / 4;
        let [l0, l1] = (self.payload.len() as u16).to_be_bytes();
        bytes[..12].copy_from_slice(&[
            0,
            0,
            0,
            1,
            self.next_header,
            words as u8,
            l0,
            l1,
            self.path_type,
            addresses.types(),
            0,
            0,
        ]);
        addresses.emit(&mut bytes[12..]).unwrap();
        bytes.extend(&self.path);
        bytes.extend(&self.payload);
        bytes
    }
}

/// A frame from one end of the underlay to the other.
pub(crate) fn frame(source: SocketAddr, destination: SocketAddr, scion: &[u8]) -> Vec<u8> {
    frame_with_tags(source, destination, scion, [None; 2])
}

pub(crate) fn frame_with_tags(
    source: SocketAddr,
    destination: SocketAddr,
    scion: &[u8],
    tags: [Option<ethernet::Tag>; 2],
) -> Vec<u8> {
    assert_eq!(source.port(), PORT);
    let outer = Underlay {
        source: source.ip(),
        destination: destination.ip(),
        port: destination.port(),
        tos: 0,
        tags,
    };
    outer.wrap(scion)
}

/// From the neighbour at an interface.
pub(crate) fn from_link(interface: u16, scion: &[u8]) -> Vec<u8> {
    frame(remote_of(interface), local_of(interface), scion)
}

/// From a host of the AS.
pub(crate) fn from_host(scion: &[u8]) -> Vec<u8> {
    frame("10.2.0.1:30042".parse().unwrap(), internal(), scion)
}

/// From a sibling.
pub(crate) fn from_sibling(place: usize, scion: &[u8]) -> Vec<u8> {
    frame(sibling(place), internal(), scion)
}

/// Where a packet was sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    pub(crate) source_mac: [u8; 6],
    pub(crate) destination_mac: [u8; 6],
    pub(crate) tags: Vec<[u8; 4]>,
    /// UDP without checksum.
    pub(crate) unchecked: bool,
    pub(crate) scion: Vec<u8>,
}

impl Sent {
    /// Reads a frame; everything in it must be right, checksums over the whole datagram included.
    pub(crate) fn read(frame: &[u8]) -> Self {
        let mut at = 12;
        let mut tags = Vec::new();
        while ethernet::is_tag(u16::from_be_bytes([frame[at], frame[at + 1]])) {
            tags.push(frame[at..at + 4].try_into().unwrap());
            at += 4;
        }
        let ethertype = u16::from_be_bytes([frame[at], frame[at + 1]]);
        let packet = &frame[at + 2..];
        let (source, destination, datagram) = if ethertype == ethernet::ETHERTYPE_IPV4 {
            let view = ipv4::View::new_checked(packet).unwrap();
            assert!(view.checksum_is_valid(), "IPv4 header checksum");
            assert_eq!((view.ttl(), packet[0], packet[1]), (64, 0x45, 0));
            let len = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
            assert_eq!(len, packet.len(), "the frame ends with the IP packet");
            let ip = |at: usize| IpAddr::from(<[u8; 4]>::try_from(&packet[at..at + 4]).unwrap());
            (ip(12), ip(16), &packet[20..])
        } else {
            assert_eq!(ethertype, ethernet::ETHERTYPE_IPV6);
            assert_eq!(packet[..4], [0x60, 0, 0, 0]);
            assert_eq!(packet[6..8], [PROTO_UDP, 64]);
            let len = usize::from(u16::from_be_bytes([packet[4], packet[5]]));
            assert_eq!(len + 40, packet.len(), "the frame ends with the IP packet");
            let ip = |at: usize| IpAddr::from(<[u8; 16]>::try_from(&packet[at..at + 16]).unwrap());
            (ip(8), ip(24), &packet[40..])
        };
        let header = udp::Header::decode(datagram[..8].try_into().unwrap());
        assert_eq!(usize::from(header.length), datagram.len(), "UDP length");
        let unchecked = header.checksum == 0;
        if !unchecked {
            let pseudo = match (source, destination) {
                (IpAddr::V4(s), IpAddr::V4(d)) => {
                    checksum::ipv4_pseudo_header(s.octets(), d.octets(), header.length, PROTO_UDP)
                }
                (IpAddr::V6(s), IpAddr::V6(d)) => checksum::ipv6_pseudo_header(
                    &s.octets(),
                    &d.octets(),
                    header.length.into(),
                    PROTO_UDP,
                ),
                _ => unreachable!("both are of one packet"),
            };
            assert!(pseudo.add_bytes(datagram).is_valid(), "UDP checksum");
        }
        Self {
            source: SocketAddr::new(source, header.source_port),
            destination: SocketAddr::new(destination, header.destination_port),
            destination_mac: frame[..6].try_into().unwrap(),
            source_mac: frame[6..12].try_into().unwrap(),
            tags,
            unchecked,
            scion: datagram[8..].to_vec(),
        }
    }

    pub(crate) fn to(local: SocketAddr, remote: SocketAddr, scion: Vec<u8>) -> Self {
        Self {
            source: local,
            destination: remote,
            source_mac: mac(local, 1),
            destination_mac: mac(remote, 2),
            tags: Vec::new(),
            unchecked: false,
            scion,
        }
    }

    /// By a link of the router.
    pub(crate) fn by_link(interface: u16, scion: Vec<u8>) -> Self {
        Self::to(local_of(interface), remote_of(interface), scion)
    }

    pub(crate) fn to_sibling(place: usize, scion: Vec<u8>) -> Self {
        Self::to(internal(), sibling(place), scion)
    }

    pub(crate) fn to_host(host: SocketAddr, scion: Vec<u8>) -> Self {
        Self {
            source: internal(),
            source_mac: DEVICE_MAC,
            destination_mac: HOST_MAC,
            ..Self::to(internal(), host, scion)
        }
    }
}

/// What became of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Sent, with the counter it moved and where.
    Sent(Box<Sent>, Traffic, u16),
    /// Passed unchanged.
    Passed(Reason),
    Dropped(Reason),
    /// Passed unchanged and not counted.
    Ignored,
}

/// The router under test.
pub(crate) struct Bed {
    pub(crate) netns: Netns,
    _lan: Netns,
    pub(crate) programs: RouterPrograms,
    pub(crate) conditions: Conditions,
    pub(crate) engine: forward::Router,
    pub(crate) slots: Slots,
}

impl Bed {
    pub(crate) fn new() -> Self {
        Self::with(Conditions::default(), RouterOptions::default())
    }

    pub(crate) fn with(conditions: Conditions, options: RouterOptions) -> Self {
        let (netns, lan) = (Netns::new("router"), Netns::new("hosts"));
        veth((&netns, "hosts"), (&lan, "lan"));
        for command in [
            "link set hosts address 02:00:00:00:00:11 mtu 1400",
            "addr add 10.2.0.9/24 dev hosts",
            "addr add fd00:2::9/64 dev hosts nodad",
            "neigh add 10.2.0.1 lladdr 02:00:00:00:00:99 dev hosts nud permanent",
            "neigh add fd00:2::1 lladdr 02:00:00:00:00:99 dev hosts nud permanent",
            "route add unreachable 10.8.0.0/16",
            "route add blackhole 10.9.0.0/16",
            "route add prohibit 10.10.0.0/16",
        ] {
            netns.ip(command);
        }
        netns.run(|| {
            for family in ["ipv4", "ipv6"] {
                for device in ["all", "lo", "hosts"] {
                    let file = format!("/proc/sys/net/{family}/conf/{device}/forwarding");
                    std::fs::write(file, "1").unwrap();
                }
            }
        });
        let mut programs = RouterPrograms::load(options).unwrap();
        let hosts = netns.run(|| {
            let hosts = index_of("hosts");
            programs.add_device(LO).unwrap();
            programs.add_device(hosts).unwrap();
            hosts
        });
        assert_ne!(hosts, LO);
        let mut bed = Self {
            netns,
            _lan: lan,
            programs,
            conditions,
            engine: forward::Router::new(Arc::new(model())),
            slots: Slots::default(),
        };
        bed.programs
            .set_clock((NOW.as_nanos() as u64).wrapping_sub(boot_clock()))
            .unwrap();
        bed.configure(model(), 0);
        bed
    }

    /// Puts a model into force.
    pub(crate) fn configure(&mut self, model: AsModel, cpus: u16) {
        self.slots.update(&model);
        let spread = Spread { cpus, seed: 7 };
        let tables = fast::tables(&model, &self.conditions, &self.slots, spread);
        self.programs.set(&tables).unwrap();
        self.engine = forward::Router::new(Arc::new(model));
    }

    /// Runs the program over a frame. Exactly the counters of what became of it must have moved.
    pub(crate) fn fate(&self, frame: &[u8]) -> Fate {
        self.fate_of(frame, || self.programs.test_run(frame, None).unwrap())
    }

    /// As [`Self::fate`], on a CPU of those that the process may use.
    pub(crate) fn fate_on(&self, cpu: usize, frame: &[u8]) -> Fate {
        self.fate_of(frame, || {
            run_on(cpu);
            self.programs.test_run(frame, None).unwrap()
        })
    }

    fn fate_of(&self, frame: &[u8], run: impl FnOnce() -> TestOutcome + Send) -> Fate {
        let before = self.counters();
        let outcome = self.netns.run(run);
        let mut moved: Vec<_> = self
            .counters()
            .into_iter()
            .zip(before)
            .filter(|(after, before)| after != before)
            .map(|((what, after), (_, before))| {
                assert_eq!(after, before + 1, "{what:?}");
                what
            })
            .collect();
        // What is for an endpoint is counted as received, but for datagrams of strangers.
        let input = moved
            .iter()
            .position(|what| matches!(what, Counter::Sent(_, Traffic::Input)));
        if let Some(input) = input {
            moved.remove(input);
        }
        match (outcome.action, &moved[..]) {
            (XDP_REDIRECT, [Counter::Sent(slot, traffic)]) => {
                assert!(input.is_some());
                Fate::Sent(Box::new(Sent::read(&outcome.frame)), *traffic, *slot)
            }
            (XDP_PASS, [Counter::Stopped(_, reason)]) => {
                assert_eq!(outcome.frame, frame, "passed, but changed");
                Fate::Passed(*reason)
            }
            (XDP_PASS, []) if input.is_none() => {
                assert_eq!(outcome.frame, frame, "ignored, but changed");
                Fate::Ignored
            }
            (XDP_DROP, [Counter::Stopped(_, reason)]) => Fate::Dropped(*reason),
            (action, moved) => panic!("action {action}, counters {moved:?}"),
        }
    }

    pub(crate) fn is_sent(&self, that: &str, frame: &[u8], sent: Sent, traffic: Traffic) {
        match self.fate(frame) {
            Fate::Sent(found, found_traffic, _) => {
                assert_eq!(*found, sent, "{that}");
                assert_eq!(found_traffic, traffic, "{that}");
            }
            other => panic!("{that}: {other:?}"),
        }
    }

    pub(crate) fn passes(&self, that: &str, frame: &[u8], reason: Reason) {
        assert_eq!(self.fate(frame), Fate::Passed(reason), "{that}");
    }

    pub(crate) fn is_dropped(&self, that: &str, frame: &[u8], reason: Reason) {
        assert_eq!(self.fate(frame), Fate::Dropped(reason), "{that}");
    }

    pub(crate) fn is_ignored(&self, that: &str, frame: &[u8]) {
        assert_eq!(self.fate(frame), Fate::Ignored, "{that}");
    }

    fn counters(&self) -> Vec<(Counter, u64)> {
        let mut counters = Vec::new();
        let slots = self.slots.iter().map(|(_, slot)| slot);
        for slot in [0].into_iter().chain(slots) {
            let traffic = self.programs.traffic(slot).unwrap();
            for kind in Traffic::ALL {
                counters.push((Counter::Sent(slot, kind), traffic.total(kind).packets));
            }
            for (reason, packets) in self.programs.reasons(slot).unwrap().iter() {
                counters.push((Counter::Stopped(slot, reason), packets));
            }
        }
        counters
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counter {
    /// Traffic at a slot, received as well.
    Sent(u16, Traffic),
    Stopped(u16, Reason),
}

pub(crate) fn index_of(device: &str) -> u32 {
    let name = std::ffi::CString::new(device).unwrap();
    // SAFETY: a string with its end mark.
    unsafe { libc::if_nametoindex(name.as_ptr()) }
}

/// Moves the calling thread to one of the CPUs that it may use.
fn run_on(number: usize) {
    // SAFETY: sets of CPUs are plain bits, valid all zero; the kernel and the macros read and write within them.
    unsafe {
        let mut all: libc::cpu_set_t = std::mem::zeroed();
        let size = size_of_val(&all);
        assert_eq!(libc::sched_getaffinity(0, size, &raw mut all), 0);
        let cpu = (0..libc::CPU_SETSIZE as usize)
            .filter(|cpu| libc::CPU_ISSET(*cpu, &all))
            .nth(number)
            .expect("as many CPUs");
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut one);
        assert_eq!(libc::sched_setaffinity(0, size, &raw const one), 0);
    }
}

/// Nanoseconds of the boot clock.
fn boot_clock() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a value that lives until the call returns.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    assert_eq!(result, 0);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
