//! The report as one HTML page that needs nothing else.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{
    number, plot,
    view::{Chart, Shown, View},
};
use crate::throughput::{
    record::Run,
    report::markdown::METHOD,
    targets::{self, Target},
};

const STYLE: &str = "
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, 'DejaVu Sans', sans-serif; color: #24292f; background: #f6f8fa;
  margin: 0; }
main { max-width: 860px; margin: 0 auto; padding: 24px 20px 60px; }
h1 { font-size: 26px; margin: 0 0 4px; }
h2 { font-size: 19px; margin: 0 0 6px; }
h3 { font-size: 14px; margin: 18px 0 4px; color: #57606a; font-weight: 600; }
section { background: #fff; border: 1px solid #d8dee4; border-radius: 8px; padding: 18px 22px;
  margin: 18px 0; overflow-x: auto; }
p { margin: 6px 0; }
.faint { color: #57606a; }
.small { font-size: 13px; }
table { border-collapse: collapse; font-size: 13px; margin: 8px 0; }
th, td { padding: 4px 10px; border-bottom: 1px solid #e4e7eb; text-align: left; vertical-align: top; }
th { color: #57606a; font-weight: 600; border-bottom-color: #afb8c1; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td small { color: #6e7781; display: block; }
.reached { color: #1a7f37; font-weight: 600; }
.missed { color: #bc4c00; font-weight: 600; }
svg { max-width: 100%; height: auto; display: block; margin: 8px 0; }
summary { cursor: pointer; color: #57606a; font-size: 13px; }
code { font-size: 90%; }
ul { margin: 6px 0; padding-left: 20px; }
";

/// The page.
pub fn page(view: &View) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { "sig: measured throughput" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    h1 { "sig: measured throughput" }
                    @if let Some(run) = &view.run { (header(run)) }
                    @if !view.targets.is_empty() {
                        section { h2 { "Targets" } (target_table(&view.targets)) }
                    }
                    @for experiment in &view.experiments { (experiment_section(experiment)) }
                    section {
                        h2 { "Method" }
                        ul class="small" { @for sentence in METHOD { li { (sentence) } } }
                    }
                    @if let Some(run) = &view.run { (machine(run)) }
                }
            }
        }
    };
    page.into_string()
}

fn header(run: &Run) -> Markup {
    html! {
        p class="faint" {
            (run.started) ", sig " (run.version) ", commit " code { (run.commit) } ", "
            (if run.quick { "quick run" } else { "full run" }) ", " (run.cpus) " CPUs, Linux "
            (run.kernel)
        }
    }
}

fn target_table(targets: &[Target]) -> Markup {
    html! {
        p class="small faint" {
            "Ratios between geometric means of the repeats of this run, of TCP streams medians, inverted where less is better, so more is always better."
        }
        table {
            tr { th { "what" } th class="number" { "ratio" } th class="number" { "target" } th {} }
            @for target in targets {
                tr {
                    td { (target.name)
                        @if !target.how.is_empty() { div class="faint small" { (target.how) } } }
                    td class="number" { (target.ratio.map_or("–".to_owned(), targets::show)) }
                    td class="number" { "≥ " (target.target) }
                    td { @match target.is_reached() {
                        Some(true) => span class="reached" { "reached" },
                        Some(false) => span class="missed" { "missed" },
                        None => span class="faint small" {
                            "not run: " (target.reason.as_deref().unwrap_or_default())
                        },
                    } }
                }
            }
        }
    }
}

fn experiment_section(experiment: &Shown) -> Markup {
    html! {
        section id=(experiment.name) {
            h2 { (experiment.title) }
            p class="small faint" { code { (experiment.name) } @if let Some(how) = experiment.how() {
                ": " (how) } }
            @for chart in &experiment.charts {
                @if chart.is_plotted { (plot::svg(chart)) }
            }
            @if !experiment.charts.is_empty() {
                details {
                    summary { "Values: median ± standard deviation (number of repeats)" }
                    @for chart in &experiment.charts { (values(chart)) }
                }
            }
            (remarks(experiment))
        }
    }
}

fn values(chart: &Chart) -> Markup {
    let (unit, places) = (chart.unit, chart.places());
    html! {
        h3 { (chart.title) }
        table {
            tr {
                th {}
                @for place in &places { th class="number" { (place.label()) } }
            }
            @for (n, series) in chart.series.iter().enumerate() {
                tr {
                    td { (series.label) }
                    @for place in &places {
                        td class="number" {
                            @if let Some(point) = series.at(*place) {
                                (number::with_unit(point.median, unit))
                                small {
                                    "± " (number::with_unit(point.deviation, unit))
                                    " (" (point.count) ")"
                                    @if let Some(ratio) = chart.of_limit(n, *place) {
                                        "; " (targets::show(ratio)) " ×"
                                    }
                                }
                            } @else { "–" }
                        }
                    }
                }
            }
        }
    }
}

fn remarks(experiment: &Shown) -> Markup {
    let notes = super::markdown::notes(experiment);
    html! {
        @if experiment.trials > 0 {
            p class="small faint" {
                (experiment.trials) " trials, " (experiment.invalid.values().sum::<usize>())
                " of them invalid"
            }
        }
        @if !experiment.invalid.is_empty() {
            ul class="small faint" {
                @for (reason, count) in &experiment.invalid { li { (count) " × " (reason) } }
            }
        }
        @if !notes.is_empty() {
            h3 { "Remarks" }
            ul class="small" { @for note in notes { li { (note) } } }
        }
        @if !experiment.not_run.is_empty() {
            h3 { "Not run" }
            ul class="small" { @for reason in &experiment.not_run { li { (reason) } } }
        }
    }
}

fn machine(run: &Run) -> Markup {
    html! {
        section {
            h2 { "Machine and configuration" }
            table {
                @for (what, value) in super::markdown::facts(run) {
                    tr { th { (what) } td { (value) } }
                }
            }
        }
    }
}
