//! What is left to remove, known to the whole process so that a signal can remove it too.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Mutex, MutexGuard, Once, PoisonError,
        atomic::{AtomicI32, Ordering},
    },
    thread,
};

/// First part of the names of all namespaces and folders of ours; the second is the process id.
const PREFIX: &str = "sigbed";

/// Where `ip netns` keeps named namespaces.
const NAMESPACES: &str = "/run/netns";

static LEFT: Mutex<Left> = Mutex::new(Left {
    children: BTreeSet::new(),
    namespaces: BTreeSet::new(),
    folders: BTreeSet::new(),
});

/// Exit code after a signal; negative: 128 and the signal's number, as a shell shows it.
static EXIT_CODE: AtomicI32 = AtomicI32::new(-1);

/// Write end of the pipe that takes signals from the handler to the thread that acts on them.
static SIGNALS: AtomicI32 = AtomicI32::new(-1);

/// What has to go. The lock is held while something is made, so that nothing comes into being
/// after [`remove_all`].
#[derive(Debug)]
pub(super) struct Left {
    children: BTreeSet<u32>,
    namespaces: BTreeSet<String>,
    folders: BTreeSet<PathBuf>,
}

impl Left {
    pub(super) fn add_child(&mut self, pid: u32) {
        self.children.insert(pid);
    }

    /// Must come before the child is waited for: its number is free for others after that.
    pub(super) fn forget_child(&mut self, pid: u32) {
        self.children.remove(&pid);
    }

    pub(super) fn add_namespace(&mut self, name: &str) {
        self.namespaces.insert(name.to_owned());
    }

    pub(super) fn add_folder(&mut self, path: &Path) {
        self.folders.insert(path.to_owned());
    }
}

/// Locks the list; the first time, also makes signals remove what is on it.
pub(super) fn left() -> MutexGuard<'static, Left> {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        if let Err(error) = install() {
            eprintln!("warning: an interrupt will not clean up: {error}");
        }
    });
    LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A name that belongs to this process. `label` is for the reader.
pub(super) fn own_name(label: &str) -> String {
    format!("{PREFIX}-{}-{label}", std::process::id())
}

/// Deletes a namespace of ours; the devices in it go with it.
pub(super) fn delete_namespace(name: &str) {
    left().namespaces.remove(name);
    delete_netns(name);
}

/// Deletes a folder of ours.
pub(super) fn delete_folder(path: &Path) {
    left().folders.remove(path);
    let _ = fs::remove_dir_all(path);
}

/// Kills all processes and removes all namespaces and folders that this process made and that
/// still exist. Nothing can be made afterwards: threads that try wait for ever. Only for a process
/// about to end.
pub fn remove_all() {
    let mut left = left();
    for pid in &left.children {
        kill(*pid, libc::SIGKILL);
    }
    for name in &left.namespaces {
        delete_netns(name);
    }
    for folder in &left.folders {
        let _ = fs::remove_dir_all(folder);
    }
    left.namespaces.clear();
    left.folders.clear();
    std::mem::forget(left);
}

/// Waits for SIGINT or SIGTERM, cleans up and ends the process with `code`.
pub fn hold(code: u8) -> ! {
    EXIT_CODE.store(code.into(), Ordering::SeqCst);
    drop(left());
    loop {
        thread::park();
    }
}

/// Removes what processes left that no longer exist, and returns the ids of processes that exist
/// and have a network of ours.
pub fn sweep() -> Vec<u32> {
    let mut alive = BTreeSet::new();
    let folders = std::env::temp_dir();
    for (parent, is_namespace) in [(Path::new(NAMESPACES), true), (&folders, false)] {
        for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some(pid) = owner(&name) else { continue };
            if Path::new("/proc").join(pid.to_string()).exists() {
                alive.insert(pid);
            } else if is_namespace {
                delete_netns(&name);
            } else {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
    alive.into_iter().collect()
}

/// Names of the namespaces that the process `pid` made and that still exist.
///
/// # Errors
/// The folder of named namespaces cannot be read.
pub fn left_by(pid: u32) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(NAMESPACES)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if owner(&name) == Some(pid) {
            names.push(name);
        }
    }
    Ok(names)
}

/// The process id in a name of ours.
fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?
        .strip_prefix('-')?
        .split('-')
        .next()?
        .parse()
        .ok()
}

fn delete_netns(name: &str) {
    let _ = Command::new("ip").args(["netns", "del", name]).output();
}

/// Sends a signal to a process of ours.
pub(super) fn kill(pid: u32, signal: libc::c_int) {
    if let Ok(pid) = libc::pid_t::try_from(pid) {
        // SAFETY: takes no pointer. The process is a child not waited for yet, so the number is its own.
        unsafe { libc::kill(pid, signal) };
    }
}

/// Handles SIGINT and SIGTERM. Removing takes more than a handler may do, so a thread does it.
fn install() -> io::Result<()> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for two file descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let [read_end, write_end] = ends;
    SIGNALS.store(write_end, Ordering::SeqCst);
    thread::Builder::new()
        .name("cleanup".into())
        .spawn(move || act_on_signal(read_end))?;
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: all-zero bytes are a valid value of this struct: no flags, an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = pass_on as extern "C" fn(libc::c_int) as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART;
        // SAFETY: `action` is valid for the call; the handler calls only what a handler may call.
        if unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

extern "C" fn pass_on(signal: libc::c_int) {
    let byte = signal as u8;
    // SAFETY: `write` may be called in a handler; one byte of a live variable is written to the
    // pipe, whose ends are never closed.
    unsafe { libc::write(SIGNALS.load(Ordering::SeqCst), (&raw const byte).cast(), 1) };
}

fn act_on_signal(read_end: libc::c_int) {
    let mut signal = 0u8;
    // SAFETY: reads at most one byte into a live variable from the pipe, which is never closed.
    while unsafe { libc::read(read_end, (&raw mut signal).cast(), 1) } != 1 {}
    let code = EXIT_CODE.load(Ordering::SeqCst);
    if code < 0 {
        eprintln!("\ninterrupted: removing the network");
    }
    remove_all();
    std::process::exit(if code < 0 {
        128 + i32::from(signal)
    } else {
        code
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_of_a_name_is_found_again() {
        assert_eq!(owner(&own_name("client-a")), Some(std::process::id()));
        for other in [
            "sigbed",
            "sigbed-",
            "sigbed-x-a",
            "sigbedx-1-a",
            "eth0",
            "sigt-12-0-a",
        ] {
            assert_eq!(owner(other), None, "{other}");
        }
    }
}
