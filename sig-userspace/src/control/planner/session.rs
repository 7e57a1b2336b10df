//! What becomes of a session: streams and counters of its paths, and which flows take which.

use std::{net::SocketAddr, sync::Arc};

use super::{flows::Flows, per_worker};
use crate::control::plan::{self, SessionKey};
use sig_core::{dataplane::PathCounters, scion::Fingerprint, status::Traffic};

/// A session of the plan and its state.
#[derive(Debug)]
pub struct PlannedSession {
    /// Its name.
    pub key: SessionKey,
    /// Parallel to [`plan::Session::paths`].
    pub paths: Vec<PlannedPath>,
    pub(super) flows: Flows,
    /// What was sent on paths that have left.
    past: Traffic,
    /// Counters of paths that have left, which workers may still write.
    leaving: Vec<Arc<[PathCounters]>>,
}

/// A path of a session and its state.
#[derive(Debug)]
pub struct PlannedPath {
    /// Stream ids, one per worker; empty while the path cannot be used.
    pub streams: Box<[u32]>,
    /// What was sent on it, per worker.
    pub counters: Arc<[PathCounters]>,
    /// Why it cannot be used.
    pub problem: Option<String>,
    /// Payload bytes of a frame.
    pub capacity: usize,
    identity: Identity,
    /// Names it among all paths that ever were.
    pub(super) name: u64,
    /// Names it with its streams.
    pub(super) id: u64,
}

/// What makes two paths of one session the same: their streams go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    fingerprint: Fingerprint,
    next_hop: SocketAddr,
    source_port: u16,
    data_addr: SocketAddr,
    number: u8,
}

impl PlannedSession {
    /// The state of a session of this plan, given what it was before. Stream ids that are no longer
    /// used go to `release`; `name` names new paths.
    pub(super) fn follow(
        old: Option<Self>,
        session: &plan::Session,
        workers: usize,
        mut name: impl FnMut() -> u64,
        mut release: impl FnMut(u32),
    ) -> Self {
        let mut state = old.unwrap_or_else(|| PlannedSession {
            key: session.key,
            paths: Vec::new(),
            flows: Flows::default(),
            past: Traffic::default(),
            leaving: Vec::new(),
        });
        let mut known = std::mem::take(&mut state.paths);
        for path in &session.paths {
            let identity = Identity {
                fingerprint: path.path.fingerprint,
                next_hop: path.path.next_hop,
                source_port: path.source_port,
                data_addr: session.data_addr,
                number: session.number,
            };
            let kept = known.iter().position(|path| path.identity == identity);
            state.paths.push(match kept {
                Some(place) => known.swap_remove(place),
                None => PlannedPath {
                    streams: Box::default(),
                    counters: per_worker(workers),
                    problem: None,
                    capacity: 0,
                    identity,
                    name: name(),
                    id: 0,
                },
            });
        }
        for gone in known {
            gone.streams.iter().copied().for_each(&mut release);
            state.leaving.push(gone.counters);
        }
        state
    }

    /// The names of its paths that can be used.
    pub(super) fn usable(&self) -> Vec<u64> {
        let usable = self.paths.iter().filter(|path| path.is_usable());
        usable.map(|path| path.name).collect()
    }

    /// What was sent since the session began.
    #[must_use]
    pub fn sent(&self) -> Traffic {
        let own = self.paths.iter().map(|path| &path.counters);
        let counters = self.leaving.iter().chain(own);
        counters.fold(self.past, |sent, counters| plus(sent, counters))
    }

    /// Lets go of counters that no worker writes any more.
    pub(super) fn settle(&mut self) {
        let past = &mut self.past;
        self.leaving.retain(|counters| {
            let in_use = Arc::strong_count(counters) > 1;
            if !in_use {
                *past = plus(*past, counters);
            }
            in_use
        });
    }
}

impl PlannedPath {
    /// Whether frames can be sent on it.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        !self.streams.is_empty()
    }

    /// What was sent on it.
    #[must_use]
    pub fn sent(&self) -> Traffic {
        plus(Traffic::default(), &self.counters)
    }
}

fn plus(sum: Traffic, counters: &[PathCounters]) -> Traffic {
    counters.iter().fold(sum, |sum, worker| Traffic {
        frames: sum.frames + worker.sent.frames.get(),
        frame_bytes: sum.frame_bytes + worker.sent.frame_bytes.get(),
        packets: sum.packets + worker.sent.packets.get(),
        packet_bytes: sum.packet_bytes + worker.sent.packet_bytes.get(),
    })
}
