//! Records that were made up.

use benches::throughput::{
    experiment::Case,
    record::{Figure, Key, Metric, Record, Run},
    subject::Subject,
    trial::{Trial, Validity},
};

fn key(experiment: &str, subject: Subject, case: Case, metric: Metric) -> Key {
    Key {
        experiment: experiment.into(),
        subject,
        case,
        metric,
    }
}

pub(crate) fn figure(
    experiment: &str,
    subject: Subject,
    case: Case,
    metric: Metric,
    values: &[f64],
) -> Record {
    Record::Figure(Figure {
        key: key(experiment, subject, case, metric),
        values: values.to_vec(),
        notes: Vec::new(),
    })
}

pub(crate) fn not_run(experiment: &str, subject: Subject, reason: &str) -> Record {
    Record::NotRun {
        experiment: experiment.into(),
        subject,
        case: Case::of(100),
        reason: reason.into(),
        failed: false,
    }
}

/// A run with something of everything.
pub(crate) fn records() -> Vec<Record> {
    use Metric::*;
    use Subject::*;
    let mut records = vec![Record::Run(Run {
        started: "2026-01-02T03:04:05Z".into(),
        version: "0.1.0".into(),
        commit: "0123456789ab+".into(),
        kernel: "6.18".into(),
        cpu: "A <fast> processor & more".into(),
        cpus: 2,
        quick: true,
        experiments: vec!["quick.toml".into()],
        notes: vec!["2 packets <lost>".into()],
        ..Run::default()
    })];
    let packed = Case {
        packed: true,
        ..Case::of(100)
    };
    let two = Case {
        workers: 2,
        ..Case::of(100)
    };
    let mut add = |experiment: &str, subject, case: Case, metric, values: &[f64]| {
        records.push(figure(experiment, subject, case, metric, values));
    };
    for (subject, values) in [
        (AfXdpForward, [1e6, 2e6, 0.5e6]),
        (Encapsulate, [0.95e6, 0.475e6, 1.9e6]),
        (Decapsulate, [0.8e6, 0.7e6, 0.9e6]),
    ] {
        add("lab", subject, Case::of(100), PerCpuSecond, &values);
        add("lab", subject, Case::of(100), Mrr, &values);
    }
    add("packed", AfXdpForward, packed.clone(), PerCpuSecond, &[1e6]);
    add("packed", Encapsulate, packed.clone(), PerCpuSecond, &[3e6]);
    add("workers", PipelineEncapsulate, Case::of(100), Mrr, &[14e6]);
    add("workers", PipelineEncapsulate, two, Mrr, &[26.6e6]);
    add(
        "chain",
        ChainSig,
        packed.clone(),
        Pdr,
        &[400e3, 500e3, 320e3],
    );
    add("chain", ChainReference, packed, Pdr, &[10e3, 12.5e3, 8e3]);
    add("tcp", ChainIp, Case::of(1300), TcpForward, &[2e9]);
    add("tcp", ChainSig, Case::of(1300), TcpForward, &[1.2e9]);
    add("tcp", ChainIp, Case::of(1300), TcpReverse, &[2.5e9]);
    add("tcp", ChainSig, Case::of(1300), TcpReverse, &[0.375e9]);
    add("cpu", ChainIp, Case::of(100), CpuAll, &[25.0]);
    add("cpu", ChainSig, Case::of(100), CpuAll, &[29.0]);
    add("cpu", ChainReference, Case::of(100), CpuAll, &[165.0]);
    add("rtt", ChainIp, Case::of(100), RttIdle, &[50.0, 40.0, 62.5]);
    add("rtt", ChainSig, Case::of(100), RttIdle, &[90.0]);
    for size in (100..=1300).step_by(100) {
        let slower = f64::from(size) / 10.0;
        let around = |value: f64| [value * 0.9, value, value * 1.1];
        for (subject, least) in [
            (ChainSig, 990.0),
            (ChainReference, 7990.0),
            (ChainIp, 690.0),
        ] {
            let values = around(least + slower);
            add("flood", subject, Case::of(size), FloodRttAvg, &values);
        }
    }
    add("restart", ChainSig, Case::of(100), Outage, &[0.5]);
    add("restart", ChainReference, Case::of(100), Outage, &[10.0]);
    add("memory", PipelineEncapsulate, Case::of(100), Mrr, &[14e6]);
    add("memory", PipelineDecapsulate, Case::of(100), Mrr, &[5e6]);
    let busy = Validity::Invalid("more arrived than was sent".into());
    for validity in [Validity::Valid, busy] {
        records.push(Record::Trial {
            key: key("lab", Encapsulate, Case::of(100), Mrr),
            repeat: 0,
            trial: Trial {
                validity,
                ..Trial::default()
            },
        });
    }
    records.push(not_run("chain", ChainMixed, "REF_BIN is not set"));
    records
}
