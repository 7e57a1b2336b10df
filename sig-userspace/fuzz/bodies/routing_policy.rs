//! Any text as a routing policy: either it is refused with problems that point into the file, or it
//! prints as it was read, and what it accepts agrees with what it says address by address.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use sig_common::addr::IsdAs;
use sig_core::policy::routing::{Action, RoutingPolicy, check};

/// Takes `data` for the text of a routing policy.
///
/// # Panics
/// If the check or the policy breaks a promise.
pub(crate) fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match check(&text, "fuzz.policy") {
        Ok(policy) => {
            assert_eq!(check(&policy.to_string(), "printed"), Ok(policy.clone()));
            assert_sane(&policy);
        }
        Err(errors) => {
            let lines = 1 + text.bytes().filter(|byte| *byte == b'\n').count();
            let problems = errors.problems();
            assert!(!problems.is_empty() && problems.is_sorted_by_key(|problem| problem.line));
            for problem in problems {
                assert!((1..=lines).contains(&problem.line), "{problem}");
                let shown = problem.to_string();
                assert!(!shown.contains(char::is_control), "{shown:?}");
                assert!(shown.len() < 1_000, "{shown}");
            }
        }
    }
}

fn assert_sane(policy: &RoutingPolicy) {
    let (from, local) = (
        IsdAs::new(1, 0xff00_0000_0111),
        IsdAs::new(1, 0xff00_0000_0110),
    );
    let everything: [IpNet; 2] = [
        IpNet::new_assert(Ipv4Addr::UNSPECIFIED.into(), 0),
        IpNet::new_assert(std::net::Ipv6Addr::UNSPECIFIED.into(), 0),
    ];
    let accepted = policy.accept(from, local, &everything);
    assert_eq!(accepted.accepted + accepted.rejected, 2);
    assert!(accepted.prefixes.is_sorted());
    assert!(accepted.prefixes.iter().all(|net| net.trunc() == *net));
    assert_eq!(
        IpNet::aggregate(&accepted.prefixes).len(),
        accepted.prefixes.len()
    );

    // The ends of all prefixes, and what lies beyond them.
    let nets = policy.rules.iter().flat_map(|rule| &rule.networks.prefixes);
    for net in nets.take(64) {
        let (first, last) = (net.network(), net.broadcast());
        for address in [Some(first), Some(last), before(first), after(last)]
            .into_iter()
            .flatten()
        {
            let covers = |net: &IpNet| net.contains(&address);
            let rule = policy.rules.iter().find(|rule| {
                [Action::Accept, Action::Reject].contains(&rule.action)
                    && rule.from.matches(from)
                    && rule.to.matches(local)
                    && rule.networks.prefixes.iter().any(covers) != rule.networks.negated
            });
            let expected = rule.is_some_and(|rule| rule.action == Action::Accept);
            assert_eq!(accepted.prefixes.iter().any(covers), expected, "{address}");
        }
    }
    let all = policy.all_advertised(local);
    assert!(
        policy
            .advertised(local, from)
            .iter()
            .all(|net| all.contains(net))
    );
}

fn before(address: IpAddr) -> Option<IpAddr> {
    Some(match address {
        IpAddr::V4(v4) => IpAddr::V4(v4.to_bits().checked_sub(1)?.into()),
        IpAddr::V6(v6) => IpAddr::V6(v6.to_bits().checked_sub(1)?.into()),
    })
}

fn after(address: IpAddr) -> Option<IpAddr> {
    Some(match address {
        IpAddr::V4(v4) => IpAddr::V4(v4.to_bits().checked_add(1)?.into()),
        IpAddr::V6(v6) => IpAddr::V6(v6.to_bits().checked_add(1)?.into()),
    })
}
