//! `sig_underlay`: SIG frames from remote gateways.

use aya_ebpf::{bindings::xdp_md, programs::XdpContext};
use sig_common::{
    maps::{Ip, RemoteKey, UnderlayPort},
    reason::DropReason,
    wire::{
        Load as _,
        underlay::{self, Local, Parsed},
    },
};

use crate::{
    Verdict,
    fast::{
        self, Outcome, Owner,
        ingress::{self, Frame},
    },
    maps::{self, AlignedKey, LOCAL, REMOTES, SOURCES},
    packet::{self, Packet},
    socket, trunk,
};

/// What becomes of a packet from the underlay.
#[inline(always)]
pub fn take(ctx: &XdpContext) -> Verdict {
    let mut frame = Frame::default();
    match admit(ctx.ctx, &mut frame) {
        PASS => return Verdict::PASS,
        NO_SOCKET => return Verdict::NO_SOCKET,
        ADMITTED => {}
        reason => return Verdict::drop(reason),
    }
    let socket = frame.socket;
    let Some(place) = frame.stream() else {
        return Verdict::to_worker(socket, Owner::Nothing, 0);
    };
    match ingress::deliver(ctx, &frame, place) {
        Outcome::Declined => Verdict::to_worker(socket, Owner::Stream, place),
        Outcome::Done(action) => Verdict::fast(action),
        Outcome::Dropped => Verdict::drop(DropReason::QueueFull as u32),
    }
}

/// Not numbers of drop reasons.
const PASS: u32 = 1 << 16;
const NO_SOCKET: u32 = PASS + 1;
const ADMITTED: u32 = PASS + 2;

/// A function of its own, so that its stack is free again for what comes after.
#[inline(never)]
fn admit(ctx: *mut xdp_md, into: &mut Frame) -> u32 {
    match admitted(&XdpContext::new(ctx), into) {
        Ok(()) => ADMITTED,
        Err(code) => code,
    }
}

/// Admits frames for our data address that come from a known gateway, by way of who may bring them.
#[inline(always)]
fn admitted(ctx: &XdpContext, into: &mut Frame) -> Result<(), u32> {
    let len = match packet::checked_len(ctx.ctx) {
        packet::CUT => 0,
        len => len as usize,
    };
    let packet = &Packet::of_xdp(ctx).with_len(len);
    let ifindex = trunk::ingress(ctx);
    // SAFETY: the value is only read; an update replaces it as a whole.
    let port = unsafe { LOCAL.get(ifindex) }.ok_or(PASS)?;
    // What is bridged, flooded or mirrored past this host belongs to others, as it does for the kernel.
    if packet.bytes::<6>(0) != Some(port.mac) {
        return Err(PASS);
    }
    let frame = match underlay::parse(packet, &port.local) {
        Ok(Some(frame)) => frame,
        Ok(None) => return Err(PASS),
        Err(reason) => return Err(reason as u32),
    };
    let host = Ip::of_host(frame.source).ok_or(DropReason::BadAddressType as u32)?;
    // SAFETY: the value is copied at once; an update replaces it as a whole.
    let remote = unsafe { REMOTES.get(RemoteKey::new(frame.source_isd_as, host)) }.copied();
    let remote = remote.ok_or(DropReason::UnknownRemote as u32)?;
    if port.flags & UnderlayPort::CHECK_SOURCE != 0 && !may_bring(&frame, &port.local) {
        return Err(DropReason::UnderlaySource as u32);
    }
    // All frames of a stream go to one worker: the order within a stream is kept.
    let socket = socket(ctx, ifindex, frame.header.stream).ok_or(NO_SOCKET)?;
    into.socket = socket;
    // What is protected is the engine's to open.
    if port.flags & UnderlayPort::FAST != 0
        && !frame.is_protected
        && fast::is_there()
        && let Some(stream) = ingress::place(&frame, host)
    {
        into.note(&frame, &port.local, remote.number, socket, stream);
    }
    Ok(())
}

/// Whether a frame comes from where frames come from: a border router, or within the AS the sender itself.
#[inline(always)]
fn may_bring(frame: &Parsed, local: &Local) -> bool {
    let Some(source) = Ip::of_host(frame.underlay_source) else {
        return false;
    };
    let known = frame.is_from_internal_host(local)
        || SOURCES.get(AlignedKey::new(source.0).key()).is_some();
    if !known {
        maps::keep_refused(source);
    }
    known
}
