//! Throughput between two hosts, measured with iperf3.

use std::{fmt, net::IpAddr, path::Path, time::Duration};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use super::{Netns, Process};

/// The option for both directions.
const BOTH: &str = "--bidir";

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

/// Starts a server on the usual port, which measures with one client at a time. `log` is the file for what it prints.
///
/// # Errors
/// It does not start, or the port is taken.
pub fn serve(host: &Netns, log: &Path) -> Result<Process> {
    let mut command = host.command("iperf3");
    command.args(["--server", "--forceflush"]);
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
    protocol: Protocol,
    direction: Direction,
    seconds: u32,
) -> Result<Throughput> {
    let option = match direction {
        Direction::Forward => None,
        Direction::Reverse => Some("--reverse"),
    };
    let end = run(host, server, protocol, option, seconds)?;
    end.forward(protocol)
        .with_context(|| format!("iperf3 {protocol} to {server}, {direction}"))
}

/// The same in both directions at once: forward and reverse.
///
/// # Errors
/// As [`measure`].
pub fn measure_both(
    host: &Netns,
    server: IpAddr,
    protocol: Protocol,
    seconds: u32,
) -> Result<[Throughput; 2]> {
    // One client does both: with two, the second would have to connect against the load of the first.
    let end = run(host, server, protocol, Some(BOTH), seconds)?;
    let both = || -> Result<_> { Ok([end.forward(protocol)?, end.reverse(protocol)?]) };
    both().with_context(|| format!("iperf3 {protocol} to {server}, both ways"))
}

/// Datagrams of several flows that a client received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbered {
    /// All.
    pub received: u64,
    /// Those that came after a later one of their flow.
    pub out_of_order: u64,
}

/// Has the server at `server` send `flows` flows of datagrams to `host`, each at `rate` bits a second.
///
/// # Errors
/// As [`measure`].
pub fn numbered(
    host: &Netns,
    server: IpAddr,
    flows: u32,
    rate: u64,
    seconds: u32,
) -> Result<Numbered> {
    let protocol = Protocol::Udp { size: 200, rate };
    let flows = flows.to_string();
    let end = run_with(
        host,
        server,
        protocol,
        &["--reverse", "--parallel", &flows],
        seconds,
    )?;
    let mut numbered = Numbered {
        received: 0,
        out_of_order: 0,
    };
    for stream in end.streams {
        let Some(udp) = stream.udp else { continue };
        numbered.received += udp.packets.saturating_sub(udp.lost_packets);
        numbered.out_of_order += udp.out_of_order;
    }
    Ok(numbered)
}

fn run(
    host: &Netns,
    server: IpAddr,
    protocol: Protocol,
    direction: Option<&str>,
    seconds: u32,
) -> Result<End> {
    run_with(host, server, protocol, direction.as_slice(), seconds)
}

fn run_with(
    host: &Netns,
    server: IpAddr,
    protocol: Protocol,
    options: &[&str],
    seconds: u32,
) -> Result<End> {
    let mut command = host.command("iperf3");
    command
        .args(["--json", "--connect-timeout", "5000"])
        .args(["--time", &seconds.to_string()])
        .args(["--client", &server.to_string()])
        .args(options);
    match protocol {
        Protocol::Udp { size, rate } => {
            let rate = match (rate, options) {
                // Without a rate it sends ten datagrams for each turn in which it receives one, and loses the rest
                // of what the other end sends. Now they take turns, at a rate that it never reaches.
                (0, [BOTH]) => "100G/1".into(),
                (rate, _) => rate.to_string(),
            };
            command
                .args(["--udp", "--bitrate", &rate])
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
    let output = command.output().context("iperf3 does not start")?;
    parse(&output.stdout).with_context(|| {
        let error = String::from_utf8_lossy(&output.stderr);
        format!("iperf3 {protocol} to {server}: {error}")
    })
}

#[derive(Deserialize)]
struct Document {
    error: Option<String>,
    end: Option<End>,
}

/// Sums of all streams of a direction, as sender and receiver know them.
#[derive(Deserialize)]
struct End {
    #[serde(default)]
    streams: Vec<Stream>,
    sum_sent: Option<Sum>,
    sum_received: Option<Sum>,
    sum_sent_bidir_reverse: Option<Sum>,
    sum_received_bidir_reverse: Option<Sum>,
}

#[derive(Deserialize)]
struct Stream {
    udp: Option<Datagrams>,
}

#[derive(Deserialize)]
struct Datagrams {
    packets: u64,
    lost_packets: u64,
    out_of_order: u64,
}

#[derive(Deserialize)]
struct Sum {
    seconds: f64,
    bytes: f64,
    #[serde(default)]
    packets: f64,
}

/// Reads the JSON document of iperf3.
fn parse(document: &[u8]) -> Result<End> {
    let document: Document = serde_json::from_slice(document)?;
    if let Some(error) = document.error {
        bail!(error);
    }
    document.end.context("no result")
}

impl End {
    /// What was asked for; if that was both directions, what went from client to server.
    fn forward(&self, protocol: Protocol) -> Result<Throughput> {
        throughput(&self.sum_sent, &self.sum_received, protocol)
    }

    /// If both directions were asked for, what went from server to client.
    fn reverse(&self, protocol: Protocol) -> Result<Throughput> {
        let (sent, received) = (
            &self.sum_sent_bidir_reverse,
            &self.sum_received_bidir_reverse,
        );
        throughput(sent, received, protocol)
    }
}

fn throughput(
    sent: &Option<Sum>,
    received: &Option<Sum>,
    protocol: Protocol,
) -> Result<Throughput> {
    let received = received.as_ref().context("no result of the receiver")?;
    let per_second = 1.0 / received.seconds.max(0.001);
    let mbit_s = received.bytes * 8.0 / 1e6 * per_second;
    let Protocol::Udp { size, .. } = protocol else {
        return Ok(Throughput {
            mbit_s,
            pps: 0.0,
            loss_percent: 0.0,
        });
    };
    let sent = sent.as_ref().context("no result of the sender")?;
    // Not the receiver's count of lost datagrams: it does not know of those after the last one that arrived.
    let arrived = received.bytes / f64::from(size.max(1));
    let lost = (sent.packets - arrived).max(0.0);
    Ok(Throughput {
        mbit_s,
        pps: arrived * per_second,
        loss_percent: lost * 100.0 / sent.packets.max(1.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TCP: Protocol = Protocol::Tcp { segment: None };
    const UDP: Protocol = Protocol::Udp {
        size: 1000,
        rate: 0,
    };

    #[test]
    fn datagrams_that_arrived_count() {
        let document = br#"{"end": {
            "sum_sent": {"seconds": 2, "bytes": 1000000, "packets": 1000},
            "sum_received": {"seconds": 2, "bytes": 750000, "packets": 990},
            "sum_sent_bidir_reverse": {"seconds": 2, "bytes": 100000, "packets": 100},
            "sum_received_bidir_reverse": {"seconds": 2, "bytes": 100000, "packets": 100}}}"#;
        let end = parse(document).unwrap();
        let forward = end.forward(UDP).unwrap();
        assert_eq!((forward.pps, forward.loss_percent), (375.0, 25.0));
        assert_eq!(forward.mbit_s, 3.0);
        assert_eq!(end.reverse(UDP).unwrap().loss_percent, 0.0);
    }

    #[test]
    fn bytes_that_the_receiver_got_count() {
        let document = br#"{"end": {"sum_sent": {"seconds": 2, "bytes": 9e9},
                            "sum_received": {"seconds": 2, "bytes": 1250000}}}"#;
        let end = parse(document).unwrap();
        assert_eq!(end.forward(TCP).unwrap().mbit_s, 5.0);
        assert!(end.reverse(TCP).is_err());
    }

    #[test]
    fn an_error_of_iperf3_is_told() {
        let document = br#"{"start": {}, "error": "unable to connect"}"#;
        let error = parse(document).err().unwrap();
        assert_eq!(error.to_string(), "unable to connect");
        assert!(parse(b"").is_err());
    }
}
