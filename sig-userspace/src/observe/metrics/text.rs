//! The text format of Prometheus, version 0.0.4.
//!
//! `prometheus-client` writes OpenMetrics only: there every counter ends in `_total`, and the names of the
//! reference do not.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
};

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
pub(crate) struct Exposition {
    metrics: BTreeMap<&'static str, (Metric, BTreeMap<Labels, f64>)>,
}

impl Exposition {
    /// Adds to a series, which starts at 0.
    pub(crate) fn add(&mut self, metric: Metric, labels: &[(&'static str, &str)], value: u64) {
        *self.series(metric, labels, 0.0) += value as f64;
    }

    /// Sets a series, or raises it to `value` if it is there.
    pub(crate) fn raise(
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
