//! UMEM: the memory that all workers and ports of a gateway share, cut into chunks.
//!
//! A [`Frame`] is the one handle of one chunk, together with the place of the packet in it. It is
//! neither `Copy` nor `Clone`, so whoever holds it may read and write the chunk; giving a packet to
//! a port gives the handle away. Moving the start of a packet (putting headers in front, taking them
//! off) is arithmetic on the handle and never a copy.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error},
    ptr::NonNull,
    sync::atomic::{AtomicU32, Ordering},
};

use super::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of a chunk. AF_XDP wants a power of two, not larger than a page.
pub const CHUNK_SIZE: usize = 4096;

/// Where a packet written by the engine itself starts in its chunk: room for every header that is
/// put in front later.
pub const HEADROOM: usize = 512;

/// How many chunks move between a worker's [`FreeList`] and the shared pool at once.
const POOL_BATCH: usize = 64;

static NEXT_AREA: AtomicU32 = AtomicU32::new(1);

/// What keeps the memory of an [`Area`] alive.
enum Memory {
    Heap(Layout),
    Foreign { _owner: Box<dyn Send + Sync> },
}

/// The memory area and its chunks.
pub struct Area {
    id: u32,
    base: NonNull<u8>,
    chunks: u32,
    memory: Memory,
}

// SAFETY: the memory is reached only through `Frame`s, of which there is one per chunk, so no two
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
        assert!(chunks > 0, "an area has at least one chunk");
        #[allow(
            clippy::expect_used,
            reason = "documented above, as a failed allocation would end us too"
        )]
        let layout = Layout::from_size_align(chunks as usize * CHUNK_SIZE, CHUNK_SIZE)
            .expect("the size of an area fits the address space");
        // SAFETY: the layout has a size above zero.
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(memory) else {
            handle_alloc_error(layout)
        };
        Self::with_pool(base, chunks, Memory::Heap(layout))
    }

    /// An area over memory that somebody else owns, such as the UMEM of an AF_XDP socket.
    ///
    /// Returns the area with the pool that holds all its chunks.
    ///
    /// # Safety
    ///
    /// `base` points to `chunks * CHUNK_SIZE` bytes, readable, writable, initialised and valid until
    /// `owner` is dropped, and nothing else touches a chunk in user space while its [`Frame`] exists.
    pub unsafe fn from_raw(
        base: NonNull<u8>,
        chunks: u32,
        owner: Box<dyn Send + Sync>,
    ) -> (Arc<Area>, Arc<Pool>) {
        Self::with_pool(base, chunks, Memory::Foreign { _owner: owner })
    }

    fn with_pool(base: NonNull<u8>, chunks: u32, memory: Memory) -> (Arc<Area>, Arc<Pool>) {
        let id = NEXT_AREA.fetch_add(1, Ordering::Relaxed);
        let area = Arc::new(Area {
            id,
            base,
            chunks,
            memory,
        });
        let frames = (0..chunks)
            .rev()
            .map(|chunk| Frame::new(id, chunk))
            .collect();
        let pool = Arc::new(Pool {
            area: id,
            frames: Mutex::new(frames),
        });
        (area, pool)
    }

    /// Number of chunks.
    pub fn chunks(&self) -> u32 {
        self.chunks
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
            start: start as u16,
            len: len as u16,
        })
    }

    /// Whether a frame is one of this area's chunks.
    #[inline]
    pub fn owns(&self, frame: &Frame) -> bool {
        frame.area == self.id
    }

    #[inline]
    fn chunk(&self, frame: &Frame) -> NonNull<u8> {
        assert!(self.owns(frame), "the frame belongs to another area");
        // SAFETY: a frame of this area has a chunk number below `chunks`, so the offset is within
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

/// The owned handle of one chunk and the place of the packet in it.
///
/// Dropping it loses the chunk until the area ends: give it back with [`FreeList::put`] or to a port.
#[must_use = "a dropped frame is a lost chunk"]
#[derive(Debug)]
pub struct Frame {
    area: u32,
    chunk: u32,
    start: u16,
    len: u16,
}

impl Frame {
    fn new(area: u32, chunk: u32) -> Self {
        Frame {
            area,
            chunk,
            start: HEADROOM as u16,
            len: 0,
        }
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
        CHUNK_SIZE - self.headroom() - self.len()
    }

    /// Makes the packet the `len` bytes from offset `start` of the chunk.
    ///
    /// # Panics
    ///
    /// If they do not lie within the chunk.
    #[inline]
    pub fn place(&mut self, start: usize, len: usize) {
        assert!(
            start + len <= CHUNK_SIZE,
            "the packet lies within its chunk"
        );
        self.start = start as u16;
        self.len = len as u16;
    }

    /// The packet.
    #[inline]
    pub fn bytes<'a>(&'a self, area: &'a Area) -> &'a [u8] {
        let chunk = area.chunk(self);
        // SAFETY: start + len <= CHUNK_SIZE always holds, the memory is initialised and lives as long
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

    /// The whole chunk, to be changed.
    #[inline]
    pub fn chunk_mut<'a>(&'a mut self, area: &'a Area) -> &'a mut [u8; CHUNK_SIZE] {
        let chunk = area.chunk(self);
        // SAFETY: the chunk is CHUNK_SIZE initialised bytes that live as long as the area, and this
        // frame is its only handle, borrowed mutably here.
        unsafe { chunk.cast::<[u8; CHUNK_SIZE]>().as_mut() }
    }
}

/// The chunks that no worker holds, shared by all workers of a gateway.
pub struct Pool {
    area: u32,
    frames: Mutex<Vec<Frame>>,
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

    fn lock(&self) -> MutexGuard<'_, Vec<Frame>> {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A worker's own free chunks; exchanges with the shared [`Pool`] in batches, because a chunk that
/// one worker receives may come back to another as a completed transmission.
pub struct FreeList {
    local: Vec<Frame>,
    limit: usize,
    pool: Arc<Pool>,
}

impl FreeList {
    /// A list that keeps up to `limit` chunks before it gives some back to the pool.
    pub fn new(pool: Arc<Pool>, limit: usize) -> Self {
        let limit = limit.max(2 * POOL_BATCH);
        FreeList {
            local: Vec::with_capacity(limit + 1),
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

    /// Gives a chunk back.
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
    }
}
