//! The report as Markdown, with the plots beside it.

use std::fmt::Write as _;

use super::{
    number,
    view::{Chart, Shown, View},
};
use crate::throughput::{record::Run, targets::Table};

/// The text.
pub fn text(view: &View) -> String {
    let mut text = String::from("# sig: measured throughput\n");
    if let Some(run) = &view.run {
        text += "\n| | |\n|---|---|\n";
        for (what, value) in facts(run) {
            row(&mut text, [what.to_owned(), value]);
        }
    }
    if !view.targets.is_empty() {
        let _ = write!(text, "\n## Targets\n\n```\n{}```\n", Table(&view.targets));
    }
    for experiment in &view.experiments {
        section(&mut text, experiment);
    }
    text + "\nTables and plots show medians of the repeats ± one standard deviation. The method is in docs/measuring.md.\n"
}

fn section(text: &mut String, experiment: &Shown) {
    let Shown { name, title, .. } = experiment;
    let _ = writeln!(text, "\n## {title}\n\n`{name}`");
    for chart in &experiment.charts {
        table(text, chart);
        let _ = writeln!(text, "\n![{}](plots/{}.svg)", chart.title, chart.name);
    }
    let mut list = |heading: &str, lines: &[String]| {
        if !lines.is_empty() {
            let _ = writeln!(text, "\n{heading}\n");
            for line in lines {
                let _ = writeln!(text, "- {}", line.replace('\n', " "));
            }
        }
    };
    list("Remarks:", &experiment.notes);
    list("Not run:", &experiment.not_run);
    let invalid = experiment.invalid.iter();
    let invalid: Vec<_> = invalid
        .map(|(reason, count)| format!("{count} × {reason}"))
        .collect();
    let heading = format!("Invalid, of {} trials:", experiment.trials);
    list(&heading, &invalid);
}

fn table(text: &mut String, chart: &Chart) {
    let places = chart.places();
    let mut head = vec![chart.title.to_owned()];
    head.extend(places.iter().map(ToString::to_string));
    text.push('\n');
    row(text, head);
    *text += &format!("|---|{}\n", "--:|".repeat(places.len()));
    for series in &chart.series {
        let value = |value| number::with_unit(value, chart.unit);
        let mut cells = vec![series.label.clone()];
        cells.extend(places.iter().map(|place| {
            series.at(*place).map_or("–".to_owned(), |point| {
                format!("{} ± {}", value(point.median), value(point.deviation))
            })
        }));
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

/// Facts about machine and configuration.
fn facts(run: &Run) -> Vec<(&'static str, String)> {
    let mut facts = vec![
        ("started", run.started.clone()),
        ("sig", format!("{}, commit {}", run.version, run.commit)),
        ("kernel", run.kernel.clone()),
        ("processor", format!("{}, {} CPUs", run.cpu, run.cpus)),
        ("experiments", run.experiments.join(", ")),
    ];
    facts.extend(run.notes.iter().map(|note| ("note", note.clone())));
    facts
}
