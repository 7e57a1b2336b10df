//! Where the receive side of a device runs.

use std::fs;

use anyhow::{Result, bail};
use testbed::Netns;

use crate::throughput::instrument::thread;

/// Makes the receive side of `device` run in kernel threads, one per queue, on `cpu`. Returns the threads.
///
/// The device must have a receive side of its own: an XDP program, or GRO. Its name must be unique on the
/// machine.
pub(super) fn run_in_threads(netns: &Netns, device: &str, cpu: u16) -> Result<Vec<u32>> {
    let switch = format!("echo 1 > /sys/class/net/{device}/threaded");
    // The folder shows the devices of the namespace only after `ip netns exec`.
    let output = netns.command("sh").args(["-c", &switch]).output()?;
    if !output.status.success() {
        bail!(
            "{device} has no threaded NAPI: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    let threads = threads_of(device)?;
    if threads.is_empty() {
        bail!("{device} has no NAPI thread although it was switched on");
    }
    for thread in &threads {
        thread::pin(*thread as i32, cpu.into())?;
    }
    Ok(threads)
}

/// The same for a device whose receive side is all that is under test: its threads go before ordinary ones, as the
/// threads of subjects that have some do.
pub(super) fn run_first_in_threads(netns: &Netns, device: &str, cpu: u16) -> Result<Vec<u32>> {
    let threads = run_in_threads(netns, device, cpu)?;
    for id in &threads {
        thread::go_first(*id)?;
    }
    Ok(threads)
}

/// The same for a sink: behind a generator on the same CPU its threads must come before everything.
pub(super) fn run_sink_in_threads(netns: &Netns, device: &str, cpu: u16) -> Result<()> {
    for id in run_in_threads(netns, device, cpu)? {
        thread::make_realtime(id as i32, 10)?;
    }
    Ok(())
}

/// The NAPI threads of a device.
fn threads_of(device: &str) -> Result<Vec<u32>> {
    let prefix = format!("napi/{device}-");
    let mut threads = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Ok(pid) = entry?.file_name().to_string_lossy().parse() else {
            continue;
        };
        // One that has ended meanwhile is none of ours.
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if name.starts_with(&prefix) {
            threads.push(pid);
        }
    }
    Ok(threads)
}
