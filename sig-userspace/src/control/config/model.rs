//! The configuration as the gateway uses it: resolved, checked, every default filled in.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use ipnet::IpNet;
use sig_common::{addr::IsdAs, wire::scion::path::ScionPath};

use super::discovery::{DEFAULT_DAEMON, DEFAULT_TRAFFIC_POLICY, Discovery, Rpc};
use super::protection::General;
use super::sections::{DEFAULT_CTRL_PORT, DEFAULT_PROBE_PORT, Dataplane, Gateway, Tunnel};
use sig_core::document::common::{Log, Observe};
use sig_core::network::Description;
use sig_core::problem::Problem;
use sig_core::protection::Identity;
use sig_core::scion::{self, Interface, expires_at};

/// A whole, valid configuration. Made by [`Config::builder`], [`check`](super::check) or [`load`](super::load).
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
    /// Section `[rpc]`.
    pub rpc: Rpc,
    /// Section `[control]`.
    pub discovery: Discovery,
    /// Section `[protection]`.
    pub protection: Protection,
}

impl Default for Control {
    /// Returns the defaults of the configuration file.
    fn default() -> Self {
        let unspecified = |port| SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
        Control {
            daemon: DEFAULT_DAEMON.into(),
            ctrl_addr: unspecified(DEFAULT_CTRL_PORT),
            probe_addr: unspecified(DEFAULT_PROBE_PORT),
            traffic_policy_file: DEFAULT_TRAFFIC_POLICY.into(),
            traffic_policy_at: WrittenAt::default(),
            ip_routing_policy_file: None,
            ip_routing_policy_at: WrittenAt::default(),
            rpc: Rpc::default(),
            discovery: Discovery::default(),
            protection: Protection::default(),
        }
    }
}

/// Which frames to and from remotes are protected: `[protection]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Protection {
    /// What holds for all remotes.
    pub general: General,
    /// What holds for remotes of an AS: `[[protection.remote]]`.
    pub remotes: BTreeMap<IsdAs, RemoteProtection>,
}

impl Protection {
    /// What holds for remotes of this AS.
    #[must_use]
    pub fn of(&self, isd_as: IsdAs) -> RemoteProtection {
        let written = self.remotes.get(&isd_as).cloned();
        written.unwrap_or_else(|| RemoteProtection {
            mode: self.general.mode,
            pins: Vec::new(),
        })
    }

    /// Whether frames that are not protected are refused somewhere.
    pub(crate) fn requires(&self) -> bool {
        let of_remotes = self.remotes.values().any(RemoteProtection::requires);
        self.general.mode == ProtectionMode::Require || of_remotes
    }
}

/// See [`Protection`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteProtection {
    /// Whether frames are protected. Default: that of `[protection]`.
    pub mode: ProtectionMode,
    /// Who the gateways of the AS are; empty: whoever answers where its control service says that they are.
    pub pins: Vec<Identity>,
}

impl RemoteProtection {
    /// Whether frames that are not protected are refused. A pin would be worth nothing if whoever sits in the middle could do without.
    pub(crate) fn requires(&self) -> bool {
        match self.mode {
            ProtectionMode::Off => false,
            ProtectionMode::Auto => !self.pins.is_empty(),
            ProtectionMode::Require => true,
        }
    }
}

/// Whether frames are protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtectionMode {
    /// With gateways that can.
    Auto,
    /// Nothing else is sent or taken.
    Require,
    /// Never.
    Off,
}

impl ProtectionMode {
    /// The word in files and in the status.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Require => "require",
            Self::Off => "off",
        }
    }
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

/// Whether XDP programs send and deliver simple packets without a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FastPathUse {
    /// Where that is better.
    Auto,
    /// Wherever they can.
    On,
    /// Never.
    Off,
}

/// How frames reach the border routers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnderlayPort {
    /// By AF_XDP where that is possible.
    Auto,
    /// By AF_XDP, or the gateway does not start.
    Xdp,
    /// By UDP sockets.
    Socket,
}

/// What the tunnel device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TunnelDevice {
    /// A veth pair where BPF is permitted.
    Auto,
    /// A veth pair with an XDP program.
    Veth,
    /// A TUN device.
    Tun,
}

/// How much something is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preference {
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
    /// Returns a remote gateway without prefixes and paths, to add them to. Port 0 of `gateway` stands for 30056.
    #[must_use]
    pub fn new(isd_as: IsdAs, gateway: SocketAddr) -> Self {
        Remote {
            isd_as,
            gateway,
            session: 0,
            prefixes: Vec::new(),
            paths: Vec::new(),
        }
    }

    /// Adds IP prefixes that are behind it.
    #[must_use]
    pub fn prefixes(mut self, prefixes: impl IntoIterator<Item = IpNet>) -> Self {
        self.prefixes.extend(prefixes);
        self
    }

    /// Adds a way to it.
    #[must_use]
    pub fn path(mut self, path: impl Into<Path>) -> Self {
        self.paths.push(path.into());
        self
    }

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
    /// Returns the path with this header, of type SCION (PathMeta, info and hop fields in network byte order, CurrINF and
    /// CurrHF 0), or the empty one within the own AS if there are no bytes. `mtu` is that of [`Path::mtu`].
    #[must_use]
    pub fn new(raw: impl Into<Vec<u8>>, next_hop: SocketAddr, mtu: u16) -> Self {
        Path {
            name: String::new(),
            raw: raw.into(),
            made: None,
            next_hop,
            mtu,
            source_port: 0,
        }
    }

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
    /// How old it is when it is made, in seconds: 0 but in tests.
    pub(crate) age: u32,
}

/// One way to a remote gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    /// Name in logs and in the status. Default, to which an empty one is set: its number within the remote, counted from 0.
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
    /// Source port of the frames, in the underlay and in UDP/SCION. Default, to which 0 is set: the port of `data_addr`.
    pub source_port: u16,
}

impl From<scion::Path> for Path {
    /// Takes header, next hop and MTU of a path that the SCION daemon gave or that was made of a network's keys.
    fn from(path: scion::Path) -> Self {
        Path::new(&*path.raw, path.next_hop, path.mtu)
    }
}
