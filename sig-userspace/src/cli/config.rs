//! `sig config`: check a configuration file, print a sample.

use std::io::Write;
use std::path::PathBuf;

use super::Failure;
use crate::control::config::{self, Config};

/// Check a configuration file, or print a commented sample.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Check a configuration file as a whole, without touching the system.
    ///
    /// Names every problem with file, line, key and remedy. Exit code 2 if there is any. Warnings
    /// go to the standard error output and do not change the exit code.
    Check {
        /// The configuration file.
        file: PathBuf,
    },
    /// Print a commented configuration with every key.
    ///
    /// A start for your own: sig config sample > gateway.toml
    Sample,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    match &args.command {
        Command::Sample => out.write_all(config::SAMPLE.as_bytes())?,
        Command::Check { file } => {
            let config = config::load(file).map_err(|e| Failure::Refused(e.to_string()))?;
            for warning in config.warnings() {
                eprintln!("warning: {warning}");
            }
            writeln!(out, "{}: {}", file.display(), verdict(&config))?;
        }
    }
    Ok(())
}

fn verdict(config: &Config) -> String {
    let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let mut text = format!(
        "ok, {}, {}",
        count(config.remotes.len(), "remote"),
        count(config.path_count(), "path")
    );
    if !config.warnings().is_empty() {
        text += &format!(", {}", count(config.warnings().len(), "warning"));
    }
    text
}
