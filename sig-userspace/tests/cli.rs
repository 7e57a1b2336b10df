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

#[test]
fn the_sample_passes_the_check() {
    let sample = sig(&["config", "sample"]);
    assert_eq!(sample.status.code(), Some(0));
    let file = File::with("sample", &sample.stdout);
    let check = sig(&["config", "check", &file.0]);
    assert_eq!(check.status.code(), Some(0));
    let verdict = format!("{}: ok, 1 remote, 1 path\n", file.0);
    assert_eq!(
        (text(&check.stdout), text(&check.stderr)),
        (verdict.as_str(), "")
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
    let file = File::with(
        "lonely",
        b"[gateway]\nisd_as = \"1-1\"\ndata_addr = \"10.0.0.1\"\n",
    );
    let check = sig(&["config", "check", &file.0]);
    assert_eq!(check.status.code(), Some(0));
    assert_eq!(
        text(&check.stdout),
        format!("{}: ok, 0 remotes, 0 paths, 1 warning\n", file.0)
    );
    assert_eq!(
        text(&check.stderr),
        format!(
            "warning: {}:1: no [[remote]]: the gateway has nobody to talk to; \
             \"sig config sample\" shows one\n",
            file.0
        )
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
