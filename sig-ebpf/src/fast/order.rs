//! Tickets: a flow or stream stays with a worker while packets of it are there.

use core::arch::asm;

use aya_ebpf::{helpers, programs::XdpContext};
use sig_common::fast_path::{METADATA_LEN, control, slot, stream, tickets};

use super::{FLOWS, STREAM_SLOTS, TICKETS, control_word};

/// What a packet that is handed over belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// A slot of the flows.
    Flow,
    /// A received stream.
    Stream,
    /// Nothing that the programs could take.
    Nothing,
}

/// Whether a worker has packets of a flow or stream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// No.
    Free,
    /// Yes, or it cannot be told.
    Busy,
    /// Yes, and so many of others that the worker does not keep up: it may never be free again if more of it follow.
    Behind,
}

/// Whether the worker behind a socket has packets of what this word is the last ticket of.
#[inline(always)]
pub fn state(ticket: u64, socket: u32) -> State {
    let (ticket, owner) = tickets::decompose(ticket);
    if owner != socket.wrapping_add(1) {
        return State::Busy;
    }
    let Some(words) = TICKETS.get_ptr_mut(socket) else {
        return State::Busy;
    };
    // SAFETY: the pointer is to an element of a map, which lives as long as the program; a word is read as a whole.
    let (given, drained, done, taken) = unsafe {
        (
            (&raw const (*words)[tickets::GIVEN]).read_volatile(),
            (&raw const (*words)[tickets::DRAINED]).read_volatile(),
            (&raw const (*words)[tickets::DONE]).read_volatile(),
            (&raw const (*words)[tickets::TAKEN]).read_volatile(),
        )
    };
    if done >= ticket {
        return State::Free;
    }
    if done < drained {
        // Else it would be behind for ever: each packet more renews the ticket of its flow.
        return State::Behind;
    }
    if given.wrapping_sub(taken) > control_word(control::BACKLOG) {
        // SAFETY: as above; only the CPU of the socket's queue writes the word.
        unsafe { (&raw mut (*words)[tickets::DRAINED]).write_volatile(given) };
        return State::Behind;
    }
    State::Busy
}

/// Gives the packet a ticket, before it goes to a socket: in front of it, and in its slot.
///
/// A socket is bound to a queue, whose packets one CPU handles at a time in native mode: nobody else counts. In generic mode there
/// are no owners.
#[inline(always)]
pub fn hand_over(ctx: &XdpContext, socket: u32, owner: Owner, place: u32) {
    let word = match owner {
        Owner::Flow => FLOWS.get_ptr_mut(place).map(|words| {
            // SAFETY: within the element.
            unsafe { &raw mut (*words)[slot::TICKET] }
        }),
        Owner::Stream => STREAM_SLOTS.get_ptr_mut(place).map(|words| {
            // SAFETY: within the element.
            unsafe { &raw mut (*words)[stream::TICKET] }
        }),
        Owner::Nothing => return,
    };
    let ticket = give(ctx, socket).unwrap_or(0);
    if let Some(word) = word {
        // SAFETY: the pointer is to an element of a map, which lives as long as the program; a word is written as a whole.
        unsafe { word.write_volatile(ticket) };
    }
}

/// The ticket with its socket; `None` if it cannot be put in front of the packet.
#[inline(always)]
fn give(ctx: &XdpContext, socket: u32) -> Option<u64> {
    let words = TICKETS.get_ptr_mut(socket)?;
    // SAFETY: as in `packet::Packet::of`.
    let has_metadata = unsafe {
        let metadata = core::ptr::read_volatile(&raw const (*ctx.ctx).data_meta) as usize;
        let start = core::ptr::read_volatile(&raw const (*ctx.ctx).data) as usize;
        metadata + 4 <= start
    };
    if has_metadata {
        // Somebody else's would stand between ours and the packet.
        return None;
    }
    // SAFETY: the context is of the running program.
    if unsafe { helpers::bpf_xdp_adjust_meta(ctx.ctx, -(METADATA_LEN as i32)) } != 0 {
        return None;
    }
    // SAFETY: as in `packet::Packet::of`.
    let (metadata, start) = unsafe {
        (
            core::ptr::read_volatile(&raw const (*ctx.ctx).data_meta) as usize,
            core::ptr::read_volatile(&raw const (*ctx.ctx).data) as usize,
        )
    };
    if metadata + METADATA_LEN > start {
        return None;
    }
    // SAFETY: an element of a map; only this CPU writes the word, see above. The metadata was compared with its end.
    unsafe {
        let given = &raw mut (*words)[tickets::GIVEN];
        let ticket = given.read_volatile().wrapping_add(1);
        given.write_volatile(ticket);
        let ticket = tickets::compose(ticket, socket);
        (metadata as *mut u64).write_unaligned(ticket);
        Some(ticket)
    }
}

/// Adds one to a word that others add to as well, and returns what it was before.
///
/// # Safety
/// `word` points to an element of a map.
#[inline(always)]
pub unsafe fn fetch_add_one(word: *mut u64) -> u64 {
    let mut value = 1u64;
    // SAFETY: by the caller. Assembler, because the compiler's atomics for BPF cannot be had in stable form.
    unsafe {
        asm!("{value} = atomic_fetch_add((u64 *)({word} + 0), {value})", word = in(reg) word, value = inout(reg) value);
    }
    value
}

/// Replaces the word by `new` if it is `old`; whether it was.
///
/// # Safety
/// As for [`fetch_add_one`].
#[inline(always)]
pub unsafe fn replace(word: *mut u64, old: u64, new: u64) -> bool {
    let mut found = old;
    // SAFETY: as there.
    unsafe {
        asm!("r0 = cmpxchg_64({word} + 0, r0, {new})", word = in(reg) word, new = in(reg) new, inout("r0") found);
    }
    found == old
}
