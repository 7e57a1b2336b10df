//! One interval of load at one rate.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Offered load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// As much as the generator can.
    Max,
    /// Inner packets per second.
    PacketsPerSecond(f64),
}

/// What was sent and what arrived.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Offered rate that was asked for, inner packets per second; none: as much as possible.
    pub target: Option<f64>,
    /// Time over which packets were counted as sent, seconds.
    pub seconds: f64,
    /// Inner packets that the generator sent, by its own count.
    pub sent: u64,
    /// Inner packets that the sink counted.
    pub received: u64,
    /// Of these, those with a sequence number that had arrived before.
    pub duplicates: u64,
    /// Of these, those behind a later one of the same flow.
    pub reordered: u64,
    /// Counters of the device under test and of the devices on the way that changed.
    pub counters: BTreeMap<String, u64>,
    /// CPU seconds by what used them: a process, a thread, `softirq`, `steal`, `other`.
    pub cpu: BTreeMap<String, f64>,
    /// Time from generator to sink.
    pub latency: Option<Latency>,
    /// Whether it counts.
    pub validity: Validity,
}

/// Whether a trial counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "validity", content = "reason")]
pub enum Validity {
    /// It does.
    #[default]
    Valid,
    /// It does not, and why: the generator missed its rate, more arrived than was sent, …
    Invalid(String),
}

/// Times from generator to sink, microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Packets with a time.
    pub samples: u64,
    /// Half are not longer.
    pub p50: f64,
    /// 99 of 100 are not longer.
    pub p99: f64,
    /// Longest.
    pub max: f64,
}

impl Trial {
    /// Share of the sent packets that arrived; 0 if none was sent.
    pub fn delivery_ratio(&self) -> f64 {
        if self.sent == 0 {
            0.0
        } else {
            self.received as f64 / self.sent as f64
        }
    }

    /// Packets per second that arrived.
    pub fn throughput(&self) -> f64 {
        if self.seconds > 0.0 {
            self.received as f64 / self.seconds
        } else {
            0.0
        }
    }

    /// Packets per second that the generator sent.
    pub fn offered(&self) -> f64 {
        if self.seconds > 0.0 {
            self.sent as f64 / self.seconds
        } else {
            0.0
        }
    }

    /// CPU seconds of the device under test: of its workers, or else its process, and of its receive side
    /// where that has threads of its own.
    pub fn device_cpu(&self) -> f64 {
        let of = |name: &str| self.cpu.get(name).copied();
        of("workers").or(of("process")).unwrap_or_default() + of("napi").unwrap_or_default()
    }

    /// Whether it counts.
    pub fn is_valid(&self) -> bool {
        self.validity == Validity::Valid
    }
}
