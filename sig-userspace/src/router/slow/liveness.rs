//! BFD sessions with the routers at the other end of our links and with siblings, and what follows: which interfaces
//! packets may leave by.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    num::NonZeroU32,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use tokio::sync::{Notify, watch};

use super::socket::Socket;
use crate::{
    router::{
        bfd::{Control, Envelope, Session, State},
        model::{AsModel, Bfd, Owner},
    },
    scion::HopKey,
};

/// If we look at the clock this much later than planned, we were held up, and packets wait in the sockets unread.
const HELD_UP: Duration = Duration::from_millis(50);

/// Names a session, also when the configuration has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SessionKey {
    /// With the neighbour at the other end of the link at this SCION interface.
    Link(u16),
    /// With the router of the own AS at this internal address.
    Sibling(SocketAddr),
}

/// What is known of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionStatus {
    /// Its state.
    pub state: State,
    /// How often that changed.
    pub changes: u64,
    /// Packets sent.
    pub sent: u64,
    /// Packets received that were taken.
    pub received: u64,
}

/// All sessions. Sockets feed it, [`Liveness::run`] lets time go on.
pub(super) struct Liveness {
    sessions: Mutex<BTreeMap<SessionKey, Watched>>,
    /// By SCION interface: packets must not leave by it.
    down: Box<[AtomicBool]>,
    /// Something is due earlier than thought.
    wake: Notify,
    changed: watch::Sender<()>,
}

struct Watched {
    session: Session,
    plan: SessionPlan,
    sent: u64,
    received: u64,
}

/// What a session is made of.
#[derive(Clone)]
pub(super) struct SessionPlan {
    config: Bfd,
    ends: (IpAddr, IpAddr),
    envelope: Envelope,
    hop_key: HopKey,
    /// The interfaces that are down with it.
    interfaces: Vec<u16>,
    socket: Arc<Socket>,
    to: SocketAddr,
}

/// The sessions of a model. `socket` gives that of a link, or for `None` that of the internal address.
pub(super) fn plans(
    model: &AsModel,
    socket: impl Fn(Option<u16>) -> Option<Arc<Socket>>,
) -> BTreeMap<SessionKey, SessionPlan> {
    let mut plans = BTreeMap::new();
    for (number, interface, local, remote) in model.links() {
        let Some(socket) = socket(Some(number)).filter(|_| !interface.bfd.disabled) else {
            continue;
        };
        let plan = SessionPlan {
            config: interface.bfd,
            ends: (local.ip(), remote.ip()),
            envelope: Envelope::Link {
                isd_as: model.isd_as,
                neighbour: interface.neighbour,
                interface: number,
                local: local.ip(),
                remote: remote.ip(),
            },
            hop_key: model.key.clone(),
            interfaces: vec![number],
            socket,
            to: remote,
        };
        plans.insert(SessionKey::Link(number), plan);
    }
    for (place, sibling) in model.siblings.iter().enumerate() {
        let Some(socket) = socket(None).filter(|_| !model.sibling_bfd.disabled) else {
            continue;
        };
        let (local, remote) = (model.internal.ip(), sibling.internal.ip());
        let owned = model.interfaces.iter();
        let owned = owned.filter(|(_, interface)| interface.owner == Owner::Sibling(place));
        let plan = SessionPlan {
            config: model.sibling_bfd,
            ends: (local, remote),
            envelope: Envelope::Sibling {
                isd_as: model.isd_as,
                local,
                remote,
            },
            hop_key: model.key.clone(),
            interfaces: owned.map(|(number, _)| *number).collect(),
            socket,
            to: sibling.internal,
        };
        plans.insert(SessionKey::Sibling(sibling.internal), plan);
    }
    plans
}

impl Liveness {
    pub(super) fn new() -> Self {
        let down = std::iter::repeat_with(AtomicBool::default);
        Self {
            sessions: Mutex::default(),
            down: down.take(usize::from(u16::MAX) + 1).collect(),
            wake: Notify::new(),
            changed: watch::Sender::new(()),
        }
    }

    fn sessions(&self) -> MutexGuard<'_, BTreeMap<SessionKey, Watched>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes these the sessions. One that stays between the same addresses goes on; one that goes says so to the other
    /// end. Interfaces without a session are up.
    pub(super) fn set(&self, plans: BTreeMap<SessionKey, SessionPlan>) {
        let now = Instant::now();
        let mut sessions = self.sessions();
        let mut former = std::mem::take(&mut *sessions);
        for (key, plan) in plans {
            let same = former
                .remove(&key)
                .filter(|watched| watched.plan.ends == plan.ends);
            let watched = match same {
                Some(mut watched) => {
                    watched.session.configure(plan.config);
                    watched.plan = plan;
                    watched
                }
                None => {
                    let name = NonZeroU32::new(rand::random()).unwrap_or(NonZeroU32::MIN);
                    Watched {
                        session: Session::new(plan.config, name, now),
                        plan,
                        sent: 0,
                        received: 0,
                    }
                }
            };
            sessions.insert(key, watched);
        }
        former.values_mut().for_each(Watched::stop);
        self.publish(&sessions);
        drop(sessions);
        self.wake.notify_one();
    }

    /// Ends all sessions: the neighbours take the links down at once.
    pub(super) fn stop(&self) {
        let mut sessions = self.sessions();
        sessions.values_mut().for_each(Watched::stop);
        sessions.clear();
    }

    /// Whether packets may leave by a SCION interface.
    pub(super) fn is_up(&self, interface: u16) -> bool {
        self.down
            .get(usize::from(interface))
            .is_none_or(|down| !down.load(Ordering::Relaxed))
    }

    /// Whether a sibling is within reach.
    pub(super) fn is_sibling_up(&self, address: SocketAddr) -> bool {
        let sessions = self.sessions();
        let watched = sessions.get(&SessionKey::Sibling(address));
        watched.is_none_or(|watched| watched.session.is_up())
    }

    /// Wakes when [`Self::is_up`] of some interface has changed.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// A control packet of a session. Says whether there is one.
    pub(super) fn handle(&self, key: SessionKey, control: &Control) -> bool {
        let mut sessions = self.sessions();
        let Some(watched) = sessions.get_mut(&key) else {
            return false;
        };
        watched.received += 1;
        let before = (watched.session.is_up(), watched.session.deadline());
        if let Some(answer) = watched.session.handle(control, Instant::now()) {
            watched.send(&answer);
        }
        let is_earlier = watched.session.deadline() < before.1;
        if watched.session.is_up() != before.0 {
            told(key, watched);
            self.publish(&sessions);
        }
        drop(sessions);
        if is_earlier {
            self.wake.notify_one();
        }
        true
    }

    /// Sends what is due and notices who is silent, for ever.
    pub(super) async fn run(&self) {
        loop {
            let next = self.poll();
            tokio::select! {
                () = self.wake.notified() => {}
                () = tokio::time::sleep_until(next.into()) => {
                    let late = Instant::now().saturating_duration_since(next);
                    if late > HELD_UP {
                        tracing::debug!("held up for {late:?}; the neighbours get as much more time");
                        for watched in self.sessions().values_mut() {
                            watched.session.held_up(late);
                        }
                    }
                }
            }
        }
    }

    /// Does what is due; says when to come again.
    fn poll(&self) -> Instant {
        const IDLE: Duration = Duration::from_secs(60);
        let now = Instant::now();
        let mut sessions = self.sessions();
        let mut changed = false;
        for (key, watched) in sessions.iter_mut() {
            let was_up = watched.session.is_up();
            if let Some(packet) = watched.session.poll(now, rand::random()) {
                watched.send(&packet);
            }
            if watched.session.is_up() != was_up {
                told(*key, watched);
                changed = true;
            }
        }
        if changed {
            self.publish(&sessions);
        }
        let deadlines = sessions.values().map(|watched| watched.session.deadline());
        deadlines.min().unwrap_or(now + IDLE)
    }

    fn publish(&self, sessions: &BTreeMap<SessionKey, Watched>) {
        let mut down = vec![false; self.down.len()];
        for watched in sessions.values().filter(|w| !w.session.is_up()) {
            for interface in &watched.plan.interfaces {
                down[usize::from(*interface)] = true;
            }
        }
        let mut changed = false;
        for (known, now) in self.down.iter().zip(down) {
            changed |= known.swap(now, Ordering::Relaxed) != now;
        }
        if changed {
            self.changed.send_replace(());
        }
    }

    /// All sessions.
    pub(super) fn status(&self) -> BTreeMap<SessionKey, SessionStatus> {
        let sessions = self.sessions();
        let status = sessions.iter().map(|(key, watched)| {
            let status = SessionStatus {
                state: watched.session.state(),
                changes: watched.session.changes(),
                sent: watched.sent,
                received: watched.received,
            };
            (*key, status)
        });
        status.collect()
    }
}

/// Tells the operator.
fn told(key: SessionKey, watched: &Watched) {
    let state = watched.session.state().as_str();
    match (key, watched.session.is_up()) {
        (SessionKey::Link(interface), true) => tracing::info!(interface, "link is up"),
        (SessionKey::Link(interface), false) => {
            tracing::warn!(
                interface,
                state,
                "link is down: the neighbour is not heard, or does not hear us"
            );
        }
        (SessionKey::Sibling(address), true) => {
            tracing::info!(%address, "sibling router is reachable")
        }
        (SessionKey::Sibling(address), false) => {
            tracing::warn!(%address, state, "sibling router is not reachable");
        }
    }
}

impl Watched {
    fn send(&mut self, control: &Control) {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |time| time.as_secs() as u32);
        let plan = &self.plan;
        let sent = match plan.envelope.seal(control, &plan.hop_key, now) {
            Ok(packet) => plan.socket.send(&packet, plan.to).is_ok(),
            Err(_) => false,
        };
        self.sent += u64::from(sent);
    }

    fn stop(&mut self) {
        let last = self.session.stop();
        self.send(&last);
    }
}
