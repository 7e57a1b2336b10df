//! Frames that are not the expected one of the line in use: which line takes them.

use sig_common::reason::DropReason;

use super::list::NIL;
use super::streams::Route;
use super::unpack::abandon;
use super::{FrameRef, Opened, Piece, Reassembler, StreamKey};

/// Streams per remote that begin in one batch in place of others while the worker has more to do
/// than it can.
const OPENED_UNDER_PRESSURE: u32 = 4;
/// A first frame with at most this number may have been overtaken by none but the ones before.
const BEGINNING: u64 = 64;

impl Reassembler {
    #[inline(never)]
    pub(super) fn out_of_order<F: FnMut(StreamKey, Piece<'_>, bool)>(
        &mut self,
        now: u64,
        packed: u64,
        frame: FrameRef<'_>,
        deliver: &mut F,
    ) {
        self.settle(now, packed, deliver);
        if let Some(at) = self.line_of(now, packed, frame.sequence, deliver) {
            self.streams.touch(at, now);
            if self.streams.get(at).is_behind(frame.sequence) {
                self.let_pass(now, at, frame.sequence, deliver);
                self.late(now, at, frame, deliver);
            } else {
                self.last = at;
                self.ahead(now, at, frame, deliver);
            }
        }
        self.streams.fence(packed);
    }

    /// The line that takes the frame in, a new one if need be; `None`: refused and counted.
    fn line_of<F: FnMut(StreamKey, Piece<'_>, bool)>(
        &mut self,
        now: u64,
        packed: u64,
        sequence: u64,
        deliver: &mut F,
    ) -> Option<u32> {
        match self.streams.route(packed, sequence) {
            Route::Line(at) => Some(at),
            Route::Duplicate => {
                self.tally.discard(DropReason::FrameDuplicate);
                None
            }
            Route::Old(at) => {
                let progress = self.streams.progress(packed);
                if !self.streams.get_mut(at).restarts(sequence, progress) {
                    self.tally.discard(DropReason::FrameOld);
                    return None;
                }
                while let Some(line) = self.streams.any_of(packed) {
                    self.retire(now, line, deliver);
                }
                self.open(now, packed, sequence, deliver)
            }
            Route::Elsewhere => {
                let overtaken = sequence <= BEGINNING.min(self.limits.reorder_frames as u64);
                let first = if overtaken { 0 } else { sequence };
                self.open(now, packed, first, deliver)
            }
        }
    }

    /// Where a line expects what others of its stream have received, it goes on; lines that
    /// expect the same become one.
    fn settle<F: FnMut(StreamKey, Piece<'_>, bool)>(
        &mut self,
        now: u64,
        packed: u64,
        deliver: &mut F,
    ) {
        let lines = self.streams.siblings(packed);
        for at in lines.into_iter().take_while(|&at| at != NIL) {
            while self.streams.is_taken(at) {
                let line = self.streams.get_mut(at);
                if abandon(&mut line.pending, &mut self.packets) {
                    self.tally.discard(DropReason::FrameGap);
                }
                line.advance();
                self.release(now, at, deliver);
            }
        }
        while let Some((at, other)) = self.streams.meeting(packed) {
            let line = self.streams.get_mut(other);
            if line.pending.len == 0 {
                let pending = core::mem::take(&mut self.streams.get_mut(at).pending);
                self.streams.get_mut(other).pending = pending;
            }
            self.retire(now, at, deliver);
        }
    }

    /// The frame is the next one, or ahead of its turn.
    fn ahead<F: FnMut(StreamKey, Piece<'_>, bool)>(
        &mut self,
        now: u64,
        at: u32,
        frame: FrameRef<'_>,
        deliver: &mut F,
    ) {
        let sequence = frame.sequence;
        loop {
            let next = self.streams.get(at).next;
            let ahead = sequence.wrapping_sub(next);
            let may_wait = (1..=self.limits.reorder_frames as u64).contains(&ahead);
            if may_wait && self.hold(now, at, frame, deliver) {
                self.tally.outcome.held = true;
                return;
            }
            self.let_pass(now, at, sequence, deliver);
            let line = self.streams.get(at);
            if line.is_behind(sequence) {
                return self.late(now, at, frame, deliver);
            }
            // To make room, the line was moved.
            if line.next != next {
                continue;
            }
            if ahead == 0 {
                return self.take(now, at, frame, deliver);
            }
            if !self.give_up_gap(now, at, Some(sequence), deliver) {
                return;
            }
        }
    }

    /// Delivers what the other lines of the stream hold of before this number, which does not wait: its packets would overtake
    /// those that do.
    pub(super) fn let_pass<F: FnMut(StreamKey, Piece<'_>, bool)>(
        &mut self,
        now: u64,
        at: u32,
        sequence: u64,
        deliver: &mut F,
    ) {
        let lines = self.streams.siblings(self.streams.packed(at));
        let others = lines.into_iter().take_while(|&other| other != NIL);
        let others = others.filter(|&other| other != at);
        loop {
            let behind = |other| Some((self.streams.get(other).holds_before(sequence)?, other));
            let furthest = others.clone().filter_map(behind).max();
            if !furthest.is_some_and(|(_, other)| self.give_up_gap(now, other, None, deliver)) {
                return;
            }
        }
    }

    /// A new line; `None`: refused and counted.
    pub(super) fn open<F: FnMut(StreamKey, Piece<'_>, bool)>(
        &mut self,
        now: u64,
        packed: u64,
        first: u64,
        deliver: &mut F,
    ) -> Option<u32> {
        let remote = StreamKey::unpack(packed).remote;
        let room = match self.opened.get_mut(usize::from(remote)) {
            None => Err(()),
            Some(_) => self.streams.must_give_way(remote, packed),
        };
        match room {
            Ok(None) => {}
            Ok(Some(victim)) => {
                if !self.streams.is_proven(packed) && !self.may_replace(remote) {
                    self.tally.discard(DropReason::NewStreamLimit);
                    return None;
                }
                self.retire(now, victim, deliver);
                self.tally.counters.streams_evicted += 1;
            }
            Err(()) => {
                self.tally.discard(DropReason::StreamLimit);
                return None;
            }
        }
        self.tally.counters.streams_opened += 1;
        self.streams.open(now, packed, remote, first)
    }

    /// Whether a new stream of the remote may take the place of another one in this batch.
    fn may_replace(&mut self, remote: u16) -> bool {
        let opened = &mut self.opened[usize::from(remote)];
        if opened.batch != self.batch {
            *opened = Opened {
                batch: self.batch,
                streams: 0,
            };
        }
        opened.streams += 1;
        !self.under_pressure || opened.streams <= OPENED_UNDER_PRESSURE
    }

    /// Delivers what a line holds and forgets it.
    pub(super) fn retire<F: FnMut(StreamKey, Piece<'_>, bool)>(
        &mut self,
        now: u64,
        at: u32,
        deliver: &mut F,
    ) {
        self.empty(now, at, deliver);
        let line = self.streams.get_mut(at);
        if abandon(&mut line.pending, &mut self.packets) {
            self.tally.discard(DropReason::FrameExpired);
        }
        self.streams.bequeath(at);
        self.streams.close(at);
    }

    /// Delivers what a line holds.
    fn empty<F: FnMut(StreamKey, Piece<'_>, bool)>(&mut self, now: u64, at: u32, deliver: &mut F) {
        while let Some(first) = self.streams.get(at).first_held() {
            self.let_pass(now, at, first, deliver);
            if !self.give_up_gap(now, at, None, deliver) {
                return;
            }
        }
    }
}
