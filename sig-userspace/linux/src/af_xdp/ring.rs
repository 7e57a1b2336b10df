//! One ring shared with the kernel: a power of two of entries between a producer and a consumer
//! index that only ever grow (modulo 2^32).
//!
//! The side that owns an index writes it with release ordering after it touched the entries; the
//! other reads it with acquire ordering before it does.

use std::{
    io,
    marker::PhantomData,
    os::fd::{AsRawFd, BorrowedFd},
    ptr::{self, NonNull},
    sync::atomic::{AtomicU32, Ordering, fence},
};

/// Offset of the packet, length, options: the entries of receive and transmit rings.
pub(super) type Descriptor = libc::xdp_desc;

/// Plain entries of the kernel's rings, valid for any bytes.
pub(super) trait Entry: Copy {}
impl Entry for u64 {}
impl Entry for Descriptor {}

/// Where a ring lies: page offset of its mapping, places within, number of entries.
pub(super) struct Layout {
    pub(super) page_offset: i64,
    pub(super) offsets: libc::xdp_ring_offset,
    pub(super) entries: u32,
}

struct Ring<T> {
    base: NonNull<u8>,
    len: usize,
    layout: Layout,
    entry: PhantomData<T>,
}

// SAFETY: the mapping belongs to this value alone and its indices are atomics; which entries may be
// touched is decided by `Producer` and `Consumer`, of which a ring has one.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Entry> Ring<T> {
    fn map(socket: BorrowedFd<'_>, layout: Layout) -> io::Result<Self> {
        let len = layout.offsets.desc as usize + layout.entries as usize * size_of::<T>();
        // SAFETY: a new shared mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                socket.as_raw_fd(),
                layout.page_offset,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast::<u8>())
            .ok_or_else(|| io::Error::other("a ring was mapped at address zero"))?;
        Ok(Ring {
            base,
            len,
            layout,
            entry: PhantomData,
        })
    }

    fn index(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: the kernel names the offsets of its aligned 32-bit indices within the mapping, which
        // lives as long as `self`; both sides access them atomically.
        unsafe { self.base.add(offset as usize).cast::<AtomicU32>().as_ref() }
    }

    fn producer(&self) -> &AtomicU32 {
        self.index(self.layout.offsets.producer)
    }

    fn consumer(&self) -> &AtomicU32 {
        self.index(self.layout.offsets.consumer)
    }

    fn entry(&self, index: u32) -> NonNull<T> {
        let slot = index & (self.layout.entries - 1);
        // SAFETY: the mapping holds `entries` (a power of two) entries from offset `desc` on.
        unsafe {
            self.base
                .add(self.layout.offsets.desc as usize)
                .cast::<T>()
                .add(slot as usize)
        }
    }

    /// Whether the kernel waits to be told about new entries. Published entries are visible to it
    /// before its answer is read: otherwise it could go to sleep between the two unnoticed.
    fn needs_wakeup(&self) -> bool {
        fence(Ordering::SeqCst);
        let flags = self
            .index(self.layout.offsets.flags)
            .load(Ordering::Relaxed);
        flags & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length; nothing refers to it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// The writing end of a fill or transmit ring.
pub(super) struct Producer<T> {
    ring: Ring<T>,
    /// Next entry to write; those before it may not be published yet.
    next: u32,
    /// The kernel's index as last seen.
    consumed: u32,
}

impl<T: Entry> Producer<T> {
    pub(super) fn map(socket: BorrowedFd<'_>, layout: Layout) -> io::Result<Self> {
        let ring = Ring::map(socket, layout)?;
        Ok(Producer {
            next: ring.producer().load(Ordering::Relaxed),
            consumed: ring.consumer().load(Ordering::Acquire),
            ring,
        })
    }

    /// How many entries can be written, looking at the kernel's progress only if fewer than `wanted`
    /// are known to be free.
    #[inline]
    pub(super) fn room(&mut self, wanted: u32) -> u32 {
        let entries = self.ring.layout.entries;
        let known = entries - self.next.wrapping_sub(self.consumed);
        if known >= wanted {
            return known;
        }
        self.consumed = self.ring.consumer().load(Ordering::Acquire);
        entries - self.next.wrapping_sub(self.consumed)
    }

    /// Writes the next entry; [`Producer::room`] said that there is one.
    #[inline]
    pub(super) fn write(&mut self, entry: T) {
        debug_assert!(self.next.wrapping_sub(self.consumed) < self.ring.layout.entries);
        // SAFETY: the slot lies within the mapping, and the kernel does not read it before it is
        // published.
        unsafe { self.ring.entry(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
    }

    /// Hands the written entries to the kernel.
    #[inline]
    pub(super) fn publish(&mut self) {
        self.ring.producer().store(self.next, Ordering::Release);
    }

    /// Published entries that the kernel has not taken yet.
    #[inline]
    pub(super) fn pending(&self) -> u32 {
        self.next
            .wrapping_sub(self.ring.consumer().load(Ordering::Acquire))
    }

    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}

/// The reading end of a receive or completion ring.
pub(super) struct Consumer<T> {
    ring: Ring<T>,
    /// Next entry to read; those before it may not be released yet.
    next: u32,
    /// The kernel's index as last seen.
    produced: u32,
}

impl<T: Entry> Consumer<T> {
    pub(super) fn map(socket: BorrowedFd<'_>, layout: Layout) -> io::Result<Self> {
        let ring = Ring::map(socket, layout)?;
        Ok(Consumer {
            next: ring.consumer().load(Ordering::Relaxed),
            produced: ring.producer().load(Ordering::Acquire),
            ring,
        })
    }

    /// The next entry, looking at the kernel's progress if none is known.
    #[inline]
    pub(super) fn read(&mut self) -> Option<T> {
        if self.next == self.produced {
            self.produced = self.ring.producer().load(Ordering::Acquire);
            if self.next == self.produced {
                return None;
            }
        }
        // SAFETY: the slot lies within the mapping, and the kernel has published it and does not
        // overwrite it before it is released.
        let entry = unsafe { self.ring.entry(self.next).read() };
        self.next = self.next.wrapping_add(1);
        Some(entry)
    }

    /// Gives the slots of the entries read back to the kernel.
    #[inline]
    pub(super) fn release(&mut self) {
        self.ring.consumer().store(self.next, Ordering::Release);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::{
        fs::File,
        os::fd::{AsFd, FromRawFd},
        thread,
    };

    use super::*;

    /// A ring in a memory file: both of its ends can be mapped, and a test plays the kernel.
    pub(crate) struct Fake(File);

    const ENTRIES: u32 = 8;

    impl Fake {
        /// A ring whose indices start at `index`.
        pub(crate) fn new(index: u32) -> Self {
            // SAFETY: plain system call with a C string; the descriptor belongs to nobody else.
            let file = unsafe {
                let fd = libc::memfd_create(c"ring".as_ptr(), 0);
                assert!(fd >= 0, "{}", io::Error::last_os_error());
                File::from_raw_fd(fd)
            };
            file.set_len(4096).expect("a page");
            let fake = Fake(file);
            let ring: Ring<u64> = Ring::map(fake.0.as_fd(), Self::layout()).expect("a mapping");
            ring.producer().store(index, Ordering::Relaxed);
            ring.consumer().store(index, Ordering::Relaxed);
            fake
        }

        fn layout() -> Layout {
            Layout {
                page_offset: 0,
                offsets: libc::xdp_ring_offset {
                    producer: 0,
                    consumer: 64,
                    desc: 256,
                    flags: 128,
                },
                entries: ENTRIES,
            }
        }

        pub(crate) fn producer<T: Entry>(&self) -> Producer<T> {
            Producer::map(self.0.as_fd(), Self::layout()).expect("a mapping")
        }

        pub(crate) fn consumer<T: Entry>(&self) -> Consumer<T> {
            Consumer::map(self.0.as_fd(), Self::layout()).expect("a mapping")
        }
    }

    #[test]
    fn a_ring_takes_as_many_entries_as_it_has_and_again_what_was_released() {
        let fake = Fake::new(0);
        let (mut producer, mut consumer) = (fake.producer::<u64>(), fake.consumer::<u64>());
        assert_eq!(producer.room(u32::MAX), ENTRIES);
        (0..8).for_each(|entry| producer.write(entry));
        assert_eq!(consumer.read(), None, "nothing is published");
        producer.publish();
        assert_eq!((producer.room(1), producer.pending()), (0, 8));
        assert_eq!((consumer.read(), consumer.read()), (Some(0), Some(1)));
        assert_eq!(producer.room(1), 0, "nothing is released");
        consumer.release();
        assert_eq!((producer.room(1), producer.pending()), (2, 6));
    }

    #[test]
    fn entries_cross_threads_in_order_while_the_indices_wrap() {
        let fake = Fake::new(u32::MAX - 1000);
        let (mut producer, mut consumer) = (fake.producer::<u64>(), fake.consumer::<u64>());
        const COUNT: u64 = 20_000;
        thread::scope(|scope| {
            scope.spawn(move || {
                let mut next = 0;
                while next < COUNT {
                    let room = u64::from(producer.room(4)).min(COUNT - next);
                    (next..next + room).for_each(|entry| producer.write(entry));
                    producer.publish();
                    next += room;
                    thread::yield_now();
                }
            });
            let mut next = 0;
            while next < COUNT {
                while let Some(entry) = consumer.read() {
                    assert_eq!(entry, next);
                    next += 1;
                }
                consumer.release();
                thread::yield_now();
            }
        });
    }
}
