//! `cargo xtask demo --chains`: packets of some classes pass functions beside gateway A. Functions fail, and come back.

mod functions;

use std::{
    fmt, fs,
    io::{self, Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use testbed::{Family, Netns, Network, Options, wait_until};

use super::page::{self, Page};
use crate::shell;
use functions::{Firewall, Function, Ids, MARKER};

/// The file of rules of gateway A.
const RULES: &str = include_str!("chains.toml");
/// A second address of client B. The firewall lets nobody connect to it.
const FORBIDDEN: &str = "192.168.11.3";
/// All steps together; they take some 20 seconds.
const LIMIT: Duration = Duration::from_secs(110);
/// How long a failure of a function may take to be noticed.
const PATIENCE: Duration = Duration::from_secs(15);
/// Requests and lines of each kind in a step.
const TRIES: u32 = 3;

const PICTURE: &str = "
                      web: a copy ┌──────── IDS
                                  │ ids0
  client-a ─────────────────── gateway-a ═══════ SCION ═══════ gateway-b ────────── client-b
               web, both ways  │      │  metrics, one way                    80 web, 8080 metrics, 22 ssh
                fw-in, fw-out  │      │  meter-in, meter-out
                            firewall  meter                        ssh, and all else: straight through
                    on failure: drop  bypass
";

/// The network with all that stands beside it.
pub(super) struct Lab {
    ids: Ids,
    firewall: Firewall,
    meter: Function,
    web: Page,
    metrics: Page,
    ssh: TcpStream,
    binary: PathBuf,
    /// Last: functions end before the gateway's host goes.
    pub(super) network: Network,
}

impl Lab {
    /// Builds it, and waits until traffic flows.
    pub(super) fn build(binary: &Path, options: &Options) -> Result<Self> {
        println!("\nRules and service chains at one of two sites\n{PICTURE}");
        let mut network = Network::build(binary, options)?;
        let (folder, gateway) = (network.folder(), &network.a.gateway);
        let firewall = Firewall::new(gateway, [1, 2], FORBIDDEN, folder)?;
        let meter = Function::new(gateway, "meter", [3, 4])?;
        let ids = Ids::new(gateway, folder)?;
        configure(&network)?;
        let server = &network.b.client;
        server.ip(&format!("address add {FORBIDDEN}/24 dev lan"))?;
        let web = page::serve(server, 80)?;
        let metrics = page::serve(server, 8080)?;
        echo(server)?;
        network.start_gateways()?;
        let to = SocketAddr::new(network.b.client_ip(Family::V4), 22);
        let ssh = network
            .a
            .client
            .run(|| TcpStream::connect_timeout(&to, Duration::from_secs(5)))?
            .context("port 22 of client B")?;
        ssh.set_read_timeout(Some(Duration::from_secs(3)))?;
        Ok(Self {
            ids,
            firewall,
            meter,
            web,
            metrics,
            ssh,
            binary: binary.to_owned(),
            network,
        })
    }

    /// Shows all steps. What does not hold that should, as sentences.
    pub(super) fn show(&mut self) -> Result<Vec<String>> {
        let _limit = testbed::time_limit("the demo of chains", LIMIT);
        let mut up = Up {
            firewall: true,
            meter: true,
        };
        let mut failures = self.step("1. All functions are there", up)?;

        self.firewall.function.kill()?;
        up.firewall = false;
        let title = "2. The firewall is killed: what has to pass it is dropped, all else goes on";
        failures.extend(self.step(title, up)?);

        self.meter.kill()?;
        up.meter = false;
        let title = "3. The meter is killed, too: its packets go on without it";
        failures.extend(self.step(title, up)?);

        self.firewall.function.revive()?;
        self.meter.revive()?;
        up = Up {
            firewall: true,
            meter: true,
        };
        failures.extend(self.step("4. Both are back", up)?);
        Ok(failures)
    }

    /// Some traffic of each kind, while these functions are up.
    fn step(&mut self, title: &str, up: Up) -> Result<Vec<String>> {
        println!("\n{title}");
        wait_until("the gateway notices", PATIENCE, || {
            let functions = self.counters()?.node.functions;
            let is_right = |of: &FunctionCounters| {
                let wanted = if of.name == "meter" {
                    up.meter
                } else {
                    up.firewall
                };
                of.is_up == wanted
            };
            Ok(functions.iter().all(is_right))
        })?;
        let before = self.counters()?;
        let (client, server) = (&self.network.a.client, self.network.b.client_ip(Family::V4));
        let marked = format!("/?{MARKER}");
        let seen = Seen {
            web: tries(|| self.web.fetch(client, server, &marked).is_ok()),
            forbidden: self
                .web
                .fetch(client, FORBIDDEN.parse::<IpAddr>()?, "/")
                .is_ok(),
            metrics: tries(|| self.metrics.fetch(client, server, "/").is_ok()),
            ssh: tries(|| say(&self.ssh).is_ok()),
        };
        // The IDS needs a moment for the last copy.
        let alerts = u64::from(seen.web);
        let _ = wait_until("alerts", Duration::from_secs(3), || {
            Ok(self.ids.alerts()? >= before.alerts + alerts)
        });
        let new = self.counters()?.since(&before);
        print!("{new}");
        println!("{:<26}{seen}", "client-a reached");
        let failures = seen.failures(&new, up);
        for failure in &failures {
            eprintln!("FAILED: {failure}");
        }
        Ok(failures)
    }

    /// What gateway, firewall and IDS have counted so far.
    fn counters(&mut self) -> Result<Counters> {
        let document = shell::capture(
            Command::new(&self.binary)
                .args(["chain", "status", "--json", "--config"])
                .arg(self.network.a.config_file()),
        )?;
        Ok(Counters {
            forbidden: self.firewall.dropped()?,
            alerts: self.ids.alerts()?,
            ids: self.ids.name,
            ..serde_json::from_str(&document).context("the document of `sig chain status`")?
        })
    }
}

/// Has gateway A follow the rules.
fn configure(network: &Network) -> Result<()> {
    let rules = network.folder().join("rules.toml");
    fs::write(&rules, RULES)?;
    let config = network.a.config_file();
    let line = format!("[gateway]\nrules_file = \"{}\"\n", rules.display());
    let text = fs::read_to_string(&config)?.replacen("[gateway]\n", &line, 1);
    Ok(fs::write(config, text)?)
}

/// Returns what is sent to port 22 of `netns`, for as long as this process lives.
fn echo(netns: &Netns) -> Result<()> {
    let listener = netns
        .run(|| TcpListener::bind(("0.0.0.0", 22)))?
        .context("port 22")?;
    thread::Builder::new().name("echo".into()).spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that goes away is its own business.
            let _ = io::copy(&mut &stream, &mut &stream);
        }
    })?;
    Ok(())
}

/// Sends a line and waits for the echo.
fn say(mut stream: &TcpStream) -> Result<()> {
    const LINE: [u8; 8] = *b"uptime\r\n";
    stream.write_all(&LINE)?;
    let mut answer = [0; LINE.len()];
    stream.read_exact(&mut answer)?;
    if answer != LINE {
        bail!("another line came back");
    }
    Ok(())
}

/// How often it succeeded.
fn tries(mut attempt: impl FnMut() -> bool) -> u32 {
    (0..TRIES).map(|_| u32::from(attempt())).sum()
}

/// Which functions are up.
#[derive(Clone, Copy)]
struct Up {
    firewall: bool,
    meter: bool,
}

/// What client A reached: how many of [`TRIES`].
struct Seen {
    web: u32,
    forbidden: bool,
    metrics: u32,
    ssh: u32,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let forbidden = if self.forbidden { "yes" } else { "no" };
        write!(
            f,
            "web {}/{TRIES}, metrics {}/{TRIES}, ssh {}/{TRIES}, forbidden host {forbidden}",
            self.web, self.metrics, self.ssh
        )
    }
}

impl Seen {
    /// What does not hold that should.
    fn failures(&self, counters: &Counters, up: Up) -> Vec<String> {
        let all = |is: bool| if is { TRIES } else { 0 };
        let returned = |name| {
            let mut functions = counters.node.functions.iter();
            functions.any(|of| of.name == name && of.packets_returned > 0)
        };
        let expectations = [
            (
                "web passes with the firewall alone",
                self.web == all(up.firewall),
            ),
            ("the forbidden host is not reached", !self.forbidden),
            ("metrics pass", self.metrics == TRIES),
            ("ssh passes", self.ssh == TRIES),
            (
                "the firewall returns packets to remotes while it is up",
                returned("firewall") == up.firewall,
            ),
            (
                "the firewall returns packets from remotes while it is up",
                returned("firewall-back") == up.firewall,
            ),
            (
                "the meter returns packets while it is up",
                returned("meter") == up.meter,
            ),
            (
                "packets for the dead firewall are dropped",
                (counters.refused("function_down") > 0) != up.firewall,
            ),
            (
                "the IDS has an alert for each request",
                counters.alerts == u64::from(self.web),
            ),
        ];
        let failed = expectations.into_iter().filter(|(_, holds)| !holds);
        failed.map(|(what, _)| what.to_owned()).collect()
    }
}

/// Parts of `sig chain status`, and what firewall and IDS have counted.
#[derive(Default, Deserialize)]
struct Counters {
    rules: Vec<RuleCounters>,
    node: NodeCounters,
    /// Packets that the firewall's rule dropped, if it has one.
    #[serde(skip)]
    forbidden: Option<u64>,
    #[serde(skip)]
    alerts: u64,
    #[serde(skip)]
    ids: &'static str,
}

#[derive(Deserialize)]
struct RuleCounters {
    name: String,
    action: String,
    packets_to_remotes: u64,
    packets_from_remotes: u64,
}

#[derive(Default, Deserialize)]
struct NodeCounters {
    functions: Vec<FunctionCounters>,
    refused: Vec<(String, u64)>,
}

#[derive(Deserialize)]
struct FunctionCounters {
    name: String,
    is_up: bool,
    on_failure: String,
    packets_returned: u64,
}

impl Counters {
    /// What is new since `before`, with the same rules and functions.
    fn since(mut self, before: &Self) -> Self {
        for (rule, before) in self.rules.iter_mut().zip(&before.rules) {
            rule.packets_to_remotes -= before.packets_to_remotes;
            rule.packets_from_remotes -= before.packets_from_remotes;
        }
        for (function, before) in self.node.functions.iter_mut().zip(&before.node.functions) {
            function.packets_returned -= before.packets_returned;
        }
        for ((_, count), (_, before)) in self.node.refused.iter_mut().zip(&before.node.refused) {
            *count -= before;
        }
        self.forbidden = self
            .forbidden
            .map(|count| count - before.forbidden.unwrap_or_default());
        self.alerts -= before.alerts;
        self
    }

    /// Packets that did not go on, or not by themselves.
    fn refused(&self, reason: &str) -> u64 {
        let mut refused = self.node.refused.iter();
        refused
            .find(|(name, _)| name == reason)
            .map_or(0, |(_, count)| *count)
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<26}{:>12}{:>14}",
            "packets", "to remotes", "from remotes"
        )?;
        for rule in &self.rules {
            let what = format!("rule {} ({})", rule.name, rule.action);
            let (to, from) = (rule.packets_to_remotes, rule.packets_from_remotes);
            writeln!(f, "{what:<26}{to:>12}{from:>14}")?;
        }
        for function in &self.node.functions {
            let what = format!("function {}", function.name);
            let state = match function.is_up {
                true => "up".to_owned(),
                false => format!("down, {}", function.on_failure),
            };
            let returned = function.packets_returned;
            writeln!(f, "{what:<26}{state:>12}{returned:>14} returned")?;
        }
        for (reason, count) in self.node.refused.iter().filter(|(_, count)| *count > 0) {
            writeln!(f, "{:<26}{count:>12}", reason.replace('_', " "))?;
        }
        if let Some(count) = self.forbidden {
            writeln!(f, "{:<26}{count:>12}", "dropped by the firewall")?;
        }
        writeln!(
            f,
            "{:<26}{:>12}",
            format!("alerts of {}", self.ids),
            self.alerts
        )
    }
}
