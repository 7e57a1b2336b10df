//! `sig srv6`: an SR node on the interfaces of this host.
//!
//! The XDP programs ([`sig_common::srv6`]) process and forward; here is what they follow: a configuration, devices, neighbours. They
//! tell about packets whose senders are to be told, and about neighbours that somebody has to ask for.

mod answer;
pub(crate) mod config;
mod node;
mod probe;
mod process;
mod shared;
pub(crate) mod status;
mod tables;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    net::IpAddr,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use sig_common::srv6::maps::{Event, Reason};
use sig_core::dataplane::icmp::Sources;
use sig_core::document::common::XdpMode as Wanted;
use sig_linux::{
    Error,
    bpf::{Attachment, Events, Mirrors, Programs, SrPrograms, XdpMode, address_of, monotonic_ns},
    link::{self, Promiscuous},
    neighbours::{self, NextHops, Timing},
    netdev::xdp_features,
    netlink::Netlink,
    sysctl::{self, Family},
    watch::{Change, Watch},
};
use sig_observe::socket::ControlSocket;
use tokio::sync::Notify;

use answer::Answerer;
use config::{NamedRule, Remembered, Srv6};
pub use node::{Error as NodeError, Node};
use probe::Probes;
pub use process::{Function, InPlace, Verdict};
use process::{Functions, Process, Running};
pub(crate) use tables::Beside;
use tables::{Around, Numbers, frames, is_linked, is_up, next_hops, outputs, ports, tables};

/// Changes come in series: this long after the first, all are looked at.
const SETTLE: Duration = Duration::from_millis(20);

/// Devices and neighbours are looked at this often even if nobody tells of a change.
const TICK: Duration = Duration::from_secs(1);

/// Events that are handled before something else has its turn.
const EVENTS_AT_ONCE: usize = 64;

/// Neighbours that are asked for, or confirmed, at a time.
const MAX_ASKED: usize = 256;

/// How long a neighbour is asked for after a packet wanted to go there. If it has not answered then, another packet begins it anew.
const ASKED_FOR: Duration = Duration::from_secs(3);

/// A running node.
pub(crate) struct SrNode {
    netlink: Netlink,
    watch: Watch,
    hops: NextHops,
    /// There is a neighbour to be asked for.
    wanted: Notify,
    started: Instant,
    state: Arc<Mutex<State>>,
    running: Arc<Running>,
    /// Functions in the process.
    process: Option<Process>,
}

/// What the status shows.
struct State {
    id: String,
    programs: SrPrograms,
    config: Srv6,
    beside: Option<Beside>,
    numbers: Numbers,
    around: Around,
    /// Devices with the program: their index, and the program's hold on them.
    attached: BTreeMap<String, (u32, Attachment)>,
    /// Devices that packets may leave by.
    outputs: BTreeMap<String, u32>,
    /// Devices whose frames go into policies, whomever they are for.
    promiscuous: BTreeMap<String, (u32, Promiscuous)>,
    /// Neighbours of other tables that a packet wanted to go to, by device, and since when they are asked for.
    asked: BTreeMap<(u32, IpAddr), Instant>,
    answerer: Answerer,
    probes: Probes,
    mirrors: Mirrors,
    /// What was logged last.
    told: Vec<String>,
}

impl SrNode {
    /// Loads the programs; `id` is the node's name, `beside` the gateway that it is part of, if it is. Must be called within a tokio
    /// runtime.
    ///
    /// # Errors
    /// Missing privileges, or a kernel that cannot do it.
    pub(crate) fn load(
        id: String,
        config: Srv6,
        beside: Option<Beside>,
    ) -> Result<(Self, Events), Error> {
        let (mut programs, events) = SrPrograms::load()?;
        let mirrors = Mirrors::start(&mut programs)?;
        let netlink = Netlink::open().map_err(Error::doing("open a netlink socket"))?;
        let watch = Watch::open()?;
        let hops = NextHops::anywhere(&netlink, &watch, Timing::default());
        let answerer = Answerer::open(Sources::default()).map_err(Error::doing(
            "open the sockets that ICMP errors are sent by",
        ))?;
        let probes = Probes::new(programs.token());
        let node = Self {
            netlink,
            watch,
            hops,
            wanted: Notify::new(),
            started: Instant::now(),
            state: Arc::new(Mutex::new(State {
                id,
                programs,
                config,
                beside,
                numbers: Numbers::default(),
                around: Around::default(),
                attached: BTreeMap::new(),
                outputs: BTreeMap::new(),
                promiscuous: BTreeMap::new(),
                asked: BTreeMap::new(),
                answerer,
                probes,
                mirrors,
                told: Vec::new(),
            })),
            running: Arc::new(Running::default()),
            process: None,
        };
        Ok((node, events))
    }

    /// Starts functions in the process, by their names.
    ///
    /// # Errors
    /// The kernel does not make the devices, or has no AF_XDP.
    pub(crate) async fn start_functions(&mut self, functions: Functions) -> Result<(), Error> {
        if functions.is_empty() {
            return Ok(());
        }
        let pair = process::pair().await?;
        let running = Arc::clone(&self.running);
        let mut state = lock(&self.state);
        let State {
            programs, numbers, ..
        } = &mut *state;
        let functions = functions
            .into_iter()
            .map(|(name, function)| (numbers.reserve(&name), (name, function)))
            .collect();
        self.process = Some(Process::start(programs, functions, running, pair)?);
        Ok(())
    }

    /// Answers `sig srv6 status` at `socket`, until the result is dropped.
    ///
    /// # Errors
    /// Another process listens there, or the socket cannot be made.
    pub(crate) fn listen(&self, socket: &Path) -> std::io::Result<ControlSocket> {
        let (state, started) = (Arc::clone(&self.state), self.started);
        ControlSocket::listen(
            socket,
            move || Ok(status::read(&mut lock(&state), started)),
            || Err("send the process SIGHUP instead".to_owned()),
        )
    }

    /// Has the program of the node take what the gateway's program leaves to the kernel on LAN interfaces, or not.
    ///
    /// # Errors
    /// The kernel does not take it.
    pub(crate) fn run_behind(&self, gateway: &mut Programs, yes: bool) -> Result<(), Error> {
        let state = lock(&self.state);
        gateway.set_next(yes.then_some(&state.programs))
    }

    /// The number of a policy, and the longest packet that fits it.
    pub(crate) fn chain(&self, policy: &str) -> (u32, u32) {
        let mut state = lock(&self.state);
        let number = state.numbers.policy(policy);
        (number, tables::room(&state.config, policy, &state.around))
    }

    /// The number of a device that copies leave by.
    pub(crate) fn mirror(&self, device: &str) -> u32 {
        lock(&self.state).numbers.mirror(device)
    }

    /// Whether the program runs on the tunnel device of the gateway that the node is part of.
    pub(crate) fn has_tunnel(&self) -> bool {
        let state = lock(&self.state);
        let gateway = state.beside.as_ref();
        gateway.is_some_and(|gateway| state.attached.contains_key(&gateway.tunnel))
    }

    /// What it does now.
    pub(crate) fn status(&self) -> status::Status {
        status::read(&mut lock(&self.state), self.started)
    }

    /// Follows another configuration.
    pub(crate) async fn reload(&self, config: Srv6, beside: Option<Beside>) -> Result<(), Error> {
        {
            let mut state = lock(&self.state);
            (state.config, state.beside) = (config, beside);
        }
        self.look().await?;
        // Only now, when no table has them any more, their numbers may be those of others.
        let mut state = lock(&self.state);
        let State {
            programs,
            config,
            beside,
            numbers,
            ..
        } = &mut *state;
        for slot in numbers.keep(config, beside.as_ref()) {
            programs.clear(slot)?;
        }
        Ok(())
    }

    /// Follows devices and neighbours. Returns with an error only.
    ///
    /// # Errors
    /// The kernel does not let us write, or does not tell any more.
    pub(crate) async fn run(&self, events: &mut Events) -> Result<std::convert::Infallible, Error> {
        let mut changes = self.watch.subscribe();
        let mut hops = self.hops.subscribe();
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let due = lock(&self.state).probes.due();
            tokio::select! {
                () = sleep_until(due) => {
                    if self.probe() {
                        self.look_again().await;
                    }
                }
                told = events.next(EVENTS_AT_ONCE, |event, packet| self.take(event, packet)) => {
                    told.map_err(Error::doing("read what the programs tell"))?;
                    tokio::task::yield_now().await;
                }
                change = changes.next() => {
                    // Neighbours have a channel of their own, and routes are the kernel's.
                    if !matches!(change, Change::Route(_) | Change::RouteRemoved(_) | Change::Neighbour { .. }) {
                        tokio::time::sleep(SETTLE).await;
                        changes = self.watch.subscribe();
                        self.look_again().await;
                    }
                }
                () = self.running.changed.notified() => self.look_again().await,
                () = self.wanted.notified() => self.refresh().await,
                changed = hops.changed() => {
                    if changed.is_err() {
                        return Err(Error::Refused("the task that watches neighbours has ended".to_owned()));
                    }
                    self.look_again().await;
                }
                _ = tick.tick() => {
                    self.look_at_headers();
                    // There may be new functions, or one may have lost its link.
                    self.probe();
                    self.look_again().await;
                    self.refresh().await;
                }
            }
        }
    }

    /// Sends what probes are due. Whether what they tell has changed.
    fn probe(&self) -> bool {
        let mut state = lock(&self.state);
        let State {
            config,
            around,
            attached,
            probes,
            ..
        } = &mut *state;
        let has_program = |name: &str| attached.contains_key(name);
        probes.run(Instant::now(), &config.functions, around, has_program);
        let before = std::mem::replace(&mut around.silent, probes.silent());
        !before.keys().eq(around.silent.keys())
    }

    /// Looks how often the headers of functions change.
    fn look_at_headers(&self) {
        let mut state = lock(&self.state);
        let State {
            programs,
            config,
            numbers,
            around,
            ..
        } = &mut *state;
        let counts = config.functions.iter().map(|function| {
            let number = numbers.function(&function.name);
            (function.name.clone(), programs.changes(number).unwrap_or(0))
        });
        around.changes.look(Instant::now(), counts);
    }

    /// As [`Self::look`], of which an error is one more problem: the next attempt may succeed.
    async fn look_again(&self) {
        if let Err(error) = self.look().await {
            tracing::warn!(
                "cannot follow devices and neighbours; trying again in a second: {error}"
            );
        }
    }

    /// Asks the neighbours that packets wait for, and has the kernel confirm those that it has not seen used: packets of XDP programs do
    /// not count as use.
    async fn refresh(&self) {
        let (wanted, devices): (Vec<_>, Vec<u32>) = {
            let mut state = lock(&self.state);
            state.asked.retain(|_, since| since.elapsed() < ASKED_FOR);
            (
                state.asked.keys().copied().collect(),
                state.outputs.values().copied().collect(),
            )
        };
        for (ifindex, address) in wanted {
            if let Err(error) = neighbours::resolve(&self.netlink, ifindex, address).await {
                tracing::debug!("cannot ask for {address}: {error}");
            }
        }
        if let Err(error) = neighbours::use_stale(&self.netlink, &devices, MAX_ASKED).await {
            tracing::debug!("cannot look at neighbours: {error}");
        }
    }

    /// Looks at everything, and makes the programs follow.
    pub(crate) async fn look(&self) -> Result<(), Error> {
        let links = link::all(&self.netlink).await?;
        let mut state = lock(&self.state);
        if let Some(gateway) = &mut state.beside
            && let Some(link) = links
                .iter()
                .find(|link| link.ifindex == gateway.tunnel_index)
        {
            gateway.tunnel.clone_from(&link.name);
        }
        let links: BTreeMap<_, _> = links
            .into_iter()
            .map(|link| (link.name.clone(), link))
            .collect();
        let State {
            programs,
            config,
            beside,
            numbers,
            around,
            attached,
            outputs: sending,
            promiscuous,
            answerer,
            told,
            ..
        } = &mut *state;
        self.hops.set_targets(next_hops(config));
        around.links = links;
        around.running = self.running.names();
        around.next_hops = self.hops.subscribe().borrow().as_ref().clone();
        answerer.set_sources(sources(config, beside.as_ref(), around));

        // Where a device is another one by now, the program goes first and comes anew.
        let indexes: BTreeMap<String, u32> = around
            .links
            .values()
            .map(|link| (link.name.clone(), link.ifindex))
            .collect();
        let index = |name: &String| indexes.get(name).copied();
        let beside = beside.as_ref();
        let is_gateways = |name: &&String| beside.is_some_and(|of| of.lan.contains(name));
        let wanted: Vec<&String> = ports(config, beside)
            .filter(|name| !is_gateways(name))
            .collect();
        attached
            .retain(|name, (ifindex, _)| wanted.contains(&name) && index(name) == Some(*ifindex));
        let mut problems = Vec::new();
        promiscuous.retain(|name, (ifindex, _)| {
            frames(config).any(|wanted| wanted == name) && index(name) == Some(*ifindex)
        });
        for name in frames(config) {
            let (Some(ifindex), false) = (index(name), promiscuous.contains_key(name)) else {
                continue;
            };
            match Promiscuous::new(ifindex) {
                Ok(held) => {
                    promiscuous.insert(name.clone(), (ifindex, held));
                }
                Err(error) => problems.push(format!(
                    "{name} takes frames for its own address only, as it cannot be made promiscuous: {error}"
                )),
            }
        }
        for name in wanted {
            let mode = match config.node.xdp {
                Wanted::Auto => None,
                Wanted::Native => Some(XdpMode::Native),
                Wanted::Generic => Some(XdpMode::Generic),
            };
            if let (Some(ifindex), false) = (index(name), attached.contains_key(name)) {
                match programs.attach(ifindex, mode) {
                    Ok(attachment) => {
                        tracing::info!(interface = name, mode = %attachment.mode(), "processing packets");
                        attached.insert(name.clone(), (ifindex, attachment));
                    }
                    Err(error) => problems.push(error.to_string()),
                }
            }
        }
        send_through(programs, (config, beside), &indexes, sending, &mut problems);
        // A function that nothing can be sent to, or whose packets would not be taken back, is as good as dead.
        around.attached = attached.keys().cloned().collect();
        around.sending = sending.keys().cloned().collect();
        problems.extend(self::problems(config, beside, around));
        programs.set(&tables(config, beside, numbers, around))?;
        for problem in problems.iter().filter(|problem| !told.contains(problem)) {
            tracing::warn!("{problem}");
        }
        for gone in told.iter().filter(|problem| !problems.contains(problem)) {
            tracing::info!("no longer: {gone}");
        }
        *told = problems;
        Ok(())
    }

    fn take(&self, event: &Event, packet: &[u8]) {
        let mut state = lock(&self.state);
        if event.reason == Reason::Resolve as u32 {
            let neighbour = (event.ifindex, address_of(event));
            let asked = &mut state.asked;
            if asked.len() < MAX_ASKED && !asked.contains_key(&neighbour) {
                asked.insert(neighbour, Instant::now());
                self.wanted.notify_one();
            }
            return;
        }
        if event.reason == Reason::Probe as u32 {
            state.probes.came_back(packet);
            return;
        }
        state.answerer.answer(monotonic_ns(), event, packet);
    }
}

/// Lets packets out by the devices that send them now, and no others.
fn send_through(
    programs: &mut SrPrograms,
    (config, beside): (&Srv6, Option<&Beside>),
    indexes: &BTreeMap<String, u32>,
    sending: &mut BTreeMap<String, u32>,
    problems: &mut Vec<String>,
) {
    let is_generic = config.node.xdp == Wanted::Generic;
    let mut able = BTreeMap::new();
    for name in outputs(config, beside) {
        let Some(ifindex) = indexes.get(name) else {
            continue;
        };
        let transmits = match xdp_features(*ifindex) {
            Ok(Some(features)) => features.transmit() || is_generic,
            // The kernel does not tell.
            _ => true,
        };
        if transmits {
            able.insert(name.clone(), *ifindex);
        } else if !beside.is_some_and(|of| of.lan.contains(name)) {
            // To hosts of a gateway's LAN the kernel sends as well.
            problems.push(format!(
                "{name} does not send packets of XDP programs: of a veth pair, switch GRO on at the other end while it is up \
                 (`ethtool -K DEVICE gro on`), or write xdp = \"generic\" in [srv6]"
            ));
        }
    }
    sending.retain(|name, ifindex| {
        let stays = able.get(name) == Some(ifindex);
        if !stays && let Err(error) = programs.remove_device(*ifindex) {
            tracing::warn!("{error}");
        }
        stays
    });
    for (name, ifindex) in able {
        if sending.contains_key(&name) {
            continue;
        }
        match programs.add_device(ifindex) {
            Ok(()) => {
                sending.insert(name, ifindex);
            }
            Err(error) => problems.push(error.to_string()),
        }
    }
}

/// Addresses that ICMP errors are sent from: of IPv4, the first one of a trusted interface, of the gateway's LAN, of one that a
/// function returns packets by, or of an untrusted interface.
fn sources(config: &Srv6, beside: Option<&Beside>, around: &Around) -> Sources {
    let lan = beside.into_iter().flat_map(|gateway| &gateway.lan);
    let returns = config.functions.iter().map(|of| &of.return_interface);
    let names = config.node.trusted.iter().chain(lan).chain(returns);
    let names = names.chain(&config.node.untrusted);
    let links = names.filter_map(|name| around.links.get(name));
    let mut addresses = links.flat_map(|link| &link.addresses);
    Sources {
        v4: addresses.find_map(|net| match net.addr() {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        }),
        v6: config.node.source,
    }
}

/// What keeps packets from being processed.
fn problems(config: &Srv6, beside: Option<&Beside>, around: &Around) -> Vec<String> {
    let mut problems = Vec::new();
    let mirrors = config.rules.iter().filter_map(NamedRule::mirror);
    let mut names: Vec<&String> = ports(config, beside)
        .chain(outputs(config, beside))
        .chain(mirrors)
        .collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        match around.links.get(name) {
            None => problems.push(format!(
                "there is no interface {name}: create it, or correct its name"
            )),
            Some(link) if link.mac.is_none() => {
                problems.push(format!("{name} is no Ethernet device and cannot be used"));
            }
            Some(link) if !(link.up && link.carrier) => {
                problems.push(format!("{name} is down or has no carrier"));
            }
            Some(_) => {}
        }
    }
    for name in ports(config, beside) {
        let forwards = [Family::V4, Family::V6].into_iter().any(|family| {
            let setting = sysctl::read(family, name, "forwarding");
            !matches!(setting, Ok(Some(0)))
        });
        if !forwards && around.links.contains_key(name) {
            problems.push(format!(
                "{name} does not forward: set net.ipv4.conf.{name}.forwarding or net.ipv6.conf.{name}.forwarding to 1"
            ));
        }
    }
    for address in next_hops(config) {
        if let Some(neighbours::Resolution::Unresolved(why)) = around.next_hops.get(&address) {
            problems.push(match why {
                neighbours::Reason::Resolving | neighbours::Reason::NoAnswer(_) => format!(
                    "next hop {address} does not answer: check that it is up and in the network of one of the interfaces"
                ),
                why => format!("next hop {address} cannot be reached: {why}"),
            });
        }
    }
    for function in &config.functions {
        if !is_up(function, around) {
            let consequence = match function.bypass {
                true => "packets go on without it",
                false => "its packets are dropped",
            };
            let name = &function.name;
            problems.push(match is_linked(function, around) {
                true => format!("function {name} does not answer probes: {consequence}"),
                false => format!("function {name} is down: {consequence}"),
            });
        }
        if around.changes.are_many(&function.name) {
            let (name, many) = (&function.name, shared::MANY);
            problems.push(match function.headers {
                Remembered::Latest => format!(
                    "function {name} is on two chains: its headers change more than {many} times a second; give each chain a function \
                     of its own, or write headers = \"flow\""
                ),
                Remembered::OfFlows => format!(
                    "flows pass function {name} in two chains: their headers change more than {many} times a second; let each flow pass \
                     it once"
                ),
            });
        }
    }
    problems
}

/// Never, if there is no time.
async fn sleep_until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
