//! The model of the AS in the maps of the XDP programs, and the fast path of a running router.

mod devices;
mod running;

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use sig_common::{
    maps::Ip,
    router::{
        aes,
        maps::{Config, Endpoint, INSIDE_SLOT, Interface, NextHop, SLOTS, Sibling, UNTAGGED},
    },
    wire::{ipv4, ipv6, udp},
};

use super::{AsModel, Owner};
pub use crate::kernel::bpf::RouterTables;
pub use running::{DeviceStatus, FastPath, Orders, OwnAddresses};

/// Bytes of the headers that SCION packets have in the underlay.
const UDP_LEN: u16 = udp::HEADER_LEN as u16;
const IPV4_LEN: u16 = ipv4::HEADER_LEN as u16;
const IPV6_LEN: u16 = ipv6::HEADER_LEN as u16;

/// What the underlay is like: devices, link-layer addresses, and which links live.
pub trait Underlay {
    /// Interface indexes of the devices that packets to one of our addresses come in by. None: they are left to the slow
    /// path.
    fn devices(&self, local: IpAddr) -> Vec<u32>;

    /// The way from one of our addresses to the other end of a link or to a sibling, if it is known and one that the XDP
    /// program can take.
    fn way(&self, local: SocketAddr, remote: SocketAddr) -> Option<Way>;

    /// Whether packets may leave by an interface of the AS.
    fn is_up(&self, interface: u16) -> bool;
}

/// A way through the underlay: the next device on the link layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Interface index of the device to send through.
    pub ifindex: u32,
    /// Largest IP packet that the device sends, bytes; 0: not known.
    pub mtu: u16,
    /// VLAN to tag with.
    pub vlan: Option<u16>,
    /// The device's own MAC address.
    pub source_mac: [u8; 6],
    /// MAC address of who takes the packet.
    pub destination_mac: [u8; 6],
}

/// Where the packets of each link are counted. A link keeps its place over changes of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    links: BTreeMap<u16, u16>,
    /// The lowest place that was never given away.
    next: u16,
}

impl Slots {
    /// Gives places to the links of a model, and takes back those of links that are gone. New links get a place that
    /// nobody had, as long as there are any: counters never start anew.
    pub fn update(&mut self, model: &AsModel) {
        self.links
            .retain(|link, _| model.links().any(|(number, ..)| number == *link));
        for (number, ..) in model.links() {
            if !self.links.contains_key(&number)
                && let Some(slot) = self.free()
            {
                self.links.insert(number, slot);
            }
        }
    }

    /// The place of a link. Links beyond the last place share that of the inside, as interfaces of siblings do.
    #[must_use]
    pub fn of(&self, interface: u16) -> u16 {
        self.links.get(&interface).copied().unwrap_or(INSIDE_SLOT)
    }

    /// All places of links.
    pub fn iter(&self) -> impl Iterator<Item = (u16, u16)> {
        self.links.iter().map(|(link, slot)| (*link, *slot))
    }

    fn free(&mut self) -> Option<u16> {
        let limit = SLOTS as u16;
        let fresh = self.next.max(INSIDE_SLOT + 1);
        if fresh < limit {
            self.next = fresh + 1;
            return Some(fresh);
        }
        (INSIDE_SLOT + 1..limit).find(|slot| !self.links.values().any(|used| used == slot))
    }
}

/// The tables of a model. `cpus` is how many CPUs packets are spread over, 0 for none.
#[must_use]
pub fn tables(model: &AsModel, underlay: &impl Underlay, slots: &Slots, cpus: u16) -> RouterTables {
    let mut endpoints = BTreeMap::new();
    let mut receive = |local: SocketAddr, endpoint: Endpoint| {
        for ifindex in underlay.devices(local.ip()) {
            endpoints.insert((ifindex, local), endpoint);
        }
    };
    receive(
        model.internal,
        Endpoint {
            remote: Ip([0; 16]),
            remote_port: 0,
            interface: 0,
            slot: INSIDE_SLOT,
            reserved: 0,
        },
    );
    for (number, _, local, remote) in model.links() {
        receive(
            local,
            Endpoint {
                remote: ip(remote),
                remote_port: remote.port(),
                interface: number,
                slot: slots.of(number),
                reserved: 0,
            },
        );
    }
    let number_of = |place: usize| u16::try_from(place + 1).ok();
    let siblings = (0..).zip(&model.siblings).filter_map(|(place, sibling)| {
        let number = number_of(place)?;
        Some((
            sibling.internal,
            Sibling {
                number,
                reserved: 0,
            },
        ))
    });
    let interfaces = model.interfaces.iter().filter_map(|(number, interface)| {
        let (owner, local, remote, mtu) = match interface.owner {
            Owner::Here { local, remote } => (0, local, remote, interface.mtu),
            Owner::Sibling(place) => {
                let sibling = model.siblings.get(place)?;
                (
                    number_of(place)?,
                    model.internal,
                    sibling.internal,
                    model.mtu,
                )
            }
        };
        let entry = Interface {
            owner,
            slot: slots.of(*number),
            link_type: interface.link_type as u8,
            up: underlay.is_up(*number).into(),
            reserved: 0,
            next_hop: next_hop(local, remote, mtu, underlay.way(local, remote)),
        };
        Some((*number, entry))
    });
    RouterTables {
        config: config(model, cpus),
        siblings: siblings.collect(),
        services: model.services.clone(),
        interfaces: interfaces.collect(),
        endpoints,
    }
}

/// A next hop by a way; without one, packets to it are left to the slow path. `mtu` is the largest SCION packet of the
/// link, or of the AS if the next hop is a sibling.
#[must_use]
pub fn next_hop(local: SocketAddr, remote: SocketAddr, mtu: u16, way: Option<Way>) -> NextHop {
    let unknown = Way {
        ifindex: 0,
        mtu: 0,
        vlan: None,
        source_mac: [0; 6],
        destination_mac: [0; 6],
    };
    let valid = u8::from(way.is_some());
    let way = way.unwrap_or(unknown);
    let headers = UDP_LEN
        + if remote.ip().to_canonical().is_ipv4() {
            IPV4_LEN
        } else {
            IPV6_LEN
        };
    let mtu = mtu.saturating_add(headers);
    let mtu = if way.mtu == 0 { mtu } else { mtu.min(way.mtu) };
    NextHop {
        source: ip(local),
        destination: ip(remote),
        source_port: local.port(),
        destination_port: remote.port(),
        ifindex: way.ifindex,
        mtu,
        vlan: way.vlan.unwrap_or(UNTAGGED),
        source_mac: way.source_mac,
        destination_mac: way.destination_mac,
        valid,
        reserved: [0; 3],
    }
}

fn config(model: &AsModel, cpus: u16) -> Config {
    let (first_port, last_port) = match &model.ports {
        Some(ports) => (*ports.start(), *ports.end()),
        None => (0, 0),
    };
    Config {
        isd_as: model.isd_as.0,
        internal: ip(model.internal),
        internal_port: model.internal.port(),
        first_port,
        last_port,
        cpus,
        subkey: [0; 4],
        round_keys: [0; aes::ROUND_KEYS],
    }
    .with_key(*model.key.bytes())
}

fn ip(address: SocketAddr) -> Ip {
    Ip::from(address.ip().to_canonical())
}
