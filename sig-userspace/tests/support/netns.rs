//! Network namespaces and veth pairs for one test, removed when it ends, also by a panic.
//!
//! Names hold the process id, so tests run side by side. What a killed test left is swept by the next one.
#![allow(
    dead_code,
    reason = "every test binary uses another part of this module"
)]

use std::fs::{self, File};
use std::future::Future;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use sig_linux::netns::{PrivateNetns, run_in};

const PREFIX: &str = "sigt";

/// Whether network tests can run. As root they must (and fail when something is missing); otherwise they say that they
/// were left out.
pub(crate) fn root_or_skip() -> bool {
    // SAFETY: no arguments, cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        eprintln!("left out: needs root for network namespaces");
    }
    root
}

/// A network namespace with a name that `ip netns` knows.
#[derive(Debug)]
pub(crate) struct Netns {
    name: String,
    file: File,
}

impl Netns {
    /// Makes a namespace with the loopback interface up. `label` is for the human reader.
    pub(crate) fn new(label: &str) -> Self {
        static SWEEP: Once = Once::new();
        static COUNT: AtomicU32 = AtomicU32::new(0);
        SWEEP.call_once(sweep);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}-{}-{count}-{label}", std::process::id());
        run("ip", &["netns", "add", &name]);
        let file =
            File::open(Path::new("/run/netns").join(&name)).expect("the namespace just made");
        let netns = Self { name, file };
        // Interfaces made later have usable IPv6 addresses at once instead of after a second of duplicate detection.
        netns.run(|| {
            fs::write("/proc/sys/net/ipv6/conf/default/accept_dad", "0").expect("IPv6 is there")
        });
        netns.ip("link set lo up");
        netns
    }

    /// Name for `ip netns exec`.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// File that stands for the namespace.
    pub(crate) fn path(&self) -> PathBuf {
        Path::new("/run/netns").join(&self.name)
    }

    /// Runs `ip ARGUMENTS` inside and returns its output. Panics when it fails.
    pub(crate) fn ip(&self, arguments: &str) -> String {
        let mut all = vec!["-n", &self.name];
        all.extend(arguments.split_whitespace());
        run("ip", &all)
    }

    /// Runs a command inside and returns its output. Panics when it fails.
    pub(crate) fn exec(&self, command: &str) -> String {
        let mut all = vec!["netns", "exec", &self.name];
        all.extend(command.split_whitespace());
        run("ip", &all)
    }

    /// Runs a command inside and returns its outcome.
    pub(crate) fn try_exec(&self, command: &str) -> Output {
        Command::new("ip")
            .args(["netns", "exec", &self.name])
            .args(command.split_whitespace())
            .output()
            .expect("`ip` of iproute2 is installed")
    }

    /// Runs `work` on a fresh thread inside.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        run_in(&self.file, work).expect("the namespace can be entered")
    }

    /// The same on a thread that stays inside.
    pub(crate) fn thread(&self) -> PrivateNetns {
        PrivateNetns::enter(&self.file).expect("the namespace can be entered")
    }

    /// Runs a future to its end on a runtime of its own whose only thread is inside.
    pub(crate) fn block_on<T: Send, F: Future<Output = T>>(
        &self,
        future: impl FnOnce() -> F + Send,
    ) -> T {
        self.run(|| {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a tokio runtime")
                .block_on(future())
        })
    }

    /// Names of the interfaces inside, without the loopback interface.
    pub(crate) fn interfaces(&self) -> Vec<String> {
        self.ip("-br link")
            .lines()
            .filter_map(|line| line.split_whitespace().next())
            .map(|name| name.split('@').next().unwrap_or(name).to_owned())
            .filter(|name| name != "lo")
            .collect()
    }
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        let _ = Command::new("ip")
            .args(["netns", "del", &self.name])
            .output();
    }
}

/// Makes a veth pair with one end in each namespace, both up. It goes with either of the namespaces.
///
/// Offloads that leave checksums open are off on both ends, as on a wire.
pub(crate) fn veth(left: (&Netns, &str), right: (&Netns, &str)) {
    veth_with_queues(left, right, 1);
}

/// Like [`veth`], with `queues` receive and transmit queues on both ends.
pub(crate) fn veth_with_queues(left: (&Netns, &str), right: (&Netns, &str), queues: u32) {
    left.0.ip(&format!(
        "link add {} numrxqueues {queues} numtxqueues {queues} type veth peer name {} netns {} \
         numrxqueues {queues} numtxqueues {queues}",
        left.1,
        right.1,
        right.0.name(),
    ));
    for (netns, name) in [left, right] {
        netns.run(|| {
            let ethtool = sig_linux::ethtool::Ethtool::open().expect("an ethtool socket");
            ethtool
                .set_offload(name, sig_linux::ethtool::Offload::TxChecksum, false)
                .expect("checksum offload can be switched off");
        });
        netns.ip(&format!("link set {name} up"));
    }
    // Until the kernel has noticed, which takes it a while on a busy machine, what is sent is lost.
    for (netns, name) in [left, right] {
        wait_until("the link is up", Duration::from_secs(10), || {
            netns.ip(&format!("link show {name}")).contains("state UP")
        });
    }
}

/// Waits until `condition` holds, or panics with `what` after `timeout`. Returns how long it took.
pub(crate) fn wait_until(
    what: &str,
    timeout: Duration,
    mut condition: impl FnMut() -> bool,
) -> Duration {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < timeout, "not within {timeout:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
    start.elapsed()
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .expect("`ip` of iproute2 is installed");
    assert!(
        output.status.success(),
        "`{program} {}` failed: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Removes the namespaces of test processes that are no more.
fn sweep() {
    for entry in fs::read_dir("/run/netns").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let mut parts = name.split('-');
        let pid = (parts.next() == Some(PREFIX))
            .then(|| parts.next()?.parse::<u32>().ok())
            .flatten();
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            let _ = Command::new("ip").args(["netns", "del", &name]).output();
        }
    }
}
