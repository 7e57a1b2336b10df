//! LAN interfaces in service: they come and go while the gateway runs, without touching the others.
//!
//! An interface is looked up by its configured name whenever the kernel announces a change of links. One that is there gets program, sockets
//! and a number of its own; one that is removed, replaced, or no longer configured gives them back.

use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use sig_core::{engine::LanChange, port::Role, status::LeftOut};
use sig_linux::{
    af_xdp::{Lease, OpenedPort, Opener},
    bpf::{Attachment, Program},
    ethtool::Ethtool,
    lan::LanPort,
    link::{self, Link},
    netlink::Netlink,
    watch::{Change, Changes},
};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep_until},
};

use super::{
    Error, Shared, bypassed,
    interfaces::{self, Followed, is_virtual},
    lock,
    ports::{self, LanPorts, PortFacts},
    status::RingDrops,
    trunks::Trunk,
};
use crate::control::config::{Config, LanTransmit};

/// Announcements about one interface come in numbers.
const SETTLE: Duration = Duration::from_millis(10);
/// To look which interfaces there are takes longer on a host with many. It may take this part of the time.
const SHARE: u32 = 8;
/// Between attempts to take an interface that is there and cannot be used.
const RETRY: Duration = Duration::from_secs(5);
/// How long an interface that stays is given for what is on its way in rings when it is given up.
const GRACE: Duration = Duration::from_millis(50);
/// How long workers and programs may go on to send by old tables, with much to spare.
const FORGOTTEN: Duration = Duration::from_secs(10);
/// LAN interfaces at most: the programs can send through so many, beside the underlay.
const MAX_LANS: usize = sig_common::fast_path::MAX_OUTPUTS as usize - 1;

/// The LAN interfaces of a gateway.
pub(super) struct Lans {
    config: Config,
    netlink: Netlink,
    /// `None`: no XDP program may run, so that the kernel forwards all packets of the LAN.
    opener: Option<Opener>,
    has_fast_path: bool,
    /// Nothing is taken into service any more.
    has_ended: AtomicBool,
    /// There is something to try again.
    unfinished: Notify,
    state: tokio::sync::Mutex<State>,
    view: Mutex<View>,
    around: watch::Sender<Vec<u32>>,
}

#[derive(Default)]
struct State {
    /// Whether the last look met an error.
    has_failed: bool,
    /// Names, as they are configured.
    wanted: Vec<String>,
    in_service: Vec<Service>,
    /// By name, interfaces that are there and cannot be used.
    refused: BTreeMap<String, Refused>,
    /// The index that each name had last.
    indexes: BTreeMap<String, u32>,
    /// Names of those that are not there.
    missing: Vec<String>,
    /// Numbers that no interface has any more, the longest free first, and since when.
    released: VecDeque<(u16, Instant)>,
    /// Numbers that were taken in vain: no table has ever had them.
    unused: Vec<u16>,
    /// Numbers from here on have never been used.
    next_number: u16,
    partial_checksums: bool,
    /// How long it took to ask which interfaces there are.
    asking: Duration,
}

impl State {
    /// A number for an interface: tables with the one before must have gone, lest its packets leave by this one.
    fn take_number(&mut self, now: Instant) -> Option<u16> {
        if let Some(number) = self.unused.pop() {
            return Some(number);
        }
        if usize::from(self.next_number) < MAX_LANS {
            self.next_number += 1;
            return Some(self.next_number - 1);
        }
        let (_, since) = self.released.front()?;
        if now < *since + FORGOTTEN {
            return None;
        }
        self.released.pop_front().map(|(number, _)| number)
    }

    fn release_number(&mut self, number: u16, now: Instant) {
        self.released.push_back((number, now));
    }

    /// When to look again, if something is to be tried again.
    fn retry_at(&self, now: Instant) -> Option<Instant> {
        if self.has_failed {
            return Some(now + RETRY);
        }
        let refused = self.refused.values();
        refused.map(|refused| refused.since + RETRY).min()
    }

    /// The LAN interfaces that are there, also those that were renamed since.
    fn around<'a>(&mut self, links: &'a [Link], gone: &HashSet<u32>) -> Vec<&'a Link> {
        self.indexes.retain(|_, index| !gone.contains(index));
        let mut around = Vec::new();
        for name in &self.wanted {
            let last = self.indexes.get(name).copied();
            let named = links.iter().find(|link| link.name == *name);
            let link = named.or_else(|| links.iter().find(|link| Some(link.ifindex) == last));
            if let Some(link) = link {
                self.indexes.insert(name.clone(), link.ifindex);
                around.push(link);
            }
        }
        around
    }

    /// What is left to the kernel, and why.
    fn helped(&self, transmit: LanTransmit, has_programs: bool) -> Vec<String> {
        let generic = self.in_service.iter().filter_map(|service| {
            let may_send = transmit == LanTransmit::Auto && !service.facts.native;
            may_send.then(|| format!("{}: its XDP program is in generic mode", service.name))
        });
        let all = match (&*self.wanted, transmit) {
            ([], LanTransmit::Auto) => Some("everything: no interface in `[dataplane] lan`"),
            ([_, ..], LanTransmit::Auto) if !has_programs => {
                Some("everything, through its stack: BPF is refused")
            }
            _ => None,
        };
        let all = all.map(str::to_owned).into_iter();
        all.chain(generic).collect()
    }

    /// What is not in service, and why.
    fn left_out(&self) -> Vec<LeftOut> {
        let missing = self.missing.iter();
        let missing = missing.map(|name| (name, "there is no such interface".to_owned()));
        let refused = self.refused.iter();
        let refused = refused.map(|(name, refused)| (name, refused.why.clone()));
        let left_out = |(name, reason): (&String, String)| LeftOut {
            interface: name.clone(),
            reason,
        };
        missing.chain(refused).map(left_out).collect()
    }
}

/// An interface that is there and cannot be used.
struct Refused {
    why: String,
    /// As it was when that was found.
    link: Link,
    since: Instant,
}

impl Refused {
    /// Whether to try again, as the interface is now.
    fn is_due(&self, link: &Link, now: Instant) -> bool {
        // An attempt may itself reset the link.
        let known = Link {
            carrier: link.carrier,
            oper_state: link.oper_state.clone(),
            addresses: link.addresses.clone(),
            ..self.link.clone()
        };
        known != *link || now >= self.since + RETRY
    }
}

/// Why interfaces are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Occasion {
    Start,
    Reload,
    /// Something changed, or is tried again.
    Change,
}

/// An interface in service.
struct Service {
    /// As configured; it may have been renamed since.
    name: String,
    /// In the tables.
    number: u16,
    ifindex: u32,
    lease: Lease,
    facts: Arc<PortFacts>,
    attachment: Option<Attachment>,
    followed: Followed,
}

/// What the status tells.
#[derive(Clone, Default)]
pub(super) struct View {
    /// In the order of the configuration.
    pub(super) ports: Vec<Arc<PortFacts>>,
    /// By the indexes of these, their numbers in the tables.
    numbers: BTreeMap<u32, u16>,
    /// What is left to the kernel, and why.
    pub(super) helped: Vec<String>,
    pub(super) left_out: Vec<LeftOut>,
    /// What was counted at interfaces that have been given up.
    pub(super) past: Past,
}

impl View {
    /// The interfaces by their numbers in the tables.
    pub(super) fn numbered(&self) -> BTreeMap<u16, &PortFacts> {
        let numbered = |facts: &'_ Arc<PortFacts>| self.numbers.get(&facts.ifindex).copied();
        let ports = self.ports.iter();
        ports
            .filter_map(|facts| Some((numbered(facts)?, &**facts)))
            .collect()
    }
}

/// What was counted at sockets that are closed.
#[derive(Clone, Default)]
pub(super) struct Past {
    /// Packets received and sent, by worker.
    pub(super) workers: BTreeMap<u16, [u64; 2]>,
    pub(super) drops: RingDrops,
}

impl Past {
    fn add(&mut self, facts: &PortFacts) {
        for socket in &facts.sockets {
            let counters = socket.monitor.counters();
            let [received, sent] = self.workers.entry(socket.worker).or_default();
            *received += counters.rx_packets.get();
            *sent += counters.tx_packets.get();
            self.drops.add(&*socket.monitor);
        }
    }
}

/// What came of a change of the configuration.
#[derive(Default)]
pub(super) struct Outcome {
    /// What changed, a line each.
    pub(super) changes: Vec<String>,
    /// Why interfaces that are there are not in service.
    pub(super) errors: Vec<String>,
}

impl Lans {
    pub(super) fn new(
        config: Config,
        netlink: Netlink,
        opener: Option<Opener>,
        has_fast_path: bool,
        around: Vec<u32>,
    ) -> Self {
        Lans {
            config,
            netlink,
            opener,
            has_fast_path,
            has_ended: AtomicBool::new(false),
            unfinished: Notify::new(),
            state: tokio::sync::Mutex::default(),
            view: Mutex::default(),
            around: watch::Sender::new(around),
        }
    }

    /// What the status tells.
    pub(super) fn view(&self) -> View {
        self.lock_view().clone()
    }

    fn lock_view(&self) -> std::sync::MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Indexes of all LAN interfaces that are there, in service or not.
    pub(super) fn around(&self) -> watch::Receiver<Vec<u32>> {
        self.around.subscribe()
    }

    /// Takes the programs off the interfaces. They stay as they are otherwise until the gateway has gone.
    pub(super) async fn end(&self) {
        // Whoever has the lock stops soon.
        self.has_ended.store(true, Ordering::Relaxed);
        if let Some(opener) = &self.opener {
            opener.hurry();
        }
        let mut state = self.state.lock().await;
        for service in &mut state.in_service {
            service.attachment = None;
        }
    }

    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }
}

impl Shared {
    /// Takes the LAN interfaces of the configuration into service as far as they are there.
    ///
    /// # Errors
    ///
    /// One is there and up, and cannot be used.
    pub(super) async fn start_lans(&self) -> Result<(), Error> {
        let mut state = self.lans.state.lock().await;
        state.wanted.clone_from(&self.lans.config.dataplane.lan);
        let gone = &mut HashSet::new();
        let outcome = self.look_at_lans(&mut state, gone, Occasion::Start).await?;
        match outcome.errors.into_iter().next() {
            Some(error) => Err(Error::Interface(error)),
            None => Ok(()),
        }
    }

    /// Makes these the names of the LAN interfaces.
    ///
    /// # Errors
    ///
    /// The kernel does not tell which there are.
    pub(super) async fn set_lans(&self, names: &[String]) -> Result<Outcome, Error> {
        let mut state = self.lans.state.lock().await;
        let is_done = state.refused.is_empty() && !state.has_failed;
        if self.lans.has_ended() || state.wanted == names && is_done {
            return Ok(Outcome::default());
        }
        let before = std::mem::replace(&mut state.wanted, names.to_vec());
        let serves = |name: &String| state.in_service.iter().any(|service| service.name == *name);
        // Those in service are given up, and told then.
        let left = before
            .iter()
            .filter(|name| !names.contains(name) && !serves(name));
        let left: Vec<String> = left
            .map(|name| format!("LAN interface {name}: no longer in the configuration"))
            .collect();
        let gone = &mut HashSet::new();
        let looked = self.look_at_lans(&mut state, gone, Occasion::Reload).await;
        if state.retry_at(Instant::now()).is_some() {
            self.lans.unfinished.notify_one();
        }
        let mut outcome = looked?;
        outcome.changes.splice(..0, left);
        if self.lans.opener.is_none() {
            let is_new = |name: &&String| !before.contains(name) && !state.missing.contains(name);
            let new = names.iter().filter(is_new);
            let told = new.map(|name| format!("LAN interface {name}: left to the kernel"));
            outcome.changes.extend(told);
        }
        Ok(outcome)
    }

    /// Takes what comes and gives up what goes. Where nothing changes, nothing is done. `gone`: indexes of interfaces that were removed since
    /// the last look; others may have them now.
    async fn look_at_lans(
        &self,
        state: &mut State,
        gone: &mut HashSet<u32>,
        occasion: Occasion,
    ) -> Result<Outcome, Error> {
        if self.lans.has_ended() {
            return Ok(Outcome::default());
        }
        let start = Instant::now();
        let links = link::all(&self.lans.netlink).await;
        state.has_failed = links.is_err();
        let links = links?;
        state.asking = start.elapsed();
        // Before anything that takes its time: hosts must not pose as border routers.
        let around = state.around(&links, gone);
        self.close_to_frames(&around);
        let mut outcome = Outcome::default();
        let done = self
            .follow_links(state, &links, &std::mem::take(gone), occasion, &mut outcome)
            .await;
        // Whatever went wrong with one of them.
        self.tell_of_lans(state, &around);
        state.has_failed = done.is_err();
        done.map(|()| outcome)
    }

    /// Takes and gives up what follows from these links; the first error, after all have been looked at.
    async fn follow_links(
        &self,
        state: &mut State,
        links: &[Link],
        gone: &HashSet<u32>,
        occasion: Occasion,
        outcome: &mut Outcome,
    ) -> Result<(), Error> {
        let mut done = Ok(());
        let by_name = |name: &str| links.iter().find(|link| link.name == name);
        let has_index = |ifindex| {
            let mut links = links.iter();
            links.any(|link| link.ifindex == ifindex) && !gone.contains(&ifindex)
        };
        let is_there = |service: &Service| {
            let trunk = service.facts.trunk.as_ref();
            has_index(service.ifindex) && trunk.is_none_or(|trunk| has_index(trunk.link.ifindex))
        };
        let (stay, go) =
            std::mem::take(&mut state.in_service)
                .into_iter()
                .partition(|service: &Service| {
                    // Whoever has the configured name now is meant.
                    let is_meant =
                        by_name(&service.name).is_none_or(|link| link.ifindex == service.ifindex);
                    // Its present name may be that of another one in the configuration: then it is that one.
                    let mut wanted = state.wanted.iter();
                    let is_other = wanted.any(|name| {
                        let link = by_name(name).filter(|_| *name != service.name);
                        link.is_some_and(|link| link.ifindex == service.ifindex)
                    });
                    let is_wanted = state.wanted.contains(&service.name);
                    is_wanted && is_meant && !is_other && is_there(service)
                });
        state.in_service = stay;
        for service in go {
            let is_there = is_there(&service);
            let name = service.name.clone();
            if state.wanted.contains(&name) {
                tracing::warn!(
                    interface = name,
                    "the LAN interface was removed or replaced; the gateway takes it into service again once it is back"
                );
            } else {
                tracing::info!(interface = name, "LAN interface given up");
            }
            state.release_number(service.number, Instant::now());
            done = done.and(self.give_up(service, state, is_there).await);
            outcome
                .changes
                .push(format!("LAN interface {name}: given up"));
        }

        if !gone.is_empty() {
            tokio::task::block_in_place(|| lock(&self.trunks).forget(gone));
        }
        let was_missing = std::mem::take(&mut state.missing);
        let mut was_refused = std::mem::take(&mut state.refused);
        for name in state.wanted.clone() {
            if self.lans.has_ended() {
                break;
            }
            if state.in_service.iter().any(|service| service.name == name) {
                continue;
            }
            let Some(link) = by_name(&name) else {
                if !was_missing.contains(&name) {
                    tracing::warn!(
                        "there is no LAN interface {name} here (`ip -br link` lists those there are); the gateway takes it into service \
                         once it is there"
                    );
                    outcome
                        .changes
                        .push(format!("LAN interface {name}: not there yet"));
                }
                state.missing.push(name);
                continue;
            };
            let Some(opener) = &self.lans.opener else {
                continue;
            };
            let before = was_refused.remove(&name);
            let now = Instant::now();
            let before = match before {
                Some(refused) if occasion == Occasion::Change && !refused.is_due(link, now) => {
                    state.refused.insert(name, refused);
                    continue;
                }
                Some(refused) => Some(refused.why),
                None => None,
            };
            let is_first = before.is_none();
            let taken = self.take(state, opener, link, links, (occasion, is_first));
            match taken.await {
                Ok(()) => {
                    outcome
                        .changes
                        .push(format!("LAN interface {name}: in service"));
                    if occasion != Occasion::Start {
                        tracing::info!(interface = name, "LAN interface in service");
                    }
                }
                Err(error) => {
                    let error = error.to_string();
                    // At start, whoever waits for the gateway sees what is wrong; but one that is down may come.
                    let is_fatal = occasion == Occasion::Start && link.up;
                    if !is_fatal && before.as_ref() != Some(&error) {
                        tracing::warn!(
                            interface = name,
                            "cannot take the LAN interface into service, so its packets go through the kernel; retrying: {error}"
                        );
                    }
                    if link.up {
                        outcome.errors.push(error.clone());
                    } else if before.is_none() {
                        outcome
                            .changes
                            .push(format!("LAN interface {name}: it is down"));
                    }
                    let refused = Refused {
                        why: error,
                        link: link.clone(),
                        since: Instant::now(),
                    };
                    state.refused.insert(name, refused);
                }
            }
        }
        for service in &mut state.in_service {
            let mut links = links.iter();
            if let Some(link) = links.find(|link| link.ifindex == service.ifindex) {
                let followed = self.follow_port(&mut service.followed, link.into(), &service.facts);
                done = done.and(followed);
            }
        }
        let staying = self.ports.iter();
        // The index of the tunnel device's port is of another network namespace.
        let staying = staying.filter(|port| port.role == Role::Underlay);
        let staying = staying.map(|port| port.ifindex);
        let served = state.in_service.iter().map(|service| service.ifindex);
        let refused = state.refused.values().map(|refused| refused.link.ifindex);
        let users = staying.chain(served).chain(refused).collect();
        tokio::task::block_in_place(|| lock(&self.trunks).keep_for(&users));
        done
    }

    /// Takes an interface into service. `is_first`: it was not tried before.
    async fn take(
        &self,
        state: &mut State,
        opener: &Opener,
        link: &Link,
        links: &[Link],
        (occasion, is_first): (Occasion, bool),
    ) -> Result<(), Error> {
        let lans = &self.lans;
        let config = &lans.config;
        let mac = interfaces::mac(link)?;
        // One that is down is refused anyway, and its trunk left as it is.
        let trunk = match link.up {
            true => self.find_trunk(state, link, links, is_first)?,
            false => None,
        };
        let ethtool = Ethtool::open();
        let ethtool = ethtool.map_err(sig_linux::Error::doing("open an ethtool socket"))?;
        // At start, doubts have been told.
        let told = is_first && occasion != Occasion::Start;
        interfaces::check(&ethtool, config, link, links, told)?;
        let number = state.take_number(Instant::now()).ok_or_else(|| {
            Error::Interface(format!(
                "interface {}: the gateway serves at most {MAX_LANS} LAN interfaces",
                link.name
            ))
        })?;
        let mut taken = self.take_as(number, state, opener, (link, mac), trunk.clone(), is_first);
        if let (Err(error), Some(trunk)) = (&taken, trunk)
            && let Some(without) = self.without_trunk(&trunk, link, error, is_first)
        {
            taken = without.and_then(|()| {
                // Tags may be taken out again.
                interfaces::check(&ethtool, config, link, links, false)?;
                self.take_as(number, state, opener, (link, mac), None, is_first)
            });
        }
        let below = match taken {
            Ok(service) => {
                let trunk = service.facts.trunk.as_ref();
                let below = trunk.map(|trunk| trunk.link.clone());
                if let Some(parent) = &below {
                    tracing::info!(
                        interface = link.name,
                        parent = parent.name,
                        "XDP runs on the parent interface, in native mode"
                    );
                }
                state.in_service.push(service);
                below
            }
            Err(error) => {
                state.unused.push(number);
                return Err(error);
            }
        };
        if occasion != Occasion::Start {
            interfaces::compare_with_tunnel(link, config);
            bypassed::tell_of(
                &lans.netlink,
                [link, below.as_ref().unwrap_or(link)],
                self.choice.has_tun,
                config.dataplane.lan_transmit,
            )
            .await;
        }
        Ok(())
    }

    /// Where an interface is served, if not on itself. Whether what is not possible is `told`.
    ///
    /// # Errors
    ///
    /// A VLAN device cannot have native mode, which is wanted.
    fn find_trunk(
        &self,
        state: &State,
        link: &Link,
        links: &[Link],
        told: bool,
    ) -> Result<Option<Trunk>, Error> {
        let named = |name: &String| links.iter().find(|link| link.name == *name);
        let wanted: Vec<&Link> = state.wanted.iter().filter_map(named).collect();
        let mut trunks = lock(&self.trunks);
        match tokio::task::block_in_place(|| trunks.find(link, &wanted, links, self.max_mtu)) {
            Ok(trunk) => Ok(trunk),
            Err(why) if link.vlan.is_some() => trunks.tell_generic(link, &why, told).map(|()| None),
            Err(_) => Ok(None),
        }
    }

    /// Whether an interface that cannot be served on its trunk can do without: a VLAN device always can; the trunk itself, if its
    /// driver refused the program.
    ///
    /// # Errors
    ///
    /// Native mode is wanted.
    fn without_trunk(
        &self,
        trunk: &Trunk,
        link: &Link,
        error: &Error,
        told: bool,
    ) -> Option<Result<(), Error>> {
        let mut trunks = lock(&self.trunks);
        if trunk.tag.is_none() && !trunks.refused().contains_key(&trunk.link.ifindex) {
            return None;
        }
        trunks.leave(link.ifindex);
        Some(match trunk.tag {
            Some(_) => trunks.tell_generic(link, &error.to_string(), told),
            None => Ok(()),
        })
    }

    fn take_as(
        &self,
        number: u16,
        state: &mut State,
        opener: &Opener,
        (link, mac): (&Link, [u8; 6]),
        trunk: Option<Trunk>,
        is_patient: bool,
    ) -> Result<Service, Error> {
        let lans = &self.lans;
        let config = &lans.config;
        let name = &link.name;
        let dataplane = &config.dataplane;
        let spec = ports::spec(dataplane, Role::Lan, (name, Some(link)), trunk.as_ref());
        let queues = spec.queues;
        let below = trunk.as_ref().map_or(link, |trunk| &trunk.link);
        if is_virtual(below) && !state.partial_checksums {
            // Before anything is opened: an error leaves nothing behind.
            if let Some(programs) = lock(&self.programs).as_mut() {
                for other in state.in_service.iter().filter(|other| other.facts.fast) {
                    programs.set_fast(other.ifindex, true)?;
                }
            }
            state.partial_checksums = true;
        }
        let partial_checksums = state.partial_checksums;
        let (lease, (facts, attachment)) = tokio::task::block_in_place(|| {
            let OpenedPort {
                workers,
                steering,
                lease,
            } = opener.open(&spec, is_patient)?;
            let facts = PortFacts::of(&spec, link, trunk.clone());
            let ports = LanPorts::new(config, facts, (workers, &steering), lans.has_fast_path);
            let done =
                ports.and_then(|ports| self.put_in(number, ports, link, mac, partial_checksums));
            if done.is_err() {
                // What went wrong first is told.
                let _ = self.forget(number, (link.ifindex, trunk.as_ref()), queues);
                let _ = self.take_ports(number, partial_checksums);
            }
            match done {
                Ok(done) => Ok((lease, done)),
                Err(error) => {
                    opener.close(lease);
                    Err(error)
                }
            }
        })?;
        Ok(Service {
            name: name.clone(),
            number,
            ifindex: link.ifindex,
            lease,
            facts: Arc::new(facts),
            attachment,
            followed: Followed::new(link, self.max_mtu),
        })
    }

    /// Puts ports, program and maps of an interface in place.
    fn put_in(
        &self,
        number: u16,
        ports: LanPorts,
        link: &Link,
        mac: [u8; 6],
        partial_checksums: bool,
    ) -> Result<(PortFacts, Option<Attachment>), Error> {
        let LanPorts {
            workers,
            mut facts,
            sockets,
            steering,
        } = ports;
        let ifindex = link.ifindex;
        let no_programs = || Error::Interface("there are no XDP programs".into());
        let attachment = {
            let mut programs = lock(&self.programs);
            let programs = programs.as_mut().ok_or_else(no_programs)?;
            programs.set_lan_port(ifindex, mac, true, link.mtu.min(self.max_mtu))?;
            for (slot, socket) in &sockets {
                programs.set_socket(*slot, std::os::fd::AsFd::as_fd(socket))?;
            }
            if let Some(trunk) = &facts.trunk {
                lock(&self.trunks).join(programs, trunk, (Role::Lan, ifindex))?;
                facts.native = true;
                None
            } else {
                let mode = interfaces::xdp_mode(self.lans.config.dataplane.mode, Some(link));
                let attachment = programs.attach_xdp(Program::Lan, ifindex, mode)?;
                super::note_mode(&attachment, &mut facts);
                Some(attachment)
            }
        };
        // No packet comes to them yet.
        let change = {
            let mut engine = lock(&self.engine);
            if let Some(in_kernel) = engine.in_kernel() {
                in_kernel.set_lan(number, Some(facts.device()))?;
                facts.fast = facts.native && !facts.is_in_vlan();
            }
            engine.set_lan(number.into(), workers, partial_checksums)
        };
        let change = change.and_then(LanChange::wait);
        change.map_err(|source| Error::System {
            what: "give the workers a LAN interface",
            source,
        })?;
        let mut programs = lock(&self.programs);
        let programs = programs.as_mut().ok_or_else(no_programs)?;
        if facts.fast {
            programs.set_fast(ifindex, partial_checksums)?;
        }
        for steering in &steering {
            super::steer_queue(programs, steering, &facts)?;
        }
        Ok((facts, attachment))
    }

    /// Makes the programs send nothing to an interface any more, and leave what comes from there to the kernel.
    fn forget(
        &self,
        number: u16,
        (ifindex, trunk): (u32, Option<&Trunk>),
        queues: u32,
    ) -> Result<(), Error> {
        let kept = lock(&self.engine).keep_programs_from(number);
        let mut programs = lock(&self.programs);
        let removed = match programs.as_mut() {
            Some(programs) => {
                let left = match trunk {
                    Some(trunk) => trunk.serve(programs, (Role::Lan, ifindex), false),
                    None => Ok(()),
                };
                left.and(programs.remove_lan_port(ifindex, queues))
            }
            None => Ok(()),
        };
        kept.and(removed.map_err(Error::from))
    }

    /// Takes the ports on an interface from the workers, and drops them.
    ///
    /// # Errors
    ///
    /// A worker has ended; it may still have some.
    fn take_ports(&self, number: u16, partial_checksums: bool) -> Result<(), Error> {
        let engine = lock(&self.engine);
        let change = engine.set_lan(number.into(), Vec::new(), partial_checksums);
        drop(engine);
        let change = change.and_then(LanChange::wait);
        // The sockets are closed with them.
        change.map(drop).map_err(|source| Error::System {
            what: "take a LAN interface from the workers",
            source,
        })
    }

    /// Gives an interface up, of which is known whether it is still there.
    async fn give_up(&self, service: Service, state: &State, is_there: bool) -> Result<(), Error> {
        self.transmit_through(&state.in_service);
        let Service {
            number,
            ifindex,
            lease,
            facts,
            attachment,
            ..
        } = service;
        let queues = facts.queues;
        // The program stays for now: without one, some drivers drop what others redirect to them.
        let forgotten = self.forget(number, (ifindex, facts.trunk.as_ref()), queues);
        if is_there {
            tokio::time::sleep(GRACE).await;
        }
        {
            let mut view = self.lans.lock_view();
            view.past.add(&facts);
            view.ports.retain(|port| !Arc::ptr_eq(port, &facts));
        }
        let taken = tokio::task::block_in_place(|| {
            let taken = self.take_ports(number, state.partial_checksums);
            drop(attachment);
            // Its sockets are open as long as somebody looks at it.
            drop(facts);
            if let Some(opener) = &self.lans.opener {
                opener.close(lease);
            }
            taken
        });
        forgotten.and(taken)
    }

    /// Lets workers send through these interfaces, as far as they may.
    fn transmit_through(&self, in_service: &[Service]) {
        let Some(hops) = &self.lan_hops else {
            return;
        };
        let native = in_service.iter().filter(|service| service.facts.native);
        let ports = native.map(|service| LanPort {
            number: service.number,
            ifindex: service.ifindex,
            name: service.facts.interface.clone(),
        });
        hops.set_ports(ports.collect());
    }

    /// Refuses frames of remotes that come in by these interfaces, as far as the data address is on another one.
    fn close_to_frames(&self, around: &[&Link]) {
        let data_ip = self.lans.config.gateway.data_addr.ip();
        let without_data = around.iter().filter(|link| !link.has_address(data_ip));
        self.sources.close_to(without_data.map(|link| link.ifindex));
    }

    /// Tells whoever follows what there is now.
    fn tell_of_lans(&self, state: &State, around: &[&Link]) {
        let lans = &self.lans;
        self.transmit_through(&state.in_service);
        let around: Vec<u32> = around.iter().map(|link| link.ifindex).collect();
        lans.around.send_if_modified(|current| {
            let changed = *current != around;
            *current = around;
            changed
        });
        let in_order = state.wanted.iter().filter_map(|name| {
            let mut services = state.in_service.iter();
            services.find(|service| service.name == *name)
        });
        let mut view = lans.lock_view();
        view.ports = in_order.map(|service| service.facts.clone()).collect();
        let services = state.in_service.iter();
        view.numbers = services
            .map(|service| (service.ifindex, service.number))
            .collect();
        view.left_out = state.left_out();
        view.helped = state.helped(lans.config.dataplane.lan_transmit, lans.opener.is_some());
    }

    /// Follows the kernel's interfaces.
    pub(super) async fn follow_lans(self: Arc<Self>, mut changes: Changes) {
        // What changed since the start has perhaps not been seen.
        let mut look_at = Some(Instant::now());
        let mut not_before = Instant::now();
        let mut gone = HashSet::new();
        loop {
            let due = look_at.unwrap_or_else(Instant::now);
            tokio::select! {
                change = changes.next() => {
                    if let Change::LinkRemoved { ifindex } = change {
                        gone.insert(ifindex);
                    }
                    let matters = matches!(
                        change,
                        Change::Link { .. } | Change::LinkRemoved { .. } | Change::Address { .. } | Change::Resync
                    );
                    if matters {
                        let soon = not_before.max(Instant::now() + SETTLE);
                        look_at = Some(look_at.map_or(soon, |at| at.min(soon)));
                    }
                }
                () = self.lans.unfinished.notified() => {
                    look_at.get_or_insert_with(|| Instant::now() + RETRY);
                }
                () = sleep_until(due), if look_at.is_some() => {
                    let mut state = self.lans.state.lock().await;
                    let looked = self.look_at_lans(&mut state, &mut gone, Occasion::Change).await;
                    // However much is announced.
                    not_before = Instant::now() + state.asking * SHARE;
                    look_at = state.retry_at(Instant::now()).map(|at| at.max(not_before));
                    drop(state);
                    if self.lans.has_ended() {
                        look_at = None;
                    }
                    if let Err(error) = looked {
                        tracing::warn!("cannot follow the LAN interfaces, retrying: {error}");
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_used_again_when_its_tables_are_forgotten() {
        let mut state = State::default();
        let start = Instant::now();
        let numbers: Vec<u16> = std::iter::from_fn(|| state.take_number(start)).collect();
        assert_eq!(numbers.len(), MAX_LANS);
        state.release_number(7, start);
        state.release_number(3, start + FORGOTTEN / 2);
        assert_eq!(state.take_number(start + FORGOTTEN / 2), None);
        assert_eq!(state.take_number(start + FORGOTTEN), Some(7));
        assert_eq!(state.take_number(start + FORGOTTEN), None);
        state.unused.push(5);
        assert_eq!(state.take_number(start), Some(5), "no table has had it");
    }

    #[test]
    fn what_was_refused_is_tried_again_when_it_changed_or_after_a_while() {
        let link = Link {
            name: "lan".into(),
            ifindex: 7,
            ..Link::default()
        };
        let since = Instant::now();
        let refused = Refused {
            why: "it is down".into(),
            link: link.clone(),
            since,
        };
        assert!(!refused.is_due(&link, since + RETRY / 2));
        assert!(refused.is_due(&link, since + RETRY));
        let reset = Link {
            carrier: true,
            ..link.clone()
        };
        assert!(!refused.is_due(&reset, since));
        let up = Link { up: true, ..link };
        assert!(refused.is_due(&up, since));

        let mut state = State::default();
        assert_eq!(state.retry_at(since), None);
        state.refused.insert("lan".into(), refused);
        assert_eq!(state.retry_at(since + RETRY), Some(since + RETRY));
        state.has_failed = true;
        let again = Some(since + 3 * RETRY);
        assert_eq!(
            state.retry_at(since + 2 * RETRY),
            again,
            "it is overdue, and nobody has looked at it"
        );
    }
}
