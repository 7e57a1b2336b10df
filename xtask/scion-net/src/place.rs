//! A thread with a tokio runtime, inside a network namespace or not.

use std::{fs::File, io, os::fd::AsRawFd as _, path::Path, sync::mpsc, thread};

use anyhow::{Context as _, Result};
use testbed::Netns;
use tokio::sync::oneshot;

/// Where something runs: a network namespace, or that of the process.
#[derive(Debug)]
pub(crate) struct Place(Option<File>);

impl Place {
    /// Inside `netns`; none: in that of the process.
    pub(crate) fn new(netns: Option<&Netns>) -> Result<Self> {
        let open = |netns: &Netns| {
            let path = Path::new("/run/netns").join(netns.name());
            File::open(&path).with_context(|| format!("cannot open {}", path.display()))
        };
        Ok(Self(netns.map(open).transpose()?))
    }

    /// Runs `set_up` and then what it returns on a thread in this place, until the return value is dropped. Sockets that
    /// they open are of this place. Everything that they spawn ends with them.
    ///
    /// # Errors
    /// That of `set_up`.
    pub(crate) fn run<S, M>(
        &self,
        name: &str,
        set_up: impl FnOnce() -> S + Send + 'static,
    ) -> Result<Running>
    where
        S: Future<Output = Result<M>>,
        M: Future<Output = ()>,
    {
        let netns = self.0.as_ref().map(File::try_clone).transpose()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let (report, result) = mpsc::channel();
        let inside = move || {
            let start = || -> Result<_> {
                if let Some(netns) = netns {
                    // SAFETY: takes no pointer; only this thread moves, and it ends with its runtime.
                    if unsafe { libc::setns(netns.as_raw_fd(), libc::CLONE_NEWNET) } != 0 {
                        return Err(io::Error::last_os_error().into());
                    }
                }
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()?;
                let main = runtime.block_on(set_up())?;
                Ok((runtime, main))
            };
            match start() {
                Err(error) => {
                    let _ = report.send(Err(error));
                }
                Ok((runtime, main)) => {
                    let _ = report.send(Ok(()));
                    runtime.block_on(async {
                        tokio::select! {
                            () = main => {}
                            _ = stopped => {}
                        }
                    });
                }
            }
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(inside)?;
        let running = Running {
            stop: Some(stop),
            thread: Some(thread),
        };
        let started = result.recv().context("its thread panicked");
        started
            .and_then(|result| result)
            .with_context(|| format!("{name} does not start"))?;
        Ok(running)
    }
}

/// What runs in a [`Place`]. It ends when dropped.
#[derive(Debug)]
pub(crate) struct Running {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let name = thread.thread().name().unwrap_or_default().to_owned();
            if thread.join().is_err() {
                eprintln!("error: {name} panicked");
            }
        }
    }
}
