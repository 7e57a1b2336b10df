//! `sig_underlay`: SIG frames from remote gateways.

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
    maps::{self, AlignedKey, LOCAL, REMOTES, SOURCES},
    packet::Packet,
};

/// Admits frames for our data address that come from a known gateway, by way of who may bring them.
#[inline(always)]
pub fn admit(packet: &Packet, ifindex: u32) -> Verdict {
    // SAFETY: the value is only read; an update replaces it as a whole.
    let Some(port) = (unsafe { LOCAL.get(ifindex) }) else {
        return Verdict::Pass;
    };
    // What is bridged, flooded or mirrored past this host belongs to others, as it does for the kernel.
    if packet.bytes::<6>(0) != Some(port.mac) {
        return Verdict::Pass;
    }
    let frame = match underlay::parse(packet, &port.local) {
        Ok(Some(frame)) => frame,
        Ok(None) => return Verdict::Pass,
        Err(reason) => return Verdict::Drop(reason),
    };
    let Some(host) = Ip::of_host(frame.source) else {
        return Verdict::Drop(DropReason::BadAddressType);
    };
    // SAFETY: only whether there is a value is looked at.
    if unsafe { REMOTES.get(RemoteKey::new(frame.source_isd_as, host)) }.is_none() {
        return Verdict::Drop(DropReason::UnknownRemote);
    }
    if port.flags & UnderlayPort::CHECK_SOURCE != 0 && !may_bring(&frame, &port.local) {
        return Verdict::Drop(DropReason::UnderlaySource);
    }
    // All frames of a stream go to one worker: the order within a stream is kept.
    Verdict::ToWorker {
        port: ifindex,
        hash: frame.header.stream,
    }
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
