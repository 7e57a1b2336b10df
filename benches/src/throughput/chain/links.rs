//! What is the same on the links of every chain.

use anyhow::Result;
use testbed::{Family, Network};

use super::End;

/// Gives all devices the same settings, and clients and gateways permanent neighbours.
///
/// Offloads are off, so that every chain handles the same packets: with segmentation offload the kernel's forwarding
/// would move 64 KiB at a time where a gateway moves what is on the wire, and veth would never compute a checksum.
/// Only clients merge what they receive: a veth device does not take what XDP redirects to its peer otherwise.
/// Neighbours are permanent because a generator and a sink that bypass the kernel do not answer for the client.
pub(super) fn prepare(network: &Network) -> Result<()> {
    for end in End::ALL {
        let site = end.site(network);
        for (netns, devices) in [
            (&site.client, &["lan"][..]),
            (&site.gateway, &["lan", "underlay"]),
            (&site.router, &["inside"]),
            (site.router_host(), &["outside"]),
        ] {
            for device in devices {
                netns.exec(&format!(
                    "ethtool -K {device} tx off rx off sg off tso off gso off gro off"
                ))?;
            }
        }
        site.client.exec("ethtool -K lan gro on")?;
        let (client, gateway) = (mac(site.client_mac()), mac(site.gateway_mac()));
        for family in Family::ALL {
            let (client_ip, gateway_ip) = (site.client_ip(family), site.gateway_ip(family));
            site.client.ip(&format!(
                "neighbour replace {gateway_ip} lladdr {gateway} dev lan nud permanent"
            ))?;
            site.gateway.ip(&format!(
                "neighbour replace {client_ip} lladdr {client} dev lan nud permanent"
            ))?;
        }
    }
    Ok(())
}

fn mac(bytes: [u8; 6]) -> String {
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}
