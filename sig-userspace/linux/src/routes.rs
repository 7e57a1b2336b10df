//! Kernel routes that lead remote prefixes into the tunnel, kept as long as they are wanted.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use rtnetlink::packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use rtnetlink::packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::Error;
use super::netlink::Netlink;
use super::watch::{Change, Changes, RouteKey, Watch, ip_of};
use sig_core::task::Task;

/// Metric of the tunnel's routes, as the reference gateway sets it: better than BGP's 20. Connected routes may have a higher
/// one (IPv6: 256, NetworkManager: 100), so it protects no network of this host; see [`networks`](super::networks).
pub const METRIC: u32 = 15;

/// Least time between two attempts to put back what is missing. Whoever deletes a route again and again is a program
/// with other ideas, and fighting it faster helps nobody.
const RESTORE_INTERVAL: Duration = Duration::from_secs(1);

/// Longest time between two attempts to add what the kernel refuses, when nothing happens that might change its mind.
const MAX_INTERVAL: Duration = Duration::from_secs(60);

/// A route into the tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    /// Destination; bits beyond the prefix length are ignored
    pub prefix: IpNet,
    /// Source address of packets that this host itself sends there; must be an address of this host
    pub source_hint: Option<IpAddr>,
}

impl From<IpNet> for Route {
    fn from(prefix: IpNet) -> Self {
        Self {
            prefix,
            source_hint: None,
        }
    }
}

/// The routes of one device in one routing table. Wanted routes that somebody deletes come back, those that the kernel
/// refuses are tried again and again; all go with the device, or with [`Routes::close`].
#[derive(Debug)]
pub struct Routes {
    commands: mpsc::Sender<Command>,
    task: Task,
}

#[derive(Debug)]
enum Command {
    Add(Route, oneshot::Sender<Result<(), Error>>),
    Remove(IpNet, oneshot::Sender<Result<(), Error>>),
    Set(Vec<Route>, oneshot::Sender<Result<(), Error>>),
    Settle(oneshot::Sender<Result<(), Error>>),
}

impl Routes {
    /// Starts keeping routes out of interface `ifindex` in routing table number `table`. Must be called within a tokio
    /// runtime.
    pub fn start(netlink: &Netlink, watch: &Watch, ifindex: u32, table: u32) -> Self {
        let (commands, receiver) = mpsc::channel(64);
        let keeper = Keeper {
            netlink: netlink.clone(),
            ifindex,
            table,
            wanted: HashMap::new(),
            retry_at: None,
            interval: RESTORE_INTERVAL,
            last_restore: None,
        };
        let run = keeper.run(receiver, watch.subscribe());
        Self {
            commands,
            task: Task::spawn("the route manager", run),
        }
    }

    /// Waits until this is no longer done, and says so.
    pub fn ended(&self) -> impl Future<Output = String> + Send + use<> {
        self.task.ended()
    }

    /// Adds a route, or changes its source hint. Fine when it is there already. When the kernel refuses, that is logged
    /// and returned, and the route tried again until it is removed.
    pub async fn add(&self, route: Route) -> Result<(), Error> {
        self.ask(|answer| Command::Add(route, answer)).await
    }

    /// Removes a route. Fine when it is not there.
    pub async fn remove(&self, prefix: IpNet) -> Result<(), Error> {
        self.ask(|answer| Command::Remove(prefix, answer)).await
    }

    /// Makes the routes exactly these: adds what is missing, then removes the others. All are tried, as by
    /// [`Routes::add`]; the error is the first one met.
    pub async fn set(&self, routes: Vec<Route>) -> Result<(), Error> {
        self.ask(|answer| Command::Set(routes, answer)).await
    }

    /// Like [`Routes::set`], but does not wait until it is done: commands are carried out in their order.
    pub async fn set_soon(&self, routes: Vec<Route>) {
        let (answer, _) = oneshot::channel();
        // A keeper that has ended has logged why.
        let _ = self.commands.send(Command::Set(routes, answer)).await;
    }

    /// Waits until everything before is done.
    pub async fn settle(&self) -> Result<(), Error> {
        self.ask(Command::Settle).await
    }

    /// Removes all routes.
    pub async fn close(&self) -> Result<(), Error> {
        self.set(Vec::new()).await
    }

    async fn ask(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<(), Error>>) -> Command,
    ) -> Result<(), Error> {
        let (answer, answered) = oneshot::channel();
        let closed = || Error::Closed("the route manager");
        self.commands
            .send(command(answer))
            .await
            .map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?
    }
}

#[derive(Default)]
struct Wanted {
    source_hint: Option<IpAddr>,
    installed: bool,
    /// Why the kernel refused it last time, as logged.
    problem: Option<String>,
}

struct Keeper {
    netlink: Netlink,
    ifindex: u32,
    table: u32,
    /// By truncated prefix
    wanted: HashMap<IpNet, Wanted>,
    retry_at: Option<Instant>,
    /// Time until the next attempt if this one fails
    interval: Duration,
    last_restore: Option<Instant>,
}

impl Keeper {
    async fn run(mut self, mut commands: mpsc::Receiver<Command>, mut changes: Changes) {
        loop {
            let retry_at = self.retry_at;
            tokio::select! {
                command = commands.recv() => match command {
                    Some(command) => self.obey(command).await,
                    None => return,
                },
                change = changes.next() => self.notice(&change),
                () = tokio::time::sleep_until(retry_at.unwrap_or_else(Instant::now)), if retry_at.is_some() => {
                    self.restore().await;
                }
            }
        }
    }

    async fn obey(&mut self, command: Command) {
        // Somebody who no longer waits for the answer does not need it.
        let _ = match command {
            Command::Add(route, answer) => answer.send(self.add(vec![route]).await),
            Command::Remove(prefix, answer) => answer.send(self.remove(vec![prefix.trunc()]).await),
            Command::Set(routes, answer) => answer.send(self.set(routes).await),
            Command::Settle(answer) => answer.send(Ok(())),
        };
    }

    async fn set(&mut self, routes: Vec<Route>) -> Result<(), Error> {
        let kept: HashSet<IpNet> = routes.iter().map(|route| route.prefix.trunc()).collect();
        let wanted = self.wanted.keys();
        let surplus: Vec<IpNet> = wanted.filter(|net| !kept.contains(*net)).copied().collect();
        let added = self.add(routes).await;
        added.and(self.remove(surplus).await)
    }

    async fn add(&mut self, routes: Vec<Route>) -> Result<(), Error> {
        let mut missing = Vec::new();
        for route in routes {
            let (prefix, source_hint) = (route.prefix.trunc(), route.source_hint);
            let wanted = self.wanted.entry(prefix).or_default();
            if !wanted.installed || wanted.source_hint != source_hint {
                wanted.source_hint = source_hint;
                missing.push((prefix, source_hint));
            }
        }
        let result = self.try_to_install(missing).await;
        if result.is_err() {
            self.interval = RESTORE_INTERVAL;
            self.try_again_at(Instant::now() + self.interval);
        }
        result
    }

    /// Adds wanted routes and remembers what came of it. All are tried, the error is the first one met. Each reason
    /// for a failure is logged once.
    async fn try_to_install(&mut self, routes: Vec<(IpNet, Option<IpAddr>)>) -> Result<(), Error> {
        let mut first = Ok(());
        for ((prefix, _), result) in routes.iter().zip(self.install(&routes).await) {
            let Some(wanted) = self.wanted.get_mut(prefix) else {
                continue;
            };
            wanted.installed = result.is_ok();
            let problem = result.as_ref().err().map(Error::to_string);
            match (&problem, &wanted.problem) {
                (Some(now), before) if Some(now) != before.as_ref() => {
                    tracing::warn!("the route to {prefix} is missing, retrying: {now}");
                }
                (None, Some(_)) => tracing::info!("the route to {prefix} has been restored"),
                _ => {}
            }
            wanted.problem = problem;
            first = first.and(result);
        }
        first
    }

    async fn remove(&mut self, mut prefixes: Vec<IpNet>) -> Result<(), Error> {
        prefixes.retain(|prefix| self.wanted.remove(prefix).is_some());
        let requests = prefixes
            .iter()
            .map(|prefix| RouteNetlinkMessage::DelRoute(self.message(*prefix, None)))
            .collect();
        let results = self.netlink.execute_all(requests, 0).await;
        let mut first = Ok(());
        for (prefix, result) in prefixes.iter().zip(results) {
            first = first.and(match result {
                // Gone already, or gone with its device.
                Err(error)
                    if matches!(
                        error.raw_os_error(),
                        Some(libc::ESRCH | libc::ENODEV | libc::ENOENT)
                    ) =>
                {
                    Ok(())
                }
                other => other.map_err(Error::doing(format!("remove the route to {prefix}"))),
            });
        }
        first
    }

    /// What the kernel says about each of the routes.
    async fn install(&self, routes: &[(IpNet, Option<IpAddr>)]) -> Vec<Result<(), Error>> {
        let requests = routes.iter();
        let requests = requests.map(|(prefix, source_hint)| {
            RouteNetlinkMessage::NewRoute(self.message(*prefix, *source_hint))
        });
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        let answers = self.netlink.execute_all(requests.collect(), flags).await;
        // What is in the way, once for all of a family.
        let mut existing = [None, None];
        let mut results = Vec::with_capacity(routes.len());
        for (&(prefix, source_hint), answer) in routes.iter().zip(answers) {
            let Err(error) = answer else {
                results.push(Ok(()));
                continue;
            };
            let there = &mut existing[usize::from(prefix.addr().is_ipv6())];
            results.push(self.resolve(prefix, source_hint, error, there).await);
        }
        results
    }

    /// Deals with the kernel's refusal of a route.
    async fn resolve(
        &self,
        prefix: IpNet,
        source_hint: Option<IpAddr>,
        error: io::Error,
        existing: &mut Option<HashMap<IpNet, Option<IpAddr>>>,
    ) -> Result<(), Error> {
        let doing = || Error::doing(format!("add the route to {prefix}"));
        match error.raw_os_error() {
            Some(libc::EEXIST) => {
                let existing = match existing {
                    Some(known) => known,
                    None => {
                        let found = self.existing(family(prefix)).await.map_err(doing())?;
                        existing.insert(found)
                    }
                };
                match existing.get(&prefix) {
                    Some(existing) if *existing == source_hint => Ok(()),
                    Some(_) => {
                        let route = self.message(prefix, source_hint);
                        let request = RouteNetlinkMessage::NewRoute(route);
                        let flags = NLM_F_CREATE | NLM_F_REPLACE;
                        self.netlink.execute(request, flags).await.map_err(doing())
                    }
                    None => Err(Error::Refused(format!(
                        "another route to {prefix} with metric {METRIC} exists (`ip route show {prefix} table {}`); \
                         delete it or give it another metric",
                        self.table
                    ))),
                }
            }
            Some(libc::EINVAL) if source_hint.is_some() => Err(Error::Refused(format!(
                "cannot add the route to {prefix}: its source hint {} is not an address of this host",
                source_hint.map(|ip| ip.to_string()).unwrap_or_default(),
            ))),
            _ => Err(doing()(error)),
        }
    }

    /// Our own routes of one family as they are in the kernel, with their source hints.
    async fn existing(&self, family: AddressFamily) -> io::Result<HashMap<IpNet, Option<IpAddr>>> {
        let mut request = RouteMessage::default();
        request.header.address_family = family;
        let answers = self
            .netlink
            .dump(RouteNetlinkMessage::GetRoute(request))
            .await?;
        let routes = answers.iter().filter_map(|answer| {
            let RouteNetlinkMessage::NewRoute(route) = answer else {
                return None;
            };
            let key = RouteKey::of(route)?;
            let source_hint = route
                .attributes
                .iter()
                .find_map(|attribute| match attribute {
                    RouteAttribute::PrefSource(address) => ip_of(address),
                    _ => None,
                });
            self.is_ours(&key).then_some((key.prefix, source_hint))
        });
        Ok(routes.collect())
    }

    fn is_ours(&self, key: &RouteKey) -> bool {
        self.is_in_our_place(key) && key.ifindex == Some(self.ifindex)
    }

    /// Whether there can be this route or ours but not both.
    fn is_in_our_place(&self, key: &RouteKey) -> bool {
        key.table == self.table && key.metric == METRIC
    }

    fn notice(&mut self, change: &Change) {
        let missing = match change {
            Change::RouteRemoved(key) if self.is_ours(key) => {
                self.mark_missing(|prefix| *prefix == key.prefix)
            }
            // What was in the way of ours has gone.
            Change::RouteRemoved(key) if self.is_in_our_place(key) => self
                .wanted
                .get(&key.prefix)
                .is_some_and(|wanted| !wanted.installed),
            // Somebody replaced ours: the kernel announces only the newcomer.
            Change::Route(key) if self.is_in_our_place(key) && !self.is_ours(key) => {
                self.mark_missing(|prefix| *prefix == key.prefix)
            }
            // The kernel drops IPv4 routes of a device that goes down without a word.
            Change::Link { ifindex } if *ifindex == self.ifindex => self.mark_missing(|_| true),
            // A source hint may have become an address of this host.
            Change::Address { .. } => self.wanted.values().any(|wanted| !wanted.installed),
            Change::Resync => self.mark_missing(|_| true),
            _ => false,
        };
        if missing {
            self.interval = RESTORE_INTERVAL;
            let now = Instant::now();
            let soon = self
                .last_restore
                .map_or(now, |last| now.max(last + RESTORE_INTERVAL));
            self.try_again_at(soon);
        }
    }

    fn try_again_at(&mut self, at: Instant) {
        self.retry_at = Some(self.retry_at.map_or(at, |before| before.min(at)));
    }

    fn mark_missing(&mut self, which: impl Fn(&IpNet) -> bool) -> bool {
        let mut any = false;
        for (prefix, wanted) in &mut self.wanted {
            if which(prefix) {
                wanted.installed = false;
                any = true;
            }
        }
        any
    }

    async fn restore(&mut self) {
        let now = Instant::now();
        self.last_restore = Some(now);
        self.retry_at = None;
        // One look at the table first: after a lost announcement most routes are still there.
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let existing = self.existing(family).await.unwrap_or_default();
            for (prefix, wanted) in &mut self.wanted {
                wanted.installed |= existing.get(prefix) == Some(&wanted.source_hint);
            }
        }
        let missing: Vec<(IpNet, Option<IpAddr>)> = self
            .wanted
            .iter()
            .filter(|(_, wanted)| !wanted.installed)
            .map(|(prefix, wanted)| (*prefix, wanted.source_hint))
            .collect();
        if self.try_to_install(missing).await.is_err() {
            self.interval = (2 * self.interval).min(MAX_INTERVAL);
            self.retry_at = Some(now + self.interval);
        }
    }

    fn message(&self, prefix: IpNet, source_hint: Option<IpAddr>) -> RouteMessage {
        let mut message = RouteMessage::default();
        message.header.address_family = family(prefix);
        message.header.destination_prefix_length = prefix.prefix_len();
        // The attribute counts: the header has room for small numbers only.
        message.header.table = u8::try_from(self.table).unwrap_or(RouteHeader::RT_TABLE_UNSPEC);
        // `static`: an administrator's route, which routing daemons respect and may announce. They purge `boot`.
        message.header.protocol = RouteProtocol::Static;
        message.header.scope = RouteScope::Universe;
        message.header.kind = RouteType::Unicast;
        message.attributes = vec![
            RouteAttribute::Destination(prefix.network().into()),
            RouteAttribute::Oif(self.ifindex),
            RouteAttribute::Priority(METRIC),
            RouteAttribute::Table(self.table),
        ];
        message
            .attributes
            .extend(source_hint.map(|ip| RouteAttribute::PrefSource(ip.into())));
        message
    }
}

fn family(prefix: IpNet) -> AddressFamily {
    match prefix {
        IpNet::V4(_) => AddressFamily::Inet,
        IpNet::V6(_) => AddressFamily::Inet6,
    }
}
