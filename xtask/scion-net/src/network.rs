//! Two ASes with everything that gateways need.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result};
use sig_common::addr::IsdAs;
use sig_core::peer::GatewayAddresses;
use testbed::{Network, Options, Site, Underlay};

use crate::{
    control_service::ControlService,
    daemon::Daemon,
    link::{End, Link},
    router::Router,
    topology::{As, Topology},
};

/// Where the daemon of an AS listens: on the gateway's host.
pub const DAEMON: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 30255);
/// Where a gateway is asked for prefixes, unless something else is configured.
pub const CONTROL_PORT: u16 = 30256;
/// Where a gateway is probed, unless something else is configured.
pub const PROBE_PORT: u16 = 30856;

/// Where a control service gets service resolution requests.
const RESOLUTION_PORT: u16 = 30252;
/// Where a control service gets RPCs.
const RPC_PORT: u16 = 30254;
/// The routers' port on the first link between ASes.
const LINK_PORT: u16 = 50000;
/// The third AS: core, parent of B.
const TRANSIT: IsdAs = IsdAs::new(1, 0xff00_0000_0112);

/// What a network shall be like.
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// Address family of the underlay.
    pub underlay: Underlay,
    /// First and last dispatched port of both ASes; both 0: none.
    pub ports: (u16, u16),
    /// Largest SCION packet within the ASes and on all links, in bytes; at most 1472 over IPv4 and 1452 over IPv6.
    pub mtu: u16,
    /// One-way latency that paths announce for each link between the two ASes.
    pub announced_latency: [Option<Duration>; 2],
    /// Whether there is a third AS, by which a path of two links leads.
    pub transit: bool,
    /// Whether paths name the discovery service of the AS that they lead to.
    pub announces_discovery: bool,
    /// MTU of the LANs in bytes.
    pub lan_mtu: u32,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            underlay: Underlay::V4,
            ports: (31000, 32767),
            mtu: 1472,
            announced_latency: [None; 2],
            transit: false,
            announces_discovery: false,
            lan_mtu: 1500,
        }
    }
}

/// Two ASes, each with client, gateway, router, control service and daemon, and two links between them.
///
/// ```text
///   AS 1-ff00:0:110 (core)                                     AS 1-ff00:0:111
///   client-a ──lan── gateway-a ──underlay── router-a ══ router-b ──underlay── gateway-b ──lan── client-b
///                    daemon                 control service
/// ```
///
/// Every host is a network namespace. Both links are disjoint paths: link 0 has interface 1 of both ASes, link 1 their
/// interface 2. With [`SimOptions::transit`], a third path leads from interface 3 of A through 1-ff00:0:112 (its
/// interfaces 1 and 2) to interface 3 of B.
///
/// Routers, control services and daemons are threads of this process. Gateways are processes that the test starts, with
/// configurations that it writes. The control services tell one gateway in each AS: at [`Site::data_addr`], with the
/// default ports of the reference for control and probes.
///
/// Needs root. Everything ends with it.
///
/// ```no_run
/// use std::time::Duration;
/// use scion_net::{Cut, SimNetwork, SimOptions};
/// use testbed::{Family, ping};
///
/// # fn main() -> anyhow::Result<()> {
/// let mut net = SimNetwork::build("target/debug/sig".as_ref(), &SimOptions::default())?;
/// for site in [&net.network.a, &net.network.b] {
///     net.configure(site, "[gateway]\n# ...")?;
/// }
/// net.network.start_gateways()?;
/// let to = net.network.b.client_ip(Family::V4);
/// assert_eq!(ping(&net.network.a.client, to, 10, 56, Duration::from_millis(20))?.received, 10);
/// net.links[0].cut(Cut::Silent);
/// net.links[1].set_delay(Duration::from_millis(30));
/// net.a.daemon.set_paths_refresh(Duration::from_secs(30));
/// net.b.control_service.stop();
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SimNetwork {
    // The fields are dropped in this order: what runs ends before its namespaces go.
    /// What belongs to AS A.
    pub a: Services,
    /// What belongs to AS B.
    pub b: Services,
    transit: Option<Router>,
    /// The links between A and B, then those from A to the third AS and from there to B, if it is there.
    pub links: Vec<Arc<Link>>,
    /// What the routers and daemons work with.
    pub topology: Arc<Topology>,
    /// The hosts. [`Network::start_gateways`] starts both gateways, [`Site::start_gateway`] one of them.
    pub network: Network,
}

/// The SCION services of an AS.
#[derive(Debug)]
pub struct Services {
    /// Its daemon, on the gateway's host at [`DAEMON`].
    pub daemon: Daemon,
    /// Its control service, on the router's host.
    pub control_service: ControlService,
    /// Its router.
    pub router: Router,
}

impl SimNetwork {
    /// Makes the network. `binary` is the program that gateways are, called with `run --config FILE`.
    ///
    /// # Errors
    /// Missing privileges or tools.
    pub fn build(binary: &Path, options: &SimOptions) -> Result<Self> {
        let network = Network::links_for(
            binary,
            &Options {
                underlay: options.underlay,
                path_mtu: options.mtu,
                lan_mtu: options.lan_mtu,
                ..Options::default()
            },
        )?;
        let sites = [&network.a, &network.b];
        let topology = topology(sites, options)?;
        if options.transit {
            let address = transit_address(&network.b);
            let options = match address {
                IpAddr::V4(_) => "/24 dev outside",
                IpAddr::V6(_) => "/64 dev outside nodad",
            };
            let router = &network.b.router;
            router.ip(&format!("address add {address}{options}"))?;
        }
        let services = |site: &Site| -> Result<Services> {
            let isd_as = isd_as(site)?;
            Ok(Services {
                daemon: Daemon::start(Some(&site.gateway), &topology, isd_as, DAEMON)?,
                control_service: ControlService::start(Some(&site.router), &topology, isd_as)?,
                router: Router::start(Some(&site.router), &topology, isd_as)?,
            })
        };
        let [a, b] = [services(&network.a)?, services(&network.b)?];
        let transit = options
            .transit
            .then(|| Router::start(Some(&network.b.router), &topology, TRANSIT))
            .transpose()?;
        Ok(Self {
            a,
            b,
            transit,
            links: topology.links().to_vec(),
            topology,
            network,
        })
    }

    /// Writes the configuration of the gateway of a site, to [`Site::config_file`].
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn configure(&self, site: &Site, configuration: &str) -> Result<()> {
        let file = site.config_file();
        fs::write(&file, configuration).with_context(|| format!("cannot write {}", file.display()))
    }

    /// The router of the third AS, if there is one.
    #[must_use]
    pub fn transit(&self) -> Option<&Router> {
        self.transit.as_ref()
    }
}

/// The gateway of a site as its control service tells it at first.
#[must_use]
pub fn gateway_entry(site: &Site) -> GatewayAddresses {
    let data = site.data_addr();
    GatewayAddresses {
        control: SocketAddr::new(data.ip(), CONTROL_PORT),
        data,
        probe: SocketAddr::new(data.ip(), PROBE_PORT),
        allow_interfaces: Vec::new(),
    }
}

fn isd_as(site: &Site) -> Result<IsdAs> {
    let isd_as = site.isd_as().parse();
    isd_as.map_err(|error| anyhow::anyhow!("{}: {error}", site.isd_as()))
}

fn topology(sites: [&Site; 2], options: &SimOptions) -> Result<Arc<Topology>> {
    let mut topology = Topology::default();
    let [a, b] = [isd_as(sites[0])?, isd_as(sites[1])?];
    for (site, isd_as) in [(sites[0], a), (sites[1], b)] {
        let router = site.router_inside();
        topology.add(As {
            isd_as,
            core: isd_as == a,
            mtu: options.mtu,
            ports: options.ports,
            router,
            resolution: SocketAddr::new(router.ip(), RESOLUTION_PORT),
            control_service: SocketAddr::new(router.ip(), RPC_PORT),
            announces_discovery: options.announces_discovery,
            gateways: vec![gateway_entry(site)],
        });
    }
    let at = |isd_as, interface, ip, link: u16| End {
        isd_as,
        interface,
        underlay: SocketAddr::new(ip, LINK_PORT + link),
    };
    let [ip_a, ip_b] = sites.map(|site| site.router_outside().ip());
    for (number, latency) in (0..).zip(options.announced_latency) {
        let ends = [
            at(a, number + 1, ip_a, number),
            at(b, number + 1, ip_b, number),
        ];
        topology.connect_with_latency(ends, options.mtu, latency);
    }
    if options.transit {
        let ip = transit_address(sites[1]);
        topology.add(As {
            isd_as: TRANSIT,
            core: true,
            mtu: options.mtu,
            ports: options.ports,
            router: SocketAddr::new(ip, 30042),
            resolution: SocketAddr::new(ip, RESOLUTION_PORT),
            control_service: SocketAddr::new(ip, RPC_PORT),
            announces_discovery: false,
            gateways: Vec::new(),
        });
        topology.connect([at(a, 3, ip_a, 2), at(TRANSIT, 1, ip, 2)], options.mtu);
        topology.connect([at(TRANSIT, 2, ip, 3), at(b, 3, ip_b, 3)], options.mtu);
    }
    Ok(Arc::new(topology))
}

/// Address of the third AS's router; it is on the host of the router of B.
fn transit_address(b: &Site) -> IpAddr {
    match b.router_outside().ip() {
        IpAddr::V4(ip) => {
            let [x, y, z, _] = ip.octets();
            Ipv4Addr::new(x, y, z, 3).into()
        }
        IpAddr::V6(ip) => {
            let [rest @ .., _] = ip.segments();
            let [s0, s1, s2, s3, s4, s5, s6] = rest;
            Ipv6Addr::new(s0, s1, s2, s3, s4, s5, s6, 3).into()
        }
    }
}
