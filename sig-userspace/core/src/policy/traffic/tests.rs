use std::time::Duration;

use super::*;
use crate::policy::performance::{Criterion, Limits, Margin};
use crate::scion::Interface;

fn ia(text: &str) -> IsdAs {
    text.parse().expect("an ISD-AS")
}

fn read(text: &str) -> TrafficPolicy {
    let (policy, warnings) = check(text, "traffic.json").unwrap_or_else(|e| panic!("{e}"));
    let shown: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(shown, [""; 0]);
    policy
}

fn warnings(text: &str) -> Vec<String> {
    let (_, warnings) = check(text, "traffic.json").unwrap_or_else(|e| panic!("{e}"));
    warnings.iter().map(ToString::to_string).collect()
}

fn problems(text: &str) -> String {
    match check(text, "traffic.json") {
        Ok((policy, _)) => panic!("read as {policy:?}"),
        Err(errors) => errors.to_string(),
    }
}

fn policies(text: &str) -> Vec<SessionPolicy> {
    let policy = read(text);
    policy.ases[&ia("1-ff00:0:111")].policies.clone()
}

/// A file with these policies for one AS, after other parts of the file.
fn with_policies(before: &str, policies: &str) -> String {
    format!("{{ {before} \"ASes\": {{ \"1-ff00:0:111\": {{ \"Policies\": [{policies}] }} }} }}")
}

#[test]
fn a_file_of_the_reference_is_read_as_it_reads_it() {
    let policy = read(
        r#"{
            "ASes": {
                "1-ff00:0:111": { "Nets": ["10.2.0.0/24", "fd00:2::/64"], "PathCount": 2 },
                "1-ff00:0:112": { "Nets": [] },
                "2-64512": { "PathCount": 0 },
                "1-ff00:0:110": null
            },
            "ConfigVersion": 18446744073709551615
        }"#,
    );
    let entry = |nets: &[&str], count| AsPolicy {
        prefixes: nets
            .iter()
            .map(|net| net.parse().expect("a prefix"))
            .collect(),
        policies: vec![SessionPolicy::only(count)],
    };
    assert_eq!(
        policy,
        TrafficPolicy {
            version: u64::MAX,
            ases: BTreeMap::from([
                (ia("1-ff00:0:110"), entry(&[], 1)),
                (
                    ia("1-ff00:0:111"),
                    entry(&["10.2.0.0/24", "fd00:2::/64"], 2)
                ),
                (ia("1-ff00:0:112"), entry(&[], 1)),
                (ia("2-64512"), entry(&[], 1)),
            ]),
        }
    );
    let only = &SessionPolicy::only(1);
    assert_eq!(
        (only.id, &*only.condition, &*only.path),
        (0, &Condition::ALWAYS, &PathPolicy::default())
    );
}

#[test]
fn case_does_not_matter_in_keys_and_null_is_nothing() {
    let policy = read(
        r#"{"ases": {"1-1": {"nets": ["10.0.0.0/8"], "PATHCOUNT": 3}, "1-2": {"Nets": null}},
            "configversion": null, "TrafficClasses": null}"#,
    );
    assert_eq!(policy.version, 0);
    assert_eq!(policy.ases[&ia("1-1")].policies[0].path_count, 3);
    assert_eq!(read("{}"), TrafficPolicy::default());
    assert_eq!(read(r#"{"ASes": null}"#), TrafficPolicy::default());
}

#[test]
fn unknown_keys_of_the_references_levels_have_no_effect_but_a_warning() {
    let text = "{\n\"ASes\": {\"1-1\": {\"Nets\": [],\n\"Sigs\": {}}},\n\"PktPolicies\": []\n}";
    assert_eq!(
        warnings(text),
        [
            "traffic.json:3: ASes.1-1.Sigs: unknown key, which has no effect",
            "traffic.json:4: PktPolicies: unknown key, which has no effect; did you mean \"PathPolicies\"?",
        ]
    );
}

#[test]
fn of_what_stands_twice_the_last_counts() {
    let text =
        r#"{"ASes": {"1-1": {"PathCount": 2, "pathcount": 3}, "1-0:0:1": {"PathCount": 4}}}"#;
    let (policy, warnings) = check(text, "x").expect("a policy");
    assert_eq!(policy.ases[&ia("1-1")].policies[0].path_count, 4);
    assert_eq!(warnings.len(), 2);
    assert!(warnings[0].message.contains("twice") && warnings[1].message.contains("twice"));
}

#[test]
fn what_the_reference_refuses_is_refused() {
    for text in [
        "",
        "garbage",
        "[]",
        "{} {}",
        "{\"ASes\": }",
        r#"{"ASes": []}"#,
        r#"{"ASes": {"1": {}}}"#,
        r#"{"ASes": {"1-1": []}}"#,
        r#"{"ASes": {"1-1": {"Nets": "10.0.0.0/8"}}}"#,
        r#"{"ASes": {"1-1": {"Nets": [7]}}}"#,
        r#"{"ASes": {"1-1": {"Nets": [null]}}}"#,
        r#"{"ASes": {"1-1": {"Nets": ["not cidr"]}}}"#,
        r#"{"ASes": {"1-1": {"Nets": ["172.20.4.1/24"]}}}"#,
        r#"{"ASes": {"1-1": {"Nets": ["240.0.0.0/4"]}}}"#,
        r#"{"ASes": {"1-1": {"PathCount": "2"}}}"#,
        r#"{"ASes": {"1-1": {"PathCount": 1.5}}}"#,
        r#"{"ConfigVersion": -1}"#,
        r#"{"ConfigVersion": "1"}"#,
    ] {
        problems(text);
    }
}

#[test]
fn problems_of_the_text_name_line_and_column() {
    assert_eq!(
        problems("{\n  \"ASes\": {\n  },,\n}"),
        "traffic.json:3: not JSON, column 5: key must be a string"
    );
    assert_eq!(
        problems("{\n"),
        "traffic.json:2: not JSON: the file ends before a string, array or object is closed"
    );
}

#[test]
fn every_problem_of_a_file_is_told_with_its_line() {
    let text = r#"{
        "ASes": {
            "1-ff00:0:111": {
                "Nets": ["10.2.0.1/24",
                    "x"],
                "PathCount": 1.5,
                "Policies": [
                    {"Trafficclass": "dscp=1", "Pathpolicy": "x", "Fallback": "none"},
                    {"TrafficClass": "voice", "Name": "", "Class": "x"},
                    {"PerformancePolicy": {"Order": ["speed", {"By": "hops", "Margin": 1}]}}
                ]
            },
            "1": {},
            "1-2": {"Policies": []},
            "1-3": {"Policies": [{"Name": "1"}, {}]}
        },
        "ConfigVersion": "x",
        "TrafficClasses": {"a b": "bool=true", "c": "cls=d", "d": "any(cls=c)", "e": 5}
    }"#;
    assert_eq!(
        problems(text),
        "traffic.json:4: ASes.1-ff00:0:111.Nets[0]: \"10.2.0.1/24\" has host bits set; write \
         \"10.2.0.0/24\"\n\
         traffic.json:5: ASes.1-ff00:0:111.Nets[1]: \"x\" is not an IP prefix; write \
         address/length, for example \"10.2.0.0/24\" or \"2001:db8:2::/64\"\n\
         traffic.json:6: ASes.1-ff00:0:111.PathCount: 1.5 found; write a whole number from 0 to \
         4294967295\n\
         traffic.json:8: ASes.1-ff00:0:111.Policies[0].Trafficclass: at character 5: \"=1\" found; \
         expected \"=0x\"\n\
         traffic.json:8: ASes.1-ff00:0:111.Policies[0].Pathpolicy: there is no path policy \"x\"; \
         add it to PathPolicies\n\
         traffic.json:8: ASes.1-ff00:0:111.Policies[0].Fallback: \"none\" is unknown; write \
         \"drop\", \"next\" or \"any-path\"\n\
         traffic.json:9: ASes.1-ff00:0:111.Policies[1].Class: unknown key; write one of: Name, \
         TrafficClass, PathPolicy, PerformancePolicy, PathCount, Fallback\n\
         traffic.json:9: ASes.1-ff00:0:111.Policies[1].Name: the name is empty; write \
         one, or remove the key\n\
         traffic.json:9: ASes.1-ff00:0:111.Policies[1].TrafficClass: there is no traffic class \
         \"voice\"; add it to TrafficClasses\n\
         traffic.json:10: ASes.1-ff00:0:111.Policies[2].PerformancePolicy.Order[0]: \"speed\" is \
         unknown; write \"latency\", \"jitter\", \"loss\", \"hops\" or \"mtu\"\n\
         traffic.json:10: ASes.1-ff00:0:111.Policies[2].PerformancePolicy.Order[1].By: hops and \
         mtu are compared exactly; remove the margin\n\
         traffic.json:13: ASes.1: not an ISD-AS; write for example \"1-ff00:0:111\"\n\
         traffic.json:14: ASes.1-2.Policies: no policy; add one, or remove the key to send \
         everything over any path\n\
         traffic.json:15: ASes.1-3.Policies[1]: another policy of this AS is already named \"1\"; \
         choose another name\n\
         traffic.json:17: ConfigVersion: the string \"x\" found; write a whole number from 0 to \
         18446744073709551615\n\
         traffic.json:18: TrafficClasses.a b: a name consists of letters, digits, \".\", \"_\" and \
         \"-\"\n\
         traffic.json:18: TrafficClasses.c: this traffic class refers to itself, directly \
         or indirectly\n\
         traffic.json:18: TrafficClasses.d: this traffic class refers to itself, directly \
         or indirectly\n\
         traffic.json:18: TrafficClasses.e: 5 found; write a string, for example \"dscp=0x2e\""
    );
}

#[test]
fn policies_put_classes_paths_and_performance_together() {
    let text = with_policies(
        r#""TrafficClasses": {"voice": "any(cls=1,cls=sip)", "sip": "dstport=5060", "1": "dscp=0x2e"},
           "PathPolicies": {"inland": {"extends": ["short"], "acl": ["+ 1", "-"]},
                            "short": {"sequence": "0 0"}},
           "PerformancePolicies": {"fast": {"Order": ["latency"], "MaxLatency": "150ms"}},"#,
        r#"{"Name": "calls", "TrafficClass": "voice", "PathPolicy": "inland",
            "PerformancePolicy": "fast", "PathCount": 2, "Fallback": "next"},
           {"TrafficClass": "not(cls=sip)", "PathPolicy": {"acl": ["- 3", "+"]},
            "Fallback": "Any-Path"},
           {}"#,
    );
    let text = text.replace("\"Policies\"", "\"PathCount\": 4, \"Policies\"");
    let found = policies(&text);
    let [calls, other, rest] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!(
        (calls.id, calls.name.as_str(), calls.path_count),
        (0, "calls", 2)
    );
    assert_eq!(
        calls.condition.to_string(),
        "any(dscp=0x2e,dstport=5060-5060)"
    );
    assert!(calls.path.acl.is_some() && calls.path.sequence.is_some());
    assert_eq!(calls.fallback, Fallback::Next);
    let limits = calls
        .performance
        .as_ref()
        .map(|policy| policy.limits.max_latency);
    assert_eq!(limits, Some(Some(Duration::from_millis(150))));
    assert_eq!(
        (other.id, other.name.as_str(), other.path_count),
        (1, "1", 4)
    );
    assert_eq!(other.condition.to_string(), "not(dstport=5060-5060)");
    assert_eq!(
        (other.fallback, &other.performance),
        (Fallback::AnyPath, &None)
    );
    assert_eq!(
        rest,
        &SessionPolicy {
            id: 2,
            name: "2".to_owned(),
            ..SessionPolicy::only(4)
        }
    );
}

#[test]
fn performance_policies_have_order_margins_and_limits() {
    let text = with_policies(
        "",
        r#"{"PerformancePolicy": {
            "Order": ["loss", {"By": "latency", "Margin": "5ms", "MarginPercent": 20},
                      {"By": "Jitter", "MarginPercent": 5}, {"By": "loss", "Margin": 0.25},
                      {"By": "mtu"}, "hops", "latency"],
            "MaxJitter": "20ms", "MaxLoss": 2.5, "MinMTU": 1400}}"#,
    );
    let found = policies(&text);
    let performance = found[0].performance.as_ref().expect("a performance policy");
    let margin = |percent, absolute| Margin { percent, absolute };
    assert_eq!(
        performance.order,
        [
            Criterion::Loss(Margin::LOSS),
            Criterion::Latency(margin(20, 5_000)),
            Criterion::Jitter(margin(5, 0)),
            Criterion::Loss(margin(0, 2_500)),
            Criterion::Mtu,
            Criterion::Hops,
            Criterion::Latency(Margin::TIME),
        ]
    );
    let limits = Limits {
        max_latency: None,
        max_jitter: Some(Duration::from_millis(20)),
        max_loss_ppm: Some(25_000),
        min_mtu: Some(1400),
    };
    assert_eq!(performance.limits, limits);
    for wrong in [
        r#"{"MaxLoss": 101}"#,
        r#"{"MaxLoss": "1"}"#,
        r#"{"MaxLatency": 5}"#,
        r#"{"MinMTU": 0}"#,
        r#"{"Order": "latency"}"#,
        r#"{"Order": [{"Margin": "1ms"}]}"#,
        r#"{"Order": [{"By": "loss", "Margin": "1ms"}]}"#,
        r#"{"Best": 1}"#,
        r#""nobody""#,
    ] {
        problems(&with_policies(
            "",
            &format!("{{\"PerformancePolicy\": {wrong}}}"),
        ));
    }
}

#[test]
fn policies_that_no_packet_reaches_and_packets_without_policy_are_pointed_out() {
    let message = |policies: &str| {
        let found = warnings(&with_policies("", policies));
        found
            .iter()
            .map(|text| text.split("Policies").nth(1).unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        message(r#"{"Name": "a"}, {"TrafficClass": "dscp=0x1"}"#),
        ["[1]: unreachable: policy \"a\" matches everything"]
    );
    assert_eq!(
        message(r#"{"TrafficClass": "dscp=0x1"}"#),
        [
            "[0]: packets that match no policy are dropped; add a final policy without \
          TrafficClass to send them"
        ]
    );
    assert_eq!(
        message(r#"{"Fallback": "next"}"#),
        ["[0]: there is no next policy to fall back to; packets are dropped"]
    );
    assert_eq!(message(r#"{"Fallback": "next"}, {}"#), [""; 0]);
}

#[test]
fn classes_and_path_policies_that_refer_to_each_other_in_circles_are_refused() {
    let text = r#"{"PathPolicies": {
        "a": {"extends": ["b"]}, "b": {"options": [{"policy": "a"}]}, "c": {"extends": ["a"]},
        "d": {"acl": ["+"]}, "e": {"extends": ["d"]}
    }}"#;
    let told = problems(text);
    assert_eq!(told.lines().count(), 3, "{told}");
    assert!(
        told.lines().all(|line| line.contains("refers to itself")),
        "{told}"
    );
}

#[test]
fn long_chains_of_names_are_no_trouble() {
    let mut classes: Vec<String> = (1..50)
        .map(|i| format!("\"{i}\": \"any(cls={})\"", i - 1))
        .collect();
    classes.push("\"0\": \"dscp=0x1\"".to_owned());
    let text = format!(r#"{{"TrafficClasses": {{{}}}}}"#, classes.join(","));
    assert!(check(&text, "x").is_ok());

    let mut paths: Vec<String> = (1..5000)
        .map(|i| format!("\"{i}\": {{\"extends\": [\"{}\"]}}", i - 1))
        .collect();
    paths.push("\"0\": {\"acl\": [\"-\"]}".to_owned());
    let text = with_policies(
        &format!(r#""PathPolicies": {{{}}},"#, paths.join(",")),
        r#"{"PathPolicy": "4999"}"#,
    );
    assert!(policies(&text)[0].path.acl.is_some());
}

#[test]
fn classes_that_would_fill_the_memory_are_refused() {
    let wide = "bool=true,".repeat(4000);
    let copies: Vec<String> = (0..1000)
        .map(|i| format!("\"c{i}\": \"any(cls=wide)\""))
        .collect();
    let text = format!(
        r#"{{"TrafficClasses": {{"wide": "all({wide}bool=true)", {}}}}}"#,
        copies.join(",")
    );
    assert!(problems(&text).contains("all classes together have more than 1048576 conditions"));
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    problems(&deep);
    problems(&format!("{{\"ASes\": {deep}}}"));
}

#[test]
fn paths_that_do_not_comply_weigh_least_or_nothing() {
    let path = |isd| Path {
        interfaces: [
            Interface {
                isd_as: IsdAs::new(isd, 1),
                id: 1,
            },
            Interface {
                isd_as: IsdAs::new(isd, 2),
                id: 2,
            },
        ]
        .into(),
        ..Path::configured(
            &[0; 36],
            "192.0.2.1:30042".parse().expect("an address"),
            1400,
        )
    };
    let text = |fallback| {
        with_policies(
            "",
            &format!(
                r#"{{"PathPolicy": {{"options": [
            {{"weight": 5, "policy": {{"acl": ["+ 1", "-"]}}}},
            {{"weight": 0, "policy": {{"acl": ["+ 2", "-"]}}}}]}}, "Fallback": "{fallback}"}}"#
            ),
        )
    };
    for (fallback, other) in [("drop", None), ("any-path", Some(0))] {
        let policy = &policies(&text(fallback))[0];
        let weights = [1, 2, 3].map(|isd| policy.weigh(&path(isd)));
        assert_eq!(weights, [Some(6), Some(1), other], "{fallback}");
    }
    assert_eq!(SessionPolicy::only(1).weigh(&path(3)), Some(1));
}

#[test]
fn oddities_that_the_reference_takes_are_taken() {
    let odd = r#"{"ASes": {"1-1": {"Nets": ["::ffff:10.0.0.0/104"], "PathCount": -3}}}"#;
    let (policy, warnings) = check(odd, "x").expect("a policy");
    let read = &policy.ases[&ia("1-1")];
    assert_eq!(read.prefixes, ["10.0.0.0/8".parse().expect("a prefix")]);
    assert_eq!(read.policies, [SessionPolicy::only(1)]);
    assert!(
        warnings[0]
            .message
            .starts_with("a negative number counts as 1")
    );
}

#[test]
fn a_prefix_of_two_ases_deserves_a_look() {
    let text = r#"{"ASes": {
        "1-1": {"Nets": ["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16"]},
        "1-2": {"Nets": ["10.2.0.0/16", "10.1.0.0/16", "10.1.0.0/24"]}
    }}"#;
    assert_eq!(
        warnings(text),
        [
            "traffic.json:3: ASes.1-2: 10.2.0.0/16, and 1 more, is also in Nets of 1-1: packets go to the \
             AS with the higher number, and to the other one while that is unreachable"
        ]
    );
}
