use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    sync::Arc,
};

use super::{
    BusyPoll, Error, RingSizes,
    queue::QueueRings,
    ring::{Consumer, Descriptor, Producer},
    socket::Socket,
    sys,
};
use crate::port::{
    BATCH, Port,
    umem::{Area, Frame, FreeList},
};

/// The shortest frame handed to the kernel: an Ethernet header.
const MIN_FRAME: usize = 14;

/// What the kernel counts for a socket since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets dropped for other reasons than those below, such as their length.
    pub rx_dropped: u64,
    /// Fill-ring entries the kernel refused.
    pub rx_invalid_descriptors: u64,
    /// Transmit-ring entries the kernel refused.
    pub tx_invalid_descriptors: u64,
    /// Packets dropped because the worker did not keep up.
    pub rx_ring_full: u64,
    /// Packets dropped because there was no chunk to receive into.
    pub fill_ring_empty: u64,
    /// How often the kernel looked for packets to transmit and found none.
    pub tx_ring_empty: u64,
}

/// What a port counts itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// System calls made to wake the kernel.
    pub wakeups: u64,
    /// Received packets dropped because they lie in several chunks, which this port never asked for.
    pub rx_multi_buffer: u64,
    /// Frames not transmitted because they are shorter than an Ethernet header.
    pub tx_too_short: u64,
    /// Ring entries naming no chunk of the UMEM: a kernel or driver bug.
    pub bad_descriptors: u64,
}

/// One AF_XDP socket on one queue of one interface.
pub struct XdpPort {
    // Rings before the socket: what is mapped goes before what it belongs to.
    rx: Consumer<Descriptor>,
    tx: Producer<Descriptor>,
    queue: Arc<QueueRings>,
    socket: Socket,
    area: Arc<Area>,
    /// Chunks of packets that were dropped here, until the next service.
    dropped: Vec<Frame>,
    /// Within a packet of several chunks, which is dropped to its end.
    in_multi_buffer: bool,
    zero_copy: bool,
    counters: Counters,
}

impl XdpPort {
    pub(super) fn new(
        socket: Socket,
        queue: Arc<QueueRings>,
        area: Arc<Area>,
        rings: &RingSizes,
        busy_poll: Option<BusyPoll>,
    ) -> Result<Self, Error> {
        let fd = socket.as_fd();
        if let Some(poll) = busy_poll {
            sys::busy_poll(fd, poll).map_err(|error| {
                Error::system("set up busy polling (it needs Linux 5.11)", error)
            })?;
        }
        sys::widen_transmit(fd, rings.transmit);
        let zero_copy = sys::is_zero_copy(fd)
            .map_err(|error| Error::system("read the mode of a socket", error))?;
        let (rx, tx) = socket
            .own_rings(rings)
            .map_err(|error| Error::system("map the rings of a socket", error))?;
        Ok(XdpPort {
            rx,
            tx,
            queue,
            socket,
            area,
            dropped: Vec::with_capacity(BATCH),
            in_multi_buffer: false,
            zero_copy,
            counters: Counters::default(),
        })
    }

    /// Whether the driver reads and writes the UMEM itself.
    pub fn is_zero_copy(&self) -> bool {
        self.zero_copy
    }

    /// What this port counts itself.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// What the kernel counts for the socket.
    ///
    /// # Errors
    ///
    /// If the kernel does not tell.
    pub fn statistics(&self) -> io::Result<Statistics> {
        sys::statistics(self.socket.as_fd())
    }

    /// Wakes the kernel until it has taken all frames or makes no progress: in copy mode one call
    /// sends a limited number.
    fn wake_transmit(&mut self) -> io::Result<()> {
        let mut pending = self.tx.pending();
        while pending > 0 && self.tx.needs_wakeup() {
            self.counters.wakeups += 1;
            match sys::wake_transmit(self.socket.as_fd()) {
                Ok(()) => {}
                Err(error) if is_transient(&error) => {}
                Err(error) => return Err(error),
            }
            let left = self.tx.pending();
            if left == pending {
                break;
            }
            pending = left;
        }
        Ok(())
    }
}

/// The kernel is short of something that completions free again.
fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR)
    )
}

impl AsFd for XdpPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Port for XdpPort {
    /// Appends up to [`BATCH`] received frames to `into` and returns how many.
    ///
    /// The frames are of the area this port was opened with, whatever `area` is.
    fn receive(&mut self, _area: &Area, into: &mut Vec<Frame>) -> usize {
        let before = into.len();
        for _ in 0..BATCH {
            if self.dropped.len() == BATCH {
                break;
            }
            let Some(descriptor) = self.rx.read() else {
                break;
            };
            // SAFETY: the chunk was given away through the fill ring, and the kernel names it once.
            let frame = unsafe { self.area.frame_at(descriptor.addr, descriptor.len) };
            let Some(frame) = frame else {
                self.counters.bad_descriptors += 1;
                continue;
            };
            let continues = descriptor.options & libc::XDP_PKT_CONTD != 0;
            if continues || self.in_multi_buffer {
                self.counters.rx_multi_buffer += u64::from(!self.in_multi_buffer);
                self.in_multi_buffer = continues;
                self.dropped.push(frame);
                continue;
            }
            into.push(frame);
        }
        self.rx.release();
        into.len() - before
    }

    fn transmit(&mut self, frames: &mut Vec<Frame>) {
        if frames.is_empty() {
            return;
        }
        let wanted = u32::try_from(frames.len()).unwrap_or(u32::MAX);
        let room = self.tx.room(wanted).min(wanted) as usize;
        for frame in frames.drain(..room) {
            assert!(self.area.owns(&frame), "the frame belongs to another area");
            if frame.len() < MIN_FRAME {
                self.counters.tx_too_short += 1;
                self.dropped.push(frame);
                continue;
            }
            let len = frame.len() as u32;
            self.tx.write(Descriptor {
                addr: frame.into_address(),
                len,
                options: 0,
            });
        }
        self.tx.publish();
    }

    fn service(&mut self, _area: &Area, free: &mut FreeList) -> io::Result<()> {
        for frame in self.dropped.drain(..) {
            free.put(frame);
        }
        self.counters.bad_descriptors += self.queue.collect(&self.area, free);
        if self.queue.refill(&self.area, free) {
            self.counters.wakeups += 1;
            sys::wake_receive(self.socket.as_fd());
        }
        self.wake_transmit()
    }

    fn fd(&self) -> Option<RawFd> {
        Some(self.socket.as_fd().as_raw_fd())
    }

    fn is_transmitting(&self) -> bool {
        self.tx.pending() > 0
    }
}
