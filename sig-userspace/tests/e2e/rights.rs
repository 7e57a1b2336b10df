//! Gateways and routers that run as nobody, with the capabilities of the units and no other.

use std::process::Command;

use crate::bed::{Bed, assert_pings, sig};
use testbed::{Family, Options};

const GATEWAY: &str = include_str!("../../systemd/sig.service");
const ROUTER: &str = include_str!("../../systemd/sig-router@.service");
const CAP_SYS_ADMIN: u32 = 21;

/// What starts a program as its unit does.
fn as_in(unit: &str) -> Vec<String> {
    let line = unit
        .lines()
        .find_map(|line| line.strip_prefix("AmbientCapabilities="));
    let sets: String = line
        .expect("capabilities")
        .split_whitespace()
        .map(|name| name.replace("CAP_", ",+").to_lowercase())
        .collect();
    let mut words = ["setpriv", "--reuid=65534", "--regid=65534"]
        .map(str::to_owned)
        .to_vec();
    words.push("--clear-groups".to_owned());
    words.push("--no-new-privs".to_owned());
    for set in ["inh-caps", "ambient-caps", "bounding-set"] {
        words.push(format!("--{set}=-all{sets}"));
    }
    words
}

/// Of each thread of a process, its name and its capabilities: effective, permitted, ambient.
fn capabilities(pid: u32) -> Vec<(String, Vec<u64>)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("its threads");
    let read = |task: std::fs::DirEntry| {
        let status = std::fs::read_to_string(task.path().join("status")).expect("a status");
        let value = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            line.expect("a line of it").trim().to_owned()
        };
        let set = |key| u64::from_str_radix(&value(key), 16).expect("a set");
        (
            value("Name:"),
            ["CapEff:", "CapPrm:", "CapAmb:"].map(set).to_vec(),
        )
    };
    tasks.map(|task| read(task.expect("a thread"))).collect()
}

#[test]
fn gateways_and_routers_run_as_nobody_with_the_capabilities_of_their_units() {
    let mut bed = Bed::running(&Options {
        gateways_by: as_in(GATEWAY),
        routers_by: as_in(ROUTER),
        ..Options::default()
    });
    let network = &mut bed.network;
    let ids = [&network.a, &network.b].map(|site| site.gateway_pid().expect("it runs"));
    for family in [Family::V4, Family::V6] {
        assert_pings(network, family, 20, 500);
    }
    for pid in ids {
        let threads = capabilities(pid);
        assert!(threads.len() > 4, "{threads:?}");
        for (name, sets) in threads {
            let has_it = sets.iter().any(|set| set & (1 << CAP_SYS_ADMIN) != 0);
            assert!(!has_it && sets[0] != 0, "{name}: {sets:x?}");
        }
    }

    // What comes later needs no more.
    let file = network.a.config_file();
    let config = std::fs::read_to_string(&file).expect("the configuration");
    let more = config.replacen("prefixes = [", "prefixes = [\"10.99.0.0/24\", ", 1);
    std::fs::write(&file, more).expect("the configuration");
    let output = Command::new(sig())
        .args(["reload", "--config"])
        .arg(&file)
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("served prefixes changed"), "{output:?}");
    assert_pings(network, Family::V4, 20, 500);
    network.a.stop_gateway().expect("it ends in order");
}
