//! QUIC endpoints with the settings that SCION and our limits ask for.

use std::{sync::Arc, time::Duration};

use quinn::{
    ClientConfig, Endpoint, EndpointConfig, IdleTimeout, NoneTokenStore, ServerConfig,
    TokioRuntime, TransportConfig,
};

use super::{CONNECT, GRPC, QuicSocket, sni, tls};
use crate::RpcError;
use sig_core::peer::RpcProtocols;

/// A connection that says nothing for this long is closed. Polls come every five seconds and keep theirs alive;
/// those of a remote that is no longer asked end by themselves.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of a QUIC packet: the least that QUIC works with, so that together with SCION's headers it fits a short path
/// of 1280 bytes. As in the reference, nothing larger is tried.
const PACKET_LEN: u16 = 1200;
/// Streams that a peer may have open at the same time.
const STREAMS: u32 = 128;
/// The same of streams in one direction: HTTP/3 has three.
const CONTROL_STREAMS: u32 = 8;
/// Bytes that a peer may send before they are read, in one stream and in one connection.
const RECEIVE_WINDOW: u32 = 256 << 10;
/// Bytes of early packets of a connection that is not accepted yet.
const EARLY: u64 = 16 << 10;
/// The same of all such connections together.
const EARLY_TOTAL: u64 = 1 << 20;

fn transport() -> Arc<TransportConfig> {
    let mut config = TransportConfig::default();
    config
        .max_idle_timeout(IdleTimeout::try_from(IDLE_TIMEOUT).ok())
        .initial_mtu(PACKET_LEN)
        .min_mtu(PACKET_LEN)
        .mtu_discovery_config(None)
        .enable_segmentation_offload(false)
        .datagram_receive_buffer_size(None)
        .max_concurrent_bidi_streams(STREAMS.into())
        .max_concurrent_uni_streams(CONTROL_STREAMS.into())
        .stream_receive_window(RECEIVE_WINDOW.into())
        .receive_window(RECEIVE_WINDOW.into())
        .send_window(RECEIVE_WINDOW.into());
    Arc::new(config)
}

fn endpoint(socket: Arc<QuicSocket>, server: Option<ServerConfig>) -> Result<Endpoint, RpcError> {
    let mut config = EndpointConfig::default();
    // Answers to service resolutions are told from QUIC packets by the fixed bit.
    config.grease_quic_bit(false);
    Endpoint::new_with_abstract_socket(config, server, socket, Arc::new(TokioRuntime))
        .map_err(|error| RpcError::Endpoint(error.to_string()))
}

/// An endpoint that only connects.
pub(crate) fn client(socket: Arc<QuicSocket>) -> Result<Endpoint, RpcError> {
    endpoint(socket, None)
}

/// Settings of connections with this ALPN.
pub(crate) fn client_config(alpn: &[u8]) -> Result<ClientConfig, RpcError> {
    let mut config = ClientConfig::new(Arc::new(tls::client(alpn)?));
    config
        .transport_config(transport())
        .token_store(Arc::new(NoneTokenStore));
    Ok(config)
}

/// An endpoint that takes connections. At most so many wait for being accepted at the same time.
pub(crate) fn server(
    socket: Arc<QuicSocket>,
    protocols: RpcProtocols,
    waiting: u32,
) -> Result<Endpoint, RpcError> {
    let mut alpn = Vec::new();
    if protocols.connect() {
        alpn.push(CONNECT);
    }
    if protocols.grpc() {
        alpn.push(GRPC);
    }
    let mut config =
        ServerConfig::with_crypto(Arc::new(sni::Server(Arc::new(tls::server(&alpn)?))));
    config
        .transport_config(transport())
        // A peer is followed along another path once a packet from there is authentic.
        .migration(true)
        .max_incoming(waiting as usize)
        .incoming_buffer_size(EARLY)
        .incoming_buffer_size_total(EARLY_TOTAL);
    endpoint(socket, Some(config))
}
