//! Whether workers transmit on LAN interfaces themselves.

use std::sync::Arc;

use tokio::sync::watch;

use crate::control::config::{Config, LanTransmit};
use sig_core::dataplane::lan::LanTable;
use sig_linux::{
    lan::{LanHops, Snapshot},
    netlink::Netlink,
    watch::Watch,
};

/// How packets from remotes reach the hosts, as far as it is known.
#[derive(Clone)]
pub(super) struct Transmit {
    /// What is left to the kernel from start to end, and why.
    helped: Option<String>,
    /// `None`: everything is.
    snapshots: Option<watch::Receiver<Snapshot>>,
}

/// Begins to follow the way to the hosts, if workers may send to them; on which interfaces is told later.
pub(super) fn start(
    config: &Config,
    has_programs: bool,
    netlink: &Netlink,
    watch: &Watch,
) -> (Transmit, Option<LanHops>) {
    let helped = match config.dataplane.lan_transmit {
        LanTransmit::Auto => None,
        LanTransmit::Helper => Some("everything: `[dataplane] lan_transmit = \"helper\"`"),
        LanTransmit::Kernel => {
            Some("everything, through its stack: `[dataplane] lan_transmit = \"kernel\"`")
        }
    };
    if let Some(text) = helped {
        tracing::info!("packets to the LAN are forwarded by the kernel: {text}");
    }
    let name = &config.tunnel.name;
    let follows = helped.is_none() && has_programs;
    let hops = follows.then(|| LanHops::new(netlink, watch, Vec::new(), Vec::new(), name));
    let transmit = Transmit {
        helped: helped.map(str::to_owned),
        snapshots: hops.as_ref().map(LanHops::subscribe),
    };
    (transmit, hops)
}

impl Transmit {
    /// What is known now.
    pub(super) fn snapshot(&self) -> Snapshot {
        let snapshots = self.snapshots.as_ref();
        snapshots.map_or_else(Snapshot::default, |snapshots| snapshots.borrow().clone())
    }

    /// The table for the workers, if there will be any; [`Transmit::changed`] then waits for another.
    pub(super) fn table(&mut self) -> Option<Arc<LanTable>> {
        let snapshots = self.snapshots.as_mut()?;
        Some(snapshots.borrow_and_update().table.clone())
    }

    /// Waits until something else is known; `false` if that is no longer followed.
    pub(super) async fn changed(&mut self) -> bool {
        match &mut self.snapshots {
            Some(snapshots) => snapshots.changed().await.is_ok(),
            None => std::future::pending().await,
        }
    }

    /// What is left to the kernel, and why.
    pub(super) fn helped(&self, snapshot: &Snapshot) -> Vec<String> {
        let families = [("IPv4", &snapshot.no_ipv4), ("IPv6", &snapshot.no_ipv6)];
        let families = families.into_iter().filter_map(|(family, reason)| {
            let reason = reason.as_ref()?;
            Some(format!("all {family} packets: {reason}"))
        });
        self.helped.iter().cloned().chain(families).collect()
    }
}
