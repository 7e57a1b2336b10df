//! What a gateway of the network tells about itself.

use serde::Deserialize;

/// The parts of the document of `sig status --format json` that are looked at here.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Status {
    /// Sums over all workers.
    pub counters: Counters,
    /// Reasons for which anything was dropped.
    pub drops: Vec<Drop>,
    /// Interfaces with AF_XDP sockets.
    pub ports: Vec<Port>,
    /// Worker threads.
    pub workers: Vec<Worker>,
    /// How packets from the other AS reach the client.
    pub lan: Lan,
    /// What takes the fast path in the kernel.
    #[serde(default)]
    pub fast_path: FastPath,
}

/// Packets that no worker saw; the counters have them too.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct FastPath {
    /// Whether there is one.
    pub on: bool,
    /// What does not take it, and why.
    pub problems: Vec<String>,
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets delivered.
    pub packets_delivered: u64,
}

/// What passed through the gateway.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Counters {
    /// Inner packets sent into the tunnel.
    pub packets_sent: u64,
    /// SIG frames they were sent in.
    pub frames_sent: u64,
    /// Their bytes.
    #[serde(default)]
    pub frame_bytes_sent: u64,
    /// SIG frames received.
    pub frames_received: u64,
    /// Inner packets completed from them.
    pub packets_received: u64,
    /// Those of them that the gateway sent straight to their next hop.
    pub packets_straight: u64,
    /// Those of them that it left to the kernel.
    pub packets_via_helper: u64,
    /// Times a frame was missing.
    pub gaps: u64,
}

/// How packets from the other AS reach the client.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Lan {
    /// Hosts that the gateway sends to itself.
    pub neighbours: u64,
    /// What it leaves to the kernel, and why.
    pub helped: Vec<String>,
}

/// Something dropped.
#[derive(Clone, Debug, Deserialize)]
pub struct Drop {
    /// Name of the reason.
    pub reason: String,
    /// `kernel` or `engine`.
    pub place: String,
    /// How often.
    pub count: u64,
}

/// An interface with AF_XDP sockets.
#[derive(Clone, Debug, Deserialize)]
pub struct Port {
    /// `underlay`, `lan` or `tunnel`.
    pub role: String,
    /// Interface name.
    pub interface: String,
    /// `native` or `generic`.
    pub mode: String,
    /// Whether packets reach the gateway without a copy.
    pub zero_copy: bool,
}

/// A worker thread.
#[derive(Clone, Debug, Deserialize)]
pub struct Worker {
    /// Packets it received.
    pub rx_packets: u64,
    /// Packets it sent.
    pub tx_packets: u64,
}

/// Reasons that concern packets of hosts; all others concern SIG frames.
const OF_PACKETS: [&str; 12] = [
    "invalid_packet",
    "inner_source",
    "inner_destination",
    "address_scope",
    "ttl_expired",
    "ecn_drop",
    "no_route",
    "no_session",
    "no_path",
    "packet_too_big",
    "routing_loop",
    "tx_ring_full",
];

impl Status {
    /// How often something was dropped for a reason.
    pub fn dropped(&self, reason: &str) -> u64 {
        let of_reason = self.drops.iter().filter(|drop| drop.reason == reason);
        of_reason.map(|drop| drop.count).sum()
    }

    /// SIG frames dropped, for any reason.
    pub fn frames_discarded(&self) -> u64 {
        let of_frames = |drop: &&Drop| !OF_PACKETS.contains(&drop.reason.as_str());
        self.drops
            .iter()
            .filter(of_frames)
            .map(|drop| drop.count)
            .sum()
    }
}
