//! AF_XDP without a gateway: what the sockets themselves can do.
//!
//! Written straight on xsk-rs and independent of the gateway's ports, as programs that forward with AF_XDP
//! usually are: one packet memory and one pair of sockets per thread, batches of 64.

mod sockets;
mod thread;

use std::{
    os::fd::OwnedFd,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use anyhow::Result;

use super::{
    counters,
    device::{UnderTest, add_napi},
    gateway::worker_cpus,
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

/// AF_XDP threads.
pub(super) struct AfXdp {
    // The program before the sockets that it gives packets to.
    _program: Attached,
    threads: Vec<Forwarder>,
    forward: bool,
    sockets: Vec<OwnedFd>,
    napi: Vec<u32>,
}

impl AfXdp {
    /// Starts one thread per worker on the network's device. With `forward` packets leave through the right
    /// port, without they end there.
    ///
    /// # Errors
    ///
    /// The kernel refuses sockets or threads.
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
        let opened = network.device.run(|| {
            (0..u32::from(case.workers))
                .map(|queue| Sockets::open(&left.device, to, queue))
                .collect::<Result<Vec<_>>>()
        })??;
        let descriptors = opened
            .iter()
            .map(Sockets::descriptor)
            .collect::<Result<Vec<_>>>()?;
        let spin = match case.layout {
            Layout::Split => SPIN,
            // The receive side needs the CPU.
            Layout::SingleCore => Duration::ZERO,
        };
        let threads = opened
            .into_iter()
            .zip(worker_cpus(case))
            .map(|(sockets, cpu)| Forwarder::start(sockets, task, cpu, spin))
            .collect::<Result<_>>()?;
        let mut program = programs::to_socket(&network.device, &left.device)?;
        for (queue, socket) in descriptors.iter().enumerate() {
            program.set_socket(queue as u32, socket)?;
        }
        let napi = match case.layout {
            Layout::Split => Vec::new(),
            Layout::SingleCore => {
                napi::run_in_threads(&network.device, &left.device, case.cpus.device)?
            }
        };
        Ok(AfXdp {
            _program: program,
            forward,
            threads,
            sockets: descriptors,
            napi,
        })
    }
}

/// The counter of packets that the threads received.
const RECEIVED: &str = "af_xdp received";

impl UnderTest for AfXdp {
    fn read(&mut self, snapshot: &mut Snapshot) -> Result<()> {
        let sum = |of: fn(&Forwarder) -> &AtomicU64| {
            self.threads
                .iter()
                .map(|thread| of(thread).load(Ordering::Relaxed))
                .sum()
        };
        let counters = &mut snapshot.counters;
        counters.insert(RECEIVED.into(), sum(|thread| &thread.counts.received));
        counters.insert("af_xdp sent".into(), sum(|thread| &thread.counts.sent));
        counters.insert(
            "af_xdp wake_ups".into(),
            sum(|thread| &thread.counts.wake_ups),
        );
        counters.insert("af_xdp sleeps".into(), sum(|thread| &thread.counts.sleeps));
        for socket in &self.sockets {
            let lost = sockets::lost(socket)?;
            for (name, count) in [
                ("af_xdp rx_ring_full", lost.ring_full),
                ("af_xdp fill_ring_empty", lost.fill_empty),
            ] {
                *counters.entry(name.into()).or_default() += count;
            }
        }
        let seconds = self
            .threads
            .iter()
            .filter_map(|thread| counters::thread_seconds(std::process::id(), thread.id));
        snapshot.cpu.insert("workers".into(), seconds.sum());
        add_napi(snapshot, &self.napi);
        Ok(())
    }

    fn own_sink(&self) -> Option<&'static str> {
        (!self.forward).then_some(RECEIVED)
    }
}
