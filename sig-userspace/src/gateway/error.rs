//! Why a gateway does not run.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::engine::StartError;

/// Why a gateway does not start, or stops. Each text says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel does not do what is needed.
    #[error(transparent)]
    Kernel(#[from] sig_linux::Error),
    /// An interface is not as the configuration says, or cannot be used.
    #[error("{0}")]
    Interface(String),
    /// The AF_XDP sockets cannot be made.
    #[error(transparent)]
    Port(#[from] sig_linux::af_xdp::Error),
    /// The workers do not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The data address cannot be bound.
    #[error(
        "cannot bind the data address {address}: {source}; `[gateway] data_addr` must be an address \
         of this host with a UDP port that no other program uses"
    )]
    DataAddress {
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// An operation of the operating system failed.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The configuration does not fit what is found.
    #[error("{0}")]
    Configuration(String),
    /// A socket cannot be opened.
    #[error("cannot open the {what} {address}: {source}; is another program using it?")]
    Socket {
        /// What for.
        what: &'static str,
        /// Its address.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// The RPCs cannot be set up.
    #[error("cannot set up RPCs: {0}")]
    Rpc(String),
    /// The socket that `sig status` asks cannot be opened.
    #[error("{}: cannot listen for `sig status`: {source}", path.display())]
    StatusSocket {
        /// The socket.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// An HTTP server cannot be opened.
    #[error(transparent)]
    Server(#[from] sig_observe::http::Error),
    /// The gateway was started outside of a tokio runtime with several threads.
    #[error("a gateway needs a multi-threaded tokio runtime: start it in one")]
    Runtime,
    /// A part of the running gateway has ended.
    #[error("{0}")]
    Failed(String),
}
