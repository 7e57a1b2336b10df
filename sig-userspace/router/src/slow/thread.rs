//! The thread of the BFD sessions: a flood that keeps all other threads busy must not make them late.

use std::{io, sync::mpsc, thread};

use tokio::{runtime, sync::oneshot};

/// Real-time priority: the lowest, which is before all ordinary work of the host, whatever the groups that it is divided
/// into. Nice values count only within such a group, and every session of a terminal or service may be one.
const PRIORITY: libc::c_int = 1;

/// Nice value where real-time priority is not to be had.
const NICE: libc::c_int = -20;

/// A runtime on a thread of its own. It ends when this is dropped.
///
/// Nothing else runs on its CPU while it works, so its tasks do little at a time.
pub(super) struct Thread {
    handle: runtime::Handle,
    _end: oneshot::Sender<()>,
}

impl Thread {
    /// # Errors
    /// The system has no room for another thread.
    pub(super) fn start() -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        thread::Builder::new()
            .name("bfd".to_owned())
            .spawn(move || {
                prefer();
                // The sender says nothing; it is dropped.
                let _ = runtime.block_on(ended);
            })?;
        Ok(Self { handle, _end: end })
    }

    /// Where to spawn its tasks.
    pub(super) const fn handle(&self) -> &runtime::Handle {
        &self.handle
    }

    /// Does something there and waits for it, so that the thread never waits for a lock of one that has no priority.
    /// `None` if the thread has ended. Must not be called there.
    pub(super) fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (done, wait) = mpsc::channel();
        self.handle.spawn(async move {
            // Who waits does so until this is sent.
            let _ = done.send(work());
        });
        wait.recv().ok()
    }
}

/// Raises the priority of the calling thread, if the process may (CAP_SYS_NICE).
fn prefer() {
    let parameters = libc::sched_param {
        sched_priority: PRIORITY,
    };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the kernel reads a structure that lives here; 0 means the calling thread.
    if unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } == 0 {
        return;
    }
    let error = io::Error::last_os_error();
    // SAFETY: no memory is involved; on Linux, 0 means the calling thread alone.
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) } == 0 {
        tracing::info!("cannot give BFD real-time priority ({error}); using nice value {NICE}");
    } else {
        tracing::warn!(
            "cannot raise the priority of BFD, so a busy host may cause links to flap: {error}; add CAP_SYS_NICE to \
             AmbientCapabilities= of the systemd unit"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_before_ordinary_work_if_it_may() {
        let thread = Thread::start().unwrap();
        // SAFETY: no memory is involved; 0 means the calling thread.
        let policy = || unsafe { libc::sched_getscheduler(0) };
        let own = policy();
        let policy = thread.run(policy).unwrap();
        // SAFETY: as above.
        if unsafe { libc::geteuid() } == 0 {
            assert_eq!(policy, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK);
        } else {
            assert!([own, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK].contains(&policy));
        }
    }

    #[test]
    fn work_on_it_has_a_result() {
        let thread = Thread::start().unwrap();
        assert_eq!(
            thread.run(|| thread::current().name().map(str::to_owned)),
            Some(Some("bfd".to_owned()))
        );
    }
}
