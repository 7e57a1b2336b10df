//! `cargo xtask demo`: two ASes, two gateways, and real traffic between them, over border routers.

mod chains;
mod page;
mod progress;
mod results;
mod tools;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use testbed::{
    Family, Netns, Network, Options, Route, Underlay,
    iperf::{self, Direction, Protocol},
};

use crate::{setup, shell};
use progress::Progress;
use results::{FamilyResults, Results, to_json};

/// Payload of the pings that measure the round trip, bytes.
const PING_SIZE: u32 = 64;
/// Payloads of the other pings: larger than a frame, and a train of IP fragments.
const LARGE_PINGS: [u32; 2] = [1472, 8972];
const PING_INTERVAL: Duration = Duration::from_millis(20);
/// Segments as large as the route allows.
const TCP: Protocol = Protocol::Tcp { segment: None };
/// Datagrams that fill most of a frame.
const UDP: Protocol = Protocol::Udp {
    size: 1200,
    rate: 200_000_000,
};

/// Arguments of the task.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Leave the network running afterwards, the first one unless another is chosen, until Ctrl-C or `cargo xtask demo --down`
    #[arg(long)]
    keep: bool,
    /// Only end demos that were left running, and remove what killed ones left
    #[arg(long, conflicts_with = "keep")]
    down: bool,
    /// Also write the results to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Largest SCION packet on the path between the ASes, in bytes; over IPv6 at most 1452
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(1000..=1472))]
    path_mtu: Option<u16>,
    /// Rules and service chains instead: a firewall and an IDS beside a gateway, which fail and come back
    #[arg(long, conflicts_with_all = ["json", "network", "seconds"])]
    chains: bool,
    /// Only this network
    #[arg(long, value_name = "NAME")]
    network: Option<Shown>,
    /// A line for the section `[dataplane]` of both gateways, such as "workers = 2"; may be repeated
    #[arg(long, value_name = "LINE")]
    dataplane: Vec<String>,
    /// Seconds of each of the eight throughput measurements in the first network; in others it is one
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
}

/// The networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Shown {
    /// Two ASes over an IPv4 underlay
    Ipv4,
    /// Two ASes over an IPv6 underlay
    Ipv6,
    /// Two ASes and a core AS between them, over an IPv4 underlay
    Crossing,
}

impl Shown {
    const ALL: [Self; 3] = [Self::Ipv4, Self::Ipv6, Self::Crossing];

    /// The key of its results.
    fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "underlay_ipv4",
            Self::Ipv6 => "underlay_ipv6",
            Self::Crossing => "crossing",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Ipv4 => "Two ASes, IPv4 between gateways and routers",
            Self::Ipv6 => "The same with IPv6 between gateways and routers",
            Self::Crossing => {
                "Through a third AS, whose router takes packets from an up to a down segment"
            }
        }
    }

    fn picture(self) -> &'static str {
        match self {
            Self::Ipv4 => TWO_ASES,
            Self::Ipv6 => "",
            Self::Crossing => THREE_ASES,
        }
    }
}

/// Runs the task.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if !shell::is_root() {
        bail!(
            "network namespaces need root: run it as root, for example with `sudo -E env PATH=$PATH cargo xtask demo`"
        );
    }
    if arguments.down {
        return down();
    }
    setup::run(&setup::Arguments::default())?;
    let binary = build()?;
    testbed::sweep();
    let before = interfaces()?;
    if arguments.chains {
        return chains(&binary, arguments, &before);
    }

    let shown = match (arguments.network, arguments.keep) {
        (Some(only), _) => vec![only],
        (None, true) => vec![Shown::Ipv4],
        (None, false) => Shown::ALL.to_vec(),
    };
    let mut all = Vec::new();
    for (place, shown) in shown.into_iter().enumerate() {
        let options = options(arguments, shown);
        println!("\n{}\n{}", shown.title(), shown.picture().trim_end());
        let seconds = if place == 0 { arguments.seconds } else { 1 };
        let (mut network, results) = show(&binary, &options, seconds)?;
        println!("{results}");
        let failures = results.failures();
        for failure in &failures {
            eprintln!("FAILED: {failure}");
        }
        all.push((shown.name(), results));
        if let Some(file) = &arguments.json {
            fs::write(file, to_json(&all)?)
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        if arguments.keep {
            look_around(&network, &binary);
            testbed::hold(u8::from(!failures.is_empty()));
        }
        network.a.stop_gateway()?;
        network.b.stop_gateway()?;
        drop(network);
        clean(&before)?;
    }
    end(all
        .iter()
        .flat_map(|(_, results)| results.failures())
        .count())
}

/// Rules and service chains.
fn chains(binary: &Path, arguments: &Arguments, before: &[String]) -> Result<()> {
    let mut lab = chains::Lab::build(binary, &options(arguments, Shown::Ipv4))?;
    let failures = lab.show()?.len();
    if arguments.keep {
        look_around(&lab.network, binary);
        testbed::hold(u8::from(failures > 0));
    }
    lab.network.a.stop_gateway()?;
    lab.network.b.stop_gateway()?;
    drop(lab);
    clean(before)?;
    end(failures)
}

/// Everything is removed; so many expectations did not hold.
fn end(failures: usize) -> Result<()> {
    println!("Cleaned up: no namespace and no interface is left.");
    if failures > 0 {
        bail!("{failures} of the demo's expectations do not hold");
    }
    Ok(())
}

/// Builds a network, and measures in it.
fn show(binary: &Path, options: &Options, seconds: u32) -> Result<(Network, Results)> {
    let mut progress = Progress::new(4 + 6 * Family::ALL.len());
    progress.step("network namespaces, links, border routers");
    let mut network = Network::build(binary, options)?;
    progress.step("gateways");
    network.start_gateways()?;
    progress.step("web and measurement servers");
    let page = page::serve(&network.b.client, 80)?;
    let log = network.folder().join("iperf3.log");
    let _server = iperf::serve(&network.b.client, &log)?;
    let mut results = Results::default();
    for family in Family::ALL {
        let measured = measure(&network, family, seconds, &page, &mut progress)?;
        results.families.push(measured);
    }
    progress.step("counters of the gateways");
    results.gateways = [network.a.status()?, network.b.status()?].into();
    progress.done();
    Ok((network, results))
}

const TWO_ASES: &str = "
           AS 1-ff00:0:110                                    AS 1-ff00:0:111

  client-a ───── gateway-a ───── router-a ═════ router-b ───── gateway-b ───── client-b
       192.168.10.0/24     10.10.0.0/24  10.99.0.0/24  10.11.0.0/24     192.168.11.0/24
       fd00:10::/64                                                     fd00:11::/64
          plain IP           SIG frames in SCION over UDP                  plain IP
";

const THREE_ASES: &str = "
         AS 1-ff00:0:110          core AS 1-ff00:0:112           AS 1-ff00:0:111

  client-a ─── gateway-a ─── router-a ═════ router-c ═════ router-b ─── gateway-b ─── client-b
                                  10.99.0.0/24  10.98.0.0/24
";

/// Builds the gateway and returns its program.
pub(crate) fn build() -> Result<PathBuf> {
    println!("building the gateway");
    shell::run(testbed::cargo().current_dir(shell::root()).args([
        "build",
        "--quiet",
        "--release",
        "--package",
        "sig-userspace",
        "--bin",
        "sig",
    ]))?;
    Ok(shell::target_dir().join("release/sig"))
}

fn options(arguments: &Arguments, shown: Shown) -> Options {
    let (underlay, largest) = match shown {
        Shown::Ipv6 => (Underlay::V6, 1452),
        Shown::Ipv4 | Shown::Crossing => (Underlay::V4, 1472),
    };
    let route = match shown {
        Shown::Crossing => Route::Crossing,
        Shown::Ipv4 | Shown::Ipv6 => Route::Direct,
    };
    Options {
        underlay,
        route,
        path_mtu: arguments.path_mtu.unwrap_or(largest).min(largest),
        dataplane: arguments.dataplane.join("\n"),
        ..Options::default()
    }
}

/// Everything that is shown with one address family.
fn measure(
    network: &Network,
    family: Family,
    seconds: u32,
    page: &page::Page,
    progress: &mut Progress,
) -> Result<FamilyResults> {
    let name = match family {
        Family::V4 => "IPv4",
        Family::V6 => "IPv6",
    };
    let (from, to) = (&network.a.client, network.b.client_ip(family));
    let counters = |site: &testbed::Site| -> Result<(u64, u64)> {
        let status = site.status()?;
        Ok((status.counters.frames_sent, status.frames_discarded()))
    };
    let before = [counters(&network.a)?, counters(&network.b)?];

    progress.step(&format!("{name}: ping of 64, 1472 and 8972 bytes"));
    let ping = testbed::ping(from, to, 50, PING_SIZE, PING_INTERVAL)?;
    let (mut sent, mut received) = (ping.sent, ping.received);
    for size in LARGE_PINGS {
        let large = testbed::ping(from, to, 20, size, PING_INTERVAL)?;
        sent += large.sent;
        received += large.received;
    }
    let all = testbed::Ping {
        sent,
        received,
        ..ping
    };

    progress.step(&format!("{name}: a web page with curl"));
    let page_bytes = page.fetch(from, to, "/")?;
    let mut throughput = |protocol, direction| {
        progress.step(&format!("{name}: iperf3 {protocol}, {direction}"));
        iperf::measure(from, to, protocol, direction, seconds)
    };
    let tcp = throughput(TCP, Direction::Forward)?;
    let tcp_reverse = throughput(TCP, Direction::Reverse)?;
    let udp = throughput(UDP, Direction::Forward)?;
    let udp_reverse = throughput(UDP, Direction::Reverse)?;

    let after = [counters(&network.a)?, counters(&network.b)?];
    let difference = |pick: fn(&(u64, u64)) -> u64| -> u64 {
        after.iter().map(pick).sum::<u64>() - before.iter().map(pick).sum::<u64>()
    };
    Ok(FamilyResults {
        family: family.name(),
        ping_loss_percent: all.loss_percent(),
        ping_rtt_us: ping.rtt.map(|rtt| rtt.as_secs_f64() * 1e6),
        page_bytes,
        tcp_mbit_s: tcp.mbit_s,
        tcp_reverse_mbit_s: tcp_reverse.mbit_s,
        udp_pps: udp.pps,
        udp_mbit_s: udp.mbit_s,
        udp_loss_percent: udp.loss_percent,
        udp_reverse_pps: udp_reverse.pps,
        udp_reverse_mbit_s: udp_reverse.mbit_s,
        udp_reverse_loss_percent: udp_reverse.loss_percent,
        frames_sent: difference(|counters| counters.0),
        frames_discarded: difference(|counters| counters.1),
    })
}

fn look_around(network: &Network, binary: &Path) {
    let inside =
        |netns: &Netns, command: &str| format!("  ip netns exec {} {command}", netns.name());
    let status = |site: &testbed::Site| {
        format!(
            "  {} status --config {}",
            binary.display(),
            site.config_file().display()
        )
    };
    println!("\nThe network is still there. To look around:");
    for family in Family::ALL {
        println!(
            "{}",
            inside(
                &network.a.client,
                &format!("ping {}", network.b.client_ip(family))
            )
        );
    }
    let page = format!("curl http://{}/", network.b.client_ip(Family::V4));
    println!("{}", inside(&network.a.client, &page));
    println!("{}", inside(&network.a.router, "tcpdump -n -i inside udp"));
    println!("{}", inside(&network.a.gateway, "ip route"));
    println!("{}\n{}", status(&network.a), status(&network.b));
    for router in network.routers() {
        println!(
            "  {} router status --config {}",
            binary.display(),
            router.config_file().display()
        );
    }
    println!("  configurations and logs: {}", network.folder().display());
    println!("To end it: Ctrl-C here, or `cargo xtask demo --down` elsewhere.");
}

/// Ends demos that run, and removes what dead ones left.
fn down() -> Result<()> {
    let is_demo = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "xtask")
    };
    let demos: Vec<u32> = testbed::sweep().into_iter().filter(is_demo).collect();
    for pid in &demos {
        println!("ending demo {pid}");
        shell::run(Command::new("kill").args(["-TERM", &pid.to_string()]))?;
    }
    testbed::wait_until("the end of the demos", Duration::from_secs(20), || {
        Ok(testbed::sweep().iter().all(|pid| !demos.contains(pid)))
    })?;
    println!("no demo is running");
    Ok(())
}

/// Interfaces of the machine, outside all network namespaces.
fn interfaces() -> Result<Vec<String>> {
    let list = shell::capture(Command::new("ip").args(["-brief", "link"]))?;
    let name = |line: &str| line.split_whitespace().next().map(str::to_owned);
    Ok(list.lines().filter_map(name).collect())
}

/// Waits until nothing of ours is left: no namespace, no interface that was not there `before`.
/// Namespaces of others may come and go at the same time.
fn clean(before: &[String]) -> Result<()> {
    let gone = || {
        let left = testbed::left_by(std::process::id())?;
        let new = interfaces()?.iter().any(|name| !before.contains(name));
        Ok(left.is_empty() && !new)
    };
    testbed::wait_until("the removal of the network", Duration::from_secs(5), gone).map(drop)
}
