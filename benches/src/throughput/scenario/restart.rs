//! The outage when a gateway is killed and started again under traffic.

use std::time::Duration;

use anyhow::Context as _;
use testbed::wait_until;

use super::{Outcome, stream::Stream};
use crate::throughput::{
    chain::{Chain, End},
    experiment::Family,
    record::Metric,
    subject::Refusal,
};

/// Traffic before the gateway is killed.
const BEFORE: Duration = Duration::from_millis(500);
/// Traffic without an outage after which the chain is taken as recovered. What a gateway notices only later counts too.
const AFTER: Duration = Duration::from_secs(2);
/// How long an outage may last.
const PATIENCE: Duration = Duration::from_secs(90);

/// Kills the gateway that receives and starts it at once, under `rate` packets a second from client A to client B. The
/// outage is the longest time between two packets that arrive.
pub(super) fn measure(
    chain: &mut dyn Chain,
    family: Family,
    size: u16,
    rate: f64,
) -> Result<Outcome, Refusal> {
    let stream = Stream::start(chain, family, size, rate)?;
    wait_until("traffic before the restart", PATIENCE, || {
        Ok(stream.progress().received > 0)
    })?;
    std::thread::sleep(BEFORE);
    stream.forget_gaps();
    let before = stream.progress();
    chain.restart(End::B)?;
    let mut seen = before;
    let mut since = std::time::Instant::now();
    wait_until("traffic after the restart", PATIENCE, || {
        let now = stream.progress();
        // A new longest gap, or nothing for a while: not recovered yet.
        if now.longest_gap > seen.longest_gap || now.silence > AFTER / 4 {
            since = std::time::Instant::now();
        }
        seen = now;
        Ok(now.received > before.received && since.elapsed() > AFTER)
    })
    .context("the chain does not recover from the restart of a gateway")?;
    let after = stream.progress();
    drop(stream);
    let lost = (after.sent - before.sent).saturating_sub(after.received - before.received);
    Ok(Outcome {
        values: vec![(Metric::Outage, after.longest_gap.as_secs_f64())],
        notes: vec![format!(
            "{lost} packets did not arrive, at {rate} packets a second"
        )],
    })
}
