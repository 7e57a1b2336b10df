//! Prints what `cargo bench -p benches` measured last, as a table in Markdown.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use serde_json::Value;

/// Estimates of one benchmark.
struct Row {
    name: String,
    packets: Option<f64>,
    bytes: Option<f64>,
    /// Nanoseconds of an iteration: median, and the bounds of its confidence interval.
    median: [f64; 3],
}

fn main() -> io::Result<()> {
    let folder = std::env::args_os()
        .nth(1)
        .map_or_else(|| PathBuf::from("target/criterion"), PathBuf::from);
    let mut groups: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    for group in entries(&folder)? {
        for benchmark in entries(&group)? {
            if let Some((group, row)) = read(&benchmark.join("new")) {
                groups.entry(group).or_default().push(row);
            }
        }
    }
    for (group, mut rows) in groups {
        rows.sort_by_key(|row| order(&row.name));
        println!("### {group}\n");
        println!("| | ns each | million/s | Gbit/s |");
        println!("|---|--:|--:|--:|");
        for row in rows {
            let each = |n: f64| n / row.packets.unwrap_or(1.0);
            let [median, low, high] = row.median.map(each);
            let rate = 1e3 / median;
            let bits = row.bytes.map_or(String::new(), |bytes| {
                format!("{:.1}", bytes * 8.0 / row.median[0])
            });
            println!(
                "| {} | {median:.1} ({low:.1}–{high:.1}) | {rate:.2} | {bits} |",
                row.name
            );
        }
        println!();
    }
    Ok(())
}

fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            entries.push(path);
        }
    }
    Ok(entries)
}

fn read(folder: &Path) -> Option<(String, Row)> {
    let json =
        |name| -> Option<Value> { serde_json::from_slice(&fs::read(folder.join(name)).ok()?).ok() };
    let (benchmark, estimates) = (json("benchmark.json")?, json("estimates.json")?);
    let throughput = &benchmark["throughput"];
    let both = &throughput["ElementsAndBytes"];
    let median = &estimates["median"];
    let interval = &median["confidence_interval"];
    let row = Row {
        name: benchmark["function_id"].as_str()?.to_owned(),
        packets: both["elements"]
            .as_f64()
            .or(throughput["Elements"].as_f64()),
        bytes: both["bytes"].as_f64(),
        median: [
            median["point_estimate"].as_f64()?,
            interval["lower_bound"].as_f64()?,
            interval["upper_bound"].as_f64()?,
        ],
    };
    Some((benchmark["group_id"].as_str()?.to_owned(), row))
}

/// By the numbers in a name, then the name.
fn order(name: &str) -> (u64, String) {
    let digits: String = name.chars().take_while(char::is_ascii_digit).collect();
    (digits.parse().unwrap_or(u64::MAX), name.to_owned())
}
