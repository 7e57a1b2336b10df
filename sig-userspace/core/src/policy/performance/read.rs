//! Performance policies in JSON.

use std::{sync::Arc, time::Duration};

use super::{Criterion, Limits, Margin, PerformancePolicy};
use crate::document::json::{Fields, Node, Unknown};
use crate::notation;
use crate::problem::excerpt;

const KEYS: &[&str] = &["Order", "MaxLatency", "MaxJitter", "MaxLoss", "MinMTU"];
const ORDER: &str = "an array, for example [\"loss\", \"latency\"]";

/// A policy, or the name of one.
pub(in crate::policy) fn policy_or_name(
    node: &Node<'_>,
    named: &dyn Fn(&str) -> Option<Arc<PerformancePolicy>>,
) -> Option<Arc<PerformancePolicy>> {
    if !node.is_string() {
        return policy(node).map(Arc::new);
    }
    node.parse("the name of a performance policy", |name| {
        named(name).ok_or_else(|| {
            let name = excerpt(name);
            format!("there is no performance policy \"{name}\"; add it to PerformancePolicies")
        })
    })
}

/// A policy. Everything that is wrong with it is reported; what can be read is returned even then.
pub(in crate::policy) fn policy(node: &Node<'_>) -> Option<PerformancePolicy> {
    let fields = node.fields(KEYS, Unknown::Refuse)?;
    let order = fields.get("Order").and_then(|node| node.elements(ORDER));
    Some(PerformancePolicy {
        order: order.iter().flatten().filter_map(criterion).collect(),
        limits: Limits {
            max_latency: fields.get("MaxLatency").and_then(duration),
            max_jitter: fields.get("MaxJitter").and_then(duration),
            max_loss_ppm: fields.get("MaxLoss").and_then(Node::percent),
            min_mtu: fields
                .get("MinMTU")
                .and_then(|node| node.integer(1..=u16::MAX)),
        },
    })
}

/// The name of a property, or an object with its margin.
fn criterion(node: &Node<'_>) -> Option<Criterion> {
    if node.is_string() {
        return by(node, None);
    }
    let fields = node.fields(&["By", "Margin", "MarginPercent"], Unknown::Refuse)?;
    match fields.get("By") {
        Some(name) => by(name, Some(&fields)),
        None => {
            node.error("no property; write for example \"By\": \"latency\"");
            None
        }
    }
}

fn by(name: &Node<'_>, margin: Option<&Fields<'_>>) -> Option<Criterion> {
    let wanted = "\"latency\", \"jitter\", \"loss\", \"hops\" or \"mtu\"";
    let property = name.parse(wanted, |text| match text.to_ascii_lowercase().as_str() {
        "latency" => Ok(Criterion::Latency(Margin::TIME)),
        "jitter" => Ok(Criterion::Jitter(Margin::TIME)),
        "loss" => Ok(Criterion::Loss(Margin::LOSS)),
        "hops" => Ok(Criterion::Hops),
        "mtu" => Ok(Criterion::Mtu),
        _ => Err(format!("\"{}\" is unknown; write {wanted}", excerpt(text))),
    })?;
    let given = |key| margin.and_then(|fields| fields.get(key));
    let (absolute, percent) = (given("Margin"), given("MarginPercent"));
    if absolute.is_none() && percent.is_none() {
        return Some(property);
    }
    let percent = percent.map_or(Some(0), |node| node.integer(0..=100));
    // What is longer than a u32 of microseconds, over an hour, is no margin but nonsense; it is cut.
    let time = |node: &Node<'_>| {
        let micros = duration(node)?.as_micros();
        Some(u32::try_from(micros).unwrap_or(u32::MAX))
    };
    let margin = |absolute: Option<u32>| {
        Some(Margin {
            percent: percent?,
            absolute: absolute?,
        })
    };
    match property {
        Criterion::Latency(_) => margin(absolute.map_or(Some(0), time)).map(Criterion::Latency),
        Criterion::Jitter(_) => margin(absolute.map_or(Some(0), time)).map(Criterion::Jitter),
        Criterion::Loss(_) => margin(absolute.map_or(Some(0), Node::percent)).map(Criterion::Loss),
        Criterion::Hops | Criterion::Mtu | Criterion::Fingerprint => {
            name.error("hops and mtu are compared exactly; remove the margin");
            None
        }
    }
}

fn duration(node: &Node<'_>) -> Option<Duration> {
    node.parse("a duration, for example \"150ms\"", notation::duration)
}
