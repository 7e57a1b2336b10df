//! Making connections.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use quinn::{ClientConfig, ConnectionError, TransportErrorCode};
use rand::{Rng as _, seq::IndexedRandom as _};
use sig_common::addr::IsdAs;
use tokio::time::{sleep, timeout};

use super::{Connection, Counters, PEERS, Target, Variant};
use crate::{
    RpcError,
    quic::{self, CONNECT, GRPC, Peer, QuicSocket, Replies},
    sockets::{ScionSocket, Via},
};
use sig_core::{peer::RpcProtocols, scion::Path};

/// A handshake has to be complete within this time.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// A server that is busy is tried again after this time, then after twice as long, and so on. Up to
/// [`BUSY_JITTER`] is added.
const BUSY_WAIT: Duration = Duration::from_millis(2);
/// See [`BUSY_WAIT`].
const BUSY_JITTER: Duration = Duration::from_millis(5);

/// Makes connections from one socket.
#[derive(Debug)]
pub(super) struct Dialer {
    socket: Arc<ScionSocket>,
    quic: Arc<QuicSocket>,
    endpoint: quinn::Endpoint,
    connect: Option<ClientConfig>,
    grpc: Option<ClientConfig>,
    max_answer: u32,
    pub(super) counters: Arc<Counters>,
}

impl Dialer {
    pub(super) fn new(
        socket: Arc<ScionSocket>,
        protocols: RpcProtocols,
        max_answer: u32,
        counters: Arc<Counters>,
    ) -> Result<Self, RpcError> {
        let quic = Arc::new(QuicSocket::new(Arc::clone(&socket), Replies::Chosen, PEERS));
        let config = |spoken: bool, alpn| spoken.then(|| quic::client_config(alpn)).transpose();
        Ok(Dialer {
            endpoint: quic::client(Arc::clone(&quic))?,
            connect: config(protocols.connect(), CONNECT)?,
            grpc: config(protocols.grpc(), GRPC)?,
            socket,
            quic,
            max_answer,
            counters,
        })
    }

    /// The variants that are spoken, in the order in which they are tried with a stranger.
    pub(super) fn variants(&self) -> impl Iterator<Item = Variant> + use<> {
        let connect = self.connect.as_ref().map(|_| Variant::Connect);
        let grpc = self.grpc.as_ref().map(|_| Variant::Grpc);
        connect.into_iter().chain(grpc)
    }

    /// Sends what is for this peer along this path from now on, also over connections that there are.
    pub(super) fn set_path(&self, peer: Peer, path: &Path) {
        self.quic.set_way(peer, Via::from(path));
    }

    /// Makes a connection along this path. A busy server is tried until the future is dropped.
    pub(super) async fn dial(
        &self,
        variant: Variant,
        target: Target,
        path: &Path,
    ) -> Result<Connection, RpcError> {
        let peer = match target {
            Target::Gateway(peer) => peer,
            Target::Discovery(isd_as) => self.discovery(variant, isd_as, path).await?,
        };
        self.set_path(peer, path);
        let config = match variant {
            Variant::Connect => &self.connect,
            Variant::Grpc => &self.grpc,
        };
        let config = config
            .as_ref()
            .ok_or_else(|| RpcError::Dial("disabled by client_protocol".to_owned()))?;
        let mut wait = BUSY_WAIT;
        let quic = loop {
            match self.handshake(config.clone(), peer).await? {
                Some(connection) => break connection,
                None => {
                    let jitter = rand::rng().random_range(Duration::ZERO..BUSY_JITTER);
                    sleep(wait + jitter).await;
                    wait *= 2;
                }
            }
        };
        self.counters.connected.fetch_add(1, Relaxed);
        Connection::new(quic, variant, self.max_answer).await
    }

    /// The discovery service: one that the path's metadata names, which the reference heeds with gRPC only, or else
    /// what stands behind the service address.
    async fn discovery(
        &self,
        variant: Variant,
        isd_as: IsdAs,
        path: &Path,
    ) -> Result<Peer, RpcError> {
        let named = match variant {
            Variant::Connect => None,
            Variant::Grpc => path.discovery.choose(&mut rand::rng()).copied(),
        };
        let address = match named {
            Some(address) => address,
            None => self
                .quic
                .resolve_discovery(isd_as, &Via::from(path))
                .await
                .map_err(|error| RpcError::Resolution(Box::new(error)))?,
        };
        Ok(Peer { isd_as, address })
    }

    /// `None` if the server is busy.
    async fn handshake(
        &self,
        config: ClientConfig,
        peer: Peer,
    ) -> Result<Option<quinn::Connection>, RpcError> {
        let error = |error: &dyn std::fmt::Display| RpcError::Dial(error.to_string());
        self.counters.dials.fetch_add(1, Relaxed);
        self.socket.local().counters.dials.add(1);
        // An IP address is never sent as the server's name.
        let name = peer.address.ip().to_string();
        let connecting = self
            .endpoint
            .connect_with(config, peer.synthetic(), &name)
            .map_err(|e| error(&e))?;
        match timeout(HANDSHAKE_TIMEOUT, connecting).await {
            Ok(Ok(connection)) => Ok(Some(connection)),
            Ok(Err(ConnectionError::ConnectionClosed(close)))
                if close.error_code == TransportErrorCode::CONNECTION_REFUSED =>
            {
                Ok(None)
            }
            Ok(Err(e)) => Err(error(&e)),
            Err(_) => Err(RpcError::Timeout),
        }
    }
}
