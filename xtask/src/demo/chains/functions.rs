//! What stands beside gateway A: a firewall, a router that only counts, and an intrusion detection system.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};
use testbed::{Netns, Process};

use super::super::tools::Tool;

/// What the intrusion detection system looks for in the first line of a request.
pub(super) const MARKER: &str = "sig-demo-marker";

/// A router of the kernel between two devices of the gateway. It knows nothing of segment routing.
pub(super) struct Function {
    pub(super) netns: Netns,
    nets: [u8; 2],
}

impl Function {
    /// Between `NAME-in` and `NAME-out` of the gateway, in the networks 10.77.x.0/24 with these numbers.
    pub(super) fn new(gateway: &Netns, name: &str, nets: [u8; 2]) -> Result<Self> {
        let netns = Netns::new(name)?;
        netns.set_sysctls(&[("net/ipv4/ip_forward", "1")])?;
        for (device, net) in ["in", "out"].into_iter().zip(nets) {
            wire(gateway, &format!("{name}-{device}"), &netns, device)?;
            gateway.ip(&format!("address add 10.77.{net}.1/24 dev {name}-{device}"))?;
            netns.ip(&format!("address add 10.77.{net}.2/24 dev {device}"))?;
        }
        netns.ip("rule add iif in table 1\nrule add iif out table 2")?;
        let function = Self { netns, nets };
        function.routes()?;
        Ok(function)
    }

    /// What comes by one device leaves by the other.
    fn routes(&self) -> Result<()> {
        let [to_in, to_out] = self.nets;
        let routes = format!(
            "route replace default via 10.77.{to_out}.1 table 1\nroute replace default via 10.77.{to_in}.1 table 2"
        );
        self.netns.ip(&routes).map(drop)
    }

    /// Its device is down: it does nothing any more.
    pub(super) fn kill(&self) -> Result<()> {
        self.netns.ip("link set in down").map(drop)
    }

    /// It is back.
    pub(super) fn revive(&self) -> Result<()> {
        self.netns.ip("link set in up")?;
        // The route went with the device.
        self.routes()
    }
}

/// Joins a device of the gateway with one of a function.
fn wire(gateway: &Netns, near: &str, function: &Netns, far: &str) -> Result<()> {
    gateway.ip(&format!(
        "link add {near} type veth peer name {far} netns {}\nlink set {near} up",
        function.name()
    ))?;
    function.ip(&format!("link set {far} up"))?;
    // XDP programs can send to a veth device whose peer has GRO, and they send checksums as they are.
    function.exec(&format!("ethtool -K {far} gro off"))?;
    function
        .exec(&format!("ethtool -K {far} gro on tx off"))
        .map(drop)
}

/// Lets everything pass but connections to one host.
pub(super) struct Firewall {
    pub(super) function: Function,
    /// Without nftables a route does what a rule would do.
    nft: Option<Tool>,
}

impl Firewall {
    pub(super) fn new(
        gateway: &Netns,
        nets: [u8; 2],
        forbidden: &str,
        folder: &Path,
    ) -> Result<Self> {
        let function = Function::new(gateway, "fw", nets)?;
        let rules = folder.join("firewall.nft");
        let text = format!(
            "table ip firewall {{\n\
             counter forbidden {{ }}\n\
             chain forward {{\n\
             type filter hook forward priority 0; policy drop;\n\
             ip daddr {forbidden} counter name forbidden drop\n\
             ct state established,related accept\n\
             ct state new tcp dport 80 accept\n}}\n}}\n"
        );
        fs::write(&rules, text)?;
        let nft = Tool::provide("nft", "nftables").and_then(|nft| {
            run(&nft, &function.netns, &["-f", &rules.display().to_string()])?;
            Ok(nft)
        });
        let nft = match nft {
            Ok(nft) => {
                println!("firewall: stateful rules of nftables");
                Some(nft)
            }
            Err(error) => {
                println!("firewall: a prohibit route in place of rules of nftables ({error:#})");
                let route = format!("route add prohibit {forbidden} table 1");
                function.netns.ip(&route)?;
                None
            }
        };
        Ok(Self { function, nft })
    }

    /// Packets to the forbidden host that its rule dropped.
    pub(super) fn dropped(&self) -> Result<Option<u64>> {
        let Some(nft) = &self.nft else {
            return Ok(None);
        };
        let listed = run(
            nft,
            &self.function.netns,
            &["list", "counter", "ip", "firewall", "forbidden"],
        )?;
        let mut words = listed
            .split_whitespace()
            .skip_while(|word| *word != "packets");
        let count = words.nth(1).and_then(|word| word.parse().ok());
        Ok(Some(count.context("a counter of nftables")?))
    }
}

fn run(tool: &Tool, netns: &Netns, arguments: &[&str]) -> Result<String> {
    crate::shell::capture(tool.command(netns).args(arguments))
}

/// Sees copies of packets, and has a line in a file for each request with the marker.
pub(super) struct Ids {
    // Ends before its namespace goes.
    process: Process,
    alerts: PathBuf,
    /// What it is.
    pub(super) name: &'static str,
    _netns: Netns,
}

impl Ids {
    /// Behind `ids0` of the gateway.
    pub(super) fn new(gateway: &Netns, folder: &Path) -> Result<Self> {
        let netns = Netns::new("ids")?;
        wire(gateway, "ids0", &netns, "copies")?;
        let (process, alerts, name) = match suricata(&netns, folder) {
            Ok((process, alerts)) => (process, alerts, "suricata"),
            Err(error) => {
                println!("IDS: tcpdump in place of suricata ({error:#})");
                let process = tcpdump(&netns, folder)?;
                let alerts = process.log_file().to_owned();
                (process, alerts, "tcpdump")
            }
        };
        Ok(Self {
            process,
            alerts,
            name,
            _netns: netns,
        })
    }

    /// Requests with the marker that it saw.
    pub(super) fn alerts(&mut self) -> Result<u64> {
        if let Some(status) = self.process.ended()? {
            anyhow::bail!("{} ended ({status}):\n{}", self.name, self.process.log());
        }
        let text = fs::read(&self.alerts)?;
        let text = String::from_utf8_lossy(&text);
        Ok(text.lines().filter(|line| line.contains(MARKER)).count() as u64)
    }
}

fn suricata(netns: &Netns, folder: &Path) -> Result<(Process, PathBuf)> {
    let tool = Tool::provide("suricata", "suricata")?;
    let (config, rules) = (folder.join("suricata.yaml"), folder.join("suricata.rules"));
    // Else it switches GRO off, and nothing comes any more.
    fs::write(
        &config,
        "%YAML 1.1\n---\ncapture: {disable-offloading: no}\noutputs: [fast: {enabled: yes, filename: alerts}]\napp-layer: {protocols: {http: {enabled: yes}}}\n",
    )?;
    let rule = format!(
        "alert http any any -> any any (msg:\"{MARKER}\"; http.uri; content:\"{MARKER}\"; sid:1; rev:1;)\n"
    );
    fs::write(&rules, rule)?;
    let mut command = tool.command(netns);
    command
        .args(["-k", "none", "--runmode", "single", "--af-packet=copies"])
        .arg("-c")
        .arg(&config)
        .arg("-S")
        .arg(&rules)
        .arg("-l")
        .arg(folder);
    let mut process = Process::spawn(command, &folder.join("suricata.log"))?;
    process.wait_for("started", Duration::from_secs(20))?;
    println!("IDS: suricata with one rule of its own");
    Ok((process, folder.join("alerts")))
}

/// Writes a line for each packet of clients, with the first line of a request.
fn tcpdump(netns: &Netns, folder: &Path) -> Result<Process> {
    let mut command = netns.command("tcpdump");
    command
        .args(["-n", "-l", "--immediate-mode", "-i", "copies"])
        .args(["tcp", "dst", "port", "80"]);
    let mut process = Process::spawn(command, &folder.join("tcpdump.log"))?;
    process.wait_for("listening", Duration::from_secs(5))?;
    Ok(process)
}
