//! The streams that are known: state, lookup, least recent use.

use super::list::{Links, List, NIL};
use super::{Limits, StreamKey};

/// A packet whose end has not come yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    /// Assembly buffer, or [`NIL`]: the packet is only counted through, to be skipped.
    pub(super) buffer: u32,
    /// Length of the packet; 0: nothing is pending.
    pub(super) len: u32,
    pub(super) have: u32,
    pub(super) frames: u32,
    /// Any of its frames was marked.
    pub(super) congestion: bool,
}

impl Pending {
    pub(super) const NONE: Self = Self {
        buffer: NIL,
        len: 0,
        have: 0,
        frames: 0,
        congestion: false,
    };
}

/// State of one stream.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    /// [`StreamKey::pack`]ed, or [`FREE`].
    key: u64,
    /// The next sequence number expected.
    pub(super) next: u64,
    /// Bit n: frame `next - 1 - n` was received.
    received: u64,
    /// Bit s mod 64: frame s, ahead of `next` by at most 63, is held.
    pub(super) held: u64,
    pub(super) pending: Pending,
    /// Last use, nanoseconds, to the granularity of the idle queue.
    touched: u64,
    /// Next stream of the same hash bucket.
    chain: u32,
}

/// The key of an unused entry; packed keys have 60 bits.
const FREE: u64 = u64::MAX;

impl Stream {
    /// Gives up the next `gap` frames.
    #[inline]
    pub(super) fn skip(&mut self, gap: u64) {
        self.received = match gap {
            0..64 => self.received << gap,
            _ => 0,
        };
        self.next = self.next.wrapping_add(gap);
    }

    /// The expected frame has come.
    #[inline]
    pub(super) fn advance(&mut self) {
        self.received = self.received << 1 | 1;
        self.next = self.next.wrapping_add(1);
    }

    /// Whether a frame before `next` was received, as far as is remembered.
    pub(super) fn was_received(&self, sequence: u64) -> bool {
        let back = self.next.wrapping_sub(1).wrapping_sub(sequence);
        back < 64 && self.received >> back & 1 == 1
    }

    #[inline]
    pub(super) fn is_held(&self, sequence: u64) -> bool {
        self.held >> (sequence % 64) & 1 == 1
    }

    #[inline]
    pub(super) fn set_held(&mut self, sequence: u64, held: bool) {
        let bit = 1 << (sequence % 64);
        self.held = if held {
            self.held | bit
        } else {
            self.held & !bit
        };
    }

    /// The lowest sequence number held.
    pub(super) fn first_held(&self) -> Option<u64> {
        let from_next = self.held.rotate_right((self.next % 64) as u32);
        (from_next != 0).then(|| {
            self.next
                .wrapping_add(u64::from(from_next.trailing_zeros()))
        })
    }
}

/// All streams of a worker.
#[derive(Debug)]
pub(super) struct Streams {
    entries: Box<[Stream]>,
    buckets: Box<[u32]>,
    /// Bits of the hash that are not used.
    shift: u32,
    seed: u64,
    by_age: Links,
    free: List,
    /// Least recently used first.
    idle: List,
    by_remote: Links,
    /// The streams of each remote, least recently used first.
    remotes: Box<[List]>,
    per_remote: usize,
    /// Slots of the held frames of every stream, by sequence number.
    held_slots: Box<[u32]>,
    /// Power of two, or 0.
    window: usize,
    grain: u64,
    idle_timeout: u64,
}

fn buckets(streams: usize) -> usize {
    (streams * 2).next_power_of_two()
}

fn window(limits: &Limits) -> usize {
    match limits.reorder_frames {
        0 => 0,
        frames => frames.next_power_of_two(),
    }
}

impl Streams {
    pub(super) fn new(limits: &Limits, seed: u64) -> Self {
        let total = limits.streams_total;
        let entry = Stream {
            key: FREE,
            next: 0,
            received: 0,
            held: 0,
            pending: Pending::NONE,
            touched: 0,
            chain: NIL,
        };
        let mut by_age = Links::new(total);
        let free = by_age.all();
        let window = window(limits);
        Self {
            entries: vec![entry; total].into_boxed_slice(),
            buckets: vec![NIL; buckets(total)].into_boxed_slice(),
            shift: 64 - buckets(total).trailing_zeros(),
            seed,
            by_age,
            free,
            idle: List::EMPTY,
            by_remote: Links::new(total),
            remotes: vec![List::EMPTY; limits.remotes].into_boxed_slice(),
            per_remote: limits.streams_per_remote,
            held_slots: vec![NIL; total * window].into_boxed_slice(),
            window,
            grain: limits.idle_timeout_ns / 64,
            idle_timeout: limits.idle_timeout_ns,
        }
    }

    pub(super) fn memory(limits: &Limits) -> usize {
        limits.streams_total
            * (size_of::<Stream>() + 4 * size_of::<u32>() + window(limits) * size_of::<u32>())
            + buckets(limits.streams_total) * size_of::<u32>()
            + limits.remotes * size_of::<List>()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, at: u32) -> &mut Stream {
        &mut self.entries[at as usize]
    }

    #[inline]
    pub(super) fn has_key(&self, at: u32, key: u64) -> bool {
        self.entries[at as usize].key == key
    }

    pub(super) fn key(&self, at: u32) -> StreamKey {
        StreamKey::unpack(self.entries[at as usize].key)
    }

    /// Keys are chosen by the peers: a folded multiplication with a secret keeps them from
    /// choosing keys of one bucket.
    #[inline]
    fn bucket(&self, key: u64) -> usize {
        let product = u128::from(key ^ self.seed) * u128::from(self.seed | 1);
        let folded = (product as u64) ^ (product >> 64) as u64;
        (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    #[inline]
    pub(super) fn find(&self, key: u64) -> Option<u32> {
        let mut at = self.buckets[self.bucket(key)];
        while at != NIL {
            let entry = &self.entries[at as usize];
            if entry.key == key {
                return Some(at);
            }
            at = entry.chain;
        }
        None
    }

    /// The stream that must be closed before the remote can open another; `Err`: none of its own
    /// could make room.
    pub(super) fn must_give_way(&self, remote: u16) -> Result<Option<u32>, ()> {
        let own = &self.remotes[usize::from(remote)];
        if own.len() < self.per_remote && self.free.front().is_some() {
            return Ok(None);
        }
        own.front().map(Some).ok_or(())
    }

    /// A new stream; `None` if there is no free entry.
    pub(super) fn open(&mut self, now: u64, key: u64, remote: u16, next: u64) -> Option<u32> {
        let at = self.by_age.pop_front(&mut self.free)?;
        let bucket = self.bucket(key);
        self.entries[at as usize] = Stream {
            key,
            next,
            received: 0,
            held: 0,
            pending: Pending::NONE,
            touched: now,
            chain: self.buckets[bucket],
        };
        self.buckets[bucket] = at;
        self.by_age.push_back(&mut self.idle, at);
        self.by_remote
            .push_back(&mut self.remotes[usize::from(remote)], at);
        Some(at)
    }

    /// Forgets an open stream; it holds no frames and no pending packet any more.
    pub(super) fn close(&mut self, at: u32) {
        let Stream { key, chain, .. } = self.entries[at as usize];
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
        let remote = StreamKey::unpack(key).remote;
        self.by_remote
            .remove(&mut self.remotes[usize::from(remote)], at);
        self.by_age.remove(&mut self.idle, at);
        self.by_age.push_front(&mut self.free, at);
        self.entries[at as usize].key = FREE;
    }

    /// The stream was used: it becomes the most recent one, if the last time is long enough ago
    /// to be worth the work.
    #[inline]
    pub(super) fn touch(&mut self, at: u32, now: u64) {
        if now.saturating_sub(self.entries[at as usize].touched) > self.grain {
            self.move_to_back(at, now);
        }
    }

    #[cold]
    fn move_to_back(&mut self, at: u32, now: u64) {
        let entry = &mut self.entries[at as usize];
        entry.touched = now;
        let remote = usize::from(StreamKey::unpack(entry.key).remote);
        self.by_age.remove(&mut self.idle, at);
        self.by_age.push_back(&mut self.idle, at);
        self.by_remote.remove(&mut self.remotes[remote], at);
        self.by_remote.push_back(&mut self.remotes[remote], at);
    }

    /// The stream to be forgotten first, and when.
    #[inline]
    pub(super) fn first_idle(&self) -> Option<(u32, u64)> {
        let at = self.idle.front()?;
        let touched = self.entries[at as usize].touched;
        let after = self.idle_timeout.saturating_add(self.grain);
        Some((at, touched.saturating_add(after)))
    }

    pub(super) fn first_of(&self, remote: u16) -> Option<u32> {
        self.remotes.get(usize::from(remote))?.front()
    }

    pub(super) fn len(&self) -> usize {
        self.idle.len()
    }

    #[inline]
    pub(super) fn held_slot(&mut self, at: u32, sequence: u64) -> &mut u32 {
        let start = at as usize * self.window;
        &mut self.held_slots[start + (sequence as usize & (self.window - 1))]
    }

    /// Every entry is free or open and found by its key; limits are kept.
    pub(super) fn audit(&self) -> Result<(), &'static str> {
        if self.by_age.iter(&self.free).count() + self.by_age.iter(&self.idle).count()
            != self.entries.len()
        {
            return Err("a stream leaked");
        }
        let mut of_remotes = 0;
        for (remote, list) in self.remotes.iter().enumerate() {
            if list.len() > self.per_remote {
                return Err("a remote exceeds its streams");
            }
            of_remotes += list.len();
            for at in self.by_remote.iter(list) {
                if usize::from(self.key(at).remote) != remote {
                    return Err("a stream is in another remote's list");
                }
            }
        }
        if of_remotes != self.idle.len() {
            return Err("a stream is in no remote's list");
        }
        for at in self.by_age.iter(&self.idle) {
            if self.find(self.entries[at as usize].key) != Some(at) {
                return Err("a stream is not found by its key");
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
