use std::sync::Arc;

use sig_common::addr::IsdAs;

use super::*;
use crate::document::json::Node;
use crate::problem::Report;
use crate::scion::{Interface, Path};

/// Paths of the topology that the reference tests its policies with, as ISD-AS#interface of each
/// interface; AS 110 stands for ff00:0:110.
const PATHS: &[&str] = &[
    "2-212#2523 2-211#2325",
    "2-212#2534 2-211#3425",
    "1-133#1018 1-122#1810 1-122#1815 1-121#1518 1-121#1528 1-111#2815 1-111#2723 2-211#2327 2-211#2326 2-222#2623",
    "1-133#1018 1-122#1810 1-122#1815 1-121#1518 1-121#1528 1-111#2815 1-111#2823 2-211#2328 2-211#2326 2-222#2623",
    "1-130#3229 1-120#2932 1-120#3022 2-220#2230",
    "1-130#3229 1-120#2932 1-120#3122 2-220#2231",
    "1-122#1815 1-121#1518 1-121#1530 1-120#3015 1-120#3022 2-220#2230",
    "1-122#1815 1-121#1518 1-121#1530 1-120#3015 1-120#3122 2-220#2231",
    "1-133#1019 1-132#1910",
    "1-133#1019 1-132#1910 1-132#1916 1-131#1619",
    "1-122#1815 1-121#1518 1-121#1530 1-120#3015 1-120#3022 2-220#2230 2-220#2224 2-221#2422",
    "1-122#1815 1-121#1518 1-121#1530 1-120#3015 1-120#3122 2-220#2231 2-220#2224 2-221#2422",
    "1-122#1815 1-121#1518 1-121#1528 1-111#2815 1-111#2723 2-211#2327 2-211#2324 2-221#2423",
    "1-122#1815 1-121#1518 1-121#1528 1-111#2815 1-111#2823 2-211#2328 2-211#2324 2-221#2423",
    "1-133#1018 1-122#1810 1-122#1815 1-121#1518 1-121#1530 1-120#3015 1-120#2911 1-110#1129",
    "1-133#1019 1-132#1910 1-132#1916 1-131#1619 1-131#1613 1-130#1316 1-130#1311 1-110#1113",
    "2-211#2321 2-210#2123 2-210#2122 2-220#2221",
    "2-211#2333 2-210#3323 2-210#2122 2-220#2221",
    "2-211#2324 2-221#2423 2-221#2422 2-220#2224",
    "1-122#1815 1-121#1518 1-121#1528 1-111#2815 1-111#2723 2-211#2327 2-211#2326 2-222#2623",
    "1-122#1815 1-121#1518 1-121#1528 1-111#2815 1-111#2823 2-211#2328 2-211#2326 2-222#2623",
    "1-110#1129 1-120#2911 1-120#3122 2-220#2231",
    "1-110#1129 1-120#2911 1-120#3022 2-220#2230",
    "1-110#1121 2-210#2111 2-210#2122 2-220#2221",
    "2-212#2523 2-211#2325 2-211#2321 2-210#2123 2-210#2122 2-220#2221",
    "2-212#2523 2-211#2325 2-211#2333 2-210#3323 2-210#2122 2-220#2221",
    "2-212#2523 2-211#2325 2-211#2324 2-221#2423 2-221#2422 2-220#2224",
    "2-212#2534 2-211#3425 2-211#2324 2-221#2423 2-221#2422 2-220#2224",
    "2-212#2534 2-211#3425 2-211#2321 2-210#2123 2-210#2122 2-220#2221",
    "2-212#2534 2-211#3425 2-211#2333 2-210#3323 2-210#2122 2-220#2221",
    "2-220#2221 2-210#2122 2-210#2123 2-211#2321 2-211#2325 2-212#2523",
    "2-220#2221 2-210#2122 2-210#2123 2-211#2321 2-211#3425 2-212#2534",
    "2-220#2221 2-210#2122 2-210#3323 2-211#2333 2-211#2325 2-212#2523",
    "2-220#2221 2-210#2122 2-210#3323 2-211#2333 2-211#3425 2-212#2534",
    "2-220#2224 2-221#2422 2-221#2423 2-211#2324 2-211#2325 2-212#2523",
    "2-220#2224 2-221#2422 2-221#2423 2-211#2324 2-211#3425 2-212#2534",
    "2-210#2111 1-110#1121",
    "2-210#2123 2-211#2321 2-211#2325 2-212#2523",
    "2-210#2123 2-211#2321 2-211#3425 2-212#2534",
    "2-210#3323 2-211#2333 2-211#2325 2-212#2523",
    "2-210#3323 2-211#2333 2-211#3425 2-212#2534",
    "2-210#2122 2-220#2221",
];

fn ia(text: &str) -> IsdAs {
    text.parse().expect("an ISD-AS")
}

fn path(text: &str) -> Path {
    let interfaces = text.split_whitespace().map(|interface| {
        let (isd_as, id) = interface.split_once('#').expect("an interface");
        Interface {
            isd_as: ia(&isd_as.replace('-', "-ff00:0:")),
            id: id.parse().expect("a number"),
        }
    });
    Path {
        interfaces: interfaces.collect(),
        ..Path::configured(
            &[0; 36],
            "192.0.2.1:30042".parse().expect("an address"),
            1400,
        )
    }
}

/// The paths between two ASes, given as `1-110`; from an AS to itself the one without hops.
fn paths(from: &str, to: &str) -> Vec<Path> {
    if from == to {
        return vec![path("")];
    }
    let ends = |text: &&&str| {
        text.starts_with(&format!("{from}#"))
            && text.contains(&format!(" {to}#"))
            && text
                .rsplit(' ')
                .next()
                .is_some_and(|last| last.starts_with(&format!("{to}#")))
    };
    let found: Vec<Path> = PATHS.iter().filter(ends).map(|text| path(text)).collect();
    assert!(!found.is_empty(), "no path from {from} to {to}");
    found
}

/// How many of these paths a policy lets pass: of those that comply, the ones with the highest weight.
fn passing(policy: &PathPolicy, paths: &[Path]) -> usize {
    let weights: Vec<Weight> = paths
        .iter()
        .filter_map(|path| policy.evaluate(path))
        .collect();
    let best = weights.iter().max();
    weights
        .iter()
        .filter(|weight| Some(*weight) == best)
        .count()
}

fn acl(entries: &[&str]) -> PathPolicy {
    let entries = entries.iter().map(|text| text.parse().expect(text));
    PathPolicy {
        acl: Some(Acl::new(entries.collect()).expect("a list").into()),
        ..PathPolicy::default()
    }
}

fn sequence(text: &str) -> PathPolicy {
    PathPolicy {
        sequence: Some(Arc::new(
            text.parse()
                .unwrap_or_else(|error| panic!("{text}: {error}")),
        )),
        ..PathPolicy::default()
    }
}

fn options(options: &[(Weight, PathPolicy)]) -> PathPolicy {
    let options = options.iter().map(|(weight, policy)| WeightedPolicy {
        weight: *weight,
        policy: Arc::new(policy.clone()),
    });
    PathPolicy {
        options: options.collect(),
        ..PathPolicy::default()
    }
}

#[test]
fn hops_are_read_as_in_the_reference() {
    for (text, printed) in [
        ("0", "0-0#0"),
        ("1", "1-0#0"),
        ("1-0", "1-0#0"),
        ("1-0#0", "1-0#0"),
        ("1-0#0,0", "1-0#0,0"),
        ("0-1#0", "0-1#0"),
        ("0-1#2", "0-1#2"),
        ("0-1", "0-1#0"),
        ("1-2", "1-2#0"),
        ("1-2#3,4", "1-2#3,4"),
        (
            "1-ff00:0:110#18446744073709551615",
            "1-ff00:0:110#18446744073709551615",
        ),
    ] {
        let hop: HopPredicate = text.parse().expect(text);
        assert_eq!(hop.to_string(), printed);
        assert_eq!(printed.parse(), Ok(hop));
    }
    for text in [
        "",
        "-",
        "1-",
        "-1",
        "1-0#1",
        "1-2#3,4,5",
        "1-1-0",
        "1#2",
        "1#0",
        "1-1#0#",
        "1-1#e",
        "1-2#1,3a",
        "1-0#1,3",
        "1-0#0,3",
        "1-12323433243534#0",
        "1123212-23#0",
        "1-2#",
        "1-2#3,",
        "1-2,3",
        "+1",
        "1-2#+3",
        "1-2#18446744073709551616",
        " 1",
        "1 ",
    ] {
        assert!(text.parse::<HopPredicate>().is_err(), "{text}");
    }
}

#[test]
fn lists_end_with_an_entry_for_everything() {
    let list =
        |texts: &[&str]| Acl::new(texts.iter().map(|text| text.parse().expect(text)).collect());
    for good in [
        &["+"][..],
        &["+ 42", "-"],
        &["+ 1-0#0", "- 0-0#0"],
        &["- 0"],
    ] {
        assert_eq!(list(good).map(|acl| acl.entries().len()), Ok(good.len()));
    }
    let none = "no entry matches everything else; write \"+\" or \"-\" as the last one";
    assert_eq!(list(&[]), Err(none.to_owned()));
    assert_eq!(list(&["+ 42"]), Err(none.to_owned()));
    assert_eq!(
        list(&["+ 42", "-", "+ 27", "- 30"]),
        Err(
            "\"- 0-0#0\" matches everything, so later entries have no effect; move it to the end"
                .to_owned()
        )
    );
    for wrong in ["* 0", "+ 0 0", "+  0", "", "+0", "+ ", " +", "++"] {
        assert!(wrong.parse::<AclEntry>().is_err(), "{wrong}");
    }
}

#[test]
fn lists_let_the_paths_pass_that_the_reference_lets_pass() {
    for (entries, from, to, expected) in [
        (&["+ 0-0#0"][..], "2-212", "2-211", 2),
        (&["+ 2-0#0", "-"], "2-212", "2-211", 2),
        (
            &["+ 2-ff00:0:212#0", "+ 2-ff00:0:211#0", "-"],
            "2-212",
            "2-211",
            2,
        ),
        (&["+ 2-ff00:0:212#0", "-"], "2-212", "2-211", 0),
        (
            &["- 1-ff00:0:110#0", "- 1-ff00:0:120#0", "+"],
            "1-133",
            "2-222",
            2,
        ),
        (
            &[
                "- 1-ff00:0:110#0",
                "- 1-ff00:0:120#0",
                "- 1-ff00:0:111#2823",
                "+",
            ],
            "1-133",
            "2-222",
            1,
        ),
        (
            &["+ 1-ff00:0:120#0", "+ 1-ff00:0:130#0", "- 1-0#0", "+"],
            "1-130",
            "2-220",
            2,
        ),
        (
            &["- 1-0#0", "+ 1-ff00:0:130#0", "+ 1-ff00:0:120#0", "+"],
            "1-130",
            "2-220",
            0,
        ),
        (&["-"], "1-130", "2-220", 0),
        (&["-"], "2-212", "2-212", 1),
    ] {
        assert_eq!(
            passing(&acl(entries), &paths(from, to)),
            expected,
            "{entries:?}"
        );
    }
}

#[test]
fn lists_tell_the_way_in_from_the_way_out() {
    let paths = paths("1-133", "1-131");
    for (hop, passes) in [
        ("1-ff00:0:132#1910,0", false),
        ("1-ff00:0:132#0,1916", false),
        ("1-ff00:0:132#1916,1910", true),
        ("1-ff00:0:132#1916", false),
        ("1-ff00:0:132#1910", false),
        ("0-ff00:0:131#1619,7", false),
        ("0-ff00:0:131#7,1619", true),
        ("2-0#0,0", true),
    ] {
        let policy = acl(&[&format!("- {hop}"), "+"]);
        assert_eq!(passing(&policy, &paths), usize::from(passes), "{hop}");
    }
}

#[test]
fn sequences_are_read_as_in_the_reference() {
    for good in [
        "",
        "0",
        "1-0",
        "0 0",
        "(0)",
        "0|1-2|3",
        "0?+*",
        "((0 0)? 1)*",
        "1 -ff00:0:110 # 1 , 2",
        "0-0#5",
        "1-64512",
        "0\n\t0",
        "0(0)0",
    ] {
        let read: Sequence = good
            .parse()
            .unwrap_or_else(|error| panic!("{good}: {error}"));
        assert_eq!(read.to_string(), good);
    }
    for wrong in [
        "0-0-0#0",
        "0#0#0",
        "1#0",
        " ",
        "()",
        "(0",
        "0)",
        "?",
        "|0",
        "0|",
        "0||0",
        "0,0",
        "1- 0",
        "1-0#",
        "1-0#1,",
        "1-0#1,2,3",
        "1-x",
        "a",
        "1-ff00:0",
        "1-ff00:0:110:0",
        "0;",
        "1-",
    ] {
        assert!(wrong.parse::<Sequence>().is_err(), "{wrong}");
    }
}

#[test]
fn numbers_that_could_be_two_and_numbers_too_large_are_refused() {
    let error = |text: &str| text.parse::<Sequence>().expect_err(text);
    assert!(error("01").contains("at character 1: \"01\" found; expected a hop"));
    assert!(error("1-ff00:0:0110").contains("\"ff00:0:0110\" found; expected an AS number"));
    assert!(error("1-012").contains("expected an AS number"));
    assert!(error("1-0#01").contains("expected the number of an interface"));
    assert!(error("65536").contains("out of range"));
    assert!(error("1-99999999999").contains("expected an AS number"));
    assert!(error("1-1#18446744073709551616").contains("out of range"));
}

#[test]
fn sequences_match_the_paths_that_they_match_in_the_reference() {
    for (text, from, to, expected) in [
        ("0-0#0", "2-212", "2-212", 0),
        ("0*", "2-212", "2-212", 1),
        ("1-ff00:0:110#1,2*", "2-212", "2-212", 1),
        ("0* 0*", "2-212", "2-212", 1),
        ("0?", "2-212", "2-212", 1),
        ("0* 0?", "2-212", "2-212", 1),
        ("0+", "2-212", "2-212", 0),
        ("", "2-212", "2-212", 1),
        ("0-0#0", "2-212", "2-211", 0),
        ("0-0#0 0-0#0", "2-212", "2-211", 2),
        ("0-0#0 0-0#0 0-0#0 0-0#0", "1-122", "2-220", 2),
        ("1-ff00:0:133#1019 1-ff00:0:132#1910", "1-133", "1-132", 1),
        ("0 1-ff00:0:132#1910,1916 0", "1-133", "1-131", 1),
        ("0 1-ff00:0:132#0,1916 0", "1-133", "1-131", 1),
        (
            "1-ff00:0:122#1815 1-ff00:0:121#1518,1530 1-ff00:0:120#3015,3122 \
             2-ff00:0:220#2231,2224 2-ff00:0:221#2422",
            "1-122",
            "2-221",
            1,
        ),
        (
            "1-ff00:0:133#1018 1-ff00:0:122#1810,1815 1-ff00:0:121#0,1530 \
             1-ff00:0:120#3015,2911 1-ff00:0:110#1129",
            "1-133",
            "1-110",
            1,
        ),
        (
            "1-ff00:0:133#1018 1-ff00:0:122#1810,1815 1-ff00:0:121#1530,0 \
             1-ff00:0:120#3015,2911 1-ff00:0:110#1129",
            "1-133",
            "1-110",
            0,
        ),
        (
            "1-ff00:0:133#1018 1-ff00:0:122#0,1815 1-ff00:0:121#0,1530 1-ff00:0:120#3015,0 \
             1-ff00:0:110#1129",
            "1-133",
            "1-110",
            1,
        ),
        (
            "1-ff00:0:133#0 1 0-0#0 1-ff00:0:120#0 1-ff00:0:110#1129",
            "1-133",
            "1-110",
            1,
        ),
        (
            "1-ff00:0:133#0 1-0#0 0-0#0 1-0#0 1-ff00:0:110#0",
            "1-133",
            "1-110",
            2,
        ),
        ("0*", "2-212", "2-211", 2),
        ("0 0 0*", "2-212", "2-211", 2),
        ("0+", "2-212", "2-211", 2),
        ("0 0 0+", "2-212", "2-211", 0),
        ("0 0 0?", "2-212", "2-211", 2),
        ("0 0?", "2-212", "2-211", 2),
        ("0?", "2-212", "2-211", 0),
        ("0 0 0", "2-211", "2-220", 3),
        ("0 0", "2-211", "2-220", 0),
        ("0 2-ff00:0:221 0", "2-211", "2-220", 1),
        ("0 (2-ff00:0:221 | 2-ff00:0:210) 0", "2-211", "2-220", 3),
        ("0 (2-ff00:0:221 |64-12345) 0", "2-211", "2-220", 1),
        ("0 2-ff00:0:221|64-12345 0", "2-211", "2-220", 1),
        ("0 0 0 ?  ", "2-211", "2-220", 3),
        ("(0 0)?", "2-211", "2-220", 0),
        ("0 1-ff00:0:132#1910 0", "1-133", "1-131", 1),
        ("0 1-ff00:0:132#1916 0", "1-133", "1-131", 1),
        ("0 1-ff00:0:132#1917 0", "1-133", "1-131", 0),
        ("0 1-ff00:0:132#1910,0 0", "1-133", "1-131", 1),
        ("0 1-ff00:0:132#1916,0 0", "1-133", "1-131", 0),
        ("0 1-ff00:0:132#0,1910 0", "1-133", "1-131", 0),
        // Pinning: the interfaces by which the last AS is entered.
        ("0* (1-ff00:0:110#1129|1-ff00:0:110#7)", "1-133", "1-110", 1),
        ("0* (1-ff00:0:120#3015)", "1-133", "1-110", 0),
        // Upper case, which the reference takes but never matches.
        ("0* 1-FF00:0:110", "1-133", "1-110", 2),
        ("(0|0)+", "1-133", "1-110", 2),
        ("(0 0)+ 0", "1-133", "1-110", 2),
        ("(0 0)+", "1-133", "1-110", 0),
        ("(0?)* 1-ff00:0:110+", "1-133", "1-110", 2),
        (
            "(1-ff00:0:133|1-ff00:0:122 1-ff00:0:121)* 0 0",
            "1-133",
            "1-110",
            0,
        ),
        (
            "(1-ff00:0:133|(1-ff00:0:122 1-ff00:0:121))* 0 0",
            "1-133",
            "1-110",
            1,
        ),
    ] {
        assert_eq!(
            passing(&sequence(text), &paths(from, to)),
            expected,
            "{text}"
        );
    }
}

#[test]
fn a_path_with_an_odd_number_of_interfaces_matches_no_sequence_but_the_empty() {
    let odd = path("1-133#1018 1-122#1810 1-122#1815");
    assert_eq!(sequence("0*").evaluate(&odd), None);
    assert_eq!(sequence("").evaluate(&odd), Some(0));
}

#[test]
fn silly_sequences_are_refused_and_clumsy_ones_take_no_longer() {
    let nested = |levels: usize| format!("{}0{}", "(".repeat(levels), ")*".repeat(levels));
    assert!(nested(63).parse::<Sequence>().is_ok());
    let error = nested(100_000).parse::<Sequence>().expect_err("too deep");
    assert!(error.contains("64 levels"), "{error}");
    let long = "0 ".repeat(1025).parse::<Sequence>().expect_err("too long");
    assert!(long.contains("1024 hops"), "{long}");
    // A backtracking matcher would try 2^60 ways.
    let interfaces = "1-133#1 1-122#2 ".repeat(30);
    let clumsy = format!("{} 2", "(0*)*".repeat(60));
    assert_eq!(sequence(&clumsy).evaluate(&path(&interfaces)), None);
}

#[test]
fn the_options_with_the_highest_weight_that_lets_a_path_pass_win() {
    let (all, none) = (acl(&["+"]), acl(&["-"]));
    let without = |hop: &str| acl(&[&format!("- {hop}"), "+"]);
    for (policy, from, to, expected) in [
        (options(&[(0, all.clone())]), "2-212", "2-211", 2),
        (
            options(&[(0, all.clone()), (1, none.clone())]),
            "2-212",
            "2-211",
            2,
        ),
        (
            options(&[(0, all.clone()), (1, without("1-ff00:0:111#2823"))]),
            "1-122",
            "2-222",
            1,
        ),
        (
            options(&[(0, without("1-ff00:0:120")), (0, without("2-ff00:0:210"))]),
            "1-110",
            "2-220",
            3,
        ),
        (
            options(&[(1, without("1-ff00:0:120")), (0, without("2-ff00:0:210"))]),
            "1-110",
            "2-220",
            1,
        ),
        (
            options(&[(1, without("1-ff00:0:120")), (10, without("2-ff00:0:210"))]),
            "1-110",
            "2-220",
            2,
        ),
        (options(&[(1, none)]), "2-212", "2-211", 0),
        (PathPolicy::default(), "2-212", "2-211", 2),
    ] {
        assert_eq!(passing(&policy, &paths(from, to)), expected, "{policy:?}");
    }
}

#[test]
fn the_ases_that_paths_start_and_end_in_can_be_listed() {
    let mut both = paths("2-212", "2-220");
    both.extend(paths("2-220", "2-212"));
    both.push(path(""));
    both.push(path("2-220#1 2-220#2"));
    let local = |ases: &[&str]| PathPolicy {
        local: Some(ases.iter().map(|text| ia(text)).collect()),
        ..PathPolicy::default()
    };
    assert_eq!(passing(&local(&["2-ff00:0:212"]), &both), 6);
    assert_eq!(passing(&local(&["2-ff00:0:220"]), &both), 6);
    assert_eq!(
        passing(
            &local(&["1-ff00:0:220", "2-ff00:0:212", "2-ff00:0:220"]),
            &both
        ),
        12
    );
    assert_eq!(passing(&local(&["2-0"]), &both), 0);
    assert_eq!(passing(&local(&[]), &both), 0);

    let mut three = paths("2-210", "1-110");
    three.extend(paths("2-210", "2-212"));
    three.extend(paths("2-210", "2-220"));
    three.push(path(""));
    let remote = |rules: &[(&str, bool)]| PathPolicy {
        remote: Some(
            rules
                .iter()
                .map(|(isd_as, reject)| RemoteRule {
                    isd_as: ia(isd_as),
                    reject: *reject,
                })
                .collect(),
        ),
        ..PathPolicy::default()
    };
    for (rules, expected) in [
        (&[][..], 0),
        (&[("0-0", false)], 6),
        (&[("2-0", false)], 5),
        (&[("0-ff00:0:212", false)], 4),
        (&[("1-0", false), ("2-ff00:0:220", false)], 2),
        (&[("1-0", true), ("0-0", false)], 5),
    ] {
        assert_eq!(passing(&remote(rules), &three), expected, "{rules:?}");
    }
}

/// Reads a policy that may refer to the policies `base` (a list), `more` (a sequence and options).
fn read(text: &str) -> Result<PathPolicy, String> {
    let report = Report::new("x.json", text);
    let base = Arc::new(acl(&["+ 1", "-"]));
    let more = Arc::new(PathPolicy {
        sequence: sequence("0*").sequence,
        ..options(&[(3, acl(&["+"]))])
    });
    let named = |name: &str| match name {
        "base" => Some(Arc::clone(&base)),
        "more" => Some(Arc::clone(&more)),
        _ => None,
    };
    let policy = Node::document(&report, text).and_then(|node| read::policy(&node, &named));
    let problems: Vec<String> = report.take().0.iter().map(ToString::to_string).collect();
    match policy {
        Some(policy) if problems.is_empty() => Ok(policy),
        _ => Err(problems.join("\n")),
    }
}

#[test]
fn policies_are_read_in_the_json_of_the_reference() {
    let policy = read(
        r#"{
            "acl": ["+ 42-0#0", "-"],
            "sequence": "0*",
            "local_isd_ases": ["64-123"],
            "remote_isd_ases": [{"isd_as": "64-123", "reject": true}, {"isd_as": "0-0"}],
            "options": [{"weight": 7, "policy": {"acl": ["+"]}}, {"policy": "base"}]
        }"#,
    );
    let mut expected = options(&[(7, acl(&["+"])), (0, acl(&["+ 1", "-"]))]);
    expected.acl = acl(&["+ 42", "-"]).acl;
    expected.sequence = sequence("0*").sequence;
    expected.local = Some([ia("64-123")].into());
    expected.remote = Some(Arc::new([
        RemoteRule {
            isd_as: ia("64-123"),
            reject: true,
        },
        RemoteRule {
            isd_as: ia("0-0"),
            reject: false,
        },
    ]));
    assert_eq!(policy, Ok(expected));
    assert_eq!(read("{}"), Ok(PathPolicy::default()));
    assert_eq!(
        read(r#"{"acl": null, "Sequence": null}"#),
        Ok(PathPolicy::default())
    );
}

#[test]
fn a_policy_takes_over_what_it_does_not_say_itself() {
    let policy = read(r#"{"extends": ["base", "more"], "sequence": "0 0"}"#).expect("a policy");
    assert_eq!(policy.acl, acl(&["+ 1", "-"]).acl);
    assert_eq!(policy.sequence, sequence("0 0").sequence);
    assert_eq!(policy.options.len(), 1);
}

#[test]
fn every_problem_of_a_policy_is_told() {
    let errors = read(
        r#"{
            "acl": ["+ x", "* 0", "-"],
            "sequence": "0 |",
            "local_isd_ases": ["1"],
            "options": [
                {"weight": -1, "policy": {}},
                {"weight": 1},
                {"policy": "more"},
                {"policy": {"acl": []}}
            ],
            "extends": ["nobody"],
            "sequel": 1
        }"#,
    );
    assert_eq!(
        errors.expect_err("full of problems"),
        "x.json:2: acl[0]: \"x\" is not a hop; write ISD, ISD-AS, ISD-AS#INTERFACE or \
         ISD-AS#INGRESS,EGRESS, for example 1-ff00:0:110#2, with 0 for anything\n\
         x.json:2: acl[1]: \"* 0\" is not an ACL entry; write \"+\" or \"-\", a space and a hop, for \
         example \"- 1-ff00:0:110\"\n\
         x.json:3: sequence: at character 4: the end found; expected a hop, for example 0, 1-0, \
         1-ff00:0:110 or 1-ff00:0:110#1,2\n\
         x.json:4: local_isd_ases[0]: \"1\" is not an ISD-AS number: expected a form like \
         1-ff00:0:110 or 1-64512\n\
         x.json:6: options[0].weight: -1 found; write a whole number from 0 to 4294967294\n\
         x.json:7: options[1]: no policy; write \"policy\": {…} or the name of a path policy\n\
         x.json:8: options[2].policy: a policy within an option cannot have options of its own; put all \
         options on one level\n\
         x.json:9: options[3].policy.acl: no entry matches everything else; write \"+\" or \"-\" as \
         the last one\n\
         x.json:11: extends[0]: there is no path policy \"nobody\"; add it to PathPolicies\n\
         x.json:12: sequel: unknown key; write one of: extends, acl, sequence, local_isd_ases, \
         remote_isd_ases, options"
    );
}
