//! State of an SR node, alone or within a gateway.

use serde::{Deserialize, Serialize};

/// The status document of an SR node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// [`Status::KIND`].
    pub kind: String,
    /// Version of the program.
    pub version: String,
    /// Name of the node.
    pub id: String,
    /// Milliseconds since the start.
    pub uptime_ms: u64,
    /// What keeps packets from being processed, one line each.
    pub problems: Vec<String>,
    /// Devices that packets come in by.
    pub interfaces: Vec<Interface>,
    /// Local SIDs.
    pub sids: Vec<SidStatus>,
    /// Policies.
    pub policies: Vec<PolicyStatus>,
    /// Functions behind proxies.
    pub functions: Vec<FunctionStatus>,
    /// Rules of the node.
    pub rules: Vec<RuleStatus>,
    /// Copies for mirrors that their devices took.
    pub copies_sent: u64,
    /// Those that they did not take, or that were too many at once.
    pub copies_lost: u64,
    /// Packets that did not go on, or not by themselves, by reason.
    pub refused: Vec<(String, u64)>,
    /// ICMP errors sent.
    pub icmp_sent: u64,
}

/// A device with the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// `native` or `generic`; none while the program does not run there.
    pub xdp: Option<String>,
}

/// A SID.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SidStatus {
    /// Its address.
    pub sid: String,
    /// What it does, as in RFC 8986.
    pub behavior: String,
    /// What it leads to.
    pub target: String,
    /// Packets to it, and their bytes.
    pub packets: u64,
    /// See above.
    pub bytes: u64,
}

/// A policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyStatus {
    /// Its name.
    pub name: String,
    /// In the order of the way.
    pub segments: Vec<String>,
    /// Packets put behind it, and their bytes before.
    pub packets: u64,
    /// See above.
    pub bytes: u64,
}

/// A function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionStatus {
    /// Its name.
    pub name: String,
    /// Whether it is alive.
    pub is_up: bool,
    /// While it is down, why: by link, neighbour or probe.
    pub why_down: Option<String>,
    /// `bypass` or `drop`.
    pub on_failure: String,
    /// Packets that it returned.
    pub packets_returned: u64,
    /// How often the headers of the packets to it changed.
    pub header_changes: u64,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleStatus {
    /// Its name.
    pub name: String,
    /// With the device or policy that it leads to.
    pub action: String,
    /// Packets that it was applied to, and their bytes.
    pub packets: u64,
    /// See above.
    pub bytes: u64,
}

impl Status {
    /// The word of the document.
    pub const KIND: &str = "SR node";
}
