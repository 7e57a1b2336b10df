//! The gateway as a device under test: the program `sig run` between a LAN and an underlay port.

mod config;

use std::{
    fs, io::Read as _, net::Shutdown, os::unix::net::UnixStream, path::PathBuf, time::Duration,
};

use anyhow::Context as _;
use testbed::{Process, Status};

pub(super) use config::{DATA_PORT, OVERHEAD, OWN_AS, PATH, REMOTE, REMOTE_AS};

use super::{
    counters,
    device::{UnderTest, add_napi},
    napi,
    network::Network,
};
use crate::throughput::{
    binary,
    experiment::{Case, Layout},
    instrument::{run::Snapshot, thread},
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
}

impl Way {
    fn direction(self) -> Direction {
        match self {
            Way::Encapsulate => Direction::Encapsulate,
            Way::Straight | Way::Helper => Direction::Decapsulate,
        }
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
        let mut command = network.device.command(binary);
        command.args(["run", "--config"]).arg(&file);
        let mut process = Process::spawn(command, &network.folder.path().join("gateway.log"))?;
        process.wait_for("ready", READY)?;
        for (id, name, _) in counters::threads(process.id())? {
            if name.starts_with(WORKER) {
                thread::go_first(id)?;
            }
        }
        let napi = match case.layout {
            Layout::Split => Vec::new(),
            Layout::SingleCore => {
                napi::run_in_threads(&network.device, &network.left.device, case.cpus.device)?
            }
        };
        Ok(Gateway {
            process,
            socket: socket(network),
            way,
            napi,
        })
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
        let of = asked
            .with_context(|| format!("status of the gateway at {}", self.socket.display()))?
            .counters;
        for (name, count) in [
            (SENT, of.packets_sent),
            (RECEIVED, of.packets_received),
            (STRAIGHT, of.packets_straight),
            (HELPED, of.packets_via_helper),
        ] {
            snapshot.counters.insert(name.into(), count);
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
        add_napi(snapshot, &self.napi);
        Ok(())
    }

    fn judge(&self, trial: &mut Trial) {
        let count = |name: &str| trial.counters.get(name).copied().unwrap_or_default();
        let (straight, helped) = (count(STRAIGHT), count(HELPED));
        let wrong = match self.way {
            Way::Encapsulate => return,
            Way::Straight => helped,
            Way::Helper => straight,
        };
        // A few of the first may go the other way, before the neighbour is known to the gateway.
        if wrong * 100 > straight + helped {
            trial.validity = Validity::Invalid(format!(
                "{straight} packets went straight to the LAN port and {helped} through the helper"
            ));
        }
    }
}
