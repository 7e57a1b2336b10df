//! Border routers: their files, and their processes.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Netns, Process, wait_until};

/// How long routers may take until all links are up, on emulated machines too.
const READY: Duration = Duration::from_secs(60);

/// An AS, and its border router.
pub(super) struct As<'a> {
    /// `a`, `b` or `c`.
    pub(super) letter: char,
    /// Its number.
    pub(super) isd_as: &'static str,
    pub(super) core: bool,
    /// Where the router lives.
    pub(super) netns: &'a Netns,
    /// A device that is not the router's.
    pub(super) exclude: Option<&'static str>,
    /// The router's address towards gateways.
    pub(super) internal: SocketAddr,
    /// Sixteen bytes in base64. They protect nothing but the hop fields of a network that nobody else is in.
    pub(super) master_key: &'static str,
}

/// A link between two of the ASes, by their places.
pub(super) struct Link {
    /// The parent, then the child.
    pub(super) ends: [End; 2],
}

/// An end of a link.
#[derive(Clone, Copy)]
pub(super) struct End {
    /// Place of the AS.
    pub(super) of: usize,
    /// Number of the interface.
    pub(super) interface: u16,
    /// Address of the router there.
    pub(super) address: SocketAddr,
}

/// All ASes and links.
pub(super) struct Topology<'a> {
    pub(super) ases: Vec<As<'a>>,
    pub(super) links: Vec<Link>,
    /// Largest SCION packet, bytes.
    pub(super) mtu: u16,
    /// Folder for files, logs and sockets.
    pub(super) folder: &'a Path,
    /// The program `sig`.
    pub(super) binary: &'a Path,
    /// The routers' `[xdp] mode`.
    pub(super) xdp_mode: &'static str,
    /// What starts it, with arguments; empty: nothing.
    pub(super) started_by: &'a [String],
    /// Where the routers serve their pages; empty: nowhere.
    pub(super) pages: &'a str,
}

/// A running border router.
#[derive(Debug)]
pub struct Router {
    process: Process,
    binary: PathBuf,
    configuration: PathBuf,
}

impl Topology<'_> {
    /// Writes the files of all routers, and starts them.
    ///
    /// # Errors
    /// A file cannot be written, or a program does not start.
    pub(super) fn start(&self) -> Result<Vec<Router>> {
        let places = 0..self.ases.len();
        places.map(|place| self.start_one(place)).collect()
    }

    fn start_one(&self, place: usize) -> Result<Router> {
        let own = self.ases.get(place).context("an AS of the topology")?;
        let name = format!("router-{}", own.letter);
        let folder = self.folder.join(&name);
        let write = |file: &str, text: &str| {
            let file = folder.join(file);
            fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
        };
        fs::create_dir_all(folder.join("keys"))
            .with_context(|| format!("cannot make {}", folder.display()))?;
        write("keys/master0.key", own.master_key)?;
        let links: Vec<_> = self.links_of(place).collect();
        write(
            "topology.json",
            &serde_json::to_string_pretty(&self.topology(own, &name, &links))?,
        )?;
        let socket = self.folder.join(format!("{name}.sock"));
        write(
            "router.toml",
            &format!(
                "[general]\nid = \"{name}\"\nconfig_dir = \".\"\n\n[metrics]\nprometheus = \"{}\"\n\n\
                 [xdp]\nmode = \"{}\"\nexclude = {:?}\nstatus_socket = \"{}\"\n",
                self.pages,
                self.xdp_mode,
                own.exclude.as_slice(),
                socket.display()
            ),
        )?;
        let configuration = folder.join("router.toml");
        let mut command = own.netns.command_by(self.started_by, None, self.binary);
        command
            .args(["router", "run", "--config"])
            .arg(&configuration);
        Ok(Router {
            process: Process::spawn(command, &self.folder.join(format!("{name}.log")))?,
            binary: self.binary.to_owned(),
            configuration,
        })
    }

    /// The path from one AS to another, in hexadecimal, signed with the ASes' keys.
    ///
    /// # Errors
    /// `sig path make` makes none.
    pub(super) fn path(&self, from: usize, to: usize) -> Result<String> {
        let file = self.folder.join("network.toml");
        fs::write(&file, self.description())
            .with_context(|| format!("cannot write {}", file.display()))?;
        let output = Command::new(self.binary)
            .args(["path", "make", "--json"])
            .args([
                "--from",
                self.ases[from].isd_as,
                "--to",
                self.ases[to].isd_as,
            ])
            .arg(&file)
            .output()
            .with_context(|| format!("{} does not start", self.binary.display()))?;
        if !output.status.success() {
            bail!(
                "`sig path make`: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        let paths: Value =
            serde_json::from_slice(&output.stdout).context("the paths of `sig path make`")?;
        let raw = paths[0]["raw"].as_str();
        raw.map(str::to_owned).context("a path without bytes")
    }

    /// The network, for `sig path make`.
    fn description(&self) -> String {
        // Hop fields that live as long as possible, a day: networks can be left running.
        let mut text = "expiry = 255\n".to_owned();
        for of_as in &self.ases {
            text += &format!(
                "\n[[as]]\nisd_as = \"{}\"\ncore = {}\nmtu = {}\nmaster_key = \"{}\"\n",
                of_as.isd_as, of_as.core, self.mtu, of_as.master_key
            );
        }
        for link in &self.links {
            let [parent, child] = link
                .ends
                .map(|end| format!("{}#{}", self.ases[end.of].isd_as, end.interface));
            text += &format!(
                "\n[[link]]\na = \"{parent}\"\nb = \"{child}\"\ntype = \"child\"\nmtu = {}\n",
                self.mtu
            );
        }
        text
    }

    /// Own end, other end, and what the other AS is.
    fn links_of(&self, place: usize) -> impl Iterator<Item = (End, End, &'static str)> {
        self.links.iter().filter_map(move |link| {
            let [parent, child] = link.ends;
            if parent.of == place {
                Some((parent, child, "CHILD"))
            } else if child.of == place {
                Some((child, parent, "PARENT"))
            } else {
                None
            }
        })
    }

    /// The file `topology.json` of an AS.
    fn topology(&self, own: &As<'_>, name: &str, links: &[(End, End, &str)]) -> Value {
        let interface = |(near, far, link_to): &(End, End, &str)| {
            let interface = json!({
                "underlay": {
                    "local": near.address.to_string(),
                    "remote": far.address.to_string(),
                },
                "isd_as": self.ases[far.of].isd_as,
                "link_to": link_to,
                "mtu": self.mtu,
            });
            (near.interface.to_string(), interface)
        };
        let interfaces: serde_json::Map<_, _> = links.iter().map(interface).collect();
        json!({
            "attributes": if own.core { vec!["core"] } else { Vec::new() },
            "isd_as": own.isd_as,
            "mtu": self.mtu,
            "dispatched_ports": "1024-65535",
            "border_routers": {
                name: {
                    "internal_addr": own.internal.to_string(),
                    "interfaces": interfaces,
                },
            },
        })
    }
}

impl Router {
    /// Waits until it forwards on all links: neighbours have found each other.
    pub(super) fn wait_ready(&mut self) -> Result<()> {
        self.process.wait_for("ready", READY)?;
        wait_until("all links of the router are up", READY, || {
            if let Some(status) = self.process.ended()? {
                bail!("it ended ({status}):\n{}", self.process.log());
            }
            let interfaces = self.status()?.interfaces;
            Ok(interfaces.iter().all(|interface| interface.up))
        })
        .map(drop)
        .with_context(|| self.process.log())
    }

    /// Its configuration, for `sig router`.
    pub fn config_file(&self) -> &Path {
        &self.configuration
    }

    /// Asks it for its status.
    ///
    /// # Errors
    /// It does not answer.
    pub fn status(&self) -> Result<RouterStatus> {
        let output = Command::new(&self.binary)
            .args(["router", "status", "--json", "--config"])
            .arg(&self.configuration)
            .output()?;
        if !output.status.success() {
            bail!(
                "`sig router status`: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        serde_json::from_slice(&output.stdout).context("the document of `sig router status`")
    }
}

/// The parts of the document of `sig router status --json` that are looked at here.
#[derive(Clone, Debug, Deserialize)]
pub struct RouterStatus {
    /// The AS's inside, then the links.
    pub interfaces: Vec<RouterInterface>,
}

/// The inside of an AS, or a link.
#[derive(Clone, Debug, Deserialize)]
pub struct RouterInterface {
    /// Number of the interface; 0: the inside.
    pub interface: u16,
    /// Whether packets may leave by it.
    pub up: bool,
    /// Packets that came in here and were more than plainly forwarded.
    pub reasons: Vec<Reason>,
}

/// Packets that were more than plainly forwarded.
#[derive(Clone, Debug, Deserialize)]
pub struct Reason {
    /// Name of the reason.
    pub reason: String,
    /// Packets that the slow path worked on.
    pub slow: u64,
}
