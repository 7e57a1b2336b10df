//! Remote procedure calls to and from other ASes, over QUIC over UDP/SCION: which gateways an AS has, and which IP
//! prefixes are behind a gateway. Session probes, which are single datagrams, are here too.
//!
//! Calls come in two variants, which a QUIC connection is told by its ALPN: Connect over HTTP/3 (`h3`) and gRPC,
//! whose HTTP/2 connection lies in one stream of the QUIC connection (`SCION`). Certificates are made up at start and
//! verified by nobody, as in the reference: a call is as trustworthy as the SCION network that carries it. Gateways that
//! protect their frames prove to each other who they are inside of the connection ([`OwnIdentity`]).
//!
//! Part of the implementation of the library `sig` (package `sig-userspace`), which is what other programs use; here, things
//! change without notice.

#![forbid(unsafe_code)]
#![warn(
    clippy::expect_used,
    clippy::missing_panics_doc,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::fmt;

mod checked;
mod client;
mod connect;
pub mod daemon;
mod grpc;
pub mod messages;
pub mod probe;
mod protection;
mod quic;
mod server;
pub mod sockets;
mod status;

pub use checked::DEFAULT_PROBE_PORT;
pub use client::{CallCounts, ClientCounts, RpcClient};
pub use protection::{Answering, Concerns, Decide, OwnIdentity, unagreed_key, unagreed_key_of};
pub use quic::Peer;
pub use server::{MethodCounts, Router, RpcServer, ServerCounts};
pub use status::{Code, Status};

/// Method of a control service: the gateways of its AS.
pub const GATEWAYS: &str = "/proto.discovery.v1.DiscoveryService/Gateways";
/// Method of a gateway: the IP prefixes behind it.
pub const PREFIXES: &str = "/proto.gateway.v1.IPPrefixesService/Prefixes";

/// Why a call brought no answer that can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RpcError {
    /// The local socket or the cryptography library refuses.
    #[error("cannot open a QUIC endpoint: {0}")]
    Endpoint(String),
    /// Nothing came back in time.
    #[error("no answer in time")]
    Timeout,
    /// The service resolution brought no address to connect to.
    #[error("service resolution failed: {0}")]
    Resolution(Box<RpcError>),
    /// No connection was made.
    #[error("cannot connect: {0}")]
    Dial(String),
    /// The connection or its stream broke.
    #[error("connection lost: {0}")]
    Transport(String),
    /// The remote answered with an error.
    #[error("the remote answered with the error {0}")]
    Remote(Status),
    /// The answer is not what it should be.
    #[error("malformed answer: {0}")]
    Malformed(String),
    /// The answer has more bytes than we take.
    #[error("the answer exceeds {0} bytes")]
    TooLarge(u32),
    /// The answer has more entries than we take.
    #[error("the answer has more than {limit} {what}")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How many are taken.
        limit: u32,
    },
    /// Each way that was tried failed.
    #[error("{0}")]
    Attempts(Attempts),
}

impl RpcError {
    fn malformed(error: impl fmt::Display) -> Self {
        RpcError::Malformed(error.to_string())
    }

    fn transport(error: impl fmt::Display) -> Self {
        RpcError::Transport(error.to_string())
    }
}

/// The ways that were tried, and how each failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempts(pub Vec<(&'static str, RpcError)>);

impl fmt::Display for Attempts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (way, error)) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{way}: {error}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
