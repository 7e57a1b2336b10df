//! `sig router`: the SCION border router.

mod check;
mod key;

use std::{io::Write, path::Path};

use super::Failure;
use crate::router::config::{self, Settings};

/// The SCION border router.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Check(check::Args),
    Key(key::Args),
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    match &args.command {
        Command::Check(args) => check::run(args, out),
        Command::Key(args) => key::run(args, out),
    }
}

/// The configuration; its warnings go to the standard error output, and how many they are is returned.
fn load(file: &Path) -> Result<(Settings, usize), Failure> {
    let (settings, warnings) =
        config::load(file).map_err(|errors| Failure::Refused(errors.to_string()))?;
    for warning in &warnings {
        eprintln!("warning: {warning}");
    }
    Ok((settings, warnings.len()))
}
