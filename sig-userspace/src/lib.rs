//! SCION-IP gateway over AF_XDP: the library behind the program `sig`.
//!
//! ```text
//!             ┌─────────────────────────────── gateway: interfaces, routes, remotes ───────────────────────────────┐
//!             │            ┌───────────────────────── engine: your ports ─────────────────────────┐                │
//!             │            │                            ┌──── framing ────┐                       │                │
//!  IP hosts ──┼─> tunnel   │ ──> class, session, path ──┼─> pack, split ──┼──> outer headers ──>  │ underlay ──────┼─> border router
//!  IP hosts <─┼── port     │ <── police               <─┼── reassemble  <─┼─── admit, verify <──  │ port     <─────┼── border router
//!             │            │                            └─────────────────┘                       │                │
//!             │            └──────────────────────────────────────────────────────────────────────┘                │
//!             └────────────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! There are three ways to use it; each takes in the one before.
//!
//! # The framing alone
//!
//! [`framing`]: IP packets in, SIG frames out, and back. No I/O, no clock.
//!
//! ```
//! use sig::framing::{Decoder, Encoder, Limits};
//!
//! let mut packet = [0; 100];
//! (packet[0], packet[3]) = (0x45, 100); // IPv4, 100 bytes
//!
//! let mut frames = Vec::new();
//! let mut encoder = Encoder::new(0, 4711, 1364)?;
//! encoder.push(&packet, |frame| frames.push(frame.to_vec()))?;
//! encoder.flush(|frame| frames.push(frame.to_vec()));
//!
//! let mut decoder = Decoder::new(Limits { remotes: 1, ..Limits::default() }, 1)?;
//! let mut received = Vec::new();
//! let _ = decoder.push(0, 0, 30056, &frames[0], |packet| received.push(packet.to_vec()))?;
//! assert_eq!(received, [packet]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # An engine with ports of your own
//!
//! [`Engine`]: a whole data plane over anything that implements [`port::Port`], such as [`port::memory`]. The
//! [`Config`] has a builder; the rules are those of the configuration file.
//!
//! ```
//! use sig::config::{Path, Remote};
//! use sig::engine::{Neighbour, WorkerPorts};
//! use sig::port::{memory, umem::Area};
//! use sig::{Config, Engine};
//!
//! let next_hop = "10.10.0.1:30042".parse()?;
//! let remote = Remote::new("1-ff00:0:110".parse()?, "10.10.0.3:30056".parse()?)
//!     .prefixes(["192.168.11.0/24".parse()?])
//!     .path(Path::new([], next_hop, 1472));
//! let config = Config::builder("1-ff00:0:110".parse()?, "10.10.0.2:30056".parse()?)
//!     .prefixes(["192.168.10.0/24".parse()?])
//!     .remote(remote)
//!     .build()?;
//!
//! let (area, pool) = Area::on_heap(4096);
//! let ((underlay, scion_side), (tunnel, ip_side)) = (memory::pair(64), memory::pair(64));
//! let engine = Engine::builder(config)
//!     .neighbour(next_hop.ip(), Neighbour { interface_mac: [2; 6], mac: [4; 6], mtu: 1500 })
//!     .ports(area, pool, vec![WorkerPorts {
//!         underlay: vec![Box::new(underlay)],
//!         tunnel: vec![Box::new(tunnel)],
//!         ..WorkerPorts::default()
//!     }])
//!     .start()?;
//!
//! let mut packet = vec![0; 14 + 28];
//! packet[12..18].copy_from_slice(&[8, 0, 0x45, 0, 0, 28]); // Ethernet, IPv4, 28 bytes
//! packet[22..24].copy_from_slice(&[64, 17]); // UDP
//! packet[26..34].copy_from_slice(&[192, 168, 10, 1, 192, 168, 11, 1]);
//! # let sum: u32 = packet[14..34].chunks(2).map(|b| u32::from(b[0]) << 8 | u32::from(b[1])).sum();
//! # packet[24..26].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
//! ip_side.send(&packet);
//! let look = |_| {
//!     std::thread::sleep(std::time::Duration::from_millis(1));
//!     scion_side.receive()
//! };
//! let frame = (0..10_000).find_map(look).ok_or("nothing came")?;
//! assert!(frame.ends_with(&packet[34..]));
//! assert_eq!(engine.counters()[0].sent.frames.get(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A whole gateway
//!
//! `gateway::Gateway`: on the interfaces of this machine, as `sig run` is one. Needs root, or the capabilities that
//! `sig doctor` names.
//!
//! ```no_run
//! # #[cfg(feature = "xdp")]
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let gateway = sig::Gateway::load("/etc/sig/gateway.toml")?.start().await?;
//! gateway.ready().await;
//! println!("{} packets sent", gateway.status().counters.packets_sent);
//! gateway.stop().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! | feature | default | what it adds | needs |
//! |---|---|---|---|
//! | | | framing, engine, ports in memory, configuration | |
//! | `control` | yes | nothing to use; builds what `xdp` needs of the control plane: RPCs, metrics and status pages | a C compiler |
//! | `xdp` | yes | [`gateway`](#a-whole-gateway), the program `sig` with the border router | kernel headers, the BPF toolchain |
//!
//! # What is stable
//!
//! Nothing is promised before 1.0, but changes of what is documented here are listed in the changelog. The packages below
//! it (`sig-core`, `sig-linux`, `sig-rpc`, `sig-observe`, `sig-router`, `sig-common`) are parts of the implementation and change
//! without notice. Where their types appear here, as in [`port`], [`framing`] and the fields of `Status`, use them by the
//! names that they have here.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(feature = "xdp"),
    allow(
        dead_code,
        reason = "what only a whole gateway uses is built and tested without it too"
    )
)]
#![warn(
    clippy::expect_used,
    clippy::missing_panics_doc,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

#[cfg(feature = "xdp")]
mod accelerate;
mod control;
pub mod engine;
#[cfg(feature = "xdp")]
pub mod gateway;

#[cfg(feature = "xdp")]
pub mod srv6;

#[cfg(feature = "xdp")]
#[doc(hidden)]
pub mod cli;

pub use config::Config;
pub use engine::Engine;
#[cfg(feature = "xdp")]
pub use gateway::Gateway;

/// The framing: packets of a stream into frames and back. Pure: bytes in, bytes out, time is an argument.
///
/// A SIG frame is a 16-byte header ([`FrameHeader`](framing::FrameHeader)) and a payload in which IPv4 and IPv6 packets and
/// parts of packets lie back to back. [`Encoder`](framing::Encoder) packs and splits, [`Decoder`](framing::Decoder) puts in
/// order and together. [`Reassembler`](framing::Reassembler) is a decoder for a program that has parsed the frame itself, knows
/// how congested it came, and wants packets where they lie.
pub mod framing {
    pub use sig_common::reason::DropReason;
    pub use sig_core::framing::{
        CapacityError, Counters, Decoder, Encoder, FRAME_HEADER_LEN, FrameError, FrameHeader,
        FrameRef, Limits, LimitsError, MAX_CAPACITY, MIN_CAPACITY, Malformed, Occupancy, Outcome,
        PacketError, Piece, Reassembler, StreamKey, TooLong,
    };
}

/// Where packets enter and leave an [`Engine`].
///
/// Implement [`Port`](port::Port) for packet I/O of your own; [`memory`](port::memory) has ports for tests and simulations.
/// All ports of an engine are over one [`Area`](port::umem::Area) of packet buffers, so that packets cross it without a copy.
pub mod port {
    pub use sig_core::port::{BATCH, Port, memory, umem};
}

/// The configuration of a gateway: from a file, or of typed values.
///
/// [`check`](config::check) is pure: text in, a [`Config`] with every default filled in and every value resolved out, or all problems of
/// the file with line, key and remedy. [`load`](config::load) reads the file first. [`Config::builder`] makes one of typed values, by the
/// same rules. The fields of a [`Config`] are its sections and keys; docs/configuration.md describes them at length.
pub mod config {
    pub use crate::control::config::{
        Builder, Config, Control, Dataplane, DefaultRoute, Discovery, EndhostPort, Errors,
        FastPathUse, Gateway, General as ProtectionSection, LanTransmit, Limits, Listen, Log,
        LogFormat, LogLevel, Made, Observe, Path, PeerLimits, Pin, Preference, Problem, Protection,
        ProtectionMode, ReadFile, Remote, RemoteProtection, Rpc, RpcProtocols, Tunnel,
        TunnelDevice, UnderlayPort, UnderlaySources, WrittenAt, XdpMode, check, load,
    };
    pub use ipnet::IpNet;
    pub use sig_common::addr::IsdAs;
    pub use sig_core::protection::Identity;
}

/// What the tests of this repository reach behind the library. Changes without notice.
#[doc(hidden)]
pub mod internals {
    #[cfg(feature = "xdp")]
    pub use crate::control::host;
    pub use crate::control::{Planner, plan};
}
