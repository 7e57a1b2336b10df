//! `sig accelerate` beside gateways that know nothing of it: what they and their hosts do, and when, is all it has.

use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use sig_common::accelerate::STREAM_BIT;
use sig_core::scion::network::Validity;
use testbed::{Family, Network, Options, Process, Site, wait_until};

use crate::asking::Traffic;
use crate::bed::{Bed, assert_pings, sig};
use crate::foreign::{Foreign, Session, TUNNEL, up};
use crate::network::path;
use crate::order::check::Tally;
use crate::order::relay::{Mode, Relay};
use crate::order::streams::Streams;
use crate::order::{MODES, PATIENCE, SHORT_ROUND, relays, rounds};
use crate::tcx::tcx_programs;

/// How long packets take through a gateway: many times what they take through the programs.
const DELAY: Duration = Duration::from_millis(3);
/// In each direction. Each has its turn several times in a round: it is known then, and waits for nothing.
const FLOWS: u16 = 40;
/// A packet that the gateway has for longer passes for lost. Not much less: what its host does with it takes time, too.
const TOO_LONG: Duration = Duration::from_millis(400);

/// A running `sig accelerate run`.
struct Accelerator {
    process: Process,
    socket: PathBuf,
}

/// What is looked at of the document of `sig accelerate status --json`.
#[derive(Debug, Deserialize)]
struct Status {
    waiting_for: Option<String>,
    packets_sent: u64,
    packets_delivered: u64,
    #[expect(dead_code, reason = "shown when a test fails")]
    left: std::collections::BTreeMap<String, u64>,
    problems: Vec<String>,
}

impl Accelerator {
    fn start(network: &Network, site: &Site) -> Self {
        let file = |end| network.folder().join(format!("acc-{}{end}", site.isd_as()));
        let socket = file(".sock");
        let mut command = site.gateway.command(sig());
        command
            .args(["accelerate", "run", "--underlay", "underlay"])
            .args(["--tunnel", TUNNEL, "--log", "debug", "--socket"])
            .arg(&socket);
        let mut process = Process::spawn(command, &file(".log")).expect("it starts");
        process
            .wait_for("ready", PATIENCE)
            .unwrap_or_else(|e| panic!("{e:#}"));
        Self { process, socket }
    }

    fn status(&self) -> Status {
        let output = Command::new(sig())
            .args(["accelerate", "status", "--json", "--socket"])
            .arg(&self.socket)
            .output()
            .expect("it starts");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}{}", self.process.log());
        serde_json::from_slice(&output.stdout).expect("the status")
    }

    /// Waits until the status is like this.
    fn wait(&self, what: &str, mut is_like: impl FnMut(&Status) -> bool) {
        wait_until(what, PATIENCE, || Ok(is_like(&self.status())))
            .unwrap_or_else(|e| panic!("{e:#}: {:#?}\n{}", self.status(), self.process.log()));
    }
}

/// Two stand-ins for gateways.
fn gateways(network: &Network, delay: Duration) -> [Foreign; 2] {
    let (a, b) = (&network.a, &network.b);
    let gateways = [(a, b), (b, a)].map(|(site, remote)| {
        let session = Session {
            number: 0,
            path: path(site),
        };
        Foreign::start(site, remote, session, delay)
    });
    for family in Family::ALL {
        assert_pings(network, family, 1, 64);
    }
    gateways
}

/// A share of many packets.
fn share(part: u64, rest: u64) -> f64 {
    part as f64 / (part + rest).max(1) as f64
}

#[test]
fn packets_arrive_once_unchanged_and_in_order_beside_slow_gateways() {
    let bed = Bed::new(&Options::default());
    let network = &bed.network;
    let sites = [&network.a, &network.b];
    let relays = relays(sites);
    let gateways = gateways(network, DELAY);
    // With what their gateways had sent and delivered before.
    let start = |site: usize| {
        let accelerator = Accelerator::start(network, sites[site]);
        (accelerator, gateways[site].passed())
    };
    let mut accelerators = vec![start(0)];
    // No duplicates: the gateways deliver them, as the reference does.
    let everything = Mode {
        duplicated: 0.0,
        ..MODES[3]
    };
    let mut plan = [
        (1, everything),
        (2, MODES[0]),
        (2, MODES[2]),
        (2, everything),
    ]
    .into_iter();
    let mut stays = Vec::new();
    let mut modes: Vec<Mode> = Vec::new();
    let mode_of = |round| {
        let stay = gateways.each_ref().map(Foreign::longest_stay);
        if round > 0 {
            stays.push(stay[0].max(stay[1]));
        }
        let is_void = stays.last().is_some_and(|stay| *stay > TOO_LONG);
        if is_void && stays.len() < 12 {
            modes.extend(modes.last().copied());
            return modes.last().copied();
        }
        let (count, mode) = plan.next()?;
        if accelerators.len() < count {
            accelerators.push(start(1));
        }
        modes.push(mode);
        Some(mode)
    };
    let tallies = rounds(sites, &relays, FLOWS, SHORT_ROUND, mode_of);
    let mut all = Tally::default();
    let (mut excused, mut overtaken) = (0, 0);
    for ((mode, tally), stay) in modes.iter().zip(&tallies).zip(&stays) {
        println!("{}, stay {stay:?}: {tally}", mode.name);
        all += tally.clone();
        // If the machine stops a gateway for so long, the accelerator takes its packets for lost.
        if *stay > TOO_LONG {
            excused += tally.misplaced + tally.sent_out_of_order;
        } else if mode.overtaken > 0.0 {
            overtaken += tally.misplaced;
        }
    }
    let in_time = stays.iter().filter(|stay| **stay <= TOO_LONG).count();
    assert!(in_time > 1, "too slow a machine: {stays:?}");
    assert_eq!(all.faults(), excused + overtaken, "{all}");
    // A packet that lacks a part may be overtaken, if one that the network delayed passes the gateway meanwhile: what is seen
    // behind the gateway stands for all that was left to it before.
    assert!(overtaken * 1000 <= all.received, "{all}");
    assert!(all.received * 2 > all.sent, "{all}");
    for ((accelerator, before), gateway) in accelerators.iter().zip(&gateways) {
        let (status, [sent, delivered]) = (accelerator.status(), gateway.passed());
        let shares = [
            share(status.packets_sent, sent - before[0]),
            share(status.packets_delivered, delivered - before[1]),
        ];
        println!("taken by the accelerator: {shares:?}; {status:?}");
        assert_eq!(status.problems, Vec::<String>::new());
        // Else the rest says nothing. How many there are is a matter of speed: more at a time share frames on a slow machine.
        let enough = shares.iter().all(|share| *share > 0.1);
        assert!(enough, "{shares:?} {status:#?}");
    }
    assert!(all.sent_by_kernel * 10 > all.sent, "{all}");
    // With segments longer than frames, in connections that begin now.
    for relay in &relays {
        relay.set(everything);
    }
    let streams = Streams::start(sites[0], sites[1]);
    thread::sleep(SHORT_ROUND);
    let [arrived, sent] = streams.finish();
    assert_eq!(arrived, sent, "records over TCP");
}

/// Another path through the same routers from one site to the other.
fn other_path(network: &Network) -> Vec<u8> {
    let description = sig_core::network::load(&network.folder().join("network.toml"));
    let description = description.expect("the description of the network");
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let validity = Validity {
        timestamp: now.expect("a time after 1970").as_secs() as u32,
        expiry: 200,
    };
    let [from, to] = [&network.a, &network.b].map(|site| site.isd_as().parse().expect("an ISD-AS"));
    let paths = description.network.paths(from, to, validity);
    paths.expect("paths").swap_remove(0).raw
}

/// A story of gateway A: its accelerator follows all that it does.
struct Story<'a> {
    network: &'a Network,
    relay: &'a Relay,
    traffic: Traffic,
    asked: u64,
}

impl Story<'_> {
    fn ask(&mut self) {
        self.asked += 1;
        let answer = self.traffic.wait_for_answer(self.asked, PATIENCE);
        assert!(answer.is_some(), "no traffic any more");
    }

    /// Waits until the accelerator takes packets both ways.
    fn takes_packets(&mut self, accelerator: &Accelerator) {
        let before = accelerator.status();
        accelerator.wait("packets are taken", |status| {
            self.ask();
            status.packets_sent > before.packets_sent
                && status.packets_delivered > before.packets_delivered
        });
    }

    /// Waits until the accelerator's frames go this way, and sees that none go another one then.
    fn follows(&mut self, session: &Session) {
        let mut frames = |count: usize| {
            (0..count).for_each(|_| self.ask());
            let [_, log] = self.relay.take_logs();
            log.frames
        };
        let is_of_kernel = |stream: u32| stream & STREAM_BIT != 0;
        wait_until("another path is taken", PATIENCE, || {
            Ok(frames(1).iter().any(|frame| {
                frame.path == session.path
                    && frame.header.session == session.number
                    && is_of_kernel(frame.header.stream)
            }))
        })
        .unwrap_or_else(|e| panic!("{e:#}"));
        let frames = frames(50);
        for frame in &frames {
            assert_eq!(frame.header.session, session.number);
            assert_eq!(frame.path, session.path);
        }
        let streams = frames.iter().map(|frame| frame.header.stream);
        let of_kernel = streams.filter(|stream| is_of_kernel(*stream)).count();
        assert!(
            of_kernel * 2 > frames.len(),
            "{of_kernel} of {}",
            frames.len()
        );
    }

    /// Programs of the accelerator on devices of the gateway, and its devices.
    fn traces(&self) -> Vec<String> {
        let gateway = &self.network.a.gateway;
        let devices = gateway.interfaces().expect("devices");
        let programs = gateway.run(|| ["underlay", TUNNEL].map(tcx_programs).concat());
        let mut traces = programs.expect("programs");
        traces.extend(
            devices
                .into_iter()
                .filter(|name| name.starts_with("sig-acc")),
        );
        traces
    }
}

#[test]
fn what_the_gateway_does_is_followed_and_it_goes_on_alone_after_a_kill() {
    let bed = Bed::new(&Options::default());
    let network = &bed.network;
    let (a, b) = (&network.a, &network.b);
    let relays = relays([a, b]);
    let [mut gateway, _remote] = gateways(network, Duration::ZERO);
    let [mut accelerator, other] = [a, b].map(|site| Accelerator::start(network, site));
    let mut story = Story {
        network,
        relay: &relays[0],
        traffic: Traffic::start(network),
        asked: 0,
    };
    story.takes_packets(&accelerator);
    story.takes_packets(&other);

    // Another path, for the same session.
    let second = Session {
        number: 0,
        path: other_path(network),
    };
    gateway.change(second.clone());
    story.follows(&second);
    // Another session, which takes another path.
    let third = Session {
        number: 1,
        path: path(a),
    };
    gateway.change(third.clone());
    story.follows(&third);

    // The device goes down and comes up again.
    a.gateway.ip("link set sig down").expect("a setting");
    let is_waiting = |what| move |status: &Status| status.waiting_for.as_deref() == Some(what);
    accelerator.wait("it waits", is_waiting("device sig to come up"));
    assert_eq!(story.traces(), Vec::<String>::new());
    up(a, b);
    story.takes_packets(&accelerator);

    // The gateway ends, and another one begins.
    drop(gateway);
    accelerator.wait("it waits", is_waiting("device sig"));
    gateway = Foreign::start(a, b, second.clone(), Duration::ZERO);
    story.takes_packets(&accelerator);
    story.follows(&second);

    // The accelerator is killed.
    assert_eq!(story.traces().len(), 5, "{:?}", story.traces());
    let pings = thread::scope(|scope| {
        let pings = scope.spawn(|| {
            let (to, interval) = (b.client_ip(Family::V4), Duration::from_millis(5));
            testbed::ping(&a.client, to, 100, 64, interval)
        });
        let before = accelerator.status().packets_sent;
        accelerator.wait("pings are taken", |status| {
            status.packets_sent > before + 10
        });
        accelerator.process.signal(libc::SIGKILL);
        pings.join().expect("pings").expect("pings")
    });
    println!("{pings:?}");
    accelerator.process.wait(PATIENCE).expect("its end");
    // What was on its way is lost.
    assert!(pings.received * 2 > pings.sent, "{pings:?}");
    wait_until("nothing is left of it", PATIENCE, || {
        Ok(story.traces().is_empty())
    })
    .unwrap_or_else(|e| panic!("{e:#}: {:?}", story.traces()));
    let [before, _] = gateway.passed();
    for family in Family::ALL {
        assert_pings(network, family, 5, 64);
    }
    assert!(
        gateway.passed()[0] >= before + 10,
        "else somebody else sent them"
    );
}
