//! Signals by which operators and service managers talk to a process in the foreground.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use sig_observe::log;

/// What a signal asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    /// SIGTERM or SIGINT.
    End,
    /// SIGHUP.
    Reload,
}

/// The signals that a process in the foreground obeys.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Catches them from now on. Must be called within a tokio runtime.
    pub(super) fn catch() -> io::Result<Self> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for one.
    pub(super) async fn next(&mut self) -> Request {
        tokio::select! {
            _ = self.terminate.recv() => Request::End,
            _ = self.interrupt.recv() => Request::End,
            _ = self.hangup.recv() => Request::Reload,
        }
    }
}

/// What SIGHUP asks for: runs `reload` where it may wait for the kernel, and logs what it told.
pub(super) async fn reload(reload: impl FnOnce() -> Result<String, String> + Send + 'static) {
    match tokio::task::spawn_blocking(reload).await {
        Ok(result) => log::reloaded("SIGHUP", &result),
        Err(error) => tracing::error!("the reload did not complete: {error}"),
    }
}
