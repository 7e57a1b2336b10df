//! The configuration of an SR node, checked as a whole.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::{IpAddr, Ipv6Addr},
    path::{Path, PathBuf},
};

use ipnet::{IpNet, Ipv6Net};
use sig_common::srv6::{
    Behavior, Flavors,
    maps::{MAX_FUNCTIONS, MAX_LISTED, MAX_LOCATORS, MAX_POLICIES, MAX_SIDS, MAX_STEERED},
};
use sig_common::wire::{ipv6, srv6};
use sig_core::{
    document::{
        self,
        common::{self, Log, XdpMode, file_name, socket_path},
        prefix,
        schema::Schema,
        section::{Boolean, List, Number, Text, Words, WordsOr},
        toml::{Item, Place, Section},
        values,
    },
    problem::{Errors, Problem, Report, excerpt},
    section,
};

/// A commented configuration with every key.
pub(crate) const SAMPLE: &str = include_str!("sample.toml");

/// Longest file.
const LONGEST_TEXT: usize = 16 << 20;

/// Everything that an SR node is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    /// Its name.
    pub(crate) id: String,
    /// Unix socket that `sig srv6 status` asks.
    pub(crate) status_socket: PathBuf,
    pub(crate) log: Log,
    pub(crate) node: Node,
    pub(crate) sids: Vec<LocalSid>,
    pub(crate) policies: Vec<Steering>,
    pub(crate) functions: Vec<Service>,
}

const INTERFACES: List<Text<String>> =
    List("[\"eth0\", \"eth1\"]", Text("\"eth0\"", values::interface));

/// Hop limit of the headers that packets are put behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HopLimit {
    /// That of the packet inside, if that is IPv6; else 64.
    Inherit,
    /// This.
    Of(u8),
}

impl HopLimit {
    const fn number(&self) -> Option<&u8> {
        match self {
            Self::Of(number) => Some(number),
            Self::Inherit => None,
        }
    }
}

section! {
    /// `[srv6]`: what all SIDs and policies have in common.
    pub struct Node {}

    /// Source of the headers that packets are put behind, and of ICMPv6 errors.
    source: Option<Ipv6Addr> = None, Required(Text("\"2001:db8:a::1\"", source));
    /// Prefixes that the SIDs of this node are taken from.
    locators: Vec<Ipv6Net> = Vec::new(), List("[\"2001:db8:a::/48\"]", Text("\"2001:db8:a::/48\"", locator));
    /// Interfaces by which SIDs may be reached.
    trusted: Vec<String> = Vec::new(), INTERFACES;
    /// Interfaces at which packets to SIDs and locators are dropped.
    untrusted: Vec<String> = Vec::new(), INTERFACES;
    /// Hop limit of the headers that packets are put behind.
    hop_limit: HopLimit = HopLimit::Of(64), WordsOr {
        words: [("inherit", HopLimit::Inherit)],
        kind: Number(1..=u8::MAX),
        wrap: HopLimit::Of,
        unwrap: HopLimit::number,
    };
    /// How the program is attached.
    xdp: XdpMode = XdpMode::Auto, Words(&[
        ("auto", XdpMode::Auto),
        ("native", XdpMode::Native),
        ("generic", XdpMode::Generic),
    ]);
}

/// A key that has to be there, of which a value is read.
struct Required<K>(K);

impl<T, K: document::section::Kind<T>> document::section::Kind<Option<T>> for Required<K> {
    fn read(&self, item: &Item<'_>) -> Option<Option<T>> {
        self.0.read(item).map(Some)
    }

    fn write(&self, value: &Option<T>) -> Option<toml::Value> {
        self.0.write(value.as_ref()?)
    }
}

/// A SID of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocalSid {
    pub(crate) sid: Ipv6Addr,
    pub(crate) behavior: Behavior,
    pub(crate) flavors: Flavors,
    pub(crate) target: Target,
}

/// What a SID leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The main table.
    Main,
    /// A routing table.
    Table(u32),
    /// A neighbour.
    NextHop(IpAddr),
    /// A device.
    Interface(String),
    /// A function, by its name.
    Function(String),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Main => f.write_str("main table"),
            Self::Table(table) => write!(f, "table {table}"),
            Self::NextHop(address) => write!(f, "via {address}"),
            Self::Interface(name) => write!(f, "{name}"),
            Self::Function(name) => write!(f, "function {name}"),
        }
    }
}

/// A list of segments, and the packets that are put behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Steering {
    pub(crate) name: String,
    /// In the order of the way; at least one.
    pub(crate) segments: Vec<Ipv6Addr>,
    /// The first segment is left out of the SRH.
    pub(crate) reduced: bool,
    /// Largest packet with its headers, bytes.
    pub(crate) mtu: u32,
    /// Packets to these are steered; none: packets of functions alone.
    pub(crate) destinations: Vec<IpNet>,
}

/// A function behind a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Service {
    pub(crate) name: String,
    /// The way to it.
    pub(crate) interface: String,
    /// The way back.
    pub(crate) return_interface: String,
    pub(crate) address: ServiceAddress,
    /// While it is down, packets go on without it.
    pub(crate) bypass: bool,
    /// Of a static proxy: the name of the policy for what it returns.
    pub(crate) policy: Option<String>,
}

/// How a function is addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServiceAddress {
    /// As this neighbour, which is asked for its MAC address and thereby watched.
    NextHop(IpAddr),
    /// By its MAC address; it counts as alive while its interface has a carrier.
    Mac([u8; 6]),
}

/// Number of the kernel's main table.
const MAIN_TABLE: u32 = 254;

const SID_KEYS: &[&str] = &[
    "sid",
    "behavior",
    "flavors",
    "table",
    "next_hop",
    "interface",
    "function",
];
const POLICY_KEYS: &[&str] = &["name", "segments", "reduced", "mtu", "destinations"];
const FUNCTION_KEYS: &[&str] = &[
    "name",
    "interface",
    "return_interface",
    "next_hop",
    "mac",
    "on_failure",
    "policy",
];

pub(super) static SCHEMA: Schema = Schema(&[
    ("", &[&["general", "log", "srv6"]]),
    ("general", &[&["id", "status_socket"]]),
    ("log", &[&["console"]]),
    (
        "log.console",
        &[Log::KEYS, &["stacktrace_level", "disable_caller"]],
    ),
    ("srv6", &[Node::KEYS, &["sid", "policy", "function"]]),
    ("srv6.sid[]", &[SID_KEYS]),
    ("srv6.policy[]", &[POLICY_KEYS]),
    ("srv6.function[]", &[FUNCTION_KEYS]),
]);

/// Checks a configuration, its `text`; `file` is its name for messages. Beside it, what works but deserves a look.
///
/// # Errors
/// All problems at once.
pub(crate) fn check(text: &str, file: &str) -> Result<(Config, Vec<Problem>), Errors> {
    let report = Report::new(file, text);
    let config = document::toml::parse(&report, text, LONGEST_TEXT)
        .and_then(|table| read(&Section::root(&report, table.get_ref(), &SCHEMA)));
    let (mut errors, mut warnings) = report.take();
    match config {
        Some(config) if errors.is_empty() => Ok((config, warnings)),
        _ => {
            errors.append(&mut warnings);
            Err(Errors::new(errors))
        }
    }
}

/// Reads and checks the file at `path`.
///
/// # Errors
/// As [`check`].
pub(crate) fn load(path: &Path) -> Result<(Config, Vec<Problem>), Errors> {
    check(&document::read_text(path, "")?, &path.display().to_string())
}

fn read(root: &Section<'_>) -> Option<Config> {
    let general = root.section("general");
    let id = general
        .require("id", "the name of this node, for example id = \"sr-1\"")
        .and_then(|item| file_name(&item, "\"sr-1\""));
    let socket = general.get("status_socket");
    let socket = socket.map(|item| socket_path(&item, "\"/run/sig/sr-1.sock\""));
    let log = common::log(root);
    let section = root.section("srv6");
    let node = Node::read(&section);
    section.require(
        "source",
        "the address of this node, for example source = \"2001:db8:a::1\"",
    );
    let functions: Vec<_> = section.sections("function").iter().map(function).collect();
    let policies: Vec<_> = section.sections("policy").iter().map(policy).collect();
    let sids: Vec<_> = section.sections("sid").iter().map(sid).collect();
    if sids.is_empty() && policies.is_empty() {
        section
            .place
            .error("there is nothing to do; write a [[srv6.sid]] or [[srv6.policy]] section");
    }
    let id = id?;
    let (node, log) = (node?, log?);
    unique(
        &section,
        "function",
        functions.iter().flatten().map(|of| of.name.clone()),
    );
    unique(
        &section,
        "policy",
        policies.iter().flatten().map(|of| of.name.clone()),
    );
    unique(
        &section,
        "sid",
        sids.iter().flatten().map(|of| of.sid.to_string()),
    );
    let config = Config {
        status_socket: match socket {
            Some(path) => path?,
            None => PathBuf::from(format!("/run/sig/{id}.sock")),
        },
        id,
        log,
        node,
        sids: sids.into_iter().collect::<Option<_>>()?,
        policies: policies.into_iter().collect::<Option<_>>()?,
        functions: functions.into_iter().collect::<Option<_>>()?,
    };
    whole(&section, &config);
    Some(config)
}

/// What follows from several sections.
fn whole(section: &Section<'_>, config: &Config) {
    let places = ["sid", "policy", "function"].map(|array| {
        let sections = section.sections(array).into_iter();
        sections.map(|section| section.place).collect::<Vec<_>>()
    });
    let place = |array: &str, number: usize| -> Option<&Place<'_>> {
        let [sids, policies, functions] = &places;
        match array {
            "sid" => sids,
            "policy" => policies,
            _ => functions,
        }
        .get(number)
    };
    let node = &config.node;
    for name in node
        .trusted
        .iter()
        .filter(|name| node.untrusted.contains(name))
    {
        section.place.below("untrusted").error(format!(
            "\"{}\" is trusted as well; name it once",
            excerpt(name)
        ));
    }
    for (number, sid) in config.sids.iter().enumerate() {
        let Some(place) = place("sid", number) else {
            continue;
        };
        if !node
            .locators
            .iter()
            .any(|locator| locator.contains(&sid.sid))
        {
            place.below("sid").error(format!(
                "{} is in none of the locators; write one of their addresses, or add its prefix to [srv6] locators",
                sid.sid
            ));
        }
        if node.source == Some(sid.sid) {
            place
                .below("sid")
                .error("this is [srv6] source, the address of the node itself; write another");
        }
        if let Target::Function(name) = &sid.target {
            match config
                .functions
                .iter()
                .find(|function| function.name == *name)
            {
                None => place.below("function").error(format!(
                    "there is no [[srv6.function]] with the name \"{}\"",
                    excerpt(name)
                )),
                Some(function)
                    if (sid.behavior == Behavior::EndAs) != function.policy.is_some() =>
                {
                    place.below("function").error(match function.policy {
                        None => "a static proxy needs headers for what its function returns; write policy = \"NAME\" in the function's section",
                        Some(_) => "the function has a policy, which is for End.AS; remove it, or write behavior = \"End.AS\"",
                    });
                }
                Some(_) => {}
            }
        }
    }
    let mut proxies: BTreeMap<&str, Ipv6Addr> = BTreeMap::new();
    for (number, sid) in config.sids.iter().enumerate() {
        if let Target::Function(name) = &sid.target
            && let Some(other) = proxies.insert(name, sid.sid)
            && let Some(place) = place("sid", number)
        {
            place.below("function").error(format!(
                "SID {other} has this function already; what it returns could not be told apart, so write another function"
            ));
        }
    }
    let mut returns: BTreeMap<&str, &str> = BTreeMap::new();
    for (number, function) in config.functions.iter().enumerate() {
        let Some(place) = place("function", number) else {
            continue;
        };
        let interface = &function.return_interface;
        if let Some(other) = returns.insert(interface, &function.name) {
            place.below("return_interface").error(format!(
                "\"{}\" is the return interface of function \"{}\" already; each function needs its own",
                excerpt(interface),
                excerpt(other)
            ));
        }
        if node.trusted.contains(interface) || node.untrusted.contains(interface) {
            place.below("return_interface").error(format!(
                "\"{}\" is in [srv6] trusted or untrusted; all that a function's interface brings belongs to its chain",
                excerpt(interface)
            ));
        }
        let is_proxied = |sid: &&LocalSid| matches!(&sid.target, Target::Function(name) if *name == function.name);
        let sid = config.sids.iter().find(is_proxied);
        if sid.is_none() {
            place.warn("no [[srv6.sid]] has this function: all that it returns is dropped");
        }
        let policy = function.policy.as_ref();
        let policy = policy.and_then(|name| config.policies.iter().find(|of| of.name == *name));
        if let (Some(sid), Some(policy)) = (sid, policy)
            && policy.segments.contains(&sid.sid)
        {
            place.below("policy").error(format!(
                "policy \"{}\" leads back to {}, the SID of this function: packets would go in circles",
                excerpt(&policy.name),
                sid.sid
            ));
        }
        if let Some(name) = &function.policy
            && policy.is_none()
        {
            place.below("policy").error(format!(
                "there is no [[srv6.policy]] with the name \"{}\"",
                excerpt(name)
            ));
        }
    }
    let mut steered: BTreeMap<IpNet, &str> = BTreeMap::new();
    for (number, policy) in config.policies.iter().enumerate() {
        let most = ipv6::HEADER_LEN + srv6::FIXED_LEN + policy.segments.len() * srv6::SEGMENT_LEN;
        let least = 1280 + most as u32;
        let has_v6 = policy.destinations.iter().any(|net| net.addr().is_ipv6());
        if has_v6
            && policy.mtu < least
            && let Some(place) = place("policy", number)
        {
            place.below("mtu").error(format!(
                "IPv6 packets of 1280 bytes would not fit with the headers; write {least} or more"
            ));
        }
        for destination in &policy.destinations {
            if let Some(other) = steered.insert(*destination, &policy.name)
                && let Some(place) = place("policy", number)
            {
                place.below("destinations").error(format!(
                    "packets to {destination} are steered into policy \"{}\" already; write it once",
                    excerpt(other)
                ));
            }
        }
    }
    for (what, count, most) in [
        (
            "function",
            config.functions.len(),
            MAX_FUNCTIONS as usize - 1,
        ),
        ("sid", config.sids.len(), MAX_SIDS as usize),
        ("locators", node.locators.len(), MAX_LOCATORS as usize),
        (
            "policy.destinations",
            steered.len(),
            MAX_STEERED as usize / 2,
        ),
        ("policy", config.policies.len(), MAX_POLICIES as usize - 1),
    ] {
        if count > most {
            section
                .place
                .below(what)
                .error(format!("{count} are too many; write up to {most}"));
        }
    }
}

fn unique(section: &Section<'_>, array: &'static str, names: impl Iterator<Item = String>) {
    let mut seen = BTreeSet::new();
    for name in names {
        let shown = excerpt(&name);
        if !seen.insert(name) {
            let place = section.place.below(array);
            place.error(format!("\"{shown}\" is there twice; remove one of the two"));
        }
    }
}

fn sid(section: &Section<'_>) -> Option<LocalSid> {
    let sid = section
        .require("sid", "the address, for example sid = \"2001:db8:a::d6\"")
        .and_then(|item| item.parse("\"2001:db8:a::d6\"", source));
    let words = Behavior::ALL.map(|behavior| (behavior.name(), behavior));
    let behavior = section
        .require(
            "behavior",
            "what the SID does, for example behavior = \"End\"",
        )
        .and_then(|item| item.choice(&words));
    let flavors = section
        .get("flavors")
        .map_or(Some(Flavors::default()), |item| {
            let all = document::toml::list(&item, "[\"PSP\", \"USD\"]", |element| {
                element.choice(&[
                    ("PSP", Flavors::PSP),
                    ("USP", Flavors::USP),
                    ("USD", Flavors::USD),
                    ("last", Flavors::LAST),
                ])
            })?;
            Some(all.into_iter().fold(Flavors::default(), |a, b| a | b))
        });
    let behavior = behavior?;
    let target = target(section, behavior);
    let flavors = flavors?;
    let fitting = match behavior {
        behavior if behavior.is_transit() => Flavors::PSP | Flavors::USP | Flavors::USD,
        Behavior::EndAd4 | Behavior::EndAd6 => Flavors::LAST,
        _ => Flavors::default(),
    };
    if !fitting.has(flavors) {
        section.place.below("flavors").error(format!(
            "{} does not have all of these flavors: PSP, USP and USD are of End, End.X and End.T, \"last\" is of End.AD4 and End.AD6",
            behavior.name()
        ));
    }
    Some(LocalSid {
        sid: sid?,
        behavior,
        flavors,
        target: target?,
    })
}

/// What the SID leads to; each behavior has its own key.
fn target(section: &Section<'_>, behavior: Behavior) -> Option<Target> {
    let key = match behavior {
        Behavior::End => None,
        Behavior::EndX | Behavior::EndDx4 | Behavior::EndDx6 => Some("next_hop"),
        Behavior::EndT | Behavior::EndDt4 | Behavior::EndDt6 | Behavior::EndDt46 => Some("table"),
        Behavior::EndDx2 => Some("interface"),
        Behavior::EndAs | Behavior::EndAd4 | Behavior::EndAd6 | Behavior::EndAm => Some("function"),
    };
    for other in ["next_hop", "table", "interface", "function"] {
        if Some(other) != key
            && let Some(item) = section.get(other)
        {
            item.place.error(match key {
                Some(key) => format!("{} has no {other}; write {key}", behavior.name()),
                None => format!("{} has no {other}; remove it", behavior.name()),
            });
        }
    }
    match key {
        None => Some(Target::Main),
        Some("next_hop") => section
            .require(
                "next_hop",
                "the neighbour, for example next_hop = \"2001:db8:1::2\"",
            )
            .and_then(|item| {
                let address = item.parse("\"2001:db8:1::2\"", next_hop)?;
                if address.is_ipv4() != (behavior == Behavior::EndDx4) {
                    item.place.error(format!(
                        "{} forwards {}; write the address of such a neighbour",
                        behavior.name(),
                        if behavior == Behavior::EndDx4 {
                            "IPv4 packets"
                        } else {
                            "IPv6 packets"
                        }
                    ));
                    return None;
                }
                Some(Target::NextHop(address))
            }),
        Some("table") => section
            .require(
                "table",
                "the number of a routing table, for example table = 100, or table = \"main\"",
            )
            .and_then(|item| match item.is_word("main") {
                true => Some(Target::Main),
                false => item.number(1..=u32::MAX).map(|table| match table {
                    MAIN_TABLE => Target::Main,
                    table => Target::Table(table),
                }),
            }),
        Some("interface") => section
            .require("interface", "the device, for example interface = \"eth1\"")
            .and_then(|item| {
                item.parse("\"eth1\"", values::interface)
                    .map(Target::Interface)
            }),
        Some(_) => section
            .require(
                "function",
                "the name of a [[srv6.function]], for example function = \"firewall\"",
            )
            .and_then(|item| file_name(&item, "\"firewall\"").map(Target::Function)),
    }
}

fn policy(section: &Section<'_>) -> Option<Steering> {
    let name = section
        .require("name", "a name, for example name = \"inspect\"")
        .and_then(|item| file_name(&item, "\"inspect\""));
    let segments = section
        .require(
            "segments",
            "the SIDs in the order of the way, for example segments = [\"2001:db8:a::f\"]",
        )
        .and_then(|item| {
            let segments = document::toml::list(&item, "[\"2001:db8:a::f\"]", |element| {
                element.parse("\"2001:db8:a::f\"", source)
            })?;
            if segments.is_empty() || segments.len() > MAX_LISTED {
                item.place.error(format!(
                    "{} segments; write 1 to {MAX_LISTED}",
                    segments.len()
                ));
                return None;
            }
            Some(segments)
        });
    let reduced = document::section::value(section, "reduced", || true, &Boolean);
    let mtu = document::section::value(section, "mtu", || 1500, &Number(1280..=9000));
    let destinations = section
        .get("destinations")
        .map_or(Some(Vec::new()), |item| {
            document::toml::list(&item, "[\"10.2.0.0/16\"]", |element| {
                element.parse("\"10.2.0.0/16\"", destination)
            })
        });
    Some(Steering {
        name: name?,
        segments: segments?,
        reduced: reduced?,
        mtu: mtu?,
        destinations: destinations?,
    })
}

fn function(section: &Section<'_>) -> Option<Service> {
    let name = section
        .require("name", "a name, for example name = \"firewall\"")
        .and_then(|item| file_name(&item, "\"firewall\""));
    let interface = |key: &'static str, write| {
        let item = section.require(key, write)?;
        item.parse("\"fw-in\"", values::interface)
    };
    let to = interface(
        "interface",
        "the device towards the function, for example interface = \"fw-in\"",
    );
    let from = interface(
        "return_interface",
        "the device that it returns packets by, for example return_interface = \"fw-out\"",
    );
    let address = match (section.get("next_hop"), section.get("mac")) {
        (Some(item), None) => {
            let address = item.parse("\"10.9.0.2\"", next_hop);
            address.map(ServiceAddress::NextHop)
        }
        (None, Some(item)) => {
            let address = item.parse("\"02:00:00:00:00:01\"", mac);
            address.map(ServiceAddress::Mac)
        }
        _ => {
            section.place.error(
                "write next_hop, the address of the function as a neighbour, or mac, its MAC address; one of the two",
            );
            None
        }
    };
    let bypass = section
        .require(
            "on_failure",
            "what is done while the function is down: on_failure = \"bypass\" or \"drop\"",
        )
        .and_then(|item| item.choice(&[("bypass", true), ("drop", false)]));
    let policy = section.get("policy");
    let policy = policy.map(|item| file_name(&item, "\"back\""));
    Some(Service {
        name: name?,
        interface: to?,
        return_interface: from?,
        address: address?,
        bypass: bypass?,
        policy: match policy {
            Some(policy) => Some(policy?),
            None => None,
        },
    })
}

/// An address that one node has.
fn source(text: &str) -> Result<Ipv6Addr, String> {
    let wrong = || {
        format!(
            "\"{}\" is not an IPv6 address; write for example \"2001:db8:a::1\"",
            excerpt(text)
        )
    };
    let address: Ipv6Addr = text.parse().map_err(|_| wrong())?;
    values::unicast(address.into())?;
    if address.is_loopback() {
        return Err(format!(
            "{address} is the loopback address; write one that other nodes reach"
        ));
    }
    Ok(address)
}

fn next_hop(text: &str) -> Result<IpAddr, String> {
    let address: IpAddr = text.parse().map_err(|_| {
        format!(
            "\"{}\" is not an IP address; write for example \"2001:db8:1::2\"",
            excerpt(text)
        )
    })?;
    values::unicast(address).map(|()| address)
}

fn locator(text: &str) -> Result<Ipv6Net, String> {
    match prefix::canonical(text)? {
        IpNet::V6(net) if net.prefix_len() > 0 => Ok(net),
        other => Err(format!(
            "{other} is no IPv6 prefix of SIDs; write for example \"2001:db8:a::/48\""
        )),
    }
}

fn destination(text: &str) -> Result<IpNet, String> {
    let net = prefix::canonical(text)?;
    match net.addr().is_multicast() {
        true => Err(format!(
            "{net} is multicast, which is not steered; write another prefix"
        )),
        false => Ok(net),
    }
}

fn mac(text: &str) -> Result<[u8; 6], String> {
    let wrong = || {
        format!(
            "\"{}\" is not a MAC address; write six pairs of hexadecimal digits, for example \"02:00:00:00:00:01\"",
            excerpt(text)
        )
    };
    let mut bytes = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut bytes {
        let part = parts
            .next()
            .filter(|part| part.len() == 2)
            .ok_or_else(wrong)?;
        *byte = u8::from_str_radix(part, 16).map_err(|_| wrong())?;
    }
    if parts.next().is_some() {
        return Err(wrong());
    }
    if bytes[0] & 1 != 0 || bytes == [0; 6] {
        return Err(format!("{text} is not the address of one device"));
    }
    Ok(bytes)
}
