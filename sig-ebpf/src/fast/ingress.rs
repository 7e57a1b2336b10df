//! From SCION to IP: the packet of a frame goes straight to its next hop.

use aya_ebpf::{
    bindings::{xdp_action::XDP_DROP, xdp_md},
    programs::XdpContext,
};
use sig_common::addr::HostAddr;
use sig_common::fast_path::{Hop, StreamKey, control, pair_place, slot, stream};
use sig_common::maps::Ip;
use sig_common::wire::{
    Load as _, PROTO_UDP, Store as _,
    checksum::Sum,
    ethernet, sig_frame,
    simple::Simple,
    udp,
    underlay::{Local, Parsed},
};

use super::{
    DELIVERED, HOPS, Outcome, PAIRS, PAIRS_USED, STREAM_SLOTS, STREAMS, control_word, count,
    cut_end, mark, move_start,
    order::{self, State},
    redirect, sum,
};
use crate::packet::{IP, Packet};

/// The place of the stream that a frame belongs to, if the engine left streams like it to the programs.
#[inline(always)]
pub fn place(frame: &Parsed, host: Ip) -> Option<u32> {
    let header = &frame.header;
    let key = StreamKey::new(
        frame.source_isd_as,
        host,
        frame.source_port,
        header.session,
        header.stream,
    );
    // SAFETY: the value is copied at once; an update replaces it as a whole.
    unsafe { STREAMS.get(key) }.copied()
}

/// A frame that came in, as far as it takes to deliver its packet. Plain numbers: the stack is small, so a function of its own
/// finds them out and gives its stack back.
#[derive(Default)]
pub struct Frame {
    /// Sum over the pseudo header of UDP/SCION but for the length, folded.
    pseudo_header: u64,
    sequence: u64,
    /// Number of the remote that sent it.
    remote: u32,
    /// Place of its stream, plus one; 0 if the engine has not left streams like it to the programs.
    stream: u32,
    /// Where it would go otherwise.
    pub socket: u32,
    /// Not 0 if its packet may be delivered, as far as can be told from the headers around it.
    candidate: u32,
    l4: u32,
    frame: u32,
    frame_len: u32,
}

impl Frame {
    /// Notes what came in. `socket` is where it would go otherwise, `remote` the number of the remote that sent it.
    #[inline(always)]
    pub fn note(&mut self, frame: &Parsed, local: &Local, remote: u32, socket: u32, stream: u32) {
        // A mark of the outside has to be passed on (RFC 6040), which is the engine's work.
        const CE: u8 = 0b11;
        let is_within_reach = frame.l4 < MAX_OFFSET && frame.frame < MAX_OFFSET;
        let is_candidate = is_within_reach
            && frame.header.index == 0
            && frame.outer_tos & CE != CE
            && frame.traffic_class & CE != CE;
        let pseudo_header = Sum::ZERO
            .add_u64(frame.source_isd_as.0)
            .add_u64(local.isd_as().0)
            .add_u16(PROTO_UDP.into())
            .combine(of_host(frame.source))
            .combine(of_host(local.host()));
        self.pseudo_header = pseudo_header.fold().into();
        self.sequence = frame.header.sequence;
        self.remote = remote;
        self.stream = stream.wrapping_add(1);
        self.socket = socket;
        self.candidate = is_candidate.into();
        self.l4 = frame.l4.into();
        self.frame = frame.frame.into();
        self.frame_len = frame.frame_len.into();
    }

    /// The place of its stream.
    #[inline(always)]
    pub fn stream(&self) -> Option<u32> {
        match self.stream {
            0 => None,
            place => Some(place - 1),
        }
    }

    /// Offset of the packet in the frame.
    #[inline(always)]
    const fn payload(&self) -> usize {
        (self.frame & 0x7ff) as usize + sig_frame::HEADER_LEN
    }
}

/// Delivers the packet of a frame, if it is the next one of its stream, holds one whole packet, and the engine decided about
/// packets like that.
#[inline(always)]
pub fn deliver(ctx: &XdpContext, frame: &Frame, stream: u32) -> Outcome {
    match frame.candidate {
        0 => Outcome::Declined,
        _ => Outcome::of(try_deliver(ctx.ctx, frame, stream)),
    }
}

/// Offsets of headers in frames that the programs look at, at most. Longer ones need extension headers of SCION that nobody uses.
const MAX_OFFSET: u16 = 0x700;

/// A function of its own: the stack is small.
#[inline(never)]
fn try_deliver(ctx: *mut xdp_md, frame: &Frame, stream: u32) -> u32 {
    let ctx = &XdpContext::new(ctx);
    let generation = control_word(control::GENERATION) as u16;
    let Some(words) = STREAM_SLOTS.get_ptr_mut(stream) else {
        return Outcome::DECLINED;
    };
    if generation == 0 {
        return Outcome::DECLINED;
    }
    // SAFETY: within the element; each word is read as a whole.
    let (next, ticket, dropped) = unsafe {
        (
            (&raw const (*words)[stream::NEXT]).read_volatile(),
            (&raw const (*words)[stream::TICKET]).read_volatile(),
            (&raw const (*words)[stream::DROPPED]).read_volatile(),
        )
    };
    let known = next & !stream::WITH_ENGINE;
    let is_gap_known = dropped > known && dropped - known <= stream::MAX_DROPPED;
    let expected = if is_gap_known { dropped } else { known };
    let state = order::state(ticket, frame.socket);
    // What is dropped here is told by the number behind it, and those from [`stream::WITH_ENGINE`] on cannot be told.
    let is_tellable = frame.sequence < stream::WITH_ENGINE - 1;
    if matches!(state, State::Behind) && frame.sequence >= expected && is_tellable {
        let behind = frame.sequence + 1;
        if behind.wrapping_sub(known) <= stream::MAX_DROPPED {
            // SAFETY: within the element; frames of a stream come through one queue.
            unsafe { (&raw mut (*words)[stream::DROPPED]).write_volatile(behind) };
        }
        return Outcome::DROPPED;
    }
    // Behind the last number of the programs, the engine goes on.
    let is_next = frame.sequence == expected && expected != stream::WITH_ENGINE - 1;
    if !matches!(state, State::Free) || next != known || !is_next {
        return Outcome::DECLINED;
    }
    match Packet::of(ctx.ctx, frame.payload()).bytes(0) {
        Some([first]) if first >> 4 == 4 => hand_on::<false>(ctx.ctx, frame, words.cast(), next),
        Some([first]) if first >> 4 == 6 => hand_on::<true>(ctx.ctx, frame, words.cast(), next),
        _ => Outcome::DECLINED,
    }
}

/// Delivers the packet of a frame that is the next one of its stream: `next_word` holds its number, `next`.
#[inline(never)]
fn hand_on<const V6: bool>(ctx: *mut xdp_md, frame: &Frame, next_word: *mut u64, next: u64) -> u32 {
    let ctx = &XdpContext::new(ctx);
    // The frame has been looked at: all of it is there, and the packet must be as long as it.
    let packet = Packet::of(ctx.ctx, frame.payload()).endless();
    let Some(simple) = Simple::<V6>::parse(&packet) else {
        return Outcome::DECLINED;
    };
    let len = frame.frame_len.wrapping_sub(sig_frame::HEADER_LEN as u32);
    if u32::from(simple.total_len) != len
        || simple.ttl <= 1
        || super::clamps_mss() && simple.opens_tcp(&packet)
    {
        return Outcome::DECLINED;
    }
    let key = simple.pair_key(frame.remote, control_word(control::BY_FLOW) != 0);
    let place = pair_place(&key);
    let Some(words) = PAIRS.get_ptr_mut(place) else {
        return Outcome::DECLINED;
    };
    let generation = control_word(control::GENERATION) as u16;
    let Some(number) = slot::open(&super::sealed(words), generation, &key) else {
        return Outcome::DECLINED;
    };
    // SAFETY: the value is only read; an update replaces it as a whole.
    let Some(hop) = (unsafe { HOPS.get(number) }) else {
        return Outcome::DECLINED;
    };
    if u32::from(simple.total_len) > hop.mtu
        || !super::can_leave(
            ctx,
            frame.payload() + usize::from(simple.total_len),
            hop.buffers,
        )
        || !has_right_checksum(ctx, frame, &packet, &simple)
    {
        return Outcome::DECLINED;
    }
    // SAFETY: a word of an element. From here on the frame counts as received.
    if !unsafe { order::replace(next_word, next, frame.sequence.wrapping_add(1)) } {
        return Outcome::DECLINED;
    }
    mark(&PAIRS_USED, place);
    count(&DELIVERED, frame.remote, simple.total_len.into());
    decapsulate(ctx, frame, &simple, hop).unwrap_or(XDP_DROP)
}

/// Whether the UDP/SCION checksum is right, as far as can be told from the one inside: what is wrong in the payload by both,
/// the host finds.
#[inline(always)]
fn has_right_checksum<const V6: bool>(
    ctx: &XdpContext,
    frame: &Frame,
    packet: &Packet,
    simple: &Simple<V6>,
) -> bool {
    if !super::verifies_checksums() {
        return true;
    }
    let Some(words) = Packet::of(ctx.ctx, (frame.l4 & 0x7ff) as usize).words() else {
        return false;
    };
    let [.., c0, c1] = words[0].to_ne_bytes();
    if [c0, c1] == [0, 0] {
        // The sender computed none.
        return true;
    }
    let sum = match simple.known_sum(packet) {
        Some(sum) => sum,
        None => {
            let len = usize::from(simple.total_len).wrapping_sub(Simple::<V6>::HEADER_LEN);
            match sum::of_bytes(ctx, frame.payload() + Simple::<V6>::HEADER_LEN, len) {
                Some(upper) => simple.sum_with(upper),
                None => return false,
            }
        }
    };
    sum.add_u16(frame.pseudo_header as u16)
        .add_u16((frame.frame_len as u16).wrapping_add(udp::HEADER_LEN as u16))
        .combine(sum::of_words(words))
        .is_valid()
}

/// Takes the headers off and sends the packet to its next hop.
#[inline(always)]
fn decapsulate<const V6: bool>(
    ctx: &XdpContext,
    frame: &Frame,
    simple: &Simple<V6>,
    hop: &Hop,
) -> Option<u32> {
    if !move_start(ctx, (frame.payload() - IP) as i32) {
        return None;
    }
    if !cut_end(ctx, IP + usize::from(simple.total_len)) {
        return None;
    }
    let mut frame = Packet::of_xdp(ctx);
    frame.store(0, hop.macs)?;
    let ethertype = match V6 {
        true => ethernet::ETHERTYPE_IPV6,
        false => ethernet::ETHERTYPE_IPV4,
    };
    frame.store(IP - 2, ethertype.to_be_bytes())?;
    simple.decrement_ttl(&mut frame.ip())?;
    Some(redirect(hop.output))
}

#[inline(always)]
fn of_host(host: HostAddr) -> Sum {
    match host {
        HostAddr::V4(a) => Sum::ZERO.add_u32(u32::from_be_bytes(a)),
        HostAddr::V6(a) => {
            let bits = u128::from_be_bytes(a);
            Sum::ZERO.add_u64((bits >> 64) as u64).add_u64(bits as u64)
        }
        HostAddr::Svc(_) => Sum::ZERO,
    }
}
