//! What the program does, once more: over a vector of bytes, with the tables at hand and routes in a list.

use std::collections::BTreeMap;

use sig_common::srv6::{
    Behavior, Cause, Flavors, Sid, Step, Way,
    filter::Action,
    maps::{Adjacency, FlowKey, Function, Policy, Port, Reason},
    process,
};
use sig_common::wire::{
    inner::InnerPacket,
    srv6::{self, Hmac, View},
};
use sig_linux::bpf::Sr;

use super::bed::{FOURTH, MTU, OUT, Outcome, SECOND, TABLE};
use super::headers::{Put, insert, look, prepend, put, put_frame};
use super::packets::{ETHERNET, IPV4};
use super::rules::{Ruled, judge};
use crate::frames::LO;

/// Bytes in front of IP.
pub(crate) const IP: usize = 14;
/// Bytes that the program can hold.
pub(crate) const ROOM: usize = 208;
/// How often a packet may start over.
const AGAIN: usize = 33;

pub(crate) struct Model {
    pub(crate) sr: Sr,
    /// Headers of the last packet to each function, and what was behind them.
    pub(crate) caches: BTreeMap<u32, (Vec<u8>, u8)>,
    /// Headers of each flow; none where it has ended its chain.
    pub(crate) flows: BTreeMap<FlowKey, Vec<u8>>,
    pub(crate) out: u32,
    pub(crate) other: u32,
    pub(crate) rules: Vec<Ruled>,
    /// Packets and bytes of each rule.
    pub(crate) applied: Vec<(u64, u64)>,
    /// Those of the last packet.
    pub(crate) copies: Vec<(u16, Vec<u8>)>,
    /// How often the packet has started over.
    depth: usize,
    /// MAC address of the device that the packet came in by.
    mac: [u8; 6],
}

/// Where the kernel's tables lead.
enum Route {
    To([u8; 6]),
    /// A neighbour whose MAC address is not known, behind `out` or the other device.
    Ask([u8; 16], bool),
    /// By the device that does not send.
    Other,
    TooBig,
    None,
}

fn refuse(reason: Reason) -> Outcome {
    Outcome::dropped(reason)
}

fn passed(frame: Vec<u8>) -> Outcome {
    Outcome::passed(frame, &[])
}

pub(crate) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

impl Model {
    pub(crate) fn new(sr: Sr, rules: Vec<Ruled>, out: u32, other: u32) -> Self {
        Self {
            sr,
            caches: BTreeMap::new(),
            flows: BTreeMap::new(),
            out,
            other,
            applied: vec![(0, 0); rules.len()],
            rules,
            copies: Vec::new(),
            depth: 0,
            mac: [0; 6],
        }
    }

    pub(crate) fn run(&mut self, frame: &[u8]) -> Outcome {
        self.depth = 0;
        self.copies.clear();
        let frame = frame.to_vec();
        let Some(port) = self.sr.ports.get(&LO).copied() else {
            return passed(frame);
        };
        self.mac = port.mac;
        if port.flags & Port::RETURN != 0 {
            return self.returned(frame, port.function);
        }
        if port.flags & Port::FRAMES != 0 {
            let Some(policy) = self.sr.policies.get(&port.function).copied() else {
                return passed(frame);
            };
            return match put_frame(&frame, &policy, port.mac) {
                Put::Done(frame) => self.go_on(frame, None, true),
                Put::TooBig(_) => refuse(Reason::TooBig),
                _ => refuse(Reason::TooLong),
            };
        }
        if frame[..6] != port.mac {
            return passed(frame);
        }
        let kind = be16(&frame, 12);
        let trusted = port.flags & Port::TRUSTED != 0;
        if matches!(kind, 0x8100 | 0x88a8) {
            let is_looked_at =
                !trusted || !self.rules.is_empty() || port.flags & Port::STEERED != 0;
            return match frame.len() >= 16 && be16(&frame, 14) & 0xfff == 0 && is_looked_at {
                true => refuse(Reason::PriorityTag),
                false => passed(frame),
            };
        }
        let mut found = None;
        if kind == 0x86dd
            && let Some(destination) = address(&frame)
        {
            found = self.sid_of(destination);
            match found {
                Some(_) if trusted && port.flags & Port::VERIFIED != 0 => {
                    self.depth = 2;
                    if let Some(outcome) = self.verify(&frame, port.flags) {
                        return outcome;
                    }
                }
                Some(_) if trusted => {}
                Some(_) => return refuse(Reason::Untrusted),
                None => {
                    let mut locators = self.sr.locators.keys();
                    if !trusted
                        && locators.any(|net| net.contains(&std::net::IpAddr::from(destination)))
                    {
                        return refuse(Reason::Untrusted);
                    }
                }
            }
        }
        let is_exempt = found.is_none() && !self.is_ruled(&frame);
        let Some(verdict) = judge(&self.rules, &frame, found.as_ref(), is_exempt) else {
            return refuse(Reason::Malformed);
        };
        for rule in &verdict.applied {
            let (packets, bytes) = &mut self.applied[*rule];
            *packets += 1;
            *bytes += (frame.len() - IP) as u64;
        }
        self.copies = verdict.copies;
        let mut action = verdict.action;
        if let Some(sid) = &found {
            if action == Action::EvalArguments {
                let bits = be16(&frame, 52) & u16::try_from((1_u32 << sid.arguments) - 1).unwrap();
                action = match bits {
                    0 => Action::Accept,
                    1 => Action::Drop,
                    2 => Action::GoNext,
                    3 => Action::SkipNext,
                    4 => Action::GoLast,
                    _ => return Outcome::told(Reason::BadArguments, 24, &frame[IP..]),
                };
            }
            let end = Sid::new(Behavior::End, Flavors(0), 0, sid.slot);
            return match action {
                Action::Drop => refuse(Reason::Filtered),
                Action::GoNext => self.endpoint(frame, end),
                Action::SkipNext | Action::GoLast => self.past(frame, action, end),
                _ => self.endpoint(frame, *sid),
            };
        }
        if action == Action::Drop {
            return refuse(Reason::Filtered);
        }
        if port.flags & Port::STEERED == 0 {
            return passed(frame);
        }
        let destination: Option<std::net::IpAddr> = match kind {
            0x0800 => frame
                .get(30..34)
                .map(|a| <[u8; 4]>::try_from(a).unwrap().into()),
            0x86dd => address(&frame).map(Into::into),
            _ => None,
        };
        let is_martian = match kind {
            0x0800 => matches!(frame.get(26), None | Some(0 | 127 | 224..)),
            _ => match frame.get(22..30) {
                Some(source) => {
                    source[0] == 0xff
                        || source == [0; 8]
                        || source[0] == 0xfe && source[1] >> 6 == 2
                }
                None => true,
            },
        };
        if is_martian {
            return passed(frame);
        }
        let number = match destination.and_then(|destination| self.steered(destination)) {
            Some(0) => return passed(frame),
            _ if action == Action::Steer => verdict.policy,
            Some(number) => number,
            None => return passed(frame),
        };
        let Some(policy) = self.sr.policies.get(&number) else {
            return passed(frame);
        };
        let policy = *policy;
        let made = match policy.flags & Policy::INSERT != 0 {
            true => insert(frame.clone(), &policy),
            false => put(frame.clone(), &policy, true),
        };
        match made {
            Put::Pass => passed(frame),
            Put::Unreadable => refuse(Reason::Malformed),
            Put::Done(frame) => self.go_on(frame, None, true),
            Put::TooBig(room) => Outcome::told(Reason::TooBig, room, &frame[IP..]),
            Put::NoRoom => refuse(Reason::TooLong),
        }
    }

    /// What becomes of a packet whose HMAC is wrong, or missing.
    fn verify(&self, frame: &[u8], flags: u32) -> Option<Outcome> {
        let packet = &frame[IP..];
        let missing = (flags & Port::AUTHENTIC != 0).then(|| refuse(Reason::Hmac));
        let Ok(srh) = srv6::parse(packet) else {
            return missing;
        };
        let (mut at, end) = (usize::from(srh.tlvs()), usize::from(srh.after()));
        for _ in 0..8 {
            if at + 2 > end {
                return missing;
            }
            match packet[at] {
                0 => at += 1,
                5 => {
                    let wrong = Outcome::told(Reason::Hmac, at as u32, packet);
                    if packet[at + 1] != 38 || at + 40 > end {
                        return Some(wrong);
                    }
                    let hmac = Hmac {
                        bits: be16(packet, at + 2),
                        key_id: u32::from_be_bytes(packet[at + 4..at + 8].try_into().unwrap()),
                        mac: &packet[at + 8..at + 40],
                    };
                    let Some(key) = self.sr.hmac_keys.get(&hmac.key_id) else {
                        return Some(wrong);
                    };
                    let active = srh.segment(packet, srh.segments_left);
                    let is_active = active == address(frame);
                    if key.flags == 0 && !hmac.destination_is_unverified() && !is_active {
                        return Some(wrong);
                    }
                    if srh.last_entry >= 16 {
                        return Some(refuse(Reason::TooLong));
                    }
                    let view = View::new_checked(&packet[usize::from(srh.offset)..]).unwrap();
                    let text = view.hmac_text(packet[8..24].try_into().unwrap(), &hmac);
                    return (key.mac(&text) != hmac.mac).then_some(wrong);
                }
                _ => at += 2 + usize::from(packet[at + 1]),
            }
        }
        Some(refuse(Reason::TooLong))
    }

    /// The policy for a destination; 0: this host.
    fn steered(&self, destination: std::net::IpAddr) -> Option<u32> {
        let nets = self.sr.steered.iter();
        let nets = nets.filter(|(net, _)| net.contains(&destination));
        nets.max_by_key(|(net, _)| net.prefix_len())
            .map(|(_, number)| *number)
    }

    /// Whether a frame to no SID meets rules.
    fn is_ruled(&self, frame: &[u8]) -> bool {
        let is_to_this_host = || address(frame).and_then(|to| self.steered(to.into())) == Some(0);
        is_routable(frame) && (!is_discovery(frame) || !is_to_this_host())
    }

    /// The local SID with this address, arguments included.
    fn sid_of(&self, address: [u8; 16]) -> Option<Sid> {
        if let Some(sid) = self.sr.sids.get(&address.into()) {
            return Some(*sid);
        }
        let address = u128::from_be_bytes(address);
        let mut sids = self.sr.sids.iter().collect::<Vec<_>>();
        // The longest prefix.
        sids.sort_by_key(|(_, sid)| sid.arguments);
        let found = sids.into_iter().find(|(of, sid)| {
            sid.arguments != 0 && of.to_bits() >> sid.arguments == address >> sid.arguments
        });
        found.map(|(_, sid)| *sid)
    }

    /// As at `End`, after segments that are left out.
    fn past(&mut self, mut frame: Vec<u8>, action: Action, end: Sid) -> Outcome {
        let Ok(srh) = srv6::parse(&frame[IP..]) else {
            return self.endpoint(frame, end);
        };
        let at = IP + usize::from(srh.offset) + 3;
        if action == Action::SkipNext && srh.segments_left == 1 {
            let pointer = (at - IP) as u32;
            return Outcome::told(Reason::BadHeader, pointer, &frame[IP..]);
        }
        if srh.segments_left == 0 || frame[21] <= 1 {
            // As at `End`; errors are about the packet as it came.
            return self.endpoint(frame, end);
        }
        frame[at] = match action {
            Action::SkipNext => srh.segments_left - 1,
            _ => 1,
        };
        self.endpoint(frame, end)
    }

    /// For the kernel, which takes what is addressed to the device.
    fn addressed(&self, mut frame: Vec<u8>) -> Vec<u8> {
        frame[..6].copy_from_slice(&self.mac);
        frame
    }

    /// `step`: of the SID that the packet comes from.
    fn go_on(&mut self, mut frame: Vec<u8>, step: Option<&Step>, fresh: bool) -> Outcome {
        self.depth += 1;
        if self.depth > AGAIN {
            return refuse(Reason::TooManySids);
        }
        let destination = address(&frame).expect("an IPv6 packet");
        match self.sid_of(destination) {
            Some(sid) => {
                if step.is_some_and(|step| step.exposed == 0) {
                    frame[IP + 7] -= 1;
                }
                self.endpoint(frame, sid)
            }
            None => self.by_table(frame, 0, fresh),
        }
    }

    fn endpoint(&mut self, frame: Vec<u8>, sid: Sid) -> Outcome {
        let step = match process(&frame[IP..], &sid) {
            Ok(step) => step,
            Err(refusal) => {
                let reason = match refusal.cause {
                    Cause::Malformed => return refuse(Reason::Malformed),
                    Cause::Inner => return refuse(Reason::BadInner),
                    Cause::ChainEnd => return refuse(Reason::ChainEnd),
                    Cause::HopLimit => Reason::HopLimit,
                    Cause::Header => Reason::BadHeader,
                    Cause::UpperLayer => Reason::UpperLayer,
                };
                return Outcome::told(reason, refusal.pointer.into(), &frame[IP..]);
            }
        };
        if step.way == Way::Function {
            return self.give(frame, step);
        }
        let Some(frame) = rewrite(frame, &step) else {
            return refuse(Reason::TooLong);
        };
        let is_inner = step.exposed == 41 && !sid.flavors.has(Flavors::USD);
        if is_inner && self.is_in_locator(&frame) {
            return refuse(Reason::Untrusted);
        }
        match step.way {
            Way::Local => passed(self.addressed(frame)),
            Way::Device if step.target == self.out => Outcome::sent(frame),
            Way::Device => refuse(Reason::NoDevice),
            Way::Adjacency => match self.sr.adjacencies.get(&step.target).copied() {
                Some(adjacency) => self.to(frame, &adjacency, true),
                None => refuse(Reason::NoAdjacency),
            },
            _ if step.target == 0 && step.exposed != IPV4 => self.go_on(frame, Some(&step), false),
            _ => self.by_table(frame, step.target, false),
        }
    }

    fn give(&mut self, mut frame: Vec<u8>, mut step: Step) -> Outcome {
        let number = step.target;
        let Some(function) = self.sr.functions.get(&number).copied() else {
            return refuse(Reason::FunctionDown);
        };
        let strip = usize::from(step.strip);
        if function.flags & Function::UP == 0 {
            if function.flags & Function::BYPASS == 0 {
                return refuse(Reason::FunctionDown);
            }
            if function.flags & Function::CONFIGURED != 0 {
                let frame = rewrite(frame, &step).expect("nothing moves");
                return self.configured(frame, function.policy);
            }
            if !(step.advances || step.masquerades) {
                let frame = rewrite(frame, &step).expect("nothing moves");
                return self.by_table(frame, 0, false);
            }
            if step.masquerades {
                step.destination = step.srh.next_segment(&frame[IP..]).expect("as before");
                step.masquerades = false;
                step.advances = true;
            }
            step.strip = 0;
            step.exposed = 0;
            let frame = rewrite(frame, &step).expect("nothing moves");
            return self.go_on(frame, Some(&step), false);
        }
        if step.advances || step.masquerades {
            frame[IP + 7] -= 1;
        }
        let frame = rewrite(frame, &Step { strip: 0, ..step }).expect("nothing moves");
        let is_cached = strip != 0 && function.flags & Function::CACHED != 0;
        if is_cached && function.flows != 0 {
            let inner = InnerPacket::parse(&frame[IP + strip..]).expect("it was looked at");
            let mut headers = Vec::new();
            if step.advances {
                if strip > ROOM {
                    return refuse(Reason::TooLong);
                }
                headers = frame[IP..IP + strip].to_vec();
                headers[..6].copy_from_slice(&[0x60, 0, 0, 0, 0, 0]);
            }
            self.flows
                .insert(FlowKey::of(&inner, function.flows), headers);
        } else if is_cached && !step.advances {
            self.caches.remove(&number);
        } else if is_cached {
            if strip > ROOM {
                return refuse(Reason::TooLong);
            }
            let mut headers = frame[IP..IP + strip].to_vec();
            headers[..6].copy_from_slice(&[0x60, 0, 0, 0, 0, 0]);
            self.caches.insert(number, (headers, step.exposed));
        }
        let frame = strip_front(frame, strip, step.exposed);
        self.to(frame, &function.to, false)
    }

    fn returned(&mut self, frame: Vec<u8>, number: u32) -> Outcome {
        let Some(function) = self.sr.functions.get(&number).copied() else {
            return passed(frame);
        };
        if !is_ordinary(&frame) {
            return passed(frame);
        }
        if function.flags & Function::MASQUERADED != 0 {
            return self.unmask(frame);
        }
        if function.flags & Function::CONFIGURED != 0 {
            return self.configured(frame, function.policy);
        }
        let inside = look(&frame);
        if function.flows != 0 {
            let (Some(inside), Ok(inner)) = (&inside, InnerPacket::parse(&frame[IP..])) else {
                return refuse(Reason::NotReturned);
            };
            return match self.flows.get(&FlowKey::of(&inner, function.flows)) {
                Some(headers) if !headers.is_empty() => {
                    let frame = prepend(&frame, inside, headers);
                    self.go_on(frame, None, true)
                }
                _ if function.flags & Function::LAST != 0 => self.by_table(frame, 0, false),
                _ => refuse(Reason::NoHeaders),
            };
        }
        let Some((headers, exposed)) = self.caches.get(&number) else {
            if inside.is_some() && function.flags & Function::LAST != 0 {
                return self.by_table(frame, 0, false);
            }
            return refuse(match inside {
                Some(_) => Reason::NoHeaders,
                None => Reason::NotReturned,
            });
        };
        match inside {
            Some(inside) if inside.next == *exposed => {
                let frame = prepend(&frame, &inside, headers);
                self.go_on(frame, None, true)
            }
            _ => refuse(Reason::NotReturned),
        }
    }

    fn is_in_locator(&self, frame: &[u8]) -> bool {
        let destination = std::net::IpAddr::from(address(frame).expect("an IPv6 packet"));
        self.sr
            .locators
            .keys()
            .any(|net| net.contains(&destination))
    }

    /// A packet that has its SRH still.
    fn unmask(&mut self, mut frame: Vec<u8>) -> Outcome {
        if be16(&frame, 12) != 0x86dd {
            return passed(self.addressed(frame));
        }
        let srh = match srv6::parse(&frame[IP..]) {
            Ok(srh) if srh.segments_left > 0 => srh,
            Ok(_) | Err(srv6::Reject::Absent) => return passed(self.addressed(frame)),
            Err(_) => return refuse(Reason::Malformed),
        };
        let next = srh.next_segment(&frame[IP..]).expect("it was parsed");
        frame[38..54].copy_from_slice(&next);
        frame[IP + usize::from(srh.offset) + 3] -= 1;
        self.go_on(frame, None, true)
    }

    /// Behind the headers of a static proxy.
    fn configured(&mut self, frame: Vec<u8>, policy: u32) -> Outcome {
        let Some(policy) = self.sr.policies.get(&policy).copied() else {
            return refuse(Reason::NoHeaders);
        };
        match put(frame.clone(), &policy, true) {
            Put::Done(frame) => self.go_on(frame, None, true),
            Put::TooBig(room) => Outcome::told(Reason::TooBig, room, &frame[IP..]),
            Put::Pass | Put::Unreadable => refuse(Reason::NotReturned),
            Put::NoRoom => refuse(Reason::TooLong),
        }
    }

    fn to(&self, frame: Vec<u8>, adjacency: &Adjacency, is_hop: bool) -> Outcome {
        let len = frame.len() - IP;
        if adjacency.known == 0 {
            return refuse(Reason::NoAdjacency);
        }
        if len > adjacency.mtu as usize {
            return Outcome::told(Reason::TooBig, adjacency.mtu, &frame[IP..]);
        }
        if adjacency.ifindex != self.out {
            return refuse(Reason::NoDevice);
        }
        let mut sent = frame.clone();
        if is_hop && !take_hop(&mut sent) {
            return Outcome::told(Reason::HopLimit, 0, &frame[IP..]);
        }
        sent[..12].copy_from_slice(&adjacency.macs);
        Outcome::sent(sent)
    }

    fn by_table(&self, mut frame: Vec<u8>, table: u32, fresh: bool) -> Outcome {
        let is_main = table == 0;
        let is_v4 = be16(&frame, 12) == 0x0800;
        let kernel = |frame| Outcome::passed(self.addressed(frame), &[Reason::ToKernel]);
        let (hops, destination, len) = match is_v4 {
            true if is_main && frame[IP] != 0x45 => return kernel(frame),
            true => (
                frame[22],
                v4_mapped(&frame[30..34]),
                be16(&frame, 16).into(),
            ),
            false => (
                frame[21],
                address(&frame).unwrap(),
                u32::from(be16(&frame, 18)) + 40,
            ),
        };
        if hops <= 1 && !fresh {
            return match is_main {
                true => kernel(frame),
                false => refuse(Reason::HopLimit),
            };
        }
        let packet = &frame[IP..];
        let is_strict = !is_v4 && (is_strict(&frame[22..38]) || is_strict(&frame[38..54]));
        let route = match is_strict {
            true => Route::None,
            false => route(table, is_v4, destination, len),
        };
        match route {
            Route::To(mac) => {
                if !fresh {
                    assert!(take_hop(&mut frame));
                }
                frame[..6].copy_from_slice(&mac);
                frame[6..12].copy_from_slice(&OUT);
                Outcome::sent(frame)
            }
            _ if is_main => kernel(frame),
            Route::Other => refuse(Reason::NoDevice),
            Route::Ask(address, is_out) => {
                let ifindex = if is_out { self.out } else { self.other };
                Outcome::told_of(Reason::Resolve, 0, packet, ifindex, address)
            }
            Route::TooBig => refuse(Reason::TooBig),
            Route::None => refuse(Reason::NoRoute),
        }
    }
}

/// Whether this is no business between neighbours.
pub(crate) fn is_ordinary(frame: &[u8]) -> bool {
    is_routable(frame) && !is_discovery(frame)
}

fn is_routable(frame: &[u8]) -> bool {
    let ordinary = match be16(frame, 12) {
        0x0800 => frame
            .get(30..34)
            .is_some_and(|to| to[0] < 224 && to[..2] != [169, 254]),
        0x86dd => frame.get(38..40).is_some_and(|to| {
            let local = |first: u8, second: u8| first == 0xfe && second >> 6 == 2;
            to[0] != 0xff && !local(to[0], to[1]) && !local(frame[22], frame[23])
        }),
        _ => false,
    };
    ordinary && frame[0] & 1 == 0
}

fn is_discovery(frame: &[u8]) -> bool {
    be16(frame, 12) == 0x86dd
        && frame.len() >= 56
        && frame[20..22] == [58, 255]
        && (133..=137).contains(&frame[54])
}

/// The destination of an IPv6 packet.
fn address(frame: &[u8]) -> Option<[u8; 16]> {
    frame.get(38..54)?.try_into().ok()
}

/// Whether an address is never forwarded: multicast, link-local, loopback.
fn is_strict(address: &[u8]) -> bool {
    let loopback = std::net::Ipv6Addr::LOCALHOST.octets();
    address[0] == 0xff || address[0] == 0xfe && address[1] >> 6 == 2 || address == loopback
}

fn v4_mapped(address: &[u8]) -> [u8; 16] {
    let mut mapped = [0; 16];
    mapped[10..12].fill(0xff);
    mapped[12..].copy_from_slice(address);
    mapped
}

/// As the namespace of the test has it.
fn route(table: u32, is_v4: bool, to: [u8; 16], len: u32) -> Route {
    let is_main = table == 0;
    if !is_main && table != TABLE {
        return Route::None;
    }
    let router = if is_main { SECOND } else { FOURTH };
    let (net, mtu) = match is_v4 {
        true if to[12] != 10 => return Route::None,
        true => (to[13], MTU[0]),
        false if to[..4] != [0x20, 1, 0xd, 0xb8] || to[4] != 0 => return Route::None,
        false => (to[5], MTU[1]),
    };
    // Names of the networks of both families.
    let kind = match (is_v4, net) {
        (true, 2) | (false, 0xb) => 2,
        (true, 3) | (false, 0xe) => 3,
        (true, 4) | (false, 0xc) => 4,
        (true, 5) | (false, 0xd) => 5,
        (_, 1) if is_main => 1,
        _ => return Route::None,
    };
    let mtu = if kind == 3 { mtu } else { 1500 };
    if len > mtu {
        return Route::TooBig;
    }
    match kind {
        1 => {
            let host = match is_v4 {
                true => to[14..] == [0, to[15]],
                false => to[6..15] == [0; 9],
            };
            match to[15] {
                2 if host => Route::To(SECOND),
                4 if host => Route::To(FOURTH),
                _ => Route::None,
            }
        }
        2 | 3 => Route::To(router),
        4 if is_v4 => Route::Ask(v4_mapped(&[10, 1, 0, 3]), true),
        4 => Route::Ask(super::packets::address("2001:db8:1::3"), true),
        _ if is_v4 && to[14..] == [0, 9] => Route::Other,
        _ if !is_v4 && to[6..] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 9] => Route::Other,
        _ => Route::Ask(to, false),
    }
}

/// RFC 1624, equation 3.
pub(crate) fn take_hop(frame: &mut [u8]) -> bool {
    let is_v4 = be16(frame, 12) == 0x0800;
    let at = IP + if is_v4 { 8 } else { 7 };
    if frame[at] <= 1 {
        return false;
    }
    let old = be16(frame, IP + 8);
    frame[at] -= 1;
    if is_v4 {
        let new = be16(frame, IP + 8);
        let mut sum = u32::from(!be16(frame, IP + 10)) + u32::from(!old) + u32::from(new);
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        frame[IP + 10..IP + 12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    }
    true
}

/// Changes a packet as a step says; `None` if its headers are too long.
fn rewrite(mut frame: Vec<u8>, step: &Step) -> Option<Vec<u8>> {
    let srh = IP + usize::from(step.srh.offset);
    if step.advances || step.masquerades {
        frame[38..54].copy_from_slice(&step.destination);
    }
    if step.advances {
        frame[srh + 3] -= 1;
    }
    if step.pops {
        if srh > ROOM {
            return None;
        }
        frame[IP + usize::from(step.srh.announced_at)] = step.srh.next_header;
        let len = be16(&frame, 18) - step.srh.len;
        frame[18..20].copy_from_slice(&len.to_be_bytes());
        frame.drain(srh..srh + usize::from(step.srh.len));
    }
    Some(strip_front(frame, step.strip.into(), step.exposed))
}

fn strip_front(mut frame: Vec<u8>, strip: usize, exposed: u8) -> Vec<u8> {
    if strip == 0 {
        return frame;
    }
    if exposed == ETHERNET {
        let end = IP + 40 + usize::from(be16(&frame, 18));
        return frame[IP + strip..end].to_vec();
    }
    frame.drain(IP..IP + strip);
    frame[12..14].copy_from_slice(match exposed {
        IPV4 => &[0x08, 0x00],
        _ => &[0x86, 0xdd],
    });
    frame
}
