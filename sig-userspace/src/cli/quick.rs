//! `sig quick`: a tunnel of one short file.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::{net::UnixStream, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::{
    Failure, reload, run,
    socket::{Kind, expect},
};
use crate::control::config::{self, Config};
use sig_linux::process::Process;

/// A gateway is ready or has failed within this time, or waits for a router that does not answer.
const START: Duration = Duration::from_secs(15);
/// It ends within this time.
const STOP: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(50);

/// A tunnel to one remote gateway from a short file: interface, prefixes, topologies, peer.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Start the gateway of this file in the background, and wait until it is ready. If it runs, it reloads the file.
    Up {
        /// Stay in the foreground, as "sig run" does, for service managers.
        #[arg(long)]
        foreground: bool,
        /// The file of the tunnel.
        file: PathBuf,
    },
    /// Stop the gateway of this file, and wait until it has ended.
    Down {
        /// The file of the tunnel.
        file: PathBuf,
    },
    /// Print the whole configuration that the file stands for, with the description of the network.
    Show {
        /// The file of the tunnel.
        file: PathBuf,
    },
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    match &args.command {
        What::Up {
            foreground: true,
            file,
        } => run::run(&run::Args {
            config: file.clone(),
        }),
        What::Up { file, .. } => up(file, out),
        What::Down { file } => down(file, out),
        What::Show { file } => show(file, out),
    }
}

fn load(file: &Path) -> Result<(Config, config::Written), Failure> {
    let (config, written) =
        config::load_site(file).map_err(|errors| Failure::Refused(errors.to_string()))?;
    for warning in config.warnings() {
        let _ = writeln!(io::stderr(), "warning: {warning}");
    }
    Ok((config, written))
}

fn up(file: &Path, out: &mut dyn Write) -> Result<(), Failure> {
    let (config, _) = load(file)?;
    let socket = &config.gateway.status_socket;
    if UnixStream::connect(socket).is_ok() {
        return reload::show(socket, Kind::Gateway, false, out);
    }
    let log = socket.with_extension("log");
    let failed = |what: &str| {
        let what = format!("cannot {what}");
        move |error: io::Error| Failure::Failed(format!("{what}: {error}"))
    };
    if let Some(folder) = log.parent() {
        fs::create_dir_all(folder).map_err(failed("make the folder of the log"))?;
    }
    let shown = log.display().to_string();
    let output = File::create(&log).map_err(failed(&format!("write {shown}")))?;
    let errors = output.try_clone().map_err(failed("share the log"))?;
    let program = std::env::current_exe().map_err(failed("find this program"))?;
    let mut child = Command::new(program)
        .args(["run", "--config"])
        .arg(file)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        // Not that of this terminal, whose keys are for others.
        .process_group(0)
        .spawn()
        .map_err(failed("start the gateway"))?;
    let deadline = Instant::now() + START;
    loop {
        let text = fs::read_to_string(&log).unwrap_or_default();
        if let Some(status) = child.try_wait().map_err(failed("wait for the gateway"))? {
            return Err(Failure::Failed(format!(
                "the gateway has ended ({status}):\n{}",
                text.trim_end()
            )));
        }
        if text.lines().any(|line| line == "gateway is ready") {
            let (id, name) = (child.id(), file.display());
            writeln!(
                out,
                "up: process {id}, log {shown}; \"sig status --config {name}\" shows it, \"sig quick down {name}\" ends it"
            )?;
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(Failure::Failed(format!(
                "the gateway runs but is not ready after {} s, and goes on trying; \"sig quick down {}\" ends it; its log, {shown}:\n{}",
                START.as_secs(),
                file.display(),
                text.trim_end()
            )));
        }
        thread::sleep(LOOK);
    }
}

fn down(file: &Path, out: &mut dyn Write) -> Result<(), Failure> {
    // Its name is enough: the file may have mistakes by now.
    let socket = config::socket_of_site(file);
    expect(&socket, Kind::Gateway, "status").map_err(Failure::Failed)?;
    let shown = socket.display();
    let stream = UnixStream::connect(&socket).map_err(|error| {
        Failure::Failed(format!(
            "no gateway of this file is running: {shown}: {error}"
        ))
    })?;
    let failed =
        |error| Failure::Failed(format!("cannot stop the gateway behind {shown}: {error}"));
    let process = Process::behind(&stream).map_err(failed)?;
    process.terminate().map_err(failed)?;
    if !process.wait(STOP).map_err(failed)? {
        return Err(Failure::Failed(format!(
            "process {} has not ended within {} s; its log says why",
            process.id(),
            STOP.as_secs()
        )));
    }
    writeln!(out, "down")?;
    Ok(())
}

fn show(file: &Path, out: &mut dyn Write) -> Result<(), Failure> {
    let (config, written) = load(file)?;
    write!(
        out,
        "# gateway.toml\n{}\n# network.toml\n{}",
        config.to_toml(),
        written.network
    )?;
    Ok(())
}
