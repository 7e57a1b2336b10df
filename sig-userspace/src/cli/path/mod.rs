//! `sig path`: raw paths, made from a description of the network or shown to people.

mod make;
mod show;

use std::io::Write;

use super::Failure;

/// Create or decode raw SCION paths.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Make(make::Args),
    Show(show::Args),
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    match &args.command {
        Command::Make(args) => make::run(args, out),
        Command::Show(args) => show::run(args, out),
    }
}
