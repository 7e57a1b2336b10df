//! One line: what was received, what is held, and whom to believe.

use super::jitter::Jitter;
use super::list::NIL;
use super::pool::{Buffer, RANKS};

/// Sequence numbers before the next one for which is known whether they were received.
pub(super) const PAST: u64 = 1_984;
/// Sequence numbers after the next one that can be held.
pub(super) const AHEAD: u64 = 2_048;
/// Frames further than this ahead of every other one begin another line.
const NEAR: u64 = 64;
/// So many frames in a row, all older than what is remembered, are a sender that began anew.
const RESTART: u8 = 32;
/// Words of [`Line::seen`]: 32 from the one of `next` on, 32 behind.
const WORDS: u64 = 64;
/// Ticks in which a line of rank 2 or 3 has delivered, at least.
pub(super) const PROVEN: u32 = 16;
const LASTING: u32 = 256;

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
pub(super) struct Line {
    /// [`StreamKey::pack`](super::StreamKey)ed, or [`FREE`].
    pub(super) key: u64,
    /// The next sequence number expected.
    pub(super) next: u64,
    /// Where another line of the stream knows of frames: from here on it is asked. A number that
    /// has passed: nowhere.
    pub(super) fence: u64,
    pub(super) pending: Pending,
    /// Packets were delivered, ...
    pub(super) delivered: bool,
    /// ... in so many ticks, the last of which began at `ticked`.
    pub(super) ticks: u32,
    pub(super) ticked: u64,
    /// Last use, nanoseconds, to the granularity of the idle queue.
    pub(super) touched: u64,
    /// Frames held.
    pub(super) held: u32,
    /// Next line of the same hash bucket.
    pub(super) chain: u32,
    /// See [`Line::rank`], as of the last touch.
    pub(super) rank: u8,
    /// Consecutive old frames, ...
    old_run: u8,
    /// ... the number after the last one, ...
    old_next: u64,
    /// ... and how far the stream was at that time.
    old_while: u64,
    /// The first sequence number.
    pub(super) first: u64,
    /// Numbers that were given up.
    pub(super) skipped: u64,
    /// The highest frame held.
    pub(super) top: u64,
    pub(super) jitter: Jitter,
    late: LateRun,
    /// Bit s mod 4096: frame s was received; if it is not before `next`, it is held.
    pub(super) seen: [u64; WORDS as usize],
}

/// Late frames that came in order: a sender that others are ahead of.
#[derive(Clone, Copy, Debug, Default)]
struct LateRun {
    next: u64,
    frames: u64,
    /// Where the line went on behind its last gap.
    resumed: u64,
}

/// The key of an unused entry; packed keys have 60 bits.
pub(super) const FREE: u64 = u64::MAX;

impl Line {
    /// Nothing was received yet.
    pub(super) fn new(key: u64, next: u64) -> Self {
        Self {
            key,
            next,
            fence: next.wrapping_sub(1),
            pending: Pending::NONE,
            delivered: false,
            ticks: 0,
            ticked: 0,
            touched: 0,
            held: 0,
            chain: NIL,
            rank: 0,
            old_run: 0,
            old_next: 0,
            old_while: 0,
            first: next,
            skipped: 0,
            top: 0,
            jitter: Jitter::default(),
            late: LateRun::default(),
            seen: [0; WORDS as usize],
        }
    }

    /// How trustworthy the line is: the lowest rank gives way first. What counts is for how long
    /// it has delivered, not how much: many packets can be forged at once.
    #[inline]
    pub(super) fn rank(&self) -> u8 {
        match self.ticks {
            LASTING.. => (RANKS - 1) as u8,
            PROVEN.. => 2,
            _ => u8::from(self.delivered),
        }
    }

    #[inline]
    pub(super) fn bit(sequence: u64) -> (usize, u64) {
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

    /// Whether the frame is known to be here or to have been.
    pub(super) fn has(&self, sequence: u64) -> bool {
        let ahead = sequence.wrapping_sub(self.next);
        (ahead <= AHEAD || ahead.wrapping_neg() <= PAST) && self.is_seen(sequence)
    }

    /// Whether the number is before the next one.
    pub(super) fn is_behind(&self, sequence: u64) -> bool {
        sequence.wrapping_sub(self.next) > u64::MAX / 2
    }

    /// Whether the number is behind the first of the line and before the next.
    pub(super) fn spans(&self, sequence: u64) -> bool {
        sequence.wrapping_sub(self.first) < self.next.wrapping_sub(self.first)
    }

    /// Whether it received most of the numbers that it spans. Otherwise it cannot say that what
    /// it does not remember is old: a few forged frames span thousands.
    pub(super) fn is_dense(&self) -> bool {
        self.skipped <= self.next.wrapping_sub(self.first) / 2
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

    /// Goes on `count` numbers further, none of which is held.
    fn go_on(&mut self, count: u64) {
        let words = (self.next % 64 + count) / 64;
        for word in 1..=words.min(WORDS) {
            let (word, _) = Self::bit(self.next.wrapping_add(AHEAD + word * 64));
            self.seen[word] = 0;
        }
        self.next = self.next.wrapping_add(count);
    }

    /// Gives up the next `gap` frames.
    pub(super) fn skip(&mut self, gap: u64) {
        self.go_on(gap);
        self.skipped = self.skipped.saturating_add(gap);
        self.late.resumed = self.next;
        if self.next.wrapping_sub(self.late.next) > PAST {
            self.late.frames = 0;
        }
    }

    /// The next `count` frames, at most half of all numbers, have come.
    pub(super) fn receive(&mut self, count: u64) {
        self.go_on(count);
        let mut left = count.min(PAST);
        while left > 0 {
            let sequence = self.next.wrapping_sub(left);
            let bits = left.min(64 - sequence % 64);
            let (word, _) = Self::bit(sequence);
            self.seen[word] |= u64::MAX >> (64 - bits) << (sequence % 64);
            left -= bits;
        }
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

    /// How many numbers from `next` on are marked: for checks.
    pub(super) fn marked_ahead(&self) -> u32 {
        let (here, bit) = Self::bit(self.next);
        let beyond = (1..=AHEAD / 64).map(|words| {
            let (word, _) = Self::bit(self.next.wrapping_add(words * 64));
            self.seen[word].count_ones()
        });
        (self.seen[here] & bit.wrapping_neg()).count_ones() + beyond.sum::<u32>()
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

    /// How far before this number the first frame is that the line holds, if it holds one there.
    pub(super) fn holds_before(&self, sequence: u64) -> Option<u64> {
        let behind = sequence.wrapping_sub(self.first_held()?);
        (1..=u64::MAX / 2).contains(&behind).then_some(behind)
    }

    /// Whether a frame ahead of its turn belongs to this line.
    pub(super) fn is_near(&self, sequence: u64) -> bool {
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
    pub(super) fn came_late(&mut self, sequence: u64) {
        let follows = self.late.next == sequence;
        self.late.frames = if follows { self.late.frames + 1 } else { 1 };
        self.late.next = sequence.wrapping_add(1);
        self.skipped = self.skipped.saturating_sub(1);
        self.mark(sequence);
    }

    /// A frame older than what is remembered came: whether so many came in a row, while nothing
    /// else did, that the sender must have begun anew. `progress` changes with the stream.
    pub(super) fn restarts(&mut self, sequence: u64, progress: u64) -> bool {
        let follows = self.old_next == sequence && self.old_while == progress;
        self.old_run = if follows { self.old_run + 1 } else { 1 };
        self.old_next = sequence.wrapping_add(1);
        self.old_while = progress;
        self.old_run >= RESTART
    }

    /// What `other` has received, which has no frames held, was received; it is not ahead, and
    /// not further behind than is remembered.
    pub(super) fn absorb(&mut self, other: &Self) {
        if !self.spans(other.first) && other.next != other.first {
            let between = self.first.wrapping_sub(other.next);
            let between = if between <= PAST { between } else { 0 };
            self.skipped = self.skipped.saturating_add(other.skipped + between);
            self.first = other.first;
        }
        self.delivered |= other.delivered;
        self.ticks = self.ticks.max(other.ticks);
        for words in 0..PAST / 64 {
            let sequence = (other.next & !63).wrapping_sub(words * 64);
            if self.next.wrapping_sub(sequence) > PAST {
                return;
            }
            // Nothing from `next` on may be marked that is not held.
            let before = if words == 0 {
                (1 << (other.next % 64)) - 1
            } else {
                u64::MAX
            };
            let (word, _) = Self::bit(sequence);
            self.seen[word] |= other.seen[word] & before;
        }
    }
}
