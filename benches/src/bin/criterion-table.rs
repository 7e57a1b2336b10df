//! Prints what `cargo bench -p benches` measured, as tables in Markdown.
//!
//! Without arguments of the last run. With names of baselines (`cargo bench -p benches -- --save-baseline
//! NAME`) of all these runs: the median of their medians, and the lowest and highest of them.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use serde_json::Value;

const FOLDER: &str = "target/criterion";

/// One benchmark.
struct Row {
    name: String,
    packets: Option<f64>,
    bytes: Option<f64>,
    /// Nanoseconds of an iteration in each run, ascending.
    medians: Vec<f64>,
}

fn main() -> io::Result<()> {
    let mut runs: Vec<String> = std::env::args().skip(1).collect();
    if runs.is_empty() {
        runs.push("new".to_owned());
    }
    let mut groups: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    for group in folders(Path::new(FOLDER))? {
        for benchmark in folders(&group)? {
            if let Some((group, row)) = read(&benchmark, &runs) {
                groups.entry(group).or_default().push(row);
            }
        }
    }
    for (group, mut rows) in groups {
        rows.sort_by_key(|row| order(&row.name));
        println!("**{group}**\n");
        println!("| | ns each | range | million/s | Gbit/s |");
        println!("|---|--:|--:|--:|--:|");
        for row in rows {
            let count = row.packets.unwrap_or(1.0);
            let total = row.medians[row.medians.len() / 2];
            let [low, high] = [0, row.medians.len() - 1].map(|n| row.medians[n] / count);
            let bits = row
                .bytes
                .map_or(String::new(), |bytes| format!("{:.1}", bytes * 8.0 / total));
            println!(
                "| {} | {:.1} | {low:.1}–{high:.1} | {:.1} | {bits} |",
                row.name,
                total / count,
                1e3 * count / total,
            );
        }
        println!();
    }
    Ok(())
}

fn folders(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    let paths = entries.into_iter().map(|entry| entry.path());
    Ok(paths.filter(|path| path.is_dir()).collect())
}

fn json(folder: &Path, name: &str) -> Option<Value> {
    serde_json::from_slice(&fs::read(folder.join(name)).ok()?).ok()
}

/// The benchmark in a folder of criterion's, with the name of its group.
fn read(folder: &Path, runs: &[String]) -> Option<(String, Row)> {
    let benchmark = json(&folder.join(runs.first()?), "benchmark.json")?;
    let median = |run: &String| {
        json(&folder.join(run), "estimates.json")?["median"]["point_estimate"].as_f64()
    };
    let mut medians = runs.iter().map(median).collect::<Option<Vec<f64>>>()?;
    medians.sort_by(f64::total_cmp);
    let throughput = &benchmark["throughput"];
    let both = &throughput["ElementsAndBytes"];
    let row = Row {
        name: benchmark["function_id"].as_str()?.to_owned(),
        packets: both["elements"]
            .as_f64()
            .or(throughput["Elements"].as_f64()),
        bytes: both["bytes"].as_f64(),
        medians,
    };
    Some((benchmark["group_id"].as_str()?.to_owned(), row))
}

/// By the number that a name begins with, then by the name.
fn order(name: &str) -> (u64, String) {
    let digits: String = name.chars().take_while(char::is_ascii_digit).collect();
    (digits.parse().unwrap_or(u64::MAX), name.to_owned())
}
