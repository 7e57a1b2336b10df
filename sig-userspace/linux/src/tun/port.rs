//! A queue of the device as a port.

use std::{
    fs::File,
    io::{self, IoSlice, IoSliceMut, Read as _, Write as _},
    os::fd::{AsRawFd, RawFd},
    sync::Arc,
};

use sig_common::wire::ethernet;
use sig_core::port::{
    BATCH, Counters, Monitor, Port, Statistics,
    umem::{Area, CHUNK_SIZE, Frame, FreeList, HEADROOM},
};

use super::segments::{Segments, VNET_HEADER_LEN, VnetHeader};

/// Where packets begin in their chunks, behind room for an Ethernet header.
const START: usize = HEADROOM + ethernet::HEADER_LEN;
/// Longest packet in a chunk.
const ROOM: usize = CHUNK_SIZE - START;
/// Longest packet that the kernel leaves to be cut.
const LONGEST: usize = 1 << 16;

/// Chunks to receive into: more than the usual long packet is cut into.
const EMPTY: usize = 2 * BATCH;

/// Chunks of which a port holds at most so many.
pub const CHUNKS: u32 = (EMPTY + BATCH) as u32;

/// A queue of a TUN device, used by one worker. The engine sees Ethernet frames.
pub struct TunPort {
    queue: File,
    area: Arc<Area>,
    empty: Vec<Frame>,
    done: Vec<Frame>,
    /// A long packet.
    long: Box<[u8]>,
    /// What is left of it, and its length.
    cutting: Option<(Segments, usize)>,
    counters: Arc<Counters>,
}

impl TunPort {
    pub(super) fn new(queue: File, area: Arc<Area>) -> Self {
        Self {
            queue,
            area,
            empty: Vec::with_capacity(EMPTY),
            done: Vec::with_capacity(EMPTY),
            long: vec![0; ROOM + LONGEST].into(),
            cutting: None,
            counters: Arc::default(),
        }
    }

    /// Returns what reads the counters while a worker has the port.
    pub fn monitor(&self) -> Box<dyn Monitor> {
        Box::new(TunMonitor(self.counters.clone()))
    }

    /// The next packet into a chunk; `None`: there is none now.
    fn next(&mut self, frame: &mut Frame) -> Option<Packet> {
        if let Some((segments, len)) = &mut self.cutting {
            let room = &mut frame.chunk_mut(&self.area)[START..];
            match segments.next(&self.long[..*len], room) {
                Some(len) => return Some(Packet::Len(len)),
                None => {
                    let lost = segments.left(*len);
                    self.counters.rx_multi_buffer.add(lost as u64);
                    self.cutting = None;
                }
            }
        }
        let mut header = [0; VNET_HEADER_LEN];
        let room = &mut frame.chunk_mut(&self.area)[START..];
        let mut parts = [
            IoSliceMut::new(&mut header),
            IoSliceMut::new(room),
            IoSliceMut::new(&mut self.long[ROOM..]),
        ];
        self.counters.wakeups.add(1);
        let len = self.queue.read_vectored(&mut parts).ok()?;
        let len = len.checked_sub(VNET_HEADER_LEN)?;
        let header = VnetHeader::decode(&header);
        if header.is_long() {
            // The rest is there already.
            let begun = len.min(ROOM);
            self.long[..begun].copy_from_slice(&room[..begun]);
            let cut = self.long.get(..len);
            self.cutting = cut
                .and_then(|packet| Segments::of(&header, packet))
                .map(|segments| (segments, len));
            if self.cutting.is_some() {
                return Some(Packet::Long);
            }
        }
        let packet = room.get_mut(..len).filter(|_| !header.is_long());
        let is_whole = packet.is_some_and(|packet| header.finish(packet).is_some());
        Some(if is_whole {
            Packet::Len(len)
        } else {
            Packet::Unfit
        })
    }
}

enum Packet {
    /// It is in the chunk.
    Len(usize),
    /// It is to be cut.
    Long,
    /// It does not fit, or is not what it is said to be.
    Unfit,
}

impl Port for TunPort {
    fn receive(&mut self, into: &mut Vec<Frame>) -> usize {
        let before = into.len();
        while into.len() - before < BATCH {
            let Some(mut frame) = self.empty.pop() else {
                break;
            };
            match self.next(&mut frame) {
                Some(Packet::Len(len)) => {
                    put_ethernet(&mut frame, &self.area, len);
                    into.push(frame);
                    continue;
                }
                Some(Packet::Long) => {}
                Some(Packet::Unfit) => self.counters.rx_multi_buffer.add(1),
                None => {
                    self.empty.push(frame);
                    break;
                }
            }
            self.empty.push(frame);
        }
        let count = into.len() - before;
        self.counters.rx_packets.add(count as u64);
        count
    }

    fn transmit(&mut self, frames: &mut Vec<Frame>) {
        // Nothing is left to the kernel.
        let header = [0; VNET_HEADER_LEN];
        for frame in frames.drain(..) {
            let packet = frame.bytes(&self.area).get(ethernet::HEADER_LEN..);
            let parts = [IoSlice::new(&header), IoSlice::new(packet.unwrap_or(&[]))];
            self.counters.wakeups.add(1);
            match self.queue.write_vectored(&parts) {
                Ok(_) => self.counters.tx_packets.add(1),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.counters.tx_queue_full.add(1);
                }
                Err(_) => self.counters.tx_refused.add(1),
            }
            self.done.push(frame);
        }
    }

    fn service(&mut self, _area: &Area, free: &mut FreeList) -> io::Result<()> {
        self.done.drain(..).for_each(|frame| free.put(frame));
        while self.empty.len() < EMPTY
            && let Some(frame) = free.take()
        {
            self.empty.push(frame);
        }
        Ok(())
    }

    fn fd(&self) -> Option<RawFd> {
        Some(self.queue.as_raw_fd())
    }

    fn is_transmitting(&self) -> bool {
        self.cutting.is_some()
    }
}

/// Puts an Ethernet header in front of a packet of this length.
fn put_ethernet(frame: &mut Frame, area: &Area, len: usize) {
    frame.place(HEADROOM, ethernet::HEADER_LEN + len);
    let bytes = frame.bytes_mut(area);
    let is_v6 = bytes
        .get(ethernet::HEADER_LEN)
        .is_some_and(|first| first >> 4 == 6);
    let ethertype = if is_v6 {
        ethernet::ETHERTYPE_IPV6
    } else {
        ethernet::ETHERTYPE_IPV4
    };
    bytes[..12].fill(0);
    bytes[12..ethernet::HEADER_LEN].copy_from_slice(&ethertype.to_be_bytes());
}

struct TunMonitor(Arc<Counters>);

impl Monitor for TunMonitor {
    fn counters(&self) -> &Counters {
        &self.0
    }

    fn statistics(&self) -> io::Result<Statistics> {
        Ok(Statistics::default())
    }
}
