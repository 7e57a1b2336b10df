//! What follows from several sections.

use std::{collections::BTreeMap, net::Ipv6Addr, sync::Arc};

use ipnet::IpNet;
use sig_common::{
    srv6::{
        Behavior,
        filter::{Action, MAX_ROWS},
        maps::{MAX_FUNCTIONS, MAX_LOCATORS, MAX_POLICIES, MAX_SIDS, MAX_STEERED},
    },
    wire::{ipv6, srv6},
};
use sig_core::{
    document::toml::{Place, Section},
    policy::rules::{self, Tables},
    problem::excerpt,
};

use super::{LocalSid, NamedRule, Remembered, Srv6, Target};

pub(super) fn check(section: &Section<'_>, config: &Srv6) {
    let places = ["sid", "policy", "function", "rule"].map(|array| {
        let sections = section.sections(array).into_iter();
        sections.map(|section| section.place).collect::<Vec<_>>()
    });
    let place = |array: &str, number: usize| -> Option<&Place<'_>> {
        let [sids, policies, functions, rules] = &places;
        match array {
            "sid" => sids,
            "policy" => policies,
            "rule" => rules,
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
        if sid.sid.to_bits().trailing_zeros() < sid.arguments.into() {
            place.below("arguments").error(format!(
                "the last {} bits of {} are not all zero; they are those of the arguments",
                sid.arguments, sid.sid
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
                Some(function)
                    if function.headers == Remembered::OfFlows
                        && !matches!(sid.behavior, Behavior::EndAd4 | Behavior::EndAd6) =>
                {
                    place.below("function").error(format!(
                        "the function has headers = \"flow\", which is for End.AD4 and End.AD6; remove it, or write another function than \"{}\"",
                        excerpt(name)
                    ));
                }
                Some(_) => {}
            }
        }
    }
    let mut proxies: BTreeMap<&str, Ipv6Addr> = BTreeMap::new();
    for (number, sid) in config.sids.iter().enumerate() {
        if let Target::Function(name) = &sid.target
            && !config
                .functions
                .iter()
                .any(|function| function.name == *name && function.headers == Remembered::OfFlows)
            && let Some(other) = proxies.insert(name, sid.sid)
            && let Some(place) = place("sid", number)
        {
            place.below("function").error(format!(
                "SID {other} has this function already; what it returns could not be told apart, so write another function, or of a dynamic proxy headers = \"flow\" in the function's section"
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
            && config.mtu(policy) < least
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
    for (number, rule) in config.rules.iter().enumerate() {
        let Some(place) = place("rule", number) else {
            continue;
        };
        if let Some(name) = rule.policy()
            && !config.policies.iter().any(|of| of.name == *name)
        {
            place.below("policy").error(format!(
                "there is no [[srv6.policy]] with the name \"{}\"",
                excerpt(name)
            ));
        }
        for name in &rule.rule.interfaces {
            if !node.trusted.contains(name) && !node.untrusted.contains(name) {
                place.below("interfaces").error(format!(
                    "\"{}\" is neither in [srv6] trusted nor in untrusted; rules see what comes in by those",
                    excerpt(name)
                ));
            }
        }
        let is_eval = rule.rule.action == Action::EvalArguments;
        if is_eval && config.sids.iter().all(|sid| sid.arguments == 0) {
            place.warn("no [[srv6.sid]] has arguments: this rule is never applied");
        }
    }
    for (what, count, most) in [
        (
            "function",
            config.functions.len(),
            MAX_FUNCTIONS as usize - 1,
        ),
        ("sid", config.sids.len(), MAX_SIDS as usize),
        ("rule", config.rules.len(), MAX_ROWS),
        (
            "locators",
            // SIDs with arguments are prefixes, too.
            node.locators.len() + config.sids.iter().filter(|sid| sid.arguments != 0).count(),
            MAX_LOCATORS as usize,
        ),
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

/// The tables of the rules, if there are any.
pub(super) fn compile(section: &Section<'_>, rules: &[NamedRule]) -> Option<Arc<Tables>> {
    if rules.is_empty() {
        return None;
    }
    let plain: Vec<_> = rules.iter().map(|of| of.rule.clone()).collect();
    match rules::compile(&plain) {
        Ok(tables) => Some(Arc::new(tables)),
        Err(error) => {
            let sections = section.sections("rule");
            let place = sections
                .get(error.rule)
                .map_or(&section.place, |of| &of.place);
            place.below("class").error(format!(
                "with this rule there are more than {} {}; write fewer rules, or conditions on fewer different fields",
                error.most, error.what
            ));
            None
        }
    }
}
