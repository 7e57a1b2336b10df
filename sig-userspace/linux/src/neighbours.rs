//! Next hops: for a set of IP addresses, how a frame to them must be addressed, kept up to date.
//!
//! Packets sent over AF_XDP bypass the kernel's neighbour code, so nothing there learns that a neighbour is in use or
//! still alive. We therefore look after the kernel's entries ourselves:
//!
//! - No entry, or a failed one: a request with `NTF_USE` makes the kernel resolve it as if a packet had to be sent.
//! - A known entry: at intervals we set it to `NUD_PROBE`. The kernel goes on using the address and asks the neighbour by
//!   unicast at once. `NTF_USE` would not do: an entry counts as reachable for half a minute and is then only asked after
//!   five seconds more, during which a neighbour with a new hardware address is not noticed. This also keeps the entry
//!   from being collected as unused.
//! - Stale entries are used: stale means not confirmed lately, not wrong.
//! - Three unanswered probes (three seconds) make the entry fail, which is reported as unresolved.
//! - Entries that an administrator, a driver or another program maintains are used and left alone.

pub(super) mod entry;
mod route;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use rtnetlink::packet_route::neighbour::NeighbourMessage;
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};
use tokio::sync::watch;
use tokio::time::Instant;

use super::link::{self, Link};
use super::netlink::Netlink;
use super::watch::{Change, Changes, Watch, neighbour_address};
use entry::{Entry, Question, ask, find_entry};
use route::{ResolvedRoute, find_any_way, find_way, usable};
pub use route::{RouteLookup, lookup};
use sig_core::task::Task;

/// How a frame to a next hop must be addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Outgoing interface
    pub ifindex: u32,
    /// Source address the kernel would choose
    pub source: IpAddr,
    /// The on-link neighbour: the gateway of the route, or the next hop itself
    pub neighbour: IpAddr,
    /// The neighbour's hardware address
    pub destination_mac: [u8; 6],
    /// The interface's hardware address
    pub interface_mac: [u8; 6],
    /// Largest packet towards the next hop in bytes: the interface's MTU, or the route's if that is less
    pub mtu: u32,
}

/// What is known about a next hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Frames can be sent.
    Resolved(Resolved),
    /// Not now, and why.
    Unresolved(Reason),
}

impl Resolution {
    /// The addressing, if there is one.
    pub fn resolved(&self) -> Option<&Resolved> {
        match self {
            Self::Resolved(resolved) => Some(resolved),
            Self::Unresolved(_) => None,
        }
    }
}

/// Why a next hop cannot be used at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The neighbour has been asked and has not answered yet.
    Resolving,
    /// The neighbour does not answer.
    NoAnswer(IpAddr),
    /// The routing table has no way to the next hop.
    NoRoute,
    /// The next hop is an address of this host.
    LocalAddress,
    /// The route leads out of another interface (its index) than the underlay's.
    OtherInterface(u32),
    /// The interface does not exist.
    NoInterface,
    /// The interface is down or has no carrier.
    InterfaceDown,
    /// The interface or the neighbour has no Ethernet address.
    NotEthernet,
    /// The kernel refused to tell.
    Kernel(String),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resolving => f.write_str("no answer yet; is the router up and on the underlay network?"),
            Self::NoAnswer(neighbour) => write!(
                f,
                "{neighbour} does not answer: check that the router is up and on the underlay, \
                 `ip neighbour show {neighbour}`"
            ),
            Self::NoRoute => {
                f.write_str("no route; add one or an address in the next hop's network")
            }
            Self::LocalAddress => f.write_str(
                "this is an address of this host, which XDP cannot reach: set `[dataplane] underlay_port = \"socket\"`",
            ),
            Self::OtherInterface(ifindex) => {
                write!(
                    f,
                    "the route leads out of interface number {ifindex} instead of the underlay interface; correct it, or set \
                     `[dataplane] underlay_port = \"socket\"`"
                )
            }
            Self::NoInterface => f.write_str("the interface does not exist"),
            Self::InterfaceDown => f.write_str("the interface is down or has no carrier"),
            Self::NotEthernet => f.write_str("no Ethernet address"),
            Self::Kernel(error) => write!(f, "the kernel reports: {error}"),
        }
    }
}

/// Has the kernel find out the address of a neighbour on a device, unless it knows one.
///
/// # Errors
/// The kernel refuses.
pub async fn resolve(netlink: &Netlink, ifindex: u32, neighbour: IpAddr) -> io::Result<()> {
    ask(netlink, ifindex, neighbour, Question::Resolve).await
}

/// Has the kernel confirm neighbours on these devices that it has not seen used lately, at most so many at once.
///
/// # Errors
/// The kernel does not tell, or refuses.
pub async fn use_stale(netlink: &Netlink, devices: &[u32], most: usize) -> io::Result<()> {
    let request = RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default());
    let all = netlink.dump(request).await?;
    let stale = all.iter().filter_map(|message| match message {
        RouteNetlinkMessage::NewNeighbour(entry) => {
            let is_stale = matches!(Entry::of(entry), Entry::Usable { stale: true, .. });
            let ifindex = entry.header.ifindex;
            let address = neighbour_address(entry)?;
            (is_stale && devices.contains(&ifindex)).then_some((ifindex, address))
        }
        _ => None,
    });
    for (ifindex, address) in stale.take(most) {
        ask(netlink, ifindex, address, Question::Use).await?;
    }
    Ok(())
}

/// All next hops at one moment.
pub type Snapshot = Arc<HashMap<IpAddr, Resolution>>;

/// How often the neighbours are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Between two probes of a resolved neighbour
    pub refresh: Duration,
    /// Between two attempts to resolve one that is not
    pub retry: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            refresh: Duration::from_secs(2),
            retry: Duration::from_secs(1),
        }
    }
}

/// Keeps a set of next hops resolved. Ends when dropped.
#[derive(Debug)]
pub struct NextHops {
    targets: watch::Sender<Vec<IpAddr>>,
    snapshots: watch::Receiver<Snapshot>,
    task: Task,
}

impl NextHops {
    /// Starts with no targets. `interface` is the index of the underlay interface: next hops routed elsewhere stay
    /// unresolved. `source` is the source address of the packets, which policy rules may ask for. Must be called within
    /// a tokio runtime.
    pub fn new(
        netlink: &Netlink,
        watch: &Watch,
        interface: u32,
        source: IpAddr,
        timing: Timing,
    ) -> Self {
        let to = To::Frames {
            interface: Some(interface),
            source: Some(source),
        };
        Self::start(netlink, watch, to, timing)
    }

    /// Starts with no targets, of packets with this source address that the kernel sends: they may be behind any interface, or on
    /// this host. Must be called within a tokio runtime.
    pub fn of_sockets(netlink: &Netlink, watch: &Watch, source: IpAddr, timing: Timing) -> Self {
        Self::start(netlink, watch, To::Sockets { source }, timing)
    }

    /// Starts with no targets, which may be behind any interface. Must be called within a tokio runtime.
    pub fn anywhere(netlink: &Netlink, watch: &Watch, timing: Timing) -> Self {
        let to = To::Frames {
            interface: None,
            source: None,
        };
        Self::start(netlink, watch, to, timing)
    }

    fn start(netlink: &Netlink, watch: &Watch, to: To, timing: Timing) -> Self {
        let (targets, wanted) = watch::channel(Vec::new());
        let (publish, snapshots) = watch::channel(Snapshot::default());
        let resolver = Resolver {
            netlink: netlink.clone(),
            to,
            timing,
            hops: HashMap::new(),
            publish,
        };
        let run = resolver.run(wanted, watch.subscribe());
        Self {
            targets,
            snapshots,
            task: Task::spawn("the next-hop resolver", run),
        }
    }

    /// Waits until this is no longer done, and says so.
    pub fn ended(&self) -> impl Future<Output = String> + Send + use<> {
        self.task.ended()
    }

    /// Makes the targets exactly these.
    pub fn set_targets(&self, targets: Vec<IpAddr>) {
        self.targets.send_if_modified(|current| {
            let changed = *current != targets;
            *current = targets;
            changed
        });
    }

    /// A receiver of the whole set. It wakes only when something in it changed.
    pub fn subscribe(&self) -> watch::Receiver<Snapshot> {
        self.snapshots.clone()
    }
}

/// Least time between two looks at all targets: route announcements come in thousands.
const SETTLE: Duration = Duration::from_millis(20);

struct Hop {
    resolution: Resolution,
    neighbour: Option<IpAddr>,
    asked_at: Option<Instant>,
}

/// What next hops are needed for.
#[derive(Clone, Copy, Debug)]
enum To {
    /// To address Ethernet frames.
    Frames {
        /// The only interface that next hops may be behind, if there is one.
        interface: Option<u32>,
        /// Where packets to them come from, if that is known.
        source: Option<IpAddr>,
    },
    /// To know whether the kernel reaches them.
    Sockets {
        /// Where packets to them come from.
        source: IpAddr,
    },
}

impl To {
    const fn interface(self) -> Option<u32> {
        match self {
            Self::Frames { interface, .. } => interface,
            Self::Sockets { .. } => None,
        }
    }
}

struct Resolver {
    netlink: Netlink,
    to: To,
    timing: Timing,
    hops: HashMap<IpAddr, Hop>,
    publish: watch::Sender<Snapshot>,
}

impl Resolver {
    async fn run(mut self, mut wanted: watch::Receiver<Vec<IpAddr>>, mut changes: Changes) {
        let mut look_at = Instant::now();
        loop {
            tokio::select! {
                result = wanted.changed() => {
                    if result.is_err() {
                        return;
                    }
                    let targets = wanted.borrow_and_update().clone();
                    self.hops.retain(|target, _| targets.contains(target));
                    for target in targets {
                        self.hops.entry(target).or_insert(Hop {
                            resolution: Resolution::Unresolved(Reason::Resolving),
                            neighbour: None,
                            asked_at: None,
                        });
                    }
                    look_at = Instant::now();
                }
                change = changes.next() => {
                    if self.concerns(&change) {
                        look_at = look_at.min(Instant::now() + SETTLE);
                    }
                }
                () = tokio::time::sleep_until(look_at) => {
                    self.look().await;
                    look_at = Instant::now() + self.timing.retry.min(self.timing.refresh);
                }
            }
        }
    }

    fn concerns(&self, change: &Change) -> bool {
        match change {
            Change::Link { ifindex }
            | Change::LinkRemoved { ifindex }
            | Change::Address { ifindex } => {
                self.to.interface().is_none_or(|ours| ours == *ifindex)
            }
            Change::Neighbour { ifindex, address } => {
                self.to.interface().is_none_or(|ours| ours == *ifindex)
                    && self
                        .hops
                        .values()
                        .any(|hop| hop.neighbour == Some(*address))
            }
            Change::Route(_) | Change::RouteRemoved(_) | Change::Rules | Change::Resync => true,
        }
    }

    /// Looks at every target, asks where due, and publishes what changed.
    async fn look(&mut self) {
        let only = match self.to.interface() {
            Some(index) => usable(link::by_index(&self.netlink, index).await).map(Some),
            None => Ok(None),
        };
        let targets: Vec<IpAddr> = self.hops.keys().copied().collect();
        for target in targets {
            let found = match &only {
                Ok(only) => self.find_neighbour(only.as_ref(), target).await,
                Err(reason) => Err(reason.clone()),
            };
            let found = match found {
                Ok(found) => found,
                Err(reason) => {
                    if let Some(hop) = self.hops.get_mut(&target) {
                        *hop = Hop {
                            resolution: Resolution::Unresolved(reason),
                            neighbour: None,
                            asked_at: hop.asked_at,
                        };
                    }
                    continue;
                }
            };
            self.update(target, found).await;
        }
        let snapshot: HashMap<IpAddr, Resolution> = self
            .hops
            .iter()
            .map(|(target, hop)| (*target, hop.resolution.clone()))
            .collect();
        self.publish.send_if_modified(|current| {
            let changed = **current != snapshot;
            if changed {
                *current = Arc::new(snapshot);
            }
            changed
        });
    }

    async fn update(&mut self, target: IpAddr, found: Found) {
        let Some(hop) = self.hops.get_mut(&target) else {
            return;
        };
        let way = found.way;
        if hop.neighbour != Some(way.neighbour) {
            hop.neighbour = Some(way.neighbour);
            hop.asked_at = None;
        }
        hop.resolution = match found.entry {
            Entry::Usable { mac, .. } => Resolution::Resolved(way.towards(mac)),
            Entry::Odd => Resolution::Unresolved(Reason::NotEthernet),
            Entry::Failed => Resolution::Unresolved(Reason::NoAnswer(way.neighbour)),
            // The entry was collected or flushed and is being asked for again: what worked a moment ago goes on being
            // used until an answer comes or the asking fails.
            Entry::Missing | Entry::Incomplete => match &hop.resolution {
                Resolution::Resolved(old)
                    if (old.ifindex, old.neighbour) == (way.ifindex, way.neighbour) =>
                {
                    Resolution::Resolved(way.towards(old.destination_mac))
                }
                Resolution::Unresolved(Reason::NoAnswer(old)) if *old == way.neighbour => {
                    hop.resolution.clone()
                }
                _ => Resolution::Unresolved(Reason::Resolving),
            },
        };
        let now = Instant::now();
        let due = |interval| hop.asked_at.is_none_or(|at| now >= at + interval);
        let question = match found.entry {
            Entry::Missing | Entry::Failed if due(self.timing.retry) => Question::Resolve,
            Entry::Usable {
                maintained: false, ..
            } if due(self.timing.refresh) => Question::Confirm,
            _ => return,
        };
        hop.asked_at = Some(now);
        if let Err(error) = ask(&self.netlink, way.ifindex, way.neighbour, question).await {
            // ENOENT: the entry vanished since we looked; the next look resolves it.
            if error.raw_os_error() != Some(libc::ENOENT) {
                tracing::warn!(
                    "cannot resolve the MAC address of {}: {error}",
                    way.neighbour
                );
            }
        }
    }

    async fn find_neighbour(&self, only: Option<&Link>, target: IpAddr) -> Result<Found, Reason> {
        let way = match self.to {
            To::Frames { source, .. } => find_way(&self.netlink, only, source, target).await?,
            To::Sockets { source } => {
                let (way, has_neighbours) = find_any_way(&self.netlink, source, target).await?;
                if !has_neighbours {
                    let entry = Entry::Usable {
                        mac: [0; 6],
                        maintained: true,
                        stale: false,
                    };
                    return Ok(Found { way, entry });
                }
                way
            }
        };
        let entry = find_entry(&self.netlink, way.ifindex, way.neighbour).await?;
        Ok(Found { way, entry })
    }
}

struct Found {
    way: ResolvedRoute,
    entry: Entry,
}

pub(super) fn family(ip: IpAddr) -> AddressFamily {
    if ip.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    }
}
