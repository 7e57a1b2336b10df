//! The network of one test, and what is asked of its gateways.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::Arc,
    thread,
    time::Duration,
};

use scion_net::{Link, SimNetwork, SimOptions};
use sig_core::status::{RemoteAs, Status};
use testbed::{Family, Site, TimeLimit, wait_until};

/// Far longer than anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// How long one test may take beside the outages that it waits for.
const LIMIT: Duration = Duration::from_secs(240);
/// Where gateways serve metrics and pages.
const PAGES: &str = "127.0.0.1:30456";

/// The gateway under test.
pub(crate) fn sig() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_sig-under-test"))
}

/// The options of most tests: routers deliver to the gateways' ports.
pub(crate) fn options() -> SimOptions {
    SimOptions {
        ports: (30000, 32767),
        ..SimOptions::default()
    }
}

/// What the files of a gateway say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Files {
    /// The traffic policy.
    pub(crate) traffic: String,
    /// The routing policy, if there is one.
    pub(crate) routing: Option<String>,
    /// Further lines of the section `[dataplane]`.
    pub(crate) dataplane: &'static str,
    /// Further sections of the configuration.
    pub(crate) sections: String,
}

impl Files {
    /// Static prefixes: `own` reaches those of `remote` whatever is announced.
    pub(crate) fn with_nets(remote: &Site) -> Self {
        let nets = Family::ALL.map(|family| remote.prefix(family));
        Self {
            traffic: traffic(remote, &nets.each_ref().map(String::as_str), 1),
            ..Self::default()
        }
    }

    /// Nothing static: prefixes are announced and accepted.
    pub(crate) fn with_routing_policy(own: &Site, remote: &Site) -> Self {
        let [own_ia, remote_ia] = [own.isd_as(), remote.isd_as()];
        let [own, theirs] =
            [own, remote].map(|site| Family::ALL.map(|family| site.prefix(family)).join(","));
        Self {
            traffic: traffic(remote, &[], 1),
            routing: Some(format!(
                "accept    {remote_ia} {own_ia} {theirs}\nadvertise {own_ia} {remote_ia} {own}\n"
            )),
            ..Self::default()
        }
    }

    /// The same with these sections in the configuration.
    pub(crate) fn and(mut self, sections: &str) -> Self {
        self.sections.push_str(sections);
        self
    }
}

/// A traffic policy with one AS.
pub(crate) fn traffic(remote: &Site, nets: &[&str], path_count: u32) -> String {
    let isd_as = remote.isd_as();
    format!(
        r#"{{ "ASes": {{ "{isd_as}": {{ "Nets": {nets:?}, "PathCount": {path_count} }} }}, "ConfigVersion": 1 }}"#
    )
}

/// The network of one test, alone on the machine. Needs root.
pub(crate) struct Bed {
    // Dropped in this order: the next test starts when everything has gone.
    pub(crate) net: SimNetwork,
    _lock: File,
    _limit: TimeLimit,
}

impl Bed {
    /// Two ASes with gateways that are neither configured nor started.
    pub(crate) fn new(options: &SimOptions) -> Self {
        let lock = testbed::exclusive().expect("a lock file in the folder for temporary files");
        let thread = thread::current();
        let name = thread.name().unwrap_or("the test");
        let limit = testbed::time_limit(name, LIMIT + crate::outages::outage());
        testbed::sweep();
        let net = SimNetwork::build(sig(), options);
        Self {
            net: net.unwrap_or_else(|error| panic!("{error:#}")),
            _lock: lock,
            _limit: limit,
        }
    }

    /// Writes the files of both gateways.
    pub(crate) fn configure(&self, files: impl Fn(&Site, &Site) -> Files) {
        let (a, b) = (&self.net.network.a, &self.net.network.b);
        for (own, remote) in [(a, b), (b, a)] {
            self.write(own, &files(own, remote));
        }
    }

    /// Writes the files of one gateway.
    pub(crate) fn write(&self, site: &Site, files: &Files) {
        let [traffic, routing] = ["traffic", "routing"].map(|kind| policy_file(site, kind));
        fs::write(&traffic, &files.traffic).expect("the folder of the test");
        let mut keys = String::new();
        if let Some(text) = &files.routing {
            fs::write(&routing, text).expect("the folder of the test");
            keys = format!("ip_routing_policy_file = {routing:?}\n");
        }
        let socket = site.config_file().with_extension("sock");
        let text = format!(
            "[gateway]\nid = \"gateway\"\nctrl_addr = \"{ip}\"\ntraffic_policy_file = {traffic:?}\n\
             status_socket = {socket:?}\n{keys}\n\
             [tunnel]\nsrc_ipv4 = \"{v4}\"\nsrc_ipv6 = \"{v6}\"\n\n\
             [dataplane]\nunderlay = \"underlay\"\nlan = [\"lan\"]\n{dataplane}\n\n\
             [metrics]\nprometheus = \"{PAGES}\"\n\n{sections}",
            ip = std::net::SocketAddr::new(site.data_addr().ip(), scion_net::CONTROL_PORT),
            v4 = site.gateway_ip(Family::V4),
            v6 = site.gateway_ip(Family::V6),
            dataplane = files.dataplane,
            sections = files.sections,
        );
        self.net
            .configure(site, &text)
            .expect("the folder of the test");
    }

    /// Starts both gateways at the same time and waits for the tunnel.
    pub(crate) fn start(&mut self) {
        let network = &mut self.net.network;
        for site in [&mut network.a, &mut network.b] {
            site.spawn_gateway()
                .unwrap_or_else(|error| panic!("{error:#}"));
        }
        for site in [&mut network.a, &mut network.b] {
            site.wait_ready()
                .unwrap_or_else(|error| panic!("{error:#}"));
        }
        // Each is ready when it can send; now both are.
        self.assert_pings(3);
    }

    /// Configured and started.
    pub(crate) fn running(options: &SimOptions, files: impl Fn(&Site, &Site) -> Files) -> Self {
        let mut bed = Self::new(options);
        bed.configure(files);
        bed.start();
        bed
    }

    /// Pings between the clients, in both directions and families: all must be answered.
    pub(crate) fn assert_pings(&mut self, count: u32) {
        let network = &self.net.network;
        let mut bad = Vec::new();
        for (from, to) in [(&network.a, &network.b), (&network.b, &network.a)] {
            for family in Family::ALL {
                let to = to.client_ip(family);
                let ping = testbed::ping(&from.client, to, count, 600, Duration::from_millis(20));
                let ping = ping.unwrap_or_else(|error| panic!("{error:#}"));
                if ping.received != ping.sent {
                    bad.push(format!("to {to}: {} of {}", ping.received, ping.sent));
                }
            }
        }
        assert!(bad.is_empty(), "{bad:?}\n{}", self.logs());
    }

    /// What both gateways logged.
    pub(crate) fn logs(&mut self) -> String {
        let network = &mut self.net.network;
        let log = |site: &mut Site| site.process().map(|process| process.log());
        let [a, b] = [&mut network.a, &mut network.b].map(|site| log(site).unwrap_or_default());
        format!("A:\n{a}\nB:\n{b}")
    }

    /// Of the two links, the one by which A sends most at the moment.
    pub(crate) fn link_in_use(&self) -> Arc<Link> {
        let carried = || [0, 1].map(|number| self.net.links[number].carried()[0]);
        let before = carried();
        thread::sleep(Duration::from_millis(500));
        let after = carried();
        let [first, second] = [0, 1].map(|number| after[number] - before[number]);
        self.net.links[usize::from(first < second)].clone()
    }
}

/// A policy file of a gateway.
pub(crate) fn policy_file(site: &Site, kind: &str) -> PathBuf {
    site.config_file().with_extension(kind)
}

/// Runs `sig COMMAND` about the gateway of a site.
pub(crate) fn run_sig(site: &Site, command: &[&str]) -> Output {
    let mut program = Command::new(sig());
    program
        .args(command)
        .arg("--config")
        .arg(site.config_file());
    program.output().expect("the gateway's program")
}

/// What the gateway of a site tells about itself.
pub(crate) fn status(site: &Site) -> Status {
    let output = run_sig(site, &["status", "--format", "json"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    serde_json::from_slice(&output.stdout).expect("the document of `sig status`")
}

/// What it knows of the AS of `remote`.
pub(crate) fn known(site: &Site, remote: &str) -> Option<RemoteAs> {
    let control = status(site).control.expect("it finds its remotes");
    control
        .ases
        .into_iter()
        .find(|known| known.isd_as == remote)
}

/// Waits until `condition` holds.
pub(crate) fn wait(what: &str, mut condition: impl FnMut() -> bool) -> Duration {
    wait_until(what, PATIENCE, || Ok(condition())).unwrap_or_else(|error| panic!("{error:#}"))
}

/// A page of the gateway's HTTP server: status code and body.
pub(crate) fn page(site: &Site, path: &str) -> (u16, String) {
    let fetch = || {
        let mut stream = TcpStream::connect(PAGES)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {PAGES}\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map(|_| answer)
    };
    let answer = site.gateway.run(fetch).expect("the namespace");
    let answer = answer.expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    (code.expect("a status line"), body.to_owned())
}
