//! CPU time of the gateway processes per million packets: what the scheduler charges to them, to the nanosecond.
//!
//! A kernel without `CONFIG_IRQ_TIME_ACCOUNTING` charges soft interrupts to the process on top of which they run, which on
//! veth is most of them.

use std::{thread, time::Duration};

use anyhow::{Result, anyhow};

use super::{Outcome, stream::Stream};
use crate::throughput::{
    chain::{Chain, End, process_time},
    experiment::Family,
    record::Metric,
    subject::Refusal,
};

/// Load before anything is counted.
const WARM_UP: Duration = Duration::from_millis(300);
/// Loss above this, percent, is remarked upon.
const REMARKABLE_LOSS: f64 = 0.1;

/// CPU time under `rate` packets a second from client A to client B, per million packets that arrive.
pub(super) fn measure(
    chain: &dyn Chain,
    family: Family,
    size: u16,
    rate: f64,
    seconds: f64,
) -> Result<Outcome, Refusal> {
    let stream = Stream::start(chain, End::A, family, size, rate)?;
    thread::sleep(WARM_UP);
    let gateways = chain.gateways();
    let read = || -> Result<_> {
        let mut time = Duration::ZERO;
        for gateway in &gateways {
            time += process_time(*gateway)?;
        }
        Ok((stream.progress(), time))
    };
    let (before, time_before) = read()?;
    thread::sleep(Duration::from_secs_f64(seconds));
    let (after, time) = read()?;
    drop(stream);

    let (sent, received) = (after.sent - before.sent, after.received - before.received);
    if received == 0 {
        return Err(anyhow!("of {sent} packets none arrived").into());
    }
    let loss = 100.0 - received as f64 * 100.0 / sent.max(1) as f64;
    let used = time.saturating_sub(time_before).as_secs_f64();
    Ok(Outcome {
        values: vec![(Metric::CpuProcess, used * 1e6 / received as f64)],
        notes: (loss > REMARKABLE_LOSS)
            .then(|| format!("{loss:.1} % of the packets were lost"))
            .into_iter()
            .collect(),
    })
}
