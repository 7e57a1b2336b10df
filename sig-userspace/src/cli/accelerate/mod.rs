//! `sig accelerate`: beside a foreign gateway.

mod run;
mod status;

use std::io::Write;

use super::Failure;

/// Accelerate another SCION-IP gateway on this host, such as the reference gateway.
///
/// Takes simple packets off the gateway, in the kernel, by the example of its own frames. It needs no configuration, and the
/// gateway does not notice.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Run(run::Args),
    Status(status::Args),
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    match &args.command {
        Command::Run(args) => run::run(args),
        Command::Status(args) => status::run(args, out),
    }
}
