//! `sig_trunk`: frames of VLANs, on the interface below the VLAN devices.
//!
//! The program takes the tag out and goes on with that of the VLAN device, for which the frame has come in by that device, as it
//! would from the kernel. A frame that is left to the kernel has its tag again.

use aya_ebpf::{
    macros::map,
    maps::{HashMap, PerCpuArray, ProgramArray},
    programs::XdpContext,
};
use sig_common::{
    maps::{MAX_VLANS, TrunkKey, TrunkPort},
    wire::{
        Load as _, Store as _,
        ethernet::{self, TAG_LEN, TPID_8021Q},
    },
};

use crate::{fast::move_start, packet::Packet};

#[map]
static TRUNKS: HashMap<TrunkKey, TrunkPort> = HashMap::with_max_entries(MAX_VLANS, 0);

#[map]
static TRUNK_PROGRAMS: ProgramArray = ProgramArray::with_max_entries(TrunkPort::PROGRAMS, 0);

#[map]
static ARRIVED: PerCpuArray<Arrival> = PerCpuArray::with_max_entries(1, 0);

/// 1 if there are trunks, set when the programs are loaded: without them, this code is not in the others.
#[unsafe(no_mangle)]
static HAS_TRUNKS: u8 = 0;

/// The frame whose tag this CPU has taken out.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Arrival {
    /// Interface index of the trunk; 0: there is none.
    trunk: u32,
    /// That of the VLAN device.
    ifindex: u32,
    /// The tag, big endian.
    tag: u32,
}

/// Offset of what follows the two addresses.
const TYPE: usize = 2 * 6;

/// Goes on with the program for the VLAN of a frame. Comes back if there is none, the frame being as it was.
#[inline(always)]
pub fn go_on(ctx: &XdpContext) {
    let packet = Packet::of_xdp(ctx);
    let Some(outer) = packet.be16(TYPE) else {
        return;
    };
    let trunk = ctx.ingress_ifindex() as u32;
    let mut vlan = 0;
    if outer == TPID_8021Q {
        let (Some(tci), Some(inner)) = (packet.be16(TYPE + 2), packet.be16(TYPE + TAG_LEN)) else {
            return;
        };
        vlan = u32::from(tci & 0x0fff);
        if vlan != 0 && ethernet::is_tag(inner) {
            return;
        }
    }
    let key = TrunkKey { trunk, vlan };
    // SAFETY: the value is copied at once; an update replaces it as a whole.
    let Some(port) = (unsafe { TRUNKS.get(key) }).copied() else {
        return;
    };
    let Some(arrived) = ARRIVED.get_ptr_mut(0) else {
        return;
    };
    // SAFETY: this CPU's element, valid for any bits.
    let is_busy = unsafe { arrived.read_volatile() }.trunk != 0;
    // Only on real-time kernels: there, a program may be preempted by another on the same CPU.
    if is_busy {
        return;
    }
    let mut tag = 0;
    if vlan != 0 {
        let Some(taken) = take_out(ctx) else {
            return;
        };
        tag = taken;
        let arrival = Arrival {
            trunk,
            ifindex: port.ifindex,
            tag,
        };
        // SAFETY: as above.
        unsafe { arrived.write_volatile(arrival) };
    }
    // SAFETY: the context is of the running program, which ends here if there is another one.
    unsafe { TRUNK_PROGRAMS.tail_call(ctx, port.program) };
    if tag != 0 {
        forget(arrived);
        put_back(ctx, tag);
    }
}

/// The interface that a packet came in by, as the maps know it.
#[inline(always)]
pub fn ingress(ctx: &XdpContext) -> u32 {
    let ifindex = ctx.ingress_ifindex() as u32;
    match arrival(ifindex) {
        Some((_, arrival)) => arrival.ifindex,
        None => ifindex,
    }
}

/// Ends the passage of a packet, and returns the interface that it came in by, as the maps know it, and the tag that it had; 0 if that
/// is still there.
#[inline(always)]
pub fn end(ctx: &XdpContext) -> (u32, u32) {
    let ifindex = ctx.ingress_ifindex() as u32;
    let Some((arrived, arrival)) = arrival(ifindex) else {
        return (ifindex, 0);
    };
    forget(arrived);
    (arrival.ifindex, arrival.tag)
}

/// Puts the tag back that [`end`] returned. Whether that could be done: it can, as there was room for it before.
#[inline(always)]
pub fn put_back(ctx: &XdpContext, tag: u32) -> bool {
    tag == 0 || put_in(ctx, tag).is_some()
}

/// What has come in by this trunk, if anything has, and where that is noted.
#[inline(always)]
fn arrival(trunk: u32) -> Option<(*mut Arrival, Arrival)> {
    if !are_there() {
        return None;
    }
    let arrived = ARRIVED.get_ptr_mut(0)?;
    // SAFETY: this CPU's element, valid for any bits.
    let arrival = unsafe { arrived.read_volatile() };
    (arrival.trunk == trunk).then_some((arrived, arrival))
}

#[inline(always)]
fn forget(arrived: *mut Arrival) {
    // SAFETY: this CPU's element.
    unsafe { (&raw mut (*arrived).trunk).write_volatile(0) };
}

/// Whether there are trunks at all.
#[inline(always)]
fn are_there() -> bool {
    // SAFETY: the pointer is to a static. Volatile, or else the value of the source is taken.
    unsafe { (&raw const HAS_TRUNKS).read_volatile() != 0 }
}

/// Takes the tag out and returns it.
#[inline(always)]
fn take_out(ctx: &XdpContext) -> Option<u32> {
    let packet = Packet::of_xdp(ctx);
    let (first, last) = (packet.bytes::<8>(0)?, packet.bytes::<4>(8)?);
    let tag = packet.be32(TYPE)?;
    if !move_start(ctx, TAG_LEN as i32) {
        return None;
    }
    let mut packet = Packet::of_xdp(ctx);
    packet.store(0, first)?;
    packet.store(8, last)?;
    Some(tag)
}

/// Puts a tag in.
#[inline(always)]
fn put_in(ctx: &XdpContext, tag: u32) -> Option<()> {
    let packet = Packet::of_xdp(ctx);
    let (first, last) = (packet.bytes::<8>(0)?, packet.bytes::<4>(8)?);
    if !move_start(ctx, -(TAG_LEN as i32)) {
        return None;
    }
    let mut packet = Packet::of_xdp(ctx);
    packet.store(0, first)?;
    packet.store(8, last)?;
    packet.store(TYPE, tag.to_be_bytes())
}
