//! iperf3 between the clients.

use testbed::iperf::{self, Direction, Protocol, Throughput};

use super::Outcome;
use crate::throughput::{
    chain::{Chain, End},
    experiment::Family,
    record::Metric,
    subject::Refusal,
};

/// Least value that Linux takes as maximum segment size.
const LEAST_SEGMENT: u16 = 88;

/// One TCP stream, first A to B, then B to A, in packets of up to `size` bytes.
pub(super) fn tcp(
    chain: &dyn Chain,
    family: Family,
    size: u16,
    seconds: f64,
) -> Result<Outcome, Refusal> {
    // The segment size includes the options of the TCP header.
    let headers = ip_header(family) + 20;
    let segment = size.saturating_sub(headers);
    if segment < LEAST_SEGMENT {
        return Err(Refusal::NotHere(format!(
            "TCP segments are not shorter than packets of {} bytes",
            LEAST_SEGMENT + headers
        )));
    }
    let (a, b) = (chain.client(End::A, family)?, chain.client(End::B, family)?);
    let log = chain.network().folder().join("iperf3.log");
    let _server = iperf::serve(b.netns, &log)?;
    let run = |direction| {
        let tcp = Protocol::Tcp {
            segment: Some(segment),
        };
        iperf::measure(a.netns, b.address, tcp, direction, whole(seconds))
    };
    let forward = run(Direction::Forward)?;
    let reverse = run(Direction::Reverse)?;
    Ok(Outcome {
        values: vec![
            (Metric::TcpForward, forward.mbit_s * 1e6),
            (Metric::TcpReverse, reverse.mbit_s * 1e6),
        ],
        notes: Vec::new(),
    })
}

/// UDP in packets of `size` bytes, as fast as the clients can, both ways at once.
pub(super) fn udp(
    chain: &dyn Chain,
    family: Family,
    size: u16,
    seconds: f64,
) -> Result<Outcome, Refusal> {
    let payload = size.saturating_sub(ip_header(family) + 8);
    // The header of iperf3 itself.
    if payload < 16 {
        return Err(Refusal::NotHere(format!(
            "datagrams of iperf3 do not fit packets of {size} bytes"
        )));
    }
    let udp = Protocol::Udp {
        size: payload.into(),
        rate: 0,
    };
    let (a, b) = (chain.client(End::A, family)?, chain.client(End::B, family)?);
    let log = chain.network().folder().join("iperf3.log");
    let _server = iperf::serve(b.netns, &log)?;
    let [forward, reverse] = iperf::measure_both(a.netns, b.address, udp, whole(seconds))?;
    Ok(Outcome {
        values: vec![
            (Metric::UdpForward, forward.mbit_s * 1e6),
            (Metric::UdpReverse, reverse.mbit_s * 1e6),
            (Metric::UdpLoss, loss_percent(&[forward, reverse])),
        ],
        notes: Vec::new(),
    })
}

/// Loss of several runs together, weighted by what was sent.
fn loss_percent(runs: &[Throughput]) -> f64 {
    let sent: f64 = runs.iter().map(sent_pps).sum();
    let arrived: f64 = runs.iter().map(|run| run.pps).sum();
    if sent > 0.0 {
        (1.0 - arrived / sent) * 100.0
    } else {
        100.0
    }
}

fn sent_pps(run: &Throughput) -> f64 {
    let share = 1.0 - run.loss_percent / 100.0;
    if share > 0.0 { run.pps / share } else { 0.0 }
}

fn ip_header(family: Family) -> u16 {
    match family {
        Family::Ipv4 => 20,
        Family::Ipv6 => 40,
    }
}

/// iperf3 takes whole seconds.
fn whole(seconds: f64) -> u32 {
    seconds.ceil().max(1.0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_of_both_directions_is_weighted() {
        let run = |pps, loss_percent| Throughput {
            mbit_s: 0.0,
            pps,
            loss_percent,
        };
        // 1000 sent and 900 arrived, 3000 sent and 1500 arrived.
        let loss = loss_percent(&[run(900.0, 10.0), run(1500.0, 50.0)]);
        assert!((loss - 40.0).abs() < 1e-9, "{loss}");
        assert_eq!(loss_percent(&[run(0.0, 100.0)]), 100.0);
    }
}
