//! `sig router run`: a border router, in the foreground until a signal ends it.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::cli::{
    Failure,
    signals::{self, Request, Signals},
    supervise::supervise,
    watchdog::{watch, watch_start},
};
use sig_linux::capabilities;
use sig_observe::{log, service::ServiceManager};
use sig_router::{
    config::{self, Settings},
    run::Running,
};

/// Run a border router in the foreground. SIGTERM and SIGINT stop it and restore the host's network;
/// SIGHUP reloads configuration, topology and key.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The configuration file of the router.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let (settings, warnings) =
        config::load(&args.config).map_err(|errors| Failure::Refused(errors.to_string()))?;
    // While there is no other thread.
    capabilities::give_up_sys_admin()
        .map_err(|error| Failure::Failed(format!("cannot give up CAP_SYS_ADMIN: {error}")))?;
    let (log, _flush) = log::start(&settings.log);
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Failed(format!("cannot start the runtime: {error}")))?;
    let manager = ServiceManager::of_this_process();
    supervise(runtime, router(&args.config, settings, log, &manager)).map_err(Failure::Failed)
}

async fn router(
    file: &Path,
    settings: Settings,
    log: log::LogControl,
    manager: &ServiceManager,
) -> Result<(), String> {
    // Signals are caught before there is anything to leave behind.
    let mut signals = Signals::catch().map_err(|error| format!("cannot catch signals: {error}"))?;
    let id = settings.model.router.clone();
    tracing::info!(id, "starting");
    let running = {
        let mut starting = std::pin::pin!(Running::start(file, settings, log, |what| {
            tracing::warn!("waiting for {what}");
            manager.status(&format!("waiting for {what}"));
            manager.ready();
        }));
        let _watching = watch_start(manager);
        loop {
            tokio::select! {
                started = &mut starting => break started?,
                signal = signals.next() => if signal == Request::End {
                    manager.stopping();
                    return Ok(());
                },
            }
        }
    };
    let doors = running.open().await?;
    // For scripts that wait for it; nobody has to read it.
    let mut out = std::io::stdout();
    let _ = writeln!(out, "router is ready").and_then(|()| out.flush());
    manager.status("ready");
    manager.ready();
    tracing::info!(id, "ready");
    let works = async || {
        let running = Arc::clone(&running);
        let answered = tokio::task::spawn_blocking(move || running.answers());
        answered.await.unwrap_or(false)
    };
    let mut watching = std::pin::pin!(watch(manager, works));
    let mut failed = std::pin::pin!(running.failed());
    let outcome = loop {
        tokio::select! {
            never = &mut watching => match never {},
            reason = &mut failed => break Err(reason),
            wish = signals.next() => match wish {
                Request::End => break Ok(()),
                Request::Reload => {
                    let running = Arc::clone(&running);
                    // The next signal may be to end meanwhile.
                    tokio::spawn(signals::reload(move || running.reload()));
                }
            },
        }
    };
    manager.stopping();
    tracing::info!(id, "stopping");
    drop(doors);
    running.stop();
    outcome
}
