//! QUIC over UDP/SCION, by quinn.

mod endpoint;
mod peer;
mod resolve;
mod routes;
mod sni;
mod socket;
mod tls;

pub(super) use endpoint::{client, client_config, server};
pub use peer::Peer;
pub(super) use socket::{QuicSocket, Replies};

/// ALPN of Connect over HTTP/3.
pub(super) const CONNECT: &[u8] = b"h3";
/// ALPN of gRPC in a stream.
pub(super) const GRPC: &[u8] = b"SCION";
/// Application error code with which the reference closes a gRPC connection that has done its work.
pub(super) const DONE: quinn::VarInt = quinn::VarInt::from_u32(0x100);
