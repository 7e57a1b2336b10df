//! The lines that are known: state, lookup, least recent use.
//!
//! A *line* is a run of sequence numbers of one stream. A stream usually has one; frames far from
//! it begin another, so that a forged number cannot end the one in use.

use super::jitter::Jitter;
use super::list::{Links, List, NIL};
use super::pool::{Buffer, RANKS};
use super::{Limits, StreamKey};

/// Sequence numbers before the next one for which is known whether they were received.
pub(super) const PAST: u64 = 1_984;
/// Sequence numbers after the next one that can be held.
pub(super) const AHEAD: u64 = 2_048;
/// Frames further than this ahead of every other one begin another line.
const NEAR: u64 = 64;
/// So many frames in a row, all older than what is remembered, are a sender that began anew.
const RESTART: u8 = 32;
/// Lines of one stream.
const LINES: usize = 4;
/// Words of [`Stream::seen`]: 32 from the one of `next` on, 32 behind.
const WORDS: u64 = 64;

/// A packet whose end has not come yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    /// Assembly buffer; if it was taken away, the packet is only counted through, to be skipped.
    pub(super) buffer: Buffer,
    /// Length of the packet; 0: nothing is pending.
    pub(super) len: u32,
    pub(super) have: u32,
    pub(super) frames: u32,
    /// Any of its frames was marked.
    pub(super) congestion: bool,
}

impl Pending {
    pub(super) const NONE: Self = Self {
        buffer: Buffer::NONE,
        len: 0,
        have: 0,
        frames: 0,
        congestion: false,
    };
}

impl Default for Pending {
    fn default() -> Self {
        Self::NONE
    }
}

/// State of one line of a stream.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    /// [`StreamKey::pack`]ed, or [`FREE`].
    key: u64,
    /// The next sequence number expected.
    pub(super) next: u64,
    /// Where another line of the stream begins; a number that has passed: nowhere.
    end: u64,
    pub(super) pending: Pending,
    /// Packets delivered.
    pub(super) delivered: u64,
    /// Last use, nanoseconds, to the granularity of the idle queue.
    touched: u64,
    /// Frames held.
    pub(super) held: u32,
    /// Next line of the same hash bucket.
    chain: u32,
    /// See [`rank`], as of the last touch.
    rank: u8,
    /// Consecutive old frames, ...
    old_run: u8,
    /// ... the number after the last one, ...
    old_next: u64,
    /// ... and `next` at that time.
    old_while: u64,
    /// The first sequence number.
    pub(super) first: u64,
    opened: u64,
    /// The highest frame held.
    pub(super) top: u64,
    pub(super) jitter: Jitter,
    late: LateRun,
    /// Bit s mod 4096: frame s was received; if it is not before `next`, it is held.
    seen: [u64; WORDS as usize],
}

/// Late frames that came in order: a sender that others are ahead of.
#[derive(Clone, Copy, Debug, Default)]
struct LateRun {
    next: u64,
    frames: u64,
    at: u64,
    /// Where the line went on behind its last gap.
    resumed: u64,
}

/// The key of an unused entry; packed keys have 60 bits.
const FREE: u64 = u64::MAX;

/// How trustworthy is who has delivered so many packets: the lowest rank gives way first.
pub(super) fn rank(delivered: u64) -> u8 {
    match delivered {
        0 => 0,
        1..64 => 1,
        64..4_096 => 2,
        _ => (RANKS - 1) as u8,
    }
}

/// A hash that peers, who choose the values, cannot foresee.
#[inline]
pub(super) fn mix(value: u64, seed: u64) -> u64 {
    let product = u128::from(value ^ seed) * u128::from(seed | 1);
    let folded = (product as u64) ^ (product >> 64) as u64;
    folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

impl Stream {
    fn free() -> Self {
        Self {
            key: FREE,
            next: 0,
            end: u64::MAX,
            pending: Pending::NONE,
            delivered: 0,
            touched: 0,
            held: 0,
            chain: NIL,
            rank: 0,
            old_run: 0,
            old_next: 0,
            old_while: 0,
            first: 0,
            opened: 0,
            top: 0,
            jitter: Jitter::default(),
            late: LateRun::default(),
            seen: [0; WORDS as usize],
        }
    }

    #[inline]
    pub(super) fn rank(&self) -> u8 {
        rank(self.delivered)
    }

    #[inline]
    fn bit(sequence: u64) -> (usize, u64) {
        (((sequence / 64) % WORDS) as usize, 1 << (sequence % 64))
    }

    #[inline]
    pub(super) fn mark(&mut self, sequence: u64) {
        let (word, bit) = Self::bit(sequence);
        self.seen[word] |= bit;
    }

    /// Whether a frame between `PAST` before and `AHEAD` after the next one is here or was.
    #[inline]
    pub(super) fn is_seen(&self, sequence: u64) -> bool {
        let (word, bit) = Self::bit(sequence);
        self.seen[word] & bit != 0
    }

    /// The expected frame has come.
    #[inline]
    pub(super) fn advance(&mut self) {
        self.mark(self.next);
        self.next = self.next.wrapping_add(1);
        if self.next.is_multiple_of(64) {
            let (word, _) = Self::bit(self.next.wrapping_add(AHEAD));
            self.seen[word] = 0;
        }
    }

    /// Gives up the next `gap` frames.
    pub(super) fn skip(&mut self, gap: u64) {
        let words = (self.next % 64 + gap) / 64;
        for word in 1..=words.min(WORDS) {
            let (word, _) = Self::bit(self.next.wrapping_add(AHEAD + word * 64));
            self.seen[word] = 0;
        }
        self.next = self.next.wrapping_add(gap);
        self.late.resumed = self.next;
    }

    /// The lowest sequence number held.
    pub(super) fn first_held(&self) -> Option<u64> {
        if self.held == 0 {
            return None;
        }
        let mut at = self.next;
        for _ in 0..=AHEAD / 64 {
            let (word, bit) = Self::bit(at);
            // Bits below the first one are of frames before `next`.
            let from_here = self.seen[word] & bit.wrapping_neg();
            if from_here != 0 {
                return Some((at & !63).wrapping_add(u64::from(from_here.trailing_zeros())));
            }
            at = (at & !63).wrapping_add(64);
        }
        None
    }

    /// Whether this frame before `next` was received, as far as is remembered.
    pub(super) fn is_past(&self, sequence: u64) -> bool {
        self.next.wrapping_sub(1).wrapping_sub(sequence) < PAST && self.is_seen(sequence)
    }

    /// Whether the frame before this one, which is not before the first, is missing.
    pub(super) fn misses_before(&self, sequence: u64) -> bool {
        let before = sequence.wrapping_sub(1);
        sequence != self.first
            && self.next.wrapping_sub(1).wrapping_sub(before) < PAST
            && !self.is_seen(before)
    }

    /// Whether a frame ahead of its turn belongs to this line.
    fn is_near(&self, sequence: u64) -> bool {
        let ahead = sequence.wrapping_sub(self.next);
        let reach = self.top.wrapping_sub(self.next);
        let reach = if self.held > 0 && reach <= AHEAD {
            reach
        } else {
            0
        };
        // Who follows late but in order must not be left behind further than is remembered.
        let late = &self.late;
        let left_behind = sequence.wrapping_sub(late.next) > PAST
            && late.frames >= 2
            && late.frames > self.next.wrapping_sub(late.resumed);
        ahead <= AHEAD.min(reach + NEAR) && !(ahead > 0 && left_behind)
    }

    /// A frame came late.
    pub(super) fn came_late(&mut self, now: u64, sequence: u64) {
        let follows =
            self.late.next == sequence && now.saturating_sub(self.late.at) < 1_000_000_000;
        self.late.frames = if follows { self.late.frames + 1 } else { 1 };
        self.late.next = sequence.wrapping_add(1);
        self.late.at = now;
        self.mark(sequence);
    }

    /// A frame older than what is remembered came: whether so many came in a row, while nothing
    /// else did, that the sender must have begun anew.
    pub(super) fn restarts(&mut self, sequence: u64) -> bool {
        let follows = self.old_next == sequence && self.old_while == self.next;
        self.old_run = if follows { self.old_run + 1 } else { 1 };
        self.old_next = sequence.wrapping_add(1);
        self.old_while = self.next;
        if self.old_run < RESTART {
            return false;
        }
        self.old_run = 0;
        self.first = self.next.wrapping_sub(PAST);
        true
    }
}

/// Where a frame belongs.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// It is the next one of this line.
    Next(u32),
    /// It is ahead of its turn.
    Ahead(u32),
    /// It was given up, or came before the line began.
    Late(u32),
    /// It was received or is held.
    Duplicate,
    /// It is older than what the line remembers.
    Old(u32),
    /// It belongs to no line.
    Elsewhere,
}

/// All lines of a worker.
#[derive(Debug)]
pub(super) struct Streams {
    entries: Box<[Stream]>,
    buckets: Box<[u32]>,
    seed: u64,
    by_age: Links,
    free: List,
    /// Least recently used first.
    idle: List,
    by_remote: Links,
    /// The lines of each remote by rank, least recently used first.
    remotes: Box<[[List; RANKS]]>,
    per_remote: usize,
    grain: u64,
    idle_timeout: u64,
}

fn buckets(streams: usize) -> usize {
    (streams * 2).next_power_of_two()
}

impl Streams {
    pub(super) fn new(limits: &Limits, seed: u64) -> Self {
        let total = limits.streams_total;
        let mut by_age = Links::new(total);
        let free = by_age.all();
        Self {
            entries: vec![Stream::free(); total].into_boxed_slice(),
            buckets: vec![NIL; buckets(total)].into_boxed_slice(),
            seed,
            by_age,
            free,
            idle: List::EMPTY,
            by_remote: Links::new(total),
            remotes: vec![[List::EMPTY; RANKS]; limits.remotes].into_boxed_slice(),
            per_remote: limits.streams_per_remote,
            grain: (limits.idle_timeout_ns / 64).min(10_000_000),
            idle_timeout: limits.idle_timeout_ns,
        }
    }

    pub(super) fn memory(limits: &Limits) -> usize {
        limits.streams_total * (size_of::<Stream>() + 4 * size_of::<u32>())
            + buckets(limits.streams_total) * size_of::<u32>()
            + limits.remotes * size_of::<[List; RANKS]>()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, at: u32) -> &mut Stream {
        &mut self.entries[at as usize]
    }

    #[inline]
    pub(super) fn get(&self, at: u32) -> &Stream {
        &self.entries[at as usize]
    }

    /// Whether the frame is the next one of this line, and of no other.
    #[inline]
    pub(super) fn expects(&self, at: u32, key: u64, sequence: u64) -> bool {
        let line = &self.entries[at as usize];
        line.key == key && line.next == sequence && line.end != sequence
    }

    #[inline]
    pub(super) fn packed(&self, at: u32) -> u64 {
        self.entries[at as usize].key
    }

    #[inline]
    pub(super) fn key(&self, at: u32) -> StreamKey {
        StreamKey::unpack(self.entries[at as usize].key)
    }

    #[inline]
    fn bucket(&self, key: u64) -> usize {
        mix(key, self.seed) as usize & (self.buckets.len() - 1)
    }

    /// The lines of a stream.
    fn lines(&self, key: u64) -> impl Iterator<Item = u32> {
        let chain = |at: u32| (at != NIL).then_some(at);
        core::iter::successors(chain(self.buckets[self.bucket(key)]), move |&at| {
            chain(self.entries[at as usize].chain)
        })
        .filter(move |&at| self.entries[at as usize].key == key)
    }

    /// Whether the stream has a line that has proven itself.
    pub(super) fn is_proven(&self, key: u64) -> bool {
        self.lines(key).any(|at| self.get(at).rank() >= 2)
    }

    /// The line that expects the frame.
    #[inline]
    pub(super) fn find(&self, key: u64, sequence: u64) -> Option<u32> {
        self.lines(key).find(|&at| self.expects(at, key, sequence))
    }

    /// Where a frame belongs that may be no line's next.
    pub(super) fn route(&self, key: u64, sequence: u64) -> Route {
        let mut ahead: Option<(u64, u32)> = None;
        let mut before: Option<(bool, u32)> = None;
        let mut old = None;
        for at in self.lines(key) {
            let line = self.get(at);
            let distance = sequence.wrapping_sub(line.next);
            if distance <= u64::MAX / 2 {
                if distance <= AHEAD && line.is_seen(sequence) {
                    return Route::Duplicate;
                }
                if line.is_near(sequence) && ahead.is_none_or(|(least, _)| distance < least) {
                    ahead = Some((distance, at));
                }
                continue;
            }
            let back = distance.wrapping_neg();
            let of_line = sequence.wrapping_sub(line.first) < line.next.wrapping_sub(line.first);
            if back <= PAST {
                if line.is_seen(sequence) {
                    return Route::Duplicate;
                }
                // Within the line before all else, in front of it after all else.
                if before.is_none_or(|(inside, _)| of_line && !inside) {
                    before = Some((of_line, at));
                }
            } else if of_line {
                old = Some(at);
            }
        }
        match (ahead, before, old) {
            (Some((0, at)), ..) => Route::Next(at),
            (_, Some((true, at)), _) => Route::Late(at),
            (Some((_, at)), ..) => Route::Ahead(at),
            (_, Some((_, at)), _) => Route::Late(at),
            (_, _, Some(at)) => Route::Old(at),
            _ => Route::Elsewhere,
        }
    }

    /// The line begins at `sequence`, if not earlier, and ends the one behind it there.
    pub(super) fn begin_at(&mut self, at: u32, sequence: u64) {
        let Stream {
            key, next, first, ..
        } = *self.get(at);
        if sequence.wrapping_sub(first) < next.wrapping_sub(first) {
            return;
        }
        self.get_mut(at).first = sequence;
        let mut of_stream = self.buckets[self.bucket(key)];
        while of_stream != NIL {
            let other = &mut self.entries[of_stream as usize];
            if of_stream != at && other.key == key && other.end == first {
                other.end = sequence;
            }
            of_stream = other.chain;
        }
    }

    /// A line of the same stream that came to where this one began, and so ends.
    pub(super) fn ends_at(&self, at: u32) -> Option<u32> {
        let Stream { key, first, .. } = *self.get(at);
        self.lines(key).find(|&other| {
            let line = self.get(other);
            other != at && line.next == first && line.end == first
        })
    }

    /// A line of the same stream that was silent since this one began.
    pub(super) fn replaced_by(&self, at: u32, now: u64) -> Option<u32> {
        let Stream { key, opened, .. } = *self.get(at);
        let silent = |line: &Stream| {
            line.touched <= opened && now.saturating_sub(line.touched) > 2 * self.grain
        };
        self.lines(key)
            .find(|&other| other != at && silent(self.get(other)))
    }

    /// What `from` has achieved counts for `to` as well, and what it received is remembered.
    pub(super) fn inherit(&mut self, to: u32, from: u32) {
        let Stream {
            delivered,
            jitter,
            next,
            first,
            seen,
            ..
        } = *self.get(from);
        let line = self.get_mut(to);
        line.delivered += delivered;
        line.jitter = jitter;
        let ahead = line.next.wrapping_sub(next);
        if ahead > u64::MAX / 2 {
            return;
        }
        line.first = first;
        // The last words of the one are words of the other as well, unless it is far ahead. Of
        // the word of `next`, only the bits before it: nothing that is not held may look held.
        for words in 0..PAST / 64 {
            let sequence = next.wrapping_sub(words * 64);
            if line.next.wrapping_sub(sequence) < PAST {
                let (word, bit) = Stream::bit(sequence);
                let before = if words == 0 { bit - 1 } else { u64::MAX };
                line.seen[word] |= seen[word] & before;
            }
        }
    }

    /// The line that must be closed before the remote can open another of this stream; `Err`:
    /// none can.
    pub(super) fn must_give_way(&self, remote: u16, key: u64) -> Result<Option<u32>, ()> {
        if self.lines(key).count() >= LINES {
            let weakest = |&at: &u32| (self.get(at).rank, self.get(at).touched);
            return Ok(self.lines(key).min_by_key(weakest));
        }
        let own = &self.remotes[usize::from(remote)];
        if own.iter().map(List::len).sum::<usize>() >= self.per_remote {
            return own.iter().find_map(List::front).map(Some).ok_or(());
        }
        if self.free.front().is_some() {
            return Ok(None);
        }
        // Within its share, and nothing is free: the one that was silent for longest.
        self.idle
            .front()
            .filter(|&at| self.get(at).held == 0)
            .or_else(|| own.iter().find_map(List::front))
            .map(Some)
            .ok_or(())
    }

    /// A new line; `None` if there is no free entry.
    pub(super) fn open(&mut self, now: u64, key: u64, remote: u16, next: u64) -> Option<u32> {
        let at = self.by_age.pop_front(&mut self.free)?;
        let mut line = Stream {
            key,
            next,
            end: next.wrapping_sub(1),
            first: next,
            touched: now,
            opened: now,
            chain: self.buckets[self.bucket(key)],
            ..Stream::free()
        };
        // The nearest line ahead ends this one, and this one ends those behind.
        let mut of_stream = self.buckets[self.bucket(key)];
        while of_stream != NIL {
            let other = &mut self.entries[of_stream as usize];
            of_stream = other.chain;
            if other.key != key {
                continue;
            }
            line.jitter = other.jitter;
            let until = |from: u64, to: u64| to.wrapping_sub(from);
            if until(next, other.first) <= until(next, line.end) {
                line.end = other.first;
            }
            if until(other.next, next) < until(other.next, other.end) {
                other.end = next;
            }
        }
        self.entries[at as usize] = line;
        let bucket = self.bucket(key);
        self.buckets[bucket] = at;
        self.by_age.push_back(&mut self.idle, at);
        self.by_remote
            .push_back(&mut self.remotes[usize::from(remote)][0], at);
        Some(at)
    }

    /// Forgets an open line; it holds no frames and no pending packet any more.
    pub(super) fn close(&mut self, at: u32) {
        let Stream {
            key, chain, rank, ..
        } = self.entries[at as usize];
        let bucket = self.bucket(key);
        let mut before = self.buckets[bucket];
        if before == at {
            self.buckets[bucket] = chain;
        } else {
            while self.entries[before as usize].chain != at {
                before = self.entries[before as usize].chain;
            }
            self.entries[before as usize].chain = chain;
        }
        let remote = usize::from(StreamKey::unpack(key).remote);
        self.by_remote
            .remove(&mut self.remotes[remote][usize::from(rank)], at);
        self.by_age.remove(&mut self.idle, at);
        self.by_age.push_front(&mut self.free, at);
        self.entries[at as usize].key = FREE;
    }

    /// The line was used: it becomes the most recent one of its rank, if the last time is long
    /// enough ago to be worth the work. Returns whether it has proven itself, then.
    #[inline]
    pub(super) fn touch(&mut self, at: u32, now: u64) -> bool {
        let line = &self.entries[at as usize];
        if line.rank >= 2 && now.saturating_sub(line.touched) <= self.grain {
            return false;
        }
        self.move_to_back(at, now)
    }

    #[inline(never)]
    fn move_to_back(&mut self, at: u32, now: u64) -> bool {
        let line = &mut self.entries[at as usize];
        line.touched = now;
        let remote = usize::from(StreamKey::unpack(line.key).remote);
        let (before, after) = (line.rank, line.rank());
        line.rank = after;
        self.by_age.remove(&mut self.idle, at);
        self.by_age.push_back(&mut self.idle, at);
        let own = &mut self.remotes[remote];
        self.by_remote.remove(&mut own[usize::from(before)], at);
        self.by_remote.push_back(&mut own[usize::from(after)], at);
        after >= 2
    }

    /// The line to be forgotten first, and when.
    #[inline]
    pub(super) fn first_idle(&self) -> Option<(u32, u64)> {
        let at = self.idle.front()?;
        let touched = self.entries[at as usize].touched;
        let after = self.idle_timeout.saturating_add(self.grain);
        Some((at, touched.saturating_add(after)))
    }

    pub(super) fn first_of(&self, remote: u16) -> Option<u32> {
        let own = self.remotes.get(usize::from(remote))?;
        own.iter().find_map(List::front)
    }

    pub(super) fn len(&self) -> usize {
        self.idle.len()
    }

    /// Every entry is free or open and found by its key; limits are kept.
    pub(super) fn audit(&self) -> Result<(), &'static str> {
        if self.by_age.iter(&self.free).count() + self.by_age.iter(&self.idle).count()
            != self.entries.len()
        {
            return Err("a stream leaked");
        }
        let mut of_remotes = 0;
        for (remote, own) in self.remotes.iter().enumerate() {
            if own.iter().map(List::len).sum::<usize>() > self.per_remote {
                return Err("a remote exceeds its streams");
            }
            for at in own.iter().flat_map(|list| self.by_remote.iter(list)) {
                of_remotes += 1;
                if usize::from(self.key(at).remote) != remote {
                    return Err("a stream is in another remote's list");
                }
            }
        }
        if of_remotes != self.idle.len() {
            return Err("a stream is in no remote's list");
        }
        for at in self.by_age.iter(&self.idle) {
            let key = self.packed(at);
            if !self.lines(key).any(|line| line == at) {
                return Err("a stream is not found by its key");
            }
            if self.lines(key).count() > LINES {
                return Err("a stream has too many lines");
            }
        }
        Ok(())
    }

    pub(super) fn iter_open(&self) -> impl Iterator<Item = (u32, &Stream)> {
        self.by_age
            .iter(&self.idle)
            .map(|at| (at, &self.entries[at as usize]))
    }
}
