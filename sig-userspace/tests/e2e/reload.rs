//! Gateways with their remotes in the file, while that file changes and paths expire.

use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::bed::{Bed, sig};
use serde_json::Value;
use sig_core::status::{Remote, Status};
use testbed::{Family, Network, Options};

/// How long a gateway may take for what happens at once.
const SOON: Duration = Duration::from_secs(15);

/// A path from A to B, in hexadecimal, made at `timestamp` (seconds since 1970) or now.
fn path(network: &Network, timestamp: Option<u32>) -> String {
    let mut text = std::fs::read_to_string(network.folder().join("network.toml")).expect("a file");
    if let Some(timestamp) = timestamp {
        text = format!("timestamp = {timestamp}\n{text}");
    }
    let file = network.folder().join("made.toml");
    std::fs::write(&file, text).expect("a file");
    let output = Command::new(sig())
        .args(["path", "make", "--json", "--from", network.a.isd_as()])
        .args(["--to", network.b.isd_as()])
        .arg(&file)
        .output()
        .expect("it runs");
    let paths: Value = serde_json::from_slice(&output.stdout).expect("paths");
    paths[0]["raw"].as_str().expect("a path").to_owned()
}

/// The configuration of A with another path.
fn with_path(config: &str, path: &str) -> String {
    let start = config.find("raw = \"").expect("a path") + "raw = \"".len();
    let end = start + config[start..].find('"').expect("its end");
    [&config[..start], path, &config[end..]].concat()
}

/// `sig reload` of gateway A with this configuration: its exit code and output.
pub(crate) fn reload(network: &Network, config: &str) -> (Option<i32>, String) {
    let file = network.a.config_file();
    std::fs::write(&file, config).expect("the configuration");
    let output = Command::new(sig())
        .args(["reload", "--config"])
        .arg(&file)
        .output()
        .expect("it runs");
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.code(),
        String::from_utf8(text).expect("UTF-8"),
    )
}

pub(crate) fn status(network: &Network) -> Option<Status> {
    let output = Command::new(sig())
        .args(["status", "--format", "json", "--config"])
        .arg(network.a.config_file())
        .output()
        .expect("it runs");
    serde_json::from_slice(&output.stdout).ok()
}

fn route(network: &Network, prefix: &str) -> String {
    let shown = network.a.gateway.exec(&format!("ip route show {prefix}"));
    shown.expect("`ip route`")
}

/// The remote that stays in every configuration.
fn first(network: &Network) -> Remote {
    let gateway = network.b.data_addr();
    let remotes = status(network).expect("it answers").remotes;
    let mut remotes = remotes.into_iter();
    remotes.find(|r| r.gateway == gateway).expect("the remote")
}

#[test]
fn an_expired_path_is_not_used_until_a_reload_brings_another() {
    let mut bed = Bed::new(&Options::default());
    bed.network.b.spawn_gateway().expect("it starts");
    bed.network.b.wait_ready().expect("it is ready");
    let config = std::fs::read_to_string(bed.network.a.config_file()).expect("a file");
    let expired = with_path(&config, &path(&bed.network, Some(1_700_000_000)));
    std::fs::write(bed.network.a.config_file(), &expired).expect("a file");

    bed.network.a.spawn_gateway().expect("it starts");
    let process = bed.network.a.process().expect("it runs");
    process.wait_for("withdrawn", SOON).expect("it says so");
    let network = &bed.network;
    let answers = || Ok(status(network).is_some());
    testbed::wait_until("the gateway answers", SOON, answers).expect("it does");
    let remote = first(network);
    assert!(remote.paths[0].expired, "{remote:#?}");
    assert_eq!(remote.paths[0].problem.as_deref(), Some("it has expired"));
    assert_eq!(route(network, &network.b.prefix(Family::V4)), "");

    let fresh = with_path(&config, &path(network, None));
    let (code, told) = reload(network, &fresh);
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains(": paths changed\n"), "{told}");
    crate::bed::assert_pings(network, Family::V4, 20, 500);
    assert!(!first(network).paths[0].expired);

    // Back again: what was said once and is true again is said again.
    let (code, told) = reload(network, &expired);
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("warning: "), "{told}");
    assert!(
        told.contains("the path expired at 2023-11-15T22:13:20Z"),
        "{told}"
    );
    assert_eq!(route(network, &network.b.prefix(Family::V4)), "");
}

#[test]
fn a_reload_changes_remotes_and_paths_without_losing_a_packet_of_the_others() {
    let bed = Bed::running(&Options::default());
    let network = &bed.network;
    let config = std::fs::read_to_string(network.a.config_file()).expect("a file");
    let next_hop = network.a.router_inside();
    let to = network.b.client_ip(Family::V4);
    let before = first(network);
    let ping = thread::scope(|scope| {
        let pinging = scope
            .spawn(|| testbed::ping(&network.a.client, to, 1000, 500, Duration::from_millis(2)));
        for round in 0..5u8 {
            let path = path(network, None);
            let more = format!(
                "{}\n[[remote]]\nisd_as = \"{}\"\ngateway = \"10.11.0.{}:30056\"\n\
                 prefixes = [\"10.77.{round}.0/24\"]\n[[remote.path]]\nraw = \"{path}\"\n\
                 next_hop = \"{next_hop}\"\nmtu = 1472\n",
                with_path(&config, &path),
                network.b.isd_as(),
                100 + round,
            );
            let (code, told) = reload(network, &more);
            assert_eq!(code, Some(0), "{told}");
            assert!(told.contains(": added\n"), "{told}");
            assert!(route(network, &format!("10.77.{round}.0/24")).contains("dev sig"));
            let (code, told) = reload(network, &config);
            assert_eq!(code, Some(0), "{told}");
            assert!(told.contains(": removed\n"), "{told}");
            assert_eq!(route(network, &format!("10.77.{round}.0/24")), "");
        }
        pinging.join().expect("ping").expect("ping")
    });
    assert_eq!(ping.received, ping.sent, "{:#?}", status(network));
    let after = first(network);
    assert_eq!(before.paths[0].streams, after.paths[0].streams);
    assert!(after.sent.packets >= 1000, "{after:#?}");

    drains(network);

    // Nothing but what needs a restart is named as such.
    let other = config.replace("mtu = 1500\n", "mtu = 1400\n");
    assert_ne!(other, config);
    let (code, told) = reload(network, &other);
    assert_eq!(code, Some(0), "{told}");
    assert!(
        told.ends_with(": takes effect with a restart: tunnel.mtu\n"),
        "{told}"
    );
}

/// It leaves its traffic to others, and carries what comes all the same.
fn drains(network: &Network) {
    let drain = |argument: &str| {
        let output = Command::new(sig())
            .args(["drain", "--json", argument, "--config"])
            .arg(network.a.config_file())
            .output()
            .expect("it runs");
        serde_json::from_slice::<Value>(&output.stdout).expect("a document")
    };
    let prefix = network.b.prefix(Family::V4);
    assert_ne!(route(network, &prefix), "");
    assert_eq!(drain("--wait=0")["tells_remotes"], false);
    assert_eq!(route(network, &prefix), "");
    assert!(status(network).expect("it answers").draining);
    crate::bed::assert_pings(network, Family::V4, 20, 500);
    assert_eq!(drain("--undo")["draining"], false);
    assert_ne!(route(network, &prefix), "");
}

#[test]
fn a_gateway_makes_its_paths_from_the_description_of_the_network() {
    let mut bed = Bed::new(&Options::default());
    let file = bed.network.a.config_file();
    let config = std::fs::read_to_string(&file).expect("a file");
    let made = with_path(&config, "").replace("raw = \"\"", "network = \"network.toml\"");
    std::fs::write(&file, made).expect("a file");
    bed.network.start_gateways().expect("they start");
    crate::bed::assert_pings(&bed.network, Family::V4, 20, 500);
    // Made just now, and valid for a day.
    let expires_at = first(&bed.network).paths[0].expires_at.expect("a time");
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("after 1970");
    let left = Duration::from_secs(expires_at).saturating_sub(now);
    assert!(left > Duration::from_secs(43_200), "{left:?}");
}

#[test]
fn a_tunnel_outlives_its_paths_without_losing_a_packet() {
    // Hop fields live for 337 seconds at least. Here they are 333 seconds old when they are made, and made anew after two.
    let mut bed = Bed::new(&Options {
        gateways_by: ["env", "SIG_TEST_PATH_AGE_S=333"].map(str::to_owned).into(),
        ..Options::default()
    });
    let folder = bed.network.folder().to_owned();
    let description = std::fs::read_to_string(folder.join("network.toml")).expect("a file");
    let short = description.replace("expiry = 255", "expiry = 0");
    std::fs::write(folder.join("network.toml"), short).expect("a file");
    for site in [&bed.network.a, &bed.network.b] {
        let file = site.config_file();
        let config = std::fs::read_to_string(&file).expect("a file");
        let made = with_path(&config, "").replace("raw = \"\"", "network = \"network.toml\"");
        std::fs::write(&file, made).expect("a file");
    }
    bed.network.start_gateways().expect("they start");
    let network = &bed.network;
    let before = first(network).paths[0].clone();
    let to = network.b.client_ip(Family::V4);
    let ping = testbed::ping(&network.a.client, to, 1100, 500, Duration::from_millis(5));
    let ping = ping.expect("ping");
    assert_eq!(ping.received, ping.sent, "{:#?}", status(network));
    let after = first(network).paths[0].clone();
    let later = |path: &sig_core::status::Path| path.expires_at.expect("a time");
    assert!(
        later(&after) >= later(&before) + 4,
        "the first paths have expired"
    );
    assert_eq!(after.streams, before.streams);
}
