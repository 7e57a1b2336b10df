//! `sig quick`: a tunnel of one short file.

use std::{
    ffi::OsStr,
    fs::{self, OpenOptions},
    io::{self, Write},
    os::{
        fd::AsRawFd as _,
        unix::{
            ffi::OsStrExt as _, fs::MetadataExt as _, net::UnixStream, process::CommandExt as _,
        },
    },
    path::{self, Path, PathBuf},
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
    let (config, written) = config::load_site(file)?;
    for warning in config.warnings() {
        let _ = writeln!(io::stderr(), "warning: {warning}");
    }
    Ok((config, written))
}

/// The gateway behind the socket, if it is that of this file.
///
/// # Errors
/// It is another one's.
fn gateway_of(file: &Path, socket: &Path, stream: &UnixStream) -> Result<Process, Failure> {
    let shown = socket.display();
    let process = Process::behind(stream).map_err(|error| {
        Failure::Failed(format!("cannot find the process behind {shown}: {error}"))
    })?;
    if runs(process.id(), file) {
        return Ok(process);
    }
    let (id, file) = (process.id(), file.display());
    Err(Failure::Failed(format!(
        "process {id}, the gateway behind {shown}, was not started with {file}, as far as this user can see: call this as root, \
         or give the file another name"
    )))
}

/// Whether a process was started with this file; of one that is gone, under its name.
fn runs(process: u32, file: &Path) -> bool {
    let place = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino()));
    let own = place(file).ok();
    let name = path::absolute(file).ok();
    let folder = PathBuf::from(format!("/proc/{process}"));
    let arguments = fs::read(folder.join("cmdline")).unwrap_or_default();
    let mut arguments = arguments.split(|byte| *byte == 0);
    arguments.any(|argument| {
        let argument = argument.strip_prefix(b"--config=").unwrap_or(argument);
        let named = Path::new(OsStr::from_bytes(argument));
        match own {
            Some(own) => place(&folder.join("cwd").join(named)).is_ok_and(|named| named == own),
            None => name.as_deref() == Some(named),
        }
    })
}

fn up(file: &Path, out: &mut dyn Write) -> Result<(), Failure> {
    let (config, _) = load(file)?;
    let socket = &config.gateway.status_socket;
    if let Ok(stream) = UnixStream::connect(socket) {
        gateway_of(file, socket, &stream)?;
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
    // Until it is known that this gateway runs and not one that another call has started meanwhile.
    let unnamed = log.with_extension(format!("log.{}", std::process::id()));
    // The folder may be another user's: nothing that is there is written to, and symbolic links are not followed.
    let _ = fs::remove_file(&unnamed);
    let output = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&unnamed)
        .map_err(failed(&format!("write {shown}")))?;
    let errors = output.try_clone().map_err(failed("share the log"))?;
    let kept = output.try_clone().map_err(failed("share the log"))?;
    // At an offset of its own.
    let written = format!("/proc/self/fd/{}", kept.as_raw_fd());
    // Whoever looks for the gateway of this file may be in another folder.
    let whole = path::absolute(file).map_err(failed("find the file"))?;
    let program = std::env::current_exe().map_err(failed("find this program"))?;
    let mut child = Command::new(program)
        .args(["run", "--config"])
        .arg(whole)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        // Not that of this terminal, whose keys are for others.
        .process_group(0)
        .spawn()
        .map_err(failed("start the gateway"))?;
    let deadline = Instant::now() + START;
    loop {
        let text = fs::read_to_string(&written).unwrap_or_default();
        if let Some(status) = child.try_wait().map_err(failed("wait for the gateway"))? {
            let _ = fs::remove_file(&unnamed);
            return Err(Failure::Failed(format!(
                "the gateway has ended ({status}):\n{}",
                text.trim_end()
            )));
        }
        let is_ready = text.lines().any(|line| line == "gateway is ready");
        let is_late = Instant::now() > deadline;
        if is_ready || is_late {
            fs::rename(&unnamed, &log).map_err(failed(&format!("write {shown}")))?;
        }
        if is_ready {
            let (id, name) = (child.id(), file.display());
            writeln!(
                out,
                "up: process {id}, log {shown}; \"sig status --config {name}\" shows it, \"sig quick down {name}\" ends it"
            )?;
            return Ok(());
        }
        if is_late {
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
    if config::is_whole(file) {
        let shown = file.display();
        return Err(Failure::Refused(format!(
            "{shown}: this is no short file, but a whole configuration; end its gateway with SIGTERM, or through the service manager"
        )));
    }
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
    let process = gateway_of(file, &socket, &stream)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_the_file_it_was_started_with() {
        let own = std::process::id();
        let program = std::env::current_exe().expect("this program");
        assert!(runs(own, &program));
        assert!(!runs(own, Path::new("/proc/self/status")));
        assert!(!runs(own, Path::new("/nowhere/site.toml")));
        let gone = Path::new("/nowhere/gone.toml");
        let mut sleep = Command::new("/bin/sh")
            .args(["-c", "read line", "/nowhere/gone.toml"])
            .stdin(Stdio::piped())
            .spawn()
            .expect("a shell");
        // Its arguments are there a moment after it was spawned.
        let mut looks = 0..1000;
        assert!(looks.any(|_| {
            thread::sleep(Duration::from_millis(1));
            runs(sleep.id(), gone)
        }));
        drop(sleep.stdin.take());
        sleep.wait().expect("the shell");
    }
}
