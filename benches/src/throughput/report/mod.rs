//! From records to something to read.

pub mod markdown;
pub mod number;
pub mod plot;
pub mod view;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use super::{cli, record::Record};

/// Writes `report.md` into a folder, and every plot into `plots` below, as an SVG file of its own named
/// `EXPERIMENT-METRIC.svg`. Returns the path of the report.
///
/// # Errors
///
/// They cannot be written.
pub fn write(folder: &Path, records: &[Record]) -> Result<PathBuf> {
    let plots = folder.join("plots");
    fs::create_dir_all(&plots).with_context(|| format!("cannot make {}", plots.display()))?;
    let view = view::View::of(records);
    for chart in view.experiments.iter().flat_map(|e| &e.charts) {
        let path = plots.join(format!("{}.svg", chart.name));
        cli::write(&path, &plot::svg(chart).into_string())?;
    }
    let report = folder.join("report.md");
    cli::write(&report, &markdown::text(&view))?;
    Ok(report)
}
