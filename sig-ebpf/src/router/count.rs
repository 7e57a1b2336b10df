//! Counters, and how many packets may pass to the slow path.

use sig_common::router::{
    Reason,
    maps::{Traffic, reason_index, sibling_bucket, traffic_index},
    reason::Disposition,
};

use super::{maps, work::Work};

/// Counts the packet.
#[inline(always)]
pub fn traffic(work: &Work, slot: u16, traffic: Traffic) {
    let index = traffic_index(slot, traffic, work.outer.size_class);
    if let Some(count) = maps::R_TRAFFIC.get_ptr_mut(index) {
        // SAFETY: this CPU's element, which no other program writes at the same time.
        let count = unsafe { &mut *count };
        count.packets = count.packets.wrapping_add(1);
        count.bytes = count.bytes.wrapping_add(u64::from(work.passage.len));
    }
}

/// Counts a packet on its way from one CPU to another: what was given and not taken was lost.
#[inline(always)]
pub fn handed(index: u32) {
    if let Some(count) = maps::R_HANDED.get_ptr_mut(index) {
        // SAFETY: as in `traffic`.
        let count = unsafe { &mut *count };
        *count = count.wrapping_add(1);
    }
}

/// Counts a packet that is not forwarded. Says whether it passes to the slow path.
#[inline(never)]
pub fn stopped(work: &Work, reason: Reason) -> bool {
    let (counted, passes) = match reason.disposition() {
        Disposition::Drop => (reason, false),
        Disposition::Slow if is_within_limit(work, reason) => (reason, true),
        Disposition::Slow => (Reason::RateLimited, false),
    };
    if let Some(count) = maps::R_REASONS.get_ptr_mut(reason_index(work.outer.slot, counted)) {
        // SAFETY: as in `traffic`.
        let count = unsafe { &mut *count };
        *count = count.wrapping_add(1);
    }
    passes
}

/// Takes one packet from what the reason has left at the slot: the generic cell rate algorithm.
///
/// All CPUs share the bucket, without a lock. Of what several take at the same instant, one may be counted only: under load
/// somewhat more passes. A packet over the limit only reads, so that a flood does not move the cache line.
#[inline(always)]
fn is_within_limit(work: &Work, reason: Reason) -> bool {
    let Some(limit) = maps::limit(reason) else {
        return true;
    };
    if limit.interval == 0 {
        return true;
    }
    let index = match reason {
        Reason::Bfd if work.passage.ingress == 0 => sibling_bucket(work.outer.sibling),
        reason => reason_index(work.outer.slot, reason),
    };
    let Some(bucket) = maps::R_BUCKETS.get_ptr_mut(index) else {
        return true;
    };
    // SAFETY: an element of the map, aligned. By pointer and volatile, because other CPUs write it too; 64 bits are
    // read and written at once.
    let due = unsafe { core::ptr::read_volatile(&raw const (*bucket).due) }.max(work.outer.boot);
    if due - work.outer.boot > limit.burst.saturating_sub(limit.interval) {
        return false;
    }
    // SAFETY: as for reading.
    unsafe { core::ptr::write_volatile(&raw mut (*bucket).due, due + limit.interval) };
    true
}
