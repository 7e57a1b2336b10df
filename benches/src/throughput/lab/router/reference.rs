//! The border router of the reference.

use std::{fs, time::Duration};

use anyhow::bail;
use testbed::{Process, wait_until};

use super::{PORT, write_files};
use crate::throughput::{
    experiment::{Case, Layout},
    instrument::run::Snapshot,
    lab::{
        counters,
        device::{UnderTest, add_napi},
        napi,
        network::Network,
    },
    reference::Programs,
    subject::Refusal,
};

/// How long it may take until its sockets are open.
const READY: Duration = Duration::from_secs(15);

/// A running router, all of whose threads are on the device's CPU.
pub(in super::super) struct Reference {
    process: Process,
    napi: Vec<u32>,
}

impl Reference {
    /// Starts a router in the network's device and waits until its sockets are open.
    pub(in super::super) fn start(network: &Network, case: &Case) -> Result<Self, Refusal> {
        let programs = Programs::find()?;
        let file = write_files(network, case.family)?;
        let folder = network.folder.path();
        let cpu = Some(case.cpus.device);
        let mut command = network.device.command_on(cpu, programs.path("router"));
        command.arg("--config").arg(&file).current_dir(folder);
        let mut process = Process::spawn(command, &folder.join("router.log"))?;
        wait_until("the router of the reference", READY, || {
            if let Some(status) = process.ended()? {
                bail!("it ended ({status}):\n{}", process.log());
            }
            Ok(open_sockets(network)? == 2)
        })?;

        // What the generator sends without the kernel's stack arrives only where NAPI runs.
        let left = &network.left.device;
        network.device.exec(&format!("ethtool -K {left} gro on"))?;
        let napi = match case.layout {
            Layout::Split => Vec::new(),
            Layout::SingleCore => napi::run_in_threads(&network.device, left, case.cpus.device)?,
        };
        Ok(Self { process, napi })
    }
}

/// Sockets at the router's ends of the links.
fn open_sockets(network: &Network) -> anyhow::Result<usize> {
    let port = format!(":{PORT:04X}");
    let mut open = 0;
    for file in ["/proc/thread-self/net/udp", "/proc/thread-self/net/udp6"] {
        let table = network.device.run(|| fs::read_to_string(file))?;
        // Not there without IPv6.
        let table = table.unwrap_or_default();
        let local = |line: &&str| {
            let address = line.split_whitespace().nth(1);
            address.is_some_and(|address| address.ends_with(&port))
        };
        open += table.lines().filter(local).count();
    }
    Ok(open)
}

impl UnderTest for Reference {
    fn read(&mut self, snapshot: &mut Snapshot) -> anyhow::Result<()> {
        if let Some(status) = self.process.ended()? {
            bail!("the router has ended ({status}):\n{}", self.process.log());
        }
        let threads = counters::threads(self.process.id())?;
        let seconds = threads.iter().map(|(_, _, seconds)| seconds).sum();
        snapshot.cpu.insert("process".into(), seconds);
        add_napi(snapshot, &self.napi);
        Ok(())
    }
}
