//! Three ASes: in each a client, a gateway that finds the others, a border router, a daemon and a control service.
//!
//! ```text
//!   a (core) ══ ══ c (core)      two links each between a and c, and between a and b; one between c and b
//!      ║ ║        ╱
//!      b ────────
//! ```
//!
//! The links lead through a [`Relay`] with a network namespace of its own.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use scion_net::{CONTROL_PORT, ControlService, DAEMON, Daemon, End, PROBE_PORT, Topology};
use serde_json::json;
use sig_common::addr::IsdAs;
use sig_core::peer::GatewayAddresses;
use testbed::{Family, Folder, Netns, Process};

use crate::relay::{self, Relay};

/// How many ASes there are.
pub(crate) const ASES: usize = 3;
/// The ends of the links, by place of the AS and number of its interface. The first one is the parent, if one is.
pub(crate) const LINKS: [[(usize, u16); 2]; 5] = [
    [(0, 1), (1, 1)],
    [(0, 2), (1, 2)],
    [(0, 3), (2, 1)],
    [(0, 4), (2, 2)],
    [(2, 3), (1, 3)],
];
/// Largest SCION packet, bytes.
const MTU: u16 = 1472;
const DATA_PORT: u16 = 30056;
const INSIDE_PORT: u16 = 30042;
const LINK_PORT: u16 = 50000;
const RESOLUTION_PORT: u16 = 30252;
const RPC_PORT: u16 = 30254;
const PORTS: (u16, u16) = (1024, 65535);
/// How long gateway and router may take to start, on a busy machine.
const READY: Duration = Duration::from_secs(60);
const STOP: Duration = Duration::from_secs(10);

/// The network. All ends with it.
pub(crate) struct Network {
    // Dropped in this order: what runs ends before its namespaces go.
    pub(crate) relay: Relay,
    pub(crate) ases: Vec<As>,
    _wire: Netns,
    pub(crate) folder: Folder,
}

/// An AS.
pub(crate) struct As {
    place: usize,
    gateway_process: Option<Process>,
    router_process: Option<Process>,
    pub(crate) daemon: Daemon,
    pub(crate) control_service: ControlService,
    /// Interface `lan`.
    pub(crate) client: Arc<Netns>,
    /// Interfaces `lan` and `underlay`.
    pub(crate) gateway: Netns,
    /// Interfaces `inside`, and `link1` and so on.
    pub(crate) router: Netns,
    binary: PathBuf,
    folder: PathBuf,
    starts: u32,
}

impl Network {
    /// Builds and starts everything. Gateways have these lines in their section `[dataplane]`.
    pub(crate) fn start(binary: &Path, dataplane: [&str; ASES], seed: u64) -> Result<Self> {
        let folder = Folder::new("chaos")?;
        let topology = Arc::new(topology());
        let wire = Netns::new("wire")?;
        let mut ases = Vec::new();
        for place in 0..ASES {
            ases.push(As::new(place, binary, folder.path(), &topology)?);
        }
        for (number, ends) in LINKS.iter().enumerate() {
            for (end, (place, interface)) in ends.iter().enumerate() {
                connect_router(&wire, &ases[*place].router, number, end, *interface)?;
            }
        }
        let links: Vec<_> = (0..LINKS.len())
            .map(|link| [0, 1].map(|end| relay_end(link, end)))
            .collect();
        let relay = Relay::start(&wire, &links, seed)?;
        for own in &mut ases {
            own.write_router()?;
            own.write_gateway(dataplane[own.place])?;
            own.write_policies(1)?;
            own.start_router()?;
        }
        for own in &mut ases {
            own.router_process()?.wait_for("ready", READY)?;
            own.start_gateway()?;
        }
        for own in &mut ases {
            own.gateway_process()?.wait_for("ready", READY)?;
        }
        Ok(Self {
            relay,
            ases,
            _wire: wire,
            folder,
        })
    }

    /// What gateways and routers logged that only a defect of theirs explains, and which of them ended.
    pub(crate) fn defects(&mut self) -> Result<Vec<String>> {
        let mut defects = Vec::new();
        for own in &mut self.ases {
            let letter = own.letter();
            for (name, process) in [
                ("gateway", &mut own.gateway_process),
                ("router", &mut own.router_process),
            ] {
                let Some(process) = process else { continue };
                if let Some(status) = process.ended()? {
                    defects.push(format!(
                        "{name} {letter} ended ({status}):\n{}",
                        process.log()
                    ));
                }
                if process.log().contains("panicked") {
                    defects.push(format!("{name} {letter} panicked:\n{}", process.log()));
                }
            }
        }
        Ok(defects)
    }

    /// Ends all gateways and routers, and returns what they left behind.
    pub(crate) fn stop(&mut self) -> Result<Vec<String>> {
        let mut left = Vec::new();
        for own in &mut self.ases {
            own.end_gateway(libc::SIGTERM)?;
            own.end_router(libc::SIGTERM)?;
            let letter = own.letter();
            let interfaces = own.gateway.interfaces()?;
            if interfaces != ["lan", "underlay"] {
                left.push(format!(
                    "interfaces on the host of gateway {letter}: {interfaces:?}"
                ));
            }
            for (name, netns) in [("gateway", &own.gateway), ("router", &own.router)] {
                let links = netns.exec("ip -d link show")?;
                if links.contains("prog/xdp") {
                    left.push(format!(
                        "XDP programs on the host of {name} {letter}:\n{links}"
                    ));
                }
            }
        }
        Ok(left)
    }
}

impl As {
    fn new(place: usize, binary: &Path, folder: &Path, topology: &Arc<Topology>) -> Result<Self> {
        let letter = letter(place);
        let netns = |role: &str| Netns::new(&format!("{role}-{letter}"));
        let (client, gateway, router) = (netns("client")?, netns("gateway")?, netns("router")?);
        for netns in [&gateway, &router] {
            netns.set_sysctls(&[
                ("net/ipv4/ip_forward", "1"),
                ("net/ipv6/conf/all/forwarding", "1"),
                // Their IPv6 addresses outlive the time in which interfaces are down.
                ("net/ipv6/conf/all/keep_addr_on_down", "1"),
            ])?;
        }
        let isd_as = isd_as(place);
        gateway.ip(&format!(
            "link add underlay type veth peer name inside netns {}\n\
             link set underlay up\naddress add {}/24 dev underlay",
            router.name(),
            gateway_ip(place),
        ))?;
        router.ip(&format!(
            "link set inside up\naddress add {}/24 dev inside",
            router_ip(place)
        ))?;
        // Checksums that the kernel leaves to a card would stay open where an XDP program sends packets on; and veth takes what
        // such a program sends only where NAPI runs.
        gateway.exec("ethtool -K underlay gro on tx off")?;
        router.exec("ethtool -K inside gro on tx off")?;
        let own = Self {
            place,
            gateway_process: None,
            router_process: None,
            daemon: Daemon::start(Some(&gateway), topology, isd_as, DAEMON)?,
            control_service: ControlService::start(Some(&gateway), topology, isd_as)?,
            client: Arc::new(client),
            gateway,
            router,
            binary: binary.to_owned(),
            folder: folder.to_owned(),
            starts: 0,
        };
        own.make_lan()?;
        Ok(own)
    }

    /// Makes the devices of the LAN, with addresses and routes.
    pub(crate) fn make_lan(&self) -> Result<()> {
        self.gateway.ip(&format!(
            "link add lan type veth peer name lan netns {}\nlink set lan up",
            self.client.name()
        ))?;
        self.client.ip("link set lan up")?;
        self.client.exec("ethtool -K lan gro on")?;
        self.set_lan_addresses()
    }

    /// Sets addresses and routes of the LAN, whatever is left of them.
    pub(crate) fn set_lan_addresses(&self) -> Result<()> {
        for (family, length) in [(Family::V4, 24), (Family::V6, 64)] {
            let nodad = if family == Family::V6 { "nodad" } else { "" };
            let (client, gateway) = (self.client_ip(family), self.lan_ip(family, 1));
            self.gateway.ip(&format!(
                "address replace {gateway}/{length} dev lan {nodad}"
            ))?;
            self.client.ip(&format!(
                "address replace {client}/{length} dev lan {nodad}\n\
                 route replace default via {gateway}"
            ))?;
        }
        Ok(())
    }

    pub(crate) fn letter(&self) -> char {
        letter(self.place)
    }

    /// A host address of the LAN.
    pub(crate) fn lan_ip(&self, family: Family, host: u8) -> IpAddr {
        let net = 10 + self.place as u8;
        match family {
            Family::V4 => Ipv4Addr::new(192, 168, net, host).into(),
            Family::V6 => Ipv6Addr::new(0xfd00, net.into(), 0, 0, 0, 0, 0, host.into()).into(),
        }
    }

    pub(crate) fn client_ip(&self, family: Family) -> IpAddr {
        self.lan_ip(family, 2)
    }

    /// Where the gateway gets frames.
    pub(crate) fn data_address(&self) -> SocketAddr {
        SocketAddr::new(gateway_ip(self.place), DATA_PORT)
    }

    /// Starts the gateway's process.
    pub(crate) fn start_gateway(&mut self) -> Result<()> {
        let process = self.start("gateway", &self.gateway, &["run"])?;
        self.gateway_process = Some(process);
        self.starts += 1;
        Ok(())
    }

    /// Starts the router's process.
    pub(crate) fn start_router(&mut self) -> Result<()> {
        let process = self.start("router", &self.router, &["router", "run"])?;
        self.router_process = Some(process);
        self.starts += 1;
        Ok(())
    }

    fn start(&self, role: &str, netns: &Netns, words: &[&str]) -> Result<Process> {
        let mut command = netns.command(&self.binary);
        command
            .args(words)
            .arg("--config")
            .arg(self.file(&format!("{role}.toml")));
        let log = format!("{role}-{}-{}.log", self.letter(), self.starts);
        Process::spawn(command, &self.folder.join(log))
    }

    pub(crate) fn gateway_process(&mut self) -> Result<&mut Process> {
        self.gateway_process
            .as_mut()
            .context("the gateway does not run")
    }

    pub(crate) fn router_process(&mut self) -> Result<&mut Process> {
        self.router_process
            .as_mut()
            .context("the router does not run")
    }

    /// The processes that run, with names.
    pub(crate) fn processes(&self) -> impl Iterator<Item = (String, u32)> {
        let letter = self.letter();
        [
            ("gateway", &self.gateway_process),
            ("router", &self.router_process),
        ]
        .into_iter()
        .filter_map(move |(role, process)| {
            let id = process.as_ref()?.id();
            Some((format!("{role} {letter}"), id))
        })
    }

    /// Ends the gateway by a signal.
    pub(crate) fn end_gateway(&mut self, signal: libc::c_int) -> Result<()> {
        end(self.gateway_process.take(), signal)
    }

    /// Ends the router by a signal.
    pub(crate) fn end_router(&mut self, signal: libc::c_int) -> Result<()> {
        end(self.router_process.take(), signal)
    }

    /// Runs `sig reload` for the gateway.
    pub(crate) fn reload(&self) -> Result<Output> {
        let mut command = Command::new(&self.binary);
        command
            .args(["reload", "--config"])
            .arg(self.file("gateway.toml"));
        command.output().context("`sig reload` does not start")
    }

    /// A file of gateway or router.
    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{}-{name}", self.letter()))
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let file = self.file(name);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
    }

    fn write_gateway(&self, dataplane: &str) -> Result<()> {
        let [traffic, routing, socket] =
            ["traffic.json", "routing.policy", "gateway.sock"].map(|name| self.file(name));
        let text = format!(
            "[gateway]\nid = \"gateway\"\nctrl_addr = \"{ip}:{CONTROL_PORT}\"\n\
             traffic_policy_file = {traffic:?}\nip_routing_policy_file = {routing:?}\nstatus_socket = {socket:?}\n\n\
             [tunnel]\nsrc_ipv4 = \"{v4}\"\nsrc_ipv6 = \"{v6}\"\n\n\
             [dataplane]\nunderlay = \"underlay\"\nlan = [\"lan\"]\n{dataplane}\n",
            ip = gateway_ip(self.place),
            v4 = self.lan_ip(Family::V4, 1),
            v6 = self.lan_ip(Family::V6, 1),
        );
        self.write("gateway.toml", &text)
    }

    /// Writes the gateway's policies. Sessions use so many paths.
    pub(crate) fn write_policies(&self, path_count: u32) -> Result<()> {
        let others = (0..ASES).filter(|other| *other != self.place);
        let ases: serde_json::Map<_, _> = others
            .clone()
            .map(|other| {
                let policy = json!({ "Nets": [], "PathCount": path_count });
                (isd_as(other).to_string(), policy)
            })
            .collect();
        let traffic = json!({ "ASes": ases, "ConfigVersion": 1 });
        let own = isd_as(self.place);
        let routing: String = others
            .map(|other| {
                let (theirs, other) = (prefixes(other), isd_as(other));
                let ours = prefixes(self.place);
                format!("accept {other} {own} {theirs}\nadvertise {own} {other} {ours}\n")
            })
            .collect();
        self.write("routing.policy", &routing)?;
        self.write("traffic.json", &traffic.to_string())
    }

    /// Makes the traffic policy unreadable.
    pub(crate) fn break_policy(&self) -> Result<()> {
        self.write("traffic.json", "{ \"ASes\": { \"1-ff00:0:110\": {")
    }

    fn write_router(&self) -> Result<()> {
        let folder = self.file("router");
        fs::create_dir_all(folder.join("keys"))
            .with_context(|| format!("cannot make {}", folder.display()))?;
        let own = topology();
        let own = own
            .find(isd_as(self.place))
            .context("an AS of the topology")?;
        fs::write(
            folder.join("keys/master0.key"),
            STANDARD.encode(own.master_key()),
        )?;
        let interfaces: serde_json::Map<_, _> = LINKS
            .iter()
            .enumerate()
            .flat_map(|(number, ends)| [0, 1].map(|end| (number, end, ends[end], ends[1 - end])))
            .filter(|(_, _, near, _)| near.0 == self.place)
            .map(|(number, end, near, far)| {
                let interface = json!({
                    "underlay": {
                        "local": relay_end(number, end).router.to_string(),
                        "remote": relay_end(number, end).here.to_string(),
                    },
                    "isd_as": isd_as(far.0).to_string(),
                    "link_to": match (is_core(near.0), is_core(far.0)) {
                        (true, true) => "CORE",
                        (true, false) => "CHILD",
                        _ => "PARENT",
                    },
                    "mtu": MTU,
                });
                (near.1.to_string(), interface)
            })
            .collect();
        let service = json!({ "cs": { "addr": SocketAddr::new(gateway_ip(self.place), RESOLUTION_PORT).to_string() } });
        let document = json!({
            "attributes": if is_core(self.place) { vec!["core"] } else { Vec::new() },
            "isd_as": isd_as(self.place).to_string(),
            "mtu": MTU,
            "dispatched_ports": format!("{}-{}", PORTS.0, PORTS.1),
            "border_routers": { "router": {
                "internal_addr": SocketAddr::new(router_ip(self.place), INSIDE_PORT).to_string(),
                "interfaces": interfaces,
            } },
            "control_service": service,
            "discovery_service": service,
        });
        fs::write(folder.join("topology.json"), document.to_string())?;
        let text = format!(
            "[general]\nid = \"router\"\nconfig_dir = {folder:?}\n\n\
             [xdp]\nmode = \"native\"\nstatus_socket = {:?}\n",
            self.file("router.sock")
        );
        self.write("router.toml", &text)
    }
}

/// Ends a process, if it runs: one that was asked to must end well.
fn end(process: Option<Process>, signal: libc::c_int) -> Result<()> {
    let Some(mut process) = process else {
        return Ok(());
    };
    process.signal(signal);
    let status = process.wait(STOP)?;
    if signal == libc::SIGTERM && !status.success() {
        bail!("ended with {status}:\n{}", process.log());
    }
    Ok(())
}

fn letter(place: usize) -> char {
    char::from(b'a' + place as u8)
}

fn isd_as(place: usize) -> IsdAs {
    IsdAs::new(1, 0xff00_0000_0110 + place as u64)
}

fn is_core(place: usize) -> bool {
    place != 1
}

/// Host 1 of the underlay of an AS.
fn router_ip(place: usize) -> IpAddr {
    Ipv4Addr::new(10, 10 + place as u8, 0, 1).into()
}

/// Host 2 of the underlay of an AS.
fn gateway_ip(place: usize) -> IpAddr {
    Ipv4Addr::new(10, 10 + place as u8, 0, 2).into()
}

/// Prefixes of a LAN, with a comma between.
fn prefixes(place: usize) -> String {
    let net = 10 + place;
    format!("192.168.{net}.0/24,fd00:{net:x}::/64")
}

/// An end of a link.
fn relay_end(link: usize, end: usize) -> relay::End {
    let at = |host| {
        let ip = Ipv4Addr::new(10, 100 + link as u8, end as u8, host);
        SocketAddr::new(ip.into(), LINK_PORT)
    };
    relay::End {
        here: at(2),
        router: at(1),
    }
}

fn connect_router(
    wire: &Netns,
    router: &Netns,
    link: usize,
    end: usize,
    interface: u16,
) -> Result<()> {
    let relay::End {
        here,
        router: there,
    } = relay_end(link, end);
    router.ip(&format!(
        "link add link{interface} type veth peer name link{link}-{end} netns {}\n\
         link set link{interface} up\naddress add {}/24 dev link{interface}",
        wire.name(),
        there.ip(),
    ))?;
    wire.ip(&format!(
        "link set link{link}-{end} up\naddress add {}/24 dev link{link}-{end}",
        here.ip()
    ))?;
    router.exec(&format!("ethtool -K link{interface} tx off"))?;
    wire.exec(&format!("ethtool -K link{link}-{end} gro on tx off"))?;
    Ok(())
}

fn topology() -> Topology {
    let mut topology = Topology::default();
    for place in 0..ASES {
        let host = gateway_ip(place);
        topology.add(scion_net::As {
            isd_as: isd_as(place),
            core: is_core(place),
            mtu: MTU,
            ports: PORTS,
            router: SocketAddr::new(router_ip(place), INSIDE_PORT),
            resolution: SocketAddr::new(host, RESOLUTION_PORT),
            control_service: SocketAddr::new(host, RPC_PORT),
            announces_discovery: false,
            gateways: vec![GatewayAddresses {
                control: SocketAddr::new(host, CONTROL_PORT),
                data: SocketAddr::new(host, DATA_PORT),
                probe: SocketAddr::new(host, PROBE_PORT),
                allow_interfaces: Vec::new(),
            }],
        });
    }
    for (number, ends) in LINKS.iter().enumerate() {
        let ends = [0, 1].map(|end| {
            let (place, interface) = ends[end];
            End {
                isd_as: isd_as(place),
                interface,
                underlay: relay_end(number, end).router,
            }
        });
        topology.connect(ends, MTU);
    }
    topology
}
