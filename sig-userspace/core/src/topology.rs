//! `topology.json`: the AS as all its services know it.
//!
//! As the reference does, names of keys are taken in any case, and unknown ones are ignored (with a warning).

use std::{
    collections::BTreeSet,
    net::{SocketAddr, SocketAddrV6},
    ops::RangeInclusive,
    time::Duration,
};

use sig_common::{addr::IsdAs, router::maps::LinkType};

use crate::{
    document::{
        common::one_as,
        json::{Fields, Node, Unknown},
        values::socket_address,
    },
    notation::{duration, show_duration},
    problem::{Report, excerpt},
};

const TOP: &[&str] = &[
    "isd_as",
    "mtu",
    "dispatched_ports",
    "attributes",
    "border_routers",
    "control_service",
    "discovery_service",
    // For other services.
    "timestamp",
    "timestamp_human",
    "hidden_segment_lookup_service",
    "hidden_segment_registration_service",
    "sigs",
];
const INTERFACE: &[&str] = &[
    "underlay",
    "isd_as",
    "link_to",
    "mtu",
    "bfd",
    "remote_interface_id",
];
const BFD: &[&str] = &[
    "disable",
    "detect_mult",
    "desired_min_tx_interval",
    "required_min_rx_interval",
];

/// Services that other programs are asked for, and the members that say where they listen.
const OTHER_SERVICES: [(&str, &[&str]); 3] = [
    ("hidden_segment_lookup_service", &["addr"]),
    ("hidden_segment_registration_service", &["addr"]),
    ("sigs", &["ctrl_addr", "data_addr", "probe_addr"]),
];

/// An AS that cannot carry packets of this size is of no use.
const SMALLEST_MTU: u16 = 576;

/// A topology. Where something is wrong with an element, it is left out and reported.
pub struct Topology<'a> {
    /// The AS.
    pub isd_as: IsdAs,
    /// Whether it is a core AS.
    pub core: bool,
    /// Largest SCION packet within the AS, bytes.
    pub mtu: u16,
    /// UDP ports of hosts that packets are dispatched to.
    pub ports: Option<RangeInclusive<u16>>,
    /// The border routers.
    pub routers: Vec<Router<'a>>,
    /// Instances of the control service.
    pub control_services: Vec<SocketAddr>,
    /// Instances of the discovery service.
    pub discovery_services: Vec<SocketAddr>,
    /// All services, with where the address stands.
    pub services: Vec<(SocketAddr, Node<'a>)>,
    /// The whole topology, if it does not say which ports are dispatched.
    pub without_ports: Option<Node<'a>>,
}

impl Topology<'_> {
    /// Where all services listen.
    #[must_use]
    pub fn service_addresses(&self) -> BTreeSet<SocketAddr> {
        self.services.iter().map(|(address, _)| *address).collect()
    }

    /// Warns of hosts that would not get what they should: packets for ports that are not `dispatched` need a dispatcher.
    pub fn warn_of_ports(&self, dispatched: Option<&RangeInclusive<u16>>) {
        let Some(ports) = dispatched else {
            if let Some(node) = &self.without_ports {
                node.warn(
                    "dispatched_ports: missing: packets for hosts go to port 30041, where a dispatcher must \
                     relay them; only the services in this topology receive theirs directly; write for example \
                     \"dispatched_ports\": \"31000-32767\"",
                );
            }
            return;
        };
        let outside = self.services.iter();
        let outside: Vec<_> = outside
            .filter(|(address, _)| !ports.contains(&address.port()))
            .collect();
        if let Some((_, node)) = outside.first() {
            let addresses: BTreeSet<String> = outside.iter().map(|s| s.0.to_string()).collect();
            let addresses: Vec<String> = addresses.into_iter().collect();
            node.warn(format!(
                "{} {} not in dispatched_ports {}-{}: packets still go to that port because the topology \
                 lists it; other programs on that host need a port in the range or a dispatcher on port 30041",
                addresses.join(", "),
                if addresses.len() == 1 { "is" } else { "are" },
                ports.start(),
                ports.end()
            ));
        }
    }
}

/// A border router.
pub struct Router<'a> {
    /// Its name.
    pub name: String,
    /// Where it stands.
    pub node: Node<'a>,
    /// Where it gets packets of hosts, and where that stands.
    pub internal: (SocketAddr, Node<'a>),
    /// Its interfaces.
    pub interfaces: Vec<Interface<'a>>,
}

/// An interface of a border router.
pub struct Interface<'a> {
    /// Its number within the AS.
    pub number: u16,
    /// Where it stands.
    pub node: Node<'a>,
    /// The AS at the other end.
    pub neighbour: IsdAs,
    /// The number of the interface at the other end, where it is written.
    pub neighbour_interface: Option<u16>,
    /// What the neighbour is to this AS.
    pub link_type: LinkType,
    /// Largest SCION packet on the link, bytes.
    pub mtu: u16,
    /// BFD on the link.
    pub bfd: OwnBfd,
    /// Our end and the neighbour's, as far as [`Ends`] are read.
    pub underlay: Option<[(SocketAddr, Node<'a>); 2]>,
}

/// How the liveness of a link is checked (RFC 5880).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bfd {
    /// No BFD: the link counts as up.
    pub disabled: bool,
    /// So many intervals without a packet mean that it is down.
    pub detect_mult: u8,
    /// How often we want to send.
    pub desired_min_tx: Duration,
    /// How often we are ready to receive.
    pub required_min_rx: Duration,
}

impl Bfd {
    /// The longest interval that BFD packets can tell: they have it in microseconds, in 32 bits.
    pub const LONGEST_INTERVAL: Duration = Duration::from_micros(u32::MAX as u64);

    /// Shortest interval between packets.
    pub const SHORTEST_INTERVAL: Duration = Duration::from_millis(1);

    /// Reads an interval; `None`: 0, which stands for the default.
    ///
    /// # Errors
    ///
    /// What is wrong, and what to write.
    pub fn interval(text: &str) -> Result<Option<Duration>, String> {
        let value = duration(text)?;
        if value.is_zero() {
            return Ok(None);
        }
        if !(Self::SHORTEST_INTERVAL..=Self::LONGEST_INTERVAL).contains(&value) {
            return Err(format!(
                "\"{}\" is out of range; write a duration from \"{}\" to \"{}\", or \"0s\" for the default",
                excerpt(text),
                show_duration(Self::SHORTEST_INTERVAL),
                show_duration(Duration::from_secs(Self::LONGEST_INTERVAL.as_secs()))
            ));
        }
        Ok(Some(value))
    }
}

impl Default for Bfd {
    /// The defaults of the reference.
    fn default() -> Self {
        Self {
            disabled: false,
            detect_mult: 3,
            desired_min_tx: Duration::from_millis(200),
            required_min_rx: Duration::from_millis(200),
        }
    }
}

/// What a link has instead of the defaults of the router.
#[derive(Clone, Copy, Default)]
pub struct OwnBfd {
    disabled: Option<bool>,
    detect_mult: Option<u8>,
    desired_min_tx: Option<Duration>,
    required_min_rx: Option<Duration>,
}

impl OwnBfd {
    /// What holds for the link.
    #[must_use]
    pub fn or(self, default: Bfd) -> Bfd {
        Bfd {
            disabled: self.disabled.unwrap_or(default.disabled),
            detect_mult: self.detect_mult.unwrap_or(default.detect_mult),
            desired_min_tx: self.desired_min_tx.unwrap_or(default.desired_min_tx),
            required_min_rx: self.required_min_rx.unwrap_or(default.required_min_rx),
        }
    }
}

/// Of which links the ends in the underlay are of interest.
#[derive(Clone, Copy, Debug)]
pub enum Ends<'a> {
    /// Of those of this router.
    Of(Option<&'a str>),
    /// Of all, where they can be read.
    All,
}

/// Reads the topology; what is wrong is reported.
pub fn read<'a>(report: &'a Report<'a>, text: &'a str, ends: Ends<'_>) -> Option<Topology<'a>> {
    let document = Node::document(report, text)?;
    let fields = document.fields(TOP, Unknown::Warn)?;
    let isd_as = document
        .require(
            &fields,
            "isd_as",
            "the AS, for example \"isd_as\": \"1-ff00:0:110\"",
        )
        .and_then(|node| node.parse("\"1-ff00:0:110\"", one_as));
    let mtu = document
        .require(
            &fields,
            "mtu",
            "the largest SCION packet within the AS in bytes, for example \"mtu\": 1472",
        )
        .and_then(|node| node.integer(SMALLEST_MTU..=u16::MAX));
    let ports = match fields.get("dispatched_ports") {
        Some(node) => node.parse("\"31000-32767\"", ports),
        None => Some(None),
    };
    let core = fields.get("attributes").map_or(Some(false), attributes);
    let context = Context {
        isd_as,
        core,
        mtu,
        ends,
    };
    let routers = fields
        .get("border_routers")
        .map_or(Some(Vec::new()), |node| {
            each(node, |name, node| router(name, node, &context))
        });
    let services = |key| {
        fields
            .get(key)
            .map_or(Some(Vec::new()), |node| each(node, |_, node| service(node)))
    };
    let (control_services, discovery_services) =
        (services("control_service"), services("discovery_service"));
    let (control_services, discovery_services) = (control_services?, discovery_services?);
    let plain = |services: &[(SocketAddr, Node<'a>)]| services.iter().map(|s| s.0).collect();
    let (controls, discoveries) = (plain(&control_services), plain(&discovery_services));
    let others = OTHER_SERVICES.iter().filter_map(|(key, members)| {
        let node = fields.get(key)?;
        Some(other_services(node, members))
    });
    let services = control_services.into_iter().chain(discovery_services);
    let services = services.chain(others.flatten()).collect();
    Some(Topology {
        isd_as: isd_as?,
        core: core?,
        mtu: mtu?,
        ports: ports?,
        routers: routers?,
        control_services: controls,
        discovery_services: discoveries,
        services,
        without_ports: (!fields.contains_key("dispatched_ports")).then(|| document.clone()),
    })
}

/// What interfaces are checked against, as far as it could be read.
struct Context<'a> {
    isd_as: Option<IsdAs>,
    core: Option<bool>,
    mtu: Option<u16>,
    ends: Ends<'a>,
}

/// The members of an object, all of which are read also after a wrong one.
fn each<'a, T>(node: &Node<'a>, read: impl Fn(String, &Node<'a>) -> Option<T>) -> Option<Vec<T>> {
    let members = node.members("an object: {…}")?;
    let mut seen = Vec::new();
    let read = members.into_iter().map(|(name, node)| {
        if seen.contains(&name) {
            node.error("is set twice; remove one");
            return None;
        }
        seen.push(name.clone());
        read(name, &node)
    });
    let read: Vec<Option<T>> = read.collect();
    read.into_iter().collect()
}

/// Ranges of ports as the reference writes them. No port: `None`.
fn ports(text: &str) -> Result<Option<RangeInclusive<u16>>, String> {
    let wrong = || {
        format!(
            "\"{}\" is not a range of ports; write for example \"31000-32767\", \"all\" or \"-\"",
            excerpt(text)
        )
    };
    match text {
        "" | "-" => return Ok(None),
        "all" | "ALL" => return Ok(Some(1..=u16::MAX)),
        _ => {}
    }
    let (first, last) = text.split_once('-').ok_or_else(wrong)?;
    let port = |text: &str| {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u16>().ok().filter(|port| digits && *port != 0)
    };
    let (first, last) = port(first).zip(port(last)).ok_or_else(wrong)?;
    if first > last {
        return Err(format!("{first} is after {last}; write \"{last}-{first}\""));
    }
    Ok(Some(first..=last))
}

fn attributes(node: &Node<'_>) -> Option<bool> {
    let mut core = false;
    for element in node.elements("an array, for example [\"core\"]")? {
        core |= element.parse("\"core\"", |word| match word {
            "core" => Ok(true),
            // Attributes of earlier times.
            "" | "authoritative" | "issuing" | "voting" => Ok(false),
            _ => Err(format!(
                "\"{}\" is unknown; write \"core\" or nothing",
                excerpt(word)
            )),
        })?;
    }
    Some(core)
}

fn router<'a>(name: String, node: &Node<'a>, context: &Context<'_>) -> Option<Router<'a>> {
    let fields = node.fields(&["internal_addr", "interfaces"], Unknown::Warn)?;
    let internal = node
        .require(
            &fields,
            "internal_addr",
            "the address on which the router receives packets from hosts, for example \"10.10.0.1:30042\"",
        )
        .and_then(address);
    let interfaces = fields.get("interfaces").map_or(Some(Vec::new()), |node| {
        each(node, |number, node| {
            interface(&number, node, &name, context)
        })
    });
    Some(Router {
        name,
        node: node.clone(),
        internal: internal?,
        interfaces: interfaces?,
    })
}

fn address(node: Node<'_>) -> Option<(SocketAddr, Node<'_>)> {
    let address = node.parse("\"192.0.2.1:30042\"", socket_address)?;
    Some((address, node))
}

/// One end of a link. What the reference takes and this router does not gets a message of its own.
fn end(node: Node<'_>) -> Option<(SocketAddr, Node<'_>)> {
    let address = node.parse("\"192.0.2.1:50000\"", |text| {
        if text.starts_with(':') {
            return Err(format!(
                "\"{}\" has no IP address; write this router's address on the link",
                excerpt(text)
            ));
        }
        let is_link_local = text.parse::<SocketAddrV6>().is_ok_and(|a| a.ip().is_unicast_link_local());
        if is_link_local || text.contains('%') {
            return Err(format!(
                "\"{}\" is a link-local address; give both ends of the link global or unique local ones",
                excerpt(text)
            ));
        }
        socket_address(text)
    })?;
    Some((address, node))
}

/// Addresses of services that are none of the router's business but for their ports: what cannot be read is left to whom
/// it concerns.
fn other_services<'a>(node: &Node<'a>, members: &[&str]) -> Vec<(SocketAddr, Node<'a>)> {
    let quiet = Report::new("", "");
    let members_of = |node: &Node<'a>| {
        let readable = node.reporting_to(&quiet).members("").is_some();
        readable
            .then(|| node.members(""))
            .flatten()
            .unwrap_or_default()
    };
    let mut addresses = Vec::new();
    for (_, service) in members_of(node) {
        for (name, member) in members_of(&service) {
            let known = members
                .iter()
                .any(|known| known.eq_ignore_ascii_case(&name));
            let read = member.reporting_to(&quiet).parse("", socket_address);
            if let Some(address) = read.filter(|_| known) {
                addresses.push((address, member));
            }
        }
    }
    addresses
}

fn service<'a>(node: &Node<'a>) -> Option<(SocketAddr, Node<'a>)> {
    let fields = node.fields(&["addr"], Unknown::Warn)?;
    let node = node.require(
        &fields,
        "addr",
        "the address of the service, for example \"10.10.0.1:30252\"",
    )?;
    address(node)
}

fn interface<'a>(
    number: &str,
    node: &Node<'a>,
    router: &str,
    context: &Context<'_>,
) -> Option<Interface<'a>> {
    let digits = number.bytes().all(|byte| byte.is_ascii_digit());
    let number = number.parse().ok().filter(|number| digits && *number != 0);
    if number.is_none() {
        node.error("an interface is a number from 1 to 65535");
    }
    let fields = node.fields(INTERFACE, Unknown::Warn)?;
    let neighbour = node
        .require(
            &fields,
            "isd_as",
            "the AS at the other end, for example \"1-ff00:0:111\"",
        )
        .and_then(|node| {
            node.parse("\"1-ff00:0:111\"", |text| match one_as(text)? {
                isd_as if Some(isd_as) == context.isd_as => Err(format!(
                    "{isd_as} is this AS; write the AS at the other end"
                )),
                isd_as => Ok(isd_as),
            })
        });
    let link_type = node
        .require(
            &fields,
            "link_to",
            "\"core\", \"parent\", \"child\" or \"peer\"",
        )
        .and_then(|node| node.parse("\"child\"", |text| link_type(text, context.core)));
    let mtu = match fields.get("mtu") {
        Some(node) => node.integer(SMALLEST_MTU..=u16::MAX),
        None => context.mtu,
    };
    let neighbour_interface = match fields.get("remote_interface_id") {
        Some(node) => node
            .integer(0..=u16::MAX)
            .map(|number| (number != 0).then_some(number)),
        None => Some(None),
    };
    let bfd = fields.get("bfd").map_or(Some(OwnBfd::default()), bfd);
    let underlay = match context.ends {
        Ends::Of(own) if own == Some(router) => {
            let read = node.require(
                &fields,
                "underlay",
                "both ends of the link: {\"local\": \"…\", \"remote\": \"…\"}",
            );
            Some(read.and_then(|node| underlay(&node))?)
        }
        Ends::Of(_) => None,
        Ends::All => fields.get("underlay").and_then(|node| {
            // Whom they concern is told what is wrong with them.
            let quiet = Report::new("", "");
            underlay(&node.reporting_to(&quiet))?;
            underlay(node)
        }),
    };
    Some(Interface {
        number: number?,
        node: node.clone(),
        neighbour: neighbour?,
        neighbour_interface: neighbour_interface?,
        link_type: link_type?,
        mtu: mtu?,
        bfd: bfd?,
        underlay,
    })
}

fn link_type(text: &str, core: Option<bool>) -> Result<LinkType, String> {
    let mut known = LinkType::ALL.into_iter();
    let named = known.find(|link_type| text.eq_ignore_ascii_case(link_type.name()));
    let link_type = named.ok_or_else(|| {
        format!(
            "\"{}\" is unknown; write \"core\", \"parent\", \"child\" or \"peer\"",
            excerpt(text)
        )
    })?;
    match (core, link_type) {
        (Some(true), LinkType::Parent) => Err(
            "a core AS has no parents; write \"core\", \"child\" or \"peer\", or remove \"core\" from the attributes"
                .to_owned(),
        ),
        (Some(false), LinkType::Core) => Err(
            "only core ASes have core links; write \"parent\", \"child\" or \"peer\", or \"attributes\": [\"core\"]"
                .to_owned(),
        ),
        _ => Ok(link_type),
    }
}

/// Both ends of a link: `local`, or `public` as it was called, and `remote`.
fn underlay<'a>(node: &Node<'a>) -> Option<[(SocketAddr, Node<'a>); 2]> {
    let fields = node.fields(&["provider", "local", "public", "remote"], Unknown::Warn)?;
    let provider = fields.get("provider").map_or(Some(()), |node| {
        node.parse("\"udpip\"", |text| match text {
            "" | "udpip" => Ok(()),
            _ => Err(format!("\"{}\" is unknown; write \"udpip\"", excerpt(text))),
        })
    });
    let local = match (fields.get("local"), fields.get("public")) {
        (Some(_), Some(public)) => {
            public.error("\"local\" is also set; remove one of the two");
            None
        }
        (None, Some(public)) => end(public.clone()),
        _ => node
            .require(
                &fields,
                "local",
                "our address on the link, for example \"192.0.2.1:50000\"",
            )
            .and_then(end),
    };
    let remote = node
        .require(
            &fields,
            "remote",
            "the neighbour's address on the link, for example \"192.0.2.2:50000\"",
        )
        .and_then(end);
    provider?;
    let (local, remote) = (local?, remote?);
    if local.0.is_ipv4() != remote.0.is_ipv4() {
        remote.1.error(format!(
            "{} and {} mix IPv4 and IPv6; use one family",
            local.0, remote.0
        ));
        return None;
    }
    if local.0 == remote.0 {
        remote.1.error(format!(
            "{} is the local end; write the neighbour's",
            remote.0
        ));
        return None;
    }
    Some([local, remote])
}

/// `bfd` of a link; 0 stands for the default of the router.
fn bfd(node: &Node<'_>) -> Option<OwnBfd> {
    let fields: Fields<'_> = node.fields(BFD, Unknown::Warn)?;
    let disabled = fields
        .get("disable")
        .map_or(Some(None), |node| node.boolean().map(Some));
    let detect_mult = fields.get("detect_mult").map_or(Some(None), |node| {
        let value = node.integer(0..=u8::MAX)?;
        Some((value != 0).then_some(value))
    });
    let interval = |key| {
        fields
            .get(key)
            .map_or(Some(None), |node| node.parse("\"200ms\"", Bfd::interval))
    };
    let (desired_min_tx, required_min_rx) = (
        interval("desired_min_tx_interval"),
        interval("required_min_rx_interval"),
    );
    Some(OwnBfd {
        disabled: disabled?,
        detect_mult: detect_mult?,
        desired_min_tx: desired_min_tx?,
        required_min_rx: required_min_rx?,
    })
}
