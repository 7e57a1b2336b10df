//! The border router of an AS.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap},
    io,
    net::SocketAddr,
    os::fd::AsRawFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, Result};
use sig_common::{addr::IsdAs, wire::scion::ENDHOST_PORT};
use sig_router::forward::{self, Ingress, Links, Verdict};
use testbed::Netns;
use tokio::{
    net::UdpSocket,
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep_until},
};

use crate::{
    link::{Fate, Link},
    place::{Place, Running},
    topology::Topology,
};

/// Longest packet.
const MAX_PACKET: usize = 1 << 16;
/// Packets on a link with delay; more are lost.
const MAX_UNDER_WAY: usize = 1 << 14;
/// Receive and send buffer of a socket, in bytes.
static BUFFER: libc::c_int = 4 << 20;

/// What a router did with packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Sent to another AS.
    pub forwarded: u64,
    /// Sent to a host of the AS.
    pub delivered: u64,
    /// Answered by the router itself.
    pub answered: u64,
    /// Lost on a link that was to lose them.
    pub lost: u64,
    /// Thrown away, and why.
    pub dropped: BTreeMap<&'static str, u64>,
}

/// The border router of an AS, at all its interfaces. It ends when dropped.
#[derive(Debug)]
pub struct Router {
    counters: Arc<Mutex<Counters>>,
    _running: Running,
}

impl Router {
    /// Starts the router of `isd_as` inside `netns`, or in the network namespace of the process.
    ///
    /// # Errors
    /// The AS is not in the topology, or one of its addresses cannot be bound.
    pub fn start(netns: Option<&Netns>, topology: &Arc<Topology>, isd_as: IsdAs) -> Result<Self> {
        let own = topology
            .find(isd_as)
            .with_context(|| format!("no {isd_as}"))?
            .clone();
        let counters = Arc::new(Mutex::new(Counters::default()));
        let (topology, shared) = (Arc::clone(topology), Arc::clone(&counters));
        let running = Place::new(netns)?.run(&format!("router {isd_as}"), async move || {
            let mut ports = HashMap::new();
            for (link, end) in topology.links_of(isd_as) {
                let port = Port::open(link, end).await?;
                ports.insert(link.ends[end].interface, port);
            }
            let inside = bind(own.router).await?;
            let router = Arc::new(Shared {
                engine: forward::Router::new(Arc::new(topology.model(&own))),
                control_service: own.control_service,
                inside,
                ports,
                counters: shared,
            });
            Ok(serve(router))
        })?;
        Ok(Self {
            counters,
            _running: running,
        })
    }

    /// What it did so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        lock(&self.counters).clone()
    }
}

fn lock(counters: &Mutex<Counters>) -> MutexGuard<'_, Counters> {
    counters.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The near end of a link.
#[derive(Debug)]
struct Port {
    link: Arc<Link>,
    end: usize,
    socket: Arc<UdpSocket>,
    /// Packets to be sent later.
    under_way: mpsc::Sender<(Instant, Vec<u8>)>,
    /// Sends them.
    _carrier: JoinSet<()>,
}

impl Port {
    async fn open(link: &Arc<Link>, end: usize) -> Result<Self> {
        let socket = Arc::new(bind(link.ends[end].underlay).await?);
        let (under_way, mut packets) = mpsc::channel::<(Instant, Vec<u8>)>(MAX_UNDER_WAY);
        let mut carrier = JoinSet::new();
        carrier.spawn({
            let (link, socket) = (Arc::clone(link), Arc::clone(&socket));
            async move {
                while let Some((arrival, packet)) = packets.recv().await {
                    sleep_until(arrival).await;
                    carry(&link, end, &socket, &packet).await;
                }
            }
        });
        Ok(Self {
            link: Arc::clone(link),
            end,
            socket,
            under_way,
            _carrier: carrier,
        })
    }
}

async fn carry(link: &Link, end: usize, socket: &UdpSocket, packet: &[u8]) {
    let far = link.ends[1 - end].underlay;
    if socket.send_to(packet, far).await.is_ok() {
        link.count(end);
    }
}

struct Shared {
    engine: forward::Router,
    /// Gets what is for the end host port of its host: there is no dispatcher.
    control_service: SocketAddr,
    inside: UdpSocket,
    ports: HashMap<u16, Port>,
    counters: Arc<Mutex<Counters>>,
}

async fn serve(router: Arc<Shared>) {
    let mut receivers = JoinSet::new();
    receivers.spawn({
        let router = Arc::clone(&router);
        async move {
            let mut buffer = vec![0; MAX_PACKET];
            loop {
                if let Ok((len, from)) = router.inside.recv_from(&mut buffer).await {
                    router
                        .handle(&mut buffer[..len], Ingress::Internal(from))
                        .await;
                }
            }
        }
    });
    for (interface, port) in &router.ports {
        let (router, interface) = (Arc::clone(&router), *interface);
        let (socket, far) = (
            Arc::clone(&port.socket),
            port.link.ends[1 - port.end].underlay,
        );
        receivers.spawn(async move {
            let mut buffer = vec![0; MAX_PACKET];
            loop {
                match socket.recv_from(&mut buffer).await {
                    Ok((len, from)) if from == far => {
                        router
                            .handle(&mut buffer[..len], Ingress::External(interface))
                            .await;
                    }
                    _ => {}
                }
            }
        });
    }
    while receivers.join_next().await.is_some() {}
}

impl Links for Shared {
    fn is_interface_up(&self, interface: u16) -> bool {
        let port = self.ports.get(&interface);
        port.is_some_and(|port| port.link.is_up())
    }

    fn is_sibling_up(&self, _: usize) -> bool {
        true
    }

    fn most(&self, interface: u16) -> Option<u16> {
        let port = self.ports.get(&interface);
        port.map(|port| port.link.current_mtu())
    }
}

impl Shared {
    async fn handle(&self, packet: &mut [u8], ingress: Ingress) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.unwrap_or_default();
        match self.engine.process(packet, ingress, now, self).verdict {
            Verdict::Forward { interface } => self.forward(interface, packet).await,
            Verdict::Deliver(mut to) => {
                if to == SocketAddr::new(self.control_service.ip(), ENDHOST_PORT) {
                    to = self.control_service;
                }
                lock(&self.counters).delivered += 1;
                let _ = self.inside.send_to(packet, to).await;
            }
            Verdict::Answer(answer) => {
                lock(&self.counters).answered += 1;
                match ingress {
                    Ingress::Internal(from) => {
                        let _ = self.inside.send_to(&answer, from).await;
                    }
                    Ingress::External(interface) => self.forward(interface, &answer).await,
                }
            }
            Verdict::Drop(reason) => self.drop(reason.name()),
            Verdict::Sibling(_) => self.drop("sibling"),
            Verdict::Bfd { .. } => self.drop("bfd"),
            Verdict::Stun => self.drop("stun"),
        }
    }

    fn drop(&self, reason: &'static str) {
        *lock(&self.counters).dropped.entry(reason).or_default() += 1;
    }

    async fn forward(&self, interface: u16, packet: &[u8]) {
        let Some(port) = self.ports.get(&interface) else {
            return;
        };
        let Fate::Arrives { after } = port.link.fate() else {
            lock(&self.counters).lost += 1;
            return;
        };
        lock(&self.counters).forwarded += 1;
        if after == Duration::ZERO {
            carry(&port.link, port.end, &port.socket, packet).await;
        } else {
            let arrival = Instant::now() + after;
            let _ = port.under_way.try_send((arrival, packet.to_vec()));
        }
    }
}

/// A socket with large buffers: the thread may have to wait for a processor.
async fn bind(address: SocketAddr) -> Result<UdpSocket> {
    let socket = UdpSocket::bind(address)
        .await
        .with_context(|| format!("cannot bind {address}"))?;
    enlarge_buffers(&socket)?;
    Ok(socket)
}

/// Enlarges the receive and send buffer of a socket beyond what the settings of the machine allow; without privileges, they stay as they are.
///
/// # Errors
/// The kernel refuses for another reason.
pub fn enlarge_buffers(socket: &impl AsRawFd) -> Result<()> {
    for option in [libc::SO_RCVBUFFORCE, libc::SO_SNDBUFFORCE] {
        // SAFETY: the pointer and the length are those of a variable that lives for ever.
        let result = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                (&raw const BUFFER).cast(),
                size_of_val(&BUFFER) as libc::socklen_t,
            )
        };
        let error = io::Error::last_os_error();
        if result != 0 && error.kind() != io::ErrorKind::PermissionDenied {
            return Err(error).context("cannot enlarge the buffers of a socket");
        }
    }
    Ok(())
}
