//! A connection for calls of either variant.

use std::time::Duration;

use bytes::Bytes;

use crate::{
    RpcError, connect, grpc,
    quic::{DONE, Peer},
};

/// How calls are spelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variant {
    Connect,
    Grpc,
}

impl Variant {
    pub(super) fn name(self) -> &'static str {
        match self {
            Variant::Connect => "Connect",
            Variant::Grpc => "gRPC",
        }
    }
}

/// A connection to a server. Closes when it is dropped.
pub(super) struct Connection {
    quic: quinn::Connection,
    calls: Calls,
}

enum Calls {
    Connect(connect::Client),
    Grpc(grpc::Client),
}

impl Connection {
    pub(super) async fn new(
        quic: quinn::Connection,
        variant: Variant,
        max_answer: u32,
    ) -> Result<Self, RpcError> {
        let peer = Peer::from_synthetic(quic.remote_address());
        let calls = match variant {
            Variant::Connect => {
                Calls::Connect(connect::Client::new(quic.clone(), peer, max_answer).await?)
            }
            Variant::Grpc => Calls::Grpc(grpc::Client::new(quic.clone(), peer, max_answer).await?),
        };
        Ok(Connection { quic, calls })
    }

    pub(super) fn variant(&self) -> Variant {
        match self.calls {
            Calls::Connect(_) => Variant::Connect,
            Calls::Grpc(_) => Variant::Grpc,
        }
    }

    pub(super) fn quic(&self) -> &quinn::Connection {
        &self.quic
    }

    pub(super) fn peer(&self) -> Peer {
        Peer::from_synthetic(self.quic.remote_address())
    }

    /// Whether there is a point in another call.
    pub(super) fn is_open(&self) -> bool {
        let calls_end = match &self.calls {
            Calls::Connect(_) => false,
            Calls::Grpc(client) => client.is_closed(),
        };
        self.quic.close_reason().is_none() && !calls_end
    }

    pub(super) async fn unary(
        &self,
        method: &str,
        message: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, RpcError> {
        match &self.calls {
            Calls::Connect(client) => client.unary(method, message, timeout).await,
            Calls::Grpc(client) => client.unary(method, &message, timeout).await,
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        match &self.calls {
            Calls::Connect(_) => self.quic.close(DONE, b""),
            // HTTP/2 ends first, then the QUIC connection.
            Calls::Grpc(_) => {}
        }
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("peer", &self.peer())
            .field("variant", &self.variant())
            .finish_non_exhaustive()
    }
}
