//! What the kernel counts: drops of devices, time of threads and CPUs.

use std::{collections::BTreeMap, fs, process::Command};

use anyhow::{Context as _, Result};
use testbed::Netns;

/// Adds what a device dropped, by the driver's count and the kernel's, as `LABEL COUNTER`.
pub(super) fn add_drops(
    counters: &mut BTreeMap<String, u64>,
    netns: &Netns,
    device: &str,
    label: &str,
) -> Result<()> {
    // Not by `ip netns exec`: what that mounts takes 30 ms on a machine with dozens of namespaces, twice for each trial.
    let (text, statistics) = netns.run(|| {
        let ethtool = Command::new("ethtool").args(["-S", device]).output();
        (fs::read_to_string("/proc/thread-self/net/dev"), ethtool)
    })?;
    let text = text?;
    let of_device = text
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(device)?.strip_prefix(':'))
        .with_context(|| format!("the kernel does not count packets of {device}"))?;
    let values: Vec<u64> = of_device
        .split_whitespace()
        .map(|value| value.parse().unwrap_or_default())
        .collect();
    for (name, place) in [("rx_dropped", 3), ("tx_dropped", 11)] {
        let value = values.get(place).copied().unwrap_or_default();
        counters.insert(format!("{label} {name}"), value);
    }
    // Drivers of network cards have counters of other names, or none: then only the kernel's count.
    let statistics = statistics.map_or_else(|_| Vec::new(), |output| output.stdout);
    let statistics = String::from_utf8_lossy(&statistics);
    for (name, value) in statistics.lines().filter_map(|line| line.split_once(':')) {
        let name = name.trim();
        let is_loss = name.ends_with("_drops") && !name.ends_with("xdp_drops")
            || name.contains("_errors")
            || name.contains("_redirect");
        if let (true, Ok(value)) = (is_loss, value.trim().parse::<u64>()) {
            // Summed over queues: `rx_queue_0_drops` counts as `rx_drops`.
            let name = without_queue(name);
            *counters.entry(format!("{label} {name}")).or_default() += value;
        }
    }
    Ok(())
}

/// `rx_drops` of `rx_queue_3_drops`.
fn without_queue(name: &str) -> String {
    let Some((side, rest)) = name.split_once("_queue_") else {
        return name.to_owned();
    };
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    format!("{side}{rest}")
}

/// Seconds for which a thread has run, by the scheduler's clock; none if it has ended.
pub(super) fn thread_seconds(process: u32, thread: u32) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{process}/task/{thread}/schedstat")).ok()?;
    let nanoseconds: u64 = text.split_whitespace().next()?.parse().ok()?;
    Some(nanoseconds as f64 / 1e9)
}

/// Name and seconds of each thread of a process.
pub(super) fn threads(process: u32) -> Result<Vec<(u32, String, f64)>> {
    let mut threads = Vec::new();
    for entry in fs::read_dir(format!("/proc/{process}/task"))? {
        let Ok(thread) = entry?.file_name().to_string_lossy().parse() else {
            continue;
        };
        let name = fs::read_to_string(format!("/proc/{process}/task/{thread}/comm"));
        if let (Ok(name), Some(seconds)) = (name, thread_seconds(process, thread)) {
            threads.push((thread, name.trim().to_owned(), seconds));
        }
    }
    Ok(threads)
}

/// Adds the time of soft interrupts, in total and by CPU. The kernel counts ticks of some milliseconds.
pub(super) fn add_softirq(cpu: &mut BTreeMap<String, f64>) -> Result<()> {
    // SAFETY: takes no pointer.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as f64;
    let text = fs::read_to_string("/proc/stat")?;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let Some(number) = words.next().and_then(|name| name.strip_prefix("cpu")) else {
            continue;
        };
        let ticks: Vec<f64> = words.filter_map(|word| word.parse().ok()).collect();
        // user nice system idle iowait irq softirq
        let seconds = |place: usize| ticks.get(place).copied().unwrap_or_default() / per_second;
        if number.is_empty() {
            cpu.insert("softirq".into(), seconds(6));
        } else {
            cpu.insert(format!("softirq cpu{number}"), seconds(6));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_queues_are_summed_under_one_name() {
        assert_eq!(without_queue("rx_queue_12_drops"), "rx_drops");
        assert_eq!(without_queue("peer_ifindex"), "peer_ifindex");
    }

    #[test]
    fn the_time_of_this_thread_is_known() {
        let process = std::process::id();
        let own = threads(process).unwrap();
        assert!(!own.is_empty());
        for (thread, _, _) in own {
            // Other tests' threads may end meanwhile; the main thread does not.
            if thread == process {
                assert!(thread_seconds(process, thread).unwrap() >= 0.0);
            }
        }
        let mut cpu = BTreeMap::new();
        add_softirq(&mut cpu).unwrap();
        assert!(cpu.contains_key("softirq") && cpu.contains_key("softirq cpu0"));
    }
}
