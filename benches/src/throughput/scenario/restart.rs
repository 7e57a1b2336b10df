//! The outage when a gateway is killed and started again under traffic.

use std::{
    thread,
    time::{Duration, Instant},
};

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
/// Silence of a direction that is no outage.
const NO_SILENCE: Duration = Duration::from_millis(500);
/// How long an outage may last.
const PATIENCE: Duration = Duration::from_secs(90);

/// Kills gateway B and starts it at once, under `rate` packets a second both ways. The outage is the longest time between
/// two packets that arrive, in the direction that suffers more: hosts that talk with each other need both.
pub(super) fn measure(
    chain: &mut dyn Chain,
    family: Family,
    size: u16,
    rate: f64,
) -> Result<Outcome, Refusal> {
    let streams = [
        Stream::start(chain, End::A, family, size, rate)?,
        Stream::start(chain, End::B, family, size, rate)?,
    ];
    let progress = || streams.each_ref().map(Stream::progress);
    wait_until("traffic before the restart", PATIENCE, || {
        Ok(progress().iter().all(|stream| stream.received > 0))
    })?;
    thread::sleep(BEFORE);
    streams.iter().for_each(Stream::forget_gaps);
    let before = progress();
    chain.restart(End::B)?;
    let mut seen = before;
    let mut since = Instant::now();
    wait_until("traffic after the restart", PATIENCE, || {
        let now = progress();
        let suffers = now
            .iter()
            .zip(&seen)
            .any(|(now, seen)| now.longest_gap > seen.longest_gap || now.silence > NO_SILENCE);
        if suffers {
            since = Instant::now();
        }
        seen = now;
        Ok(since.elapsed() > AFTER)
    })
    .context("the chain does not recover from the restart of a gateway")?;
    drop(streams);
    let [forward, reverse] = seen.map(|stream| stream.longest_gap.as_secs_f64());
    let lost = seen.iter().zip(&before).map(|(after, before)| {
        (after.sent - before.sent).saturating_sub(after.received - before.received)
    });
    Ok(Outcome {
        // It is not known better than to a millisecond: the traffic has gaps as long.
        values: vec![(Metric::Outage, forward.max(reverse).max(1e-3))],
        notes: vec![format!(
            "outage {forward:.3} s towards the gateway that was restarted, {reverse:.3} s from it; {} packets lost",
            lost.sum::<u64>()
        )],
    })
}
