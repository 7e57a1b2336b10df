//! `sig version`.

use std::io::Write;

use super::Failure;

/// Print the version.
#[derive(clap::Args)]
pub(super) struct Args {}

pub(super) fn run(_: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    writeln!(out, "sig {}", env!("CARGO_PKG_VERSION"))?;
    Ok(())
}
