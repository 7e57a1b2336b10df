//! `sig accelerate run`: in the foreground until a signal ends it.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
};

use sig_core::document::common::{Log, LogLevel};
use sig_observe::log;

use crate::{
    accelerate::{Accelerator, Options},
    cli::{
        Failure,
        signals::{Request, Signals},
        socket::FOLDER,
        supervise::supervise,
    },
};

/// Accelerate a gateway, in the foreground until SIGTERM or SIGINT. The gateway goes on alone then, as it does if this is
/// killed.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The device that SCION packets leave and come in by.
    #[arg(long, value_name = "DEVICE")]
    underlay: String,
    /// The gateway's TUN device. It is waited for if the gateway does not run yet.
    #[arg(long, value_name = "DEVICE", default_value = "sig")]
    tunnel: String,
    /// Leave the maximum segment size of TCP as it is. By default it is lowered in SYNs, both ways, so that packets fit a frame:
    /// those that do not are left to the gateway.
    #[arg(long)]
    no_clamp_mss: bool,
    /// Where `sig accelerate status` asks [default: /run/sig/accelerate-UNDERLAY.sock].
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Least important log message shown: error, warn, info, debug or trace.
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = level)]
    log: LogLevel,
}

fn level(word: &str) -> Result<LogLevel, String> {
    LogLevel::from_word(word).ok_or_else(|| "write error, warn, info, debug or trace".to_owned())
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let socket = args
        .socket
        .clone()
        .unwrap_or_else(|| Path::new(FOLDER).join(format!("accelerate-{}.sock", args.underlay)));
    let log = Log {
        level: args.log,
        ..Log::default()
    };
    let (_log, _flush) = log::start(&log);
    let options = Options {
        underlay: args.underlay.clone(),
        tunnel: args.tunnel.clone(),
        clamp_mss: !args.no_clamp_mss,
        socket,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| Failure::Failed(format!("cannot start the runtime: {error}")))?;
    supervise(runtime, accelerate(options)).map_err(Failure::Failed)
}

async fn accelerate(options: Options) -> Result<(), String> {
    let mut signals = Signals::catch().map_err(|error| format!("cannot catch signals: {error}"))?;
    let shown = options.socket.display().to_string();
    let (accelerator, mut sightings) =
        Accelerator::load(options).map_err(|error| error.to_string())?;
    let _socket = accelerator
        .listen()
        .map_err(|error| format!("{shown}: cannot listen for `sig accelerate status`: {error}"))?;
    // For scripts that wait for it; nobody has to read it.
    let mut out = std::io::stdout();
    let _ = writeln!(out, "accelerator is ready").and_then(|()| out.flush());
    let mut running = std::pin::pin!(accelerator.run(&mut sightings));
    loop {
        tokio::select! {
            result = &mut running => match result {
                Err(error) => return Err(error.to_string()),
            },
            request = signals.next() => match request {
                Request::End => {
                    tracing::info!("stopping; the gateway works alone from now on");
                    return Ok(());
                }
                Request::Reload => tracing::info!("there are no files to reload"),
            },
        }
    }
}
