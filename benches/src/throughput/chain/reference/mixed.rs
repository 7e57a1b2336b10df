//! A reference gateway at one end, sig in the place of the other one, everything else of the reference.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result};
use testbed::{Network, Process};

use super::{Base, GONE, READY, alive};
use crate::throughput::{
    binary::gateway_binary,
    chain::{BOTH_FAMILIES, Chain, End, Gateway, wait_for_pings},
    experiment::Case,
    subject::Refusal,
};

/// Where sig is.
const SIG: End = End::B;
/// Its configuration: that of the reference gateway, and which device leads to the LAN.
const FILE: &str = "sig.toml";

/// The chain with sig at B.
pub(in crate::throughput::chain) struct Mixed {
    /// Of A and B; none only while one is being restarted.
    gateways: [Option<Process>; 2],
    base: Base,
    started: u32,
}

impl Mixed {
    pub(in crate::throughput::chain) fn build(case: &Case) -> Result<Self, Refusal> {
        let mut base = Base::build(None)?;
        write_configuration(&base, case.workers)?;
        let reference = base.start(SIG.other(), "gateway")?;
        let mut chain = Self {
            gateways: [Some(reference), None],
            base,
            started: 0,
        };
        chain.start_sig()?;
        if let Err(error) = chain.wait_loss_free(READY) {
            // That one of them has ended says more.
            alive(chain.gateways.iter_mut().flatten())?;
            alive(&mut chain.base.processes)?;
            return Err(error.into());
        }
        Ok(chain)
    }

    fn start_sig(&mut self) -> Result<()> {
        self.started += 1;
        let site = SIG.site(&self.base.network);
        let mut command = site.gateway.command_on(None, gateway_binary()?);
        command
            .args(["run", "--config", FILE])
            .current_dir(&self.base.folders[SIG as usize]);
        let log = self
            .base
            .network
            .folder()
            .join(format!("sig-{}.log", self.started));
        let process =
            Process::spawn(command, &log).context("sig in the place of the reference gateway")?;
        self.gateways[SIG as usize] = Some(process);
        Ok(())
    }
}

fn write_configuration(base: &Base, workers: u16) -> Result<()> {
    let folder = &base.folders[SIG as usize];
    let reference = fs::read_to_string(folder.join("gateway.toml"))?;
    let socket = base.network.folder().join("sig.sock");
    let text = reference.replacen(
        "[gateway]\n",
        &format!("[gateway]\nstatus_socket = \"{}\"\n", socket.display()),
        1,
    );
    let dataplane = format!("\n[dataplane]\nlan = [\"lan\"]\nworkers = {workers}\n");
    fs::write(folder.join(FILE), text + &dataplane)?;
    Ok(())
}

impl Chain for Mixed {
    fn network(&self) -> &Network {
        &self.base.network
    }

    fn interrupt(&self) {
        self.base.interrupt(&self.gateways);
    }

    fn wait_loss_free(&self, limit: Duration) -> Result<()> {
        wait_for_pings(self, &BOTH_FAMILIES, limit)
    }

    fn gateways(&self) -> Vec<Gateway> {
        let gateway = |end: End| {
            Some(Gateway {
                end,
                pid: self.gateways[end as usize].as_ref()?.id(),
                cpu: None,
            })
        };
        End::ALL.into_iter().filter_map(gateway).collect()
    }

    fn restart(&mut self, end: End) -> Result<(), Refusal> {
        let slot = &mut self.gateways[end as usize];
        let mut process = slot.take().context("the gateway does not run")?;
        process.signal(libc::SIGKILL);
        process.wait(GONE)?;
        if end == SIG {
            self.start_sig()?;
        } else {
            self.gateways[end as usize] = Some(self.base.start(end, "gateway")?);
        }
        Ok(())
    }
}
