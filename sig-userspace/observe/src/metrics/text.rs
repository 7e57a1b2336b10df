//! The text format of Prometheus, version 0.0.4.
//!
//! `prometheus-client` writes OpenMetrics only: there every counter ends in `_total`, and the names of the
//! reference do not.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
};

use sig_core::counter::Row;

/// A metric: all series of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name: `[a-z_][a-z0-9_]*`.
    pub name: &'static str,
    /// Whether it only grows.
    pub kind: Kind,
    /// One sentence for operators.
    pub help: &'static str,
}

impl From<&Row> for Metric {
    fn from(row: &Row) -> Self {
        Metric {
            name: row.metric,
            kind: Kind::Counter,
            help: row.help,
        }
    }
}

/// What the values of a metric do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// They only grow, until the process starts anew.
    Counter,
    /// They go up and down.
    Gauge,
}

impl Kind {
    /// The word of the format.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
        }
    }
}

/// Label names and values of a series, ordered by name.
type Labels = Vec<(&'static str, String)>;

/// What one scrape gets. A metric without any series is left out.
#[derive(Debug, Default)]
pub struct Exposition {
    metrics: BTreeMap<&'static str, (Metric, BTreeMap<Labels, f64>)>,
}

impl Exposition {
    /// Adds to a series, which starts at 0.
    pub fn add(&mut self, metric: Metric, labels: &[(&'static str, &str)], value: u64) {
        *self.series(metric, labels, 0.0) += value as f64;
    }

    /// Sets a series, or raises it to `value` if it is there.
    pub fn raise(
        &mut self,
        metric: Metric,
        labels: &[(&'static str, &str)],
        value: impl Into<f64>,
    ) {
        let series = self.series(metric, labels, f64::NEG_INFINITY);
        *series = series.max(value.into());
    }

    fn series(&mut self, metric: Metric, labels: &[(&'static str, &str)], first: f64) -> &mut f64 {
        let mut labels: Labels = labels.iter().map(|(n, v)| (*n, (*v).to_owned())).collect();
        labels.sort_unstable();
        let (_, series) = self
            .metrics
            .entry(metric.name)
            .or_insert_with(|| (metric, BTreeMap::new()));
        series.entry(labels).or_insert(first)
    }
}

/// What counters showed before, so that none ever falls. A counter is a sum over what there is, such as the sessions
/// of a policy. When a part goes, its share stays in what is shown.
#[derive(Debug, Default)]
pub(super) struct Ledger(BTreeMap<(&'static str, Labels), Mark>);

#[derive(Debug)]
struct Mark {
    metric: Metric,
    /// The sum when it was last shown.
    last: f64,
    /// By how much sums have fallen.
    gone: f64,
}

/// Series that a [`Ledger`] remembers. Those are far more than a gateway has; beyond, counters may fall.
const SERIES: usize = 1 << 16;

impl Ledger {
    /// Adds to the counters of a page what their sums have lost, and the counters that it lacks.
    pub(super) fn raise(&mut self, page: &mut Exposition) {
        for (name, (metric, series)) in &page.metrics {
            if metric.kind != Kind::Counter {
                continue;
            }
            for labels in series.keys() {
                let key = (*name, labels.clone());
                if self.0.len() < SERIES || self.0.contains_key(&key) {
                    self.0.entry(key).or_insert(Mark {
                        metric: *metric,
                        last: 0.0,
                        gone: 0.0,
                    });
                }
            }
        }
        for ((name, labels), mark) in &mut self.0 {
            let (_, series) = page
                .metrics
                .entry(name)
                .or_insert_with(|| (mark.metric, BTreeMap::new()));
            let value = series.entry(labels.clone()).or_insert(0.0);
            mark.gone += (mark.last - *value).max(0.0);
            mark.last = *value;
            *value += mark.gone;
        }
    }
}

impl fmt::Display for Exposition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (metric, series) in self.metrics.values() {
            let Metric { name, kind, help } = metric;
            writeln!(f, "# HELP {name} {}", Escaped(help, false))?;
            writeln!(f, "# TYPE {name} {}", kind.as_str())?;
            for (labels, value) in series {
                f.write_str(name)?;
                for (number, (label, text)) in labels.iter().enumerate() {
                    let before = if number == 0 { '{' } else { ',' };
                    write!(f, "{before}{label}=\"{}\"", Escaped(text, true))?;
                }
                if !labels.is_empty() {
                    f.write_char('}')?;
                }
                writeln!(f, " {value}")?;
            }
        }
        Ok(())
    }
}

/// Text in a help line, or between the quotes of a label value.
struct Escaped<'a>(&'a str, bool);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Escaped(text, quoted) = *self;
        text.chars().try_for_each(|c| match c {
            '\\' => f.write_str("\\\\"),
            '\n' => f.write_str("\\n"),
            '"' if quoted => f.write_str("\\\""),
            c => f.write_char(c),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOSS: Metric = Metric {
        name: "loss_ratio",
        kind: Kind::Gauge,
        help: "A \"help\" with \\ and\na second line.",
    };
    const SEEN: Metric = Metric {
        name: "seen_total",
        kind: Kind::Counter,
        help: "Seen.",
    };

    #[test]
    fn metrics_and_labels_are_ordered_and_escaped() {
        let mut page = Exposition::default();
        page.add(SEEN, &[], 1 << 52);
        page.raise(
            LOSS,
            &[("b", "x"), ("a", "quote \" slash \\ line\nend")],
            0.25,
        );
        page.raise(LOSS, &[("a", ""), ("b", "x")], 1_u32);
        assert_eq!(
            page.to_string(),
            "# HELP loss_ratio A \"help\" with \\\\ and\\na second line.
# TYPE loss_ratio gauge
loss_ratio{a=\"\",b=\"x\"} 1
loss_ratio{a=\"quote \\\" slash \\\\ line\\nend\",b=\"x\"} 0.25
# HELP seen_total Seen.
# TYPE seen_total counter
seen_total 4503599627370496
"
        );
    }

    #[test]
    fn counters_never_fall() {
        let mut ledger = Ledger::default();
        // Two gateways of an AS, of which one goes and comes back with nothing counted, and then both.
        let mut shown = |gateways: &[u64]| {
            let mut page = Exposition::default();
            for count in gateways {
                page.add(SEEN, &[("remote", "1-ff00:0:111")], *count);
                page.raise(LOSS, &[], *count as f64);
            }
            ledger.raise(&mut page);
            let (_, series) = &page.metrics[SEEN.name];
            (*series.values().next().unwrap(), page.metrics.len())
        };
        assert_eq!(shown(&[10, 5]), (15.0, 2));
        assert_eq!(shown(&[11]), (15.0, 2));
        assert_eq!(shown(&[12]), (16.0, 2));
        assert_eq!(shown(&[12, 0]), (16.0, 2));
        assert_eq!(shown(&[12, 4]), (20.0, 2));
        // A gauge goes with what it is about.
        assert_eq!(shown(&[]), (20.0, 1));
        assert_eq!(shown(&[3]), (23.0, 2));
    }

    #[test]
    fn the_same_labels_are_one_series() {
        let mut page = Exposition::default();
        page.add(SEEN, &[("a", "1"), ("b", "2")], 3);
        page.add(SEEN, &[("b", "2"), ("a", "1")], 4);
        page.raise(LOSS, &[], 0.5);
        page.raise(LOSS, &[], 0.25);
        let text = page.to_string();
        assert!(text.contains("\nseen_total{a=\"1\",b=\"2\"} 7\n"), "{text}");
        assert!(text.contains("\nloss_ratio 0.5\n"), "{text}");
    }
}
