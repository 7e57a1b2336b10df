//! Inner packets before and behind the gateway, and the slots that keep their order.

use aya_ebpf::{bindings::__sk_buff, maps::Array};
use sig_common::accelerate::{
    Direction, FlowKey, NO_SIGNATURE, SLOTS, flow_key, flow_place, pair_place, signature, slot,
};
use sig_common::wire::{Load as _, ipv6, simple::Simple};

use super::{A_HELD, A_INBOUND, A_OUTBOUND, A_PAIRS, seed};
use crate::packet::Packet;

/// An inner packet. Numbers only: see [`crate::Verdict`].
#[derive(Clone, Copy)]
pub struct Inner {
    /// Its flow with its DSCP; of an odd packet, the addresses.
    pub key: FlowKey,
    /// Bytes.
    pub len: u32,
    /// What tells it from others of its flow.
    pub signature: u32,
    /// 4 or 6; 0: not an IP packet.
    pub version: u32,
    /// 1 for packets of a kind that the programs do not take: they are in no flow.
    pub odd: u32,
}

impl Inner {
    pub const NONE: Self = Self {
        key: [0; 5],
        len: 0,
        signature: NO_SIGNATURE,
        version: 0,
        odd: 1,
    };
}

/// Reads the packet behind the first `offset` bytes, of which perhaps not all is there; whether it is an IP packet.
///
/// A function of its own: the stack is small. It returns a number, as without one it may return with a pointer in the
/// register of the result, which the verifier refuses.
#[inline(always)]
pub fn read(skb: *mut __sk_buff, offset: u32, out: &mut Inner) -> bool {
    read_version(skb, offset, out) != 0
}

#[inline(never)]
fn read_version(skb: *mut __sk_buff, offset: u32, out: &mut Inner) -> u32 {
    *out = Inner::NONE;
    let packet = Packet::of_skb(skb, offset as usize & 0xfff).endless();
    // Two bytes: of a comparison for one, the verifier does not learn that it is there.
    let Some([first, _]) = packet.bytes(0) else {
        return 0;
    };
    match first >> 4 {
        4 => {
            out.version = 4;
            if let Some(simple) = Simple::<false>::parse(&packet) {
                of_simple(&packet, &simple, out);
            } else if let (Some(len), Some(addresses)) = (packet.be16(2), packet.bytes(12)) {
                out.len = len.into();
                out.key[0] = u64::from_be_bytes(addresses);
            }
        }
        6 => {
            out.version = 6;
            if let Some(simple) = Simple::<true>::parse(&packet) {
                of_simple(&packet, &simple, out);
            } else if let (Some(len), Some(source), Some(destination)) =
                (packet.be16(4), packet.bytes(8), packet.bytes(24))
            {
                out.len = u32::from(len) + ipv6::HEADER_LEN as u32;
                let (source, destination) = (
                    u128::from_be_bytes(source),
                    u128::from_be_bytes(destination),
                );
                out.key[0] = (source >> 64) as u64;
                out.key[1] = source as u64;
                out.key[2] = (destination >> 64) as u64;
                out.key[3] = destination as u64;
            }
        }
        _ => {}
    }
    out.version
}

#[inline(always)]
fn of_simple<const V6: bool>(packet: &Packet, simple: &Simple<V6>, out: &mut Inner) {
    out.key = flow_key(simple);
    out.len = simple.total_len.into();
    out.signature = signature(packet, simple);
    out.odd = 0;
}

#[inline(always)]
fn slots(direction: Direction) -> &'static Array<[u64; 2]> {
    match direction {
        Direction::Out => &A_OUTBOUND,
        Direction::In => &A_INBOUND,
    }
}

#[inline(always)]
fn pair(direction: Direction, inner: &Inner) -> u32 {
    let [a, b, c, d, _] = inner.key;
    pair_place([a, b, c, d], seed(), direction)
}

/// The slot of a packet: of its flow, or of an odd one's pair of hosts.
#[inline(always)]
fn slot_of(direction: Direction, inner: &Inner) -> Option<*mut u64> {
    let slot = match inner.odd {
        0 => slots(direction).get_ptr_mut(flow_place(&inner.key, seed())),
        _ => A_PAIRS.get_ptr_mut(pair(direction, inner)),
    };
    slot.map(<*mut [u64; 2]>::cast)
}

/// Whether the gateway has no packet that this one must stay behind.
#[inline(always)]
pub fn is_free(direction: Direction, inner: &Inner, now: u64) -> bool {
    let (Some(flow), Some(pair), Some(all)) = (
        slots(direction).get_ptr_mut(flow_place(&inner.key, seed())),
        A_PAIRS.get_ptr_mut(pair(direction, inner)),
        A_HELD.get_ptr_mut(direction as u32),
    ) else {
        return false;
    };
    // SAFETY: the pointers are to elements of maps; a word is read as a whole.
    let (flow, pair, all) = unsafe {
        (
            flow.cast::<u64>().read_volatile(),
            pair.cast::<u64>().read_volatile(),
            all.read_volatile(),
        )
    };
    slot::is_free(flow, now) && slot::is_free(pair, now) && slot::is_free(all, now)
}

/// Something is left to the gateway of which is not known what: everything waits until it must be through.
#[inline(always)]
pub fn hold(direction: Direction, now: u64) {
    if let Some(all) = A_HELD.get_ptr_mut(direction as u32) {
        // SAFETY: as above.
        unsafe { all.write_volatile(slot::mark(0, now, NO_SIGNATURE)) };
    }
}

/// The packet is left to the gateway. `note` is kept with it.
#[inline(always)]
pub fn mark(direction: Direction, inner: &Inner, now: u64, note: u64) {
    if let Some(slot) = slot_of(direction, inner) {
        // SAFETY: as above; both words are within the element.
        unsafe {
            let before = slot.read_volatile();
            slot.write_volatile(slot::mark(before, now, inner.signature));
            if inner.odd == 0 {
                slot.add(1).write_volatile(note);
            }
        }
    }
}

/// The packet was seen behind the gateway: what was kept with it, if it is the last one of its flow that was left to the
/// gateway.
#[inline(always)]
pub fn release(direction: Direction, inner: &Inner, now: u64) -> Option<u64> {
    if inner.odd != 0 {
        return None;
    }
    let slot = slot_of(direction, inner)?;
    // SAFETY: as above. Another packet may be marked meanwhile, so the word is only replaced if it is this one's.
    unsafe {
        let word = slot.read_volatile();
        let note = slot.add(1).read_volatile();
        let is_last = slot::waits_for(word, inner.signature)
            && crate::fast::replace(slot, word, slot::release(now));
        is_last.then_some(note)
    }
}

const _: () = assert!(SLOTS.is_power_of_two());

/// Packets in a frame that are looked at.
const MAX_PACKETS: usize = 36;

/// What is done with each packet of a frame.
pub struct Walk {
    pub now: u64,
    /// Kept with each packet that is marked.
    pub note: u64,
    /// Where the first packet begins, and where the frame ends.
    pub start: u32,
    pub end: u32,
    /// 1: marks packets on their way into the gateway. 0: releases those that came out of it.
    pub marks: u32,
}

/// What was found in a frame, as bits: a packet was released; the last packet does not end in it; not all of it was looked at.
pub const RELEASED: u32 = 1;
pub const CUT: u32 = 2;
pub const UNKNOWN: u32 = 4;

/// Goes through the packets that begin in a frame: [`RELEASED`], [`CUT`], [`UNKNOWN`].
#[inline(never)]
pub fn walk(skb: *mut __sk_buff, walk: &Walk) -> u32 {
    let (mut at, end) = (walk.start, walk.end);
    let mut found = 0;
    let mut inner = Inner::NONE;
    for _ in 0..MAX_PACKETS {
        if at >= end || at > 0xfff {
            break;
        }
        if !read(skb, at, &mut inner) || inner.len == 0 {
            break;
        }
        let next = at + (inner.len & 0xffff);
        if walk.marks != 0 {
            mark(Direction::In, &inner, walk.now, walk.note);
        } else if next <= end && release(Direction::Out, &inner, walk.now).is_some() {
            found |= RELEASED;
        }
        at = next;
    }
    // Once behind the loop: in it, the verifier would follow each way of getting there.
    if walk.start < end && at > end {
        found |= CUT;
    }
    if at < end {
        found |= UNKNOWN;
    }
    found
}
