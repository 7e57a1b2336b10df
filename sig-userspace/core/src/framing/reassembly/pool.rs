//! Fixed buffers: a quota per remote, queues by age, and who gives way to whom.

use super::list::{Links, List, NIL};
use super::streams::mix;

/// How many ranks there are, see [`Owner::rank`].
pub(super) const RANKS: usize = 4;

/// Who holds a buffer, since when.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Owner {
    pub(super) stream: u32,
    pub(super) remote: u16,
    /// How much the stream has delivered so far: buffers of lower rank give way first.
    pub(super) rank: u8,
    /// Which of the pool's delays applies.
    pub(super) queue: u8,
    /// Nanoseconds.
    pub(super) since: u64,
}

impl Owner {
    /// Of a buffer that is kept for as short a time as possible, if the line has yet to deliver.
    pub(super) fn new(stream: u32, remote: u16, rank: u8, since: u64) -> Self {
        Self {
            stream,
            remote,
            rank,
            queue: u8::from(rank > 0),
            since,
        }
    }
}

/// A buffer as long as it was not taken away: a buffer that is taken again has another ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Buffer {
    slot: u32,
    ticket: u32,
}

impl Buffer {
    pub(super) const NONE: Self = Self {
        slot: NIL,
        ticket: 0,
    };
}

/// Whether a remote can have a buffer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Room {
    Free,
    /// If this one gives way.
    Instead(u32),
    None,
}

#[derive(Clone, Debug)]
struct Slot<T> {
    owner: Owner,
    ticket: u32,
    in_use: bool,
    /// The stream and sequence number by which the buffer is found, if `listed`.
    name: (u64, u64),
    listed: bool,
    /// Next slot of the same hash bucket.
    chain: u32,
    meta: T,
}

/// A fixed number of buffers of one size, each with a `T` that says what is in it.
#[derive(Debug)]
pub(super) struct Pool<T> {
    bytes: Box<[u8]>,
    buffer_len: usize,
    slots: Box<[Slot<T>]>,
    by_age: Links,
    free: List,
    /// One for each delay, oldest first.
    queues: Box<[List]>,
    /// Nanoseconds.
    delays: Box<[u64]>,
    /// The queue whose buffers give way to other remotes.
    loose: usize,
    by_rank: Links,
    remotes: Box<[[List; RANKS]]>,
    quota: usize,
    buckets: Box<[u32]>,
    seed: u64,
}

impl<T: Copy + Default> Pool<T> {
    pub(super) fn new(
        (buffers, buffer_len): (usize, usize),
        (remotes, quota): (usize, usize),
        delays: &[u64],
        loose: usize,
        seed: u64,
    ) -> Self {
        let mut by_age = Links::new(buffers);
        let free = by_age.all();
        let slot = Slot {
            owner: Owner::default(),
            ticket: 0,
            in_use: false,
            name: (0, 0),
            listed: false,
            chain: NIL,
            meta: T::default(),
        };
        Self {
            bytes: vec![0; buffers * buffer_len].into_boxed_slice(),
            buffer_len,
            slots: vec![slot; buffers].into_boxed_slice(),
            by_age,
            free,
            queues: vec![List::EMPTY; delays.len()].into_boxed_slice(),
            delays: delays.into(),
            loose,
            by_rank: Links::new(buffers),
            remotes: vec![[List::EMPTY; RANKS]; remotes].into_boxed_slice(),
            quota,
            buckets: vec![NIL; buffers.next_power_of_two()].into_boxed_slice(),
            seed,
        }
    }

    pub(super) fn memory(buffers: usize, buffer_len: usize, remotes: usize) -> usize {
        buffers * (buffer_len + size_of::<Slot<T>>() + 4 * size_of::<u32>())
            + buffers.next_power_of_two() * size_of::<u32>()
            + remotes * size_of::<[List; RANKS]>()
    }

    /// A remote that uses up its share lets go its own buffer of the lowest rank, the oldest first.
    /// So what has a low rank displaces its like, and at most one buffer of a higher rank. Within
    /// its share, when the pool is exhausted, the oldest loose buffer of any remote goes first.
    pub(super) fn room(&self, remote: u16) -> Room {
        let own = &self.remotes[usize::from(remote)];
        let within = own.iter().map(List::len).sum::<usize>() < self.quota;
        if within && self.free.front().is_some() {
            return Room::Free;
        }
        let loose = || self.queues.get(self.loose).and_then(List::front);
        within
            .then(loose)
            .flatten()
            .or_else(|| own.iter().find_map(List::front))
            .map_or(Room::None, Room::Instead)
    }

    /// A buffer, if any is free. The quota was looked at by [`room`](Self::room).
    pub(super) fn take(&mut self, owner: Owner, meta: T) -> Option<Buffer> {
        let slot = self.by_age.pop_front(&mut self.free)?;
        let entry = &mut self.slots[slot as usize];
        entry.owner = owner;
        entry.meta = meta;
        entry.in_use = true;
        entry.ticket = entry.ticket.wrapping_add(1);
        let ticket = entry.ticket;
        self.link(slot);
        Some(Buffer { slot, ticket })
    }

    fn link(&mut self, slot: u32) {
        let Owner {
            remote,
            rank,
            queue,
            ..
        } = self.slots[slot as usize].owner;
        self.by_age
            .push_back(&mut self.queues[usize::from(queue)], slot);
        self.by_rank.push_back(
            &mut self.remotes[usize::from(remote)][usize::from(rank)],
            slot,
        );
    }

    fn unlink(&mut self, slot: u32) {
        let Owner {
            remote,
            rank,
            queue,
            ..
        } = self.slots[slot as usize].owner;
        self.by_age
            .remove(&mut self.queues[usize::from(queue)], slot);
        self.by_rank.remove(
            &mut self.remotes[usize::from(remote)][usize::from(rank)],
            slot,
        );
    }

    /// The buffer begins anew to age, with another owner.
    pub(super) fn hand_over(&mut self, slot: u32, owner: Owner) {
        self.unlink(slot);
        self.slots[slot as usize].owner = owner;
        self.link(slot);
    }

    /// `slot` must be in use.
    pub(super) fn give(&mut self, slot: u32) {
        self.unlist(slot);
        self.unlink(slot);
        self.slots[slot as usize].in_use = false;
        self.by_age.push_front(&mut self.free, slot);
    }

    /// The slot of a buffer that was not taken away.
    #[inline]
    pub(super) fn slot(&self, buffer: Buffer) -> Option<u32> {
        let slot = self.slots.get(buffer.slot as usize)?;
        (slot.in_use && slot.ticket == buffer.ticket).then_some(buffer.slot)
    }

    /// The handle of a slot in use.
    pub(super) fn handle(&self, slot: u32) -> Buffer {
        let ticket = self.slots[slot as usize].ticket;
        Buffer { slot, ticket }
    }

    fn bucket(&self, name: (u64, u64)) -> usize {
        mix(name.0 ^ name.1.rotate_left(32), self.seed) as usize & (self.buckets.len() - 1)
    }

    /// The buffer can be found by stream and sequence number from now on.
    pub(super) fn list(&mut self, slot: u32, name: (u64, u64)) {
        let bucket = self.bucket(name);
        let entry = &mut self.slots[slot as usize];
        entry.name = name;
        entry.listed = true;
        entry.chain = self.buckets[bucket];
        self.buckets[bucket] = slot;
    }

    pub(super) fn unlist(&mut self, slot: u32) {
        let Slot {
            name,
            listed: true,
            chain,
            ..
        } = self.slots[slot as usize]
        else {
            return;
        };
        let bucket = self.bucket(name);
        let mut before = self.buckets[bucket];
        if before == slot {
            self.buckets[bucket] = chain;
        } else {
            while self.slots[before as usize].chain != slot {
                before = self.slots[before as usize].chain;
            }
            self.slots[before as usize].chain = chain;
        }
        self.slots[slot as usize].listed = false;
    }

    /// A buffer of this name.
    pub(super) fn find(&self, name: (u64, u64), fits: impl Fn(&Owner, &T) -> bool) -> Option<u32> {
        let mut at = self.buckets[self.bucket(name)];
        while at != NIL {
            let entry = &self.slots[at as usize];
            if entry.name == name && fits(&entry.owner, &entry.meta) {
                return Some(at);
            }
            at = entry.chain;
        }
        None
    }

    #[inline]
    pub(super) fn bytes(&self, slot: u32) -> &[u8] {
        let start = slot as usize * self.buffer_len;
        &self.bytes[start..start + self.buffer_len]
    }

    #[inline]
    pub(super) fn bytes_mut(&mut self, slot: u32) -> &mut [u8] {
        let start = slot as usize * self.buffer_len;
        &mut self.bytes[start..start + self.buffer_len]
    }

    pub(super) fn owner(&self, slot: u32) -> Owner {
        self.slots[slot as usize].owner
    }

    pub(super) fn meta(&self, slot: u32) -> T {
        self.slots[slot as usize].meta
    }

    pub(super) fn meta_mut(&mut self, slot: u32) -> &mut T {
        &mut self.slots[slot as usize].meta
    }

    fn deadlines(&self) -> impl Iterator<Item = (u64, u32)> {
        self.queues
            .iter()
            .zip(&self.delays)
            .filter_map(|(queue, delay)| {
                let slot = queue.front()?;
                let since = self.slots[slot as usize].owner.since;
                Some((since.saturating_add(*delay), slot))
            })
    }

    /// A buffer whose time is over.
    pub(super) fn due(&self, now: u64) -> Option<u32> {
        self.deadlines()
            .filter(|&(deadline, _)| deadline <= now)
            .min()
            .map(|(_, slot)| slot)
    }

    /// When the next buffer is due.
    pub(super) fn next_deadline(&self) -> Option<u64> {
        self.deadlines().map(|(deadline, _)| deadline).min()
    }

    /// Any buffer of the remote.
    pub(super) fn first_of(&self, remote: u16) -> Option<u32> {
        let own = self.remotes.get(usize::from(remote))?;
        own.iter().find_map(List::front)
    }

    pub(super) fn in_use(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Every buffer is free or used, the quotas are kept, and listed buffers are found.
    pub(super) fn audit(&self) -> Result<(), &'static str> {
        let free = self.by_age.iter(&self.free).count();
        let used: usize = self
            .queues
            .iter()
            .map(|queue| self.by_age.iter(queue).count())
            .sum();
        let ranked: usize = self
            .remotes
            .iter()
            .flatten()
            .map(|list| self.by_rank.iter(list).count())
            .sum();
        if free + used != self.slots.len() || ranked != used {
            return Err("a buffer leaked");
        }
        if self
            .remotes
            .iter()
            .any(|own| own.iter().map(List::len).sum::<usize>() > self.quota)
        {
            return Err("a remote exceeds its buffers");
        }
        if self.in_use_slots().count() != used {
            return Err("a buffer in use is not marked");
        }
        let lost = |slot: &Slot<T>| !slot.in_use || self.find(slot.name, |_, _| true).is_none();
        if self.slots.iter().any(|slot| slot.listed && lost(slot)) {
            return Err("a listed buffer is not found");
        }
        Ok(())
    }

    pub(super) fn in_use_slots(&self) -> impl Iterator<Item = u32> {
        (0..self.slots.len() as u32).filter(|&at| self.slots[at as usize].in_use)
    }
}
