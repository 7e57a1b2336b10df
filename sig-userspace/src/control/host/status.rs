//! The state of the gateway as one document.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use ipnet::IpNet;
use sig_common::reason::DropReason;

use super::{
    Shared,
    lans::{Past, View},
    lock,
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
    port::{Monitor, Role, Statistics},
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
    // Before the engine is locked: whoever attaches a program has the programs for as long as the driver takes.
    let refused = shared.sources.refused(&shared.programs);
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
    let lans = shared.lans.view();
    let ports = ports(shared, &lans);
    let mut ring_drops = lans.past.drops.clone();
    for socket in ports.iter().flat_map(|port| &port.sockets) {
        ring_drops.add(&*socket.monitor);
    }
    drops.extend(ring_drops.list());
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
        // Counted where they are asked for.
        reloads: 0,
        reloads_refused: 0,
        draining: false,
        workers: workers(&engine, &ports, &lans.past),
        ports: ports.iter().map(|facts| port(facts)).collect(),
        underlay: Underlay {
            unchecked: shared.sources.unchecked(),
            refused,
        },
        lan: lan(shared, lans),
        fast_path,
        rules,
        chains,
        remotes: remotes(&engine, &hops, &probing),
        control,
        counters,
        queues: queues(&ports),
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

/// The ports, by role: underlay, LAN, tunnel.
fn ports(shared: &Shared, lans: &View) -> Vec<Arc<PortFacts>> {
    let fixed = |role| shared.ports.iter().filter(move |port| port.role == role);
    let underlay = fixed(Role::Underlay);
    let all = underlay.chain(&lans.ports).chain(fixed(Role::Tunnel));
    all.cloned().collect()
}

/// What the kernel dropped between the XDP programs and the workers, or at sockets.
#[derive(Clone, Default)]
pub(super) struct RingDrops {
    full: u64,
    empty: u64,
    long: u64,
    down: u64,
}

impl RingDrops {
    /// Adds what a socket counted.
    pub(super) fn add(&mut self, socket: &dyn Monitor) {
        let counters = socket.counters();
        self.full += counters.tx_queue_full.get();
        self.long += counters.tx_too_big.get();
        self.down += counters.tx_refused.get();
        // Nothing where the kernel does not tell.
        if let Ok(statistics) = socket.statistics() {
            self.full += statistics.rx_ring_full;
            self.empty += statistics.fill_ring_empty;
            self.long += refused(&statistics);
        }
    }

    fn list(&self) -> [Drop; 4] {
        [
            drop(DropReason::PacketTooBig, DropPlace::Kernel, self.long),
            drop(DropReason::QueueFull, DropPlace::Kernel, self.full),
            drop(DropReason::NoFreeChunk, DropPlace::Kernel, self.empty),
            drop(DropReason::LinkDown, DropPlace::Kernel, self.down),
        ]
    }
}

/// What the kernel dropped for another reason than a full or an empty ring. It counts a packet that finds
/// no chunk as dropped as well.
fn refused(statistics: &Statistics) -> u64 {
    statistics
        .rx_dropped
        .saturating_sub(statistics.fill_ring_empty)
}

fn workers(engine: &Engine, ports: &[Arc<PortFacts>], past: &Past) -> Vec<Worker> {
    let cpus = engine.cpus();
    let worker = |(number, counters): (u16, &Arc<WorkerCounters>)| {
        let sockets = ports.iter().flat_map(|port| &port.sockets);
        let own = sockets.filter(|socket| socket.worker == number);
        let counted = own.map(|socket| {
            let counters = socket.monitor.counters();
            [counters.rx_packets.get(), counters.tx_packets.get()]
        });
        let before = past.workers.get(&number).copied().unwrap_or_default();
        let [rx_packets, tx_packets] =
            counted.fold(before, |sum, more| [sum[0] + more[0], sum[1] + more[1]]);
        Worker {
            number,
            cpu: cpus.get(usize::from(number)).map(|cpu| *cpu as u16),
            rx_packets,
            tx_packets,
            counts: counters.read(),
        }
    };
    (0..).zip(engine.counters()).map(worker).collect()
}

fn lan(shared: &Shared, lans: View) -> Lan {
    let snapshot = shared.lan.snapshot();
    let mut helped = lans.helped;
    helped.extend(shared.lan.helped(&snapshot));
    Lan {
        neighbours: snapshot.table.neighbours() as u64,
        helped,
        left_out: lans.left_out,
    }
}

fn port(facts: &PortFacts) -> Port {
    let own = || facts.sockets.iter().map(|socket| &socket.monitor);
    Port {
        role: facts.role,
        interface: facts.interface.clone(),
        trunk: facts.trunk.as_ref().map(|trunk| trunk.link.name.clone()),
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

fn queues(ports: &[Arc<PortFacts>]) -> Vec<Queue> {
    let sockets = ports
        .iter()
        .flat_map(|port| port.sockets.iter().map(move |socket| (port, socket)));
    sockets
        .map(|(port, socket)| {
            let monitor = &socket.monitor;
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
