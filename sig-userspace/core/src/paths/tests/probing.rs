use std::time::Duration;

use super::network::{Network, selection};
use crate::paths::{
    Liveness, Selector,
    testing::{MS, SECOND, isd_as, path_over},
};

#[test]
fn a_path_is_alive_after_three_answers() {
    let told = path_over(1, 1);
    let mut network = Network::new(std::slice::from_ref(&told));
    let took = network.run_until(10 * SECOND, |network| {
        let answers = network.monitor.counters().probes_received;
        let state = network.state(&told);
        assert_eq!(state.is_alive(), answers >= 3, "{answers} answers");
        assert_eq!(state.liveness == Liveness::Silent, answers == 0);
        state.is_alive()
    });
    // Once there is an answer, it is probed as often as a path in use.
    assert!(took < 850 * MS, "{took:?}");
    assert_eq!(network.probes.len(), 3);
}

#[test]
fn a_path_without_answers_never_lives_and_loses_everything() {
    let told = path_over(1, 1);
    let mut network = Network::new(std::slice::from_ref(&told));
    network.cut.insert(told.fingerprint);
    network.run(30 * SECOND);
    let state = network.state(&told);
    assert_eq!(state.liveness, Liveness::Silent);
    assert_eq!(state.loss_ppm, Some(1_000_000));
    assert_eq!((state.latency, state.jitter), (None, None));
}

#[test]
fn a_path_in_use_is_dead_within_a_second_of_the_cut() {
    // Whatever the moment of the cut.
    for offset in 0..60 {
        let told = path_over(1, 1);
        let mut network = Network::new(std::slice::from_ref(&told));
        network.monitor.set_in_use(network.now, [told.fingerprint]);
        network.run(10 * SECOND + offset * 7 * MS);
        assert!(network.is_alive(&told));
        network.cut.insert(told.fingerprint);
        let took = network.run_until(3 * SECOND, |network| !network.is_alive(&told));
        assert!(took < 900 * MS, "{took:?}");
        assert!(took > 300 * MS, "{took:?}");
    }
}

#[test]
fn coming_back_takes_three_answers_to_new_probes() {
    let told = path_over(1, 1);
    let mut network = Network::new(std::slice::from_ref(&told));
    network.run(5 * SECOND);
    network.cut.insert(told.fingerprint);
    network.run(5 * SECOND);
    assert!(!network.is_alive(&told));
    network.cut.clear();
    let before = network.monitor.counters().probes_received;
    network.run_until(5 * SECOND, |network| network.is_alive(&told));
    assert!(network.is_alive(&told));
    assert_eq!(network.monitor.counters().probes_received - before, 3);
}

#[test]
fn late_answers_to_probes_from_before_its_death_do_not_bring_a_path_back() {
    let told = path_over(1, 1);
    let mut network = Network::new(std::slice::from_ref(&told));
    network.monitor.set_in_use(network.now, [told.fingerprint]);
    network.run(5 * SECOND);
    let (mut now, wall) = (network.now, network.wall);
    let mut late = Vec::new();
    for _ in 0..20 {
        late.extend(network.monitor.poll_probes(now, wall));
        now += 50 * MS;
    }
    let alive = |network: &mut Network| {
        let states = network.monitor.states(now, wall, &network.revocations);
        states[0].is_alive()
    };
    assert!(!alive(&mut network));
    let before_death = late.len() - 2;
    for probe in &late[..before_death] {
        assert!(network.monitor.handle_reply(now, probe.sequence, isd_as(9)));
    }
    assert!(before_death >= 3 && !alive(&mut network));
}

#[test]
fn a_path_that_comes_into_use_is_probed_soon() {
    let told = path_over(1, 1);
    let mut network = Network::new(std::slice::from_ref(&told));
    network.run(5 * SECOND);
    let sent = network.probes.len();
    network.run_until(SECOND, |network| network.probes.len() > sent);
    network.monitor.set_in_use(network.now, [told.fingerprint]);
    let took = network.run_until(SECOND, |network| network.probes.len() > sent + 1);
    assert_eq!(took, 200 * MS);
}

#[test]
fn a_lost_probe_now_and_then_is_no_death_but_counts_as_loss() {
    for in_use in [false, true] {
        let told = path_over(1, 1);
        let mut network = Network::new(std::slice::from_ref(&told));
        network.lose_every.insert(told.fingerprint, 5);
        let used = in_use.then_some(told.fingerprint);
        network.monitor.set_in_use(network.now, used);
        network.run(5 * SECOND);
        let took = network.run_until(120 * SECOND, |network| !network.is_alive(&told));
        assert_eq!(took, 120 * SECOND);
        let loss = network.state(&told).loss_ppm.expect("probes");
        assert!(loss.abs_diff(200_000) < 20_000, "{loss}");
    }
}

#[test]
fn latency_and_jitter_are_those_of_the_path() {
    let told = path_over(1, 1);
    let mut network = Network::new(std::slice::from_ref(&told));
    network.round_trip.insert(told.fingerprint, 35 * MS);
    network.run(30 * SECOND);
    let state = network.state(&told);
    assert_eq!(state.latency, Some(35 * MS));
    assert_eq!(state.jitter, Some(Duration::ZERO));
    network.round_trip.insert(told.fingerprint, 70 * MS);
    network.run(30 * SECOND);
    let state = network.state(&told);
    assert!(state.latency.expect("answers") > 69 * MS);
    assert_eq!(state.latency_min, Some(35 * MS));
    network.run(60 * SECOND);
    assert_eq!(network.state(&told).latency_min, Some(70 * MS));
}

#[test]
fn a_long_way_lives_though_its_round_trip_exceeds_the_time_out() {
    for round_trip in [700 * MS, 1500 * MS, 3 * SECOND] {
        let told = path_over(1, 1);
        let mut network = Network::new(std::slice::from_ref(&told));
        network.round_trip.insert(told.fingerprint, round_trip);
        network.monitor.set_in_use(network.now, [told.fingerprint]);
        network.run(20 * SECOND);
        let took = network.run_until(60 * SECOND, |network| !network.is_alive(&told));
        assert_eq!(took, 60 * SECOND, "{round_trip:?}");
    }
}

#[test]
fn a_path_whose_way_becomes_long_recovers() {
    let told = path_over(1, 1);
    let mut network = Network::new(std::slice::from_ref(&told));
    network.monitor.set_in_use(network.now, [told.fingerprint]);
    network.run(10 * SECOND);
    network.round_trip.insert(told.fingerprint, 1500 * MS);
    network.run(20 * SECOND);
    assert!(network.is_alive(&told));
}

#[test]
fn paths_in_use_are_probed_more_often_and_none_in_step() {
    let paths: Vec<_> = (1..=20).map(|n| path_over(1, n)).collect();
    let mut network = Network::new(&paths);
    let used = paths[3].fingerprint;
    network.monitor.set_in_use(network.now, [used]);
    network.run(20 * SECOND);
    network.probes.clear();
    network.run(60 * SECOND);
    let of = |path| {
        network
            .probes
            .iter()
            .filter(|probe| probe.1 == path)
            .count()
    };
    assert!((270..=330).contains(&of(used)), "{}", of(used));
    assert!((110..=130).contains(&of(paths[4].fingerprint)));
    // No 50 ms with more than a third of the probes of half a second.
    let mut times: Vec<_> = network.probes.iter().map(|probe| probe.0).collect();
    times.sort();
    let busiest = (0..times.len())
        .map(|n| {
            times[n..]
                .iter()
                .take_while(|&&t| t < times[n] + 50 * MS)
                .count()
        })
        .max();
    assert!(busiest <= Some(9), "{busiest:?}");
}

#[test]
fn answers_that_nobody_awaits_are_counted_and_ignored() {
    let told = path_over(1, 1);
    let mut network = Network::new(std::slice::from_ref(&told));
    let (now, wall) = (network.now, network.wall);
    let probe = network.monitor.poll_probes(now, wall).remove(0);
    let monitor = &mut network.monitor;
    assert!(!monitor.handle_reply(now, probe.sequence.wrapping_add(1), isd_as(9)));
    assert!(!monitor.handle_reply(now, probe.sequence, isd_as(8)));
    assert!(monitor.handle_reply(now, probe.sequence, isd_as(9)));
    assert!(!monitor.handle_reply(now, probe.sequence, isd_as(9)));
    assert_eq!(monitor.counters().unexpected, 3);
    assert_eq!(monitor.counters().probes_received, 1);
}

#[test]
fn a_gateway_that_was_held_up_does_not_blame_the_paths() {
    let told = path_over(1, 1);
    let mut network = Network::new(std::slice::from_ref(&told));
    network.monitor.set_in_use(network.now, [told.fingerprint]);
    network.run(10 * SECOND);
    // Up to the moment between a probe and its answer.
    let sent = network.probes.len();
    network.run_until(SECOND, |network| network.probes.len() > sent);
    network.now += 4 * SECOND;
    network.wall += 4 * SECOND;
    let probes = network.monitor.poll_probes(network.now, network.wall);
    assert!(network.is_alive(&told));
    for probe in probes {
        network
            .monitor
            .handle_reply(network.now, probe.sequence, isd_as(9));
    }
    let took = network.run_until(10 * SECOND, |network| !network.is_alive(&told));
    assert_eq!(took, 10 * SECOND);
}

#[test]
fn a_session_fails_over_within_a_second() {
    let (short, long) = (path_over(1, 1), path_over(2, 2));
    let mut network = Network::new(&[short.clone(), long.clone()]);
    let mut selector = Selector::new(selection(1));
    network.run_until(20 * SECOND, |network| {
        network.select(&mut selector);
        false
    });
    assert_eq!(selector.chosen(), [short.fingerprint]);
    network.cut.insert(short.fingerprint);
    let took = network.run_until(3 * SECOND, |network| {
        network.select(&mut selector) == [long.fingerprint]
    });
    assert!(took < 900 * MS, "{took:?}");
}

#[test]
fn at_start_the_first_answer_is_enough() {
    let (near, far) = (path_over(1, 1), path_over(2, 2));
    let mut network = Network::new(&[near.clone(), far]);
    network.round_trip.insert(near.fingerprint, 50 * MS);
    let mut selector = Selector::new(selection(1));
    let took = network.run_until(3 * SECOND, |network| {
        !network.select(&mut selector).is_empty()
    });
    assert!(took <= 50 * MS, "{took:?}");
    assert_eq!(network.monitor.counters().probes_received, 1);
}

#[test]
fn a_path_that_keeps_dying_must_live_longer_before_it_is_trusted() {
    let told = path_over(1, 1);
    let mut network = Network::new(std::slice::from_ref(&told));
    let mut holds = Vec::new();
    for _ in 0..8 {
        network.cut.clear();
        network.run(4 * SECOND);
        let Liveness::Alive { since, settled } = network.state(&told).liveness else {
            panic!("it is alive");
        };
        holds.push((settled - since).as_secs());
        network.cut.insert(told.fingerprint);
        network.run(4 * SECOND);
    }
    assert_eq!(holds, [0, 2, 4, 8, 16, 32, 60, 60]);
    network.cut.clear();
    network.run(310 * SECOND);
    let Liveness::Alive { since, settled } = network.state(&told).liveness else {
        panic!("it is alive");
    };
    assert_eq!(since, settled, "forgotten after five minutes");
}
