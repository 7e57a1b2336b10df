//! The file of a traffic policy: that of the reference, and more.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use ipnet::IpNet;
use sig_common::addr::IsdAs;

use super::{AsPolicy, Fallback, SessionPolicy, TrafficPolicy};
use crate::document::{
    json::{Fields, Node, Unknown},
    prefix,
};
use crate::policy::{
    LONGEST_TEXT,
    class::{self, Condition},
    path::{self, PathPolicy},
    performance::{self, PerformancePolicy},
};
use crate::problem::{Errors, Problem, Report, excerpt};

const TOP: &[&str] = &[
    "ASes",
    "ConfigVersion",
    "TrafficClasses",
    "PathPolicies",
    "PerformancePolicies",
];
const AS: &[&str] = &["Nets", "PathCount", "Policies"];
const POLICY: &[&str] = &[
    "Name",
    "TrafficClass",
    "PathPolicy",
    "PerformancePolicy",
    "PathCount",
    "Fallback",
];

/// How many policies an AS may have: each takes a session per remote gateway, and there are 256
/// session numbers.
const MAX_POLICIES: usize = 64;
/// How many conditions the traffic classes of a file may have together, repeated ones counted again.
const MAX_CONDITIONS: usize = 1 << 20;

/// Checks the text of a traffic policy; `file` is its name for messages. With the policy come
/// warnings about what has no effect or hardly the wanted one, in the order of lines.
///
/// # Errors
///
/// All problems of the file, in the order of lines.
pub fn check(text: &str, file: &str) -> Result<(TrafficPolicy, Vec<Problem>), Errors> {
    let report = Report::new(file, text);
    let policy = if text.len() > LONGEST_TEXT {
        let limit = LONGEST_TEXT >> 20;
        report.error(0, "", format!("the file is larger than {limit} MiB"));
        None
    } else {
        Node::document(&report, text).and_then(|document| traffic_policy(&document))
    };
    match (policy, report.take()) {
        (Some(policy), (errors, warnings)) if errors.is_empty() => Ok((policy, warnings)),
        (_, (errors, _)) => Err(Errors::new(errors)),
    }
}

fn traffic_policy(document: &Node<'_>) -> Option<TrafficPolicy> {
    let fields = document.fields(TOP, Unknown::Warn)?;
    let named = Named {
        classes: fields
            .get("TrafficClasses")
            .map(classes)
            .unwrap_or_default(),
        paths: fields.get("PathPolicies").map(paths).unwrap_or_default(),
        performances: fields
            .get("PerformancePolicies")
            .map(performances)
            .unwrap_or_default(),
    };
    let version = fields
        .get("ConfigVersion")
        .and_then(|node| node.integer(0..=u64::MAX));
    let mut ases = BTreeMap::new();
    let mut owners: HashMap<IpNet, IsdAs> = HashMap::new();
    if let Some(node) = fields.get("ASes") {
        let wanted = "an object, for example {\"1-ff00:0:111\": {\"Nets\": []}}";
        for (name, node) in node.members(wanted)? {
            let Ok(isd_as) = name.parse::<IsdAs>() else {
                node.error("not an ISD-AS; write for example \"1-ff00:0:111\"");
                continue;
            };
            if isd_as.isd() == 0 || isd_as.asn() == 0 {
                node.warn("0 is a wildcard; write the number of one AS");
            }
            let Some(policy) = as_policy(&node, &named) else {
                continue;
            };
            let mut shared = policy.prefixes.iter().filter_map(|prefix| {
                let other = owners.insert(*prefix, isd_as)?;
                (other != isd_as).then_some((prefix, other))
            });
            if let Some((prefix, other)) = shared.next() {
                let more = match shared.count() {
                    0 => String::new(),
                    more => format!(", and {more} more,"),
                };
                node.warn(format!(
                    "{prefix}{more} is also in Nets of {other}: packets go to the AS with the higher \
                     number, and to the other one while that is unreachable"
                ));
            }
            if ases.insert(isd_as, policy).is_some() {
                node.warn("this AS is set twice; the last one wins");
            }
        }
    }
    Some(TrafficPolicy {
        version: version.unwrap_or(0),
        ases,
    })
}

/// What other parts of the file refer to by name.
struct Named {
    classes: Classes,
    paths: HashMap<String, Arc<PathPolicy>>,
    performances: HashMap<String, Arc<PerformancePolicy>>,
}

fn as_policy(node: &Node<'_>, named: &Named) -> Option<AsPolicy> {
    let fields = node.fields(AS, Unknown::Warn)?;
    let prefixes = fields.get("Nets").map_or(Some(Vec::new()), nets);
    let count = path_count(&fields);
    let policies = match fields.get("Policies") {
        Some(list) => policies(list, count.unwrap_or(1), named),
        None => count.map(|count| vec![SessionPolicy::only(count)]),
    };
    Some(AsPolicy {
        prefixes: prefixes?,
        policies: policies?,
    })
}

fn nets(node: &Node<'_>) -> Option<Vec<IpNet>> {
    let nodes = node.elements("an array, for example [\"10.2.0.0/24\"]")?;
    let prefixes = nodes
        .iter()
        .filter_map(|node| node.parse("a string, for example \"10.2.0.0/24\"", prefix::nets));
    Some(prefixes.collect())
}

/// `PathCount`: 0, or none, is 1. The reference takes negative numbers, too.
fn path_count(fields: &Fields<'_>) -> Option<u32> {
    let Some(node) = fields.get("PathCount") else {
        return Some(1);
    };
    if node.is_negative() {
        node.warn("a negative number counts as 1; write how many paths to use");
        return Some(1);
    }
    node.integer(0..=u32::MAX).map(|count| count.max(1))
}

fn policies(node: &Node<'_>, count: u32, named: &Named) -> Option<Vec<SessionPolicy>> {
    let nodes =
        node.elements("an array of policies, for example [{\"PathPolicy\": \"inland\"}]")?;
    if nodes.is_empty() {
        node.error("no policy; add one, or remove the key to send everything over any path");
    }
    if nodes.len() > MAX_POLICIES {
        node.error(format!("more than {MAX_POLICIES} policies; write fewer"));
        return None;
    }
    let mut policies = Vec::new();
    for (id, node) in (0..).zip(&nodes) {
        policies.extend(policy(node, id, count, named));
    }
    if policies.len() < nodes.len() {
        return None;
    }
    let mut known = HashSet::new();
    for (node, policy) in nodes.iter().zip(&policies) {
        if !known.insert(policy.name.as_str()) {
            let name = excerpt(&policy.name);
            node.error(format!(
                "another policy of this AS is already named \"{name}\"; choose another name"
            ));
        }
    }
    warn_of_gaps(&nodes, &policies);
    Some(policies)
}

fn policy(node: &Node<'_>, id: u32, count: u32, named: &Named) -> Option<SessionPolicy> {
    let fields = node.fields(POLICY, Unknown::Refuse)?;
    let name = fields.get("Name").map_or(Some(id.to_string()), |node| {
        node.parse("a string, for example \"voice\"", |name| match name {
            "" => Err("the name is empty; write one, or remove the key".to_owned()),
            _ if name.len() > 64 || name.contains(char::is_control) => {
                Err("a name has up to 64 bytes and no control characters".to_owned())
            }
            _ => Ok(name.to_owned()),
        })
    });
    let condition = match fields.get("TrafficClass") {
        Some(node) => node.parse("a traffic class, for example \"dscp=0x2e\"", |text| {
            named.classes.name_or_text(text)
        }),
        None => Some(Arc::new(Condition::ALWAYS)),
    };
    let path = fields
        .get("PathPolicy")
        .map_or(Some(Arc::default()), |node| {
            path::read::policy_or_name(node, &|name| named.paths.get(name).cloned())
        });
    let performance = fields.get("PerformancePolicy").map(|node| {
        performance::read::policy_or_name(node, &|name| named.performances.get(name).cloned())
    });
    let path_count = match fields.get("PathCount") {
        Some(_) => path_count(&fields),
        None => Some(count),
    };
    let fallback = fields
        .get("Fallback")
        .map_or(Some(Fallback::Drop), fallback);
    let performance = match performance {
        Some(read) => Some(read?),
        None => None,
    };
    Some(SessionPolicy {
        id,
        name: name?,
        condition: condition?,
        path: path?,
        performance,
        path_count: path_count?,
        fallback: fallback?,
    })
}

fn fallback(node: &Node<'_>) -> Option<Fallback> {
    let wanted = "\"drop\", \"next\" or \"any-path\"";
    node.parse(wanted, |word| match word.to_ascii_lowercase().as_str() {
        "drop" => Ok(Fallback::Drop),
        "next" => Ok(Fallback::Next),
        "any-path" => Ok(Fallback::AnyPath),
        _ => Err(format!("\"{}\" is unknown; write {wanted}", excerpt(word))),
    })
}

/// The named traffic classes.
#[derive(Default)]
struct Classes {
    named: HashMap<String, Arc<Condition>>,
    /// How many conditions there are in all texts read so far.
    size: Cell<usize>,
}

impl Classes {
    /// The name of a class or its text.
    fn name_or_text(&self, text: &str) -> Result<Arc<Condition>, String> {
        if class::is_name(text) {
            self.find(text).cloned()
        } else {
            self.text(text).map(Arc::new)
        }
    }

    fn text(&self, text: &str) -> Result<Condition, String> {
        let find = |name: &str| self.find(name).map(|class| Condition::clone(class));
        let condition = class::parse(text, &find).map_err(|error| error.to_string())?;
        self.size.set(self.size.get() + condition.size());
        if self.size.get() > MAX_CONDITIONS {
            return Err(format!(
                "all classes together have more than {MAX_CONDITIONS} conditions; define repeated classes \
                 once in TrafficClasses and refer to them by name"
            ));
        }
        Ok(condition)
    }

    fn find(&self, name: &str) -> Result<&Arc<Condition>, String> {
        self.named.get(name).ok_or_else(|| {
            let name = excerpt(name);
            format!("there is no traffic class \"{name}\"; add it to TrafficClasses")
        })
    }
}

fn warn_of_gaps(nodes: &[Node<'_>], policies: &[SessionPolicy]) {
    let ends =
        |policy: &SessionPolicy| policy.condition.is_always() && policy.fallback != Fallback::Next;
    if let Some(at) = policies.iter().position(ends)
        && let Some(never) = nodes.get(at + 1)
    {
        never.warn(format!(
            "unreachable: policy \"{}\" matches everything",
            excerpt(&policies[at].name)
        ));
    }
    let last = policies.last().zip(nodes.last());
    if let Some((policy, node)) = last
        && policy.fallback == Fallback::Next
    {
        node.warn("there is no next policy to fall back to; packets are dropped");
    }
    if let Some((_, node)) = last
        && !policies.iter().any(|policy| policy.condition.is_always())
    {
        node.warn(
            "packets that match no policy are dropped; add a final policy without \
             TrafficClass to send them",
        );
    }
}

/// The named traffic classes.
fn classes(node: &Node<'_>) -> Classes {
    let wanted = "an object, for example {\"voice\": \"dscp=0x2e\"}";
    let text = "a string, for example \"dscp=0x2e\"";
    let members = members(node, wanted, "traffic class", |(name, node)| {
        if !class::is_name(name) {
            node.error("a name consists of letters, digits, \".\", \"_\" and \"-\"");
        }
        let quietly = Report::new("", "");
        let text = node.reporting_to(&quietly).string(text);
        class::names(&text.unwrap_or_default())
    });
    let mut classes = Classes::default();
    for (name, node) in members {
        let read = node.and_then(|node| node.parse(text, |text| classes.text(text)));
        // After a problem the name is known all the same: one message is enough.
        let read = read.unwrap_or(Condition::ALWAYS);
        classes.named.insert(name, Arc::new(read));
    }
    classes
}

/// The named path policies.
fn paths(node: &Node<'_>) -> HashMap<String, Arc<PathPolicy>> {
    let wanted = "an object, for example {\"inland\": {\"acl\": [\"+ 1\", \"-\"]}}";
    let members = members(node, wanted, "path policy", |(_, node)| {
        let names = RefCell::new(Vec::new());
        let note = |name: &str| {
            names.borrow_mut().push(name.to_owned());
            Some(Arc::default())
        };
        // What is wrong is told when the policy is read for good.
        path::read::policy(&node.reporting_to(&Report::new("", "")), &note);
        names.into_inner()
    });
    let mut paths: HashMap<String, Arc<PathPolicy>> = HashMap::new();
    for (name, node) in members {
        let named = |name: &str| paths.get(name).cloned();
        let read = node.and_then(|node| path::read::policy(&node, &named));
        paths.insert(name, Arc::new(read.unwrap_or_default()));
    }
    paths
}

/// The named performance policies.
fn performances(node: &Node<'_>) -> HashMap<String, Arc<PerformancePolicy>> {
    let wanted = "an object, for example {\"fast\": {\"Order\": [\"latency\"]}}";
    let members = members(node, wanted, "performance policy", |_| Vec::new());
    let read = members.into_iter().map(|(name, node)| {
        let read = node.and_then(|node| performance::read::policy(&node));
        (name, Arc::new(read.unwrap_or_default()))
    });
    read.collect()
}

/// The members of an object, each after those that `names` says it refers to. Those that refer to
/// themselves in the end are reported and come last, without their value.
fn members<'a>(
    node: &Node<'a>,
    wanted: &str,
    what: &str,
    names: impl Fn((&str, &Node<'a>)) -> Vec<String>,
) -> Vec<(String, Option<Node<'a>>)> {
    let mut by_name = BTreeMap::new();
    for (name, node) in node.members(wanted).unwrap_or_default() {
        if by_name.insert(name, node.clone()).is_some() {
            node.warn(format!("this {what} is set twice; the last one wins"));
        }
    }
    // How many others each waits for, and who waits for it.
    let mut waiting: BTreeMap<&str, usize> = BTreeMap::new();
    let mut dependents: HashMap<String, Vec<&str>> = HashMap::new();
    let mut ready = Vec::new();
    for (name, node) in &by_name {
        let mut needed = names((name, node));
        needed.sort();
        needed.dedup();
        needed.retain(|needed| by_name.contains_key(needed));
        if needed.is_empty() {
            ready.push(name.as_str());
        }
        waiting.insert(name, needed.len());
        for needed in needed {
            dependents.entry(needed).or_default().push(name);
        }
    }
    let mut ordered = Vec::new();
    while let Some(name) = ready.pop() {
        ordered.push(name.to_owned());
        for dependent in dependents.remove(name).unwrap_or_default() {
            let left = waiting.entry(dependent).or_default();
            *left = left.saturating_sub(1);
            if *left == 0 {
                ready.push(dependent);
            }
        }
    }
    let mut members: Vec<_> = ordered
        .into_iter()
        .map(|name| {
            let node = by_name.remove(&name);
            (name, node)
        })
        .collect();
    for (name, node) in by_name {
        node.error(format!(
            "this {what} refers to itself, directly or indirectly"
        ));
        members.push((name, None));
    }
    members
}
