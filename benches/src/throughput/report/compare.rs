//! Two runs side by side.

use std::fmt;

use anyhow::{Result, bail};

use super::number;
use crate::throughput::{
    record::{Figure, Key, Record, Unit},
    targets,
};

/// Figures that both runs have.
pub struct Comparison {
    /// In the order of the new run.
    pub rows: Vec<Row>,
    /// Figures of the new run that the old one lacks, and the other way round.
    pub unmatched: (usize, usize),
}

/// One figure of both runs.
pub struct Row {
    /// What it is of.
    pub key: Key,
    /// See [`Figure::typical`].
    pub old: f64,
    /// See [`Figure::typical`].
    pub new: f64,
    /// New over old (see [`Figure::over`]), inverted where less is better: above 1 is an improvement.
    pub ratio: f64,
}

/// Compares figures with the same key.
///
/// # Errors
///
/// The runs have no figure in common.
pub fn compare(old: &[Record], new: &[Record]) -> Result<Comparison> {
    let (old, new) = (figures(old), figures(new));
    let mut rows = Vec::new();
    for (figure, value) in &new {
        let same = old.iter().find(|(other, _)| other.key == figure.key);
        if let Some((other, before)) = same {
            rows.push(Row {
                key: figure.key.clone(),
                old: *before,
                new: *value,
                ratio: ratio(other, figure).unwrap_or(f64::NAN),
            });
        }
    }
    if rows.is_empty() {
        bail!("the two runs have no figure in common: compare runs of the same experiments");
    }
    let unmatched = (new.len() - rows.len(), old.len() - rows.len());
    Ok(Comparison { rows, unmatched })
}

fn figures(records: &[Record]) -> Vec<(&Figure, f64)> {
    let figures = records.iter().filter_map(|record| match record {
        Record::Figure(figure) => Some((figure, figure.typical()?)),
        _ => None,
    });
    figures.collect()
}

fn ratio(old: &Figure, new: &Figure) -> Option<f64> {
    let metric = new.key.metric;
    let (before, now) = (old.typical()?, new.typical()?);
    match metric.unit() {
        _ if before == now => Some(1.0),
        // Losses are near zero, and their ratio says nothing: what arrives is compared.
        Unit::Percent if !metric.more_is_better() => Some((100.0 - now) / (100.0 - before)),
        _ if metric.more_is_better() => new.over(old),
        _ => old.over(new),
    }
}

impl Comparison {
    /// Rows whose ratio is below `least`, or is none.
    pub fn worse_than(&self, least: f64) -> Vec<&Row> {
        let is_worse = |row: &&Row| !matches!(row.ratio.partial_cmp(&least), Some(o) if o.is_ge());
        self.rows.iter().filter(is_worse).collect()
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<String> = self.rows.iter().map(|row| row.key.to_string()).collect();
        let width = keys
            .iter()
            .map(|key| key.chars().count())
            .max()
            .unwrap_or_default();
        writeln!(
            f,
            "{:<width$}  {:>16}  {:>16}  better by",
            "figure", "old", "new"
        )?;
        for (row, key) in self.rows.iter().zip(&keys) {
            let value = |value| number::with_unit(value, row.key.metric.unit());
            let (old, new) = (value(row.old), value(row.new));
            writeln!(
                f,
                "{key:<width$}  {old:>16}  {new:>16}  {}",
                targets::show(row.ratio)
            )?;
        }
        let (new, old) = self.unmatched;
        if new + old > 0 {
            writeln!(f, "without counterpart: {new} new and {old} old figures")?;
        }
        Ok(())
    }
}
