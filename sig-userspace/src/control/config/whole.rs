//! What can only be told from several sections together.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use super::XdpMode;
use super::model::{LanTransmit, Pin, Preference, TunnelDevice, UnderlayPort};
use super::remote::RemoteAt;
use super::sections::{Dataplane, Gateway, Tunnel};
use sig_core::document::toml::{Place, Placed, Section};
use sig_core::notation::counted;

/// Compares the sections with each other. Sections that could not be read are left out.
pub(super) fn check(
    root: &Section<'_>,
    gateway: Option<&Placed<'_, Gateway>>,
    tunnel: Option<&Placed<'_, Tunnel>>,
    dataplane: Option<&Placed<'_, Dataplane>>,
    remotes: &[RemoteAt<'_>],
    discovers: bool,
) {
    if let Some(dataplane) = dataplane {
        interfaces(root, tunnel.map(|t| &t.value), &dataplane.value);
        engine(root, &dataplane.value);
    }
    duplicate_remotes(gateway.map(|g| &g.value), remotes);
    duplicate_prefixes(root, gateway.map(|g| &g.value), remotes);
    if let Some(gateway) = gateway {
        loops(&gateway.value, remotes);
        if let Some(dataplane) = dataplane {
            routers_here(root, &gateway.value, &dataplane.value, remotes);
        }
        covered(&gateway.value, remotes);
        if !discovers && gateway.value.prefixes.is_empty() {
            gateway.place.warn(
                "no prefixes: all packets from remotes are \
                 dropped; list the prefixes served here, for example prefixes = [\"10.1.0.0/24\"]",
            );
        }
    }
}

/// Place of `key` in `section` when it is written, else of the section.
fn place<'a>(root: &Section<'a>, section: &'static str, key: &'static str) -> Place<'a> {
    let section = root.section(section);
    section
        .get(key)
        .map_or_else(|| section.place.clone(), |item| item.place)
}

/// A packet of a TUN device lies in one chunk.
const MAX_TUN_MTU: u16 = 3506;

fn interfaces(root: &Section<'_>, tunnel: Option<&Tunnel>, dataplane: &Dataplane) {
    let lan_place = || place(root, "dataplane", "lan");
    for (i, name) in dataplane.lan.iter().enumerate() {
        if dataplane.lan[..i].contains(name) {
            lan_place().error(format!("\"{name}\" is listed twice; remove one"));
        }
        if dataplane.underlay.as_ref() == Some(name) {
            lan_place().error(format!(
                "\"{name}\" is also the underlay interface; write the interface towards the IP hosts"
            ));
        }
    }
    let Some(tunnel) = tunnel else { return };
    if tunnel.device == TunnelDevice::Tun && tunnel.mtu > MAX_TUN_MTU {
        place(root, "tunnel", "mtu").error(format!(
            "a TUN device has an MTU of at most {MAX_TUN_MTU}; write that or less, or device = \"veth\""
        ));
    }
    if dataplane.lan.contains(&tunnel.name) || dataplane.underlay.as_ref() == Some(&tunnel.name) {
        place(root, "tunnel", "name").error(format!(
            "\"{}\" is also an interface of [dataplane], but the tunnel device is created at start; write \
             another name",
            tunnel.name
        ));
    }
}

fn engine(root: &Section<'_>, dataplane: &Dataplane) {
    let limits = &dataplane.limits;
    for (part, share, total, sum) in [
        (
            "streams_per_remote",
            limits.streams_per_remote,
            "streams_total",
            limits.streams_total,
        ),
        (
            "packets_per_remote",
            limits.packets_per_remote,
            "packets_total",
            limits.packets_total,
        ),
        (
            "held_per_remote",
            limits.held_per_remote,
            "held_total",
            limits.held_total,
        ),
    ] {
        if share > sum {
            let section = root.section("dataplane").section("limits");
            let written = section.get(part).or_else(|| section.get(total));
            let place = written.map_or_else(|| section.place.clone(), |item| item.place);
            place.error(format!(
                "one remote may use {share}, but all remotes together only {sum}; write {part} up to {total}"
            ));
        }
    }
    if let Pin::Cpus(cpus) = &dataplane.pin {
        let place = place(root, "dataplane", "pin");
        let workers = usize::from(dataplane.workers);
        if cpus.len() != workers {
            place.error(format!(
                "{} for {}; write one CPU for each worker",
                counted(cpus.len(), "CPU"),
                counted(workers, "worker")
            ));
        }
        for (i, cpu) in cpus.iter().enumerate() {
            if cpus[..i].contains(cpu) {
                place.error(format!(
                    "CPU {cpu} is listed twice; give each worker its own"
                ));
            }
        }
    }
    if dataplane.mode == XdpMode::Generic && dataplane.zero_copy == Preference::Require {
        place(root, "dataplane", "zero_copy").error(
            "zero copy is not available with mode = \"generic\"; write zero_copy = \"auto\" or another mode",
        );
    }
    if dataplane.lan_transmit == LanTransmit::Kernel && !dataplane.lan.is_empty() {
        place(root, "dataplane", "lan_transmit").warn(
            "netfilter sees packets from remotes but not those that XDP takes from the `lan` \
             interfaces; stateful firewalls and NAT need both directions: write lan = []",
        );
    }
    if dataplane.reorder_frames > 0 && dataplane.reorder_wait.is_zero() {
        place(root, "dataplane", "reorder_wait").error(
            "0 never waits for a late frame; write reorder_frames = 0 to switch reordering off",
        );
    }
}

fn duplicate_remotes(local: Option<&Gateway>, remotes: &[RemoteAt<'_>]) {
    let mut seen = HashMap::new();
    for remote in remotes {
        let (Some(isd_as), Some((gateway, place))) = (remote.isd_as, &remote.gateway) else {
            continue;
        };
        // The source of a frame is all that tells remotes apart; its port is not ours to know.
        if let Some(first) = seen.insert((isd_as, gateway.ip()), &remote.place) {
            place.error(format!(
                "{isd_as},{} is already configured as {}; merge their prefixes and paths there",
                gateway.ip(),
                first.shown()
            ));
        }
        if local.is_some_and(|l| l.isd_as == isd_as && l.data_addr.ip() == gateway.ip()) {
            place.error(format!(
                "{isd_as},{} is this gateway itself; remove the remote",
                gateway.ip()
            ));
        }
    }
}

fn duplicate_prefixes(root: &Section<'_>, local: Option<&Gateway>, remotes: &[RemoteAt<'_>]) {
    let mut seen: HashMap<IpNet, String> = HashMap::new();
    for (i, prefix) in local.iter().flat_map(|l| &l.prefixes).enumerate() {
        if let Some(first) = seen.insert(*prefix, format!("gateway.prefixes[{i}]")) {
            place(root, "gateway", "prefixes").error(format!(
                "{prefix} is listed twice, as {first} and [{i}]; remove one"
            ));
        }
    }
    for remote in remotes {
        for (prefix, place) in &remote.prefixes {
            if let Some(first) = seen.get(prefix) {
                place.error(format!(
                    "{prefix} is already listed as {first}; list each prefix once"
                ));
            } else {
                seen.insert(*prefix, place.key.clone());
            }
        }
    }
}

/// AF_XDP reaches no border router on this host.
fn routers_here(
    root: &Section<'_>,
    local: &Gateway,
    dataplane: &Dataplane,
    remotes: &[RemoteAt<'_>],
) {
    let mut next_hops = remotes.iter().flat_map(|remote| &remote.next_hops);
    let is_here = |hop: &&SocketAddr| hop.ip().is_loopback() || hop.ip() == local.data_addr.ip();
    if dataplane.underlay_port == UnderlayPort::Xdp
        && let Some(here) = next_hops.find(is_here)
    {
        place(root, "dataplane", "underlay_port").error(format!(
            "AF_XDP does not reach the border router {here}, which is on this host; write underlay_port = \"auto\" or \"socket\""
        ));
    }
}

/// Frames to a remote must not be routed into the tunnel that makes them.
fn loops(local: &Gateway, remotes: &[RemoteAt<'_>]) {
    let next_hops = remotes.iter().flat_map(|remote| &remote.next_hops);
    let mut underlay: Vec<(IpAddr, String)> = next_hops
        .map(|hop| (hop.ip(), format!("the next hop {}", hop.ip())))
        .collect();
    underlay.sort();
    underlay.dedup();
    let own = local.data_addr.ip();
    underlay.insert(0, (own, format!("this gateway's address {own}")));
    for (prefix, place) in remotes.iter().flat_map(|remote| &remote.prefixes) {
        if prefix.prefix_len() == 0 {
            place.warn(format!(
                "{prefix} sends all traffic without a more specific route \
                 through the tunnel; make sure that the underlay and your management access have one"
            ));
        } else if let Some((_, what)) = underlay.iter().find(|(ip, _)| prefix.contains(ip)) {
            place.error(format!(
                "{prefix} contains {what}: frames would be sent into the tunnel itself; \
                 write prefixes without it"
            ));
        }
    }
}

/// Prefixes of both sides that contain each other work, longest first, but are seldom meant.
fn covered(local: &Gateway, remotes: &[RemoteAt<'_>]) {
    for (prefix, place) in remotes.iter().flat_map(|remote| &remote.prefixes) {
        if prefix.prefix_len() == 0 {
            continue;
        }
        let overlap =
            |own: &&IpNet| *own != prefix && (own.contains(prefix) || prefix.contains(*own));
        if let Some(own) = local.prefixes.iter().find(overlap) {
            let shorter = if own.contains(prefix) { own } else { prefix };
            place.warn(format!(
                "{prefix} overlaps {own}, which is served here; the longer prefix \
                 wins; check that {shorter} is intended"
            ));
        }
    }
}
