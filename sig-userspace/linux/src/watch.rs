//! Follows what the kernel announces about links, addresses, routes, rules and neighbours.

use std::net::IpAddr;

use futures_util::StreamExt;
use ipnet::IpNet;
use rtnetlink::MulticastGroup;
use rtnetlink::packet_core::NetlinkPayload;
use rtnetlink::packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage};
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};
use tokio::sync::{broadcast, watch};

use super::netlink::Netlink;
use super::{Error, link, link::Link};
use sig_core::task::Task;

/// Announcements a slow listener may be behind before it has to look at everything anew.
const BACKLOG: usize = 4096;

/// Something in the kernel's network configuration that changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// An interface came, or something about it changed.
    Link {
        /// Its index
        ifindex: u32,
    },
    /// An interface is gone.
    LinkRemoved {
        /// Its index
        ifindex: u32,
    },
    /// An interface got or lost an address.
    Address {
        /// Its index
        ifindex: u32,
    },
    /// A route came or changed.
    Route(RouteKey),
    /// A route is gone.
    RouteRemoved(RouteKey),
    /// A neighbour's hardware address or state changed, or the entry is gone.
    Neighbour {
        /// Interface on which the neighbour is
        ifindex: u32,
        /// Its IP address
        address: IpAddr,
    },
    /// The rules that choose a routing table changed.
    Rules,
    /// Announcements were lost: look at everything anew.
    Resync,
}

/// What identifies a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RouteKey {
    /// Routing table, 254 = main
    pub table: u32,
    /// Destination
    pub prefix: IpNet,
    /// Metric; 0 when the route has none
    pub metric: u32,
    /// Outgoing interface, if there is exactly one
    pub ifindex: Option<u32>,
}

/// The subscription. Closes when dropped.
#[derive(Debug)]
pub struct Watch {
    changes: broadcast::Sender<Change>,
    task: Task,
}

/// An interface as [`Watch::interface`] follows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceState {
    /// Its name, `None` when the interface is gone for good
    pub name: Option<String>,
    /// Administratively up and with a carrier
    pub up: bool,
    /// Hardware address
    pub mac: Option<[u8; 6]>,
    /// MTU in bytes
    pub mtu: u32,
    /// Addresses with prefix lengths
    pub addresses: Vec<IpNet>,
}

impl From<&Link> for InterfaceState {
    fn from(link: &Link) -> Self {
        Self {
            name: Some(link.name.clone()),
            up: link.up && link.carrier,
            mac: link.mac,
            mtu: link.mtu,
            addresses: link.addresses.clone(),
        }
    }
}

impl Watch {
    /// Subscribes in the network namespace of the calling thread. Must be called within a tokio runtime.
    pub fn open() -> Result<Self, Error> {
        const GROUPS: [MulticastGroup; 8] = [
            MulticastGroup::Link,
            MulticastGroup::Neigh,
            MulticastGroup::Ipv4Ifaddr,
            MulticastGroup::Ipv6Ifaddr,
            MulticastGroup::Ipv4Route,
            MulticastGroup::Ipv6Route,
            MulticastGroup::Ipv4Rule,
            MulticastGroup::Ipv6Rule,
        ];
        let (connection, _, mut messages) = rtnetlink::new_multicast_connection(&GROUPS)
            .map_err(Error::doing("subscribe to netlink notifications"))?;
        let (changes, _) = broadcast::channel(BACKLOG);
        let sender = changes.clone();
        let task = Task::spawn("the netlink listener", async move {
            let _connection = Task::spawn("the netlink connection", connection);
            while let Some((message, _)) = messages.next().await {
                let change = match message.payload {
                    NetlinkPayload::InnerMessage(message) => change(&message),
                    NetlinkPayload::Overrun(_) => Some(Change::Resync),
                    _ => None,
                };
                if let Some(change) = change {
                    // No listener at the moment is fine.
                    let _ = sender.send(change);
                }
            }
        });
        Ok(Self { changes, task })
    }

    /// Waits until there are no announcements any more, and says so.
    pub fn ended(&self) -> impl Future<Output = String> + Send + use<> {
        self.task.ended()
    }

    /// A listener for all changes from now on.
    pub fn subscribe(&self) -> Changes {
        Changes(self.changes.subscribe())
    }

    /// Follows the interface with this index, whatever it is called: the receiver holds its present state and wakes when that changes.
    ///
    /// The state is read once before this returns. The following ends when the receiver is dropped.
    pub async fn interface(
        &self,
        netlink: &Netlink,
        ifindex: u32,
    ) -> Result<watch::Receiver<InterfaceState>, Error> {
        let mut changes = self.subscribe();
        let (sender, receiver) = watch::channel(interface_state(netlink, ifindex).await?);
        let netlink = netlink.clone();
        tokio::spawn(async move {
            loop {
                let change = tokio::select! {
                    change = changes.next() => change,
                    () = sender.closed() => return,
                };
                if !matches!(
                    change,
                    Change::Link { .. }
                        | Change::LinkRemoved { .. }
                        | Change::Address { .. }
                        | Change::Resync
                ) {
                    continue;
                }
                match interface_state(&netlink, ifindex).await {
                    Ok(state) => {
                        sender.send_if_modified(|current| {
                            let changed = *current != state;
                            *current = state;
                            changed
                        });
                    }
                    Err(error) => tracing::warn!("{error}"),
                }
            }
        });
        Ok(receiver)
    }
}

/// A listener's queue of changes.
#[derive(Debug)]
pub struct Changes(broadcast::Receiver<Change>);

impl Changes {
    /// The next change. A listener that was too slow gets a [`Change::Resync`]; none comes when the [`Watch`] is closed.
    pub async fn next(&mut self) -> Change {
        match self.0.recv().await {
            Ok(change) => change,
            Err(broadcast::error::RecvError::Lagged(_)) => Change::Resync,
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

async fn interface_state(netlink: &Netlink, ifindex: u32) -> Result<InterfaceState, Error> {
    let link = link::by_index(netlink, ifindex).await?;
    Ok(link.as_ref().map_or_else(Default::default, Into::into))
}

fn change(message: &RouteNetlinkMessage) -> Option<Change> {
    match message {
        RouteNetlinkMessage::NewLink(link) => Some(Change::Link {
            ifindex: link.header.index,
        }),
        RouteNetlinkMessage::DelLink(link) => match link.header.interface_family {
            AddressFamily::Unspec => Some(Change::LinkRemoved {
                ifindex: link.header.index,
            }),
            // A bridge tells so which of its ports have left it.
            _ => Some(Change::Link {
                ifindex: link.header.index,
            }),
        },
        RouteNetlinkMessage::NewAddress(address) | RouteNetlinkMessage::DelAddress(address) => {
            Some(Change::Address {
                ifindex: address.header.index,
            })
        }
        RouteNetlinkMessage::NewRoute(route) => RouteKey::of(route).map(Change::Route),
        RouteNetlinkMessage::DelRoute(route) => RouteKey::of(route).map(Change::RouteRemoved),
        RouteNetlinkMessage::NewNeighbour(neighbour)
        | RouteNetlinkMessage::DelNeighbour(neighbour) => Some(Change::Neighbour {
            ifindex: neighbour.header.ifindex,
            address: neighbour_address(neighbour)?,
        }),
        RouteNetlinkMessage::NewRule(_) | RouteNetlinkMessage::DelRule(_) => Some(Change::Rules),
        _ => None,
    }
}

impl RouteKey {
    /// The key of a route message; `None` when it is no IPv4 or IPv6 route.
    pub fn of(route: &RouteMessage) -> Option<Self> {
        let mut table = u32::from(route.header.table);
        let mut metric = 0;
        let mut ifindex = None;
        let mut destination = match route.header.address_family {
            AddressFamily::Inet => IpAddr::from([0; 4]),
            AddressFamily::Inet6 => IpAddr::from([0; 16]),
            _ => return None,
        };
        for attribute in &route.attributes {
            match attribute {
                RouteAttribute::Table(number) => table = *number,
                RouteAttribute::Priority(number) => metric = *number,
                RouteAttribute::Oif(index) => ifindex = Some(*index),
                RouteAttribute::Destination(address) => destination = ip_of(address)?,
                _ => {}
            }
        }
        let prefix = IpNet::new(destination, route.header.destination_prefix_length).ok()?;
        Some(Self {
            table,
            prefix,
            metric,
            ifindex,
        })
    }
}

/// The IP address of a route attribute.
pub fn ip_of(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(ip) => Some((*ip).into()),
        RouteAddress::Inet6(ip) => Some((*ip).into()),
        _ => None,
    }
}

/// The IP address of a neighbour entry.
pub fn neighbour_address(message: &NeighbourMessage) -> Option<IpAddr> {
    message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(ip)) => Some((*ip).into()),
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(ip)) => Some((*ip).into()),
            _ => None,
        })
}
