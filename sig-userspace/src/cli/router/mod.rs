//! `sig router`: the SCION border router.

mod check;
mod doctor;
mod key;
mod reload;
mod run;
mod sample;
mod status;
mod top;

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use super::{
    Failure,
    socket::{FOLDER, Kind, in_spite_of, only_socket},
};
use sig_router::config::{self, Settings};

/// The SCION border router.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Run(run::Args),
    Status(status::Args),
    Top(top::Args),
    Reload(reload::Args),
    Check(check::Args),
    Doctor(doctor::Args),
    Key(key::Args),
    Sample(sample::Args),
}

/// Which running router.
#[derive(clap::Args)]
struct Choice {
    /// The router's socket [default: the only one in /run/sig].
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Use the socket of this configuration file.
    #[arg(long, value_name = "FILE", conflicts_with = "socket")]
    config: Option<PathBuf>,
}

impl Choice {
    fn socket(&self) -> Result<PathBuf, Failure> {
        match (&self.socket, &self.config) {
            (Some(socket), _) => Ok(socket.clone()),
            (None, Some(file)) => match config::load(file) {
                Ok((settings, _)) => Ok(settings.status_socket),
                Err(errors) => in_spite_of(&errors, file, ["xdp", "general"], Kind::Router),
            },
            (None, None) => only_socket(Path::new(FOLDER), Kind::Router).map_err(Failure::Failed),
        }
    }
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    match &args.command {
        Command::Run(args) => run::run(args),
        Command::Status(args) => status::run(args, out),
        Command::Top(args) => top::run(args),
        Command::Reload(args) => reload::run(args, out),
        Command::Check(args) => check::run(args, out),
        Command::Doctor(args) => doctor::run(args, out),
        Command::Key(args) => key::run(args, out),
        Command::Sample(args) => sample::run(args, out),
    }
}

/// The configuration; its warnings go to the standard error output.
fn load(file: &Path) -> Result<Settings, Failure> {
    let (settings, warnings) =
        config::load(file).map_err(|errors| Failure::Refused(errors.to_string()))?;
    for warning in &warnings {
        let _ = writeln!(std::io::stderr(), "warning: {warning}");
    }
    Ok(settings)
}
