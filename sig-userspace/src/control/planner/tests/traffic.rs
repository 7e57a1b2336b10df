//! What a worker does with packets as plans come and go.

use std::collections::HashMap;

use etherparse::PacketBuilder;
use sig_common::reason::DropReason;

use super::*;
use sig_core::{
    dataplane::{Input, Output, Worker, WorkerConfig},
    framing::Limits,
    policy::class::Condition,
    port::umem::{Area, FreeList, HEADROOM},
};

/// Where the SIG frame header begins: behind Ethernet, IPv4, UDP, SCION over 36 bytes of path, UDP/SCION.
const SIG_AT: usize = 14 + 20 + 8 + 12 + 24 + 36 + 8;

struct Bench {
    planner: Planner,
    environment: Environment,
    tables: Tables,
    area: Arc<Area>,
    worker: Worker,
    now: u64,
}

/// What a packet became.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Frame {
    session: u8,
    stream: u32,
    sequence: u8,
}

impl Bench {
    fn new() -> Self {
        let (area, pool) = Area::on_heap(256);
        let config = WorkerConfig {
            limits: Limits::default(),
            verify_checksums: true,
            clamp_mss: true,
            partial_checksums: false,
        };
        let free = FreeList::new(pool, 128);
        let worker = Worker::new(0, &config, area.clone(), free).expect("valid limits");
        let (mut planner, environment) = (planner(), both());
        Bench {
            tables: planner.tables(0, &environment),
            planner,
            environment,
            area,
            worker,
            now: 1,
        }
    }

    fn apply(&mut self, change: impl FnOnce(&mut Plan)) {
        let mut plan = self.planner.current().clone();
        change(&mut plan);
        self.planner.set_plan(self.now, plan);
        self.tables = self.planner.tables(self.now, &self.environment);
    }

    /// Half a second passes.
    fn wait(&mut self) {
        self.now += SECOND / 2;
        if self.planner.rebalance(self.now) {
            self.tables = self.planner.tables(self.now, &self.environment);
        }
    }

    /// Sends one packet; `None`: it was dropped.
    fn send(&mut self, source_port: u16, dscp: u8) -> Option<Frame> {
        let mut packet = vec![6; 12];
        packet.extend([8, 0]);
        let ip = PacketBuilder::ipv4([192, 168, 10, 5], [192, 168, 11, 6], 64).udp(source_port, 9);
        let mut bytes = Vec::new();
        ip.write(&mut bytes, &[7; 100]).expect("a packet");
        bytes[1] = dscp << 2;
        packet.extend(bytes);
        let (area, free) = self.worker.memory();
        let mut frame = free.take().expect("a free chunk");
        frame.place(HEADROOM, packet.len());
        frame.bytes_mut(area).copy_from_slice(&packet);
        let mut input = Input {
            tunnel: vec![frame],
            ..Input::default()
        };
        let mut output = Output::with_capacity(4, 0);
        self.worker
            .process(self.now, &self.tables, &mut input, &mut output);
        let bytes =
            |frame: &sig_core::port::umem::Frame| frame.bytes(&self.area)[SIG_AT..].to_vec();
        let sent = output.underlay.first().map(bytes);
        let (_, free) = self.worker.memory();
        let frames = output.underlay.drain(..).chain(output.tunnel.drain(..));
        frames.for_each(|frame| free.put(frame));
        sent.map(|sig| Frame {
            session: sig[1],
            stream: u32::from_be_bytes([sig[4], sig[5], sig[6], sig[7]]),
            sequence: sig[15],
        })
    }

    fn drops(&self, reason: DropReason) -> u64 {
        self.worker.counters().drops[reason as usize].get()
    }

    /// The stream that each of the flows takes.
    fn streams(&mut self, flows: std::ops::Range<u16>) -> HashMap<u16, u32> {
        flows
            .map(|flow| (flow, self.send(flow, 0).expect("a way").stream))
            .collect()
    }
}

/// Adds a session with its own number.
fn add_session(plan: &mut Plan, number: u8) -> plan::Action {
    let mut session = plan.sessions[0].clone();
    session.key = SessionKey(100 + u64::from(number));
    session.number = number;
    plan.sessions.push(session);
    Action::Session(plan.sessions.len() - 1)
}

fn rule(condition: Condition, action: plan::Action) -> plan::Rule {
    plan::Rule {
        condition: Arc::new(condition),
        action,
    }
}

#[test]
fn the_first_class_that_matches_chooses_the_session() {
    let mut bench = Bench::new();
    bench.apply(|plan| {
        let (voice, bulk) = (add_session(plan, 1), add_session(plan, 2));
        plan.sites[0].rules = vec![
            rule(Condition::Dscp(46), voice),
            rule(Condition::SourcePort(7..=7), Action::Drop),
            rule(Condition::SourcePort(1..=100), bulk),
        ];
    });
    let session = |frame: Option<Frame>| frame.map(|frame| frame.session);
    assert_eq!(session(bench.send(9, 46)), Some(1));
    assert_eq!(session(bench.send(7, 46)), Some(1));
    assert_eq!(session(bench.send(8, 0)), Some(2));
    assert_eq!(bench.send(7, 0), None);
    assert_eq!(bench.drops(DropReason::NoSession), 1, "a closed class");
    assert_eq!(bench.send(101, 0), None);
    assert_eq!(bench.drops(DropReason::NoSession), 2, "no class");
    // Classes without condition are decided by the address alone, and the others forgotten.
    bench.apply(|plan| plan.sites[0].rules = vec![rule(Condition::ALWAYS, Action::Drop)]);
    assert_eq!(bench.send(9, 46), None);
    bench.apply(|plan| plan.sites[0].rules = vec![rule(Condition::ALWAYS, Action::Session(0))]);
    assert_eq!(session(bench.send(101, 0)), Some(0));
    bench.apply(|plan| plan.sites[0].rules.clear());
    assert_eq!(bench.send(101, 0), None);
    assert_eq!(bench.drops(DropReason::NoSession), 4);
}

#[test]
fn a_plan_that_leaves_a_session_alone_does_not_interrupt_its_sequence() {
    let mut bench = Bench::new();
    let first = bench.send(1, 0).expect("a way");
    bench.apply(|plan| {
        *plan = refreshed(plan);
        let mut other = plan.gateways[0].clone();
        other.host = "10.11.0.9".parse().expect("an address");
        plan.gateways.insert(0, other);
        plan.sessions[0].gateway = 1;
        let number = add_session(plan, 4);
        plan.sessions.swap(0, 1);
        plan.sites[0].rules = vec![rule(Condition::ALWAYS, number)];
    });
    let second = bench.send(1, 0).expect("a way");
    assert_eq!(first.stream, second.stream);
    assert_eq!((first.sequence, second.sequence), (0, 1));
}

#[test]
fn a_flow_moves_only_when_its_path_goes() {
    let mut bench = Bench::new();
    bench.apply(|plan| {
        let mut third = plan.sessions[0].paths[1].clone();
        third.path =
            sig_core::scion::Path::configured(&third.path.raw.clone(), third.path.next_hop, 1300);
        third.source_port = 40000;
        third.name = "third".into();
        plan.sessions[0].paths.push(third);
    });
    let all = 0..1000;
    let before = bench.streams(all.clone());
    let ids: Vec<u32> = bench
        .tables
        .paths
        .iter()
        .map(|path| path.streams[0])
        .collect();
    let share = |streams: &HashMap<u16, u32>, id| streams.values().filter(|s| **s == id).count();
    for id in &ids {
        let share = share(&before, *id);
        assert!((230..=430).contains(&share), "{share} of 1000 flows");
    }

    let mut gone = None;
    bench.apply(|plan| gone = Some(plan.sessions[0].paths.remove(0)));
    let without = bench.streams(all.clone());
    for (flow, stream) in &before {
        if *stream == ids[0] {
            assert_ne!(without[flow], ids[0]);
        } else {
            assert_eq!(without[flow], *stream);
        }
    }

    bench.apply(|plan| plan.sessions[0].paths.extend(gone));
    for _ in 0..10 {
        assert_eq!(bench.streams(all.clone()), without, "all are busy");
        bench.wait();
    }
    for _ in 0..10 {
        for flow in 0..10 {
            let stream = bench.send(flow, 0).expect("a way").stream;
            assert_eq!(stream, without[&flow], "still busy");
        }
        bench.wait();
    }
    let back = bench.tables.paths[2].streams[0];
    let even = share(&bench.streams(all), back);
    assert!((230..=430).contains(&even), "{even} of 1000 flows");
}

#[test]
fn flows_of_a_single_path_stay_when_a_second_one_comes() {
    let mut bench = Bench::new();
    let mut second = None;
    bench.apply(|plan| second = plan.sessions[0].paths.pop());
    let before = bench.streams(0..300);
    bench.now += 100 * SECOND;
    bench.apply(|plan| plan.sessions[0].paths.extend(second));
    assert_eq!(bench.streams(0..300), before);
}

#[test]
fn packets_for_a_site_out_of_reach_go_where_a_wider_prefix_leads() {
    let mut bench = Bench::new();
    let usual = bench.send(1, 0).expect("a frame").session;
    let add_wide = |plan: &mut Plan| {
        let mut wide = plan.sessions[0].clone();
        (wide.key, wide.number) = (SessionKey(100), 9);
        plan.sessions.push(wide);
        let mut site = plan.sites[0].clone();
        site.prefixes = vec!["192.168.0.0/16".parse().expect("a prefix")];
        site.rules[0].action = Action::Session(plan.sessions.len() - 1);
        plan.sites.push(site);
    };
    bench.apply(add_wide);
    assert_eq!(bench.send(1, 0).map(|frame| frame.session), Some(usual));
    bench.apply(|plan| {
        (plan.sites[0].exported, plan.sites[0].rules[0].action) = (false, Action::Drop);
    });
    assert_eq!(bench.send(1, 0).map(|frame| frame.session), Some(9));
    // Neither is there: hosts are told that the site is out of reach.
    bench.apply(|plan| plan.sites[1].exported = false);
    assert_eq!(bench.send(1, 0), None);
}
