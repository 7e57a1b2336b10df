use std::net::{IpAddr, Ipv4Addr};

use proptest::prelude::*;

use super::*;

fn ia(text: &str) -> IsdAs {
    text.parse().expect("an ISD-AS")
}

fn net(text: &str) -> IpNet {
    text.parse().expect("a prefix")
}

fn policy(text: &str) -> RoutingPolicy {
    check(text, "routing.policy").unwrap_or_else(|errors| panic!("{errors}"))
}

fn problems(text: &str) -> String {
    match check(text, "routing.policy") {
        Ok(policy) => panic!("read as {policy}"),
        Err(errors) => errors.to_string(),
    }
}

fn list(prefixes: &[IpNet]) -> String {
    let texts: Vec<String> = prefixes.iter().map(ToString::to_string).collect();
    texts.join(",")
}

/// What 1-ff00:0:110 makes of an announcement of 1-ff00:0:111.
fn accepted(rules: &str, announced: &[&str]) -> (String, usize, usize) {
    let announced: Vec<IpNet> = announced.iter().map(|text| net(text)).collect();
    let accepted = policy(rules).accept(ia("1-ff00:0:111"), ia("1-ff00:0:110"), &announced);
    (
        list(&accepted.prefixes),
        accepted.accepted,
        accepted.rejected,
    )
}

const SAMPLES: [&str; 2] = [
    "\
accept              1-ff00:0:110     1-ff00:0:112    127.0.0.0/24,127.0.1.0/24                   # Rule one
reject              1-ff00:0:110     1-ff00:0:112    !127.0.0.0/24                               # Rule two
reject              1-0              1-ff00:0:112    127.0.0.0/24
accept              1-ff00:0:111     0-0             127.0.1.0/24                                # Rule four
advertise           !1-ff00:0:111    2-ff00:0:220    127.0.1.0/24                 127.0.1.111    # Rule Five
redistribute-bgp    0-0              2-ff00:0:212    0.0.0.0/0
",
    "\
accept    1-ff00:0:110    1-ff00:0:112    fd13:37::/64          # Allow specific subnet from 1-ff00:0:110
reject    0-0             1-ff00:0:112    ::/0,0.0.0.0/0        # Reject everything
",
];

#[test]
fn policies_print_as_the_reference_prints_them() {
    for sample in SAMPLES {
        assert_eq!(policy(sample).to_string(), sample);
    }
    assert_eq!(RoutingPolicy::default().to_string(), "");
}

#[test]
fn columns_and_comments_are_read_as_in_the_reference() {
    let read = policy(
        "accept\t1-ff00:0:110 !1-ff00:0:111   !127.0.0.5/24,fd00::/8 #  a  comment \r\n\
         advertise 0-0 0-64512 10.0.0.0/8 ::1#b#c\n",
    );
    let matcher = |text: &str, negated| IsdAsMatcher {
        isd_as: ia(text),
        negated,
    };
    assert_eq!(
        read.rules,
        [
            Rule {
                action: Action::Accept,
                from: matcher("1-ff00:0:110", false),
                to: matcher("1-ff00:0:111", true),
                networks: Networks {
                    prefixes: vec![net("127.0.0.5/24"), net("fd00::/8")],
                    negated: true,
                },
                next_hop: None,
                comment: " a  comment".to_owned(),
            },
            Rule {
                action: Action::Advertise,
                from: matcher("0-0", false),
                to: matcher("0-64512", false),
                networks: Networks {
                    prefixes: vec![net("10.0.0.0/8")],
                    negated: false,
                },
                next_hop: Some("::1".parse().expect("an address")),
                comment: "b#c".to_owned(),
            },
        ]
    );
}

#[test]
fn blank_lines_and_lines_of_comment_are_an_extension() {
    let read = policy("\n# site B\n   \naccept 0-0 0-0 ::/0\n\t# end");
    assert_eq!(read.rules.len(), 1);
    assert_eq!(policy(""), RoutingPolicy::default());
}

#[test]
fn every_problem_of_a_file_is_told_with_line_and_column() {
    assert_eq!(
        problems(
            "accept 0-0 0-0 ::/0\n\
             \n\
             reject 1-ff00:0:110 1-ff00:0:111\n\
             party coffee 1-ff00:0:111,1-2 now!!!!\n\
             accept 0-0 0-0 10.0.0.0/8 10.0.0.1\n\
             advertise 0-0 0-0 10.0.0.0/8, 11.0.0.0/8\n\
             advertise 0-0 0-0 10.0.0.0/8 10.0.0.1 x"
        ),
        "routing.policy:3: too few columns; write ACTION FROM TO PREFIXES, for example \
         \"accept 1-ff00:0:111 1-ff00:0:110 10.2.0.0/16\"\n\
         routing.policy:4: action: \"party\" is unknown; write accept, reject, advertise or \
         redistribute-bgp\n\
         routing.policy:4: from: \"coffee\" is not an ISD-AS; write for example 1-ff00:0:110, 1-0 \
         for all of ISD 1, 0-0 for all, or !1-ff00:0:110 for all others\n\
         routing.policy:4: to: \"1-ff00:0:111,1-2\" is not an ISD-AS; write for example \
         1-ff00:0:110, 1-0 for all of ISD 1, 0-0 for all, or !1-ff00:0:110 for all others\n\
         routing.policy:4: prefixes: \"now!!!!\" is not an IP prefix; write address/length, for \
         example \"10.2.0.0/24\" or \"2001:db8:2::/64\"\n\
         routing.policy:5: only advertise takes a next hop; write the prefixes without spaces, \
         and \"#\" before a comment\n\
         routing.policy:6: prefixes: \"\" is not an IP prefix; write address/length, for example \
         \"10.2.0.0/24\" or \"2001:db8:2::/64\"\n\
         routing.policy:6: next hop: \"11.0.0.0/8\" is not an IP address; write one, or \"#\" \
         before a comment\n\
         routing.policy:7: too many columns; write the prefixes without spaces, and \"#\" before \
         a comment"
    );
}

#[test]
fn lines_that_the_reference_refuses_are_refused() {
    for line in [
        "reject 1-ff00:0:110 1-ff00:0:111 127.0.0.0/24 127.0.0.0/24",
        "reject",
        "Accept 0-0 0-0 ::/0",
        "accept ! 1-ff00:0:110 0-0 ::/0",
        "accept 1-ff 0-0 ::/0",
        "accept 0-0 0-0 ! 127.0.0.0/24",
        "accept 0-0 0-0 127.0.0.0/24|127.0.1.0/24",
        "accept 0-0 0-0 127.0.0.1/",
        "accept 0-0 0-0 127.0.0.1",
        "accept 0-0 0-0 !",
        "accept 0-0 0-0 # ::/0",
    ] {
        problems(line);
    }
}

#[test]
fn ases_match_by_wildcard_and_by_negation() {
    let matches = |matcher: &str, isd_as: &str| {
        let rule = format!("accept {matcher} 0-0 ::/0");
        policy(&rule).rules[0].from.matches(ia(isd_as))
    };
    for (matcher, yes, no) in [
        (
            "1-ff00:0:110",
            vec!["1-ff00:0:110"],
            vec!["1-ff00:0:111", "2-ff00:0:110"],
        ),
        ("0-0", vec!["1-ff00:0:110"], vec![]),
        (
            "0-ff00:0:110",
            vec!["1-ff00:0:110", "2-ff00:0:110"],
            vec!["1-ff00:0:111"],
        ),
        ("1-0", vec!["1-ff00:0:110", "1-64512"], vec!["2-ff00:0:110"]),
    ] {
        let others = format!("!{matcher}");
        for isd_as in yes {
            assert!(
                matches(matcher, isd_as) && !matches(&others, isd_as),
                "{matcher} {isd_as}"
            );
        }
        for isd_as in no {
            assert!(
                !matches(matcher, isd_as) && matches(&others, isd_as),
                "{matcher} {isd_as}"
            );
        }
    }
}

#[test]
fn without_rules_nothing_is_accepted_and_nothing_advertised() {
    assert_eq!(accepted("", &["10.0.0.0/8", "::/0"]), (String::new(), 0, 2));
    let none = RoutingPolicy::default();
    assert_eq!(none.advertised(ia("1-1"), ia("1-2")), []);
    assert_eq!(none.all_advertised(ia("1-1")), []);
}

#[test]
fn announcements_are_cut_to_what_is_accepted() {
    let some = "accept 0-0 0-0 10.0.0.0/8\naccept 0-0 0-0 abcd::/16";
    for (announced, expected) in [
        ("10.0.0.0/16", "10.0.0.0/16"),
        ("abcd:abcd::/32", "abcd:abcd::/32"),
        ("0.0.0.0/0", "10.0.0.0/8"),
        ("::/0", "abcd::/16"),
    ] {
        assert_eq!(accepted(some, &[announced]), (expected.to_owned(), 1, 0));
    }
    assert_eq!(
        accepted("accept 0-0 0-0 !10.0.1.0/24", &["10.0.0.0/22"]).0,
        "10.0.0.0/24,10.0.2.0/23"
    );
    assert_eq!(
        accepted(some, &["10.1.0.0/16", "11.0.0.0/8", "10.0.0.0/16", "::/8"]),
        ("10.0.0.0/15".to_owned(), 2, 2)
    );
}

#[test]
fn the_first_rule_that_covers_an_address_decides() {
    let rules = "\
        reject 1-ff00:0:112 0-0 0.0.0.0/0\n\
        accept 1-0 1-ff00:0:110 10.0.0.0/25\n\
        reject 0-0 !1-ff00:0:112 10.0.0.0/24,fd00::/16\n\
        advertise 0-0 0-0 0.0.0.0/0\n\
        redistribute-bgp 0-0 0-0 0.0.0.0/0\n\
        accept 0-0 0-0 10.0.0.0/23,fd00::/8\n";
    assert_eq!(
        accepted(rules, &["10.0.0.0/22", "fd00::/15"]),
        ("10.0.0.0/25,10.0.1.0/24,fd01::/16".to_owned(), 2, 0)
    );
}

#[test]
fn advertised_prefixes_keep_the_order_of_the_file_and_their_doubles() {
    // Loopback, as in a sample of the reference, is tolerated and not told.
    let read = policy(
        "advertise 1-0 2-0 172.16.0.0/30,127.0.1.0/24,10.0.0.0/16\n\
         advertise 2-0 1-0 !172.16.0.0/30\n\
         accept 1-0 2-0 11.0.0.0/8\n\
         advertise 0-0 2-5 10.0.7.0/16\n\
         advertise 3-0 0-0 12.0.0.0/8",
    );
    assert_eq!(
        list(&read.advertised(ia("1-1"), ia("2-5"))),
        "172.16.0.0/30,10.0.0.0/16,10.0.0.0/16"
    );
    assert_eq!(
        list(&read.advertised(ia("1-1"), ia("2-6"))),
        "172.16.0.0/30,10.0.0.0/16"
    );
    assert_eq!(list(&read.advertised(ia("2-1"), ia("1-1"))), "");
    assert_eq!(
        list(&read.all_advertised(ia("1-1"))),
        "172.16.0.0/30,10.0.0.0/16"
    );
    assert_eq!(list(&read.all_advertised(ia("2-1"))), "10.0.0.0/16");
}

#[test]
fn long_policies_and_long_announcements_are_no_trouble() {
    let prefix = |i: u32| format!("10.{}.{}.0/24", i >> 8 & 255, i & 255);
    let rules: String = (0..5000)
        .map(|i| {
            format!(
                "{} 0-0 0-0 {}\n",
                ["accept", "reject"][i as usize % 2],
                prefix(i)
            )
        })
        .collect();
    let announced: Vec<IpNet> = (0..5000).map(|i| net(&prefix(i))).collect();
    let accepted = policy(&rules).accept(ia("1-1"), ia("1-2"), &announced);
    assert_eq!((accepted.accepted, accepted.rejected), (2500, 2500));
    assert_eq!(accepted.prefixes.len(), 2500);
}

fn matchers() -> impl Strategy<Value = IsdAsMatcher> {
    (0..3_u16, 0..3_u64, any::<bool>()).prop_map(|(isd, asn, negated)| IsdAsMatcher {
        isd_as: IsdAs::new(isd, asn),
        negated,
    })
}

/// Prefixes within 10.0.0.0/24, so that every address can be looked at.
fn nets() -> impl Strategy<Value = IpNet> {
    (any::<u8>(), 24..=32_u8).prop_map(|(low, length)| {
        IpNet::new(Ipv4Addr::new(10, 0, 0, low).into(), length).expect("a length")
    })
}

fn rules() -> impl Strategy<Value = Rule> {
    let action = prop_oneof![
        3 => Just(Action::Accept),
        3 => Just(Action::Reject),
        1 => Just(Action::Advertise),
        1 => Just(Action::RedistributeBgp),
    ];
    let networks = (prop::collection::vec(nets(), 1..4), any::<bool>());
    let comment = "( [a-z#]{1,3}){0,2}";
    (
        action,
        matchers(),
        matchers(),
        networks,
        any::<IpAddr>(),
        comment,
    )
        .prop_map(
            |(action, from, to, (prefixes, negated), hop, comment)| Rule {
                action,
                from,
                to,
                networks: Networks { prefixes, negated },
                next_hop: (action == Action::Advertise).then_some(hop.to_canonical()),
                comment,
            },
        )
}

proptest! {
    #[test]
    fn what_is_printed_is_read_back(rules in prop::collection::vec(rules(), 0..6)) {
        let policy = RoutingPolicy { rules };
        prop_assert_eq!(check(&policy.to_string(), "x"), Ok(policy));
    }

    #[test]
    fn what_is_accepted_agrees_with_looking_at_every_address(
        rules in prop::collection::vec(rules(), 0..8),
        announced in prop::collection::vec(nets(), 0..6),
    ) {
        let (from, local) = (IsdAs::new(1, 1), IsdAs::new(1, 2));
        let deciding: Vec<&Rule> = rules
            .iter()
            .filter(|rule| rule.from.matches(from) && rule.to.matches(local))
            .filter(|rule| [Action::Accept, Action::Reject].contains(&rule.action))
            .collect();
        let believed = |address: &IpAddr| {
            let covers = |rule: &&&Rule| {
                let listed = rule.networks.prefixes.iter().any(|net| net.contains(address));
                listed != rule.networks.negated
            };
            deciding.iter().find(covers).is_some_and(|rule| rule.action == Action::Accept)
        };
        let result = RoutingPolicy { rules: rules.clone() }.accept(from, local, &announced);
        let mut accepted = 0;
        for net in &announced {
            accepted += usize::from(net.hosts().any(|address| believed(&address))
                || believed(&net.network()) || believed(&net.broadcast()));
        }
        prop_assert_eq!((result.accepted, result.rejected), (accepted, announced.len() - accepted));
        for low in 0..=255 {
            let address: IpAddr = Ipv4Addr::new(10, 0, 0, low).into();
            let expected = announced.iter().any(|net| net.contains(&address)) && believed(&address);
            let found = result.prefixes.iter().any(|net| net.contains(&address));
            prop_assert_eq!(found, expected, "{}", address);
        }
        prop_assert_eq!(IpNet::aggregate(&result.prefixes).len(), result.prefixes.len());
    }

    #[test]
    fn no_text_is_a_panic(text in "((accept|advertise|0-0|!|::/0|10.0.0.0/8|,|#|\n|\r|\t| |.){0,9})") {
        if let Ok(policy) = check(&text, "x") {
            prop_assert_eq!(check(&policy.to_string(), "x"), Ok(policy));
        }
    }
}
