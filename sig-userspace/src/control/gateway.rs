//! A gateway over given ports.

use std::{io, sync::Arc, time::Instant};

use arc_swap::ArcSwap;

use super::{
    config::{Config, Dataplane, Pin},
    plan::Plan,
    planner::{Environment, MAX_REMOTES, Planner},
};
use sig_core::{
    dataplane::{Tables, WorkerConfig, counters::WorkerCounters},
    engine::{Engine, EngineConfig, WorkerPorts},
    framing::{Limits, LimitsError},
    port::umem::{Area, Pool},
};

/// Longest frame payload that can be held for reordering: what a chunk can hold of it.
const MAX_FRAME_PAYLOAD: usize = 4096;

/// Why a gateway does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A limit of the configuration cannot work.
    #[error("[dataplane.limits]: {0}")]
    Limits(#[from] LimitsError),
    /// Workers lack ports, or threads cannot be started.
    #[error("cannot start the workers: {0}")]
    Engine(#[from] io::Error),
}

/// What a gateway is made of.
///
/// ```
/// use sig::{control::{Gateway, config}, engine::WorkerPorts, port::{memory, umem::Area}};
///
/// let text = r#"
///     [gateway]
///     isd_as = "1-ff00:0:110"
///     data_addr = "10.10.0.2:30056"
///     prefixes = ["192.168.10.0/24"]
/// "#;
/// let config = config::check(text, "gateway.toml", &|path| std::fs::read(path)).unwrap();
/// let (area, pool) = Area::on_heap(4096);
/// let (underlay, _scion_side) = memory::pair(64);
/// let (inner, _ip_side) = memory::pair(64);
/// let ports = WorkerPorts {
///     underlay: vec![Box::new(underlay)],
///     inner: vec![Box::new(inner)],
///     ..WorkerPorts::default()
/// };
/// let gateway = Gateway::builder(config).ports(area, pool, vec![ports]).start().unwrap();
/// assert_eq!(gateway.counters().len(), 1);
/// ```
pub struct Builder {
    config: Arc<Config>,
    surroundings: Environment,
    partial_checksums: bool,
}

/// A [`Builder`] that has ports for its workers.
pub struct BuilderWithPorts {
    builder: Builder,
    area: Arc<Area>,
    pool: Arc<Pool>,
    ports: Vec<WorkerPorts>,
}

/// A running gateway. Dropping it stops the workers.
pub struct Gateway {
    engine: Engine,
    tables: Arc<ArcSwap<Tables>>,
    planner: Planner,
    surroundings: Environment,
    cpus: Vec<usize>,
    start: Instant,
}

impl Builder {
    /// What the network around is like at the start: next hops, MAC addresses. Without any, no path
    /// can be used until [`Gateway::update`].
    #[must_use]
    pub fn surroundings(mut self, surroundings: Environment) -> Self {
        self.surroundings = surroundings;
        self
    }

    /// Whether hosts may leave transport checksums to their network card, as virtual Ethernet devices
    /// do. Default: no.
    #[must_use]
    pub fn partial_checksums(mut self, yes: bool) -> Self {
        self.partial_checksums = yes;
        self
    }

    /// The ports of each worker, all over the chunks of `area`, which `pool` holds.
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
    pub fn start(self) -> Result<Gateway, StartError> {
        let Builder {
            config,
            surroundings,
            partial_checksums,
        } = self.builder;
        let engine_config = engine_config(&config, partial_checksums, self.ports.len())?;
        let start = Instant::now();
        let mut planner = Planner::new(config, self.ports.len());
        let tables = Arc::new(ArcSwap::from_pointee(planner.tables(0, &surroundings)));
        let engine = Engine::start(&engine_config, &self.area, &self.pool, self.ports, &tables)?;
        Ok(Gateway {
            engine,
            tables,
            planner,
            surroundings,
            cpus: engine_config.cpus,
            start,
        })
    }
}

impl Gateway {
    /// Begins to build a gateway.
    pub fn builder(config: Config) -> Builder {
        Builder {
            config: Arc::new(config),
            surroundings: Environment::default(),
            partial_checksums: false,
        }
    }

    /// Makes this the plan that the workers follow. Until then it is that of the configuration's
    /// `[[remote]]` sections. What both plans contain is not touched: streams, sequence numbers, counters.
    pub fn set_plan(&mut self, plan: Plan) {
        let now = self.now();
        self.planner.set_plan(now, plan);
        self.renew(now);
    }

    /// Tells the workers about changed surroundings. Paths that stay usable keep their streams.
    pub fn update(&mut self, surroundings: &Environment) {
        self.surroundings = surroundings.clone();
        self.renew(self.now());
    }

    /// Lets new flows use paths that came later than the flows before. To be called about every second
    /// where sessions have several paths.
    pub fn rebalance(&mut self) {
        let now = self.now();
        if self.planner.rebalance(now) {
            self.renew(now);
        }
    }

    fn renew(&mut self, now: u64) {
        let tables = self.planner.tables(now, &self.surroundings);
        self.tables.store(Arc::new(tables));
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Configuration, plan, paths, and what was counted on them.
    pub fn planner(&self) -> &Planner {
        &self.planner
    }

    /// The surroundings that were last told.
    pub fn surroundings(&self) -> &Environment {
        &self.surroundings
    }

    /// What the workers count.
    pub fn counters(&self) -> &[Arc<WorkerCounters>] {
        self.engine.counters()
    }

    /// Whether all workers are running.
    pub fn is_healthy(&self) -> bool {
        self.engine.is_healthy()
    }

    /// The CPU of each worker; empty if the scheduler chooses.
    pub fn cpus(&self) -> &[usize] {
        &self.cpus
    }

    /// When the gateway started.
    pub fn started(&self) -> Instant {
        self.start
    }
}

fn engine_config(
    config: &Config,
    partial_checksums: bool,
    workers: usize,
) -> Result<EngineConfig, LimitsError> {
    let dataplane = &config.dataplane;
    let limits = limits(dataplane);
    limits.check()?;
    Ok(EngineConfig {
        worker: WorkerConfig {
            limits,
            verify_checksums: dataplane.verify_checksums,
            partial_checksums,
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
    })
}

fn limits(dataplane: &Dataplane) -> Limits {
    let limits = &dataplane.limits;
    let nanoseconds =
        |duration: std::time::Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 2);
    Limits {
        max_packet: sig_core::dataplane::MAX_PACKET,
        max_frame_payload: MAX_FRAME_PAYLOAD,
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
