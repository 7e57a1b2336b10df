//! The ways to make a call, and in which order they are tried.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};

use super::{Connection, Dialer, Server, Target, Variant};
use crate::{Attempts, RpcError};
use sig_core::scion::Path;

/// How long a way is tried alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadStarts {
    /// A kept connection, before a new one is tried: the server may have restarted, or it answers along a path that
    /// is dead by now.
    pub(super) kept: Duration,
    /// A variant, before the other one is tried.
    pub(super) variant: Duration,
}

impl Default for HeadStarts {
    fn default() -> Self {
        HeadStarts {
            kept: Duration::from_secs(1),
            // As in the reference.
            variant: Duration::from_millis(300),
        }
    }
}

/// A call.
pub(super) struct Race<'a> {
    pub(super) dialer: &'a Arc<Dialer>,
    pub(super) target: Target,
    pub(super) path: &'a Path,
    pub(super) method: &'static str,
    /// Makes the request for a connection.
    pub(super) message: Message,
    pub(super) timeout: Duration,
    pub(super) head_starts: HeadStarts,
}

/// What is sent over a connection.
pub(super) type Message = Arc<dyn Fn(&quinn::Connection) -> Bytes + Send + Sync>;

/// A way to make it.
enum Attempt {
    Kept(Connection),
    New(Variant),
}

impl Attempt {
    fn name(&self) -> &'static str {
        match self {
            Attempt::Kept(_) => "kept connection",
            Attempt::New(variant) => variant.name(),
        }
    }
}

impl Race<'_> {
    /// Tries one way after the other, the next one as soon as one fails. The first answer counts, and all other ways
    /// end with it.
    pub(super) async fn run(&self, known: Option<Server>) -> Result<(Connection, Bytes), RpcError> {
        let deadline = Instant::now() + self.timeout;
        let mut ways = self.ways(known);
        let mut running = JoinSet::new();
        let mut pending = Vec::new();
        let mut failed = Vec::new();
        loop {
            let next = match ways.pop_front() {
                Some(way) => {
                    let head_start = match way {
                        Attempt::Kept(_) => self.head_starts.kept,
                        Attempt::New(_) => self.head_starts.variant,
                    };
                    let next = Instant::now() + head_start;
                    pending.push(way.name());
                    running.spawn(self.attempt(way));
                    next
                }
                None if running.is_empty() => break,
                None => deadline,
            };
            tokio::select! {
                biased;
                Some(ended) = running.join_next() => match ended {
                    Ok((_, Ok(answer))) => return Ok(answer),
                    Ok((name, Err(error))) => {
                        pending.retain(|pending| *pending != name);
                        failed.push((name, error));
                    }
                    Err(error) => return Err(RpcError::transport(error)),
                },
                () = sleep_until(next.min(deadline)) => {
                    if next >= deadline {
                        failed.extend(pending.into_iter().map(|name| (name, RpcError::Timeout)));
                        break;
                    }
                }
            }
        }
        Err(RpcError::Attempts(Attempts(failed)))
    }

    fn ways(&self, known: Option<Server>) -> VecDeque<Attempt> {
        let mut ways: VecDeque<_> = self.dialer.variants().map(Attempt::New).collect();
        if let Some(server) = known {
            // What worked is tried first.
            let variant = server.connection.variant();
            let worked = |way: &Attempt| matches!(way, Attempt::New(other) if *other == variant);
            ways.make_contiguous().sort_by_key(|way| !worked(way));
            if server.connection.is_open() {
                self.dialer.set_path(server.connection.peer(), self.path);
                ways.push_front(Attempt::Kept(server.connection));
            }
        }
        ways
    }

    fn attempt(
        &self,
        way: Attempt,
    ) -> impl Future<Output = (&'static str, Result<(Connection, Bytes), RpcError>)>
    + Send
    + 'static
    + use<> {
        let dialer = Arc::clone(self.dialer);
        let (target, path, method) = (self.target, self.path.clone(), self.method);
        let (message, timeout) = (Arc::clone(&self.message), self.timeout);
        async move {
            let name = way.name();
            let result = async {
                let (connection, kept) = match way {
                    Attempt::Kept(connection) => (connection, true),
                    Attempt::New(variant) => (dialer.dial(variant, target, &path).await?, false),
                };
                let message = message(connection.quic());
                let answer = connection.unary(method, message, timeout).await?;
                if kept {
                    dialer.counters.kept.fetch_add(1, Relaxed);
                }
                Ok((connection, answer))
            };
            (name, result.await)
        }
    }
}
