//! Path policies in JSON, as the reference writes them.

use std::sync::Arc;

use sig_common::addr::IsdAs;

use super::{Acl, PathPolicy, RemoteRule, WeightedPolicy};
use crate::document::json::{Node, Unknown};
use crate::problem::excerpt;

/// Finds the policy of a name.
pub(in crate::policy) type Named<'n> = &'n dyn Fn(&str) -> Option<Arc<PathPolicy>>;

const KEYS: &[&str] = &[
    "extends",
    "acl",
    "sequence",
    "local_isd_ases",
    "remote_isd_ases",
    "options",
];

/// A policy, or the name of one.
pub(in crate::policy) fn policy_or_name(
    node: &Node<'_>,
    named: Named<'_>,
) -> Option<Arc<PathPolicy>> {
    if node.is_string() {
        return name(node, named);
    }
    policy(node, named).map(Arc::new)
}

fn name(node: &Node<'_>, named: Named<'_>) -> Option<Arc<PathPolicy>> {
    node.parse("the name of a path policy", |name| {
        named(name).ok_or_else(|| {
            let name = excerpt(name);
            format!("there is no path policy \"{name}\"; add it to PathPolicies")
        })
    })
}

/// A policy. Everything that is wrong with it is reported; what can be read is returned even then.
pub(in crate::policy) fn policy(node: &Node<'_>, named: Named<'_>) -> Option<PathPolicy> {
    let fields = node.fields(KEYS, Unknown::Refuse)?;
    let mut policy = PathPolicy {
        local: fields.get("local_isd_ases").and_then(isd_ases),
        remote: fields.get("remote_isd_ases").and_then(remote_rules),
        acl: fields.get("acl").and_then(acl),
        sequence: fields.get("sequence").and_then(|node| {
            let wanted = "a string, for example \"0* 1-ff00:0:110 0*\"";
            node.parse(wanted, str::parse).map(Arc::new)
        }),
        options: Arc::default(),
    };
    if let Some(node) = fields.get("options") {
        policy.options = options(node, named).unwrap_or_default();
    }
    if let Some(node) = fields.get("extends") {
        let bases = node.elements("an array of names of path policies")?;
        // The last one comes first, as in the reference.
        for base in bases.iter().rev() {
            if let Some(base) = name(base, named) {
                policy.extend(&base);
            }
        }
    }
    Some(policy)
}

fn isd_as(node: &Node<'_>) -> Option<IsdAs> {
    node.parse("a string, for example \"1-ff00:0:110\"", |text| {
        text.parse::<IsdAs>().map_err(|error| {
            let text = excerpt(text);
            format!("\"{text}\" is {error}")
        })
    })
}

fn isd_ases(node: &Node<'_>) -> Option<Arc<[IsdAs]>> {
    let nodes = node.elements("an array, for example [\"1-ff00:0:110\"]")?;
    Some(nodes.iter().filter_map(isd_as).collect())
}

fn remote_rules(node: &Node<'_>) -> Option<Arc<[RemoteRule]>> {
    let nodes = node.elements("an array, for example [{\"isd_as\": \"1-0\"}]")?;
    let rules = nodes.iter().filter_map(|node| {
        let fields = node.fields(&["isd_as", "reject"], Unknown::Refuse)?;
        Some(RemoteRule {
            isd_as: fields.get("isd_as").map_or(Some(IsdAs(0)), isd_as)?,
            reject: fields.get("reject").map_or(Some(false), Node::boolean)?,
        })
    });
    Some(rules.collect())
}

fn acl(node: &Node<'_>) -> Option<Arc<Acl>> {
    let nodes = node.elements("an array, for example [\"- 1-ff00:0:110\", \"+\"]")?;
    let entries = nodes
        .iter()
        .map(|node| node.parse("a string, for example \"- 1-ff00:0:110\"", str::parse));
    // All entries are read before the first failure counts.
    let entries: Vec<_> = entries.collect();
    let entries = entries.into_iter().collect::<Option<_>>()?;
    let acl = Acl::new(entries).map_err(|message| node.error(message));
    acl.ok().map(Arc::new)
}

fn options(node: &Node<'_>, named: Named<'_>) -> Option<Arc<[WeightedPolicy]>> {
    let wanted = "an array, for example [{\"weight\": 1, \"policy\": {\"acl\": [\"+\"]}}]";
    let nodes = node.elements(wanted)?;
    let options = nodes.iter().filter_map(|node| {
        let fields = node.fields(&["weight", "policy"], Unknown::Refuse)?;
        // One number is kept free: see SessionPolicy::weigh.
        let weight = fields
            .get("weight")
            .map_or(Some(0), |node| node.integer(0..=u32::MAX - 1))?;
        let Some(node) = fields.get("policy") else {
            node.error("no policy; write \"policy\": {…} or the name of a path policy");
            return None;
        };
        let policy = policy_or_name(node, named)?;
        if !policy.options.is_empty() {
            node.error("a policy within an option cannot have options of its own; put all options on one level");
        }
        Some(WeightedPolicy { weight, policy })
    });
    Some(options.collect())
}
