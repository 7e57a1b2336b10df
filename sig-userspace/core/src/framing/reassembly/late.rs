//! Frames that come after they were given up, and the parts of packets that wait for them.

use sig_common::reason::DropReason;

use super::line::Pending;
use super::pool::{Owner, Room};
use super::unpack::{Payload, abandon};
use super::{FrameRef, HeldFrame, Piece, Reassembler, SPENT, StreamKey};
use crate::framing::NO_START;

impl Reassembler {
    /// A frame that was given up: its packets are delivered out of order.
    #[cold]
    pub(super) fn late<F: FnMut(StreamKey, Piece<'_>, bool)>(
        &mut self,
        now: u64,
        at: u32,
        frame: FrameRef<'_>,
        deliver: &mut F,
    ) {
        let sequence = frame.sequence;
        self.streams.begin_at(at, sequence);
        let line = self.streams.get_mut(at);
        if self.limits.reorder_frames > 0 {
            line.jitter.came_late(now, &self.waits);
        }
        line.came_late(sequence);
        let packed = self.streams.packed(at);
        let parked = self.packets.find((packed, sequence), |_, _| true);
        let mut pending = parked.map_or(Pending::NONE, |slot| {
            self.packets.unlist(slot);
            core::mem::take(self.packets.meta_mut(slot))
        });
        self.tally.counters.late += 1;
        let (line, spent, mut unpack) = self.parts(now, at, deliver);
        let before = unpack.tally.counters.packets;
        let orphan = unpack.frame(&mut pending, Payload::of(&frame));
        // The rest may have come before the start.
        let mut next = sequence.wrapping_add(1);
        while pending.len != 0
            && let Some(slot) = spent.find((packed, next), |_, frame| frame.spent)
        {
            unpack.resume(&mut pending, Payload::held(spent, slot));
            spent.give(slot);
            next = next.wrapping_add(1);
        }
        line.delivered |= unpack.tally.counters.packets != before;
        if orphan {
            self.keep_rest(now, at, frame);
        }
        let line = self.streams.get_mut(at);
        if line.next == next && line.pending.len == 0 {
            // It has caught up with the others.
            line.pending = pending;
        } else if line.is_past(next) {
            if abandon(&mut pending, &mut self.packets) {
                self.tally.discard(DropReason::FrameGap);
            }
        } else {
            self.park(now, at, next, pending);
        }
    }

    /// Keeps the start of a packet until the frame `next`, which was given up, comes late.
    pub(super) fn park(&mut self, now: u64, at: u32, next: u64, pending: Pending) {
        if let Some(slot) = self.packets.slot(pending.buffer) {
            let owner = Owner {
                rank: 0,
                queue: 0,
                ..self.owner(now, at)
            };
            self.packets.hand_over(slot, owner);
            *self.packets.meta_mut(slot) = pending;
            self.packets.list(slot, (self.streams.packed(at), next));
        }
    }

    /// Whether the frame, which begins with the rest of a packet, follows one that may come late.
    pub(super) fn is_rest_wanted(&self, at: u32, sequence: u64) -> bool {
        let before = (self.streams.packed(at), sequence.wrapping_sub(1));
        let goes_on = |_: &Owner, frame: &HeldFrame| frame.spent && frame.index == NO_START;
        self.streams.get(at).misses_before(sequence) || self.held.find(before, goes_on).is_some()
    }

    /// The owner of a spent frame.
    pub(super) fn of_spent(&self, now: u64, at: u32) -> Owner {
        Owner {
            rank: 0,
            queue: SPENT,
            ..self.owner(now, at)
        }
    }

    /// A frame begins with the rest of a packet whose start is missing: keeps it, if that helps.
    #[cold]
    pub(super) fn keep_rest(&mut self, now: u64, at: u32, frame: FrameRef<'_>) {
        let owner = self.of_spent(now, at);
        let wanted = frame.payload.len() <= self.limits.max_frame_payload
            && self.is_rest_wanted(at, frame.sequence);
        let room = match self.held.room(owner.remote) {
            Room::Free => wanted,
            Room::Instead(slot) if wanted && self.held.meta(slot).spent => {
                self.held.give(slot);
                self.tally.discard(DropReason::FrameGap);
                true
            }
            _ => false,
        };
        if !room || self.store(owner, frame, true).is_none() {
            self.tally.discard(DropReason::FrameGap);
        }
    }
}
