//! Round trips, measured with `ping` of iputils.

use std::time::Duration;

use anyhow::Context as _;

use super::Outcome;
use crate::throughput::{
    chain::{Chain, Pace, Pings},
    experiment::Family,
    record::Metric,
    subject::Refusal,
};

/// Between single pings: long enough that everything goes to sleep in between.
const INTERVAL: Duration = Duration::from_millis(10);
/// Requests of a flood without a reply, at a time: as in the thesis.
const OUTSTANDING: u32 = 65;

/// Mean round trip of single pings.
pub(super) fn idle(
    chain: &dyn Chain,
    family: Family,
    size: u16,
    count: u32,
) -> Result<Outcome, Refusal> {
    let ping = chain.ping(&Pings {
        size,
        family,
        count,
        pace: Pace::Every(INTERVAL),
    })?;
    let rtt = ping.rtt.context("no ping was answered")?;
    let mut notes = Vec::new();
    if ping.received < ping.sent {
        notes.push(format!(
            "{:.2} % of the pings were lost",
            ping.loss_percent()
        ));
    }
    Ok(Outcome {
        values: vec![(Metric::RttIdle, microseconds(rtt))],
        notes,
    })
}

/// Flood ping: mean round trip and loss.
pub(super) fn flood(
    chain: &dyn Chain,
    family: Family,
    size: u16,
    count: u32,
) -> Result<Outcome, Refusal> {
    let ping = chain.ping(&Pings {
        size,
        family,
        count,
        pace: Pace::Flood(OUTSTANDING),
    })?;
    let rtt = ping.rtt.context("no ping was answered")?;
    Ok(Outcome {
        values: vec![
            (Metric::FloodRttAvg, microseconds(rtt)),
            (Metric::FloodLoss, ping.loss_percent()),
        ],
        notes: Vec::new(),
    })
}

fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
