//! The slow path: UDP sockets at the internal address and at our end of every link, where everything arrives that no XDP
//! program has forwarded, and [`Router`](super::forward::Router) over each packet of them.
//!
//! Packets from this host itself (a control service beside the router) come over the loopback interface, where there
//! is no program: the slow path forwards those all the way.

mod counters;
mod limits;
mod liveness;
mod network;
mod receive;
mod socket;
mod stun;
mod thread;

use std::{
    collections::{BTreeMap, HashMap},
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwap;
use sig_common::router::{
    Reason,
    maps::{Count, SIZE_CLASSES, Traffic},
};
use tokio::{sync::watch, task::JoinHandle};

use self::{
    counters::Counters,
    liveness::Liveness,
    network::{Network, Place},
    socket::Kind,
    thread::Thread,
};
pub use liveness::{SessionKey, SessionStatus};
pub use socket::BindError;

use super::{
    AsModel,
    config::{Buffers, RateLimits},
};

/// Whether the fast path has counted what comes from an address.
pub type SeenBefore = Arc<dyn Fn(IpAddr) -> bool + Send + Sync>;

/// Whether packets to an address of ours may come in by a device (its interface index).
pub type Admits = Arc<dyn Fn(SocketAddr, u32) -> bool + Send + Sync>;

/// Whether packets may leave by a SCION interface of the AS.
pub type IsUp = Arc<dyn Fn(u16) -> bool + Send + Sync>;

/// What the slow path is told.
#[derive(Clone)]
pub struct SlowConfig {
    /// The AS.
    pub model: Arc<AsModel>,
    /// Sizes of socket buffers.
    pub buffers: Buffers,
    /// How many packets are answered or worked on for each reason, per socket.
    pub limits: RateLimits,
}

/// A running slow path. It ends when dropped, without a word to the neighbours; see [`SlowPath::stop`].
pub struct SlowPath {
    shared: Arc<Shared>,
    receivers: HashMap<Place, [Task; 2]>,
    bfd: Thread,
}

/// What the tasks share.
struct Shared {
    network: ArcSwap<Network>,
    liveness: Liveness,
    /// By SCION interface, 0 for the inside. Links that went keep theirs, should they come back.
    counters: Mutex<BTreeMap<u16, Arc<Counters>>>,
    seen_before: SeenBefore,
    admits: Admits,
}

/// A task that ends with its owner.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The slow path cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A socket.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The thread of BFD.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

/// Sockets for another configuration, open but not in use.
pub struct Prepared(Network);

/// What was counted at the inside or a link.
#[derive(Clone, Debug)]
pub struct Counted {
    /// Packets and bytes, by [`Traffic`] and size class.
    pub traffic: [[Count; SIZE_CLASSES as usize]; Traffic::ALL.len()],
    /// Packets that were more than plainly forwarded, by [`Reason`].
    pub reasons: [u64; Reason::COUNT],
    /// Those of them that went nowhere and were not answered.
    pub drops: [u64; Reason::COUNT],
}

impl SlowPath {
    /// Opens the sockets and starts BFD, on a thread of its own; [`Self::listen`] is still to come. `seen_before` tells whether the fast path has counted packets of an underlay address
    /// as received, `admits` where packets may come in. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// An address that cannot be bound, or no room for a thread.
    pub fn start(
        config: SlowConfig,
        seen_before: SeenBefore,
        admits: Admits,
    ) -> Result<Self, StartError> {
        let mut counters = BTreeMap::new();
        let bfd = Thread::start().map_err(StartError::Thread)?;
        let network = Network::open(config, None, bfd.handle(), &mut counters)?;
        let shared = Arc::new(Shared {
            network: ArcSwap::from_pointee(network),
            liveness: Liveness::new(),
            counters: Mutex::new(counters),
            seen_before,
            admits,
        });
        let clock = shared.clone();
        bfd.handle()
            .spawn(async move { clock.liveness.run().await });
        let slow = Self {
            bfd,
            shared,
            receivers: HashMap::new(),
        };
        slow.watch();
        Ok(slow)
    }

    /// Opens what another configuration needs and the present one has not. Nothing changes yet.
    ///
    /// # Errors
    /// An address that cannot be bound.
    pub fn prepare(&self, config: SlowConfig) -> Result<Prepared, BindError> {
        let mut counters = self.shared.counters();
        let present = self.shared.network.load();
        Network::open(config, Some(&present), self.bfd.handle(), &mut counters).map(Prepared)
    }

    /// Puts a configuration into force. Sockets and sessions that stay are not touched.
    pub fn apply(&mut self, prepared: Prepared) {
        self.shared.network.store(Arc::new(prepared.0));
        self.watch();
        self.listen();
    }

    /// Sessions become those of the network in force.
    fn watch(&self) {
        let network = self.shared.network.load();
        network.tune();
        let (shared, sessions) = (self.shared.clone(), network.sessions());
        self.bfd.run(move || shared.liveness.set(sessions));
    }

    /// Forgets what has come to the sockets so far, but for BFD: what programs forward from now on would overtake it.
    pub fn discard(&self) {
        let sockets = self.shared.network.load().sockets();
        for socket in sockets.values() {
            socket.half(Kind::Plain).discard();
        }
    }

    /// Takes what comes to the sockets of the network in force: when it is known where it may come in. Must be called within a
    /// tokio runtime.
    pub fn listen(&mut self) {
        let sockets = self.shared.network.load().sockets();
        self.receivers
            .retain(|place, _| sockets.contains_key(place));
        for (place, socket) in sockets {
            let shared = &self.shared;
            self.receivers.entry(place).or_insert_with(|| {
                let run = |kind| receive::run(shared.clone(), place, socket.clone(), kind);
                [
                    Task(tokio::spawn(run(Kind::Plain))),
                    Task(self.bfd.handle().spawn(run(Kind::Bfd))),
                ]
            });
        }
    }

    /// Waits until the thread of BFD answers; false if it has ended.
    pub fn answers(&self) -> bool {
        self.bfd.run(|| ()).is_some()
    }

    /// Tells whether packets may leave by a SCION interface of the AS, now and later.
    #[must_use]
    pub fn is_up(&self) -> IsUp {
        let shared = self.shared.clone();
        Arc::new(move |interface| shared.liveness.is_up(interface))
    }

    /// Wakes when [`Self::is_up`] of some interface has changed.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<()> {
        self.shared.liveness.changes()
    }

    /// All BFD sessions.
    #[must_use]
    pub fn sessions(&self) -> BTreeMap<SessionKey, SessionStatus> {
        let shared = self.shared.clone();
        let status = self.bfd.run(move || shared.liveness.status());
        status.unwrap_or_default()
    }

    /// What was counted, by SCION interface; 0: the inside.
    #[must_use]
    pub fn counted(&self) -> BTreeMap<u16, Counted> {
        let counters = self.shared.counters();
        let counted = counters.iter().map(|(interface, counters)| {
            let counted = Counted {
                traffic: counters.traffic(),
                reasons: counters.reasons(),
                drops: counters.drops(),
            };
            (*interface, counted)
        });
        counted.collect()
    }

    /// Ends. Neighbours and siblings are told, so that they take their links down at once.
    pub fn stop(self) {
        let shared = self.shared.clone();
        self.bfd.run(move || shared.liveness.stop());
    }
}

impl Shared {
    fn counters(&self) -> std::sync::MutexGuard<'_, BTreeMap<u16, Arc<Counters>>> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
