//! Where a run takes place.

use std::{
    fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, SystemTime},
};

use anyhow::Result;

use super::{experiment::Experiment, instrument::processor::Usage, record::Run};

/// Others may use this share of a CPU before a run without being mentioned.
const QUIET: f64 = 0.1;

/// Finds out where, when and of what a run is. Takes a second: the machine's load is watched.
///
/// # Errors
///
/// `/proc` cannot be read.
pub fn describe(experiments: &[Experiment], files: Vec<String>) -> Result<Run> {
    let mut notes = Vec::new();
    let before = Usage::now()?;
    thread::sleep(Duration::from_secs(1));
    let usage = Usage::now()?.since(&before);
    if usage.other > QUIET {
        notes.push(format!(
            "before the start, other programs used {:.2} CPUs: figures are lower than they could be",
            usage.other
        ));
    }
    if usage.steal > QUIET / 10.0 {
        notes.push(format!(
            "before the start, the hypervisor kept {:.2} CPUs from this machine (steal)",
            usage.steal
        ));
    }
    notes.extend(facts());
    Ok(Run {
        started: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: commit(),
        kernel: read("/proc/sys/kernel/osrelease"),
        cpu: processor(),
        cpus: thread::available_parallelism().map_or(0, |n| n.get() as u32),
        experiments: files,
        plan: experiments.to_vec(),
        notes,
        ..Run::default()
    })
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
