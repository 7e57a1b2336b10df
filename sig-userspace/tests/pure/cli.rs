//! The binary as scripts see it: exit codes, and what goes to which output.

use std::{
    os::unix::fs::PermissionsExt as _,
    process::{Command, Output, Stdio},
};

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
fn a_missing_policy_file_is_told_at_the_key_that_names_it() {
    let sample = sig(&["config", "sample"]);
    let sample = text(&sample.stdout)
        .replace("#traffic_policy_file = ", "traffic_policy_file = ")
        .replace("/etc/scion/", "/nowhere/");
    let line = |key: &str| {
        1 + sample
            .lines()
            .position(|l| l.starts_with(key))
            .expect("the key")
    };
    let file = File::with("no-policies", sample.as_bytes());
    let check = sig(&["config", "check", &file.0]);
    assert_eq!(check.status.code(), Some(2));
    let problem = |key: &str, name: &str, sample: &str| {
        format!(
            "{}:{}: gateway.{key}: \"/nowhere/{name}\" cannot be read: No such file or directory (os error \
             2); correct the name, or start with \"sig config sample {sample} > FILE\"\n",
            file.0,
            line(key)
        )
    };
    assert_eq!(
        text(&check.stderr),
        [
            problem("traffic_policy_file", "traffic.policy", "traffic-policy"),
            problem(
                "ip_routing_policy_file",
                "ip-routing.policy",
                "routing-policy"
            ),
        ]
        .concat()
    );
}

#[test]
fn the_samples_of_all_files_fit_each_other() {
    let print = |what: &str| sig(&["config", "sample", what]).stdout;
    let traffic = File::with("sample-traffic", &print("traffic-policy"));
    let routing = File::with("sample-routing", &print("routing-policy"));
    let file = File::with("samples", sample_with(&traffic, &routing).as_bytes());
    let check = sig(&["config", "check", &file.0]);
    let verdict = format!("{}: ok, 1 remote AS, 2 routing rules\n", file.0);
    assert_eq!(
        (text(&check.stdout), text(&check.stderr)),
        (verdict.as_str(), "")
    );
}

#[test]
fn a_duplicate_key_is_named_and_warnings_come_with_errors() {
    let file = File::with("twice", b"[gateway]\nid = \"a\"\nid = \"b\"\n");
    let check = sig(&["config", "check", &file.0]);
    assert_eq!(check.status.code(), Some(2));
    assert_eq!(
        text(&check.stderr),
        format!(
            "{}:3: not TOML: duplicate key \"id\"; remove one of the two\n",
            file.0
        )
    );

    let both = b"[features]\nexperimental_scmp_authentication = true\n[gateway]\nidd = \"a\"\n";
    let file = File::with("both", both);
    let check = sig(&["config", "check", &file.0]);
    let shown = text(&check.stderr);
    assert!(
        shown.starts_with("warning: ") && shown.contains("did you mean \"id\"?"),
        "{shown}"
    );

    let check = sig(&["config", "check", "--json", &file.0]);
    assert_eq!((check.status.code(), text(&check.stderr)), (Some(2), ""));
    let shown: serde_json::Value = serde_json::from_slice(&check.stdout).expect("JSON");
    assert_eq!(
        (&shown["ok"], &shown["errors"][0]["line"]),
        (&false.into(), &4.into())
    );
    assert_eq!(shown["warnings"][0]["line"], 2);
}

#[test]
fn json_has_one_spelling_and_the_old_one() {
    let version = sig(&["version", "--json"]);
    let expected = format!("{{\"version\":\"{}\"}}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(text(&version.stdout), expected);
    let capture = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/data/data-aggregated-v4.pcap"
    );
    let json = sig(&["dissect", "--json", capture]).stdout;
    assert!(json.starts_with(b"{"));
    assert_eq!(json, sig(&["dissect", "--format", "json", capture]).stdout);
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
        "warning: {}:2: features.experimental_scmp_authentication: ignored: this gateway does not have this feature\n",
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
    let both = sig(&["dissect", "--interface", "lo", "file.pcap"]);
    assert_eq!(both.status.code(), Some(2));
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
fn an_interface_that_is_not_there_is_named() {
    let dissect = sig(&["dissect", "--interface", "none/here"]);
    assert_eq!(dissect.status.code(), Some(1));
    assert_eq!(
        text(&dissect.stderr),
        "sig: there is no interface none/here here; `ip -br link` lists the existing ones\n"
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

/// A folder that is removed at the end.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("sig-cli-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(path.join("keys")).expect("a temporary folder");
        Self(path)
    }

    fn put(&self, name: &str, contents: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, contents).expect("a temporary file");
        path.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A left-over folder is no reason to fail.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const TOPOLOGY: &str = r#"{
  "isd_as": "1-ff00:0:110",
  "mtu": 1472,
  "attributes": ["core"],
  "dispatched_ports": "31000-32767",
  "border_routers": {
    "br-1": {
      "internal_addr": "10.0.0.1:30042",
      "interfaces": {
        "1": {
          "underlay": {"local": "192.0.2.1:50000", "remote": "192.0.2.2:50000"},
          "isd_as": "1-ff00:0:111", "link_to": "child"
        }
      }
    },
    "br-2": {
      "internal_addr": "10.0.0.2:30042",
      "interfaces": {"2": {"isd_as": "1-ff00:0:112", "link_to": "core"}}
    }
  }
}"#;

/// A router's folder: topology, key and own file, whose name is returned.
fn router(folder: &Folder) -> String {
    folder.put("topology.json", TOPOLOGY);
    let key = folder.put("keys/master0.key", "dGVzdGtleV94eHh4eHh4eA==\n");
    std::fs::set_permissions(key, std::fs::Permissions::from_mode(0o600)).expect("our file");
    folder.put("br.toml", "[general]\nid = \"br-1\"\n")
}

#[test]
fn a_router_is_checked_with_topology_and_key_and_shows_what_it_will_do() {
    let folder = Folder::new("router");
    let own = router(&folder);
    let check = sig(&["router", "check", "--config", &own]);
    assert_eq!((check.status.code(), text(&check.stderr)), (Some(0), ""));
    let shown = text(&check.stdout);
    assert!(shown.starts_with(&format!("{own}: ok\n")), "{shown}");
    for words in [
        "br-1 of core AS 1-ff00:0:110, MTU 1472",
        "10.0.0.1:30042",
        "31000-32767, others to 30041",
        "1  1-ff00:0:111  child    192.0.2.1:50000  192.0.2.2:50000  1472  3 x 200ms/200ms",
        "2  1-ff00:0:112  core     br-2    10.0.0.2:30042",
    ] {
        assert!(shown.contains(words), "{words}\n{shown}");
    }

    folder.put("topology.json", &TOPOLOGY.replace("192.0.2.2", "router"));
    folder.put("keys/master0.key", "");
    let check = sig(&["router", "check", "--config", &own]);
    assert_eq!((check.status.code(), text(&check.stdout)), (Some(2), ""));
    let folder = folder.0.display();
    assert_eq!(
        text(&check.stderr),
        format!(
            "{folder}/keys/master0.key:1: the key is empty; write the master key of the AS in base64\n\
             {folder}/topology.json:11: border_routers.br-1.interfaces.1.underlay.remote: \
             \"router:50000\" is a host name, which is not supported; write its IP address\n"
        )
    );
}

#[test]
fn a_key_is_told_by_its_fingerprint_and_shown_only_when_asked_for() {
    const SECRET: &str = "93c3d81b1feaddd2a58cb3c29469d0c4";
    let folder = Folder::new("key");
    let own = router(&folder);
    let master = folder.0.join("keys/master0.key").display().to_string();
    let key = sig(&["router", "key", "--config", &own]);
    assert_eq!(key.status.code(), Some(0));
    let same = sig(&["router", "key", "--master", &master]);
    assert_eq!(text(&key.stdout), text(&same.stdout));
    let fingerprint = text(&key.stdout).trim_start_matches("fingerprint ").trim();
    assert_eq!(fingerprint.len(), 16);
    assert!(!text(&key.stdout).contains(SECRET));
    let key = sig(&["router", "key", "--master", &master, "--secret", "--json"]);
    let shown: serde_json::Value = serde_json::from_slice(&key.stdout).expect("JSON");
    let expected = serde_json::json!({ "fingerprint": fingerprint, "key": SECRET });
    assert_eq!(shown, expected);
    assert_eq!(sig(&["router", "key"]).status.code(), Some(2));
}

#[test]
fn a_router_starts_from_the_samples() {
    let folder = Folder::new("router-sample");
    for (file, command) in [
        ("br.toml", &["router", "sample"][..]),
        ("topology.json", &["router", "sample", "--topology"]),
        ("keys/master0.key", &["router", "key", "--new"]),
    ] {
        folder.put(file, text(&sig(command).stdout));
    }
    let own = folder.0.join("br.toml").display().to_string();
    let key = folder.0.join("keys/master0.key");
    let mode = |mode| {
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(mode)).expect("our file")
    };
    mode(0o600);
    let check = sig(&["router", "check", "--config", &own]);
    assert_eq!((check.status.code(), text(&check.stderr)), (Some(0), ""));
    mode(0o644);
    let check = sig(&["router", "check", "--config", &own]);
    let expected = format!(
        "warning: {}:1: every user of this host can read the key",
        key.display()
    );
    assert!(
        text(&check.stderr).starts_with(&expected),
        "{}",
        text(&check.stderr)
    );
    let other = sig(&["router", "key", "--new"]);
    assert_ne!(other.stdout, std::fs::read(&key).expect("our file"));
}

const NETWORK: &str = r##"
timestamp = 1700000000
[[as]]
isd_as = "1-ff00:0:110"
core = true
master_key = "dGVzdGtleV94eHh4eHh4eA=="
[[as]]
isd_as = "1-ff00:0:111"
mtu = 1400
master_key = "MjIyMg=="
[[link]]
a = "1-ff00:0:110#1"
b = "1-ff00:0:111#41"
type = "child"
"##;

#[test]
fn paths_are_made_for_remotes_in_the_configuration() {
    let network = File::with("network", NETWORK.as_bytes());
    let ends = ["--from", "1-ff00:0:110", "--to", "1-ff00:0:111"];
    let make = sig(&[&["path", "make", &network.0], &ends[..]].concat());
    assert_eq!((make.status.code(), text(&make.stderr)), (Some(0), ""));
    let raw = text(&make.stdout).lines().last().unwrap_or_default().trim();
    assert_eq!(
        text(&make.stdout),
        format!(
            "0: 1-ff00:0:110#1 > 1-ff00:0:111#41\n   \
             MTU 1400, until 2023-11-15T04:13:20Z\n   {raw}\n"
        )
    );
    let json = sig(&[&["path", "make", &network.0, "--json"], &ends[..]].concat());
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    let expected = serde_json::json!([{
        "raw": raw,
        "interfaces": [
            { "isd_as": "1-ff00:0:110", "id": 1 },
            { "isd_as": "1-ff00:0:111", "id": 41 },
        ],
        "mtu": 1400,
        "expiry": 1_700_021_600,
    }]);
    assert_eq!(json, expected);

    let config = format!(
        "[gateway]\nisd_as = \"1-ff00:0:110\"\ndata_addr = \"10.10.0.2\"\n\
         prefixes = [\"10.1.0.0/24\"]\n[[remote]]\nisd_as = \"1-ff00:0:111\"\n\
         gateway = \"10.11.0.2\"\nprefixes = [\"10.2.0.0/24\"]\n[[remote.path]]\n\
         raw = \"{raw}\"\nnext_hop = \"10.10.0.1:30042\"\nmtu = 1400\n"
    );
    // The network of these tests has a timestamp of 2023.
    let expired = File::with("expired", config.as_bytes());
    let check = sig(&["config", "check", &expired.0]);
    assert_eq!((check.status.code(), text(&check.stdout)), (Some(2), ""));
    assert_eq!(
        text(&check.stderr),
        format!(
            "{}:10: remote[0].path[0].raw: the path expired at 2023-11-15T04:13:20Z: routers drop its \
             packets; replace it, for example with \"sig path make\"\n",
            expired.0
        )
    );

    let untimed = NETWORK.replace("timestamp = 1700000000", "");
    let network = File::with("untimed", untimed.as_bytes());
    let make = sig(&[&["path", "make", &network.0], &ends[..]].concat());
    let fresh = text(&make.stdout).lines().last().unwrap_or_default().trim();
    let valid = File::with("static", config.replace(raw, fresh).as_bytes());
    let check = sig(&["config", "check", &valid.0]);
    assert_eq!((check.status.code(), text(&check.stderr)), (Some(0), ""));

    // Paths that live for six minutes expire soon.
    let brief = untimed.replacen("[[as]]", "expiry = 0\n[[as]]", 1);
    let network = File::with("brief", brief.as_bytes());
    let make = sig(&[&["path", "make", &network.0], &ends[..]].concat());
    let brief = text(&make.stdout).lines().last().unwrap_or_default().trim();
    let soon = File::with("soon", config.replace(raw, brief).as_bytes());
    let check = sig(&["config", "check", &soon.0]);
    assert_eq!(check.status.code(), Some(0));
    let warning = format!(
        "warning: {}:10: remote[0].path[0].raw: the path expires soon, at ",
        soon.0
    );
    assert!(
        text(&check.stderr).starts_with(&warning),
        "{}",
        text(&check.stderr)
    );
}

#[test]
fn where_there_is_no_path_nothing_is_made() {
    let lonely = "[[as]]\nisd_as = \"1-ff00:0:112\"\nmaster_key = \"MjIyMg==\"\n";
    let network = File::with("lonely-as", format!("{NETWORK}{lonely}").as_bytes());
    for (to, code, message) in [
        (
            "1-ff00:0:112",
            1,
            "sig: there is no path from 1-ff00:0:111 to 1-ff00:0:112\n".to_owned(),
        ),
        (
            "1-ff00:0:113",
            2,
            format!("{}: 1-ff00:0:113 is not an AS of this network\n", network.0),
        ),
        (
            "1-ff00:0:111",
            2,
            "--from and --to are both 1-ff00:0:111: the path within an AS is empty\n".to_owned(),
        ),
    ] {
        let make = sig(&[
            "path",
            "make",
            &network.0,
            "--from",
            "1-ff00:0:111",
            "--to",
            to,
        ]);
        assert_eq!((make.status.code(), text(&make.stdout)), (Some(code), ""));
        assert_eq!(text(&make.stderr), message);
    }
}

#[test]
fn paths_are_shown_with_who_made_their_hop_fields() {
    let network = File::with("shown-network", NETWORK.as_bytes());
    let ends = ["--from", "1-ff00:0:111", "--to", "1-ff00:0:110"];
    let make = sig(&[&["path", "make", &network.0], &ends[..]].concat());
    let raw = text(&make.stdout).lines().last().unwrap_or_default().trim();
    let rows = |arguments: &[&str]| -> Vec<String> {
        let show = sig(&[&["path", "show"], arguments].concat());
        assert_eq!((show.status.code(), text(&show.stderr)), (Some(0), ""));
        let rows = text(&show.stdout).lines().map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words.join(" ")
        });
        rows.filter(|row| row.contains("2023-11-15T04:13:20Z") && !row.starts_with("EXPIRED"))
            .collect()
    };
    let start = |row: &String| row.split(' ').take(4).collect::<Vec<_>>().join(" ");
    let show = sig(&["path", "show", raw]);
    assert!(text(&show.stdout).ends_with("\nEXPIRED 2023-11-15T04:13:20Z\n"));
    let plain = rows(&[raw]);
    assert_eq!(
        plain.iter().map(start).collect::<Vec<_>>(),
        ["> 0 41 0", "1 0 1 2023-11-15T04:13:20Z"]
    );
    let known = rows(&[raw, "--network", &network.0]);
    assert!(
        known[0].ends_with(" 1-ff00:0:111") && known[1].ends_with(" 1-ff00:0:110"),
        "{known:?}"
    );
    let keyed = rows(&[raw, "--key", "93c3d81b1feaddd2a58cb3c29469d0c4"]);
    assert!(
        keyed[0].ends_with(" another key") && keyed[1].ends_with(" this key"),
        "{keyed:?}"
    );

    let key = "93c3d81b1feaddd2a58cb3c29469d0c4";
    let json = sig(&["path", "show", raw, "--key", key, "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    let hops = &json["segments"][0]["hops"];
    assert_eq!(json["expires_at"], 1_700_021_600);
    assert_eq!(
        (&hops[0]["ingress"], &hops[1]["egress"]),
        (&41.into(), &1.into())
    );
    assert_eq!(hops[1]["made"], "this key");

    // The same from files, in digits and in bytes.
    let digits = File::with("digits", format!("{raw}\n").as_bytes());
    assert_eq!(rows(&[&digits.0]), plain);
    let bytes: Vec<u8> = (0..raw.len() / 2)
        .map(|at| u8::from_str_radix(&raw[2 * at..2 * at + 2], 16).expect("digits"))
        .collect();
    let bytes = File::with("bytes", &bytes);
    assert_eq!(rows(&[&bytes.0]), plain);
}

#[test]
fn what_is_no_path_is_refused() {
    for (wrong, message) in [
        (
            "0x00",
            "\"0x00\" is neither a path nor a file: \"x\" at position 2 is not a hexadecimal digit",
        ),
        (
            "000",
            "\"000\" is neither a path nor a file: 3 hexadecimal digits are not a whole number of bytes",
        ),
        ("", "0 bytes are too short for a SCION path"),
        (
            "00002000",
            "4 bytes found, but 1 segment with 2 hop fields take 36",
        ),
        ("00000000", "the path has no segment"),
    ] {
        let show = sig(&["path", "show", wrong]);
        assert_eq!((show.status.code(), text(&show.stdout)), (Some(2), ""));
        assert!(
            text(&show.stderr).starts_with(message),
            "{}",
            text(&show.stderr)
        );
    }
    let show = sig(&["path", "show", "00", "--key", "00"]);
    assert_eq!(
        text(&show.stderr),
        "--key: 1 byte found; write the 16 bytes of the key in hexadecimal\n"
    );
}

#[test]
fn packages_get_completions_and_manual_pages() {
    for shell in ["bash", "zsh", "fish"] {
        let made = sig(&["completions", shell]);
        assert_eq!((made.status.code(), text(&made.stderr)), (Some(0), ""));
        for word in ["router", "completions", "check"] {
            assert!(text(&made.stdout).contains(word), "{shell}: {word}");
        }
    }
    let folder = std::env::temp_dir().join(format!("sig-manual-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let made = sig(&["manual", folder.to_str().expect("text")]);
    assert_eq!((made.status.code(), text(&made.stderr)), (Some(0), ""));
    for page in ["sig.1", "sig-run.1", "sig-router.1", "sig-router-run.1"] {
        let page = std::fs::read_to_string(folder.join(page)).expect(page);
        assert!(page.contains("SIG"), "{page}");
    }
    std::fs::remove_dir_all(&folder).expect("removed");
    let failed = sig(&["manual", "/nowhere/at/all"]);
    assert_eq!(failed.status.code(), Some(1));
    assert!(text(&failed.stderr).starts_with("sig: cannot write manual pages to /nowhere/at/all:"));
}
