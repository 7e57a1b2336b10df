//! Files that are right, some with a warning.

use super::*;

#[test]
fn the_small_file_with_defaults_filled_in() {
    let config = good(SMALL);
    assert_eq!(config.gateway.id, "gateway");
    assert_eq!(config.gateway.isd_as, "1-ff00:0:110".parse().unwrap());
    assert_eq!(config.gateway.data_addr, "10.10.0.2:30056".parse().unwrap());
    assert_eq!(
        config.gateway.status_socket,
        FilePath::new("/run/sig/gateway.sock")
    );
    assert_eq!(
        (config.tunnel.name.as_str(), config.tunnel.mtu),
        ("sig", 1500)
    );
    let [remote] = &config.remotes[..] else {
        panic!("one remote")
    };
    assert_eq!(remote.gateway, "10.11.0.2:30056".parse().unwrap());
    assert_eq!(remote.session, 0);
    let [path] = &remote.paths[..] else {
        panic!("one path")
    };
    assert_eq!(
        (path.name.as_str(), path.raw.len(), path.source_port),
        ("0", 36, 30056)
    );
    assert_eq!(
        remote.frame_len(config.gateway.data_addr.ip(), path),
        1472 - 12 - 24 - 36 - 8
    );
    assert_eq!(config.warnings(), []);
    assert_eq!(config.path_count(), 1);
}

#[test]
fn the_sample_without_a_warning() {
    assert_eq!(warnings(SAMPLE), Vec::<String>::new());
}

#[test]
fn the_sample_with_every_default_written_out() {
    let mut text = String::new();
    for line in SAMPLE.lines() {
        let default = line
            .strip_prefix('#')
            .filter(|l| l.starts_with(char::is_alphabetic));
        let default = default.filter(|l| !l.starts_with("file ="));
        text += default.unwrap_or(line);
        text.push('\n');
    }
    let mut written = good(&text);
    let sample = good(SAMPLE);
    // These have an example instead of a default.
    written.gateway.isd_as = sample.gateway.isd_as;
    written.tunnel.src_ipv4 = None;
    written.tunnel.src_ipv6 = None;
    assert_eq!(written, sample);
}

#[test]
fn the_remotes_of_the_sample_instead_of_a_daemon() {
    let (before, remotes) = SAMPLE
        .split_once("# # One section per remote gateway.")
        .unwrap();
    let remotes = remotes.split("\n\n").next().unwrap();
    let mut text = before.to_owned();
    for line in remotes.lines() {
        text += line.strip_prefix("# ").unwrap_or_default();
        text.push('\n');
    }
    let text = text.replace(
        "ctrl_addr =",
        "isd_as = \"1-ff00:0:110\"\nprefixes = [\"192.168.10.0/24\"]\ndata_addr = \"10.10.0.2\"\nctrl_addr =",
    );
    let config = good(&text);
    assert_eq!((config.remotes.len(), config.path_count()), (1, 1));
    assert_eq!(config.control, None);
    let ignored = config
        .warnings()
        .iter()
        .filter(|w| w.message.starts_with("ignored"));
    assert_eq!(ignored.count(), config.warnings().len());
}

#[test]
fn the_references_own_file_without_a_warning() {
    let text = r#"[gateway]
id = "sig-1"
traffic_policy_file = "/etc/scion/gateway.json"
ip_routing_policy_file = "/etc/scion/routing.policy"
ctrl_addr = "192.0.2.10:30256"
data_addr = "192.0.2.10:30056"
probe_addr = "192.0.2.10:30856"
[tunnel]
name = "sig"
src_ipv4 = "192.0.2.10"
[sciond_connection]
address = "127.0.0.1:30255"
[metrics]
prometheus = "127.0.0.1:30456"
[api]
addr = "localhost:31156"
"#;
    let config = good(text);
    assert_eq!(config.warnings(), []);
    assert_eq!(config.gateway.isd_as, sig_common::addr::IsdAs(0));
    assert_eq!(
        config.gateway.data_addr,
        "192.0.2.10:30056".parse().unwrap()
    );
    let control = config.control.unwrap();
    assert_eq!(control.probe_addr, "192.0.2.10:30856".parse().unwrap());
    assert_eq!(
        control.traffic_policy_file,
        FilePath::new("/etc/scion/gateway.json")
    );
    let api = config.observe.api.expect("an address");
    assert_eq!(api.address, "127.0.0.1:31156".parse().unwrap());
}

#[test]
fn an_empty_file_as_the_reference_takes_it() {
    let config = good("");
    assert!(config.gateway.data_addr.ip().is_unspecified());
    let control = config.control.unwrap();
    assert_eq!(control.ctrl_addr, "0.0.0.0:30256".parse().unwrap());
    assert_eq!(control.daemon, "127.0.0.1:30255");
    assert_eq!(
        control.traffic_policy_file,
        FilePath::new("/etc/scion/traffic.policy")
    );
    assert_eq!(control.ip_routing_policy_file, None);
    assert_eq!(config.observe, Observe::default());
}

#[test]
fn metrics_for_other_machines_where_that_is_said() {
    let text = "[metrics]\nprometheus = \":30456\"\nallow_remote = true\n";
    let metrics = good(text).observe.prometheus.expect("an address");
    assert_eq!(metrics.address, "[::]:30456".parse().unwrap());
    assert!(metrics.allow_remote);
    assert_eq!(warnings(text), [""; 0]);
}

#[test]
fn metrics_that_other_machines_may_only_read() {
    let text = "[metrics]\nprometheus = \"192.0.2.1:30456\"\n[api]\naddr = \":31156\"\n";
    let observe = good(text).observe;
    for listen in [observe.prometheus, observe.api] {
        assert!(!listen.expect("an address").allow_remote);
    }
    assert_eq!(
        warnings(text)[0],
        "gateway.toml:2: metrics.prometheus: 192.0.2.1:30456 is reachable from other machines \
         without authentication; write \"127.0.0.1:30456\", or set allow_remote = true if you want this, which \
         also allows changes"
    );
}

#[test]
fn an_own_routing_table() {
    assert_eq!(good("[tunnel]\ntable = 11\n").tunnel.table, 11);
    assert_eq!(good("").tunnel.table, 254);
}

#[test]
fn every_key_of_the_reference() {
    let text = format!(
        r#"{SMALL}
[features]
appropriate_digest_algorithm = true
experimental_scmp_authentication = false
[log.console]
level = "debug"
format = "JSON"
stacktrace_level = "none"
disable_caller = true
[api]
addr = "127.0.0.1:31156"
[rpc]
client_protocol = "grpc"
server_protocol = "all"
[sciond_connection]
initial_connect_period = "20s"
fake_data = ""
"#
    );
    let config = good(&text);
    assert_eq!(
        (config.log.level, config.log.format),
        (LogLevel::Debug, LogFormat::Json)
    );
    // A feature, two keys of the log, and two sections that the remotes make useless.
    assert_eq!(config.warnings().len(), 5, "{:#?}", config.warnings());
}

#[test]
fn an_own_address_from_ctrl_addr_as_the_reference_does() {
    let text = SMALL.replacen(
        "data_addr = \"10.10.0.2\"",
        "data_addr = \":40056\"\nctrl_addr = \"10.10.0.2\"",
        1,
    );
    assert_eq!(
        good(&text).gateway.data_addr,
        "10.10.0.2:40056".parse().unwrap()
    );
}

#[test]
fn an_empty_path_within_the_own_as() {
    let local = SMALL.replacen("1-ff00:0:111", "1-ff00:0:110", 1).replacen(
        "10.10.0.1:30042",
        "10.11.0.2:30056",
        1,
    );
    let raw = local.lines().find(|l| l.starts_with("raw")).unwrap();
    for instead in [
        "raw = \"\"",
        "path_type = \"empty\"",
        "path_type = \"empty\"\nraw = \"\"",
    ] {
        let config = good(&local.replacen(raw, instead, 1));
        assert_eq!(config.remotes[0].paths[0].raw, b"");
    }
}

#[test]
fn a_path_file_in_hexadecimal_or_raw() {
    let inline = good(SMALL);
    let raw = &inline.remotes[0].paths[0].raw;
    let hex: String = raw.iter().map(|b| format!("{b:02x}\n")).collect();
    let files = HashMap::from([("a.path", raw.clone()), ("b.path", hex.into_bytes())]);
    let line = SMALL.lines().find(|l| l.starts_with("raw")).unwrap();
    for name in ["a.path", "b.path"] {
        let text = SMALL.replacen(line, &format!("file = \"{name}\""), 1);
        let config = check(&text, "gateway.toml", &|path: &FilePath| {
            Ok(files[path.to_str().unwrap()].clone())
        });
        assert_eq!(config.unwrap().remotes, inline.remotes);
    }
}

#[test]
fn ipv6_throughout() {
    let text = SMALL
        .replacen("10.10.0.2", "fd00:10::2", 1)
        .replacen("10.11.0.2", "[fd00:11::2]:30056", 1)
        .replacen("10.10.0.1:30042", "[fd00:10::1]:30042", 1);
    let config = good(&text);
    let remote = &config.remotes[0];
    assert_eq!(
        remote.frame_len(config.gateway.data_addr.ip(), &remote.paths[0]),
        1472 - 12 - 48 - 36 - 8
    );
}

#[test]
fn a_default_route_with_a_warning() {
    assert_eq!(
        warnings(&SMALL.replacen("10.2.0.0/24", "0.0.0.0/0", 1)),
        [
            "gateway.toml:9: remote[0].prefixes[0]: 0.0.0.0/0 sends all traffic without a \
          more specific route through the tunnel; make sure that the underlay and your management access have one"
        ]
    );
}

#[test]
fn nested_prefixes_with_a_warning() {
    assert_eq!(
        warnings(&SMALL.replacen("10.2.0.0/24", "10.1.0.128/25", 1)),
        [
            "gateway.toml:9: remote[0].prefixes[0]: 10.1.0.128/25 overlaps 10.1.0.0/24, which is \
          served here; the longer prefix wins; check that 10.1.0.0/24 is intended"
        ]
    );
}

#[test]
fn protection_is_general_and_may_differ_for_an_as() {
    let of = |text: &str, isd_as: &str| {
        let control = good(text).control.expect("it finds its remotes");
        control.protection.of(isd_as.parse().expect("an ISD-AS"))
    };
    let other = "1-ff00:0:112";
    assert_eq!(of("", other).mode, ProtectionMode::Auto);
    let text = r#"
[protection]
mode = "require"
[[protection.remote]]
isd_as = "1-ff00:0:111"
pins = ["ed25519:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="]
[[protection.remote]]
isd_as = "1-ff00:0:113"
mode = "off"
"#;
    assert_eq!(of(text, other).mode, ProtectionMode::Require);
    assert!(of(text, other).pins.is_empty());
    let pinned = of(text, "1-ff00:0:111");
    assert_eq!(
        (pinned.mode, pinned.pins.len()),
        (ProtectionMode::Require, 1)
    );
    assert_eq!(of(text, "1-ff00:0:113").mode, ProtectionMode::Off);
}
