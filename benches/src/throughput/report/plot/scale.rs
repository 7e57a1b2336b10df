//! From values to coordinates.

/// A linear or logarithmic scale.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    logarithmic: bool,
    from: f64,
    to: f64,
}

impl Scale {
    /// From `low` at coordinate `from` to `high` at `to`.
    pub(super) fn linear(low: f64, high: f64, from: f64, to: f64) -> Self {
        // A scale needs an extent.
        let high = if high > low { high } else { low + 1.0 };
        Scale {
            low,
            high,
            logarithmic: false,
            from,
            to,
        }
    }

    /// Over whole decades around values above zero.
    pub(super) fn decades(low: f64, high: f64, from: f64, to: f64) -> Self {
        let low = 10f64.powf(low.log10().floor());
        let high = 10f64.powf(high.log10().ceil()).max(low * 10.0);
        Scale {
            low,
            high,
            logarithmic: true,
            from,
            to,
        }
    }

    /// The coordinate of a value; values beyond the ends lie at the ends.
    pub(super) fn at(&self, value: f64) -> f64 {
        let value = value.clamp(self.low, self.high);
        let share = if self.logarithmic {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + share * (self.to - self.from)
    }

    /// Round values for labels, about `count`.
    pub(super) fn ticks(&self, count: usize) -> Vec<f64> {
        if self.logarithmic {
            let decades = (self.high / self.low).log10().round() as i32;
            return (0..=decades).map(|n| self.low * 10f64.powi(n)).collect();
        }
        let step = round_up((self.high - self.low) / count.max(1) as f64);
        let first = (self.low / step).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        (first..=last).map(|n| n as f64 * step).collect()
    }
}

/// The next of 1, 2, 2.5, 5, 10 with any number of zeros.
pub(super) fn round_up(value: f64) -> f64 {
    if value <= 0.0 || !value.is_finite() {
        return 1.0;
    }
    let magnitude = 10f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
    let step = steps
        .into_iter()
        .find(|step| value <= step * magnitude * (1.0 + 1e-9));
    step.unwrap_or(10.0) * magnitude
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_round() {
        let scale = Scale::linear(0.0, 1234.0, 0.0, 100.0);
        assert_eq!(scale.ticks(5), [0.0, 250.0, 500.0, 750.0, 1000.0]);
        let scale = Scale::decades(30.0, 4000.0, 0.0, 100.0);
        assert_eq!(scale.ticks(5), [10.0, 100.0, 1000.0, 10_000.0]);
        assert_eq!(round_up(0.0), 1.0);
        assert_eq!(round_up(0.3), 0.5);
    }

    #[test]
    fn values_lie_between_the_ends() {
        let scale = Scale::linear(0.0, 10.0, 300.0, 0.0);
        assert_eq!(scale.at(5.0), 150.0);
        assert_eq!(scale.at(50.0), 0.0);
        let scale = Scale::decades(1.0, 100.0, 0.0, 10.0);
        assert!((scale.at(10.0) - 5.0).abs() < 1e-9);
        assert_eq!(scale.at(0.0), 0.0);
    }

    #[test]
    fn a_single_value_has_a_scale_too() {
        assert_eq!(Scale::linear(0.0, 0.0, 0.0, 1.0).at(0.0), 0.0);
    }
}
