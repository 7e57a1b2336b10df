//! Frames ahead of their turn: held, released in order, or let go with the gap before them.

use sig_common::reason::DropReason;

use super::pool::{Buffer, Owner, Room};
use super::unpack::Payload;
use super::{FrameRef, HeldFrame, Piece, Reassembler, StreamKey};

impl Reassembler {
    /// A missing frame has come: how late?
    #[cold]
    pub(super) fn observe(&mut self, now: u64, at: u32) {
        let line = self.streams.get(at);
        let Some(slot) = line
            .first_held()
            .and_then(|first| self.held_slot(at, first))
        else {
            return;
        };
        let late = now.saturating_sub(self.held.owner(slot).since);
        let waits = &self.waits;
        self.streams.get_mut(at).jitter.came(late, waits);
    }

    /// Copies a frame into a buffer.
    pub(super) fn store(&mut self, owner: Owner, frame: FrameRef<'_>, spent: bool) -> Option<u32> {
        let held = HeldFrame {
            sequence: frame.sequence,
            index: frame.index,
            len: frame.payload.len() as u16,
            congestion: frame.congestion,
            spent,
        };
        let buffer = self.held.take(owner, held)?;
        let slot = self.held.slot(buffer)?;
        self.held.bytes_mut(slot)[..frame.payload.len()].copy_from_slice(frame.payload);
        let name = (self.streams.packed(owner.stream), frame.sequence);
        self.held.list(slot, name);
        Some(slot)
    }

    /// Keeps a frame for later; `false` if there is no room for it.
    pub(super) fn hold<F: FnMut(StreamKey, Piece<'_>, bool)>(
        &mut self,
        now: u64,
        at: u32,
        frame: FrameRef<'_>,
        deliver: &mut F,
    ) -> bool {
        if frame.payload.len() > self.limits.max_frame_payload {
            return false;
        }
        let line = self.streams.get_mut(at);
        line.jitter.missing(now);
        let queue = line.jitter.class();
        let owner = Owner {
            queue,
            ..self.owner(now, at)
        };
        let next = self.streams.get(at).next;
        loop {
            match self.held.room(owner.remote) {
                Room::Free => break,
                Room::Instead(slot)
                    if self.held.meta(slot).spent || self.held.owner(slot).stream != at =>
                {
                    self.let_go(now, slot, deliver);
                    // Another line's frame may not be delivered before what this one holds.
                    if self.streams.get(at).next != next {
                        return false;
                    }
                }
                _ => return false,
            }
        }
        if self.store(owner, frame, false).is_none() {
            return false;
        }
        let line = self.streams.get_mut(at);
        line.mark(frame.sequence);
        if line.held == 0 || frame.sequence.wrapping_sub(line.top) <= u64::MAX / 2 {
            line.top = frame.sequence;
        }
        line.held += 1;
        self.tally.counters.held += 1;
        true
    }

    /// Goes on behind the gap: at the first held frame, which is delivered with all that follow
    /// it, or at `sequence`, if given and before that one. Returns whether there was a gap: no
    /// loop may go on otherwise.
    pub(super) fn give_up_gap<F: FnMut(StreamKey, Piece<'_>, bool)>(
        &mut self,
        now: u64,
        at: u32,
        sequence: Option<u64>,
        deliver: &mut F,
    ) -> bool {
        let line = self.streams.get_mut(at);
        let next = line.next;
        let candidates = line.first_held().into_iter().chain(sequence);
        let Some(gap) = candidates
            .map(|candidate| candidate.wrapping_sub(next))
            .min()
            .filter(|&gap| gap > 0)
        else {
            return false;
        };
        line.jitter.missing(now);
        let pending = core::mem::take(&mut line.pending);
        line.skip(gap);
        self.tally.counters.gaps += 1;
        self.park(now, at, next, pending);
        self.release(now, at, deliver);
        true
    }

    /// The buffer of a frame that the line holds.
    pub(super) fn held_slot(&self, at: u32, sequence: u64) -> Option<u32> {
        let name = (self.streams.packed(at), sequence);
        self.held
            .find(name, |owner, frame| owner.stream == at && !frame.spent)
    }

    /// Delivers the held frames that are next.
    pub(super) fn release<F: FnMut(StreamKey, Piece<'_>, bool)>(
        &mut self,
        now: u64,
        at: u32,
        deliver: &mut F,
    ) {
        loop {
            let sequence = self.streams.get(at).next;
            let Some(slot) = self.held_slot(at, sequence) else {
                return self.streams.fence(self.streams.packed(at));
            };
            let (line, held, mut unpack) = self.parts(now, at, deliver);
            line.held -= 1;
            line.advance();
            let before = unpack.tally.counters.packets;
            let orphan = unpack.frame(&mut line.pending, Payload::held(held, slot));
            line.delivered |= unpack.tally.counters.packets != before;
            if orphan && self.is_rest_wanted(at, sequence) {
                let owner = self.of_spent(now, at);
                self.held.hand_over(slot, owner);
                self.held.meta_mut(slot).spent = true;
                continue;
            }
            if orphan {
                self.tally.discard(DropReason::FrameGap);
            }
            self.held.give(slot);
        }
    }

    /// Ends the time of a frame's buffer: what waits is delivered, what is spent is discarded.
    pub(super) fn let_go<F: FnMut(StreamKey, Piece<'_>, bool)>(
        &mut self,
        now: u64,
        slot: u32,
        deliver: &mut F,
    ) {
        let buffer = self.held.handle(slot);
        if self.held.meta(slot).spent {
            self.held.give(slot);
            self.tally.discard(DropReason::FrameGap);
            return;
        }
        let at = self.held.owner(slot).stream;
        self.let_pass(now, at, self.held.meta(slot).sequence, deliver);
        while self.is_waiting(buffer) && self.give_up_gap(now, at, None, deliver) {}
        // Never, unless an invariant is broken.
        if self.is_waiting(buffer) {
            self.held.give(slot);
        }
    }

    fn is_waiting(&self, buffer: Buffer) -> bool {
        let slot = self.held.slot(buffer);
        slot.is_some_and(|slot| !self.held.meta(slot).spent)
    }
}
