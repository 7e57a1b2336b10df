//! Functions behind proxies: what was in front of the packets to them, and the packets that they return
//! (draft-ietf-spring-sr-service-programming, section 6).

use core::sync::atomic::{Ordering, compiler_fence};

use aya_ebpf::{
    bindings::{
        xdp_action::{XDP_DROP, XDP_PASS},
        xdp_md,
    },
    helpers,
};
use sig_common::{
    maps::Ip,
    srv6::maps::{
        Cache, FlowKey, Function, IPV4_PROBE_AT, IPV6_PROBE_AT, MAX_HEADERS, Peer, Port, Reason,
    },
    wire::{Load as _, PROTO_ICMPV6, Store as _, ethernet, ipv6, srv6},
};

use super::{
    S_CACHES, S_FLOWS, S_FUNCTIONS, S_PEERS, S_POLICIES, Work, count,
    encap::{self, Inside, look},
    forward, go_on, ip, refuse, tell, token, whole_ip, work,
};
use crate::{
    fast::{fetch_add_one, replace},
    packet::{self, IP, Packet, opaque},
};

/// Words of the headers in a [`Cache`].
const WORDS: usize = MAX_HEADERS / 8;

/// Reads the first `len` bytes of the IPv6 packet, which are about to be removed, into `work`. Returns 0, or 1 if they are too long.
#[inline(never)]
pub fn load(ctx: *mut xdp_md, work: &mut Work, len: u32) -> u32 {
    work.flow.len = len;
    if len == 0 {
        return 0;
    }
    let len = opaque(len as usize);
    if !(ipv6::HEADER_LEN..=MAX_HEADERS).contains(&len) {
        return 1;
    }
    let headers = &mut work.flow.headers;
    let buffer = headers.as_mut_ptr();
    // SAFETY: the buffer is as long; the context is of the running program.
    if unsafe { helpers::bpf_xdp_load_bytes(ctx, IP as u32, buffer.cast(), len as u32) } != 0 {
        return 1;
    }
    // What is different from packet to packet: traffic class, flow label, length.
    headers[0] = 0x60;
    headers[1] = 0;
    headers[2] = 0;
    headers[3] = 0;
    headers[4] = 0;
    headers[5] = 0;
    0
}

/// Whether the first `len` bytes of headers are the same, but for next header and hop limit.
///
/// # Safety
/// Both are MAX_HEADERS long and begin at multiples of eight.
#[inline(always)]
unsafe fn are_same(old: *const u64, new: *const u64, len: usize) -> bool {
    let mut same = true;
    let mut word = 1;
    while word < WORDS {
        // SAFETY: by the contract.
        if word * 8 < len && unsafe { old.add(word).read_volatile() != new.add(word).read() } {
            same = false;
        }
        word += 1;
    }
    same
}

/// Remembers the headers in `work` as those of the last packet to a function, unless they are known.
#[inline(never)]
pub fn remember(work: &Work, number: u32) -> u32 {
    let Some(cache) = S_CACHES.get_ptr_mut(number) else {
        return 1;
    };
    let len = work.flow.len as usize;
    if len == 0 {
        forget(cache);
        return 0;
    }
    let exposed: u32 = work.step.exposed.into();
    // SAFETY: both are MAX_HEADERS long and begin at multiples of eight; an element of a map lives as long as the program.
    unsafe {
        let new = work.flow.headers.as_ptr().cast::<u64>();
        let old = (&raw mut (*cache).headers).cast::<u64>();
        if (*cache).len == len as u32 && (*cache).exposed == exposed && are_same(old, new, len) {
            // What is left of the first word: next header and hop limit. The latter follows the last packet, or packets that go
            // in circles would never end.
            if old.read_volatile() != new.read() {
                old.write_volatile(new.read());
            }
            return 0;
        }
        // Who finds another writer at it leaves it to that one.
        let version = &raw mut (*cache).version;
        let seen = version.read_volatile();
        if seen & 1 != 0 || !replace(version, seen, seen + 1) {
            return 0;
        }
        let mut word = 0;
        while word < WORDS {
            if word * 8 < len {
                old.add(word).write_volatile(new.add(word).read());
            }
            word += 1;
        }
        (&raw mut (*cache).len).write_volatile(len as u32);
        (&raw mut (*cache).exposed).write_volatile(exposed);
        fetch_add_one(version);
    }
    0
}

/// Remembers the headers in `work` as those of the flow of the packet, which they have been removed from, unless they are known.
/// Returns 0, or 1 if it is no packet.
///
/// An entry is never written to: the kernel may give it to another flow at any time.
#[inline(never)]
pub fn remember_flow(ctx: *mut xdp_md, work: &mut Work, number: u32, flows: u32) -> u32 {
    let Some((inner, _)) = encap::parse(ctx) else {
        return 1;
    };
    work.key = FlowKey::of(&inner, flows);
    work.flow.reserved = 0;
    // Where they are: the stack is small.
    let (key, flow) = (&work.key, &work.flow);
    let len = work.flow.len as usize;
    if let Some(old) = S_FLOWS.get_ptr(key) {
        // SAFETY: as in `remember`.
        unsafe {
            let new = work.flow.headers.as_ptr().cast::<u64>();
            let headers = (&raw const (*old).headers).cast::<u64>();
            if (*old).len as usize != len || !are_same(headers, new, len) {
                if let Some(cache) = S_CACHES.get_ptr_mut(number) {
                    fetch_add_one(&raw mut (*cache).version);
                    fetch_add_one(&raw mut (*cache).version);
                }
            } else if len == 0 || headers.read_volatile() == new.read() {
                return 0;
            }
        }
    }
    // If there is no room, what comes back is dropped.
    let _ = S_FLOWS.insert(key, flow, 0);
    0
}

/// Remembers no headers.
#[inline(always)]
fn forget(cache: *mut Cache) {
    // SAFETY: as in `remember`.
    unsafe {
        if (&raw const (*cache).len).read_volatile() == 0 {
            return;
        }
        let version = &raw mut (*cache).version;
        let seen = version.read_volatile();
        if seen & 1 == 0 && replace(version, seen, seen + 1) {
            (&raw mut (*cache).len).write_volatile(0);
            fetch_add_one(version);
        }
    }
}

/// A packet that a function returns.
#[inline(always)]
pub fn returned(ctx: *mut xdp_md, port: &Port) -> u32 {
    let number = port.function;
    // SAFETY: the value is only read; an update replaces it as a whole.
    let Some(function) = (unsafe { S_FUNCTIONS.get(number) }) else {
        return XDP_PASS;
    };
    let packet = Packet::of(ctx, 0);
    let is_chained = match packet.be16(12) {
        Some(ethernet::ETHERTYPE_IPV4) => is_ordinary_v4(&packet),
        Some(ethernet::ETHERTYPE_IPV6) => is_ordinary_v6(&packet),
        _ => false,
    };
    if !is_chained {
        // ARP, neighbour discovery and the like are between the function and the kernel.
        return XDP_PASS;
    }
    if is_probe(&packet) {
        return tell(ctx, Reason::Probe as u32, 0, &[0; 16], 0);
    }
    if port.flags & Port::PEERS != 0 && is_from_peer(ctx) != 0 {
        return XDP_PASS;
    }
    count(function.slot, packet::whole_len(ctx).wrapping_sub(IP));
    if function.flags & Function::MASQUERADED != 0 {
        return match unmask(ctx) {
            0 => on(ctx),
            // Without a segment left it is an ordinary packet.
            1 => forward::pass(ctx),
            _ => refuse(Reason::Malformed),
        };
    }
    if function.flags & Function::CONFIGURED != 0 {
        return put_configured(ctx, function.policy);
    }
    let put = match function.flows {
        0 => put_remembered(ctx, number),
        flows => match work() {
            Some(work) => put_of_flow(ctx, work, flows),
            None => return XDP_DROP,
        },
    };
    match put {
        0 => on(ctx),
        1 if function.flags & Function::LAST != 0 => match work() {
            Some(work) => {
                work.fresh = false;
                forward::by_table(ctx, work, 0)
            }
            None => XDP_DROP,
        },
        1 => refuse(Reason::NoHeaders),
        2 => refuse(Reason::NotReturned),
        4 => refuse(Reason::Changing),
        _ => refuse(Reason::TooLong),
    }
}

/// A packet that a function in the process has done with. It has its headers, and the next segment is the active one.
#[inline(always)]
pub fn from_process(ctx: *mut xdp_md) -> u32 {
    let Some(mac) = Packet::of(ctx, 0).bytes::<6>(0) else {
        return XDP_DROP;
    };
    // SAFETY: the value is only read; an update replaces it as a whole.
    match unsafe { S_FUNCTIONS.get(Function::of_mac(mac)) } {
        Some(function) => {
            count(function.slot, packet::whole_len(ctx).wrapping_sub(IP));
            on(ctx)
        }
        None => refuse(Reason::FunctionDown),
    }
}

/// Puts the headers of a static proxy in front.
#[inline(always)]
pub fn put_configured(ctx: *mut xdp_md, policy: u32) -> u32 {
    // SAFETY: the value is only read; an update replaces it as a whole.
    let Some(policy) = (unsafe { S_POLICIES.get(policy) }) else {
        return refuse(Reason::NoHeaders);
    };
    // The function takes no hop for certain, and the headers begin anew: this ends what goes in circles.
    match encap::put(ctx, policy, true) {
        encap::DONE => on(ctx),
        encap::TOO_BIG => {
            let room = policy.mtu.saturating_sub(policy.len.into());
            tell(ctx, Reason::TooBig as u32, room, &[0; 16], 0)
        }
        encap::NO_ROOM => refuse(Reason::TooLong),
        _ => refuse(Reason::NotReturned),
    }
}

#[inline(always)]
fn on(ctx: *mut xdp_md) -> u32 {
    match work() {
        Some(work) => go_on(ctx, work, true),
        None => XDP_DROP,
    }
}

/// Puts the headers of the last packet to the function in front. Returns 0; 1 without headers, 2 for another protocol, 3 if there is
/// no room, 4 if they are changing.
#[inline(never)]
fn put_remembered(ctx: *mut xdp_md, number: u32) -> u32 {
    let Some(cache) = S_CACHES.get_ptr(number) else {
        return 1;
    };
    let Some(inside) = look(ctx) else {
        return 2;
    };
    // SAFETY: as in `remember`.
    let (version, len, exposed) = unsafe {
        (
            (&raw const (*cache).version).read_volatile(),
            (&raw const (*cache).len).read_volatile(),
            (&raw const (*cache).exposed).read_volatile(),
        )
    };
    compiler_fence(Ordering::Acquire);
    if version & 1 != 0 {
        return 4;
    }
    if len == 0 {
        return 1;
    }
    if exposed != u32::from(inside.next) {
        return 2;
    }
    let len = opaque(len as usize);
    if !(ipv6::HEADER_LEN..=MAX_HEADERS).contains(&len) {
        return 3;
    }
    // SAFETY: within the element.
    let headers = unsafe { (&raw const (*cache).headers).cast::<u8>() };
    if encap::prepend(ctx, &inside, headers, len, 0, false).is_none() {
        return 3;
    }
    compiler_fence(Ordering::Acquire);
    // SAFETY: as above.
    match unsafe { (&raw const (*cache).version).read_volatile() } == version {
        true => 0,
        false => 4,
    }
}

/// Puts the headers of its flow in front of the packet. Returns what [`put_remembered`] does.
#[inline(never)]
fn put_of_flow(ctx: *mut xdp_md, work: &mut Work, flows: u32) -> u32 {
    let Some((inner, next)) = encap::parse(ctx) else {
        return 2;
    };
    work.key = FlowKey::of(&inner, flows);
    let key = &work.key;
    let Some(flow) = S_FLOWS.get_ptr(key) else {
        return 1;
    };
    // SAFETY: an element of a map lives as long as the program.
    let (len, headers) = unsafe {
        (
            (&raw const (*flow).len).read_volatile(),
            (&raw const (*flow).headers).cast::<u8>(),
        )
    };
    if len == 0 {
        return 1;
    }
    let len = opaque(len as usize);
    if !(ipv6::HEADER_LEN..=MAX_HEADERS).contains(&len) {
        return 3;
    }
    let inside = Inside::of(&inner, next);
    if encap::prepend(ctx, &inside, headers, len, 0, false).is_none() {
        return 3;
    }
    // The entry may have been given to another flow while it was read.
    match S_FLOWS.get_ptr(key) {
        Some(now) if core::ptr::eq(now, flow) => 0,
        _ => 4,
    }
}

/// The next segment becomes the active one, as at `End`; the hop limit was looked after on the way to the function. Returns 0, 1 if
/// no segment is left, 2 for what is no such packet.
#[inline(never)]
fn unmask(ctx: *mut xdp_md) -> u32 {
    if Packet::of(ctx, 0).be16(12) != Some(ethernet::ETHERTYPE_IPV6) {
        return 1;
    }
    let mut packet = whole_ip(ctx);
    let srh = match srv6::parse(&packet) {
        Ok(srh) if srh.segments_left > 0 => srh,
        Ok(_) | Err(srv6::Reject::Absent) => return 1,
        Err(_) => return 2,
    };
    let at = opaque(usize::from(srh.offset) + srv6::SEGMENTS_LEFT) & 0x1fff;
    let done = srh.next_segment(&packet).and_then(|next| {
        packet.store(24, next)?;
        packet.store(at, [srh.segments_left - 1])
    });
    match done {
        Some(()) => 0,
        None => 2,
    }
}

/// A probe of ours that a function was to return: of no chain, and never let out.
#[inline(always)]
fn is_probe(packet: &Packet) -> bool {
    let at = match packet.be16(12) {
        Some(ethernet::ETHERTYPE_IPV4) => IP + IPV4_PROBE_AT,
        _ => IP + IPV6_PROBE_AT,
    };
    match packet.bytes::<8>(at) {
        Some(bytes) => u64::from_ne_bytes(bytes) == token(),
        None => false,
    }
}

/// Whether the packet is what a function says to this node as its neighbour. Returns 0 or 1.
#[inline(never)]
fn is_from_peer(ctx: *mut xdp_md) -> u32 {
    let packet = ip(ctx);
    // SAFETY: the context is of the running program.
    let ifindex = unsafe { (*ctx).ingress_ifindex };
    let (function, node) = match Packet::of(ctx, 0).be16(12) {
        Some(ethernet::ETHERTYPE_IPV4) => {
            let Some(source) = packet.bytes(12) else {
                return 0;
            };
            let Some(destination) = packet.bytes(16) else {
                return 0;
            };
            (Ip::v4(source), Ip::v4(destination))
        }
        _ => {
            let Some(source) = packet.bytes(8) else {
                return 0;
            };
            let Some(destination) = packet.bytes(24) else {
                return 0;
            };
            (Ip(source), Ip(destination))
        }
    };
    let peer = Peer {
        ifindex,
        reserved: 0,
        function,
        node,
    };
    // SAFETY: the value is not read.
    unsafe { S_PEERS.get(peer) }.is_some().into()
}

/// By its link-layer address.
#[inline(always)]
fn is_for_many(packet: &Packet) -> bool {
    match packet.bytes::<2>(0) {
        Some([first, _]) => first & 1 != 0,
        None => true,
    }
}

/// Neighbour discovery, also between addresses that are not link-local (RFC 4861): the hop limit of 255 tells it from what was routed.
#[inline(always)]
pub fn is_discovery(packet: &Packet) -> bool {
    let Some([next, hops]) = packet.bytes::<2>(IP + 6) else {
        return false;
    };
    if next != PROTO_ICMPV6 || hops != 255 {
        return false;
    }
    packet
        .bytes::<2>(IP + 40)
        .is_some_and(|[kind, _]| matches!(kind, 133..=137))
}

/// Neither multicast, broadcast nor link-local.
#[inline(always)]
pub fn is_ordinary_v4(packet: &Packet) -> bool {
    if is_for_many(packet) {
        return false;
    }
    let Some([first, second, ..]) = packet.bytes::<4>(IP + 16) else {
        return false;
    };
    first < 224 && !(first == 169 && second == 254)
}

/// Likewise.
#[inline(always)]
pub fn is_ordinary_v6(packet: &Packet) -> bool {
    is_routable_v6(packet) && !is_discovery(packet)
}

/// Whether its IPv6 addresses, and the link-layer one, are such that it may be forwarded.
#[inline(always)]
pub fn is_routable_v6(packet: &Packet) -> bool {
    let is_local = |address: [u8; 2]| address[0] == 0xfe && address[1] & 0xc0 == 0x80;
    let Some(source) = packet.bytes::<2>(IP + 8) else {
        return false;
    };
    let Some(destination) = packet.bytes::<2>(IP + 24) else {
        return false;
    };
    destination[0] != 0xff && !is_local(source) && !is_local(destination) && !is_for_many(packet)
}
