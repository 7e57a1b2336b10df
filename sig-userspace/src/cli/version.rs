//! `sig version`.

use std::io::Write;

use super::Failure;

/// Print the version.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Print a JSON object.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let version = env!("CARGO_PKG_VERSION");
    if args.json {
        writeln!(out, "{}", serde_json::json!({ "version": version }))?;
    } else {
        writeln!(out, "sig {version}")?;
    }
    Ok(())
}
