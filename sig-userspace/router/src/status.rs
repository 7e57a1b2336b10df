//! What a running router tells about itself: `sig router status`, and the source of its metrics.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// A running router.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// What answers: `router`.
    #[serde(default = "router")]
    pub kind: String,
    /// Version of the program.
    pub version: String,
    /// Name of the router in the topology.
    pub id: String,
    /// ISD-AS.
    pub isd_as: String,
    /// Internal address.
    pub internal: SocketAddr,
    /// Milliseconds since the start.
    pub uptime_ms: u64,
    /// Configurations put into force after the first one.
    pub reloads: u64,
    /// Configurations refused.
    pub reloads_refused: u64,
    /// The fast path; absent if it is switched off.
    pub fast_path: Option<FastPath>,
    /// Whether the sockets of the slow path are ours.
    pub slow_path: bool,
    /// The AS's inside, then the links of this router by number.
    pub interfaces: Vec<Interface>,
    /// The other routers of the AS.
    pub siblings: Vec<Sibling>,
    /// Instances of services that packets are delivered to.
    pub services: Vec<Service>,
}

/// [`Status::kind`], also of documents that do not have it yet.
fn router() -> String {
    Status::KIND.to_owned()
}

impl Status {
    /// What [`Status::kind`] is.
    pub const KIND: &str = "router";
}

/// The fast path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FastPath {
    /// Devices with the program.
    pub devices: Vec<Device>,
    /// CPUs that packets are spread over; empty: each is handled where it comes in.
    pub cpus: Vec<u32>,
    /// Packets that were lost on the way to these CPUs, because a queue was full; those on that way count as well.
    #[serde(default)]
    pub not_taken: u64,
}

/// A device with the program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its index.
    pub ifindex: u32,
    /// `native` or `generic`.
    pub mode: String,
    /// Whether packets leave by it without the kernel's help.
    pub transmits: bool,
    /// Packets that it could not send since the start, as far as its driver counts them.
    #[serde(default)]
    pub not_sent: u64,
}

/// The inside or a link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interface {
    /// SCION interface; 0: the inside.
    pub interface: u16,
    /// The AS at the other end; of the inside, the own one.
    pub neighbour: String,
    /// What kind of AS that is: `core`, `parent`, `child` or `peer`; empty for the inside.
    pub link_type: String,
    /// Our end in the underlay.
    pub local: SocketAddr,
    /// The other end.
    pub remote: Option<SocketAddr>,
    /// Whether packets may leave by it.
    pub up: bool,
    /// The BFD session, if there is one.
    pub bfd: Option<Bfd>,
    /// Link-layer address of the other end or of the router before it, if the fast path knows it.
    pub next_hop_mac: Option<String>,
    /// Why it does not.
    pub problem: Option<String>,
    /// Packets by what they were: see [`Traffic`].
    pub traffic: Vec<Traffic>,
    /// Packets that came in here and were more than plainly forwarded; reasons without a packet are left out.
    pub reasons: Vec<Reason>,
}

/// Packets of a kind: `input`, or sent as `in`, `out`, `in_transit`, `out_transit`, `br_transit`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// The kind.
    pub kind: String,
    /// By size class: below 64 bytes, then one for each power of two; the last one holds all the rest.
    pub sizes: Vec<Count>,
}

/// Packets and bytes of SCION.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Packets that were more than plainly forwarded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    /// Name of the reason.
    pub reason: String,
    /// Left to the slow path by the fast path, or dropped by it.
    pub fast: u64,
    /// Worked on by the slow path.
    pub slow: u64,
    /// Those of both that went nowhere and were not answered.
    pub dropped: u64,
}

/// A BFD session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bfd {
    /// `up`, `init`, `down` or `admin-down`.
    pub state: String,
    /// How often that changed.
    pub changes: u64,
    /// It is up, but was down too often lately to be used yet.
    #[serde(default)]
    pub flaps: bool,
    /// Packets sent.
    pub sent: u64,
    /// Packets received.
    pub received: u64,
}

/// Another router of the AS.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sibling {
    /// Name in the topology.
    pub name: String,
    /// Internal address.
    pub internal: SocketAddr,
    /// Its interfaces.
    pub interfaces: Vec<u16>,
    /// Whether it is within reach.
    pub up: bool,
    /// The BFD session, if there is one.
    pub bfd: Option<Bfd>,
    /// Link-layer address of it or of the router before it, if the fast path knows it.
    pub next_hop_mac: Option<String>,
    /// Why it does not.
    pub problem: Option<String>,
}

/// Instances of a service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Service {
    /// `CS` or `DS`.
    pub service: String,
    /// Where they are.
    pub instances: Vec<SocketAddr>,
}

impl Interface {
    /// Packets and bytes of a kind, all sizes together.
    #[must_use]
    pub fn total(&self, kind: &str) -> Count {
        let sizes = self.traffic.iter().filter(|traffic| traffic.kind == kind);
        sizes
            .flat_map(|traffic| &traffic.sizes)
            .fold(Count::default(), |sum, count| Count {
                packets: sum.packets.saturating_add(count.packets),
                bytes: sum.bytes.saturating_add(count.bytes),
            })
    }

    /// Packets and bytes that left by it.
    #[must_use]
    pub fn sent(&self) -> Count {
        let kinds = self.traffic.iter().filter(|traffic| traffic.kind != INPUT);
        kinds.fold(Count::default(), |sum, traffic| {
            let count = self.total(&traffic.kind);
            Count {
                packets: sum.packets.saturating_add(count.packets),
                bytes: sum.bytes.saturating_add(count.bytes),
            }
        })
    }

    /// The name in metrics, as the reference has it.
    #[must_use]
    pub fn label(&self) -> String {
        match self.interface {
            0 => "internal".to_owned(),
            number => number.to_string(),
        }
    }
}

/// [`Traffic::kind`] of what was received.
pub const INPUT: &str = "input";

/// Names of [`sig_common::router::maps::Traffic`], in the order of its numbers; those that are sent as the reference has
/// them.
pub const KINDS: [&str; sig_common::router::maps::Traffic::ALL.len()] = [
    INPUT,
    "in",
    "out",
    "in_transit",
    "out_transit",
    "br_transit",
];

/// Names of the size classes, as the reference has them.
pub const SIZES: [&str; sig_common::router::maps::SIZE_CLASSES as usize] = [
    "0_63",
    "64_127",
    "128_255",
    "256_511",
    "512_1023",
    "1024_2047",
    "2048_4095",
    "4096_8191",
    "8192_inf",
];
