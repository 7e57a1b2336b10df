//! UMEM: the memory that all workers and ports of a gateway share, cut into chunks.
//!
//! A [`Frame`] is the one handle of one chunk, or of [`JUMBO_CHUNKS`] adjacent ones, together with the place of the packet in it. It is
//! neither `Copy` nor `Clone`, so whoever holds it may read and write the chunk; giving a packet to
//! a port gives the handle away. Moving the start of a packet (putting headers in front, taking them
//! off) is arithmetic on the handle and never a copy.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error},
    num::NonZeroU16,
    ptr::NonNull,
    sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering},
};

use sig_common::wire::ethernet::{HEADER_LEN, TAG_LEN};

use super::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of a chunk. AF_XDP wants a power of two, not larger than a page.
pub const CHUNK_SIZE: usize = 4096;

/// Chunks of a jumbo frame, which lie side by side.
pub const JUMBO_CHUNKS: usize = 3;

/// Bytes of a jumbo frame: enough for an MTU of 9216 and all headers.
pub const JUMBO_SIZE: usize = JUMBO_CHUNKS * CHUNK_SIZE;

/// Bytes of a packet in several chunks that lie in the first one at least: drivers look for the headers there.
const FIRST_PART: usize = 512;

/// Where a packet written by the engine itself starts in its chunk: room for every header that is
/// put in front later.
pub const HEADROOM: usize = 512;

/// How many chunks move between a worker's [`FreeList`] and the shared pool at once.
const POOL_BATCH: usize = 64;

/// How many jumbo frames do, and how many a list keeps: there are few of them.
const JUMBO_BATCH: usize = 8;
const JUMBO_LIMIT: usize = 2 * JUMBO_BATCH;

static NEXT_AREA: AtomicU32 = AtomicU32::new(1);

/// What keeps the memory of an [`Area`] alive.
enum Memory {
    Heap(Layout),
    Foreign { _owner: Box<dyn Send + Sync> },
}

/// The memory area: chunks, and behind them jumbo frames.
pub struct Area {
    id: u32,
    base: NonNull<u8>,
    chunks: u32,
    /// Per jumbo frame, the parts of it that are given away and have not come back.
    jumbo: Box<[AtomicU8]>,
    /// Per chunk, then per jumbo frame: to whom it is lent, 0 for nobody.
    lent: Box<[AtomicU16]>,
    memory: Memory,
}

/// Who may lose what was given to him: a queue of an interface that may go while the gateway runs.
///
/// What it does not give back is found by [`Area::reclaim`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Borrower(NonZeroU16);

impl Borrower {
    /// The borrower with this number.
    #[must_use]
    pub const fn new(number: NonZeroU16) -> Self {
        Borrower(number)
    }
}

// SAFETY: the memory is reached only through `Frame`s, of which there is one per chunk or jumbo frame, so no two
// threads reach the same bytes.
unsafe impl Send for Area {}
// SAFETY: as above; a shared `Area` gives no access without the chunk's `Frame`.
unsafe impl Sync for Area {}

impl Area {
    /// An area of its own, on the heap: for in-memory ports, tests and embedding.
    ///
    /// Returns the area with the pool that holds all its chunks.
    ///
    /// # Panics
    ///
    /// If there are no chunks, or more than the address space has room for.
    pub fn on_heap(chunks: u32) -> (Arc<Area>, Arc<Pool>) {
        Self::on_heap_with_jumbo(chunks, 0)
    }

    /// The same, with so many jumbo frames beside the chunks.
    ///
    /// # Panics
    ///
    /// As [`Area::on_heap`].
    pub fn on_heap_with_jumbo(chunks: u32, jumbo: u32) -> (Arc<Area>, Arc<Pool>) {
        assert!(chunks > 0, "an area has at least one chunk");
        #[allow(
            clippy::expect_used,
            reason = "documented above, as a failed allocation would end us too"
        )]
        let layout = Layout::from_size_align(area_bytes(chunks, jumbo), CHUNK_SIZE)
            .expect("the size of an area fits the address space");
        // SAFETY: the layout has a size above zero.
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(memory) else {
            handle_alloc_error(layout)
        };
        Self::with_pool(base, (chunks, jumbo), Memory::Heap(layout))
    }

    /// An area over memory that somebody else owns, such as the UMEM of an AF_XDP socket: so many chunks and, behind them, so many
    /// jumbo frames.
    ///
    /// Returns the area with the pool that holds all of them.
    ///
    /// # Safety
    ///
    /// `base` points to [`area_bytes`] bytes, readable, writable, initialised and valid until
    /// `owner` is dropped, and nothing else touches a chunk in user space while its [`Frame`] exists.
    pub unsafe fn from_raw(
        base: NonNull<u8>,
        (chunks, jumbo): (u32, u32),
        owner: Box<dyn Send + Sync>,
    ) -> (Arc<Area>, Arc<Pool>) {
        Self::with_pool(base, (chunks, jumbo), Memory::Foreign { _owner: owner })
    }

    fn with_pool(
        base: NonNull<u8>,
        (chunks, jumbo): (u32, u32),
        memory: Memory,
    ) -> (Arc<Area>, Arc<Pool>) {
        let id = NEXT_AREA.fetch_add(1, Ordering::Relaxed);
        let area = Arc::new(Area {
            id,
            base,
            chunks,
            jumbo: (0..jumbo).map(|_| AtomicU8::new(0)).collect(),
            lent: (0..chunks + jumbo).map(|_| AtomicU16::new(0)).collect(),
            memory,
        });
        let frames = (0..chunks).rev();
        let frames = frames.map(|chunk| Frame::new(id, chunk, CHUNK_SIZE));
        let jumbo = (0..jumbo).rev();
        let jumbo =
            jumbo.map(|number| Frame::new(id, chunks + number * JUMBO_CHUNKS as u32, JUMBO_SIZE));
        let pool = Arc::new(Pool {
            area: id,
            frames: Mutex::new(frames.collect()),
            jumbo: Mutex::new(jumbo.collect()),
        });
        (area, pool)
    }

    /// Number of chunks, without those of jumbo frames.
    pub fn chunks(&self) -> u32 {
        self.chunks
    }

    /// Number of jumbo frames.
    pub fn jumbo_frames(&self) -> u32 {
        self.jumbo.len() as u32
    }

    /// Bytes of the area.
    pub fn bytes(&self) -> usize {
        area_bytes(self.chunks, self.jumbo_frames())
    }

    /// Bytes of the largest frame, with the room in front of the packet.
    pub fn largest_frame(&self) -> usize {
        if self.jumbo.is_empty() {
            CHUNK_SIZE
        } else {
            JUMBO_SIZE
        }
    }

    /// The frame of the packet that a ring descriptor names by its offset in the area and its length
    /// in bytes, or `None` if the descriptor does not lie within one chunk of this area.
    ///
    /// # Safety
    ///
    /// The chunk has no other [`Frame`]: it was given away with [`Frame::into_address`] and whoever
    /// had it returned it.
    pub unsafe fn frame_at(&self, address: u64, len: u32) -> Option<Frame> {
        let chunk = u32::try_from(address / CHUNK_SIZE as u64).ok()?;
        let start = (address % CHUNK_SIZE as u64) as usize;
        if chunk >= self.chunks || start + len as usize > CHUNK_SIZE {
            return None;
        }
        Some(Frame {
            area: self.id,
            chunk,
            size: CHUNK_SIZE as u16,
            start: start as u16,
            len: len as u16,
        })
    }

    /// Gives a frame away for transmission, in parts that each lie within a chunk: offset in the area and length of each, in
    /// order. They come back by [`Area::returned`].
    pub fn give_away(&self, mut frame: Frame) -> Parts {
        if frame.is_jumbo() {
            let first = CHUNK_SIZE - frame.headroom() % CHUNK_SIZE;
            if first < frame.len().min(FIRST_PART) {
                let (start, len) = (frame.headroom(), frame.len());
                frame.chunk_mut(self).copy_within(start..start + len, 0);
                frame.place(0, len);
            }
            let parts = frame.parts() as u8;
            // Whoever takes a part back has seen the kernel's word for it, which comes after ours.
            self.jumbo[self.jumbo_number(frame.chunk)].store(parts, Ordering::Release);
        }
        Parts {
            address: frame.address(),
            left: u32::from(frame.len),
        }
    }

    fn jumbo_number(&self, chunk: u32) -> usize {
        (chunk - self.chunks) as usize / JUMBO_CHUNKS
    }

    /// Takes back a part of a frame that was given away, by an offset within it. The frame is there again when its last part is.
    ///
    /// # Safety
    ///
    /// It was given away with [`Area::give_away`], whoever had it returned it, and each part comes back once.
    #[inline]
    pub unsafe fn returned(&self, address: u64) -> Returned {
        // SAFETY: by the caller.
        match unsafe { self.frame_at(address, 0) } {
            Some(frame) => Returned::Frame(frame),
            None => self.returned_jumbo(address),
        }
    }

    #[cold]
    fn returned_jumbo(&self, address: u64) -> Returned {
        let Ok(chunk) = u32::try_from(address / CHUNK_SIZE as u64) else {
            return Returned::Strange;
        };
        if chunk < self.chunks {
            return Returned::Strange;
        }
        let number = self.jumbo_number(chunk);
        let Some(parts) = self.jumbo.get(number) else {
            return Returned::Strange;
        };
        let left = parts.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| {
            left.checked_sub(1)
        });
        match left {
            Ok(1) => {
                let first = self.chunks + (number * JUMBO_CHUNKS) as u32;
                Returned::Frame(Frame::new(self.id, first, JUMBO_SIZE))
            }
            Ok(_) => Returned::Part,
            Err(_) => Returned::Strange,
        }
    }

    /// Notes that a frame, which is about to be given away, is lent to somebody.
    #[inline]
    pub fn lend(&self, frame: &Frame, to: Borrower) {
        self.lent[self.place(frame)].store(to.0.get(), Ordering::Relaxed);
    }

    /// Notes that a frame which was lent is back.
    #[inline]
    pub fn settle(&self, frame: &Frame) {
        self.lent[self.place(frame)].store(0, Ordering::Relaxed);
    }

    /// Whether anything is lent to somebody.
    #[must_use]
    pub fn is_lent_to(&self, borrower: Borrower) -> bool {
        let number = borrower.0.get();
        let mut lent = self.lent.iter();
        lent.any(|lent| lent.load(Ordering::Acquire) == number)
    }

    /// The place of a frame in the list of what is lent.
    #[inline]
    fn place(&self, frame: &Frame) -> usize {
        assert!(self.owns(frame), "the frame belongs to another area");
        match frame.is_jumbo() {
            false => frame.chunk as usize,
            true => self.chunks as usize + self.jumbo_number(frame.chunk),
        }
    }

    /// The frames that are lent to somebody who is no more. They are lent to nobody afterwards.
    ///
    /// # Safety
    ///
    /// Nobody gives anything to him any more, and nothing comes back from him: neither the kernel nor a device touches what he has. All that
    /// threads did with him happened before.
    pub unsafe fn reclaim(&self, from: Borrower) -> Vec<Frame> {
        let is_his = |place: &usize| {
            let lent = &self.lent[*place];
            lent.compare_exchange(from.0.get(), 0, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        };
        let frame = |place: usize| {
            let Some(number) = place.checked_sub(self.chunks as usize) else {
                return Frame::new(self.id, place as u32, CHUNK_SIZE);
            };
            self.jumbo[number].store(0, Ordering::Release);
            let first = self.chunks + (number * JUMBO_CHUNKS) as u32;
            Frame::new(self.id, first, JUMBO_SIZE)
        };
        (0..self.lent.len()).filter(is_his).map(frame).collect()
    }

    /// Whether a frame is one of this area's chunks.
    #[inline]
    pub fn owns(&self, frame: &Frame) -> bool {
        frame.area == self.id
    }

    #[inline]
    fn chunk(&self, frame: &Frame) -> NonNull<u8> {
        assert!(self.owns(frame), "the frame belongs to another area");
        // SAFETY: a frame of this area has the number of one of its chunks, so the offset is within
        // the allocation.
        unsafe { self.base.add(frame.chunk as usize * CHUNK_SIZE) }
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        if let Memory::Heap(layout) = &self.memory {
            // SAFETY: allocated in `on_heap` with this layout and not freed since.
            unsafe { dealloc(self.base.as_ptr(), *layout) }
        }
    }
}

/// Bytes of an area of so many chunks and jumbo frames.
pub const fn area_bytes(chunks: u32, jumbo: u32) -> usize {
    (chunks as usize + jumbo as usize * JUMBO_CHUNKS) * CHUNK_SIZE
}

/// See [`Area::returned`].
#[derive(Debug)]
pub enum Returned {
    /// All of a frame is back.
    Frame(Frame),
    /// Other parts of the frame are not back yet.
    Part,
    /// No part of a frame that was given away.
    Strange,
}

/// See [`Area::give_away`].
#[derive(Clone, Debug)]
pub struct Parts {
    address: u64,
    left: u32,
}

impl Iterator for Parts {
    type Item = (u64, u32);

    #[inline]
    fn next(&mut self) -> Option<(u64, u32)> {
        if self.left == 0 {
            return None;
        }
        let in_chunk = CHUNK_SIZE as u64 - self.address % CHUNK_SIZE as u64;
        let part = (self.address, self.left.min(in_chunk as u32));
        self.address += u64::from(part.1);
        self.left -= part.1;
        Some(part)
    }
}

/// The owned handle of one chunk or jumbo frame, and the place of the packet in it.
///
/// Dropping it loses the chunk until the area ends: give it back with [`FreeList::put`] or to a port.
#[must_use = "a dropped frame is a lost chunk"]
#[derive(Debug)]
pub struct Frame {
    area: u32,
    /// The first one.
    chunk: u32,
    /// Bytes of the chunk or jumbo frame.
    size: u16,
    start: u16,
    len: u16,
}

impl Frame {
    fn new(area: u32, chunk: u32, size: usize) -> Self {
        Frame {
            area,
            chunk,
            size: size as u16,
            start: HEADROOM as u16,
            len: 0,
        }
    }

    /// Bytes of the frame, with the room around the packet.
    #[inline]
    pub fn size(&self) -> usize {
        usize::from(self.size)
    }

    /// Whether the frame is more than one chunk.
    #[inline]
    pub fn is_jumbo(&self) -> bool {
        self.size != CHUNK_SIZE as u16
    }

    /// The chunks that hold a part of the packet.
    #[inline]
    pub fn parts(&self) -> usize {
        (self.headroom() % CHUNK_SIZE + self.len()).div_ceil(CHUNK_SIZE)
    }

    /// Offset of the packet in the area, as ring descriptors carry it; gives the handle away.
    pub fn into_address(self) -> u64 {
        self.address()
    }

    /// Offset of the packet in the area.
    pub fn address(&self) -> u64 {
        u64::from(self.chunk) * CHUNK_SIZE as u64 + u64::from(self.start)
    }

    /// Bytes of the packet.
    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Whether there is no packet in the chunk.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes free in front of the packet.
    #[inline]
    pub fn headroom(&self) -> usize {
        usize::from(self.start)
    }

    /// Bytes free behind the packet.
    #[inline]
    pub fn tailroom(&self) -> usize {
        self.size() - self.headroom() - self.len()
    }

    /// Makes the packet the `len` bytes from offset `start` of the chunk.
    ///
    /// # Panics
    ///
    /// If they do not lie within the chunk.
    #[inline]
    pub fn place(&mut self, start: usize, len: usize) {
        assert!(
            start + len <= self.size(),
            "the packet lies within its chunk"
        );
        self.start = start as u16;
        self.len = len as u16;
    }

    /// The packet.
    #[inline]
    pub fn bytes<'a>(&'a self, area: &'a Area) -> &'a [u8] {
        let chunk = area.chunk(self);
        // SAFETY: start + len <= size always holds, the memory is initialised and lives as long
        // as the area, and this frame is the only handle of the chunk, borrowed here.
        unsafe { std::slice::from_raw_parts(chunk.as_ptr().add(self.headroom()), self.len()) }
    }

    /// The word right in front of the packet, in host byte order; 0 if there is no room for one. Whoever received the
    /// packet may have left something there.
    #[inline]
    pub fn metadata(&self, area: &Area) -> u64 {
        let Some(start) = self.headroom().checked_sub(8) else {
            return 0;
        };
        let chunk = area.chunk(self);
        // SAFETY: within the chunk, whose memory is initialised; this frame is its only handle, borrowed here.
        unsafe { chunk.as_ptr().add(start).cast::<u64>().read_unaligned() }
    }

    /// Sets [`Frame::metadata`].
    #[inline]
    pub fn set_metadata(&mut self, area: &Area, word: u64) {
        if let Some(start) = self.headroom().checked_sub(8) {
            self.chunk_mut(area)[start..start + 8].copy_from_slice(&word.to_ne_bytes());
        }
    }

    /// Tells the processor that the start of the packet will be read soon.
    #[inline]
    pub fn prefetch(&self, area: &Area) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let start = area.chunk(self).as_ptr().wrapping_add(self.headroom());
            for line in 0..3 {
                // SAFETY: needs SSE, which every x86-64 has; a prefetch reads no memory as far as the
                // program can tell, whatever the address.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(64 * line).cast()) }
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = area;
    }

    /// The packet, to be changed.
    #[inline]
    pub fn bytes_mut<'a>(&'a mut self, area: &'a Area) -> &'a mut [u8] {
        let (start, len) = (self.headroom(), self.len());
        &mut self.chunk_mut(area)[start..start + len]
    }

    /// Puts a VLAN tag behind the two addresses of the Ethernet frame in it. `false` if there is none, or no room.
    pub fn put_tag(&mut self, area: &Area, tag: [u8; TAG_LEN]) -> bool {
        const ADDRESSES: usize = 2 * 6;
        let (start, len) = (self.headroom(), self.len());
        if len < HEADER_LEN {
            return false;
        }
        // Rarely is there no room in front: of a packet with long headers.
        let new_start = match start.checked_sub(TAG_LEN) {
            Some(new_start) => new_start,
            None if self.tailroom() >= TAG_LEN => start,
            None => return false,
        };
        let chunk = self.chunk_mut(area);
        match new_start == start {
            true => chunk.copy_within(start + ADDRESSES..start + len, start + ADDRESSES + TAG_LEN),
            false => chunk.copy_within(start..start + ADDRESSES, new_start),
        }
        chunk[new_start + ADDRESSES..][..TAG_LEN].copy_from_slice(&tag);
        self.place(new_start, len + TAG_LEN);
        true
    }

    /// The whole chunk or jumbo frame, to be changed.
    #[inline]
    pub fn chunk_mut<'a>(&'a mut self, area: &'a Area) -> &'a mut [u8] {
        let chunk = area.chunk(self);
        // SAFETY: from the chunk on there are `size` initialised bytes that live as long as the area, and this
        // frame is their only handle, borrowed mutably here.
        unsafe { std::slice::from_raw_parts_mut(chunk.as_ptr(), self.size()) }
    }
}

/// The chunks that no worker holds, shared by all workers of a gateway.
pub struct Pool {
    area: u32,
    frames: Mutex<Vec<Frame>>,
    jumbo: Mutex<Vec<Frame>>,
}

impl Pool {
    /// Number of chunks in the pool.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether the pool has no chunk left.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts frames into the pool.
    ///
    /// # Panics
    ///
    /// If one is of another area.
    pub fn put(&self, frames: impl IntoIterator<Item = Frame>) {
        for frame in frames {
            assert_eq!(frame.area, self.area, "the frame belongs to another area");
            match frame.is_jumbo() {
                false => self.lock().push(frame),
                true => self.lock_jumbo().push(frame),
            }
        }
    }

    /// Number of jumbo frames in the pool.
    pub fn jumbo_len(&self) -> usize {
        self.lock_jumbo().len()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Frame>> {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_jumbo(&self) -> MutexGuard<'_, Vec<Frame>> {
        self.jumbo.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A worker's own free chunks; exchanges with the shared [`Pool`] in batches, because a chunk that
/// one worker receives may come back to another as a completed transmission.
pub struct FreeList {
    local: Vec<Frame>,
    jumbo: Vec<Frame>,
    limit: usize,
    pool: Arc<Pool>,
}

impl FreeList {
    /// A list that keeps up to `limit` chunks before it gives some back to the pool.
    pub fn new(pool: Arc<Pool>, limit: usize) -> Self {
        let limit = limit.max(2 * POOL_BATCH);
        FreeList {
            local: Vec::with_capacity(limit + 1),
            jumbo: Vec::with_capacity(JUMBO_LIMIT + 1),
            limit,
            pool,
        }
    }

    /// A free chunk, its packet empty and at [`HEADROOM`]; `None` if all are in use.
    #[inline]
    pub fn take(&mut self) -> Option<Frame> {
        if self.local.is_empty() {
            self.borrow_from_pool();
        }
        let mut frame = self.local.pop()?;
        frame.place(HEADROOM, 0);
        Some(frame)
    }

    /// A free frame that takes a packet of so many bytes, which is empty and at [`HEADROOM`]: a chunk if that is large enough. `None` if
    /// all are in use, or none is large enough.
    #[inline]
    pub fn take_for(&mut self, len: usize) -> Option<Frame> {
        if HEADROOM + len <= CHUNK_SIZE {
            self.take()
        } else if HEADROOM + len <= JUMBO_SIZE {
            self.take_jumbo()
        } else {
            None
        }
    }

    /// A free jumbo frame, its packet empty and at [`HEADROOM`]; `None` if all are in use.
    #[cold]
    pub fn take_jumbo(&mut self) -> Option<Frame> {
        if self.jumbo.is_empty() {
            let mut pool = self.pool.lock_jumbo();
            let from = pool.len().saturating_sub(JUMBO_BATCH);
            self.jumbo.extend(pool.drain(from..));
        }
        let mut frame = self.jumbo.pop()?;
        frame.place(HEADROOM, 0);
        Some(frame)
    }

    #[cold]
    fn put_jumbo(&mut self, frame: Frame) {
        if self.jumbo.len() >= JUMBO_LIMIT {
            let from = self.jumbo.len() - JUMBO_BATCH;
            self.pool.lock_jumbo().extend(self.jumbo.drain(from..));
        }
        self.jumbo.push(frame);
    }

    /// Gives a chunk or jumbo frame back.
    ///
    /// # Panics
    ///
    /// If the chunk is of another area.
    #[inline]
    pub fn put(&mut self, frame: Frame) {
        assert_eq!(
            frame.area, self.pool.area,
            "the frame belongs to another area"
        );
        if frame.is_jumbo() {
            return self.put_jumbo(frame);
        }
        if self.local.len() >= self.limit {
            self.return_to_pool();
        }
        self.local.push(frame);
    }

    /// Number of chunks held by this list.
    pub fn len(&self) -> usize {
        self.local.len()
    }

    /// Whether this list itself holds none; the pool may still have some.
    pub fn is_empty(&self) -> bool {
        self.local.is_empty()
    }

    #[cold]
    fn borrow_from_pool(&mut self) {
        let mut pool = self.pool.lock();
        let from = pool.len().saturating_sub(POOL_BATCH);
        self.local.extend(pool.drain(from..));
    }

    #[cold]
    fn return_to_pool(&mut self) {
        let from = self.local.len() - POOL_BATCH;
        // The pool was made with room for every chunk, so this does not allocate.
        self.pool.lock().extend(self.local.drain(from..));
    }
}

impl Drop for FreeList {
    fn drop(&mut self) {
        self.pool.lock().append(&mut self.local);
        self.pool.lock_jumbo().append(&mut self.jumbo);
    }
}
