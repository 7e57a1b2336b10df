use std::time::{Duration, Instant, SystemTime};

use proptest::prelude::*;

use super::network::Network;
use crate::{
    paths::{
        Failure, Liveness, Monitor, Revocations, Settings,
        testing::{MS, SECOND, interface, isd_as, path, path_over},
    },
    scion::Path,
};

fn expiring(mut path: Path, at: SystemTime) -> Path {
    path.expiry = Some(at);
    path
}

#[test]
fn a_path_that_the_daemon_tells_again_keeps_its_statistics_and_gets_new_hop_fields() {
    let told = path_over(1, 1);
    let mut network = Network::new(std::slice::from_ref(&told));
    network.run(5 * SECOND);
    let before = network.state(&told);
    let mut fresh = told.clone();
    fresh.raw = [1; 36].into();
    let (now, wall) = (network.now, network.wall);
    network.monitor.update(now, wall, vec![fresh.clone()]);
    let after = network.state(&told);
    assert_eq!(after.path.raw, fresh.raw);
    assert!(after.is_alive());
    assert_eq!(after.latency, before.latency);
}

#[test]
fn of_two_paths_with_the_same_fingerprint_the_last_one_counts() {
    let told = path_over(1, 1);
    let mut other = told.clone();
    other.mtu = 1300;
    let mut network = Network::new(&[told.clone(), other]);
    assert_eq!(network.monitor.len(), 1);
    assert_eq!(network.state(&told).mtu, 1300);
}

#[test]
fn a_path_that_is_told_no_more_stays_for_a_minute() {
    let (stays, goes) = (path_over(1, 1), path_over(1, 2));
    let mut network = Network::new(&[stays.clone(), goes]);
    for _ in 0..6 {
        let (now, wall) = (network.now, network.wall);
        network.monitor.update(now, wall, vec![stays.clone()]);
        network.run(9 * SECOND);
        assert_eq!(network.monitor.len(), 2);
    }
    network.run(7 * SECOND);
    assert_eq!(network.monitor.len(), 1);
    assert!(network.is_alive(&stays));
}

#[test]
fn a_path_that_is_told_no_more_goes_when_it_expires() {
    let stays = path_over(1, 1);
    let mut network = Network::new(std::slice::from_ref(&stays));
    let goes = expiring(path_over(1, 2), network.wall + 10 * SECOND);
    let (now, wall) = (network.now, network.wall);
    network.monitor.update(now, wall, vec![stays.clone(), goes]);
    network.monitor.update(now, wall, vec![stays]);
    network.run(9 * SECOND);
    assert_eq!(network.monitor.len(), 2);
    network.run(2 * SECOND);
    assert_eq!(network.monitor.len(), 1);
}

#[test]
fn without_an_answer_of_the_daemon_the_paths_stay() {
    let told = path_over(1, 1);
    let mut network = Network::new(std::slice::from_ref(&told));
    for _ in 0..12 {
        let (now, wall) = (network.now, network.wall);
        network.monitor.update(now, wall, Vec::new());
        assert!(
            !network.monitor.update_failed("connection refused"),
            "no news"
        );
        network.run(10 * SECOND);
    }
    assert!(network.is_alive(&told));
    assert_eq!(network.monitor.problem(), Some("connection refused"));
    let (now, wall) = (network.now, network.wall);
    network.monitor.update(now, wall, vec![told]);
    assert_eq!(network.monitor.problem(), None);
    assert!(network.monitor.update_failed("again"), "news");
}

#[test]
fn beyond_the_limit_paths_in_use_stay_and_those_at_the_end_of_the_list_go() {
    let paths: Vec<_> = (1..=5).map(|n| path_over(1, n)).collect();
    let mut network = Network::new(&paths);
    let (now, wall) = (network.now, network.wall);
    let used = paths[4].fingerprint;
    network.monitor.set_in_use(now, [used]);
    network.monitor.set_settings(Settings {
        limit: 3,
        ..Settings::default()
    });
    network.monitor.update(now, wall, paths.clone());
    let left: Vec<_> = network.states().iter().map(|s| s.fingerprint()).collect();
    assert_eq!(left.len(), 3);
    assert!(
        [0, 1, 4]
            .iter()
            .all(|&n| left.contains(&paths[n].fingerprint))
    );
    assert_eq!(network.monitor.counters().paths_refused, 2);
    // The one in use stays also when others come.
    network.monitor.update(now, wall, paths[1..4].to_vec());
    let left: Vec<_> = network.states().iter().map(|s| s.fingerprint()).collect();
    assert_eq!(left.len(), 3);
    assert!(left.contains(&used));
}

#[test]
fn an_expired_path_is_neither_alive_nor_probed_until_it_is_refreshed() {
    let told = path_over(1, 1);
    let mut network = Network::new(std::slice::from_ref(&told));
    let (now, wall) = (network.now, network.wall);
    let short = expiring(told.clone(), wall + 10 * SECOND);
    network.monitor.update(now, wall, vec![short]);
    let took = network.run_until(20 * SECOND, |network| {
        network.state(&told).liveness == Liveness::Expired
    });
    assert_eq!(took, 10 * SECOND, "the expiry is a deadline");
    network.run(SECOND);
    let sent = network.probes.len();
    network.run(10 * SECOND);
    assert_eq!(network.probes.len(), sent);
    let (now, wall) = (network.now, network.wall);
    let fresh = expiring(told.clone(), wall + 60 * SECOND);
    network.monitor.update(now, wall, vec![fresh]);
    assert_eq!(network.state(&told).liveness, Liveness::Silent);
    network.run(3 * SECOND);
    assert!(network.is_alive(&told));
    let Liveness::Alive { since, settled } = network.state(&told).liveness else {
        panic!("it is alive");
    };
    assert_eq!(since, settled, "expiry is not held against a path");
}

#[test]
fn a_path_within_the_own_as_is_alive_without_probes() {
    let mut own = path(&[]);
    own.raw = [].into();
    let mut network = Network::new(std::slice::from_ref(&own));
    network.run(5 * SECOND);
    assert!(network.is_alive(&own));
    assert!(network.probes.is_empty());
}

#[test]
fn a_smaller_path_mtu_is_believed_for_ten_minutes() {
    let told = path_over(1, 1);
    let mut network = Network::new(std::slice::from_ref(&told));
    let now = network.now;
    let too_big =
        |network: &mut Network, mtu| network.monitor.packet_too_big(now, told.fingerprint, mtu);
    assert!(!too_big(&mut network, 1472));
    assert!(too_big(&mut network, 1400));
    assert!(!too_big(&mut network, 1450));
    assert_eq!(network.state(&told).mtu, 1400);
    assert!(too_big(&mut network, 68));
    assert_eq!(network.state(&told).mtu, 1000);
    network.run(599 * SECOND);
    assert_eq!(network.state(&told).mtu, 1000);
    network.run(2 * SECOND);
    assert_eq!(network.state(&told).mtu, 1472);
}

#[test]
fn another_announced_mtu_replaces_the_one_found_out() {
    let told = path_over(1, 1);
    let mut network = Network::new(std::slice::from_ref(&told));
    let (now, wall) = (network.now, network.wall);
    network.monitor.packet_too_big(now, told.fingerprint, 1300);
    network.monitor.update(now, wall, vec![told.clone()]);
    assert_eq!(network.state(&told).mtu, 1300);
    let mut other = told.clone();
    other.mtu = 1400;
    network.monitor.update(now, wall, vec![other]);
    assert_eq!(network.state(&told).mtu, 1400);
    let unknown = path_over(1, 2).fingerprint;
    assert!(!network.monitor.packet_too_big(now, unknown, 1100));
}

#[test]
fn a_path_mtu_below_the_floor_that_was_announced_stays_as_it_is() {
    let mut told = path_over(1, 1);
    told.mtu = 900;
    let mut network = Network::new(std::slice::from_ref(&told));
    let now = network.now;
    assert!(!network.monitor.packet_too_big(now, told.fingerprint, 800));
    assert_eq!(network.state(&told).mtu, 900);
}

#[test]
fn a_report_concerns_the_paths_across_the_interface_for_ten_seconds() {
    let (over, beside) = (path_over(2, 1), path_over(2, 2));
    let mut network = Network::new(&[over.clone(), beside.clone()]);
    network.cut.insert(over.fingerprint);
    network.run(SECOND);
    assert!(network.report(Failure::Interface(interface(100, 2))));
    assert!(network.state(&over).revoked);
    assert!(!network.state(&beside).revoked);
    network.run(9900 * MS);
    assert!(network.state(&over).revoked);
    network.run(200 * MS);
    assert!(!network.state(&over).revoked);
}

#[test]
fn a_report_about_an_interface_on_no_path_is_not_believed() {
    let mut network = Network::new(&[path_over(2, 1)]);
    assert!(!network.report(Failure::Interface(interface(100, 3))));
    assert!(!network.report(Failure::Interface(interface(77, 1))));
    assert_eq!(network.revocations.next_deadline(network.now), None);
}

#[test]
fn connectivity_down_concerns_only_the_way_from_ingress_to_egress() {
    let told = path(&[(1, 11), (2, 21), (2, 22), (9, 91)]);
    let other = path(&[(1, 12), (2, 23), (2, 22), (9, 91)]);
    let mut network = Network::new(&[told.clone(), other.clone()]);
    let down = |ingress, egress| Failure::Connectivity {
        isd_as: isd_as(2),
        ingress,
        egress,
    };
    assert!(!network.report(down(22, 21)));
    assert!(network.report(down(21, 22)));
    assert!(network.state(&told).revoked);
    assert!(!network.state(&other).revoked);
}

#[test]
fn two_answered_probes_in_a_row_refute_a_report() {
    let told = path_over(2, 1);
    let mut network = Network::new(std::slice::from_ref(&told));
    network.run(5 * SECOND);
    assert!(network.report(Failure::Interface(interface(100, 1))));
    let before = network.probes.len();
    let took = network.run_until(10 * SECOND, |network| !network.state(&told).revoked);
    assert!(took < 2 * SECOND, "{took:?}");
    assert_eq!(network.probes.len() - before, 2);
    // The answer to a probe from before the report says nothing.
    network.round_trip.insert(told.fingerprint, 400 * MS);
    let sent = network.probes.len();
    network.run_until(SECOND, |network| network.probes.len() > sent);
    assert!(network.report(Failure::Interface(interface(100, 1))));
    let sent = network.probes.len();
    network.run_until(10 * SECOND, |network| !network.state(&told).revoked);
    assert!(network.probes.len() - sent >= 2);
}

#[test]
fn every_second_answered_probe_refutes_nothing() {
    let told = path_over(2, 1);
    let mut network = Network::new(std::slice::from_ref(&told));
    network.lose_every.insert(told.fingerprint, 2);
    network.run(5 * SECOND);
    assert!(network.report(Failure::Interface(interface(100, 1))));
    let took = network.run_until(20 * SECOND, |network| !network.state(&told).revoked);
    assert!(took >= 10 * SECOND, "{took:?}");
}

#[test]
fn a_report_that_comes_again_and_again_displaces_no_other() {
    let (one, other) = (path_over(2, 1), path_over(2, 2));
    let mut network = Network::new(&[one.clone(), other.clone()]);
    assert!(network.report(Failure::Interface(interface(100, 1))));
    for _ in 0..300 {
        assert!(network.report(Failure::Interface(interface(200, 1))));
    }
    assert!(network.state(&one).revoked && network.state(&other).revoked);
}

#[test]
fn reports_are_bounded() {
    let interfaces: Vec<_> = (0..600).map(|n| (n / 2 + n % 2, n)).collect();
    let long = path(&interfaces);
    let mut network = Network::new(std::slice::from_ref(&long));
    let (now, wall) = (network.now, network.wall);
    for &(n, id) in &interfaces {
        assert!(network.report(Failure::Interface(interface(n, id))));
    }
    let on = network.revocations.on(now, &long).count();
    assert_eq!(on, 256);
    let states = network.monitor.states(now, wall, &Revocations::default());
    assert!(!states[0].revoked);
}

/// What can happen to a monitor.
#[derive(Clone, Debug)]
enum Event {
    Update(Vec<u8>, Option<u64>),
    Fail,
    Use(Vec<u8>),
    Poll,
    Reply(u16, bool),
    AnswerAll,
    TooBig(u8, u16),
    Report(u8),
    Pass(u64),
}

fn event() -> impl Strategy<Value = Event> {
    let some = || proptest::collection::vec(0..12_u8, 0..12);
    prop_oneof![
        1 => (some(), proptest::option::of(0..30_u64)).prop_map(|(n, e)| Event::Update(n, e)),
        1 => Just(Event::Fail),
        1 => proptest::collection::vec(0..12_u8, 0..4).prop_map(Event::Use),
        4 => Just(Event::Poll),
        1 => (any::<u16>(), any::<bool>()).prop_map(|(s, own)| Event::Reply(s, own)),
        4 => Just(Event::AnswerAll),
        1 => (0..12_u8, any::<u16>()).prop_map(|(n, mtu)| Event::TooBig(n, mtu)),
        1 => (0..12_u8).prop_map(Event::Report),
        4 => (0..1500_u64).prop_map(Event::Pass),
        1 => (0..100_000_u64).prop_map(Event::Pass),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_a_monitor_stays_within_its_bounds(
        events in proptest::collection::vec(event(), 1..120),
        first in any::<u16>(),
    ) {
        let settings = Settings { limit: 6, ..Settings::default() };
        let mut monitor = Monitor::new(isd_as(9), settings, first);
        let mut revocations = Revocations::default();
        let mut now = Instant::now();
        let mut wall = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let path = |n: &u8| path_over(u64::from(n % 3), u64::from(*n) + 1);
        let mut waiting = Vec::new();
        let mut used = 0;
        for event in events {
            match event {
                Event::Update(paths, expiry) => {
                    let told = paths.iter().map(|n| Path {
                        expiry: expiry.map(|after| wall + Duration::from_secs(after)),
                        ..path(n)
                    });
                    monitor.update(now, wall, told.collect());
                }
                Event::Fail => {
                    monitor.update_failed("no");
                }
                Event::Use(paths) => {
                    monitor.set_in_use(now, paths.iter().map(|n| path(n).fingerprint));
                    used = monitor
                        .states(now, wall, &revocations)
                        .iter()
                        .filter(|state| state.in_use)
                        .count();
                }
                Event::Poll => {
                    for probe in monitor.poll_probes(now, wall) {
                        prop_assert!(!probe.path.is_expired(wall));
                        waiting.push(probe.sequence);
                    }
                    let deadline = monitor.next_deadline(now, wall);
                    prop_assert!(deadline.is_none_or(|deadline| deadline > now));
                    prop_assert_eq!(deadline.is_none(), monitor.is_empty());
                }
                Event::Reply(sequence, own) => {
                    let expected = monitor.handle_reply(now, sequence, isd_as(if own { 9 } else { 8 }));
                    prop_assert!(!expected || (own && waiting.contains(&sequence)));
                    waiting.retain(|&other| !(expected && other == sequence));
                }
                Event::AnswerAll => {
                    for sequence in waiting.drain(..) {
                        monitor.handle_reply(now, sequence, isd_as(9));
                        prop_assert!(!monitor.handle_reply(now, sequence, isd_as(9)), "twice");
                    }
                }
                Event::TooBig(n, mtu) => {
                    monitor.packet_too_big(now, path(&n).fingerprint, mtu);
                }
                Event::Report(n) => {
                    let failure = Failure::Interface(interface(9, u64::from(n) + 1));
                    let watched = monitor.is_concerned_by(&failure);
                    prop_assert_eq!(revocations.report(now, failure, [&monitor]), watched);
                }
                Event::Pass(millis) => {
                    now += Duration::from_millis(millis);
                    wall += Duration::from_millis(millis);
                }
            }
            prop_assert!(monitor.len() <= 6.max(used));
            let counters = monitor.counters();
            prop_assert!(counters.probes_received <= counters.probes_sent);
            for state in monitor.states(now, wall, &revocations) {
                prop_assert!(state.mtu >= 1000 && state.mtu <= state.path.mtu);
                prop_assert!(state.loss_ppm.is_none_or(|loss| loss <= 1_000_000));
                prop_assert_eq!(
                    state.liveness == Liveness::Expired,
                    state.path.is_expired(wall)
                );
            }
        }
    }
}
