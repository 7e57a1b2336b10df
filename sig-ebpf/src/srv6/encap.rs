//! Headers in front of a packet or a frame: H.Encaps, H.Encaps.L2 and the reduced ones (RFC 8986, section 5). An SRH in a packet:
//! H.Insert (draft-filsfils-spring-srv6-net-pgm-insertion).

use aya_ebpf::{
    bindings::{xdp_action::XDP_PASS, xdp_md},
    helpers,
};
use sig_common::{
    srv6::maps::{MAX_HEADERS, Policy, Port, Reason},
    wire::{
        Load as _, Store as _, ethernet,
        flow::{flow_hash, hash_of_key},
        inner::InnerPacket,
        ipv6,
        srv6::{self, NEXT_ETHERNET, NEXT_IPV4, NEXT_IPV6},
    },
};

use super::{S_POLICIES, Work, count, go_on, ip, refuse, tell, whole_ip, work};
use crate::packet::{self, IP, Packet, opaque};

/// What the headers tell about the packet behind them.
#[derive(Clone, Copy)]
pub struct Inside {
    /// Bytes of it.
    pub len: u16,
    /// Its traffic class.
    pub tos: u8,
    /// Its hop limit.
    pub hops: u8,
    /// Its next header value.
    pub next: u8,
    /// Hash of its flow.
    pub flow: u32,
}

/// Steers a packet into a policy.
#[inline(always)]
pub fn into_policy(ctx: *mut xdp_md, number: u32) -> u32 {
    // SAFETY: the value is only read; an update replaces it as a whole.
    let Some(policy) = (unsafe { S_POLICIES.get(number) }) else {
        return XDP_PASS;
    };
    steer(ctx, policy, true)
}

/// The same with a packet of the engine. Who takes it out of its chain is the router hop.
#[inline(always)]
pub fn of_engine(ctx: *mut xdp_md, number: u32) -> u32 {
    // SAFETY: as in `into_policy`.
    match unsafe { S_POLICIES.get(number) } {
        Some(policy) => steer(ctx, policy, false),
        None => refuse(Reason::NoPolicy),
    }
}

/// `is_hop`: as by any router, one is taken from the hop limit.
#[inline(always)]
fn steer(ctx: *mut xdp_md, policy: &Policy, is_hop: bool) -> u32 {
    let Some(work) = work() else {
        return refuse(Reason::TooLong);
    };
    let inserts = is_hop && policy.flags & Policy::INSERT != 0;
    let result = match inserts {
        true => insert(ctx, work, policy),
        false => put(ctx, policy, is_hop),
    };
    match result {
        PASS if is_hop => XDP_PASS,
        PASS | UNREADABLE => refuse(Reason::Malformed),
        DONE => go_on(ctx, work, true),
        TOO_BIG => {
            let added = match inserts {
                true => u32::from(policy.len).wrapping_sub(ipv6::HEADER_LEN as u32),
                false => policy.len.into(),
            };
            let room = policy.mtu.saturating_sub(added);
            tell(ctx, Reason::TooBig as u32, room, &[0; 16], 0)
        }
        _ => refuse(Reason::TooLong),
    }
}

/// Sends all of a frame into the policy of the device that it came in by. Nobody is told of one that is too large: it has no sender
/// that IP knows of.
#[inline(always)]
pub fn frame_into_policy(ctx: *mut xdp_md, port: &Port) -> u32 {
    // SAFETY: as in `into_policy`.
    let Some(policy) = (unsafe { S_POLICIES.get(port.function) }) else {
        return XDP_PASS;
    };
    match put_frame(ctx, policy, port) {
        DONE => match work() {
            Some(work) => go_on(ctx, work, true),
            None => refuse(Reason::TooLong),
        },
        TOO_BIG => refuse(Reason::TooBig),
        _ => refuse(Reason::TooLong),
    }
}

/// The kernel answers, or nobody needs to.
pub const PASS: u32 = 0;
/// The packet has its headers.
pub const DONE: u32 = 1;
/// It is too large with them.
pub const TOO_BIG: u32 = 2;
/// There is no room for them.
pub const NO_ROOM: u32 = 3;
/// It is no complete packet. The kernel may think otherwise, and would send it on without headers.
pub const UNREADABLE: u32 = 4;

/// Puts a packet behind the headers of a policy. `is_hop`: one is taken from its hop limit.
#[inline(never)]
pub fn put(ctx: *mut xdp_md, policy: &Policy, is_hop: bool) -> u32 {
    let Some(inside) = look(ctx) else {
        return UNREADABLE;
    };
    if is_hop && inside.hops <= 1 {
        return PASS;
    }
    let len = opaque(policy.len.into());
    if !(ipv6::HEADER_LEN..=MAX_HEADERS).contains(&len) {
        return NO_ROOM;
    }
    if usize::from(inside.len) + len > policy.mtu as usize {
        return TOO_BIG;
    }
    if is_hop && take_hop(ctx, &inside).is_none() {
        return PASS;
    }
    count(policy.slot, inside.len.into());
    let bytes = policy.headers.as_ptr();
    let next_at = usize::from(policy.next_header_at);
    let inherits = policy.flags & Policy::INHERIT_HOP_LIMIT != 0;
    match prepend(ctx, &inside, bytes, len, next_at, inherits) {
        Some(()) => DONE,
        None => NO_ROOM,
    }
}

/// Reads the packet behind the Ethernet header.
#[inline(always)]
pub fn look(ctx: *mut xdp_md) -> Option<Inside> {
    let (inner, next) = parse(ctx)?;
    Some(Inside::of(&inner, next))
}

impl Inside {
    /// Of this packet.
    #[inline(always)]
    pub fn of(inner: &InnerPacket, next: u8) -> Self {
        Self {
            len: inner.total_len,
            tos: inner.tos,
            hops: inner.ttl,
            next,
            flow: flow_hash(inner),
        }
    }
}

/// The packet behind the Ethernet header, and its next header value.
#[inline(always)]
pub fn parse(ctx: *mut xdp_md) -> Option<(InnerPacket, u8)> {
    let packet = whole_ip(ctx);
    let ethertype = Packet::of(ctx, 0).be16(12)?;
    // One after the other, as in `lan::with_inner`.
    match ethertype {
        ethernet::ETHERTYPE_IPV4 if packet.bytes::<2>(0)?[0] >> 4 == 4 => {
            Some((InnerPacket::parse_v4(&packet).ok()?, NEXT_IPV4))
        }
        ethernet::ETHERTYPE_IPV6 if packet.bytes::<2>(0)?[0] >> 4 == 6 => {
            Some((InnerPacket::parse_v6(&packet).ok()?, NEXT_IPV6))
        }
        _ => None,
    }
}

#[inline(always)]
fn take_hop(ctx: *mut xdp_md, inside: &Inside) -> Option<()> {
    let mut packet = ip(ctx);
    match inside.next {
        NEXT_IPV4 => super::forward::take_hop_v4(&mut packet).map(|_| ()),
        _ => packet.store(7, [inside.hops - 1]),
    }
}

/// Writes `len` bytes of headers in front of the packet, and what is different from packet to packet; of these the next header value
/// only if `next_at` says where it is. `inherits`: the hop limit of IPv6 packets, one less than it was, is copied to the outside.
#[inline(always)]
pub fn prepend(
    ctx: *mut xdp_md,
    inside: &Inside,
    headers: *const u8,
    len: usize,
    next_at: usize,
    inherits: bool,
) -> Option<()> {
    // The kernel takes frames for this host only, where it has to send the packet.
    let macs = Packet::of(ctx, 0).bytes::<12>(0)?;
    // SAFETY: the context is of the running program, and pointers into the packet from before are not used any more; the headers
    // are of an element of a map, MAX_HEADERS bytes of them.
    let failed = unsafe {
        !trim(ctx, inside)
            || helpers::bpf_xdp_adjust_head(ctx, -(len as i32)) != 0
            || helpers::bpf_xdp_store_bytes(ctx, IP as u32, headers as *mut _, len as u32) != 0
    };
    if failed {
        return None;
    }
    complete(ctx, inside, len, next_at)?;
    if inherits && inside.next == NEXT_IPV6 {
        ip(ctx).store(7, [inside.hops.saturating_sub(1)])?;
    }
    let mut frame = Packet::of(ctx, 0);
    frame.store(0, macs)?;
    frame.store(12, ethernet::ETHERTYPE_IPV6.to_be_bytes())?;
    Some(())
}

/// Removes Ethernet's padding from behind a packet.
#[inline(always)]
fn trim(ctx: *mut xdp_md, inside: &Inside) -> bool {
    let padding = packet::whole_len(ctx)
        .wrapping_sub(IP)
        .wrapping_sub(inside.len.into());
    // SAFETY: as in `prepend`.
    padding == 0
        || padding >= 64
        || unsafe { helpers::bpf_xdp_adjust_tail(ctx, -(padding as i32)) } == 0
}

/// Writes what is different from packet to packet into the `len` bytes of headers in front of one.
#[inline(always)]
fn complete(ctx: *mut xdp_md, inside: &Inside, len: usize, next_at: usize) -> Option<()> {
    let mut packet = ip(ctx);
    let payload = (inside.len as usize + len - ipv6::HEADER_LEN) as u16;
    let first = 6 << 28 | u32::from(inside.tos) << 20 | inside.flow & 0xf_ffff;
    packet.store(0, first.to_be_bytes())?;
    packet.store(4, payload.to_be_bytes())?;
    if next_at != 0 {
        packet.store(opaque(next_at) & 0xff, [inside.next])?;
    }
    Some(())
}

/// Puts a frame behind the headers of a policy, and those behind an Ethernet header.
#[inline(never)]
fn put_frame(ctx: *mut xdp_md, policy: &Policy, port: &Port) -> u32 {
    let len = opaque(policy.len.into());
    if !(ipv6::HEADER_LEN..=MAX_HEADERS - IP).contains(&len) {
        return NO_ROOM;
    }
    let whole = packet::whole_len(ctx);
    if whole + len > policy.mtu as usize {
        return TOO_BIG;
    }
    let Some(inside) = look_at_frame(ctx, whole as u16) else {
        return NO_ROOM;
    };
    count(policy.slot, whole);
    // SAFETY: as in `prepend`.
    let failed = unsafe {
        helpers::bpf_xdp_adjust_head(ctx, -((len + IP) as i32)) != 0
            || helpers::bpf_xdp_store_bytes(
                ctx,
                IP as u32,
                policy.headers.as_ptr() as *mut _,
                len as u32,
            ) != 0
    };
    if failed || complete(ctx, &inside, len, policy.next_header_at.into()).is_none() {
        return NO_ROOM;
    }
    let mut frame = Packet::of(ctx, 0);
    let done = frame
        .store(0, port.mac)
        .and_then(|()| frame.store(6, port.mac))
        .and_then(|()| frame.store(12, ethernet::ETHERTYPE_IPV6.to_be_bytes()));
    match done {
        Some(()) => DONE,
        None => NO_ROOM,
    }
}

/// What headers tell about a frame: as about the packet in it, if that is of IP.
#[inline(always)]
fn look_at_frame(ctx: *mut xdp_md, len: u16) -> Option<Inside> {
    let frame = Packet::of(ctx, 0);
    let macs = frame.be64(0)?;
    let rest = frame.be32(8)?;
    let mut inside = Inside {
        len,
        tos: 0,
        hops: 0,
        next: NEXT_ETHERNET,
        flow: hash_of_key(&[macs, 0, 0, 0, rest.into()]),
    };
    if let Some(packet) = look(ctx) {
        inside.tos = packet.tos;
        inside.flow = packet.flow;
    }
    Some(inside)
}

/// Inserts the SRH of a policy into an IPv6 packet, behind hop-by-hop options, which no other header may precede (RFC 8200, section
/// 4.1), and takes one from its hop limit.
#[inline(never)]
fn insert(ctx: *mut xdp_md, work: &mut Work, policy: &Policy) -> u32 {
    let Some(inside) = look(ctx) else {
        return UNREADABLE;
    };
    if inside.next != NEXT_IPV6 || inside.hops <= 1 {
        return PASS;
    }
    const SHORTEST: usize = srv6::FIXED_LEN + srv6::SEGMENT_LEN;
    let len = opaque(usize::from(policy.len).wrapping_sub(ipv6::HEADER_LEN));
    if !(SHORTEST..=MAX_HEADERS - ipv6::HEADER_LEN).contains(&len) {
        return NO_ROOM;
    }
    if usize::from(inside.len) + len > policy.mtu as usize {
        return TOO_BIG;
    }
    let Some((front, next, destination)) = open(ctx, &inside, policy, len) else {
        return NO_ROOM;
    };
    let front = opaque(front);
    if !(IP..=MAX_HEADERS).contains(&front) || !trim(ctx, &inside) {
        return NO_ROOM;
    }
    count(policy.slot, inside.len.into());
    let buffer = work.flow.headers.as_mut_ptr();
    // SAFETY: as in `endpoint::pop`, and in `prepend`: what is stored is within the policy's headers.
    let failed = unsafe {
        helpers::bpf_xdp_load_bytes(ctx, 0, buffer.cast(), front as u32) != 0
            || helpers::bpf_xdp_adjust_head(ctx, -(len as i32)) != 0
            || helpers::bpf_xdp_store_bytes(ctx, 0, buffer.cast(), front as u32) != 0
            || helpers::bpf_xdp_store_bytes(
                ctx,
                front as u32,
                policy.headers.as_ptr().add(ipv6::HEADER_LEN) as *mut _,
                len as u32,
            ) != 0
    };
    let mut frame = Packet::of(ctx, 0);
    // Two bytes: of a comparison for one, LLVM makes what the verifier does not understand.
    let words = policy.headers[ipv6::HEADER_LEN + 1];
    if failed
        || frame.store(front, [next, words]).is_none()
        || frame.store(front + srv6::FIXED_LEN, destination).is_none()
    {
        return NO_ROOM;
    }
    DONE
}

/// Changes what is in front of the place for an SRH of `len` bytes. Returns the offset of that in the frame, what will follow the SRH, and
/// the destination that the packet had.
#[inline(always)]
fn open(
    ctx: *mut xdp_md,
    inside: &Inside,
    policy: &Policy,
    len: usize,
) -> Option<(usize, u8, [u8; 16])> {
    let mut packet = ip(ctx);
    let [mut next, _] = packet.bytes(6)?;
    let destination: [u8; 16] = packet.bytes(24)?;
    let (mut announced_at, mut at) = (6, ipv6::HEADER_LEN);
    if next == ipv6::HOP_BY_HOP {
        let [following, words] = packet.bytes(ipv6::HEADER_LEN)?;
        next = following;
        announced_at = ipv6::HEADER_LEN;
        at += (usize::from(words) + 1) * 8;
    }
    let (_, first) = policy.headers.split_at(24);
    let payload = (inside.len as usize + len - ipv6::HEADER_LEN) as u16;
    packet.store(announced_at, [ipv6::ROUTING])?;
    packet.store(4, payload.to_be_bytes())?;
    packet.store(7, [inside.hops - 1])?;
    packet.store(24, *first.first_chunk::<16>()?)?;
    Some((IP + at, next, destination))
}
