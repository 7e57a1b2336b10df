//! What the kernel knows of the way to the hosts: a copy for workers that send to them without it.
//!
//! The copy is read from the routing tables and the neighbour entries whenever something in them is announced to have
//! changed, and holds only what is certain. A host that is missing in it is reached through the kernel, which then asks
//! for its MAC address; the answer is announced, and the host gets into the copy. When the kernel finds that a neighbour
//! does not answer or has moved, that is announced too.
//!
//! The kernel does not see packets that workers send, so it believes that nobody uses these neighbours. About every
//! second we therefore do for each stale neighbour that packets went to what the kernel does when it forwards one
//! (`NTF_USE`): the entry is confirmed by a probe five seconds later, and not collected as unused.

mod routes;
mod rules;

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use rtnetlink::packet_route::neighbour::{NeighbourFlags, NeighbourMessage};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};
use tokio::sync::watch;
use tokio::time::Instant;

use super::link;
use super::neighbours::entry::{Entry, Question, ask};
use super::netlink::Netlink;
use super::sysctl::{self, Family};
use super::watch::{Change, Changes, RouteKey, Watch, neighbour_address};
use sig_core::dataplane::lan::{LanFacts, LanNeighbour, LanRoute, LanTable};
use sig_core::task::Task;

/// Routing table of the host's own addresses.
const LOCAL: u32 = 255;
/// The ordinary routing table.
const MAIN: u32 = 254;

/// Least time between two looks: announcements come in thousands.
const SETTLE: Duration = Duration::from_millis(20);
/// A look takes longer on a host with many routes. It may take this part of the time.
const SHARE: u32 = 8;
/// How often neighbours in use are reported to the kernel, and what is not announced is looked at.
const TICK: Duration = Duration::from_secs(1);

/// A LAN interface that workers can transmit on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LanPort {
    /// Its number in the [`LanTable`]
    pub number: u16,
    /// Its index
    pub ifindex: u32,
    /// Its name
    pub name: String,
}

/// Why all packets of a family are left to the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There are policy routing rules that only the kernel follows.
    Rules,
    /// This host does not forward packets that come out of the tunnel.
    NoForwarding,
    /// The kernel does not tell its tables.
    Kernel(String),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rules => f.write_str("there are policy routing rules (`ip rule`) or VRFs"),
            Self::NoForwarding => {
                f.write_str("this host does not forward packets from the tunnel device")
            }
            Self::Kernel(error) => write!(f, "cannot read the kernel's tables: {error}"),
        }
    }
}

/// The copy at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// For the workers
    pub table: Arc<LanTable>,
    /// Why it holds no IPv4 routes
    pub no_ipv4: Option<Reason>,
    /// Why it holds no IPv6 routes
    pub no_ipv6: Option<Reason>,
}

/// Keeps the copy up to date. Ends when dropped.
#[derive(Debug)]
pub struct LanHops {
    wish: watch::Sender<Wish>,
    snapshots: watch::Receiver<Snapshot>,
    task: Task,
}

/// What is to be followed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Wish {
    ports: Vec<LanPort>,
    served: Vec<IpNet>,
}

impl LanHops {
    /// Follows the ways to hosts within `served` over `ports`, for packets that come out of the device called `tunnel`.
    /// Must be called within a tokio runtime.
    pub fn new(
        netlink: &Netlink,
        watch: &Watch,
        ports: Vec<LanPort>,
        served: Vec<IpNet>,
        tunnel: &str,
    ) -> Self {
        let (publish, snapshots) = watch::channel(Snapshot::default());
        let (wish, wanted) = watch::channel(Wish { ports, served });
        let follower = Follower {
            netlink: netlink.clone(),
            ports: Vec::new(),
            served: Vec::new(),
            tunnel: tunnel.to_owned(),
            routes: LanFacts::default(),
            gateways: HashSet::new(),
            facts: LanFacts::default(),
            stale: HashSet::new(),
            used: BTreeSet::new(),
            forwarding: [None; 2],
            known: Snapshot::default(),
            publish,
        };
        let run = follower.run(wanted, watch.subscribe());
        Self {
            wish,
            snapshots,
            task: Task::spawn("the LAN neighbour monitor", run),
        }
    }

    /// Waits until this is no longer done, and says so.
    pub fn ended(&self) -> impl Future<Output = String> + Send + use<> {
        self.task.ended()
    }

    /// Makes these the prefixes within which hosts are.
    pub fn set_served(&self, served: Vec<IpNet>) {
        self.wish.send_if_modified(|current| {
            let changed = current.served != served;
            current.served = served;
            changed
        });
    }

    /// Makes these the interfaces that workers can transmit on. A number must not be that of another interface before all have forgotten
    /// the tables with the one before.
    pub fn set_ports(&self, ports: Vec<LanPort>) {
        self.wish.send_if_modified(|current| {
            let changed = current.ports != ports;
            current.ports = ports;
            changed
        });
    }

    /// A receiver of the copy. It wakes when something in it changed.
    pub fn subscribe(&self) -> watch::Receiver<Snapshot> {
        self.snapshots.clone()
    }
}

/// What a change makes necessary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Look {
    Nothing,
    Neighbours,
    /// Routes and rules too
    Everything,
}

struct Follower {
    netlink: Netlink,
    ports: Vec<LanPort>,
    served: Vec<IpNet>,
    tunnel: String,
    /// Routes as of the last look at them
    routes: LanFacts,
    /// Neighbours that these routes lead to
    gateways: HashSet<IpAddr>,
    /// What the published table was made of
    facts: LanFacts,
    /// Neighbours that the kernel thinks nobody uses
    stale: HashSet<(u16, IpAddr)>,
    /// Marks of tables that have been replaced
    used: BTreeSet<(u16, IpAddr)>,
    /// Whether packets out of the tunnel are forwarded, IPv4 and IPv6
    forwarding: [Option<bool>; 2],
    known: Snapshot,
    publish: watch::Sender<Snapshot>,
}

impl Follower {
    async fn run(mut self, mut wanted: watch::Receiver<Wish>, mut changes: Changes) {
        self.follow(&wanted.borrow_and_update());
        let mut look = Look::Everything;
        let mut look_at = Instant::now();
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                change = changes.next() => {
                    let wanted = self.wants(&change);
                    if look == Look::Nothing && wanted != Look::Nothing {
                        look_at = look_at.max(Instant::now() + SETTLE);
                    }
                    look = look.max(wanted);
                }
                wished = wanted.changed() => {
                    if wished.is_err() {
                        return;
                    }
                    self.follow(&wanted.borrow_and_update());
                    look = Look::Everything;
                }
                () = tokio::time::sleep_until(look_at), if look != Look::Nothing => {
                    let start = Instant::now();
                    let whole = look == Look::Everything;
                    look = Look::Nothing;
                    if let Err(error) = self.look(whole).await {
                        self.give_up(&error);
                        look = Look::Everything;
                        look_at = Instant::now() + TICK;
                    } else {
                        // No earlier than this, however much is announced.
                        look_at = Instant::now() + start.elapsed() * SHARE;
                    }
                }
                _ = tick.tick() => {
                    if self.forwarding != self.read_forwarding() {
                        look = Look::Everything;
                    }
                    self.report_use().await;
                }
            }
        }
    }

    fn follow(&mut self, wish: &Wish) {
        self.ports.clone_from(&wish.ports);
        self.served.clone_from(&wish.served);
    }

    fn wants(&self, change: &Change) -> Look {
        let is_ours = |ifindex: &u32| self.ports.iter().any(|port| port.ifindex == *ifindex);
        match change {
            Change::Neighbour { ifindex, address }
                if is_ours(ifindex) && self.is_of_interest(address) =>
            {
                Look::Neighbours
            }
            // A link that goes down takes routes with it without a word.
            Change::Link { .. } | Change::LinkRemoved { .. } | Change::Address { .. } => {
                Look::Everything
            }
            Change::Route(key) | Change::RouteRemoved(key) if self.matters(key) => Look::Everything,
            Change::Rules | Change::Resync => Look::Everything,
            _ => Look::Nothing,
        }
    }

    fn matters(&self, key: &RouteKey) -> bool {
        let served = &mut self.served.iter();
        (key.table == MAIN || key.table == LOCAL)
            && served.any(|prefix| routes::overlap(prefix, &key.prefix))
    }

    fn is_of_interest(&self, neighbour: &IpAddr) -> bool {
        self.gateways.contains(neighbour)
            || self.served.iter().any(|prefix| prefix.contains(neighbour))
    }

    fn read_forwarding(&self) -> [Option<bool>; 2] {
        [Family::V4, Family::V6].map(|family| {
            let value = sysctl::read(family, &self.tunnel, "forwarding").ok()??;
            Some(value != 0)
        })
    }

    /// Looks at neighbours and links, and if `whole` at routes and rules, and publishes what changed.
    async fn look(&mut self, whole: bool) -> io::Result<()> {
        if whole {
            self.look_at_routes().await?;
        }
        let mut facts = self.routes.clone();
        let stale = self.neighbours(&mut facts).await?;
        self.stale = stale;
        if facts != self.facts {
            self.used.extend(self.known.table.take_used());
            self.known.table = Arc::new(LanTable::new(&facts));
            self.facts = facts;
        } else if !whole {
            return Ok(());
        }
        self.publish_known();
        Ok(())
    }

    async fn look_at_routes(&mut self) -> io::Result<()> {
        self.forwarding = self.read_forwarding();
        let mut facts = LanFacts::default();
        let families = [AddressFamily::Inet, AddressFamily::Inet6];
        let mut reasons = [None, None];
        for ((family, forwarding), reason) in
            families.into_iter().zip(self.forwarding).zip(&mut reasons)
        {
            if self.ports.is_empty() {
                // There is nothing to send through.
            } else if forwarding != Some(true) {
                *reason = Some(Reason::NoForwarding);
            } else if !rules::are_ordinary(&self.netlink, family).await? {
                *reason = Some(Reason::Rules);
            } else {
                let all = routes::dump(&self.netlink, family).await?;
                routes::add(&mut facts, &all, &self.served, &self.ports);
            }
        }
        self.gateways = facts
            .routes
            .values()
            .filter_map(|way| match way {
                LanRoute::Gateway { address, .. } => Some(*address),
                LanRoute::OnLink { .. } | LanRoute::Kernel => None,
            })
            .collect();
        self.routes = facts;
        let [no_ipv4, no_ipv6] = reasons;
        (self.known.no_ipv4, self.known.no_ipv6) = (no_ipv4, no_ipv6);
        Ok(())
    }

    /// Adds the neighbours that can be sent to, and returns those that nobody uses.
    async fn neighbours(&self, facts: &mut LanFacts) -> io::Result<HashSet<(u16, IpAddr)>> {
        let mut links = Vec::new();
        for port in &self.ports {
            let link = link::by_index(&self.netlink, port.ifindex).await;
            let link = link.map_err(io::Error::other)?;
            // Without a carrier, and where nobody is asked for addresses, the kernel decides.
            let Some(link) = link.filter(|link| link.up && link.carrier && !link.noarp) else {
                continue;
            };
            let Some(interface_mac) = link.mac else {
                continue;
            };
            // The kernel may take a router's word for a smaller one.
            let mtu_v6 = sysctl::read(Family::V6, &link.name, "mtu").ok().flatten();
            let mtu = u16::try_from(link.mtu).unwrap_or(u16::MAX);
            let mtu_v6 = mtu_v6.map_or(mtu, |v6| u16::try_from(v6).unwrap_or(mtu).min(mtu));
            links.push((port, interface_mac, mtu, mtu_v6));
        }
        let request = RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default());
        let mut stale = HashSet::new();
        for answer in self.netlink.dump(request).await? {
            let RouteNetlinkMessage::NewNeighbour(entry) = answer else {
                continue;
            };
            let link = links
                .iter()
                .find(|(port, ..)| port.ifindex == entry.header.ifindex);
            let (Some((port, interface_mac, mtu, mtu_v6)), Some(address)) =
                (link, neighbour_address(&entry))
            else {
                continue;
            };
            if entry.header.flags.contains(NeighbourFlags::Proxy) || !self.is_of_interest(&address)
            {
                continue;
            }
            let Entry::Usable {
                mac,
                maintained,
                stale: is_stale,
            } = Entry::of(&entry)
            else {
                continue;
            };
            if mac[0] & 1 != 0 || mac == [0; 6] {
                continue;
            }
            let key = (port.number, address);
            let neighbour = LanNeighbour {
                mac,
                interface_mac: *interface_mac,
                mtu: if address.is_ipv4() { *mtu } else { *mtu_v6 },
            };
            facts.neighbours.insert(key, neighbour);
            if is_stale && !maintained {
                stale.insert(key);
            }
        }
        Ok(stale)
    }

    /// Leaves everything to the kernel.
    fn give_up(&mut self, error: &io::Error) {
        let reason = Some(Reason::Kernel(error.to_string()));
        self.facts = LanFacts::default();
        self.known = Snapshot {
            table: Arc::default(),
            no_ipv4: reason.clone(),
            no_ipv6: reason,
        };
        self.publish_known();
    }

    fn publish_known(&self) {
        let known = &self.known;
        self.publish.send_if_modified(|current| {
            for (family, before, now) in [
                ("IPv4", &current.no_ipv4, &known.no_ipv4),
                ("IPv6", &current.no_ipv6, &known.no_ipv6),
            ] {
                match now {
                    Some(reason) if before != now => tracing::info!(
                        "{family} packets to the LAN are forwarded by the kernel: {reason}"
                    ),
                    None if before.is_some() => {
                        tracing::info!("{family} packets to the LAN are sent directly again");
                    }
                    _ => {}
                }
            }
            let changed = !Arc::ptr_eq(&current.table, &known.table)
                || (&current.no_ipv4, &current.no_ipv6) != (&known.no_ipv4, &known.no_ipv6);
            *current = known.clone();
            changed
        });
    }

    /// Tells the kernel which of the neighbours that it thinks unused are in use.
    async fn report_use(&mut self) {
        self.used.extend(self.known.table.take_used());
        for key in std::mem::take(&mut self.used) {
            let port = self.ports.iter().find(|port| port.number == key.0);
            let (true, Some(port)) = (self.stale.contains(&key), port) else {
                continue;
            };
            if let Err(error) = ask(&self.netlink, port.ifindex, key.1, Question::Use).await
                // The entry has gone since we looked: the kernel will be asked for it.
                && error.raw_os_error() != Some(libc::ENOENT)
            {
                tracing::debug!("cannot refresh the neighbour entry of {}: {error}", key.1);
            }
        }
    }
}
