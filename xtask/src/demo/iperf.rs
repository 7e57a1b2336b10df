//! Throughput, measured with iperf3.

use std::{fmt, time::Duration};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use testbed::{Family, Network, Process};

/// Payload of a UDP datagram: fills most of a frame.
const UDP_SIZE: u32 = 1200;
/// Rate of the UDP senders: iperf3 does not find out by itself what gets through.
const UDP_RATE: &str = "200M";

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Tcp,
    Udp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        })
    }
}

/// Which way the data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// From client A to client B.
    Forward,
    /// From client B to client A.
    Reverse,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Forward => "a to b",
            Self::Reverse => "b to a",
        })
    }
}

/// What arrived.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Throughput {
    /// Payload, megabits a second.
    pub(super) mbit_s: f64,
    /// Datagrams a second; 0 for TCP.
    pub(super) pps: f64,
    /// Share of datagrams that did not arrive; 0 for TCP.
    pub(super) loss_percent: f64,
}

/// Starts the server on client B.
pub(super) fn serve(network: &Network) -> Result<Process> {
    let mut command = network.b.client.command("iperf3");
    command.args(["--server", "--forceflush"]);
    let mut server = Process::spawn(command, &network.folder().join("iperf3.log"))?;
    server.wait_for("listening", Duration::from_secs(5))?;
    Ok(server)
}

/// Runs the client on client A.
pub(super) fn measure(
    network: &Network,
    family: Family,
    protocol: Protocol,
    direction: Direction,
    seconds: u32,
) -> Result<Throughput> {
    let mut command = network.a.client.command("iperf3");
    command
        .args(["--json", "--connect-timeout", "5000"])
        .args(["--time", &seconds.to_string()])
        .args(["--client", &network.b.client_ip(family).to_string()]);
    if protocol == Protocol::Udp {
        command
            .args(["--udp", "--bitrate", UDP_RATE])
            .args(["--length", &UDP_SIZE.to_string()])
            // For when the receiver gets no processor: what it loses itself is not to be measured.
            .args(["--window", "2M"]);
    }
    if direction == Direction::Reverse {
        command.arg("--reverse");
    }
    let output = command.output().context("iperf3 does not start")?;
    parse(&output.stdout, protocol).with_context(|| {
        let error = String::from_utf8_lossy(&output.stderr);
        format!(
            "iperf3 {protocol} over {}, {direction}: {error}",
            family.name()
        )
    })
}

#[derive(Deserialize)]
struct Document {
    error: Option<String>,
    end: Option<End>,
}

#[derive(Deserialize)]
struct End {
    sum_received: Option<Sum>,
    sum: Option<Sum>,
}

#[derive(Deserialize)]
struct Sum {
    seconds: f64,
    bits_per_second: f64,
    #[serde(default)]
    packets: f64,
    #[serde(default)]
    lost_packets: f64,
}

/// Reads the JSON document of iperf3.
fn parse(document: &[u8], protocol: Protocol) -> Result<Throughput> {
    let document: Document = serde_json::from_slice(document)?;
    if let Some(error) = document.error {
        bail!(error);
    }
    let end = document.end.context("no result")?;
    if protocol == Protocol::Tcp {
        let sum = end.sum_received.context("no result of the receiver")?;
        return Ok(Throughput {
            mbit_s: sum.bits_per_second / 1e6,
            pps: 0.0,
            loss_percent: 0.0,
        });
    }
    // `sum` counts datagrams of the sender, as the receiver knows them.
    let sum = end.sum.context("no result")?;
    let arrived = (sum.packets - sum.lost_packets).max(0.0);
    let pps = arrived / sum.seconds.max(0.001);
    Ok(Throughput {
        mbit_s: pps * f64::from(UDP_SIZE) * 8.0 / 1e6,
        pps,
        loss_percent: sum.lost_packets * 100.0 / sum.packets.max(1.0),
    })
}
