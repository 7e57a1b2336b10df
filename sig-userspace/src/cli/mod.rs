//! The command line of the binary `sig`: one file per subcommand.

mod accelerate;
mod capture;
mod chain;
mod checked;
mod completions;
mod config;
mod dissect;
mod doctor;
mod drain;
mod drops;
mod identity;
mod notation;
mod path;
mod quick;
mod reload;
mod router;
mod run;
mod signals;
mod socket;
mod srv6;
mod status;
mod supervise;
mod table;
mod top;
mod trace;
mod version;
mod watch;
mod watchdog;

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

use sig_core::problem::Errors;
use sig_observe::log::last_words;

/// SCION-IP gateway: carries IP packets between SCION ASes.
#[derive(Parser)]
#[command(
    name = "sig",
    version,
    max_term_width = 100,
    arg_required_else_help = true,
    after_help = "Exit codes: 0 success, 1 runtime failure, 2 usage or configuration error.",
    args_conflicts_with_subcommands = true
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// The command line of the reference gateway: the same as "sig run --config FILE".
    #[command(flatten)]
    run: Option<run::Args>,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Args),
    Quick(quick::Args),
    Status(status::Args),
    Top(top::Args),
    Reload(reload::Args),
    Drain(drain::Args),
    Trace(trace::Args),
    Capture(capture::Args),
    Drops(drops::Args),
    Config(config::Args),
    Identity(identity::Args),
    Dissect(dissect::Args),
    Doctor(doctor::Args),
    Router(router::Args),
    Accelerate(accelerate::Args),
    Srv6(srv6::Args),
    Chain(chain::Args),
    Path(path::Args),
    Version(version::Args),
    Completions(completions::Args),
    Manual(completions::Manual),
}

/// Why a command did not succeed; shown on the standard error output.
enum Failure {
    /// Wrong usage or configuration: exit code 2. The text, if there is any, is shown as it is.
    Refused(String),
    /// Failed while running: exit code 1. Shown behind the program's name.
    Failed(String),
    /// Nobody reads the output any more, as with `| head`: no failure.
    OutputClosed,
}

impl From<sig_linux::Error> for Failure {
    fn from(error: sig_linux::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<Errors> for Failure {
    fn from(errors: Errors) -> Self {
        match errors.is_of_host() {
            true => Self::Failed(errors.to_string()),
            false => Self::Refused(errors.to_string()),
        }
    }
}

impl From<io::Error> for Failure {
    /// An error of writing the output.
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::OutputClosed
        } else {
            Self::Failed(format!("cannot write the output: {error}"))
        }
    }
}

/// Runs the command of this process's arguments.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Nothing is left to do where even this cannot be written.
            let _ = error.print();
            return match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
                _ => ExitCode::from(2),
            };
        }
    };
    let mut out = io::BufWriter::new(io::stdout().lock());
    let Some(command) = cli.command.or(cli.run.map(Command::Run)) else {
        // Neither: the help says what there is.
        let _ = <Cli as clap::CommandFactory>::command().print_help();
        return ExitCode::from(2);
    };
    let result = match command {
        Command::Run(args) => run::run(&args),
        Command::Quick(args) => quick::run(&args, &mut out),
        Command::Status(args) => status::run(&args, &mut out),
        Command::Top(args) => top::run(&args),
        Command::Reload(args) => reload::run(&args, &mut out),
        Command::Drain(args) => drain::run(&args, &mut out),
        Command::Trace(args) => trace::run(&args, &mut out),
        Command::Capture(args) => capture::run(&args, &mut out),
        Command::Drops(args) => drops::run(&args, &mut out),
        Command::Config(args) => config::run(&args, &mut out),
        Command::Identity(args) => identity::run(&args, &mut out),
        Command::Dissect(args) => dissect::run(&args, &mut out),
        Command::Doctor(args) => doctor::run(&args, &mut out),
        Command::Path(args) => path::run(&args, &mut out),
        Command::Router(args) => router::run(&args, &mut out),
        Command::Accelerate(args) => accelerate::run(&args, &mut out),
        Command::Srv6(args) => srv6::run(&args, &mut out),
        Command::Chain(args) => chain::run(&args, &mut out),
        Command::Version(args) => version::run(&args, &mut out),
        Command::Completions(args) => completions::run(&args, &mut out),
        Command::Manual(args) => args.write(),
    };
    // What was found before a failure comes before its message.
    let flushed = out.flush().map_err(Failure::from);
    match result.and(flushed) {
        Ok(()) | Err(Failure::OutputClosed) => ExitCode::SUCCESS,
        Err(Failure::Refused(message)) => {
            if !message.is_empty() {
                last_words(&message);
            }
            ExitCode::from(2)
        }
        Err(Failure::Failed(message)) => {
            last_words(&format!("sig: {message}"));
            ExitCode::FAILURE
        }
    }
}

/// Seconds since 1970.
fn unix_now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
