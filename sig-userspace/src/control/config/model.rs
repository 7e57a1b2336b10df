//! The configuration as the gateway uses it: resolved, checked, every default filled in.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use sig_common::{addr::IsdAs, wire::scion::path::ScionPath};

use crate::document::common::{Log, Observe, XdpMode};
use crate::network::Description;
use crate::peer::{PeerLimits, RpcProtocols, UnderlaySources};
use crate::problem::Problem;
use crate::scion::{Interface, expires_at};

/// A whole, valid configuration. Made by [`check`](super::check) or [`load`](super::load).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Section `[log.console]`.
    pub log: Log,
    /// Section `[gateway]`.
    pub gateway: Gateway,
    /// Section `[tunnel]`.
    pub tunnel: Tunnel,
    /// Section `[dataplane]`.
    pub dataplane: Dataplane,
    /// The `[[remote]]` sections, in the order of the file.
    pub remotes: Vec<Remote>,
    /// How remotes are found; `None` when the file names them in `[[remote]]` sections.
    pub control: Option<Control>,
    /// Where operators and their programs look.
    pub observe: Observe,
    pub(super) warnings: Vec<Problem>,
}

impl Config {
    /// What works but deserves a look: keys without effect, prefixes that shadow each other, a
    /// gateway without remotes. In the order of the file's lines.
    pub fn warnings(&self) -> &[Problem] {
        &self.warnings
    }

    /// Number of paths of all remotes.
    pub fn path_count(&self) -> usize {
        self.remotes.iter().map(|r| r.paths.len()).sum()
    }
}

/// Finding remotes, their prefixes and paths: sections `[gateway]`, `[sciond_connection]`, `[rpc]` and
/// `[control]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Control {
    /// The SCION daemon's gRPC server, `host:port`. Default `127.0.0.1:30255`.
    pub daemon: String,
    /// Where remote gateways ask for our prefixes (QUIC). An unspecified address: to be found out with the
    /// daemon's help.
    pub ctrl_addr: SocketAddr,
    /// Where session probes arrive. An unspecified address: that of `ctrl_addr`.
    pub probe_addr: SocketAddr,
    /// Remote ASes, their static prefixes and policies (JSON). Default `/etc/scion/traffic.policy`.
    pub traffic_policy_file: PathBuf,
    /// Where that is written.
    pub traffic_policy_at: WrittenAt,
    /// Which prefixes are advertised and accepted; `None`: none.
    pub ip_routing_policy_file: Option<PathBuf>,
    /// Where that is written.
    pub ip_routing_policy_at: WrittenAt,
    /// RPC variants we speak as a client. Default all.
    pub client_protocol: RpcProtocols,
    /// RPC variants we answer. Default all.
    pub server_protocol: RpcProtocols,
    /// Who listens on the end host port 30041. Default `auto`.
    pub endhost_port: EndhostPort,
    /// How often a path in use is probed. Default 200 ms.
    pub probe_interval: Duration,
    /// A path in use without an answer for this long is dead (longer if its round trip time is). Default 600 ms.
    pub probe_timeout: Duration,
    /// How long a better path must have been alive and better before it replaces one in use. Default 5 s.
    pub switch_delay: Duration,
    /// Whether default routes that remotes announce are learned. Default accept.
    pub default_route: DefaultRoute,
    /// How often the daemon is asked for paths. Default 10 s; the environment variable
    /// `SCION_EXPERIMENTAL_GATEWAY_PATH_UPDATE_INTERVAL` overrides it.
    pub path_interval: Duration,
    /// What peers can make us keep.
    pub limits: PeerLimits,
}

/// What becomes of a default route, or of another prefix shorter than /8, that a remote AS announces and the
/// routing policy accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultRoute {
    /// It is learned, as by the reference.
    Accept,
    /// It is refused and counted.
    Refuse,
}

/// Where in a file something is written. All places are equal, because a key that moves changes nothing.
#[derive(Debug, Clone, Default)]
pub struct WrittenAt {
    /// The file, as the user named it.
    pub file: String,
    /// Line, counted from 1; that of the section if the key is not written.
    pub line: usize,
    /// Dotted path of the key.
    pub key: String,
}

impl PartialEq for WrittenAt {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for WrittenAt {}

/// Who listens on the end host port 30041 of the gateway's address, where border routers deliver what is for
/// ports outside of the AS's dispatched range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndhostPort {
    /// We do, unless another program does.
    Auto,
    /// We do, or the gateway does not start.
    Own,
    /// Another program does and relays what is ours.
    Shared,
}

/// The gateway itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gateway {
    /// Name of this gateway in logs and file names. Default `gateway`.
    pub id: String,
    /// The AS the gateway stands in; no wildcard, except that 0-0 stands for "the daemon knows" where
    /// [`Config::control`] is set.
    pub isd_as: IsdAs,
    /// Where SIG frames arrive: address on the underlay interface and UDP/SCION port (default
    /// 30056). Also the source address of our own frames. An unspecified address where
    /// [`Config::control`] is set: that of [`Control::ctrl_addr`].
    pub data_addr: SocketAddr,
    /// IP prefixes served here: packets from remotes are accepted only towards them. Canonical. Prefixes that
    /// the routing policy advertises are served as well.
    pub prefixes: Vec<IpNet>,
    /// Unix socket that `sig status` asks. Default `/run/sig/<id>.sock`.
    pub status_socket: PathBuf,
}

/// The tunnel device for whatever the kernel routes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tunnel {
    /// Interface name, at most 15 bytes. Default `sig`.
    pub name: String,
    /// MTU of the tunnel device in bytes. Default 1500.
    pub mtu: u16,
    /// Routing table of the routes into the tunnel. Default 254, `main`.
    pub table: u32,
    /// Preferred source address of the kernel's IPv4 routes into the tunnel.
    pub src_ipv4: Option<Ipv4Addr>,
    /// Preferred source address of the kernel's IPv6 routes into the tunnel.
    pub src_ipv6: Option<Ipv6Addr>,
}

/// Interfaces, threads and memory of the data plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dataplane {
    /// Interface on the SCION side; `None`: the one that carries the address of `data_addr`.
    pub underlay: Option<String>,
    /// Which underlay addresses may bring frames of remotes. Default `routers`.
    pub underlay_sources: UnderlaySources,
    /// Interfaces on the IP side. May be empty: then only the kernel's routes feed the tunnel.
    pub lan: Vec<String>,
    /// How decapsulated packets reach the hosts. Default `auto`.
    pub lan_transmit: LanTransmit,
    /// Number of worker threads. Default 1.
    pub workers: u16,
    /// How the XDP programs are attached. Default `auto`.
    pub mode: XdpMode,
    /// Whether packets reach user space without a copy. Default `auto`.
    pub zero_copy: Wish,
    /// Descriptors of each AF_XDP ring; a power of two. Default 2048.
    pub ring_size: u32,
    /// Number of 4096-byte packet buffers; `None`: what rings and workers need.
    pub chunks: Option<u32>,
    /// Whether the packet buffers lie in huge pages. Default `auto`.
    pub huge_pages: Wish,
    /// Workers spin instead of sleeping when idle. Default false.
    pub busy_poll: bool,
    /// Which CPU runs which worker. Default `auto`.
    pub pin: Pin,
    /// Check the UDP/SCION checksum of received frames. Default true.
    pub verify_checksums: bool,
    /// Frames of a stream held back while an earlier one is missing; 0 switches waiting off.
    /// Default 32.
    pub reorder_frames: u16,
    /// Longest time a frame is held back for an earlier one. Default 1 ms.
    pub reorder_wait: Duration,
    /// Memory limits of the reassembly.
    pub limits: Limits,
}

/// How decapsulated packets reach the hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LanTransmit {
    /// Straight from the worker to a known neighbour on a LAN interface; otherwise as with `Helper`.
    Auto,
    /// Through the tunnel device and the BPF program behind it, which asks the kernel.
    Helper,
    /// Through the tunnel device and up the kernel's stack, netfilter included.
    Kernel,
}

/// How much something is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// Used where it is available.
    Auto,
    /// Not used.
    Never,
    /// Used, or the gateway does not start.
    Require,
}

/// Placement of the worker threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pin {
    /// Worker *i* on the *i*-th CPU the process may use.
    Auto,
    /// The scheduler decides.
    Never,
    /// Worker *i* on the *i*-th CPU of the list, which is as long as there are workers.
    Cpus(Vec<u16>),
}

/// Limits of the reassembly, per worker. All memory is allocated at start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Streams of one remote known at the same time. Default 256.
    pub streams_per_remote: u32,
    /// Streams known at the same time. Default 4096.
    pub streams_total: u32,
    /// Packets of one remote being put together at the same time. Default 64.
    pub packets_per_remote: u32,
    /// Packets being put together at the same time. Default 512.
    pub packets_total: u32,
    /// Frames of one remote held back for an earlier one at the same time. Default 128.
    pub held_per_remote: u32,
    /// Frames held back for an earlier one at the same time. Default 1024.
    pub held_total: u32,
    /// How long the rest of a packet is waited for. Default 1 s.
    pub packet_timeout: Duration,
    /// How long a silent stream is remembered. Default 60 s.
    pub stream_timeout: Duration,
}

/// A remote gateway that is configured here instead of being discovered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    /// The AS it stands in; no wildcard.
    pub isd_as: IsdAs,
    /// SCION host address and UDP/SCION port of its data plane (default 30056).
    pub gateway: SocketAddr,
    /// Session number written into the frames sent to it. Default 0.
    pub session: u8,
    /// IP prefixes behind it: where packets are sent to and accepted from. Canonical.
    pub prefixes: Vec<IpNet>,
    /// Ways to it; flows are spread over all of them.
    pub paths: Vec<Path>,
}

impl Remote {
    /// Size in bytes of the SCION address header of frames from `local` to this remote.
    pub fn address_header_len(&self, local: IpAddr) -> usize {
        16 + ip_len(local) + ip_len(self.gateway.ip())
    }

    /// Size in bytes of the largest SIG frame, with its 16-byte header, that fits `path` from
    /// `local`.
    pub fn frame_len(&self, local: IpAddr, path: &Path) -> usize {
        usize::from(path.mtu)
            .saturating_sub(12 + self.address_header_len(local) + path.raw.len() + 8)
    }
}

fn ip_len(ip: IpAddr) -> usize {
    if ip.is_ipv4() { 4 } else { 16 }
}

impl Path {
    /// When its first hop field expires, seconds since 1970; `None` if it never does, or is made anew in time.
    #[must_use]
    pub fn expires_at(&self) -> Option<u64> {
        if self.made.is_some() {
            return None;
        }
        expires_at(&ScionPath::new_checked(&self.raw).ok()?)
    }
}

/// What a path is made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// The description of the network, as the configuration names its file.
    pub file: PathBuf,
    /// What it says.
    pub description: Arc<Description>,
    /// The AS where the path begins.
    pub from: IsdAs,
    /// The AS where it ends.
    pub to: IsdAs,
    /// Interfaces that it goes through. The shortest path that does so is taken.
    pub via: Vec<Interface>,
}

/// One way to a remote gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    /// Name in logs and in the status. Default: its number within the remote, counted from 0.
    pub name: String,
    /// The SCION path header (PathMeta, info and hop fields in network byte order, CurrINF and
    /// CurrHF 0), sent unchanged. Empty: path type 0, within the own AS. Of a path that is made here: as
    /// made at time 0.
    pub raw: Vec<u8>,
    /// How the path is made, and made anew before it expires; `None`: the file has its bytes.
    pub made: Option<Made>,
    /// Underlay address of the border router, or of the remote gateway for an empty path.
    pub next_hop: SocketAddr,
    /// Largest SCION packet in bytes: SCION header and payload, without the underlay's headers.
    pub mtu: u16,
    /// Source port of the frames, in the underlay and in UDP/SCION. Default: the port of
    /// `data_addr`.
    pub source_port: u16,
}
