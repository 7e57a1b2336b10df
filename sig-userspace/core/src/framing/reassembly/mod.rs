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
//!   did, or another receiver ([`elsewhere`]); from `next` on, if and only if it holds the frame.
//!   The frame `next` is not held.
//! - A frame that any line of its stream has is a duplicate. Before its `fence`, a line need not
//!   ask the others: none of them has a frame there, or will have one before the fence is looked
//!   at again, which is whenever a line of the stream begins, ends, or moves by other than the
//!   expected frame. Nor does any of them hold a frame of before: that is delivered first.
//! - A line expects no frame that another has, once its stream was settled, and no two lines that
//!   hold nothing expect the same. A line that ends leaves what it knows to the next one ahead.
//! - A number is old if it lies in a line that received most of its numbers, further back than is
//!   remembered. Old frames are the only ones that are refused without having been received.
//! - Every loop makes progress by itself: none relies on the above to end.
//!
//! All memory is allocated at construction, see [`Limits`]. Work per frame is bounded.

mod audit;
mod elsewhere;
mod jitter;
mod late;
mod limits;
mod line;
mod list;
mod place;
mod pool;
mod streams;
mod types;
mod unpack;
mod window;

#[cfg(test)]
mod tests;

use sig_common::reason::DropReason;

use jitter::CLASSES;
pub use limits::{Limits, LimitsError};
use line::{Line, Pending};
use pool::{Owner, Pool};
use streams::Streams;
pub use types::{Counters, FrameRef, Occupancy, Outcome, Piece, StreamKey};
use unpack::{Payload, Unpack};

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
                0,
                seed,
            ),
            held: Pool::new(
                (limits.held_total, limits.max_frame_payload),
                (limits.remotes, limits.held_per_remote),
                &held_delays,
                usize::from(SPENT),
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
    ///
    /// # Panics
    /// If the number of the remote is not below [`Limits::remotes`].
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
}
