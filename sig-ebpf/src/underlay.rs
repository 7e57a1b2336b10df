//! `sig_underlay`: SIG frames from remote gateways.

use sig_common::{
    maps::{Ip, RemoteKey},
    reason::DropReason,
    wire::underlay,
};

use crate::{
    Verdict,
    maps::{LOCAL, REMOTES},
    packet::Packet,
};

/// Admits frames for our data address that come from a known gateway.
#[inline(always)]
pub fn admit(packet: &Packet, ifindex: u32) -> Verdict {
    // SAFETY: the value is only read; an update replaces it as a whole.
    let Some(local) = (unsafe { LOCAL.get(ifindex) }) else {
        return Verdict::Pass;
    };
    let frame = match underlay::parse(packet, local) {
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
    // All frames of a stream go to one worker: the order within a stream is kept.
    Verdict::ToWorker {
        port: ifindex,
        hash: frame.header.stream,
    }
}
