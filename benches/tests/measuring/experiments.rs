//! Reading experiment files: what is accepted, and what is refused where.

use std::{fs, path::Path};

use benches::throughput::{
    experiment::{Algorithm, Family, LatencyLoad, Mix, Scenario, Size, read::read},
    subject::Subject,
};

const LEAST: &str = "
[[experiment]]
name = \"one\"
subjects = [\"encapsulate\"]
algorithm = \"mrr\"
";

fn problems(text: &str) -> Vec<String> {
    let problems = read("my.toml", text).expect_err("a refusal");
    problems.iter().map(ToString::to_string).collect()
}

fn refused(addition: &str, expected: &str) {
    let found = problems(&format!("{LEAST}{addition}\n"));
    assert!(
        found.iter().any(|problem| problem.contains(expected)),
        "{addition}: {expected} is not in {found:#?}"
    );
}

#[test]
fn little_is_enough() {
    let experiments = read("my.toml", LEAST).expect("accepted");
    let [experiment] = &experiments[..] else {
        panic!("one experiment: {experiments:?}");
    };
    assert_eq!(experiment.title, "one");
    assert_eq!(experiment.subjects, [Subject::Encapsulate]);
    assert_eq!(experiment.algorithm, Algorithm::Mrr);
    assert_eq!(experiment.sizes, [Size::Fixed(100)]);
    assert_eq!(experiment.groups().len(), 1);
}

#[test]
fn every_key_is_understood() {
    let text = r#"
[[experiment]]
name = "all"
title = "Everything"
subjects = ["kernel-forward", "encapsulate"]
algorithm = "pdr"
loss_percent = 1
sizes = [64, 1500]
families = ["ipv4", "ipv6"]
flows = [1, 64]
packed = [false, true]
workers = [1, 2]
layouts = ["split", "single-core"]
cpus = { tester = 2, device = 3 }
repeats = 10
seconds = 10
start_rate = 10_000
max_rate = 1e6
resolution_percent = 1
votes = 3
confirmations = 2

[[experiment]]
name = "steps"
subjects = ["router"]
algorithm = "ndr"
steps = 4
rounds = 3
sizes = [124]

[[experiment]]
name = "latency"
subjects = ["chain-sig"]
algorithm = "latency"
share_of_mrr = 0.1
sizes = ["imix"]

[[experiment]]
name = "flood"
subjects = ["chain-sig", "chain-ip"]
algorithm = "flood-ping"
packets = 1000
"#;
    let experiments = read("my.toml", text).expect("accepted");
    let all = &experiments[0];
    assert_eq!(all.algorithm, Algorithm::Pdr { loss_percent: 1.0 });
    assert_eq!(all.families, [Family::Ipv4, Family::Ipv6]);
    assert_eq!((all.cpus.tester, all.cpus.device), (2, 3));
    assert_eq!(all.max_rate, Some(1e6));
    let groups = all.groups();
    assert_eq!(
        groups.len(),
        32,
        "two of sizes, families, flows, packed, layouts"
    );
    for group in groups {
        let columns: Vec<_> = group.iter().map(|(s, case)| (*s, case.workers)).collect();
        let expected = [
            (Subject::KernelForward, 1),
            (Subject::Encapsulate, 1),
            (Subject::Encapsulate, 2),
        ];
        assert_eq!(columns, expected, "the kernel has no workers");
    }
    assert_eq!((all.steps, experiments[1].steps), (None, Some(4)));
    assert_eq!((all.rounds, experiments[1].rounds), (1, 3));
    let load = LatencyLoad::ShareOfMrr(0.1);
    assert_eq!(experiments[2].algorithm, Algorithm::Latency(load));
    assert_eq!(experiments[2].sizes, [Size::Mix(Mix::Imix)]);
    let flood = Scenario::FloodPing { packets: 1000 };
    assert_eq!(experiments[3].algorithm, Algorithm::Scenario(flood));
}

#[test]
fn mistakes_are_refused_with_file_line_and_key() {
    for (addition, expected) in [
        (
            "repeat = 3",
            "my.toml:6: experiment[0].repeat: unknown field `repeat`",
        ),
        (
            "cpus = { tester = 0, sut = 1 }",
            "my.toml:6: experiment[0].cpus.sut: unknown field",
        ),
        (
            "repeats = \"3\"",
            "my.toml:6: experiment[0].repeats: invalid type: string",
        ),
        (
            "sizes = [100, true]",
            "my.toml:6: experiment[0].sizes: a length in bytes",
        ),
        (
            "sizes = [\"jumbo\"]",
            "my.toml:6: experiment[0].sizes: a length in bytes",
        ),
        (
            "flows = 1",
            "my.toml:6: experiment[0].flows: invalid type: integer",
        ),
        (
            "layouts = [\"spread\"]",
            "my.toml:6: experiment[0].layouts[0]: unknown variant",
        ),
        (
            "sizes = []",
            "my.toml:6: experiment[0].sizes: the list is empty",
        ),
        (
            "sizes = [100, 100]",
            "my.toml:6: experiment[0].sizes: element 1 is there twice",
        ),
        (
            "sizes = [43]",
            "my.toml:6: experiment[0].sizes: 43 is out of range",
        ),
        (
            "sizes = [1501]",
            "my.toml:6: experiment[0].sizes: 1501 is out of range",
        ),
        (
            "sizes = [60]\nfamilies = [\"ipv6\"]",
            "sizes: 60 is out of range; write 64 to 1500",
        ),
        (
            "sizes = [\"imix\"]\nfamilies = [\"ipv6\"]",
            "sizes: imix holds packets too short",
        ),
        (
            "flows = [0]",
            "my.toml:6: experiment[0].flows: 0 is out of range; write 1 to 4096",
        ),
        (
            "\nrepeats = 0",
            "my.toml:7: experiment[0].repeats: 0 is out of range",
        ),
        (
            "seconds = nan",
            "my.toml:6: experiment[0].seconds: NaN is out of range",
        ),
        (
            "max_rate = 10",
            "max_rate: 10 is out of range; write 1000 to",
        ),
        (
            "cpus = { tester = 1, device = 1 }",
            "experiment[0].cpus: tester and device",
        ),
        (
            "spread = true\nrounds = 2",
            "experiment[0].rounds: means nothing to repeats that are spread",
        ),
        (
            "rounds = 4",
            "experiment[0].rounds: 4 is out of range; write 1 to 3",
        ),
        ("votes = 2", "experiment[0].votes: 2 may be a tie"),
        (
            "steps = 0",
            "experiment[0].steps: 0 is out of range; write 1 to 1000",
        ),
        (
            "steps = 2\nvotes = 3",
            "experiment[0].votes: means nothing to a search in steps",
        ),
        (
            "loss_percent = 1",
            "experiment[0].loss_percent: means nothing to this algorithm",
        ),
        ("rates = [1]", "experiment[0].rates: means nothing"),
        ("packets = 100", "experiment[0].packets: means nothing"),
        (LEAST, "my.toml:8: experiment[1].name: \"one\" is taken"),
        ("[extra]", "my.toml:6: extra: unknown field"),
        ("= 3", "my.toml:6: "),
    ] {
        refused(addition, expected);
    }
}

#[test]
fn chains_are_not_spread_over_a_run() {
    let text = "[[experiment]]\nname = \"one\"\nsubjects = [\"chain-ip\"]\nalgorithm = \"mrr\"\nspread = true\n";
    let problem = "my.toml:5: experiment[0].spread: chains do not stand beside others";
    assert_eq!(problems(text), [problem]);
}

#[test]
fn a_file_without_experiments_is_refused() {
    assert_eq!(problems(""), ["my.toml:1: missing field `experiment`"]);
    assert!(problems("experiment = []")[0].contains("no experiment"));
}

#[test]
fn what_does_not_belong_together_is_refused() {
    let with = |subject: &str, algorithm: &str| {
        let text = LEAST
            .replace("encapsulate", subject)
            .replace("mrr", algorithm);
        problems(&text).concat()
    };
    assert!(with("encapsulate", "tcp").contains("is no chain"));
    assert!(with("encapsulate", "pipeline").contains("go over devices"));
    assert!(with("pipeline-encapsulate", "mrr").contains("\"pipeline\" only"));
    assert!(with("encapsulate", "sweep").contains("rates: missing"));
    assert!(with("encapsulate", "guess").contains("unknown variant `guess`"));
    assert!(with("switch", "mrr").contains("unknown variant `switch`"));
    assert!(with("encapsulate", "program-time").contains("no single BPF program"));
}

#[test]
fn all_mistakes_of_an_experiment_are_reported_at_once() {
    let found = problems(&format!("{LEAST}repeats = 0\nseconds = 0\nflows = []\n"));
    assert_eq!(found.len(), 3, "{found:#?}");
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
    assert_eq!(files, 8);
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count, "{names:?}");
}
