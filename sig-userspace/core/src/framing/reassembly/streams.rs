//! The lines that are known: lookup, where frames belong, who gives way.

use super::line::{FREE, Line, PAST, PROVEN};
use super::list::{Links, List, NIL};
use super::pool::RANKS;
use super::{Limits, StreamKey};

/// Lines of one stream.
pub(super) const LINES: usize = 4;

/// A hash that peers, who choose the values, cannot foresee.
#[inline]
pub(super) fn mix(value: u64, seed: u64) -> u64 {
    let product = u128::from(value ^ seed) * u128::from(seed | 1);
    let folded = (product as u64) ^ (product >> 64) as u64;
    folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

/// Where a frame belongs.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// The next one of this line, ahead of its turn, or late.
    Line(u32),
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
    entries: Box<[Line]>,
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
            entries: vec![Line::new(FREE, 0); total].into_boxed_slice(),
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
        limits.streams_total * (size_of::<Line>() + 4 * size_of::<u32>())
            + buckets(limits.streams_total) * size_of::<u32>()
            + limits.remotes * size_of::<[List; RANKS]>()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, at: u32) -> &mut Line {
        &mut self.entries[at as usize]
    }

    #[inline]
    pub(super) fn get(&self, at: u32) -> &Line {
        &self.entries[at as usize]
    }

    /// Whether the frame is the next one of this line, and no other line can have received it.
    #[inline]
    pub(super) fn expects(&self, at: u32, key: u64, sequence: u64) -> bool {
        let line = &self.entries[at as usize];
        line.key == key && line.next == sequence && line.fence != sequence
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

    /// A line of the stream.
    pub(super) fn any_of(&self, key: u64) -> Option<u32> {
        self.lines(key).next()
    }

    /// Whether the line is the only one of its stream that goes on: others stopped behind it, and nothing waits there.
    #[inline]
    pub(super) fn leads(&self, at: u32) -> bool {
        let next = self.get(at).next;
        self.lines(self.packed(at)).all(|other| {
            let line = self.get(other);
            other == at
                || (1..=u64::MAX / 2).contains(&next.wrapping_sub(line.next))
                    && line.held == 0
                    && line.pending.len == 0
        })
    }

    /// The line that is the least far behind `next`; `None` if one is there. If this one goes on to
    /// `next`, it passes no other, so no two expect the same.
    pub(super) fn nearest_behind(&self, key: u64, next: u64) -> Option<u32> {
        let distance = |at: &u32| next.wrapping_sub(self.get(*at).next);
        self.lines(key)
            .min_by_key(distance)
            .filter(|at| (1..=u64::MAX / 2).contains(&distance(at)))
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
            if line.has(sequence) {
                return Route::Duplicate;
            }
            let distance = sequence.wrapping_sub(line.next);
            if distance <= u64::MAX / 2 {
                if line.is_near(sequence) && ahead.is_none_or(|(least, _)| distance < least) {
                    ahead = Some((distance, at));
                }
                continue;
            }
            let back = distance.wrapping_neg();
            let of_line = line.spans(sequence);
            if back <= PAST {
                // Within the line before all else, in front of it after all else.
                if before.is_none_or(|(inside, _)| of_line && !inside) {
                    before = Some((of_line, at));
                }
            } else if of_line && line.is_dense() {
                old = Some(at);
            }
        }
        match (ahead, before, old) {
            (Some((0, at)), ..) | (_, Some((true, at)), _) => Route::Line(at),
            (Some((_, at)), ..) | (_, Some((_, at)), _) => Route::Line(at),
            (_, _, Some(at)) => Route::Old(at),
            _ => Route::Elsewhere,
        }
    }

    /// The line begins at `sequence`, if not earlier.
    pub(super) fn begin_at(&mut self, at: u32, sequence: u64) {
        let line = self.get_mut(at);
        if !line.spans(sequence) {
            let missing = line.first.wrapping_sub(sequence);
            line.skipped = line.skipped.saturating_add(missing);
            line.first = sequence;
        }
    }

    /// The lines of a stream that has several; otherwise all are [`NIL`].
    pub(super) fn siblings(&self, key: u64) -> [u32; LINES] {
        let mut siblings = [NIL; LINES];
        for (place, at) in siblings.iter_mut().zip(self.lines(key)) {
            *place = at;
        }
        if siblings[1] == NIL {
            siblings[0] = NIL;
        }
        siblings
    }

    /// Whether another line of the stream has received what this one expects.
    pub(super) fn is_taken(&self, at: u32) -> bool {
        let Line { key, next, .. } = *self.get(at);
        self.lines(key)
            .any(|other| other != at && self.get(other).has(next))
    }

    /// A line that holds nothing and one that expects the same frame.
    pub(super) fn meeting(&self, key: u64) -> Option<(u32, u32)> {
        let idle = |&at: &u32| self.get(at).held == 0;
        self.lines(key).filter(idle).find_map(|at| {
            let meets = |&other: &u32| other != at && self.get(other).next == self.get(at).next;
            self.lines(key).find(meets).map(|other| (at, other))
        })
    }

    /// How far the stream is: changes with each of its lines.
    pub(super) fn progress(&self, key: u64) -> u64 {
        let next = |at| self.get(at).next;
        self.lines(key).map(next).fold(0, u64::wrapping_add)
    }

    /// Up to which number no other line has to be asked, relative to `next`.
    fn free_way(&self, at: u32) -> u64 {
        let Line { key, next, .. } = *self.get(at);
        let from_next =
            |sequence: u64| Some(sequence.wrapping_sub(next)).filter(|&d| d <= u64::MAX / 2);
        let others = self.lines(key).filter(|&other| other != at);
        let begin = |other| {
            let line = self.get(other);
            if line.held > 0 && (from_next(line.top).is_some() || line.holds_before(next).is_some())
            {
                return Some(0);
            }
            let end = from_next(line.next)?;
            let first = from_next(line.first).unwrap_or(0);
            (end > 0).then(|| first.max(end.saturating_sub(PAST)))
        };
        others.filter_map(begin).min().unwrap_or(u64::MAX)
    }

    /// Lines of the stream have moved: where must they ask each other?
    pub(super) fn fence(&mut self, key: u64) {
        for at in self.siblings(key).into_iter().take_while(|&at| at != NIL) {
            let way = self.free_way(at);
            let line = self.get_mut(at);
            line.fence = line.next.wrapping_add(way);
        }
    }

    /// What the line has received is known to the next one ahead, if that reaches so far back.
    pub(super) fn bequeath(&mut self, at: u32) {
        let Line { key, next, .. } = *self.get(at);
        let distance = |other: &u32| self.get(*other).next.wrapping_sub(next);
        let heir = self
            .lines(key)
            .filter(|&other| other != at)
            .min_by_key(distance)
            .filter(|other| distance(other) <= PAST);
        if let Some(heir) = heir {
            let from = self.get(at).clone();
            self.get_mut(heir).absorb(&from);
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
            return self.least_of(remote).map(Some).ok_or(());
        }
        if self.free.front().is_some() {
            return Ok(None);
        }
        // Within its share, and nothing is free: the one that was silent for longest.
        self.idle
            .front()
            .filter(|&at| self.get(at).held == 0)
            .or_else(|| self.least_of(remote))
            .map(Some)
            .ok_or(())
    }

    /// The line of a remote that gives way: of the lowest rank, the least recently used. But
    /// those that have yet to prove themselves keep a quarter of the places among themselves.
    fn least_of(&self, remote: u16) -> Option<u32> {
        let (fresh, proven) = self.remotes[usize::from(remote)].split_at(2);
        let least_recent = |at: &u32| self.get(*at).touched;
        let of_proven = || {
            proven
                .iter()
                .filter_map(List::front)
                .min_by_key(least_recent)
        };
        let of_fresh = || fresh.iter().find_map(List::front);
        if fresh.iter().map(List::len).sum::<usize>() * 4 > self.per_remote {
            return of_fresh().or_else(of_proven);
        }
        of_proven().or_else(of_fresh)
    }

    /// A new line; `None` if there is no free entry.
    pub(super) fn open(&mut self, now: u64, key: u64, remote: u16, next: u64) -> Option<u32> {
        let at = self.by_age.pop_front(&mut self.free)?;
        let proven = self.is_proven(key);
        let jitter = self.lines(key).next().map(|other| self.get(other).jitter);
        let mut line = Line::new(key, next);
        line.ticks = if proven { PROVEN } else { 0 };
        line.jitter = jitter.unwrap_or_default();
        line.touched = now;
        line.chain = self.buckets[self.bucket(key)];
        self.entries[at as usize] = line;
        let bucket = self.bucket(key);
        self.buckets[bucket] = at;
        self.by_age.push_back(&mut self.idle, at);
        self.by_remote
            .push_back(&mut self.remotes[usize::from(remote)][0], at);
        self.fence(key);
        Some(at)
    }

    /// Forgets an open line; it holds no frames and no pending packet any more.
    pub(super) fn close(&mut self, at: u32) {
        let Line {
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
        let last = self.any_of(key);
        if let Some(last) = last {
            let line = self.get_mut(last);
            line.fence = line.next.wrapping_sub(1);
            self.fence(key);
        }
    }

    /// The line was used: it becomes the most recent one of its rank, if the last time is long
    /// enough ago to be worth the work.
    #[inline]
    pub(super) fn touch(&mut self, at: u32, now: u64) {
        let line = &self.entries[at as usize];
        let worth = match line.rank {
            0 => return self.move_to_back(at, now),
            1 => self.grain / 16,
            _ => self.grain,
        };
        if now.saturating_sub(line.touched) > worth {
            self.move_to_back(at, now);
        }
    }

    #[inline(never)]
    fn move_to_back(&mut self, at: u32, now: u64) {
        let line = &mut self.entries[at as usize];
        line.touched = now;
        if line.delivered && now.saturating_sub(line.ticked) >= self.grain {
            line.ticked = now;
            line.ticks = line.ticks.saturating_add(1);
        }
        let remote = usize::from(StreamKey::unpack(line.key).remote);
        let (before, after) = (line.rank, line.rank());
        line.rank = after;
        self.by_age.remove(&mut self.idle, at);
        self.by_age.push_back(&mut self.idle, at);
        let own = &mut self.remotes[remote];
        self.by_remote.remove(&mut own[usize::from(before)], at);
        self.by_remote.push_back(&mut own[usize::from(after)], at);
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
            let line = self.get(at);
            if line.fence.wrapping_sub(line.next) > self.free_way(at) {
                return Err("a line goes on where it must ask another");
            }
        }
        Ok(())
    }

    pub(super) fn iter_open(&self) -> impl Iterator<Item = (u32, &Line)> {
        self.by_age
            .iter(&self.idle)
            .map(|at| (at, &self.entries[at as usize]))
    }
}
