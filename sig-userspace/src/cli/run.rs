//! `sig run`: the gateway, in the foreground until a signal ends it.

use std::{io, path::PathBuf};

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Failure;
use crate::{
    control::{
        config::{self, Config},
        host::Host,
    },
    observe::{log, socket::ControlSocket},
};

/// Run the gateway in the foreground. SIGTERM or SIGINT ends it and leaves the host's network as it was.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Configuration file; "sig config sample" prints one.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let config =
        config::load(&args.config).map_err(|errors| Failure::Refused(errors.to_string()))?;
    if config.control.is_some() {
        return Err(Failure::Refused(
            "finding remotes is not implemented yet; name them in [[remote]] sections".into(),
        ));
    }
    log::start(&config.log);
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        // The workers have threads of their own; the control plane has little to do.
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::Failed(format!("cannot start the runtime: {error}")))?;
    runtime.block_on(gateway(config)).map_err(Failure::Failed)
}

async fn gateway(config: Config) -> Result<(), String> {
    // Signals are caught before there is anything to leave behind.
    let mut signals = Signals::catch().map_err(|error| format!("cannot catch signals: {error}"))?;
    let (id, socket) = (
        config.gateway.id.clone(),
        config.gateway.status_socket.clone(),
    );
    tracing::info!(id, isd_as = %config.gateway.isd_as, data_addr = %config.gateway.data_addr, "starting");
    let host = Host::start(config)
        .await
        .map_err(|error| error.to_string())?;
    let no_reload = || Err("a changed configuration takes effect with a restart only".to_owned());
    let _control = ControlSocket::listen(&socket, host.status(), no_reload).map_err(|error| {
        format!(
            "{}: cannot listen for `sig status` and `sig reload`: {error}",
            socket.display()
        )
    })?;

    let mut announced = false;
    let outcome = loop {
        tokio::select! {
            () = host.ready(), if !announced => {
                announced = true;
                tracing::info!(id, "ready");
            }
            reason = host.failed() => break Err(reason),
            ends = signals.next() => {
                if ends {
                    break Ok(());
                }
                tracing::warn!("SIGHUP: a changed configuration takes effect with a restart only");
            }
        }
    };
    if outcome.is_ok() {
        tracing::info!(id, "stopping");
    }
    host.stop().await.map_err(|error| error.to_string())?;
    outcome
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn catch() -> io::Result<Self> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Whether the next signal is one that ends the gateway.
    async fn next(&mut self) -> bool {
        tokio::select! {
            _ = self.terminate.recv() => true,
            _ = self.interrupt.recv() => true,
            _ = self.hangup.recv() => false,
        }
    }
}
