//! The networks of this host: its own addresses, the networks that it is connected to, and the routes that compete with
//! the tunnel's.
//!
//! The kernel's routing tables are the only source, so that an address or a route counts from the moment at which the
//! kernel uses it, on whatever interface it is.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::iter::successors;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use rtnetlink::packet_route::route::{RouteFlags, RouteMessage, RouteProtocol, RouteType};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};
use tokio::sync::watch;
use tokio::time::Instant;

use super::neighbours::RouteLookup;
use super::netlink::Netlink;
use super::routes::METRIC;
use super::watch::{Change, Changes, RouteKey, Watch};
use super::{Error, link};
use sig_core::task::Task;

/// Routing table of the host's own addresses.
const LOCAL: u32 = 255;
/// The ordinary routing table.
const MAIN: u32 = 254;

/// Least time between two looks: announcements come in thousands.
const SETTLE: Duration = Duration::from_millis(20);
/// On a host with many routes a look takes longer. Changes of routes alone may take this part of the time.
const SHARE: u32 = 32;
/// Time until the next look after one that failed.
const RETRY: Duration = Duration::from_secs(1);

/// The networks at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks {
    /// Addresses of this host, and networks that it is connected to otherwise than by the tunnel device, with the name
    /// of the interface
    pub own: BTreeMap<IpNet, String>,
    /// Destinations of the other routes in the tunnel's table, with the least metric of those to each
    pub routes: BTreeMap<IpNet, u32>,
    /// Addresses with their prefix lengths by interface index, in the kernel's order
    pub addresses: HashMap<u32, Vec<IpNet>>,
}

impl Networks {
    /// The smallest own network, or own address, that `prefix` is equal to or lies in, and its interface.
    pub fn around(&self, prefix: &IpNet) -> Option<(IpNet, &str)> {
        let mut wider = successors(Some(prefix.trunc()), IpNet::supernet);
        wider.find_map(|net| Some((net, self.own.get(&net)?.as_str())))
    }

    /// Whether this host has the address.
    pub fn has(&self, address: IpAddr) -> bool {
        let mut addresses = self.addresses.values().flatten();
        addresses.any(|own| own.addr() == address)
    }

    /// Whether packets to `address` keep their way when the tunnel has a route to `prefix`: the kernel prefers another
    /// one.
    pub fn keeps(&self, address: IpAddr, prefix: &IpNet) -> bool {
        let wider = successors(Some(IpNet::from(address)), IpNet::supernet);
        let mut to_prefix = wider.take_while(|net| net.prefix_len() >= prefix.prefix_len());
        to_prefix.any(|net| self.is_preferred(&net, prefix))
    }

    /// The networks within `prefix`, or equal to it, to which the kernel prefers another route than the tunnel's to
    /// `prefix`.
    pub fn within(&self, prefix: &IpNet) -> impl Iterator<Item = IpNet> {
        let last = IpNet::new_assert(prefix.broadcast(), prefix.max_prefix_len());
        let (range, prefix) = (prefix.trunc()..=last, prefix.trunc());
        let own = self.own.range(range.clone()).map(|(net, _)| *net);
        let routes = self.routes.range(range).map(|(net, _)| *net);
        own.chain(routes)
            .filter(move |net| self.is_preferred(net, &prefix))
    }

    fn is_preferred(&self, net: &IpNet, prefix: &IpNet) -> bool {
        if net.prefix_len() > prefix.prefix_len() {
            return self.own.contains_key(net) || self.routes.contains_key(net);
        }
        self.routes.get(net).is_some_and(|metric| *metric < METRIC)
    }
}

/// Follows the networks until the receivers are dropped: reads them once before it returns. `tunnel` is the index of the
/// tunnel device, whose routes in `table` are left out. Must be called within a tokio runtime.
///
/// # Errors
/// The kernel does not let us read.
pub async fn follow(
    netlink: &Netlink,
    watch: &Watch,
    tunnel: u32,
    table: u32,
) -> Result<(watch::Receiver<Arc<Networks>>, Following), Error> {
    let changes = watch.subscribe();
    let reader = Reader {
        netlink: netlink.clone(),
        tunnel,
        table,
    };
    let networks = reader.read().await;
    let networks = networks.map_err(Error::doing("read addresses and routes"))?;
    let (publish, receiver) = watch::channel(Arc::new(networks));
    let run = reader.run(changes, publish);
    let task = Task::spawn("the network reader", run);
    Ok((receiver, Following { task }))
}

/// Ends the following when dropped.
#[derive(Debug)]
pub struct Following {
    task: Task,
}

impl Following {
    /// Waits until this is no longer done, and says so.
    pub fn ended(&self) -> impl Future<Output = String> + Send + use<> {
        self.task.ended()
    }
}

struct Reader {
    netlink: Netlink,
    tunnel: u32,
    table: u32,
}

impl Reader {
    async fn run(self, mut changes: Changes, publish: watch::Sender<Arc<Networks>>) {
        let mut look_at = None::<Instant>;
        let mut routes_from = Instant::now();
        loop {
            tokio::select! {
                change = changes.next() => {
                    let soon = Instant::now() + SETTLE;
                    let due = match change {
                        Change::Route(key) | Change::RouteRemoved(key) if self.matters(&key) => {
                            Some(soon.max(routes_from))
                        }
                        // Announcements get lost when there are many.
                        Change::Resync => Some(soon.max(routes_from)),
                        Change::Address { .. }
                        | Change::Link { .. }
                        | Change::LinkRemoved { .. } => Some(soon),
                        _ => None,
                    };
                    look_at = look_at.into_iter().chain(due).min();
                }
                () = tokio::time::sleep_until(look_at.unwrap_or_else(Instant::now)), if look_at.is_some() => {
                    let start = Instant::now();
                    look_at = match self.read().await {
                        Ok(networks) => {
                            publish.send_if_modified(|current| {
                                let changed = **current != networks;
                                if changed {
                                    *current = Arc::new(networks);
                                }
                                changed
                            });
                            None
                        }
                        Err(error) => {
                            tracing::warn!("cannot read addresses and routes, retrying: {error}");
                            Some(Instant::now() + RETRY)
                        }
                    };
                    routes_from = Instant::now() + start.elapsed() * SHARE;
                }
                () = publish.closed() => return,
            }
        }
    }

    fn matters(&self, key: &RouteKey) -> bool {
        [LOCAL, MAIN, self.table].contains(&key.table) && key.ifindex != Some(self.tunnel)
    }

    async fn read(&self) -> io::Result<Networks> {
        let mut networks = Networks::default();
        for (ifindex, net) in link::addresses(&self.netlink).await? {
            networks.addresses.entry(ifindex).or_default().push(net);
        }
        let names = link::names(&self.netlink).await?;
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut request = RouteMessage::default();
            request.header.address_family = family;
            let request = RouteNetlinkMessage::GetRoute(request);
            for answer in self.netlink.dump(request).await? {
                if let RouteNetlinkMessage::NewRoute(route) = answer {
                    self.add(&mut networks, &names, &route);
                }
            }
        }
        Ok(networks)
    }

    fn add(&self, networks: &mut Networks, names: &HashMap<u32, String>, route: &RouteMessage) {
        let is_local = route.header.kind == RouteType::Local;
        let Some(key) = RouteKey::of(route).filter(|key| is_local || self.matters(key)) else {
            return;
        };
        if is_own(route, &key) {
            let name = key.ifindex.and_then(|ifindex| names.get(&ifindex));
            let name = name.map_or("?", String::as_str);
            networks.own.insert(key.prefix, name.to_owned());
        }
        if key.table == self.table && is_for_all(route) {
            let least = networks.routes.entry(key.prefix).or_insert(key.metric);
            *least = key.metric.min(*least);
        }
    }
}

/// Whether the route is to an address of this host, or to a network that one of its addresses is in. A default route is
/// neither, though a point-to-point link may have one without a gateway.
fn is_own(route: &RouteMessage, key: &RouteKey) -> bool {
    if key.prefix.prefix_len() == 0 {
        return false;
    }
    match route.header.kind {
        RouteType::Local | RouteType::Anycast => key.table == LOCAL || key.table == MAIN,
        RouteType::Unicast => {
            let by_address = matches!(
                route.header.protocol,
                RouteProtocol::Kernel | RouteProtocol::Ra
            );
            by_address && key.table != LOCAL && RouteLookup::of(route).gateway.is_none()
        }
        _ => false,
    }
}

/// Whether the kernel takes the route for packets from everywhere and of every traffic class.
fn is_for_all(route: &RouteMessage) -> bool {
    let header = &route.header;
    header.source_prefix_length == 0
        && header.tos == 0
        && !header
            .flags
            .intersects(RouteFlags::Cloned | RouteFlags::Dead)
        && !matches!(header.kind, RouteType::Broadcast | RouteType::Multicast)
}

#[cfg(test)]
mod tests {
    use rtnetlink::packet_route::route::RouteAttribute;

    use super::*;

    const TUNNEL: u32 = 9;

    fn net(text: &str) -> IpNet {
        text.parse().expect("a prefix")
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn route(prefix: &str, ifindex: u32, metric: u32) -> RouteMessage {
        let prefix = net(prefix);
        let mut route = RouteMessage::default();
        route.header.address_family = match prefix {
            IpNet::V4(_) => AddressFamily::Inet,
            IpNet::V6(_) => AddressFamily::Inet6,
        };
        route.header.destination_prefix_length = prefix.prefix_len();
        route.header.kind = RouteType::Unicast;
        route.header.protocol = RouteProtocol::Static;
        route.attributes = vec![
            RouteAttribute::Destination(prefix.addr().into()),
            RouteAttribute::Oif(ifindex),
            RouteAttribute::Priority(metric),
            RouteAttribute::Table(MAIN),
        ];
        route
    }

    fn connected(prefix: &str, ifindex: u32, metric: u32) -> RouteMessage {
        let mut route = route(prefix, ifindex, metric);
        route.header.protocol = RouteProtocol::Kernel;
        route
    }

    fn local(prefix: &str) -> RouteMessage {
        let mut route = connected(prefix, 1, 0);
        route.header.kind = RouteType::Local;
        route.attributes[3] = RouteAttribute::Table(LOCAL);
        route
    }

    async fn networks(routes: &[RouteMessage], table: u32) -> Networks {
        let reader = Reader {
            netlink: Netlink::open().expect("a netlink socket"),
            tunnel: TUNNEL,
            table,
        };
        let names = HashMap::from([(1, "lo".into()), (2, "mg0".into())]);
        let mut networks = Networks::default();
        for route in routes {
            reader.add(&mut networks, &names, route);
        }
        networks
    }

    #[tokio::test]
    async fn own_networks_are_those_of_addresses_on_any_interface() {
        let mut router = connected("10.8.0.0/16", 2, 0);
        router
            .attributes
            .push(RouteAttribute::Gateway(ip("10.5.0.254").into()));
        let known = networks(
            &[
                local("10.5.0.1/32"),
                connected("10.5.0.0/24", 2, 100),
                connected("fd00:5::/64", 2, 256),
                connected("0.0.0.0/0", 2, 0),
                router,
                route("10.9.0.0/16", 2, 0),
                connected("10.7.0.0/16", TUNNEL, 0),
            ],
            MAIN,
        )
        .await;
        let own: Vec<String> = known.own.keys().map(ToString::to_string).collect();
        assert_eq!(own, ["10.5.0.0/24", "10.5.0.1/32", "fd00:5::/64"]);
        let around = |prefix: &str| known.around(&net(prefix));
        assert_eq!(
            around("10.5.0.0/25"),
            Some((net("10.5.0.0/24"), "mg0")),
            "a part of it"
        );
        assert_eq!(around("10.5.0.1/32"), Some((net("10.5.0.1/32"), "lo")));
        assert_eq!(around("fd00:5::/64"), Some((net("fd00:5::/64"), "mg0")));
        assert_eq!(around("10.5.0.0/16"), None, "wider");
        assert_eq!(around("10.9.0.0/24"), None, "routed, not connected");
    }

    #[tokio::test]
    async fn longer_prefixes_and_lower_metrics_are_preferred_to_the_tunnel() {
        let known = networks(
            &[
                local("10.5.0.1/32"),
                connected("10.5.0.0/24", 2, 0),
                route("10.6.0.0/16", 2, 1000),
                route("10.0.0.0/8", 2, METRIC - 1),
                route("11.0.0.0/8", 2, METRIC + 1),
                route("fd00::/16", 2, 1024),
                route("10.7.0.0/16", TUNNEL, 0),
            ],
            MAIN,
        )
        .await;
        let within = |prefix: &str| {
            let mut within: Vec<_> = known.within(&net(prefix)).collect();
            within.sort_unstable();
            within.dedup();
            let within = within.iter().map(ToString::to_string);
            within.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            within("10.0.0.0/8"),
            "10.0.0.0/8 10.5.0.0/24 10.5.0.1/32 10.6.0.0/16"
        );
        assert_eq!(within("10.5.0.0/16"), "10.5.0.0/24 10.5.0.1/32");
        assert_eq!(within("11.0.0.0/8"), "");
        assert_eq!(within("::/0"), "fd00::/16");
        assert_eq!(within("10.6.0.0/16"), "", "the tunnel's metric is lower");

        let keeps = |address: &str, prefix: &str| known.keeps(ip(address), &net(prefix));
        assert!(keeps("10.5.0.9", "10.0.0.0/8") && keeps("10.5.0.9", "0.0.0.0/0"));
        assert!(keeps("10.77.0.1", "10.0.0.0/8"), "a lower metric");
        assert!(!keeps("11.0.0.1", "11.0.0.0/8"), "a higher metric");
        assert!(!keeps("10.6.0.1", "10.6.0.0/16") && keeps("10.6.0.1", "10.0.0.0/7"));
        assert!(!keeps("12.0.0.1", "0.0.0.0/0"), "no other route");
    }

    #[tokio::test]
    async fn a_table_of_its_own_has_only_its_own_routes_to_compete_with() {
        let mut inside = route("10.6.1.0/24", 2, 0);
        inside.attributes[3] = RouteAttribute::Table(100);
        let routes = [
            route("10.6.0.0/16", 2, 0),
            connected("10.5.0.0/24", 2, 0),
            inside,
        ];
        let known = networks(&routes, 100).await;
        let within: Vec<_> = known.within(&net("10.0.0.0/8")).collect();
        assert_eq!(within, [net("10.5.0.0/24"), net("10.6.1.0/24")]);
    }

    #[tokio::test]
    async fn routes_for_some_packets_only_do_not_compete() {
        let mut of_a_class = route("10.6.0.0/16", 2, 0);
        of_a_class.header.tos = 0x10;
        let mut from_somewhere = route("fd00:6::/48", 2, 0);
        from_somewhere.header.source_prefix_length = 64;
        let mut dead = route("10.7.0.0/16", 2, 0);
        dead.header.flags = RouteFlags::Dead;
        let known = networks(&[of_a_class, from_somewhere, dead], MAIN).await;
        assert_eq!(known, Networks::default());
    }
}
