//! Fixed buffers with a quota per remote and a queue by age.

use super::list::{Links, List};

/// Who holds a buffer, since when.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Owner {
    pub(super) stream: u32,
    pub(super) remote: u16,
    /// Nanoseconds.
    pub(super) since: u64,
}

/// A fixed number of buffers of one size.
#[derive(Debug)]
pub(super) struct Pool {
    bytes: Box<[u8]>,
    buffer_len: usize,
    owners: Box<[Owner]>,
    links: Links,
    free: List,
    /// By age, oldest first.
    used: List,
    per_remote: Box<[u32]>,
    quota: u32,
}

impl Pool {
    pub(super) fn new(buffers: usize, buffer_len: usize, remotes: usize, quota: usize) -> Self {
        let mut links = Links::new(buffers);
        let free = links.all();
        Self {
            bytes: vec![0; buffers * buffer_len].into_boxed_slice(),
            buffer_len,
            owners: vec![Owner::default(); buffers].into_boxed_slice(),
            links,
            free,
            used: List::EMPTY,
            per_remote: vec![0; remotes].into_boxed_slice(),
            quota: quota as u32,
        }
    }

    pub(super) fn memory(buffers: usize, buffer_len: usize, remotes: usize) -> usize {
        buffers * (buffer_len + size_of::<Owner>() + 2 * size_of::<u32>())
            + remotes * size_of::<u32>()
    }

    /// A buffer, unless the remote's quota or the pool is exhausted.
    #[inline]
    pub(super) fn take(&mut self, owner: Owner) -> Option<u32> {
        let taken = &mut self.per_remote[usize::from(owner.remote)];
        if *taken >= self.quota {
            return None;
        }
        let at = self.links.pop_front(&mut self.free)?;
        *taken += 1;
        self.links.push_back(&mut self.used, at);
        self.owners[at as usize] = owner;
        Some(at)
    }

    /// `at` must be in use.
    #[inline]
    pub(super) fn give(&mut self, at: u32) {
        self.per_remote[usize::from(self.owners[at as usize].remote)] -= 1;
        self.links.remove(&mut self.used, at);
        self.links.push_front(&mut self.free, at);
    }

    #[inline]
    pub(super) fn bytes(&self, at: u32) -> &[u8] {
        let start = at as usize * self.buffer_len;
        &self.bytes[start..start + self.buffer_len]
    }

    #[inline]
    pub(super) fn bytes_mut(&mut self, at: u32) -> &mut [u8] {
        let start = at as usize * self.buffer_len;
        &mut self.bytes[start..start + self.buffer_len]
    }

    /// The owner of the buffer that is longest in use.
    #[inline]
    pub(super) fn oldest(&self) -> Option<(u32, Owner)> {
        let at = self.used.front()?;
        Some((at, self.owners[at as usize]))
    }

    pub(super) fn in_use(&self) -> usize {
        self.used.len()
    }

    /// Every buffer is free or used, and the quotas are kept and add up.
    pub(super) fn audit(&self) -> Result<(), &'static str> {
        let free = self.links.iter(&self.free).count();
        let used = self.links.iter(&self.used).count();
        let counted: u32 = self.per_remote.iter().sum();
        if free != self.free.len() || used != self.used.len() {
            return Err("a list of buffers is broken");
        }
        if free + used != self.owners.len() || counted as usize != used {
            return Err("a buffer leaked");
        }
        if self.per_remote.iter().any(|&taken| taken > self.quota) {
            return Err("a remote exceeds its buffers");
        }
        Ok(())
    }

    pub(super) fn owners_in_use(&self) -> impl Iterator<Item = (u32, Owner)> {
        self.links
            .iter(&self.used)
            .map(|at| (at, self.owners[at as usize]))
    }
}
