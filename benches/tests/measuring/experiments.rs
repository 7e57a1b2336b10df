//! Reading experiment files: what is accepted, and what is refused.

use std::{fs, path::Path};

use benches::throughput::{
    experiment::{Algorithm, Behavior, Experiment, Family, Size, read::read},
    subject::Subject,
};

const LEAST: &str = "
[[experiment]]
name = \"one\"
subjects = [\"encapsulate\"]
algorithm = \"mrr\"
";

fn problem(text: &str) -> String {
    let error = read("my.toml", text).expect_err("a refusal");
    format!("{error:#}")
}

fn accepted(text: &str) -> Experiment {
    let mut experiments = read("my.toml", text).expect("accepted");
    assert_eq!(experiments.len(), 1);
    experiments.remove(0)
}

#[test]
fn little_is_enough() {
    let experiment = accepted(LEAST);
    assert_eq!(experiment.subjects, [Subject::Encapsulate]);
    assert_eq!(experiment.algorithm, Algorithm::Mrr);
    assert_eq!(experiment.sizes, [Size::Fixed(100)]);
    assert_eq!(experiment.families, [Family::Ipv4]);
    assert_eq!((experiment.repeats, experiment.votes), (3, 1));
    assert_eq!(experiment.groups().len(), 1);
}

#[test]
fn every_key_is_understood() {
    let all = accepted(
        r#"
[[experiment]]
name = "all"
title = "Everything"
subjects = ["kernel-forward", "router", "srv6"]
algorithm = "pdr"
loss_percent = 1
sizes = [124, 1500]
families = ["ipv4", "ipv6"]
flows = [1, 64]
packed = [false, true]
workers = [1, 2]
behaviors = ["H.Encaps", "End.DX4"]
layouts = ["split", "single-core"]
cpus = { tester = 2, device = 3 }
repeats = 10
seconds = 10
start_rate = 10_000
max_rate = 1e6
resolution_percent = 1
votes = 3
rate = 1000
packets = 1000
"#,
    );
    assert_eq!(all.loss_percent, 1.0);
    assert_eq!(all.families, [Family::Ipv4, Family::Ipv6]);
    assert_eq!((all.cpus.tester, all.cpus.device), (2, 3));
    assert_eq!(all.max_rate, Some(1e6));
    assert_eq!((all.rate(), all.packets()), (1000.0, 1000));
    let groups = all.groups();
    assert_eq!(
        groups.len(),
        32,
        "two of sizes, families, flows, packed, layouts"
    );
    for group in groups {
        let columns: Vec<_> = group
            .iter()
            .map(|(s, case)| (*s, case.workers, case.behavior.map(Behavior::name)))
            .collect();
        let expected = [
            (Subject::KernelForward, 1, None),
            (Subject::Router, 1, None),
            (Subject::Router, 2, None),
            (Subject::Srv6, 1, Some("H.Encaps")),
            (Subject::Srv6, 1, Some("End.DX4")),
        ];
        assert_eq!(
            columns, expected,
            "only routers have workers, only SR nodes behaviors"
        );
    }
}

#[test]
fn mistakes_are_refused_with_their_place() {
    for (addition, expected) in [
        ("repeat = 3", "line 6"),
        ("repeat = 3", "unknown field `repeat`"),
        ("cpus = { tester = 0, sut = 1 }", "unknown field `sut`"),
        ("repeats = \"3\"", "invalid type: string"),
        ("sizes = [\"jumbo\"]", "a length in bytes"),
        ("layouts = [\"spread\"]", "unknown variant"),
        ("sizes = []", "\"one\": sizes: the list is empty"),
        ("sizes = [100, 100]", "sizes: element 1 is there twice"),
        ("sizes = [43]", "43 is out of range; write 44 to 1500"),
        ("sizes = [60]\nfamilies = [\"ipv6\"]", "write 64 to 1500"),
        ("sizes = [\"imix\"]\nfamilies = [\"ipv6\"]", "too short"),
        ("flows = [0]", "flows: 0 is out of range; write 1 to 4096"),
        ("behaviors = [\"Send\"]", "there is no behavior Send"),
        ("workers = [3]", "workers: 3 is out of range; write 1 to 2"),
        ("repeats = 0", "repeats: 0 is out of range"),
        ("seconds = nan", "seconds: NaN is out of range"),
        ("max_rate = 10", "10 is out of range; write 1000 to"),
        ("cpus = { tester = 1, device = 1 }", "CPUs of their own"),
        ("votes = 2", "votes: an even number may be a tie"),
        (LEAST, "there are two experiments \"one\""),
        ("[extra]", "unknown field `extra`"),
    ] {
        let found = problem(&format!("{LEAST}{addition}\n"));
        assert!(
            found.starts_with("my.toml: ") && found.contains(expected),
            "{addition}: {expected} is not in {found}"
        );
    }
    assert!(problem("").contains("missing field `experiment`"));
}

#[test]
fn what_does_not_belong_together_is_refused() {
    let with = |subject: &str, algorithm: &str| {
        let text = LEAST.replace("encapsulate", subject);
        problem(&text.replace("mrr", algorithm))
    };
    assert!(with("encapsulate", "tcp").contains("is no chain"));
    assert!(with("encapsulate", "pipeline").contains("in memory"));
    assert!(with("pipeline-encapsulate", "mrr").contains("in memory"));
    assert!(with("encapsulate", "guess").contains("unknown variant `guess`"));
    assert!(with("srv6", "mrr").contains("behaviors: the list is empty"));
    assert!(with("switch", "mrr").contains("unknown variant `switch`"));
    assert!(with("encapsulate", "program-time").contains("no single BPF program"));
}

#[test]
fn every_experiment_that_is_shipped_can_be_read_and_has_a_name_of_its_own() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments");
    let mut names = Vec::new();
    let mut files = 0;
    for entry in fs::read_dir(folder).expect("the folder") {
        let path = entry.expect("an entry").path();
        let text = fs::read_to_string(&path).expect("a text");
        let experiments = read(&path.display().to_string(), &text).expect("accepted");
        names.extend(experiments.into_iter().map(|experiment| experiment.name));
        files += 1;
    }
    assert_eq!(files, 13);
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count, "{names:?}");
}
