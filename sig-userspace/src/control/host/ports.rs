//! The AF_XDP ports of the gateway.

use std::{
    ops::Range,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use sig_common::maps::{Sockets, TUNNEL_PORT};

use super::{Error, interfaces::Interfaces};
use crate::control::config::{Config, FastPathUse, Preference};
use sig_core::{
    engine::WorkerPorts,
    port::{
        Monitor, Role,
        umem::{Area, Pool},
    },
};
use sig_linux::{
    af_xdp::{BusyPoll, HugePages, Plan, PortSpec, RingSizes, ZeroCopy},
    link::{Link, MAX_JUMBO_MTU, MAX_XDP_MTU},
    tunnel_pair::TunnelPair,
};

/// Busy polling as the kernel's documentation of AF_XDP shows it.
const BUSY_POLL: BusyPoll = BusyPoll {
    micros: 20,
    budget: 64,
};

/// What is known of a port, for the status.
pub(super) struct PortFacts {
    pub(super) role: Role,
    pub(super) interface: String,
    pub(super) ifindex: u32,
    pub(super) driver: Option<String>,
    pub(super) queues: u32,
    /// As far as is known.
    pub(super) mtu: AtomicU32,
    pub(super) zero_copy: bool,
    /// Whether the link is up, as far as is known.
    pub(super) up: AtomicBool,
    /// Set when the program is attached.
    pub(super) native: bool,
    pub(super) sockets: Vec<SocketFacts>,
}

/// What is known of a socket, for the status.
#[derive(Clone, Copy)]
pub(super) struct SocketFacts {
    /// Its place in the list of monitors.
    pub(super) place: usize,
    pub(super) worker: u16,
    pub(super) queue: u32,
}

impl PortFacts {
    pub(super) fn is_lan(&self) -> bool {
        self.role == Role::Lan
    }

    pub(super) fn is_inner(&self) -> bool {
        self.role == Role::Tunnel
    }

    pub(super) fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    pub(super) fn set_up(&self, up: bool) {
        self.up.store(up, Ordering::Relaxed);
    }
}

/// The open ports, and what the BPF programs must know of them.
pub(super) struct Ports {
    pub(super) area: Arc<Area>,
    pub(super) pool: Arc<Pool>,
    /// Largest MTU that packets may have.
    pub(super) max_mtu: u32,
    pub(super) workers: Vec<WorkerPorts>,
    pub(super) facts: Vec<PortFacts>,
    /// One per socket.
    pub(super) monitors: Vec<Box<dyn Monitor>>,
    /// Per worker, the places of its sockets among the monitors.
    pub(super) of_worker: Vec<Range<usize>>,
    /// Index in the table of sockets, and the socket.
    pub(super) sockets: Vec<(u32, OwnedFd)>,
    /// Port number for the programs, queue, sockets.
    pub(super) steering: Vec<(u32, u32, Sockets)>,
}

/// Opens all sockets.
pub(super) fn open(
    config: &Config,
    interfaces: &Interfaces,
    pair: &TunnelPair,
) -> Result<Ports, Error> {
    let dataplane = &config.dataplane;
    let workers = u32::from(dataplane.workers);
    let zero_copy = match dataplane.zero_copy {
        Preference::Auto => ZeroCopy::Auto,
        Preference::Never => ZeroCopy::Never,
        Preference::Require => ZeroCopy::Require,
    };
    let spec = |role, link: &Link| PortSpec {
        role,
        interface: link.name.clone(),
        namespace: None,
        queues: link.rx_queues,
        // All frames between two gateways share one 5-tuple, so a card puts them on one queue: each
        // worker listens on every queue. LAN traffic spreads by itself, given queues enough.
        spread: workers > 1 && (role == Role::Underlay || link.rx_queues < workers),
        zero_copy,
    };
    let mut specs = vec![spec(Role::Underlay, &interfaces.underlay)];
    specs.extend(interfaces.lan.iter().map(|link| spec(Role::Lan, link)));
    specs.push(PortSpec {
        role: Role::Tunnel,
        interface: pair.peer().name.clone(),
        namespace: Some(pair.netns()),
        queues: workers,
        spread: false,
        zero_copy: ZeroCopy::Never,
    });
    let rings = RingSizes::all(dataplane.ring_size);
    let mut mtus = interfaces.all().map(|link| link.mtu);
    let jumbo = u32::from(config.tunnel.mtu) > MAX_XDP_MTU || mtus.any(|mtu| mtu > MAX_XDP_MTU);
    let opened = Plan {
        workers,
        ports: specs.clone(),
        rings,
        chunks: dataplane.chunks,
        jumbo,
        huge_pages: match dataplane.huge_pages {
            Preference::Never => HugePages::Never,
            Preference::Auto | Preference::Require => HugePages::Auto,
        },
        busy_poll: dataplane.busy_poll.then_some(BUSY_POLL),
    }
    .open()?;
    if dataplane.huge_pages == Preference::Require && !opened.huge_pages {
        return Err(Error::Interface(
            "`[dataplane] huge_pages = \"require\"`, but not enough huge pages are free: reserve some \
             with `sysctl vm.nr_hugepages=N`"
                .into(),
        ));
    }

    let mut ports = Ports {
        area: opened.area,
        pool: opened.pool,
        max_mtu: if jumbo { MAX_JUMBO_MTU } else { MAX_XDP_MTU },
        workers: Vec::new(),
        facts: facts(&specs, interfaces, config, pair),
        monitors: Vec::new(),
        of_worker: Vec::new(),
        sockets: Vec::new(),
        steering: Vec::new(),
    };
    for steering in opened.steering {
        let port = match specs[steering.spec].role {
            Role::Tunnel => TUNNEL_PORT,
            Role::Underlay | Role::Lan => steering.ifindex,
        };
        let sockets = Sockets {
            first: steering.first,
            count: steering.count,
        };
        ports.steering.push((port, steering.queue, sockets));
    }
    for (number, worker) in opened.workers.into_iter().enumerate() {
        let mut own = WorkerPorts::default();
        own.lan.resize_with(interfaces.lan.len(), Vec::new);
        let first = ports.monitors.len();
        for mut opened in worker {
            let system = |source| Error::System {
                what: "copy a socket's file descriptor",
                source,
            };
            if dataplane.fast_path != FastPathUse::Off {
                opened.port.expect_tickets(opened.slot);
            }
            let facts = &mut ports.facts[opened.spec];
            facts.zero_copy |= opened.port.is_zero_copy();
            facts.sockets.push(SocketFacts {
                place: ports.monitors.len(),
                worker: number as u16,
                queue: opened.queue,
            });
            ports.monitors.push(opened.port.monitor().map_err(system)?);
            let socket = opened.port.as_fd().try_clone_to_owned().map_err(system)?;
            ports.sockets.push((opened.slot, socket));
            let side = match opened.role {
                Role::Underlay => &mut own.underlay,
                // The specs are the underlay, then the LAN interfaces in their order.
                Role::Lan => &mut own.lan[opened.spec - 1],
                Role::Tunnel => &mut own.tunnel,
            };
            // The first port of a side, or of a LAN interface, is the one frames leave through: the
            // workers' are on different queues, as far as there are some.
            let queues = specs[opened.spec].queues.max(1);
            if opened.queue == number as u32 % queues {
                side.insert(0, Box::new(opened.port));
            } else {
                side.push(Box::new(opened.port));
            }
        }
        ports.of_worker.push(first..ports.monitors.len());
        ports.workers.push(own);
    }
    Ok(ports)
}

fn facts(
    specs: &[PortSpec<'_>],
    interfaces: &Interfaces,
    config: &Config,
    pair: &TunnelPair,
) -> Vec<PortFacts> {
    let mut links = interfaces.all();
    let fact = |spec: &PortSpec<'_>| {
        let link = if spec.role == Role::Tunnel {
            None
        } else {
            links.next()
        };
        PortFacts {
            role: spec.role,
            interface: link.map_or(&pair.host().name, |link| &link.name).clone(),
            ifindex: link.map_or(pair.peer().ifindex, |link| link.ifindex),
            driver: link.map_or(Some("veth".into()), |link| link.driver.clone()),
            queues: spec.queues,
            mtu: AtomicU32::new(link.map_or(config.tunnel.mtu.into(), |link| link.mtu)),
            zero_copy: false,
            up: AtomicBool::new(true),
            native: false,
            sockets: Vec::new(),
        }
    };
    specs.iter().map(fact).collect()
}
