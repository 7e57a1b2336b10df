//! A network namespace.

use std::{
    ffi::OsStr,
    fs::File,
    io::Write as _,
    os::fd::AsRawFd as _,
    path::Path,
    process::{Command, Stdio},
    thread,
};

use anyhow::{Context as _, Result, bail};

use super::{cleanup, process::tie};

/// A network namespace with a name that `ip netns` knows. It is removed when dropped.
#[derive(Debug)]
pub struct Netns {
    name: String,
    file: File,
}

impl Netns {
    /// Makes a namespace with the loopback interface up. Interfaces made in it later can use their
    /// IPv6 addresses at once, without the second of duplicate address detection.
    ///
    /// # Errors
    /// Missing privileges, or no `ip`.
    pub fn new(label: &str) -> Result<Self> {
        let name = cleanup::own_name(label);
        let file = {
            let mut left = cleanup::left();
            left.add_namespace(&name);
            ip(&["netns", "add", &name], "")?;
            File::open(Path::new("/run/netns").join(&name))?
        };
        let netns = Self { name, file };
        netns.set_sysctls(&[
            ("net/ipv6/conf/all/accept_dad", "0"),
            ("net/ipv6/conf/default/accept_dad", "0"),
            ("net/ipv4/conf/all/rp_filter", "0"),
            ("net/ipv4/conf/default/rp_filter", "0"),
        ])?;
        netns.ip("link set lo up")?;
        Ok(netns)
    }

    /// Its name, for `ip netns exec`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `ip` with each line of `lines` inside. Returns what it printed.
    ///
    /// # Errors
    /// A line is refused, which ends it; the message is that of `ip`.
    pub fn ip(&self, lines: &str) -> Result<String> {
        ip(&["-n", &self.name, "-batch", "-"], lines)
    }

    /// Writes settings below `/proc/sys`.
    ///
    /// # Errors
    /// The kernel has no such setting.
    pub fn set_sysctls(&self, settings: &[(&str, &str)]) -> Result<()> {
        self.run(|| {
            for (name, value) in settings {
                std::fs::write(Path::new("/proc/sys").join(name), value)
                    .with_context(|| format!("cannot set {name}"))?;
            }
            Ok(())
        })?
    }

    /// A command that runs inside. Its process is killed when the thread that started it ends.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        self.command_on(None, program)
    }

    /// The same, with all its threads on the CPU `cpu` if there is one.
    pub fn command_on(&self, cpu: Option<u16>, program: impl AsRef<OsStr>) -> Command {
        let mut command = match cpu {
            None => Command::new("ip"),
            Some(cpu) => {
                let mut command = Command::new("taskset");
                command.args(["--cpu-list", &cpu.to_string(), "ip"]);
                command
            }
        };
        command
            .args(["netns", "exec", &self.name])
            .arg(program)
            .env("LC_ALL", "C")
            .stdin(Stdio::null());
        tie(&mut command);
        command
    }

    /// The same, started by another program, whose words are `by`, if there are any.
    pub(super) fn command_by(&self, by: &[String], cpu: Option<u16>, program: &Path) -> Command {
        match by {
            [] => self.command_on(cpu, program),
            [first, arguments @ ..] => {
                let mut command = self.command_on(cpu, first);
                command.args(arguments).arg(program);
                command
            }
        }
    }

    /// Runs a command inside, words separated by spaces, and returns what it printed.
    ///
    /// # Errors
    /// It fails; the message holds what it printed on its error output.
    pub fn exec(&self, line: &str) -> Result<String> {
        let mut words = line.split_whitespace();
        let program = words.next().unwrap_or_default();
        let output = self
            .command(program)
            .args(words)
            .output()
            .context("`ip` does not start")?;
        if !output.status.success() {
            bail!(
                "`{line}` in {} failed ({}): {}",
                self.name,
                output.status,
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs `work` on a fresh thread inside. Sockets it opens stay there wherever they are used.
    ///
    /// # Errors
    /// The namespace cannot be entered. A panic of `work` goes on in the caller.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        let file = &self.file;
        thread::scope(|scope| {
            let inside = move || {
                // SAFETY: takes no pointer; only this thread moves, and it ends with `work`.
                if unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) } != 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(work())
            };
            scope
                .spawn(inside)
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
        .with_context(|| format!("cannot enter {}", self.name))
    }

    /// Names of the interfaces inside, sorted, without the loopback interface.
    ///
    /// # Errors
    /// As [`Self::exec`].
    pub fn interfaces(&self) -> Result<Vec<String>> {
        let list = ip(&["-n", &self.name, "-brief", "link"], "")?;
        let mut names: Vec<_> = list
            .lines()
            .filter_map(|line| line.split([' ', '@']).next())
            .filter(|name| *name != "lo")
            .map(str::to_owned)
            .collect();
        names.sort();
        Ok(names)
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        cleanup::delete_namespace(&self.name);
    }
}

/// Runs `ip` with `input`.
pub(super) fn ip(arguments: &[&str], input: &str) -> Result<String> {
    let mut child = Command::new("ip")
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("`ip` of iproute2 does not start")?;
    if let Some(mut stdin) = child.stdin.take() {
        // It may end before it has read everything; its message says why.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!(
            "`ip {}` failed: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
