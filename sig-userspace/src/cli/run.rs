//! `sig run`: the gateway, in the foreground until a signal ends it.

use std::{
    io::{self, Write as _},
    path::PathBuf,
};

use super::{
    Failure,
    signals::{Request, Signals},
    supervise::supervise,
    watchdog::{watch, watch_start},
};
use crate::gateway::{Builder, Gateway, Handle};
use sig_linux::capabilities;
use sig_observe::{log, service::ServiceManager};

/// Run the gateway in the foreground. SIGTERM and SIGINT stop it and restore the host's network;
/// SIGHUP reloads the configuration and policy files.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Configuration file; "sig config sample" prints one.
    #[arg(long, value_name = "FILE")]
    pub(super) config: PathBuf,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let builder = Gateway::load(&args.config)?;
    // While there is no other thread.
    capabilities::settle_for_less()
        .map_err(|error| Failure::Failed(format!("cannot give up CAP_SYS_ADMIN: {error}")))?;
    let (log, _flush) = log::start(&builder.config().log);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        // The workers have threads of their own; the control plane has little to do.
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::Failed(format!("cannot start the runtime: {error}")))?;
    let manager = ServiceManager::of_this_process();
    let builder = builder.log(log).service_manager(manager.clone());
    supervise(runtime, gateway(builder, &manager)).map_err(Failure::Failed)
}

async fn gateway(builder: Builder, manager: &ServiceManager) -> Result<(), String> {
    // Signals are caught before there is anything to leave behind.
    let mut signals = Signals::catch().map_err(|error| format!("cannot catch signals: {error}"))?;
    let id = builder.config().gateway.id.clone();
    let handle = builder.handle();
    let gateway = {
        let mut starting = std::pin::pin!(builder.start());
        let _watching = watch_start(manager);
        loop {
            tokio::select! {
                started = &mut starting => break started.map_err(|error| error.to_string())?,
                request = signals.next() => match request {
                    Request::End => {
                        manager.stopping();
                        return Ok(());
                    }
                    Request::Reload => reload(&handle),
                },
            }
        }
    };
    manager.status("set up; no remote can be reached yet");
    let outcome = {
        let mut last = Vec::new();
        let works = async || {
            let rounds = gateway.rounds().await;
            let works = rounds.iter().zip(&last).all(|(now, last)| now != last);
            last = rounds;
            works
        };
        tokio::select! {
            outcome = until_the_end(&gateway, &handle, &mut signals, manager, &id) => outcome,
            never = watch(manager, works) => match never {},
        }
    };
    manager.stopping();
    if outcome.is_ok() {
        tracing::info!(id, "stopping");
    }
    gateway.stop().await.map_err(|error| error.to_string())?;
    outcome
}

async fn until_the_end(
    gateway: &Gateway,
    handle: &Handle,
    signals: &mut Signals,
    manager: &ServiceManager,
    id: &str,
) -> Result<(), String> {
    let mut announced = false;
    loop {
        tokio::select! {
            () = gateway.ready(), if !announced => {
                announced = true;
                // As the router does, for scripts that wait for it; nobody has to read it.
                let mut out = io::stdout();
                let _ = writeln!(out, "gateway is ready").and_then(|()| out.flush());
                manager.status("ready");
                tracing::info!(id, "ready");
            }
            error = gateway.failed() => return Err(error.to_string()),
            request = signals.next() => match request {
                Request::End => return Ok(()),
                Request::Reload => reload(handle),
            },
        }
    }
}

/// Reloads and logs what came of it. The next signal may be to end meanwhile.
fn reload(handle: &Handle) {
    let handle = handle.clone();
    tokio::spawn(async move {
        let result = handle.reload().await;
        log::reloaded("SIGHUP", &result.map_err(|error| error.to_string()));
    });
}
