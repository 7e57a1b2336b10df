//! Where a run takes place.

use std::{
    fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, SystemTime},
};

use sha2::{Digest as _, Sha256};

use super::{experiment::Experiment, record::Run};

/// Others may use this share of a CPU before a run without being mentioned.
const QUIET: f64 = 0.1;

/// Finds out where, when and of what a run is. Takes a second: the machine's load is watched.
pub fn describe(experiments: &[Experiment], files: Vec<String>) -> Run {
    let mut notes = Vec::new();
    let busy = busy(Duration::from_secs(1));
    if let Some(Busy { used, stolen }) = busy {
        if used > QUIET {
            notes.push(format!(
                "before the start, other programs used {used:.2} CPUs: figures are lower than they could be"
            ));
        }
        if stolen > QUIET / 10.0 {
            notes.push(format!(
                "before the start, the hypervisor kept {stolen:.2} CPUs from this machine (steal)"
            ));
        }
    }
    notes.extend(facts());
    Run {
        started: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: commit(),
        kernel: read("/proc/sys/kernel/osrelease"),
        cpu: processor(),
        cpus: thread::available_parallelism().map_or(0, |n| n.get() as u32),
        experiments: files,
        plan: experiments.to_vec(),
        configuration: configuration(experiments),
        notes,
        ..Run::default()
    }
}

/// Hash of everything that experiments say.
pub fn configuration(experiments: &[Experiment]) -> String {
    let text = serde_json::to_vec(experiments).unwrap_or_default();
    let hash = Sha256::digest(text);
    hash.iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn read(path: &str) -> String {
    fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

fn processor() -> String {
    let text = read("/proc/cpuinfo");
    let model = text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "model name").then(|| value.trim().to_owned())
    });
    model.unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// Commit of the source tree, with `+` if files that it tracks have changed.
fn commit() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .current_dir(root)
            .args(arguments)
            .output()
            .ok()?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then_some(text)
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return "unknown".to_owned();
    };
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]);
    if changed.is_none_or(|changed| changed.is_empty()) {
        commit
    } else {
        commit + "+"
    }
}

/// What explains figures.
fn facts() -> Vec<String> {
    let mut facts = Vec::new();
    facts.push("devices are veth pairs in network namespaces, XDP in native mode".to_owned());
    let governor = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    if !governor.is_empty() {
        facts.push(format!("frequency governor {governor}"));
    }
    if read("/proc/cpuinfo").contains(" hypervisor ") {
        facts.push("virtual machine".to_owned());
    }
    let mitigations = read("/sys/devices/system/cpu/vulnerabilities/spectre_v2");
    if !mitigations.is_empty() {
        facts.push(format!("spectre_v2: {mitigations}"));
    }
    let jit = read("/proc/sys/net/core/bpf_jit_enable");
    if jit == "0" {
        facts.push("the BPF JIT is off".to_owned());
    }
    facts
}

/// CPUs in use on average.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Busy {
    /// By programs and the kernel.
    used: f64,
    /// By others on the same hardware.
    stolen: f64,
}

fn busy(time: Duration) -> Option<Busy> {
    let before = Ticks::now()?;
    thread::sleep(time);
    Some(Ticks::now()?.since(before))
}

/// Times of all CPUs together, from `/proc/stat`.
#[derive(Clone, Copy, Debug)]
struct Ticks {
    used: u64,
    stolen: u64,
    all: u64,
}

impl Ticks {
    fn now() -> Option<Self> {
        Self::parse(&read("/proc/stat"))
    }

    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let numbers: Vec<u64> = line
            .split_whitespace()
            .map_while(|n| n.parse().ok())
            .collect();
        // user nice system idle iowait irq softirq steal; what follows is part of these.
        let [user, nice, system, idle, iowait, irq, softirq, steal] = *numbers.first_chunk()?;
        let used = user + nice + system + irq + softirq;
        Some(Self {
            used,
            stolen: steal,
            all: used + idle + iowait + steal,
        })
    }

    fn since(self, before: Self) -> Busy {
        let cpus = thread::available_parallelism().map_or(1, |n| n.get()) as f64;
        let all = self.all.saturating_sub(before.all).max(1) as f64;
        let share = |now: u64, then: u64| now.saturating_sub(then) as f64 / all * cpus;
        Busy {
            used: share(self.used, before.used),
            stolen: share(self.stolen, before.stolen),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_the_processors_are_read() {
        let text = "cpu  10 0 10 70 0 0 5 5 0 0\ncpu0 1 2 3\n";
        let before = Ticks::parse(text).expect("times");
        let text = "cpu  20 10 20 130 0 0 10 10 0 0\n";
        let busy = Ticks::parse(text).expect("times").since(before);
        let cpus = thread::available_parallelism().map_or(1, |n| n.get()) as f64;
        assert!((busy.used - 0.35 * cpus).abs() < 1e-9, "{busy:?}");
        assert!((busy.stolen - 0.05 * cpus).abs() < 1e-9, "{busy:?}");
        assert!(Ticks::parse("intr 1").is_none());
    }

    #[test]
    fn the_configuration_has_a_hash_of_its_own() {
        let text = "[[experiment]]\nname = \"a\"\nsubjects = [\"xdp-drop\"]\nalgorithm = \"mrr\"\n";
        let read = |text: &str| super::super::experiment::read::read("a", text).expect("valid");
        let (one, other) = (read(text), read(&format!("{text}repeats = 9\n")));
        assert_eq!(configuration(&one), configuration(&one));
        assert_ne!(configuration(&one), configuration(&other));
        assert_eq!(configuration(&one).len(), 16);
    }
}
