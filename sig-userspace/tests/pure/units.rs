//! The units of systemd: their capabilities are those that the programs need, and they leave little else.

use std::{collections::BTreeSet, process::Command};

use sig_linux::capabilities::{Capability, GATEWAY, ROUTER};

type Needed = &'static [(Capability, &'static str)];

/// Name, what the program needs, and what is optional.
const UNITS: [(&str, Needed, &[&str]); 2] = [
    ("sig", GATEWAY, &["CAP_IPC_LOCK", "CAP_SYS_NICE"]),
    ("sig-router", ROUTER, &["CAP_SYS_NICE"]),
];

fn unit(name: &str) -> String {
    format!("{}/systemd/{name}.service", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn units_grant_the_capabilities_that_the_programs_need() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operations.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    for (name, needed, optional) in UNITS {
        let text = std::fs::read_to_string(unit(name)).unwrap();
        let needed = needed.iter().map(|((_, name), _)| *name);
        let needed: BTreeSet<_> = needed.chain(optional.iter().copied()).collect();
        for key in ["AmbientCapabilities=", "CapabilityBoundingSet="] {
            let line = text.lines().find_map(|line| line.strip_prefix(key));
            let granted: BTreeSet<_> = line.unwrap().split_whitespace().collect();
            assert_eq!(granted, needed, "{name}: {key}");
        }
        for capability in needed {
            assert!(docs.contains(&format!("`{capability}`")), "{capability}");
        }
        assert!(docs.contains(&format!("systemd/{name}.service")), "{name}");
    }
}

/// Where systemd is installed.
#[test]
fn units_are_exposed_little() {
    for (name, ..) in UNITS {
        let mut command = Command::new("systemd-analyze");
        command.args(["security", "--offline=yes", "--no-pager", "--threshold=40"]);
        let Ok(output) = command.arg(unit(name)).output() else {
            eprintln!("left out: there is no systemd-analyze");
            return;
        };
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{name}: {text}");
    }
}
