//! A gateway over ports of your own: worker threads that follow a [`Config`].
//!
//! Nothing here opens a socket or asks the kernel. What a gateway on the interfaces of a machine finds out, an embedder
//! tells: which next hops are reachable ([`Builder::neighbour`]), and what else is around ([`Environment`]).

use std::{
    io,
    net::IpAddr,
    sync::Arc,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use arc_swap::ArcSwap;

pub use crate::control::{Environment, Neighbour};
use crate::control::{
    Planner,
    config::{Config, Dataplane, Pin},
    configured::Configured,
    plan::Plan,
    planner::MAX_REMOTES,
};
use sig_core::{
    dataplane::{Sources, Tables, WorkerConfig},
    engine::{Engine as Workers, EngineConfig},
    fast_path::Shared,
    framing::Limits,
    port::Port,
    port::umem::{Area, Pool},
    tap::Tap,
};
pub use sig_core::{
    dataplane::{
        counters::WorkerCounters,
        icmp::Sources as IcmpSources,
        lan::{LanFacts, LanNeighbour, LanRoute, LanTable},
    },
    engine::{LanChange, WorkerPorts},
    framing::LimitsError,
};

/// Longest frame payload that can be held for reordering: what a chunk can hold of it.
const MAX_FRAME_PAYLOAD: usize = 4096;
/// The same where there are jumbo frames: the largest MTU.
const MAX_JUMBO_PAYLOAD: usize = 9216;
/// Workers at most, as in a configuration.
const MAX_WORKERS: usize = 64;

/// Why an engine does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A limit of the configuration cannot work.
    #[error("[dataplane.limits]: {0}")]
    Limits(#[from] LimitsError),
    /// There are ports for no worker, or for too many.
    #[error("ports for {0} workers; give 1 to {MAX_WORKERS} sets of ports, one for each worker")]
    Workers(usize),
    /// Workers lack ports, or threads cannot be started.
    #[error("cannot start the workers: {0}")]
    Engine(#[from] io::Error),
}

/// The fast path: XDP programs that repeat the workers' decisions, and follow their tables.
pub(crate) trait InKernel: Send {
    /// Memory that the programs share with the workers.
    fn shared(&self) -> Arc<Shared>;

    /// Readies the programs for tables that come into force at the monotonic time `now` in nanoseconds, and writes there under which numbers
    /// the programs know what is in them.
    fn prepare(&mut self, now: u64, tables: &mut Tables);

    /// These tables are in force.
    fn commit(&mut self);

    /// Carries over counters and marks. To be called about every second. Whether the tables have to be made anew, because
    /// the programs can send where they could not, or the other way round.
    fn look(&mut self, now: u64) -> bool;

    /// Decides anew which packets had better be packed by workers, given how many the programs have sent by now. To be called
    /// every tenth of a second. As [`Self::look`].
    fn look_at_load(&mut self, now: u64, sent: u64) -> bool;

    /// Lets the programs send through a device, which has the number of a LAN interface in the tables; `None`: nothing is sent to that number
    /// any more. The tables have to be made anew.
    ///
    /// # Errors
    ///
    /// If the kernel does not take the device.
    #[cfg(feature = "xdp")]
    fn set_lan(&mut self, number: u16, device: Option<Device>)
    -> Result<(), crate::gateway::Error>;

    /// What the programs do and why they do not do more.
    fn status(&mut self) -> sig_core::status::FastPath;

    /// Why the programs do not send on a path of the tables in force; `None` if they do.
    fn why_not(&self, path: &sig_core::dataplane::Path) -> Option<String>;

    /// Lets packets take the fast path, or not for now.
    fn enable(&mut self, on: bool);
}

/// A device that the programs of the fast path may send through.
#[cfg(feature = "xdp")]
pub(crate) struct Device {
    pub(crate) ifindex: u32,
    pub(crate) interface: String,
    pub(crate) is_veth: bool,
    /// Its XDP program is in native mode.
    pub(crate) native: bool,
    /// Frames leave in a VLAN of the device below.
    pub(crate) in_vlan: bool,
}

/// What an engine is made of.
///
/// ```
/// use sig::{
///     config::{Config, Path, Remote},
///     engine::{Engine, Neighbour, WorkerPorts},
///     port::{memory, umem::Area},
/// };
///
/// let next_hop = "10.10.0.1:30042".parse()?;
/// // A remote in the same AS; to others, the path has the bytes that the SCION daemon gives.
/// let remote = Remote::new("1-ff00:0:110".parse()?, "10.10.0.3:30056".parse()?)
///     .prefixes(["192.168.11.0/24".parse()?])
///     .path(Path::new([], next_hop, 1472));
/// let config = Config::builder("1-ff00:0:110".parse()?, "10.10.0.2:30056".parse()?)
///     .prefixes(["192.168.10.0/24".parse()?])
///     .remote(remote)
///     .build()?;
///
/// let (area, pool) = Area::on_heap(4096);
/// let (underlay, _scion_side) = memory::pair(64);
/// let (tunnel, _ip_side) = memory::pair(64);
/// let ports = WorkerPorts {
///     underlay: vec![Box::new(underlay)],
///     tunnel: vec![Box::new(tunnel)],
///     ..WorkerPorts::default()
/// };
/// let neighbour = Neighbour { interface_mac: [2, 0, 0, 0, 0, 1], mac: [2, 0, 0, 0, 0, 9], mtu: 1500 };
/// let engine = Engine::builder(config)
///     .neighbour(next_hop.ip(), neighbour)
///     .ports(area, pool, vec![ports])
///     .start()?;
/// assert!(engine.is_healthy());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Builder {
    config: Arc<Config>,
    environment: Environment,
    partial_checksums: bool,
    in_kernel: Option<Box<dyn InKernel>>,
    sources: Option<Arc<Sources>>,
}

/// A [`Builder`] that has ports for its workers.
pub struct BuilderWithPorts {
    builder: Builder,
    area: Arc<Area>,
    pool: Arc<Pool>,
    ports: Vec<WorkerPorts>,
}

/// Running workers. Dropping it stops them.
pub struct Engine {
    workers: Workers,
    tables: Arc<ArcSwap<Tables>>,
    planner: Planner,
    /// The remotes in force, once they are not those of the start.
    configured: Option<Configured>,
    environment: Environment,
    in_kernel: Option<Box<dyn InKernel>>,
    cpus: Vec<usize>,
    tap: Arc<Tap>,
    start: Instant,
}

impl Builder {
    /// Adds a next hop that is reachable at the start. Without any, no path can be used until [`Engine::update`].
    #[must_use]
    pub fn neighbour(mut self, next_hop: IpAddr, neighbour: Neighbour) -> Self {
        self.environment.neighbours.insert(next_hop, neighbour);
        self
    }

    /// Sets what is around at the start, next hops included.
    #[must_use]
    pub fn environment(mut self, environment: Environment) -> Self {
        self.environment = environment;
        self
    }

    /// Sets whether hosts may leave transport checksums to their network card, as virtual Ethernet devices
    /// do. Default: no.
    #[must_use]
    pub fn partial_checksums(mut self, yes: bool) -> Self {
        self.partial_checksums = yes;
        self
    }

    /// Sets the fast path of the workers.
    #[must_use]
    pub(crate) fn in_kernel(mut self, in_kernel: Option<Box<dyn InKernel>>) -> Self {
        self.in_kernel = in_kernel;
        self
    }

    /// Sets who may bring frames, where no XDP program looks at that.
    #[must_use]
    pub(crate) fn sources(mut self, sources: Option<Arc<Sources>>) -> Self {
        self.sources = sources;
        self
    }

    /// Sets the ports of each worker, all over the chunks of `area`, which `pool` holds. There are as many workers as
    /// elements, whatever the configuration says.
    #[must_use]
    pub fn ports(
        self,
        area: Arc<Area>,
        pool: Arc<Pool>,
        ports: Vec<WorkerPorts>,
    ) -> BuilderWithPorts {
        BuilderWithPorts {
            builder: self,
            area,
            pool,
            ports,
        }
    }
}

impl BuilderWithPorts {
    /// Starts one worker per element of the ports.
    ///
    /// # Errors
    ///
    /// If a limit is out of range, a worker lacks a port, or a thread cannot be started.
    pub fn start(self) -> Result<Engine, StartError> {
        let Builder {
            config,
            environment,
            partial_checksums,
            mut in_kernel,
            sources,
        } = self.builder;
        let workers = self.ports.len();
        if !(1..=MAX_WORKERS).contains(&workers) {
            return Err(StartError::Workers(workers));
        }
        let mut engine_config = engine_config(&config, &self.area, partial_checksums, workers)?;
        engine_config.sources = sources;
        engine_config.fast_path = in_kernel.as_ref().map(|programs| programs.shared());
        let start = Instant::now();
        let mut planner = Planner::new(config, workers);
        let mut first = planner.tables(0, &environment);
        if let Some(programs) = &mut in_kernel {
            programs.prepare(0, &mut first);
            programs.commit();
        }
        let tables = Arc::new(ArcSwap::from_pointee(first));
        let workers = Workers::start(&engine_config, &self.area, &self.pool, self.ports, &tables)?;
        Ok(Engine {
            workers,
            tables,
            planner,
            configured: None,
            environment,
            in_kernel,
            cpus: engine_config.cpus,
            tap: engine_config.tap,
            start,
        })
    }
}

impl Engine {
    /// Begins to build an engine. Of the configuration, it follows `[gateway]`, `[[remote]]` and those keys of
    /// `[dataplane]` that are about workers and memory; interfaces, tunnel device, log and servers are not its business.
    ///
    /// A path is used whether or not it has expired: [`Path::expires_at`](crate::config::Path::expires_at) says when
    /// [`Engine::reload`] should bring another one.
    pub fn builder(config: Config) -> Builder {
        Builder {
            config: Arc::new(config),
            environment: Environment::default(),
            partial_checksums: false,
            in_kernel: None,
            sources: None,
        }
    }

    /// Puts remotes and served prefixes of another configuration into force and returns what has changed, one line each.
    /// Sessions with remotes that are in both go on: streams, sequence numbers, counters. Other values take effect with
    /// another engine only.
    pub fn reload(&mut self, config: &Config) -> Vec<String> {
        // Whether a path has expired is for the embedder to see.
        const NO_TIME: SystemTime = UNIX_EPOCH;
        let configured = self
            .configured
            .get_or_insert_with(|| Configured::new(self.planner.config(), NO_TIME));
        let changes = configured.reload(config, NO_TIME);
        let plan = configured.plan(NO_TIME);
        self.set_plan(plan);
        changes
    }

    /// Makes this the plan that the workers follow. Until then it is that of the configuration's
    /// `[[remote]]` sections. What both plans contain is not touched: streams, sequence numbers, counters.
    pub(crate) fn set_plan(&mut self, plan: Plan) {
        let now = self.now();
        self.planner.set_plan(now, plan);
        self.renew(now);
    }

    /// Makes the workers follow other rules.
    #[cfg(feature = "xdp")]
    pub(crate) fn set_filter(&mut self, filter: Arc<sig_core::dataplane::filter::Filter>) {
        self.planner.set_filter(filter);
        self.renew(self.now());
    }

    /// Tells the workers about a changed environment. Paths that stay usable keep their streams.
    pub fn update(&mut self, environment: &Environment) {
        self.environment = environment.clone();
        self.renew(self.now());
    }

    /// Makes these the ports on the LAN interface that has this number in [`Environment::lan`], an element for each worker; none: packets to
    /// there go to the tunnel device. See [`sig_core::engine::Engine::set_lan`]. `partial_checksums`: as
    /// [`Builder::partial_checksums`], for all LAN interfaces.
    ///
    /// # Errors
    ///
    /// If a worker has ended.
    pub fn set_lan(
        &self,
        number: usize,
        ports: Vec<Vec<Box<dyn Port>>>,
        partial_checksums: bool,
    ) -> io::Result<LanChange> {
        self.workers.set_lan(number, ports, partial_checksums)
    }

    /// Lets new flows use paths that came later than the flows before. To be called about every second
    /// where sessions have several paths.
    pub fn rebalance(&mut self) {
        let now = self.now();
        let moved = self
            .in_kernel
            .as_mut()
            .is_some_and(|programs| programs.look(now));
        if self.planner.rebalance(now) || moved {
            self.renew(now);
        }
    }

    fn renew(&mut self, now: u64) {
        let mut tables = self.planner.tables(now, &self.environment);
        if let Some(programs) = &mut self.in_kernel {
            programs.prepare(now, &mut tables);
        }
        self.tables.store(Arc::new(tables));
        if let Some(programs) = &mut self.in_kernel {
            programs.commit();
        }
    }

    /// Lets packets be packed by workers where that is better, given how many the fast path has sent by now. To be called every
    /// tenth of a second.
    #[cfg(feature = "xdp")]
    pub(crate) fn look_at_load(&mut self, sent: u64) {
        let now = self.now();
        let programs = self.in_kernel.as_mut();
        if programs.is_some_and(|programs| programs.look_at_load(now, sent)) {
            self.renew(now);
        }
    }

    /// The fast path, if there is one.
    #[cfg(feature = "xdp")]
    pub(crate) fn in_kernel(&mut self) -> Option<&mut (dyn InKernel + 'static)> {
        self.in_kernel.as_deref_mut()
    }

    /// Makes the programs send nothing more to the LAN interface with this number: workers do, as long as the tables name it.
    ///
    /// # Errors
    ///
    /// If the programs do not forget the device.
    #[cfg(feature = "xdp")]
    pub(crate) fn keep_programs_from(&mut self, number: u16) -> Result<(), crate::gateway::Error> {
        let Some(programs) = &mut self.in_kernel else {
            return Ok(());
        };
        let done = programs.set_lan(number, None);
        let now = self.now();
        self.renew(now);
        done
    }

    /// Where packets can be watched.
    #[cfg(feature = "xdp")]
    pub(crate) fn tap(&self) -> &Arc<Tap> {
        &self.tap
    }

    /// What the workers look up now.
    #[cfg(feature = "xdp")]
    pub(crate) fn tables(&self) -> Arc<Tables> {
        self.tables.load_full()
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Configuration, plan, paths, and what was counted on them.
    pub(crate) fn planner(&self) -> &Planner {
        &self.planner
    }

    /// Returns the environment that was last told.
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// Returns what each worker counts.
    pub fn counters(&self) -> &[Arc<WorkerCounters>] {
        self.workers.counters()
    }

    /// Returns whether all workers are running. One that is not has met a bug: make another engine.
    pub fn is_healthy(&self) -> bool {
        self.workers.is_healthy()
    }

    /// Returns the CPU of each worker; empty if the scheduler chooses.
    pub fn cpus(&self) -> &[usize] {
        &self.cpus
    }

    /// Returns when the engine started.
    pub fn started(&self) -> Instant {
        self.start
    }
}

fn engine_config(
    config: &Config,
    area: &Area,
    partial_checksums: bool,
    workers: usize,
) -> Result<EngineConfig, LimitsError> {
    let dataplane = &config.dataplane;
    let limits = limits(dataplane, area);
    limits.check()?;
    Ok(EngineConfig {
        worker: WorkerConfig {
            limits,
            verify_checksums: dataplane.verify_checksums,
            partial_checksums,
            clamp_mss: dataplane.clamp_mss,
        },
        busy_poll: dataplane.busy_poll,
        cpus: match &dataplane.pin {
            Pin::Never => Vec::new(),
            Pin::Auto => sig_core::engine::allowed_cpus()
                .into_iter()
                .cycle()
                .take(workers)
                .collect(),
            Pin::Cpus(cpus) => cpus.iter().map(|cpu| usize::from(*cpu)).collect(),
        },
        fast_path: None,
        sources: None,
        tap: Arc::default(),
    })
}

fn limits(dataplane: &Dataplane, area: &Area) -> Limits {
    let limits = &dataplane.limits;
    let nanoseconds =
        |duration: std::time::Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 2);
    Limits {
        max_packet: sig_core::dataplane::max_packet(area),
        max_frame_payload: match area.jumbo_frames() {
            0 => MAX_FRAME_PAYLOAD,
            _ => MAX_JUMBO_PAYLOAD,
        },
        reorder_frames: dataplane.reorder_frames.into(),
        reorder_wait_ns: nanoseconds(dataplane.reorder_wait),
        remotes: MAX_REMOTES,
        streams_total: limits.streams_total as usize,
        streams_per_remote: limits.streams_per_remote as usize,
        packets_total: limits.packets_total as usize,
        packets_per_remote: limits.packets_per_remote as usize,
        held_total: limits.held_total as usize,
        held_per_remote: limits.held_per_remote as usize,
        pending_timeout_ns: nanoseconds(limits.packet_timeout),
        idle_timeout_ns: nanoseconds(limits.stream_timeout),
    }
}
