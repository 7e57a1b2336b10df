//! Ratios of figures.

use super::rows::{Cell, Ratio, Side};
use crate::throughput::{
    experiment::{Layout, Size},
    record::{Figure, Metric, Record},
};

/// Why there is no ratio.
#[derive(Debug)]
pub(super) enum Missing {
    /// The run was not to measure it.
    NotPlanned,
    /// It could not be measured.
    NotMeasured(String),
}

/// The figures of a run.
pub(super) struct Results<'a> {
    pub(super) records: &'a [Record],
}

impl<'a> Results<'a> {
    /// Figures of a subject in a case; usual layout, any number of flows.
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
                && case.behavior == side.behavior
                && case.family == cell.family
                && case.layout == Layout::Split;
            fits.then_some(figure)
        })
    }

    /// Both sides from one experiment; of several, the one with most values.
    fn pair(
        &self,
        metric: Metric,
        cell: Cell,
        above: Side,
        below: Side,
    ) -> Result<(&'a Figure, &'a Figure), Missing> {
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
        best.map(|(_, above, below)| (above, below))
            .ok_or_else(|| self.why_not(metric, cell, [above, below]))
    }

    /// Why figures of one of these sides are missing.
    fn why_not(&self, metric: Metric, cell: Cell, sides: [Side; 2]) -> Missing {
        let mut first = None;
        for side in sides {
            if self.figures(metric, cell, side).next().is_none() {
                let Some(reason) = self.not_run(cell, side) else {
                    return Missing::NotPlanned;
                };
                first.get_or_insert_with(|| format!("{}: {reason}", side.subject));
            }
        }
        Missing::NotMeasured(first.unwrap_or_else(|| "not measured in one experiment".to_owned()))
    }

    /// Why a subject was not measured in a case, if the run was to do so.
    fn not_run(&self, cell: Cell, side: Side) -> Option<&'a str> {
        self.records.iter().rev().find_map(|record| match record {
            Record::NotRun {
                subject,
                case,
                reason,
                ..
            } => {
                let same_size = cell.size.is_none_or(|size| case.size == Size::Fixed(size));
                let same_side = *subject == side.subject && case.behavior == side.behavior;
                (same_side && same_size && case.family == cell.family).then_some(reason.as_str())
            }
            _ => None,
        })
    }

    /// The ratio and how it was made, or why there is none.
    pub(super) fn ratio(&self, ratio: &Ratio) -> Result<(f64, String), Missing> {
        match *ratio {
            Ratio::Of(metrics, cell, above, below) => {
                let (mut product, mut hows) = (1.0, Vec::new());
                for &metric in metrics {
                    let (a, b) = self.pair(metric, cell, above, below)?;
                    let ((over, over_name), (under, under_name)) = if metric.more_is_better() {
                        ((a, above), (b, below))
                    } else {
                        ((b, below), (a, above))
                    };
                    product *= finite(over.median())? / finite(under.median())?;
                    let (name, experiment) = (metric.name(), &over.key.experiment);
                    hows.push(format!(
                        "{name} of {over_name} / {under_name}, {experiment}"
                    ));
                }
                let root = 1.0 / metrics.len() as f64;
                Ok((finite(Some(product.powf(root)))?, hows.join(" and ")))
            }
            Ratio::Added(metric, cell, above, below) => {
                let (with, without) = self.pair(metric, cell, above, below)?;
                let how = format!(
                    "{} of {} / ({} - {}), {}",
                    metric.name(),
                    below.subject,
                    above.subject,
                    below.subject,
                    with.key.experiment
                );
                let without = finite(without.median())?;
                Ok((finite(Some(without / added(with, without)?))?, how))
            }
            Ratio::OfAdded(metric, cell, above, below, base) => {
                let (over, without) = self.pair(metric, cell, above, base)?;
                let (under, _) = self.pair(metric, cell, below, base)?;
                let how = format!(
                    "{} of ({above} - {base}) / ({below} - {base}), {}",
                    metric.name(),
                    over.key.experiment
                );
                let without = finite(without.median())?;
                let ratio = added(over, without)? / added(under, without)?;
                Ok((finite(Some(ratio))?, how))
            }
            Ratio::Over(metric, cell, side, fixed) => {
                let (figure, _) = self.pair(metric, cell, side, side)?;
                let how = format!(
                    "best {} of {}, {}",
                    metric.name(),
                    side.subject,
                    figure.key.experiment
                );
                let value = finite(figure.best())?;
                let ratio = if metric.more_is_better() {
                    value / fixed
                } else {
                    fixed / value
                };
                Ok((finite(Some(ratio))?, how))
            }
        }
    }
}

/// What a figure has beyond what there is without gateways. What cannot be told from noise counts as a hundredth.
fn added(with: &Figure, without: f64) -> Result<f64, Missing> {
    Ok((finite(with.median())? - without).max(without / 100.0))
}

fn finite(value: Option<f64>) -> Result<f64, Missing> {
    value
        .filter(|value| value.is_finite())
        .ok_or_else(|| Missing::NotMeasured("the values make no ratio".to_owned()))
}
