//! `sig router sample`: a start for files of one's own.

use std::io::Write;

use crate::cli::Failure;
use sig_router::config::{SAMPLE, SAMPLE_TOPOLOGY};

/// Print a commented sample: a configuration with every key, or a topology for it.
///
/// To start your own: sig router sample > br.toml; sig router sample --topology > topology.json;
/// sig router key --new > keys/master0.key
#[derive(clap::Args)]
pub(super) struct Args {
    /// Print the topology.json of an AS with one router.
    #[arg(long)]
    topology: bool,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let sample = if args.topology {
        SAMPLE_TOPOLOGY
    } else {
        SAMPLE
    };
    out.write_all(sample.as_bytes())?;
    Ok(())
}
