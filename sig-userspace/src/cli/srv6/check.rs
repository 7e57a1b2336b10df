//! `sig srv6 check`: is a configuration right?

use std::{io::Write, path::PathBuf};

use sig_core::notation::counted;

use crate::{
    cli::{Failure, checked},
    srv6::config,
};

/// Check a configuration file. Prints every problem with file, line and key.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The configuration file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print a JSON object with the verdict, errors and warnings.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let loaded = config::load(&args.file).map(|(config, warnings)| {
        let srv6 = &config.srv6;
        let holds = format!(
            ", {}, {}, {}, {}",
            counted(srv6.sids.len(), "SID"),
            counted(srv6.policies.len(), "policy").replace("policys", "policies"),
            counted(srv6.functions.len(), "function"),
            counted(srv6.rules.len(), "rule")
        );
        (holds, warnings)
    });
    checked::print(&args.file, &loaded, args.json, out)
}
