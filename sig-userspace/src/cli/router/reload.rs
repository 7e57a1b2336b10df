//! `sig router reload`: has a running router read its files again.

use std::io::Write;

use super::Choice;
use crate::cli::{Failure, reload, socket::Kind};

/// Make a running router reload its configuration, topology and key, and show what changed.
///
/// No packet is lost. If a file has errors, they are shown, nothing changes, and the exit code is 1.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    router: Choice,
    /// Print the changes as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    reload::show(&args.router.socket()?, Kind::Router, args.json, out)
}
