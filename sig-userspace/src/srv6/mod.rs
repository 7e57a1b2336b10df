//! `sig srv6`: an SR node on the interfaces of this host.
//!
//! The XDP programs ([`sig_common::srv6`]) process and forward; here is what they follow: a configuration, devices, neighbours. They
//! tell about packets whose senders are to be told, and about neighbours that somebody has to ask for.

mod answer;
pub(crate) mod config;
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
    link,
    neighbours::{self, NextHops, Timing},
    netdev::xdp_features,
    netlink::Netlink,
    watch::{Change, Watch},
};
use sig_observe::socket::ControlSocket;
use tokio::sync::Notify;

use answer::Answerer;
use config::{NamedRule, Srv6};
pub(crate) use tables::Beside;
use tables::{Around, Numbers, is_up, next_hops, outputs, ports, tables};

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
    /// Neighbours of other tables that a packet wanted to go to, by device, and since when they are asked for.
    asked: BTreeMap<(u32, IpAddr), Instant>,
    answerer: Answerer,
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
                asked: BTreeMap::new(),
                answerer,
                mirrors,
                told: Vec::new(),
            })),
        };
        Ok((node, events))
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

    /// Has the program of the node take what the gateway's program leaves to the kernel on LAN interfaces.
    ///
    /// # Errors
    /// The kernel does not take it.
    pub(crate) fn run_behind(&self, gateway: &mut Programs) -> Result<(), Error> {
        gateway.set_next(&lock(&self.state).programs)
    }

    /// The number of a policy, and the longest packet that fits it.
    pub(crate) fn chain(&self, policy: &str) -> (u32, u32) {
        let mut state = lock(&self.state);
        let number = state.numbers.policy(policy);
        (number, tables::room(&state.config, policy))
    }

    /// The number of a device that copies leave by.
    pub(crate) fn mirror(&self, device: &str) -> u32 {
        lock(&self.state).numbers.mirror(device)
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
            tokio::select! {
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
                () = self.wanted.notified() => self.refresh().await,
                changed = hops.changed() => {
                    if changed.is_err() {
                        return Err(Error::Refused("the task that watches neighbours has ended".to_owned()));
                    }
                    self.look_again().await;
                }
                _ = tick.tick() => {
                    self.look_again().await;
                    self.refresh().await;
                }
            }
        }
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
        let links: BTreeMap<_, _> = links
            .into_iter()
            .map(|link| (link.name.clone(), link))
            .collect();
        let mut state = lock(&self.state);
        let State {
            programs,
            config,
            beside,
            numbers,
            around,
            attached,
            outputs: sending,
            answerer,
            told,
            ..
        } = &mut *state;
        self.hops.set_targets(next_hops(config));
        around.links = links;
        around.next_hops = self.hops.subscribe().borrow().as_ref().clone();
        answerer.set_sources(sources(config, around));

        // Where a device is another one by now, the program goes first and comes anew.
        let index = |name: &String| around.links.get(name).map(|link| link.ifindex);
        let beside = beside.as_ref();
        let is_gateways = |name: &&String| beside.is_some_and(|of| of.lan.contains(name));
        let wanted: Vec<&String> = ports(config, beside)
            .filter(|name| !is_gateways(name))
            .collect();
        attached
            .retain(|name, (ifindex, _)| wanted.contains(&name) && index(name) == Some(*ifindex));
        sending.retain(|name, ifindex| {
            let stays = outputs(config, beside).any(|wanted| wanted == name)
                && index(name) == Some(*ifindex);
            if !stays && let Err(error) = programs.remove_device(*ifindex) {
                tracing::warn!("{error}");
            }
            stays
        });
        let mut problems = problems(config, beside, around);
        for name in outputs(config, beside) {
            let (Some(ifindex), false) = (index(name), sending.contains_key(name)) else {
                continue;
            };
            let generic = config.node.xdp == Wanted::Generic;
            let transmits = match xdp_features(ifindex) {
                Ok(Some(features)) => features.transmit() || generic,
                // The kernel does not tell.
                _ => true,
            };
            if !transmits {
                problems.push(format!(
                    "{name} does not send packets of XDP programs: of a veth pair, switch GRO on at the other end while it is up \
                     (`ethtool -K DEVICE gro on`), or write xdp = \"generic\" in [srv6]"
                ));
                continue;
            }
            match programs.add_device(ifindex) {
                Ok(()) => {
                    sending.insert(name.clone(), ifindex);
                }
                Err(error) => problems.push(error.to_string()),
            }
        }
        programs.set(&tables(config, beside, numbers, around))?;
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
        state.answerer.answer(monotonic_ns(), event, packet);
    }
}

/// Addresses that ICMP errors are sent from: of IPv4, the first one that a trusted interface has.
fn sources(config: &Srv6, around: &Around) -> Sources {
    let links = config
        .node
        .trusted
        .iter()
        .filter_map(|name| around.links.get(name));
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
            problems.push(format!("function {} is down: {consequence}", function.name));
        }
    }
    problems
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
