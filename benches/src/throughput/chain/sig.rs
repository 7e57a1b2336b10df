//! sig at both ends, over its border routers, which verify every hop field.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Result;
use testbed::{Network, Options};

use super::{BOTH_FAMILIES, Chain, Clients, End, Gateway, links, wait_for_pings};
use crate::throughput::{binary::gateway_binary, experiment::Case, subject::Refusal};

/// Time from the gateways' word that they are ready until packets cross.
const READY: Duration = Duration::from_secs(10);

/// The chain with sig.
pub(super) struct Sig {
    network: Network,
    /// CPUs of the gateways of A and B.
    cpus: Option<[u16; 2]>,
}

impl Sig {
    pub(super) fn build(case: &Case, clients: Clients) -> Result<Self> {
        let options = Options {
            dataplane: format!("workers = {}", case.workers),
            ..Options::default()
        };
        let mut network = Network::build(gateway_binary()?, &options)?;
        links::prepare(&network)?;
        let other = match clients {
            // Beside a generator of a real-time class a gateway starves.
            Clients::Instruments => case.cpus.device,
            // One CPU per site, as for the reference when it is tuned.
            Clients::Programs => case.cpus.tester,
        };
        // Several workers of a gateway need several.
        let cpus = (case.workers == 1).then_some([case.cpus.device, other]);
        if let Some([a, b]) = cpus {
            network.a.run_on(a);
            network.b.run_on(b);
        }
        network.start_gateways()?;
        let chain = Self { network, cpus };
        chain.wait_loss_free(READY)?;
        Ok(chain)
    }
}

impl Chain for Sig {
    fn network(&self) -> &Network {
        &self.network
    }

    fn wait_loss_free(&self, limit: Duration) -> Result<()> {
        wait_for_pings(self, &BOTH_FAMILIES, limit)
    }

    fn gateways(&self) -> Vec<Gateway> {
        End::ALL
            .into_iter()
            .filter_map(|end| {
                Some(Gateway {
                    end,
                    pid: end.site(&self.network).gateway_pid()?,
                    cpu: self.cpus.map(|cpus| cpus[end as usize]),
                })
            })
            .collect()
    }

    fn restart(&mut self, end: End) -> Result<(), Refusal> {
        let site = end.site_mut(&mut self.network);
        site.kill_gateway()?;
        Ok(site.spawn_gateway()?)
    }

    fn counters(&self) -> Result<BTreeMap<String, u64>> {
        let mut counters = BTreeMap::new();
        for (name, end) in [("a", End::A), ("b", End::B)] {
            let status = end.site(&self.network).status()?;
            let of = status.counters;
            for (what, count) in [
                ("packets sent", of.packets_sent),
                ("frames sent", of.frames_sent),
                ("frames received", of.frames_received),
                ("packets received", of.packets_received),
                ("gaps", of.gaps),
            ] {
                counters.insert(format!("gateway {name} {what}"), count);
            }
            for drop in &status.drops {
                // A reason may be counted in the kernel and in the engine.
                *counters
                    .entry(format!("gateway {name} dropped {}", drop.reason))
                    .or_default() += drop.count;
            }
        }
        Ok(counters)
    }
}
