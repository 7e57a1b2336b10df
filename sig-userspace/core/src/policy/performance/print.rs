//! Performance policies as JSON, in the form of the policy file.

use serde_json::{Map, Value, json};

use super::{Criterion, PerformancePolicy};

impl PerformancePolicy {
    /// The policy in the form of the policy file.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let percent = |ppm: u32| json!(f64::from(ppm) / 10_000.0);
        let micros = |micros: u128| Value::from(format!("{micros}us"));
        let criterion = |criterion: &Criterion| {
            let (by, margin, absolute) = match criterion {
                Criterion::Latency(m) => ("latency", m, micros(m.absolute.into())),
                Criterion::Jitter(m) => ("jitter", m, micros(m.absolute.into())),
                Criterion::Loss(m) => ("loss", m, percent(m.absolute)),
                Criterion::Hops => return Value::from("hops"),
                Criterion::Mtu => return Value::from("mtu"),
                // Not of the file: the tie-break.
                Criterion::Fingerprint => return Value::from("fingerprint"),
            };
            json!({"By": by, "Margin": absolute, "MarginPercent": margin.percent})
        };
        let mut object = Map::new();
        let mut put = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                object.insert(key.into(), value);
            }
        };
        let limits = &self.limits;
        put("Order", Some(self.order.iter().map(criterion).collect()));
        put(
            "MaxLatency",
            limits.max_latency.map(|time| micros(time.as_micros())),
        );
        put(
            "MaxJitter",
            limits.max_jitter.map(|time| micros(time.as_micros())),
        );
        put("MaxLoss", limits.max_loss_ppm.map(percent));
        put("MinMTU", limits.min_mtu.map(Value::from));
        Value::Object(object)
    }
}
