//! `sig srv6 check`: is a configuration right?

use std::{io::Write, path::PathBuf};

use crate::{cli::Failure, srv6::config};

/// Check a configuration file. Prints every problem with file, line and key.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The configuration file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let (config, warnings) =
        config::load(&args.file).map_err(|errors| Failure::Refused(errors.to_string()))?;
    for warning in warnings {
        writeln!(out, "warning: {warning}")?;
    }
    writeln!(
        out,
        "{}: correct; {} SIDs, {} policies, {} functions, {} rules",
        args.file.display(),
        config.srv6.sids.len(),
        config.srv6.policies.len(),
        config.srv6.functions.len(),
        config.srv6.rules.len()
    )?;
    Ok(())
}
