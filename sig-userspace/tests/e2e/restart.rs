//! Gateways that end, in order or not: what comes back, and what is left behind.

use std::time::Duration;

use crate::asking::Traffic;
use crate::bed::Bed;
use testbed::{Family, Options, Site, wait_until};

/// Longest time from the start of the process until packets cross again.
const BACK_WITHIN: Duration = Duration::from_secs(2);

#[test]
fn after_kill_and_restart_the_tunnel_is_back_within_two_seconds() {
    let mut bed = Bed::running(&Options::default());
    let traffic = Traffic::start(&bed.network);
    assert!(
        traffic.wait_for_answer(0, BACK_WITHIN).is_some(),
        "no tunnel to begin with"
    );
    for number in 1..=4 {
        let site = if number % 2 == 0 {
            &mut bed.network.a
        } else {
            &mut bed.network.b
        };
        site.kill_gateway().unwrap();
        let missing = traffic.wait_for_answer(100 + number, Duration::from_millis(300));
        assert_eq!(missing, None, "somebody else carries the packets");
        site.spawn_gateway().unwrap();
        let back = traffic.wait_for_answer(number, BACK_WITHIN);
        assert!(
            back.is_some(),
            "not back:\n{}",
            site.process().unwrap().log()
        );
        println!("back after {back:?}");
    }
}

/// What a gateway could leave on its host: interfaces with their settings and programs, routes, rules.
fn traces(site: &Site) -> Vec<String> {
    let mut traces = site.gateway.interfaces().unwrap();
    for command in [
        "ip -4 route show table all",
        "ip -6 route show table all",
        "ip rule",
        "ip -6 rule",
        "tc qdisc show",
        "ip -o link show dev lan",
        "ip -o link show dev underlay",
    ] {
        traces.push(site.gateway.exec(command).unwrap());
    }
    // Other networks on this machine come and go meanwhile.
    let namespaces = site.gateway.exec("ip netns list").unwrap();
    let own = format!("-{}-", std::process::id());
    let of_others = |name: &&str| name.starts_with("sig") && !name.contains(&own);
    let namespaces = namespaces.lines().filter(|name| !of_others(name));
    traces.extend(namespaces.map(str::to_owned));
    traces
}

fn nothing_is_left(end: impl Fn(&mut Site)) {
    let mut bed = Bed::new(&Options::default());
    // Neighbours are looked up before, so that their entries make no difference.
    let before = traces(&bed.network.a);
    bed.network.start_gateways().unwrap();
    crate::bed::assert_pings(&bed.network, Family::V4, 5, 64);
    let a = &mut bed.network.a;
    assert_ne!(
        traces(a),
        before,
        "a running gateway leaves traces, else this test sees nothing"
    );
    end(a);
    let gone = wait_until(
        "the host's network as before",
        Duration::from_secs(5),
        || Ok(traces(a) == before),
    );
    if gone.is_err() {
        assert_eq!(traces(a), before);
    }
}

#[test]
fn nothing_is_left_after_sigterm() {
    nothing_is_left(|site| site.stop_gateway().unwrap());
}

#[test]
fn nothing_is_left_after_sigkill() {
    nothing_is_left(|site| site.kill_gateway().unwrap());
}

/// Without the device the kernel has nowhere to send packets for remotes, so a restart must follow.
#[test]
fn a_gateway_ends_without_its_tunnel_device() {
    let mut bed = Bed::new(&Options::default());
    bed.network.start_gateways().unwrap();
    let a = &mut bed.network.a;
    a.gateway.ip("link del sig").unwrap();
    let process = a.process().unwrap();
    let status = process.wait(Duration::from_secs(10)).unwrap();
    let log = process.log();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("tunnel device sig was removed"), "{log}");
}

#[test]
fn a_lan_mtu_beyond_the_limit_is_refused_with_what_to_do() {
    let mut bed = Bed::new(&Options {
        lan_mtu: 9300,
        ..Options::default()
    });
    let a = &mut bed.network.a;
    a.spawn_gateway().unwrap();
    let process = a.process().unwrap();
    let status = process.wait(Duration::from_secs(10)).unwrap();
    let log = process.log();
    assert!(!status.success(), "{log}");
    for word in ["lan", "9300", "MTU", "ip link set"] {
        assert!(log.contains(word), "{word:?} is not in: {log}");
    }
}
