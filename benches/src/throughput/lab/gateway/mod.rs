//! The gateway as a device under test: the program `sig run` between a LAN and an underlay port.

mod config;

use std::{
    fs, io::Read as _, net::Shutdown, os::unix::net::UnixStream, path::PathBuf, time::Duration,
};

use anyhow::Context as _;
use testbed::{Process, Status, wait_until};

pub(super) use config::{DATA_PORT, OVERHEAD, OWN_AS, PATH, REMOTE, REMOTE_AS};

use super::{
    counters,
    device::{UnderTest, add_napi, add_program},
    napi,
    network::Network,
};
use crate::throughput::{
    binary,
    experiment::{Case, Layout},
    instrument::{programs::Usage, run::Snapshot, thread},
    subject::Refusal,
    trial::{Trial, Validity},
};

/// How long a gateway may take until traffic flows.
const READY: Duration = Duration::from_secs(15);

/// Which way packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// From the LAN on the left to the underlay on the right.
    Encapsulate,
    /// From the underlay on the left to the LAN on the right.
    Decapsulate,
}

/// What is expected of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// IP packets into SIG frames.
    Encapsulate,
    /// SIG frames into IP packets, straight to the LAN port.
    Straight,
    /// SIG frames into IP packets, through the TC helper.
    Helper,
    /// IP packets into SIG frames, by the XDP program alone.
    FastEncapsulate,
    /// SIG frames into IP packets, by the XDP program alone.
    FastDecapsulate,
}

impl Way {
    fn direction(self) -> Direction {
        match self {
            Way::Encapsulate | Way::FastEncapsulate => Direction::Encapsulate,
            Way::Straight | Way::Helper | Way::FastDecapsulate => Direction::Decapsulate,
        }
    }

    /// Whether no worker takes part.
    fn is_fast(self) -> bool {
        matches!(self, Way::FastEncapsulate | Way::FastDecapsulate)
    }
}

/// A running gateway.
pub(super) struct Gateway {
    process: Process,
    socket: PathBuf,
    way: Way,
    napi: Vec<u32>,
}

impl Gateway {
    /// Starts a gateway in the network's device and waits until it is ready.
    pub(super) fn start(network: &Network, way: Way, case: &Case) -> Result<Self, Refusal> {
        let binary = binary::gateway_binary()?;
        let file = network.folder.path().join("gateway.toml");
        fs::write(&file, config::text(network, way, case))
            .with_context(|| format!("cannot write {}", file.display()))?;
        if way.is_fast() {
            // A veth device takes what XDP redirects to its peer only where NAPI runs. The gateway looks before there is a
            // sink, and then once in a while.
            for (tester, link) in [
                (&network.generator, &network.left),
                (&network.sink, &network.right),
            ] {
                tester.exec(&format!("ethtool -K {} gro on", link.tester))?;
            }
        }
        let mut command = network.device.command(binary);
        command.args(["run", "--config"]).arg(&file);
        let mut process = Process::spawn(command, &network.folder.path().join("gateway.log"))?;
        process.wait_for("ready", READY)?;
        for (id, name, _) in counters::threads(process.id())? {
            if name.starts_with(WORKER) {
                thread::go_first(id)?;
            }
        }
        let (device, left, cpu) = (&network.device, &network.left.device, case.cpus.device);
        let napi = match case.layout {
            Layout::Split => Vec::new(),
            Layout::SingleCore => napi::run_in_threads(device, left, cpu)?,
        };
        let gateway = Gateway {
            process,
            socket: socket(network),
            way,
            napi,
        };
        if way.is_fast() {
            wait_until("the gateway has a fast path", READY, || {
                Ok(gateway.status()?.fast_path.on)
            })?;
        }
        Ok(gateway)
    }
}

impl Gateway {
    /// What it tells about itself. One that does not answer within seconds is stuck.
    fn status(&self) -> anyhow::Result<Status> {
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        // Nothing is to follow: the gateway need not wait for it.
        stream.shutdown(Shutdown::Write)?;
        let mut document = Vec::new();
        stream.read_to_end(&mut document)?;
        Ok(serde_json::from_slice(&document)?)
    }
}

/// Counters of packets.
const SENT: &str = "gateway packets_sent";
const RECEIVED: &str = "gateway packets_received";
/// … of those received, by how they left.
const STRAIGHT: &str = "gateway packets_straight";
const HELPED: &str = "gateway packets_via_helper";

/// … of all, those that no worker saw.
const FAST_SENT: &str = "gateway fast_path packets_sent";
const FAST_DELIVERED: &str = "gateway fast_path packets_delivered";

/// Where names of worker threads start.
const WORKER: &str = "sig-worker-";

/// The status socket.
fn socket(network: &Network) -> PathBuf {
    network.folder.path().join("gateway.sock")
}

impl UnderTest for Gateway {
    fn read(&mut self, snapshot: &mut Snapshot) -> anyhow::Result<()> {
        if let Some(status) = self.process.ended()? {
            anyhow::bail!("the gateway has ended ({status}):\n{}", self.process.log());
        }
        let asked = self.status();
        let status =
            asked.with_context(|| format!("status of the gateway at {}", self.socket.display()))?;
        let (of, fast) = (status.counters, status.fast_path);
        for (name, count) in [
            (SENT, of.packets_sent),
            (RECEIVED, of.packets_received),
            (STRAIGHT, of.packets_straight),
            (HELPED, of.packets_via_helper),
            (FAST_SENT, fast.packets_sent),
            (FAST_DELIVERED, fast.packets_delivered),
        ] {
            snapshot.counters.insert(name.into(), count);
        }
        add_napi(snapshot, &self.napi);
        if self.way.is_fast() {
            // Its programs run in soft interrupts: the time of its threads says nothing.
            add_program(snapshot, Usage::of_process(self.process.id())?);
            return Ok(());
        }
        let (mut process, mut workers) = (0.0, 0.0);
        for (_, name, seconds) in counters::threads(self.process.id())? {
            process += seconds;
            if name.starts_with(WORKER) {
                workers += seconds;
            }
        }
        snapshot.cpu.insert("process".into(), process);
        snapshot.cpu.insert("workers".into(), workers);
        Ok(())
    }

    fn starts_slowly(&self) -> bool {
        self.way.is_fast()
    }

    fn judge(&self, trial: &mut Trial) {
        let count = |name: &str| trial.counters.get(name).copied().unwrap_or_default();
        let (straight, helped) = (count(STRAIGHT), count(HELPED));
        let wrong = match self.way {
            Way::Encapsulate => return,
            Way::Straight => helped,
            Way::Helper => straight,
            Way::FastEncapsulate => return judge_fast(trial, count(FAST_SENT), count(SENT)),
            Way::FastDecapsulate => {
                return judge_fast(trial, count(FAST_DELIVERED), count(RECEIVED));
            }
        };
        // A few of the first may go the other way, before the neighbour is known to the gateway.
        if wrong * 100 > straight + helped {
            trial.validity = Validity::Invalid(format!(
                "{straight} packets went straight to the LAN port and {helped} through the helper"
            ));
        }
    }
}

/// A trial is of the fast path if workers saw next to nothing of it: a few of the first, which teach it flows.
fn judge_fast(trial: &mut Trial, fast: u64, all: u64) {
    if fast * 100 < all * 99 {
        trial.validity = Validity::Invalid(format!(
            "of {all} packets {fast} took the fast path, the others a worker"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_of_the_fast_path_counts_without_workers() {
        let validity = |fast, all| {
            let mut trial = Trial::default();
            judge_fast(&mut trial, fast, all);
            trial.validity
        };
        assert_eq!(validity(990, 1000), Validity::Valid);
        match validity(989, 1000) {
            Validity::Invalid(reason) => assert!(reason.contains("989 took the fast path")),
            Validity::Valid => panic!("eleven took a worker"),
        }
    }
}
