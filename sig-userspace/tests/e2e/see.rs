//! What operators see of packets: `sig trace`.

use std::process::Command;

use serde_json::Value;
use testbed::{Family, Options, Site};

use crate::bed::{Bed, assert_pings, sig};

/// `sig` with these arguments, of the gateway of a site.
fn command(site: &Site, args: &[&str]) -> Command {
    let mut command = Command::new(sig());
    command.args(args).arg("--config").arg(site.config_file());
    command
}

fn trace(site: &Site, args: &[&str]) -> Value {
    let mut command = command(site, &["trace", "--json"]);
    let output = command.args(args).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn a_trace_says_what_becomes_of_packets() {
    let bed = Bed::running(&Options::default());
    let (a, b) = (&bed.network.a, &bed.network.b);
    for family in Family::ALL {
        let [from, to] = [a, b].map(|site| site.client_ip(family).to_string());
        let sent = trace(a, &[&from, &to, "udp", "53"]);
        assert_eq!(sent["verdict"], "sent", "{sent:#}");
        assert_eq!(sent["remote"], b.isd_as(), "{sent:#}");
        assert_eq!(sent["frames"], 1, "{sent:#}");
        assert_pings(&bed.network, family, 5, 64);
        // The neighbour is known by now.
        let received = trace(b, &[&from, &to, "--from-remote", a.isd_as()]);
        assert_eq!(received["verdict"], "delivered", "{received:#}");
        let forged = trace(b, &[&to, &to, "--from-remote", a.isd_as()]);
        assert_eq!(forged["reason"], "inner_source", "{forged:#}");
    }
    let from = a.client_ip(Family::V4).to_string();
    let nowhere = trace(a, &[&from, "203.0.113.7"]);
    assert_eq!(nowhere["verdict"], "not_taken", "{nowhere:#}");
    assert_eq!(nowhere["reason"], "no_route", "{nowhere:#}");
    let multicast = trace(a, &[&from, "224.0.0.1"]);
    assert_eq!(multicast["reason"], "address_scope", "{multicast:#}");
    // The text that people read.
    let to = b.client_ip(Family::V4).to_string();
    let output = command(a, &["trace", &from, &to, "tcp", "443"]).output();
    let text = String::from_utf8(output.expect("it runs").stdout).expect("text");
    assert!(text.ends_with("\nsent\n"), "{text}");
    print!("{text}");
}
