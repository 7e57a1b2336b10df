//! Which LAN interfaces workers transmit on themselves.

use std::sync::Arc;

use tokio::sync::watch;

use super::ports::PortFacts;
use crate::control::config::{Config, LanTransmit};
use sig_core::dataplane::lan::LanTable;
use sig_linux::{
    lan::{LanHops, LanPort, Snapshot},
    netlink::Netlink,
    watch::Watch,
};

/// How packets from remotes reach the hosts, as far as it is known.
#[derive(Clone)]
pub(super) struct Transmit {
    /// What is left to the kernel from start to end, and why.
    helped: Vec<String>,
    /// `None`: everything is.
    snapshots: Option<watch::Receiver<Snapshot>>,
}

/// Begins to follow the way to the hosts, if workers may send to them on any interface. After the
/// programs have been attached.
pub(super) fn start(
    config: &Config,
    facts: &[PortFacts],
    netlink: &Netlink,
    watch: &Watch,
) -> (Transmit, Option<LanHops>) {
    let (ports, helped) = ports(config, facts);
    for text in &helped {
        tracing::info!("packets to the LAN are forwarded by the kernel: {text}");
    }
    let hops = (!ports.is_empty())
        .then(|| LanHops::new(netlink, watch, ports, Vec::new(), &config.tunnel.name));
    let transmit = Transmit {
        helped,
        snapshots: hops.as_ref().map(LanHops::subscribe),
    };
    (transmit, hops)
}

/// The interfaces to transmit on, and what is left to the kernel and why.
fn ports(config: &Config, facts: &[PortFacts]) -> (Vec<LanPort>, Vec<String>) {
    match config.dataplane.lan_transmit {
        LanTransmit::Auto => {}
        LanTransmit::Helper => {
            let text = "everything: `[dataplane] lan_transmit = \"helper\"`".into();
            return (Vec::new(), vec![text]);
        }
        LanTransmit::Kernel => {
            let text =
                "everything, through its stack: `[dataplane] lan_transmit = \"kernel\"`".into();
            return (Vec::new(), vec![text]);
        }
    }
    if config.dataplane.lan.is_empty() {
        let text = "everything: no interface in `[dataplane] lan`".into();
        return (Vec::new(), vec![text]);
    }
    if !facts.iter().any(PortFacts::is_lan) {
        let text = "everything, through its stack: BPF is refused".into();
        return (Vec::new(), vec![text]);
    }
    let lan = || facts.iter().filter(|port| port.is_lan());
    let ports = lan().zip(0..).filter(|(port, _)| port.native);
    let ports = ports.map(|(port, number)| LanPort {
        number,
        ifindex: port.ifindex,
        name: port.interface.clone(),
    });
    let generic = lan().filter(|port| !port.native);
    let helped = generic.map(|port| {
        let name = &port.interface;
        format!("{name}: its XDP program is in generic mode")
    });
    (ports.collect(), helped.collect())
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
