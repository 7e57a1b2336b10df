//! `sig srv6`: an SR node.

mod check;
mod run;
pub(super) mod status;

use std::{io::Write, path::PathBuf};

use super::{
    Failure,
    socket::{FOLDER, Kind, in_spite_of, only_socket},
};
use crate::srv6::config;

/// An SRv6 node: segment identifiers, policies, and functions behind proxies (RFC 8754, RFC 8986).
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Run(run::Args),
    Check(check::Args),
    Status(status::Args),
    Sample(Sample),
}

/// Print a commented configuration with every key.
#[derive(clap::Args)]
struct Sample {}

/// Which node.
#[derive(clap::Args)]
pub(super) struct Choice {
    /// The node's socket [default: the only one in /run/sig].
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
                Ok((config, _)) => Ok(config.status_socket),
                Err(errors) => in_spite_of(&errors, file, ["general", "general"], Kind::SrNode),
            },
            (None, None) => only_socket(FOLDER.as_ref(), Kind::SrNode).map_err(Failure::Failed),
        }
    }
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    match &args.command {
        Command::Run(args) => run::run(args),
        Command::Check(args) => check::run(args, out),
        Command::Status(args) => status::run(args, out),
        Command::Sample(Sample {}) => Ok(out.write_all(config::SAMPLE.as_bytes())?),
    }
}
