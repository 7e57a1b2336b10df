//! CPU time per million packets.
//!
//! * of the gateway processes: what the scheduler charges to them, to the nanosecond (their CPU clocks);
//! * of softirqs: that of the whole machine (`/proc/stat`), with the share of clients and routers, sampled at each tick
//!   of the kernel;
//! * total: the sum of both.
//!
//! A kernel without `CONFIG_IRQ_TIME_ACCOUNTING` charges softirqs to the process on top of which they run as well, which
//! on veth is most of them: there the total is an upper bound, for every chain alike.

use std::{fs, thread, time::Duration};

use anyhow::{Context as _, Result};

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
        let mut processes = Vec::new();
        for gateway in &gateways {
            processes.push(process_time(gateway.pid)?);
        }
        Ok((stream.progress(), processes, softirq_time()?))
    };
    let (packets_before, processes_before, softirq_before) = read()?;
    thread::sleep(Duration::from_secs_f64(seconds.max(0.1)));
    let (packets, processes, softirq) = read()?;
    drop(stream);

    let sent = packets.sent - packets_before.sent;
    let received = packets.received - packets_before.received;
    if received == 0 {
        return Err(anyhow::anyhow!("of {sent} packets none arrived").into());
    }
    let per_million = |time: Duration| time.as_secs_f64() * 1e6 / received as f64;
    let used = |end: End| -> Duration {
        let of_end = gateways.iter().zip(processes_before.iter().zip(&processes));
        of_end
            .filter(|(gateway, _)| gateway.end == end)
            .map(|(_, (before, after))| after.saturating_sub(*before))
            .sum()
    };
    let [sender, receiver] = End::ALL.map(used).map(per_million);
    let softirq = per_million(softirq.saturating_sub(softirq_before));
    let mut notes = vec![format!(
        "sending gateway {sender:.2}, receiving gateway {receiver:.2} CPU seconds per million packets"
    )];
    let loss = 100.0 - received as f64 * 100.0 / sent.max(1) as f64;
    if loss > REMARKABLE_LOSS {
        notes.push(format!("{loss:.1} % of the packets were lost"));
    }
    Ok(Outcome {
        values: vec![
            (Metric::CpuProcess, sender + receiver),
            (Metric::CpuSoftirq, softirq),
            (Metric::CpuTotal, sender + receiver + softirq),
        ],
        notes,
    })
}

/// Time of all CPUs in softirqs.
fn softirq_time() -> Result<Duration> {
    let text = fs::read_to_string("/proc/stat").context("/proc/stat")?;
    let ticks = softirq_ticks(&text).context("/proc/stat does not tell the time of softirqs")?;
    // SAFETY: takes no pointer.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    Ok(Duration::from_secs_f64(
        ticks as f64 / per_second.max(1) as f64,
    ))
}

/// The seventh number of the line of all CPUs: after user, nice, system, idle, iowait and irq.
fn softirq_ticks(stat: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    line.split_whitespace().nth(6)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_softirqs_are_found() {
        let stat = "cpu  1 2 3 4 5 6 77 8 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\nintr 5\n";
        assert_eq!(softirq_ticks(stat), Some(77));
        assert_eq!(softirq_ticks("cpu0 1 2 3\n"), None);
        assert!(softirq_time().is_ok());
    }
}
