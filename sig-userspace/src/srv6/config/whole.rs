//! What follows from several sections.

use std::{collections::BTreeMap, net::Ipv6Addr, sync::Arc};

use ipnet::IpNet;
use sig_common::{
    srv6::{
        Behavior,
        filter::{Action, MAX_ROWS},
        maps::{
            MAX_FUNCTIONS, MAX_HEADERS, MAX_HMAC_KEYS, MAX_LOCATORS, MAX_POLICIES, MAX_SIDS,
            MAX_STEERED,
        },
    },
    wire::{
        ethernet, ipv6,
        srv6::{self, Hmac, MAX_MAC, Tlv},
    },
};
use sig_core::{
    document::toml::{Place, Section},
    policy::rules::{self, Tables},
    problem::excerpt,
};

use super::{HmacRule, LocalSid, NamedRule, Remembered, ServiceAddress, Srv6, Steering, Target};

pub(super) fn check(section: &Section<'_>, config: &Srv6) {
    if config.node.hmac != HmacRule::Ignore && config.hmac_keys.is_empty() {
        section
            .place
            .below("hmac")
            .error("there is no key to verify with; write a [[srv6.hmac_key]] section");
    }
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
                    if (sid.behavior == Behavior::EndAn)
                        != (function.address == ServiceAddress::Process) =>
                {
                    place.below("function").error(match sid.behavior {
                        Behavior::EndAn => "End.AN is for functions in the process; write in_process = true in the function's section, or another behavior",
                        _ => "the function is in the process, which is for End.AN; write behavior = \"End.AN\", or another function",
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
            && !config.functions.iter().any(|function| {
                function.name == *name
                    && (function.headers == Remembered::OfFlows
                        || function.address == ServiceAddress::Process)
            })
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
        if function.address != ServiceAddress::Process
            && let Some(other) = returns.insert(interface, &function.name)
        {
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
        let ways = config.policies.iter().flat_map(|policy| {
            let segments = &policy.segments;
            let leads_here = |segment: &Ipv6Addr| {
                let mut sids = config.sids.iter().filter(is_proxied);
                sids.any(|sid| {
                    sid.sid == *segment
                        && matches!(sid.behavior, Behavior::EndAd4 | Behavior::EndAd6)
                })
            };
            (0..segments.len())
                .filter(move |at| segments.get(*at).is_some_and(leads_here))
                .map(move |at| (policy, segments.get(at + 1..).unwrap_or_default()))
        });
        let ways: Vec<_> = ways.collect();
        let clash = ways.iter().enumerate().find_map(|(at, (first, rest))| {
            let mut before = ways.iter().take(at);
            let (other, _) = before.find(|(policy, other)| match function.headers {
                Remembered::Latest => other != rest,
                Remembered::OfFlows => policy.name == first.name,
            })?;
            Some((other, first))
        });
        if let Some((first, other)) = clash {
            let (first, other) = (excerpt(&first.name), excerpt(&other.name));
            place.warn(match first == other {
                true => format!(
                    "policy \"{first}\" leads through this function twice: what it returns would get the headers of either; let packets pass it \
                     once"
                ),
                false => format!(
                    "policies \"{first}\" and \"{other}\" lead through this function and then different ways: what it returns would get the \
                     headers of either; give each a function of its own, or write headers = \"flow\""
                ),
            });
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
    for (number, policy) in config.policies.iter().enumerate() {
        let ends = |segment: &Ipv6Addr| {
            let mut sids = config.sids.iter();
            sids.any(|sid| sid.sid == *segment && sid.behavior.ends_the_list())
        };
        let before_the_last = policy.segments.iter().rev().skip(1);
        if let (Some(segment), Some(place)) = (
            before_the_last.clone().find(|segment| ends(segment)),
            place("policy", number),
        ) {
            place.below("segments").error(format!(
                "{segment} takes the headers off, and segments follow; write it last"
            ));
        }
        let is_ours = |segment: &&Ipv6Addr| node.locators.iter().any(|net| net.contains(*segment));
        let is_sid = |segment: &Ipv6Addr| config.sids.iter().any(|sid| sid.sid == *segment);
        let mut segments = policy.segments.iter().filter(is_ours);
        if let (Some(segment), Some(place)) = (
            segments.find(|segment| !is_sid(segment)),
            place("policy", number),
        ) {
            place.below("segments").error(format!(
                "{segment} is in a locator of this node, and no [[srv6.sid]] has it; write that, or another segment"
            ));
        }
    }
    let mut steered: BTreeMap<IpNet, &str> = BTreeMap::new();
    let mut sources: BTreeMap<&str, &str> = BTreeMap::new();
    for (number, policy) in config.policies.iter().enumerate() {
        let Some(place) = place("policy", number) else {
            continue;
        };
        let headers = headers_len(policy);
        let least = 1280 + headers as u32;
        let has_v6 = policy.destinations.iter().any(|net| net.addr().is_ipv6());
        if has_v6 && config.mtu(policy) < least {
            place.below("mtu").error(format!(
                "IPv6 packets of 1280 bytes would not fit with the headers; write {least} or more"
            ));
        }
        let has_frames = !policy.frames_from.is_empty();
        let room = match (policy.insert, has_frames) {
            (true, _) => MAX_HEADERS - ipv6::HEADER_LEN,
            (_, true) => MAX_HEADERS - ethernet::HEADER_LEN,
            _ => MAX_HEADERS,
        };
        if headers > room {
            place.below("segments").error(format!(
                "the headers have {headers} bytes, and {room} are possible; write fewer segments"
            ));
        }
        let key = policy
            .hmac
            .filter(|id| !config.hmac_keys.iter().any(|(of, _)| of == id));
        if let Some(id) = key {
            place
                .below("hmac")
                .error(format!("there is no [[srv6.hmac_key]] with the id {id}"));
        }
        if policy.insert {
            inserts(config, policy, place);
        }
        let full = headers + ethernet::HEADER_LEN + 1500;
        if has_frames && (config.mtu(policy) as usize) < full {
            place.below("mtu").warn(format!(
                "frames with packets of 1500 bytes do not fit with the headers and are dropped; write {full} if the links on the way take it"
            ));
        }
        for interface in &policy.frames_from {
            let taken = [&node.trusted, &node.untrusted]
                .iter()
                .any(|of| of.contains(interface))
                || config
                    .functions
                    .iter()
                    .any(|of| of.return_interface == *interface);
            let problem = match sources.insert(interface, &policy.name) {
                Some(other) => format!("go into policy \"{}\" already", excerpt(other)),
                None if taken => {
                    "are those of [srv6] trusted or untrusted, or of a function".into()
                }
                None => continue,
            };
            place.below("frames_from").error(format!(
                "the frames of \"{}\" {problem}; write another interface",
                excerpt(interface)
            ));
        }
        for destination in &policy.destinations {
            if let Some(other) = steered.insert(*destination, &policy.name) {
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
        ("hmac_key", config.hmac_keys.len(), MAX_HMAC_KEYS as usize),
    ] {
        if count > most {
            section
                .place
                .below(what)
                .error(format!("{count} are too many; write up to {most}"));
        }
    }
}

/// Bytes of the headers of a policy.
fn headers_len(policy: &Steering) -> usize {
    let count = policy.segments.len();
    let tlvs = match policy.hmac {
        Some(_) => Tlv::Hmac(Hmac::new(false, 0, &[0; MAX_MAC])).len(),
        None => 0,
    };
    let len = |segments| srv6::len(segments, policy.reduced, tlvs).unwrap_or(srv6::MAX_LEN);
    match policy.insert {
        // The destination of the packet is the last one.
        true => len(count + 1),
        false if policy.reduced && policy.hmac.is_none() && count == 1 => ipv6::HEADER_LEN,
        false => ipv6::HEADER_LEN + len(count),
    }
}

/// What a policy that inserts is not for.
fn inserts(config: &Srv6, policy: &Steering, place: &Place<'_>) {
    let place = place.below("insert");
    if !config.node.allow_insert {
        place.error(
            "IPv6 does not let routers insert headers into packets of others (RFC 8200, section 4); remove it, or write \
             allow_insert = true in [srv6] if all nodes that such packets reach are yours",
        );
    }
    if policy.hmac.is_some() {
        place.error("an HMAC covers source and destination, which are those of each packet here; remove hmac, or write a policy without insert");
    }
    if policy.destinations.iter().any(|net| net.addr().is_ipv4()) {
        place.error("IPv4 packets have no room for segments; remove their destinations, or write a policy without insert for them");
    }
    if !policy.frames_from.is_empty() {
        place.error("frames have no room for segments; remove frames_from, or write a policy without insert for them");
    }
    if config
        .functions
        .iter()
        .any(|of| of.policy.as_ref() == Some(&policy.name))
    {
        place.error("static proxies put packets behind headers; write a policy without insert for what their functions return");
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
