//! The file of a routing policy.

use std::net::IpAddr;

use sig_common::addr::IsdAs;

use super::{Action, IsdAsMatcher, Networks, RoutingPolicy, Rule};
use crate::document::prefix;
use crate::policy::LONGEST_TEXT;
use crate::problem::{Errors, Report, excerpt};

/// Checks the text of a routing policy; `file` is its name for messages.
///
/// One rule a line, its columns separated by white space; `#` starts a comment. Empty lines and
/// lines with only a comment are allowed, which the reference refuses.
///
/// ```text
/// accept|reject|advertise|redistribute-bgp  [!]FROM  [!]TO  [!]PREFIX{,PREFIX}  [NEXT-HOP]
/// ```
///
/// # Errors
///
/// All problems of the file, in the order of lines; the key of each is the column.
pub fn check(text: &str, file: &str) -> Result<RoutingPolicy, Errors> {
    read(text, file).map(|(policy, _)| policy)
}

/// As [`check`]; beside the policy, the offset in the text of each rule's line.
///
/// # Errors
///
/// As there.
pub fn read(text: &str, file: &str) -> Result<(RoutingPolicy, Vec<usize>), Errors> {
    let report = Report::new(file, text);
    let (mut rules, mut starts) = (Vec::new(), Vec::new());
    if text.len() > LONGEST_TEXT {
        let limit = LONGEST_TEXT >> 20;
        report.error(0, "", format!("the file is larger than {limit} MiB"));
    } else {
        let mut at = 0;
        for line in text.split('\n') {
            let problem = |key: &str, message: String| report.error(at, key, message);
            if let Some(rule) = rule(line.strip_suffix('\r').unwrap_or(line), &problem) {
                rules.push(rule);
                starts.push(at);
            }
            at += line.len() + 1;
        }
    }
    match report.take().0 {
        errors if errors.is_empty() => Ok((RoutingPolicy { rules }, starts)),
        errors => Err(Errors::new(errors)),
    }
}

/// The rule on a line; `None` without one, or after a problem.
fn rule(line: &str, problem: &dyn Fn(&str, String)) -> Option<Rule> {
    let (columns, comment) = line.split_once('#').unwrap_or((line, ""));
    let comment = comment.strip_prefix(' ').unwrap_or(comment);
    let mut columns = columns.split_whitespace();
    let action = columns.next()?;
    let found =
        |key: &str, result: Result<_, String>| result.map_err(|message| problem(key, message)).ok();
    let action = match action {
        "accept" => Some(Action::Accept),
        "reject" => Some(Action::Reject),
        "advertise" => Some(Action::Advertise),
        "redistribute-bgp" => Some(Action::RedistributeBgp),
        other => {
            let other = excerpt(other);
            problem(
                "action",
                format!(
                    "\"{other}\" is unknown; write accept, reject, advertise or redistribute-bgp"
                ),
            );
            None
        }
    };
    let (Some(from), Some(to), Some(networks)) = (columns.next(), columns.next(), columns.next())
    else {
        problem(
            "",
            "too few columns; write ACTION FROM TO PREFIXES, for example \"accept 1-ff00:0:111 \
             1-ff00:0:110 10.2.0.0/16\""
                .to_owned(),
        );
        return None;
    };
    let from = found("from", isd_as_matcher(from));
    let to = found("to", isd_as_matcher(to));
    let networks = prefixes(networks).map_err(|message| problem("prefixes", message));
    let next_hop = match columns.next() {
        None => Some(None),
        Some(_) if action.is_some_and(|action| action != Action::Advertise) => {
            let message = "only advertise takes a next hop; write the prefixes without spaces, \
                           and \"#\" before a comment";
            problem("", message.to_owned());
            None
        }
        Some(text) => next_hop(text)
            .map_err(|message| problem("next hop", message))
            .ok()
            .map(Some),
    };
    if columns.next().is_some() {
        let message = "too many columns; write the prefixes without spaces, and \"#\" before a \
                       comment";
        problem("", message.to_owned());
        return None;
    }
    Some(Rule {
        action: action?,
        from: from?,
        to: to?,
        networks: networks.ok()?,
        next_hop: next_hop?,
        comment: comment.trim_end().to_owned(),
    })
}

fn isd_as_matcher(text: &str) -> Result<IsdAsMatcher, String> {
    let (negated, isd_as) = not(text);
    match isd_as.parse::<IsdAs>() {
        Ok(isd_as) => Ok(IsdAsMatcher { isd_as, negated }),
        Err(_) => Err(format!(
            "\"{}\" is not an ISD-AS; write for example 1-ff00:0:110, 1-0 for all of ISD 1, 0-0 \
             for all, or !1-ff00:0:110 for all others",
            excerpt(text)
        )),
    }
}

fn prefixes(text: &str) -> Result<Networks, String> {
    let (negated, list) = not(text);
    let prefixes = list
        .split(',')
        .map(prefix::parse)
        .collect::<Result<_, _>>()?;
    Ok(Networks { prefixes, negated })
}

fn next_hop(text: &str) -> Result<IpAddr, String> {
    text.parse::<IpAddr>()
        .map(|address| address.to_canonical())
        .map_err(|_| {
            format!(
                "\"{}\" is not an IP address; write one, or \"#\" before a comment",
                excerpt(text)
            )
        })
}

fn not(text: &str) -> (bool, &str) {
    match text.strip_prefix('!') {
        Some(rest) => (true, rest),
        None => (false, text),
    }
}
