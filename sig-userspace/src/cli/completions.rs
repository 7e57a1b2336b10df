//! `sig completions` and `sig manual`: what packages install for shells and for `man`.

use std::{io::Write, path::PathBuf};

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::{Cli, Failure};

/// Print completions for a shell.
///
/// Packages install them. Otherwise: sig completions bash > /etc/bash_completion.d/sig
#[derive(clap::Args)]
pub(super) struct Args {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "sig", &mut text);
    out.write_all(&text)?;
    Ok(())
}

/// Write the manual pages of this program and its commands.
#[derive(clap::Args)]
#[command(hide = true)]
pub(super) struct Manual {
    /// Where to write them.
    folder: PathBuf,
}

impl Manual {
    pub(super) fn write(&self) -> Result<(), Failure> {
        let folder = &self.folder;
        clap_mangen::generate_to(Cli::command(), folder).map_err(|error| {
            Failure::Failed(format!(
                "cannot write manual pages to {}: {error}",
                folder.display()
            ))
        })
    }
}
