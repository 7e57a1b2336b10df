//! Between the node and the gateway's engine: packets with a [`Mark`].

use aya_ebpf::{
    bindings::{xdp_action::XDP_PASS, xdp_md},
    programs::XdpContext,
};
use sig_common::{
    mark::Mark,
    srv6::maps::{ENGINE, Reason},
    wire::{Load as _, Store as _},
};

use super::{S_ADJACENCIES, Work, encap, forward, refuse};
use crate::packet::Packet;

/// A packet that the engine has put on the tunnel device. Those without a mark are for the kernel.
#[inline(always)]
pub fn receive(ctx: &XdpContext) -> u32 {
    let Some(address) = Packet::of_xdp(ctx).bytes::<6>(0) else {
        return XDP_PASS;
    };
    match Mark::of(address) {
        Some(Mark::Policy(number)) => encap::of_engine(ctx.ctx, number),
        Some(Mark::Mirror(number)) => copy(ctx.ctx, number),
        _ => XDP_PASS,
    }
}

/// A copy leaves by a device for those who watch.
#[inline(always)]
fn copy(ctx: *mut xdp_md, number: u32) -> u32 {
    // SAFETY: the value is only read; an update replaces it as a whole.
    let Some(to) = (unsafe { S_ADJACENCIES.get(number) }) else {
        return refuse(Reason::NoDevice);
    };
    match Packet::of(ctx, 0).store(0, to.macs) {
        Some(()) => forward::frame_by(ctx, to.ifindex),
        None => refuse(Reason::Malformed),
    }
}

/// The packet leaves by the gateway's tunnel, and is not looked at by rules again.
#[inline(always)]
pub fn send(ctx: *mut xdp_md, work: &mut Work) -> u32 {
    // SAFETY: the value is only read; an update replaces it as a whole.
    match unsafe { S_ADJACENCIES.get(ENGINE) } {
        Some(engine) => forward::to(ctx, work, engine, !work.fresh),
        None => refuse(Reason::NoAdjacency),
    }
}
