//! Daemons and control services that stop, and paths that expire.

use std::{thread, time::Duration};

use testbed::Family;

use crate::{
    bed::{self, Bed, Files, known, status, wait},
    flows::Flows,
};

/// Seconds that the daemons and control services are away, instead of those that the test takes.
const VARIABLE: &str = "SIG_E2E_OUTAGE_SECONDS";

/// How long the daemons and control services are away.
pub(crate) fn outage() -> Duration {
    let seconds = std::env::var(VARIABLE).ok();
    let seconds = seconds.map(|text| text.parse().expect("a number of seconds"));
    Duration::from_secs(seconds.unwrap_or(15))
}

#[test]
fn tunnels_carry_on_without_daemons_and_control_services() {
    let mut bed = Bed::running(&bed::options(), Files::with_routing_policy);
    let network = &bed.net.network;
    let there = Flows::start(&network.a, &network.b, Family::V4, 4, 100);
    let back = Flows::start(&network.b, &network.a, Family::V6, 4, 100);
    for services in [&mut bed.net.a, &mut bed.net.b] {
        services.daemon.stop();
        services.control_service.stop();
    }
    thread::sleep(outage());
    let control = status(&bed.net.network.a).control;
    let control = control.expect("it finds its remotes");
    assert!(!control.daemon.reachable, "{control:#?}");
    assert!(control.ases[0].discovery_problem.is_some(), "{control:#?}");
    let calls = bed.net.b.control_service.calls().gateways.len();
    for services in [&mut bed.net.a, &mut bed.net.b] {
        services.daemon.restart().expect("its address is free");
        let service = &mut services.control_service;
        service.restart().expect("its addresses are free");
    }
    wait("the daemon and the control service", || {
        let control = status(&bed.net.network.a).control;
        let control = control.expect("it finds its remotes");
        control.daemon.reachable && control.ases[0].discovery_problem.is_none()
    });
    assert!(bed.net.b.control_service.calls().gateways.len() > calls);
    thread::sleep(Duration::from_secs(1));
    let outcomes = [there.stop(), back.stop()];
    println!("{}", bed.logs());
    for outcome in outcomes {
        outcome.assert_perfect();
    }
}

#[test]
fn tunnels_outlive_the_paths_they_started_with() {
    let lifetime = Duration::from_secs(10);
    let mut bed = Bed::new(&bed::options());
    for services in [&bed.net.a, &bed.net.b] {
        services.daemon.set_paths_refresh(lifetime);
    }
    bed.configure(|own, remote| {
        Files::with_routing_policy(own, remote).and("[control]\npath_interval = \"3s\"\n")
    });
    bed.start();
    let network = &bed.net.network;
    let expiries = || {
        let known = known(&network.a, network.b.isd_as()).expect("the AS of the policy");
        let expiries = known.paths.iter().map(|path| path.expires_at);
        expiries.max().flatten().expect("paths")
    };
    let first = expiries();
    let there = Flows::start(&network.a, &network.b, Family::V4, 4, 100);
    let back = Flows::start(&network.b, &network.a, Family::V6, 4, 100);
    thread::sleep(lifetime + Duration::from_secs(4));
    assert!(expiries() > first);
    for outcome in [there.stop(), back.stop()] {
        outcome.assert_perfect();
    }
}
