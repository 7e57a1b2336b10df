//! CPU time of processes.

use std::{io, time::Duration};

use anyhow::{Result, bail};

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
    // SAFETY: all-zero bytes are a valid value of this struct of two integers.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: writes one timespec to a live variable.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        let error = io::Error::last_os_error();
        bail!("CPU time of process {pid}: {error}");
    }
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

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
