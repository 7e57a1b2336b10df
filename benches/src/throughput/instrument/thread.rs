//! Clock, threads, signals, and CPUs that stay awake.

use std::{
    fs::File,
    io::{self, Write as _},
    mem, ptr,
    sync::Once,
};

use anyhow::{Context as _, Result};

/// Nanoseconds of `CLOCK_MONOTONIC`, which BPF programs see too.
pub(super) fn now() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a live value; the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Binds a thread to a CPU; 0 is the calling one.
pub(in crate::throughput) fn pin(thread: i32, cpu: usize) -> Result<()> {
    // SAFETY: all bits zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    if cpu >= libc::CPU_SETSIZE as usize {
        anyhow::bail!("there is no CPU {cpu}");
    }
    // SAFETY: the number is below that of the set's bits.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    set_affinity(thread, &set).with_context(|| format!("cannot use CPU {cpu}"))
}

fn set_affinity(thread: i32, set: &libc::cpu_set_t) -> io::Result<()> {
    // SAFETY: pointer and length are of the set.
    match unsafe { libc::sched_setaffinity(thread, size_of_val(set), set) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Binds the calling thread, and what it starts, to a CPU until this is dropped.
pub(in crate::throughput) struct Pinned(libc::cpu_set_t);

impl Pinned {
    pub(in crate::throughput) fn to(cpu: usize) -> Result<Self> {
        // SAFETY: all bits zero is the empty set.
        let mut before: libc::cpu_set_t = unsafe { mem::zeroed() };
        // SAFETY: pointer and length are of the set; 0 is the calling thread.
        if unsafe { libc::sched_getaffinity(0, size_of_val(&before), &mut before) } != 0 {
            return Err(io::Error::last_os_error()).context("cannot tell which CPUs may be used");
        }
        pin(0, cpu)?;
        Ok(Self(before))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // It was allowed before.
        let _ = set_affinity(0, &self.0);
    }
}

/// Keeps CPUs without work from sleeping until this is dropped, on kernels with a cpuidle driver: see `pm_qos_interface.rst` of the
/// kernel.
pub(in crate::throughput) struct Awake(
    #[expect(dead_code, reason = "open is what counts")] Option<File>,
);

impl Awake {
    pub(in crate::throughput) fn now() -> Self {
        let latency = File::options().write(true).open("/dev/cpu_dma_latency");
        // Microseconds. Without the file the CPUs sleep, as before.
        Self(
            latency
                .and_then(|mut file| file.write_all(&0i32.to_ne_bytes()).map(|()| file))
                .ok(),
        )
    }
}

/// Makes a thread run before all ordinary ones.
pub(in crate::throughput) fn make_realtime(thread: i32, priority: i32) -> Result<()> {
    let parameters = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: the pointer is to a live value.
    if unsafe { libc::sched_setscheduler(thread, libc::SCHED_FIFO, &parameters) } != 0 {
        return Err(io::Error::last_os_error())
            .context("cannot give a thread the scheduling class SCHED_FIFO");
    }
    Ok(())
}

/// Makes sleeps of the calling thread exact.
pub(super) fn sleep_exactly() {
    // SAFETY: takes no pointer. If it fails, sleeps are 50 µs longer.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) };
}

/// Puts a thread before all other ordinary ones; 0 is the calling one.
pub(in crate::throughput) fn go_first(thread: u32) -> Result<()> {
    // SAFETY: takes no pointer.
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, thread, -20) } != 0 {
        return Err(io::Error::last_os_error())
            .with_context(|| format!("cannot make thread {thread} go first"));
    }
    Ok(())
}

/// The signal that ends a system call of another thread. It does nothing else.
pub(super) fn wake_signal() -> libc::c_int {
    static INSTALL: Once = Once::new();
    extern "C" fn ignore(_signal: libc::c_int) {}
    let signal = libc::SIGRTMIN() + 7;
    INSTALL.call_once(|| {
        // SAFETY: all bits zero is an action without flags: system calls are not restarted.
        let mut action: libc::sigaction = unsafe { mem::zeroed() };
        action.sa_sigaction = ignore as extern "C" fn(libc::c_int) as usize;
        // SAFETY: the handler does nothing, and the pointer is to a live value.
        unsafe { libc::sigaction(signal, &action, ptr::null_mut()) };
    });
    signal
}
