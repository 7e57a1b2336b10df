//! The state of the gateway as one document.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use ipnet::IpNet;
use sig_common::reason::DropReason;

use super::{
    Shared, lock,
    ports::{Kind, PortFacts},
};
use crate::control::{
    PlannedPath,
    plan::{Action, Plan, SessionKey, SessionPath, Site},
};
use crate::engine::Engine;
use sig_core::{
    counter::Counter,
    dataplane::counters::{WorkerCounters, WorkerCounts},
    port::{Monitor, Statistics},
    status::{
        Control, Counters, Drop, DropPlace, FastPath, Lan, Path, Port, PortMode, Probing, Queue,
        Remote, Status, Underlay, Verdict, Worker,
    },
};
use sig_linux::{
    bpf::Programs,
    neighbours::{Resolution, Snapshot},
};

/// What the control plane contributes to the status.
#[derive(Clone, Debug, Default)]
pub struct ControlReport {
    /// Its own part.
    pub control: Control,
    /// Of each session, whether the gateway answers.
    pub probing: HashMap<SessionKey, Probing>,
}

/// Tells the control plane's part at the time of the call.
pub(super) type ControlSource = Arc<dyn Fn() -> ControlReport + Send + Sync>;

/// The state now.
pub(super) fn of(shared: &Shared) -> Status {
    let source = lock(&shared.control).clone();
    let (control, probing) = source.map_or_else(Default::default, |source| {
        let report = source();
        (Some(report.control), report.probing)
    });
    let hops = shared.hops.borrow().clone();
    let kernel_counters = lock(&shared.programs).as_ref().map(Programs::counters);
    let (rules, chains) = {
        let chains = lock(&shared.chains);
        (chains.rules(), chains.node())
    };
    let mut engine = lock(&shared.engine);
    let fast_path = engine.in_kernel().map(|programs| programs.status());
    let fast_path = fast_path.unwrap_or_else(|| FastPath {
        problems: shared.no_fast_path.iter().cloned().collect(),
        ..FastPath::default()
    });
    let config = engine.planner().config();
    let served = engine.planner().current().served.clone();
    let mut drops: Vec<Drop> = DropReason::ALL
        .iter()
        .map(|reason| {
            drop(
                *reason,
                DropPlace::Engine,
                sum(&engine, |w| &w.drops[*reason as usize]),
            )
        })
        .collect();
    let mut verdicts = Vec::new();
    match kernel_counters.transpose() {
        Ok(None) => {}
        Ok(Some(counters)) => {
            drops.extend(
                counters
                    .drops()
                    .map(|(reason, n)| drop(reason, DropPlace::Kernel, n)),
            );
            verdicts.extend(counters.stats().map(|(stat, packets)| Verdict {
                name: stat.name().into(),
                packets,
            }));
        }
        Err(error) => tracing::warn!("cannot read the counters of the BPF programs: {error}"),
    }
    drops.extend(ring_drops(&shared.sockets));
    drops.retain(|drop| drop.count > 0);
    let counters = counters(&engine, &fast_path);
    Status {
        kind: Status::KIND.into(),
        version: env!("CARGO_PKG_VERSION").into(),
        id: config.gateway.id.clone(),
        isd_as: config.gateway.isd_as.to_string(),
        data_addr: config.gateway.data_addr,
        prefixes: served.unwrap_or_else(|| config.gateway.prefixes.clone()),
        uptime_ms: engine.started().elapsed().as_millis() as u64,
        workers: workers(&engine, shared),
        ports: shared
            .ports
            .iter()
            .map(|facts| port(facts, &shared.sockets))
            .collect(),
        underlay: Underlay {
            unchecked: shared.sources.unchecked(),
            refused: shared.sources.refused(&shared.programs),
        },
        lan: lan(shared),
        fast_path,
        rules,
        chains,
        remotes: remotes(&engine, &hops, &probing),
        control,
        counters,
        queues: queues(&shared.ports, &shared.sockets),
        verdicts,
        drops,
    }
}

fn drop(reason: DropReason, place: DropPlace, count: u64) -> Drop {
    Drop {
        reason: reason.name().into(),
        place,
        count,
    }
}

fn sum(engine: &Engine, counter: impl Fn(&WorkerCounters) -> &Counter) -> u64 {
    engine
        .counters()
        .iter()
        .map(|worker| counter(worker).get())
        .sum()
}

/// What the kernel dropped between the XDP programs and the workers, or at sockets.
fn ring_drops(sockets: &[Box<dyn Monitor>]) -> [Drop; 4] {
    let (mut full, mut empty, mut long, mut down) = (0, 0, 0, 0);
    for counters in sockets.iter().map(|socket| socket.counters()) {
        full += counters.tx_queue_full.get();
        long += counters.tx_too_big.get();
        down += counters.tx_refused.get();
    }
    for statistics in sockets.iter().filter_map(|socket| socket.statistics().ok()) {
        full += statistics.rx_ring_full;
        empty += statistics.fill_ring_empty;
        long += refused(&statistics);
    }
    [
        drop(DropReason::PacketTooBig, DropPlace::Kernel, long),
        drop(DropReason::QueueFull, DropPlace::Kernel, full),
        drop(DropReason::NoFreeChunk, DropPlace::Kernel, empty),
        drop(DropReason::LinkDown, DropPlace::Kernel, down),
    ]
}

/// What the kernel dropped for another reason than a full or an empty ring. It counts a packet that finds
/// no chunk as dropped as well.
fn refused(statistics: &Statistics) -> u64 {
    statistics
        .rx_dropped
        .saturating_sub(statistics.fill_ring_empty)
}

fn workers(engine: &Engine, shared: &Shared) -> Vec<Worker> {
    let cpus = engine.cpus();
    let sockets = shared
        .of_worker
        .iter()
        .map(|range| &shared.sockets[range.clone()]);
    engine
        .counters()
        .iter()
        .zip(sockets)
        .enumerate()
        .map(|(number, (counters, sockets))| Worker {
            number: number as u16,
            cpu: cpus.get(number).map(|cpu| *cpu as u16),
            rx_packets: sockets
                .iter()
                .map(|socket| socket.counters().rx_packets.get())
                .sum(),
            tx_packets: sockets
                .iter()
                .map(|socket| socket.counters().tx_packets.get())
                .sum(),
            counts: counters.read(),
        })
        .collect()
}

fn lan(shared: &Shared) -> Lan {
    let snapshot = shared.lan.snapshot();
    Lan {
        neighbours: snapshot.table.neighbours() as u64,
        helped: shared.lan.helped(&snapshot),
    }
}

fn port(facts: &PortFacts, sockets: &[Box<dyn Monitor>]) -> Port {
    let own = || facts.sockets.iter().map(|socket| &sockets[socket.place]);
    Port {
        role: facts.role,
        interface: facts.interface.clone(),
        driver: facts.driver.clone(),
        mode: match facts.kind {
            Kind::Xdp if facts.native => PortMode::Native,
            Kind::Xdp => PortMode::Generic,
            Kind::Socket => PortMode::Socket,
            Kind::Tun => PortMode::Tun,
        },
        zero_copy: facts.zero_copy,
        queues: facts.queues as u16,
        mtu: facts.mtu.load(Ordering::Relaxed),
        up: facts.is_up(),
        rx_packets: own().map(|socket| socket.counters().rx_packets.get()).sum(),
        tx_packets: own().map(|socket| socket.counters().tx_packets.get()).sum(),
    }
}

fn queues(ports: &[PortFacts], monitors: &[Box<dyn Monitor>]) -> Vec<Queue> {
    let sockets = ports
        .iter()
        .flat_map(|port| port.sockets.iter().map(move |socket| (port, socket)));
    sockets
        .map(|(port, socket)| {
            let monitor = &monitors[socket.place];
            // Zeros where the kernel does not tell.
            let statistics = monitor.statistics().unwrap_or_default();
            Queue {
                worker: socket.worker,
                role: port.role,
                interface: port.interface.clone(),
                queue: socket.queue,
                counts: monitor.counters().read(),
                rx_ring_full: statistics.rx_ring_full,
                fill_ring_empty: statistics.fill_ring_empty,
                rx_refused: refused(&statistics),
                rx_invalid_descriptors: statistics.rx_invalid_descriptors,
                tx_invalid_descriptors: statistics.tx_invalid_descriptors,
            }
        })
        .collect()
}

fn remotes(
    engine: &Engine,
    hops: &Snapshot,
    probing: &HashMap<SessionKey, Probing>,
) -> Vec<Remote> {
    let planner = engine.planner();
    let plan = planner.current();
    let sessions = plan.sessions.iter().zip(planner.sessions()).enumerate();
    sessions
        .map(|(place, (session, planned))| {
            let remote = planner
                .remotes()
                .get(session.gateway)
                .and_then(Option::as_ref);
            let received = || {
                let workers = remote.iter().flat_map(|remote| remote.counters.iter());
                workers.map(|worker| &worker.received)
            };
            let paths = session.paths.iter().zip(&planned.paths);
            Remote {
                isd_as: plan
                    .gateways
                    .get(session.gateway)
                    .map(|gateway| gateway.isd_as.to_string())
                    .unwrap_or_default(),
                gateway: session.data_addr,
                session: session.number,
                policy_id: session.policy_id,
                probing: probing.get(&session.key).copied(),
                prefixes: prefixes(plan, place),
                paths: paths
                    .map(|(path, planned)| self::path(path, planned, hops))
                    .collect(),
                frames_received: received().map(|traffic| traffic.frames.get()).sum(),
                frame_bytes_received: received().map(|traffic| traffic.frame_bytes.get()).sum(),
                packets_received: received().map(|traffic| traffic.packets.get()).sum(),
                packet_bytes_received: received().map(|traffic| traffic.packet_bytes.get()).sum(),
                sent: planned.sent(),
            }
        })
        .collect()
}

/// What the session at this place of the plan leads to.
fn prefixes(plan: &Plan, session: usize) -> Vec<IpNet> {
    let leads_there = |site: &&Site| {
        site.rules
            .iter()
            .any(|rule| rule.action == Action::Session(session))
    };
    let sites = plan.sites.iter().filter(leads_there);
    sites.flat_map(|site| site.prefixes.clone()).collect()
}

fn path(path: &SessionPath, planned: &PlannedPath, hops: &Snapshot) -> Path {
    let next_hop = path.path.next_hop;
    let hop = hops.get(&next_hop.ip());
    let resolved = hop.and_then(Resolution::resolved);
    let problem = match hop {
        Some(Resolution::Unresolved(reason)) if planned.problem.is_some() && !path.expired => {
            Some(format!("next hop {}: {reason}", next_hop.ip()))
        }
        _ => planned.problem.clone(),
    };
    let sent = planned.sent();
    Path {
        name: path.name.clone(),
        fingerprint: path.path.fingerprint.to_string(),
        next_hop,
        next_hop_mac: resolved.map(|hop| mac(hop.destination_mac)),
        problem,
        expires_at: path.path.expiry.map(seconds),
        expired: path.expired,
        mtu: path.mtu,
        streams: planned.streams.to_vec(),
        frames_sent: sent.frames,
        bytes_sent: sent.frame_bytes,
        packets_sent: sent.packets,
    }
}

/// Seconds since 1970.
fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

fn mac(address: [u8; 6]) -> String {
    address.map(|byte| format!("{byte:02x}")).join(":")
}

fn counters(engine: &Engine, fast: &FastPath) -> Counters {
    const HEADER_LEN: u64 = sig_common::wire::sig_frame::HEADER_LEN as u64;
    let sum = |counter: fn(&WorkerCounters) -> &Counter| sum(engine, counter);
    let bytes = |packets: u64, bytes: u64| bytes + packets * HEADER_LEN;
    let mut counts: WorkerCounts = engine.counters().iter().map(|w| w.read()).sum();
    counts.packets_straight += fast.packets_delivered;
    let (sent, delivered) = (fast.packets_sent, fast.packets_delivered);
    Counters {
        packets_sent: sum(|w| &w.sent.packets) + sent,
        packet_bytes_sent: sum(|w| &w.sent.packet_bytes) + fast.packet_bytes_sent,
        frames_sent: sum(|w| &w.sent.frames) + sent,
        frame_bytes_sent: sum(|w| &w.sent.frame_bytes) + bytes(sent, fast.packet_bytes_sent),
        frames_received: sum(|w| &w.received.frames) + delivered,
        frame_bytes_received: sum(|w| &w.received.frame_bytes)
            + bytes(delivered, fast.packet_bytes_delivered),
        packets_received: sum(|w| &w.received.packets) + delivered,
        packet_bytes_received: sum(|w| &w.received.packet_bytes) + fast.packet_bytes_delivered,
        counts,
    }
}
