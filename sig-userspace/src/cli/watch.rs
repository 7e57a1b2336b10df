//! What a running gateway shows of packets, as it comes.

use std::{
    io::{BufRead, BufReader, ErrorKind, Read},
    os::unix::net::UnixStream,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use sig_common::wire::{ethernet, inner::InnerPacket};
use sig_core::{
    policy::class::protocol_name,
    tap::{Line, Wanted, whole},
};
use sig_observe::socket::set_nice;

use super::{
    Failure,
    dissect::live::until_signal,
    socket::{self, Kind},
};

/// How long a wish to end may go unnoticed.
const NOTICE: Duration = Duration::from_millis(100);
/// A gateway shows that it is there every second.
const SILENCE: Duration = Duration::from_secs(10);
/// Longest line: the longest packet in Base64, and what is said about it.
const LONGEST: u64 = 1 << 17;

/// How long to watch.
#[derive(clap::Args)]
pub(super) struct Limits {
    /// End after so many packets.
    #[arg(short = 'c', long, value_name = "N")]
    count: Option<u64>,
    /// End after so many seconds.
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
}

/// The lines of a gateway.
pub(super) struct Watch {
    lines: BufReader<UnixStream>,
    line: Vec<u8>,
    heard: Instant,
    end: Option<Instant>,
    left: Option<u64>,
    enough: Arc<AtomicBool>,
    /// Packets that were shown.
    pub(super) seen: u64,
    /// Packets that could not be, because they were too many.
    pub(super) missed: u64,
    shown: String,
}

impl Watch {
    /// Asks the gateway at this socket. It has begun when this returns.
    pub(super) fn begin(
        socket: &Path,
        wanted: &Wanted,
        limits: &Limits,
        command: &str,
    ) -> Result<Self, Failure> {
        socket::expect_gateway(socket, command).map_err(Failure::Failed)?;
        let wish = serde_json::to_string(wanted)
            .map_err(|error| Failure::Failed(format!("cannot ask: {error}")))?;
        let line = format!("watch {wish}\n");
        let stream = socket::open(socket, &line, Kind::Gateway).map_err(Failure::Failed)?;
        stream
            .set_read_timeout(Some(NOTICE))
            .map_err(|error| Failure::Failed(format!("{}: {error}", socket.display())))?;
        let enough = until_signal()
            .map_err(|error| Failure::Failed(format!("cannot wait for signals: {error}")))?;
        set_nice(19);
        let now = Instant::now();
        let mut watch = Watch {
            lines: BufReader::new(stream),
            line: Vec::new(),
            heard: now,
            end: limits
                .seconds
                .and_then(|seconds| now.checked_add(Duration::from_secs(seconds))),
            left: limits.count,
            enough,
            seen: 0,
            missed: 0,
            shown: socket.display().to_string(),
        };
        // The sign of life with which every answer begins.
        while watch.read()?.is_none() {
            if watch.enough.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(watch)
    }

    /// The next packet, or count of packets; `None` at the end. `idle` is called when there is none for now.
    pub(super) fn next(
        &mut self,
        mut idle: impl FnMut() -> Result<(), Failure>,
    ) -> Result<Option<Line>, Failure> {
        loop {
            let is_over = self.enough.load(Ordering::Relaxed)
                || self.end.is_some_and(|end| Instant::now() >= end)
                || self.left == Some(0);
            if is_over {
                return Ok(None);
            }
            if self.lines.buffer().is_empty() {
                idle()?;
            }
            match self.read()? {
                Some(Line::Alive { missed }) => self.missed = missed,
                Some(line) => {
                    if matches!(line, Line::Packet(_)) {
                        self.seen += 1;
                        self.left = self.left.map(|left| left - 1);
                    }
                    return Ok(Some(line));
                }
                None => {}
            }
        }
    }

    /// A line, if there is a whole one by now.
    fn read(&mut self) -> Result<Option<Line>, Failure> {
        let failed = |what: &str, shown: &str| Failure::Failed(format!("{shown}: {what}"));
        let room = LONGEST.saturating_sub(self.line.len() as u64);
        let read = self
            .lines
            .by_ref()
            .take(room)
            .read_until(b'\n', &mut self.line);
        match read {
            Ok(0) => {
                let text = String::from_utf8_lossy(&self.line);
                return Err(match text.strip_prefix("error\n") {
                    Some(why) => failed(why.trim_end(), &self.shown),
                    None => failed(
                        "the gateway has ended, or closed the connection because nobody read it for 5 seconds",
                        &self.shown,
                    ),
                });
            }
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return match self.heard.elapsed() > SILENCE {
                    true => Err(failed(
                        "the gateway does not answer; see its log",
                        &self.shown,
                    )),
                    false => Ok(None),
                };
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(None),
            Err(error) => return Err(failed(&error.to_string(), &self.shown)),
        }
        self.heard = Instant::now();
        if self.line.starts_with(b"error\n") || !self.line.ends_with(b"\n") {
            // The rest follows.
            return Ok(None);
        }
        let line = serde_json::from_slice(&self.line).map_err(|error| {
            failed(
                &format!("not an answer that this version understands: {error}"),
                &self.shown,
            )
        });
        self.line.clear();
        line.map(Some)
    }
}

/// Hours, minutes and microseconds of a day, UTC.
pub(super) fn time(nanoseconds: u64) -> String {
    let (seconds, micros) = (nanoseconds / 1_000_000_000, nanoseconds / 1000 % 1_000_000);
    format!(
        "{:02}:{:02}:{:02}.{micros:06}",
        seconds / 3600 % 24,
        seconds / 60 % 60,
        seconds % 60
    )
}

/// Addresses, protocol and ports of the IP packet in an Ethernet frame, of which the end may be missing.
pub(super) fn summary(frame: &[u8]) -> String {
    let packet = frame.get(ethernet::HEADER_LEN..).unwrap_or_default();
    let Ok(packet) = InnerPacket::parse(&*whole(packet)) else {
        return "no IP packet".to_owned();
    };
    let protocol = packet.upper_protocol().unwrap_or(packet.protocol);
    let name = protocol_name(protocol);
    let name = name.map_or_else(|| format!("protocol {protocol}"), str::to_owned);
    let (source, destination) = (packet.source, packet.destination);
    match packet.ports() {
        Some([from, to]) => format!("{source} -> {destination} {name} {from} -> {to}"),
        None => format!("{source} -> {destination} {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_off_is_not_needed() {
        let mut frame = vec![0; 14];
        frame.extend([
            0x45, 0, 5, 220, 0, 0, 0, 0, 64, 17, 0, 0, 10, 1, 0, 5, 10, 2, 0, 6,
        ]);
        frame.extend([0, 53, 0, 80, 0, 0, 0, 0]);
        assert_eq!(summary(&frame), "10.1.0.5 -> 10.2.0.6 UDP 53 -> 80");
        assert_eq!(summary(&frame[..20]), "no IP packet");
        assert_eq!(summary(&[]), "no IP packet");
        assert_eq!(time(3_723_000_004_000), "01:02:03.000004");
    }
}
