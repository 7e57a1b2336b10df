//! The whole network.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::Path,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use anyhow::Result;

use super::{Family, Folder, Netns, Process, Site, site::hex_of_decimal};

/// How long the relays may take to start.
const RELAY_READY: Duration = Duration::from_secs(15);

/// Address family between gateways and routers, and between the routers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Underlay {
    /// 10.x.0.0/24
    V4,
    /// fd00:a:x::/64
    V6,
}

impl Underlay {
    /// Host `host` of the underlay network `net`.
    pub(super) fn ip(self, net: u8, host: u8) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::new(10, net, 0, host).into(),
            Self::V6 => {
                Ipv6Addr::new(0xfd00, 0xa, hex_of_decimal(net), 0, 0, 0, 0, host.into()).into()
            }
        }
    }

    fn prefix_len(self) -> u8 {
        match self {
            Self::V4 => 24,
            Self::V6 => 64,
        }
    }
}

/// What the network shall be like.
#[derive(Clone, Debug)]
pub struct Options {
    /// Address family of the underlay.
    pub underlay: Underlay,
    /// Largest SCION packet in bytes; at most 1472 over IPv4 and 1452 over IPv6.
    pub path_mtu: u16,
    /// MTU of the LANs in bytes.
    pub lan_mtu: u32,
    /// MTU of the gateways' tunnel devices in bytes.
    pub tunnel_mtu: u32,
    /// More lines of the gateways' section `[dataplane]`.
    pub dataplane: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            underlay: Underlay::V4,
            path_mtu: 1472,
            lan_mtu: 1500,
            tunnel_mtu: 1500,
            dataplane: String::new(),
        }
    }
}

/// Two ASes. All processes and namespaces go when it is dropped.
#[derive(Debug)]
pub struct Network {
    // The fields are dropped in this order: processes end before their namespaces go.
    relays: Vec<Process>,
    /// AS A.
    pub a: Site,
    /// AS B.
    pub b: Site,
    folder: Folder,
}

impl Network {
    /// Makes namespaces, links and addresses, starts the relays, and writes the gateways'
    /// configurations. `binary` is the program `sig`.
    ///
    /// # Errors
    /// Missing privileges or tools, or the relays do not start.
    pub fn build(binary: &Path, options: &Options) -> Result<Self> {
        let mut network = Self::wire(binary, options)?;
        let (a, b) = (&network.a, &network.b);
        a.write_config(b, options)?;
        b.write_config(a, options)?;
        let relays = [
            spawn_relay(binary, 0, a, b, network.folder())?,
            spawn_relay(binary, 1, b, a, network.folder())?,
        ];
        network.relays.extend(relays);
        for relay in &mut network.relays {
            relay.wait_for("ready", RELAY_READY)?;
        }
        Ok(network)
    }

    /// Makes only namespaces, links and addresses: for those who put something else than `sig` in.
    ///
    /// # Errors
    /// Missing privileges or tools.
    pub fn links(options: &Options) -> Result<Self> {
        Self::links_for(Path::new("sig"), options)
    }

    /// The same, for gateways that are started later: the program `binary`, called with `run --config FILE`, the file
    /// being [`Site::config_file`].
    ///
    /// # Errors
    /// Missing privileges or tools.
    pub fn links_for(binary: &Path, options: &Options) -> Result<Self> {
        Self::wire(binary, options)
    }

    fn wire(binary: &Path, options: &Options) -> Result<Self> {
        let suffix = suffix();
        let folder = Folder::new(&format!("network{suffix}"))?;
        let site = |number| Site::new(number, options.underlay, binary, folder.path(), &suffix);
        let network = Self {
            a: site(0)?,
            b: site(1)?,
            relays: Vec::new(),
            folder,
        };
        let (a, b) = (&network.a, &network.b);
        for (number, site) in [(0, a), (1, b)] {
            connect_hosts(site, number, options)?;
        }
        let ends = [
            (&a.router, "outside", mac(0, OUTSIDE)),
            (&b.router, "outside", mac(1, OUTSIDE)),
        ];
        connect(&ends, 1500)?;
        for site in [a, b] {
            let address = site.router_outside().ip();
            site.router.ip(&format!(
                "address add {address}/{} dev outside {}",
                options.underlay.prefix_len(),
                nodad(address)
            ))?;
        }
        Ok(network)
    }

    /// Starts both gateways and waits until they are ready.
    ///
    /// # Errors
    /// One does not get ready; the message holds its log.
    pub fn start_gateways(&mut self) -> Result<()> {
        self.a.spawn_gateway()?;
        self.b.spawn_gateway()?;
        self.a.wait_ready()?;
        self.b.wait_ready()
    }

    /// Folder with configurations, logs and status sockets.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// Tells the networks of one process apart: nothing for the first, `-2` for the second.
fn suffix() -> String {
    static NETWORKS: AtomicU32 = AtomicU32::new(0);
    match NETWORKS.fetch_add(1, Ordering::Relaxed) {
        0 => String::new(),
        earlier => format!("-{}", earlier + 1),
    }
}

const CLIENT: u8 = 1;
const GATEWAY_LAN: u8 = 2;
const GATEWAY_UNDERLAY: u8 = 3;
const INSIDE: u8 = 4;
const OUTSIDE: u8 = 5;

/// A locally administered MAC address.
fn mac(site: u8, interface: u8) -> String {
    format!("02:00:00:00:{:02x}:{interface:02x}", 10 + site)
}

/// MAC addresses of the LAN of a site: of its client, and of its gateway.
pub(super) fn lan_macs(site: u8) -> [[u8; 6]; 2] {
    [CLIENT, GATEWAY_LAN].map(|interface| [2, 0, 0, 0, 10 + site, interface])
}

/// Joins two namespaces with a veth pair, both ends up.
fn connect(ends: &[(&Netns, &str, String); 2], mtu: u32) -> Result<()> {
    let [(left, left_name, left_mac), (right, right_name, right_mac)] = ends;
    left.ip(&format!(
        "link add {left_name} mtu {mtu} address {left_mac} type veth \
         peer name {right_name} mtu {mtu} address {right_mac} netns {}\n\
         link set {left_name} up",
        right.name()
    ))?;
    right.ip(&format!("link set {right_name} up")).map(drop)
}

fn nodad(address: IpAddr) -> &'static str {
    if address.is_ipv6() { "nodad" } else { "" }
}

/// Client, gateway and router of one AS.
fn connect_hosts(site: &Site, number: u8, options: &Options) -> Result<()> {
    connect(
        &[
            (&site.client, "lan", mac(number, CLIENT)),
            (&site.gateway, "lan", mac(number, GATEWAY_LAN)),
        ],
        options.lan_mtu,
    )?;
    connect(
        &[
            (&site.gateway, "underlay", mac(number, GATEWAY_UNDERLAY)),
            (&site.router, "inside", mac(number, INSIDE)),
        ],
        1500,
    )?;
    site.gateway.set_sysctls(&[
        ("net/ipv4/ip_forward", "1"),
        ("net/ipv6/conf/all/forwarding", "1"),
    ])?;
    // The relay sends by XDP_REDIRECT, and veth takes that only where NAPI runs: with an XDP program in native mode,
    // or with GRO.
    // And it sends what it finds: checksums that the kernel leaves to the network card would stay open.
    site.gateway.exec("ethtool -K underlay gro on tx off")?;
    for (family, length) in [(Family::V4, 24), (Family::V6, 64)] {
        let (client, gateway) = (site.client_ip(family), site.gateway_ip(family));
        let nodad = nodad(client);
        site.gateway
            .ip(&format!("address add {gateway}/{length} dev lan {nodad}"))?;
        site.client.ip(&format!(
            "address add {client}/{length} dev lan {nodad}\nroute add default via {gateway}"
        ))?;
    }
    let length = options.underlay.prefix_len();
    for (netns, device, address) in [
        (&site.gateway, "underlay", site.data_addr().ip()),
        (&site.router, "inside", site.router_inside().ip()),
    ] {
        netns.ip(&format!(
            "address add {address}/{length} dev {device} {}",
            nodad(address)
        ))?;
    }
    Ok(())
}

/// Starts the relay in the router of `own`.
fn spawn_relay(
    binary: &Path,
    number: u8,
    own: &Site,
    other: &Site,
    folder: &Path,
) -> Result<Process> {
    let mut command = own.router.command(binary);
    command.arg("relay");
    command.args([
        "--forward",
        &format!(
            "inside,{}=outside,{},{},{}",
            own.router_inside(),
            own.router_outside(),
            other.router_outside(),
            mac(1 - number, OUTSIDE),
        ),
        "--forward",
        &format!(
            "outside,{}=inside,{},{},{}",
            own.router_outside(),
            own.router_inside(),
            own.data_addr(),
            mac(number, GATEWAY_UNDERLAY),
        ),
    ]);
    Process::spawn(command, &folder.join(format!("router-{number}.log")))
}
