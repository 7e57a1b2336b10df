//! Links fail and come back under flows of packets.

use std::{sync::Arc, thread, time::Duration};

use scion_net::Cut;
use testbed::{Family, Site};

use crate::{
    bed::{self, Bed, Files, traffic, wait},
    flows::Flows,
};

/// Datagrams a second of the flow that is watched.
const RATE: u32 = 1000;
/// As many as pass in a second: so many may be lost when nobody tells of the failure.
const LOST_SILENTLY: usize = RATE as usize;
/// And when the router tells.
const LOST_ANNOUNCED: usize = RATE as usize / 2;

/// What was sent within this part of a second before a cut may still be under way, and then be lost to it.
const UNDER_WAY: u32 = 10;

/// A better path soon takes over again. Probing is faster than by default: a busy machine takes its part of the second,
/// too. What the default does is tested on a virtual clock.
const SOON_BACK: &str =
    "[control]\nswitch_delay = \"1s\"\nprobe_interval = \"100ms\"\nprobe_timeout = \"400ms\"\n";

#[test]
fn a_flow_moves_to_the_other_link_within_a_second_and_back_without_loss() {
    let mut bed = Bed::running(&bed::options(), |_, remote| {
        Files::with_nets(remote).and(SOON_BACK)
    });
    // Both paths have been probed, and the better one chosen.
    thread::sleep(Duration::from_secs(3));
    for (cut, limit) in [
        (Cut::Silent, LOST_SILENTLY),
        (Cut::Announced, LOST_ANNOUNCED),
    ] {
        let network = &bed.net.network;
        let flows = Flows::start(&network.a, &network.b, Family::V4, 1, RATE);
        let link = bed.link_in_use();
        let before = flows.sent()[0].saturating_sub(RATE / UNDER_WAY);
        link.cut(cut);
        thread::sleep(Duration::from_secs(3));
        let failed_over = flows.sent()[0];
        link.restore();
        let back = wait("the way back", || Arc::ptr_eq(&bed.link_in_use(), &link));
        thread::sleep(Duration::from_secs(1));
        let outcome = flows.stop();
        outcome.assert_ordered();
        let flow = &outcome.flows[0];
        let lost = flow.lost(before, failed_over);
        println!("{cut:?}: {lost} packets lost, back after {back:?}");
        let all = flow.lost(0, flow.sent);
        assert_eq!(all, lost, "lost while no link failed\n{}", bed.logs());
        assert!(lost <= limit, "{cut:?}: {lost} lost\n{}", bed.logs());
    }
}

#[test]
fn with_two_paths_a_failure_concerns_only_the_flows_on_it() {
    let mut bed = Bed::running(&bed::options(), |_, remote| {
        let nets = Family::ALL.map(|family| remote.prefix(family));
        let nets = nets.each_ref().map(String::as_str);
        Files {
            traffic: traffic(remote, &nets, 2),
            sections: SOON_BACK.to_owned(),
            ..Files::default()
        }
    });
    wait("two paths in use", || {
        let known = bed::known(&bed.net.network.a, bed.net.network.b.isd_as());
        let known = known.expect("the AS of the policy");
        known
            .paths
            .iter()
            .filter(|path| !path.used_by.is_empty())
            .count()
            == 2
    });
    let network = &bed.net.network;
    let (count, rate) = (24, 50);
    let flows = Flows::start(&network.a, &network.b, Family::V6, count, rate);
    let links = &bed.net.links[..2];
    let carried = || [0, 1].map(|number: usize| links[number].carried()[0]);
    let start = carried();
    thread::sleep(Duration::from_secs(2));
    let shares = [0, 1].map(|number| carried()[number] - start[number]);
    let before = flows.sent();
    links[1].cut(Cut::Silent);
    thread::sleep(Duration::from_secs(3));
    let failed_over = flows.sent();
    links[1].restore();
    thread::sleep(Duration::from_secs(4));
    let outcome = flows.stop();
    outcome.assert_ordered();
    let (mut moved, mut stayed) = (0, 0);
    for (number, flow) in outcome.flows.iter().enumerate() {
        let lost = flow.lost(
            before[number].saturating_sub(rate / UNDER_WAY),
            failed_over[number],
        );
        assert_eq!(
            flow.lost(0, flow.sent),
            lost,
            "flow {number} lost packets while no link failed\n{}",
            bed.logs()
        );
        assert!(lost <= rate as usize, "flow {number} lost {lost}");
        if lost > 0 {
            moved += 1;
        } else {
            stayed += 1;
        }
    }
    println!("{shares:?} packets by the links, {moved} flows moved, {stayed} stayed");
    assert!(shares.iter().all(|share| *share > 200), "{shares:?}");
    assert!(
        moved > 0 && stayed > 0,
        "{moved} flows moved, {stayed} stayed"
    );
}

#[test]
fn without_any_path_the_routes_go_and_with_the_first_one_they_come_back() {
    let mut bed = Bed::running(&bed::options(), Files::with_routing_policy);
    let has_route = |site: &Site, remote: &Site| {
        let prefix = remote.prefix(Family::V4);
        let shown = site.gateway.exec(&format!("ip route show {prefix}"));
        shown.expect("`ip route`").contains("dev sig")
    };
    for cut in [Cut::Silent, Cut::Announced] {
        let (a, b) = (&bed.net.network.a, &bed.net.network.b);
        assert!(has_route(a, b) && has_route(b, a));
        for link in &bed.net.links {
            link.cut(cut);
        }
        wait("the end of the routes", || {
            !has_route(a, b) && !has_route(b, a)
        });
        // Longer than anybody waits for the answer to a single probe.
        thread::sleep(Duration::from_secs(5));
        bed.net.links[1].restore();
        let back = wait("the routes", || has_route(a, b) && has_route(b, a));
        println!("{cut:?}: routes are back {back:?} after the link");
        bed.assert_pings(20);
        bed.net.links[0].restore();
    }
}
