//! A gateway on this machine's interfaces.
//!
//! [`Host::start`] makes the tunnel device, the ports, the BPF programs and the routes, runs an
//! [`Engine`] over them, and keeps it in step with the kernel: next hops, MAC addresses, MTUs.
//! Nothing is left behind, however the process ends: programs and sockets end with their file
//! descriptors, the tunnel device and its routes with the private network namespace that its other
//! end lives in.

mod apply;
pub(crate) mod awaited;
pub(crate) mod bypassed;
mod chains;
mod choice;
mod environment;
mod fast_path;
mod guard;
mod interfaces;
mod lan;
mod lan_map;
mod lans;
mod notices;
mod ports;
mod sockets;
mod sources;
mod status;
mod trace;
mod trunks;
mod tunnel;
pub(crate) mod watching;

use std::{
    collections::{HashMap, HashSet},
    net::{IpAddr, UdpSocket},
    sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError},
    time::Duration,
};

use futures_util::{FutureExt as _, future::select_all};
use tokio::sync::watch;

use super::{
    Environment, PlannedPath,
    config::{self, Config, FastPathUse, LanTransmit},
    configured::Configured,
    rules::{Counts, Links, Rules, filter},
};
use crate::{
    engine::{Engine, InKernel},
    gateway::Error,
    srv6::Beside,
};
use apply::Applied;
pub use apply::HostHandle;
use choice::Choice;
use guard::Guard;
use interfaces::Interfaces;
use lans::Lans;
use ports::PortFacts;
use sig_common::maps::{Sockets as Slots, Stat, TUNNEL_PORT};
use sig_core::{port::Role, status::Status, task::Task};
use sig_linux::{
    bpf::{
        Attachment, FastPathMaps, FastPathOptions, LoadOptions, Logging, Program, Programs,
        TcAttachment,
    },
    facts,
    lan::LanHops,
    neighbours::{NextHops, Snapshot, Timing},
    netlink::Netlink,
    networks::{self, Networks},
    routes::Routes,
    watch::Watch,
};
use sockets::{Rest, Sockets};
pub use status::ControlReport;
use trunks::{RefusedTrunks, Trunks};
use tunnel::Tunnel;

/// How soon a vanished or changed neighbour is noticed.
const NEIGHBOURS: Timing = Timing {
    refresh: Duration::from_secs(2),
    retry: Duration::from_millis(500),
};

/// A running gateway on this machine. [`Host::stop`] ends it in order; dropping it, or the process,
/// leaves nothing behind either.
pub struct Host {
    shared: Arc<Shared>,
    /// None of them ends before it.
    tasks: Vec<Task>,
    failed: watch::Receiver<Option<String>>,
    tunnel: Tunnel,
    attached: Attached,
    netlink: Netlink,
    watch: Watch,
    following: networks::Following,
    _messages: Option<Task>,
    rest: Rest,
}

/// What the tasks and the status work on.
struct Shared {
    engine: Mutex<Engine>,
    /// `None`: no port has any.
    programs: Mutex<Option<Programs>>,
    /// Locked after `programs`.
    trunks: Mutex<Trunks>,
    choice: Choice,
    /// Those that stay; the others are of `lans`.
    ports: Vec<Arc<PortFacts>>,
    lans: Lans,
    /// Largest MTU that the packet buffers are for.
    max_mtu: u32,
    /// Why there is no fast path, though it is wanted.
    no_fast_path: Option<String>,
    networks: watch::Receiver<Arc<Networks>>,
    /// Border routers on this host that paths have been left out for, which has been logged.
    own_routers: Mutex<HashSet<IpAddr>>,
    next_hops: NextHops,
    hops: watch::Receiver<Snapshot>,
    sources: sources::Sources,
    lan: lan::Transmit,
    lan_hops: Option<LanHops>,
    routes: Routes,
    /// What follows from the plan in force, outside of the workers.
    applied: tokio::sync::Mutex<Applied>,
    control: Mutex<Option<status::ControlSource>>,
    /// The gateway as its SR node sees it.
    beside: Mutex<Beside>,
    chains: Mutex<chains::Chains>,
    /// Held while rules are put into force.
    setting_rules: tokio::sync::Mutex<()>,
    /// What those who watch packets want of the programs.
    wishes: Mutex<watching::Wishes>,
}

/// Programs on devices; they leave when this is dropped.
#[derive(Default)]
struct Attached {
    _xdp: Vec<Attachment>,
    /// `None`: packets from the tunnel go up the kernel's stack.
    _inject: Option<TcAttachment>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Host {
    /// Starts a gateway that follows the plan of the configuration's `[[remote]]` sections, until
    /// [`HostHandle::apply`] gives it another one. Where the configuration leaves it to the daemon, ISD-AS and data
    /// address must have been filled in. Must be called within a multi-threaded tokio runtime.
    ///
    /// # Errors
    ///
    /// If anything that is needed is missing, with what to do; nothing is left behind then.
    pub async fn start(config: Config) -> Result<Host, Error> {
        Self::start_with(config, Rules::default(), Vec::new()).await
    }

    /// As [`Host::start`], with rules, and with border routers that are known beside those of the configuration.
    pub(crate) async fn start_with(
        config: Config,
        rules: Rules,
        routers: Vec<IpAddr>,
    ) -> Result<Host, Error> {
        let mut refused = RefusedTrunks::new();
        loop {
            let before = refused.len();
            let (config, rules) = (config.clone(), rules.clone());
            let started = Self::start_without(config, rules, routers.clone(), &mut refused).await;
            // The driver of the interface below the underlay did not take the program: without, it may work.
            if started.is_ok() || refused.len() == before {
                return started;
            }
        }
    }

    /// As [`Host::start_with`], without these trunks. One whose driver does not take the program is added to them.
    async fn start_without(
        config: Config,
        rules: Rules,
        mut routers: Vec<IpAddr>,
        refused: &mut RefusedTrunks,
    ) -> Result<Host, Error> {
        let system = |what| move |source| Error::System { what, source };
        let netlink = Netlink::open().map_err(system("open a netlink socket"))?;
        let watch = Watch::open()?;
        let paths = config.remotes.iter().flat_map(|remote| &remote.paths);
        routers.extend(paths.map(|path| path.next_hop.ip()));
        let choice = Choice::make(&netlink, &config, &routers).await?;
        let mut interfaces =
            Interfaces::find(&netlink, &config, (&rules, &*refused), choice).await?;
        let transmit = config.dataplane.lan_transmit;
        bypassed::tell(&netlink, &interfaces, choice.has_tun, transmit).await;
        let logging = match config.log.level {
            config::LogLevel::Debug | config::LogLevel::Trace => Logging::Debug,
            _ => Logging::Off,
        };
        let mut sockets = Sockets::open(&config, choice.has_sockets)?;
        let mut tunnel = Tunnel::create(&config, choice.has_tun).await?;
        let mut ports = tokio::task::block_in_place(|| {
            ports::open(
                &config,
                &interfaces,
                choice.has_bpf,
                &mut tunnel,
                &mut sockets,
            )
        })?;
        let how = how_to_load(&config, &interfaces, logging);
        interfaces.trunks.set_possible(how.trunks);
        let Loaded {
            mut programs,
            fast_path,
            no_fast_path,
        } = load(&config, how, &ports)?;

        let (networks, following) =
            networks::follow(&netlink, &watch, tunnel.ifindex(), config.tunnel.table).await?;
        let known = networks.borrow().clone();
        let lans = Lans::new(
            config.clone(),
            netlink.clone(),
            ports.opener.take(),
            ports.has_fast_path,
            interfaces.around.clone(),
        );
        let place = environment::Place::new(&config, lans.around());
        let environment = Environment {
            neighbours: HashMap::new(),
            home: place.home(&known),
            tunnel_macs: tunnel.macs(),
            icmp: place.icmp_sources(&known),
            lan: Arc::default(),
        };
        let mut attached = Attached::default();
        if let Some(programs) = &mut programs {
            fill_maps(programs, &interfaces, &config, &ports)?;
            let done = attach(
                programs,
                &config,
                &mut interfaces,
                &tunnel,
                &mut ports.facts,
            );
            if config.dataplane.mode != config::XdpMode::Native {
                refused.clone_from(interfaces.trunks.refused());
            }
            attached = done?;
        }
        let in_kernel = match fast_path.zip(programs.as_mut()) {
            Some((maps, programs)) => {
                let backlog = u64::from(config.dataplane.ring_size) * 3 / 4;
                let mut follower = fast_path::Follower::new(maps, backlog);
                let underlay = ports.facts.iter();
                for port in underlay.filter(|port| port.role == Role::Underlay) {
                    follower.set_underlay(port)?;
                    if port.native && !port.is_in_vlan() {
                        programs.set_fast(port.ifindex, false)?;
                    }
                }
                Some(Box::new(follower) as Box<dyn InKernel>)
            }
            None => None,
        };
        let at_workers = choice.has_sockets.then(|| {
            let mut closed = interfaces.without_data.clone();
            closed.push(tunnel.ifindex());
            Arc::new(sig_core::dataplane::Sources::closed_to(closed))
        });
        let mut engine = Engine::builder(config.clone())
            .environment(environment.clone())
            .in_kernel(in_kernel)
            .sources(at_workers.clone())
            .ports(
                ports.area.clone(),
                ports.pool.clone(),
                std::mem::take(&mut ports.workers),
            )
            .start()?;

        // Before any packet is carried; chains are there later.
        let mut counts = Counts::default();
        let first = filter(
            &rules,
            &Links::default(),
            engine.counters().len(),
            &mut counts,
        );
        engine.set_filter(Arc::new(first));
        if let Some(programs) = &mut programs {
            steer(programs, &ports)?;
        }
        let routes = Routes::start(&netlink, &watch, tunnel.ifindex(), config.tunnel.table);
        let data_ip = config.gateway.data_addr.ip();
        let next_hops = match &interfaces.underlay {
            Some(link) => NextHops::new(&netlink, &watch, link.ifindex, data_ip, NEIGHBOURS),
            None => NextHops::of_sockets(&netlink, &watch, data_ip, NEIGHBOURS),
        };
        let logs = programs.as_mut().and_then(Programs::forward_logs);
        let messages = logs.map(|forward| {
            Task::spawn("the log of the BPF programs", async move {
                if let Err(error) = forward.await {
                    tracing::warn!("no longer reading the log of the BPF programs: {error}");
                }
            })
        });
        let (fail, failed) = watch::channel(None);
        let (lan, lan_hops) = lan::start(&config, programs.is_some(), &netlink, &watch);
        let shared = Arc::new(Shared {
            engine: Mutex::new(engine),
            programs: Mutex::new(programs),
            trunks: Mutex::new(interfaces.trunks),
            choice,
            ports: ports.facts.into_iter().map(Arc::new).collect(),
            lans,
            max_mtu: ports.max_mtu,
            no_fast_path,
            networks: networks.clone(),
            own_routers: Mutex::default(),
            hops: next_hops.subscribe(),
            next_hops,
            sources: sources::Sources::new(
                config.dataplane.underlay_sources.clone(),
                at_workers,
                tunnel.ifindex(),
            ),
            lan,
            lan_hops,
            routes,
            applied: tokio::sync::Mutex::new(Applied::new(
                &config,
                Guard::new(daemon_addresses(&config).await),
                known,
            )),
            control: Mutex::new(None),
            beside: Mutex::new(chains::beside(&config, tunnel.ifindex())),
            chains: Mutex::new(chains::Chains::new(counts, fail.clone())),
            setting_rules: tokio::sync::Mutex::new(()),
            wishes: Mutex::default(),
        });
        // From here on, changes are followed.
        let changes = watch.subscribe();
        shared.start_lans().await?;
        let handle = HostHandle::new(&shared);
        handle.set_rules(rules).await?;
        let now = std::time::SystemTime::now();
        let plan = Configured::new(&config, now).plan(now);
        handle.apply(plan).await?;
        handle.settle().await;
        let follow = handle.follow_networks(networks.clone());
        let mut tasks = vec![Task::spawn("the network monitor", follow)];
        let follow = environment::follow(shared.clone(), place, environment, networks);
        tasks.push(Task::spawn("the neighbour monitor", follow));
        if let Some(link) = interfaces.underlay {
            let state = watch.interface(&netlink, link.ifindex).await?;
            let follow = interfaces::follow_underlay(link, state, shared.clone(), fail.clone());
            tasks.push(Task::spawn("the underlay monitor", follow));
        }
        let follow = shared.clone().follow_lans(changes);
        tasks.push(Task::spawn("the LAN interface monitor", follow));
        let state = watch.interface(&netlink, tunnel.ifindex()).await?;
        let follow = interfaces::follow_tunnel(state, shared.clone(), fail.clone());
        tasks.push(Task::spawn("the tunnel monitor", follow));
        let watch_refused = sources::watch_refused(shared.clone());
        tasks.push(Task::spawn("the refused source monitor", watch_refused));
        let may_pack = config.dataplane.fast_path == FastPathUse::Auto;
        if may_pack && lock(&shared.engine).in_kernel().is_some() {
            let watch_load = watch_load(shared.clone());
            tasks.push(Task::spawn("the load monitor", watch_load));
        }
        if let Some(period) = flapping() {
            let flap = flap(shared.clone(), period);
            tasks.push(Task::spawn("the switching of the fast path", flap));
        }
        let complete = HostHandle::new(&shared).complete_rules();
        tasks.push(Task::spawn("the rule monitor", complete));
        let watch_workers = watch_workers(shared.clone(), fail);
        tasks.push(Task::spawn("the worker monitor", watch_workers));
        Ok(Host {
            shared,
            tasks,
            failed,
            tunnel,
            attached,
            netlink,
            watch,
            following,
            _messages: messages,
            rest: sockets.rest(),
        })
    }

    /// A handle for changing the running gateway and looking at it.
    pub fn handle(&self) -> HostHandle {
        HostHandle::new(&self.shared)
    }

    /// The socket that holds the data address, once: what is not taken by XDP program or workers arrives there, such
    /// as SCMP messages about frames; `None` where nobody is expected to read them. Whoever takes it must keep it as long as the gateway runs, so that the
    /// kernel does not answer what comes while no program is attached.
    pub fn take_data_socket(&mut self) -> Option<UdpSocket> {
        self.rest.data.take()
    }

    /// The socket at the end host port of the data address, once, if workers read frames there: what is not for them.
    pub(crate) fn take_endhost_socket(&mut self) -> Option<UdpSocket> {
        self.rest.endhost.take()
    }

    /// Waits until the gateway cannot go on, and says why. It must then be stopped and started again.
    pub async fn failed(&self) -> String {
        let mut failed = self.failed.clone();
        let told = async {
            match failed.wait_for(Option::is_some).await {
                Ok(reason) => reason.clone().unwrap_or_default(),
                // The senders are with the tasks.
                Err(_) => std::future::pending().await,
            }
        };
        let shared = &self.shared;
        let parts = [
            self.netlink.ended().boxed(),
            self.watch.ended().boxed(),
            self.following.ended().boxed(),
            shared.routes.ended().boxed(),
            shared.next_hops.ended().boxed(),
        ];
        let lan_hops = shared.lan_hops.iter().map(|hops| hops.ended().boxed());
        let tasks = self.tasks.iter().map(|task| task.ended().boxed());
        let ended = select_all(parts.into_iter().chain(lan_hops).chain(tasks));
        tokio::select! {
            biased;
            reason = told => reason,
            (reason, ..) = ended => reason,
        }
    }

    /// Waits until at least one path of every session of the plan can be used.
    pub async fn ready(&self) {
        let mut hops = self.shared.hops.clone();
        loop {
            let usable = {
                let engine = lock(&self.shared.engine);
                let mut sessions = engine.planner().sessions().iter();
                sessions.all(|session| session.paths.iter().any(PlannedPath::is_usable))
            };
            if usable {
                return;
            }
            // The tables follow a change of the next hops within this time.
            let _ = tokio::time::timeout(Duration::from_millis(20), hops.changed()).await;
        }
    }

    /// A function that tells the state at the time it is called.
    pub fn status(&self) -> impl Fn() -> Status + Send + Sync + 'static {
        let shared = self.shared.clone();
        move || status::of(&shared)
    }

    /// Ends the gateway: routes first, so that the kernel answers for the remotes' prefixes again, then
    /// programs, workers and the tunnel device. Handles have no effect any more; the workers end with the
    /// last of them.
    ///
    /// # Errors
    ///
    /// If the kernel refuses to remove something.
    pub async fn stop(mut self) -> Result<(), Error> {
        self.shared.applied.lock().await.end();
        self.shared.routes.close().await?;
        drop(self.attached);
        self.shared.lans.end().await;
        lock(&self.shared.trunks).end();
        lock(&self.shared.chains).end();
        for task in self.tasks.drain(..) {
            task.stop().await;
        }
        // The workers end with the last owner, their sockets with them.
        tokio::task::block_in_place(|| drop(self.shared));
        self.tunnel.delete().await
    }
}

/// Where the SCION daemon is. What a name stands for is looked up once.
async fn daemon_addresses(config: &Config) -> Vec<IpAddr> {
    let Some(control) = &config.control else {
        return Vec::new();
    };
    match tokio::net::lookup_host(&control.daemon).await {
        Ok(addresses) => addresses.map(|address| address.ip()).collect(),
        Err(error) => {
            tracing::warn!(
                "the address of the SCION daemon {} cannot be resolved, so it is not \
                 excluded from the tunnel: {error}",
                control.daemon
            );
            Vec::new()
        }
    }
}

/// The programs in the kernel.
struct Loaded {
    /// `None`: no port needs any.
    programs: Option<Programs>,
    fast_path: Option<FastPathMaps>,
    /// Why there is no fast path, though it is wanted.
    no_fast_path: Option<String>,
}

/// With VLANs if there are some, or if interfaces that are not there yet may be VLAN devices.
fn how_to_load(config: &Config, interfaces: &Interfaces, logging: Logging) -> LoadOptions {
    let are_missing = interfaces.around.len() < config.dataplane.lan.len();
    let may_be = config.dataplane.mode != config::XdpMode::Generic && are_missing;
    LoadOptions {
        logging,
        trunks: may_be || !interfaces.served_on.is_empty(),
    }
}

/// Loads the programs, with a fast path if that is wanted and possible.
fn load(config: &Config, how: LoadOptions, ports: &ports::Ports) -> Result<Loaded, Error> {
    let is_wanted = config.dataplane.fast_path != FastPathUse::Off;
    if !is_wanted || !ports.has_fast_path {
        let needs_programs = ports.opener.is_some();
        let load = needs_programs.then(|| Programs::load(how));
        return Ok(Loaded {
            programs: load.transpose()?,
            fast_path: None,
            no_fast_path: is_wanted.then(|| {
                "all packets go through the workers, which send frames by UDP sockets".into()
            }),
        });
    }
    let options = FastPathOptions {
        sockets: ports.slots,
        clamp_mss: config.dataplane.clamp_mss,
        verify_checksums: config.dataplane.verify_checksums,
    };
    match Programs::load_with_fast_path(how, options) {
        Ok((programs, maps)) => Ok(Loaded {
            programs: Some(programs),
            fast_path: Some(maps),
            no_fast_path: None,
        }),
        Err(error) => {
            // If it is not because of the fast path, this fails likewise.
            let programs = Programs::load(how)?;
            let why = format!("all packets go through the workers: {error}");
            tracing::warn!("no fast path: {why}");
            Ok(Loaded {
                programs: Some(programs),
                fast_path: None,
                no_fast_path: Some(why),
            })
        }
    }
}

/// What does not depend on the plan.
fn fill_maps(
    programs: &mut Programs,
    interfaces: &Interfaces,
    config: &Config,
    ports: &ports::Ports,
) -> Result<(), Error> {
    if let Some(underlay) = &interfaces.underlay {
        let local = super::planner::local(config);
        programs.set_underlay_port(underlay.ifindex, &local, interfaces::mac(underlay)?)?;
    }
    for (slot, socket) in &ports.sockets {
        programs.set_socket(*slot, std::os::fd::AsFd::as_fd(socket))?;
    }
    Ok(())
}

/// Lets packets to the workers, once it is known how the programs are attached.
fn steer(programs: &mut Programs, ports: &ports::Ports) -> Result<(), Error> {
    for steering in &ports.steering {
        let of_port = |facts: &&PortFacts| match steering.0 {
            TUNNEL_PORT => facts.is_inner(),
            ifindex => !facts.is_inner() && facts.ifindex == ifindex,
        };
        if let Some(facts) = ports.facts.iter().find(of_port) {
            steer_queue(programs, steering, facts)?;
        }
    }
    Ok(())
}

/// Lets packets of a queue to the workers.
fn steer_queue(
    programs: &mut Programs,
    (port, queue, sockets): &(u32, u32, Slots),
    facts: &PortFacts,
) -> Result<(), Error> {
    let has_race = facts::has_generic_receive_race();
    let one_only = has_race && !facts.is_inner() && !facts.native;
    let steered = if one_only {
        sockets.only(*queue)
    } else {
        *sockets
    };
    if steered != *sockets {
        tracing::warn!(
            queue,
            interface = facts.interface,
            "a single worker serves the queue: with more, this kernel may reuse a packet buffer in \
             generic mode (CVE-2025-37920); upgrade to Linux 6.12.28, 6.14.6, 6.15 or newer to share queues"
        );
    }
    programs.set_steering(*port, *queue, steered)?;
    Ok(())
}

/// Notes how a program was attached.
fn note_mode(attachment: &Attachment, facts: &mut PortFacts) {
    if let Some(reason) = attachment.no_native() {
        tracing::warn!(
            interface = facts.interface,
            "the driver does not support native XDP ({reason}); using the slower generic mode"
        );
    }
    facts.native = attachment.mode() == sig_linux::bpf::XdpMode::Native;
}

fn attach(
    programs: &mut Programs,
    config: &Config,
    interfaces: &mut Interfaces,
    tunnel: &Tunnel,
    facts: &mut [PortFacts],
) -> Result<Attached, Error> {
    let mut xdp = Vec::new();
    for facts in facts.iter_mut().filter(|facts| facts.has_xdp()) {
        if let Some(trunk) = facts.trunk.clone() {
            let port = (facts.role, facts.ifindex);
            interfaces.trunks.join(programs, &trunk, port)?;
            facts.native = true;
            continue;
        }
        let mode = interfaces::xdp_mode(config.dataplane.mode, interfaces.underlay.as_ref());
        let attachment = match (facts.role, tunnel.pair()) {
            (Role::Underlay, _) => programs.attach_xdp(Program::Underlay, facts.ifindex, mode)?,
            (Role::Lan, _) | (Role::Tunnel, None) => continue,
            // A veth always has native mode.
            (Role::Tunnel, Some(pair)) => {
                let (netns, ifindex) = (pair.netns(), pair.peer().ifindex);
                let attach = || programs.attach_xdp(Program::Tunnel, ifindex, None);
                netns.run(attach).map_err(|source| Error::System {
                    what: "work in the private network namespace",
                    source,
                })??
            }
        };
        note_mode(&attachment, facts);
        xdp.push(attachment);
    }
    let inject = match (config.dataplane.lan_transmit, tunnel.pair()) {
        (LanTransmit::Auto | LanTransmit::Helper, Some(pair)) => {
            Some(programs.attach_inject(pair.host().ifindex)?)
        }
        (LanTransmit::Kernel, _) | (_, None) => None,
    };
    Ok(Attached {
        _xdp: xdp,
        _inject: inject,
    })
}

/// Tells the engine how much takes the fast path.
async fn watch_load(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let sent = {
            // Whoever attaches a program has it for as long as the driver takes.
            let programs = match shared.programs.try_lock() {
                Err(TryLockError::WouldBlock) => continue,
                Err(TryLockError::Poisoned(programs)) => programs.into_inner(),
                Ok(programs) => programs,
            };
            let stats = [Stat::LanFast, Stat::TunnelFast];
            let stats = programs
                .iter()
                .flat_map(|of| stats.map(|stat| of.stat(stat)));
            stats.sum::<Result<u64, _>>()
        };
        if let Ok(sent) = sent {
            lock(&shared.engine).look_at_load(sent);
        }
    }
}

/// How often the fast path is switched off and on again: for tests of the order of packets.
fn flapping() -> Option<Duration> {
    let millis = std::env::var("SIG_TEST_SWITCH_FAST_PATH_MS").ok()?;
    millis.parse().ok().map(Duration::from_millis)
}

async fn flap(shared: Arc<Shared>, period: Duration) {
    for on in [false, true].into_iter().cycle() {
        tokio::time::sleep(period).await;
        if let Some(programs) = lock(&shared.engine).in_kernel() {
            programs.enable(on);
        }
    }
}

/// A worker ends early only by a defect; the gateway must not stay half alive.
async fn watch_workers(shared: Arc<Shared>, fail: watch::Sender<Option<String>>) {
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        if !lock(&shared.engine).is_healthy() {
            fail.send_replace(Some("a worker thread ended unexpectedly".into()));
            return;
        }
    }
}
