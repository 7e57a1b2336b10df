//! The kernel's own forwarding.

use anyhow::Result;

use super::{
    device::{UnderTest, add_napi},
    napi,
    network::Network,
};
use crate::throughput::{
    experiment::{Case, Family},
    instrument::run::Snapshot,
};

/// Forwarding of the kernel, on a thread of its own.
pub(super) struct Kernel {
    napi: Vec<u32>,
}

impl Kernel {
    /// Has the kernel forward from the left LAN to the right one.
    pub(super) fn forward(network: &Network, case: &Case) -> Result<Self> {
        // What the generator sends without the kernel's stack arrives only where NAPI runs.
        let left = &network.left.device;
        network.device.exec(&format!("ethtool -K {left} gro on"))?;
        let napi = napi::run_first_in_threads(&network.device, left, case.cpus.device)?;
        Ok(Kernel { napi })
    }

    /// The same, into a VXLAN tunnel over the right link, which is an underlay.
    pub(super) fn vxlan(network: &Network, case: &Case) -> Result<Self> {
        let right = &network.right;
        // On the other side of the tunnel, where nobody answers.
        let mac = "02:00:00:02:00:01";
        let (v4, v6) = (right.tester_ip(Family::Ipv4), right.tester_ip(Family::Ipv6));
        let (net4, net6) = (right.prefix(Family::Ipv4), right.prefix(Family::Ipv6));
        network.device.ip(&format!(
            "link add vxlan type vxlan id 42 local {local} remote {router} dstport 4789 dev {device}\n\
             link set vxlan mtu 1500 up\n\
             route add {net4} dev vxlan\n\
             route add {net6} dev vxlan\n\
             neigh replace {v4} lladdr {mac} nud permanent dev vxlan\n\
             neigh replace {v6} lladdr {mac} nud permanent dev vxlan\n",
            local = right.device_underlay(),
            router = right.router().ip(),
            device = right.device,
        ))?;
        Self::forward(network, case)
    }
}

impl UnderTest for Kernel {
    fn read(&mut self, snapshot: &mut Snapshot) -> Result<()> {
        add_napi(snapshot, &self.napi);
        Ok(())
    }
}
