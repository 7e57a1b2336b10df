//! The fast path of a running router: programs on devices, and maps that follow links, neighbours and configuration.

use std::{
    collections::{BTreeMap, HashSet},
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use arc_swap::ArcSwapOption;
use sig_common::router::Reason;
use tokio::sync::watch;

use super::{Slots, Underlay, Way, devices::Devices, tables};
use crate::{
    kernel::{
        Error,
        bpf::{RouterOptions, RouterPrograms, SlotReasons, SlotTraffic},
        link,
        neighbours::{NextHops, Resolution, Snapshot, Timing},
        netlink::{Netlink, Task},
        sysctl,
        watch::{Change, Changes, Watch},
    },
    router::{
        AsModel,
        config::{RateLimits, Xdp, XdpMode},
        slow::IsUp,
    },
};

/// Announcements of the kernel come in series.
const SETTLE: Duration = Duration::from_millis(50);

/// Between two looks at the clock and at what devices can do.
const TICK: Duration = Duration::from_secs(1);

/// A clock that jumps further than this is worth a word.
const STEP: u64 = 1_000_000_000;

/// Addresses of this host, from which packets come over the loopback interface, where there is no program. `None`:
/// there is no program anywhere.
pub type OwnAddresses = Arc<ArcSwapOption<HashSet<IpAddr>>>;

/// What the fast path is told.
#[derive(Clone)]
pub struct Orders {
    /// The AS.
    pub model: Arc<AsModel>,
    /// Mode, CPUs and limits.
    pub xdp: Xdp,
}

/// A running fast path. The programs leave their devices when it is dropped, or when the process ends in any way.
pub struct FastPath {
    shared: Arc<Shared>,
    hops: NextHops,
    _watch: Watch,
    _tasks: Vec<Task>,
}

struct Shared {
    netlink: Netlink,
    mode: XdpMode,
    own_addresses: OwnAddresses,
    is_up: IsUp,
    state: Mutex<State>,
}

struct State {
    programs: RouterPrograms,
    model: Arc<AsModel>,
    cpus: u16,
    rate_limits: RateLimits,
    slots: Slots,
    devices: Devices,
    hops: Snapshot,
    clock: u64,
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
}

impl FastPath {
    /// Loads and attaches the programs. `is_up` tells which interfaces packets may leave by, and `changes` wakes when
    /// that changes. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// In one sentence, why there can be no fast path.
    pub async fn start(
        orders: Orders,
        mode: XdpMode,
        is_up: IsUp,
        changes: Option<watch::Receiver<()>>,
        own_addresses: OwnAddresses,
    ) -> Result<Self, String> {
        let text = |error: Error| error.to_string();
        let netlink = Netlink::open().map_err(|error| format!("cannot open netlink: {error}"))?;
        let watch = Watch::open().map_err(text)?;
        // Before the first look, so that nothing is missed.
        let announced = watch.subscribe();
        let mut programs = RouterPrograms::load(RouterOptions::default()).map_err(text)?;
        programs.set_cpus(&orders.xdp.cpus).map_err(text)?;
        let mut slots = Slots::default();
        slots.update(&orders.model);
        let mut state = State {
            programs,
            cpus: u16::try_from(orders.xdp.cpus.len()).unwrap_or(u16::MAX),
            model: orders.model,
            rate_limits: RateLimits::default(),
            slots,
            devices: Devices::default(),
            hops: Snapshot::default(),
            clock: 0,
        };
        state.limit(&orders.xdp).map_err(text)?;
        state.tick().map_err(text)?;
        let hops = NextHops::anywhere(&netlink, &watch, Timing::default());
        hops.set_targets(targets(&state.model));
        let shared = Arc::new(Shared {
            netlink,
            mode,
            own_addresses,
            is_up,
            state: Mutex::new(state),
        });
        shared.look_at_links().await?;
        {
            let state = shared.state();
            advise(&state.model, &state.devices);
        }
        let mut tasks = vec![
            Task::spawn(shared.clone().follow_links(announced)),
            Task::spawn(shared.clone().follow_hops(hops.subscribe())),
            Task::spawn(shared.clone().follow_clock()),
        ];
        if let Some(changes) = changes {
            tasks.push(Task::spawn(shared.clone().follow_liveness(changes)));
        }
        Ok(Self {
            shared,
            hops,
            _watch: watch,
            _tasks: tasks,
        })
    }

    /// Puts another configuration into force, all of it at once. Mode and CPUs stay.
    ///
    /// # Errors
    /// It does not fit the maps; the one before stays in force.
    pub fn reload(&self, orders: Orders) -> Result<(), Error> {
        let mut state = self.shared.state();
        let former = (state.model.clone(), state.slots.clone());
        let limits = state.rate_limits.clone();
        // The limits first: the model comes into force with one write, after which nothing can fail.
        let result = state.limit(&orders.xdp).and_then(|()| {
            state.slots.update(&orders.model);
            state.model = orders.model;
            state.write(&*self.shared.is_up)
        });
        if let Err(error) = result {
            (state.model, state.slots) = former;
            // What could not be written may fail once more; the error tells already.
            let _ = state.limit(&Xdp {
                rate_limits: limits,
                ..orders.xdp
            });
            return Err(error);
        }
        self.hops.set_targets(targets(&state.model));
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
                transmits: device.transmits,
            });
        devices.collect()
    }

    /// How the other end of a link, or a sibling, is reached: its MAC address or that of the router before it.
    ///
    /// # Errors
    /// In one sentence, why it is not.
    pub fn next_hop(&self, remote: IpAddr) -> Result<[u8; 6], String> {
        match self.shared.state().hops.get(&remote) {
            Some(Resolution::Resolved(hop)) => Ok(hop.destination_mac),
            Some(Resolution::Unresolved(reason)) => Err(reason.to_string()),
            None => Err("not looked for yet".to_owned()),
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

/// The addresses of the router itself.
fn essential(model: &AsModel) -> Vec<IpAddr> {
    let links = model.links().map(|(_, _, local, _)| local.ip());
    links.chain([model.internal.ip()]).collect()
}

/// Tells what keeps packets to hosts away from the fast path.
fn advise(model: &AsModel, devices: &Devices) {
    let (family, name) = match model.internal {
        SocketAddr::V4(_) => (sysctl::Family::V4, "ipv4"),
        SocketAddr::V6(_) => (sysctl::Family::V6, "ipv6"),
    };
    let is_off = |name: &str| matches!(sysctl::read(family, name, "forwarding"), Ok(Some(0)));
    let names = devices.attached().map(|(_, device)| device.name.as_str());
    let off: Vec<_> = names.filter(|name| is_off(name)).collect();
    if !off.is_empty() {
        tracing::warn!(
            "the kernel does not forward what comes in by {}: packets to hosts take the slow path from there \
             (`sysctl net.{name}.conf.DEVICE.forwarding=1`)",
            off.join(", ")
        );
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Devices come and go, and so do addresses.
    async fn follow_links(self: Arc<Self>, mut changes: Changes) {
        while let Some(change) = changes.next().await {
            let concerns = matches!(
                change,
                Change::Link { .. }
                    | Change::LinkRemoved { .. }
                    | Change::Address { .. }
                    | Change::Resync
            );
            if !concerns {
                continue;
            }
            tokio::time::sleep(SETTLE).await;
            if let Err(error) = self.look_at_links().await {
                tracing::error!("the fast path does not follow the interfaces: {error}");
            }
        }
    }

    async fn look_at_links(&self) -> Result<(), String> {
        let links = link::all(&self.netlink).await.map_err(|e| e.to_string())?;
        let mut state = self.state();
        let State {
            devices,
            programs,
            model,
            ..
        } = &mut *state;
        let followed = devices.follow(programs, &links, &essential(model), self.mode);
        self.own_addresses
            .store(Some(Arc::new(devices.addresses().collect())));
        followed?;
        state.write(&*self.is_up).map_err(|e| e.to_string())
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
            tokio::time::sleep(TICK).await;
            self.tick();
        }
    }

    fn tick(&self) {
        let mut state = self.state();
        if let Err(error) = state.tick() {
            tracing::error!("{error}");
        }
        let State {
            devices, programs, ..
        } = &mut *state;
        devices.look(programs);
    }

    fn write(&self, state: &mut State) {
        if let Err(error) = state.write(&*self.is_up) {
            tracing::error!("the fast path does not follow: {error}");
        }
    }
}

impl State {
    /// Brings the maps to what is known now. What changes by itself is changed in place, everything else by another
    /// generation.
    fn write(&mut self, is_up: &dyn Fn(u16) -> bool) -> Result<(), Error> {
        let view = View { state: self, is_up };
        let wanted = tables(&self.model, &view, &self.slots, self.cpus);
        let same = self.programs.tables().is_some_and(|present| {
            present.config == wanted.config
                && present.endpoints == wanted.endpoints
                && present.siblings == wanted.siblings
                && present.interfaces.keys().eq(wanted.interfaces.keys())
        });
        if !same {
            return self.programs.set(&wanted);
        }
        for (number, interface) in wanted.interfaces {
            self.programs
                .update_interface(number, |present| *present = interface)?;
        }
        Ok(())
    }

    fn limit(&mut self, xdp: &Xdp) -> Result<(), Error> {
        for reason in Reason::ALL {
            let limit = xdp.rate_limits.limit(reason);
            self.programs.set_limit(reason, limit)?;
        }
        self.rate_limits = xdp.rate_limits.clone();
        Ok(())
    }

    /// Tells the programs what time it is.
    fn tick(&mut self) -> Result<(), Error> {
        let offset =
            nanoseconds(libc::CLOCK_REALTIME).saturating_sub(nanoseconds(libc::CLOCK_BOOTTIME));
        let step = offset.abs_diff(self.clock);
        if self.clock != 0 && step > STEP {
            tracing::warn!("the clock of this host was set by {} s", step / STEP);
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
    /// Packets to a link's address come in by its device. Hosts and siblings may be anywhere, and so may be everything
    /// whose address is on no device with the program, such as the loopback interface.
    fn devices(&self, local: IpAddr) -> Vec<u32> {
        let devices = &self.state.devices;
        match devices.of_address(local) {
            Some(ifindex) if local != self.state.model.internal.ip() => vec![ifindex],
            _ => devices.attached().map(|(ifindex, _)| ifindex).collect(),
        }
    }

    fn way(&self, local: SocketAddr, remote: SocketAddr) -> Option<Way> {
        if local.is_ipv4() != remote.is_ipv4() {
            return None;
        }
        let hop = self.state.hops.get(&remote.ip())?.resolved()?;
        let (ifindex, vlan) = self.state.devices.carrier(hop.ifindex);
        Some(Way {
            ifindex,
            mtu: u16::try_from(hop.mtu).unwrap_or(0),
            vlan,
            source_mac: hop.interface_mac,
            destination_mac: hop.destination_mac,
        })
    }

    fn is_up(&self, interface: u16) -> bool {
        (self.is_up)(interface)
    }
}
