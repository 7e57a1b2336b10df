//! Another process of this host, by what it listens on.

use std::{
    io,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    os::unix::net::UnixStream,
    time::Duration,
};

/// A process, and no later one with its number.
#[derive(Debug)]
pub struct Process {
    fd: OwnedFd,
    id: u32,
}

impl Process {
    /// The process that listens on the socket at the other end.
    ///
    /// # Errors
    /// It has ended, or the kernel does not tell.
    pub fn behind(stream: &UnixStream) -> io::Result<Self> {
        let mut peer = libc::ucred {
            pid: 0,
            uid: 0,
            gid: 0,
        };
        let mut length = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: `peer` and `length` are live, and `length` is the size of `peer`; the socket is open.
        let result = unsafe {
            libc::getsockopt(
                stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut peer).cast(),
                &mut length,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        let id = u32::try_from(peer.pid).unwrap_or_default();
        if id == 0 {
            return Err(io::Error::other("it is in another process namespace"));
        }
        // SAFETY: no memory is involved.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, peer.pid, 0) };
        let fd = libc::c_int::try_from(fd).map_err(io::Error::other)?;
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made it for us.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd, id })
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Sends it SIGTERM.
    ///
    /// # Errors
    /// It has ended, or it belongs to somebody else.
    pub fn terminate(&self) -> io::Result<()> {
        let none = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: the file descriptor is open; a null pointer stands for no more than the signal.
        let result = unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.fd.as_raw_fd(),
                libc::SIGTERM,
                none,
                0,
            )
        };
        match result {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Waits until it has ended. Whether it has in time.
    ///
    /// # Errors
    /// The kernel does not let us wait.
    pub fn wait(&self, patience: Duration) -> io::Result<bool> {
        let mut poll = libc::pollfd {
            fd: self.fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let patience = libc::c_int::try_from(patience.as_millis()).unwrap_or(libc::c_int::MAX);
        // SAFETY: one live element.
        match unsafe { libc::poll(&mut poll, 1, patience) } {
            -1 => Err(io::Error::last_os_error()),
            ready => Ok(ready > 0),
        }
    }
}
