//! Rules about what crosses the gateway, and the service chains that packets go through: a file beside the configuration.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use sig_common::srv6::Behavior;
use sig_core::{
    dataplane::filter::{Chain, Filter, FilterAction, FilterRule, Hits},
    document::{
        self,
        common::file_name,
        schema::Schema,
        toml::{Item, Section},
        values,
    },
    policy::class::{self, Condition},
    problem::{Errors, Problem, Report, excerpt},
};

use super::config::Config;
use crate::srv6::config::{self as srv6, LocalSid, Service, Srv6, Target};

/// A commented file with every key.
pub(crate) const SAMPLE: &str = include_str!("rules.toml");

/// Rules at most: each is looked at for every packet that takes no fast path.
const MAX_RULES: usize = 1000;

/// What the file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rules {
    /// The first one that decides counts.
    pub(crate) rules: Vec<Rule>,
    /// The SR node that the chains are made of.
    pub(crate) srv6: Option<Srv6>,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) name: String,
    pub(crate) condition: Arc<Condition>,
    pub(crate) action: Action,
    pub(crate) egress: bool,
    pub(crate) ingress: bool,
}

impl Rule {
    /// Whether workers look at it for packets to remotes: of a chain also for those whose answers it takes.
    pub(crate) const fn is_of_egress(&self) -> bool {
        self.egress || matches!(self.action, Action::Chain { .. })
    }

    /// The same for packets from remotes.
    pub(crate) const fn is_of_ingress(&self) -> bool {
        self.ingress || matches!(self.action, Action::Chain { .. })
    }
}

/// What a rule does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Accept,
    Drop,
    Count,
    /// By this device.
    Mirror(String),
    /// The policies of packets to remotes, and of the answers.
    Chain {
        egress: Option<String>,
        ingress: Option<String>,
    },
}

impl Action {
    /// As it is written.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Drop => "drop",
            Self::Count => "count",
            Self::Mirror(_) => "mirror",
            Self::Chain { .. } => "chain",
        }
    }
}

const RULE_KEYS: &[&str] = &[
    "name",
    "class",
    "action",
    "direction",
    "interface",
    "egress",
    "ingress",
];

static SCHEMA: Schema = Schema(&[
    ("", &[&["rule", "srv6"]]),
    ("rule[]", &[RULE_KEYS]),
    ("srv6", srv6::SRV6_KEYS),
    ("srv6.sid[]", &[srv6::SID_KEYS]),
    ("srv6.policy[]", &[srv6::POLICY_KEYS]),
    ("srv6.function[]", &[srv6::FUNCTION_KEYS]),
    ("srv6.hmac_key[]", &[srv6::HMAC_KEYS]),
    ("srv6.rule[]", &[srv6::RULE_KEYS]),
]);

impl Rules {
    /// Reads and checks the file that the configuration names; without one there are no rules. Beside it, what works but deserves a look.
    ///
    /// # Errors
    /// All problems of the file.
    pub(crate) fn load(config: &Config) -> Result<(Self, Vec<Problem>), Errors> {
        let Some(path) = &config.gateway.rules_file else {
            return Ok((Self::default(), Vec::new()));
        };
        let text = document::read_text(
            path,
            "; [gateway] rules_file names it, and \"sig config sample rules\" prints one to start from",
        )?;
        check(&text, &path.display().to_string(), config)
    }

    /// What names this device, which is not for rules and chains.
    pub(crate) fn user_of(&self, device: &str) -> Option<String> {
        let is_it = |name: &String| name == device;
        if let Some(srv6) = &self.srv6 {
            let node = &srv6.node;
            if node.trusted.iter().chain(&node.untrusted).any(is_it) {
                return Some("[srv6] trusted or untrusted".to_owned());
            }
            let uses = |of: &&Service| is_it(&of.interface) || is_it(&of.return_interface);
            if let Some(function) = srv6.functions.iter().find(uses) {
                return Some(format!("function {}", function.name));
            }
            let leads = |sid: &&LocalSid| sid.target == Target::Interface(device.to_owned());
            if let Some(sid) = srv6.sids.iter().find(leads) {
                return Some(format!("SID {}", sid.sid));
            }
        }
        let copies = |rule: &&Rule| rule.action == Action::Mirror(device.to_owned());
        let rule = self.rules.iter().find(copies)?;
        Some(format!("rule {}", rule.name))
    }

    /// The devices that copies leave by.
    pub(crate) fn mirrors(&self) -> BTreeSet<String> {
        let devices = self.rules.iter().filter_map(|rule| match &rule.action {
            Action::Mirror(device) => Some(device.clone()),
            _ => None,
        });
        devices.collect()
    }

    /// How these differ from `before`, for people: one line each.
    pub(crate) fn changes(&self, before: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        for rule in &self.rules {
            let name = &rule.name;
            match before.rules.iter().find(|old| old.name == *name) {
                None => lines.push(format!("rule {name}: added")),
                Some(old) if old != rule => lines.push(format!("rule {name}: changed")),
                Some(_) => {}
            }
        }
        let is_gone = |old: &&Rule| self.rules.iter().all(|rule| rule.name != old.name);
        for old in before.rules.iter().filter(is_gone) {
            lines.push(format!("rule {}: removed", old.name));
        }
        if lines.is_empty() && self.rules != before.rules {
            lines.push("rules: in another order".to_owned());
        }
        if self.srv6 != before.srv6 {
            lines.push("SIDs, policies and functions changed".to_owned());
        }
        lines
    }
}

/// Checks the text of a file of rules for the gateway of this configuration.
///
/// # Errors
/// All problems at once.
pub(crate) fn check(
    text: &str,
    file: &str,
    config: &Config,
) -> Result<(Rules, Vec<Problem>), Errors> {
    let report = Report::new(file, text);
    let rules = document::toml::parse(&report, text, document::LONGEST_FILE)
        .and_then(|table| rules(&Section::root(&report, table.get_ref(), &SCHEMA), config));
    let (errors, warnings) = report.take();
    match rules {
        Some(rules) if errors.is_empty() => Ok((rules, warnings)),
        _ => Err(Errors::new(errors).with_warnings(warnings)),
    }
}

fn rules(root: &Section<'_>, config: &Config) -> Option<Rules> {
    let section = root.section("srv6");
    let srv6 = root
        .get("srv6")
        .is_some()
        .then(|| srv6::of_gateway(&section));
    if let Some(Some(srv6)) = &srv6 {
        interfaces(&section, srv6, config);
    }
    let sections = root.sections("rule");
    let rules: Vec<_> = sections.iter().map(rule).collect();
    let mut names = BTreeSet::new();
    for (section, rule) in sections.iter().zip(&rules) {
        if let Some(rule) = rule {
            if let Action::Mirror(name) = &rule.action
                && (config.dataplane.underlay.as_ref() == Some(name) || config.tunnel.name == *name)
            {
                section.place.below("interface").error(format!(
                    "\"{}\" is an interface of the gateway, to which copies would come back or leave in clear; write another one",
                    excerpt(name)
                ));
            }
            if !names.insert(&rule.name) {
                section.place.below("name").error(format!(
                    "another rule has the name \"{}\"; write another one",
                    excerpt(&rule.name)
                ));
            }
            if let Some(srv6) = srv6.as_ref().map_or(Some(None), |of| of.as_ref().map(Some)) {
                leads_back(section, rule, srv6);
            }
        }
    }
    if rules.len() > MAX_RULES {
        root.place.below("rule").error(format!(
            "{} are too many; write up to {MAX_RULES}",
            rules.len()
        ));
    }
    Some(Rules {
        rules: rules.into_iter().collect::<Option<_>>()?,
        srv6: match srv6 {
            Some(srv6) => Some(srv6?),
            None => None,
        },
    })
}

/// The interfaces of the SR node are not those with programs of the gateway, but for LAN interfaces.
fn interfaces(section: &Section<'_>, srv6: &Srv6, config: &Config) {
    let served = config.gateway.prefixes.iter();
    let remote = config.remotes.iter().flat_map(|remote| &remote.prefixes);
    for prefix in served.chain(remote) {
        let mut locators = srv6
            .node
            .locators
            .iter()
            .map(|net| ipnet::IpNet::from(*net));
        if let Some(locator) = locators.find(|locator| locator.contains(prefix)) {
            section.place.below("locators").error(format!(
                "{locator} contains {prefix}, a prefix of hosts; write one for SIDs alone"
            ));
        }
    }
    let own = |name: &String| {
        config.dataplane.underlay.as_ref() == Some(name) || config.tunnel.name == *name
    };
    for (key, names) in [
        ("trusted", &srv6.node.trusted),
        ("untrusted", &srv6.node.untrusted),
    ] {
        for name in names.iter().filter(|name| own(name)) {
            section.place.below(key).error(format!(
                "\"{}\" is an interface of the gateway; write those towards other SR nodes and hosts",
                excerpt(name)
            ));
        }
    }
    let of_functions = srv6.functions.iter().map(|of| &of.interface);
    let of_sids = srv6.sids.iter().filter_map(|sid| match &sid.target {
        Target::Interface(name) => Some(name),
        _ => None,
    });
    for (key, name) in of_functions
        .map(|name| ("function", name))
        .chain(of_sids.map(|name| ("sid", name)))
        .filter(|(_, name)| own(name))
    {
        section.place.below(key).error(format!(
            "\"{}\" is an interface of the gateway, by which packets leave as frames of their remotes only; write another one",
            excerpt(name)
        ));
    }
    let returns = srv6.functions.iter().map(|of| &of.return_interface);
    for name in returns.filter(|name| own(name) || config.dataplane.lan.contains(name)) {
        section.place.below("function").error(format!(
            "\"{}\" is an interface of the gateway; all that a function's interface brings belongs to its chain",
            excerpt(name)
        ));
    }
}

fn rule(section: &Section<'_>) -> Option<Rule> {
    let name = section
        .require("name", "a name, for example name = \"web\"")
        .and_then(|item| file_name(&item, "\"web\""));
    let condition = section
        .require(
            "class",
            "which packets, for example class = \"all(protocol=TCP, dstport=443)\"",
        )
        .and_then(|item| item.parse("\"dstport=443\"", condition));
    let action = section
        .require(
            "action",
            "what is done with them: action = \"accept\", \"drop\", \"count\", \"mirror\" or \"chain\"",
        )
        .and_then(|item| {
            item.choice(&[
                ("accept", Kind::Accept),
                ("drop", Kind::Drop),
                ("count", Kind::Count),
                ("mirror", Kind::Mirror),
                ("chain", Kind::Chain),
            ])
        });
    let direction = match section.get("direction") {
        Some(item) => item.choice(&[
            ("both", (true, true)),
            ("egress", (true, false)),
            ("ingress", (false, true)),
        ]),
        None => Some((true, true)),
    };
    let kind = action?;
    for (key, of) in [
        ("interface", Kind::Mirror),
        ("egress", Kind::Chain),
        ("ingress", Kind::Chain),
    ] {
        if kind != of
            && let Some(item) = section.get(key)
        {
            let action = if of == Kind::Mirror {
                "mirror"
            } else {
                "chain"
            };
            item.place.error(format!(
                "of rules with action = \"{action}\" only; remove it"
            ));
        }
    }
    let (mut egress, mut ingress) = direction?;
    let action = match kind {
        Kind::Accept => Action::Accept,
        Kind::Drop => Action::Drop,
        Kind::Count => Action::Count,
        Kind::Mirror => {
            let item = section.require(
                "interface",
                "the device that copies leave by, for example interface = \"ids0\"",
            )?;
            Action::Mirror(item.parse("\"ids0\"", values::interface)?)
        }
        Kind::Chain => {
            if let Some(item) = section.get("direction") {
                item.place
                    .error("a chain has egress, ingress or both, which say it; remove this");
            }
            let of_egress = policy(section.get("egress"))?;
            let of_ingress = policy(section.get("ingress"))?;
            (egress, ingress) = (of_egress.is_some(), of_ingress.is_some());
            if !(egress || ingress) {
                section.place.error(
                    "a chain without a way; write egress = \"POLICY\", ingress = \"POLICY\", or both",
                );
            }
            Action::Chain {
                egress: of_egress,
                ingress: of_ingress,
            }
        }
    };
    Some(Rule {
        name: name?,
        condition: Arc::new(condition?),
        action,
        egress,
        ingress,
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Accept,
    Drop,
    Count,
    Mirror,
    Chain,
}

/// `Some(None)`: not written.
#[allow(clippy::option_option, reason = "not written is no error")]
fn policy(item: Option<Item<'_>>) -> Option<Option<String>> {
    match item {
        Some(item) => file_name(&item, "\"inspect\"").map(Some),
        None => Some(None),
    }
}

fn condition(text: &str) -> Result<Condition, String> {
    let no_name = |name: &str| {
        Err(format!(
            "\"{}\" is a class of the traffic policy; write its condition here",
            excerpt(name)
        ))
    };
    class::parse(text, &no_name).map_err(|error| error.to_string())
}

/// A chain of packets to remotes has to end where they go on into the tunnel, one of packets from there must not.
fn leads_back(section: &Section<'_>, rule: &Rule, srv6: Option<&Srv6>) {
    let Action::Chain { egress, ingress } = &rule.action else {
        return;
    };
    for (key, name) in [("egress", egress), ("ingress", ingress)] {
        let Some(name) = name else { continue };
        let place = section.place.below(key);
        let policies = srv6.map_or(&[][..], |srv6| &srv6.policies);
        let Some(policy) = policies.iter().find(|of| of.name == *name) else {
            place.error(format!(
                "there is no [[srv6.policy]] with the name \"{}\"",
                excerpt(name)
            ));
            continue;
        };
        if policy.insert {
            place.error(format!(
                "policy \"{}\" has insert, and its last segment is where the packet goes; name a policy without it",
                excerpt(name)
            ));
            continue;
        }
        let last = policy.segments.last();
        let mut sids = srv6.iter().flat_map(|srv6| &srv6.sids);
        let end = sids.find(|sid| Some(&sid.sid) == last);
        let leads_out = end.is_some_and(|sid| sid.target == Target::Tunnel);
        let is_last =
            end.is_some_and(|sid| matches!(sid.behavior, Behavior::EndAd4 | Behavior::EndAd6));
        match (key, leads_out) {
            ("egress", false) => place.error(format!(
                "policy \"{}\" does not lead back to the gateway; its last segment has to be a SID of this node with table = \"tunnel\"",
                excerpt(name)
            )),
            ("ingress", true) => place.error(format!(
                "policy \"{}\" leads into the tunnel again; its last segment has to be a SID with a way to the hosts, for example End.DT46 with table = \"main\"",
                excerpt(name)
            )),
            ("ingress", false) if is_last => place.warn(format!(
                "policy \"{}\" ends at a function: what that returns is forwarded by the main table",
                excerpt(name)
            )),
            _ => {}
        }
    }
}

/// Under which numbers the SR node knows what rules name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Links {
    /// Policies by name.
    pub(crate) policies: BTreeMap<String, Chain>,
    /// Devices that copies leave by.
    pub(crate) mirrors: BTreeMap<String, u32>,
}

/// What rules held for, by their names: of packets to remotes, and from there.
#[derive(Default)]
pub(crate) struct Counts(BTreeMap<String, [Arc<[Hits]>; 2]>);

impl Counts {
    /// Packets and bytes of a rule, of packets to remotes and from there.
    pub(crate) fn of(&self, name: &str) -> [(u64, u64); 2] {
        let sum = |hits: &Arc<[Hits]>| {
            let each = hits.iter().map(|of| (of.packets.get(), of.bytes.get()));
            each.fold((0, 0), |(a, b), (c, d)| (a + c, b + d))
        };
        self.0.get(name).map_or_else(Default::default, |hits| {
            let [egress, ingress] = hits;
            [sum(egress), sum(ingress)]
        })
    }
}

/// What workers do by these rules. Rules with the name of one before go on counting.
pub(crate) fn filter(rules: &Rules, links: &Links, workers: usize, counts: &mut Counts) -> Filter {
    let mut old = std::mem::take(&mut counts.0);
    let (mut egress, mut ingress) = (Vec::new(), Vec::new());
    for rule in &rules.rules {
        let new = || -> Arc<[Hits]> { (0..workers).map(|_| Hits::default()).collect() };
        let hits = old.remove(&rule.name).unwrap_or_else(|| [new(), new()]);
        let [of_egress, of_ingress] = hits.clone();
        counts.0.insert(rule.name.clone(), hits);
        // What is named and not there is dropped: a firewall that is left out would be no firewall.
        // What a connection agrees on in one direction is sent in the other.
        let segment = |ways: [&Option<String>; 2]| {
            let known = ways.into_iter().flatten();
            let chains = known.filter_map(|name| links.policies.get(name));
            chains.map(|chain| chain.room).min().unwrap_or(u32::MAX)
        };
        let chain = |name: &Option<String>, other: &Option<String>| {
            let segment = segment([name, other]);
            let Some(name) = name else {
                return FilterAction::Answered(segment);
            };
            match links.policies.get(name) {
                Some(chain) => FilterAction::Chain(Chain { segment, ..*chain }),
                None => FilterAction::Drop,
            }
        };
        let [to, from] = match &rule.action {
            Action::Accept => [FilterAction::Accept; 2],
            Action::Drop => [FilterAction::Drop; 2],
            Action::Count => [FilterAction::Count; 2],
            Action::Mirror(device) => {
                let number = links.mirrors.get(device);
                [number.map_or(FilterAction::Count, |number| FilterAction::Mirror(*number)); 2]
            }
            Action::Chain { egress, ingress } => [chain(egress, ingress), chain(ingress, egress)],
        };
        let is_chain = matches!(rule.action, Action::Chain { .. });
        if rule.is_of_egress() {
            egress.push(FilterRule {
                condition: rule.condition.clone(),
                action: to,
                hits: if rule.egress { of_egress } else { Arc::new([]) },
            });
        }
        if rule.is_of_ingress() {
            ingress.push(FilterRule {
                // The answers to what a chain takes.
                condition: match is_chain {
                    true => Arc::new(rule.condition.reversed()),
                    false => rule.condition.clone(),
                },
                action: from,
                hits: if rule.ingress {
                    of_ingress
                } else {
                    Arc::new([])
                },
            });
        }
    }
    let locators = rules.srv6.iter().flat_map(|srv6| &srv6.node.locators);
    let locators = locators.map(|net| ((*net).into(), ()));
    Filter::new(egress, ingress, locators.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GATEWAY: &str = "[gateway]\nisd_as = \"1-ff00:0:110\"\n[dataplane]\nunderlay = \"eth0\"\nlan = [\"eth1\"]\n";

    fn read(text: &str) -> Result<(Rules, Vec<Problem>), Errors> {
        let no_files = |_: &std::path::Path| Err(std::io::ErrorKind::NotFound.into());
        let config = crate::control::config::check(GATEWAY, "gateway.toml", &no_files);
        check(text, "rules.toml", &config.expect("a configuration"))
    }

    #[test]
    fn the_sample_is_correct_and_has_every_key() {
        let (rules, warnings) = read(SAMPLE).unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!((rules.rules.len(), warnings.len()), (5, 0));
        let documentation = include_str!("../../../docs/rules.md");
        for key in RULE_KEYS {
            assert!(SAMPLE.contains(&format!("\n{key} = ")), "{key}");
            assert!(documentation.contains(&format!("`{key}`")), "{key}");
        }
    }

    #[test]
    fn the_rules_of_the_demo_are_correct() {
        let demo = include_str!("../../../xtask/src/demo/chains.toml");
        let (rules, warnings) = read(demo).unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!((rules.rules.len(), warnings.len()), (3, 0));
    }

    #[test]
    fn what_is_wrong_is_named_with_line_and_key() {
        for (old, new, said) in [
            (
                "action = \"count\"",
                "action = \"cont\"",
                "rules.toml:8: rule[0].action",
            ),
            (
                "class = \"protocol=UDP\"",
                "class = \"proto\"",
                "rules.toml:7: rule[0].class: at character 1",
            ),
            (
                "class = \"protocol=UDP\"",
                "class = \"cls=a\"",
                "is a class of the traffic policy",
            ),
            (
                "name = \"ssh\"",
                "name = \"watched\"",
                "another rule has the name \"watched\"",
            ),
            (
                "interface = \"ids0\"",
                "",
                "the device that copies leave by",
            ),
            (
                "interface = \"ids0\"",
                "interface = \"sig\"",
                "to which copies would come back",
            ),
            (
                "segments = [\"fd00:5::f\"",
                "segments = [\"fd00:5::ff\"",
                "and no [[srv6.sid]] has it",
            ),
            (
                "action = \"mirror\"",
                "action = \"drop\"",
                "of rules with action = \"mirror\" only",
            ),
            (
                "direction = \"ingress\"",
                "egress = \"inspect\"",
                "of rules with action = \"chain\" only",
            ),
            (
                "egress = \"inspect\"",
                "direction = \"egress\"",
                "a chain has egress, ingress or both",
            ),
            (
                "egress = \"inspect\"",
                "egress = \"in\"",
                "no [[srv6.policy]] with the name \"in\"",
            ),
            (
                "egress = \"inspect\"",
                "egress = \"inspect-back\"",
                "does not lead back to the gateway",
            ),
            (
                "ingress = \"inspect-back\"",
                "ingress = \"inspect\"",
                "leads into the tunnel again",
            ),
            (
                "locators = ",
                "trusted = [\"eth0\"]\nlocators = ",
                "\"eth0\" is an interface of the gateway",
            ),
            (
                "return_interface = \"fw-out\"",
                "return_interface = \"eth1\"",
                "\"eth1\" is an interface of the gateway",
            ),
        ] {
            assert!(SAMPLE.contains(old), "{old} is in the sample");
            let errors = read(&SAMPLE.replacen(old, new, 1))
                .expect_err(said)
                .to_string();
            assert!(errors.contains(said), "{said}\n{errors}");
        }
    }

    #[test]
    fn rules_become_those_of_the_workers() {
        let (rules, _) = read(SAMPLE).expect("the sample");
        let mut counts = Counts::default();
        let packet = |[source, destination]: [u16; 2]| {
            let mut bytes = Vec::new();
            etherparse::PacketBuilder::ipv4([10, 1, 0, 1], [10, 9, 0, 1], 64)
                .tcp(source, destination, 0, 0)
                .write(&mut bytes, &[])
                .expect("a packet");
            sig_common::wire::inner::InnerPacket::parse(&bytes[..]).expect("a packet")
        };
        let of_web = |links: &Links, counts: &mut Counts| {
            let filter = filter(&rules, links, 1, counts);
            [
                format!("{:?}", filter.of_egress(&packet([5000, 443]))),
                format!("{:?}", filter.of_ingress(&packet([443, 5000]))),
                format!("{:?}", filter.of_ingress(&packet([5000, 23]))),
                format!("{:?}", filter.of_egress(&packet([5000, 23]))),
            ]
        };
        let (there, back) = [(3, 9), (4, 8)]
            .map(|(policy, room)| Chain {
                policy,
                room,
                segment: 8,
            })
            .into();
        let links = Links {
            policies: [("inspect", there), ("inspect-back", back)]
                .map(|(name, chain)| (name.to_owned(), chain))
                .into(),
            mirrors: BTreeMap::new(),
        };
        let [chain, answer, drop, carry] = of_web(&links, &mut counts);
        assert_eq!(chain, format!("Chain({there:?})"));
        assert_eq!(answer, format!("Chain({back:?})"));
        assert_eq!(
            (&*drop, &*carry),
            ("Drop", "Carry { repeats: true, segment: 4294967295 }")
        );
        // What answers a chain in one direction only is kept to what fits that.
        let one_way = SAMPLE.replace("ingress = \"inspect-back\"\n", "");
        let (one_way, _) = read(&one_way).expect("a chain in one direction");
        let filter = filter(&one_way, &links, 1, &mut Counts::default());
        let answer = format!("{:?}", filter.of_ingress(&packet([443, 5000])));
        assert_eq!(answer, "Carry { repeats: true, segment: 9 }");
        // A chain that is not there lets nothing pass.
        let [chain, answer, ..] = of_web(&Links::default(), &mut counts);
        assert_eq!((&*chain, &*answer), ("Drop", "Drop"));
    }
}
