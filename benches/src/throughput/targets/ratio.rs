//! Ratios of figures.

use super::rows::{Cell, Ratio, Side};
use crate::throughput::{
    experiment::{Family, Layout, Size},
    record::{Figure, Metric, Record},
};

/// The figures of a run.
pub(super) struct Results<'a> {
    pub(super) records: &'a [Record],
}

impl<'a> Results<'a> {
    /// Figures of a subject in a case; usual family and layout, one flow or, where there is none, more.
    fn figures(&self, metric: Metric, cell: Cell, side: Side) -> impl Iterator<Item = &'a Figure> {
        self.records.iter().filter_map(move |record| {
            let Record::Figure(figure) = record else {
                return None;
            };
            let (key, case) = (&figure.key, &figure.key.case);
            let fits = key.metric == metric
                && key.subject == side.subject
                && cell.size.is_none_or(|size| case.size == Size::Fixed(size))
                && (case.packed == cell.packed || cell.size.is_none())
                && case.workers == side.workers
                && case.family == Family::Ipv4
                && case.layout == Layout::Split
                && !figure.values.is_empty();
            fits.then_some(figure)
        })
    }

    /// Both sides ([`Figure::undisturbed`]) from one experiment, and its name; of several, the one with most values.
    fn pair(
        &self,
        metric: Metric,
        cell: Cell,
        above: Side,
        below: Side,
    ) -> Result<(f64, f64, &'a str), String> {
        let mut best: Option<(usize, &Figure, &Figure)> = None;
        for figure in self.figures(metric, cell, above) {
            for other in self.figures(metric, cell, below) {
                let (a, b) = (&figure.key, &other.key);
                let same_case = a.case.size == b.case.size
                    && a.case.flows == b.case.flows
                    && a.case.cpus == b.case.cpus
                    && a.case.packed == b.case.packed;
                let values = figure.values.len().min(other.values.len());
                if a.experiment == b.experiment
                    && same_case
                    && best.is_none_or(|(most, ..)| values > most)
                {
                    best = Some((values, figure, other));
                }
            }
        }
        let values = best.and_then(|(_, a, b)| Some((a.undisturbed()?, b.undisturbed()?, a)));
        let Some((above_value, below_value, figure)) = values else {
            return Err(self.why_not(metric, cell, &[above, below]));
        };
        Ok((above_value, below_value, &figure.key.experiment))
    }

    /// Why figures of one of these sides are missing.
    fn why_not(&self, metric: Metric, cell: Cell, sides: &[Side]) -> String {
        for side in sides {
            if self.figures(metric, cell, *side).next().is_some() {
                continue;
            }
            let not_run = self.records.iter().rev().find_map(|record| match record {
                Record::NotRun {
                    subject,
                    case,
                    reason,
                    ..
                } => {
                    let same_size = cell.size.is_none_or(|size| case.size == Size::Fixed(size));
                    (*subject == side.subject && same_size).then_some(reason.as_str())
                }
                _ => None,
            });
            let reason = not_run.unwrap_or("not part of this run");
            return format!("{}: {reason}", side.subject);
        }
        "not measured in one experiment".to_owned()
    }

    /// The ratio and how it was made, or why there is none.
    pub(super) fn ratio(&self, ratio: &Ratio) -> Result<(f64, String), String> {
        match *ratio {
            Ratio::Of(metric, cell, above, below) => {
                let (a, b, experiment) = self.pair(metric, cell, above, below)?;
                let (a, b) = (at_least(metric, a), at_least(metric, b));
                let name = metric.name();
                if metric.more_is_better() {
                    let how = format!("{name} of {above} / {below}");
                    Ok((divide(a, b)?, format!("{how}, {experiment}")))
                } else {
                    let how = format!("{name} of {below} / {above}");
                    Ok((divide(b, a)?, format!("{how}, {experiment}")))
                }
            }
            Ratio::Added(metric, cell, above, below) => {
                let (with, without, experiment) = self.pair(metric, cell, above, below)?;
                // What cannot be told from noise counts as a hundredth.
                let added = (with - without).max(without / 100.0);
                let how = format!(
                    "{} of {} / ({} - {}), {experiment}",
                    metric.name(),
                    below.subject,
                    above.subject,
                    below.subject
                );
                Ok((divide(without, added)?, how))
            }
            Ratio::Over(metric, cell, side, fixed) => {
                let (value, _, experiment) = self.pair(metric, cell, side, side)?;
                let how = format!("{} of {}, {experiment}", metric.name(), side.subject);
                if metric.more_is_better() {
                    Ok((divide(value, fixed)?, how))
                } else {
                    Ok((divide(fixed, value)?, how))
                }
            }
        }
    }
}

/// An outage is not known better than to a millisecond: the traffic has gaps as long.
fn at_least(metric: Metric, value: f64) -> f64 {
    if metric == Metric::Outage {
        value.max(1e-3)
    } else {
        value
    }
}

fn divide(above: f64, below: f64) -> Result<f64, String> {
    let ratio = above / below;
    if ratio.is_finite() {
        Ok(ratio)
    } else {
        Err(format!("{above} / {below} is no ratio"))
    }
}
