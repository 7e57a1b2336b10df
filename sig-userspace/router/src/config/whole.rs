//! What can only be told from own file and topology together, and the model that they make.

use std::collections::{BTreeMap, HashMap};

use sig_common::router::maps::{MAX_INTERFACES, MAX_SERVICES, MAX_SIBLINGS, SLOTS};

use super::own::Own;
use crate::{AsModel, Interface, Owner, Sibling};
use sig_core::{
    document::toml::Section,
    problem::excerpt,
    scion::HopKey,
    topology::{self, Router, Topology},
};

/// Largest packets of the control plane: QUIC packets of 1280 bytes with UDP and SCION headers of a path of three segments.
const CONTROL_PACKET: u16 = 1460;

/// How many names a message has at most.
const NAMES_TOLD: usize = 8;

/// The model; `None` without a key, or if something is wrong, which is reported.
pub(super) fn model(
    root: &Section<'_>,
    own: &Own,
    topology: &Topology<'_>,
    key: Option<HopKey>,
) -> Option<AsModel> {
    let Some(router) = topology.routers.iter().find(|router| router.name == own.id) else {
        let names: Vec<String> = topology
            .routers
            .iter()
            .take(NAMES_TOLD)
            .map(|router| format!("\"{}\"", excerpt(&router.name)))
            .collect();
        let section = root.section("general");
        let place = section.get("id").map_or(section.place, |item| item.place);
        place.error(if names.is_empty() {
            "the topology has no border routers".to_owned()
        } else {
            format!(
                "the topology has no such router; write one of: {}",
                names.join(", ")
            )
        });
        return None;
    };
    let unique = addresses_are_unique(topology, router);
    let few = numbers_fit(topology, router);
    let mut interfaces = BTreeMap::new();
    let mut siblings = Vec::new();
    let mut owners: HashMap<u16, &str> = HashMap::new();
    let mut once = true;
    for router in &topology.routers {
        let is_own = router.name == own.id;
        for interface in &router.interfaces {
            if let Some(other) = owners.insert(interface.number, &router.name) {
                let other = excerpt(other);
                interface.node.error(format!(
                    "interface {} already belongs to \"{other}\"; interface numbers are unique within an AS, write another",
                    interface.number
                ));
                once = false;
            }
            let owner = match &interface.underlay {
                Some([(local, _), (remote, _)]) => Owner::Here {
                    local: *local,
                    remote: *remote,
                },
                None => Owner::Sibling(siblings.len()),
            };
            interfaces.insert(interface.number, make(interface, owner, own));
        }
        if !is_own {
            siblings.push(Sibling {
                name: router.name.clone(),
                internal: router.internal.0,
            });
        }
    }
    if !(unique && few && once) {
        return None;
    }
    let ports = own.ports.clone().unwrap_or_else(|| topology.ports.clone());
    // Who sets the ports to none in the own file means it.
    if ports.is_some() || own.ports.is_none() {
        topology.warn_of_ports(ports.as_ref());
    }
    for interface in router
        .interfaces
        .iter()
        .filter(|interface| interface.mtu < CONTROL_PACKET)
    {
        interface.node.warn(format!(
            "MTU {}: control-plane packets have up to {CONTROL_PACKET} bytes; larger ones are fragmented \
             on the slow path; firewalls on the link must allow fragments",
            interface.mtu
        ));
    }
    Some(AsModel {
        router: own.id.clone(),
        isd_as: topology.isd_as,
        core: topology.core,
        mtu: topology.mtu,
        internal: router.internal.0,
        ports,
        interfaces,
        siblings,
        control_services: topology.control_services.clone(),
        discovery_services: topology.discovery_services.clone(),
        services: topology.service_addresses(),
        sibling_bfd: own.bfd,
        key: key?,
    })
}

fn make(interface: &topology::Interface<'_>, owner: Owner, own: &Own) -> Interface {
    Interface {
        owner,
        neighbour: interface.neighbour,
        neighbour_interface: interface.neighbour_interface,
        link_type: interface.link_type,
        mtu: interface.mtu,
        bfd: interface.bfd.or(own.bfd),
    }
}

/// Routers are told apart by their internal addresses, and links of this router by its own.
fn addresses_are_unique(topology: &Topology<'_>, own: &Router<'_>) -> bool {
    let internal = topology.routers.iter().map(|router| &router.internal);
    let links = own.interfaces.iter().filter_map(|interface| {
        let [local, _] = interface.underlay.as_ref()?;
        Some(local)
    });
    let mut unique = true;
    let mut taken = HashMap::new();
    for (address, node) in internal.chain(links) {
        if let Some(other) = taken.insert(*address, &node.key) {
            node.error(format!(
                "{address} is already used by {other}; write another"
            ));
            unique = false;
        }
    }
    unique
}

/// What the fast path has room for.
fn numbers_fit(topology: &Topology<'_>, own: &Router<'_>) -> bool {
    // The inside has a place among the counters too, and half of what changes is for the next configuration.
    let (links, routers) = (SLOTS as usize - 1, MAX_SIBLINGS as usize / 2 + 1);
    let (interfaces, services) = (MAX_INTERFACES as usize / 2, MAX_SERVICES as usize / 2);
    let all: usize = topology
        .routers
        .iter()
        .map(|router| router.interfaces.len())
        .sum();
    let mut fit = true;
    for (count, most, what) in [
        (own.interfaces.len(), links, "interfaces of one router"),
        (topology.routers.len(), routers, "border routers"),
        (all, interfaces, "interfaces of the AS"),
        (topology.services.len(), services, "service addresses"),
    ] {
        if count > most {
            own.node
                .error(format!("there are {count} {what}, but the limit is {most}"));
            fit = false;
        }
    }
    fit
}
