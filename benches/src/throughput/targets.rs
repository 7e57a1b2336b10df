//! The targets of the project, as ratios of figures of one run.
//!
//! All ratios are such that more is better: where less is better, they are inverted.

mod ratio;
mod rows;

use std::fmt;

use serde::Serialize;

use super::record::Record;
use ratio::{Missing, Results};

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Target {
    /// What is compared.
    pub name: String,
    /// Measured; none where a part of it could not be measured.
    pub ratio: Option<f64>,
    /// What the ratio should be at least.
    pub target: f64,
    /// How the ratio is made.
    pub how: String,
    /// Why there is none.
    pub reason: Option<String>,
}

impl Target {
    /// Whether the ratio is as high as it should be; none without ratio.
    pub fn is_reached(&self) -> Option<bool> {
        self.ratio.map(|ratio| ratio >= self.target)
    }
}

/// Computes the rows that the run was to measure.
pub fn targets(records: &[Record]) -> Vec<Target> {
    let results = Results { records };
    rows::rows()
        .into_iter()
        .filter_map(|row| {
            let (ratio, how, reason) = match results.ratio(&row.ratio) {
                Ok((ratio, how)) => (Some(ratio), how, None),
                Err(Missing::NotMeasured(reason)) => (None, String::new(), Some(reason)),
                Err(Missing::NotPlanned) => return None,
            };
            Some(Target {
                name: row.name,
                ratio,
                target: row.target,
                how,
                reason,
            })
        })
        .collect()
}

/// The table as text.
pub struct Table<'a>(pub &'a [Target]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.0.iter().map(|row| row.name.chars().count()).max();
        let width = width.unwrap_or_default();
        writeln!(f, "{:<width$}  {:>9}  {:>7}", "target", "ratio", "wanted")?;
        for row in self.0 {
            let ratio = row.ratio.map_or_else(|| "–".to_owned(), show);
            write!(
                f,
                "{:<width$}  {ratio:>9}  {:>7}",
                row.name,
                format!("≥ {}", row.target)
            )?;
            match (row.is_reached(), &row.reason) {
                (Some(true), _) => f.write_str("  reached")?,
                (Some(false), _) => f.write_str("  missed")?,
                (None, Some(reason)) => write!(f, "  not run: {reason}")?,
                (None, None) => {}
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// A ratio with three digits that count.
pub fn show(ratio: f64) -> String {
    match ratio {
        ratio if ratio >= 100.0 => format!("{ratio:.0}"),
        ratio if ratio >= 10.0 => format!("{ratio:.1}"),
        ratio => format!("{ratio:.2}"),
    }
}
