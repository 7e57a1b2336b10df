//! From points to series.

use super::{Axis, Point, Series, X};
use crate::throughput::{
    experiment::{Case, Family, Layout, Size},
    record::{Figure, Key, Metric},
    subject::Subject,
    trial::Trial,
};

/// A point, and what it is of.
pub(super) struct Cell<'a> {
    pub(super) subject: Subject,
    pub(super) case: &'a Case,
    pub(super) point: Point,
}

/// Points over offered rates, from single trials.
pub(super) fn swept<'a>(trials: &[(Subject, &'a Case, &Trial)]) -> Vec<Cell<'a>> {
    let mut cells: Vec<(Cell<'a>, Vec<f64>)> = Vec::new();
    for (subject, case, trial) in trials {
        let Some(rate) = trial.target else { continue };
        let x = X::Rate(rate);
        let same = |(cell, _): &&mut (Cell<'_>, Vec<f64>)| {
            cell.subject == *subject && cell.case == *case && cell.point.x == x
        };
        match cells.iter_mut().find(same) {
            Some((_, values)) => values.push(trial.delivery_ratio()),
            None => {
                let point = Point {
                    x,
                    median: 0.0,
                    deviation: 0.0,
                    count: 0,
                    notes: Vec::new(),
                };
                let (subject, case) = (*subject, *case);
                let cell = Cell {
                    subject,
                    case,
                    point,
                };
                cells.push((cell, vec![trial.delivery_ratio()]));
            }
        }
    }
    for (cell, values) in &mut cells {
        let key = Key {
            experiment: String::new(),
            subject: cell.subject,
            case: cell.case.clone(),
            metric: Metric::DeliveryRatio,
        };
        let figure = Figure {
            key,
            values: std::mem::take(values),
            distances: Vec::new(),
            notes: Vec::new(),
        };
        cell.point.median = figure.median().unwrap_or_default();
        cell.point.deviation = figure.deviation().unwrap_or_default();
        cell.point.count = figure.values.len();
    }
    cells.into_iter().map(|(cell, _)| cell).collect()
}

/// What makes a series, besides the subject: everything of a case but what the axis shows.
fn rest(case: &Case, axis: Axis) -> Case {
    let mut rest = case.clone();
    if axis == Axis::Size {
        rest.size = Size::Fixed(0);
    }
    rest
}

/// Points by subject and by what else differs.
pub(super) fn series(cells: &[Cell<'_>], axis: Axis) -> Vec<Series> {
    let mut keys: Vec<(Subject, Case)> = Vec::new();
    for cell in cells {
        let key = (cell.subject, rest(cell.case, axis));
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let label = |subject: Subject, case: &Case| {
        let mut label = subject.title().to_owned();
        let same = || keys.iter().filter(|(other, _)| *other == subject);
        let mut add = |differs: bool, text: String| {
            if differs {
                label = format!("{label}, {text}");
            }
        };
        let differs = |pick: fn(&Case, &Case) -> bool| same().any(|(_, other)| pick(other, case));
        add(differs(|a, b| a.size != b.size), case.size.to_string());
        let family = if case.family == Family::Ipv4 {
            "IPv4"
        } else {
            "IPv6"
        };
        add(differs(|a, b| a.family != b.family), family.into());
        let flows = if case.flows == 1 {
            "1 flow".into()
        } else {
            format!("{} flows", case.flows)
        };
        add(differs(|a, b| a.flows != b.flows), flows);
        let packed = if case.packed {
            "packed"
        } else {
            "one per frame"
        };
        add(differs(|a, b| a.packed != b.packed), packed.into());
        let workers = if case.workers == 1 {
            "1 worker".into()
        } else {
            format!("{} workers", case.workers)
        };
        add(differs(|a, b| a.workers != b.workers), workers);
        let layout = if case.layout == Layout::Split {
            "split"
        } else {
            "single core"
        };
        add(differs(|a, b| a.layout != b.layout), layout.into());
        label
    };
    let mut all = Vec::new();
    for (place, (subject, case)) in keys.iter().enumerate() {
        let own = cells
            .iter()
            .filter(|cell| cell.subject == *subject && rest(cell.case, axis) == *case);
        let mut points: Vec<Point> = own.map(|cell| cell.point.clone()).collect();
        points.sort_by(|a, b| a.x.partial_cmp(&b.x).unwrap_or(std::cmp::Ordering::Equal));
        all.push(Series {
            label: label(*subject, case),
            subject: *subject,
            variant: keys[..place]
                .iter()
                .filter(|(other, _)| other == subject)
                .count(),
            points,
        });
    }
    all
}
