//! The XDP program and the engine over the same packet.

use std::{
    fmt::Write as _,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use sig_common::{
    router::{maps::INSIDE_SLOT, reason::Disposition},
    wire::{PROTO_UDP, checksum, ethernet, ipv4, ipv6, udp},
};
use sig_linux::bpf::{RouterOptions, RouterPrograms};
use sig_router::{
    Owner,
    fast::{Arrival, Port, Slots, Spread, Underlay, UnderlayRoute, map_tag, tables},
    forward::{Ingress, Links as _, Reason, Router, Traffic, Verdict},
};

use super::{
    asys::{NOW, ip},
    random::{Dice, HOSTS, Place},
};

const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;

/// The device that test runs pretend packets to come in by; packets to other routers leave by it, too.
const LO: u32 = 1;
const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const NEXT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// MAC address that frames come for.
const RECEIVING_MAC: [u8; 6] = [0x66; 6];
/// VLANs that packets come in by; 0 is none, a tag with a priority only.
const VLANS: [u16; 3] = [0, 5, 10];
/// The VLAN that packets leave in, and in which those of a router behind it come in.
const EGRESS_VLAN: u16 = 77;

/// A VLAN as maps have it.
const fn tag(vlan: u16) -> u32 {
    map_tag(ethernet::Tag {
        tpid: ethernet::TPID_8021Q,
        tci: vlan,
    })
}

/// What the kernel knows of hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hosts {
    /// Nothing that a test could rely on.
    Unknown,
    /// Those of [`HOSTS`] are out through a device with this index, these MAC addresses and this MTU.
    Known {
        ifindex: u32,
        ours: [u8; 6],
        theirs: [u8; 6],
        mtu: usize,
    },
}

/// How a packet is wrapped.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wrapping {
    /// VLAN identifiers.
    pub(crate) tags: Vec<u16>,
    /// Bytes of IPv4 options, a multiple of 4.
    pub(crate) options: usize,
    pub(crate) padding: usize,
    pub(crate) no_checksum: bool,
    /// The source port is not that of the other end of the link.
    pub(crate) wrong_peer: bool,
}

impl Wrapping {
    pub(crate) fn any(dice: &mut Dice) -> Self {
        Self {
            tags: (0..dice.one(&[0, 0, 0, 1, 2]))
                .map(|_| dice.one(&VLANS))
                .collect(),
            options: dice.one(&[0, 0, 0, 4, 40]),
            padding: dice.one(&[0, 0, 1, 30]),
            no_checksum: dice.percent(15),
            wrong_peer: dice.percent(2),
        }
    }
}

/// The underlay of a place: which ways are known.
struct Ways<'a> {
    place: &'a Place,
    /// Numbers of the ports of next hops without a route, with a device that is not ours, with a VLAN.
    unknown: Vec<SocketAddr>,
    elsewhere: Vec<SocketAddr>,
    tagged: Vec<SocketAddr>,
}

impl Ways<'_> {
    fn mtu(&self, remote: SocketAddr) -> u16 {
        let model = &self.place.model;
        let headers = udp_headers(remote) as u16;
        let link = model.links().find(|(.., there)| *there == remote);
        let limit = match (link, model.sibling_at(remote)) {
            (Some((number, ..)), _) => self.place.interface_mtus.get(&number).copied(),
            (_, Some(place)) => self.place.sibling_mtus.get(&place).copied(),
            _ => None,
        };
        limit.map_or(0, |mtu| mtu + headers)
    }
}

impl Underlay for Ways<'_> {
    fn ports(&self) -> Vec<Port> {
        let mut tags = vec![[0; 2], [tag(EGRESS_VLAN), 0]];
        for outer in VLANS.into_iter().filter(|vlan| *vlan != 0) {
            for inner in VLANS {
                let inner = if inner == 0 { 0 } else { tag(inner) };
                tags.push([tag(outer), inner]);
            }
        }
        let port = |tags| Port {
            ifindex: LO,
            tags,
            mac: RECEIVING_MAC,
        };
        tags.into_iter().map(port).collect()
    }

    fn arrival(&self, _local: SocketAddr) -> Arrival {
        Arrival::Anywhere
    }

    fn route(&self, _local: SocketAddr, remote: SocketAddr) -> Option<UnderlayRoute> {
        (!self.unknown.contains(&remote)).then(|| UnderlayRoute {
            ifindex: if self.elsewhere.contains(&remote) {
                LO + 1000
            } else {
                LO
            },
            mtu: self.mtu(remote),
            tags: if self.tagged.contains(&remote) {
                [tag(EGRESS_VLAN), 0]
            } else {
                [0; 2]
            },
            fragments: true,
            source_mac: OUR_MAC,
            destination_mac: NEXT_MAC,
        })
    }

    fn is_up(&self, interface: u16) -> bool {
        match self.place.model.interfaces.get(&interface).map(|i| i.owner) {
            Some(Owner::Sibling(sibling)) => self.place.is_sibling_up(sibling),
            _ => self.place.is_interface_up(interface),
        }
    }
}

fn udp_headers(address: SocketAddr) -> usize {
    udp::HEADER_LEN
        + if address.is_ipv4() {
            ipv4::HEADER_LEN
        } else {
            ipv6::HEADER_LEN
        }
}

/// What the program is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Expected {
    Stop(Reason),
    /// By route of this counter, with this traffic.
    Send(Vec<u8>, u16, Traffic),
    /// To a host: it depends on the kernel's tables.
    Host,
}

/// The program with the tables of a place, and the engine.
pub(crate) struct Pair<'a> {
    programs: &'a mut RouterPrograms,
    router: Router,
    ways: Ways<'a>,
    slots: Slots,
    hosts: Hosts,
    /// What the boot clock lacks to the time of the place.
    offset: Duration,
}

/// The program, attached to nothing.
pub(crate) fn load(hosts: Hosts) -> RouterPrograms {
    let mut programs = RouterPrograms::load(RouterOptions::default()).expect("the programs load");
    programs.add_device(LO).expect("lo");
    if let Hosts::Known { ifindex, .. } = hosts {
        programs
            .add_device(ifindex)
            .expect("the device to the hosts");
    }
    programs
}

impl<'a> Pair<'a> {
    pub(crate) fn new(
        programs: &'a mut RouterPrograms,
        place: &'a Place,
        hosts: Hosts,
        dice: &mut Dice,
    ) -> Self {
        let model = &place.model;
        let remotes: Vec<SocketAddr> = model
            .links()
            .map(|(.., remote)| remote)
            .chain(model.siblings.iter().map(|sibling| sibling.internal))
            .collect();
        let mut some = |percent| -> Vec<SocketAddr> {
            let chosen = remotes.iter().filter(|_| dice.percent(percent));
            chosen.copied().collect()
        };
        let ways = Ways {
            place,
            unknown: some(5),
            // Siblings are known by the device that leads to them, and that is where packets come in.
            elsewhere: some(5)
                .into_iter()
                .filter(|remote| model.sibling_at(*remote).is_none())
                .collect(),
            tagged: some(30),
        };
        let mut slots = Slots::default();
        slots.update(model);
        programs
            .set(&tables(model, &ways, &slots, Spread::default()))
            .expect("the tables fit");
        let offset = NOW.saturating_sub(boot_clock());
        programs
            .set_clock(offset.as_nanos() as u64)
            .expect("a clock");
        Self {
            programs,
            router: Router::new(model.clone().into()),
            ways,
            slots,
            hosts,
            offset,
        }
    }

    /// Runs both over a SCION packet. Returns why the program does not forward it, or nothing if it does.
    ///
    /// # Errors
    /// In what they differ.
    pub(crate) fn check(
        &self,
        packet: &[u8],
        ingress: Ingress,
        wrapping: &Wrapping,
    ) -> Result<Option<Reason>, String> {
        let model = &self.ways.place.model;
        let (source, local, slot) = match ingress {
            Ingress::Internal(source) => (source, model.internal, INSIDE_SLOT),
            Ingress::External(interface) => {
                let link = model.links().find(|(number, ..)| *number == interface);
                let Some((_, _, local, remote)) = link else {
                    return Ok(None);
                };
                (remote, local, self.slots.of(interface))
            }
        };
        let mut wrapping = wrapping.clone();
        if model.sibling_at(source).is_some() && self.ways.route(local, source).is_some() {
            wrapping.tags = if self.ways.tagged.contains(&source) {
                vec![EGRESS_VLAN]
            } else {
                Vec::new()
            };
        }
        let wrapping = &wrapping;
        let wrong_peer = wrapping.wrong_peer && matches!(ingress, Ingress::External(_));
        let mut from = source;
        if wrong_peer {
            from.set_port(source.port() ^ 1);
        }
        let frame = frame(from, local, packet, wrapping);

        let now = boot_clock() + self.offset;
        let mut after = packet.to_vec();
        let outcome = self
            .router
            .process(&mut after, ingress, now, self.ways.place);
        let counts_input;
        let mut expected = if wrong_peer {
            counts_input = false;
            Expected::Stop(Reason::WrongPeer)
        } else if wrapping.no_checksum && local.is_ipv6() {
            counts_input = false;
            Expected::Stop(Reason::NoChecksum)
        } else if outcome.fast == Some(Reason::TooBig) {
            counts_input = true;
            self.too_big(packet, ingress, now)
        } else {
            counts_input = true;
            self.expected(
                &outcome.verdict,
                outcome.fast,
                outcome.traffic,
                &after,
                wrapping,
            )
        };

        if is_open(&frame) && matches!(expected, Expected::Send(..)) {
            expected = Expected::Stop(Reason::OpenChecksum);
        }

        let reasons = self.programs.reasons(slot).map_err(|e| e.to_string())?;
        let input = self.sent(slot, Traffic::Input)?;
        let sent = match &expected {
            Expected::Send(_, slot, traffic) => {
                Some((*slot, *traffic, self.sent(*slot, *traffic)?))
            }
            _ => None,
        };
        let result = self
            .programs
            .test_run(&frame, None)
            .map_err(|e| e.to_string())?;
        let counted: Vec<Reason> = self
            .programs
            .reasons(slot)
            .map_err(|e| e.to_string())?
            .iter()
            .filter(|(reason, count)| *count != reasons.of(*reason))
            .map(|(reason, _)| reason)
            .collect();
        let describe = |what: &str| {
            let expected = match &expected {
                Expected::Send(_, slot, traffic) => {
                    format!("sent, counted at {slot} as {traffic:?}")
                }
                other => format!("{other:?}"),
            };
            let mut text = format!(
                "{what}\nengine: {outcome:?}\nexpected: {expected}\nprogram: action {}, counted {counted:?}\n\
                 ingress: {ingress:?}, {wrapping:?}\npacket: ",
                result.action
            );
            hexadecimal(&mut text, packet);
            text
        };

        let input = self.sent(slot, Traffic::Input)? - input;
        if input != u64::from(counts_input) {
            return Err(describe("received packets are counted differently"));
        }
        match &expected {
            Expected::Stop(reason) => {
                let action = match reason.disposition() {
                    Disposition::Drop => XDP_DROP,
                    Disposition::Slow => XDP_PASS,
                };
                if result.action != action || counted != [*reason] {
                    return Err(describe("another verdict or reason"));
                }
                if result.frame != frame {
                    return Err(describe("written to what is not forwarded"));
                }
            }
            Expected::Send(out, ..) => {
                if result.action != XDP_REDIRECT || !counted.is_empty() {
                    return Err(describe("not forwarded"));
                }
                if result.frame != *out {
                    let mut text = describe("another frame");
                    text.push_str("\nthe engine's:  ");
                    hexadecimal(&mut text, out);
                    text.push_str("\nthe program's: ");
                    hexadecimal(&mut text, &result.frame);
                    return Err(text);
                }
            }
            Expected::Host => {
                let kernel = [
                    Reason::NoNeighbour,
                    Reason::NoFastWay,
                    Reason::TooBig,
                    Reason::NoHost,
                    Reason::FamilyChange,
                    Reason::OpenChecksum,
                ];
                let stopped = counted.len() == 1 && counted.iter().all(|r| kernel.contains(r));
                let sent = result.action == XDP_REDIRECT && counted.is_empty();
                if !(sent || stopped && result.frame == frame) {
                    return Err(describe("not delivered"));
                }
            }
        }
        if let Some((slot, traffic, before)) = sent
            && self.sent(slot, traffic)? != before + 1
        {
            return Err(describe("sent packets are counted differently"));
        }
        Ok(counted.first().copied())
    }

    fn sent(&self, slot: u16, traffic: Traffic) -> Result<u64, String> {
        let counts = self.programs.traffic(slot).map_err(|e| e.to_string())?;
        Ok(counts.total(traffic).packets)
    }

    /// What the program is to do with a packet that the engine has made this of.
    fn expected(
        &self,
        verdict: &Verdict,
        fast: Option<Reason>,
        traffic: Option<Traffic>,
        after: &[u8],
        wrapping: &Wrapping,
    ) -> Expected {
        let model = &self.ways.place.model;
        let (local, remote, slot) = match (verdict, fast) {
            (_, Some(reason)) => return Expected::Stop(reason),
            (Verdict::Forward { interface }, None) => {
                let link = model.links().find(|(number, ..)| number == interface);
                let (_, _, local, remote) = link.expect("a link");
                (local, remote, self.slots.of(*interface))
            }
            (Verdict::Sibling(place), None) => {
                (model.internal, model.siblings[*place].internal, INSIDE_SLOT)
            }
            (Verdict::Deliver(address), None) => return self.host(*address, after, wrapping),
            other => panic!("not forwarded, for no reason: {other:?}"),
        };
        let Some(route) = self.ways.route(local, remote) else {
            return Expected::Stop(Reason::NoNeighbour);
        };
        if route.mtu != 0 && after.len() + udp_headers(remote) > usize::from(route.mtu) {
            return Expected::Stop(Reason::TooBig);
        }
        if wrapping.no_checksum && remote.is_ipv6() {
            return Expected::Stop(Reason::FamilyChange);
        }
        if route.ifindex != LO {
            return Expected::Stop(Reason::NoFastWay);
        }
        let tagged = self.ways.tagged.contains(&remote);
        let wrapping = Wrapping {
            tags: tagged.then_some(EGRESS_VLAN).into_iter().collect(),
            no_checksum: wrapping.no_checksum,
            ..Wrapping::default()
        };
        let frame = forwarded(local, remote, after, &wrapping, (OUR_MAC, NEXT_MAC));
        Expected::Send(frame, slot, traffic.expect("a kind of traffic"))
    }

    /// Whether the program stops for the size of a packet, or before: it looks for the route first. The engine tells the
    /// route if there is room.
    fn too_big(&self, packet: &[u8], ingress: Ingress, now: Duration) -> Expected {
        let mut place = self.ways.place.clone();
        place.model.mtu = u16::MAX;
        for interface in place.model.interfaces.values_mut() {
            interface.mtu = u16::MAX;
        }
        let router = Router::new(place.model.clone().into());
        let outcome = router.process(&mut packet.to_vec(), ingress, now, &place);
        let remote = match outcome.verdict {
            Verdict::Forward { interface } => {
                let link = place
                    .model
                    .links()
                    .find(|(number, ..)| *number == interface);
                link.expect("a link").3
            }
            Verdict::Sibling(sibling) => place.model.siblings[sibling].internal,
            other => panic!("too big for what? {other:?}"),
        };
        Expected::Stop(if self.ways.unknown.contains(&remote) {
            Reason::NoNeighbour
        } else {
            Reason::TooBig
        })
    }

    fn host(&self, address: SocketAddr, after: &[u8], wrapping: &Wrapping) -> Expected {
        let Hosts::Known {
            ours, theirs, mtu, ..
        } = self.hosts
        else {
            return Expected::Host;
        };
        let internal = self.ways.place.model.internal;
        if !HOSTS.iter().any(|host| ip(host).ip() == Some(address.ip())) {
            return Expected::Host;
        }
        if address.is_ipv4() != internal.is_ipv4() {
            return Expected::Stop(Reason::NoFastWay);
        }
        if after.len() + udp_headers(address) > mtu {
            return Expected::Stop(Reason::TooBig);
        }
        if wrapping.no_checksum && address.is_ipv6() {
            return Expected::Stop(Reason::FamilyChange);
        }
        let wrapping = Wrapping {
            no_checksum: wrapping.no_checksum,
            ..Wrapping::default()
        };
        let frame = forwarded(internal, address, after, &wrapping, (ours, theirs));
        Expected::Send(frame, INSIDE_SLOT, Traffic::In)
    }
}

fn boot_clock() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a timespec that lives until the call returns.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    assert_eq!(result, 0, "the boot clock");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The frame that a router sends.
fn forwarded(
    source: SocketAddr,
    destination: SocketAddr,
    packet: &[u8],
    wrapping: &Wrapping,
    (ours, theirs): ([u8; 6], [u8; 6]),
) -> Vec<u8> {
    let mut frame = frame(source, destination, packet, wrapping);
    frame[..6].copy_from_slice(&theirs);
    frame[6..12].copy_from_slice(&ours);
    frame
}

/// An Ethernet frame with a UDP datagram.
fn frame(
    source: SocketAddr,
    destination: SocketAddr,
    packet: &[u8],
    wrapping: &Wrapping,
) -> Vec<u8> {
    let mut frame = RECEIVING_MAC.repeat(2);
    for tag in &wrapping.tags {
        frame.extend(ethernet::TPID_8021Q.to_be_bytes());
        frame.extend(tag.to_be_bytes());
    }
    let len = (udp::HEADER_LEN + packet.len()) as u16;
    let mut pseudo = Vec::new();
    match (source.ip(), destination.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            frame.extend(ethernet::ETHERTYPE_IPV4.to_be_bytes());
            let start = frame.len();
            let words = 5 + wrapping.options as u8 / 4;
            let total = len + u16::from(words) * 4;
            frame.extend([0x40 | words, 0]);
            frame.extend(total.to_be_bytes());
            frame.extend([0, 0, 0x40, 0, 64, PROTO_UDP, 0, 0]);
            frame.extend(from.octets());
            frame.extend(to.octets());
            // No operation.
            frame.resize(frame.len() + wrapping.options, 1);
            let sum = checksum::Sum::of(&frame[start..]).checksum();
            frame[start + 10..start + 12].copy_from_slice(&sum.to_be_bytes());
            pseudo.extend(from.octets());
            pseudo.extend(to.octets());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            frame.extend(ethernet::ETHERTYPE_IPV6.to_be_bytes());
            frame.extend([0x60, 0, 0, 0]);
            frame.extend(len.to_be_bytes());
            frame.extend([PROTO_UDP, 64]);
            frame.extend(from.octets());
            frame.extend(to.octets());
            pseudo.extend(from.octets());
            pseudo.extend(to.octets());
        }
        _ => panic!("two families: {source} and {destination}"),
    }
    pseudo.extend([0, PROTO_UDP]);
    pseudo.extend(len.to_be_bytes());
    let mut datagram = source.port().to_be_bytes().to_vec();
    datagram.extend(destination.port().to_be_bytes());
    datagram.extend(len.to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend(packet);
    if !wrapping.no_checksum {
        let sum = checksum::Sum::of(&pseudo).add_bytes(&datagram).checksum();
        let sum = if sum == 0 { u16::MAX } else { sum };
        datagram[6..8].copy_from_slice(&sum.to_be_bytes());
    }
    frame.extend(datagram);
    frame.resize(frame.len() + wrapping.padding, 0);
    frame
}

/// Whether the UDP checksum of a frame of [`frame`] is the sum over the pseudo-header: one of 65 536 right ones is.
fn is_open(frame: &[u8]) -> bool {
    let mut at = 12;
    while ethernet::is_tag(u16::from_be_bytes([frame[at], frame[at + 1]])) {
        at += ethernet::TAG_LEN;
    }
    let packet = &frame[at + 2..];
    let (addresses, udp) = if packet[0] >> 4 == 4 {
        (&packet[12..20], usize::from(packet[0] & 0x0f) * 4)
    } else {
        (&packet[8..40], ipv6::HEADER_LEN)
    };
    let datagram = &packet[udp..];
    let pseudo = checksum::Sum::of(addresses)
        .add_bytes(&[0, PROTO_UDP])
        .add_bytes(&datagram[4..6]);
    u16::from_be_bytes([datagram[6], datagram[7]]) == pseudo.fold()
}

fn hexadecimal(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
}
