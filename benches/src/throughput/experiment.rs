//! Experiments: what is measured, how, with which packets.

mod behavior;
pub mod plan;
pub mod read;

pub use behavior::Behavior;
pub use plan::{Algorithm, Experiment};

use std::fmt;

use serde::{Deserialize, Serialize};

/// Lengths of the inner IP packets, header included, in bytes. An Ethernet frame on the wire has 18 more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged, expecting = "a length in bytes, such as 100, or \"imix\"")]
pub enum Size {
    /// All of this length.
    Fixed(u16),
    /// A mix.
    Mix(Mix),
}

impl Default for Size {
    fn default() -> Self {
        Self::Fixed(100)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Size::Fixed(bytes) => write!(f, "{bytes} B"),
            Size::Mix(Mix::Imix) => f.write_str("IMIX"),
        }
    }
}

/// Mixes of packet lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mix {
    /// The simple Internet mix: of twelve packets seven of 44 (40 is too short for sequence number and time), four of 576 and one of 1500 bytes.
    Imix,
}

/// Family of the inner packets.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// IPv4.
    #[default]
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// Where the parts of a single device under test run.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// The receive side (driver, XDP) runs in the generator's softirq on its CPU, the forwarding thread alone
    /// on the device's CPU. A closed loop: best for comparisons.
    #[default]
    Split,
    /// Everything of the device under test, receive side included, on the device's CPU.
    SingleCore,
}

/// CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cpus {
    /// Of the generator, and of the sink.
    pub tester: u16,
    /// Of the device under test.
    pub device: u16,
}

impl Default for Cpus {
    fn default() -> Self {
        Cpus {
            tester: 0,
            device: 1,
        }
    }
}

/// One cell of an experiment: everything that a subject needs to know to be set up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// Lengths of inner packets.
    pub size: Size,
    /// Their family.
    pub family: Family,
    /// Flows (source ports) that take turns.
    pub flows: u16,
    /// Whether several inner packets share a SIG frame (decapsulation: how the generator makes frames; encapsulation:
    /// whether neighbouring packets have the same traffic class).
    pub packed: bool,
    /// Workers of the gateway.
    pub workers: u16,
    /// Where parts run.
    pub layout: Layout,
    /// On which CPUs.
    pub cpus: Cpus,
    /// What an SR node is to do; none for other subjects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behavior: Option<Behavior>,
}

impl Case {
    /// The usual case: one flow of packets of this length over IPv4, one per frame and one worker.
    pub fn of(size: u16) -> Self {
        Self {
            size: Size::Fixed(size),
            family: Family::Ipv4,
            flows: 1,
            packed: false,
            workers: 1,
            layout: Layout::Split,
            cpus: Cpus::default(),
            behavior: None,
        }
    }
}

impl fmt::Display for Case {
    /// The size, and what differs from the usual.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.size.fmt(f)?;
        if let Some(behavior) = self.behavior {
            write!(f, ", {behavior}")?;
        }
        if self.family == Family::Ipv6 {
            f.write_str(", IPv6")?;
        }
        if self.flows != 1 {
            write!(f, ", {} flows", self.flows)?;
        }
        if self.packed {
            f.write_str(", packed")?;
        }
        if self.workers != 1 {
            write!(f, ", {} workers", self.workers)?;
        }
        if self.layout == Layout::SingleCore {
            f.write_str(", single core")?;
        }
        Ok(())
    }
}
