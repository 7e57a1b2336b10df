//! The server: takes QUIC connections and answers the calls on them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use sig_common::addr::IsdAs;
use tokio::time::{sleep, timeout};

use super::{
    RpcError, Status, connect, grpc,
    quic::{self, CONNECT, DONE, Peer, QuicSocket, Replies},
};
use crate::sockets::ScionSocket;
use sig_core::{
    peer::{PeerLimits, RpcProtocols},
    task::Task,
};

mod admission;
mod router;

use admission::{Admission, Answer, Seat};
use router::Caller;
pub use router::{MethodCounts, Router};

/// Requests of one connection that are worked on at the same time. Others wait in the network.
pub(super) const AT_ONCE: usize = 8;
/// A request has to be read and answered within this time.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// A handshake has to be complete within this time.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Replies to peers that are remembered per connection: reconnecting peers, changed paths, handshakes amid a flood of
/// forged datagrams, each of which has a way of its own.
const WAYS_PER_CONNECTION: usize = 32;
/// A connection without a request for this long, or a little longer, is closed.
const UNUSED: Duration = Duration::from_secs(60);

/// A server on a SCION socket. Stops when it is dropped.
#[derive(Debug)]
pub struct RpcServer {
    endpoint: quinn::Endpoint,
    accepting: Task,
    admission: Arc<Admission>,
    router: Arc<Router>,
}

/// What happened at a server since it started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerCounts {
    /// Connections whose handshake succeeded.
    pub accepted: u64,
    /// Connections turned away: too many of them, or too many in a short time.
    pub refused: u64,
    /// Clients that were asked to show first that answers reach them (QUIC Retry).
    pub retried: u64,
    /// Handshakes that failed: no common protocol, or no end in time.
    pub failed: u64,
    /// Connections open now.
    pub open: u32,
    /// Requests by method.
    pub methods: Vec<MethodCounts>,
    /// Requests for methods that there are not.
    pub unknown: u64,
}

impl RpcServer {
    /// Starts serving. `known` tells whether an AS is one that this gateway works with: half of all connections is
    /// for these alone.
    ///
    /// # Errors
    /// [`RpcError::Endpoint`] if no certificate can be made.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn start(
        socket: Arc<ScionSocket>,
        protocols: RpcProtocols,
        limits: &PeerLimits,
        router: Router,
        known: impl Fn(IsdAs) -> bool + Send + Sync + 'static,
    ) -> Result<Self, RpcError> {
        let ways = WAYS_PER_CONNECTION * limits.connections as usize;
        let socket = Arc::new(QuicSocket::new(socket, Replies::Reversed, ways));
        let endpoint = quic::server(Arc::clone(&socket), protocols, limits.connections)?;
        let router = Arc::new(router.with_limit(limits.message_bytes));
        let admission = Arc::new(Admission::new(limits.connections));
        let accept = accept(
            endpoint.clone(),
            socket,
            Arc::clone(&admission),
            Arc::clone(&router),
            known,
        );
        Ok(RpcServer {
            endpoint,
            accepting: Task::spawn("the RPC server", accept),
            admission,
            router,
        })
    }

    /// Waits until it takes no calls any more, and says so.
    pub fn ended(&self) -> impl Future<Output = String> + Send + use<> {
        self.accepting.ended()
    }

    /// What happened so far.
    #[must_use]
    pub fn counts(&self) -> ServerCounts {
        let (methods, unknown) = self.router.counts();
        ServerCounts {
            methods,
            unknown,
            ..self.admission.counts()
        }
    }
}

impl Drop for RpcServer {
    fn drop(&mut self) {
        self.endpoint.close(DONE, b"");
    }
}

async fn accept(
    endpoint: quinn::Endpoint,
    socket: Arc<QuicSocket>,
    admission: Arc<Admission>,
    router: Arc<Router>,
    known: impl Fn(IsdAs) -> bool,
) {
    while let Some(incoming) = endpoint.accept().await {
        let Some(caller) = socket.peer(incoming.remote_address()) else {
            incoming.ignore();
            continue;
        };
        let reached = incoming.remote_address_validated();
        match admission.admit(caller.isd_as, known(caller.isd_as), reached) {
            Answer::Seat(seat) => match incoming.accept() {
                Ok(connecting) => {
                    tokio::spawn(serve(connecting, seat, caller, Arc::clone(&router)));
                }
                Err(error) => seat.failed(&error),
            },
            Answer::Retry => {
                // Not refused: who was not reached before may be asked for it.
                let _ = incoming.retry();
            }
            Answer::Refuse => incoming.refuse(),
        }
    }
}

async fn serve(connecting: quinn::Connecting, mut seat: Seat, caller: Peer, router: Arc<Router>) {
    let connection = match timeout(HANDSHAKE_TIMEOUT, connecting).await {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => return seat.failed(&error),
        Err(_) => return seat.failed(&RpcError::Timeout),
    };
    seat.accepted();
    let calls = Arc::new(Calls::new(router, caller, Some(connection.clone())));
    let served = async {
        if alpn(&connection).as_deref() == Some(CONNECT) {
            connect::serve(connection.clone(), Arc::clone(&calls)).await
        } else {
            grpc::serve(connection.clone(), Arc::clone(&calls)).await
        }
    };
    let result = tokio::select! {
        result = served => result,
        () = calls.unused() => Ok(()),
    };
    connection.close(DONE, b"");
    if let Err(error) = result {
        tracing::trace!(%caller, %error, "RPC connection closed");
    }
}

/// The calls of one connection.
pub(super) struct Calls {
    router: Arc<Router>,
    caller: Caller,
    requests: AtomicU64,
}

impl Calls {
    pub(super) fn new(router: Arc<Router>, peer: Peer, channel: Option<quinn::Connection>) -> Self {
        Calls {
            router,
            caller: Caller { peer, channel },
            requests: AtomicU64::new(0),
        }
    }

    /// Most bytes of a request.
    pub(super) fn max_request(&self) -> u32 {
        self.router.max_request()
    }

    /// The answer of a method.
    pub(super) fn call(&self, method: &str, message: &[u8]) -> Result<Vec<u8>, Status> {
        self.requests.fetch_add(1, Relaxed);
        self.router.call(&self.caller, method, message)
    }

    /// Waits until nothing was called for some time.
    async fn unused(&self) {
        let mut before = None;
        loop {
            let now = self.requests.load(Relaxed);
            if before == Some(now) {
                return;
            }
            before = Some(now);
            sleep(UNUSED).await;
        }
    }
}

/// The protocol of a connection.
pub(super) fn alpn(connection: &quinn::Connection) -> Option<Vec<u8>> {
    let data = connection.handshake_data()?;
    data.downcast::<quinn::crypto::rustls::HandshakeData>()
        .ok()?
        .protocol
}
