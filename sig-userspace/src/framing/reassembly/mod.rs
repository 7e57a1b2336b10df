//! Frames to packets.
//!
//! Each stream is put in order before its packets are: a frame ahead of the expected sequence
//! number is held for a moment (the *window*: so many frames, so long), then the gap is given up.
//! The wait follows the jitter of the stream. A frame that comes later still is delivered then,
//! out of order; of packets at the edges of a gap, the start (*parked*) and the rest (of a *spent*
//! frame) are kept for it. Duplicates are refused: what was received is known for the last
//! [`line::PAST`] sequence numbers, and older frames are refused. Streams begin at sequence 0,
//! so a first frame shortly behind 0 is held like any other.
//!
//! Nobody authenticates frames, so nothing that a single frame says is believed for good. A stream
//! has up to [`streams::LINES`] *lines*: runs of sequence numbers, each with a next number of its
//! own. A frame that no line can place begins another one and is delivered; a line that was in use
//! stays where it is and goes on as soon as its next frame comes. Buffers and lines that have not
//! delivered for long give way to those that have, see [`line::Line::rank`].
//!
//! Unlike the reference receiver, which delivers frames with old numbers again while no packet
//! is pending, and trusts a continuation whose index is not the number of missing bytes.
//!
//! What holds between two calls, most of it checked by `audit`:
//!
//! - A line has the bit of a number before `next` set if it received that frame, or another line
//!   did; from `next` on, if and only if it holds the frame. The frame `next` is not held.
//! - A frame that any line of its stream has is a duplicate. Before its `fence`, a line need not
//!   ask the others: none of them has a frame there, or will have one before the fence is looked
//!   at again, which is whenever a line of the stream begins, ends, or moves by other than the
//!   expected frame.
//! - A line expects no frame that another has, once its stream was settled, and no two lines that
//!   hold nothing expect the same. A line that ends leaves what it knows to the next one ahead.
//! - A number is old if it lies in a line that received most of its numbers, further back than is
//!   remembered. Old frames are the only ones that are refused without having been received.
//! - Every loop makes progress by itself: none relies on the above to end.
//!
//! All memory is allocated at construction, see [`Limits`]. Work per frame is bounded.

mod audit;
mod jitter;
mod limits;
mod line;
mod list;
mod pool;
mod streams;
mod types;
mod unpack;

#[cfg(test)]
mod tests;

use sig_common::reason::DropReason;

use jitter::CLASSES;
pub use limits::{Limits, LimitsError};
use line::{Line, Pending};
use list::NIL;
use pool::{Buffer, Owner, Pool, Room};
use streams::{Route, Streams};
pub use types::{Counters, FrameRef, Occupancy, Outcome, Piece, StreamKey};
use unpack::{Payload, Unpack, abandon};

use crate::framing::NO_START;

/// Counters with the outcome of the current call.
#[derive(Debug)]
struct Tally {
    counters: Counters,
    /// `delivered` stays 0: it is told from the counters, which spares a store per packet.
    outcome: Outcome,
    /// Packets delivered before the current call.
    before: u64,
}

impl Tally {
    #[inline]
    fn begin(&mut self) {
        self.outcome = Outcome::default();
        self.before = self.counters.packets;
    }

    #[inline]
    fn outcome(&self) -> Outcome {
        Outcome {
            delivered: (self.counters.packets - self.before) as u32,
            ..self.outcome
        }
    }

    #[inline]
    fn delivered(&mut self) {
        self.counters.packets += 1;
    }

    #[cold]
    fn discard(&mut self, reason: DropReason) {
        self.counters.discards[reason as usize] += 1;
        self.outcome.discarded += 1;
        self.outcome.reason.get_or_insert(reason);
    }
}

/// What is in the buffer of a held frame.
#[derive(Clone, Copy, Debug, Default)]
struct HeldFrame {
    sequence: u64,
    index: u16,
    len: u16,
    congestion: bool,
    /// It had its turn, and begins with the rest of a packet whose start may still come.
    spent: bool,
}

impl<'a> Payload<'a> {
    /// A frame in a buffer.
    fn held(pool: &'a Pool<HeldFrame>, slot: u32) -> Self {
        let HeldFrame {
            index,
            len,
            congestion,
            ..
        } = pool.meta(slot);
        Self {
            index,
            congestion,
            bytes: &pool.bytes(slot)[..usize::from(len)],
            of_caller: false,
        }
    }
}

/// The queue of spent frames.
const SPENT: u8 = CLASSES as u8;
/// How long parts are kept whose streams have delivered nothing yet or were overtaken, nanoseconds.
const SHORT_NS: u64 = 100_000_000;
/// Streams per remote that begin in one batch in place of others while the worker has more to do
/// than it can.
const OPENED_UNDER_PRESSURE: u32 = 4;
/// A first frame with at most this number may have been overtaken by none but the ones before.
const BEGINNING: u64 = 64;

/// Streams begun in the current batch.
#[derive(Clone, Copy, Debug, Default)]
struct Opened {
    batch: u64,
    streams: u32,
}

/// Puts the packets of one worker's streams together.
#[derive(Debug)]
pub struct Reassembler {
    limits: Limits,
    streams: Streams,
    packets: Pool<Pending>,
    held: Pool<HeldFrame>,
    waits: [u64; CLASSES],
    tally: Tally,
    /// The line of the last frame.
    last: u32,
    batch: u64,
    under_pressure: bool,
    opened: Box<[Opened]>,
}

impl Reassembler {
    /// `seed`: random, so that peers cannot choose streams that are slow to look up.
    ///
    /// # Errors
    /// If a limit is outside its range.
    pub fn new(limits: Limits, seed: u64) -> Result<Self, LimitsError> {
        limits.check()?;
        let waits = jitter::waits(limits.reorder_wait_ns);
        let spent = SHORT_NS.max(limits.reorder_wait_ns);
        let held_delays: Vec<u64> = waits.iter().copied().chain([spent]).collect();
        let short = SHORT_NS.min(limits.pending_timeout_ns);
        Ok(Self {
            streams: Streams::new(&limits, seed),
            packets: Pool::new(
                (limits.packets_total, limits.max_packet),
                (limits.remotes, limits.packets_per_remote),
                &[short, limits.pending_timeout_ns],
                seed,
            ),
            held: Pool::new(
                (limits.held_total, limits.max_frame_payload),
                (limits.remotes, limits.held_per_remote),
                &held_delays,
                seed,
            ),
            waits,
            tally: Tally {
                counters: Counters::default(),
                outcome: Outcome::default(),
                before: 0,
            },
            last: 0,
            batch: 0,
            under_pressure: false,
            opened: vec![Opened::default(); limits.remotes].into_boxed_slice(),
            limits,
        })
    }

    /// Frames of another batch follow. `under_pressure`: there are more than can be handled, so
    /// frames of new streams, which may be anybody's, must not crowd out those of known ones.
    pub fn begin_batch(&mut self, under_pressure: bool) {
        self.batch += 1;
        self.under_pressure = under_pressure;
    }

    /// Takes a frame in and delivers every packet this completes, those of held frames included,
    /// in order of the stream. `now`: monotonic nanoseconds.
    ///
    /// `deliver` gets the stream, the packet and whether any frame that carried a part of it was
    /// marked Congestion Experienced (RFC 6040). The stream may be another one of the same remote.
    #[inline]
    pub fn insert<F: FnMut(StreamKey, Piece<'_>, bool)>(
        &mut self,
        now: u64,
        key: StreamKey,
        frame: FrameRef<'_>,
        mut deliver: F,
    ) -> Outcome {
        self.tally.begin();
        self.tally.counters.frames += 1;
        let packed = key.pack();
        if !self.streams.expects(self.last, packed, frame.sequence) {
            match self.streams.find(packed, frame.sequence) {
                Some(at) => self.last = at,
                None => {
                    self.out_of_order(now, packed, frame, &mut deliver);
                    return self.tally.outcome();
                }
            }
        }
        let at = self.last;
        self.streams.touch(at, now);
        self.take(now, at, frame, &mut deliver);
        self.tally.outcome()
    }

    /// Lets go what has waited long enough: delivers held frames behind a gap, discards packets
    /// whose end did not come, forgets idle streams.
    pub fn poll<F: FnMut(StreamKey, Piece<'_>, bool)>(&mut self, now: u64, mut deliver: F) {
        self.tally.begin();
        while let Some(slot) = self.held.due(now) {
            self.let_go(now, slot, &mut deliver);
        }
        while let Some(slot) = self.packets.due(now) {
            self.discard_packet(slot);
        }
        while let Some((at, deadline)) = self.streams.first_idle()
            && deadline <= now
        {
            self.retire(now, at, &mut deliver);
        }
    }

    /// No frame will come any more: delivers what is held, forgets all buffered packets, and
    /// returns how many of them lacked nothing but their end.
    pub fn finish<F: FnMut(StreamKey, Piece<'_>, bool)>(
        &mut self,
        now: u64,
        mut deliver: F,
    ) -> usize {
        self.tally.begin();
        while let Some(slot) = self.held.due(u64::MAX) {
            self.let_go(now, slot, &mut deliver);
        }
        let mut unfinished = 0;
        while let Some(slot) = self.packets.due(u64::MAX) {
            if self.packets.meta(slot).len == 0 {
                unfinished += 1;
                self.packets.give(slot);
            } else {
                self.discard_packet(slot);
            }
        }
        unfinished
    }

    /// When [`poll`](Self::poll) has something to do, nanoseconds.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        let idle = self.streams.first_idle().map(|(_, deadline)| deadline);
        let buffers = [self.held.next_deadline(), self.packets.next_deadline()];
        buffers.into_iter().flatten().chain(idle).min()
    }

    /// Forgets all streams of a remote, whose number may then be given to another; `deliver`
    /// gets the packets of its held frames.
    pub fn forget_remote<F: FnMut(StreamKey, Piece<'_>, bool)>(
        &mut self,
        now: u64,
        remote: u16,
        mut deliver: F,
    ) {
        self.tally.begin();
        while let Some(at) = self.streams.first_of(remote) {
            self.retire(now, at, &mut deliver);
        }
        while let Some(slot) = self.held.first_of(remote) {
            self.let_go(now, slot, &mut deliver);
        }
        while let Some(slot) = self.packets.first_of(remote) {
            self.discard_packet(slot);
        }
    }

    /// Sums since construction.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.tally.counters
    }

    /// What is in use.
    #[must_use]
    pub fn occupancy(&self) -> Occupancy {
        Occupancy {
            streams: self.streams.len(),
            packets: self.packets.in_use(),
            held: self.held.in_use(),
        }
    }

    /// The limits given at construction.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    #[inline(never)]
    fn out_of_order<F: FnMut(StreamKey, Piece<'_>, bool)>(
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
            let ahead = sequence.wrapping_sub(self.streams.get(at).next);
            if ahead == 0 {
                return self.take(now, at, frame, deliver);
            }
            if ahead <= self.limits.reorder_frames as u64 && self.hold(now, at, frame, deliver) {
                self.tally.outcome.held = true;
                return;
            }
            if !self.give_up_gap(now, at, Some(sequence), deliver) {
                return;
            }
        }
    }

    /// A new line; `None`: refused and counted.
    fn open<F: FnMut(StreamKey, Piece<'_>, bool)>(
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

    /// The line as the owner of a buffer.
    fn owner(&self, now: u64, at: u32) -> Owner {
        Owner::new(
            at,
            self.streams.key(at).remote,
            self.streams.get(at).rank,
            now,
        )
    }

    /// The line, the held frames, and what it takes to unpack a frame of the line.
    #[inline]
    fn parts<'a, F>(
        &'a mut self,
        now: u64,
        at: u32,
        deliver: &'a mut F,
    ) -> (&'a mut Line, &'a mut Pool<HeldFrame>, Unpack<'a, F>) {
        let key = self.streams.key(at);
        let line = self.streams.get_mut(at);
        let unpack = Unpack {
            limits: &self.limits,
            packets: &mut self.packets,
            tally: &mut self.tally,
            deliver,
            key,
            now,
            at,
            rank: line.rank,
        };
        (line, &mut self.held, unpack)
    }

    /// The frame is the expected one.
    #[inline]
    fn take<F: FnMut(StreamKey, Piece<'_>, bool)>(
        &mut self,
        now: u64,
        at: u32,
        frame: FrameRef<'_>,
        deliver: &mut F,
    ) {
        let (line, _, mut unpack) = self.parts(now, at, deliver);
        line.advance();
        let before = unpack.tally.counters.packets;
        let orphan = unpack.frame(&mut line.pending, Payload::of(&frame));
        line.delivered |= unpack.tally.counters.packets != before;
        let held = line.held != 0;
        if orphan {
            self.keep_rest(now, at, frame);
        }
        if held {
            self.observe(now, at);
            self.release(now, at, deliver);
        }
    }

    /// A missing frame has come: how late?
    #[cold]
    fn observe(&mut self, now: u64, at: u32) {
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

    /// A frame that was given up: its packets are delivered out of order.
    #[cold]
    fn late<F: FnMut(StreamKey, Piece<'_>, bool)>(
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
    fn park(&mut self, now: u64, at: u32, next: u64, pending: Pending) {
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
    fn is_rest_wanted(&self, at: u32, sequence: u64) -> bool {
        let before = (self.streams.packed(at), sequence.wrapping_sub(1));
        let goes_on = |_: &Owner, frame: &HeldFrame| frame.spent && frame.index == NO_START;
        self.streams.get(at).misses_before(sequence) || self.held.find(before, goes_on).is_some()
    }

    /// The owner of a spent frame.
    fn of_spent(&self, now: u64, at: u32) -> Owner {
        Owner {
            rank: 0,
            queue: SPENT,
            ..self.owner(now, at)
        }
    }

    /// A frame begins with the rest of a packet whose start is missing: keeps it, if that helps.
    #[cold]
    fn keep_rest(&mut self, now: u64, at: u32, frame: FrameRef<'_>) {
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

    /// Copies a frame into a buffer.
    fn store(&mut self, owner: Owner, frame: FrameRef<'_>, spent: bool) -> Option<u32> {
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
    fn hold<F: FnMut(StreamKey, Piece<'_>, bool)>(
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
        loop {
            match self.held.room(owner.remote) {
                Room::Free => break,
                Room::Instead(slot)
                    if self.held.meta(slot).spent || self.held.owner(slot).stream != at =>
                {
                    self.let_go(now, slot, deliver);
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
    fn give_up_gap<F: FnMut(StreamKey, Piece<'_>, bool)>(
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
    fn held_slot(&self, at: u32, sequence: u64) -> Option<u32> {
        let name = (self.streams.packed(at), sequence);
        self.held
            .find(name, |owner, frame| owner.stream == at && !frame.spent)
    }

    /// Delivers the held frames that are next.
    fn release<F: FnMut(StreamKey, Piece<'_>, bool)>(
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
    fn let_go<F: FnMut(StreamKey, Piece<'_>, bool)>(
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

    /// Ends the time of a packet's buffer.
    fn discard_packet(&mut self, slot: u32) {
        let parked = self.packets.meta(slot).len != 0;
        self.packets.give(slot);
        self.tally.discard(if parked {
            DropReason::FrameEvicted
        } else {
            DropReason::FrameExpired
        });
    }

    /// Delivers what a line holds.
    fn empty<F: FnMut(StreamKey, Piece<'_>, bool)>(&mut self, now: u64, at: u32, deliver: &mut F) {
        while self.streams.get(at).held != 0 && self.give_up_gap(now, at, None, deliver) {}
    }

    /// Delivers what a line holds and forgets it.
    fn retire<F: FnMut(StreamKey, Piece<'_>, bool)>(&mut self, now: u64, at: u32, deliver: &mut F) {
        self.empty(now, at, deliver);
        let line = self.streams.get_mut(at);
        if abandon(&mut line.pending, &mut self.packets) {
            self.tally.discard(DropReason::FrameExpired);
        }
        self.streams.bequeath(at);
        self.streams.close(at);
    }
}
