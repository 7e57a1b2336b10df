//! One of the two ASes: a client, a gateway and a router.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};

use super::{Family, Netns, Options, Process, Route, Status, Underlay, network::lan_macs};

/// The gateway's data port.
const DATA_PORT: u16 = 30056;
/// The routers' port towards gateways.
const INSIDE_PORT: u16 = 30042;
/// The routers' port towards each other.
const OUTSIDE_PORT: u16 = 50000;

/// How long a gateway may take until traffic flows. On emulated machines, the kernel alone takes most of a minute to verify the programs.
const READY: Duration = Duration::from_secs(180);
/// How long a gateway may take to end after SIGTERM.
const STOP: Duration = Duration::from_secs(10);

/// An AS with its hosts.
#[derive(Debug)]
pub struct Site {
    /// The IP host behind the gateway: interface `lan`.
    pub client: Netns,
    /// The gateway's host: interfaces `lan` and `underlay`.
    pub gateway: Netns,
    /// The router's host: interfaces `inside` and `outside`.
    pub router: Netns,
    /// 0 for AS A, 1 for AS B.
    number: u8,
    underlay: Underlay,
    route: Route,
    binary: PathBuf,
    folder: PathBuf,
    cpu: Option<u16>,
    one_host: bool,
    switch_fast_path: Option<u32>,
    started_by: Vec<String>,
    starts: u32,
    process: Option<Process>,
}

impl Site {
    /// Makes the three namespaces, without links.
    pub(super) fn new(
        number: u8,
        options: &Options,
        binary: &Path,
        folder: &Path,
        suffix: &str,
    ) -> Result<Self> {
        let letter = letter(number);
        let netns = |role| Netns::new(&format!("{role}-{letter}{suffix}"));
        Ok(Self {
            client: netns("client")?,
            gateway: netns("gateway")?,
            router: netns("router")?,
            number,
            underlay: options.underlay,
            route: options.route,
            binary: binary.to_owned(),
            folder: folder.to_owned(),
            cpu: None,
            one_host: options.one_host && number == 0,
            switch_fast_path: options.switch_fast_path,
            started_by: options.gateways_by.clone(),
            starts: 0,
            process: None,
        })
    }

    /// Where the router runs.
    pub fn router_host(&self) -> &Netns {
        match self.one_host {
            true => &self.gateway,
            false => &self.router,
        }
    }

    /// Whether the router runs on the gateway's host.
    pub(super) const fn one_host(&self) -> bool {
        self.one_host
    }

    /// Address of the client.
    pub fn client_ip(&self, family: Family) -> IpAddr {
        self.lan_ip(family, 2)
    }

    /// Address of the gateway in the LAN.
    pub fn gateway_ip(&self, family: Family) -> IpAddr {
        self.lan_ip(family, 1)
    }

    /// MAC address of the client.
    pub fn client_mac(&self) -> [u8; 6] {
        lan_macs(self.number)[0]
    }

    /// MAC address of the gateway in the LAN.
    pub fn gateway_mac(&self) -> [u8; 6] {
        lan_macs(self.number)[1]
    }

    /// A host address of the LAN.
    fn lan_ip(&self, family: Family, host: u8) -> IpAddr {
        let net = 10 + self.number;
        match family {
            Family::V4 => Ipv4Addr::new(192, 168, net, host).into(),
            // Written in decimal, as the IPv4 network is.
            Family::V6 => {
                Ipv6Addr::new(0xfd00, hex_of_decimal(net), 0, 0, 0, 0, 0, host.into()).into()
            }
        }
    }

    /// Prefix of the LAN, such as `192.168.10.0/24`.
    pub fn prefix(&self, family: Family) -> String {
        match family {
            Family::V4 => format!("{}/24", self.lan_ip(family, 0)),
            Family::V6 => format!("{}/64", self.lan_ip(family, 0)),
        }
    }

    /// The AS's number, as text.
    pub fn isd_as(&self) -> &'static str {
        ["1-ff00:0:110", "1-ff00:0:111"][usize::from(self.number)]
    }

    /// Where the gateway gets SIG frames.
    pub fn data_addr(&self) -> SocketAddr {
        SocketAddr::new(self.underlay.ip(10 + self.number, 2), DATA_PORT)
    }

    /// Where the router gets packets of the gateway.
    pub fn router_inside(&self) -> SocketAddr {
        inside(self.underlay, self.number)
    }

    /// Where the router gets packets of the router before it.
    pub fn router_outside(&self) -> SocketAddr {
        match self.route {
            Route::Direct => outside(self.underlay, 0, 1 + self.number),
            Route::Crossing => outside(self.underlay, self.number, 1),
        }
    }

    /// The gateway's configuration.
    pub fn config_file(&self) -> PathBuf {
        self.folder
            .join(format!("gateway-{}.toml", letter(self.number)))
    }

    /// Writes the gateway's configuration; `remote` is the other site, `path` leads there, in hexadecimal.
    pub(super) fn write_config(&self, remote: &Self, path: &str, options: &Options) -> Result<()> {
        let text = format!(
            "[gateway]\nid = \"gateway-{letter}\"\nisd_as = \"{isd_as}\"\ndata_addr = \"{data}\"\n\
             prefixes = [\"{v4}\", \"{v6}\"]\nstatus_socket = \"{socket}\"\n\n\
             [tunnel]\nname = \"sig\"\nmtu = {tunnel_mtu}\n{tunnel}\n\n\
             [dataplane]\nunderlay = \"underlay\"\nlan = [\"lan\"]\n{dataplane}\n\n\
             {pages}\
             [[remote]]\nisd_as = \"{remote_isd_as}\"\ngateway = \"{remote_data}\"\n\
             prefixes = [\"{remote_v4}\", \"{remote_v6}\"]\n\n\
             [[remote.path]]\nraw = \"{path}\"\nnext_hop = \"{next_hop}\"\nmtu = {path_mtu}\n",
            letter = letter(self.number),
            isd_as = self.isd_as(),
            data = self.data_addr(),
            v4 = self.prefix(Family::V4),
            v6 = self.prefix(Family::V6),
            socket = self
                .folder
                .join(format!("gateway-{}.sock", letter(self.number)))
                .display(),
            tunnel_mtu = options.tunnel_mtu,
            dataplane = options.dataplane,
            pages = match options.pages {
                "" => String::new(),
                address => format!("[metrics]\nprometheus = \"{address}\"\n\n"),
            },
            tunnel = options.tunnel,
            remote_isd_as = remote.isd_as(),
            remote_data = remote.data_addr(),
            remote_v4 = remote.prefix(Family::V4),
            remote_v6 = remote.prefix(Family::V6),
            next_hop = self.router_inside(),
            path_mtu = options.path_mtu,
        );
        let file = self.config_file();
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
    }

    /// Has gateways that are started from now on run on this CPU alone, with all their threads.
    pub fn run_on(&mut self, cpu: u16) {
        self.cpu = Some(cpu);
    }

    /// Has gateways that are started from now on be started by this program, with these arguments before their own.
    pub fn run_under(&mut self, words: &[&str]) {
        self.started_by = words.iter().map(|word| (*word).to_owned()).collect();
    }

    /// Starts the gateway and waits until it is ready.
    ///
    /// # Errors
    /// As [`Self::spawn_gateway`] and [`Self::wait_ready`].
    pub fn start_gateway(&mut self) -> Result<()> {
        self.spawn_gateway()?;
        self.wait_ready()
    }

    /// Starts the gateway's process.
    ///
    /// # Errors
    /// It runs already, or does not start.
    pub fn spawn_gateway(&mut self) -> Result<()> {
        if self.process.is_some() {
            bail!("the gateway of {} runs already", self.isd_as());
        }
        self.starts += 1;
        let log = format!("gateway-{}-{}.log", letter(self.number), self.starts);
        let mut command = self
            .gateway
            .command_by(&self.started_by, self.cpu, &self.binary);
        command.args(["run", "--config"]).arg(self.config_file());
        if let Some(milliseconds) = self.switch_fast_path {
            command.env("SIG_TEST_SWITCH_FAST_PATH_MS", milliseconds.to_string());
        }
        self.process = Some(Process::spawn(command, &self.folder.join(log))?);
        Ok(())
    }

    /// Waits until the gateway says that traffic flows.
    ///
    /// # Errors
    /// It ended, or does not say so in time; the message holds its log.
    pub fn wait_ready(&mut self) -> Result<()> {
        self.process()?.wait_for("ready", READY).map(drop)
    }

    /// The gateway's process.
    ///
    /// # Errors
    /// There is none.
    pub fn process(&mut self) -> Result<&mut Process> {
        let isd_as = self.isd_as();
        self.process
            .as_mut()
            .with_context(|| format!("the gateway of {isd_as} does not run"))
    }

    /// Process id of the gateway, if it runs.
    pub fn gateway_pid(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    /// Sends the gateway a signal, such as `libc::SIGSTOP`, if it runs.
    pub fn signal_gateway(&self, signal: libc::c_int) {
        if let Some(process) = &self.process {
            process.signal(signal);
        }
    }

    /// Kills the gateway with SIGKILL and waits for its end.
    ///
    /// # Errors
    /// It does not run.
    pub fn kill_gateway(&mut self) -> Result<()> {
        let mut process = self.process.take().context("the gateway does not run")?;
        process.signal(libc::SIGKILL);
        process.wait(STOP).map(drop)
    }

    /// Ends the gateway with SIGTERM.
    ///
    /// # Errors
    /// It does not end, or not with success; the message holds its log.
    pub fn stop_gateway(&mut self) -> Result<()> {
        let mut process = self.process.take().context("the gateway does not run")?;
        process.signal(libc::SIGTERM);
        let status = process.wait(STOP)?;
        if !status.success() {
            bail!("the gateway ended with {status}:\n{}", process.log());
        }
        Ok(())
    }

    /// Asks the gateway for its status.
    ///
    /// # Errors
    /// It does not answer.
    pub fn status(&self) -> Result<Status> {
        let output = Command::new(&self.binary)
            .args(["status", "--format", "json", "--config"])
            .arg(self.config_file())
            .output()?;
        if !output.status.success() {
            bail!(
                "`sig status`: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        serde_json::from_slice(&output.stdout).context("the document of `sig status`")
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // Before its namespaces, which go with the fields.
        self.process = None;
    }
}

/// Address of the router of AS number `number` towards its gateways.
pub(super) fn inside(underlay: Underlay, number: u8) -> SocketAddr {
    SocketAddr::new(underlay.ip(10 + number, 1), INSIDE_PORT)
}

/// Address of a router on link number `link`.
pub(super) fn outside(underlay: Underlay, link: u8, host: u8) -> SocketAddr {
    SocketAddr::new(underlay.ip(99 - link, host), OUTSIDE_PORT)
}

/// `a` or `b`.
fn letter(number: u8) -> char {
    char::from(b'a' + number)
}

/// The number that is written in hexadecimal as `n` is in decimal.
pub(super) fn hex_of_decimal(n: u8) -> u16 {
    u16::from(n / 10) << 4 | u16::from(n % 10)
}
