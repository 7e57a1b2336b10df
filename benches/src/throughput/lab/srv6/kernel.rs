//! The kernel as SR node.

use anyhow::Result;
use sig_common::srv6::Behavior as Sid;

use super::{NEXT, SID, TABLE, add_routes, behavior};
use crate::throughput::{
    experiment::{Behavior, Case, Family},
    lab::{kernel::Kernel, network::Network},
    subject::Refusal,
};

/// Complains about what the kernel cannot do.
pub(super) fn check(behavior: Behavior) -> Result<(), Refusal> {
    match behavior {
        Behavior::Sid(Sid::EndDt4 | Sid::EndDt46) => Err(Refusal::NotHere(format!(
            "{behavior} of the kernel needs a VRF device"
        ))),
        behavior if behavior.is_proxy() => {
            Err(Refusal::NotHere("the kernel has no proxies".into()))
        }
        _ => Ok(()),
    }
}

/// Has the kernel do what a case says.
pub(in super::super) fn start(network: &Network, case: &Case) -> Result<Kernel> {
    let (left, right) = (&network.left.device, &network.right.device);
    for device in ["all", left] {
        let seg6 = format!("net/ipv6/conf/{device}/seg6_enabled");
        network.device.set_sysctls(&[(&seg6, "1")])?;
    }
    add_routes(network)?;
    let [v4, v6] = [Family::Ipv4, Family::Ipv6].map(|family| network.right.tester_ip(family));
    let route = match behavior(case)? {
        behavior if behavior.is_headend() => {
            let [first, last] = NEXT;
            let mode = match behavior {
                Behavior::EncapsFrames => "l2encap",
                Behavior::Insert => "inline",
                _ => "encap",
            };
            // Without this it looks for a source address for every packet.
            let source = network.right.device_ip(Family::Ipv6);
            let encap = format!("encap seg6 mode {mode} segs {first},{last} dev {right}");
            // Insertion is for IPv6.
            let v4 = match behavior {
                Behavior::Insert => String::new(),
                _ => format!("route add {v4}/32 {encap}\n"),
            };
            format!(
                "sr tunsrc set {source}\n\
                 {v4}\
                 route add {v6}/128 {encap}\n"
            )
        }
        behavior => {
            let Behavior::Sid(sid) = behavior else {
                anyhow::bail!("the kernel has no {behavior}");
            };
            let name = sid.name();
            let argument = match sid {
                Sid::EndX | Sid::EndDx6 => format!("nh6 {v6}"),
                Sid::EndDx4 => format!("nh4 {v4}"),
                Sid::EndT | Sid::EndDt6 => format!("table {TABLE}"),
                Sid::EndDx2 => format!("oif {right}"),
                _ => String::new(),
            };
            format!("route add {SID}/128 encap seg6local action {name} {argument} dev {right}\n")
        }
    };
    network.device.ip(&route)?;
    Kernel::forward(network, case)
}
