//! A network namespace of our own that lives exactly as long as this process holds it.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;

use super::facts::{CAP_SYS_ADMIN, Privileges};
use super::netlink::Netlink;

/// What the thread in a namespace is to do.
type Job = Box<dyn FnOnce() + Send>;

/// A namespace for the next that wants one: see [`PrivateNetns::make_in_advance`].
static IN_ADVANCE: Mutex<Option<io::Result<PrivateNetns>>> = Mutex::new(None);

/// An anonymous network namespace, with a thread that stays in it.
///
/// No name in `/run/netns` pins it: only our file descriptor, the thread, and sockets opened in it do. All of them end with
/// the process, in whatever way it ends, and the kernel then destroys the namespace and every virtual device in it. What is
/// to be done in it is done by the thread, so entering it again, which takes CAP_SYS_ADMIN, is never needed.
#[derive(Debug)]
pub struct PrivateNetns {
    fd: OwnedFd,
    /// The thread ends when this is dropped.
    jobs: mpsc::Sender<Job>,
}

impl PrivateNetns {
    /// Makes a new, empty namespace, or takes the one that was made in advance. Making one needs CAP_SYS_ADMIN.
    ///
    /// IPv6 is switched off in it: nobody there speaks, and nothing shall be sent into the pair by the stack itself
    /// (router solicitations, multicast listener reports, duplicate address detection).
    ///
    /// # Errors
    /// The capability is missing, or there cannot be another thread.
    pub fn create() -> io::Result<Self> {
        if let Some(made) = in_advance(None) {
            return made;
        }
        Self::with_thread(enter_a_new_one)
    }

    /// The same around a namespace that there is. Needs CAP_SYS_ADMIN.
    ///
    /// # Errors
    /// The namespace cannot be entered, or there cannot be another thread.
    pub fn enter(netns: &impl AsFd) -> io::Result<Self> {
        let fd = netns.as_fd().try_clone_to_owned()?;
        Self::with_thread(move || enter(fd.as_fd()).map(|()| fd))
    }

    fn with_thread(
        enter: impl FnOnce() -> io::Result<OwnedFd> + Send + 'static,
    ) -> io::Result<Self> {
        let (entered, answer) = mpsc::sync_channel(1);
        let (jobs, queue) = mpsc::channel::<Job>();
        thread::Builder::new()
            .name("sig-netns".into())
            .spawn(move || {
                let fd = enter();
                let is_in = fd.is_ok();
                if entered.send(fd).is_ok() && is_in {
                    queue.into_iter().for_each(|job| job());
                }
            })?;
        let fd = answer.recv().map_err(io::Error::other)??;
        Ok(Self { fd, jobs })
    }

    /// Makes the namespace that the next [`Self::create`] of this process will take, so that CAP_SYS_ADMIN can be given up
    /// before that. Where that fails, it is the error of [`Self::create`].
    pub fn make_in_advance() {
        let made = Self::create().and_then(|made| {
            // The thread is older than what follows, and capabilities are per thread.
            made.run(super::capabilities::give_up_sys_admin)??;
            Ok(made)
        });
        in_advance(Some(made));
    }

    /// Whether there is one in advance, or this process may make one.
    ///
    /// # Errors
    /// Why not, as a sentence.
    pub fn permitted() -> Result<(), String> {
        match &*IN_ADVANCE.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(Ok(_)) => Ok(()),
            Some(Err(error)) => Err(format!(
                "there can be no private network namespace ({error})"
            )),
            None if Privileges::read().has(CAP_SYS_ADMIN) => Ok(()),
            None => Err("this process lacks CAP_SYS_ADMIN for a private network namespace".into()),
        }
    }

    /// Opens a netlink connection inside the namespace. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn netlink(&self) -> io::Result<Netlink> {
        let runtime = tokio::runtime::Handle::current();
        self.run(|| {
            let _guard = runtime.enter();
            Netlink::open()
        })?
    }

    /// Runs `work` on the thread in the namespace, and returns what it returns. A panic of `work` continues in the caller.
    ///
    /// Sockets opened by `work` stay in that namespace wherever they are used later, and pin it.
    ///
    /// # Errors
    /// The thread has ended, which it does not as long as this exists.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        let (done, outcome) = mpsc::sync_channel(1);
        let job: Box<dyn FnOnce() + Send + '_> = Box::new(move || {
            let result = panic::catch_unwind(AssertUnwindSafe(work));
            // The caller waits.
            let _ = done.send(result);
        });
        // SAFETY: the types differ in the lifetime only. `recv` below returns after `done` was used or dropped: then
        // `work`, which alone borrows anything, has been consumed or dropped, as captures of the job in this order.
        let job = unsafe { std::mem::transmute::<Box<dyn FnOnce() + Send + '_>, Job>(job) };
        self.jobs.send(job).map_err(|_| ended())?;
        let result = outcome.recv().map_err(|_| ended())?;
        Ok(result.unwrap_or_else(|panicked| panic::resume_unwind(panicked)))
    }
}

impl AsFd for PrivateNetns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn ended() -> io::Error {
    io::Error::other("the thread in the network namespace has ended")
}

fn in_advance(next: Option<io::Result<PrivateNetns>>) -> Option<io::Result<PrivateNetns>> {
    let mut place = IN_ADVANCE.lock().unwrap_or_else(PoisonError::into_inner);
    std::mem::replace(&mut place, next)
}

/// Moves the calling thread into a new namespace, for good.
fn enter_a_new_one() -> io::Result<OwnedFd> {
    // SAFETY: no memory is involved; the call changes only the namespace of this thread.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(io::Error::last_os_error());
    }
    for scope in ["all", "default"] {
        match fs::write(format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6"), "1") {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(File::open("/proc/thread-self/ns/net")?.into())
}

/// Moves the calling thread into a namespace, for good.
fn enter(netns: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no memory is involved, and the file descriptor is open for the whole call.
    if unsafe { libc::setns(netns.as_raw_fd(), libc::CLONE_NEWNET) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Runs `work` on a fresh thread that has moved into `netns`, and returns what it returns. Needs CAP_SYS_ADMIN.
///
/// Sockets opened by `work` stay in that namespace wherever they are used later, and pin it. The caller's thread is
/// never moved. A panic of `work` continues in the caller.
///
/// # Errors
/// The namespace cannot be entered.
pub fn run_in<T: Send>(netns: &impl AsFd, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let fd = netns.as_fd();
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .name("sig-netns".into())
            .spawn_scoped(scope, move || {
                enter(fd)?;
                Ok(work())
            })?;
        thread
            .join()
            .unwrap_or_else(|panicked| panic::resume_unwind(panicked))
    })
}
