//! `sig srv6 run`: in the foreground until a signal ends it.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
};

use sig_linux::capabilities;
use sig_observe::log;

use crate::{
    cli::{
        Failure,
        signals::{Request, Signals},
        supervise::supervise,
    },
    srv6::{SrNode, config},
};

/// Run an SR node, in the foreground until SIGTERM or SIGINT. SIGHUP reads the configuration again.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The configuration file; `sig srv6 sample` prints one.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let (config, warnings) =
        config::load(&args.config).map_err(|errors| Failure::Refused(errors.to_string()))?;
    // While there is no other thread.
    capabilities::give_up_sys_admin()
        .map_err(|error| Failure::Failed(format!("cannot give up CAP_SYS_ADMIN: {error}")))?;
    let (_log, _flush) = log::start(&config.log);
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| Failure::Failed(format!("cannot start the runtime: {error}")))?;
    supervise(runtime, process(config, args.config.clone())).map_err(Failure::Failed)
}

async fn process(config: config::Config, file: PathBuf) -> Result<(), String> {
    let mut signals = Signals::catch().map_err(|error| format!("cannot catch signals: {error}"))?;
    let socket = config.status_socket;
    let id = config.id.clone();
    let (node, mut events) =
        SrNode::load(config.id, config.srv6, None).map_err(|error| error.to_string())?;
    node.look().await.map_err(|error| error.to_string())?;
    let _socket = node.listen(&socket).map_err(|error| {
        format!(
            "{}: cannot listen for `sig srv6 status`: {error}",
            socket.display()
        )
    })?;
    // For scripts that wait for it; nobody has to read it.
    let mut out = std::io::stdout();
    let _ = writeln!(out, "SR node {id} is ready").and_then(|()| out.flush());
    let mut running = std::pin::pin!(node.run(&mut events));
    loop {
        tokio::select! {
            result = &mut running => match result {
                Err(error) => return Err(error.to_string()),
            },
            request = signals.next() => match request {
                Request::End => {
                    tracing::info!("stopping; packets to SIDs are the kernel's from now on");
                    return Ok(());
                }
                // What runs goes on meanwhile: it may be where it holds what a reload waits for.
                Request::Reload => tokio::select! {
                    result = &mut running => match result {
                        Err(error) => return Err(error.to_string()),
                    },
                    () = reload(&node, &file) => {}
                },
            },
        }
    }
}

/// Follows the file as it is now, unless it is wrong.
async fn reload(node: &SrNode, file: &Path) {
    match config::load(file) {
        Ok((config, warnings)) => {
            for warning in warnings {
                tracing::warn!("{warning}");
            }
            match node.reload(config.srv6, None).await {
                Ok(()) => tracing::info!(file = %file.display(), "follows the file as it is now"),
                Err(error) => tracing::error!(
                    "the file is right but not in force in full; trying again every second: {error}"
                ),
            }
        }
        Err(errors) => {
            tracing::error!(
                "nothing is changed, as the file is wrong; correct it and reload again\n{errors}"
            );
        }
    }
}
