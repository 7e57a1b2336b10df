//! Throughput between two hosts, measured with iperf3.

use std::{fmt, net::IpAddr, path::Path, time::Duration};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use super::{Netns, Process};

/// The port on which iperf3 listens if it is not told another.
pub const PORT: u16 = 5201;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// One stream, as fast as it goes.
    Tcp {
        /// Largest segment, TCP options included, in bytes; none: what the route allows.
        segment: Option<u16>,
    },
    /// Datagrams.
    Udp {
        /// Payload of a datagram, bytes.
        size: u32,
        /// Bits of payload a second: iperf3 does not find out by itself what gets through. 0: as fast as the sender can.
        rate: u64,
    },
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp { .. } => "TCP",
            Self::Udp { .. } => "UDP",
        })
    }
}

/// Which way the data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    Forward,
    /// From the server to the client.
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
pub struct Throughput {
    /// Payload, megabits a second.
    pub mbit_s: f64,
    /// Datagrams a second; 0 for TCP.
    pub pps: f64,
    /// Share of datagrams that did not arrive; 0 for TCP.
    pub loss_percent: f64,
}

/// Starts a server, which measures with one client at a time. `log` is the file for what it prints.
///
/// # Errors
/// It does not start, or the port is taken.
pub fn serve(host: &Netns, port: u16, log: &Path) -> Result<Process> {
    let mut command = host.command("iperf3");
    command
        .args(["--server", "--forceflush"])
        .args(["--port", &port.to_string()]);
    let mut server = Process::spawn(command, log)?;
    server.wait_for("listening", Duration::from_secs(5))?;
    Ok(server)
}

/// Runs a client on `host` against the server at `server`, for `seconds`.
///
/// # Errors
/// iperf3 fails, for example because nothing gets through; the message is that of iperf3.
pub fn measure(
    host: &Netns,
    server: IpAddr,
    port: u16,
    protocol: Protocol,
    direction: Direction,
    seconds: u32,
) -> Result<Throughput> {
    let mut command = host.command("iperf3");
    command
        .args(["--json", "--connect-timeout", "5000"])
        .args(["--time", &seconds.to_string()])
        .args(["--client", &server.to_string()])
        .args(["--port", &port.to_string()]);
    match protocol {
        Protocol::Udp { size, rate } => {
            command
                .args(["--udp", "--bitrate", &rate.to_string()])
                .args(["--length", &size.to_string()])
                // For when the receiver gets no processor: what it loses itself is not to be measured.
                .args(["--window", "2M"]);
        }
        Protocol::Tcp { segment } => {
            if let Some(segment) = segment {
                command.args(["--set-mss", &segment.to_string()]);
            }
        }
    }
    if direction == Direction::Reverse {
        command.arg("--reverse");
    }
    let output = command.output().context("iperf3 does not start")?;
    parse(&output.stdout, protocol).with_context(|| {
        let error = String::from_utf8_lossy(&output.stderr);
        format!("iperf3 {protocol} to {server}, {direction}: {error}")
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
    let Protocol::Udp { size, .. } = protocol else {
        let sum = end.sum_received.context("no result of the receiver")?;
        return Ok(Throughput {
            mbit_s: sum.bits_per_second / 1e6,
            pps: 0.0,
            loss_percent: 0.0,
        });
    };
    // `sum` counts datagrams of the sender, as the receiver knows them.
    let sum = end.sum.context("no result")?;
    let arrived = (sum.packets - sum.lost_packets).max(0.0);
    let pps = arrived / sum.seconds.max(0.001);
    Ok(Throughput {
        mbit_s: pps * f64::from(size) * 8.0 / 1e6,
        pps,
        loss_percent: sum.lost_packets * 100.0 / sum.packets.max(1.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TCP: Protocol = Protocol::Tcp { segment: None };

    #[test]
    fn datagrams_that_arrived_count() {
        let document = br#"{"end": {"sum": {"seconds": 2, "bits_per_second": 1e9, "packets": 1000, "lost_packets": 250}}}"#;
        let udp = Protocol::Udp {
            size: 1000,
            rate: 0,
        };
        let throughput = parse(document, udp).unwrap();
        assert_eq!((throughput.pps, throughput.loss_percent), (375.0, 25.0));
        assert_eq!(throughput.mbit_s, 3.0);
    }

    #[test]
    fn bytes_that_the_receiver_got_count() {
        let document = br#"{"end": {"sum_sent": {"seconds": 2, "bits_per_second": 9e9},
                            "sum_received": {"seconds": 2, "bits_per_second": 5e6}}}"#;
        assert_eq!(parse(document, TCP).unwrap().mbit_s, 5.0);
    }

    #[test]
    fn an_error_of_iperf3_is_told() {
        let document = br#"{"start": {}, "error": "unable to connect"}"#;
        let error = parse(document, TCP).unwrap_err();
        assert_eq!(error.to_string(), "unable to connect");
        assert!(parse(b"", TCP).is_err());
    }
}
