//! What runs inside an emulated machine: the network of the end-to-end tests over its cards, and a scenario after the other.

use std::{fmt, fs, net::IpAddr, path::Path, process::Command, thread, time::Duration};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum as _;
use testbed::{
    Cables, Family, Netns, Network, Options,
    iperf::{self, Protocol},
    ping, spare_cable, wait_until,
};

/// Marks the lines of the console that hold a result.
const MARK: &str = "RESULT\t";

/// For pings. Emulation is slow.
const PACE: Duration = Duration::from_millis(50);
/// How long traffic may take to come back.
const RETURN: Duration = Duration::from_secs(30);
/// Payloads of pings: small, nearly a frame, in several frames.
const SIZES: [u32; 3] = [56, 1400, 8000];

/// What is tried, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Scenario {
    /// Pings of both families and several sizes, TCP both ways
    Traffic,
    /// Numbered datagrams of eight flows, both ways: none out of order
    Order,
    /// Both workers get packets
    Queues,
    /// Most packets take the fast path in the kernel
    FastPath,
    /// The routers forward in XDP
    Router,
    /// The underlay loses its link for two seconds
    Link,
    /// A gateway is killed: nothing stays, and another one takes over
    Kill,
    /// The gateways insist on zero copy
    ZeroCopy,
    /// The gateways send and receive by UDP sockets and a TUN device
    Sockets,
    /// LANs with an MTU of 9000 bytes, and frames of 8900
    Jumbo,
    /// Gateway A has its underlay and its LAN on two VLANs of one card
    Trunk,
    /// The underlay of gateway A is a bond, which loses the port that it uses
    Bond,
}

/// Arguments inside the machine.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// What to try
    #[arg(long, value_delimiter = ',')]
    scenario: Vec<Scenario>,
}

/// Names of scenarios for [`Arguments`]; all when none is given.
pub(super) fn names(scenarios: &[Scenario]) -> String {
    let all = Scenario::value_variants();
    let chosen = if scenarios.is_empty() { all } else { scenarios };
    let names: Vec<_> = chosen.iter().map(Scenario::to_string).collect();
    names.join(",")
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.to_possible_value();
        f.write_str(name.as_ref().map_or("", |value| value.get_name()))
    }
}

/// What came of a scenario.
pub(super) struct Outcome {
    scenario: String,
    /// Whether all was as it should be.
    pub(super) passed: bool,
    detail: String,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let passed = if self.passed { "passed" } else { "FAILED" };
        write!(f, "{:<10} {passed}  {}", self.scenario, self.detail)
    }
}

/// Reads the results in what a machine printed.
pub(super) fn results(printed: &str) -> Vec<Outcome> {
    let lines = printed.lines().filter_map(|line| line.split_once(MARK));
    lines
        .filter_map(|(_, line)| {
            let mut parts = line.splitn(3, '\t');
            Some(Outcome {
                scenario: parts.next()?.to_owned(),
                passed: parts.next()? == "passed",
                detail: parts.next()?.to_owned(),
            })
        })
        .collect()
}

/// Runs the task, inside the machine.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let options = Options {
        cables: Cables::Cards,
        dataplane: fs::read_to_string("/dataplane")?,
        ..Options::default()
    };
    let jumbo_options = Options {
        path_mtu: 8900,
        lan_mtu: 9000,
        tunnel_mtu: 9000,
        ..options.clone()
    };
    let mut running = None;
    for scenario in &arguments.scenario {
        let options = match scenario {
            Scenario::Jumbo => &jumbo_options,
            _ => &options,
        };
        // Those that build it anew leave it so.
        if matches!(scenario, Scenario::Jumbo | Scenario::Trunk | Scenario::Bond) {
            running = None;
        }
        let network = match &mut running {
            Some(network) => network,
            None => match start(options) {
                Ok(network) => {
                    report("start", &ports(&network));
                    running.insert(network)
                }
                Err(error) => {
                    report(&scenario.to_string(), &refused(error, "MTU"));
                    continue;
                }
            },
        };
        let result = try_one(*scenario, network);
        for site in [&mut network.a, &mut network.b] {
            let log = site.process().map(|process| process.log());
            println!("log of {}:\n{}", site.isd_as(), log.unwrap_or_default());
        }
        if result.is_err() {
            for router in network.routers() {
                let mut command = Command::new("/bin/sig");
                command
                    .args(["router", "status", "--config"])
                    .arg(router.config_file());
                let text = command
                    .output()
                    .map(|output| output.stdout)
                    .unwrap_or_default();
                println!("{}", String::from_utf8_lossy(&text));
            }
            println!("{:?}", network.a.status());
        }
        report(&scenario.to_string(), &result);
    }
    Ok(())
}

fn report(scenario: &str, result: &Result<String>) {
    let (passed, detail) = match result {
        Ok(detail) => ("passed", detail.clone()),
        Err(error) => ("failed", format!("{error:#}")),
    };
    if result.is_err() {
        println!("{detail}");
    }
    let detail = detail.lines().next().unwrap_or_default();
    println!("{MARK}{scenario}\t{passed}\t{detail}");
}

fn start(options: &Options) -> Result<Network> {
    let mut network = Network::build(Path::new("/bin/sig"), options)?;
    for site in [&network.a, &network.b] {
        pings(&site.gateway, site.router_inside().ip(), 3, 56)?;
    }
    let started = network.start_gateways();
    if started.is_err() {
        for site in [&network.a, &network.b] {
            for (netns, line) in [
                (&site.gateway, "ip -s link"),
                (&site.gateway, "ip neigh"),
                (&site.router, "ip -s link"),
                (&site.router, "ip neigh"),
                (&site.gateway, "ethtool -S underlay"),
                (&site.router, "ethtool -S inside"),
            ] {
                let text = netns
                    .exec(line)
                    .unwrap_or_else(|error| format!("{error:#}"));
                println!("{}: {line}\n{text}", netns.name());
            }
            let to = site.router_inside().ip();
            println!("{:?}", ping(&site.gateway, to, 3, 56, PACE));
        }
    }
    started?;
    Ok(network)
}

/// How packets reach the gateway.
fn ports(network: &Network) -> Result<String> {
    let status = network.a.status()?;
    let mut modes: Vec<_> = status
        .ports
        .iter()
        .filter(|port| port.role != "tunnel")
        .map(|port| {
            let copy = if port.zero_copy { "zero copy" } else { "copy" };
            format!("{} {}, {copy}", port.interface, port.mode)
        })
        .collect();
    modes.sort();
    Ok(modes.join("; "))
}

fn try_one(scenario: Scenario, network: &mut Network) -> Result<String> {
    match scenario {
        Scenario::Traffic => traffic(network),
        Scenario::Order => order(network),
        Scenario::Queues => queues(network),
        Scenario::FastPath => fast_path(network),
        Scenario::Router => router(network),
        Scenario::Link => link(network),
        Scenario::Kill => kill(network),
        Scenario::ZeroCopy => zero_copy(network),
        Scenario::Sockets => sockets(network),
        Scenario::Jumbo => jumbo(network),
        Scenario::Trunk => trunk(network),
        Scenario::Bond => bond(network),
    }
}

fn pings(from: &Netns, to: IpAddr, count: u32, size: u32) -> Result<()> {
    let ping = ping(from, to, count, size, PACE)?;
    ensure!(
        ping.received == ping.sent,
        "{} of {} pings of {size} bytes to {to} were answered",
        ping.received,
        ping.sent
    );
    Ok(())
}

fn traffic(network: &Network) -> Result<String> {
    let (a, b) = (&network.a, &network.b);
    for family in Family::ALL {
        for size in SIZES {
            pings(&a.client, b.client_ip(family), 20, size)?;
        }
    }
    let _server = iperf::serve(&b.client, Path::new("/tmp/iperf3.log"))?;
    let protocol = Protocol::Tcp { segment: None };
    let both = iperf::measure_both(&a.client, b.client_ip(Family::V4), protocol, 3)?;
    let [there, back] = both.map(|way| way.mbit_s);
    ensure!(there > 0.0 && back > 0.0, "TCP: {there} and {back} Mbit/s");
    Ok(format!("120 pings, TCP {there:.0} and {back:.0} Mbit/s"))
}

fn order(network: &Network) -> Result<String> {
    let mut received = 0;
    for (client, server) in [(&network.a, &network.b), (&network.b, &network.a)] {
        let _server = iperf::serve(&server.client, Path::new("/tmp/iperf3.log"))?;
        let flows = iperf::numbered(&client.client, server.client_ip(Family::V4), 8, 300_000, 3)?;
        ensure!(flows.received > 0, "nothing arrived");
        ensure!(
            flows.out_of_order == 0,
            "{} of {} datagrams arrived out of order",
            flows.out_of_order,
            flows.received
        );
        received += flows.received;
    }
    Ok(format!("{received} datagrams"))
}

fn queues(network: &Network) -> Result<String> {
    let before = network.a.status()?;
    let _server = iperf::serve(&network.b.client, Path::new("/tmp/iperf3.log"))?;
    iperf::numbered(
        &network.a.client,
        network.b.client_ip(Family::V4),
        16,
        100_000,
        1,
    )?;
    let after = network.a.status()?;
    let grown: Vec<_> = (before.workers.iter().zip(&after.workers))
        .map(|(before, after)| after.rx_packets - before.rx_packets)
        .collect();
    let text = format!("received by the workers: {grown:?}");
    // What the fast path takes needs no worker.
    let fast = after.fast_path.packets_sent - before.fast_path.packets_sent;
    ensure!(fast > 0 || grown.iter().all(|packets| *packets > 0), text);
    Ok(format!("{text}, by the fast path: {fast}"))
}

fn fast_path(network: &Network) -> Result<String> {
    let before = network.a.status()?;
    pings(&network.a.client, network.b.client_ip(Family::V4), 200, 56)?;
    let after = network.a.status()?;
    let fast = |from: u64, to: u64| to.saturating_sub(from);
    let sent = fast(before.fast_path.packets_sent, after.fast_path.packets_sent);
    let delivered = fast(
        before.fast_path.packets_delivered,
        after.fast_path.packets_delivered,
    );
    let text = format!("sent {sent}, delivered {delivered} of 200");
    if after.fast_path.on && after.fast_path.problems.is_empty() {
        ensure!(sent >= 150 && delivered >= 150, text);
        return Ok(text);
    }
    let problems = after.fast_path.problems.join("; ");
    Ok(format!(
        "{text}: {}",
        if after.fast_path.on { &problems } else { "off" }
    ))
}

fn router(network: &Network) -> Result<String> {
    let slow = || -> Result<u64> {
        let mut slow = 0;
        for router in network.routers() {
            let status = router.status()?;
            slow += status
                .interfaces
                .iter()
                .flat_map(|interface| &interface.reasons)
                .map(|reason| reason.slow)
                .sum::<u64>();
        }
        Ok(slow)
    };
    let before = slow()?;
    pings(
        &network.a.client,
        network.b.client_ip(Family::V4),
        200,
        1000,
    )?;
    let slow = slow()? - before;
    Ok(format!("{slow} packets of 200 pings took the slow path"))
}

/// Waits until pings come through again, and then for twenty in a row.
fn comes_back(network: &Network) -> Result<Duration> {
    let to = network.b.client_ip(Family::V4);
    let waited = wait_until("traffic comes back", RETURN, || {
        Ok(ping(&network.a.client, to, 1, 56, PACE)?.received == 1)
    })?;
    pings(&network.a.client, to, 20, 56)?;
    Ok(waited)
}

fn link(network: &Network) -> Result<String> {
    let gateway = &network.a.gateway;
    gateway.ip("link set underlay down")?;
    thread::sleep(Duration::from_secs(2));
    gateway.ip("link set underlay up")?;
    let waited = comes_back(network)?;
    Ok(format!("traffic after {:.1} s", waited.as_secs_f64()))
}

fn kill(network: &mut Network) -> Result<String> {
    network.a.kill_gateway()?;
    let site = &network.a;
    wait_until("the tunnel device goes", RETURN, || {
        Ok(!site.gateway.interfaces()?.iter().any(|name| name == "sig"))
    })?;
    let links = site.gateway.ip("link show")?;
    ensure!(!links.contains("xdp"), "an XDP program stayed: {links}");
    network.a.start_gateway()?;
    let waited = comes_back(network)?;
    Ok(format!(
        "traffic {:.1} s after the new gateway was ready",
        waited.as_secs_f64()
    ))
}

fn zero_copy(network: &mut Network) -> Result<String> {
    const REQUIRE: &str = "zero_copy = \"require\"\n";
    restart(network, |text| {
        text.replace("[dataplane]\n", &format!("[dataplane]\n{REQUIRE}"))
    })?;
    let ready = network.a.wait_ready().and_then(|()| network.b.wait_ready());
    let result = match ready {
        Ok(()) => ports(network).and_then(|ports| {
            comes_back(network)?;
            Ok(format!("{ports}; {}", traffic(network)?))
        }),
        Err(error) => refused(error, "zero copy"),
    };
    restart(network, |text| text.replace(REQUIRE, ""))?;
    network.a.wait_ready()?;
    network.b.wait_ready()?;
    result
}

/// What a gateway refuses in plain words, with `words` in them, is a result.
fn refused(error: anyhow::Error, words: &str) -> Result<String> {
    let log = format!("{error:#}");
    let refused = |line: &&str| line.starts_with("sig: ") && line.contains(words);
    match log.lines().find(refused) {
        Some(line) => Ok(format!("refused: {line}")),
        None => Err(error),
    }
}

fn sockets(network: &mut Network) -> Result<String> {
    const SOCKETS: &str = "underlay_port = \"socket\"\n";
    const TUN: &str = "device = \"tun\"\n";
    restart(network, |text| {
        text.replace("[dataplane]\n", &format!("[dataplane]\n{SOCKETS}"))
            .replace("[tunnel]\n", &format!("[tunnel]\n{TUN}"))
    })?;
    network.a.wait_ready()?;
    network.b.wait_ready()?;
    comes_back(network)?;
    let result = traffic(network);
    restart(network, |text| text.replace(SOCKETS, "").replace(TUN, ""))?;
    network.a.wait_ready()?;
    network.b.wait_ready()?;
    result
}

fn jumbo(network: &Network) -> Result<String> {
    for size in [4000, 8900, 20_000] {
        pings(&network.a.client, network.b.client_ip(Family::V4), 20, size)?;
    }
    traffic(network)
}

/// The switch is the host of router A: its card `inside` is the trunk, and it has a veth pair to the client.
fn trunk(network: &mut Network) -> Result<String> {
    let site = &network.a;
    let [gateway, router] = [site.data_addr().ip(), site.router_inside().ip()];
    // Tags must be in the frames where XDP programs are on the card below. Cards without this setting have them there; of its own
    // card, the gateway takes care.
    let _ = site.router.exec("ethtool -K inside rxvlan off");
    let before = strips_tags(&site.gateway)?;
    let ways = |network: &Network| -> Result<Vec<(String, bool)>> {
        let ports = network.a.status()?.ports.into_iter();
        let ports = ports.filter(|port| port.role != "tunnel");
        Ok(ports.map(|port| (port.mode, port.zero_copy)).collect())
    };
    let usual = ways(network)?;
    site.router.ip(&format!(
        "link add inside.10 link inside type vlan id 10\nlink add inside.20 link inside type vlan id 20\n\
         link add lans type bridge\nlink set inside.20 master lans up\nlink set lans up\n\
         link add to-client type veth peer name trunk-lan netns {}\nlink set to-client master lans up\n\
         address del {router}/24 dev inside\naddress add {router}/24 dev inside.10\nlink set inside.10 up",
        site.client.name()
    ))?;
    site.gateway.ip(&format!(
        "link add underlay.10 link underlay type vlan id 10\nlink add underlay.20 link underlay type vlan id 20\n\
         address del {gateway}/24 dev underlay\naddress add {gateway}/24 dev underlay.10\n\
         link set underlay.10 up\nlink set underlay.20 up"
    ))?;
    for family in Family::ALL {
        let (client, gateway) = (site.client_ip(family), site.gateway_ip(family));
        let length = if family == Family::V4 { 24 } else { 64 };
        site.gateway.ip(&format!(
            "address del {gateway}/{length} dev lan\naddress add {gateway}/{length} dev underlay.20 nodad"
        ))?;
        site.client.ip(&format!(
            "link set trunk-lan up\naddress del {client}/{length} dev lan\n\
             address add {client}/{length} dev trunk-lan nodad\nroute replace default via {gateway}"
        ))?;
    }
    restart(network, |text| {
        if !text.contains("gateway-a") {
            return text.to_owned();
        }
        text.replace("underlay = \"underlay\"", "underlay = \"underlay.10\"")
            .replace("lan = [\"lan\"]", "lan = [\"underlay.20\"]")
    })?;
    network.a.wait_ready()?;
    network.b.wait_ready()?;
    comes_back(network)?;
    let modes = ports(network)?;
    ensure!(ways(network)? == usual, "{modes}; without VLANs, {usual:?}");
    let is_native = usual.iter().all(|(mode, _)| mode == "native");
    ensure!(
        !is_native || !strips_tags(&network.a.gateway)?,
        "the card strips tags"
    );
    let traffic = traffic(network)?;
    let fast = fast_path(network)?;
    // A VLAN device that is down takes part in nothing, though its frames reach the program on the card.
    for device in ["underlay.20", "underlay.10"] {
        let site = &network.a;
        site.gateway.ip(&format!("link set {device} down"))?;
        thread::sleep(Duration::from_millis(500));
        let ping = ping(&site.client, network.b.client_ip(Family::V4), 3, 56, PACE)?;
        ensure!(
            ping.received == 0,
            "{device} is down, and pings are answered"
        );
        site.gateway.ip(&format!("link set {device} up"))?;
        // The addresses of IPv6 leave with it.
        let back = match device {
            "underlay.20" => format!(
                "address replace {}/64 dev underlay.20 nodad",
                site.gateway_ip(Family::V6)
            ),
            _ => "link set underlay.10 up".to_owned(),
        };
        site.gateway.ip(&back)?;
        comes_back(network)?;
    }
    pings(&network.a.client, network.b.client_ip(Family::V6), 20, 1400)?;
    // A LAN that is deleted comes back, to the queues that the underlay has kept.
    let site = &network.a;
    site.gateway.ip("link del underlay.20")?;
    thread::sleep(Duration::from_secs(1));
    site.gateway.ip(&format!(
        "link add underlay.20 link underlay type vlan id 20\nlink set underlay.20 up\n\
         address add {}/24 dev underlay.20\naddress add {}/64 dev underlay.20 nodad",
        site.gateway_ip(Family::V4),
        site.gateway_ip(Family::V6)
    ))?;
    comes_back(network)?;
    ensure!(ways(network)? == usual, "back as {}", ports(network)?);
    network.a.stop_gateway()?;
    let after = strips_tags(&network.a.gateway)?;
    ensure!(after == before, "rxvlan was {before}, and is {after}");
    network.a.start_gateway()?;
    comes_back(network)?;
    Ok(format!("{modes}; {traffic}; fast path: {fast}"))
}

/// Whether the card takes VLAN tags out of what it receives.
fn strips_tags(netns: &Netns) -> Result<bool> {
    let features = netns.exec("ethtool -k underlay")?;
    Ok(features.contains("rx-vlan-offload: on"))
}

/// A switch stands between the bond, of a veth device and a card, and the router.
fn bond(network: &mut Network) -> Result<String> {
    let switch = Netns::new("switch")?;
    let site = &network.a;
    let gateway = site.data_addr().ip();
    spare_cable([(&site.gateway, "second"), (&switch, "port2")])?;
    site.gateway.ip(&format!(
        "address del {gateway}/24 dev underlay\nlink set underlay netns {}",
        switch.name()
    ))?;
    switch.ip(&format!(
        "link add switch type bridge\nlink set switch up\nlink set underlay master switch up\n\
         link set port2 master switch up\nlink add port1 type veth peer name first netns {}\n\
         link set port1 master switch up",
        site.gateway.name()
    ))?;
    site.gateway.ip(&format!(
        "link add bond0 type bond mode active-backup miimon 50\nlink set second down\n\
         link set first master bond0\nlink set second master bond0\nlink set bond0 up\n\
         address add {gateway}/24 dev bond0"
    ))?;
    restart(network, |text| {
        if !text.contains("gateway-a") {
            return text.to_owned();
        }
        text.replace("underlay = \"underlay\"", "underlay = \"bond0\"")
    })?;
    network.a.wait_ready()?;
    network.b.wait_ready()?;
    comes_back(network)?;
    let mode = ports(network)?;
    let site = &network.a;
    // While it sends: the port in use loses its link.
    let to = network.b.client_ip(Family::V4);
    let lost = thread::scope(|scope| -> Result<u32> {
        let pings = scope.spawn(|| ping(&site.client, to, 100, 200, PACE));
        thread::sleep(Duration::from_secs(1));
        site.gateway.ip("link set first down")?;
        let ping = pings
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(ping.sent - ping.received)
    })?;
    ensure!(
        lost < 50,
        "{lost} of 100 pings were lost when a port lost its link"
    );
    comes_back(network)?;
    Ok(format!("{lost} of 100 pings lost; {mode}"))
}

/// Starts the gateways anew, with another configuration.
fn restart(network: &mut Network, change: impl Fn(&str) -> String) -> Result<()> {
    for site in [&mut network.a, &mut network.b] {
        let file = site.config_file();
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        fs::write(&file, change(&text))?;
        // It may have ended by itself.
        let _ = site.kill_gateway();
        site.spawn_gateway()?;
    }
    Ok(())
}
