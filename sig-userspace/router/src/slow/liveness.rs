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
    bfd::{Control, Damping, Envelope, Session, State},
    model::{AsModel, Bfd, Owner},
};
use sig_core::scion::HopKey;

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
    /// It is up, but was down too often lately to be used yet.
    pub flaps: bool,
    /// Packets sent.
    pub sent: u64,
    /// Packets received that were taken.
    pub received: u64,
}

/// What became of a control packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// Its session has it.
    Taken,
    /// There is no such session.
    NoSession,
    /// The session had more than a neighbour sends.
    TooMany,
}

/// All sessions. Sockets feed it, [`Liveness::run`] lets time go on, all on one thread; others only read which
/// interfaces are down, without a lock.
pub(super) struct Liveness {
    /// Locked on that thread, which so never waits, but for what comes before the sockets sort.
    sessions: Mutex<BTreeMap<SessionKey, Watched>>,
    /// By SCION interface: packets must not leave by it.
    down: Box<[AtomicBool]>,
    /// Something is due earlier than thought.
    wake: Notify,
    changed: watch::Sender<()>,
}

struct Watched {
    session: Session,
    damping: Damping,
    budget: Budget,
    plan: SessionPlan,
    sent: u64,
    received: u64,
}

/// How many packets of the other end are looked at: it may send one per interval, and at once what says that its state
/// changed (GCRA).
struct Budget {
    due: Instant,
}

impl Budget {
    /// Packets that are taken within one of our receive intervals.
    const PER_INTERVAL: u32 = 8;
    /// Packets that are taken at once after silence.
    const BURST: u32 = 16;

    fn admit(&mut self, config: &Bfd, now: Instant) -> bool {
        let interval = config.required_min_rx / Self::PER_INTERVAL;
        let due = self.due.max(now);
        if due - now > interval * (Self::BURST - 1) {
            return false;
        }
        self.due = due + interval;
        true
    }
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
        let mut up: BTreeMap<u16, bool> =
            interfaces(&sessions).map(|number| (number, true)).collect();
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
                        damping: Damping::default(),
                        budget: Budget { due: now },
                        plan,
                        sent: 0,
                        received: 0,
                    }
                }
            };
            sessions.insert(key, watched);
        }
        former.values_mut().for_each(Watched::stop);
        for watched in sessions.values() {
            let usable = watched.damping.is_usable();
            up.extend(
                watched
                    .plan
                    .interfaces
                    .iter()
                    .map(|number| (*number, usable)),
            );
        }
        self.publish(up);
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

    /// Wakes when [`Self::is_up`] of some interface has changed.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// A control packet of a session.
    pub(super) fn handle(&self, key: SessionKey, control: &Control) -> Heard {
        let now = Instant::now();
        let mut sessions = self.sessions();
        let Some(watched) = sessions.get_mut(&key) else {
            return Heard::NoSession;
        };
        if !watched.budget.admit(&watched.plan.config, now) {
            return Heard::TooMany;
        }
        watched.received += 1;
        let before = watched.deadline();
        if let Some(answer) = watched.session.handle(control, now) {
            watched.send(&answer);
        }
        self.follow(key, watched, now);
        let is_earlier = watched.deadline() < before;
        drop(sessions);
        if is_earlier {
            self.wake.notify_one();
        }
        Heard::Taken
    }

    /// Lets packets leave by the interfaces of a session or not, by what it says now.
    fn follow(&self, key: SessionKey, watched: &mut Watched, now: Instant) {
        if let Some(usable) = watched.damping.follow(watched.session.is_up(), now) {
            told(key, watched);
            let numbers = watched.plan.interfaces.iter();
            self.publish(numbers.map(|number| (*number, usable)));
        }
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
                        tracing::debug!("scheduled {late:?} late; extending the neighbours' detection time accordingly");
                        for watched in self.sessions().values_mut() {
                            watched.session.held_up(late, next + late);
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
        for (key, watched) in sessions.iter_mut() {
            if let Some(packet) = watched.session.poll(now, rand::random()) {
                watched.send(&packet);
            }
            self.follow(*key, watched, now);
        }
        let deadlines = sessions.values().map(Watched::deadline);
        deadlines.min().unwrap_or(now + IDLE)
    }

    /// Sets which interfaces packets may leave by.
    fn publish(&self, up: impl IntoIterator<Item = (u16, bool)>) {
        let mut changed = false;
        for (interface, up) in up {
            if let Some(down) = self.down.get(usize::from(interface)) {
                changed |= down.swap(!up, Ordering::Relaxed) == up;
            }
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
                flaps: watched.session.is_up() && !watched.damping.is_usable(),
                sent: watched.sent,
                received: watched.received,
            };
            (*key, status)
        });
        status.collect()
    }
}

/// The interfaces of sessions.
fn interfaces(sessions: &BTreeMap<SessionKey, Watched>) -> impl Iterator<Item = u16> {
    let plans = sessions.values().map(|watched| &watched.plan);
    plans.flat_map(|plan| plan.interfaces.iter().copied())
}

/// Tells the operator that a session may be used now, or not any more. Damping keeps this rare.
fn told(key: SessionKey, watched: &Watched) {
    let state = watched.session.state().as_str();
    let hold = watched.damping.hold();
    match (key, watched.damping.is_usable()) {
        (SessionKey::Link(interface), true) => tracing::info!(interface, "link is up"),
        (SessionKey::Sibling(address), true) => {
            tracing::info!(%address, "sibling router is reachable");
        }
        (SessionKey::Link(interface), false) => {
            tracing::warn!(
                interface,
                state,
                "link is down: no BFD packets from the neighbour, or it receives none of ours"
            );
        }
        (SessionKey::Sibling(address), false) => {
            tracing::warn!(%address, state, "sibling router is unreachable");
        }
    }
    if !watched.damping.is_usable() && !hold.is_zero() {
        tracing::warn!(session = ?key, "BFD session is flapping; suppressed until it has been up for {hold:?}");
    }
}

impl Watched {
    /// When to look at it again at the latest.
    fn deadline(&self) -> Instant {
        let session = self.session.deadline();
        self.damping
            .deadline()
            .map_or(session, |at| at.min(session))
    }

    fn send(&mut self, control: &Control) {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |time| time.as_secs() as u32);
        let plan = &self.plan;
        let sent = match plan.envelope.seal(control, &plan.hop_key, now) {
            Ok(packet) => plan.socket.bfd.send(&packet, plan.to).is_ok(),
            Err(_) => false,
        };
        self.sent += u64::from(sent);
    }

    fn stop(&mut self) {
        let last = self.session.stop();
        self.send(&last);
    }
}
