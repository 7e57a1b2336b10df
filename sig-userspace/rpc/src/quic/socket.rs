//! A SCION socket as quinn wants its sockets.

use std::{
    fmt,
    future::Future,
    io::{self, IoSliceMut},
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use quinn::{
    AsyncUdpSocket, UdpPoller,
    udp::{RecvMeta, Transmit},
};
use sig_common::addr::{HostAddr, IsdAs};
use tokio::time::timeout;

use super::{peer::Peer, resolve::Resolutions, routes::Routes};
use crate::{
    RpcError, checked,
    sockets::{Payload, Received, ScionSocket, Via},
};

/// A service resolution is repeated after this long without an answer.
const RESOLUTION_RETRY: Duration = Duration::from_secs(1);

/// Where the ways to peers come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replies {
    /// From [`QuicSocket::set_way`]: a client chooses its paths.
    Chosen,
    /// From what peers send: a server answers the way it was asked. Each way has an address of its own in quinn.
    Reversed,
}

/// Carries the datagrams of a QUIC endpoint. To a client a server keeps its (synthetic) address whatever the path to
/// it is, so that QUIC does not notice when the path changes.
pub(crate) struct QuicSocket {
    socket: Arc<ScionSocket>,
    ways: Replies,
    routes: Mutex<Routes>,
    resolutions: Resolutions,
}

impl QuicSocket {
    /// `capacity`: how many ways to peers are known at the same time.
    pub(crate) fn new(socket: Arc<ScionSocket>, ways: Replies, capacity: usize) -> Self {
        QuicSocket {
            socket,
            ways,
            routes: Mutex::new(Routes::new(capacity)),
            resolutions: Resolutions::default(),
        }
    }

    /// Sends what is for this peer this way from now on.
    pub(crate) fn set_way(&self, peer: Peer, via: Via) {
        self.routes().set(peer, via);
    }

    /// The peer at an address of [`Replies::Reversed`], unless it is forgotten already.
    pub(crate) fn peer(&self, address: SocketAddr) -> Option<Peer> {
        self.routes().get(address).map(|route| route.peer)
    }

    /// Where the discovery service of an AS is reached. Asks until there is an answer: the caller limits the time.
    pub(crate) async fn resolve_discovery(
        &self,
        isd_as: IsdAs,
        via: &Via,
    ) -> Result<SocketAddr, RpcError> {
        let mut answer = self.resolutions.expect(isd_as);
        loop {
            // The request is an empty message, to port 0 of the service.
            self.socket
                .send_to((isd_as, HostAddr::SVC_DS, 0), via, &[])
                .await
                .map_err(RpcError::transport)?;
            match timeout(RESOLUTION_RETRY, &mut answer).await {
                Ok(Ok(answer)) => return checked::service_address(&answer),
                Ok(Err(_)) => return Err(RpcError::Transport("the socket is gone".to_owned())),
                Err(_) => {}
            }
        }
    }

    /// The datagram with the address of its sender, if it is for QUIC.
    fn accept(&self, received: Received) -> Option<(SocketAddr, Bytes)> {
        let peer = Peer::from_endpoint(received.sender())?;
        // What SCMP says about paths is for those who choose them. To QUIC a lost datagram is a lost datagram.
        let Payload::Udp(datagram) = received.payload else {
            return None;
        };
        if self.resolutions.take(peer.isd_as, &datagram) {
            return None;
        }
        let address = match self.ways {
            Replies::Chosen => peer.synthetic(),
            Replies::Reversed => self.routes().learn(peer, received.reply),
        };
        Some((address, datagram))
    }

    fn routes(&self) -> MutexGuard<'_, Routes> {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsyncUdpSocket for QuicSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(WritePoller {
            socket: Arc::clone(&self.socket),
            waiting: None,
        })
    }

    /// A datagram that cannot be sent is a lost datagram: an error would end the connection.
    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let route = self.routes().get(transmit.destination);
        let Some(route) = route else {
            return Ok(());
        };
        let peer = route.peer;
        match self
            .socket
            .try_send_to(peer.endpoint(), &route.via, transmit.contents)
        {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                tracing::trace!(%peer, %error, "cannot send a QUIC datagram");
                Ok(())
            }
            result => result,
        }
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let mut count = 0;
        for (buf, meta) in bufs.iter_mut().zip(meta) {
            let (address, datagram) = loop {
                match self.socket.poll_recv(cx) {
                    Poll::Pending if count == 0 => return Poll::Pending,
                    Poll::Pending => return Poll::Ready(Ok(count)),
                    Poll::Ready(received) => match self.accept(received) {
                        Some(accepted) if accepted.1.len() <= buf.len() => break accepted,
                        _ => {}
                    },
                }
            };
            buf[..datagram.len()].copy_from_slice(&datagram);
            *meta = RecvMeta {
                addr: address,
                len: datagram.len(),
                stride: datagram.len(),
                ecn: None,
                dst_ip: None,
            };
            count += 1;
        }
        Poll::Ready(Ok(count))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Peer::from_endpoint(self.socket.endpoint())
            .map(Peer::synthetic)
            .ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
    }
}

impl fmt::Debug for QuicSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicSocket")
            .field("local", &self.socket.local_addr())
            .field("ways", &self.ways)
            .finish_non_exhaustive()
    }
}

/// Waits for room in the socket's queue.
struct WritePoller {
    socket: Arc<ScionSocket>,
    waiting: Option<Pin<Box<dyn Future<Output = io::Result<()>> + Send + Sync>>>,
}

impl UdpPoller for WritePoller {
    fn poll_writable(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let socket = Arc::clone(&self.socket);
        let waiting = self
            .waiting
            .get_or_insert_with(|| Box::pin(async move { socket.writable().await }));
        let result = ready!(waiting.as_mut().poll(cx));
        self.waiting = None;
        Poll::Ready(result)
    }
}

impl fmt::Debug for WritePoller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WritePoller").finish_non_exhaustive()
    }
}
