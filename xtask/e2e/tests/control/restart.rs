//! Gateways that are killed and started again.

use std::{thread, time::Duration};

use testbed::{Family, Site};

use crate::{
    bed::{self, Bed, Files, wait},
    flows::Flows,
};

/// What a gateway could leave on its host: interfaces with their settings and programs, routes, rules, sockets.
fn traces(site: &Site) -> Vec<String> {
    let commands = [
        "ip -4 route show table all",
        "ip -6 route show table all",
        "ip rule",
        "ip -6 rule",
        "tc qdisc show",
        "ip -o link show",
        "ss -Hlun",
    ];
    let show = |command| site.gateway.exec(command).expect("iproute2");
    commands.map(show).into()
}

#[test]
fn after_kill_and_restart_the_tunnel_is_back_and_nothing_is_left_behind() {
    let mut bed = Bed::new(&bed::options());
    bed.configure(Files::with_routing_policy);
    let network = &bed.net.network;
    let before = [&network.a, &network.b].map(traces);
    bed.start();
    for (number, before) in before.iter().enumerate() {
        let network = &mut bed.net.network;
        let flows = [
            Flows::start(&network.a, &network.b, Family::V4, 1, 200),
            Flows::start(&network.b, &network.a, Family::V6, 1, 200),
        ];
        let site = [&mut network.a, &mut network.b].into_iter().nth(number);
        let site = site.expect("two sites");
        assert_ne!(traces(site), *before, "else this test sees nothing");
        site.kill_gateway().expect("it runs");
        wait("the host's network as before", || traces(site) == *before);
        // The other one notices that nobody answers.
        thread::sleep(Duration::from_secs(3));
        let gone = flows.each_ref().map(|flows| flows.sent()[0]);
        site.spawn_gateway().expect("it starts");
        for (flows, gone) in flows.iter().zip(gone) {
            let back = wait("packets", || flows.has_arrived_since(gone));
            println!("packets cross again after {back:?}");
        }
        for flows in flows {
            flows.stop().assert_ordered();
        }
        let site = [&mut network.a, &mut network.b].into_iter().nth(number);
        let ready = site.expect("two sites").wait_ready();
        ready.unwrap_or_else(|error| panic!("{error:#}"));
        bed.assert_pings(10);
    }
    let network = &mut bed.net.network;
    for (number, site) in [&mut network.a, &mut network.b].into_iter().enumerate() {
        site.stop_gateway()
            .unwrap_or_else(|error| panic!("{error:#}"));
        assert_eq!(traces(site), before[number]);
    }
}
