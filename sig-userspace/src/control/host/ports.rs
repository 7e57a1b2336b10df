//! The ports of the gateway.

use std::{
    ops::Range,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use sig_common::maps::{Sockets as Slots, TUNNEL_PORT};

use super::{Error, interfaces::Interfaces, sockets::Sockets, tunnel::Tunnel};
use crate::control::config::{Config, FastPathUse, Preference};
use sig_core::{
    engine::WorkerPorts,
    port::{
        Monitor, Port, Role,
        umem::{Area, Pool},
    },
};
use sig_linux::{
    af_xdp::{BusyPoll, HugePages, Plan, PortSpec, RingSizes, ZeroCopy},
    link::{Link, MAX_JUMBO_MTU, MAX_XDP_MTU},
    socket_port::{self, SocketPort},
    tun,
};

/// Busy polling as the kernel's documentation of AF_XDP shows it.
const BUSY_POLL: BusyPoll = BusyPoll {
    micros: 20,
    budget: 64,
};

/// What a port is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Xdp,
    Socket,
    Tun,
}

/// What is known of a port, for the status.
pub(super) struct PortFacts {
    pub(super) role: Role,
    pub(super) kind: Kind,
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
    /// Whether an XDP program belongs to it.
    pub(super) fn has_xdp(&self) -> bool {
        self.kind == Kind::Xdp
    }

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
    /// Whether programs can take packets from one side to the other.
    pub(super) has_fast_path: bool,
    /// One per socket.
    pub(super) monitors: Vec<Box<dyn Monitor>>,
    /// Per worker, the places of its sockets among the monitors.
    pub(super) of_worker: Vec<Range<usize>>,
    /// Index in the table of sockets, and the socket.
    pub(super) sockets: Vec<(u32, OwnedFd)>,
    /// Port number for the programs, queue, sockets.
    pub(super) steering: Vec<(u32, u32, Slots)>,
}

/// Opens all ports.
pub(super) fn open(
    config: &Config,
    interfaces: &Interfaces,
    tunnel: &mut Tunnel,
    sockets: &mut Sockets,
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
    let underlay = interfaces.underlay.iter();
    let mut specs: Vec<_> = underlay.map(|link| spec(Role::Underlay, link)).collect();
    let first_lan = specs.len();
    specs.extend(interfaces.lan.iter().map(|link| spec(Role::Lan, link)));
    if let Some(pair) = tunnel.pair() {
        specs.push(PortSpec {
            role: Role::Tunnel,
            interface: pair.peer().name.clone(),
            namespace: Some(pair.netns()),
            queues: workers,
            spread: false,
            zero_copy: ZeroCopy::Never,
        });
    }
    let groups = sockets.groups().count() as u32;
    let tun_chunks = tunnel.pair().map_or(tun::CHUNKS, |_| 0);
    let more_chunks = workers * (groups * socket_port::CHUNKS + tun_chunks);
    let mut mtus = interfaces.all().map(|link| link.mtu);
    let jumbo = u32::from(config.tunnel.mtu) > MAX_XDP_MTU || mtus.any(|mtu| mtu > MAX_XDP_MTU);
    let plan = Plan {
        workers,
        ports: specs.clone(),
        rings: RingSizes::all(dataplane.ring_size),
        chunks: dataplane.chunks,
        jumbo,
        huge_pages: match dataplane.huge_pages {
            Preference::Never => HugePages::Never,
            Preference::Auto | Preference::Require => HugePages::Auto,
        },
        busy_poll: dataplane.busy_poll.then_some(BUSY_POLL),
    }
    .with_more_chunks(more_chunks)?;
    let opened = if specs.is_empty() {
        plan.without_sockets()?
    } else {
        plan.open()?
    };
    // The memory of sockets and TUN devices has none.
    if dataplane.huge_pages == Preference::Require && !specs.is_empty() && !opened.huge_pages {
        return Err(Error::Interface(
            "`[dataplane] huge_pages = \"require\"`, but not enough huge pages are free: reserve some \
             with `sysctl vm.nr_hugepages=N`"
                .into(),
        ));
    }

    let facts = specs.iter().enumerate().map(|(place, spec)| {
        let link = match spec.role {
            Role::Underlay => interfaces.underlay.as_ref(),
            Role::Lan => interfaces.lan.get(place - first_lan),
            Role::Tunnel => None,
        };
        let mut facts = match link {
            Some(link) => PortFacts::new(Kind::Xdp, spec.role, &link.name, link.mtu),
            None => PortFacts::new(
                Kind::Xdp,
                spec.role,
                tunnel.name(),
                config.tunnel.mtu.into(),
            ),
        };
        let peer = || tunnel.pair().map_or(0, |pair| pair.peer().ifindex);
        facts.ifindex = link.map_or_else(peer, |link| link.ifindex);
        facts.driver = link.map_or(Some("veth".into()), |link| link.driver.clone());
        facts.queues = spec.queues;
        facts
    });
    let mut ports = Ports {
        max_mtu: match opened.area.jumbo_frames() {
            0 => MAX_XDP_MTU,
            _ => MAX_JUMBO_MTU,
        },
        area: opened.area,
        pool: opened.pool,
        workers: Vec::new(),
        facts: facts.collect(),
        has_fast_path: interfaces.underlay.is_some(),
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
        let sockets = Slots {
            first: steering.first,
            count: steering.count,
        };
        ports.steering.push((port, steering.queue, sockets));
    }
    let queues: Vec<u32> = specs.iter().map(|spec| spec.queues.max(1)).collect();
    drop(specs);
    let mut others = others(config, tunnel, sockets, &mut ports)?;
    for (number, worker) in opened.workers.into_iter().enumerate() {
        let mut own = WorkerPorts::default();
        own.lan.resize_with(interfaces.lan.len(), Vec::new);
        let first = ports.monitors.len();
        for mut opened in worker {
            if dataplane.fast_path != FastPathUse::Off && ports.has_fast_path {
                opened.port.expect_tickets(opened.slot);
            }
            ports.facts[opened.spec].zero_copy |= opened.port.is_zero_copy();
            let monitor = opened.port.monitor().map_err(COPY)?;
            ports.watch(opened.spec, number, opened.queue, monitor);
            let socket = opened.port.as_fd().try_clone_to_owned().map_err(COPY)?;
            ports.sockets.push((opened.slot, socket));
            let side = match opened.role {
                Role::Underlay => &mut own.underlay,
                // The specs of the LAN interfaces are in their order.
                Role::Lan => &mut own.lan[opened.spec - first_lan],
                Role::Tunnel => &mut own.tunnel,
            };
            // The first port of a side, or of a LAN interface, is the one frames leave through: the
            // workers' are on different queues, as far as there are some.
            if opened.queue == number as u32 % queues[opened.spec] {
                side.insert(0, Box::new(opened.port));
            } else {
                side.push(Box::new(opened.port));
            }
        }
        for other in others
            .get_mut(number)
            .into_iter()
            .flat_map(|of| of.drain(..))
        {
            ports.watch(other.facts, number, other.queue, other.monitor);
            match ports.facts[other.facts].role {
                Role::Tunnel => own.tunnel.push(other.port),
                Role::Underlay | Role::Lan => own.underlay.push(other.port),
            }
        }
        ports.of_worker.push(first..ports.monitors.len());
        ports.workers.push(own);
    }
    Ok(ports)
}

/// What a failure to copy a descriptor is.
const COPY: fn(std::io::Error) -> Error = |source| Error::System {
    what: "copy a socket's file descriptor",
    source,
};

/// A port that is not of AF_XDP.
struct Other {
    /// Place of what is known of it.
    facts: usize,
    queue: u32,
    monitor: Box<dyn Monitor>,
    port: Box<dyn Port>,
}

/// Makes the ports over UDP sockets and TUN device, by worker; what is known of them is added to that of `ports`.
fn others(
    config: &Config,
    tunnel: &mut Tunnel,
    sockets: &mut Sockets,
    ports: &mut Ports,
) -> Result<Vec<Vec<Other>>, Error> {
    let workers = usize::from(config.dataplane.workers);
    let mut others: Vec<Vec<Other>> = (0..workers).map(|_| Vec::new()).collect();
    let underlay = ports.facts.len();
    for (group, queue) in sockets.groups().zip(0..) {
        if queue == 0 {
            let facts = PortFacts::new(Kind::Socket, Role::Underlay, SOCKETS, MAX_XDP_MTU);
            ports.facts.push(facts);
        }
        ports.facts[underlay].queues = queue + 1;
        for (socket, own) in group.workers.drain(..).zip(&mut others) {
            let port = SocketPort::new(socket, ports.area.clone()).map_err(COPY)?;
            own.push(Other {
                facts: underlay,
                queue,
                monitor: port.monitor().map_err(COPY)?,
                port: Box::new(port),
            });
        }
    }
    if let Tunnel::Tun(tun) = tunnel {
        let name = tun.name().to_owned();
        let mut facts = PortFacts::new(Kind::Tun, Role::Tunnel, &name, config.tunnel.mtu.into());
        facts.driver = Some("tun".into());
        facts.queues = workers as u32;
        let place = ports.facts.len();
        ports.facts.push(facts);
        for ((port, queue), own) in tun.ports(&ports.area).into_iter().zip(0..).zip(&mut others) {
            own.push(Other {
                facts: place,
                queue,
                monitor: port.monitor(),
                port: Box::new(port),
            });
        }
    }
    Ok(others)
}

/// Stands for an interface where frames leave by UDP sockets.
const SOCKETS: &str = "udp";

impl Ports {
    /// Notes a socket of worker `number`.
    fn watch(&mut self, facts: usize, number: usize, queue: u32, monitor: Box<dyn Monitor>) {
        self.facts[facts].sockets.push(SocketFacts {
            place: self.monitors.len(),
            worker: number as u16,
            queue,
        });
        self.monitors.push(monitor);
    }
}

impl PortFacts {
    fn new(kind: Kind, role: Role, interface: &str, mtu: u32) -> Self {
        PortFacts {
            role,
            kind,
            interface: interface.to_owned(),
            ifindex: 0,
            driver: None,
            queues: 1,
            mtu: AtomicU32::new(mtu),
            zero_copy: false,
            up: AtomicBool::new(true),
            native: false,
            sockets: Vec::new(),
        }
    }
}
