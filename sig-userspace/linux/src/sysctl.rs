//! Interface settings under `/proc/sys/net`, of the calling thread's network namespace.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// An address family's branch of the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `net.ipv4.conf`
    V4,
    /// `net.ipv6.conf`; absent when the kernel has no IPv6
    V6,
}

/// The file of setting `key` of `interface` (a name, `all` or `default`).
fn path(family: Family, interface: &str, key: &str) -> PathBuf {
    let root = match family {
        Family::V4 => "/proc/sys/net/ipv4/conf",
        Family::V6 => "/proc/sys/net/ipv6/conf",
    };
    // Path components instead of the dotted notation: interface names may contain dots.
    Path::new(root).join(interface).join(key)
}

/// Whether the kernel has this family's settings at all.
pub fn family_exists(family: Family) -> bool {
    path(family, "all", "").exists()
}

/// Reads a numeric setting. `None` when this kernel does not have it.
pub fn read(family: Family, interface: &str, key: &str) -> io::Result<Option<i64>> {
    match fs::read_to_string(path(family, interface, key)) {
        Ok(text) => text.trim().parse().map(Some).map_err(|_| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{key} is not a number: {text:?}"),
            )
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes a numeric setting. `Ok(false)` when this kernel does not have it.
pub fn write(family: Family, interface: &str, key: &str, value: i64) -> io::Result<bool> {
    match fs::write(path(family, interface, key), value.to_string()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
