mod traffic;

use std::{net::IpAddr, sync::Arc};

use super::*;
use crate::control::config;

const TEXT: &str = r#"
    [gateway]
    isd_as = "1-ff00:0:110"
    data_addr = "10.10.0.2:30056"
    prefixes = ["192.168.10.0/24"]
    [[remote]]
    isd_as = "1-ff00:0:111"
    gateway = "10.11.0.2:30056"
    prefixes = ["192.168.11.0/24"]
    [[remote.path]]
    raw = "00002000 0100123466000000 003f00000001010203040506 003f000200000708090a0b0c"
    next_hop = "10.10.0.1:30042"
    mtu = 1472
    [[remote.path]]
    raw = "00002000 0100123466000000 003f00000001010203040506 003f000200000708090a0b0d"
    next_hop = "10.10.0.9:30042"
    mtu = 1280
"#;

const SECOND: u64 = 1_000_000_000;

fn planner() -> Planner {
    let config = config::check(TEXT, "test.toml", &|_| {
        Err(std::io::ErrorKind::NotFound.into())
    })
    .expect("a valid configuration");
    Planner::new(Arc::new(config), 2)
}

fn neighbours(hops: &[&str]) -> Environment {
    let neighbour = Neighbour {
        interface_mac: [2; 6],
        mac: [4; 6],
        mtu: 1500,
    };
    let hops = hops
        .iter()
        .map(|hop| (hop.parse().expect("an address"), neighbour));
    Environment {
        neighbours: hops.collect(),
        ..Environment::default()
    }
}

fn both() -> Environment {
    neighbours(&["10.10.0.1", "10.10.0.9"])
}

#[test]
fn only_paths_with_a_reachable_next_hop_are_used() {
    let mut planner = planner();
    assert_eq!(planner.current().next_hops().len(), 2);
    let tables = planner.tables(0, &neighbours(&[]));
    assert!(tables.paths.is_empty());
    let problem = planner.sessions()[0].paths[0].problem.as_ref();
    assert!(problem.is_some_and(|text| text.contains("10.10.0.1")));
    let tables = planner.tables(0, &neighbours(&["10.10.0.9"]));
    assert_eq!(tables.paths.len(), 1);
    assert_eq!(tables.paths[0].packer.capacity(), 1184);
    assert_eq!(planner.sessions()[0].paths[1].problem, None);
}

#[test]
fn a_path_keeps_its_streams_until_its_frame_size_changes_or_it_is_lost() {
    let mut planner = planner();
    let first = planner.tables(0, &both());
    let second = planner.tables(0, &both());
    assert_ne!(first.generation, second.generation);
    for (a, b) in first.paths.iter().zip(&second.paths) {
        assert_eq!((a.id, &a.streams), (b.id, &b.streams));
        assert_eq!((a.streams[0] % 2, a.streams[1] % 2), (0, 1));
    }
    let mut narrow = both();
    narrow
        .neighbours
        .values_mut()
        .for_each(|neighbour| neighbour.mtu = 1400);
    let third = planner.tables(0, &narrow);
    assert_ne!(third.paths[0].id, second.paths[0].id);
    assert_ne!(third.paths[0].streams, second.paths[0].streams);
    assert_eq!(third.paths[1].id, second.paths[1].id);
}

/// The plan with refreshed hop fields: the same fingerprints, other bytes.
fn refreshed(plan: &Plan) -> Plan {
    let mut plan = plan.clone();
    for path in plan.sessions.iter_mut().flat_map(|s| &mut s.paths) {
        let mut raw = path.path.raw.to_vec();
        *raw.last_mut().expect("bytes") ^= 0xff;
        path.path.raw = raw.into();
    }
    plan
}

#[test]
fn refreshed_hop_fields_change_the_headers_but_not_the_streams() {
    let mut planner = planner();
    let before = planner.tables(0, &both());
    let plan = refreshed(planner.current());
    planner.set_plan(1, plan);
    let after = planner.tables(1, &both());
    for (before, after) in before.paths.iter().zip(&after.paths) {
        assert_eq!((before.id, &before.streams), (after.id, &after.streams));
        assert!(Arc::ptr_eq(&before.counters, &after.counters));
        let header = |path: &Path| {
            let mut frame = vec![0; path.template.len() + 100];
            let fields = sig_core::scion::FrameFields {
                traffic_class: 0,
                flow_hash: 0,
                stream: 0,
                sequence: 0,
                index: 0,
            };
            path.template.write(&mut frame, &fields);
            frame
        };
        assert_ne!(header(before), header(after));
    }
}

#[test]
fn a_smaller_path_mtu_begins_other_streams_and_the_counters_go_on() {
    let mut planner = planner();
    let before = planner.tables(0, &both());
    before.paths[0].counters[1].sent.packets.add(5);
    let mut plan = planner.current().clone();
    plan.sessions[0].paths[0].mtu = 1300;
    planner.set_plan(1, plan);
    let after = planner.tables(1, &both());
    assert_ne!(before.paths[0].streams, after.paths[0].streams);
    assert_eq!(after.paths[0].packer.capacity(), 1204);
    assert_eq!(before.paths[1].streams, after.paths[1].streams);
    assert_eq!(planner.sessions()[0].paths[0].sent().packets, 5);
}

#[test]
fn what_was_sent_on_a_path_that_left_is_still_counted() {
    let mut planner = planner();
    let tables = planner.tables(0, &both());
    tables.paths[0].counters[0].sent.frames.add(3);
    tables.paths[1].counters[0].sent.frames.add(4);
    let mut plan = planner.current().clone();
    let gone = plan.sessions[0].paths.remove(0);
    planner.set_plan(1, plan.clone());
    // A worker that has not seen the new tables yet goes on sending.
    tables.paths[0].counters[1].sent.frames.add(10);
    assert_eq!(planner.sessions()[0].sent().frames, 17);
    tables.paths[0].counters[1].sent.frames.add(1);
    drop(tables);
    drop(planner.tables(1, &both()));
    assert_eq!(planner.sessions()[0].sent().frames, 18);
    plan.sessions[0].paths.insert(0, gone);
    planner.set_plan(2, plan);
    assert_eq!(planner.sessions()[0].paths[0].sent().frames, 0, "anew");
    assert_eq!(planner.sessions()[0].sent().frames, 18);
}

#[test]
fn other_sessions_and_gateways_are_not_touched_by_one_that_comes_or_goes() {
    let mut planner = planner();
    let before = planner.tables(0, &both());
    before.remotes[0].counters[0].received.frames.add(7);
    let old = planner.current().clone();
    let mut plan = old.clone();
    let mut gateway = plan.gateways[0].clone();
    gateway.host = "10.11.0.7".parse().expect("an address");
    plan.gateways.insert(0, gateway);
    let mut session = plan.sessions[0].clone();
    plan.sessions[0].gateway = 1;
    session.key = SessionKey(9);
    plan.sessions.insert(0, session);
    plan.sites[0].rules[0].action = Action::Session(1);
    planner.set_plan(1, plan);
    let after = planner.tables(1, &both());
    assert_eq!(after.paths.len(), 4);
    for (before, after) in before.paths.iter().zip(&after.paths[2..]) {
        assert_eq!((before.id, &before.streams), (after.id, &after.streams));
    }
    let frames = |remote: &sig_core::dataplane::Remote| remote.counters[0].received.frames.get();
    assert_eq!((after.remotes[1].id, frames(&after.remotes[1])), (0, 7));
    assert_eq!((after.remotes[0].id, frames(&after.remotes[0])), (1, 0));

    planner.set_plan(2, old);
    let last = planner.tables(2, &both());
    assert_eq!(last.paths[0].streams, before.paths[0].streams);
    assert_eq!(frames(&last.remotes[0]), 7);
}

#[test]
fn the_number_of_a_gateway_that_left_rests_before_another_gets_it() {
    let mut remotes = Remotes::new(2, 60 * SECOND);
    let gateway = |n: u8| plan::Gateway {
        isd_as: "1-ff00:0:111".parse().expect("an ISD-AS"),
        host: IpAddr::from([10, 0, 0, n]),
        keyring: None,
        is_strict: false,
        accepted: Vec::new(),
    };
    let mut numbers = |now, gateways: &[u8]| {
        let gateways: Vec<plan::Gateway> = gateways.iter().copied().map(gateway).collect();
        remotes.set_gateways(now, &gateways, 1);
        let planned = remotes.planned().iter();
        planned
            .map(|remote| remote.as_ref().map(|remote| remote.number))
            .collect::<Vec<_>>()
    };
    assert_eq!(numbers(0, &[1, 2]), [Some(0), Some(1)]);
    assert_eq!(numbers(1, &[2]), [Some(1)]);
    assert_eq!(numbers(59 * SECOND, &[3, 2]), [None, Some(1)]);
    assert_eq!(numbers(61 * SECOND, &[3, 2]), [Some(0), Some(1)]);
    assert_eq!(numbers(62 * SECOND, &[3, 3, 2]), [Some(0), None, Some(1)]);
}

#[test]
fn a_plan_with_indexes_out_of_range_harms_nobody() {
    let mut planner = planner();
    let mut plan = planner.current().clone();
    plan.sessions[0].gateway = 7;
    plan.sites[0].rules[0].action = Action::Session(1 << 20);
    planner.set_plan(1, plan);
    let tables = planner.tables(1, &both());
    assert!(tables.paths.is_empty());
    assert!(planner.sessions()[0].paths[0].problem.is_some());
}
