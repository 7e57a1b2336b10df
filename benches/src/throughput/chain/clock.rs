//! CPU time of processes.

use std::{fs, io, os::unix::thread::JoinHandleExt as _, thread::JoinHandle, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};

/// CPU time that a process has used, with all its threads, also those that have ended.
///
/// # Errors
///
/// There is no such process.
pub fn process_time(pid: u32) -> Result<Duration> {
    let pid = libc::pid_t::try_from(pid)?;
    let mut clock: libc::clockid_t = 0;
    // SAFETY: writes one clock id to a live variable.
    let error = unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) };
    if error != 0 {
        bail!(
            "process {pid} does not run: {}",
            io::Error::from_raw_os_error(error)
        );
    }
    clock_time(clock).with_context(|| format!("CPU time of process {pid}"))
}

/// CPU time that a thread of this process has used.
///
/// # Errors
///
/// It has been joined.
pub(in crate::throughput) fn thread_time<T>(thread: &JoinHandle<T>) -> Result<Duration> {
    let mut clock: libc::clockid_t = 0;
    // SAFETY: whoever holds the handle has not joined the thread; writes one clock id to a live variable.
    let error = unsafe { libc::pthread_getcpuclockid(thread.as_pthread_t(), &raw mut clock) };
    ensure!(error == 0, "a thread has no clock");
    clock_time(clock)
}

/// CPU time of the threads that take soft interrupts over when these become too many.
pub(in crate::throughput) fn softirq_time() -> Result<Duration> {
    let mut nanoseconds = 0;
    for entry in fs::read_dir("/proc")?.flatten() {
        let read = |file| fs::read_to_string(entry.path().join(file)).unwrap_or_default();
        if read("comm").starts_with("ksoftirqd/") {
            let schedstat = read("schedstat");
            let ran = schedstat.split_whitespace().next().unwrap_or("0");
            nanoseconds += ran.parse::<u64>()?;
        }
    }
    Ok(Duration::from_nanos(nanoseconds))
}

/// What a clock says.
fn clock_time(clock: libc::clockid_t) -> Result<Duration> {
    // SAFETY: all-zero bytes are a valid value of this struct of two integers.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: writes one timespec to a live variable.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(io::Error::last_os_error()).context("a clock");
    }
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_thread_is_known_until_it_is_joined() {
        let thread = std::thread::spawn(|| std::thread::sleep(Duration::from_millis(5)));
        assert!(thread_time(&thread).unwrap() < Duration::from_secs(1));
        thread.join().unwrap();
        assert!(softirq_time().unwrap() < Duration::from_secs(u32::MAX.into()));
    }

    #[test]
    fn the_time_of_a_process_grows_when_it_works() {
        let own = std::process::id();
        let before = process_time(own).unwrap();
        let mut x = 1u64;
        while process_time(own).unwrap() < before + Duration::from_millis(5) {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        // Beyond the largest process id there is.
        assert!(process_time((1 << 22) + 1).is_err());
    }
}
