//! A gateway on this machine's interfaces.
//!
//! [`Host::start`] makes the tunnel device, the AF_XDP ports, the BPF programs and the routes, runs a
//! [`Gateway`] over them, and keeps it in step with the kernel: next hops, MAC addresses, MTUs.
//! Nothing is left behind, however the process ends: programs and sockets end with their file
//! descriptors, the tunnel device and its routes with the private network namespace that its other
//! end lives in.

mod interfaces;
mod lan;
mod ports;
mod status;
mod surroundings;

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr, UdpSocket},
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use ipnet::IpNet;
use sig_common::{addr::IsdAs, maps::LanRoute};
use tokio::{sync::watch, task::JoinHandle};

use super::{
    Gateway, StartError, Surroundings,
    config::{Config, Remote},
};
use crate::{
    dataplane::icmp::Sources,
    kernel::{
        self,
        bpf::{Attachment, Logging, Programs, TcAttachment},
        inner_pair::{InnerPair, InnerPairConfig},
        lan::LanHops,
        neighbours::{NextHops, Snapshot, Timing},
        netlink::Netlink,
        netns,
        routes::{Route, Routes},
        watch::Watch,
    },
    observe::status::Status,
    port::xdp,
};
use interfaces::Interfaces;

/// How soon a vanished or changed neighbour is noticed.
const NEIGHBOURS: Timing = Timing {
    refresh: Duration::from_secs(2),
    retry: Duration::from_millis(500),
};

/// Why the gateway does not start, or stops. Each text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel does not do what is needed.
    #[error(transparent)]
    Kernel(#[from] kernel::Error),
    /// An interface is not as the configuration says, or cannot be used.
    #[error("{0}")]
    Interface(String),
    /// The AF_XDP sockets cannot be made.
    #[error(transparent)]
    Port(#[from] xdp::Error),
    /// The workers do not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The data address cannot be bound.
    #[error(
        "cannot bind the data address {address}: {source}; `[gateway] data_addr` must be an address \
         of this host with a UDP port that no other program uses"
    )]
    DataAddress {
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// An operation of the operating system failed.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: std::io::Error,
    },
}

/// A running gateway on this machine. [`Host::stop`] ends it in order; dropping it, or the process,
/// leaves nothing behind either.
pub struct Host {
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
    failed: watch::Receiver<Option<String>>,
    routes: Routes,
    pair: InnerPair,
    attached: Attached,
    _next_hops: NextHops,
    _lan_hops: Option<LanHops>,
    _watch: Watch,
    _data_socket: UdpSocket,
}

/// What the tasks and the status work on.
struct Shared {
    gateway: Mutex<Gateway>,
    programs: Mutex<Programs>,
    ports: Vec<ports::PortFacts>,
    sockets: Vec<xdp::Monitor>,
    /// Per worker, its place in `sockets`.
    of_worker: Vec<Range<usize>>,
    hops: watch::Receiver<Snapshot>,
    lan: lan::Transmit,
}

/// Programs on devices; they leave when this is dropped.
struct Attached {
    _xdp: Vec<Attachment>,
    _inject: TcAttachment,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Host {
    /// Starts a gateway. Must be called within a multi-threaded tokio runtime.
    ///
    /// # Errors
    ///
    /// If anything that is needed is missing, with what to do; nothing is left behind then.
    pub async fn start(config: Config) -> Result<Host, Error> {
        let system = |what| move |source| Error::System { what, source };
        let netlink = Netlink::open().map_err(system("open a netlink socket"))?;
        let watch = Watch::open()?;
        let interfaces = Interfaces::find(&netlink, &config).await?;
        let logging = match config.log.level {
            super::config::LogLevel::Debug | super::config::LogLevel::Trace => Logging::Debug,
            _ => Logging::Off,
        };
        let mut programs = Programs::load(logging)?;
        let data_socket = bind_data_address(config.gateway.data_addr)?;
        let pair = InnerPair::create(&InnerPairConfig {
            name: config.tunnel.name.clone(),
            queues: config.dataplane.workers.into(),
            mtu: config.tunnel.mtu.into(),
        })
        .await?;
        let mut ports = tokio::task::block_in_place(|| ports::open(&config, &interfaces, &pair))?;

        let mut inner_macs = [0; 12];
        inner_macs[..6].copy_from_slice(&pair.host().mac);
        inner_macs[6..].copy_from_slice(&pair.peer().mac);
        let surroundings = Surroundings {
            neighbours: HashMap::new(),
            inner_macs,
            icmp: icmp_sources(&config, &interfaces),
            lan: Arc::default(),
        };
        let gateway = Gateway::builder(config.clone())
            .surroundings(surroundings.clone())
            .partial_checksums(interfaces.any_virtual_lan())
            .ports(
                ports.area.clone(),
                ports.pool.clone(),
                std::mem::take(&mut ports.workers),
            )
            .start()?;

        fill_maps(&mut programs, &config, &interfaces, &gateway, &ports)?;
        let attached = attach(&mut programs, &config, &interfaces, &pair, &mut ports.facts)?;
        let routes = Routes::start(&netlink, &watch, pair.host().ifindex);
        routes.set(kernel_routes(&config)).await?;

        let next_hops = NextHops::new(&netlink, &watch, &interfaces.underlay.name, NEIGHBOURS);
        next_hops.set_targets(gateway.planner().next_hops());
        let mut tasks = Vec::new();
        if let Some(forward) = programs.forward_logs() {
            tasks.push(tokio::spawn(async move {
                if let Err(error) = forward.await {
                    tracing::warn!("messages of the BPF programs are no longer shown: {error}");
                }
            }));
        }
        let (lan, lan_hops) = lan::start(&config, &ports.facts, &netlink, &watch);
        let shared = Arc::new(Shared {
            gateway: Mutex::new(gateway),
            programs: Mutex::new(programs),
            ports: ports.facts,
            sockets: ports.monitors,
            of_worker: ports.of_worker,
            hops: next_hops.subscribe(),
            lan,
        });
        let (fail, failed) = watch::channel(None);
        tasks.push(tokio::spawn(surroundings::follow(
            shared.clone(),
            surroundings,
        )));
        for link in interfaces.all() {
            let state = watch.interface(&netlink, &link.name).await?;
            tasks.push(tokio::spawn(interfaces::follow(
                link.clone(),
                state,
                shared.clone(),
                fail.clone(),
            )));
        }
        tasks.push(tokio::spawn(watch_workers(shared.clone(), fail)));
        Ok(Host {
            shared,
            tasks,
            failed,
            routes,
            pair,
            attached,
            _next_hops: next_hops,
            _lan_hops: lan_hops,
            _watch: watch,
            _data_socket: data_socket,
        })
    }

    /// Waits until the gateway cannot go on, and says why. It must then be stopped and started again.
    pub async fn failed(&self) -> String {
        match self.failed.clone().wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_default(),
            // The senders live as long as the tasks, which end with the host.
            Err(_) => std::future::pending().await,
        }
    }

    /// Waits until at least one path of every remote can be used.
    pub async fn ready(&self) {
        let mut hops = self.shared.hops.clone();
        loop {
            let usable = {
                let gateway = lock(&self.shared.gateway);
                let planner = gateway.planner();
                let usable = |remote: usize| {
                    planner
                        .paths()
                        .iter()
                        .any(|p| p.remote == remote && !p.streams.is_empty())
                };
                (0..planner.config().remotes.len()).all(usable)
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
    /// programs, workers and the tunnel device.
    ///
    /// # Errors
    ///
    /// If the kernel refuses to remove something.
    pub async fn stop(self) -> Result<(), Error> {
        self.routes.close().await?;
        drop(self.attached);
        for task in &self.tasks {
            task.abort();
        }
        for task in self.tasks {
            // Aborted on purpose.
            let _ = task.await;
        }
        // The workers end with the last owner, their sockets with them.
        tokio::task::block_in_place(|| drop(self.shared));
        self.pair.delete().await?;
        Ok(())
    }
}

/// Keeps the port from other programs, and the kernel from answering frames with "port unreachable"
/// while no program is attached.
fn bind_data_address(address: SocketAddr) -> Result<UdpSocket, Error> {
    UdpSocket::bind(address).map_err(|source| Error::DataAddress { address, source })
}

/// ICMP errors come from the LAN side where hosts know the gateway, or else from whatever address the
/// configuration names.
fn icmp_sources(config: &Config, interfaces: &Interfaces) -> Sources {
    let addresses = || {
        let lan = interfaces
            .lan
            .iter()
            .flat_map(|link| &link.addresses)
            .map(IpNet::addr);
        lan.chain(config.tunnel.src_ipv4.map(IpAddr::V4))
            .chain(config.tunnel.src_ipv6.map(IpAddr::V6))
            .chain([config.gateway.data_addr.ip()])
    };
    Sources {
        v4: addresses().find_map(|address| match address {
            IpAddr::V4(v4) if !v4.is_link_local() => Some(v4),
            _ => None,
        }),
        v6: addresses().find_map(|address| match address {
            IpAddr::V6(v6) if !v6.is_unicast_link_local() => Some(v6),
            _ => None,
        }),
    }
}

/// The remotes' prefixes go into the tunnel; what is at home here stays, if a remote's prefix is wide
/// enough to hold it.
fn lan_routes(config: &Config, interfaces: &Interfaces) -> Vec<(IpNet, LanRoute)> {
    let mut routes = Vec::new();
    for remote in &config.remotes {
        routes.extend(
            remote
                .prefixes
                .iter()
                .map(|prefix| (*prefix, LanRoute::TUNNEL)),
        );
    }
    let connected = interfaces
        .all()
        .flat_map(|link| &link.addresses)
        .map(IpNet::trunc);
    let home = config.gateway.prefixes.iter().copied().chain(connected);
    let remote_prefixes: Vec<IpNet> = config
        .remotes
        .iter()
        .flat_map(|remote| remote.prefixes.clone())
        .collect();
    routes.extend(
        home.filter(|net| {
            remote_prefixes
                .iter()
                .any(|wide| wide.contains(net) && wide != net)
        })
        .map(|net| (net, LanRoute::PASS)),
    );
    routes
}

fn kernel_routes(config: &Config) -> Vec<Route> {
    let route = |prefix: &IpNet| Route {
        prefix: *prefix,
        source_hint: match prefix {
            IpNet::V4(_) => config.tunnel.src_ipv4.map(IpAddr::V4),
            IpNet::V6(_) => config.tunnel.src_ipv6.map(IpAddr::V6),
        },
    };
    config
        .remotes
        .iter()
        .flat_map(|remote| &remote.prefixes)
        .map(route)
        .collect()
}

fn fill_maps(
    programs: &mut Programs,
    config: &Config,
    interfaces: &Interfaces,
    gateway: &Gateway,
    ports: &ports::Ports,
) -> Result<(), Error> {
    programs.set_local(interfaces.underlay.ifindex, &gateway.planner().local())?;
    let source = |(number, remote): (usize, &Remote)| -> (IsdAs, IpAddr, u32) {
        (remote.isd_as, remote.gateway.ip(), number as u32)
    };
    programs.set_remotes(config.remotes.iter().enumerate().map(source))?;
    for link in &interfaces.lan {
        programs.set_lan_port(link.ifindex, interfaces::mac(link)?, true, link.mtu)?;
    }
    programs.set_lan_routes(lan_routes(config, interfaces))?;
    for (slot, socket) in &ports.sockets {
        programs.set_socket(*slot, std::os::fd::AsFd::as_fd(socket))?;
    }
    for (port, queue, sockets) in &ports.steering {
        programs.set_steering(*port, *queue, *sockets)?;
    }
    Ok(())
}

fn attach(
    programs: &mut Programs,
    config: &Config,
    interfaces: &Interfaces,
    pair: &InnerPair,
    facts: &mut [ports::PortFacts],
) -> Result<Attached, Error> {
    let mode = interfaces::xdp_mode(config.dataplane.mode);
    let mut xdp = Vec::new();
    for facts in facts.iter_mut() {
        let attachment = match facts.role {
            xdp::Role::Underlay => programs.attach_underlay(interfaces.underlay.ifindex, mode)?,
            xdp::Role::Lan => programs.attach_lan(facts.ifindex, mode)?,
            // A veth always has native mode.
            xdp::Role::Inner => {
                let (netns, ifindex) = (pair.netns(), pair.peer().ifindex);
                netns::run_in(netns, || programs.attach_inner(ifindex, None)).map_err(
                    |source| Error::System {
                        what: "enter the private network namespace",
                        source,
                    },
                )??
            }
        };
        if let Some(reason) = attachment.no_native() {
            tracing::warn!(
                interface = facts.interface,
                "the driver has no native XDP ({reason}): generic mode, which is slower"
            );
        }
        facts.native = attachment.mode() == kernel::bpf::XdpMode::Native;
        xdp.push(attachment);
    }
    let inject = programs.attach_inject(pair.host().ifindex)?;
    Ok(Attached {
        _xdp: xdp,
        _inject: inject,
    })
}

/// A worker ends early only by a defect; the gateway must not stay half alive.
async fn watch_workers(shared: Arc<Shared>, fail: watch::Sender<Option<String>>) {
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        if !lock(&shared.gateway).is_healthy() {
            fail.send_replace(Some("a worker thread ended unexpectedly".into()));
            return;
        }
    }
}
