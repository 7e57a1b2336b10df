//! What the gateway sends: its frames teach flows and paths, its probes tell which way it takes now.

use aya_ebpf::{bindings::__sk_buff, helpers, programs::TcContext};
use sig_common::accelerate::{
    Flow, MAX_HEADERS, NO_PATH, Path, ProbeKey, STREAM_BIT, Sighting, flow_tag, kind, mix, probes,
    target_place,
};
use sig_common::maps::RemoteKey;
use sig_common::wire::{
    Load as _, PROTO_UDP,
    datagram::{self, Datagram},
    ethernet, sig_frame, udp,
};

use super::{
    A_FLOWS, A_FRAMES, A_PATHS, A_PROBES, A_SCRATCH, A_SIGHTINGS, A_TARGETS, A_WAYS, GO_ON, LINEAR,
    inner::{self, Inner, Walk},
    now, pull, seed,
};
use crate::packet::{IP, Packet, opaque};

/// Packets that leave by the underlay device: looked at, and left as they are.
pub fn frames(ctx: &TcContext) -> i32 {
    let skb = ctx.skb.skb;
    // SAFETY: the context is of the running program.
    let (from, tagged, len) = unsafe { ((*skb).ingress_ifindex, (*skb).vlan_present, (*skb).len) };
    // What came in by another device is forwarded, or was encapsulated here. A VLAN's frames are of that device.
    if from != 0 || tagged != 0 || !may_be_udp(skb) {
        return GO_ON;
    }
    let mut datagram = Datagram::default();
    if !pull(skb, LINEAR) || !parse(skb, &mut datagram) {
        return GO_ON;
    }
    if is_probe(skb, &datagram) {
        sight_own(skb, &datagram, kind::PROBE);
    } else if datagram.payload_len > sig_frame::HEADER_LEN as u32 && pull(skb, len) {
        frame(skb, &datagram);
    }
    GO_ON
}

/// Whether the packet may be of UDP, as most of what passes is not: nothing of that is touched.
#[inline(always)]
pub fn may_be_udp(skb: *mut __sk_buff) -> bool {
    // SAFETY: the context is of the running program.
    let protocol = unsafe { (*skb).protocol as u16 };
    let packet = Packet::of_skb(skb, IP);
    // Two bytes each: of a comparison for one, the verifier does not learn that it is there.
    let upper = if protocol == ethernet::ETHERTYPE_IPV4.to_be() {
        packet.bytes(8).map(|[_, upper]| upper)
    } else if protocol == ethernet::ETHERTYPE_IPV6.to_be() {
        packet.bytes(6).map(|[upper, _]| upper)
    } else {
        return false;
    };
    upper.is_none_or(|upper| upper == PROTO_UDP)
}

/// A function of its own: the stack is small.
#[inline(never)]
pub fn parse(skb: *mut __sk_buff, out: &mut Datagram) -> bool {
    datagram::parse(&Packet::of_skb(skb, 0), out).is_some()
}

/// What is behind the headers of a datagram.
#[inline(always)]
pub fn payload(skb: *mut __sk_buff, datagram: &Datagram) -> Packet {
    Packet::of_skb(skb, datagram.payload() & 0x7ff)
}

/// Whether this can be a session probe of the reference gateway, or an answer: a protobuf message with one message in its first
/// field, that is empty or holds a number.
#[inline(always)]
pub fn is_probe(skb: *mut __sk_buff, datagram: &Datagram) -> bool {
    let payload = payload(skb, datagram);
    match datagram.payload_len {
        2 => payload.bytes(0) == Some([0x0a, 0]),
        4 => payload.bytes(0) == Some([0x0a, 2, 8]),
        5 => payload.bytes(0) == Some([0x0a, 3, 8]),
        _ => false,
    }
}

/// A frame, if this is one: its SIG header.
#[inline(always)]
pub fn header(skb: *mut __sk_buff, datagram: &Datagram) -> Option<sig_frame::Header> {
    let bytes: [u8; sig_frame::HEADER_LEN] = payload(skb, datagram).bytes(0)?;
    let [_, _, _, _, s0, s1, ..] = bytes;
    let reserved = s0 != 0 || s1 & 0xf0 != 0;
    sig_frame::Header::decode(&bytes).ok().filter(|_| !reserved)
}

/// A function of its own: the stack is small.
#[inline(never)]
fn frame(skb: *mut __sk_buff, datagram: &Datagram) -> u32 {
    let Some(header) = header(skb, datagram) else {
        return 0;
    };
    if header.stream & STREAM_BIT != 0 {
        return 0;
    }
    let now = now();
    let start = datagram.payload() as u32 + sig_frame::HEADER_LEN as u32;
    let end = datagram.payload() as u32 + datagram.payload_len;
    let walk = Walk {
        now,
        note: 0,
        start: start + u32::from(header.index),
        end,
        marks: 0,
    };
    let found = inner::walk(skb, &walk);
    let Some(sighting) = hash(skb, datagram, header.session) else {
        return 0;
    };
    // SAFETY: this CPU's element of a map; a word that is copied at once.
    let number = unsafe { A_FRAMES.get((*sighting).frame) }.copied();
    match number {
        None if found & inner::RELEASED != 0 => {
            report(skb, datagram, sighting, kind::FRAME, now);
        }
        None | Some(NO_PATH) => {}
        Some(number) => {
            let Some(path) = A_PATHS.get_ptr_mut(number) else {
                return 0;
            };
            let path: *mut Path = path;
            // SAFETY: an element of a map; of two CPUs that raise a word, one does so with the next frame. The number may
            // have become that of another form of frames while it was read; the way tells.
            let peer = unsafe {
                if (*path).way != (*sighting).way {
                    return 0;
                }
                seen((*path).way, now);
                if (*path).capacity < end - start {
                    (*path).capacity = end - start;
                }
                if found & inner::CUT != 0 {
                    (*path).full = end - start;
                }
                (*path).peer
            };
            if header.index == 0 {
                let path = u64::from(peer) << 32 | u64::from(number);
                teach(skb, start, end, path, now);
            }
        }
    }
    0
}

/// Keeps the path of a flow whose packet fills the frame alone: its number, and the peer in the upper half. A function of its
/// own: the stack is small.
#[inline(never)]
fn teach(skb: *mut __sk_buff, start: u32, end: u32, path: u64, now: u64) -> u32 {
    let mut inner = Inner::NONE;
    if !inner::read(skb, start, &mut inner) || inner.odd != 0 || inner.len != end - start {
        return 0;
    }
    let Some(target) = A_TARGETS.get_ptr_mut(target_place(&inner.key, seed())) else {
        return 0;
    };
    let (number, peer) = (path as u32, (path >> 32) as u32);
    let tag = flow_tag(&inner.key);
    // SAFETY: the value is copied at once; the tag tells whose it is.
    let known = unsafe { A_FLOWS.get(inner.key) };
    let is_same = known.is_some_and(|flow| flow.tag == tag && flow.peer == peer);
    // SAFETY: an element of a map; a word is read and written as a whole.
    let target = unsafe {
        // What the gateway decides anew counts for all flows to the destination; what it repeats, for this one: with several
        // peers for a destination, flows would unsettle each other for ever.
        if !is_same {
            target.write_volatile(peer);
        }
        target.read_volatile()
    };
    let flow = Flow {
        tag,
        path: number,
        peer,
        target,
        reserved: 0,
        used: now,
    };
    // If there is no room, the flow stays with the gateway.
    let _ = A_FLOWS.insert(inner.key, flow, 0);
    0
}

/// The gateway sent something this way.
#[inline(always)]
fn seen(way: u64, now: u64) {
    if let Some(time) = A_WAYS.get_ptr_mut(way) {
        // SAFETY: an element of a map; a word is written as a whole.
        unsafe { time.write_volatile(now) };
    }
}

/// Tells user space of a probe of our gateway, or of an answer to one.
#[inline(always)]
pub fn sight_own(skb: *mut __sk_buff, datagram: &Datagram, kind: u32) {
    let now = now();
    if is_own(datagram, kind, now) != 0 {
        sight(skb, datagram, kind, now);
    }
}

/// Whether our gateway is the one that probes between these ports. A function of its own: the stack is small.
#[inline(never)]
fn is_own(datagram: &Datagram, kind: u32, now: u64) -> u32 {
    let (source, destination) = (datagram.source_port, datagram.destination_port);
    let (isd_as, host, local, remote) = match kind {
        kind::PROBE => {
            let host = datagram.destination;
            (datagram.destination_isd_as, host, source, destination)
        }
        _ => {
            let host = datagram.source;
            (datagram.source_isd_as, host, destination, source)
        }
    };
    if !probes::has_ports(local, remote) {
        return 0;
    }
    let key = ProbeKey {
        remote: RemoteKey { isd_as, host },
        local_port: local.into(),
        remote_port: remote.into(),
    };
    // SAFETY: a word that is copied at once.
    let known = unsafe { A_PROBES.get(key) }.copied().unwrap_or_default();
    if known == probes::OWN {
        return 1;
    }
    let is_own = kind == kind::PROBE && probes::is_own(known, now);
    let value = if is_own { probes::OWN } else { now };
    if kind != kind::PROBE || is_own {
        // Without room, it is told apart the next time.
        let _ = A_PROBES.insert(key, value, 0);
    }
    is_own.into()
}

#[inline(never)]
fn sight(skb: *mut __sk_buff, datagram: &Datagram, kind: u32, now: u64) -> u32 {
    let session = match datagram.payload_len {
        2 => Some([0]),
        _ => payload(skb, datagram).bytes(3),
    };
    let Some([session]) = session else {
        return 0;
    };
    if let Some(sighting) = hash(skb, datagram, session) {
        // An answer says nothing of the way that our gateway takes.
        if kind == kind::PROBE {
            // SAFETY: this CPU's element of a map.
            unsafe { seen((*sighting).way, now) };
        }
        report(skb, datagram, sighting, kind, now);
    }
    0
}

/// This CPU's place for a sighting, with both hashes.
#[inline(always)]
fn hash(skb: *mut __sk_buff, datagram: &Datagram, session: u8) -> Option<*mut Sighting> {
    let sighting = A_SCRATCH.get_ptr_mut(0)?;
    let l4 = opaque(datagram.l4 as usize);
    if l4 == 0 || l4 > MAX_HEADERS - 24 {
        return None;
    }
    // SAFETY: this CPU's element of a map, which no other program of this CPU uses meanwhile: both hooks run with bottom
    // halves off, so neither interrupts the other. Offsets are within it.
    unsafe {
        let bytes = (&raw mut (*sighting).bytes).cast::<u8>();
        (*sighting).bytes = [0; MAX_HEADERS];
        let loaded = helpers::bpf_skb_load_bytes(skb.cast(), 0, bytes.cast(), l4 as u32);
        if loaded != 0 {
            return None;
        }
        // What differs from packet to packet.
        let zero = |at: usize, len: usize| {
            for byte in at..at + len {
                bytes.add(byte & 0xff).write(0);
            }
        };
        match datagram.over_ipv6 {
            0 => {
                zero(IP + 2, 4);
                zero(IP + 10, 2);
            }
            _ => {
                zero(IP + 1, 5);
            }
        }
        let scion = datagram.scion as usize & 0x7f;
        zero(scion - 8, 2);
        zero(scion - 4, 8);
        zero(scion + 6, 2);
        let mut way = l4 as u64;
        let words = bytes.cast::<u64>();
        let end = l4.div_ceil(8);
        for word in 0..MAX_HEADERS / 8 {
            // Each time: all words loaded first are too many for the stack.
            if word >= opaque(end) {
                break;
            }
            way = mix(way, words.add(word).read_volatile());
        }
        // Sessions take ways of their own: one's probes say nothing of another's.
        way = mix(way, session as u64);
        let ports = (datagram.outer_source_port as u64) << 32
            | (datagram.source_port as u64) << 16
            | datagram.destination_port as u64;
        (*sighting).way = way;
        (*sighting).frame = mix(mix(way, ports), 1);
        (*sighting).session = session.into();
    }
    Some(sighting)
}

/// Tells user space.
#[inline(always)]
fn report(skb: *mut __sk_buff, datagram: &Datagram, sighting: *mut Sighting, kind: u32, now: u64) {
    let behind = match kind {
        kind::FRAME => udp::HEADER_LEN + sig_frame::HEADER_LEN,
        _ => udp::HEADER_LEN,
    };
    let headers = opaque(datagram.l4 as usize + behind);
    // SAFETY: as in `hash`.
    unsafe {
        let bytes = (&raw mut (*sighting).bytes).cast::<u8>();
        if headers == 0
            || headers > MAX_HEADERS
            || helpers::bpf_skb_load_bytes(skb.cast(), 0, bytes.cast(), headers as u32) != 0
        {
            return;
        }
        (*sighting).time = now;
        (*sighting).kind = kind;
        (*sighting).headers = headers as u32;
        (*sighting).payload = datagram.payload_len + udp::HEADER_LEN as u32 - behind as u32;
        // If there is no room, the next one is told.
        let _ = A_SIGHTINGS.output::<Sighting>(&*sighting, 0);
    }
}
