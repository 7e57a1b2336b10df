//! Frames to packets.
//!
//! Each stream is put in order before its packets are: a frame ahead of the expected sequence
//! number is held for a moment (the *window*: so many frames, so long), then the gap is given up.
//! Duplicates and frames older than the expected one are refused for as long as the stream is
//! remembered. Streams begin at sequence 0, so a first frame within the window of 0 is held like
//! any other; a first frame beyond starts the stream there, and what comes later with a lower
//! number is old.
//!
//! Unlike the reference receiver, which delivers frames with old numbers again while no packet
//! is pending, and trusts a continuation whose index is not the number of missing bytes.
//!
//! All memory is allocated at construction, see [`Limits`]. Work per frame is constant.

mod audit;
mod limits;
mod list;
mod pool;
mod stream;
mod types;
mod unpack;

#[cfg(test)]
mod tests;

use sig_common::reason::DropReason;

pub use limits::{Limits, LimitsError};
use list::NIL;
use pool::{Owner, Pool};
use stream::Streams;
pub use types::{Counters, FrameRef, Occupancy, Outcome, Piece, StreamKey};
use unpack::{Payload, Unpack, abandon};

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

/// The header fields of a held frame.
#[derive(Clone, Copy, Debug, Default)]
struct HeldFrame {
    sequence: u64,
    index: u16,
    len: u16,
    congestion: bool,
}

/// Puts the packets of one worker's streams together.
#[derive(Debug)]
pub struct Reassembler {
    limits: Limits,
    streams: Streams,
    packets: Pool,
    held: Pool,
    held_frames: Box<[HeldFrame]>,
    tally: Tally,
    /// The stream of the last frame.
    last: u32,
}

impl Reassembler {
    /// `seed`: random, so that peers cannot choose streams that are slow to look up.
    ///
    /// # Errors
    /// If a limit is outside its range.
    pub fn new(limits: Limits, seed: u64) -> Result<Self, LimitsError> {
        limits.check()?;
        Ok(Self {
            streams: Streams::new(&limits, seed),
            packets: Pool::new(
                limits.packets_total,
                limits.max_packet,
                limits.remotes,
                limits.packets_per_remote,
            ),
            held: Pool::new(
                limits.held_total,
                limits.max_frame_payload,
                limits.remotes,
                limits.held_per_remote,
            ),
            held_frames: vec![HeldFrame::default(); limits.held_total].into_boxed_slice(),
            tally: Tally {
                counters: Counters::default(),
                outcome: Outcome::default(),
                before: 0,
            },
            last: 0,
            limits,
        })
    }

    /// Takes a frame in and delivers every packet this completes, those of held frames included,
    /// in order of the stream. `now`: monotonic nanoseconds.
    ///
    /// `deliver` gets the stream, the packet and whether any frame that carried a part of it was
    /// marked Congestion Experienced (RFC 6040).
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
        if !self.streams.has_key(self.last, packed) {
            match self.find_or_open(now, packed, frame.sequence, &mut deliver) {
                Some(at) => self.last = at,
                None => return self.tally.outcome(),
            }
        }
        let at = self.last;
        let stream = self.streams.get_mut(at);
        if frame.sequence == stream.next {
            self.streams.touch(at, now);
            self.take(now, at, frame, &mut deliver);
        } else {
            self.out_of_order(now, at, frame, &mut deliver);
        }
        self.tally.outcome()
    }

    /// Lets go what has waited long enough: delivers held frames behind a gap, discards packets
    /// whose end did not come, forgets idle streams.
    pub fn poll<F: FnMut(StreamKey, Piece<'_>, bool)>(&mut self, now: u64, mut deliver: F) {
        self.tally.begin();
        while let Some((slot, owner)) = self.held.oldest()
            && owner.since.saturating_add(self.limits.reorder_wait_ns) <= now
        {
            let sequence = self.held_frames[slot as usize].sequence;
            while self.streams.get_mut(owner.stream).is_held(sequence) {
                self.give_up_gap(now, owner.stream, None, &mut deliver);
            }
        }
        while let Some((_, owner)) = self.packets.oldest()
            && owner.since.saturating_add(self.limits.pending_timeout_ns) <= now
        {
            abandon(self.streams.get_mut(owner.stream), &mut self.packets);
            self.tally.discard(DropReason::FrameExpired);
        }
        while let Some((at, deadline)) = self.streams.first_idle()
            && deadline <= now
        {
            self.retire(now, at, &mut deliver);
        }
    }

    /// When [`poll`](Self::poll) has something to do, nanoseconds.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        let held = self
            .held
            .oldest()
            .map(|(_, owner)| owner.since.saturating_add(self.limits.reorder_wait_ns));
        let packet = self
            .packets
            .oldest()
            .map(|(_, owner)| owner.since.saturating_add(self.limits.pending_timeout_ns));
        let idle = self.streams.first_idle().map(|(_, deadline)| deadline);
        held.into_iter().chain(packet).chain(idle).min()
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

    /// The stream with this key, new if unknown; `None`: refused and counted.
    #[inline(never)]
    fn find_or_open<F: FnMut(StreamKey, Piece<'_>, bool)>(
        &mut self,
        now: u64,
        packed: u64,
        sequence: u64,
        deliver: &mut F,
    ) -> Option<u32> {
        if let Some(at) = self.streams.find(packed) {
            return Some(at);
        }
        let remote = StreamKey::unpack(packed).remote;
        let room = if usize::from(remote) < self.limits.remotes {
            self.streams.must_give_way(remote)
        } else {
            Err(())
        };
        match room {
            Ok(None) => {}
            Ok(Some(victim)) => {
                self.retire(now, victim, deliver);
                self.tally.counters.streams_evicted += 1;
            }
            Err(()) => {
                self.tally.discard(DropReason::StreamLimit);
                return None;
            }
        }
        self.tally.counters.streams_opened += 1;
        let window = self.limits.reorder_frames as u64;
        let first = if sequence <= window { 0 } else { sequence };
        self.streams.open(now, packed, remote, first)
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
        let key = self.streams.key(at);
        let stream = self.streams.get_mut(at);
        Unpack {
            limits: &self.limits,
            packets: &mut self.packets,
            tally: &mut self.tally,
            deliver,
            now,
            key,
            at,
            stream,
        }
        .frame(Payload {
            index: frame.index,
            congestion: frame.congestion,
            bytes: frame.payload,
            of_caller: true,
        });
        if self.streams.get_mut(at).held != 0 {
            self.release(now, at, deliver);
        }
    }

    #[cold]
    fn out_of_order<F: FnMut(StreamKey, Piece<'_>, bool)>(
        &mut self,
        now: u64,
        at: u32,
        frame: FrameRef<'_>,
        deliver: &mut F,
    ) {
        let stream = self.streams.get_mut(at);
        if frame.sequence.wrapping_sub(stream.next) > u64::MAX / 2 {
            let reason = if stream.was_received(frame.sequence) {
                DropReason::FrameDuplicate
            } else {
                DropReason::FrameOld
            };
            self.tally.discard(reason);
            return;
        }
        self.streams.touch(at, now);
        loop {
            let stream = self.streams.get_mut(at);
            let ahead = frame.sequence.wrapping_sub(stream.next);
            if ahead == 0 {
                return self.take(now, at, frame, deliver);
            }
            if ahead <= self.limits.reorder_frames as u64 {
                if stream.is_held(frame.sequence) {
                    self.tally.discard(DropReason::FrameDuplicate);
                    return;
                }
                if self.hold(now, at, frame) {
                    self.tally.outcome.held = true;
                    return;
                }
            }
            self.give_up_gap(now, at, Some(frame.sequence), deliver);
        }
    }

    /// Keeps a frame for later; `false` if there is no room for it.
    fn hold(&mut self, now: u64, at: u32, frame: FrameRef<'_>) -> bool {
        let len = frame.payload.len();
        if len > self.limits.max_frame_payload {
            return false;
        }
        let owner = Owner {
            stream: at,
            remote: self.streams.key(at).remote,
            since: now,
        };
        let Some(slot) = self.held.take(owner) else {
            return false;
        };
        self.held.bytes_mut(slot)[..len].copy_from_slice(frame.payload);
        self.held_frames[slot as usize] = HeldFrame {
            sequence: frame.sequence,
            index: frame.index,
            len: len as u16,
            congestion: frame.congestion,
        };
        *self.streams.held_slot(at, frame.sequence) = slot;
        self.streams.get_mut(at).set_held(frame.sequence, true);
        self.tally.counters.held += 1;
        true
    }

    /// Goes on behind the gap: at the first held frame, which is delivered with all that follow
    /// it, or at `sequence`, if given and before that one.
    fn give_up_gap<F: FnMut(StreamKey, Piece<'_>, bool)>(
        &mut self,
        now: u64,
        at: u32,
        sequence: Option<u64>,
        deliver: &mut F,
    ) {
        let stream = self.streams.get_mut(at);
        let candidates = stream.first_held().into_iter().chain(sequence);
        let Some(gap) = candidates
            .map(|candidate| candidate.wrapping_sub(stream.next))
            .min()
        else {
            return;
        };
        stream.skip(gap);
        self.tally.counters.gaps += 1;
        if abandon(stream, &mut self.packets) {
            self.tally.discard(DropReason::FrameEvicted);
        }
        self.release(now, at, deliver);
    }

    /// Delivers the held frames that are next.
    fn release<F: FnMut(StreamKey, Piece<'_>, bool)>(
        &mut self,
        now: u64,
        at: u32,
        deliver: &mut F,
    ) {
        let key = self.streams.key(at);
        loop {
            let stream = self.streams.get_mut(at);
            let sequence = stream.next;
            if !stream.is_held(sequence) {
                return;
            }
            stream.set_held(sequence, false);
            let slot = core::mem::replace(self.streams.held_slot(at, sequence), NIL);
            let frame = self.held_frames[slot as usize];
            Unpack {
                limits: &self.limits,
                packets: &mut self.packets,
                tally: &mut self.tally,
                deliver,
                now,
                key,
                at,
                stream: self.streams.get_mut(at),
            }
            .frame(Payload {
                index: frame.index,
                congestion: frame.congestion,
                bytes: &self.held.bytes(slot)[..usize::from(frame.len)],
                of_caller: false,
            });
            self.held.give(slot);
        }
    }

    /// Delivers what a stream holds and forgets it.
    fn retire<F: FnMut(StreamKey, Piece<'_>, bool)>(&mut self, now: u64, at: u32, deliver: &mut F) {
        while self.streams.get_mut(at).held != 0 {
            self.give_up_gap(now, at, None, deliver);
        }
        if abandon(self.streams.get_mut(at), &mut self.packets) {
            self.tally.discard(DropReason::FrameExpired);
        }
        self.streams.close(at);
    }
}
