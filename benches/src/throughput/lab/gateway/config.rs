//! The configuration of a gateway in the lab.

use super::{Direction, Way};
use crate::throughput::{
    experiment::{Case, Family},
    lab::network::{Link, Network},
};

/// Underlay path MTU: SCION packet without the IP and UDP header of the underlay.
const PATH_MTU: u16 = 1472;
/// Bytes in front of the inner packet in an IPv4 packet of the underlay: IPv4, UDP, SCION with addresses and
/// path, UDP and SIG header.
pub(in super::super) const OVERHEAD: u16 = 20 + 8 + 12 + (16 + 2 * 4) + 36 + 8 + 16;
/// A path of one segment with one hop in each AS, as the SCION daemon gives it, without the first four bytes.
/// It expires in 2106, as late as a path can. Nothing here looks at its MACs.
pub(in super::super) const PATH: &str =
    "01001234ffffffff 003f00000001010203040506 003f000200000708090a0b0c";
/// The AS of the gateway.
pub(in super::super) const OWN_AS: &str = "1-ff00:0:110";
/// The AS that the tester plays.
pub(in super::super) const REMOTE_AS: &str = "1-ff00:0:111";
/// Address of the gateway that the tester plays.
pub(in super::super) const REMOTE: [u8; 4] = [10, 99, 0, 2];
/// Port of both gateways.
pub(in super::super) const DATA_PORT: u16 = 30056;

/// The text of the configuration.
pub(super) fn text(network: &Network, way: Way, case: &Case) -> String {
    let direction = way.direction();
    let (lan, underlay) = match direction {
        Direction::Encapsulate => (&network.left, &network.right),
        Direction::Decapsulate => (&network.right, &network.left),
    };
    // The other site's LAN: where packets go to, or come from.
    let elsewhere = underlay;
    let transmit = match way {
        Way::Encapsulate | Way::FastEncapsulate => "",
        Way::Straight | Way::FastDecapsulate => "lan_transmit = \"auto\"\n",
        Way::Helper => "lan_transmit = \"helper\"\n",
    };
    let fast_path = if way.is_fast() { "on" } else { "off" };
    let [a, b, c, d] = REMOTE;
    // The generator's frames come from the remote's address, without a border router between.
    let sources = match direction {
        Direction::Encapsulate => String::new(),
        Direction::Decapsulate => format!("underlay_sources = [\"{a}.{b}.{c}.{d}/32\"]\n"),
    };
    format!(
        "[gateway]\nid = \"lab\"\nisd_as = \"{OWN_AS}\"\ndata_addr = \"{address}:{DATA_PORT}\"\n\
         prefixes = [{own}]\nstatus_socket = \"{socket}\"\n\n\
         [tunnel]\nname = \"sig\"\n\n\
         [dataplane]\nunderlay = \"{underlay}\"\nlan = [\"{lan}\"]\nworkers = 1\npin = [{cpu}]\n\
         fast_path = \"{fast_path}\"\n{transmit}{sources}\n\
         [[remote]]\nisd_as = \"{REMOTE_AS}\"\ngateway = \"{a}.{b}.{c}.{d}:{DATA_PORT}\"\n\
         prefixes = [{remote}]\n\n\
         [[remote.path]]\nraw = \"00002000 {PATH}\"\nnext_hop = \"{router}\"\nmtu = {PATH_MTU}\n",
        address = underlay.device_underlay(),
        own = prefixes(lan),
        socket = super::socket(network).display(),
        underlay = underlay.device,
        lan = lan.device,
        cpu = case.cpus.device,
        remote = prefixes(elsewhere),
        router = underlay.router(),
    )
}

fn prefixes(link: &Link) -> String {
    [Family::Ipv4, Family::Ipv6]
        .map(|family| format!("{:?}", link.prefix(family)))
        .join(", ")
}
