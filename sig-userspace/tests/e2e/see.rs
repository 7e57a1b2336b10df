//! What operators see of packets: `sig trace`, `sig capture`, `sig drops`.

use std::{
    io::Read,
    net::{SocketAddr, UdpSocket},
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::Value;
use testbed::{Family, Options, Site, wait_until};

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
    assert_eq!(multicast["verdict"], "not_taken", "{multicast:#}");
    // The text that people read.
    let to = b.client_ip(Family::V4).to_string();
    let output = command(a, &["trace", &from, &to, "tcp", "443"]).output();
    let text = String::from_utf8(output.expect("it runs").stdout).expect("text");
    assert!(text.ends_with("\nsent\n"), "{text}");
    print!("{text}");
}

/// A running `sig capture` or `sig drops`, ended with this.
struct Watching(Child);

impl Watching {
    fn start(command: &mut Command) -> Self {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Watching(child.spawn().expect("it runs"))
    }

    /// Waits for its end; its standard output and error.
    fn end(mut self) -> [String; 2] {
        let mut text = [String::new(), String::new()];
        let out = self.0.stdout.take().expect("a pipe");
        let errors = self.0.stderr.take().expect("a pipe");
        let both = [Box::new(out) as Box<dyn Read>, Box::new(errors)];
        for (mut from, text) in both.into_iter().zip(&mut text) {
            from.read_to_string(text).expect("text");
        }
        let status = self.0.wait().expect("it ends");
        assert!(status.success(), "{status}: {text:?}");
        text
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_capture_shows_packets_and_frames_of_both_directions() {
    let bed = Bed::running(&Options::default());
    let (a, b) = (&bed.network.a, &bed.network.b);
    let fast_path = || {
        let output = command(a, &["status", "--json"]).output().expect("it runs");
        let status: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        status["fast_path"]["on"].as_bool().expect("a state")
    };
    // Flows are on the fast path by now.
    assert_pings(&bed.network, Family::V4, 10, 64);
    let was_on = fast_path();
    let file = bed.network.folder().join("capture.pcapng");
    let shown = file.display().to_string();
    let filter = format!("host {} and proto icmp", b.client_ip(Family::V4));
    // Of each of twenty questions and answers, a packet and a frame.
    let args = [
        "capture",
        "-c",
        "80",
        "--seconds",
        "60",
        "-w",
        &shown,
        &filter,
    ];
    let watching = Watching::start(&mut command(a, &args));
    let begun = wait_until("the capture", Duration::from_secs(10), || Ok(file.exists()));
    begun.expect("it begins");
    assert!(!fast_path(), "packets on the fast path are not seen");
    assert_pings(&bed.network, Family::V4, 20, 64);
    let [_, errors] = watching.end();
    assert!(errors.contains("80 packets"), "{errors}");
    let back = wait_until("the fast path", Duration::from_secs(10), || {
        Ok(fast_path() == was_on)
    });
    back.expect("it is on again");
    assert_pings(&bed.network, Family::V4, 5, 64);
    let output = Command::new("tcpdump").args(["-nr", &shown]).output();
    let output = output.expect("tcpdump");
    let text = String::from_utf8_lossy(&output.stdout);
    for (kind, count) in [
        ("ICMP echo request", 20),
        ("ICMP echo reply", 20),
        (".30042", 40),
    ] {
        let found = text.lines().filter(|line| line.contains(kind)).count();
        assert!(found >= count, "{kind}: {found}: {text}{output:?}");
    }
    let output = Command::new(sig()).args(["dissect", &shown]).output();
    let text = String::from_utf8_lossy(&output.expect("it runs").stdout).into_owned();
    assert!(
        text.contains(a.isd_as()) && text.contains(b.isd_as()),
        "{text}"
    );
    print!("{text}");
    // As text, with what the gateway knows.
    let args = [
        "capture",
        "-c",
        "1",
        "--seconds",
        "20",
        "--inner",
        "src",
        &a.client_ip(Family::V4).to_string(),
    ];
    let watching = Watching::start(&mut command(a, &args));
    let pings = || assert_pings(&bed.network, Family::V4, 2, 64);
    let off = wait_until("the capture", Duration::from_secs(10), || Ok(!fast_path()));
    off.expect("it begins");
    pings();
    let [text, _] = watching.end();
    assert!(
        text.contains("in lan inner") && text.contains("remote 1-"),
        "{text}"
    );
    print!("{text}");
}

#[test]
fn drops_are_shown_with_reason_and_addresses() {
    let bed = Bed::running(&Options::default());
    let (a, b) = (&bed.network.a, &bed.network.b);
    let lines = |args: &[&str], provoke: &dyn Fn()| -> Vec<Value> {
        let mut watching = Watching::start(&mut command(b, args));
        // It has begun when copies are made, which nobody can see: so until enough has come.
        while watching.0.try_wait().expect("a state").is_none() {
            provoke();
            std::thread::sleep(Duration::from_millis(50));
        }
        let [text, _] = watching.end();
        let lines = text
            .lines()
            .map(|line| serde_json::from_str(line).expect(line));
        lines.collect()
    };
    // A worker of B drops a packet with a source that A does not announce.
    a.client
        .ip("address add 172.16.66.6/32 dev lan")
        .expect("`ip`");
    let bind = |netns: &testbed::Netns, address: SocketAddr| {
        let socket = netns.run(|| UdpSocket::bind(address));
        socket.expect("a namespace").expect("a socket")
    };
    let spoofed = bind(&a.client, ([172, 16, 66, 6], 7003).into());
    let to = (b.client_ip(Family::V4), 7003);
    let send = || drop(spoofed.send_to(b"spoofed", to));
    let args = [
        "drops",
        "--json",
        "-c",
        "2",
        "--seconds",
        "30",
        "src 172.16.66.6 and port 7003",
    ];
    let seen = lines(&args, &send);
    assert_eq!(seen.len(), 2, "{seen:#?}");
    assert_eq!(seen[0]["reason"], "inner_source", "{seen:#?}");
    assert_eq!(seen[0]["kind"], "inner", "{seen:#?}");
    // What is no frame, a program in the kernel drops.
    let garbage = bind(&b.router, (b.router_inside().ip(), 0).into());
    let send = || drop(garbage.send_to(&[0xff; 100], b.data_addr()));
    let args = ["drops", "--json", "-c", "2", "--seconds", "30", "proto udp"];
    let seen = lines(&args, &send);
    assert_eq!(seen.len(), 2, "{seen:#?}");
    assert_eq!(seen[0]["worker"], Value::Null, "{seen:#?}");
    assert_eq!(seen[0]["reason"], "bad_scion_version", "{seen:#?}");
    assert_pings(&bed.network, Family::V4, 5, 64);
}
