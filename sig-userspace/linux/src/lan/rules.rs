//! The rules that choose a routing table.

use std::io;

use rtnetlink::packet_route::rule::{
    RuleAction, RuleAttribute, RuleFlags, RuleHeader, RuleMessage,
};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};

use super::{LOCAL, MAIN};
use crate::netlink::Netlink;

/// Table `default`, the last to be asked.
const DEFAULT: u32 = 253;

/// Priority and table of the rules that every host has. IPv6 has none for the table `default`, which may be missing.
const ORDINARY: [(u32, u32); 3] = [(0, LOCAL), (32766, MAIN), (32767, DEFAULT)];

/// Whether packets of a family find their way by the tables `local` and `main` alone.
pub(super) async fn are_ordinary(netlink: &Netlink, family: AddressFamily) -> io::Result<bool> {
    let mut request = RuleMessage::default();
    request.header.family = family;
    let rules: Vec<RuleMessage> = match netlink.dump(RouteNetlinkMessage::GetRule(request)).await {
        Ok(answers) => answers
            .into_iter()
            .filter_map(|answer| match answer {
                RouteNetlinkMessage::NewRule(rule) => Some(rule),
                _ => None,
            })
            .collect(),
        // A kernel without policy routing has no rules.
        Err(error)
            if matches!(
                error.raw_os_error(),
                Some(libc::EOPNOTSUPP | libc::EAFNOSUPPORT)
            ) =>
        {
            return Ok(true);
        }
        Err(error) => return Err(error),
    };
    Ok(ordinary(&rules))
}

fn ordinary(rules: &[RuleMessage]) -> bool {
    let mut tables: Vec<Option<(u32, u32)>> = rules.iter().map(plain).collect();
    tables.sort_unstable();
    let expected = ORDINARY.map(Some);
    tables == expected || tables == expected[..2]
}

/// Priority and table of a rule that is for all packets.
fn plain(rule: &RuleMessage) -> Option<(u32, u32)> {
    let RuleHeader {
        dst_len,
        src_len,
        tos,
        action,
        flags,
        table,
        ..
    } = rule.header;
    if (dst_len, src_len, tos) != (0, 0, 0)
        || action != RuleAction::ToTable
        || !(flags - RuleFlags::Permanent).is_empty()
    {
        return None;
    }
    let (mut priority, mut table) = (0, u32::from(table));
    for attribute in &rule.attributes {
        match attribute {
            RuleAttribute::Priority(number) => priority = *number,
            RuleAttribute::Table(number) => table = *number,
            RuleAttribute::Protocol(_) | RuleAttribute::SuppressPrefixLen(u32::MAX) => {}
            _ => return None,
        }
    }
    Some((priority, table))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(priority: u32, table: u32) -> RuleMessage {
        let mut rule = RuleMessage::default();
        rule.header.action = RuleAction::ToTable;
        rule.attributes = vec![
            RuleAttribute::Table(table),
            RuleAttribute::SuppressPrefixLen(u32::MAX),
            RuleAttribute::Priority(priority),
        ];
        rule
    }

    #[test]
    fn the_rules_that_every_host_has_are_ordinary_and_no_others() {
        let v4 = || {
            ORDINARY
                .map(|(priority, table)| rule(priority, table))
                .to_vec()
        };
        let v6 = || v4()[..2].to_vec();
        assert!(ordinary(&v4()) && ordinary(&v6()));
        let with = |extra: RuleMessage| [v4(), vec![extra]].concat();
        assert!(!ordinary(&with(rule(100, 1000))));
        assert!(!ordinary(&with(rule(32766, MAIN))));
        assert!(!ordinary(&v4()[1..]), "the local table is not asked");
        assert!(!ordinary(&[]));
        for attribute in [
            RuleAttribute::FwMark(1),
            RuleAttribute::Iifname("lan".into()),
            RuleAttribute::L3MDev(true),
            RuleAttribute::SuppressPrefixLen(0),
        ] {
            let mut rules = v4();
            rules[1].attributes.push(attribute);
            assert!(!ordinary(&rules));
        }
        let mut rules = v6();
        rules[1].header.flags = RuleFlags::Invert;
        assert!(!ordinary(&rules));
    }
}
