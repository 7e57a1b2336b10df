//! The report as Markdown tables.

use std::fmt::Write as _;

use super::{
    number,
    view::{Chart, Shown, View},
};
use crate::throughput::{
    record::Run,
    targets::{self, Target},
};

/// How measurements are made, a sentence each.
pub const METHOD: [&str; 7] = [
    "Rates and counts are inner IP packets, also where several share a SIG frame. Lengths are those of the inner IP packets; an Ethernet frame has 18 bytes more.",
    "Packets are counted by the generator when it sends them and by the sink when they arrive. The sink checks sequence numbers: lost, duplicated and reordered packets are told apart.",
    "A trial does not count if the generator missed its rate by more than 2 %, if more arrived than was sent, or if the hypervisor took the processor away. Such trials are repeated, and never become a result.",
    "The highest rate with tolerated loss is found by bisection. Both ends of the interval are tried: what loses packets at the lowest rate has no result, what loses none at the highest is limited by the tester.",
    "Subjects of an experiment are measured in turns, repeat by repeat, so that what changes on the machine over time hits all of them alike.",
    "Layout \"split\": the receive side of the device (driver, XDP) runs in the generator's soft interrupt, the forwarding thread has a CPU of its own. Layout \"single core\": both on the device's CPU.",
    "Bars and points are medians of the repeats, whiskers one standard deviation to both sides. Ratios of the table of targets are between geometric means, of TCP streams medians, of repeats in which the CPUs were alike far apart.",
];

/// The text.
pub fn text(view: &View) -> String {
    let mut text = String::from("# sig: measured throughput\n");
    if let Some(run) = &view.run {
        text += "\n| | |\n|---|---|\n";
        for (what, value) in facts(run) {
            row(&mut text, [what.to_owned(), value]);
        }
    }
    target_table(&mut text, &view.targets);
    for experiment in &view.experiments {
        section(&mut text, experiment);
    }
    text += "\n## Method\n\n";
    for sentence in METHOD {
        text += &format!("- {sentence}\n");
    }
    text
}

fn target_table(text: &mut String, targets: &[Target]) {
    if targets.is_empty() {
        return;
    }
    *text += "\n## Targets\n\n| what | ratio | target | |\n|---|--:|--:|---|\n";
    for target in targets {
        let state = match (target.is_reached(), &target.reason) {
            (Some(true), _) => "reached".to_owned(),
            (Some(false), _) => "missed".to_owned(),
            (None, reason) => format!("not run: {}", reason.as_deref().unwrap_or_default()),
        };
        let ratio = target.ratio.map_or("–".to_owned(), targets::show);
        row(
            text,
            [
                target.name.to_owned(),
                ratio,
                format!("≥ {}", target.target),
                state,
            ],
        );
    }
}

fn section(text: &mut String, experiment: &Shown) {
    let _ = writeln!(text, "\n## {}\n", experiment.title);
    match experiment.how() {
        Some(how) => {
            let _ = writeln!(text, "`{}`: {how}", experiment.name);
        }
        None => {
            let _ = writeln!(text, "`{}`", experiment.name);
        }
    }
    for chart in &experiment.charts {
        table(text, chart);
    }
    let mut list = |heading: &str, lines: &[String]| {
        if !lines.is_empty() {
            let _ = writeln!(text, "\n{heading}\n");
            for line in lines {
                let _ = writeln!(text, "- {}", line.replace('\n', " "));
            }
        }
    };
    list("Remarks:", &notes(experiment));
    list("Not run:", &experiment.not_run);
    let invalid: Vec<String> = experiment
        .invalid
        .iter()
        .map(|(reason, count)| format!("{count} × {reason}"))
        .collect();
    list(
        &format!("Invalid, of {} trials:", experiment.trials),
        &invalid,
    );
}

fn table(text: &mut String, chart: &Chart) {
    let places = chart.places();
    let mut head = vec![chart.title.clone()];
    head.extend(places.iter().map(|place| place.label()));
    text.push('\n');
    row(text, head);
    *text += &format!("|---|{}\n", "--:|".repeat(places.len()));
    for (n, series) in chart.series.iter().enumerate() {
        let mut cells = vec![series.label.clone()];
        for place in &places {
            cells.push(series.at(*place).map_or("–".to_owned(), |point| {
                let mut cell = format!(
                    "{} ± {}",
                    number::with_unit(point.median, chart.unit),
                    number::with_unit(point.deviation, chart.unit)
                );
                if let Some(ratio) = chart.of_limit(n, *place) {
                    cell += &format!(" ({} ×)", targets::show(ratio));
                }
                cell
            }));
        }
        row(text, cells);
    }
}

fn row(text: &mut String, cells: impl IntoIterator<Item = String>) {
    for cell in cells {
        *text += "| ";
        *text += &cell.replace('|', "\\|").replace('\n', " ");
        text.push(' ');
    }
    *text += "|\n";
}

/// Remarks about single values.
pub(super) fn notes(experiment: &Shown) -> Vec<String> {
    let mut notes = Vec::new();
    for chart in &experiment.charts {
        for series in &chart.series {
            for point in &series.points {
                for note in &point.notes {
                    let note = format!("{}, {}: {note}", series.label, point.x.label());
                    if !notes.contains(&note) {
                        notes.push(note);
                    }
                }
            }
        }
    }
    notes
}

/// Facts about machine and configuration.
pub(super) fn facts(run: &Run) -> Vec<(&'static str, String)> {
    let mut facts = vec![
        ("started", run.started.clone()),
        ("sig", format!("{}, commit {}", run.version, run.commit)),
        ("kernel", run.kernel.clone()),
        ("processor", format!("{}, {} CPUs", run.cpu, run.cpus)),
        ("experiments", run.experiments.join(", ")),
        ("configuration", run.configuration.clone()),
    ];
    facts.extend(run.notes.iter().map(|note| ("note", note.clone())));
    facts
}
