//! What the operating system tells about this process.

use std::fs;

/// Facts about this process. What `/proc` does not tell is `None` or empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Effective user and group ids.
    pub user_group: Option<(u32, u32)>,
    /// Its arguments, the program first.
    pub command: Vec<String>,
    /// Whether it runs in a container of Docker.
    pub in_docker: bool,
    /// CPU time used, in user space and in the kernel, in seconds.
    pub cpu_seconds: Option<f64>,
    /// When it started, in seconds since 1970.
    pub start_time: Option<f64>,
    /// Memory in use, in bytes.
    pub resident: Option<u64>,
    /// Address space, in bytes.
    pub virtual_memory: Option<u64>,
    /// Open file descriptors.
    pub open_files: Option<u64>,
    /// The limit on open file descriptors; `None` also if there is none.
    pub max_files: Option<u64>,
}

impl Process {
    /// The facts of now.
    #[must_use]
    pub fn read() -> Self {
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        let (stat, status) = (text("/proc/self/stat"), text("/proc/self/status"));
        let ticks = ticks_per_second();
        let of_stat = |field| Some(stat_field(&stat, field)? as f64 / ticks?);
        let kib = |key| Some(number(status_line(&status, key)?)?.saturating_mul(1024));
        Process {
            pid: std::process::id(),
            user_group: effective(&status, "Uid:").zip(effective(&status, "Gid:")),
            command: std::env::args_os()
                .map(|argument| argument.to_string_lossy().into_owned())
                .collect(),
            // A machine image made from a container has the file too, but no overlay as its root.
            in_docker: fs::exists("/.dockerenv").unwrap_or(false)
                && has_overlay_root(&text("/proc/self/mounts")),
            cpu_seconds: stat_field(&stat, 14)
                .zip(stat_field(&stat, 15))
                .zip(ticks)
                .map(|((user, system), ticks)| (user + system) as f64 / ticks),
            start_time: of_stat(22)
                .zip(boot_time(&text("/proc/stat")))
                .map(|(since_boot, boot)| boot + since_boot),
            resident: kib("VmRSS:"),
            virtual_memory: kib("VmSize:"),
            // The one that reads the folder is among them.
            open_files: fs::read_dir("/proc/self/fd")
                .ok()
                .map(|entries| (entries.count() as u64).saturating_sub(1)),
            max_files: text("/proc/self/limits")
                .lines()
                .find_map(|line| number(line.strip_prefix("Max open files")?)),
        }
    }
}

fn has_overlay_root(mounts: &str) -> bool {
    let mut mounts = mounts.lines().map(|line| line.split(' '));
    mounts.any(|mut fields| fields.nth(1) == Some("/") && fields.next() == Some("overlay"))
}

/// The unit of times in `/proc`.
fn ticks_per_second() -> Option<f64> {
    // SAFETY: a question about a constant of the system, without pointers.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    (ticks > 0).then_some(ticks as f64)
}

/// A number of `/proc/self/stat`, counted from 1 as proc_pid_stat(5) does. The second is the program's name,
/// which may hold anything.
fn stat_field(stat: &str, field: usize) -> Option<u64> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    number(behind_name.split_whitespace().nth(field.checked_sub(3)?)?)
}

fn status_line<'a>(status: &'a str, key: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(key))
}

fn effective(status: &str, key: &str) -> Option<u32> {
    let second = status_line(status, key)?.split_whitespace().nth(1)?;
    second.parse().ok()
}

fn boot_time(stat: &str) -> Option<f64> {
    number(status_line(stat, "btime ")?).map(|seconds| seconds as f64)
}

/// The first word, if it is a number.
fn number(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_described() {
        let process = Process::read();
        assert_eq!(process.pid, std::process::id());
        assert!(process.user_group.is_some());
        assert!(!process.command.is_empty());
        assert!(process.cpu_seconds.is_some_and(|seconds| seconds >= 0.0));
        assert!(process.resident.is_some_and(|bytes| bytes > 4096));
        assert!(process.virtual_memory >= process.resident);
        assert!(process.open_files.is_some_and(|files| files >= 1));
        // After the first commit of this program, before the end of the century.
        assert!(
            process
                .start_time
                .is_some_and(|time| (1.6e9..4.1e9).contains(&time))
        );
    }

    #[test]
    fn a_program_name_with_brackets_and_spaces_does_not_shift_the_fields() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 140 15 0 0 20 0 1 0 2200 9 9\n";
        assert_eq!(stat_field(stat, 14), Some(140));
        assert_eq!(stat_field(stat, 15), Some(15));
        assert_eq!(stat_field(stat, 22), Some(2200));
        assert_eq!(stat_field("", 14), None);
    }
}
