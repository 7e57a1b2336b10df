//! A process inside a network namespace.

use std::{
    fs::{self, File},
    io,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};

use super::{cleanup, wait_until};

/// A process that writes a log. It is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
    ended: Option<ExitStatus>,
}

impl Process {
    /// Starts `command`, with its output and error output in the file `log`.
    ///
    /// # Errors
    /// It does not start, or the log cannot be made.
    pub fn spawn(mut command: Command, log: &Path) -> Result<Self> {
        let file = File::create(log).with_context(|| format!("cannot make {}", log.display()))?;
        command
            .stdout(file.try_clone()?)
            .stderr(file)
            // Ctrl-C in the terminal is for us alone: we decide when the children end.
            .process_group(0);
        // SAFETY: the call takes no pointer and is allowed between fork and exec.
        unsafe {
            command.pre_exec(
                || match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                    0 => Ok(()),
                    _ => Err(io::Error::last_os_error()),
                },
            );
        }
        let mut left = cleanup::left();
        let child = command
            .spawn()
            .with_context(|| format!("{command:?} does not start"))?;
        left.add_child(child.id());
        Ok(Self {
            child,
            log: log.to_owned(),
            ended: None,
        })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The file with what it printed.
    pub fn log_file(&self) -> &Path {
        &self.log
    }

    /// What it printed so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Sends a signal, such as `libc::SIGTERM`, unless it has ended.
    pub fn signal(&self, signal: libc::c_int) {
        if self.ended.is_none() {
            cleanup::kill(self.id(), signal);
        }
    }

    /// Its exit status if it has ended.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        if self.ended.is_none() {
            let mut left = cleanup::left();
            self.ended = self.child.try_wait()?;
            if self.ended.is_some() {
                left.forget_child(self.child.id());
            }
        }
        Ok(self.ended)
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// It goes on for longer than `timeout`.
    pub fn wait(&mut self, timeout: Duration) -> Result<ExitStatus> {
        let what = format!("the end of process {}", self.id());
        wait_until(&what, timeout, || Ok(self.ended()?.is_some()))?;
        self.ended.context("it has ended")
    }

    /// Waits until its log has the word `word`.
    ///
    /// # Errors
    /// It ends before, or `timeout` passes; the message holds the log.
    pub fn wait_for(&mut self, word: &str, timeout: Duration) -> Result<Duration> {
        let waited = wait_until(word, timeout, || {
            // Whole words: "already" does not mean that it is.
            if self
                .log()
                .split(|c: char| !c.is_alphanumeric())
                .any(|found| found == word)
            {
                return Ok(true);
            }
            match self.ended()? {
                Some(status) => bail!("ended before ({status})"),
                None => Ok(false),
            }
        });
        waited.with_context(|| format!("log of process {}:\n{}", self.id(), self.log()))
    }
}

/// Makes the process of `command` end with the thread that starts it, and not by Ctrl-C in our
/// terminal: we decide when it ends.
pub(super) fn tie(command: &mut Command) {
    command.process_group(0);
    // SAFETY: the call takes no pointer and is allowed between fork and exec.
    unsafe {
        command.pre_exec(
            || match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            },
        );
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(libc::SIGKILL);
        if self.ended.is_none() {
            cleanup::left().forget_child(self.id());
            let _ = self.child.wait();
        }
    }
}
