//! A pair of gateways keeps the order of flows.
//!
//! The clients send numbered packets of many flows, UDP and what looks like TCP: with real TCP, the receiving stack would
//! hide what came out of order. Between each gateway and its router stands a relay that loses, delays, duplicates and
//! reorders SIG frames and remembers which packets were in them. So two packets of a flow may arrive in the wrong order
//! only if the relay sent on their frames in that order, and no packet may arrive twice or damaged. Routers are not blamed
//! for anything.

pub(crate) mod check;
mod packets;
pub(crate) mod relay;
pub(crate) mod streams;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use testbed::{Family, Options, Site, wait_until};

use self::check::{Network, Tally, check};
use self::packets::{Arrival, Label, Way, sinks};
use self::relay::{Mode, Relay};
use self::streams::Streams;
use crate::bed::{Bed, assert_pings};
use crate::support::wire::PacketSocket;

/// How many minutes the test takes, in place of a few seconds.
const MINUTES: &str = "SIG_ORDER_MINUTES";

/// In each direction.
const FLOWS: u16 = 300;
/// Packets per second and direction.
const RATE: u32 = 2_500;
/// Flows that send at the same time.
const BUSY: usize = 8;
/// Packets that a flow sends before another has its turn.
const BURST: std::ops::Range<u32> = 2..11;

pub(crate) const SHORT_ROUND: Duration = Duration::from_millis(450);
const LONG_ROUND: Duration = Duration::from_secs(10);
/// What is still on its way arrives before nothing has been sent, and nothing has arrived, for so long.
const QUIET: Duration = Duration::from_millis(300);
const TICK: Duration = Duration::from_millis(10);
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) const MODES: [Mode; 4] = {
    let none = Mode {
        name: "loss",
        delay: Duration::from_millis(2),
        lost: 0.0,
        duplicated: 0.0,
        overtaken: 0.0,
        spread: Duration::from_millis(8),
        late: 0.0,
    };
    [
        Mode { lost: 0.02, ..none },
        Mode {
            name: "duplicates",
            duplicated: 0.1,
            spread: Duration::from_millis(30),
            ..none
        },
        Mode {
            name: "reordering",
            overtaken: 0.1,
            late: 0.002,
            ..none
        },
        Mode {
            name: "everything",
            lost: 0.01,
            duplicated: 0.05,
            overtaken: 0.1,
            late: 0.002,
            ..none
        },
    ]
};

/// Sends packets of all flows in turn, some of them at the same time, until `end`. Returns how many of each.
fn send(wire: &PacketSocket, way: &Way, flows: u16, round: u16, end: Instant) -> Vec<u32> {
    let mut rng = StdRng::seed_from_u64(round.into());
    let mut sent = vec![0; usize::from(flows)];
    let mut flows = (0..flows).cycle().skip(rng.random_range(0..flows).into());
    let mut next = || flows.next().expect("an endless iterator");
    let mut busy: [(u16, u32); BUSY] = std::array::from_fn(|_| (next(), rng.random_range(BURST)));
    let start = Instant::now();
    let mut total = 0;
    while Instant::now() < end {
        let due = start.elapsed().as_micros() as u64 * u64::from(RATE) / 1_000_000;
        while total < due {
            total += 1;
            let (flow, left) = &mut busy[rng.random_range(0..BUSY)];
            let number = sent[usize::from(*flow)];
            let label = Label {
                round,
                flow: *flow,
                number,
            };
            let frame = way.frame(label);
            while !wire.try_send(&frame) {
                if Instant::now() > end {
                    return sent;
                }
                thread::sleep(Duration::from_micros(100));
            }
            sent[usize::from(*flow)] += 1;
            *left -= 1;
            if *left == 0 {
                (*flow, *left) = (next(), rng.random_range(BURST));
            }
        }
        // What has become due meanwhile leaves at once, and shares frames.
        thread::sleep(Duration::from_micros(rng.random_range(100..6_000)));
    }
    sent
}

/// What arrives at a client.
struct Arrivals(Mutex<OfRound>);

struct OfRound {
    arrivals: Vec<Arrival>,
    /// When the last of them came.
    last: Instant,
}

impl Arrivals {
    fn new() -> Self {
        Self(Mutex::new(OfRound {
            arrivals: Vec::new(),
            last: Instant::now(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, OfRound> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn receive(&self, wire: &PacketSocket, way: &Way, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            PacketSocket::wait(&[wire], Duration::from_millis(20));
            while let Some(frame) = wire.receive() {
                if let Some(arrival) = way.arrival(&frame) {
                    let mut of_round = self.lock();
                    of_round.arrivals.push(arrival);
                    of_round.last = Instant::now();
                }
            }
        }
    }
}

/// Sets a flag when it is dropped.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Stops one of the gateways for a moment, and again, as a machine with too much to do would. Meanwhile, the programs go on.
fn hold_up(gateways: [&Site; 2], stop: &AtomicBool) {
    let mut rng = StdRng::seed_from_u64(0);
    while !stop.load(Ordering::Relaxed) {
        let gateway = gateways[rng.random_range(0..gateways.len())];
        gateway.signal_gateway(libc::SIGSTOP);
        thread::sleep(Duration::from_millis(rng.random_range(2..160)));
        gateway.signal_gateway(libc::SIGCONT);
        thread::sleep(Duration::from_millis(rng.random_range(20..120)));
    }
}

/// Makes gateways know how to reach all addresses before packets are sent: on the way by the kernel, the first ones of a
/// flow may be overtaken by those behind them.
fn learn(bed: &Bed) {
    for family in Family::ALL {
        assert_pings(&bed.network, family, 1, 64);
    }
    for site in [&bed.network.a, &bed.network.b] {
        wait_until("the neighbours are known", PATIENCE, || {
            let status = site.status()?;
            let by_kernel = status.ports.iter().any(|port| port.mode == "tun");
            Ok(by_kernel || status.lan.neighbours >= 4)
        })
        .unwrap_or_else(|e| panic!("{e:#}: {:#?}", site.status()));
    }
}

/// Puts a relay in front of the gateway of each site, none of which is running yet, and lets packets reach both clients.
pub(crate) fn relays([a, b]: [&Site; 2]) -> [Relay; 2] {
    let relays = [(a, 1), (b, 2)].map(|(site, seed)| Relay::in_front_of(site, seed));
    for site in [a, b] {
        prepare(site);
    }
    relays
}

/// Has numbered packets of `flows` flows cross two gateways each way, in rounds of such a length. `mode_of` tells how the
/// relays treat frames in the next round, until it tells nothing. Returns what became of the packets of each round.
pub(crate) fn rounds(
    [a, b]: [&Site; 2],
    relays: &[Relay; 2],
    flows: u16,
    length: Duration,
    mut mode_of: impl FnMut(u16) -> Option<Mode>,
) -> Vec<Tally> {
    let ways = [Way::new(a, b), Way::new(b, a)];
    let wires = [a, b].map(|site| {
        let open = || PacketSocket::open_here("lan", libc::ETH_P_ALL as u16);
        site.client.run(open).expect("the namespace")
    });
    let arrivals = [Arrivals::new(), Arrivals::new()];
    let stop = AtomicBool::new(false);
    let mut tallies = Vec::new();
    thread::scope(|scope| {
        let _stop = Stop(&stop);
        for (direction, arrivals) in arrivals.iter().enumerate() {
            let (wire, way, stop) = (&wires[1 - direction], &ways[direction], &stop);
            scope.spawn(|| arrivals.receive(wire, way, stop));
        }
        for round in 0.. {
            let Some(mode) = mode_of(round) else { break };
            for relay in relays {
                relay.set(mode);
            }
            let until = Instant::now() + length;
            let sending = [0, 1].map(|direction: usize| {
                let (wire, way) = (&wires[direction], &ways[direction]);
                scope.spawn(move || send(wire, way, flows, round, until))
            });
            let limit = until + PATIENCE;
            let mut quiet_since = Instant::now();
            while quiet_since.elapsed() < QUIET || !relays.iter().all(Relay::is_empty) {
                assert!(Instant::now() < limit, "packets arrive without end");
                let before = Instant::now();
                thread::sleep(TICK);
                // On a machine where this takes long, gateways are late too.
                if before.elapsed() > 4 * TICK {
                    quiet_since = Instant::now();
                }
                if !sending.iter().all(|sending| sending.is_finished()) {
                    quiet_since = Instant::now();
                }
                for arrivals in &arrivals {
                    quiet_since = quiet_since.max(arrivals.lock().last);
                }
            }
            for relay in relays {
                relay.set(Mode::default());
            }
            let [[to_a, from_a], [to_b, from_b]] = relays.each_ref().map(Relay::take_logs);
            let networks = [Network::new(from_a, to_b), Network::new(from_b, to_a)];
            let mut tally = Tally::default();
            for ((sending, network), arrivals) in sending.into_iter().zip(&networks).zip(&arrivals)
            {
                let sent = sending.join().expect("numbers of packets");
                let arrived = std::mem::take(&mut arrivals.lock().arrivals);
                tally += check(round, &sent, network, &arrived);
            }
            tallies.push(tally);
        }
    });
    tallies
}

/// Has packets cross two gateways and a bad network, for a few seconds or as many minutes as the environment says, and
/// panics unless all came as they must. Returns how many packets took the fast path of gateway A.
fn order_is_kept(options: &Options) -> u64 {
    let minutes = std::env::var(MINUTES).ok().map(|minutes| {
        let minutes: f64 = minutes.parse().expect("a number of minutes");
        Duration::from_secs_f64(minutes * 60.0)
    });
    let whole = minutes.unwrap_or_default();
    let mut bed = Bed::with_limit(options, whole + Duration::from_secs(180));
    let relays = relays([&bed.network.a, &bed.network.b]);
    bed.network
        .start_gateways()
        .unwrap_or_else(|e| panic!("{e:#}"));
    learn(&bed);

    let (a, b) = (&bed.network.a, &bed.network.b);
    let streams = Streams::start(a, b);
    let length = minutes.map_or(SHORT_ROUND, |minutes| {
        LONG_ROUND.min(minutes / MODES.len() as u32)
    });
    let end = Instant::now() + whole;
    let stop = AtomicBool::new(false);
    let of_rounds = thread::scope(|scope| {
        let _stop = Stop(&stop);
        if options.switch_fast_path.is_some() {
            scope.spawn(|| hold_up([a, b], &stop));
        }
        rounds([a, b], &relays, FLOWS, length, |round| {
            let goes_on = usize::from(round) < MODES.len() || Instant::now() < end;
            goes_on.then_some(MODES[usize::from(round) % MODES.len()])
        })
    });
    let mut tallies = MODES.map(|mode| (mode, Tally::default()));
    for (round, tally) in of_rounds.into_iter().enumerate() {
        tallies[round % MODES.len()].1 += tally;
    }
    let [arrived, sent] = streams.finish();
    println!("records over TCP: {arrived} of {sent} arrived");
    let status = bed.network.a.status().expect("the status");
    let (fast, counters) = (status.fast_path, status.counters);
    println!(
        "by the fast path: {} of {} packets sent, {} of {} delivered; {:?}",
        fast.packets_sent,
        counters.packets_sent,
        fast.packets_delivered,
        counters.packets_received,
        fast.problems
    );
    for (mode, tally) in &tallies {
        println!("{}: {tally}", mode.name);
    }
    assert_eq!(arrived, sent, "records over TCP");
    for (mode, tally) in &tallies {
        let name = mode.name;
        assert_eq!(tally.faults(), 0, "{name}: {tally}");
        // Else the rest says nothing. That few are lost is a matter of speed, and so of the machine.
        assert!(tally.received * 2 > tally.sent, "{name}: {tally}");
    }
    fast.packets_sent.min(fast.packets_delivered)
}

/// Lets packets to addresses that no host has reach the client of a site, which drops them silently.
fn prepare(site: &Site) {
    let mac = site
        .client_mac()
        .map(|byte| format!("{byte:02x}"))
        .join(":");
    for sink in sinks(site) {
        let line = format!("neighbour replace {sink} lladdr {mac} dev lan nud permanent");
        site.gateway.ip(&line).expect("a neighbour");
    }
    // A veth takes what an XDP program redirects to it only where NAPI runs.
    for netns in [&site.client, &site.gateway] {
        netns
            .exec("ethtool -K lan gro on")
            .expect("ethtool is installed");
    }
}

/// On one queue: flows of both workers share every link, and each worker has streams of its own.
fn options(fast_path: &str) -> Options {
    Options {
        dataplane: format!("workers = 2\nfast_path = \"{fast_path}\""),
        ..Options::default()
    }
}

#[test]
fn packets_arrive_once_unchanged_and_in_order_by_workers() {
    assert_eq!(order_is_kept(&options("off")), 0);
}

#[test]
fn packets_arrive_once_unchanged_and_in_order_by_sockets_and_tun_devices() {
    let options = Options {
        dataplane: "workers = 2\nunderlay_port = \"socket\"".to_owned(),
        tunnel: "device = \"tun\"".to_owned(),
        ..Options::default()
    };
    assert_eq!(order_is_kept(&options), 0);
}

#[test]
fn packets_arrive_once_unchanged_and_in_order_by_the_fast_path_and_workers_in_turn() {
    let options = Options {
        switch_fast_path: Some(10),
        ..options("on")
    };
    assert!(order_is_kept(&options) > 100, "else it says nothing");
}
