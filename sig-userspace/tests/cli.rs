//! The binary as scripts see it: exit codes, and what goes to which output.

#![cfg(feature = "xdp")]

use std::process::{Command, Output, Stdio};

fn sig(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sig"))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs")
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).expect("UTF-8")
}

/// A file that is removed at the end.
struct File(String);

impl File {
    fn with(name: &str, contents: &[u8]) -> Self {
        let name = format!("sig-cli-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name).display().to_string();
        std::fs::write(&path, contents).expect("a temporary file");
        Self(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // A left-over file is no reason to fail.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The sample, with policy files that are there.
fn sample_with(traffic: &File, routing: &File) -> String {
    let sample = sig(&["config", "sample"]);
    assert_eq!(sample.status.code(), Some(0));
    text(&sample.stdout)
        .replace("#traffic_policy_file = ", "traffic_policy_file = ")
        .replace("/etc/scion/traffic.policy", &traffic.0)
        .replace("/etc/scion/ip-routing.policy", &routing.0)
}

#[test]
fn the_sample_passes_the_check_with_its_policy_files() {
    let traffic = File::with("traffic", br#"{"ASes": {"1-ff00:0:111": {"Nets": []}}}"#);
    let routing = File::with("routing", b"# nothing\nadvertise 1-1 0-0 10.1.0.0/24\n");
    let file = File::with("sample", sample_with(&traffic, &routing).as_bytes());
    let check = sig(&["config", "check", &file.0]);
    let verdict = format!("{}: ok, 1 remote AS, 1 routing rule\n", file.0);
    assert_eq!(
        (text(&check.stdout), text(&check.stderr)),
        (verdict.as_str(), "")
    );
    assert_eq!(check.status.code(), Some(0));
}

#[test]
fn problems_of_all_policy_files_are_named_at_once() {
    let traffic = File::with(
        "bad-traffic",
        b"{\n\"ASes\": {\"1-ff00:0:111\": {\"Nets\": [\"10.1.0.1/24\"]}}}",
    );
    let routing = File::with("bad-routing", b"accept 1-1\n");
    let file = File::with("bad-policies", sample_with(&traffic, &routing).as_bytes());
    let check = sig(&["config", "check", &file.0]);
    assert_eq!(check.status.code(), Some(2));
    let problems = text(&check.stderr);
    assert!(
        problems.contains(&format!("{}:2: ", traffic.0)),
        "{problems}"
    );
    assert!(
        problems.contains(&format!("{}:1: ", routing.0)),
        "{problems}"
    );
}

#[test]
fn a_bad_configuration_exits_with_2_and_names_the_line() {
    let sample = sig(&["config", "sample"]);
    let bad = text(&sample.stdout).replacen("lan = ", "lam = ", 1);
    let line = 1 + bad
        .lines()
        .position(|l| l.starts_with("lam"))
        .expect("the key");
    let file = File::with("bad", bad.as_bytes());
    let check = sig(&["config", "check", &file.0]);
    assert_eq!(check.status.code(), Some(2));
    assert_eq!(text(&check.stdout), "");
    assert_eq!(
        text(&check.stderr),
        format!(
            "{}:{line}: dataplane.lam: unknown key; did you mean \"lan\"?\n",
            file.0
        )
    );
}

#[test]
fn warnings_do_not_change_the_exit_code() {
    let traffic = File::with("lonely-traffic", b"{}");
    let config = format!(
        "[features]\nexperimental_scmp_authentication = true\n[gateway]\ntraffic_policy_file = \"{}\"\n",
        traffic.0
    );
    let file = File::with("lonely", config.as_bytes());
    let check = sig(&["config", "check", &file.0]);
    assert_eq!(check.status.code(), Some(0));
    assert!(text(&check.stdout).contains(": ok, 0 remote ASes, 0 routing rules, "));
    let warning = format!(
        "warning: {}:2: features.experimental_scmp_authentication: ignored: the gateway has no such feature\n",
        file.0
    );
    assert!(
        text(&check.stderr).contains(&warning),
        "{}",
        text(&check.stderr)
    );
}

#[test]
fn a_configuration_that_is_not_there_exits_with_2() {
    let check = sig(&["config", "check", "/nowhere/gateway.toml"]);
    assert_eq!(check.status.code(), Some(2));
    assert_eq!(
        text(&check.stderr),
        "/nowhere/gateway.toml:1: cannot be read: No such file or directory (os error 2); \
         \"sig config sample\" prints one to start from\n"
    );
}

#[test]
fn wrong_usage_exits_with_2_and_help_with_0() {
    assert_eq!(sig(&["bogus"]).status.code(), Some(2));
    assert_eq!(sig(&["dissect"]).status.code(), Some(2));
    assert_eq!(sig(&["--help"]).status.code(), Some(0));
    for arguments in [["version"], ["--version"]] {
        let version = sig(&arguments);
        assert_eq!(version.status.code(), Some(0));
        assert_eq!(
            text(&version.stdout),
            format!("sig {}\n", env!("CARGO_PKG_VERSION"))
        );
    }
}

#[test]
fn what_fails_while_running_exits_with_1() {
    let status = sig(&["status", "--socket", "/nowhere/gateway.sock"]);
    assert_eq!(status.status.code(), Some(1));
    assert_eq!(
        text(&status.stderr),
        "sig: /nowhere/gateway.sock: no gateway is listening; start it with \
         \"sig run --config FILE\"\n"
    );
    let file = File::with("noise", b"no capture");
    let dissect = sig(&["dissect", &file.0]);
    assert_eq!(dissect.status.code(), Some(1));
    assert_eq!(
        text(&dissect.stderr),
        format!(
            "sig: {}: neither pcap nor pcapng; capture with \"tcpdump -w FILE\"\n",
            file.0
        )
    );
}

#[test]
fn a_closed_output_is_no_failure() {
    let capture = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/data/data-aggregated-v4.pcap"
    );
    let mut child = Command::new(env!("CARGO_BIN_EXE_sig"))
        .args(["dissect", capture])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
}
