//! The border router's fast path.
//!
//! | step | where |
//! |---|---|
//! | Ethernet, IP, UDP: is it for us, from the right peer? | `endpoint` |
//! | SCION header | `parse` |
//! | may it go on, and where to? | `sig_common::router::procedure`, by way of `path` and `verify` |
//! | hosts of the AS | `host` |
//! | new headers | `rewrite` |
//! | which CPU does all this | `cpus` |
//! | counters and rate limits | `count` |
//!
//! What is not forwarded leaves as it came: the slow path does it again from the start.

mod count;
mod cpus;
mod endpoint;
mod host;
mod maps;
mod parse;
mod path;
mod rewrite;
mod verify;
mod work;

use aya_ebpf::{bindings::xdp_md, helpers::bpf_ktime_get_boot_ns};
use sig_common::router::{
    Reason,
    maps::{HANDED_OVER, NextHop, TAKEN_OVER, Traffic, size_class},
    procedure::Exit,
};

use work::{Stop, Work};

/// What becomes of a packet.
pub enum Verdict {
    /// It is not for this router.
    NotOurs,
    /// It is, and the slow path does it.
    Slow,
    /// It is thrown away.
    Drop,
    /// It is on its way, to a device or another CPU: the action says so.
    Redirect(u32),
}

/// Where the program runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// On the CPU that the packet came in by.
    Device,
    /// On the CPU that the packet was given to.
    CpuMap,
}

/// Forwards a packet.
#[inline(always)]
pub fn route(ctx: *mut xdp_md, place: Place) -> Verdict {
    if place == Place::CpuMap {
        count::handed(TAKEN_OVER);
    }
    let Some(work) = maps::work() else {
        return Verdict::NotOurs;
    };
    // SAFETY: takes no pointer.
    work.outer.boot = unsafe { bpf_ktime_get_boot_ns() };
    let verdict = match forward(ctx, work, place) {
        Ok(action) => Verdict::Redirect(action),
        Err(Stop::NotOurs) => Verdict::NotOurs,
        Err(Stop::Because(reason)) => {
            if count::stopped(work, as_far_as_seen(work, reason)) {
                Verdict::Slow
            } else {
                Verdict::Drop
            }
        }
    };
    maps::release(work);
    verdict
}

/// What ends too early may only go on in the next buffer: the slow path sees all of it.
#[inline(always)]
fn as_far_as_seen(work: &Work, reason: Reason) -> Reason {
    match reason {
        Reason::HeaderLength | Reason::MalformedPath | Reason::DeepExtensions | Reason::NoPort
            if work.outer.fragments != 0 =>
        {
            Reason::NoFastWay
        }
        reason => reason,
    }
}

#[inline(always)]
fn forward(ctx: *mut xdp_md, work: &mut Work, place: Place) -> Result<u32, Stop> {
    endpoint::receive(ctx, work)?;
    let config = maps::config(work.outer.generation).ok_or(Stop::NotOurs)?;
    if place == Place::Device
        && config.cpus != 0
        && let Some(action) = cpus::spread(ctx, work, config)
    {
        count::handed(HANDED_OVER);
        return Ok(action);
    }
    work.outer.size_class = size_class(work.passage.len);
    count::traffic(work, work.outer.slot, Traffic::Input);
    parse::parse(ctx, work)?;
    let next_hop: *const NextHop = match path::process(ctx, work, config)? {
        Exit::Host => {
            host::deliver(ctx, work, config)?;
            &raw const work.host
        }
        Exit::Out(interface) => {
            if interface.next_hop.valid == 0 {
                return Err(Reason::NoNeighbour.into());
            }
            work.sent_slot = interface.slot;
            &raw const interface.next_hop
        }
    };
    // SAFETY: an entry of a map, which stays in memory while the program runs, or part of `work`, which is only read.
    let next_hop = unsafe { &*next_hop };
    let action = rewrite::send(ctx, work, next_hop)?;
    count::traffic(work, work.sent_slot, work.traffic);
    Ok(action)
}
