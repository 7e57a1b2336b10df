//! A network namespace of our own that lives exactly as long as this process holds it.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::panic;
use std::thread;

use super::netlink::Netlink;

/// An anonymous network namespace.
///
/// No name in `/run/netns` and no process living in it pins it: only our file descriptors (and sockets opened in it) do.
/// All of them close with the process, in whatever way it ends, and the kernel then destroys the namespace and every
/// virtual device in it.
#[derive(Debug)]
pub struct PrivateNetns {
    fd: OwnedFd,
}

impl PrivateNetns {
    /// Makes a new, empty namespace. Needs CAP_SYS_ADMIN.
    ///
    /// IPv6 is switched off in it: nobody there speaks, and nothing shall be sent into the pair by the stack itself
    /// (router solicitations, multicast listener reports, duplicate address detection).
    pub fn create() -> io::Result<Self> {
        on_fresh_thread(|| {
            // SAFETY: no memory is involved; the call changes only the namespace of this thread, which ends below.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
                return Err(io::Error::last_os_error());
            }
            for scope in ["all", "default"] {
                match fs::write(format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6"), "1") {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            Ok(Self {
                fd: File::open("/proc/thread-self/ns/net")?.into(),
            })
        })?
    }

    /// Opens a netlink connection inside the namespace. Must be called within a tokio runtime.
    pub fn netlink(&self) -> io::Result<Netlink> {
        let runtime = tokio::runtime::Handle::current();
        run_in(self, || {
            let _guard = runtime.enter();
            Netlink::open()
        })?
    }
}

impl AsFd for PrivateNetns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Runs `work` on a fresh thread that has moved into `netns`, and returns what it returns.
///
/// Sockets opened by `work` stay in that namespace wherever they are used later, and pin it. The caller's thread is
/// never moved. A panic of `work` continues in the caller.
pub fn run_in<T: Send>(netns: &impl AsFd, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let fd = netns.as_fd();
    on_fresh_thread(move || {
        // SAFETY: no memory is involved; `fd` is open for the whole call, and only this short-lived thread moves.
        if unsafe { libc::setns(fd.as_raw_fd(), libc::CLONE_NEWNET) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(work())
    })?
}

fn on_fresh_thread<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .name("sig-netns".into())
            .spawn_scoped(scope, work)?;
        Ok(thread
            .join()
            .unwrap_or_else(|panicked| panic::resume_unwind(panicked)))
    })
}
