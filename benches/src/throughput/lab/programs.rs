//! Single BPF programs: the least that can be done with a packet.
//!
//! There is no forwarding thread, so in every layout it is the receive side that runs on the device's CPU, unless what it is
//! compared with has it in the generator's soft interrupt.

use anyhow::Result;

use super::{
    device::{UnderTest, add_napi, add_program},
    napi,
    network::Network,
};
use crate::throughput::{
    experiment::Case,
    instrument::{
        programs::{self, Attached},
        run::Snapshot,
    },
};

/// Packets that the program has seen.
const SEEN: &str = "program seen";

/// A program on the left port.
pub(super) struct Program {
    program: Attached,
    drops: bool,
    napi: Vec<u32>,
}

impl Program {
    /// XDP drops every packet.
    pub(super) fn drop(network: &Network, case: &Case) -> Result<Self> {
        let program = programs::drop(&network.device, &network.left.device)?;
        Self::start(network, case, program, true)
    }

    /// XDP sends every packet through the right port.
    pub(super) fn redirect(network: &Network, case: &Case) -> Result<Self> {
        let (left, right) = (&network.left.device, &network.right.device);
        let program = programs::redirect(&network.device, left, right, None)?;
        Self::start(network, case, program, false)
    }

    /// The same in the generator's soft interrupt, without threads.
    pub(super) fn redirect_split(network: &Network) -> Result<Self> {
        let (left, right) = (&network.left.device, &network.right.device);
        Ok(Program {
            program: programs::redirect(&network.device, left, right, None)?,
            drops: false,
            napi: Vec::new(),
        })
    }

    /// TC at the ingress sends every packet through the right port.
    pub(super) fn tc_redirect(network: &Network, case: &Case) -> Result<Self> {
        let (left, right) = (&network.left.device, &network.right.device);
        // What the generator sends without the kernel's stack arrives only where NAPI runs.
        network.device.exec(&format!("ethtool -K {left} gro on"))?;
        let program = programs::tc_redirect(&network.device, left, right)?;
        Self::start(network, case, program, false)
    }

    fn start(network: &Network, case: &Case, program: Attached, drops: bool) -> Result<Self> {
        let left = &network.left.device;
        let napi = napi::run_first_in_threads(&network.device, left, case.cpus.device)?;
        Ok(Program {
            program,
            drops,
            napi,
        })
    }
}

impl UnderTest for Program {
    fn read(&mut self, snapshot: &mut Snapshot) -> Result<()> {
        snapshot.counters.insert(SEEN.into(), self.program.seen()?);
        add_program(snapshot, self.program.usage()?);
        add_napi(snapshot, &self.napi);
        Ok(())
    }

    fn own_sink(&self) -> Option<&'static str> {
        self.drops.then_some(SEEN)
    }
}
