//! The fast path: simple packets that the programs send and deliver by themselves, as the engine decided about the ones before.
//!
//! What a program declines is as it was, and goes to a worker.

pub mod egress;
pub mod ingress;
mod order;
mod sum;

use aya_ebpf::{
    bindings::BPF_F_MMAPABLE,
    helpers,
    macros::map,
    maps::{Array, DevMap, HashMap, PerCpuArray},
    programs::XdpContext,
};
use sig_common::fast_path::{
    FLOW_SLOTS, FastPath, Hop, MAX_DELIVERED, MAX_HOPS, MAX_OUTPUTS, MAX_PATHS, MAX_STREAMS,
    PAIR_SLOTS, StreamKey, Traffic, control, sender, slot, stream, tickets,
};
use sig_common::maps::MAX_SOCKETS;

pub use order::{Owner, fetch_add_one, hand_over, replace};
pub use sum::of_words;

use crate::{maps::NO_PREALLOC, packet};

#[map]
static FLOWS: Array<[u64; slot::WORDS]> = Array::with_max_entries(FLOW_SLOTS, BPF_F_MMAPABLE);

#[map]
static FLOWS_USED: Array<[u8; FLOW_SLOTS as usize]> = Array::with_max_entries(1, BPF_F_MMAPABLE);

#[map]
static PAIRS: Array<[u64; slot::WORDS]> = Array::with_max_entries(PAIR_SLOTS, BPF_F_MMAPABLE);

#[map]
static PAIRS_USED: Array<[u8; PAIR_SLOTS as usize]> = Array::with_max_entries(1, BPF_F_MMAPABLE);

#[map]
static STREAMS: HashMap<StreamKey, u32> = HashMap::with_max_entries(MAX_STREAMS, NO_PREALLOC);

#[map]
static STREAM_SLOTS: Array<[u64; stream::WORDS]> =
    Array::with_max_entries(MAX_STREAMS, BPF_F_MMAPABLE);

#[map]
static TICKETS: Array<[u64; tickets::WORDS]> = Array::with_max_entries(MAX_SOCKETS, BPF_F_MMAPABLE);

#[map]
static PATHS: HashMap<u32, FastPath> = HashMap::with_max_entries(MAX_PATHS, NO_PREALLOC);

/// As many entries for each socket; the loader knows how many there are.
#[map]
static SENDERS: Array<[u64; sender::WORDS]> = Array::with_max_entries(MAX_PATHS, BPF_F_MMAPABLE);

#[map]
static HOPS: HashMap<u32, Hop> = HashMap::with_max_entries(MAX_HOPS, NO_PREALLOC);

#[map]
static OUTPUTS: DevMap = DevMap::with_max_entries(MAX_OUTPUTS, 0);

#[map]
static SENT: PerCpuArray<Traffic> = PerCpuArray::with_max_entries(MAX_PATHS, 0);

#[map]
static DELIVERED: PerCpuArray<Traffic> = PerCpuArray::with_max_entries(MAX_DELIVERED, 0);

#[map]
static CONTROL: Array<[u64; control::WORDS]> = Array::with_max_entries(1, BPF_F_MMAPABLE);

/// 1 if there is a fast path, set when the programs are loaded: without one, its code is not in them.
#[unsafe(no_mangle)]
static FAST_PATH: u8 = 0;

/// 1 if TCP connections are kept from too large segments: packets that open one are the engine's.
#[unsafe(no_mangle)]
static CLAMP_MSS: u8 = 0;

/// 1 if checksums of received frames are looked at.
#[unsafe(no_mangle)]
static VERIFY_CHECKSUMS: u8 = 1;

/// What became of a packet that could be simple.
pub enum Outcome {
    /// It is as it was, and the worker's.
    Declined,
    /// It is on its way, with this action.
    Done(u32),
    /// It must be dropped: the worker is behind, see [`order::State::Behind`].
    Dropped,
}

impl Outcome {
    /// As numbers, which are no XDP actions: what functions of their own return.
    const DECLINED: u32 = 16;
    const DROPPED: u32 = 17;

    #[inline(always)]
    fn of(number: u32) -> Self {
        match number {
            Self::DECLINED => Self::Declined,
            Self::DROPPED => Self::Dropped,
            action => Self::Done(action),
        }
    }
}

/// Whether there is a fast path at all.
#[inline(always)]
pub fn is_there() -> bool {
    is_set(&raw const FAST_PATH)
}

#[inline(always)]
fn clamps_mss() -> bool {
    is_set(&raw const CLAMP_MSS)
}

#[inline(always)]
fn verifies_checksums() -> bool {
    is_set(&raw const VERIFY_CHECKSUMS)
}

/// What the loader wrote before the program ran. Volatile, or else the value of the source is taken.
#[inline(always)]
fn is_set(global: *const u8) -> bool {
    // SAFETY: the pointer is to a static.
    unsafe { global.read_volatile() != 0 }
}

/// A word of [`control`].
#[inline(always)]
fn control_word(word: usize) -> u64 {
    // SAFETY: an element of words; a word is read as a whole.
    CONTROL.get_ptr(0).map_or(0, |words| unsafe {
        (&raw const (*words)[word]).read_volatile()
    })
}

/// The words of a slot that the engine writes. Volatile: they change while they are read.
#[inline(always)]
fn sealed(words: *mut [u64; slot::WORDS]) -> [u64; slot::SEALED] {
    // SAFETY: the pointer is to an element of a map, which lives as long as the program; a word is read as a whole.
    unsafe {
        [
            (&raw const (*words)[0]).read_volatile(),
            (&raw const (*words)[1]).read_volatile(),
            (&raw const (*words)[2]).read_volatile(),
            (&raw const (*words)[3]).read_volatile(),
            (&raw const (*words)[4]).read_volatile(),
            (&raw const (*words)[5]).read_volatile(),
            (&raw const (*words)[6]).read_volatile(),
        ]
    }
}

/// Marks a slot as used.
#[inline(always)]
fn mark<const N: usize>(used: &Array<[u8; N]>, place: u32) {
    if let Some(marks) = used.get_ptr_mut(0) {
        // SAFETY: within the element, as N is a power of two; a byte is read and written as a whole.
        unsafe {
            // Masked right here: Linux 6.1 forgets the bounds of a number that is kept on the stack meanwhile.
            let place = packet::opaque(place as usize) & (N - 1);
            let mark = (&raw mut *marks).cast::<u8>().add(place);
            // A store only when there is none yet: the cache line is shared among the CPUs.
            if mark.read_volatile() == 0 {
                mark.write_volatile(1);
            }
        }
    }
}

/// Counts a packet of this CPU.
#[inline(always)]
fn count(map: &PerCpuArray<Traffic>, place: u32, bytes: u64) {
    if let Some(traffic) = map.get_ptr_mut(place) {
        // SAFETY: the pointer is to this CPU's element, and programs do not interrupt each other.
        unsafe {
            (*traffic).packets = (*traffic).packets.wrapping_add(1);
            (*traffic).bytes = (*traffic).bytes.wrapping_add(bytes);
        }
    }
}

/// Sends the packet out of a device; it is lost if the device is gone.
#[inline(always)]
fn redirect(output: u16) -> u32 {
    const DROP: u64 = aya_ebpf::bindings::xdp_action::XDP_DROP as u64;
    match OUTPUTS.redirect(output.into(), DROP) {
        Ok(action) | Err(action) => action,
    }
}

/// Moves the start of the packet by so many bytes, negative in front of it; whether there was room.
#[inline(always)]
pub fn move_start(ctx: &XdpContext, by: i32) -> bool {
    // SAFETY: the context is of the running program. Pointers into the packet from before are not used any more.
    unsafe { helpers::bpf_xdp_adjust_head(ctx.ctx, by) == 0 }
}

/// Bytes behind a packet that are cut off at most: small ones are padded to the shortest Ethernet frame.
const MAX_PADDING: usize = 64;

/// Whether a packet of `len` bytes, which is there, can leave by a device that may send packets in several `buffers`. Behind it there
/// may be what [`cut_end`] cuts off, if it is in one.
#[inline(always)]
fn can_leave(ctx: &XdpContext, len: usize, buffers: u16) -> bool {
    let first = packet::len(ctx.ctx);
    if first == len {
        return true;
    }
    let whole = packet::whole_len(ctx.ctx);
    match whole == first {
        true => whole.wrapping_sub(len) <= MAX_PADDING,
        false => whole == len && buffers != 0,
    }
}

/// Cuts off what is behind the first `len` bytes; whether that could be done. Of a packet that goes on in another buffer, that is
/// nothing.
#[inline(always)]
fn cut_end(ctx: &XdpContext, len: usize) -> bool {
    let first = packet::len(ctx.ctx);
    let padding = first.wrapping_sub(len);
    // SAFETY: as in `move_start`.
    first <= len
        || padding <= MAX_PADDING
            && unsafe { helpers::bpf_xdp_adjust_tail(ctx.ctx, -(padding as i32)) == 0 }
}
