//! CPU time per million packets: what the scheduler charges to the gateway processes, and to these and both clients, to the
//! nanosecond.
//!
//! A kernel without `CONFIG_IRQ_TIME_ACCOUNTING` charges soft interrupts to the thread on top of which they run. On veth
//! that is the sender of the packet: a client, a gateway, a router of the reference, or `ksoftirqd`. What XDP programs of a gateway or the
//! forwarding kernel do for a packet of the client is the client's time.

use std::{thread, time::Duration};

use anyhow::{Result, anyhow};

use super::{Outcome, stream::Stream};
use crate::throughput::{
    chain::{Chain, End, process_time, softirq_time},
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
    let processes = chain.gateways();
    let read = || -> Result<_> {
        let of_gateways: Duration = processes
            .iter()
            .map(|process| process_time(*process))
            .sum::<Result<_>>()?;
        let of_clients = stream.time()? + softirq_time()?;
        Ok((stream.progress(), of_gateways, of_clients))
    };
    let (before, gateways_before, clients_before) = read()?;
    thread::sleep(Duration::from_secs_f64(seconds));
    let (after, gateways, clients) = read()?;
    drop(stream);

    let (sent, received) = (after.sent - before.sent, after.received - before.received);
    if received == 0 {
        return Err(anyhow!("of {sent} packets none arrived").into());
    }
    let loss = 100.0 - received as f64 * 100.0 / sent.max(1) as f64;
    let per_million = |after: Duration, before| {
        after.saturating_sub(before).as_secs_f64() * 1e6 / received as f64
    };
    let of_gateways = per_million(gateways, gateways_before);
    let of_clients = per_million(clients, clients_before);
    Ok(Outcome {
        values: vec![
            (Metric::CpuProcess, of_gateways),
            (Metric::CpuAll, of_gateways + of_clients),
        ],
        notes: (loss > REMARKABLE_LOSS)
            .then(|| format!("{loss:.1} % of the packets were lost"))
            .into_iter()
            .collect(),
    })
}
