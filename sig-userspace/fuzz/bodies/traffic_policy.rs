//! Any text as a traffic policy: either it is refused with problems that point into the file, or
//! what comes out keeps every promise that the gateway relies on, and can be asked anything.

use ipnet::IpNet;
use sig_common::{addr::IsdAs, wire::inner::InnerPacket};
use sig_core::{
    policy::{
        class::{Condition, MAX_CONDITIONS, MAX_DEPTH},
        traffic::{Fallback, SessionPolicy, check},
    },
    problem::Problem,
    scion::{Interface, Path},
};

/// An IPv4 packet: UDP from 10.1.0.5:5000 to 10.2.0.7:5060 with DSCP 0x2e.
const PACKET: [u8; 24] = [
    0x45, 0xb8, 0, 24, 0, 0, 0, 0, 64, 17, 0, 0, 10, 1, 0, 5, 10, 2, 0, 7, 0x13, 0x88, 0x13, 0xc4,
];

/// Takes `data` for the text of a traffic policy.
///
/// # Panics
/// If the check breaks a promise.
pub(crate) fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let checked = check(&text, "fuzz.json");
    assert_eq!(
        checked,
        check(&text, "fuzz.json"),
        "the same text, the same result"
    );
    match &checked {
        Ok((policy, warnings)) => {
            assert_problems(warnings, &text);
            for remote in policy.ases.values() {
                assert!(
                    remote
                        .prefixes
                        .iter()
                        .all(|net: &IpNet| net.trunc() == *net)
                );
                assert!(!remote.policies.is_empty());
                for (id, policy) in (0..).zip(&remote.policies) {
                    assert_eq!(policy.id, id);
                    assert_policy(policy);
                }
                let names = remote.policies.iter().map(|policy| &policy.name);
                let different: std::collections::HashSet<_> = names.collect();
                assert_eq!(different.len(), remote.policies.len(), "names are unique");
            }
        }
        Err(errors) => {
            assert!(!errors.problems().is_empty());
            assert_problems(errors.problems(), &text);
        }
    }
}

fn assert_policy(policy: &SessionPolicy) {
    assert!(policy.path_count > 0);
    assert!(!policy.name.is_empty() && !policy.name.contains(char::is_control));
    let condition: &Condition = &policy.condition;
    assert!(condition.size() <= MAX_CONDITIONS && condition.depth() <= MAX_DEPTH);
    assert_eq!(
        condition.to_string().parse().as_ref(),
        Ok(condition),
        "it reads what it prints"
    );
    let packet = InnerPacket::parse(&PACKET[..]).expect("a packet");
    let matches = condition.matches(&packet);
    assert!(matches || !condition.is_always());

    let interface = |asn: u64| Interface {
        isd_as: IsdAs::new(1, 0xff00_0000_0110 + asn / 2),
        id: asn,
    };
    for hops in 0..6 {
        let path = Path {
            interfaces: (0..hops).map(interface).collect(),
            ..Path::configured(&[], "192.0.2.1:30042".parse().expect("an address"), 1400)
        };
        let weight = policy.path.evaluate(&path);
        match policy.weigh(&path) {
            Some(0) => assert!(weight.is_none() && policy.fallback == Fallback::AnyPath),
            weighed => assert_eq!(weighed.map(|weighed| weighed - 1), weight),
        }
    }
}

fn assert_problems(problems: &[Problem], text: &str) {
    let lines = 1 + text.bytes().filter(|byte| *byte == b'\n').count();
    assert!(problems.is_sorted_by_key(|problem| problem.line));
    for problem in problems {
        assert!((1..=lines).contains(&problem.line), "{problem}");
        let shown = problem.to_string();
        assert!(!shown.contains(char::is_control), "{shown:?}");
        assert!(shown.len() < 2_000, "{shown}");
    }
}
