//! The ports of the gateway.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use sig_common::maps::{Sockets as Slots, TUNNEL_PORT};

use super::{Error, interfaces::Interfaces, sockets::Sockets, trunks::Trunk, tunnel::Tunnel};
use crate::control::config::{Config, Dataplane, FastPathUse, Preference};
use crate::engine::Device;
use sig_core::{
    engine::WorkerPorts,
    port::{
        Monitor, Port, Role,
        umem::{Area, Pool},
    },
};
use sig_linux::{
    af_xdp::{
        BusyPoll, HugePages, Opener, Plan, PortSpec, RingSizes, Steering, WorkerPort, ZeroCopy,
    },
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
    /// Simple packets that come in may take the fast path.
    pub(super) fast: bool,
    /// Where its program and its sockets are, if not on itself.
    pub(super) trunk: Option<Trunk>,
    pub(super) sockets: Vec<SocketFacts>,
}

/// What is known of a socket, for the status.
pub(super) struct SocketFacts {
    pub(super) worker: u16,
    pub(super) queue: u32,
    pub(super) monitor: Box<dyn Monitor>,
}

impl PortFacts {
    /// Whether an XDP program belongs to it.
    pub(super) fn has_xdp(&self) -> bool {
        self.kind == Kind::Xdp
    }

    pub(super) fn is_lan(&self) -> bool {
        self.role == Role::Lan
    }

    /// Whether its frames have a tag on the interface that they leave by.
    pub(super) fn is_in_vlan(&self) -> bool {
        self.trunk.as_ref().is_some_and(|trunk| trunk.tag.is_some())
    }

    pub(super) fn is_inner(&self) -> bool {
        self.role == Role::Tunnel
    }

    /// The device, for the fast path.
    pub(super) fn device(&self) -> Device {
        Device {
            ifindex: self.ifindex,
            interface: self.interface.clone(),
            is_veth: self.driver.as_deref() == Some("veth"),
            native: self.native,
            in_vlan: self.is_in_vlan(),
        }
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
    /// Index in the table of sockets, and the socket.
    pub(super) sockets: Vec<(u32, OwnedFd)>,
    /// All indexes are below this.
    pub(super) slots: u32,
    /// Port number for the programs, queue, sockets.
    pub(super) steering: Vec<(u32, u32, Slots)>,
    /// For LAN interfaces, if XDP programs can run there.
    pub(super) opener: Option<Opener>,
}

/// Sockets of interfaces that nobody knows of yet, per worker.
const SPARE_SOCKETS: u32 = 16;

/// The sockets wanted on an interface of this host, which may be there already, for a VLAN of the trunk that it is served on.
pub(super) fn spec(
    dataplane: &Dataplane,
    role: Role,
    (name, link): (&str, Option<&Link>),
    trunk: Option<&Trunk>,
) -> PortSpec<'static> {
    let link = trunk.map(|trunk| &trunk.link).or(link);
    let name = link.map_or(name, |link| link.name.as_str());
    let queues = link.map_or(1, |link| link.rx_queues);
    let workers = u32::from(dataplane.workers);
    PortSpec {
        role,
        interface: name.to_owned(),
        ifindex: link.map(|link| link.ifindex),
        namespace: None,
        queues,
        // All frames between two gateways share one 5-tuple, so a card puts them on one queue: each
        // worker listens on every queue. LAN traffic spreads by itself, given queues enough.
        spread: workers > 1 && (role == Role::Underlay || queues < workers),
        zero_copy: match dataplane.zero_copy {
            Preference::Auto => ZeroCopy::Auto,
            Preference::Never => ZeroCopy::Never,
            Preference::Require => ZeroCopy::Require,
        },
        tag: trunk.and_then(|trunk| trunk.tag),
    }
}

/// Opens all ports but those on LAN interfaces.
pub(super) fn open(
    config: &Config,
    interfaces: &Interfaces,
    has_bpf: bool,
    tunnel: &mut Tunnel,
    sockets: &mut Sockets,
) -> Result<Ports, Error> {
    let dataplane = &config.dataplane;
    let workers = u32::from(dataplane.workers);
    let spec = |role, name: &str, link: Option<&Link>| {
        let trunk = link.and_then(|link| interfaces.served_on.get(&link.ifindex));
        spec(dataplane, role, (name, link), trunk)
    };
    let underlay = interfaces.underlay.iter();
    let mut specs: Vec<_> = underlay
        .map(|link| spec(Role::Underlay, &link.name, Some(link)))
        .collect();
    let lan = dataplane.lan.iter().filter(|_| has_bpf).map(|name| {
        let mut known = interfaces.lan.iter();
        spec(Role::Lan, name, known.find(|link| link.name == *name))
    });
    let later: Vec<_> = lan.collect();
    if let Some(pair) = tunnel.pair() {
        specs.push(PortSpec {
            role: Role::Tunnel,
            interface: pair.peer().name.clone(),
            ifindex: None,
            namespace: Some(pair.netns()),
            queues: workers,
            spread: false,
            zero_copy: ZeroCopy::Never,
            tag: None,
        });
    }
    let groups = sockets.groups().count() as u32;
    let tun_chunks = tunnel.pair().map_or(tun::CHUNKS, |_| 0);
    let more_chunks = workers * (groups * socket_port::CHUNKS + tun_chunks);
    let below = interfaces.all().map(|link| interfaces.below(link));
    let mut mtus = interfaces.all().chain(below).map(|link| link.mtu);
    let jumbo = u32::from(config.tunnel.mtu) > MAX_XDP_MTU || mtus.any(|mtu| mtu > MAX_XDP_MTU);
    let plan = Plan {
        workers,
        ports: specs.clone(),
        later,
        spare_sockets: workers * SPARE_SOCKETS,
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
    // Where there are no XDP programs, all ports are of other kinds.
    let opened = match has_bpf {
        false => plan.without_sockets()?,
        true => plan.open()?,
    };
    // The memory of sockets and TUN devices has none.
    if dataplane.huge_pages == Preference::Require && has_bpf && !opened.huge_pages {
        return Err(Error::Interface(
            "`[dataplane] huge_pages = \"require\"`, but not enough huge pages are free: reserve some \
             with `sysctl vm.nr_hugepages=N`"
                .into(),
        ));
    }

    let facts = specs.iter().map(|spec| match &interfaces.underlay {
        Some(link) if spec.role == Role::Underlay => {
            let trunk = interfaces.served_on.get(&link.ifindex);
            PortFacts::of(spec, link, trunk.cloned())
        }
        _ => {
            let mtu = config.tunnel.mtu.into();
            let mut facts = PortFacts::new(Kind::Xdp, spec.role, tunnel.name(), mtu);
            facts.ifindex = tunnel.pair().map_or(0, |pair| pair.peer().ifindex);
            facts.driver = Some("veth".into());
            facts.queues = spec.queues;
            facts
        }
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
        sockets: Vec::new(),
        slots: opened.slots,
        steering: Vec::new(),
        opener: opened.opener,
    };
    for steering in opened.steering {
        let port = match specs[steering.spec].role {
            Role::Tunnel => TUNNEL_PORT,
            // That of a VLAN device, where the sockets are on the trunk.
            Role::Underlay | Role::Lan => ports.facts[steering.spec].ifindex,
        };
        ports.steering.push(steered(port, &steering));
    }
    let queues: Vec<u32> = specs.iter().map(|spec| spec.queues.max(1)).collect();
    drop(specs);
    let has_tickets = has_tickets(config, ports.has_fast_path);
    let mut others = others(config, tunnel, sockets, &mut ports)?;
    for (number, worker) in opened.workers.into_iter().enumerate() {
        let mut own = WorkerPorts::default();
        for opened in worker {
            let facts = &mut ports.facts[opened.spec];
            let side = match opened.role {
                Role::Underlay | Role::Lan => &mut own.underlay,
                Role::Tunnel => &mut own.tunnel,
            };
            let queues = queues[opened.spec];
            ports
                .sockets
                .push(add(side, facts, (number, queues), opened, has_tickets)?);
        }
        for other in others
            .get_mut(number)
            .into_iter()
            .flat_map(|of| of.drain(..))
        {
            ports.facts[other.facts].watch(number, other.queue, other.monitor);
            match ports.facts[other.facts].role {
                Role::Tunnel => own.tunnel.push(other.port),
                Role::Underlay | Role::Lan => own.underlay.push(other.port),
            }
        }
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

/// Whether XDP programs give packets for workers tickets.
fn has_tickets(config: &Config, has_fast_path: bool) -> bool {
    config.dataplane.fast_path != FastPathUse::Off && has_fast_path
}

fn steered(port: u32, steering: &Steering) -> (u32, u32, Slots) {
    let sockets = Slots {
        first: steering.first,
        count: steering.count,
    };
    (port, steering.queue, sockets)
}

/// Adds a port of AF_XDP to those of a worker on a side, or on a LAN interface, with so many queues; its slot, and its socket.
fn add(
    side: &mut Vec<Box<dyn Port>>,
    facts: &mut PortFacts,
    (worker, queues): (usize, u32),
    mut opened: WorkerPort,
    has_tickets: bool,
) -> Result<(u32, OwnedFd), Error> {
    if has_tickets {
        opened.port.expect_tickets(opened.slot);
    }
    facts.zero_copy |= opened.port.is_zero_copy();
    let monitor = opened.port.monitor().map_err(COPY)?;
    facts.watch(worker, opened.queue, monitor);
    let socket = opened.port.as_fd().try_clone_to_owned().map_err(COPY)?;
    // The first port of a side, or of a LAN interface, is the one frames leave through: the workers' are on different queues, as far as
    // there are some.
    let place = match opened.queue == worker as u32 % queues {
        true => 0,
        false => side.len(),
    };
    side.insert(place, Box::new(opened.port));
    Ok((opened.slot, socket))
}

/// The ports on one LAN interface, and what the BPF programs must know of them.
pub(super) struct LanPorts {
    /// Per worker.
    pub(super) workers: Vec<Vec<Box<dyn Port>>>,
    pub(super) facts: PortFacts,
    /// As in [`Ports`].
    pub(super) sockets: Vec<(u32, OwnedFd)>,
    pub(super) steering: Vec<(u32, u32, Slots)>,
}

impl LanPorts {
    /// Puts together what was opened for an interface.
    pub(super) fn new(
        config: &Config,
        mut facts: PortFacts,
        (worker_ports, steering): (Vec<Vec<WorkerPort>>, &[Steering]),
        has_fast_path: bool,
    ) -> Result<Self, Error> {
        let mut sockets = Vec::new();
        let mut workers = Vec::new();
        let has_tickets = has_tickets(config, has_fast_path);
        for (number, ports) in worker_ports.into_iter().enumerate() {
            let mut own = Vec::new();
            for opened in ports {
                let place = (number, facts.queues.max(1));
                sockets.push(add(&mut own, &mut facts, place, opened, has_tickets)?);
            }
            workers.push(own);
        }
        let steering = steering.iter();
        Ok(LanPorts {
            steering: steering.map(|of| steered(facts.ifindex, of)).collect(),
            workers,
            facts,
            sockets,
        })
    }
}

impl PortFacts {
    /// Those of an interface of this host.
    pub(super) fn of(spec: &PortSpec<'_>, link: &Link, trunk: Option<Trunk>) -> Self {
        let mut facts = PortFacts::new(Kind::Xdp, spec.role, &link.name, link.mtu);
        let below = trunk.as_ref().map_or(link, |trunk| &trunk.link);
        facts.ifindex = link.ifindex;
        facts.driver.clone_from(&below.driver);
        facts.queues = spec.queues;
        facts.trunk = trunk;
        facts
    }

    /// Notes a socket of worker `number`.
    fn watch(&mut self, number: usize, queue: u32, monitor: Box<dyn Monitor>) {
        self.sockets.push(SocketFacts {
            worker: number as u16,
            queue,
            monitor,
        });
    }

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
            fast: false,
            trunk: None,
            sockets: Vec::new(),
        }
    }
}
