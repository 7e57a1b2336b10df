//! What a running gateway tells about itself: the document of the status socket.
//!
//! The gateway answers each connection to its status socket with one [`Status`] in JSON and closes
//! it. Counters count from the start of the process.

pub mod srv6;

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    dataplane::counters::WorkerCounts,
    peer::GatewayAddresses,
    port::{Counts, Role},
    scion::SocketCounts,
};

/// State of a gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// What answers: `gateway`.
    #[serde(default = "gateway")]
    pub kind: String,
    /// Version of the program.
    pub version: String,
    /// Name of the gateway, `[gateway] id`.
    pub id: String,
    /// The AS it stands in, as text.
    pub isd_as: String,
    /// Where its SIG frames arrive.
    pub data_addr: SocketAddr,
    /// IP prefixes served here.
    pub prefixes: Vec<IpNet>,
    /// Milliseconds since the start.
    pub uptime_ms: u64,
    /// Reloads of the configuration that took effect.
    #[serde(default)]
    pub reloads: u64,
    /// Those that did not, since a file was wrong, or not in whole.
    #[serde(default)]
    pub reloads_refused: u64,
    /// It is draining: no prefixes are advertised, no kernel routes lead into the tunnel. What comes is carried.
    #[serde(default)]
    pub draining: bool,
    /// The worker threads, in the order of their numbers.
    pub workers: Vec<Worker>,
    /// The interfaces with AF_XDP sockets.
    pub ports: Vec<Port>,
    /// Who may bring frames on the underlay.
    #[serde(default)]
    pub underlay: Underlay,
    /// How packets from remotes reach the hosts.
    pub lan: Lan,
    /// The fast path in the kernel.
    #[serde(default)]
    pub fast_path: FastPath,
    /// What is done with packets beside carrying them.
    #[serde(default)]
    pub rules: Vec<Rule>,
    /// The SR node that chains are made of, as `sig srv6 status` shows one.
    #[serde(default)]
    pub chains: Option<srv6::Status>,
    /// The sessions with remote gateways.
    pub remotes: Vec<Remote>,
    /// What the control plane knows; `None` when the configuration names the remotes.
    #[serde(default)]
    pub control: Option<Control>,
    /// Sums over all workers.
    pub counters: Counters,
    /// The AF_XDP sockets: one per worker, interface and queue.
    #[serde(default)]
    pub queues: Vec<Queue>,
    /// What the BPF programs did with packets.
    #[serde(default)]
    pub verdicts: Vec<Verdict>,
    /// Reasons for which anything was dropped; those with a count of 0 are left out.
    pub drops: Vec<Drop>,
}

/// [`Status::kind`], also of documents that do not have it yet.
fn gateway() -> String {
    Status::KIND.to_owned()
}

impl Status {
    /// What [`Status::kind`] is.
    pub const KIND: &str = "gateway";

    /// Everything dropped, for any reason and at any place.
    pub fn dropped(&self) -> u64 {
        self.drops
            .iter()
            .fold(0, |sum, drop| sum.saturating_add(drop.count))
    }
}

/// What XDP programs send and deliver without a worker. Counted in [`Counters`] as well.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FastPath {
    /// Whether packets take it.
    pub on: bool,
    /// What does not take it, and why.
    pub problems: Vec<String>,
    /// IP packets sent to remotes.
    pub packets_sent: u64,
    /// Their bytes.
    pub packet_bytes_sent: u64,
    /// IP packets from remotes sent to the LAN.
    pub packets_delivered: u64,
    /// Their bytes.
    pub packet_bytes_delivered: u64,
}

/// A rule, and what it held for in a worker. Packets that a rule accepts take the fast path as well, where it does not hold again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Its name.
    pub name: String,
    /// Which packets.
    pub class: String,
    /// What is done with them.
    pub action: String,
    /// By what: the device of copies, the policies of a chain.
    pub target: Option<String>,
    /// IP packets to remotes.
    pub packets_to_remotes: u64,
    /// Their bytes.
    pub packet_bytes_to_remotes: u64,
    /// IP packets from remotes.
    pub packets_from_remotes: u64,
    /// Their bytes.
    pub packet_bytes_from_remotes: u64,
}

/// A worker thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worker {
    /// Its number, counted from 0.
    pub number: u16,
    /// The CPU it is pinned to, if any.
    pub cpu: Option<u16>,
    /// Packets it received on all its sockets.
    pub rx_packets: u64,
    /// Packets it sent on all its sockets.
    pub tx_packets: u64,
    /// What it counted.
    #[serde(flatten)]
    pub counts: WorkerCounts,
}

/// Who may bring frames on the underlay.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Underlay {
    /// Why frames of remotes are taken from any underlay address; `None`: the border routers are known.
    pub unchecked: Option<String>,
    /// Underlay addresses whose frames were refused for it, the last one of each CPU.
    pub refused: Vec<IpAddr>,
}

/// How packets from remotes reach the hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lan {
    /// Neighbours on LAN interfaces that workers send to themselves.
    pub neighbours: u64,
    /// What else is left to the kernel than packets to neighbours that are not known yet, and why.
    pub helped: Vec<String>,
    /// Interfaces of the configuration that are not in service.
    #[serde(default)]
    pub left_out: Vec<LeftOut>,
}

/// A LAN interface that is not in service: the kernel forwards its packets, if it is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Its name.
    pub interface: String,
    /// Why it is not.
    pub reason: String,
}

/// How packets get to a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PortMode {
    /// By an XDP program in the driver.
    Native,
    /// By an XDP program in the kernel's generic receive path.
    Generic,
    /// By UDP sockets.
    Socket,
    /// By a TUN device.
    Tun,
}

impl PortMode {
    /// The word of the JSON document.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Generic => "generic",
            Self::Socket => "socket",
            Self::Tun => "tun",
        }
    }
}

/// An interface with ports of the workers, or UDP sockets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// What it is for.
    pub role: Role,
    /// Interface name; `udp` for UDP sockets.
    pub interface: String,
    /// Of a VLAN device in native mode, the interface below it, where program and sockets are.
    #[serde(default)]
    pub trunk: Option<String>,
    /// Name of the driver, where the kernel tells it.
    pub driver: Option<String>,
    /// How packets get to it.
    pub mode: PortMode,
    /// Whether packets reach the gateway without a copy.
    pub zero_copy: bool,
    /// Number of queues with sockets.
    pub queues: u16,
    /// MTU of the interface in bytes.
    pub mtu: u32,
    /// Whether the link is up.
    pub up: bool,
    /// Packets received from it.
    pub rx_packets: u64,
    /// Packets sent to it.
    pub tx_packets: u64,
}

/// An AF_XDP socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// Number of the worker that owns it.
    pub worker: u16,
    /// What its interface is for.
    pub role: Role,
    /// Interface name.
    pub interface: String,
    /// Number of the receive queue.
    pub queue: u32,
    /// What was counted at it.
    #[serde(flatten)]
    pub counts: Counts,
    /// Packets that the kernel dropped because the receive ring was full: the worker did not keep up.
    pub rx_ring_full: u64,
    /// Packets that the kernel dropped because the fill ring held no buffer for them.
    pub fill_ring_empty: u64,
    /// Packets dropped for another reason, such as their length.
    pub rx_refused: u64,
    /// Entries of the fill ring that the kernel refused.
    pub rx_invalid_descriptors: u64,
    /// Entries of the transmit ring that the kernel refused.
    pub tx_invalid_descriptors: u64,
}

/// What a BPF program did with packets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// What, with the program in front of it, see [`sig_common::maps::Stat::name`].
    pub name: String,
    /// With how many.
    pub packets: u64,
}

/// Frames and packets in one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// SIG frames.
    pub frames: u64,
    /// Their bytes, with the frame headers.
    pub frame_bytes: u64,
    /// Inner packets.
    pub packets: u64,
    /// Their bytes.
    pub packet_bytes: u64,
}

/// A session with a remote gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remote {
    /// The AS it stands in, as text.
    pub isd_as: String,
    /// Its SCION host address and data port.
    pub gateway: SocketAddr,
    /// Session number in the frames sent to it.
    pub session: u8,
    /// Number of the policy among those of the AS.
    #[serde(default)]
    pub policy_id: u32,
    /// Whether the gateway answers, and what was sent to find out; `None` where nobody asks it.
    #[serde(default)]
    pub probing: Option<Probing>,
    /// IP prefixes behind it.
    pub prefixes: Vec<IpNet>,
    /// Ways to it.
    pub paths: Vec<Path>,
    /// SIG frames received from it.
    pub frames_received: u64,
    /// Bytes of these frames, with their headers.
    #[serde(default)]
    pub frame_bytes_received: u64,
    /// Inner packets received from it and delivered.
    pub packets_received: u64,
    /// Their bytes.
    #[serde(default)]
    pub packet_bytes_received: u64,
    /// What was sent to it, also on paths that are gone.
    #[serde(default)]
    pub sent: Traffic,
}

/// Whether a remote gateway answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probing {
    /// Whether it does.
    pub healthy: bool,
    /// Probes sent.
    pub probes: u64,
    /// Answers received.
    pub replies: u64,
    /// Changes between answering and not.
    pub state_changes: u64,
    /// Changes of the paths in use.
    pub path_changes: u64,
    /// Paths that can be used now.
    pub paths_alive: u64,
    /// Paths that do not answer.
    pub paths_timeout: u64,
    /// Paths that the policy excludes.
    pub paths_rejected: u64,
}

/// A path to a remote gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Path {
    /// Its name.
    pub name: String,
    /// Fingerprint of the path, hexadecimal: the same as in [`WatchedPath::fingerprint`].
    #[serde(default)]
    pub fingerprint: String,
    /// Underlay address that its packets are sent to.
    pub next_hop: SocketAddr,
    /// Link-layer address of the next hop, `aa:bb:cc:dd:ee:ff`; `None` while it is not resolved.
    pub next_hop_mac: Option<String>,
    /// Why the path cannot be used; `None` if it can.
    pub problem: Option<String>,
    /// When it expires, seconds since 1970; `None` if it never does.
    #[serde(default)]
    pub expires_at: Option<u64>,
    /// It has expired: nothing is sent on it.
    #[serde(default)]
    pub expired: bool,
    /// Largest SCION packet in bytes.
    pub mtu: u16,
    /// Stream numbers in use on it, one per worker.
    pub streams: Vec<u32>,
    /// SIG frames sent.
    pub frames_sent: u64,
    /// Bytes of the SIG frames sent, with their headers.
    pub bytes_sent: u64,
    /// Inner packets in these frames.
    pub packets_sent: u64,
}

/// What passed through the gateway.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Inner packets taken in for the tunnel and sent.
    pub packets_sent: u64,
    /// Their bytes.
    pub packet_bytes_sent: u64,
    /// SIG frames they were sent in.
    pub frames_sent: u64,
    /// Bytes of these frames, with their headers.
    pub frame_bytes_sent: u64,
    /// SIG frames received from remotes.
    pub frames_received: u64,
    /// Bytes of these frames, with their headers.
    pub frame_bytes_received: u64,
    /// Inner packets completed from these frames and delivered.
    pub packets_received: u64,
    /// Their bytes.
    pub packet_bytes_received: u64,
    /// What else the workers counted.
    #[serde(flatten)]
    pub counts: WorkerCounts,
}

/// Where something was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DropPlace {
    /// By an XDP or TC program.
    Kernel,
    /// By a worker.
    Engine,
}

impl DropPlace {
    /// The word of the JSON document.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Engine => "engine",
        }
    }
}

/// How often something was dropped for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drop {
    /// Name of the reason, see [`sig_common::reason::DropReason::name`].
    pub reason: String,
    /// Where.
    pub place: DropPlace,
    /// How often.
    pub count: u64,
}

/// What the control plane knows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Control {
    /// The SCION daemon.
    pub daemon: Daemon,
    /// Where remote gateways ask for prefixes.
    pub ctrl_addr: String,
    /// Where session probes arrive.
    pub probe_addr: String,
    /// Who listens on the end host port: `own`, `shared` or `none`.
    pub endhost_port: String,
    /// What other gateways know this one by, for their pins.
    #[serde(default)]
    pub identity: String,
    /// Prefixes advertised, per AS that they are advertised to or that asked for them.
    pub advertised: Vec<Advertised>,
    /// The IP routing policy in force, in the form of its file.
    pub routing_policy: String,
    /// What the traffic policy says, per AS and policy.
    #[serde(default)]
    pub policies: Vec<SessionPolicy>,
    /// Remote ASes.
    pub ases: Vec<RemoteAs>,
    /// Prefixes with the same destination and rules.
    pub sites: Vec<Site>,
    /// Prefixes that several ASes have.
    #[serde(default)]
    pub contested: Vec<Contested>,
    /// The control plane's SCION sockets.
    pub sockets: SocketCounts,
    /// Counts of refused input of peers, by reason; reasons without any are left out.
    pub refused: Vec<Refused>,
}

/// What the traffic policy says about one class of traffic to an AS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionPolicy {
    /// The AS, as text.
    pub isd_as: String,
    /// Number of the policy among those of the AS.
    pub id: u32,
    /// Which packets, in the JSON form of conditions; `true`: all.
    pub traffic_matcher: Value,
    /// Which paths, in the JSON form of path policies; `null`: all.
    pub path_policy: Value,
    /// Which of these paths first, in the form of the traffic policy file; `null`: the shortest.
    pub perf_policy: Value,
    /// How many paths are used at the same time.
    pub path_count: u32,
    /// Prefixes of the traffic policy file.
    pub prefixes: Vec<IpNet>,
}

/// The SCION daemon as we see it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Daemon {
    /// Its address.
    pub address: String,
    /// Whether the last request was answered.
    pub reachable: bool,
    /// Why not.
    pub problem: Option<String>,
    /// Requests sent.
    pub requests: u64,
    /// Requests that failed.
    pub failures: u64,
    /// Paths in its answers that could not be used.
    #[serde(default)]
    pub paths_skipped: u64,
}

/// Prefixes advertised to an AS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advertised {
    /// The AS.
    pub isd_as: String,
    /// The prefixes, in the order of the policy.
    pub prefixes: Vec<IpNet>,
    /// How often it asked.
    pub requests: u64,
}

/// A remote AS.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteAs {
    /// The AS, as text.
    pub isd_as: String,
    /// Prefixes of the traffic policy file.
    pub static_prefixes: Vec<IpNet>,
    /// Its gateways, as its control service lists them.
    pub gateways: Vec<DiscoveredGateway>,
    /// Milliseconds since the last successful discovery.
    pub discovered_ms_ago: Option<u64>,
    /// Why the last discovery failed.
    pub discovery_problem: Option<String>,
    /// Discoveries that failed.
    pub discovery_errors: u64,
    /// Changes of the list of gateways.
    pub gateway_changes: u64,
    /// Paths to it.
    pub paths: Vec<WatchedPath>,
    /// Path probes sent.
    pub probes_sent: u64,
    /// Answers to path probes.
    pub probes_received: u64,
    /// Path probes that could not be sent.
    pub probe_send_errors: u64,
    /// Why the daemon tells no paths.
    pub paths_problem: Option<String>,
    /// Requests for prefixes that failed, also to gateways that are gone.
    #[serde(default)]
    pub fetch_errors: u64,
}

/// A gateway of a remote AS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscoveredGateway {
    /// Its addresses.
    #[serde(flatten)]
    pub addresses: GatewayAddresses,
    /// Prefixes accepted from it.
    pub accepted: Vec<IpNet>,
    /// How many announced prefixes yielded something accepted.
    pub prefixes_accepted: u64,
    /// How many announced prefixes were refused.
    pub prefixes_rejected: u64,
    /// Milliseconds since its last answer.
    pub fetched_ms_ago: Option<u64>,
    /// When that was, seconds since 1970.
    pub fetched_at: Option<u64>,
    /// Why the last request failed.
    pub fetch_problem: Option<String>,
    /// Requests that failed.
    pub fetch_errors: u64,
    /// Whether frames to and from it are protected.
    #[serde(default)]
    pub protection: Protection,
}

/// The protection of frames to and from a gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Protection {
    /// As configured: `auto`, `require` or `off`.
    pub mode: String,
    /// Whether its identity is pinned.
    pub pinned: bool,
    /// Who it has proven to be; empty: nobody yet.
    pub identity: String,
    /// Whether frames to it are protected.
    pub sends: bool,
    /// Whether protected frames have come from it.
    pub receives: bool,
    /// Whether frames from it that are not protected are refused.
    pub strict: bool,
    /// Age of the key for frames to it, seconds.
    pub key_age_s: Option<u64>,
    /// Why frames to it are not protected; empty if they are.
    pub problem: String,
}

/// A path to a remote AS under observation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchedPath {
    /// Fingerprint, hexadecimal.
    pub fingerprint: String,
    /// Hops, MTU and next hop as the reference prints them.
    pub text: String,
    /// Largest SCION packet in bytes, as announced or as found out.
    pub mtu: u16,
    /// When it expires, seconds since 1970.
    pub expires_at: Option<u64>,
    /// Whether its probes are answered.
    pub alive: bool,
    /// Whether an interface on it was reported down.
    pub revoked: bool,
    /// Mean round trip time to the last router, microseconds.
    pub latency_us: Option<u64>,
    /// Mean deviation of the round trip time, microseconds.
    pub jitter_us: Option<u64>,
    /// Probes of the last minute without an answer, parts per million.
    pub loss_ppm: Option<u32>,
    /// Sessions that send on it (their numbers).
    pub used_by: Vec<u8>,
    /// Sessions whose policy excludes it (their numbers).
    #[serde(default)]
    pub rejected_by: Vec<u8>,
}

/// A prefix that several ASes announce or have by the traffic policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contested {
    /// The prefix.
    pub prefix: IpNet,
    /// The AS that packets to it go to.
    pub isd_as: String,
    /// The others: the next best takes over when that one has no session any more.
    pub others: Vec<String>,
}

/// Prefixes with the same destination and rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// The AS behind which they are.
    pub isd_as: String,
    /// The prefixes.
    pub prefixes: Vec<IpNet>,
    /// Whether the kernel has routes for them.
    pub exported: bool,
    /// Traffic classes, in the order in which they are tried.
    pub classes: Vec<SiteClass>,
}

/// A traffic class of a site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteClass {
    /// Number of the class of this site, the `routing_chain_id` of the metrics.
    pub id: u32,
    /// Its condition.
    pub condition: String,
    /// Sessions that may carry it, best first (their numbers).
    pub sessions: Vec<u8>,
    /// The one that does.
    pub current: Option<u8>,
    /// How many of them are up.
    pub alive: u64,
    /// Changes of the current session.
    pub session_changes: u64,
    /// Changes between having a session and having none.
    pub state_changes: u64,
}

/// Rejected input from peers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The AS it came from, as text.
    pub isd_as: String,
    /// Why, one word in snake case.
    pub reason: String,
    /// How often.
    pub count: u64,
}
