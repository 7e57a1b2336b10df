//! sig at both ends, over its border routers, which verify every hop field.

use std::time::Duration;

use anyhow::Result;
use testbed::{Network, Options};

use super::{Chain, Clients, End, links, wait_for_fast_path, wait_loss_free};
use crate::throughput::{
    binary::{binary_with_key, gateway_binary},
    experiment::Case,
    subject::Refusal,
};

/// Time from the gateways' word that they are ready until packets cross.
const READY: Duration = Duration::from_secs(10);

/// Who sends and delivers simple packets, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// As sig decides when nothing is said: programs in the kernel.
    Default,
    /// Workers do everything.
    Engine,
    /// Workers do everything, by UDP sockets.
    Sockets,
    /// Gateway and router of site A share a host.
    OneHost,
    /// As by default, with jumbo frames on all links.
    Jumbo,
    /// With protected frames, which are the workers'.
    Protected,
}

/// The chain with sig.
pub(super) struct Sig {
    network: Network,
}

impl Sig {
    pub(super) fn build(case: &Case, clients: Clients, way: Way) -> Result<Self> {
        let dataplane = match way {
            Way::Default | Way::OneHost | Way::Jumbo => "workers = 1",
            Way::Engine | Way::Protected => "workers = 1\nfast_path = \"off\"",
            Way::Sockets => "workers = 1\nunderlay_port = \"socket\"",
        };
        let mut options = Options {
            dataplane: dataplane.into(),
            one_host: way == Way::OneHost,
            ..Options::default()
        };
        if way == Way::Jumbo {
            (options.path_mtu, options.lan_mtu, options.tunnel_mtu) = (8972, 9000, 9000);
        }
        let keyed = match way {
            Way::Protected => Some(binary_with_key()?),
            _ => None,
        };
        let binary = match &keyed {
            Some(binary) => binary,
            None => gateway_binary()?,
        };
        let mut network = Network::build(binary, &options)?;
        links::prepare(&network)?;
        let other = match clients {
            // Beside a generator of a real-time class a gateway starves.
            Clients::Instruments => case.cpus.device,
            // One CPU per site, as for the reference when it is tuned.
            Clients::Programs => case.cpus.tester,
        };
        network.a.run_on(case.cpus.device);
        network.b.run_on(other);
        network.start_gateways()?;
        let chain = Self { network };
        wait_loss_free(&chain, READY)?;
        if matches!(way, Way::Default | Way::Jumbo) {
            wait_for_fast_path(&chain, READY, Self::takes_fast_path)?;
        }
        Ok(chain)
    }
}

impl Sig {
    /// Whether packets have taken the fast path, both ways.
    fn takes_fast_path(&self) -> Result<bool> {
        for end in End::ALL {
            let fast_path = end.site(&self.network).status()?.fast_path;
            if !fast_path.on || fast_path.packets_sent == 0 || fast_path.packets_delivered == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Chain for Sig {
    fn network(&self) -> &Network {
        &self.network
    }

    fn gateways(&self) -> Vec<u32> {
        let pids = End::ALL.map(|end| end.site(&self.network).gateway_pid());
        pids.into_iter().flatten().collect()
    }

    fn restart(&mut self, end: End) -> Result<(), Refusal> {
        let site = end.site_mut(&mut self.network);
        site.kill_gateway()?;
        Ok(site.spawn_gateway()?)
    }
}
