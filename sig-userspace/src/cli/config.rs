//! `sig config`: check a configuration file, print a sample.

use std::io::Write;
use std::path::PathBuf;

use super::Failure;
use crate::{
    control::{
        config::{self, Config},
        discovery::Policies,
    },
    problem::{Errors, Problem},
};

/// Check a configuration file, or print a commented sample.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Check a configuration file, and the policy files that it names, without touching the system.
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
            let refused = |errors: Errors| Failure::Refused(errors.to_string());
            let config = config::load(file).map_err(refused)?;
            let policies = match &config.control {
                Some(control) => Some(Policies::load(control, &config.gateway).map_err(refused)?),
                None => None,
            };
            let (policies, more) = policies.unzip();
            let warnings: Vec<Problem> = config
                .warnings()
                .iter()
                .cloned()
                .chain(more.into_iter().flatten())
                .collect();
            for warning in &warnings {
                eprintln!("warning: {warning}");
            }
            let verdict = verdict(&config, policies.as_ref(), warnings.len());
            writeln!(out, "{}: {verdict}", file.display())?;
        }
    }
    Ok(())
}

fn verdict(config: &Config, policies: Option<&Policies>, warnings: usize) -> String {
    let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let mut text = match policies {
        None => format!(
            "ok, {}, {}",
            count(config.remotes.len(), "remote"),
            count(config.path_count(), "path")
        ),
        Some(policies) => format!(
            "ok, {}, {}",
            count(policies.traffic.ases.len(), "remote AS").replace("ASs", "ASes"),
            count(policies.routing.rules.len(), "routing rule")
        ),
    };
    if warnings > 0 {
        text += &format!(", {}", count(warnings, "warning"));
    }
    text
}
