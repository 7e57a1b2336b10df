//! LAN interfaces in service: they come and go while the gateway runs, without touching the others.
//!
//! An interface is looked up by its configured name whenever the kernel announces a change of links. One that is there gets program, sockets
//! and a number of its own; one that is removed, replaced, or no longer configured gives them back.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use sig_core::{engine::LanChange, port::Role, status::LeftOut};
use sig_linux::{
    af_xdp::{Lease, Opener},
    bpf::{Attachment, Program},
    ethtool::Ethtool,
    lan::LanPort,
    link::{self, Link},
    netlink::Netlink,
    watch::{Change, Changes},
};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::{
    Error, Shared, bypassed,
    interfaces::{self, Followed, is_virtual},
    lock,
    ports::{self, LanPorts, PortFacts},
    status::RingDrops,
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
    state: tokio::sync::Mutex<State>,
    view: Mutex<View>,
    around: watch::Sender<Vec<u32>>,
}

#[derive(Default)]
struct State {
    has_ended: bool,
    /// Names, as they are configured.
    wanted: Vec<String>,
    in_service: Vec<Service>,
    /// Names of interfaces that are there and cannot be used, and why.
    refused: BTreeMap<String, String>,
    /// Names of those that are not there.
    missing: Vec<String>,
    /// Numbers that no interface has any more, the longest free first, and since when.
    released: VecDeque<(u16, Instant)>,
    /// Numbers from here on have never been used.
    next_number: u16,
    partial_checksums: bool,
    /// How long it took to ask which interfaces there are.
    asking: Duration,
}

impl State {
    /// A number for an interface: tables with the one before must have gone, lest its packets leave by this one.
    fn take_number(&mut self, now: Instant) -> Option<u16> {
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
        let refused = refused.map(|(name, why)| (name, why.clone()));
        let left_out = |(name, reason): (&String, String)| LeftOut {
            interface: name.clone(),
            reason,
        };
        missing.chain(refused).map(left_out).collect()
    }
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
    /// What is left to the kernel, and why.
    pub(super) helped: Vec<String>,
    pub(super) left_out: Vec<LeftOut>,
    /// What was counted at interfaces that have been given up.
    pub(super) past: Past,
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
        let mut state = self.state.lock().await;
        state.has_ended = true;
        for service in &mut state.in_service {
            service.attachment = None;
        }
    }
}

impl Shared {
    /// Takes the LAN interfaces of the configuration into service as far as they are there.
    ///
    /// # Errors
    ///
    /// One is there that cannot be used.
    pub(super) async fn start_lans(&self) -> Result<(), Error> {
        let mut state = self.lans.state.lock().await;
        state.wanted.clone_from(&self.lans.config.dataplane.lan);
        let outcome = self.look_at_lans(&mut state, true).await?;
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
        if state.has_ended || state.wanted == names {
            return Ok(Outcome::default());
        }
        state.wanted = names.to_vec();
        self.look_at_lans(&mut state, false).await
    }

    /// Takes what comes and gives up what goes. Where nothing changes, nothing is done.
    async fn look_at_lans(&self, state: &mut State, at_start: bool) -> Result<Outcome, Error> {
        let mut outcome = Outcome::default();
        if state.has_ended {
            return Ok(outcome);
        }
        let start = Instant::now();
        let links = link::all(&self.lans.netlink).await?;
        state.asking = start.elapsed();
        let by_name = |name: &str| links.iter().find(|link| link.name == name);

        let (stay, go) =
            std::mem::take(&mut state.in_service)
                .into_iter()
                .partition(|service: &Service| {
                    // Whoever has the configured name now is meant.
                    let is_meant =
                        by_name(&service.name).is_none_or(|link| link.ifindex == service.ifindex);
                    let is_there = links.iter().any(|link| link.ifindex == service.ifindex);
                    state.wanted.contains(&service.name) && is_meant && is_there
                });
        state.in_service = stay;
        for service in go {
            let is_there = links.iter().any(|link| link.ifindex == service.ifindex);
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
            self.give_up(service, state, is_there).await?;
            outcome
                .changes
                .push(format!("LAN interface {name}: given up"));
        }

        for service in &mut state.in_service {
            let mut links = links.iter();
            if let Some(link) = links.find(|link| link.ifindex == service.ifindex) {
                self.follow_port(&mut service.followed, link.into(), &service.facts)?;
            }
        }

        let was_missing = std::mem::take(&mut state.missing);
        let was_refused = std::mem::take(&mut state.refused);
        for name in state.wanted.clone() {
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
            match self.take(state, opener, link, &links, at_start).await {
                Ok(()) => {
                    outcome
                        .changes
                        .push(format!("LAN interface {name}: in service"));
                    if !at_start {
                        tracing::info!(interface = name, "LAN interface in service");
                    }
                }
                Err(error) => {
                    let error = error.to_string();
                    if !at_start && was_refused.get(&name) != Some(&error) {
                        tracing::warn!(
                            interface = name,
                            "cannot take the LAN interface into service, so its packets go through the kernel; retrying: {error}"
                        );
                    }
                    outcome.errors.push(error.clone());
                    state.refused.insert(name, error);
                }
            }
        }
        self.tell_of_lans(state, &links);
        Ok(outcome)
    }

    /// Takes an interface into service.
    async fn take(
        &self,
        state: &mut State,
        opener: &Opener,
        link: &Link,
        links: &[Link],
        at_start: bool,
    ) -> Result<(), Error> {
        let lans = &self.lans;
        let config = &lans.config;
        let mac = interfaces::mac(link)?;
        // At start, all are checked together.
        if !at_start {
            let ethtool = Ethtool::open();
            let ethtool = ethtool.map_err(sig_linux::Error::doing("open an ethtool socket"))?;
            interfaces::check(&ethtool, config, link, links)?;
            interfaces::compare_with_tunnel(link, config);
            bypassed::tell_of(
                &lans.netlink,
                link,
                self.choice.has_tun,
                config.dataplane.lan_transmit,
            )
            .await;
        }
        let number = state.take_number(Instant::now()).ok_or_else(|| {
            Error::Interface(format!(
                "interface {}: the gateway serves at most {MAX_LANS} LAN interfaces",
                link.name
            ))
        })?;
        match self.take_as(number, state, opener, link, mac) {
            Ok(service) => state.in_service.push(service),
            Err(error) => {
                state.release_number(number, Instant::now());
                return Err(error);
            }
        }
        Ok(())
    }

    fn take_as(
        &self,
        number: u16,
        state: &mut State,
        opener: &Opener,
        link: &Link,
        mac: [u8; 6],
    ) -> Result<Service, Error> {
        let lans = &self.lans;
        let config = &lans.config;
        let (name, queues) = (&link.name, link.rx_queues);
        let spec = ports::spec(&config.dataplane, Role::Lan, name, queues);
        let partial_checksums = state.partial_checksums || is_virtual(link);
        let (lease, done) = tokio::task::block_in_place(|| {
            let opened = opener.open(&spec)?;
            let lease = opened.lease.clone();
            let ports = LanPorts::new(config, link, opened, lans.has_fast_path);
            let done =
                ports.and_then(|ports| self.put_in(number, ports, link, mac, partial_checksums));
            if done.is_err() {
                // What went wrong first is told.
                let _ = self.take_out(number, link.ifindex, queues, state.partial_checksums);
                opener.close(&lease);
            }
            Ok::<_, Error>((lease, done))
        })?;
        let (facts, attachment) = done?;
        if partial_checksums && !state.partial_checksums {
            state.partial_checksums = true;
            if let Some(programs) = lock(&self.programs).as_mut() {
                for other in state.in_service.iter().filter(|other| other.facts.fast) {
                    programs.set_fast(other.ifindex, true)?;
                }
            }
        }
        Ok(Service {
            name: name.clone(),
            number,
            ifindex: link.ifindex,
            lease,
            facts: Arc::new(facts),
            attachment: Some(attachment),
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
    ) -> Result<(PortFacts, Attachment), Error> {
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
            let mode = interfaces::xdp_mode(self.lans.config.dataplane.mode, Some(link));
            let attachment = programs.attach_xdp(Program::Lan, ifindex, mode)?;
            super::note_mode(&attachment, &mut facts);
            attachment
        };
        // No packet comes to them yet.
        let change = {
            let mut engine = lock(&self.engine);
            if let Some(in_kernel) = engine.in_kernel() {
                in_kernel.set_lan(number, Some(facts.device()))?;
                facts.fast = facts.native;
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

    /// Takes ports and maps of an interface out again. Its program must have left.
    fn take_out(
        &self,
        number: u16,
        ifindex: u32,
        queues: u32,
        partial_checksums: bool,
    ) -> Result<(), Error> {
        if let Some(programs) = lock(&self.programs).as_mut() {
            programs.remove_lan_port(ifindex, queues)?;
        }
        let change = {
            let mut engine = lock(&self.engine);
            if let Some(in_kernel) = engine.in_kernel() {
                in_kernel.set_lan(number, None)?;
            }
            engine.set_lan(number.into(), Vec::new(), partial_checksums)
        };
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
        drop(attachment);
        if is_there {
            tokio::time::sleep(GRACE).await;
        }
        {
            let mut view = self.lans.lock_view();
            view.past.add(&facts);
            view.ports.retain(|port| !Arc::ptr_eq(port, &facts));
        }
        let queues = facts.queues;
        tokio::task::block_in_place(|| {
            let done = self.take_out(number, ifindex, queues, state.partial_checksums);
            // Its sockets are open as long as somebody looks at it.
            drop(facts);
            if let Some(opener) = &self.lans.opener {
                opener.close(&lease);
            }
            done
        })
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

    /// Tells whoever follows what there is now.
    fn tell_of_lans(&self, state: &State, links: &[Link]) {
        let lans = &self.lans;
        self.transmit_through(&state.in_service);
        let named = |name: &String| links.iter().find(|link| link.name == *name);
        let around: Vec<&Link> = state.wanted.iter().filter_map(named).collect();
        let data_ip = lans.config.gateway.data_addr.ip();
        let without_data = around.iter().filter(|link| !link.has_address(data_ip));
        self.sources.close_to(without_data.map(|link| link.ifindex));
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
        view.left_out = state.left_out();
        view.helped = state.helped(lans.config.dataplane.lan_transmit, lans.opener.is_some());
    }

    /// Follows the kernel's interfaces.
    pub(super) async fn follow_lans(self: Arc<Self>, mut changes: Changes) {
        // What changed since the start has perhaps not been seen.
        let mut look_at = Some(Instant::now());
        let mut not_before = Instant::now();
        loop {
            let due = look_at.unwrap_or_else(Instant::now);
            tokio::select! {
                change = changes.next() => {
                    let matters = matches!(
                        change,
                        Change::Link { .. } | Change::LinkRemoved { .. } | Change::Address { .. } | Change::Resync
                    );
                    if matters {
                        let soon = not_before.max(Instant::now() + SETTLE);
                        look_at = Some(look_at.map_or(soon, |at| at.min(soon)));
                    }
                }
                () = sleep_until(due), if look_at.is_some() => {
                    let mut state = self.lans.state.lock().await;
                    let looked = self.look_at_lans(&mut state, false).await;
                    // However much is announced.
                    not_before = Instant::now() + state.asking * SHARE;
                    let again = looked.is_err() || !state.refused.is_empty();
                    look_at = again.then(|| Instant::now() + RETRY);
                    drop(state);
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
    }
}
