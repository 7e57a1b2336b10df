//! `sig accelerate` beside a gateway of the reference.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use testbed::{Netns, Process};

use crate::throughput::binary::gateway_binary;

/// How long it may take until it says that it is ready.
const READY: Duration = Duration::from_secs(15);
/// The gateway's device for SCION packets.
const UNDERLAY: &str = "underlay";
/// The gateway's own device, as its configuration names it.
const TUNNEL: &str = "sig";

/// A running accelerator.
pub(super) struct Accelerator {
    pub(super) process: Process,
    socket: PathBuf,
}

impl Accelerator {
    /// Starts it in the namespace of a gateway that has its tunnel device, and waits until it is ready.
    pub(super) fn start(netns: &Netns, socket: PathBuf, log: &Path) -> Result<Self> {
        let mut command = netns.command(gateway_binary()?);
        command
            .args(["accelerate", "run", "--underlay", UNDERLAY])
            .args(["--tunnel", TUNNEL, "--socket"])
            .arg(&socket);
        let mut process = Process::spawn(command, log)?;
        process
            .wait_for("ready", READY)
            .context("`sig accelerate run`")?;
        Ok(Self { process, socket })
    }

    /// Whether it has sent and delivered packets itself.
    pub(super) fn takes_packets(&self) -> Result<bool> {
        let output = Command::new(gateway_binary()?)
            .args(["accelerate", "status", "--json", "--socket"])
            .arg(&self.socket)
            .output()?;
        if !output.status.success() {
            bail!(
                "`sig accelerate status`: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        let counters: Counters = serde_json::from_slice(&output.stdout)
            .context("the document of `sig accelerate status`")?;
        Ok(counters.take_packets())
    }
}

/// What is looked at of the document of `sig accelerate status --json`: packets that no gateway saw.
#[derive(Deserialize)]
struct Counters {
    packets_sent: u64,
    packets_delivered: u64,
}

impl Counters {
    fn take_packets(&self) -> bool {
        self.packets_sent > 0 && self.packets_delivered > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_taken_once_they_are_both_ways() {
        let takes = |sent, delivered| {
            let text = format!(
                r#"{{"packets_sent": {sent}, "flows": [], "packets_delivered": {delivered}}}"#
            );
            serde_json::from_str::<Counters>(&text)
                .unwrap()
                .take_packets()
        };
        assert!(!takes(0, 7) && !takes(7, 0) && takes(1, 1));
        assert!(serde_json::from_str::<Counters>("{}").is_err());
    }
}
