//! The fast path of a running router: programs on devices, and maps that follow links, neighbours and configuration.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use arc_swap::ArcSwapOption;
use futures_util::{FutureExt as _, future::select_all};
use sig_common::router::{
    Reason,
    maps::{Interface, Traffic},
};
use tokio::sync::{Notify, watch};

use super::{
    Arrival, Arrivals, Port, Slots, Spread, Underlay, UnderlayRoute,
    devices::{Devices, Wishes},
    tables,
};
use crate::{
    AsModel,
    config::{Xdp, XdpMode},
    slow::IsUp,
};
use sig_core::task::Task;
use sig_linux::{
    Error,
    bpf::{RouterOptions, RouterPrograms, SlotReasons, SlotTraffic},
    link::{self, Link},
    neighbours::{self, NextHops, Resolution, Snapshot, Timing},
    netlink::Netlink,
    sysctl,
    watch::{Change, Changes, Watch},
};

/// Announcements of the kernel come in series.
const SETTLE: Duration = Duration::from_millis(50);

/// Between two looks at the clock and at what devices can do.
const TICK: Duration = Duration::from_secs(1);

/// A clock that jumps further than this is worth a word.
const STEP: u64 = 1_000_000_000;

/// The loopback interface.
const LOOPBACK: &str = "lo";

/// What the slow path wants to know of this host; `None`: there is no program anywhere.
pub type HostView = Arc<ArcSwapOption<Host>>;

/// See [`HostView`].
pub struct Host {
    /// Addresses of this host, from which packets come over the loopback interface, where there is no program.
    pub addresses: HashSet<IpAddr>,
    /// Where packets to our addresses may come in.
    pub arrivals: Arrivals,
}

/// What the fast path is told.
#[derive(Clone)]
pub struct FastConfig {
    /// The AS.
    pub model: Arc<AsModel>,
    /// Mode, CPUs and limits.
    pub xdp: Xdp,
}

/// A running fast path. The programs leave their devices when it is dropped, or when the process ends in any way.
pub struct FastPath {
    shared: Arc<Shared>,
    hops: NextHops,
    watch: Watch,
    tasks: Vec<Task>,
}

struct Shared {
    netlink: Netlink,
    mode: XdpMode,
    host: HostView,
    is_up: IsUp,
    /// There are other neighbours and siblings.
    look: Notify,
    state: Mutex<State>,
}

struct State {
    programs: RouterPrograms,
    model: Arc<AsModel>,
    xdp: Xdp,
    spread: Spread,
    slots: Slots,
    devices: Devices,
    hops: Snapshot,
    /// The devices that lead to neighbours and siblings, also if these are silent, or have no link-layer address.
    ways: HashMap<IpAddr, u32>,
    clock: u64,
    /// Whether the kernel lets programs use its routes, as far as it was looked at.
    forwards: Option<bool>,
    /// Interfaces of which it was said that senders leave checksums open.
    open_checksums: HashSet<u16>,
    /// By device, packets that it could not send: when it was first seen, and now.
    not_sent: HashMap<u32, (u64, u64)>,
}

/// What is known of a device.
#[derive(Clone, Debug)]
pub struct DeviceStatus {
    /// Its name.
    pub name: String,
    /// Its index.
    pub ifindex: u32,
    /// `native` or `generic`.
    pub mode: String,
    /// Whether the program sends packets through it.
    pub transmits: bool,
    /// Packets that it could not send since the start of the router, as far as its driver counts them.
    pub not_sent: u64,
}

impl FastPath {
    /// Loads and attaches the programs. `is_up` tells which interfaces packets may leave by, and `changes` wakes when
    /// that changes. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// In one sentence, why there can be no fast path.
    pub async fn start(
        config: FastConfig,
        mode: XdpMode,
        is_up: IsUp,
        changes: Option<watch::Receiver<()>>,
        host: HostView,
    ) -> Result<Self, String> {
        let text = |error: Error| error.to_string();
        let netlink = Netlink::open().map_err(|error| format!("cannot open netlink: {error}"))?;
        let watch = Watch::open().map_err(text)?;
        // Before the first look, so that nothing is missed.
        let announced = watch.subscribe();
        let mut programs = RouterPrograms::load(RouterOptions::default()).map_err(text)?;
        programs.set_cpus(&config.xdp.cpus).map_err(text)?;
        let mut slots = Slots::default();
        slots.update(&config.model);
        let mut state = State {
            programs,
            spread: Spread {
                cpus: u16::try_from(config.xdp.cpus.len()).unwrap_or(u16::MAX),
                seed: rand::random(),
            },
            model: config.model,
            xdp: config.xdp,
            slots,
            devices: Devices::default(),
            hops: Snapshot::default(),
            ways: HashMap::new(),
            clock: 0,
            forwards: None,
            open_checksums: HashSet::new(),
            not_sent: HashMap::new(),
        };
        state.limit().map_err(text)?;
        state.tick().map_err(text)?;
        let hops = NextHops::anywhere(&netlink, &watch, Timing::default());
        hops.set_targets(targets(&state.model));
        let shared = Arc::new(Shared {
            netlink,
            mode,
            host,
            is_up,
            look: Notify::new(),
            state: Mutex::new(state),
        });
        shared.look_at_links().await?;
        {
            let mut state = shared.state();
            state.look_at_forwarding();
            advise(&state);
        }
        let mut tasks = vec![
            Task::spawn("the link monitor", shared.clone().follow_links(announced)),
            Task::spawn(
                "the next-hop monitor",
                shared.clone().follow_hops(hops.subscribe()),
            ),
            Task::spawn("the clock of the fast path", shared.clone().follow_clock()),
        ];
        if let Some(changes) = changes {
            tasks.push(Task::spawn(
                "the liveness monitor",
                shared.clone().follow_liveness(changes),
            ));
        }
        Ok(Self {
            shared,
            hops,
            watch,
            tasks,
        })
    }

    /// Waits until the fast path does not follow the host any more, and says why.
    pub fn failed(&self) -> impl Future<Output = String> + Send + use<> {
        let parts = [
            self.shared.netlink.ended().boxed(),
            self.watch.ended().boxed(),
            self.hops.ended().boxed(),
        ];
        let tasks = self.tasks.iter().map(|task| task.ended().boxed());
        select_all(parts.into_iter().chain(tasks)).map(|(reason, ..)| reason)
    }

    /// Puts another configuration into force, all of it at once. Mode and CPUs stay.
    ///
    /// # Errors
    /// It does not fit the maps, or a device refuses the program; the one before stays in force.
    pub fn reload(&self, config: FastConfig) -> Result<(), Error> {
        let mut state = self.shared.state();
        let former = (state.model.clone(), state.slots.clone(), state.xdp.clone());
        state.xdp = config.xdp;
        // The limits first: the model comes into force with one write, after which nothing can fail.
        let result = state.limit().and_then(|()| {
            state.slots.update(&config.model);
            state.model = config.model;
            let links = state.devices.links();
            let followed = self.shared.follow(&mut state, links);
            followed.map_err(Error::Refused)?;
            state.write(&*self.shared.is_up)
        });
        if let Err(error) = result {
            (state.model, state.slots, state.xdp) = former;
            let links = state.devices.links();
            if let Err(error) = self.shared.follow(&mut state, links) {
                tracing::error!("{error}");
            }
            // What could not be written may fail once more; the error tells already.
            let _ = state.limit();
            return Err(error);
        }
        advise(&state);
        self.hops.set_targets(targets(&state.model));
        self.shared.look.notify_one();
        Ok(())
    }

    /// The devices with the program.
    #[must_use]
    pub fn devices(&self) -> Vec<DeviceStatus> {
        let state = self.shared.state();
        let devices = state
            .devices
            .attached()
            .map(|(ifindex, device)| DeviceStatus {
                name: device.name.clone(),
                ifindex,
                mode: device.attachment.mode().to_string(),
                transmits: state.devices.transmits(ifindex),
                not_sent: state
                    .not_sent
                    .get(&ifindex)
                    .map_or(0, |(first, now)| now.saturating_sub(*first)),
            });
        devices.collect()
    }

    /// Packets that were lost on their way to the CPUs that they are spread over, and those still under way.
    ///
    /// # Errors
    /// The kernel does not let us read.
    pub fn not_taken(&self) -> Result<u64, Error> {
        self.shared.state().programs.not_taken()
    }

    /// How the other end of a link, or a sibling, is reached: its MAC address or that of the router before it.
    ///
    /// # Errors
    /// In one sentence, why it is not.
    pub fn next_hop(&self, remote: IpAddr) -> Result<[u8; 6], String> {
        match self.shared.state().hops.get(&remote) {
            Some(Resolution::Resolved(hop)) => Ok(hop.destination_mac),
            Some(Resolution::Unresolved(reason)) => Err(reason.to_string()),
            None => Err("not resolved yet".to_owned()),
        }
    }

    /// What was counted, by SCION interface; 0: the inside.
    ///
    /// # Errors
    /// The kernel does not let us read.
    pub fn counted(&self) -> Result<BTreeMap<u16, (SlotTraffic, SlotReasons)>, Error> {
        let state = self.shared.state();
        let places = state.slots.iter().chain([(0, 0)]);
        places
            .map(|(interface, slot)| {
                let counted = (state.programs.traffic(slot)?, state.programs.reasons(slot)?);
                Ok((interface, counted))
            })
            .collect()
    }
}

/// The addresses that packets leave to without a look at the routing table.
fn targets(model: &AsModel) -> Vec<IpAddr> {
    let links = model.links().map(|(_, _, _, remote)| remote.ip());
    let siblings = model.siblings.iter().map(|sibling| sibling.internal.ip());
    let mut targets: Vec<IpAddr> = links.chain(siblings).collect();
    targets.sort();
    targets.dedup();
    targets
}

/// Tells what an operator should look at.
fn advise(state: &State) {
    let (model, xdp) = (&state.model, &state.xdp);
    let named = [
        ("devices", &xdp.devices),
        ("exclude", &xdp.exclude),
        ("internal_devices", &xdp.internal_devices),
        ("link_devices", &xdp.link_devices),
    ];
    for (key, names) in named {
        for name in names {
            if !state.devices.exists(name) {
                tracing::warn!("[xdp] {key}: device {name} does not exist");
            }
        }
    }
    let Some(inside) = state.devices.names_of(model.internal) else {
        return;
    };
    if inside.is_empty() {
        tracing::warn!(
            "no internal device is configured, so packets to the internal address {} are dropped; list the devices of the AS in \
             [xdp] internal_devices",
            model.internal
        );
    }
    if state.devices.arrivals().are_guessed() && !inside.is_empty() {
        let inside: Vec<&str> = inside.iter().map(String::as_str).collect();
        tracing::warn!(
            "no device has the internal address {}; any sender that reaches it through {} is treated as a host of \
             the AS; list the devices of the AS in [xdp] internal_devices",
            model.internal,
            inside.join(", ")
        );
    }
    for (number, _, local, _) in model.links() {
        let shared = state.devices.names_of(local).unwrap_or_default();
        if let Some(name) = shared.intersection(&inside).next() {
            tracing::warn!(
                "link {number} and the internal network of the AS share {name}: anyone on that network can pose as \
                 a host of the AS; give the link its own device or VLAN"
            );
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Devices come and go, and so do addresses and routes.
    async fn follow_links(self: Arc<Self>, mut changes: Changes) {
        loop {
            tokio::select! {
                change = changes.next() => if matches!(change, Change::Neighbour { .. }) {
                    continue;
                },
                () = self.look.notified() => {}
            }
            // One look for all that is announced meanwhile.
            let settled = tokio::time::sleep(SETTLE);
            tokio::pin!(settled);
            loop {
                tokio::select! {
                    biased;
                    () = &mut settled => break,
                    _ = changes.next() => {}
                }
            }
            if let Err(error) = self.look_at_links().await {
                tracing::error!("the fast path cannot track the interfaces: {error}");
            }
        }
    }

    async fn look_at_links(&self) -> Result<(), String> {
        let targets = targets(&self.state().model);
        let mut ways = HashMap::new();
        for target in targets {
            let route = neighbours::lookup(&self.netlink, None, target).await;
            ways.insert(target, route.ok().and_then(|route| route.ifindex));
        }
        let links = link::all(&self.netlink).await.map_err(|e| e.to_string())?;
        let mut state = self.state();
        state.ways.retain(|target, _| ways.contains_key(target));
        // Where none leads there now, it will be the one before that does again.
        for (target, route) in ways {
            if let Some(ifindex) = route {
                state.ways.insert(target, ifindex);
            }
        }
        let followed = self.follow(&mut state, links);
        let written = state.write(&*self.is_up).map_err(|e| e.to_string());
        followed.and(written)
    }

    /// Brings the attached devices to those that are needed now.
    fn follow(&self, state: &mut State, links: Vec<Link>) -> Result<(), String> {
        let State {
            devices,
            programs,
            model,
            xdp,
            ways,
            ..
        } = state;
        let wishes = Wishes {
            model,
            xdp,
            mode: self.mode,
            way_to: &|ip| ways.get(&ip).copied(),
        };
        let followed = devices.follow(programs, links, &wishes);
        self.host.store(Some(Arc::new(Host {
            addresses: devices.addresses().collect(),
            arrivals: devices.arrivals().clone(),
        })));
        followed
    }

    async fn follow_hops(self: Arc<Self>, mut hops: watch::Receiver<Snapshot>) {
        loop {
            let snapshot = hops.borrow_and_update().clone();
            self.reach(snapshot);
            if hops.changed().await.is_err() {
                return;
            }
        }
    }

    fn reach(&self, hops: Snapshot) {
        let mut state = self.state();
        state.hops = hops;
        self.write(&mut state);
    }

    async fn follow_liveness(self: Arc<Self>, mut changes: watch::Receiver<()>) {
        while changes.changed().await.is_ok() {
            self.write(&mut self.state());
        }
    }

    async fn follow_clock(self: Arc<Self>) {
        loop {
            match link::not_sent(&self.netlink).await {
                Ok(counts) => {
                    let mut state = self.state();
                    let known = &mut state.not_sent;
                    known.retain(|ifindex, _| counts.contains_key(ifindex));
                    for (ifindex, count) in counts {
                        known.entry(ifindex).or_insert((count, count)).1 = count;
                    }
                }
                Err(error) => tracing::debug!("{error}"),
            }
            tokio::time::sleep(TICK).await;
            self.tick();
        }
    }

    fn tick(&self) {
        let mut state = self.state();
        if let Err(error) = state.tick() {
            tracing::error!("{error}");
        }
        state.look_at_forwarding();
        if let Err(error) = state.look_at_checksums() {
            tracing::error!("{error}");
        }
        let State {
            devices, programs, ..
        } = &mut *state;
        devices.look(programs);
    }

    fn write(&self, state: &mut State) {
        if let Err(error) = state.write(&*self.is_up) {
            tracing::error!("the fast path cannot be updated: {error}");
        }
    }
}

impl State {
    /// Brings the maps to what is known now. What changes by itself is changed in place, everything else by another
    /// generation.
    fn write(&mut self, is_up: &dyn Fn(u16) -> bool) -> Result<(), Error> {
        let view = View { state: self, is_up };
        let wanted = tables(&self.model, &view, &self.slots, self.spread);
        let same = self.programs.tables().is_some_and(|present| {
            present.config == wanted.config
                && present.endpoints == wanted.endpoints
                && present.ports == wanted.ports
                && present.siblings == wanted.siblings
                && present.interfaces.keys().eq(wanted.interfaces.keys())
        });
        let present = self.programs.tables().map(|tables| &tables.interfaces);
        let changed: Vec<(u16, Interface)> = wanted
            .interfaces
            .iter()
            .filter(|(number, new)| present.and_then(|present| present.get(*number)) != Some(*new))
            .map(|(number, new)| (*number, *new))
            .collect();
        match changed[..] {
            [] if same => Ok(()),
            [(number, new)] if same => self
                .programs
                .update_interface(number, |interface| *interface = new),
            // Several at once, so that no packet sees some of them alone.
            _ => self.programs.set(&wanted),
        }
    }

    fn limit(&mut self) -> Result<(), Error> {
        for reason in Reason::ALL {
            let limit = self.xdp.rate_limits.limit(reason);
            self.programs.set_limit(reason, limit)?;
        }
        Ok(())
    }

    /// Says so when packets to hosts begin to take the slow path, as programs may use the kernel's routes only in the name of
    /// a device that forwards.
    fn look_at_forwarding(&mut self) {
        let (family, name) = match self.model.internal {
            SocketAddr::V4(_) => (sysctl::Family::V4, "ipv4"),
            SocketAddr::V6(_) => (sysctl::Family::V6, "ipv6"),
        };
        let forwards = !matches!(sysctl::read(family, LOOPBACK, "forwarding"), Ok(Some(0)));
        match (self.forwards.replace(forwards), forwards) {
            (Some(true) | None, false) => tracing::warn!(
                "packets to hosts take the slow path: XDP programs can use the kernel's routing table only with \
                 `sysctl net.{name}.conf.{LOOPBACK}.forwarding=1`; no other device needs this setting"
            ),
            (Some(false), true) => tracing::info!("packets to hosts are back on the fast path"),
            _ => {}
        }
    }

    /// Says so, once, when senders leave checksums open. Right ones look the same now and then.
    fn look_at_checksums(&mut self) -> Result<(), Error> {
        const MANY: u64 = 1000;
        for (interface, slot) in self.slots.iter().chain([(0, 0)]) {
            let open = self.programs.count(slot, Reason::OpenChecksum)?;
            if open < MANY || self.open_checksums.contains(&interface) {
                continue;
            }
            let received = self.programs.traffic(slot)?.total(Traffic::Input).packets;
            if open * MANY > received {
                self.open_checksums.insert(interface);
                let from = match interface {
                    0 => "the internal network".to_owned(),
                    number => format!("interface {number}"),
                };
                tracing::warn!(
                    "packets from {from} arrive with incomplete checksums and take the slow path; \
                     disable transmit checksum offload on the sender (`ethtool -K DEVICE tx off`)"
                );
            }
        }
        Ok(())
    }

    /// Tells the programs what time it is.
    fn tick(&mut self) -> Result<(), Error> {
        let offset =
            nanoseconds(libc::CLOCK_REALTIME).saturating_sub(nanoseconds(libc::CLOCK_BOOTTIME));
        let step = offset.abs_diff(self.clock);
        if self.clock != 0 && step > STEP {
            tracing::warn!("the system clock jumped by {} s", step / STEP);
        }
        self.clock = offset;
        self.programs.set_clock(offset)
    }
}

fn nanoseconds(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel fills a structure that lives here.
    unsafe { libc::clock_gettime(clock, &mut time) };
    (time.tv_sec as u64)
        .saturating_mul(1_000_000_000)
        .saturating_add(time.tv_nsec as u64)
}

/// The underlay as the state knows it.
struct View<'a> {
    state: &'a State,
    is_up: &'a dyn Fn(u16) -> bool,
}

impl Underlay for View<'_> {
    fn ports(&self) -> Vec<Port> {
        self.state.devices.ports()
    }

    fn arrival(&self, local: SocketAddr) -> Arrival {
        self.state.devices.arrival(local)
    }

    fn route(&self, local: SocketAddr, remote: SocketAddr) -> Option<UnderlayRoute> {
        if local.is_ipv4() != remote.is_ipv4() {
            return None;
        }
        let hop = self.state.hops.get(&remote.ip())?.resolved()?;
        let (ifindex, tags) = self.state.devices.carrier(hop.ifindex)?;
        Some(UnderlayRoute {
            ifindex,
            mtu: u16::try_from(hop.mtu).unwrap_or(0),
            tags,
            fragments: self.state.devices.sends_fragments(ifindex),
            source_mac: hop.interface_mac,
            destination_mac: hop.destination_mac,
        })
    }

    fn is_up(&self, interface: u16) -> bool {
        (self.is_up)(interface)
    }
}
