//! The thread of the BFD sessions: a flood that keeps all other threads busy must not make them late.

use std::{io, thread};

use tokio::{runtime, sync::oneshot};

/// Nice value: before all ordinary work of the host, but not before its kernel threads as a real-time thread would be.
const NICE: libc::c_int = -20;

/// A runtime on a thread of its own. It ends when this is dropped.
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
}

/// Raises the priority of the calling thread, if the process may (CAP_SYS_NICE).
fn prefer() {
    // SAFETY: no memory is involved; on Linux, 0 means the calling thread alone.
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) } != 0 {
        let error = io::Error::last_os_error();
        tracing::debug!("BFD has no priority over other work of this host: {error}");
    }
}
