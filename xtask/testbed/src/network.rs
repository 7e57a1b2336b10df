//! The whole network.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use anyhow::{Context as _, Result};

use super::{
    Family, Folder, Netns, Router, Site,
    netns::ip,
    router::{As, End, Link, Topology},
    site::{hex_of_decimal, inside, outside},
    wait_until,
};

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

/// How A and B are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// By a link: A is a core AS, B its customer. Paths have one segment.
    Direct,
    /// By way of a third AS, a core AS whose customers A and B are. Its router takes packets from an up segment to a down segment.
    Crossing,
}

/// What connects the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cables {
    /// A pair of veth devices per link.
    Veth,
    /// Network cards of this machine, two per link, which somebody has connected and given the addresses of
    /// [`card_mac`]. They are moved into the namespaces, and come back when these are removed.
    Cards,
}

/// MAC address of the card at an end, 0 or 1, of a link with [`Cables::Cards`]. Links are numbered from client A to client B:
/// LAN, underlay, link of the routers, underlay, LAN; then [`spare_cable`].
pub fn card_mac(link: u8, end: u8) -> [u8; 6] {
    [0x52, 0x54, 0, 0, link, end]
}

/// What the network shall be like.
#[derive(Clone, Debug)]
pub struct Options {
    /// What connects the hosts.
    pub cables: Cables,
    /// Address family of the underlay.
    pub underlay: Underlay,
    /// How the ASes are connected.
    pub route: Route,
    /// Largest SCION packet in bytes. Beyond 1472 over IPv4 and 1452 over IPv6, the underlay has a larger MTU.
    pub path_mtu: u16,
    /// MTU of the LANs in bytes.
    pub lan_mtu: u32,
    /// MTU of the gateways' tunnel devices in bytes.
    pub tunnel_mtu: u32,
    /// More lines of the gateways' section `[dataplane]`.
    pub dataplane: String,
    /// More lines of the gateways' section `[tunnel]`.
    pub tunnel: String,
    /// The router of A runs on the gateway's host, at an address of its loopback interface.
    pub one_host: bool,
    /// The gateways switch their fast path off or on after so many milliseconds, again and again.
    pub switch_fast_path: Option<u32>,
    /// The program, with its arguments, that gateways are started by, such as `setpriv`; empty: none.
    pub gateways_by: Vec<String>,
    /// The same for routers.
    pub routers_by: Vec<String>,
    /// Where gateways and routers serve their pages, each in its namespace: address and port; empty: nowhere.
    pub pages: &'static str,
}

impl Options {
    /// MTU of the underlay in bytes.
    fn underlay_mtu(&self) -> u32 {
        let headers = match self.underlay {
            Underlay::V4 => 28,
            Underlay::V6 => 48,
        };
        (u32::from(self.path_mtu) + headers).max(1500)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cables: Cables::Veth,
            underlay: Underlay::V4,
            route: Route::Direct,
            path_mtu: 1472,
            lan_mtu: 1500,
            tunnel_mtu: 1500,
            dataplane: String::new(),
            tunnel: String::new(),
            one_host: false,
            switch_fast_path: None,
            gateways_by: Vec::new(),
            routers_by: Vec::new(),
            pages: "",
        }
    }
}

/// Two ASes, and a third if paths lead through it. All processes and namespaces go when it is dropped.
#[derive(Debug)]
pub struct Network {
    // The fields are dropped in this order: processes end before their namespaces go.
    routers: Vec<Router>,
    /// AS A.
    pub a: Site,
    /// AS B.
    pub b: Site,
    /// The router of the third AS: interfaces `to-a` and `to-b`.
    pub middle: Option<Netns>,
    folder: Folder,
}

/// The third AS.
const MIDDLE: &str = "1-ff00:0:112";

impl Network {
    /// Makes namespaces, links and addresses, starts the routers, and writes the gateways'
    /// configurations with signed paths. `binary` is the program `sig`.
    ///
    /// # Errors
    /// Missing privileges or tools, or the routers do not find each other.
    pub fn build(binary: &Path, options: &Options) -> Result<Self> {
        let mut network = Self::wire(binary, options)?;
        let topology = network.topology(binary, options);
        let routers = topology.start()?;
        let (a, b) = (&network.a, &network.b);
        a.write_config(b, &topology.path(0, 1)?, options)?;
        b.write_config(a, &topology.path(1, 0)?, options)?;
        network.routers = routers;
        for router in &mut network.routers {
            router.wait_ready()?;
        }
        Ok(network)
    }

    /// The routers: of A, of B, and of the third AS if there is one.
    pub fn routers(&self) -> &[Router] {
        &self.routers
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
        if !(options.gateways_by.is_empty() && options.routers_by.is_empty()) {
            // They may run as somebody else, and make their sockets there.
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777))?;
        }
        let site = |number| Site::new(number, options, binary, folder.path(), &suffix);
        let (a, b) = (site(0)?, site(1)?);
        let middle = match options.route {
            Route::Direct => None,
            Route::Crossing => Some(Netns::new(&format!("router-c{suffix}"))?),
        };
        let network = Self {
            routers: Vec::new(),
            a,
            b,
            middle,
            folder,
        };
        let (a, b) = (&network.a, &network.b);
        for (number, site) in [(0, a), (1, b)] {
            connect_hosts(site, number, options)?;
        }
        let end = |site: u8, device, address: SocketAddr| LinkEnd {
            netns: [a, b][usize::from(site)].router_host(),
            device,
            mac: mac(site, OUTSIDE),
            address,
        };
        let at_a = end(0, "outside", a.router_outside());
        let at_b = end(1, "outside", b.router_outside());
        match &network.middle {
            None => connect_routers(options, 2, [at_a, at_b])?,
            Some(netns) => {
                for (site, link, device, there) in [(0, 2, "to-a", at_a), (1, 6, "to-b", at_b)] {
                    let here = LinkEnd {
                        netns,
                        device,
                        mac: mac(MIDDLE_MACS, site),
                        address: middle_end(options.underlay, site),
                    };
                    connect_routers(options, link, [here, there])?;
                }
                // It has no hosts, and so no device of its own towards them.
                let inside = inside(options.underlay, 2).ip();
                netns.ip(&format!("address add {inside} dev to-a {}", nodad(inside)))?;
            }
        }
        Ok(network)
    }

    /// What routers and paths are made from.
    fn topology<'a>(&'a self, binary: &'a Path, options: &'a Options) -> Topology<'a> {
        let of_site = |letter, site: &'a Site, core| As {
            letter,
            isd_as: site.isd_as(),
            core,
            netns: site.router_host(),
            exclude: site.one_host().then_some("lan"),
            internal: site.router_inside(),
            master_key: ["AAECAwQFBgcICQoLDA0ODw==", "EBESExQVFhcYGRobHB0eHw=="]
                [usize::from(letter == 'b')],
        };
        let end = |of, interface, address| End {
            of,
            interface,
            address,
        };
        let at_a = end(0, 1, self.a.router_outside());
        let at_b = end(1, 2, self.b.router_outside());
        let mut ases = vec![
            of_site('a', &self.a, self.middle.is_none()),
            of_site('b', &self.b, false),
        ];
        let links = match &self.middle {
            None => vec![Link { ends: [at_a, at_b] }],
            Some(netns) => {
                ases.push(As {
                    letter: 'c',
                    isd_as: MIDDLE,
                    core: true,
                    netns,
                    exclude: None,
                    internal: inside(options.underlay, 2),
                    master_key: "ICEiIyQlJicoKSorLC0uLw==",
                });
                let here =
                    |site: u8, interface| end(2, interface, middle_end(options.underlay, site));
                vec![
                    Link {
                        ends: [here(0, 11), at_a],
                    },
                    Link {
                        ends: [here(1, 12), at_b],
                    },
                ]
            }
        };
        Topology {
            ases,
            links,
            mtu: options.path_mtu,
            folder: self.folder(),
            binary,
            xdp_mode: match options.cables {
                // Each side of a veth pair sends only once the other one has a native program: a router that is to choose
                // itself would not begin.
                Cables::Veth => "native",
                Cables::Cards => "auto",
            },
            started_by: &options.routers_by,
            pages: options.pages,
        }
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
/// In MAC addresses, in place of a site: the third AS's router, with the site that an interface leads to.
const MIDDLE_MACS: u8 = 2;

/// A locally administered MAC address.
fn mac(site: u8, interface: u8) -> String {
    format!("02:00:00:00:{:02x}:{interface:02x}", 10 + site)
}

/// MAC addresses of the LAN of a site: of its client, and of its gateway.
pub(super) fn lan_macs(site: u8) -> [[u8; 6]; 2] {
    [CLIENT, GATEWAY_LAN].map(|interface| [2, 0, 0, 0, 10 + site, interface])
}

/// Joins two namespaces, both ends up.
fn connect(cables: Cables, link: u8, ends: &[(&Netns, &str, String); 2], mtu: u32) -> Result<()> {
    if cables == Cables::Cards {
        return plug_in(
            link,
            &ends.each_ref().map(|(netns, name, _)| (*netns, *name)),
            mtu,
        );
    }
    let [(left, left_name, left_mac), (right, right_name, right_mac)] = ends;
    left.ip(&format!(
        "link add {left_name} mtu {mtu} address {left_mac} type veth \
         peer name {right_name} mtu {mtu} address {right_mac} netns {}\n\
         link set {left_name} up",
        right.name()
    ))?;
    right.ip(&format!("link set {right_name} up")).map(drop)
}

/// Link number of the cable that nothing uses at first.
const SPARE: u8 = 5;

/// Joins two namespaces with two more network cards, both ends up.
///
/// # Errors
/// There are none.
pub fn spare_cable(ends: [(&Netns, &str); 2]) -> Result<()> {
    plug_in(SPARE, &ends, 1500)
}

/// Moves the cards of a link into two namespaces, and sets them up.
fn plug_in(link: u8, ends: &[(&Netns, &str); 2], mtu: u32) -> Result<()> {
    for (end, (netns, name)) in (0..).zip(ends) {
        // Cards come back from a namespace some time after it has been removed.
        let mut found = None;
        wait_until("the card is there", Duration::from_secs(10), || {
            found = card(card_mac(link, end)).ok();
            Ok(found.is_some())
        })?;
        let card = found.context("the card")?;
        ip(&["link", "set", &card, "netns", netns.name()], "")?;
        netns.ip(&format!(
            "link set {card} name {name} mtu {mtu}\nlink set {name} up"
        ))?;
    }
    Ok(())
}

/// Name of the interface of this namespace that has a MAC address.
fn card(address: [u8; 6]) -> Result<String> {
    let address = address.map(|byte| format!("{byte:02x}")).join(":");
    let cards = fs::read_dir("/sys/class/net").context("cannot list the interfaces")?;
    let card = cards.flatten().find(|card| {
        fs::read_to_string(card.path().join("address")).is_ok_and(|own| own.trim_end() == address)
    });
    card.map(|card| card.file_name().to_string_lossy().into_owned())
        .with_context(|| format!("no interface has the address {address}"))
}

fn nodad(address: IpAddr) -> &'static str {
    if address.is_ipv6() { "nodad" } else { "" }
}

/// Client, gateway and router of one AS.
fn connect_hosts(site: &Site, number: u8, options: &Options) -> Result<()> {
    connect(
        options.cables,
        if number == 0 { 0 } else { 4 },
        &[
            (&site.client, "lan", mac(number, CLIENT)),
            (&site.gateway, "lan", mac(number, GATEWAY_LAN)),
        ],
        options.lan_mtu,
    )?;
    connect(
        options.cables,
        if number == 0 { 1 } else { 3 },
        &[
            (&site.gateway, "underlay", mac(number, GATEWAY_UNDERLAY)),
            (&site.router, "inside", mac(number, INSIDE)),
        ],
        options.underlay_mtu(),
    )?;
    site.gateway.set_sysctls(&[
        ("net/ipv4/ip_forward", "1"),
        ("net/ipv6/conf/all/forwarding", "1"),
    ])?;
    // The router sends by XDP_REDIRECT, and veth takes that only where NAPI runs: with an XDP program in native mode,
    // or with GRO.
    // And it sends what it finds: checksums that the kernel leaves to the network card would stay open.
    site.gateway.exec("ethtool -K underlay gro on tx off")?;
    // So does the gateway.
    site.client.exec("ethtool -K lan gro on")?;
    for (family, length) in [(Family::V4, 24), (Family::V6, 64)] {
        let (client, gateway) = (site.client_ip(family), site.gateway_ip(family));
        let nodad = nodad(client);
        site.gateway
            .ip(&format!("address add {gateway}/{length} dev lan {nodad}"))?;
        site.client.ip(&format!(
            "address add {client}/{length} dev lan {nodad}\nroute add default via {gateway}"
        ))?;
    }
    forward_and_complete(&site.router, &["inside"])?;
    let length = options.underlay.prefix_len();
    let (router, inside) = match site.one_host() {
        true => (&site.gateway, "lo"),
        false => (&site.router, "inside"),
    };
    for (netns, device, address) in [
        (&site.gateway, "underlay", site.data_addr().ip()),
        (router, inside, site.router_inside().ip()),
    ] {
        netns.ip(&format!(
            "address add {address}/{length} dev {device} {}",
            nodad(address)
        ))?;
    }
    Ok(())
}

/// An end of a link between routers.
struct LinkEnd<'a> {
    netns: &'a Netns,
    device: &'static str,
    mac: String,
    address: SocketAddr,
}

fn connect_routers(options: &Options, link: u8, ends: [LinkEnd<'_>; 2]) -> Result<()> {
    let joined = ends
        .each_ref()
        .map(|end| (end.netns, end.device, end.mac.clone()));
    connect(options.cables, link, &joined, options.underlay_mtu())?;
    for end in ends {
        let address = end.address.ip();
        end.netns.ip(&format!(
            "address add {address}/{} dev {} {}",
            options.underlay.prefix_len(),
            end.device,
            nodad(address)
        ))?;
        forward_and_complete(end.netns, &[end.device])?;
    }
    Ok(())
}

/// What routers need of their hosts: the kernel says by which way packets go to hosts only if it forwards itself, and checksums
/// that it leaves to the network card would stay open where an XDP program sends packets on.
fn forward_and_complete(netns: &Netns, devices: &[&str]) -> Result<()> {
    netns.set_sysctls(&[
        ("net/ipv4/ip_forward", "1"),
        ("net/ipv6/conf/all/forwarding", "1"),
    ])?;
    for device in devices {
        netns.exec(&format!("ethtool -K {device} tx off"))?;
    }
    Ok(())
}

/// The third AS's end of its link to a site.
fn middle_end(underlay: Underlay, site: u8) -> SocketAddr {
    outside(underlay, site, 2)
}
