//! Keeps a running gateway in step with its configured remotes.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::sync::{Mutex, Notify};

use super::{Configured, Validity};
use crate::{
    control::{config::Config, host::HostHandle, plan::Plan},
    gateway::Error,
};

/// The wall clock may be set: the time is looked at this often.
const LOOK: Duration = Duration::from_secs(10);

/// For giving a running gateway other remotes, from any task.
#[derive(Clone)]
pub(crate) struct Handle(Arc<Shared>);

struct Shared {
    host: HostHandle,
    state: Mutex<State>,
    reloaded: Notify,
}

struct State {
    remotes: Configured,
    /// The plan in force; `None` if it did not take effect as a whole.
    applied: Option<Plan>,
}

/// A handle for the remotes of `config`, whose plan `host` follows, and what has to run for as long as it
/// should: it takes expired paths out of use and logs what an operator should know.
pub(crate) fn follow(
    host: HostHandle,
    config: &Config,
) -> (Handle, impl Future<Output = ()> + Send + use<>) {
    let shared = Arc::new(Shared {
        host,
        state: Mutex::new(State {
            remotes: Configured::new(config, SystemTime::now()),
            applied: None,
        }),
        reloaded: Notify::new(),
    });
    let handle = Handle(shared.clone());
    (handle, async move {
        loop {
            let deadline = {
                let mut state = shared.state.lock().await;
                // What does not take effect is logged, and tried again with the next look.
                let _ = shared.renew(&mut state).await;
                state.remotes.deadline(SystemTime::now())
            };
            let left = deadline.map(|at| at.duration_since(SystemTime::now()).unwrap_or_default());
            let pause = left.map_or(LOOK, |left| left.min(LOOK));
            // A reload may bring paths that expire sooner.
            let _ = tokio::time::timeout(pause, shared.reloaded.notified()).await;
        }
    })
}

impl Handle {
    /// Puts the `[[remote]]` sections and served prefixes of `config` into force. Tells what has changed, and what
    /// deserves a look, one line each; and whether all of it took effect. To be called from a thread that may wait,
    /// within a tokio runtime.
    pub(crate) fn reload(&self, config: &Config) -> (Vec<String>, Result<(), Error>) {
        tokio::runtime::Handle::current().block_on(async {
            let mut state = self.0.state.lock().await;
            let mut lines = state.remotes.reload(config, SystemTime::now());
            let (more, result) = self.0.renew(&mut state).await;
            lines.extend(more);
            self.0.reloaded.notify_one();
            (lines, result)
        })
    }
}

impl Shared {
    /// Makes the data plane do what is right now. Tells what deserves a look, after it has been logged.
    async fn renew(&self, state: &mut State) -> (Vec<String>, Result<(), Error>) {
        let now = SystemTime::now();
        let mut lines = Vec::new();
        for notice in state.remotes.poll(now) {
            let (remote, path) = (&*notice.remote, &*notice.path);
            match notice.validity {
                Validity::Expired => tracing::error!(remote, path, "{notice}"),
                Validity::ExpiresSoon => tracing::warn!(remote, path, "{notice}"),
                Validity::Valid => {
                    tracing::info!(remote, path, "{notice}");
                    continue;
                }
            }
            lines.push(format!("warning: {remote} path {path}: {notice}"));
        }
        let plan = state.remotes.plan(now);
        if state.applied.as_ref() == Some(&plan) {
            return (lines, Ok(()));
        }
        let result = self.host.apply(plan.clone()).await;
        if let Err(error) = &result {
            tracing::error!("applying the plan failed, retrying: {error}");
        }
        state.applied = result.is_ok().then_some(plan);
        (lines, result)
    }
}
