//! Running a trial.

use std::collections::BTreeMap;

/// What a device under test counts, ever rising.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Packets, by what became of them.
    pub counters: BTreeMap<String, u64>,
    /// CPU seconds by what used them, such as a process or `softirq`.
    pub cpu: BTreeMap<String, f64>,
}
