//! What a routing policy says that cannot have the effect it looks like, in the light of the other files.

use ipnet::IpNet;
use sig_common::addr::IsdAs;

use super::{
    routing::{Action, RoutingPolicy, Rule},
    traffic::TrafficPolicy,
};
use crate::{
    document::prefix,
    problem::{Problem, Report},
};

/// What is known beside the routing policy.
#[derive(Clone, Copy, Debug)]
pub struct Environment<'a> {
    /// The traffic policy.
    pub traffic: &'a TrafficPolicy,
    /// The AS of the gateway, if the configuration says it.
    pub own: Option<IsdAs>,
    /// `[gateway] prefixes`.
    pub served: &'a [IpNet],
}

/// Warnings about a routing policy that was read from `text`; `starts` are the offsets of its rules there.
#[must_use]
pub fn advice(
    policy: &RoutingPolicy,
    (file, text): (&str, &str),
    starts: &[usize],
    around: Environment<'_>,
) -> Vec<Problem> {
    let report = Report::new(file, text);
    let rules = || starts.iter().copied().zip(&policy.rules);
    for (at, rule) in rules() {
        host_bits(&report, at, rule);
        if rule.action == Action::Advertise && !rule.networks.negated {
            unheard(&report, at, rule);
        }
    }
    if let Some(own) = around.own {
        unaddressed(&report, policy, starts, own);
    }
    let mut served = around.served.to_vec();
    served.extend(
        around
            .own
            .iter()
            .flat_map(|own| policy.all_advertised(*own)),
    );
    for (at, rule) in rules().filter(|(_, rule)| learns(rule)) {
        if !around
            .traffic
            .ases
            .keys()
            .any(|isd_as| rule.from.matches(*isd_as))
        {
            report.warn(
                at,
                "from",
                "matches no AS of the traffic policy: the rule has no effect",
            );
        }
        if rule.action == Action::Accept && !rule.networks.negated {
            unmet(&report, at, rule, &served);
        }
    }
    report.take().1
}

/// Whether the rule is about announcements of others.
fn learns(rule: &Rule) -> bool {
    matches!(rule.action, Action::Accept | Action::Reject)
}

fn host_bits(report: &Report<'_>, at: usize, rule: &Rule) {
    let mut prefixes = rule.networks.prefixes.iter();
    if let Some(prefix) = prefixes.find(|prefix| **prefix != prefix.trunc()) {
        let network = prefix.trunc();
        let message =
            format!("\"{prefix}\" has host bits set, which are ignored; write \"{network}\"");
        report.warn(at, "prefixes", message);
    }
}

/// Prefixes that are not announced, as nothing is carried to them.
fn unheard(report: &Report<'_>, at: usize, rule: &Rule) {
    for prefix in &rule.networks.prefixes {
        if let Some(kind) = prefix::refused(prefix) {
            let message = format!(
                "\"{prefix}\" is {kind}, which is never tunnelled: it is not announced; remove it"
            );
            report.warn(at, "prefixes", message);
        }
    }
}

/// A file may hold the rules of several ASes, but some should be for this one.
fn unaddressed(report: &Report<'_>, policy: &RoutingPolicy, starts: &[usize], own: IsdAs) {
    let rules = || starts.iter().copied().zip(&policy.rules);
    let mut advertising = rules().filter(|(_, rule)| rule.action == Action::Advertise);
    if let Some((at, _)) = advertising.clone().next()
        && !advertising.any(|(_, rule)| rule.from.matches(own))
    {
        let message =
            format!("no advertise rule matches {own}, the local AS: nothing is announced");
        report.warn(at, "from", message);
    }
    let mut accepting = rules().filter(|(_, rule)| rule.action == Action::Accept);
    if let Some((at, _)) = accepting.clone().next()
        && !accepting.any(|(_, rule)| rule.to.matches(own))
    {
        let message = format!("no accept rule matches {own}, the local AS: nothing is learned");
        report.warn(at, "to", message);
    }
}

/// An accept rule of which nothing can be learned.
fn unmet(report: &Report<'_>, at: usize, rule: &Rule, served: &[IpNet]) {
    let is_served = |prefix: &IpNet| served.contains(&prefix.trunc());
    let prefixes = &rule.networks.prefixes;
    if prefixes.iter().all(|one| prefix::refused(one).is_some()) {
        report.warn(
            at,
            "prefixes",
            "not learned: these addresses are never routed between networks",
        );
    } else if prefixes.iter().all(is_served) {
        report.warn(
            at,
            "prefixes",
            "served here, so it is not learned; to delegate parts to remote ASes, list them in accept rules",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{routing, traffic};

    #[test]
    fn rules_without_the_effect_they_seem_to_have_are_named() {
        let text = "# comment\n\
                    accept 1-ff00:0:111 1-ff00:0:110 192.168.11.3/24\n\
                    accept 1-ff00:0:119 1-ff00:0:110 192.168.19.0/24\n\
                    \n\
                    accept 0-0 1-ff00:0:110 192.168.10.0/24,10.1.0.0/16\n\
                    accept 1-0 1-ff00:0:110 192.168.10.0/25\n\
                    accept 1-0 1-ff00:0:110 192.168.0.0/16\n\
                    accept 1-0 1-ff00:0:110 169.254.0.0/16,224.0.0.0/4\n\
                    advertise 1-ff00:0:110 0-0 192.168.10.0/24,127.0.1.0/24\n";
        let shown = |text: &str, own: &str| -> Vec<String> {
            let (traffic, _) =
                traffic::check(r#"{"ASes": {"1-ff00:0:111": {}}}"#, "t").expect("a traffic policy");
            let (policy, starts) = routing::read(text, "r").expect("a routing policy");
            let around = Environment {
                traffic: &traffic,
                own: own.parse().ok(),
                served: &["10.1.0.0/16".parse().expect("a prefix")],
            };
            let advice = advice(&policy, ("r", text), &starts, around);
            advice.iter().map(ToString::to_string).collect()
        };
        let expected = [
            "r:2: prefixes: \"192.168.11.3/24\" has host bits set, which are ignored; write \"192.168.11.0/24\"",
            "r:3: from: matches no AS of the traffic policy: the rule has no effect",
            "r:5: prefixes: served here, so it is not learned; to delegate parts to remote ASes, list them \
             in accept rules",
            "r:8: prefixes: not learned: these addresses are never routed between networks",
            "r:9: prefixes: \"127.0.1.0/24\" is loopback, which is never tunnelled: it is not announced; remove it",
        ];
        assert_eq!(shown(text, "1-ff00:0:110"), expected);
        let foreign =
            "accept 0-0 1-ff00:0:112 10.2.0.0/16\nadvertise 1-ff00:0:112 0-0 10.3.0.0/16\n";
        let expected = [
            "r:1: to: no accept rule matches 1-ff00:0:110, the local AS: nothing is learned",
            "r:2: from: no advertise rule matches 1-ff00:0:110, the local AS: nothing is announced",
        ];
        assert_eq!(shown(foreign, "1-ff00:0:110"), expected);
        // Where only the daemon knows the AS.
        assert_eq!(shown(foreign, ""), [""; 0]);
        assert_eq!(shown("", "1-ff00:0:110"), [""; 0]);
    }
}
