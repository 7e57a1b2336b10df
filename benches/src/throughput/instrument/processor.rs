//! What used the machine's processors.

use std::{collections::BTreeMap, fs};

use anyhow::{Context as _, Result};

/// CPU seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::throughput) struct Usage {
    /// Time that passed.
    pub(super) seconds: f64,
    /// Taken away by the hypervisor, on all CPUs.
    pub(in crate::throughput) steal: f64,
    /// Used by processes that are neither this one nor descend from it; without kernel threads.
    pub(in crate::throughput) other: f64,
}

/// The same, since the machine started, and by process.
#[derive(Clone, Debug, Default)]
pub(in crate::throughput) struct Reading {
    at: u64,
    steal: u64,
    /// Ticks of every process that is not ours.
    others: BTreeMap<u32, u64>,
}

impl Usage {
    /// Reads what was used until now.
    pub(in crate::throughput) fn now() -> Result<Reading> {
        let text = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        // The first line: cpu user nice system idle iowait irq softirq steal …
        let steal = text.split_whitespace().nth(8);
        Ok(Reading {
            at: super::thread::now(),
            steal: steal.and_then(|ticks| ticks.parse().ok()).unwrap_or(0),
            others: others(&processes()?, std::process::id()),
        })
    }
}

impl Reading {
    /// What was used since an earlier reading. Processes that ended in between are not counted.
    pub(in crate::throughput) fn since(&self, before: &Reading) -> Usage {
        let other: u64 = self
            .others
            .iter()
            .map(|(id, ticks)| ticks.saturating_sub(before.others.get(id).copied().unwrap_or(0)))
            .sum();
        let seconds = |ticks: u64| ticks as f64 / ticks_per_second();
        Usage {
            seconds: self.at.saturating_sub(before.at) as f64 / 1e9,
            steal: seconds(self.steal.saturating_sub(before.steal)),
            other: seconds(other),
        }
    }
}

/// A line of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    id: u32,
    parent: u32,
    /// User and system time.
    ticks: u64,
}

/// Parent of all kernel threads.
const KTHREADD: u32 = 2;

fn processes() -> Result<Vec<Process>> {
    let entries = fs::read_dir("/proc").context("cannot list /proc")?;
    Ok(entries
        .flatten()
        .filter(|entry| {
            let name = entry.file_name();
            name.as_encoded_bytes().iter().all(u8::is_ascii_digit)
        })
        // It may have ended meanwhile.
        .filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok())
        .filter_map(|line| Process::read(&line))
        .collect())
}

impl Process {
    fn read(line: &str) -> Option<Self> {
        let id = line.split(' ').next()?.parse().ok()?;
        // The name in brackets may hold anything.
        let (_, rest) = line.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        Some(Process {
            id,
            parent: number(1)? as u32,
            ticks: number(11)? + number(12)?,
        })
    }
}

/// Ticks of the processes that are neither `own` nor descend from it, nor are kernel threads.
fn others(processes: &[Process], own: u32) -> BTreeMap<u32, u64> {
    let parents: BTreeMap<u32, u32> = processes.iter().map(|p| (p.id, p.parent)).collect();
    let is_ours = |mut id: u32| {
        // As many steps as there are processes: a list read while it changes may have a circle.
        for _ in 0..processes.len() {
            if id == own {
                return true;
            }
            match parents.get(&id) {
                Some(&parent) if parent != 0 => id = parent,
                _ => break,
            }
        }
        false
    };
    processes
        .iter()
        .filter(|p| p.id != KTHREADD && p.parent != KTHREADD && !is_ours(p.id))
        .map(|p| (p.id, p.ticks))
        .collect()
}

/// The smallest time that is counted, seconds.
pub(super) fn tick() -> f64 {
    1.0 / ticks_per_second()
}

fn ticks_per_second() -> f64 {
    // SAFETY: takes no pointer.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    if ticks > 0 { ticks as f64 } else { 100.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let line = "42 (a) b (c) S 7 42 42 0 -1 4194304 1 2 3 4 100 23 0 0 20 0 1 0 5 6 7";
        let process = Process {
            id: 42,
            parent: 7,
            ticks: 123,
        };
        assert_eq!(Process::read(line), Some(process));
        assert_eq!(Process::read("42 (a) S"), None);
    }

    #[test]
    fn other_processes_are_neither_ours_nor_the_kernels() {
        let process = |id, parent| Process {
            id,
            parent,
            ticks: id.into(),
        };
        let list = [
            process(1, 0),
            process(2, 0),
            process(3, 2),
            process(10, 1),
            process(11, 10),
            process(12, 11),
            process(20, 1),
            process(21, 20),
        ];
        let found = others(&list, 11);
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), [1, 10, 20, 21]);
    }

    #[test]
    fn this_machine_can_be_read() {
        let before = Usage::now().expect("readable");
        let usage = Usage::now().expect("readable").since(&before);
        assert!(usage.seconds > 0.0);
        assert!(
            !before.others.is_empty(),
            "at least init is another process"
        );
    }
}
