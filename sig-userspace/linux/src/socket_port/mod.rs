//! Ports over plain UDP sockets: for an underlay that XDP cannot serve.
//!
//! The engine works on Ethernet frames. On the way out, the headers up to UDP say what the kernel is asked to write, and are
//! cut off; on the way in, headers are put in front that say what the kernel told about the datagram.
//!
//! Each worker has a socket at the data address. The kernel sorts datagrams between them by the id of their stream, as the XDP
//! program of the underlay does; what is not a SIG frame goes to a socket behind those of the workers, if there is one.

mod batch;
mod group;
#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    io,
    net::{IpAddr, SocketAddr, UdpSocket},
    os::fd::{AsFd, AsRawFd, OwnedFd, RawFd},
    sync::Arc,
};

use sig_common::wire::{PROTO_UDP, TTL, ethernet, ipv4, ipv6, udp};
use sig_core::port::{
    BATCH, Counters, Monitor, Port, Statistics,
    umem::{Area, CHUNK_SIZE, Frame, FreeList, HEADROOM},
};

use batch::{Datagram, Incoming, Outgoing, Sent};
pub use group::Group;

/// Frames that wait for room in the kernel; beyond, the oldest are dropped.
const QUEUE: usize = 1024;

/// Chunks of which a port holds at most so many: to receive into, and in the queue.
pub const CHUNKS: u32 = (QUEUE + BATCH) as u32;

/// Longest datagram that is received.
const MAX_DATAGRAM: usize = CHUNK_SIZE - HEADROOM;

/// The socket of one worker.
pub struct SocketPort {
    socket: UdpSocket,
    local: SocketAddr,
    area: Arc<Area>,
    incoming: Incoming,
    outgoing: Outgoing,
    /// Chunks to receive into.
    empty: Vec<Frame>,
    queue: VecDeque<Frame>,
    dropped: Vec<Frame>,
    /// The kernel has no room for more.
    is_blocked: bool,
    counters: Arc<Counters>,
}

impl SocketPort {
    /// A port over one of the sockets of a [`Group`], with packets in `area`.
    ///
    /// # Errors
    /// The kernel does not tell the address of the socket.
    pub fn new(socket: UdpSocket, area: Arc<Area>) -> io::Result<Self> {
        Ok(Self {
            local: socket.local_addr()?,
            socket,
            area,
            incoming: Incoming::new(BATCH),
            outgoing: Outgoing::new(),
            empty: Vec::with_capacity(BATCH),
            queue: VecDeque::with_capacity(QUEUE),
            dropped: Vec::with_capacity(QUEUE),
            is_blocked: false,
            counters: Arc::default(),
        })
    }

    /// Returns what reads the counters while a worker has the port.
    ///
    /// # Errors
    /// Too many open files.
    pub fn monitor(&self) -> io::Result<Box<dyn Monitor>> {
        Ok(Box::new(SocketMonitor {
            counters: self.counters.clone(),
            socket: self.socket.as_fd().try_clone_to_owned()?,
        }))
    }

    /// Sends what waits, as far as the kernel takes it.
    fn send(&mut self, free: &mut FreeList) {
        self.is_blocked = false;
        while !self.queue.is_empty() {
            self.counters.wakeups.add(1);
            let (frames, outcome) = self.outgoing.send(&self.socket, &self.area, &self.queue);
            let counter = match outcome {
                Sent::Done => &self.counters.tx_packets,
                Sent::TooBig => &self.counters.tx_too_big,
                Sent::Refused => &self.counters.tx_refused,
                Sent::Malformed => &self.counters.tx_too_short,
                Sent::NoRoom => {
                    self.is_blocked = true;
                    return;
                }
            };
            counter.add(frames as u64);
            self.queue.drain(..frames).for_each(|frame| free.put(frame));
        }
    }
}

impl Port for SocketPort {
    fn receive(&mut self, into: &mut Vec<Frame>) -> usize {
        let before = into.len();
        if self.empty.is_empty() {
            return 0;
        }
        self.counters.wakeups.add(1);
        let received = self
            .incoming
            .receive(&self.socket, &self.area, &mut self.empty);
        // Chunks are used from the last one on.
        for index in 0..received {
            let Some(mut frame) = self.empty.pop() else {
                break;
            };
            let datagram = self.incoming.datagram(index);
            let Some(datagram) = datagram.filter(|datagram| datagram.len <= MAX_DATAGRAM) else {
                self.counters.rx_multi_buffer.add(1);
                self.dropped.push(frame);
                continue;
            };
            match put_headers(&mut frame, &self.area, &datagram, self.local) {
                Some(()) => into.push(frame),
                None => self.dropped.push(frame),
            }
        }
        let count = into.len() - before;
        self.counters.rx_packets.add(count as u64);
        count
    }

    fn transmit(&mut self, frames: &mut Vec<Frame>) {
        for frame in frames.drain(..) {
            if self.queue.len() == QUEUE
                && let Some(oldest) = self.queue.pop_front()
            {
                self.counters.tx_queue_full.add(1);
                self.dropped.push(oldest);
            }
            self.queue.push_back(frame);
        }
    }

    fn service(&mut self, _area: &Area, free: &mut FreeList) -> io::Result<()> {
        self.dropped.drain(..).for_each(|frame| free.put(frame));
        while self.empty.len() < BATCH
            && let Some(frame) = free.take()
        {
            self.empty.push(frame);
        }
        self.send(free);
        Ok(())
    }

    fn fd(&self) -> Option<RawFd> {
        Some(self.socket.as_raw_fd())
    }

    fn is_transmitting(&self) -> bool {
        !self.queue.is_empty() && !self.is_blocked
    }

    fn waits_for_room(&self) -> bool {
        self.is_blocked
    }
}

/// Puts Ethernet, IP and UDP headers in front of a datagram that begins at [`HEADROOM`], the interface in place of the source MAC
/// address. `None`: sender and receiver have
/// different IP versions.
fn put_headers(
    frame: &mut Frame,
    area: &Area,
    datagram: &Datagram,
    local: SocketAddr,
) -> Option<()> {
    let udp_len = udp::HEADER_LEN + datagram.len;
    let (ip_len, from) = (ip_header_len(local.ip()), datagram.from);
    let headers = ethernet::HEADER_LEN + ip_len + udp::HEADER_LEN;
    frame.place(HEADROOM - headers, headers + datagram.len);
    let bytes = frame.bytes_mut(area);
    let mut source = [0; 6];
    source[..4].copy_from_slice(&datagram.interface.to_be_bytes());
    let ethernet = ethernet::Header {
        destination: [0; 6],
        source,
        tags: [None; ethernet::MAX_TAGS],
        ethertype: ethernet::ethertype(local.ip()),
    };
    let ip = ethernet.emit(bytes).ok()?;
    let into = bytes.get_mut(ip..)?;
    match (from.ip(), local.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => ipv4::Header {
            tos: datagram.tos,
            total_len: u16::try_from(ip_len + udp_len).ok()?,
            identification: 0,
            dont_fragment: true,
            ttl: TTL,
            protocol: PROTO_UDP,
            source: source.octets(),
            destination: destination.octets(),
        }
        .emit(into),
        (IpAddr::V6(source), IpAddr::V6(destination)) => ipv6::Header {
            traffic_class: datagram.tos,
            flow_label: 0,
            payload_len: u16::try_from(udp_len).ok()?,
            next_header: PROTO_UDP,
            hop_limit: TTL,
            source: source.octets(),
            destination: destination.octets(),
        }
        .emit(into),
        _ => return None,
    }
    .ok()?;
    let udp = udp::Header {
        source_port: from.port(),
        destination_port: local.port(),
        length: u16::try_from(udp_len).ok()?,
        ..udp::Header::default()
    };
    udp.emit(bytes.get_mut(ip + ip_len..)?).ok()?;
    Some(())
}

/// Bytes of the IP header that our templates have.
const fn ip_header_len(ip: IpAddr) -> usize {
    match ip {
        IpAddr::V4(_) => ipv4::HEADER_LEN,
        IpAddr::V6(_) => ipv6::HEADER_LEN,
    }
}

/// See [`SocketPort::monitor`].
struct SocketMonitor {
    counters: Arc<Counters>,
    socket: OwnedFd,
}

impl Monitor for SocketMonitor {
    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn statistics(&self) -> io::Result<Statistics> {
        Ok(Statistics {
            rx_ring_full: group::overflows(self.socket.as_fd())?,
            ..Statistics::default()
        })
    }
}
