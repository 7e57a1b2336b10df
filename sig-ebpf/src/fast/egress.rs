//! From IP to SCION: a packet gets the headers of its path and leaves.

use aya_ebpf::{
    bindings::{xdp_action::XDP_DROP, xdp_md},
    helpers,
    programs::XdpContext,
};
use sig_common::fast_path::{
    FastPath, MAX_HEADERS, control, flow_place, returned_key, sender, slot,
};
use sig_common::wire::{
    PROTO_SCTP, PROTO_UDP, Store as _, checksum::Sum, simple::Simple, template::FrameFields, udp,
};

use super::{
    FLOWS, FLOWS_USED, Outcome, PATHS, SENDERS, SENT, control_word, count, cut_end, mark,
    move_start,
    order::{self, State},
    redirect, sum,
};
use crate::packet::{IP, Packet, opaque};

/// What is known of a packet beside what stands in it.
pub struct Origin {
    /// Hash of its flow.
    pub flow_hash: u32,
    /// The socket that it would go to otherwise.
    pub socket: u32,
    /// The gateway is a router hop, which takes one from the TTL: not for packets that the kernel has routed.
    pub is_hop: bool,
    /// It has been through its chain.
    pub has_returned: bool,
    /// The sender may have left the transport checksum to its network card.
    pub partial: bool,
}

/// Sends the packet, if the engine decided about packets of its flow and none of these is with a worker.
#[inline(always)]
pub fn send<const V6: bool>(ctx: &XdpContext, origin: &Origin) -> Outcome {
    Outcome::of(try_send::<V6>(ctx.ctx, origin))
}

/// The upper layer's checksum, and all it takes to make those around the packet.
struct Checksums {
    /// Sum over the packet as it will be sent, but for its TTL.
    packet: Sum,
    /// Offset of a checksum in the packet that is still to be written; 0: none.
    at: usize,
    /// That checksum.
    finished: u16,
}

/// A function of its own: the stack is small.
#[inline(never)]
fn try_send<const V6: bool>(ctx: *mut xdp_md, origin: &Origin) -> u32 {
    let ctx = &XdpContext::new(ctx);
    // It has been looked at: all of it is there.
    let packet = Packet::of(ctx.ctx, IP).endless();
    let Some(simple) = Simple::<V6>::parse(&packet) else {
        return Outcome::DECLINED;
    };
    let place = flow_place(origin.flow_hash, origin.has_returned);
    let generation = control_word(control::GENERATION) as u16;
    let Some(words) = FLOWS.get_ptr_mut(place) else {
        return Outcome::DECLINED;
    };
    if generation == 0 {
        return Outcome::DECLINED;
    }
    let key = match origin.has_returned {
        true => returned_key(&simple.flow_key()),
        false => simple.flow_key(),
    };
    let Some(number) = slot::open(&super::sealed(words), generation, &key) else {
        return Outcome::DECLINED;
    };
    // SAFETY: the value is only read; an update replaces it as a whole.
    let Some(path) = (unsafe { PATHS.get(number) }) else {
        return Outcome::DECLINED;
    };
    if u32::from(simple.total_len) > path.capacity
        || !super::can_leave(ctx, IP + usize::from(simple.total_len), path.buffers)
        || super::clamps_mss() && simple.opens_tcp(&packet)
    {
        return Outcome::DECLINED;
    }
    // SAFETY: within the element; a word is read as a whole.
    let ticket = unsafe { (&raw const (*words)[slot::TICKET]).read_volatile() };
    match order::state(ticket, origin.socket) {
        State::Free => {}
        State::Busy => return Outcome::DECLINED,
        State::Behind => return Outcome::DROPPED,
    }
    let Some(checksums) = checksums(ctx, &packet, &simple, origin.partial) else {
        return Outcome::DECLINED;
    };
    let Some(stream) = SENDERS.get_ptr_mut(sender::place(number, origin.socket)) else {
        return Outcome::DECLINED;
    };
    let headers = opaque(path.template.len());
    if headers <= IP || headers > MAX_HEADERS || !move_start(ctx, IP as i32 - headers as i32) {
        return Outcome::DECLINED;
    }
    // From here on the packet is ours: what goes wrong costs it.
    mark(&FLOWS_USED, place);
    count(&SENT, number, simple.total_len.into());
    match encapsulate(
        ctx,
        &simple,
        path,
        headers,
        origin,
        &checksums,
        stream.cast(),
    ) {
        Some(action) => action,
        None => XDP_DROP,
    }
}

#[inline(always)]
fn checksums<const V6: bool>(
    ctx: &XdpContext,
    packet: &Packet,
    simple: &Simple<V6>,
    partial: bool,
) -> Option<Checksums> {
    let upper = || {
        let len = usize::from(simple.total_len).wrapping_sub(Simple::<V6>::HEADER_LEN);
        sum::of_bytes(ctx, IP + Simple::<V6>::HEADER_LEN, len)
    };
    if partial {
        if simple.protocol == PROTO_SCTP {
            // Its checksum is another one.
            return None;
        }
        if let Some(at) = simple.partial_checksum(packet) {
            // The field holds the pseudo header's sum, so the sum over the segment includes it.
            let sum = upper()?;
            let finished = match simple.protocol {
                PROTO_UDP => udp::checksum(sum),
                _ => sum.checksum(),
            };
            let packet = simple.sum_with(Sum::ZERO.add_u16(!simple.pseudo_header()));
            return Some(Checksums {
                packet,
                at,
                finished,
            });
        }
    }
    let packet = match simple.known_sum(packet) {
        Some(sum) => sum,
        None => simple.sum_with(upper()?),
    };
    Some(Checksums {
        packet,
        at: 0,
        finished: 0,
    })
}

/// Writes the headers, for which there is room, and sends the frame.
#[inline(always)]
fn encapsulate<const V6: bool>(
    ctx: &XdpContext,
    simple: &Simple<V6>,
    path: &FastPath,
    headers: usize,
    origin: &Origin,
    checksums: &Checksums,
    stream: *mut u64,
) -> Option<u32> {
    if !cut_end(ctx, headers + usize::from(simple.total_len)) {
        return None;
    }
    // SAFETY: the context is of the running program, the bytes are those of an element of a map, MAX_HEADERS of them.
    let stored = unsafe {
        let bytes = path.template.bytes().as_ptr();
        helpers::bpf_xdp_store_bytes(ctx.ctx, 0, bytes as *mut _, headers as u32)
    };
    if stored != 0 {
        return None;
    }
    let mut packet = Packet::of(ctx.ctx, headers);
    let mut payload = checksums.packet;
    if origin.is_hop {
        payload = payload.combine(simple.decrement_ttl(&mut packet)?);
    }
    if checksums.at != 0 {
        packet.store(checksums.at & 0x7f, checksums.finished.to_be_bytes())?;
    }
    // SAFETY: both words of an element; a word is read as a whole.
    let (stream, sequence) = unsafe {
        (
            stream.add(sender::STREAM).read_volatile() as u32,
            order::fetch_add_one(stream.add(sender::SEQUENCE)),
        )
    };
    let fields = FrameFields {
        traffic_class: simple.tos,
        flow_hash: origin.flow_hash,
        stream,
        sequence,
        index: 0,
    };
    let mut frame = Packet::of_xdp(ctx);
    let template = &path.template;
    template.patch(&mut frame, &fields, payload, simple.total_len)?;
    Some(redirect(path.output))
}
