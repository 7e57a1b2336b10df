//! Files that change while packets cross the gateway.

use std::{fs, thread, time::Duration};

use scion_net::SimOptions;
use testbed::{Family, Site};

use crate::{
    bed::{self, Bed, Files, known, policy_file, run_sig, status, wait},
    flows::Flows,
};

/// A prefix that comes by reload, behind the client of B.
const PREFIX: &str = "10.77.0.0/24";
/// A host in it.
const HOST: &str = "10.77.0.2";
/// An AS that comes by reload.
const NEWCOMER: &str = "1-ff00:0:112";

/// The traffic policy with the prefix and the AS, or without them.
fn write_traffic(own: &Site, remote: &Site, more: bool) {
    let mut nets: Vec<_> = Family::ALL.map(|family| remote.prefix(family)).into();
    let mut other = String::new();
    if more {
        nets.push(PREFIX.to_owned());
        other = format!(r#", "{NEWCOMER}": {{ "Nets": ["10.78.0.0/24"] }}"#);
    }
    let isd_as = remote.isd_as();
    let text = format!(r#"{{ "ASes": {{ "{isd_as}": {{ "Nets": {nets:?} }}{other} }} }}"#);
    fs::write(policy_file(own, "traffic"), text).expect("the folder of the test");
}

#[test]
fn reloads_cost_no_packet_and_bad_files_change_nothing() {
    let options = SimOptions {
        transit: true,
        ..bed::options()
    };
    let mut bed = Bed::running(&options, |_, remote| Files::with_nets(remote));
    let network = &mut bed.net.network;
    let client = network.b.client_ip(Family::V4);
    for (netns, line) in [
        (&network.b.client, format!("address add {HOST}/32 dev lan")),
        (
            &network.b.gateway,
            format!("route add {PREFIX} via {client}"),
        ),
    ] {
        netns.ip(&line).expect("`ip`");
    }
    let there = Flows::start(&network.a, &network.b, Family::V4, 4, 200);
    let back = Flows::start(&network.b, &network.a, Family::V6, 4, 200);

    write_traffic(&network.a, &network.b, true);
    let hangup = |site: &mut Site| {
        let process = site.process().expect("it runs");
        process.signal(libc::SIGHUP);
    };
    hangup(&mut network.a);
    let route = |site: &Site| {
        let shown = site.gateway.exec(&format!("ip route show {PREFIX}"));
        shown.expect("`ip route`").contains("dev sig")
    };
    let a = &network.a;
    wait("the route of the new prefix", || route(a));
    let paths_alive = || {
        let known = known(a, NEWCOMER).expect("the new AS");
        !known.paths.is_empty() && known.paths.iter().all(|path| path.alive)
    };
    wait("paths to the new AS", paths_alive);
    let host = HOST.parse().expect("an address");
    let ping = testbed::ping(&a.client, host, 20, 56, Duration::from_millis(20));
    let ping = ping.expect("`ping`");
    assert_eq!(ping.received, ping.sent);

    // Wrong files, one after the other: an error, and everything as before.
    let counts = |site: &Site| {
        let status = status(site);
        (status.reloads, status.reloads_refused)
    };
    assert_eq!(counts(a), (1, 0));
    let traffic = policy_file(a, "traffic");
    fs::write(&traffic, "{ \"ASes\": {\n \"1-ff00:0:110\": 7 } }").expect("the folder of the test");
    let output = run_sig(a, &["reload"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains(".traffic:2"), "{message}");
    assert_eq!(counts(a), (1, 1));
    hangup(&mut network.a);
    let a = &network.a;
    wait("the refusal of the second reload", || counts(a) == (1, 2));
    assert!(route(a));
    assert!(known(a, NEWCOMER).is_some());

    write_traffic(a, &network.b, false);
    let output = run_sig(a, &["reload"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{message}");
    wait("the end of the route", || !route(a));
    assert!(known(a, NEWCOMER).is_none());
    assert_eq!(counts(a), (2, 2));
    thread::sleep(Duration::from_millis(500));
    for outcome in [there.stop(), back.stop()] {
        outcome.assert_perfect();
    }
}
