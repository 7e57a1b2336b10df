//! A packet to a local SID.

use aya_ebpf::{
    bindings::{xdp_action::XDP_DROP, xdp_md},
    helpers,
};
use sig_common::{
    srv6::{
        Cause, Flavors, Sid, Way,
        maps::{Function, MAX_HEADERS, Reason},
        process,
    },
    wire::{
        Load as _, Store as _, ethernet, ipv6,
        srv6::{NEXT_ETHERNET, NEXT_IPV4, NEXT_IPV6},
    },
};

use super::{
    S_ADJACENCIES, S_FUNCTIONS, S_LOCATORS, Work, count, forward, function, go_on, ip, refuse,
    tell, whole_ip, work,
};
use crate::{
    maps::AlignedKey,
    packet::{self, IP, Packet, opaque},
};

/// Does what the SID stands for.
#[inline(always)]
pub fn run(ctx: *mut xdp_md, sid: &Sid) -> u32 {
    let Some(work) = work() else {
        return XDP_DROP;
    };
    count(sid.slot, packet::whole_len(ctx).wrapping_sub(IP));
    match decide(ctx, sid, work) {
        // Only the flavor USD is for packets with SRv6 headers inside.
        0 => act(ctx, work, sid.flavors.has(Flavors::USD)),
        refused => refuse_with_answer(ctx, work, refused - 1),
    }
}

/// What becomes of the packet, into `work`. Returns 0, or one more than the number of a cause.
#[inline(never)]
fn decide(ctx: *mut xdp_md, sid: &Sid, work: &mut Work) -> u32 {
    match process(&whole_ip(ctx), sid) {
        Ok(step) => {
            work.step = step;
            0
        }
        Err(refusal) => {
            work.pointer = refusal.pointer.into();
            refusal.cause as u32 + 1
        }
    }
}

#[inline(always)]
fn refuse_with_answer(ctx: *mut xdp_md, work: &Work, cause: u32) -> u32 {
    const HOP_LIMIT: u32 = Cause::HopLimit as u32;
    const HEADER: u32 = Cause::Header as u32;
    const UPPER_LAYER: u32 = Cause::UpperLayer as u32;
    const INNER: u32 = Cause::Inner as u32;
    const CHAIN_END: u32 = Cause::ChainEnd as u32;
    let answered = match cause {
        HOP_LIMIT => Reason::HopLimit,
        HEADER => Reason::BadHeader,
        UPPER_LAYER => Reason::UpperLayer,
        INNER => return refuse(Reason::BadInner),
        CHAIN_END => return refuse(Reason::ChainEnd),
        _ => return refuse(Reason::Malformed),
    };
    tell(ctx, answered as u32, work.pointer, &[0; 16], 0)
}

/// Does it.
#[inline(always)]
fn act(ctx: *mut xdp_md, work: &mut Work, nests: bool) -> u32 {
    if work.step.way == Way::Function {
        return to_function(ctx, work);
    }
    if rewrite(ctx, work) != 0 {
        return refuse(Reason::TooLong);
    }
    if work.step.exposed == NEXT_IPV6 && !nests && leads_to_locator(ctx) {
        return refuse(Reason::Untrusted);
    }
    let target = work.step.target;
    match work.step.way {
        Way::Local => forward::pass(ctx),
        Way::Device => forward::frame_by(ctx, target),
        Way::Adjacency => {
            // SAFETY: the value is only read; an update replaces it as a whole.
            match unsafe { S_ADJACENCIES.get(target) } {
                Some(adjacency) => forward::to(ctx, work, adjacency, true),
                None => refuse(Reason::NoAdjacency),
            }
        }
        // The destination may be a SID of this node again.
        _ if target == 0 && work.step.exposed != NEXT_IPV4 => go_on(ctx, work, false),
        _ => {
            work.fresh = false;
            forward::by_table(ctx, work, target)
        }
    }
}

/// Whether the packet, which was inside another, is for a SID: who sends such packets need not be trusted.
#[inline(always)]
fn leads_to_locator(ctx: *mut xdp_md) -> bool {
    match ip(ctx).bytes::<16>(24) {
        Some(destination) => S_LOCATORS.get(AlignedKey::new(destination).key()).is_some(),
        None => false,
    }
}

/// To a function behind a proxy, or past it if it is down.
#[inline(always)]
fn to_function(ctx: *mut xdp_md, work: &mut Work) -> u32 {
    let number = work.step.target;
    // SAFETY: as in `act`.
    let Some(to) = (unsafe { S_FUNCTIONS.get(number) }) else {
        return refuse(Reason::FunctionDown);
    };
    if to.flags & Function::UP == 0 {
        let has_next = work.step.advances || work.step.masquerades;
        return match to.flags & Function::BYPASS != 0 {
            true if to.flags & Function::CONFIGURED != 0 => past_static(ctx, work, to),
            true if has_next => past_function(ctx, work),
            true => past_last(ctx, work),
            false => refuse(Reason::FunctionDown),
        };
    }
    if (work.step.advances || work.step.masquerades) && take_hop(ctx) != 0 {
        return refuse(Reason::Malformed);
    }
    let strip = work.step.strip;
    work.step.strip = 0;
    if rewrite(ctx, work) != 0 {
        return refuse(Reason::TooLong);
    }
    if strip != 0 {
        let is_cached = to.flags & Function::CACHED != 0;
        if is_cached {
            // At the end of a chain nothing is put in front of what comes back.
            let kept = if work.step.advances { strip } else { 0 };
            if function::load(ctx, work, kept.into()) != 0 {
                return refuse(Reason::TooLong);
            }
            if to.flows == 0 {
                function::remember(work, number);
            }
        }
        work.step.strip = strip;
        if remove_front(ctx, work) != 0 {
            return refuse(Reason::TooLong);
        }
        if is_cached && to.flows != 0 && function::remember_flow(ctx, work, number, to.flows) != 0 {
            return refuse(Reason::Malformed);
        }
    }
    forward::to(ctx, work, &to.to, false)
}

/// The function of a static proxy is left out: the packet gets the headers that it would get if that had returned it.
#[inline(always)]
fn past_static(ctx: *mut xdp_md, work: &mut Work, to: &Function) -> u32 {
    match rewrite(ctx, work) {
        0 => function::put_configured(ctx, to.policy),
        _ => refuse(Reason::TooLong),
    }
}

/// The function at the end of a chain is left out.
#[inline(always)]
fn past_last(ctx: *mut xdp_md, work: &mut Work) -> u32 {
    if rewrite(ctx, work) != 0 {
        return refuse(Reason::TooLong);
    }
    work.fresh = false;
    forward::by_table(ctx, work, 0)
}

/// As `End`: the function is left out.
#[inline(always)]
fn past_function(ctx: *mut xdp_md, work: &mut Work) -> u32 {
    work.step.strip = 0;
    work.step.exposed = 0;
    if work.step.masquerades {
        let Some(next) = work.step.srh.next_segment(&ip(ctx)) else {
            return refuse(Reason::Malformed);
        };
        work.step.masquerades = false;
        work.step.advances = true;
        work.step.destination = next;
    }
    match rewrite(ctx, work) {
        0 => go_on(ctx, work, false),
        _ => refuse(Reason::TooLong),
    }
}

/// Takes one from the hop limit, which is above 1.
#[inline(always)]
pub fn take_hop(ctx: *mut xdp_md) -> u32 {
    let mut packet = ip(ctx);
    let Some([hops, _]) = packet.bytes(7) else {
        return 1;
    };
    match packet.store(7, [hops - 1]) {
        Some(()) => 0,
        None => 1,
    }
}

/// Changes the packet as the step says. Returns 0, or 1 if its headers are too long.
#[inline(never)]
fn rewrite(ctx: *mut xdp_md, work: &mut Work) -> u32 {
    let mut packet = ip(ctx);
    let step = &work.step;
    if (step.advances || step.masquerades) && packet.store(24, step.destination).is_none() {
        return 1;
    }
    if step.advances {
        let at = opaque(usize::from(step.srh.offset) + 3) & 0x1fff;
        let left = step.srh.segments_left.wrapping_sub(1);
        if packet.store(at, [left]).is_none() {
            return 1;
        }
    }
    if step.pops && pop(ctx, work) != 0 {
        return 1;
    }
    match work.step.strip {
        0 => 0,
        _ => remove_front(ctx, work),
    }
}

/// Removes the SRH: what is in front of it moves towards what follows it.
#[inline(always)]
fn pop(ctx: *mut xdp_md, work: &mut Work) -> u32 {
    let srh = &work.step.srh;
    let mut packet = ip(ctx);
    let announced_at = opaque(usize::from(srh.announced_at)) & 0x1fff;
    let payload_len = (srh.packet_len)
        .wrapping_sub(ipv6::HEADER_LEN as u16)
        .wrapping_sub(srh.len);
    if packet.store(announced_at, [srh.next_header]).is_none()
        || packet.store(4, payload_len.to_be_bytes()).is_none()
    {
        return 1;
    }
    let front = opaque(IP + usize::from(srh.offset));
    if !(IP..=MAX_HEADERS).contains(&front) {
        return 1;
    }
    let by = i32::from(srh.len);
    let buffer = work.flow.headers.as_mut_ptr();
    // SAFETY: the buffer is as long as what is loaded and stored; the context is of the running program, and pointers into the
    // packet from before are not used any more.
    let failed = unsafe {
        helpers::bpf_xdp_load_bytes(ctx, 0, buffer.cast(), front as u32) != 0
            || helpers::bpf_xdp_adjust_head(ctx, by) != 0
            || helpers::bpf_xdp_store_bytes(ctx, 0, buffer.cast(), front as u32) != 0
    };
    failed.into()
}

/// Removes what is behind the IPv6 packet: a frame inside has no length of its own.
#[inline(always)]
fn trim(ctx: *mut xdp_md) -> u32 {
    let Some(payload) = ip(ctx).be16(4) else {
        return 1;
    };
    let padding = packet::whole_len(ctx).wrapping_sub(IP + ipv6::HEADER_LEN + usize::from(payload));
    if padding == 0 {
        return 0;
    }
    // SAFETY: as in `pop`.
    match unsafe { helpers::bpf_xdp_adjust_tail(ctx, -(padding as i32)) } {
        0 => 0,
        _ => 1,
    }
}

/// Removes the outer headers. The Ethernet header is then one for the packet that was inside, or the frame's own.
#[inline(always)]
fn remove_front(ctx: *mut xdp_md, work: &Work) -> u32 {
    let Some(macs) = Packet::of(ctx, 0).bytes::<12>(0) else {
        return 1;
    };
    let strip = i32::from(work.step.strip);
    let exposed = work.step.exposed;
    let ethertype = match exposed {
        NEXT_IPV4 => ethernet::ETHERTYPE_IPV4,
        NEXT_ETHERNET => 0,
        _ => ethernet::ETHERTYPE_IPV6,
    };
    let by = match ethertype {
        0 => strip + IP as i32,
        _ => strip,
    };
    if ethertype == 0 && trim(ctx) != 0 {
        return 1;
    }
    // SAFETY: as in `pop`.
    if unsafe { helpers::bpf_xdp_adjust_head(ctx, by) } != 0 {
        return 1;
    }
    if ethertype == 0 {
        return 0;
    }
    let mut packet = Packet::of(ctx, 0);
    match packet
        .store(0, macs)
        .and_then(|()| packet.store(12, ethertype.to_be_bytes()))
    {
        Some(()) => 0,
        None => 1,
    }
}
