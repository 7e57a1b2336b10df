//! How many connections there are, and how fast new ones may come.
//!
//! Before its handshake is complete, a client may be anybody who can send a datagram with a forged source. So only few
//! seats are given on trust; all others have to show first that answers reach them, which costs the server no memory
//! (QUIC Retry: RFC 9000, section 8.1.2). Half of the seats is for the ASes that this gateway works with.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use sig_common::addr::IsdAs;

use super::ServerCounts;

/// An AS may have this part of all connections, but always as many as in the next line.
const SHARE: u32 = 4;
/// See [`SHARE`].
const LEAST: u32 = 8;
/// This part of all connections may be in their handshake before clients must show that answers reach them.
const ON_TRUST: u32 = 8;
/// This part of connections and handshakes is only for known ASes.
const RESERVED: u32 = 2;

/// What a client gets that asks for a connection.
#[derive(Debug)]
pub(super) enum Answer {
    /// It comes in.
    Seat(Seat),
    /// It has to come back with proof that answers reach it.
    Retry,
    /// There is no place.
    Refuse,
}

/// Lets connections in. Each new one costs a signature, so in a second no more come in than may be open.
#[derive(Debug)]
pub(super) struct Admission {
    limit: u32,
    state: Mutex<State>,
    accepted: AtomicU64,
    refused: AtomicU64,
    retried: AtomicU64,
    failed: AtomicU64,
}

#[derive(Debug)]
struct State {
    open: u32,
    /// Those of them that are not of known ASes.
    strangers: u32,
    /// Those of them whose handshake is not complete.
    half_open: u32,
    by_as: HashMap<IsdAs, u32>,
    /// Handshakes that may begin at once.
    tokens: f64,
    refilled: Instant,
}

impl Admission {
    /// For so many connections at the same time.
    pub(super) fn new(limit: u32) -> Self {
        Admission {
            limit,
            state: Mutex::new(State {
                open: 0,
                strangers: 0,
                half_open: 0,
                by_as: HashMap::new(),
                tokens: f64::from(limit),
                refilled: Instant::now(),
            }),
            accepted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            retried: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    /// A place for a connection from this AS, if there is one. `known`: the AS is one that this gateway works with;
    /// `reached`: the client has shown that answers reach it.
    pub(super) fn admit(self: &Arc<Self>, isd_as: IsdAs, known: bool, reached: bool) -> Answer {
        self.admit_at(isd_as, known, reached, Instant::now())
    }

    fn admit_at(
        self: &Arc<Self>,
        isd_as: IsdAs,
        known: bool,
        reached: bool,
        now: Instant,
    ) -> Answer {
        let mut state = self.state();
        if !reached && state.half_open >= (self.limit / ON_TRUST).max(1) {
            self.retried.fetch_add(1, Relaxed);
            return Answer::Retry;
        }
        if !state.admit(isd_as, known, self.limit, now) {
            self.refused.fetch_add(1, Relaxed);
            return Answer::Refuse;
        }
        Answer::Seat(Seat {
            admission: Arc::clone(self),
            isd_as,
            known,
            half_open: true,
        })
    }

    pub(super) fn counts(&self) -> ServerCounts {
        ServerCounts {
            accepted: self.accepted.load(Relaxed),
            refused: self.refused.load(Relaxed),
            retried: self.retried.load(Relaxed),
            failed: self.failed.load(Relaxed),
            open: self.state().open,
            ..ServerCounts::default()
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn admit(&mut self, isd_as: IsdAs, known: bool, limit: u32, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.refilled).as_secs_f64();
        self.tokens = (self.tokens + passed * f64::from(limit)).min(f64::from(limit));
        self.refilled = now;
        let of_as = self.by_as.get(&isd_as).copied().unwrap_or(0);
        let reserved = if known { 0 } else { limit / RESERVED };
        if self.open >= limit
            || of_as >= (limit / SHARE).max(LEAST)
            || !known && self.strangers >= limit - reserved
            || self.tokens < f64::from(reserved) + 1.0
        {
            return false;
        }
        self.tokens -= 1.0;
        self.open += 1;
        self.half_open += 1;
        self.strangers += u32::from(!known);
        self.by_as.insert(isd_as, of_as + 1);
        true
    }

    fn leave(&mut self, seat: &Seat) {
        self.open -= 1;
        self.half_open -= u32::from(seat.half_open);
        self.strangers -= u32::from(!seat.known);
        if let Some(of_as) = self.by_as.get_mut(&seat.isd_as) {
            *of_as -= 1;
            if *of_as == 0 {
                self.by_as.remove(&seat.isd_as);
            }
        }
    }
}

/// The place of a connection, free again when it is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    admission: Arc<Admission>,
    isd_as: IsdAs,
    known: bool,
    half_open: bool,
}

impl Seat {
    /// The handshake succeeded.
    pub(super) fn accepted(&mut self) {
        self.admission.accepted.fetch_add(1, Relaxed);
        if std::mem::take(&mut self.half_open) {
            self.admission.state().half_open -= 1;
        }
    }

    /// The handshake failed.
    pub(super) fn failed(self, error: &dyn fmt::Display) {
        self.admission.failed.fetch_add(1, Relaxed);
        tracing::trace!(isd_as = %self.isd_as, %error, "QUIC handshake failed");
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.admission.state().leave(self);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    impl Admission {
        /// The seat of a client of a known AS that answers reach.
        fn peer(self: &Arc<Self>, isd_as: u64, now: Instant) -> Option<Seat> {
            seat(self.admit_at(IsdAs(isd_as), true, true, now))
        }
    }

    fn seat(answer: Answer) -> Option<Seat> {
        match answer {
            Answer::Seat(seat) => Some(seat),
            Answer::Retry | Answer::Refuse => None,
        }
    }

    #[test]
    fn one_as_cannot_take_all_places() {
        let admission = Arc::new(Admission::new(40));
        let now = Instant::now();
        let greedy: Vec<_> = (0..40).filter_map(|_| admission.peer(1, now)).collect();
        assert_eq!(greedy.len(), 10);
        assert!(admission.peer(2, now).is_some());
        assert_eq!(admission.counts().refused, 30);
    }

    #[test]
    fn places_are_free_again_when_connections_end() {
        let admission = Arc::new(Admission::new(10));
        let start = Instant::now();
        let mut all: Vec<_> = (0..10).filter_map(|n| admission.peer(n, start)).collect();
        assert_eq!(all.len(), 10);
        let later = start + Duration::from_secs(10);
        assert!(admission.peer(99, later).is_none());
        all[0].accepted();
        drop(all);
        assert_eq!(admission.counts().open, 0);
        assert!(admission.state().by_as.is_empty());
        assert_eq!(admission.state().half_open, 0);
        assert!(admission.peer(99, later).is_some());
    }

    #[test]
    fn handshakes_come_no_faster_than_the_limit_says() {
        let admission = Arc::new(Admission::new(10));
        let start = Instant::now();
        let admit = |n: u64, now| (0..n).filter_map(|n| admission.peer(n, now)).count();
        assert_eq!(admit(30, start), 10, "places are free at once");
        assert_eq!(admit(30, start), 0);
        assert_eq!(admit(30, start + Duration::from_millis(500)), 5);
        assert_eq!(admit(30, start + Duration::from_secs(100)), 10);
    }

    #[test]
    fn many_unfinished_handshakes_make_clients_show_that_answers_reach_them() {
        let admission = Arc::new(Admission::new(64));
        let now = Instant::now();
        let unproven = |isd_as| admission.admit_at(IsdAs(isd_as), true, false, now);
        let mut seats: Vec<_> = (0..64).filter_map(|n| seat(unproven(n))).collect();
        assert_eq!(seats.len(), 8);
        assert_eq!(admission.counts().retried, 56);
        assert_eq!(admission.counts().refused, 0);
        assert!(admission.peer(1, now).is_some(), "answers reach it");
        // A handshake that is complete makes room for the next.
        seats[0].accepted();
        assert!(seat(unproven(99)).is_some());
    }

    #[test]
    fn strangers_leave_places_and_handshakes_to_known_ases() {
        let admission = Arc::new(Admission::new(40));
        let now = Instant::now();
        let stranger = |n| seat(admission.admit_at(IsdAs(n), false, true, now));
        let strangers: Vec<_> = (0..100).filter_map(stranger).collect();
        assert_eq!(strangers.len(), 20);
        let known: Vec<_> = (100..200).filter_map(|n| admission.peer(n, now)).collect();
        assert_eq!(known.len(), 20);
        drop(strangers);
        assert_eq!(admission.state().strangers, 0);
    }
}
