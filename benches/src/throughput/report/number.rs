//! Numbers for readers.

use crate::throughput::record::Unit;

/// With a prefix and a space behind: `1.23 M`, `45.6 k`, `789 `.
pub fn si(value: f64) -> String {
    let (value, prefix) = scale(value);
    format!("{} {prefix}", digits(value))
}

fn scale(value: f64) -> (f64, &'static str) {
    match value.abs() {
        v if v >= 0.9995e9 => (value / 1e9, "G"),
        v if v >= 0.9995e6 => (value / 1e6, "M"),
        v if v >= 0.9995e3 => (value / 1e3, "k"),
        _ => (value, ""),
    }
}

/// Three digits that count.
fn digits(value: f64) -> String {
    match value.abs() {
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        v if v >= 0.9995 || v == 0.0 => format!("{value:.2}"),
        v if v >= 0.09995 => format!("{value:.3}"),
        _ => format!("{value:.4}"),
    }
}

/// A value with its unit.
pub fn with_unit(value: f64, unit: Unit) -> String {
    match unit {
        Unit::PacketsPerSecond => si(value) + "pps",
        Unit::PacketsPerCpuSecond => si(value) + "packets/CPU s",
        Unit::Percent => format!("{} %", digits(value)),
        Unit::Microseconds if value >= 10_000.0 => format!("{} ms", digits(value / 1e3)),
        Unit::Microseconds => format!("{} µs", digits(value)),
        Unit::Seconds if value < 1.0 => format!("{} ms", digits(value * 1e3)),
        Unit::Seconds => format!("{} s", digits(value)),
        Unit::CpuSecondsPerMillion => format!("{} s/M", digits(value)),
        Unit::BitsPerSecond => si(value) + "bit/s",
    }
}

/// Name of a unit, for axes.
pub fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::PacketsPerSecond => "packets per second",
        Unit::PacketsPerCpuSecond => "packets per CPU second",
        Unit::Percent => "%",
        Unit::Microseconds => "µs",
        Unit::Seconds => "s",
        Unit::CpuSecondsPerMillion => "CPU seconds per million packets",
        Unit::BitsPerSecond => "bit/s",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_count() {
        for (value, expected) in [
            (0.0, "0.00 "),
            (0.01234, "0.0123 "),
            (0.5, "0.500 "),
            (9.999, "10.0 "),
            (999.9, "1.00 k"),
            (12_345.0, "12.3 k"),
            (1_234_567.0, "1.23 M"),
            (2.5e9, "2.50 G"),
        ] {
            assert_eq!(si(value), expected, "{value}");
        }
        assert_eq!(with_unit(0.0042, Unit::Seconds), "4.20 ms");
        assert_eq!(with_unit(71.2, Unit::Microseconds), "71.2 µs");
        assert_eq!(with_unit(1.8e9, Unit::BitsPerSecond), "1.80 Gbit/s");
    }
}
