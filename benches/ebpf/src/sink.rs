//! The sink: counts what arrives, looks at sequence numbers and times, and drops it.

use aya_ebpf::{
    bindings::xdp_action::{XDP_DROP, XDP_PASS},
    helpers::bpf_ktime_get_ns,
    macros::{map, xdp},
    maps::{Array, HashMap, PerCpuArray},
    programs::XdpContext,
};
use sig_common::wire::{
    Load as _, PROTO_UDP,
    ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6},
    sig_frame,
};

use crate::{
    layout::{
        Expected, MAGIC, MARKER_LEN, MAX_FLOWS, MAX_INNER, MAX_SEEN_STREAMS, Next,
        SEEN as SEEN_ENTRIES, Seen, Totals, histogram, kind,
    },
    packet::{IP, Packet},
};

/// What to look for.
#[map]
static EXPECTED: Array<Expected> = Array::with_max_entries(1, 0);

/// What arrived.
#[map]
static TOTALS: PerCpuArray<Totals> = PerCpuArray::with_max_entries(1, 0);

/// Packets by the time that they were on their way.
#[map]
static LATENCY: PerCpuArray<u64> = PerCpuArray::with_max_entries(histogram::BUCKETS, 0);

/// Of every flow, what comes next.
#[map]
static FLOWS: Array<Next> = Array::with_max_entries(MAX_FLOWS, 0);

/// Of every SIG stream, what comes next.
#[map]
static STREAMS: HashMap<u32, Next> = HashMap::with_max_entries(MAX_SEEN_STREAMS, 0);

/// Sequence numbers that arrived, flows and streams mixed.
#[map]
static SEEN: Array<Seen> = Array::with_max_entries(SEEN_ENTRIES, 0);

/// Takes what it is to look for; everything else is for the kernel, such as ARP.
#[xdp]
pub fn sink(ctx: XdpContext) -> u32 {
    let Some(expected) = EXPECTED.get(0) else {
        return XDP_PASS;
    };
    let Some(totals) = TOTALS.get_ptr_mut(0) else {
        return XDP_PASS;
    };
    // SAFETY: this CPU's element of a map that lives as long as the program, which is not preempted
    // by another that writes it.
    let totals = unsafe { &mut *totals };
    let frame = Packet::of_xdp(&ctx);
    let taken = match expected.kind {
        kind::IP => ip(&frame, expected, totals),
        kind::SIG_FRAMES => sig_frame(&frame, expected, totals),
        kind::UDP => udp(&frame, expected, totals),
        _ => scion(&frame, expected, totals),
    };
    if taken.is_none() {
        totals.foreign += 1;
        return XDP_PASS;
    }
    totals.frames += 1;
    XDP_DROP
}

/// Counts a generated IP packet.
#[inline(always)]
fn ip(frame: &Packet, expected: &Expected, totals: &mut Totals) -> Option<()> {
    let at = (expected.at & 0xff) as usize;
    let marker = Marker::read(frame, at)?;
    totals.bytes += frame.len().saturating_sub(at) as u64;
    count(&marker, expected, totals);
    Some(())
}

/// Counts a generated packet by its UDP header.
#[inline(always)]
fn udp(frame: &Packet, expected: &Expected, totals: &mut Totals) -> Option<()> {
    let marker = Marker::behind_udp(frame, (expected.at & 0xff) as usize)?;
    totals.bytes += frame.len().saturating_sub(IP) as u64;
    count(&marker, expected, totals);
    Some(())
}

/// Counts a generated SCION packet if a router has made of its path what it should.
#[inline(always)]
fn scion(frame: &Packet, expected: &Expected, totals: &mut Totals) -> Option<()> {
    let path = frame.bytes((expected.path_at & 0xff) as usize)?;
    if u64::from_ne_bytes(path) != u64::from_ne_bytes(expected.path) {
        return None;
    }
    let marker = Marker::behind_udp(frame, (expected.at & 0xff) as usize)?;
    totals.bytes += frame.len().saturating_sub(IP) as u64;
    count(&marker, expected, totals);
    Some(())
}

/// Counts a packet, and looks at its sequence number and time.
#[inline(always)]
fn count(marker: &Marker, expected: &Expected, totals: &mut Totals) {
    totals.packets += 1;
    if let Some(next) = FLOWS.get_ptr_mut(marker.flow.into()) {
        // SAFETY: the element lives as long as the program. Packets of one flow come through one
        // receive queue; if not, a race would only miscount.
        let next = unsafe { &mut *next };
        let sequence = u64::from(marker.sequence) << 32;
        note(
            next,
            expected.epoch,
            marker.flow.into(),
            sequence,
            1 << 32,
            totals,
        );
    }
    sample(marker.time);
}

/// Counts a SIG frame.
#[inline(always)]
fn sig_frame(frame: &Packet, expected: &Expected, totals: &mut Totals) -> Option<()> {
    let udp = udp_of(frame, IP)?;
    let scion = udp + 8;
    let header: [u8; 8] = frame.bytes(scion)?;
    if header[0] >> 4 != 0 || header[4] != PROTO_UDP {
        return None;
    }
    let l4 = scion + usize::from(header[5]) * 4;
    let [l0, l1] = frame.bytes(l4 + 4)?;
    let sig = sig_frame::Header::decode(&frame.bytes(l4 + 8)?).ok()?;
    let payload = l4 + 8 + sig_frame::HEADER_LEN;
    let len = usize::from(u16::from_be_bytes([l0, l1])).checked_sub(8 + sig_frame::HEADER_LEN)?;
    totals.bytes += len as u64;

    let start = payload + usize::from(sig.index & 0x7ff);
    let end = payload + len;
    if sig.index != sig_frame::NO_PACKET_STARTS {
        if expected.packet_len == 0 {
            totals.packets += count_packets(frame, start, end);
        }
        if let Some(marker) = Marker::read(frame, start) {
            sample(marker.time);
        }
    }
    let epoch = expected.epoch;
    if let Some(next) = STREAMS.get_ptr_mut(sig.stream) {
        // SAFETY: as for flows.
        let next = unsafe { &mut *next };
        note(next, epoch, sig.stream, sig.sequence, 1, totals);
    } else {
        let mut next = Next::default();
        note(&mut next, epoch, sig.stream, sig.sequence, 1, totals);
        // More streams than fit are not looked at.
        let _ = STREAMS.insert(sig.stream, next, 0);
    }
    Some(())
}

/// Counts packets by their length fields.
#[inline(always)]
fn count_packets(frame: &Packet, start: usize, end: usize) -> u64 {
    let mut at = start;
    let mut packets = 0;
    for _ in 0..MAX_INNER {
        if at >= end || at > 0x7ff {
            break;
        }
        let Some(header) = frame.bytes::<6>(at) else {
            break;
        };
        let len = match header[0] >> 4 {
            4 => usize::from(u16::from_be_bytes([header[2], header[3]])),
            6 => usize::from(u16::from_be_bytes([header[4], header[5]])) + 40,
            _ => break,
        };
        packets += 1;
        at += len & 0x7ff;
    }
    packets
}

/// Notes a sequence number: is it new, late, or there for a second time?
#[inline(always)]
fn note(next: &mut Next, epoch: u32, whose: u32, sequence: u64, unit: u64, totals: &mut Totals) {
    let number = if unit == 1 { sequence } else { sequence >> 32 };
    let slot = (number as u32).wrapping_add(whose.wrapping_mul(0x9e37)) % SEEN_ENTRIES;
    let Some(seen) = SEEN.get_ptr_mut(slot) else {
        return;
    };
    // SAFETY: as for flows.
    let seen = unsafe { &mut *seen };
    let whose = u64::from(epoch) << 32 | u64::from(whose);
    let arrived_before = seen.whose == whose && seen.sequence == sequence;
    *seen = Seen { whose, sequence };

    let known = next.epoch == u64::from(epoch);
    if known && (sequence.wrapping_sub(next.sequence) as i64) < 0 {
        if arrived_before {
            totals.duplicates += 1;
        } else {
            totals.reordered += 1;
        }
        return;
    }
    *next = Next {
        sequence: sequence.wrapping_add(unit),
        epoch: epoch.into(),
    };
}

/// Counts the time since a packet was sent.
#[inline(always)]
fn sample(sent: u64) {
    // SAFETY: takes no pointer.
    let now = unsafe { bpf_ktime_get_ns() };
    if let Some(counter) = LATENCY.get_ptr_mut(histogram::bucket(now.saturating_sub(sent))) {
        // SAFETY: as for the totals.
        unsafe { *counter += 1 };
    }
}

/// What a generated packet tells.
struct Marker {
    flow: u16,
    sequence: u32,
    time: u64,
}

impl Marker {
    /// The marker of the packet whose IP header is at `ip`.
    ///
    /// Everything is read through one comparison with the end of the packet: the verifier does not
    /// follow several of the same variable offset.
    #[inline(always)]
    fn read(frame: &Packet, ip: usize) -> Option<Self> {
        let packet: [u8; 20 + 8 + MARKER_LEN] = frame.bytes(ip)?;
        if packet[0] == 0x45 && packet[9] == PROTO_UDP {
            return Self::decode(*packet.last_chunk()?);
        }
        let packet: [u8; 40 + 8 + MARKER_LEN] = frame.bytes(ip)?;
        if packet[0] >> 4 == 6 && packet[6] == PROTO_UDP {
            return Self::decode(*packet.last_chunk()?);
        }
        None
    }

    /// The marker behind the UDP header at `udp`.
    #[inline(always)]
    fn behind_udp(frame: &Packet, udp: usize) -> Option<Self> {
        Self::decode(frame.bytes(udp + 8)?)
    }

    #[inline(always)]
    fn decode(marker: [u8; MARKER_LEN]) -> Option<Self> {
        let [m0, m1, f0, f1, s0, s1, s2, s3, time @ ..] = marker;
        (u16::from_be_bytes([m0, m1]) == MAGIC).then(|| Self {
            flow: u16::from_be_bytes([f0, f1]),
            sequence: u32::from_be_bytes([s0, s1, s2, s3]),
            time: u64::from_be_bytes(time),
        })
    }
}

/// Offset of the UDP header behind the IP header at `ip`, which has no options.
#[inline(always)]
fn udp_of(frame: &Packet, ip: usize) -> Option<usize> {
    match frame.bytes(ip.checked_sub(2)?).map(u16::from_be_bytes)? {
        ETHERTYPE_IPV4 => {
            let [version, _] = frame.bytes(ip)?;
            let [protocol] = frame.bytes(ip + 9)?;
            (version == 0x45 && protocol == PROTO_UDP).then_some(ip + 20)
        }
        ETHERTYPE_IPV6 => {
            let [protocol] = frame.bytes(ip + 6)?;
            (protocol == PROTO_UDP).then_some(ip + 40)
        }
        _ => None,
    }
}
