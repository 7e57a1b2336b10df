//! As in [`super::model`]: headers in front of packets.

use sig_common::{
    srv6::maps::Policy,
    wire::{
        flow::{flow_hash, hash_of_key},
        inner::InnerPacket,
    },
};

use super::model::{IP, ROOM, be16, take_hop};
use super::packets::{ETHERNET, IPV4, IPV6, ROUTING};

pub(crate) struct Inside {
    len: usize,
    tos: u8,
    hops: u8,
    pub(crate) next: u8,
    flow: u32,
}

pub(crate) fn look(frame: &[u8]) -> Option<Inside> {
    let packet = &frame[IP..];
    let (version, next) = match be16(frame, 12) {
        0x0800 => (4, IPV4),
        0x86dd => (6, IPV6),
        _ => return None,
    };
    if packet.len() < 20 || packet[0] >> 4 != version {
        return None;
    }
    let inner = InnerPacket::parse(packet).ok()?;
    Some(Inside {
        len: inner.total_len.into(),
        tos: inner.tos,
        hops: inner.ttl,
        next,
        flow: flow_hash(&inner),
    })
}

pub(crate) enum Put {
    Pass,
    Unreadable,
    Done(Vec<u8>),
    TooBig(u32),
    NoRoom,
}

pub(crate) fn put(mut frame: Vec<u8>, policy: &Policy, is_hop: bool) -> Put {
    let Some(inside) = look(&frame) else {
        return Put::Unreadable;
    };
    if is_hop && inside.hops <= 1 {
        return Put::Pass;
    }
    let len = usize::from(policy.len);
    if !(40..=ROOM).contains(&len) {
        return Put::NoRoom;
    }
    if inside.len + len > policy.mtu as usize {
        return Put::TooBig(policy.mtu.saturating_sub(policy.len.into()));
    }
    let hops = inside.hops.wrapping_sub(is_hop.into());
    if is_hop {
        take_hop(&mut frame);
    }
    let mut headers = policy.headers[..len].to_vec();
    if policy.next_header_at != 0 {
        headers[usize::from(policy.next_header_at)] = inside.next;
    }
    if policy.flags & Policy::INHERIT_HOP_LIMIT != 0 && inside.next == IPV6 {
        headers[7] = hops;
    }
    Put::Done(prepend(&frame, &inside, &headers))
}

pub(crate) fn prepend(frame: &[u8], inside: &Inside, headers: &[u8]) -> Vec<u8> {
    let mut out = frame[..IP].to_vec();
    out[12..14].copy_from_slice(&[0x86, 0xdd]);
    out.extend(headers);
    let first = 6 << 28 | u32::from(inside.tos) << 20 | inside.flow & 0xf_ffff;
    out[14..18].copy_from_slice(&first.to_be_bytes());
    let len = (inside.len + headers.len() - 40) as u16;
    out[18..20].copy_from_slice(&len.to_be_bytes());
    let packet = &frame[IP..];
    // Of Ethernet's padding nothing is left; it is no more than this.
    match packet.len() - inside.len < 64 {
        true => out.extend(&packet[..inside.len]),
        false => out.extend(packet),
    }
    out
}

/// All of a frame, behind an Ethernet header from `mac` to itself.
pub(crate) fn put_frame(frame: &[u8], policy: &Policy, mac: [u8; 6]) -> Put {
    let len = usize::from(policy.len);
    if !(40..=ROOM - IP).contains(&len) {
        return Put::NoRoom;
    }
    if frame.len() + len > policy.mtu as usize {
        return Put::TooBig(0);
    }
    let seen = look(frame);
    let word = |at: usize, len: usize| {
        let bytes = frame[at..at + len].iter();
        bytes.fold(0, |word, byte| word << 8 | u64::from(*byte))
    };
    let inside = Inside {
        len: frame.len(),
        tos: seen.as_ref().map_or(0, |seen| seen.tos),
        hops: 0,
        next: ETHERNET,
        flow: seen.map_or_else(
            || hash_of_key(&[word(0, 8), 0, 0, 0, word(8, 4)]),
            |seen| seen.flow,
        ),
    };
    let mut headers = policy.headers[..len].to_vec();
    if policy.next_header_at != 0 {
        headers[usize::from(policy.next_header_at)] = ETHERNET;
    }
    let wrapped = [&mac[..], &mac, &[0, 0], frame].concat();
    Put::Done(prepend(&wrapped, &inside, &headers))
}

/// An SRH in a packet.
pub(crate) fn insert(mut frame: Vec<u8>, policy: &Policy) -> Put {
    let Some(inside) = look(&frame) else {
        return Put::Unreadable;
    };
    if inside.next != IPV6 || inside.hops <= 1 {
        return Put::Pass;
    }
    let whole = usize::from(policy.len);
    if !(64..=ROOM).contains(&whole) {
        return Put::NoRoom;
    }
    let len = whole - 40;
    if inside.len + len > policy.mtu as usize {
        return Put::TooBig(policy.mtu - len as u32);
    }
    let (announced_at, at) = match frame[IP + 6] {
        0 => (IP + 40, IP + 48 + 8 * usize::from(frame[IP + 41])),
        _ => (IP + 6, IP + 40),
    };
    if at > ROOM {
        return Put::NoRoom;
    }
    let mut srh = policy.headers[40..whole].to_vec();
    srh[0] = frame[announced_at];
    srh[8..24].copy_from_slice(&frame[38..54]);
    frame[announced_at] = ROUTING;
    frame[18..20].copy_from_slice(&((inside.len + len - 40) as u16).to_be_bytes());
    frame[21] -= 1;
    frame[38..54].copy_from_slice(&policy.headers[24..40]);
    if frame.len() - IP - inside.len < 64 {
        frame.truncate(IP + inside.len);
    }
    frame.splice(at..at, srh);
    Put::Done(frame)
}
