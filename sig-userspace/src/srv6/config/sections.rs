//! The sections: keys, defaults, ranges.

use std::{
    collections::BTreeSet,
    io,
    net::{IpAddr, Ipv6Addr},
    path::Path,
    time::Duration,
};

use ipnet::{IpNet, Ipv6Net};
use sig_common::srv6::{Behavior, Flavors, filter::Action, hmac::HmacKey, maps::MAX_LISTED};
use sig_core::{
    document::{
        self,
        common::{XdpMode, file_name},
        prefix,
        section::{Boolean, List, Number, Text, Time, Words, WordsOr},
        toml::{Item, Section},
        values,
    },
    policy::{
        class::{Condition, parse_rule},
        rules::Rule,
    },
    problem::excerpt,
    section,
};

use super::{
    HmacRule, HopLimit, LocalSid, NamedRule, Probe, ProbeKind, Remembered, Service, ServiceAddress,
    Srv6, Steering, Target, whole,
};

/// Number of the kernel's main table.
const MAIN_TABLE: u32 = 254;

pub(crate) const SID_KEYS: &[&str] = &[
    "sid",
    "behavior",
    "flavors",
    "arguments",
    "table",
    "next_hop",
    "interface",
    "function",
];
pub(crate) const POLICY_KEYS: &[&str] = &[
    "name",
    "segments",
    "reduced",
    "insert",
    "hmac",
    "mtu",
    "destinations",
    "frames_from",
];
pub(crate) const FUNCTION_KEYS: &[&str] = &[
    "name",
    "in_process",
    "interface",
    "return_interface",
    "next_hop",
    "mac",
    "on_failure",
    "policy",
    "headers",
    "probe",
    "probe_interval",
    "probe_source",
    "probe_destination",
];
pub(crate) const HMAC_KEYS: &[&str] = &["id", "secret_file", "form"];
pub(crate) const RULE_KEYS: &[&str] =
    &["name", "class", "interfaces", "action", "mirror", "policy"];
pub(crate) const SRV6_KEYS: &[&[&str]] = &[
    Node::KEYS,
    &["sid", "policy", "function", "hmac_key", "rule"],
];

/// Bytes of the longest secret.
const LONGEST_SECRET: usize = 255;

const INTERFACES: List<Text<String>> =
    List("[\"eth0\", \"eth1\"]", Text("\"eth0\"", values::interface));

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
    /// Whether the HMAC of packets to SIDs is verified.
    hmac: HmacRule = HmacRule::Ignore, Words(&[
        ("ignore", HmacRule::Ignore),
        ("check", HmacRule::Check),
        ("require", HmacRule::Require),
    ]);
    /// Policies may insert segment routing headers into packets of others.
    allow_insert: bool = false, Boolean;
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

/// `[srv6]` with all that is below it.
pub(crate) fn srv6(section: &Section<'_>) -> Option<Srv6> {
    let srv6 = of_gateway(section);
    let sids = section.sections("sid");
    for (number, sid) in srv6.iter().flat_map(|of| &of.sids).enumerate() {
        if let (Target::Tunnel, Some(section)) = (&sid.target, sids.get(number)) {
            section.place.below("table").error(
                "there is no tunnel here: \"tunnel\" is for the rules of a gateway; write another table",
            );
        }
    }
    srv6
}

/// The same for a node that is part of a gateway.
pub(crate) fn of_gateway(section: &Section<'_>) -> Option<Srv6> {
    let node = Node::read(section);
    section.require(
        "source",
        "the address of this node, for example source = \"2001:db8:a::1\"",
    );
    let functions: Vec<_> = section.sections("function").iter().map(function).collect();
    let policies: Vec<_> = section.sections("policy").iter().map(policy).collect();
    let sids: Vec<_> = section.sections("sid").iter().map(sid).collect();
    let keys = section.sections("hmac_key");
    let hmac_keys: Vec<_> = keys.iter().map(hmac_key).collect();
    let rules: Vec<_> = section.sections("rule").iter().map(rule).collect();
    if sids.is_empty() && policies.is_empty() && rules.is_empty() {
        section.place.error(
            "there is nothing to do; write a [[srv6.sid]], [[srv6.policy]] or [[srv6.rule]] section",
        );
    }
    unique(
        section,
        "function",
        functions.iter().flatten().map(|of| of.name.clone()),
    );
    unique(
        section,
        "policy",
        policies.iter().flatten().map(|of| of.name.clone()),
    );
    unique(
        section,
        "rule",
        rules.iter().flatten().map(|of| of.name.clone()),
    );
    unique(
        section,
        "sid",
        sids.iter().flatten().map(|of| of.sid.to_string()),
    );
    unique(
        section,
        "hmac_key",
        hmac_keys.iter().flatten().map(|(id, _)| id.to_string()),
    );
    let mut srv6 = Srv6 {
        node: node?,
        sids: sids.into_iter().collect::<Option<_>>()?,
        policies: policies.into_iter().collect::<Option<_>>()?,
        functions: functions.into_iter().collect::<Option<_>>()?,
        hmac_keys: hmac_keys.into_iter().collect::<Option<_>>()?,
        rules: rules.into_iter().collect::<Option<_>>()?,
        tables: None,
    };
    whole::check(section, &srv6);
    srv6.tables = whole::compile(section, &srv6.rules);
    Some(srv6)
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
    let arguments = document::section::value(section, "arguments", || 0, &Number(0..=16));
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
        arguments: arguments?,
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
        Behavior::EndAs
        | Behavior::EndAd4
        | Behavior::EndAd6
        | Behavior::EndAm
        | Behavior::EndAn => Some("function"),
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
            .and_then(
                |item| match (item.is_word("main"), item.is_word("tunnel")) {
                    (true, _) => Some(Target::Main),
                    (_, true) if behavior != Behavior::EndT => Some(Target::Tunnel),
                    _ => item.number(1..=u32::MAX).map(|table| match table {
                        MAIN_TABLE => Target::Main,
                        table => Target::Table(table),
                    }),
                },
            ),
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
    let insert = document::section::value(section, "insert", || false, &Boolean);
    let hmac = match section.get("hmac") {
        Some(item) => item.number(1..=u32::MAX).map(Some),
        None => Some(None),
    };
    let mtu = section.get("mtu");
    let mtu = mtu.map(|item| item.number(1280..=9000));
    let destinations = section
        .get("destinations")
        .map_or(Some(Vec::new()), |item| {
            document::toml::list(&item, "[\"10.2.0.0/16\"]", |element| {
                element.parse("\"10.2.0.0/16\"", destination)
            })
        });
    let frames_from = document::section::value(section, "frames_from", Vec::new, &INTERFACES);
    Some(Steering {
        name: name?,
        segments: segments?,
        reduced: reduced?,
        insert: insert?,
        hmac: hmac?,
        mtu: match mtu {
            Some(mtu) => Some(mtu?),
            None => None,
        },
        destinations: destinations?,
        frames_from: frames_from?,
    })
}

fn function(section: &Section<'_>) -> Option<Service> {
    let name = section
        .require("name", "a name, for example name = \"firewall\"")
        .and_then(|item| file_name(&item, "\"firewall\""));
    let in_process = document::section::value(section, "in_process", || false, &Boolean);
    let (to, from, address) = match in_process? {
        true => in_the_process(section),
        false => behind_devices(section),
    };
    let bypass = section
        .require(
            "on_failure",
            "what is done while the function is down: on_failure = \"bypass\" or \"drop\"",
        )
        .and_then(|item| item.choice(&[("bypass", true), ("drop", false)]));
    let policy = section.get("policy");
    let policy = policy.map(|item| file_name(&item, "\"back\""));
    let headers = document::section::value(
        section,
        "headers",
        || Remembered::Latest,
        &Words(&[
            ("latest", Remembered::Latest),
            ("flow", Remembered::OfFlows),
        ]),
    );
    let probe = probe(section);
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
        headers: headers?,
        probe: probe?,
    })
}

fn hmac_key(section: &Section<'_>) -> Option<(u32, HmacKey)> {
    let id = section
        .require(
            "id",
            "the number that packets name the key by, for example id = 7",
        )
        .and_then(|item| item.number(1..=u32::MAX));
    let secret = section
        .require(
            "secret_file",
            "a file with the secret in hexadecimal, for example secret_file = \"/etc/sig/hmac-7\"",
        )
        .and_then(|item| item.parse("\"/etc/sig/hmac-7\"", secret));
    let form = section.get("form").map_or(Some(0), |item| {
        item.choice(&[("rfc8754", 0), ("linux", HmacKey::LINUX)])
    });
    Some((id?, HmacKey::new(&secret?, form?)))
}

/// What a file with a secret holds. No message quotes it.
fn secret(path: &str) -> Result<Vec<u8>, String> {
    let shown = excerpt(path);
    let bytes = document::read(Path::new(path));
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other));
    let text = text.map_err(|error| {
        format!("{shown} cannot be read: {error}; write the path of a file with the secret in hexadecimal")
    })?;
    let (pairs, rest) = text.trim().as_bytes().as_chunks::<2>();
    let digit = |digit: u8| char::from(digit).to_digit(16);
    let bytes = pairs.iter().map(|[high, low]| {
        let byte = digit(*high)? << 4 | digit(*low)?;
        u8::try_from(byte).ok()
    });
    match bytes.collect::<Option<Vec<u8>>>() {
        Some(bytes) if rest.is_empty() && (1..=LONGEST_SECRET).contains(&bytes.len()) => Ok(bytes),
        _ => Err(format!(
            "{shown} does not hold a secret; write 1 to {LONGEST_SECRET} bytes into it, each as two hexadecimal digits"
        )),
    }
}

/// A function in the process has none of these, and one that is not needs them.
type Ways = (Option<String>, Option<String>, Option<ServiceAddress>);

fn in_the_process(section: &Section<'_>) -> Ways {
    for key in [
        "interface",
        "return_interface",
        "next_hop",
        "mac",
        "policy",
        "headers",
        "probe",
    ] {
        if let Some(item) = section.get(key) {
            item.place
                .error("this is not for functions in the process; remove it, or in_process");
        }
    }
    let device = || Some(super::super::process::DEVICE.to_owned());
    (device(), device(), Some(ServiceAddress::Process))
}

fn behind_devices(section: &Section<'_>) -> Ways {
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
    (to, from, address)
}

/// `None` if it is wrong.
fn probe(section: &Section<'_>) -> Option<Option<Probe>> {
    enum Word {
        Ping,
        Tcp(u16),
        Through,
    }
    let interval = document::section::value(
        section,
        "probe_interval",
        || Duration::from_secs(1),
        &Time(Duration::from_millis(100), Duration::from_secs(60)),
    );
    let addresses = ["probe_source", "probe_destination"].map(|key| {
        let item = section.get(key);
        item.map(|item| item.parse("\"192.0.2.1\"", next_hop))
    });
    let word = section.get("probe").map(|item| {
        item.parse("\"ping\"", |text| match text {
            "ping" => Ok(Word::Ping),
            "through" => Ok(Word::Through),
            text => text
                .strip_prefix("tcp:")
                .and_then(|port| port.parse().ok())
                .filter(|port| *port != 0)
                .map(Word::Tcp)
                .ok_or_else(|| {
                    format!(
                        "\"{}\" is no probe; write \"ping\", \"through\", or \"tcp:\" with a port, such as \"tcp:80\"",
                        excerpt(text)
                    )
                }),
        })
    });
    let is_through = matches!(word, Some(None | Some(Word::Through)));
    for key in ["probe_source", "probe_destination"] {
        if !is_through && let Some(item) = section.get(key) {
            item.place
                .error("this is for probe = \"through\"; remove it, or write that");
        }
    }
    if word.is_none()
        && let Some(item) = section.get("probe_interval")
    {
        item.place
            .error("there is no probe; remove it, or write probe = \"ping\"");
    }
    let Some(word) = word else {
        return Some(None);
    };
    let kind = match word? {
        Word::Through => match addresses {
            [Some(source), Some(destination)] => {
                let (source, destination) = (source?, destination?);
                if source.is_ipv4() != destination.is_ipv4() {
                    section.place.below("probe_destination").error(
                        "it is of another IP version than probe_source; write two of the same",
                    );
                    return None;
                }
                ProbeKind::Through {
                    source,
                    destination,
                }
            }
            _ => {
                section.place.below("probe").error(
                    "a packet through the function has addresses; write probe_source and probe_destination, which the function lets through",
                );
                return None;
            }
        },
        word => {
            if section.get("next_hop").is_none() {
                section.place.below("probe").error(
                    "the function is asked at its address; write next_hop, or probe = \"through\"",
                );
            }
            match word {
                Word::Tcp(port) => ProbeKind::Tcp(port),
                _ => ProbeKind::Ping,
            }
        }
    };
    Some(Some(Probe {
        kind,
        interval: interval?,
    }))
}

fn rule(section: &Section<'_>) -> Option<NamedRule> {
    let name = section
        .require("name", "a name, for example name = \"web\"")
        .and_then(|item| file_name(&item, "\"web\""));
    let example = "\"all(protocol=TCP,dstport=80)\"";
    let condition = section
        .get("class")
        .map_or(Some(Condition::ALWAYS), |item| {
            item.parse(example, |text| {
                parse_rule(text).map_err(|error| error.to_string())
            })
        });
    let interfaces = document::section::value(section, "interfaces", Vec::new, &INTERFACES);
    let words = Action::ALL.map(|action| (action.name(), action));
    let action = section
        .require(
            "action",
            "what is done with the packets, for example action = \"drop\"",
        )
        .and_then(|item| item.choice(&words))?;
    let target = match action {
        Action::Mirror => section
            .require(
                "mirror",
                "the device that copies leave by, for example mirror = \"ids0\"",
            )
            .and_then(|item| item.parse("\"ids0\"", values::interface))
            .map(Some),
        Action::Steer => section
            .require(
                "policy",
                "the name of a [[srv6.policy]], for example policy = \"inspect\"",
            )
            .and_then(|item| file_name(&item, "\"inspect\""))
            .map(Some),
        _ => Some(None),
    };
    for (key, of) in [("mirror", Action::Mirror), ("policy", Action::Steer)] {
        if action != of
            && let Some(item) = section.get(key)
        {
            item.place.error(format!(
                "this is for action = \"{}\"; remove it, or write that action",
                of.name()
            ));
        }
    }
    Some(NamedRule {
        name: name?,
        rule: Rule {
            condition: condition?,
            interfaces: interfaces?,
            action,
        },
        target: target?,
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
