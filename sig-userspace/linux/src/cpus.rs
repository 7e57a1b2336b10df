//! The processors of this machine, as the kernel numbers them.

use std::fs;

/// Where the kernel lists the CPUs that may ever be there.
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";

/// All CPU numbers are below this: those of CPUs that are there and of such that may be added. Where the kernel does not
/// tell, it is what this process may use.
#[must_use]
pub fn possible() -> u32 {
    fs::read_to_string(POSSIBLE)
        .ok()
        .and_then(|list| limit(&list))
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32))
}

/// One more than the last number of a list like `0-3,6`.
fn limit(list: &str) -> Option<u32> {
    let numbers = list.trim().split([',', '-']);
    let numbers: Option<Vec<u32>> = numbers.map(|number| number.parse().ok()).collect();
    numbers?.into_iter().max()?.checked_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read() {
        for (list, expected) in [
            ("0\n", Some(1)),
            ("0-3\n", Some(4)),
            ("0-1,4,8191\n", Some(8192)),
            ("", None),
            ("0-x", None),
            ("4294967295", None),
        ] {
            assert_eq!(limit(list), expected, "{list:?}");
        }
        assert!(possible() >= 1);
    }
}
