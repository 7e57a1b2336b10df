//! Packets into the tunnel: what the gateway has been seen to do with packets of a flow is done here.

use aya_ebpf::{bindings::__sk_buff, helpers, programs::TcContext};
use sig_common::accelerate::{
    CPU_BITS, Direction, FLOW_LIFETIME, Flow, MAX_HEADERS, Path, STREAM_BIT, Stat, WAY_LIFETIME,
    flow_tag, target_place,
};
use sig_common::wire::{checksum::Sum, simple::Simple, template::FrameFields};

use super::{
    A_FLOWS, A_PATHS, A_SENT, A_SEQUENCES, A_TARGETS, A_WAYS, DROP, config, count, count_traffic,
    inner::{self, Inner},
    now, redirect, seed, segments,
};
use crate::packet::{IP, Packet, opaque};

/// Packets from the segmenter.
pub fn take(ctx: &TcContext) -> i32 {
    let skb = ctx.skb.skb;
    let Some(config) = config() else {
        return DROP;
    };
    let mut inner = Inner::NONE;
    inner::read(skb, IP as u32, &mut inner);
    if segments::clamp(skb, IP, &inner, config.frame_size) {
        // As the gateway will send it.
        inner::read(skb, IP as u32, &mut inner);
    }
    let now = now();
    let action = match path_of(skb, &inner, now, config.enabled) {
        Ok((number, path)) => {
            let action = match inner.version {
                4 => send::<false>(skb, path, number, config.underlay),
                _ => send::<true>(skb, path, number, config.underlay),
            };
            match action {
                NOT_SIMPLE => Err(Stat::OutOdd),
                action => Ok(action),
            }
        }
        Err(why) => Err(why),
    };
    match action {
        Ok(action) => {
            count(match action {
                DROP => Stat::OutLost,
                _ => Stat::Sent,
            });
            action
        }
        Err(why) => {
            count(why);
            inner::mark(Direction::Out, &inner, now, 0);
            redirect(config.tunnel, 0)
        }
    }
}

/// Number and path of a packet, if it need not go through the gateway.
#[inline(always)]
fn path_of(
    skb: *mut __sk_buff,
    inner: &Inner,
    now: u64,
    enabled: u32,
) -> Result<(u32, *const Path), Stat> {
    // SAFETY: the context is of the running program.
    let len = unsafe { (*skb).len };
    if inner.odd != 0 || inner.len.wrapping_add(IP as u32) != len {
        return Err(Stat::OutOdd);
    }
    let flow: *mut Flow = A_FLOWS.get_ptr_mut(inner.key).ok_or(Stat::OutUnknown)?;
    // SAFETY: the pointer is to an element of a map, whose memory stays readable while the program runs. It may become
    // another flow's meanwhile: the tag, read last, tells. Volatile, so that it is.
    let (number, target, used, tag) = unsafe {
        (
            (&raw const (*flow).path).read_volatile(),
            (&raw const (*flow).target).read_volatile(),
            (&raw const (*flow).used).read_volatile(),
            (&raw const (*flow).tag).read_volatile(),
        )
    };
    if tag != flow_tag(&inner.key) {
        return Err(Stat::OutUnknown);
    }
    // The gateway may have chosen another peer for this destination since.
    let chosen = A_TARGETS.get(target_place(&inner.key, seed()));
    if chosen != Some(&target) {
        return Err(Stat::OutUnknown);
    }
    let path: *const Path = A_PATHS.get_ptr(number).ok_or(Stat::OutUnknown)?;
    // SAFETY: as above; `send` looks whether it is still the same.
    let (way, capacity) = unsafe { ((*path).way, (*path).capacity) };
    // SAFETY: a word that is copied at once. Should it be another way's by then, one packet is sent that the gateway would not
    // have sent this way any more.
    let seen = *unsafe { A_WAYS.get(way) }.ok_or(Stat::OutUnknown)?;
    if enabled == 0
        || now.wrapping_sub(seen) > WAY_LIFETIME
        || now.wrapping_sub(used) > FLOW_LIFETIME
    {
        return Err(Stat::OutUnknown);
    }
    if !inner::is_free(Direction::Out, inner, now) {
        return Err(Stat::OutBusy);
    }
    if inner.len > capacity {
        return Err(Stat::OutLong);
    }
    // SAFETY: as above. If it is another flow's by now, that lives a little longer.
    unsafe { (*flow).used = now };
    Ok((number, path))
}

/// No action of TC.
const NOT_SIMPLE: i32 = 64;

/// Encapsulates the packet. A function of its own: the stack is small.
#[inline(never)]
fn send<const V6: bool>(skb: *mut __sk_buff, path: *const Path, number: u32, underlay: u32) -> i32 {
    let packet = Packet::of_skb(skb, IP);
    let Some(simple) = Simple::<V6>::parse(&packet) else {
        return NOT_SIMPLE;
    };
    // Of what has no checksum of this kind, the gateway makes one.
    let Some(sum) = simple.known_sum(&packet) else {
        return NOT_SIMPLE;
    };
    // SAFETY: the pointer is to an element of a map, whose memory stays readable while the program runs.
    let written = || unsafe {
        (
            (&raw const (*path).number).read_volatile(),
            (&raw const (*path).serial).read_volatile(),
        )
    };
    let before = written();
    if before.0 != number {
        return NOT_SIMPLE;
    }
    // SAFETY: as above. It is made of integers, and any are valid. User space may replace it, and the memory become that of
    // another: what was made of it then is dropped below.
    let path = unsafe { &*path };
    let headers = opaque(path.template.len());
    if headers <= IP || headers > MAX_HEADERS {
        return NOT_SIMPLE;
    }
    // SAFETY: the context is of the running program. Pointers into the packet from before are not used any more.
    if unsafe { helpers::bpf_skb_change_head(skb, (headers - IP) as u32, 0) } != 0 {
        return NOT_SIMPLE;
    }
    let done = encapsulate(skb, path, headers, &simple, sum);
    if done.is_none() || written() != before {
        return DROP;
    }
    // SAFETY: the context is of the running program. Queues that sort packets by flow see that of the gateway's frames.
    unsafe { helpers::bpf_set_hash_invalid(skb) };
    redirect(underlay, 0)
}

#[inline(always)]
fn encapsulate<const V6: bool>(
    skb: *mut __sk_buff,
    path: &Path,
    headers: usize,
    simple: &Simple<V6>,
    sum: Sum,
) -> Option<()> {
    // SAFETY: the context is of the running program, the bytes are those of an element of a map, MAX_HEADERS of them.
    let stored = unsafe {
        let bytes = path.template.bytes().as_ptr();
        helpers::bpf_skb_store_bytes(skb.cast(), 0, bytes.cast(), headers as u32, 0)
    };
    if stored != 0 {
        return None;
    }
    // SAFETY: takes nothing.
    let cpu = unsafe { helpers::bpf_get_smp_processor_id() };
    let sequence = A_SEQUENCES.get_ptr_mut(path.place)?;
    // SAFETY: this CPU's element; programs of this hook do not interrupt each other.
    let sequence = unsafe {
        let next = *sequence;
        *sequence = next.wrapping_add(1) & (u64::MAX >> 1);
        next
    };
    let fields = FrameFields {
        traffic_class: path.traffic_class as u8,
        flow_hash: simple.flow_key()[4] as u32,
        stream: STREAM_BIT | path.stream.wrapping_add(cpu & ((1 << CPU_BITS) - 1)),
        sequence,
        index: 0,
    };
    let mut frame = Packet::of_skb(skb, 0);
    path.template
        .patch(&mut frame, &fields, sum, simple.total_len)?;
    count_traffic(&A_SENT, path.place, simple.total_len.into());
    Some(())
}
