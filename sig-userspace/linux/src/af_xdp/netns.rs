use std::{
    os::fd::{AsRawFd, BorrowedFd},
    thread,
};

use super::Error;

/// Runs `work` in a network namespace, on a thread of its own so that the caller stays in its own;
/// without one, right here.
pub(super) fn within<T: Send>(
    namespace: Option<BorrowedFd<'_>>,
    work: impl FnOnce() -> Result<T, Error> + Send,
) -> Result<T, Error> {
    let Some(namespace) = namespace else {
        return work();
    };
    thread::scope(|scope| {
        let entered = scope.spawn(|| {
            // SAFETY: plain system call on a file descriptor that is open while it is borrowed.
            if unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } != 0 {
                let source = std::io::Error::last_os_error();
                return Err(Error::system("enter the network namespace", source));
            }
            work()
        });
        entered
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
