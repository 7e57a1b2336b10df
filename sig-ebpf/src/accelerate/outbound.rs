//! Packets into the tunnel: what the gateway has been seen to do with packets of a flow is done here.

use aya_ebpf::{bindings::__sk_buff, helpers, programs::TcContext};
use sig_common::accelerate::{
    CPU_BITS, FLOW_LIFETIME, Flow, MAX_HEADERS, Path, STREAM_BIT, Stat, WAY_LIFETIME,
};
use sig_common::wire::{checksum::Sum, simple::Simple, template::FrameFields};

use super::{
    A_FLOWS, A_PATHS, A_SENT, A_SEQUENCES, A_WAYS, DROP, config, count, count_traffic,
    inner::{self, Inner, Way},
    now, redirect, segments,
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
        Ok(path) => {
            let action = match inner.version {
                4 => send::<false>(skb, path, config.underlay),
                _ => send::<true>(skb, path, config.underlay),
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
            inner::mark(Way::Out, &inner, now, 0);
            redirect(config.tunnel, 0)
        }
    }
}

/// The path of a packet, if it need not go through the gateway.
#[inline(always)]
fn path_of(
    skb: *mut __sk_buff,
    inner: &Inner,
    now: u64,
    enabled: u32,
) -> Result<*const Path, Stat> {
    // SAFETY: the context is of the running program.
    let len = unsafe { (*skb).len };
    if inner.odd != 0 || inner.len.wrapping_add(IP as u32) != len {
        return Err(Stat::OutOdd);
    }
    let flow: *mut Flow = A_FLOWS.get_ptr_mut(inner.key).ok_or(Stat::OutUnknown)?;
    // SAFETY: the pointer is to an element, which keeps its bytes while the program runs; they may become those of another.
    let (number, used) = unsafe { ((*flow).path, (*flow).used) };
    let path: *const Path = A_PATHS.get_ptr(number).ok_or(Stat::OutUnknown)?;
    // SAFETY: as above.
    let (way, capacity) = unsafe { ((*path).way, (*path).capacity) };
    // SAFETY: a word that is copied at once.
    let seen = *unsafe { A_WAYS.get(way) }.ok_or(Stat::OutUnknown)?;
    if enabled == 0
        || now.wrapping_sub(seen) > WAY_LIFETIME
        || now.wrapping_sub(used) > FLOW_LIFETIME
    {
        return Err(Stat::OutUnknown);
    }
    if !inner::is_free(Way::Out, inner, now) {
        return Err(Stat::OutBusy);
    }
    if inner.len > capacity {
        return Err(Stat::OutLong);
    }
    // SAFETY: as above.
    unsafe { (*flow).used = now };
    Ok(path)
}

/// No action of TC.
const NOT_SIMPLE: i32 = 64;

/// Encapsulates the packet. A function of its own: the stack is small.
#[inline(never)]
fn send<const V6: bool>(skb: *mut __sk_buff, path: *const Path, underlay: u32) -> i32 {
    let packet = Packet::of_skb(skb, IP);
    let Some(simple) = Simple::<V6>::parse(&packet) else {
        return NOT_SIMPLE;
    };
    // Of what has no checksum of this kind, the gateway makes one.
    let Some(sum) = simple.known_sum(&packet) else {
        return NOT_SIMPLE;
    };
    // SAFETY: an element of a map, which lives as long as the program.
    let path = unsafe { &*path };
    let headers = opaque(path.template.len());
    if headers <= IP || headers > MAX_HEADERS {
        return NOT_SIMPLE;
    }
    // SAFETY: the context is of the running program. Pointers into the packet from before are not used any more.
    if unsafe { helpers::bpf_skb_change_head(skb, (headers - IP) as u32, 0) } != 0 {
        return NOT_SIMPLE;
    }
    encapsulate(skb, path, headers, &simple, sum).map_or(DROP, |()| redirect(underlay, 0))
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
