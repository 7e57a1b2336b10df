//! `sig config`: check a configuration file, print a sample.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::{Failure, checked};
use crate::control::{
    config::{self, Config},
    discovery::Policies,
    rules::{self, Rules},
};
use sig_core::{
    notation::counted,
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
    /// Check a configuration file and the policy files it names, without touching the system.
    ///
    /// Shows each problem with file, line, key and remedy; the exit code is then 2. Warnings go to
    /// standard error and do not change the exit code.
    Check {
        /// The configuration file.
        file: PathBuf,
        /// Print a JSON object with the verdict, errors and warnings.
        #[arg(long)]
        json: bool,
    },
    /// Print a commented sample: a configuration with every key, or a policy file.
    ///
    /// To start your own: sig config sample > gateway.toml
    Sample {
        /// File to print.
        #[arg(value_enum, default_value_t = Sample::Gateway)]
        what: Sample,
    },
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Sample {
    /// The configuration file of the gateway.
    Gateway,
    /// Remote ASes and their prefixes, for traffic_policy_file.
    TrafficPolicy,
    /// Prefixes advertised and accepted, for ip_routing_policy_file.
    RoutingPolicy,
    /// What is done with packets, and service chains, for rules_file.
    Rules,
}

impl Sample {
    const fn text(self) -> &'static str {
        match self {
            Self::Gateway => config::SAMPLE,
            Self::TrafficPolicy => TRAFFIC_POLICY_SAMPLE,
            Self::RoutingPolicy => ROUTING_POLICY_SAMPLE,
            Self::Rules => rules::SAMPLE,
        }
    }
}

/// The commented sample of a routing policy, for the AS and prefix of the sample configuration.
const ROUTING_POLICY_SAMPLE: &str = "\
# Which prefixes are advertised to whom, and accepted from whom (docs/policies.md).
# action     from            to              prefixes
advertise    1-ff00:0:110    1-ff00:0:111    192.168.10.0/24
accept       1-ff00:0:111    1-ff00:0:110    192.168.11.0/24
";

/// A traffic policy with one remote AS. JSON has no comments.
const TRAFFIC_POLICY_SAMPLE: &str = r#"{
  "ASes": {
    "1-ff00:0:111": { "Nets": [] }
  },
  "ConfigVersion": 1
}
"#;

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    match &args.command {
        Command::Sample { what } => out.write_all(what.text().as_bytes())?,
        Command::Check { file, json } => checked::print(file, &check(file), *json, out)?,
    }
    Ok(())
}

/// What a file and its policy files hold, and what deserves a look.
fn check(file: &Path) -> Result<(String, Vec<Problem>), Errors> {
    let config = config::load_at(file, Some(SystemTime::now()))?;
    let policies = match &config.control {
        Some(control) => Some(Policies::load(control, &config.gateway)?),
        None => None,
    };
    let (policies, more) = policies.unzip();
    let (rules, of_rules) = Rules::load(&config)?;
    let own = config.warnings().iter().cloned();
    let more = more.into_iter().flatten();
    let warnings: Vec<Problem> = own.chain(more).chain(of_rules).collect();
    Ok((holds(&config, policies.as_ref(), &rules), warnings))
}

fn holds(config: &Config, policies: Option<&Policies>, rules: &Rules) -> String {
    let mut text = match policies {
        None => format!(
            ", {}, {}",
            counted(config.remotes.len(), "remote"),
            counted(config.path_count(), "path")
        ),
        Some(policies) => format!(
            ", {}, {}",
            counted(policies.traffic.ases.len(), "remote AS").replace("ASs", "ASes"),
            counted(policies.routing.rules.len(), "routing rule")
        ),
    };
    if config.gateway.rules_file.is_some() {
        text += &format!(", {}", counted(rules.rules.len(), "rule"));
    }
    text
}
