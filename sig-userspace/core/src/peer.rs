//! Gateways of other ASes: what they announce, and what is taken from them and from where.

use std::net::SocketAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::{document::section::Number, section};

/// A gateway as the control service of its AS lists it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GatewayAddresses {
    /// Where it is asked for prefixes (QUIC).
    pub control: SocketAddr,
    /// Where it receives SIG frames.
    pub data: SocketAddr,
    /// Where it answers session probes.
    pub probe: SocketAddr,
    /// Interfaces of its AS through which paths to it must enter; empty: any. Ascending, each once.
    pub allow_interfaces: Vec<u64>,
}

/// What a gateway says about the IP prefixes behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Announced {
    /// All of them.
    Prefixes {
        /// Canonical; in the order of the gateway.
        prefixes: Vec<IpNet>,
        /// Entries that are no prefix and were left out.
        malformed: u32,
        /// Names this list in the next request; empty if the gateway has no etags.
        etag: String,
    },
    /// The same as last time: those of the answer that had the etag we sent.
    Unchanged,
}

/// Which RPC variants are spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RpcProtocols {
    /// gRPC in one QUIC stream (ALPN `SCION`).
    Grpc,
    /// Connect over HTTP/3 (ALPN `h3`).
    Connect,
    /// Both; a client tries Connect first.
    All,
}

impl RpcProtocols {
    /// Whether gRPC is among them.
    pub fn grpc(self) -> bool {
        self != Self::Connect
    }

    /// Whether Connect is among them.
    pub fn connect(self) -> bool {
        self != Self::Grpc
    }
}

section! {
    /// Limits on what peers can make the control plane keep. Beyond, it is refused and counted.
    #[derive(Copy)]
    pub struct PeerLimits {}

    /// Gateways of one AS.
    gateways_per_as: u32 = 16, Number(1..=256);
    /// Prefixes of one gateway.
    prefixes_per_gateway: u32 = 4096, Number(1..=1_048_576);
    /// Bytes of one RPC message.
    message_bytes: u32 = 1 << 20, Number(1..=64 << 20);
    /// QUIC connections that we serve at the same time.
    connections: u32 = 256, Number(1..=65_536);
    /// Paths to one AS that are watched.
    paths_per_as: u32 = 64, Number(1..=1024);
}

/// Which underlay addresses may bring frames of remotes, beside internal hosts that send frames of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnderlaySources {
    /// Border routers of the AS: those that the daemon names, and next hops of paths.
    Routers,
    /// Border routers, and addresses in these prefixes. Canonical.
    RoutersAnd(Vec<IpNet>),
    /// Anybody.
    Any,
}
