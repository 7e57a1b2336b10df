//! Two ASes with a gateway each, in network namespaces: the network of `cargo xtask demo` and of
//! the end-to-end tests.
//!
//! ```text
//!   AS 1-ff00:0:110                                            AS 1-ff00:0:111
//!   client-a ──lan── gateway-a ──underlay── router-a ══ router-b ──underlay── gateway-b ──lan── client-b
//! ```
//!
//! Clients are plain IP hosts with a default route via their gateway and the kernel's default
//! settings: checksums left to the network card, TCP segmentation offload. The routers are
//! `sig router run`: they verify every hop field, so paths are made by `sig path make`. With
//! [`Route::Crossing`] there is a third router between them, of a third AS.
//!
//! Everything is removed when its owner is dropped, and also when the process gets SIGINT or
//! SIGTERM. Names contain the process id, so several networks can stand side by side. What a
//! killed process left is removed by [`sweep`].

mod cargo;
mod cleanup;
mod folder;
pub mod iperf;
mod netns;
mod network;
mod ping;
mod process;
mod router;
mod site;
mod status;

pub use cargo::cargo;
pub use cleanup::{hold, left_by, remove_all, sweep};
pub use folder::Folder;
pub use netns::Netns;
pub use network::{Cables, Network, Options, Route, Underlay, card_mac, spare_cable};
pub use ping::{Ping, flood, ping};
pub use process::Process;
pub use router::Router;
pub use site::Site;
pub use status::{Counters, Drop, Lan, Port, Status, Worker};

use std::{
    fs::File,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

/// Family of IP addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// Its name in results: `ipv4` or `ipv6`.
    pub fn name(self) -> &'static str {
        match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
        }
    }
}

/// Holds a lock of the whole machine until it is dropped: networks that are measured or loaded do
/// not share the processors.
///
/// # Errors
/// The lock's file, in the folder for temporary files, cannot be made.
pub fn exclusive() -> Result<File> {
    let path = std::env::temp_dir().join("sig-testbed.lock");
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .with_context(|| format!("cannot open {}", path.display()))?;
    file.lock()
        .with_context(|| format!("cannot lock {}", path.display()))?;
    Ok(file)
}

/// Ends the process, after cleaning up, unless the returned guard is dropped within `limit`.
pub fn time_limit(what: &str, limit: Duration) -> TimeLimit {
    let (done, waiting) = std::sync::mpsc::channel::<()>();
    let what = what.to_owned();
    thread::spawn(move || {
        if waiting.recv_timeout(limit) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            eprintln!("error: {what} did not end within {limit:?}");
            remove_all();
            std::process::exit(101);
        }
    });
    TimeLimit { _done: done }
}

/// See [`time_limit`].
#[derive(Debug)]
pub struct TimeLimit {
    _done: std::sync::mpsc::Sender<()>,
}

/// Polls until `condition` holds.
///
/// # Errors
/// It does not hold after `timeout`, or fails; the message starts with `what`.
pub fn wait_until(
    what: &str,
    timeout: Duration,
    mut condition: impl FnMut() -> Result<bool>,
) -> Result<Duration> {
    let start = Instant::now();
    while !condition().with_context(|| what.to_owned())? {
        if start.elapsed() > timeout {
            bail!("{what}: not within {timeout:?}");
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(start.elapsed())
}
