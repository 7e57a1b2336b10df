//! AF_XDP without a gateway: what the sockets themselves can do.
//!
//! Written straight on xsk-rs and independent of the gateway's ports, as programs that forward with AF_XDP
//! usually are: one packet memory and one pair of sockets, batches of 64.

mod sockets;
mod thread;

use std::{sync::atomic::Ordering, time::Duration};

use anyhow::Result;

use super::{
    counters,
    device::{UnderTest, add_napi},
    napi,
    network::Network,
};
use crate::throughput::{
    experiment::{Case, Layout},
    instrument::{
        programs::{self, Attached},
        run::Snapshot,
    },
};
use sockets::Sockets;
use thread::{Forwarder, Task};

/// For how long a thread that has a CPU for itself looks for packets before it sleeps.
const SPIN: Duration = Duration::from_millis(1);

/// An AF_XDP thread.
pub(super) struct AfXdp {
    // The program before the socket that it gives packets to.
    _program: Attached,
    thread: Forwarder,
    forward: bool,
    napi: Vec<u32>,
}

impl AfXdp {
    /// Starts a thread on the network's device. With `forward` packets leave through the right
    /// port, without they end there.
    pub(super) fn start(network: &Network, case: &Case, forward: bool) -> Result<Self> {
        let (left, right) = (&network.left, &network.right);
        let task = if forward {
            let mut addresses = [0; 12];
            addresses[..6].copy_from_slice(&right.tester_mac);
            addresses[6..].copy_from_slice(&right.device_mac);
            Task::Forward(addresses)
        } else {
            Task::Drop
        };
        let to = forward.then_some(right.device.as_str());
        let sockets = network.device.run(|| Sockets::open(&left.device, to))??;
        let mut program = programs::to_socket(&network.device, &left.device)?;
        program.set_socket(sockets.receive.fd())?;
        let spin = match case.layout {
            Layout::Split => SPIN,
            // The receive side needs the CPU.
            Layout::SingleCore => Duration::ZERO,
        };
        let thread = Forwarder::start(sockets, task, case.cpus.device, spin)?;
        let napi = match case.layout {
            Layout::Split => Vec::new(),
            Layout::SingleCore => {
                napi::run_in_threads(&network.device, &left.device, case.cpus.device)?
            }
        };
        Ok(AfXdp {
            _program: program,
            thread,
            forward,
            napi,
        })
    }
}

/// The counter of packets that the thread received.
const RECEIVED: &str = "af_xdp received";

impl UnderTest for AfXdp {
    fn read(&mut self, snapshot: &mut Snapshot) -> Result<()> {
        let counts = &self.thread.counts;
        for (name, count) in [(RECEIVED, &counts.received), ("af_xdp sent", &counts.sent)] {
            let count = count.load(Ordering::Relaxed);
            snapshot.counters.insert(name.into(), count);
        }
        let seconds = counters::thread_seconds(std::process::id(), self.thread.id);
        snapshot
            .cpu
            .insert("workers".into(), seconds.unwrap_or_default());
        add_napi(snapshot, &self.napi);
        Ok(())
    }

    fn own_sink(&self) -> Option<&'static str> {
        (!self.forward).then_some(RECEIVED)
    }
}
