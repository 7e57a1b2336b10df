//! What is written is read as the same configuration.

use super::*;

/// A configuration without the warnings, which belong to the text.
fn bare(text: &str) -> Config {
    Config {
        warnings: Vec::new(),
        ..good(text)
    }
}

fn assert_survives(text: &str) {
    let config = bare(text);
    let written = config.to_toml();
    assert_eq!(bare(&written), config, "{written}");
}

#[test]
fn configured_remotes_survive() {
    assert_survives(SAMPLE);
    assert_survives(SMALL);
    let empty = SMALL
        .replace("\nisd_as = \"1-ff00:0:111\"", "\nisd_as = \"1-ff00:0:110\"")
        .replace(
            "raw = \"00002000 0100123466000000 003f00000001010203040506 003f000200000708090a0b0c\"",
            "path_type = \"empty\"\nname = \"a \\\"b\\\" \\\\ é\"\nsource_port = 7",
        );
    assert!(empty.contains("empty"));
    assert_survives(&empty);
}

#[test]
fn every_value_that_is_not_the_default_survives() {
    let rest = r#"
[tunnel]
name = "tun0"
device = "tun"
mtu = 1400
table = 77
src_ipv4 = "10.1.0.1"
src_ipv6 = "fd00::1"
[dataplane]
underlay = "eth7"
underlay_port = "socket"
underlay_sources = ["10.0.0.0/24", "fd00::1/128"]
lan = ["eth8", "eth9"]
workers = 2
lan_transmit = "helper"
mode = "native"
zero_copy = "require"
ring_size = 512
chunks = 8192
huge_pages = "never"
busy_poll = true
pin = [3, 1]
fast_path = "on"
verify_checksums = false
clamp_mss = false
reorder_frames = 7
reorder_wait = "250us"
[dataplane.limits]
streams_per_remote = 11
streams_total = 12
packets_per_remote = 13
packets_total = 14
held_per_remote = 15
held_total = 16
packet_timeout = "20ms"
stream_timeout = "90s"
[log.console]
level = "debug"
format = "json"
[metrics]
prometheus = "127.0.0.1:30456"
[api]
addr = "[::]:31156"
allow_remote = true
"#;
    assert_survives(&format!("{SMALL}{rest}"));
}

#[test]
fn a_gateway_that_finds_its_remotes_survives() {
    assert_survives("");
    assert_survives(
        r#"
[gateway]
id = "west"
isd_as = "1-ff00:0:110"
ctrl_addr = "10.10.0.2"
data_addr = "10.10.0.3:1"
traffic_policy_file = "a.json"
ip_routing_policy_file = "b.policy"
[sciond_connection]
address = "localhost:30255"
[rpc]
client_protocol = "grpc"
server_protocol = "connectrpc"
[control]
endhost_port = "shared"
probe_interval = "150ms"
probe_timeout = "700ms"
switch_delay = "0s"
default_route = "refuse"
path_interval = "1500ms"
[control.limits]
gateways_per_as = 1
prefixes_per_gateway = 2
message_bytes = 3000
connections = 4
paths_per_as = 5
[protection]
mode = "require"
identity_file = "/etc/scion/identity.key"
[[protection.remote]]
isd_as = "1-ff00:0:111"
pins = ["ed25519:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="]
[[protection.remote]]
isd_as = "1-ff00:0:112"
mode = "off"
"#,
    );
}

#[test]
fn every_key_that_has_an_effect_is_written() {
    let discovers = good("[gateway]\nisd_as = \"1-ff00:0:110\"\nip_routing_policy_file = \"b\"");
    let written = discovers.to_toml() + &good(SMALL).to_toml();
    let without_effect = [
        "stacktrace_level",
        "disable_caller",
        "initial_connect_period",
        "fake_data",
        "appropriate_digest_algorithm",
        "experimental_scmp_authentication",
    ];
    // Written where they are set, or instead of another one.
    let elsewhere = [
        "src_ipv4",
        "src_ipv6",
        "prometheus",
        "addr",
        "allow_remote",
        "path_type",
        "file",
        "network",
        "via",
        "rules_file",
        "identity_file",
        "pins",
    ];
    for (section, lists) in keys::SCHEMA.0 {
        let keys = lists.concat();
        for key in keys.iter().filter(|_| !section.is_empty()) {
            let is_section = keys::SCHEMA.0.iter().any(|(name, _)| {
                let name = name.trim_end_matches("[]");
                name == format!("{section}.{key}")
            });
            let known = is_section || without_effect.contains(key) || elsewhere.contains(key);
            assert!(
                known || written.contains(&format!("\n{key} = ")),
                "{section}.{key}"
            );
        }
    }
}
