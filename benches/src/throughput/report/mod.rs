//! From records to something to read.

pub mod compare;
pub mod html;
pub mod markdown;
pub mod number;
pub mod plot;
pub mod view;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use super::record::Record;

/// Writes `report.html` and `report.md` into a folder and returns their paths.
///
/// # Errors
///
/// They cannot be written.
pub fn write(folder: &Path, records: &[Record]) -> Result<[PathBuf; 2]> {
    let view = view::View::of(records);
    let write = |name: &str, text: String| {
        let path = folder.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok::<_, anyhow::Error>(path)
    };
    Ok([
        write("report.html", html::page(&view))?,
        write("report.md", markdown::text(&view))?,
    ])
}

/// Writes every plot into a folder, as an SVG file of its own named `EXPERIMENT-METRIC.svg`.
///
/// # Errors
///
/// They cannot be written.
pub fn write_plots(folder: &Path, records: &[Record]) -> Result<usize> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let view = view::View::of(records);
    let mut count = 0;
    for experiment in &view.experiments {
        for chart in &experiment.charts {
            let path = folder.join(format!("{}.svg", chart.name));
            fs::write(&path, plot::svg(chart).into_string())
                .with_context(|| format!("cannot write {}", path.display()))?;
            count += 1;
        }
    }
    Ok(count)
}
