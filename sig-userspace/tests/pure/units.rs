//! The units of systemd: their capabilities are those that the programs need, and they leave little else.

use std::{
    collections::BTreeSet,
    fs,
    process::{Command, Output},
};

use sig_linux::capabilities::{Capability, GATEWAY, ROUTER};

type Needed = &'static [(Capability, &'static str)];

/// Name, what the program needs, and what is optional.
const UNITS: [(&str, Needed, &[&str]); 2] = [
    ("sig", GATEWAY, &["CAP_IPC_LOCK", "CAP_SYS_NICE"]),
    ("sig-router@", ROUTER, &["CAP_SYS_NICE"]),
];

fn unit(name: &str) -> String {
    format!("{}/systemd/{name}.service", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn units_grant_the_capabilities_that_the_programs_need() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operations.md");
    let docs = fs::read_to_string(docs).unwrap();
    for (name, needed, optional) in UNITS {
        let text = fs::read_to_string(unit(name)).unwrap();
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

/// What systemd says of a unit; nothing where it is not installed.
fn analyze(arguments: &[&str], unit: &str) -> Option<(Output, String)> {
    let mut command = Command::new("systemd-analyze");
    let Ok(output) = command.args(arguments).arg(unit).output() else {
        eprintln!("left out: there is no systemd-analyze");
        return None;
    };
    let text = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    let text = text.concat();
    Some((output, text))
}

/// Where systemd is installed.
#[test]
fn units_are_exposed_little() {
    for (name, ..) in UNITS {
        let arguments = ["security", "--offline=yes", "--no-pager", "--threshold=40"];
        let Some((output, text)) = analyze(&arguments, &unit(name)) else {
            return;
        };
        assert!(output.status.success(), "{name}: {text}");
    }
}

/// Where systemd is installed.
#[test]
fn systemd_understands_the_units() {
    let folder = std::env::temp_dir().join(format!("sig-units-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    for (name, ..) in UNITS {
        // It looks whether the program is there.
        let text = fs::read_to_string(unit(name)).unwrap();
        let text = text.replace("/usr/bin/sig", env!("CARGO_BIN_EXE_sig"));
        let file = folder.join(format!("{name}.service"));
        fs::write(&file, text).unwrap();
        let file = file.to_str().unwrap();
        if let Some((output, text)) = analyze(&["verify", "--man=no"], file) {
            assert!(output.status.success(), "{name}: {text}");
            // What it does not know it only names.
            assert!(!text.contains(file), "{name}: {text}");
        }
    }
    fs::remove_dir_all(&folder).unwrap();
}
