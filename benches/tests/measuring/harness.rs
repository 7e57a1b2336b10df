//! The orchestrator and the command line, with subjects that are only pretended.

use std::{
    cell::RefCell,
    fs,
    rc::Rc,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use anyhow::{Result, anyhow};
use benches::throughput::{
    cli::{self, Arguments},
    experiment::{Case, Experiment, read::read},
    progress::Progress,
    record::{self, Figure, Metric, Record, Run},
    run::{Workbench, failures, run},
    scenario::Outcome,
    subject::{Device, Refusal, Subject},
    trial::{Rate, Trial, Validity},
};
use clap::Parser as _;
use testbed::Folder;

/// Subjects that receive what they are said to, and a list of what was done.
#[derive(Default)]
struct Pretended {
    done: Rc<RefCell<Vec<String>>>,
}

struct Forwarder {
    subject: Subject,
    done: Rc<RefCell<Vec<String>>>,
    trials: u64,
}

impl Device for Forwarder {
    fn trial(&mut self, rate: Rate, length: Duration) -> Result<Trial> {
        self.done.borrow_mut().push(self.subject.name());
        self.trials += 1;
        if self.subject == Subject::KernelVxlan && self.trials == 2 {
            return Err(anyhow!("it has ended"));
        }
        let rate = match rate {
            Rate::Max => 1e6,
            Rate::PacketsPerSecond(rate) => rate,
        };
        let sent = (rate * length.as_secs_f64()) as u64;
        let mut trial = Trial {
            seconds: length.as_secs_f64(),
            sent,
            received: sent / 2,
            ..Trial::default()
        };
        trial.cpu.insert("workers".into(), 0.3);
        trial.cpu.insert("process".into(), 0.4);
        trial.cpu.insert("napi".into(), 0.2);
        // Every other trial of this one, or every one of that one, does not count.
        if self.subject == Subject::XdpRedirect && self.trials % 2 == 1
            || self.subject == Subject::TcRedirect
        {
            trial.validity = Validity::Invalid("the generator missed its rate".into());
            trial.received = sent * 9;
        }
        Ok(trial)
    }
}

impl Workbench for Pretended {
    fn open(&mut self, subject: Subject, _case: &Case) -> Result<Box<dyn Device>, Refusal> {
        match subject {
            Subject::ChainReference => Err(Refusal::NotHere("REF_BIN is not set".into())),
            Subject::AfXdpForward => Err(Refusal::Failed(anyhow!("no socket"))),
            _ => Ok(Box::new(Forwarder {
                subject,
                done: self.done.clone(),
                trials: 0,
            })),
        }
    }

    fn play(
        &mut self,
        subject: Subject,
        _case: &Case,
        _experiment: &Experiment,
    ) -> Result<Outcome, Refusal> {
        self.done.borrow_mut().push(subject.name());
        if subject == Subject::ChainReference {
            return Err(Refusal::NotHere("REF_BIN is not set".into()));
        }
        Ok(Outcome {
            values: vec![(Metric::TcpForward, 1e9), (Metric::TcpReverse, 2e9)],
            notes: vec!["a remark".into()],
        })
    }
}

fn experiment(subjects: &str, algorithm: &str) -> String {
    format!(
        "[[experiment]]\nname = \"{algorithm}\"\nsubjects = [{subjects}]\n\
         algorithm = \"{algorithm}\"\nrepeats = 3\nseconds = 1\n"
    )
}

fn records(text: &str) -> (Vec<Record>, Vec<String>) {
    let experiments = read("my.toml", text).expect("accepted");
    let mut workbench = Pretended::default();
    let mut out = Vec::new();
    let progress = Progress::hidden();
    let records = run(
        Run::default(),
        &experiments,
        &mut workbench,
        &mut out,
        progress,
    )
    .expect("it ends");
    // Tests run side by side.
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let label = format!("harness{}", RUNS.fetch_add(1, Ordering::Relaxed));
    let folder = Folder::new(&label).expect("a folder");
    let file = folder.path().join("run.jsonl");
    fs::write(&file, out).expect("written");
    assert!(
        record::read(&file).expect("records") == records,
        "all is written"
    );
    (records, workbench.done.take())
}

fn figures(records: &[Record]) -> Vec<&Figure> {
    let figures = records.iter().filter_map(|record| match record {
        Record::Figure(figure) => Some(figure),
        _ => None,
    });
    figures.collect()
}

#[test]
fn repeats_take_turns() {
    let text = experiment("\"xdp-drop\", \"kernel-forward\"", "mrr");
    let (records, done) = records(&text);
    let turn = ["xdp-drop", "kernel-forward"];
    assert_eq!(done, [turn, turn, turn].concat());
    let figures = figures(&records);
    let of = |metric| {
        figures
            .iter()
            .filter(move |figure| figure.key.metric == metric)
    };
    assert_eq!(figures.len(), 4);
    assert_eq!(of(Metric::Mrr).count(), 2);
    assert!(of(Metric::Mrr).all(|figure| figure.values == [5e5; 3]));
    assert!(of(Metric::PerCpuSecond).all(|figure| figure.values == [1e6; 3]));
    let trials = records
        .iter()
        .filter(|record| matches!(record, Record::Trial { .. }));
    assert_eq!(trials.count(), 6);
}

#[test]
fn what_is_not_here_is_recorded_and_the_rest_goes_on() {
    let text = experiment("\"chain-reference\", \"chain-sig\"", "mrr");
    let (records, _) = records(&text);
    let figures = figures(&records);
    assert!(!figures.is_empty());
    assert!(
        figures
            .iter()
            .all(|figure| figure.key.subject == Subject::ChainSig)
    );
    assert!(records.iter().any(|record| matches!(record, Record::NotRun { subject: Subject::ChainReference, failed: false, reason, .. } if reason == "REF_BIN is not set")));
    assert!(
        failures(&records).is_empty(),
        "a machine without it is no failure"
    );
}

#[test]
fn what_breaks_is_a_failure_and_keeps_its_values() {
    let text = experiment("\"af-xdp-forward\", \"kernel-vxlan\", \"xdp-drop\"", "mrr");
    let (records, _) = records(&text);
    let failures = failures(&records);
    assert_eq!(failures.len(), 2, "{failures:?}");
    assert!(failures[0].contains("af-xdp-forward 100 B: no socket"));
    assert!(failures[1].contains("kernel-vxlan 100 B: it has ended"));
    let figures = figures(&records);
    let vxlan = figures
        .iter()
        .find(|figure| figure.key.subject == Subject::KernelVxlan);
    let vxlan = vxlan.expect("what was measured before");
    assert_eq!(vxlan.values.len(), 1);
    assert!(
        vxlan.notes.iter().any(|note| note == "1 of 3 repeats"),
        "{:?}",
        vxlan.notes
    );
    assert_eq!(figures.last().map(|figure| figure.values.len()), Some(3));
}

#[test]
fn a_trial_that_does_not_count_is_never_a_result() {
    let (records, _) = records(&experiment("\"xdp-redirect\", \"tc-redirect\"", "mrr"));
    let figures = figures(&records);
    assert_eq!(figures[0].values, [5e5; 3], "tried again until it counts");
    assert!(
        figures
            .iter()
            .all(|figure| figure.key.subject == figures[0].key.subject)
    );
    let why = records.iter().find_map(|record| match record {
        Record::NotRun {
            subject: Subject::TcRedirect,
            reason,
            ..
        } => Some(reason.as_str()),
        _ => None,
    });
    assert!(
        why.is_some_and(|why| why.contains("missed its rate")),
        "{why:?}"
    );
}

#[test]
fn scenarios_yield_several_metrics() {
    let (records, done) = records(&experiment(
        "\"chain-ip\", \"chain-reference\", \"chain-sig\"",
        "tcp",
    ));
    assert_eq!(figures(&records).len(), 4);
    assert_eq!(
        done.iter()
            .filter(|name| *name == "chain-reference")
            .count(),
        1
    );
    assert_eq!(figures(&records)[0].notes, ["a remark"]);
}

fn path_in(folder: &Folder, name: &str) -> String {
    folder.path().join(name).display().to_string()
}

fn command(arguments: &[&str]) -> Result<()> {
    let arguments = Arguments::try_parse_from(["throughput", "--bench"].iter().chain(arguments))?;
    cli::run(&arguments, || Ok(Pretended::default()))
}

#[test]
fn a_run_leaves_results_and_reports() {
    let folder = Folder::new("run").expect("a folder");
    let file = path_in(&folder, "my.toml");
    let chains = "\"chain-ip\", \"chain-reference\", \"chain-sig\"";
    let experiments = experiment("\"xdp-drop\"", "mrr") + &experiment(chains, "tcp");
    fs::write(&file, experiments).expect("written");
    let (out, json) = (path_in(&folder, "out"), path_in(&folder, "t.json"));
    command(&[
        "--experiment",
        &file,
        "--output",
        &out,
        "--json",
        &json,
        "--repeats",
        "2",
    ])
    .expect("a run");
    let results = path_in(&folder, "out/results.jsonl");
    let records = record::read(results.as_ref()).expect("results");
    let Some(Record::Run(run)) = records.first() else {
        panic!("the first line tells where it ran");
    };
    assert!(!run.kernel.is_empty() && !run.commit.is_empty() && run.cpus > 0);
    assert_eq!(run.plan[0].repeats, 2, "{:?}", run.plan);
    assert_eq!(
        run.experiments.last().map(String::as_str),
        Some("2 repeats")
    );
    let report = fs::read_to_string(path_in(&folder, "out/report.md")).expect("a report");
    assert!(report.contains("XDP drop"), "{report}");
    assert!(fs::metadata(path_in(&folder, "out/plots/mrr-mrr.svg")).is_ok());
    let again = path_in(&folder, "again");
    command(&["--render", &results, "--output", &again]).expect("a report of earlier results");
    let rendered = fs::read_to_string(path_in(&folder, "again/report.md")).expect("a report");
    assert_eq!(rendered, report);
    let json = fs::read_to_string(json).expect("targets");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let targets = json["targets"].as_array().expect("a list");
    let [reference, ip] = targets.as_slice() else {
        panic!("the run measured TCP only: {targets:?}");
    };
    assert_eq!(reference["name"], "chain TCP / reference default");
    assert_eq!(
        (&reference["target"], &reference["ratio"]),
        (&10.0.into(), &serde_json::Value::Null)
    );
    assert_eq!(reference["reason"], "chain-reference: REF_BIN is not set");
    assert_eq!(
        (&ip["ratio"], &ip["reason"]),
        (&1.0.into(), &serde_json::Value::Null)
    );
}

#[test]
fn failures_end_with_an_error_after_the_reports() {
    let folder = Folder::new("failing").expect("a folder");
    let file = path_in(&folder, "my.toml");
    fs::write(&file, experiment("\"af-xdp-forward\"", "mrr")).expect("written");
    let out = path_in(&folder, "out");
    let error = command(&["--experiment", &file, "--output", &out]).expect_err("a failure");
    assert!(error.to_string().contains("1 failures"), "{error}");
    assert!(fs::metadata(path_in(&folder, "out/report.md")).is_ok());
}

#[test]
fn mistakes_on_the_command_line_are_found_before_anything_is_measured() {
    let measures = |arguments: &[&str]| {
        let arguments = Arguments::try_parse_from(["throughput"].iter().chain(arguments))?;
        cli::run(&arguments, || -> Result<Pretended> {
            panic!("nothing is measured")
        })
    };
    for (arguments, expected) in [
        (&["--experiment", "none.toml"][..], "there is no such file"),
        (
            &["--quick", "--only", "none"],
            "there is no such experiment; there are quick-",
        ),
        (
            &["--quick", "--experiment", "limits"],
            "cannot be used with",
        ),
        (
            &["--experiment", "limits", "--experiment", "limits.toml"],
            "another file has",
        ),
        (&["--repeats", "0"], "0 is not in 1..=1000"),
    ] {
        let error = measures(arguments).expect_err("a refusal");
        assert!(
            format!("{error:#}").contains(expected),
            "{arguments:?}: {error:#}"
        );
    }
}

#[test]
fn a_wrong_file_is_refused_with_its_line() {
    let folder = Folder::new("wrong").expect("a folder");
    let file = path_in(&folder, "my.toml");
    fs::write(&file, experiment("\"xdp-drop\"", "mrr") + "repeat = 1\n").expect("written");
    let error = command(&["--experiment", &file]).expect_err("a refusal");
    let text = format!("{error:#}");
    assert!(
        text.contains("my.toml: TOML parse error at line 7"),
        "{text}"
    );
}
