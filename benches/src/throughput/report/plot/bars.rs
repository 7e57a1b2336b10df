//! Horizontal bars, in groups, against a limit.

use maud::{Markup, html};

use super::{FAINT, TEXT, WIDTH, colour, frame, line, one, scale::Scale, text, whisker, width};
use crate::throughput::{
    experiment::Size,
    report::{number, view::Chart},
    subject::Subject,
};

const BAR: f64 = 18.0;
const GAP: f64 = 6.0;
const HEADING: f64 = 26.0;
/// Room for the values at the ends of bars.
const VALUES: f64 = 170.0;

pub(super) fn draw(chart: &Chart) -> Markup {
    let names = chart.series.iter().map(|series| width(&series.label));
    let left = (names.fold(0.0, f64::max) + 24.0).min(WIDTH / 2.0);
    let points = || chart.series.iter().flat_map(|series| &series.points);
    let high = points().fold(0.0, |high: f64, point| {
        high.max(point.median + point.deviation)
    });
    let x = Scale::linear(0.0, high, left, WIDTH - VALUES);
    let mut y = 30.0;
    let mut groups = Vec::new();
    for place in chart.places() {
        let bars = chart
            .series
            .iter()
            .filter(|series| series.at(place).is_some())
            .count();
        groups.push(group(chart, place, &x, left, y));
        y += HEADING + bars as f64 * (BAR + GAP) + GAP;
    }
    let content = html! {
        (text(12.0, 18.0, "start", FAINT, chart.title))
        @for group in groups { (group) }
    };
    frame(chart, y, &content)
}

fn group(chart: &Chart, place: Size, x: &Scale, left: f64, top: f64) -> Markup {
    let rows = chart.series.iter();
    let rows: Vec<_> = rows
        .filter_map(|series| Some((series, series.at(place)?)))
        .collect();
    let first = top + HEADING;
    let is_limit = |subject| matches!(subject, Subject::AfXdpForward | Subject::ChainIp);
    let limit = rows.iter().find(|(series, _)| is_limit(series.subject));
    let bottom = first + rows.len() as f64 * (BAR + GAP);
    html! {
        text x="12" y=(one(top + 17.0)) font-weight="600" { (place) }
        @if let Some((_, limit)) = limit {
            (line((x.at(limit.median), first - 4.0), (x.at(limit.median), bottom), FAINT, 1.0, Some("3 3")))
        }
        @for (row, (series, point)) in rows.iter().enumerate() {
            @let y = first + row as f64 * (BAR + GAP);
            @let end = x.at(point.median);
            (text(left - 8.0, y + 13.0, "end", TEXT, &series.label))
            rect x=(one(left)) y=(one(y)) width=(one((end - left).max(1.0))) height=(one(BAR))
                rx="2" fill=(colour(series.subject)) fill-opacity=(opacity(series.variant)) {}
            @if point.count > 1 {
                (whisker(
                    (x.at(point.median - point.deviation), y + BAR / 2.0),
                    (x.at(point.median + point.deviation), y + BAR / 2.0),
                    TEXT,
                ))
            }
            @let edge = x.at(point.median + point.deviation).max(end);
            text x=(one(edge + 8.0)) y=(one(y + 13.0)) stroke="#ffffff" stroke-width="5" paint-order="stroke" {
                (number::with_unit(point.median, chart.unit))
            }
        }
    }
}

/// Series of one subject are told apart by their labels; the shade helps.
fn opacity(variant: usize) -> f64 {
    [1.0, 0.7, 0.5, 0.35][variant.min(3)]
}
