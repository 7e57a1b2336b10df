//! What a running gateway tells about itself: the document of the status socket.
//!
//! The gateway answers each connection to its status socket with one [`Status`] in JSON and closes
//! it. Counters count from the start of the process.

use std::net::SocketAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// State of a gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
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
    /// The worker threads, in the order of their numbers.
    pub workers: Vec<Worker>,
    /// The interfaces with AF_XDP sockets.
    pub ports: Vec<Port>,
    /// How packets from remotes reach the hosts.
    pub lan: Lan,
    /// The remote gateways.
    pub remotes: Vec<Remote>,
    /// Sums over all workers.
    pub counters: Counters,
    /// Reasons for which anything was dropped; those with a count of 0 are left out.
    pub drops: Vec<Drop>,
}

impl Status {
    /// Everything dropped, for any reason and at any place.
    pub fn dropped(&self) -> u64 {
        self.drops
            .iter()
            .fold(0, |sum, drop| sum.saturating_add(drop.count))
    }
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
    /// Packets from remotes that it sent straight to their next hop on a LAN interface.
    pub packets_straight: u64,
    /// Packets from remotes that it left to the kernel, through the tunnel device.
    pub packets_via_helper: u64,
    /// Times it slept because there was nothing to do.
    pub sleeps: u64,
}

/// How packets from remotes reach the hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lan {
    /// Neighbours on LAN interfaces that workers send to themselves.
    pub neighbours: u64,
    /// What else is left to the kernel than packets to neighbours that are not known yet, and why.
    pub helped: Vec<String>,
}

/// What an interface is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PortRole {
    /// SCION side.
    Underlay,
    /// IP side.
    Lan,
    /// Tunnel device, for whatever the kernel routes.
    Inner,
}

impl PortRole {
    /// The word of the JSON document.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Underlay => "underlay",
            Self::Lan => "lan",
            Self::Inner => "inner",
        }
    }
}

/// How the XDP program is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum XdpAttachment {
    /// In the driver.
    Native,
    /// In the kernel's generic receive path.
    Generic,
}

impl XdpAttachment {
    /// The word of the JSON document.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Generic => "generic",
        }
    }
}

/// An interface with AF_XDP sockets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// What it is for.
    pub role: PortRole,
    /// Interface name.
    pub interface: String,
    /// Name of its driver, where the kernel tells it.
    pub driver: Option<String>,
    /// How the XDP program is attached.
    pub mode: XdpAttachment,
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

/// A remote gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remote {
    /// The AS it stands in, as text.
    pub isd_as: String,
    /// Its SCION host address and data port.
    pub gateway: SocketAddr,
    /// Session number in the frames sent to it.
    pub session: u8,
    /// IP prefixes behind it.
    pub prefixes: Vec<IpNet>,
    /// Ways to it.
    pub paths: Vec<Path>,
    /// SIG frames received from it.
    pub frames_received: u64,
    /// Inner packets received from it and delivered.
    pub packets_received: u64,
}

/// A path to a remote gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Path {
    /// Its name.
    pub name: String,
    /// Underlay address that its packets are sent to.
    pub next_hop: SocketAddr,
    /// Link-layer address of the next hop, `aa:bb:cc:dd:ee:ff`; `None` while it is not resolved.
    pub next_hop_mac: Option<String>,
    /// Why the path cannot be used; `None` if it can.
    pub problem: Option<String>,
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
    /// Those of them that went straight to their next hop on a LAN interface.
    pub packets_straight: u64,
    /// Those of them that were left to the kernel, through the tunnel device.
    pub packets_via_helper: u64,
    /// Frames held back for an earlier one.
    pub frames_held: u64,
    /// Times an earlier frame did not come: frames were lost on the way.
    pub gaps: u64,
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
