//! The model of the AS in the maps of the XDP programs, and the fast path of a running router.

mod devices;
mod ports;
mod running;

use std::{collections::BTreeMap, net::SocketAddr};

use sig_common::{
    maps::Ip,
    router::{
        aes,
        maps::{
            self, ANY_DEVICE, Config, Endpoint, INSIDE_SLOT, Interface, MAX_PORTS, NextHop, SLOTS,
            TAG_MASK, Tags,
        },
    },
    wire::{ethernet::Tag, ipv4, ipv6, udp},
};

use super::{AsModel, Owner, model::sibling_number};
pub use ports::Arrivals;
pub use running::{DeviceStatus, FastConfig, FastPath, Host, HostView};
pub use sig_linux::bpf::RouterTables;

/// Bytes of the headers that SCION packets have in the underlay.
const UDP_LEN: u16 = udp::HEADER_LEN as u16;
const IPV4_LEN: u16 = ipv4::HEADER_LEN as u16;
const IPV6_LEN: u16 = ipv6::HEADER_LEN as u16;

/// What the underlay is like: devices, link-layer addresses, and which links live.
pub trait Underlay {
    /// Every device with the program, and every VLAN on it.
    fn ports(&self) -> Vec<Port>;

    /// Those of them by which packets to an address of ours come in.
    fn arrival(&self, local: SocketAddr) -> Arrival;

    /// The route from one of our addresses to the other end of a link or to a sibling, if it is known and one that the XDP
    /// program can take.
    fn route(&self, local: SocketAddr, remote: SocketAddr) -> Option<UnderlayRoute>;

    /// Whether packets may leave by an interface of the AS.
    fn is_up(&self, interface: u16) -> bool;
}

/// A device that packets come in by, or a VLAN on one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// Interface index of the device with the program.
    pub ifindex: u32,
    /// The tags that frames have there.
    pub tags: Tags,
    /// MAC address that frames are for.
    pub mac: [u8; 6],
}

/// Where packets to an address come in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// By any device: the address belongs to none in particular.
    Anywhere,
    /// By these. What comes in elsewhere is dropped.
    By(Vec<Port>),
}

/// How packets are spread over CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// Over how many; 0: each is handled where it comes in.
    pub cpus: u16,
    /// Start of the hash, so that strangers cannot choose the CPU.
    pub seed: u64,
}

/// A tag of a VLAN as maps hold it.
#[must_use]
pub const fn map_tag(tag: Tag) -> u32 {
    ((tag.tpid as u32) << 16 | tag.tci as u32) & TAG_MASK
}

/// A route through the underlay: the next device on the link layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnderlayRoute {
    /// Interface index of the device to send through.
    pub ifindex: u32,
    /// Largest IP packet that the device sends, bytes; 0: not known.
    pub mtu: u16,
    /// The tags that frames get.
    pub tags: Tags,
    /// Whether the device sends frames in several buffers.
    pub fragments: bool,
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

/// The tables of a model.
#[must_use]
pub fn tables(
    model: &AsModel,
    underlay: &impl Underlay,
    slots: &Slots,
    spread: Spread,
) -> RouterTables {
    let mut endpoints = BTreeMap::new();
    let mut receive = |local: SocketAddr, mut endpoint: Endpoint| {
        if let Arrival::By(ports) = underlay.arrival(local) {
            for port in ports {
                endpoint.mac = number_of_mac(port.mac);
                endpoints.insert((port.ifindex, port.tags, local), endpoint);
            }
            endpoint.refused = 1;
        }
        endpoint.mac = 0;
        endpoints.insert((ANY_DEVICE, [0; 2], local), endpoint);
    };
    receive(
        model.internal,
        Endpoint {
            remote: Ip([0; 16]),
            remote_port: 0,
            interface: 0,
            slot: INSIDE_SLOT,
            refused: 0,
            mac: 0,
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
                refused: 0,
                mac: 0,
            },
        );
    }
    // Half of the room is for the next generation. What comes in by ports beyond that is left to the kernel.
    let ports = underlay.ports().into_iter().take(MAX_PORTS as usize / 2);
    let ports = ports.map(|port| {
        let mac = number_of_mac(port.mac);
        ((port.ifindex, port.tags), maps::Port { mac })
    });
    let siblings = (0..).zip(&model.siblings);
    let siblings = siblings.map(|(place, sibling)| (sibling.internal, sibling_number(place)));
    let interfaces = model.interfaces.iter().filter_map(|(number, interface)| {
        let (owner, local, remote, mtu) = match interface.owner {
            Owner::Here { local, remote } => (0, local, remote, interface.mtu),
            Owner::Sibling(place) => {
                let sibling = model.siblings.get(place)?;
                (
                    sibling_number(place),
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
            next_hop: next_hop(local, remote, mtu, underlay.route(local, remote)),
        };
        Some((*number, entry))
    });
    RouterTables {
        config: config(model, spread),
        siblings: siblings.collect(),
        services: model.services.clone(),
        interfaces: interfaces.collect(),
        endpoints,
        ports: ports.collect(),
    }
}

/// A MAC address as maps hold it.
const fn number_of_mac([a, b, c, d, e, f]: [u8; 6]) -> u64 {
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

/// A next hop by a route; without one, packets to it are left to the slow path. `mtu` is the largest SCION packet of the
/// link, or of the AS if the next hop is a sibling.
#[must_use]
pub fn next_hop(
    local: SocketAddr,
    remote: SocketAddr,
    mtu: u16,
    route: Option<UnderlayRoute>,
) -> NextHop {
    let unknown = UnderlayRoute {
        ifindex: 0,
        mtu: 0,
        tags: [0; 2],
        fragments: false,
        source_mac: [0; 6],
        destination_mac: [0; 6],
    };
    let valid = u8::from(route.is_some());
    let route = route.unwrap_or(unknown);
    let headers = UDP_LEN
        + if remote.ip().to_canonical().is_ipv4() {
            IPV4_LEN
        } else {
            IPV6_LEN
        };
    let mtu = mtu.saturating_add(headers);
    let mtu = if route.mtu == 0 {
        mtu
    } else {
        mtu.min(route.mtu)
    };
    NextHop {
        source: ip(local),
        destination: ip(remote),
        source_port: local.port(),
        destination_port: remote.port(),
        ifindex: route.ifindex,
        tags: route.tags,
        source_mac: route.source_mac,
        destination_mac: route.destination_mac,
        mtu,
        valid,
        fragments: route.fragments.into(),
    }
}

fn config(model: &AsModel, spread: Spread) -> Config {
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
        cpus: spread.cpus,
        seed: spread.seed,
        subkey: [0; 4],
        round_keys: [0; aes::ROUND_KEYS],
    }
    .with_key(*model.key.bytes())
}

fn ip(address: SocketAddr) -> Ip {
    Ip::from(address.ip().to_canonical())
}
