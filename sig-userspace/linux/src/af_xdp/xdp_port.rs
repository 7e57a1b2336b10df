use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    sync::Arc,
};

use tokio::io::{Interest, unix::AsyncFd};

use super::{
    BusyPoll, Error, RingSizes,
    queue::QueueRings,
    ring::{Consumer, Descriptor, Producer},
    socket::{OwnRings, Socket},
    sys,
};
use sig_common::wire::ethernet::{TAG_LEN, Tag};
use sig_core::{
    port::BATCH,
    port::Counters,
    port::Monitor,
    port::Port,
    port::Progress,
    port::Statistics,
    port::umem::{Area, Frame, FreeList, HEADROOM, JUMBO_CHUNKS},
};

/// The shortest frame handed to the kernel: an Ethernet header.
const MIN_FRAME: usize = 14;

/// See [`XdpPort::monitor`].
struct SocketMonitor {
    counters: Arc<Counters>,
    socket: OwnedFd,
}

impl Monitor for SocketMonitor {
    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn statistics(&self) -> io::Result<Statistics> {
        sys::statistics(self.socket.as_fd())
    }
}

/// One AF_XDP socket on one queue of one interface.
pub struct XdpPort {
    // Rings before the socket: what is mapped goes before what it belongs to.
    rx: Consumer<Descriptor>,
    tx: Producer<Descriptor>,
    queue: Arc<QueueRings>,
    socket: Socket,
    area: Arc<Area>,
    /// Chunks of packets that were dropped or copied here, until the next service.
    dropped: Vec<Frame>,
    /// Jumbo frames for packets that come in several chunks.
    jumbo: Vec<Frame>,
    in_multi_buffer: MultiBuffer,
    zero_copy: bool,
    /// Every wake-up drives the card, so there is one whenever there is nothing else to do.
    busy_poll: bool,
    /// The last look at the receive ring has emptied it.
    idle: bool,
    /// Its index in the map of sockets, if its packets have tickets.
    number: Option<u32>,
    /// The VLAN tag that frames get.
    tag: Option<[u8; TAG_LEN]>,
    counters: Arc<Counters>,
}

/// The packet of several chunks that is being received.
#[derive(Debug)]
enum MultiBuffer {
    /// None.
    No,
    /// It is copied into this frame.
    Into(Frame),
    /// It is dropped to its end.
    Dropped,
}

impl XdpPort {
    /// Jumbo frames that a port keeps: enough for a batch.
    pub(super) const STASH: usize = BATCH;

    pub(super) fn new(
        socket: Socket,
        (rx, tx): OwnRings,
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
        let zero_copy = socket.is_zero_copy()?;
        Ok(XdpPort {
            rx,
            tx,
            queue,
            socket,
            area,
            dropped: Vec::with_capacity(BATCH),
            jumbo: Vec::with_capacity(Self::STASH),
            in_multi_buffer: MultiBuffer::No,
            zero_copy,
            busy_poll: busy_poll.is_some(),
            idle: true,
            number: None,
            tag: None,
            counters: Arc::default(),
        })
    }

    /// Frames leave with this tag. Received ones have none: the XDP program takes it out.
    pub(super) fn set_tag(&mut self, tag: Option<Tag>) {
        self.tag = tag.map(|Tag { tpid, tci }| {
            let [t0, t1] = tpid.to_be_bytes();
            let [c0, c1] = tci.to_be_bytes();
            [t0, t1, c0, c1]
        });
    }

    /// The XDP program gives packets for this socket tickets; `number` is its index in the map of sockets.
    pub fn expect_tickets(&mut self, number: u32) {
        self.number = Some(number);
    }

    /// Whether the driver reads and writes the UMEM itself.
    pub fn is_zero_copy(&self) -> bool {
        self.zero_copy
    }

    /// What this port counts itself.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What the kernel counts for the socket.
    ///
    /// # Errors
    ///
    /// If the kernel does not tell.
    pub fn statistics(&self) -> io::Result<Statistics> {
        sys::statistics(self.socket.as_fd())
    }

    /// Returns what reads the counters while a worker has the port. The interface stays in use until it is
    /// dropped too.
    ///
    /// # Errors
    ///
    /// If there are too many open files.
    pub fn monitor(&self) -> io::Result<Box<dyn Monitor>> {
        Ok(Box::new(SocketMonitor {
            counters: self.counters.clone(),
            socket: self.socket.as_fd().try_clone_to_owned()?,
        }))
    }

    /// Wakes the kernel until it has taken all frames or makes no progress: in copy mode one call
    /// sends a limited number.
    fn wake_transmit(&mut self) -> io::Result<()> {
        let mut pending = self.tx.pending();
        while pending > 0 && (self.busy_poll || self.tx.needs_wakeup()) {
            self.counters.wakeups.add(1);
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

/// Appends what is in `part` to the packet in `whole`; whether it fits.
fn append(area: &Area, whole: &mut Frame, part: &Frame) -> bool {
    let (start, before) = (whole.headroom(), whole.len());
    if part.len() > whole.tailroom() {
        return false;
    }
    if before == 0 {
        whole.set_metadata(area, part.metadata(area));
    }
    whole.place(start, before + part.len());
    whole.bytes_mut(area)[before..].copy_from_slice(part.bytes(area));
    true
}

/// The kernel is short of something that completions free again.
fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR)
    )
}

impl XdpPort {
    /// Takes a chunk of a packet that is in several of them. Returns the packet once it is complete.
    #[cold]
    fn take_part(&mut self, part: Frame, continues: bool) -> Option<Frame> {
        let state = std::mem::replace(&mut self.in_multi_buffer, MultiBuffer::Dropped);
        let whole = match state {
            MultiBuffer::No => self.jumbo.pop(),
            MultiBuffer::Into(whole) => Some(whole),
            MultiBuffer::Dropped => {
                self.dropped.push(part);
                if !continues {
                    self.in_multi_buffer = MultiBuffer::No;
                }
                return None;
            }
        };
        let whole = whole.and_then(|mut whole| {
            if append(&self.area, &mut whole, &part) {
                return Some(whole);
            }
            whole.place(HEADROOM, 0);
            self.jumbo.push(whole);
            None
        });
        self.dropped.push(part);
        match whole {
            Some(whole) if continues => self.in_multi_buffer = MultiBuffer::Into(whole),
            whole => {
                self.counters.rx_multi_buffer.add(whole.is_none().into());
                if !continues {
                    self.in_multi_buffer = MultiBuffer::No;
                }
                return whole;
            }
        }
        None
    }

    /// Readiness to receive. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// Too many open files.
    pub fn watch(&self) -> io::Result<AsyncFd<OwnedFd>> {
        let fd = self.as_fd().try_clone_to_owned()?;
        // SAFETY: the descriptor is always the same, and owned by the AsyncFd, which takes it out of the reactor before it drops it.
        let watched = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
        watched.map_err(io::Error::from)
    }
}

impl AsFd for XdpPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Port for XdpPort {
    fn receive(&mut self, into: &mut Vec<Frame>) -> usize {
        let before = into.len();
        // All chunks of a batch may be copied.
        let most = match self.area.jumbo_frames() {
            0 => BATCH,
            _ => BATCH * JUMBO_CHUNKS,
        };
        self.idle = false;
        while into.len() - before < BATCH && self.dropped.len() < most {
            let Some(descriptor) = self.rx.read() else {
                self.idle = true;
                break;
            };
            // SAFETY: the chunk was given away through the fill ring, and the kernel names it once.
            let frame = unsafe { self.area.frame_at(descriptor.addr, descriptor.len) };
            let Some(frame) = frame else {
                self.counters.bad_descriptors.add(1);
                continue;
            };
            self.queue.settle(&self.area, &frame);
            let continues = descriptor.options & libc::XDP_PKT_CONTD != 0;
            if continues || !matches!(self.in_multi_buffer, MultiBuffer::No) {
                into.extend(self.take_part(frame, continues));
                continue;
            }
            into.push(frame);
        }
        self.rx.release();
        let received = into.len() - before;
        self.counters.rx_packets.add(received as u64);
        match self.idle {
            true => received,
            false => BATCH,
        }
    }

    fn transmit(&mut self, frames: &mut Vec<Frame>) {
        if frames.is_empty() {
            return;
        }
        let wanted = u32::try_from(frames.len()).unwrap_or(u32::MAX);
        let mut room = self.tx.room(wanted) as usize;
        let mut taken = frames.len().min(room);
        if self.area.jumbo_frames() > 0 {
            // Each needs as many entries as it has parts. With its tag, it may reach into one chunk more.
            room = self.tx.room(wanted.saturating_mul(JUMBO_CHUNKS as u32)) as usize;
            let more = usize::from(self.tag.is_some());
            let fits = |frame: &&Frame| {
                let left = room.checked_sub(frame.parts() + more);
                room = left.unwrap_or(room);
                left.is_some()
            };
            taken = frames.iter().take_while(fits).count();
        }
        self.counters.tx_packets.add(taken as u64);
        let mut sent = 0;
        for mut frame in frames.drain(..taken) {
            assert!(self.area.owns(&frame), "the frame belongs to another area");
            if frame.len() < MIN_FRAME {
                self.counters.tx_too_short.add(1);
                self.dropped.push(frame);
                continue;
            }
            if let Some(tag) = self.tag
                && !frame.put_tag(&self.area, tag)
            {
                self.counters.tx_too_big.add(1);
                self.dropped.push(frame);
                continue;
            }
            sent += 1;
            self.queue.lend(&self.area, &frame);
            let mut parts = self.area.give_away(frame).peekable();
            while let Some((addr, len)) = parts.next() {
                self.tx.write(Descriptor {
                    addr,
                    len,
                    options: match parts.peek() {
                        Some(_) => libc::XDP_PKT_CONTD,
                        None => 0,
                    },
                });
            }
        }
        self.queue.sent(sent);
        self.tx.publish();
    }

    fn service(&mut self, _area: &Area, free: &mut FreeList) -> io::Result<()> {
        for frame in self.dropped.drain(..) {
            free.put(frame);
        }
        if self.area.jumbo_frames() > 0 {
            while self.jumbo.len() < Self::STASH {
                let Some(frame) = free.take_jumbo() else {
                    break;
                };
                self.jumbo.push(frame);
            }
        }
        self.counters
            .bad_descriptors
            .add(self.queue.collect(&self.area, free));
        let wanted = self.queue.refill(&self.area, free);
        if wanted || (self.busy_poll && self.idle) {
            self.counters.wakeups.add(1);
            sys::wake_receive(self.socket.as_fd());
        }
        self.wake_transmit()
    }

    fn give_up(&mut self, _area: &Area, free: &mut FreeList) {
        let in_multi_buffer = std::mem::replace(&mut self.in_multi_buffer, MultiBuffer::No);
        if let MultiBuffer::Into(frame) = in_multi_buffer {
            free.put(frame);
        }
        for frame in self.dropped.drain(..).chain(self.jumbo.drain(..)) {
            free.put(frame);
        }
        // Its queue may live on, with other sockets. What has come for this one would stay away until the queue goes.
        while let Some(descriptor) = self.rx.read() {
            // SAFETY: as in `receive`.
            if let Some(frame) = unsafe { self.area.frame_at(descriptor.addr, descriptor.len) } {
                self.queue.settle(&self.area, &frame);
                free.put(frame);
            }
        }
        self.rx.release();
        // So would what has not been sent. The interface may be down or gone: then it does stay away.
        let _ = self.wake_transmit();
    }

    fn fd(&self) -> Option<RawFd> {
        Some(self.socket.as_fd().as_raw_fd())
    }

    fn is_transmitting(&self) -> bool {
        self.tx.pending() > 0
    }

    fn progress(&self) -> Progress {
        self.queue.progress()
    }

    fn lost(&self) -> u64 {
        // A driver that finds no chunk drops the packet before the program sees it, or tries again: `fill_ring_empty` is none of these.
        let by_kernel =
            sys::statistics(self.socket.as_fd()).map_or(0, |s| s.rx_dropped + s.rx_ring_full);
        by_kernel + self.counters.rx_multi_buffer.get() + self.counters.bad_descriptors.get()
    }

    fn socket(&self) -> Option<u32> {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::OwnedFd};

    use super::{super::ring::tests::Fake, *};

    fn descriptor(frame: Frame, len: u32, options: u32) -> Descriptor {
        Descriptor {
            addr: frame.into_address(),
            len,
            options,
        }
    }

    /// A port whose kernel is the test, at the other end of the receive ring.
    fn no_socket() -> OwnedFd {
        File::open("/dev/null").expect("a file").into()
    }

    fn fake(area: Arc<Area>) -> (XdpPort, Producer<Descriptor>) {
        let [rx, tx, fill, completion] = [0; 4].map(Fake::new);
        let port = XdpPort {
            rx: rx.consumer(),
            tx: tx.producer(),
            queue: Arc::new(QueueRings::new(
                (fill.producer(), completion.consumer()),
                None,
                no_socket(),
            )),
            socket: Socket::Raw(no_socket()),
            area,
            dropped: Vec::new(),
            jumbo: Vec::new(),
            in_multi_buffer: MultiBuffer::No,
            zero_copy: false,
            busy_poll: false,
            idle: true,
            number: None,
            tag: None,
            counters: Arc::default(),
        };
        (port, rx.producer())
    }

    #[test]
    fn packets_in_several_chunks_and_strange_descriptors_are_dropped_and_counted() {
        let (area, pool) = Area::on_heap(8);
        let (mut port, mut kernel) = fake(area.clone());
        let mut free = FreeList::new(pool.clone(), 128);
        let continued = libc::XDP_PKT_CONTD;
        for (len, options) in [
            (60, 0),
            (3000, continued),
            (3000, continued),
            (10, 0),
            (61, 0),
        ] {
            let frame = free.take().expect("a chunk is free");
            kernel.write(descriptor(frame, len, options));
        }
        kernel.write(Descriptor {
            addr: 8 * 4096,
            len: 60,
            options: 0,
        });
        kernel.publish();

        let mut received = Vec::new();
        assert_eq!(port.receive(&mut received), 2);
        let lengths: Vec<usize> = received.iter().map(Frame::len).collect();
        assert_eq!(lengths, [60, 61]);
        assert_eq!(port.counters.rx_multi_buffer.get(), 1);
        assert_eq!(port.counters.bad_descriptors.get(), 1);
        received.into_iter().for_each(|frame| free.put(frame));
        port.service(&area, &mut free).expect("nothing to send");
        drop(free);
        assert_eq!(pool.len(), 8);
    }

    #[test]
    fn a_ring_that_was_not_emptied_is_a_full_batch() {
        let (area, pool) = Area::on_heap(128);
        let (mut port, mut kernel) = fake(area.clone());
        let mut free = FreeList::new(pool, 128);
        for (len, options) in [(3000, 1), (3000, 1), (10, 0), (61, 0)] {
            kernel.write(descriptor(free.take().expect("one"), len, options));
        }
        kernel.publish();
        let others = (2..BATCH).map(|_| free.take().expect("one"));
        port.dropped.extend(others);
        let mut received = Vec::new();
        assert_eq!((port.receive(&mut received), received.len()), (BATCH, 0));
        assert!(!port.idle);
        port.service(&area, &mut free).expect("nothing to send");
        assert_eq!((port.receive(&mut received), received.len()), (1, 1));
        assert!(port.idle);
    }

    #[test]
    fn packets_in_several_chunks_are_put_together_in_jumbo_frames() {
        const CHUNKS: usize = 16;
        let (area, pool) = Area::on_heap_with_jumbo(CHUNKS as u32, 2);
        let (mut port, mut kernel) = fake(area.clone());
        let mut free = FreeList::new(pool.clone(), 128);
        port.service(&area, &mut free).expect("nothing to send");
        assert_eq!(port.jumbo.len(), 2);
        let continued = libc::XDP_PKT_CONTD;
        let mut give = |lens: &[u32]| {
            let parts = lens.len();
            assert!(kernel.room(u32::MAX) as usize >= parts);
            for (number, len) in lens.iter().enumerate() {
                let mut frame = free.take().expect("a chunk is free");
                frame.place(512, *len as usize);
                frame.bytes_mut(&area).fill(number as u8 + 1);
                frame.set_metadata(&area, 7);
                let options = if number + 1 < parts { continued } else { 0 };
                kernel.write(descriptor(frame, *len, options));
            }
            kernel.publish();
        };
        // The second one comes in two batches.
        give(&[3584, 3584, 1832]);
        give(&[60]);
        give(&[3584]);
        let mut received = Vec::new();
        assert_eq!(port.receive(&mut received), 3);
        let lengths: Vec<usize> = received.iter().map(Frame::len).collect();
        assert_eq!(lengths, [9000, 60, 3584]);
        let whole = received[0].bytes(&area);
        assert!(
            whole
                .chunks(3584)
                .zip(1u8..)
                .all(|(part, byte)| part.iter().all(|b| *b == byte))
        );
        assert_eq!(received[0].metadata(&area), 7);
        // One more has a frame, then there is none; what is too long for it is dropped too.
        give(&[3584, 3584, 3584, 3584]);
        give(&[3584, 100]);
        give(&[3584, 200]);
        for frame in port.dropped.drain(..) {
            let _ = frame.into_address();
        }
        assert_eq!(port.receive(&mut received), 1);
        assert_eq!(received[3].len(), 3684);
        assert_eq!(port.counters.rx_multi_buffer.get(), 2);
        assert!(matches!(port.in_multi_buffer, MultiBuffer::No));
    }

    #[test]
    fn a_jumbo_frame_is_sent_in_parts_and_comes_back_with_the_last_one() {
        let (area, pool) = Area::on_heap_with_jumbo(8, 4);
        let [tx, fill, completion] = [0; 3].map(Fake::new);
        let (mut port, _) = fake(area.clone());
        port.tx = tx.producer();
        port.queue = Arc::new(QueueRings::new(
            (fill.producer(), completion.consumer()),
            None,
            no_socket(),
        ));
        let (mut sent, mut kernel) = (tx.consumer::<Descriptor>(), completion.producer::<u64>());
        let mut free = FreeList::new(pool.clone(), 128);
        let mut frames = Vec::new();
        for len in [9000, 60, 9000, 9000] {
            let mut frame = free.take_for(len).expect("one is free");
            frame.place(HEADROOM, len);
            frames.push(frame);
        }
        // Eight entries: the last frame needs three and there is one.
        port.transmit(&mut frames);
        assert_eq!(frames.len(), 1);
        let descriptors: Vec<Descriptor> = std::iter::from_fn(|| sent.read()).collect();
        let parts: Vec<(u32, u32)> = descriptors.iter().map(|d| (d.len, d.options)).collect();
        let of_jumbo = [(3584, 1), (4096, 1), (1320, 0)];
        assert_eq!(parts, [&of_jumbo[..], &[(60, 0)], &of_jumbo].concat());
        assert_eq!(port.progress().sent, 3);
        for (number, descriptor) in descriptors.into_iter().enumerate() {
            kernel.write(descriptor.addr);
            kernel.publish();
            port.queue.collect(&area, &mut free);
            let completed = [0, 0, 1, 2, 2, 2, 3][number];
            assert_eq!(port.progress().completed, completed);
        }
        frames.drain(..).for_each(|frame| free.put(frame));
        drop(free);
        assert_eq!((pool.len(), pool.jumbo_len()), (8, 4));
    }

    #[test]
    fn frames_leave_with_the_tag_of_the_vlan_also_those_that_had_to_wait() {
        let (area, pool) = Area::on_heap(32);
        let [tx, fill, completion] = [0; 3].map(Fake::new);
        let (mut port, _) = fake(area.clone());
        port.tx = tx.producer();
        port.queue = Arc::new(QueueRings::new(
            (fill.producer(), completion.consumer()),
            None,
            no_socket(),
        ));
        let tag = Tag {
            tpid: 0x8100,
            tci: 0x0123,
        };
        port.set_tag(Some(tag));
        let mut sent = tx.consumer::<Descriptor>();
        let mut free = FreeList::new(pool, 128);
        let mut frames = Vec::new();
        // No room at all for a tag; none in front; and more than the ring holds.
        for (start, len) in [(0, 4096), (2, 60), (2, 13)]
            .into_iter()
            .chain([(HEADROOM, 60); 12])
        {
            let mut frame = free.take().expect("a chunk is free");
            frame.place(start, len);
            frame.bytes_mut(&area).fill(7);
            frames.push(frame);
        }
        let mut left = 0;
        for _ in 0..4 {
            port.transmit(&mut frames);
            while let Some(descriptor) = sent.read() {
                // SAFETY: it was given away, and the kernel of this test is done with it.
                let frame = unsafe { area.frame_at(descriptor.addr, descriptor.len) };
                let frame = frame.expect("a frame of ours");
                let expected = [&[7; 12][..], &[0x81, 0, 1, 0x23], &[7; 48]].concat();
                assert_eq!(frame.bytes(&area), expected);
                free.put(frame);
                left += 1;
            }
            sent.release();
        }
        assert!(frames.is_empty());
        assert_eq!(left, 13);
        assert_eq!(port.counters.tx_too_big.get(), 1);
        assert_eq!(port.counters.tx_too_short.get(), 1);
        assert_eq!(port.progress().sent, 13);
        for frame in port.dropped.drain(..) {
            free.put(frame);
        }
    }

    #[test]
    fn a_port_that_is_given_up_returns_what_has_come_for_it() {
        let (area, pool) = Area::on_heap(8);
        let (mut port, mut kernel) = fake(area.clone());
        let mut free = FreeList::new(pool.clone(), 128);
        for options in [0, libc::XDP_PKT_CONTD, 0] {
            kernel.write(descriptor(free.take().expect("one"), 60, options));
        }
        kernel.publish();
        port.dropped.push(free.take().expect("one"));
        port.give_up(&area, &mut free);
        drop(free);
        assert_eq!(pool.len(), 8);
    }

    #[test]
    #[should_panic(expected = "another area")]
    fn a_frame_of_another_area_is_not_transmitted() {
        let (area, _pool) = Area::on_heap(1);
        let (_other, pool) = Area::on_heap(1);
        let (mut port, _kernel) = fake(area);
        let frame = FreeList::new(pool, 128).take().expect("a chunk is free");
        port.transmit(&mut vec![frame]);
    }
}
