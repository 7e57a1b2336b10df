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
    let (rtt, loss) = ping(chain, family, size, count, Pace::Every(INTERVAL))?;
    let note = (loss > 0.0).then(|| format!("{loss:.2} % of the pings were lost"));
    Ok(Outcome {
        values: vec![(Metric::RttIdle, rtt)],
        notes: note.into_iter().collect(),
    })
}

/// Flood ping: mean round trip and loss.
pub(super) fn flood(
    chain: &dyn Chain,
    family: Family,
    size: u16,
    count: u32,
) -> Result<Outcome, Refusal> {
    let (rtt, loss) = ping(chain, family, size, count, Pace::Flood(OUTSTANDING))?;
    Ok(Outcome {
        values: vec![(Metric::FloodRttAvg, rtt), (Metric::FloodLoss, loss)],
        notes: Vec::new(),
    })
}

/// Mean round trip, microseconds, and lost packets, percent.
fn ping(
    chain: &dyn Chain,
    family: Family,
    size: u16,
    count: u32,
    pace: Pace,
) -> Result<(f64, f64), Refusal> {
    let ping = chain.ping(&Pings {
        size,
        family,
        count,
        pace,
    })?;
    let rtt = ping.rtt.context("no ping was answered")?;
    Ok((rtt.as_secs_f64() * 1e6, ping.loss_percent()))
}
