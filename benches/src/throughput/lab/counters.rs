//! Time of threads, as the kernel counts it.

use std::fs;

use anyhow::Result;

/// Seconds for which a thread has run, by the scheduler's clock; none if it has ended.
pub(super) fn thread_seconds(process: u32, thread: u32) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{process}/task/{thread}/schedstat")).ok()?;
    let nanoseconds: u64 = text.split_whitespace().next()?.parse().ok()?;
    Some(nanoseconds as f64 / 1e9)
}

/// Name and seconds of each thread of a process.
pub(super) fn threads(process: u32) -> Result<Vec<(u32, String, f64)>> {
    let mut threads = Vec::new();
    for entry in fs::read_dir(format!("/proc/{process}/task"))? {
        let Ok(thread) = entry?.file_name().to_string_lossy().parse() else {
            continue;
        };
        let name = fs::read_to_string(format!("/proc/{process}/task/{thread}/comm"));
        if let (Ok(name), Some(seconds)) = (name, thread_seconds(process, thread)) {
            threads.push((thread, name.trim().to_owned(), seconds));
        }
    }
    Ok(threads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_this_thread_is_known() {
        let process = std::process::id();
        let own = threads(process).unwrap();
        // Other tests' threads may end meanwhile; the main thread does not.
        assert!(own.iter().any(|(thread, ..)| *thread == process));
        assert!(thread_seconds(process, process).unwrap() >= 0.0);
    }
}
