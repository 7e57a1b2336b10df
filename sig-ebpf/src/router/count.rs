//! Counters, and how many packets may pass to the slow path.

use sig_common::router::{
    Reason,
    maps::{Traffic, reason_index, traffic_index},
    reason::Disposition,
};

use super::{maps, work::Work};

/// Counts the packet.
#[inline(always)]
pub fn traffic(work: &Work, slot: u16, traffic: Traffic) {
    let index = traffic_index(slot, traffic, work.size_class);
    if let Some(count) = maps::R_TRAFFIC.get_ptr_mut(index) {
        // SAFETY: this CPU's element, which no other program writes at the same time.
        let count = unsafe { &mut *count };
        count.packets = count.packets.wrapping_add(1);
        count.bytes = count.bytes.wrapping_add(u64::from(work.len));
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
    if let Some(count) = maps::R_REASONS.get_ptr_mut(reason_index(work.slot, counted)) {
        // SAFETY: as in `traffic`.
        let count = unsafe { &mut *count };
        *count = count.wrapping_add(1);
    }
    passes
}

/// Takes one packet from what the reason has left on this CPU: the generic cell rate algorithm.
#[inline(always)]
fn is_within_limit(work: &Work, reason: Reason) -> bool {
    let Some(limit) = maps::limit(reason) else {
        return true;
    };
    if limit.interval == 0 {
        return true;
    }
    let Some(bucket) = maps::R_BUCKETS.get_ptr_mut(reason as u32) else {
        return true;
    };
    // SAFETY: as in `traffic`.
    let bucket = unsafe { &mut *bucket };
    let due = bucket.due.max(work.boot);
    if due - work.boot > limit.burst.saturating_sub(limit.interval) {
        return false;
    }
    bucket.due = due + limit.interval;
    true
}
