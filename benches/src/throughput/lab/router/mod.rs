//! A border router between links to two other ASes, and the packets that cross it.
//!
//! ```text
//!   parent AS (generator) ── interface 1  router  interface 2 ── child AS (sink)
//! ```
//!
//! Packets go down a segment: one hop field to verify, and one change of the segment identifier. The path has two hops,
//! so that an Ethernet frame of 138 bytes, the size in published figures, has room for a marker.

mod ours;
mod reference;

use std::{
    fs,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use sig_common::{
    addr::{HostAddr, IsdAs},
    wire::{
        ethernet, ipv4, ipv6,
        scion::{address::AddressHeader, common, path},
        udp,
    },
};
use sig_core::scion::MacInput;
use sig_router::{AsModel, config};

use super::network::{Link, Network};
use crate::throughput::{
    experiment::{Case, Family},
    instrument::packet::{Expect, IpLoad, ScionLoad},
    layout::MARKER_LEN,
};

pub(super) use ours::Router;
pub(super) use reference::Reference;

/// The AS of the router.
const OWN_AS: IsdAs = isd_as(0x110);
/// The AS that packets come from.
const PARENT: IsdAs = isd_as(1);
/// The AS that they go to.
const CHILD: IsdAs = isd_as(0x111);
/// Interfaces to the parent and to the child.
const INTERFACES: [u16; 2] = [1, 2];
/// UDP port of both ends of both links.
const PORT: u16 = 50_000;
/// Largest SCION packet on links and in the AS.
const LINK_MTU: u16 = 1452;
/// The master key in base64. It protects nothing: the network is for measuring.
const MASTER_KEY: &str = "AAECAwQFBgcICQoLDA0ODw==";
/// Segment identifier as packets arrive.
const SEGMENT_ID: u16 = 0x1234;
/// Relative expiry: six hours.
const EXPIRY: u8 = 63;
/// Bytes of a path header with two hops in one segment.
const PATH_LEN: usize = path::META_LEN + path::INFO_LEN + 2 * path::HOP_LEN;
/// Bytes of the address header: hosts have IPv4 addresses, whatever the underlay.
const ADDRESSES_LEN: usize = 16 + 2 * 4;

/// `1-ff00:0:NUMBER`.
const fn isd_as(number: u64) -> IsdAs {
    IsdAs(1 << 48 | 0xff00_0000_0000 | number)
}

/// Both ends of a link: the router's, and the neighbour's.
fn ends(link: &Link, family: Family) -> [SocketAddr; 2] {
    [link.device_ip(family), link.tester_ip(family)].map(|ip| SocketAddr::new(ip, PORT))
}

/// Length of the shortest IP packet in the underlay that holds a marker.
pub(super) fn shortest(family: Family) -> u16 {
    let ip = match family {
        Family::Ipv4 => ipv4::HEADER_LEN,
        Family::Ipv6 => ipv6::HEADER_LEN,
    };
    (ip + 2 * udp::HEADER_LEN + common::HEADER_LEN + ADDRESSES_LEN + PATH_LEN) as u16
        + MARKER_LEN as u16
}

/// What the generator sends; of `underlay` everything but the UDP header.
pub(super) fn load(network: &Network, underlay: IpLoad) -> Result<ScionLoad> {
    Ok(ScionLoad {
        underlay: IpLoad {
            destination: match underlay.source {
                IpAddr::V4(_) => network.left.device_ip(Family::Ipv4),
                IpAddr::V6(_) => network.left.device_ip(Family::Ipv6),
            },
            ..underlay
        },
        ports: [PORT; 2],
        addresses: AddressHeader {
            destination_isd_as: CHILD,
            source_isd_as: PARENT,
            destination: HostAddr::V4([10, 0, 0, 2]),
            source: HostAddr::V4([10, 0, 0, 1]),
        },
        path: Segment::of(network)?.arriving().to_vec(),
    })
}

/// What the sink sees behind the router.
pub(super) fn expect(network: &Network, case: &Case) -> Result<Expect> {
    let at =
        ethernet::HEADER_LEN as u16 + shortest(case.family) - (udp::HEADER_LEN + MARKER_LEN) as u16;
    Ok(Expect::Scion {
        at,
        path_at: at - PATH_LEN as u16,
        path: Segment::of(network)?.leaving(),
    })
}

/// The segment of the path.
struct Segment {
    hop: MacInput,
    mac: [u8; 6],
}

impl Segment {
    /// That of a network, made when the network was.
    fn of(network: &Network) -> Result<Self> {
        let hop = MacInput {
            segment_id: SEGMENT_ID,
            timestamp: network.born,
            expiry: EXPIRY,
            ingress: INTERFACES[0],
            egress: INTERFACES[1],
        };
        let mac = model(network, Family::Ipv4)?.key.mac(&hop);
        Ok(Self { hop, mac })
    }

    /// The path header in front of the router.
    fn arriving(&self) -> [u8; PATH_LEN] {
        let mut header = [0; PATH_LEN];
        header[..8].copy_from_slice(&start(0, self.hop.segment_id));
        header[8..12].copy_from_slice(&self.hop.timestamp.to_be_bytes());
        // The router's own hop field; nobody looks at that of the child.
        let hop = &mut header[12..24];
        hop[1] = self.hop.expiry;
        hop[2..4].copy_from_slice(&self.hop.ingress.to_be_bytes());
        hop[4..6].copy_from_slice(&self.hop.egress.to_be_bytes());
        hop[6..].copy_from_slice(&self.mac);
        header[25] = EXPIRY;
        header[27] = 1;
        header
    }

    /// The start of the path header behind the router.
    fn leaving(&self) -> [u8; 8] {
        let [m0, m1, ..] = self.mac;
        start(1, self.hop.segment_id ^ u16::from_be_bytes([m0, m1]))
    }
}

/// Path meta header, and the first half of the info field of a segment in construction direction.
fn start(current_hop: u8, segment_id: u16) -> [u8; 8] {
    let meta = path::Meta {
        current_info: 0,
        current_hop,
        segments: [2, 0, 0],
    };
    let [m0, m1, m2, m3] = meta.encode();
    let [s0, s1] = segment_id.to_be_bytes();
    [m0, m1, m2, m3, 1, 0, s0, s1]
}

/// The AS as our router makes it of the files that the reference's router gets.
fn model(network: &Network, family: Family) -> Result<AsModel> {
    let topology = topology(network, family)?;
    let read = |file: &Path| {
        let is_topology = file.ends_with("topology.json");
        let text = if is_topology { &topology } else { MASTER_KEY };
        Ok(text.as_bytes().to_vec())
    };
    let (settings, _) = config::check(CONFIGURATION, "router.toml", &Path::to_path_buf, &read)?;
    Ok(settings.model)
}

/// Writes the files of the router of the reference, and returns its own one, `router.toml`.
fn write_files(network: &Network, family: Family) -> Result<PathBuf> {
    let folder = network.folder.path();
    fs::create_dir_all(folder.join("keys")).context("cannot make the folder of keys")?;
    for (name, text) in [
        ("keys/master0.key", MASTER_KEY.to_owned()),
        ("keys/master1.key", MASTER_KEY.to_owned()),
        ("topology.json", topology(network, family)?),
        ("router.toml", CONFIGURATION.to_owned()),
    ] {
        let file = folder.join(name);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(folder.join("router.toml"))
}

const CONFIGURATION: &str = "[general]\nid = \"br-1\"\nconfig_dir = \".\"\n\n\
                             [log.console]\nlevel = \"info\"\n";

fn topology(network: &Network, family: Family) -> Result<String> {
    let interface = |link, neighbour: IsdAs, link_to| {
        let [local, remote] = ends(link, family).map(|end| end.to_string());
        serde_json::json!({
            "underlay": { "local": local, "remote": remote },
            "isd_as": neighbour.to_string(),
            "link_to": link_to,
            "mtu": LINK_MTU,
            // The tester does not speak BFD.
            "bfd": { "disable": true },
        })
    };
    let topology = serde_json::json!({
        "attributes": [],
        "isd_as": OWN_AS.to_string(),
        "mtu": LINK_MTU,
        "dispatched_ports": "1024-65535",
        "border_routers": { "br-1": {
            "internal_addr": "127.0.0.1:30042",
            "interfaces": {
                INTERFACES[0].to_string(): interface(&network.left, PARENT, "PARENT"),
                INTERFACES[1].to_string(): interface(&network.right, CHILD, "CHILD"),
            },
        } },
    });
    Ok(serde_json::to_string_pretty(&topology)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ases_have_the_numbers_of_documentation() {
        let names = [OWN_AS, PARENT, CHILD].map(|isd_as| isd_as.to_string());
        assert_eq!(names, ["1-ff00:0:110", "1-ff00:0:1", "1-ff00:0:111"]);
    }

    #[test]
    fn published_frames_of_138_bytes_are_the_shortest() {
        let frame = |family| ethernet::HEADER_LEN as u16 + shortest(family);
        assert_eq!(frame(Family::Ipv4), 138);
        assert_eq!(frame(Family::Ipv6), 158);
    }
}
