//! `cargo xtask chaos`: three ASes in which something goes wrong all the time, and rules that hold all the same.

mod faults;
mod flows;
mod memory;
mod network;
mod relay;
mod report;
mod tcp;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use clap::Parser as _;
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};

use self::{
    faults::{Fault, Kind},
    flows::{Flows, Mark},
    memory::Memory,
    network::{ASES, Network},
    report::Report,
    tcp::Connections,
};

/// After the last fault of a round, everything must arrive again within this time.
const HEALS: Duration = Duration::from_secs(10);
/// It does once all datagrams arrive that were sent in so long.
const CALM: Duration = Duration::from_millis(1000);
/// What has not arrived after that time is lost.
const ON_THE_WAY: Duration = Duration::from_millis(400);
/// Most faults of a round.
const FAULTS: usize = 3;

/// Lets three gateways and routers meet random faults, and checks that every packet that arrives is whole, arrives once and in order,
/// that all faults heal, and that nothing grows or is left behind.
#[derive(clap::Parser)]
struct Arguments {
    /// The program `sig`
    #[arg(long, value_name = "FILE")]
    sig: PathBuf,
    /// How long
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    minutes: f64,
    /// What the faults follow from; the default follows from the clock
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// First round, to repeat one that failed
    #[arg(long, value_name = "N", default_value_t = 0)]
    round: u64,
    /// Only faults of these kinds, such as "link cut"
    #[arg(long, value_name = "KIND")]
    only: Vec<String>,
    /// Go on after a rule was broken
    #[arg(long)]
    keep_going: bool,
    /// Folder for the report, and for the logs if a rule was broken
    #[arg(long, value_name = "FOLDER", default_value = "target/chaos")]
    output: PathBuf,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Settings of gateways, a line of `[dataplane]` each.
const DATAPLANES: [&str; 5] = [
    "",
    "workers = 2",
    "fast_path = \"off\"",
    "underlay_port = \"socket\"",
    "lan_transmit = \"kernel\"",
];

fn run(arguments: &Arguments) -> Result<bool> {
    let kinds = kinds(&arguments.only)?;
    let _lock = testbed::exclusive()?;
    testbed::sweep();
    let seed = arguments
        .seed
        .unwrap_or_else(|| rand::random_range(0..1_000_000));
    let mut rng = StdRng::seed_from_u64(seed);
    let dataplane = [(); ASES].map(|()| DATAPLANES[rng.random_range(0..DATAPLANES.len())]);
    println!("seed {seed}; [dataplane] of a, b, c: {dataplane:?}");
    let mut network = Network::start(&arguments.sig, dataplane, seed)?;
    let flows = Flows::start(&network)?;
    let connections = Connections::start(&network)?;
    let mut memory = Memory::default();
    let mut report = Report::new(seed, dataplane);
    let end = Instant::now() + Duration::from_secs_f64(arguments.minutes * 60.0);
    let started = flows.mark();
    let calm = wait_for_calm(&flows, &started)?;
    report.broken(0, &[], calm.err().into_iter().collect());
    for round in arguments.round.. {
        if Instant::now() > end || !report.is_good() && !arguments.keep_going {
            break;
        }
        let mut rng = StdRng::seed_from_u64(seed ^ round << 20);
        let faults = plan(&kinds, &mut rng);
        let mut broken = play(&mut network, &flows, &connections, &faults, &mut report)?;
        broken.extend(network.defects()?);
        broken.extend(memory.look(&network)?);
        report.broken(round, &faults, broken);
    }
    drop((flows, connections));
    report.broken(u64::MAX, &[], network.stop()?);
    if !report.is_good() {
        let kept = keep_logs(
            network.folder.path(),
            &arguments.output.join(format!("seed-{seed}")),
        )?;
        println!("logs: {}", kept.display());
    }
    report.write(&arguments.output)?;
    Ok(report.is_good())
}

fn kinds(only: &[String]) -> Result<Vec<Kind>> {
    if only.is_empty() {
        return Ok(Kind::ALL.to_vec());
    }
    let find = |name: &String| {
        let found = Kind::ALL.into_iter().find(|kind| kind.name() == name);
        found.with_context(|| {
            let names = Kind::ALL.map(Kind::name).join("\", \"");
            format!("no kind of fault \"{name}\"; there are \"{names}\"")
        })
    };
    only.iter().map(find).collect()
}

/// The faults of a round, in the order in which they begin.
fn plan(kinds: &[Kind], rng: &mut StdRng) -> Vec<Fault> {
    let mut faults: Vec<Fault> = Vec::new();
    for _ in 0..rng.random_range(1..=FAULTS) {
        let new = Fault::random(kinds, rng);
        if !faults.iter().any(|fault| fault.meets(&new)) {
            faults.push(new);
        }
    }
    faults.sort_by_key(|fault| fault.begins);
    faults
}

/// Lets the faults of a round happen and heal. Returns the rules that were broken.
fn play(
    network: &mut Network,
    flows: &Flows,
    connections: &Connections,
    faults: &[Fault],
    report: &mut Report,
) -> Result<Vec<String>> {
    // Who leaves a slow path for another one overtakes what is under way.
    let is_slow = faults.iter().any(|fault| fault.kind == Kind::LinkDelays) && faults.len() > 1;
    flows.expect_order(!is_slow && faults.iter().all(|fault| fault.kind.keeps_order()));
    let (start, before) = (Instant::now(), flows.mark());
    let mut events: Vec<(Duration, &Fault, bool)> = faults
        .iter()
        .flat_map(|fault| {
            [
                (fault.begins, fault, true),
                (fault.begins + fault.lasts, fault, false),
            ]
        })
        .collect();
    events.sort_by_key(|(at, ..)| *at);
    for (at, fault, begins) in events {
        thread::sleep(at.saturating_sub(start.elapsed()));
        let done = if begins {
            fault.begin(network)
        } else {
            fault.end(network)
        };
        done.with_context(|| fault.to_string())?;
    }
    let healed = flows.mark();
    let progress = connections.progress();
    let mut broken = Vec::new();
    let calm = wait_for_calm(flows, &healed)?;
    // Whatever was delayed has come.
    flows.expect_order(true);
    let after = flows.mark();
    thread::sleep(ON_THE_WAY);
    let (lost, sent) = flows.missing(&before, &after);
    if faults.iter().all(|fault| fault.kind.is_harmless()) && lost > 0 {
        broken.push(format!(
            "lost: {}",
            flows.who_misses(&before, &after).join(", ")
        ));
    }
    report.round(faults, calm.as_ref().ok().copied(), lost, sent);
    broken.extend(calm.err());
    broken.extend(flows.faults());
    broken.extend(connections.stalled(&progress));
    Ok(broken)
}

/// Waits until all arrives again. Returns how long it took after `healed`, or what does not arrive.
fn wait_for_calm(flows: &Flows, healed: &Mark) -> Result<Result<Duration, String>> {
    let start = Instant::now();
    // A ring of the last marks: the datagrams between the first and the last one are those of the time that is looked at.
    let mut marks = vec![(Duration::ZERO, healed.clone())];
    loop {
        thread::sleep(Duration::from_millis(100));
        let now = start.elapsed();
        marks.push((now, flows.mark()));
        let settled = now.saturating_sub(ON_THE_WAY);
        let last = marks
            .iter()
            .rposition(|(at, _)| *at <= settled)
            .unwrap_or(0);
        let first = marks[..=last]
            .iter()
            .rposition(|(at, _)| *at + CALM <= marks[last].0);
        if let Some(first) = first {
            if flows.missing(&marks[first].1, &marks[last].1).0 == 0 {
                return Ok(Ok(marks[first].0));
            }
            if now > HEALS + CALM + ON_THE_WAY {
                let missing = flows.who_misses(&marks[first].1, &marks[last].1);
                return Ok(Err(format!(
                    "not healed after {HEALS:?}: {}",
                    missing.join(", ")
                )));
            }
        }
    }
}

fn keep_logs(from: &Path, to: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            std::fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(to.to_owned())
}
