use std::{
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    sync::{
        Mutex, MutexGuard, TryLockError,
        atomic::{AtomicU64, Ordering},
    },
};

use super::ring::{Consumer, Producer};
use sig_core::port::{
    Progress,
    umem::{Area, Borrower, Frame, FreeList, Returned},
};

/// Fewer missing chunks are not worth a write to the shared ring.
const FILL_BATCH: u32 = 32;

/// Fill and completion ring of one queue, shared by all sockets on it.
///
/// A lock that another worker holds is left alone: that worker is doing the same work for the same
/// ring right now.
pub(super) struct QueueRings {
    fill: Mutex<Producer<u64>>,
    completion: Mutex<Consumer<u64>>,
    sent: AtomicU64,
    completed: AtomicU64,
    /// Who gets what the queue is given, if it may go before the gateway ends.
    borrower: Option<Borrower>,
    /// The first socket of the queue, which has the rings from the kernel, whether a port uses the socket itself or not.
    first: OwnedFd,
}

fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

impl QueueRings {
    pub(super) fn new(
        (fill, completion): (Producer<u64>, Consumer<u64>),
        borrower: Option<Borrower>,
        first: OwnedFd,
    ) -> Self {
        QueueRings {
            fill: Mutex::new(fill),
            completion: Mutex::new(completion),
            sent: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            borrower,
            first,
        }
    }

    /// The socket through which others come to share the rings.
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.first.as_fd()
    }

    /// Notes that a frame is about to be given to the kernel.
    #[inline]
    pub(super) fn lend(&self, area: &Area, frame: &Frame) {
        if let Some(borrower) = self.borrower {
            area.lend(frame, borrower);
        }
    }

    /// Notes that a frame has come back from the kernel.
    #[inline]
    pub(super) fn settle(&self, area: &Area, frame: &Frame) {
        if self.borrower.is_some() {
            area.settle(frame);
        }
    }

    /// A socket of the queue handed so many packets to the kernel.
    pub(super) fn sent(&self, packets: u64) {
        self.sent.fetch_add(packets, Ordering::Relaxed);
    }

    /// How many packets the sockets of the queue handed to the kernel, and how many of them it has sent.
    pub(super) fn progress(&self) -> Progress {
        // The other way round, a packet could have been sent before it was handed over.
        let completed = self.completed.load(Ordering::Acquire);
        Progress {
            sent: self.sent.load(Ordering::Relaxed),
            completed,
        }
    }

    /// Takes the chunks of transmitted packets to `free`. Returns how many were not chunks of this
    /// area, which only a broken kernel would name.
    pub(super) fn collect(&self, area: &Area, free: &mut FreeList) -> u64 {
        let Some(mut completion) = try_lock(&self.completion) else {
            return 0;
        };
        let mut strange = 0;
        let mut packets = 0;
        while let Some(address) = completion.read() {
            // SAFETY: the kernel names each part that was transmitted (and given away) once.
            match unsafe { area.returned(address) } {
                Returned::Frame(frame) => {
                    self.settle(area, &frame);
                    free.put(frame);
                }
                Returned::Part => continue,
                Returned::Strange => strange += 1,
            }
            packets += 1;
        }
        completion.release();
        if packets > 0 {
            self.completed.fetch_add(packets, Ordering::Release);
        }
        strange
    }

    /// Gives chunks to receive into. Returns whether the kernel wants to be told.
    pub(super) fn refill(&self, area: &Area, free: &mut FreeList) -> bool {
        let Some(mut fill) = try_lock(&self.fill) else {
            return false;
        };
        let room = fill.room(u32::MAX);
        if room >= FILL_BATCH {
            for _ in 0..room {
                let Some(frame) = free.take() else { break };
                assert!(area.owns(&frame), "the frame belongs to another area");
                self.lend(area, &frame);
                fill.write(frame.into_address());
            }
            fill.publish();
        }
        fill.needs_wakeup()
    }
}
