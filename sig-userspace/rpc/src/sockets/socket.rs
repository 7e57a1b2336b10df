//! A UDP socket that carries SCION packets.

use std::{
    future::poll_fn,
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use sig_common::addr::HostAddr;
use tokio::{io::ReadBuf, net::UdpSocket, sync::mpsc};

use super::{Local, MAX_DATAGRAM, local::Relayed};
use sig_core::scion::{
    self,
    packet::{self, Addresses, Content, Endpoint, Host},
    scmp::Scmp,
};

/// Packets that a single poll skips before others get their turn.
const MAX_SKIPPED: usize = 64;

/// How a packet gets to its destination.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Via {
    /// Path type number.
    pub path_type: u8,
    /// The path header as it goes on the wire.
    pub raw: Arc<[u8]>,
    /// Underlay address that the packet is sent to: a border router, or the destination itself within
    /// the AS.
    pub next_hop: SocketAddr,
}

impl From<&scion::Path> for Via {
    fn from(path: &scion::Path) -> Self {
        Self {
            path_type: path.path_type(),
            raw: Arc::clone(&path.raw),
            next_hop: path.next_hop,
        }
    }
}

/// Which port a socket gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortChoice {
    /// This one.
    Fixed(u16),
    /// A free one: the last of the dispatched range, but none below 1024; any, if the range is empty.
    Free,
}

impl From<u16> for PortChoice {
    /// As in a configuration, where 0 means any.
    fn from(port: u16) -> Self {
        if port == 0 {
            Self::Free
        } else {
            Self::Fixed(port)
        }
    }
}

/// A packet that a socket received.
#[derive(Clone, Debug)]
pub struct Received {
    /// Who sent it. Nothing proves that.
    pub source: Host,
    /// The UDP port that it came from; 0 for SCMP.
    pub source_port: u16,
    /// Whom it was for: the socket.
    pub destination: Host,
    /// The way back.
    pub reply: Via,
    /// What it carried.
    pub payload: Payload,
}

impl Received {
    /// The endpoint that sent it.
    #[must_use]
    pub fn sender(&self) -> Endpoint {
        (self.source.0, self.source.1, self.source_port)
    }
}

/// What a received packet carried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Payload of a UDP datagram.
    Udp(Bytes),
    /// An SCMP message: an answer to one from this socket, an error about a packet from this socket, or a
    /// request that nobody answers.
    Scmp(Scmp),
}

/// The first socket whose port was free.
fn first_free(
    mut sockets: impl Iterator<Item = io::Result<std::net::UdpSocket>>,
) -> io::Result<std::net::UdpSocket> {
    sockets
        .find(|result| !matches!(result, Err(error) if error.kind() == io::ErrorKind::AddrInUse))
        .unwrap_or_else(|| Err(io::ErrorKind::AddrInUse.into()))
}

/// A UDP socket that carries SCION packets. It has one reader: two would take each other's packets, and
/// only the last one to wait is woken. Any number may send.
#[derive(Debug)]
pub struct ScionSocket {
    local: Arc<Local>,
    socket: UdpSocket,
    address: SocketAddr,
    scmp_only: bool,
    inbox: Mutex<Inbox>,
}

#[derive(Debug)]
struct Inbox {
    buffer: Box<[u8]>,
    /// What came to the end host port.
    relayed: mpsc::Receiver<Relayed>,
    /// Whose turn it is.
    relayed_first: bool,
}

impl ScionSocket {
    /// Opens a socket at an address of this host.
    ///
    /// # Errors
    /// Of the operating system; [`io::ErrorKind::InvalidInput`] for an unspecified address: it becomes the
    /// source address of SCION packets.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn bind(local: &Arc<Local>, ip: IpAddr, port: PortChoice) -> io::Result<Self> {
        let ip = ip.to_canonical();
        let bind = |port| std::net::UdpSocket::bind(SocketAddr::new(ip, port));
        let socket = match port {
            PortChoice::Fixed(port) => {
                if !local.dispatches(port) {
                    tracing::info!(
                        port,
                        range = ?local.ports,
                        "SCION socket outside the dispatched port range; its packets arrive at the end host port",
                    );
                }
                bind(port)?
            }
            PortChoice::Free => {
                let first = 1024.max(*local.ports.start());
                let range = first..=*local.ports.end();
                if range.is_empty() {
                    bind(0)?
                } else {
                    first_free(range.rev().map(bind))?
                }
            }
        };
        Self::from_std(local, socket)
    }

    /// Makes a socket of one that is bound already, to the address that its packets have in SCION.
    ///
    /// # Errors
    /// As [`ScionSocket::bind`].
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn from_std(local: &Arc<Local>, socket: std::net::UdpSocket) -> io::Result<Self> {
        Self::new(local, socket, false)
    }

    /// As [`ScionSocket::from_std`] for a socket whose UDP packets are somebody else's business: they are
    /// dropped without being counted as received. That of the data address, where the data plane has taken
    /// its frames before and SCMP errors about them arrive.
    ///
    /// # Errors
    /// As [`ScionSocket::bind`].
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn scmp_only(local: &Arc<Local>, socket: std::net::UdpSocket) -> io::Result<Self> {
        Self::new(local, socket, true)
    }

    fn new(local: &Arc<Local>, socket: std::net::UdpSocket, scmp_only: bool) -> io::Result<Self> {
        let address = socket.local_addr()?;
        if address.ip().is_unspecified() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a SCION socket needs a specific address",
            ));
        }
        socket.set_nonblocking(true)?;
        let socket = UdpSocket::from_std(socket)?;
        local.counters.listens.add(1);
        Ok(Self {
            inbox: Mutex::new(Inbox {
                buffer: vec![0; MAX_DATAGRAM].into(),
                relayed: local.register(address, scmp_only),
                relayed_first: false,
            }),
            local: Arc::clone(local),
            socket,
            address,
            scmp_only,
        })
    }

    /// Its address: in the underlay, and as UDP/SCION host and port.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Its address in SCION.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        let (isd_as, host) = self.host();
        (isd_as, host, self.address.port())
    }

    /// Its address in SCION without the port: the source of SCMP messages.
    #[must_use]
    pub fn host(&self) -> Host {
        (self.local.isd_as, HostAddr::from(self.address.ip()))
    }

    /// What it shares with other sockets.
    #[must_use]
    pub fn local(&self) -> &Arc<Local> {
        &self.local
    }

    /// Sends a UDP datagram, waiting for room in the operating system's queue.
    ///
    /// # Errors
    /// Of the operating system; [`io::ErrorKind::InvalidInput`] if there is no such packet, see
    /// [`packet::udp`].
    pub async fn send_to(&self, to: Endpoint, via: &Via, payload: &[u8]) -> io::Result<()> {
        let packet = self.datagram(to, via, payload)?;
        self.send_raw(&packet, via.next_hop).await
    }

    /// Sends a UDP datagram if there is room for it.
    ///
    /// # Errors
    /// As [`ScionSocket::send_to`]; [`io::ErrorKind::WouldBlock`] if there is no room, or if that is not known
    /// yet because the socket is new, see [`ScionSocket::writable`].
    pub fn try_send_to(&self, to: Endpoint, via: &Via, payload: &[u8]) -> io::Result<()> {
        let packet = self.datagram(to, via, payload)?;
        self.try_send_raw(&packet, via.next_hop)
    }

    /// Sends a SCION packet as it is.
    ///
    /// # Errors
    /// Of the operating system.
    pub async fn send_raw(&self, packet: &[u8], next_hop: SocketAddr) -> io::Result<()> {
        self.sent(self.socket.send_to(packet, next_hop).await)
    }

    /// Sends a SCION packet as it is if there is room for it.
    ///
    /// # Errors
    /// Of the operating system; [`io::ErrorKind::WouldBlock`] if there is no room.
    pub fn try_send_raw(&self, packet: &[u8], next_hop: SocketAddr) -> io::Result<()> {
        self.sent(self.socket.try_send_to(packet, next_hop))
    }

    /// Waits until there probably is room for a packet. Any number of tasks may wait.
    ///
    /// # Errors
    /// If the runtime ends.
    pub async fn writable(&self) -> io::Result<()> {
        self.socket.writable().await
    }

    fn datagram(&self, to: Endpoint, via: &Via, payload: &[u8]) -> io::Result<Vec<u8>> {
        let addresses = Addresses {
            source: self.endpoint(),
            destination: to,
        };
        packet::udp(&addresses, via.path_type, &via.raw, payload)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
    }

    fn sent(&self, result: io::Result<usize>) -> io::Result<()> {
        let counters = &self.local.counters;
        match result {
            Ok(len) => {
                counters.written_packets.add(1);
                counters.written_bytes.add(len as u64);
                Ok(())
            }
            Err(error) => {
                if error.kind() != io::ErrorKind::WouldBlock {
                    counters.underlay_errors.add(1);
                }
                Err(error)
            }
        }
    }

    /// Waits for the next packet for this socket. Others are skipped and counted, as are failures of the
    /// operating system. Nothing is lost if the future is dropped.
    pub async fn recv(&self) -> Received {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// As [`ScionSocket::recv`], for those who poll.
    pub fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<Received> {
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..MAX_SKIPPED {
            match ready!(inbox.poll(cx, &self.socket)) {
                Ok((bytes, from)) => {
                    if let Some(received) = self.accept(&bytes, from) {
                        return Poll::Ready(received);
                    }
                }
                Err(_) => self.local.counters.underlay_errors.add(1),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn accept(&self, bytes: &Bytes, from: SocketAddr) -> Option<Received> {
        let counters = &self.local.counters;
        let parsed = packet::parse(bytes);
        if self.scmp_only
            && let Ok(packet) = &parsed
            && matches!(packet.content, Content::Udp { .. })
        {
            return None;
        }
        counters.read_packets.add(1);
        counters.read_bytes.add(bytes.len() as u64);
        let Ok(packet) = parsed else {
            counters.parse_errors.add(1);
            return None;
        };
        let is_ours = self.local.is_at(&packet, self.address.ip())
            && match packet.content {
                Content::Udp {
                    destination_port, ..
                } => destination_port == self.address.port(),
                Content::Scmp(_) => true,
            };
        let has_path = !packet.path.bytes().is_empty();
        if !self
            .local
            .may_bring(packet.source, has_path, from, self.address)
        {
            counters.forged.add(1);
            return None;
        }
        let reply = self.local.way_back(&packet, from, self.address);
        let (true, Some(reply)) = (is_ours, reply) else {
            counters.strays.add(1);
            return None;
        };
        let (source_port, payload) = match packet.content {
            Content::Udp {
                source_port,
                payload,
                ..
            } => (source_port, Payload::Udp(bytes.slice_ref(payload))),
            Content::Scmp(message) => {
                if message.is_error() {
                    counters.scmp_errors.add(1);
                }
                (0, Payload::Scmp(message))
            }
        };
        Some(Received {
            source: packet.source,
            source_port,
            destination: packet.destination,
            reply,
            payload,
        })
    }
}

impl Drop for ScionSocket {
    fn drop(&mut self) {
        self.local.unregister(self.address);
        self.local.counters.closes.add(1);
    }
}

impl Inbox {
    /// The next datagram from either source, taking turns.
    fn poll(&mut self, cx: &mut Context<'_>, socket: &UdpSocket) -> Poll<io::Result<Relayed>> {
        self.relayed_first = !self.relayed_first;
        if self.relayed_first
            && let Poll::Ready(relayed) = self.poll_relayed(cx)
        {
            return Poll::Ready(Ok(relayed));
        }
        if let Poll::Ready(result) = self.poll_socket(cx, socket) {
            return Poll::Ready(result);
        }
        self.poll_relayed(cx).map(Ok)
    }

    fn poll_relayed(&mut self, cx: &mut Context<'_>) -> Poll<Relayed> {
        match self.relayed.poll_recv(cx) {
            Poll::Ready(Some(relayed)) => Poll::Ready(relayed),
            // Without a sender nothing will come.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    fn poll_socket(
        &mut self,
        cx: &mut Context<'_>,
        socket: &UdpSocket,
    ) -> Poll<io::Result<Relayed>> {
        let mut buffer = ReadBuf::new(&mut self.buffer);
        let from = ready!(socket.poll_recv_from(cx, &mut buffer))?;
        Poll::Ready(Ok((Bytes::copy_from_slice(buffer.filled()), from)))
    }
}
