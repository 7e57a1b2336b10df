//! Lines with error bars.

use maud::{Markup, html};

use super::{
    FAINT, GRID, TEXT, WIDTH, colour, frame, line, one, scale::Scale, text, whisker, width,
};
use crate::throughput::{
    record::Unit,
    report::{
        number,
        view::{self, Chart, Series},
    },
};

const LEFT: f64 = 64.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 30.0;
const HEIGHT: f64 = 290.0;
const BOTTOM: f64 = 46.0;
const LEGEND_ROW: f64 = 18.0;

/// Values that lie further apart are drawn over a logarithmic axis.
const DECADES_FROM: f64 = 60.0;

/// Line styles of series of one subject.
const DASHES: [Option<&str>; 4] = [None, Some("6 3"), Some("2 3"), Some("8 3 2 3")];

pub(super) fn draw(chart: &Chart) -> Markup {
    let (right, bottom) = (WIDTH - RIGHT, TOP + HEIGHT);
    let x = horizontal(chart, right);
    let y = vertical(chart, bottom);
    let (legend, rows) = legend(chart, bottom + BOTTOM + 4.0);
    let mut unit = number::unit(chart.unit).to_owned();
    if matches!(chart.unit, Unit::PacketsPerSecond | Unit::BitsPerSecond) {
        unit = format!("{} ({unit})", chart.title);
    } else {
        unit = format!("{}, {unit}", chart.title);
    }
    let content = html! {
        (text(LEFT - 50.0, 16.0, "start", FAINT, &unit))
        @for tick in y.ticks(6) {
            (line((LEFT, y.at(tick)), (right, y.at(tick)), GRID, 1.0, None))
            (text(LEFT - 8.0, y.at(tick) + 4.0, "end", FAINT, &label(tick)))
        }
        (line((LEFT, bottom), (right, bottom), FAINT, 1.0, None))
        @for tick in horizontal_ticks(chart, &x) {
            (line((x.at(tick), bottom), (x.at(tick), bottom + 4.0), FAINT, 1.0, None))
            (text(x.at(tick), bottom + 18.0, "middle", FAINT, &format!("{tick:.0}")))
        }
        (text((LEFT + right) / 2.0, bottom + 38.0, "middle", FAINT, "inner IP packet, bytes"))
        @for series in &chart.series {
            (one_series(series, &x, &y))
        }
        (legend)
    };
    let height = bottom + BOTTOM + rows * LEGEND_ROW + 10.0;
    frame(chart, height, &content)
}

fn horizontal(chart: &Chart, right: f64) -> Scale {
    let places = chart.places();
    let positions = || places.iter().filter_map(|size| view::position(*size));
    let high = positions().fold(0.0, f64::max);
    Scale::linear(0.0, high * 1.02, LEFT, right)
}

fn vertical(chart: &Chart, bottom: f64) -> Scale {
    let values = || {
        let points = chart.series.iter().flat_map(|series| &series.points);
        points.filter(|point| point.position().is_some())
    };
    let high = values().fold(0.0, |high: f64, point| {
        high.max(point.median + point.deviation)
    });
    let low = values().fold(f64::INFINITY, |low, point| low.min(point.median));
    if low > 0.0 && high / low > DECADES_FROM {
        Scale::decades(low, high, bottom, TOP)
    } else {
        Scale::linear(0.0, high * 1.05, bottom, TOP)
    }
}

/// The places themselves where there is room for their labels, round values otherwise.
fn horizontal_ticks(chart: &Chart, x: &Scale) -> Vec<f64> {
    let places = chart.places();
    let mut ticks: Vec<f64> = Vec::new();
    for position in places.iter().filter_map(|size| view::position(*size)) {
        let room = |last: &f64| x.at(position) - x.at(*last) > 34.0;
        if ticks.last().is_none_or(room) {
            ticks.push(position);
        }
    }
    ticks
}

/// Short: `1.5M`, `200k`, `0`.
fn label(value: f64) -> String {
    let text = number::si(value);
    let (digits, prefix) = text.split_once(' ').unwrap_or((&text, ""));
    let short = if digits.contains('.') {
        digits.trim_end_matches('0').trim_end_matches('.')
    } else {
        digits
    };
    format!("{short}{prefix}")
}

fn one_series(series: &Series, x: &Scale, y: &Scale) -> Markup {
    let colour = colour(series.subject);
    let points: Vec<_> = series
        .points
        .iter()
        .filter_map(|point| Some((x.at(point.position()?), point)))
        .collect();
    let path: Vec<String> = points
        .iter()
        .map(|(x, point)| format!("{},{}", one(*x), one(y.at(point.median))))
        .collect();
    html! {
        polyline points=(path.join(" ")) fill="none" stroke=(colour) stroke-width="2"
            stroke-linejoin="round" stroke-dasharray=[dash(series)] {}
        @for (x, point) in &points {
            @if point.count > 1 {
                (whisker(
                    (*x, y.at(point.median - point.deviation)),
                    (*x, y.at(point.median + point.deviation)),
                    colour,
                ))
            }
            circle cx=(one(*x)) cy=(one(y.at(point.median))) r="3.2" fill=(colour) {
                title { (series.label) ", " (point.size) ": " (format!("{:.5}", point.median)) }
            }
        }
    }
}

fn dash(series: &Series) -> Option<&'static str> {
    DASHES[series.variant % DASHES.len()]
}

/// Below the plot; also the number of its rows.
fn legend(chart: &Chart, top: f64) -> (Markup, f64) {
    let mut places = Vec::new();
    let (mut x, mut row) = (LEFT, 0.0);
    for series in &chart.series {
        let needed = 46.0 + width(&series.label);
        if x > LEFT && x + needed > WIDTH {
            (x, row) = (LEFT, row + 1.0);
        }
        places.push((x, top + 12.0 + row * LEGEND_ROW, series));
        x += needed;
    }
    let legend = html! {
        @for (x, y, series) in places {
            (line((x, y - 4.0), (x + 24.0, y - 4.0), colour(series.subject), 2.5, dash(series)))
            (text(x + 30.0, y, "start", TEXT, &series.label))
        }
    };
    (legend, row + 1.0)
}
