//! The orchestrator and the command line, with subjects that are only pretended.

use std::{cell::RefCell, collections::HashSet, fs, path::PathBuf, rc::Rc, thread, time::Duration};

use anyhow::{Result, anyhow};
use benches::throughput::{
    cli::{self, Arguments},
    experiment::{Case, Scenario, read::read},
    progress::Progress,
    record::{self, Figure, Metric, Record, Run},
    run::{Workbench, failures, run},
    scenario::Outcome,
    subject::{Device, Refusal, Subject},
    trial::{Rate, Trial, Validity},
};
use clap::Parser as _;

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
        thread::sleep(Duration::from_millis(1));
        self.done.borrow_mut().push(self.subject.name());
        self.trials += 1;
        let is_far = self.trials.is_multiple_of(2);
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
            distance: Some(if is_far { 150.0 } else { 30.0 })
                .filter(|_| self.subject == Subject::AfXdpDrop),
            ..Trial::default()
        };
        trial.cpu.insert("workers".into(), 0.3);
        trial.cpu.insert("process".into(), 0.4);
        trial.cpu.insert("napi".into(), 0.2);
        trial.cpu.insert("softirq".into(), 0.4);
        // Every other trial of this one, or every one of that one, does not count.
        if self.subject == Subject::XdpRedirect && self.trials % 2 == 1
            || self.subject == Subject::TcRedirect
        {
            trial.validity = Validity::Invalid("the generator missed its rate".into());
            trial.received = sent * 9;
        }
        // The host is busy in the beginning.
        if self.subject == Subject::DecapsulateHelper && self.trials <= 7 {
            trial.validity = Validity::Invalid("the hypervisor took a CPU".into());
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
        _scenario: Scenario,
        _seconds: f64,
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
    records_of(Run::default(), text)
}

fn records_of(description: Run, text: &str) -> (Vec<Record>, Vec<String>) {
    let experiments = read("my.toml", text).expect("accepted");
    let mut workbench = Pretended::default();
    let mut out = Vec::new();
    let progress = Progress::hidden();
    let records = run(
        description,
        &experiments,
        &mut workbench,
        &mut out,
        progress,
    )
    .expect("it ends");
    let file = crate::support::File::with("run.jsonl", str::from_utf8(&out).expect("text"));
    assert!(
        record::read(&file.0).expect("records") == records,
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
fn what_is_spread_is_measured_between_the_others() {
    let spread = experiment("\"pipeline-encapsulate\"", "pipeline") + "spread = true\n";
    let text = experiment("\"xdp-drop\"", "mrr") + &spread + &experiment("\"af-xdp-drop\"", "ndr");
    let (records, done) = records(&text);
    let place = |name: &str| done.iter().position(|subject| subject == name);
    assert_eq!(done[0], "pipeline-encapsulate");
    assert!(place("xdp-drop") < place("af-xdp-drop"));
    let between = &done[place("xdp-drop").unwrap()..place("af-xdp-drop").unwrap()];
    assert_eq!(between[3..], ["pipeline-encapsulate"; 2], "{done:?}");
    let figures = figures(&records);
    let last = figures.last().expect("figures");
    assert_eq!(last.key.subject, Subject::PipelineEncapsulate);
    assert_eq!(last.values.len(), 3);
}

#[test]
fn what_a_busy_host_spoilt_of_what_is_spread_is_made_up_for() {
    let spread = experiment("\"decapsulate-helper\", \"encapsulate\"", "mrr") + "spread = true\n";
    let text = experiment("\"xdp-drop\"", "pdr") + &spread + &experiment("\"af-xdp-drop\"", "ndr");
    let (records, done) = records(&text);
    let spoilt = figures(&records)
        .into_iter()
        .find(|figure| figure.key.subject == Subject::DecapsulateHelper)
        .expect("a figure");
    assert_eq!(spoilt.values.len(), 2, "{spoilt:?}");
    let encapsulations = done.iter().filter(|subject| *subject == "encapsulate");
    assert_eq!(encapsulations.count(), 3, "{done:?}");
}

#[test]
fn groups_take_turns_in_rounds() {
    let text = experiment("\"xdp-drop\"", "mrr") + "sizes = [100, 200]\nrounds = 2\n";
    let (records, _) = records(&text);
    let sizes: Vec<_> = records
        .iter()
        .filter_map(|record| match record {
            Record::Trial { key, repeat, .. } => Some((key.case.size.to_string(), *repeat)),
            _ => None,
        })
        .collect();
    let order = [
        ("100", 0),
        ("200", 0),
        ("100", 1),
        ("100", 2),
        ("200", 1),
        ("200", 2),
    ];
    let order = order.map(|(size, repeat)| (format!("{size} B"), repeat));
    assert_eq!(sizes, order);
    assert!(
        figures(&records)
            .iter()
            .all(|figure| figure.values.len() == 3)
    );
}

#[test]
fn parts_of_neighbouring_experiments_take_turns() {
    let in_parts = experiment("\"xdp-drop\"", "mrr") + "rounds = 3\n";
    let neighbour = experiment("\"chain-sig\"", "tcp") + "rounds = 2\n";
    let alone = experiment("\"kernel-forward\"", "per-cpu-second");
    let (_, mut done) = records(&(in_parts + &neighbour + &alone));
    done.dedup();
    let order = [
        "xdp-drop",
        "chain-sig",
        "xdp-drop",
        "chain-sig",
        "xdp-drop",
        "kernel-forward",
    ];
    assert_eq!(done, order);
}

#[test]
fn figures_know_how_far_the_cpus_were_apart() {
    let (records, _) = records(&experiment("\"af-xdp-drop\", \"xdp-drop\"", "mrr"));
    for figure in figures(&records) {
        let known = figure.key.subject == Subject::AfXdpDrop;
        let expected: &[_] = if known {
            &[Some(30.0), Some(150.0), Some(30.0)]
        } else {
            &[]
        };
        assert_eq!(figure.distances, expected, "{}", figure.key);
    }
}

#[test]
fn a_run_of_a_given_length_has_as_many_repeats_as_there_is_time_for() {
    let spread = experiment("\"pipeline-encapsulate\"", "pipeline") + "spread = true\n";
    let text = experiment("\"xdp-drop\", \"chain-reference\"", "mrr") + &spread;
    let within = |seconds| {
        let run = Run {
            seconds: Some(seconds),
            ..Run::default()
        };
        let (records, _) = records_of(run, &text);
        let figures = figures(&records).into_iter();
        figures
            .map(|figure| (figure.key.subject, figure.values.len()))
            .collect::<Vec<_>>()
    };
    let least = within(0.0);
    assert!(least.iter().all(|(_, repeats)| *repeats == 1), "{least:?}");
    let subjects: HashSet<_> = least.iter().map(|(subject, _)| *subject).collect();
    assert_eq!(
        subjects,
        HashSet::from([Subject::XdpDrop, Subject::PipelineEncapsulate])
    );
    let found = within(1.0);
    assert_eq!(found.len(), least.len());
    assert!(found.iter().all(|(_, repeats)| *repeats > 3), "{found:?}");
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
fn only_workers_and_the_receive_side_are_the_devices_time() {
    let (records, _) = records(&experiment("\"encapsulate\"", "per-cpu-second"));
    assert_eq!(figures(&records)[0].values, [1e6; 3]);
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

#[test]
fn sweeps_leave_trials() {
    let text = experiment("\"xdp-drop\"", "sweep") + "rates = [1000, 2000]\n";
    let (records, _) = records(&text);
    let trials = records.iter().filter(
        |record| matches!(record, Record::Trial { key, .. } if key.metric == Metric::DeliveryRatio),
    );
    assert_eq!(trials.count(), 6);
}

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("sig-benches-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn command(arguments: &[&str]) -> Result<()> {
    let arguments = Arguments::try_parse_from(["throughput", "--bench"].iter().chain(arguments))?;
    cli::run(&arguments, || Ok(Pretended::default()))
}

#[test]
fn a_run_leaves_results_and_reports() {
    let folder = Folder::new("run");
    let file = folder.file("my.toml");
    let chains = "\"chain-ip\", \"chain-reference\", \"chain-sig\"";
    let experiments = experiment("\"xdp-drop\"", "mrr") + &experiment(chains, "tcp");
    fs::write(&file, experiments).expect("written");
    let (out, json, plots) = (
        folder.file("out"),
        folder.file("t.json"),
        folder.file("plots"),
    );
    command(&[
        "--experiment",
        &file,
        "--output",
        &out,
        "--json",
        &json,
        "--plots",
        &plots,
        "--repeats",
        "2",
    ])
    .expect("a run");
    let results = folder.file("out/results.jsonl");
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
    assert!(
        fs::read_to_string(folder.file("out/report.html"))
            .expect("a page")
            .contains("XDP drop")
    );
    assert!(fs::metadata(folder.file("out/report.md")).is_ok());
    assert!(fs::metadata(folder.file("plots/mrr-mrr.svg")).is_ok());
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
    let folder = Folder::new("failing");
    let file = folder.file("my.toml");
    fs::write(&file, experiment("\"af-xdp-forward\"", "mrr")).expect("written");
    let out = folder.file("out");
    let error = command(&["--experiment", &file, "--output", &out]).expect_err("a failure");
    assert!(error.to_string().contains("1 failures"), "{error}");
    assert!(fs::metadata(folder.file("out/report.html")).is_ok());
}

#[test]
fn comparison_fails_below_the_ratio() {
    let folder = Folder::new("compare");
    let with = |name: &str, rate: f64| {
        let record =
            crate::support::figure("a", Subject::XdpDrop, Case::of(100), Metric::Mrr, &[rate]);
        let file = folder.file(name);
        fs::write(&file, serde_json::to_string(&record).expect("JSON") + "\n").expect("written");
        file
    };
    let (old, new) = (with("old.jsonl", 1e6), with("new.jsonl", 0.7e6));
    let compare = |at_least: &[&str]| {
        let arguments = ["--render", &new, "--compare", &old];
        command(&[&arguments[..], at_least].concat())
    };
    assert!(compare(&[]).is_err(), "0.7 is below 0.8");
    compare(&["--at-least", "0.6"]).expect("0.7 is enough");
    assert!(compare(&["--at-least", "0.71"]).is_err());
    assert!(compare(&["--at-least", "nan"]).is_err());
    let missing = folder.file("none.jsonl");
    assert!(command(&["--render", &new, "--compare", &missing]).is_err());
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
        (&["--quick", "--compare", "none.jsonl"], "cannot read"),
        (
            &["--experiment", "limits", "--experiment", "limits.toml"],
            "another file has",
        ),
        (&["--repeats", "0"], "0 is not in 1..=1000"),
        (&["--minutes", "0"], "write 0.01 to 10000"),
        (&["--minutes", "5m"], "write a number"),
        (&["--minutes", "5", "--repeats", "2"], "cannot be used with"),
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
    let folder = Folder::new("wrong");
    let file = folder.file("my.toml");
    fs::write(&file, experiment("\"xdp-drop\"", "mrr") + "repeat = 1\n").expect("written");
    let error = command(&["--experiment", &file]).expect_err("a refusal");
    let text = error.to_string();
    assert!(text.contains("my.toml:7: experiment[0].repeat: "), "{text}");
}
