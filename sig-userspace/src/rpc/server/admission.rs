//! How many connections there are, and how fast new ones may come.

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

/// Lets connections in. Each new one costs a signature, so in a second no more come in than may be open.
#[derive(Debug)]
pub(super) struct Admission {
    limit: u32,
    state: Mutex<State>,
    accepted: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
}

#[derive(Debug)]
struct State {
    open: u32,
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
                by_as: HashMap::new(),
                tokens: f64::from(limit),
                refilled: Instant::now(),
            }),
            accepted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    /// A place for a connection from this AS, unless there is none.
    pub(super) fn admit(self: &Arc<Self>, isd_as: IsdAs) -> Option<Seat> {
        self.admit_at(isd_as, Instant::now())
    }

    fn admit_at(self: &Arc<Self>, isd_as: IsdAs, now: Instant) -> Option<Seat> {
        let admitted = self.state().admit(isd_as, self.limit, now);
        if !admitted {
            self.refused.fetch_add(1, Relaxed);
        }
        admitted.then(|| Seat {
            admission: Arc::clone(self),
            isd_as,
        })
    }

    pub(super) fn counts(&self) -> ServerCounts {
        ServerCounts {
            accepted: self.accepted.load(Relaxed),
            refused: self.refused.load(Relaxed),
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
    fn admit(&mut self, isd_as: IsdAs, limit: u32, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.refilled).as_secs_f64();
        self.tokens = (self.tokens + passed * f64::from(limit)).min(f64::from(limit));
        self.refilled = now;
        let of_as = self.by_as.get(&isd_as).copied().unwrap_or(0);
        if self.open >= limit || of_as >= (limit / SHARE).max(LEAST) || self.tokens < 1.0 {
            return false;
        }
        self.tokens -= 1.0;
        self.open += 1;
        self.by_as.insert(isd_as, of_as + 1);
        true
    }

    fn leave(&mut self, isd_as: IsdAs) {
        self.open -= 1;
        if let Some(of_as) = self.by_as.get_mut(&isd_as) {
            *of_as -= 1;
            if *of_as == 0 {
                self.by_as.remove(&isd_as);
            }
        }
    }
}

/// The place of a connection, free again when it is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    admission: Arc<Admission>,
    isd_as: IsdAs,
}

impl Seat {
    /// The handshake succeeded.
    pub(super) fn accepted(&self) {
        self.admission.accepted.fetch_add(1, Relaxed);
    }

    /// The handshake failed.
    pub(super) fn failed(self, error: &dyn fmt::Display) {
        self.admission.failed.fetch_add(1, Relaxed);
        tracing::trace!(isd_as = %self.isd_as, %error, "a QUIC handshake fails");
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.admission.state().leave(self.isd_as);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_as_cannot_take_all_places() {
        let admission = Arc::new(Admission::new(40));
        let now = Instant::now();
        let greedy: Vec<_> = (0..40)
            .filter_map(|_| admission.admit_at(IsdAs(1), now))
            .collect();
        assert_eq!(greedy.len(), 10);
        assert!(admission.admit_at(IsdAs(2), now).is_some());
        assert_eq!(admission.counts().refused, 30);
    }

    #[test]
    fn places_are_free_again_when_connections_end() {
        let admission = Arc::new(Admission::new(10));
        let start = Instant::now();
        let all: Vec<_> = (0..10)
            .filter_map(|n| admission.admit_at(IsdAs(n), start))
            .collect();
        assert_eq!(all.len(), 10);
        let later = start + Duration::from_secs(10);
        assert!(admission.admit_at(IsdAs(99), later).is_none());
        drop(all);
        assert_eq!(admission.counts().open, 0);
        assert!(admission.state().by_as.is_empty());
        assert!(admission.admit_at(IsdAs(99), later).is_some());
    }

    #[test]
    fn handshakes_come_no_faster_than_the_limit_says() {
        let admission = Arc::new(Admission::new(10));
        let start = Instant::now();
        let admit = |n: u64, now| {
            (0..n)
                .filter_map(|n| admission.admit_at(IsdAs(n), now))
                .count()
        };
        assert_eq!(admit(30, start), 10, "places are free at once");
        assert_eq!(admit(30, start), 0);
        assert_eq!(admit(30, start + Duration::from_millis(500)), 5);
        assert_eq!(admit(30, start + Duration::from_secs(100)), 10);
    }
}
