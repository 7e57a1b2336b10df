//! `sig drops`: what a running gateway drops, as it happens.

use std::{
    io::{self, Write},
    time::{Duration, Instant},
};

use sig_common::reason::DropReason;
use sig_core::{
    notation::from_base64,
    remedy::remedy,
    tap::{Line, Packet, Wanted},
};

use super::{
    Failure,
    socket::Choice,
    watch::{Limits, Watch, summary, time},
};

/// Lines that are shown of the same reason in a second; more are summed up.
const PER_SECOND: u64 = 20;

/// Show the packets that a running gateway drops, until interrupted: time, reason, interface, addresses.
///
/// Where there is no copy of a packet, because it was lost in reassembly or too many were dropped at once, a line counts them once a second.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Which packets, as of "sig capture".
    filter: Vec<String>,
    /// Say what the reason means, and what to do.
    #[arg(short, long)]
    verbose: bool,
    /// Show all, not only 20 a second of each reason.
    #[arg(long)]
    all: bool,
    /// Print a JSON object per line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    limits: Limits,
    #[command(flatten)]
    gateway: Choice,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let wanted = Wanted {
        drops: true,
        filter: args.filter.join(" "),
        // Headers are enough.
        snaplen: 256,
        ..Wanted::default()
    };
    wanted
        .filter
        .parse::<sig_core::tap::Filter>()
        .map_err(|error| Failure::Refused(error.to_string()))?;
    let socket = args.gateway.socket()?;
    let mut watch = Watch::begin(&socket, &wanted, &args.limits, "drops")?;
    let mut drops = Drops::new(args.verbose, if args.all { u64::MAX } else { PER_SECOND });
    let idle = |drops: &mut Drops, out: &mut dyn Write| -> Result<(), Failure> {
        drops.begin_second(Instant::now(), out)?;
        Ok(out.flush()?)
    };
    while let Some(line) = watch.next(|| idle(&mut drops, out))? {
        if args.json {
            serde_json::to_writer(&mut *out, &line)
                .map_err(|error| Failure::from(io::Error::from(error)))?;
            writeln!(out)?;
        } else {
            drops.write(&line, Instant::now(), out)?;
        }
    }
    drops.sum_up(out)?;
    out.flush()?;
    if watch.missed > 0 {
        let count = watch.missed;
        let _ = writeln!(
            io::stderr(),
            "{count} more were too many to be shown: use a filter"
        );
    }
    Ok(())
}

/// What has been shown.
struct Drops {
    verbose: bool,
    limit: u64,
    since: Option<Instant>,
    /// Of each reason, how many in this second.
    seen: [u64; DropReason::COUNT],
    explained: [bool; DropReason::COUNT],
}

impl Drops {
    const fn new(verbose: bool, limit: u64) -> Self {
        Drops {
            verbose,
            limit,
            since: None,
            seen: [0; DropReason::COUNT],
            explained: [false; DropReason::COUNT],
        }
    }

    fn write(&mut self, line: &Line, now: Instant, out: &mut dyn Write) -> io::Result<()> {
        self.begin_second(now, out)?;
        let name = match line {
            Line::Packet(Packet {
                reason: Some(reason),
                ..
            })
            | Line::Dropped { reason, .. } => reason,
            Line::Packet(_) | Line::Alive { .. } => return Ok(()),
        };
        let reason = DropReason::ALL.into_iter().find(|of| of.name() == name);
        match line {
            Line::Packet(packet) => {
                if let Some(reason) = reason {
                    let seen = &mut self.seen[reason as usize];
                    *seen += 1;
                    if *seen > self.limit {
                        return Ok(());
                    }
                }
                let data = from_base64(&packet.data).unwrap_or_default();
                let remote = packet
                    .remote
                    .iter()
                    .map(|remote| format!(", remote {remote}"));
                writeln!(
                    out,
                    "{} {name} {} {} {}, {} bytes{}",
                    time(packet.at),
                    packet.interface,
                    packet.kind,
                    summary(&data),
                    packet.length,
                    remote.collect::<String>()
                )?;
            }
            Line::Dropped {
                at, place, count, ..
            } => writeln!(out, "{} {name} {place}, {count} without a copy", time(*at))?,
            Line::Alive { .. } => {}
        }
        if let Some(reason) = reason.filter(|_| self.verbose)
            && !std::mem::replace(&mut self.explained[reason as usize], true)
        {
            writeln!(out, "    {}", reason.describe())?;
            writeln!(out, "    {}", remedy(reason))?;
        }
        Ok(())
    }

    /// Tells what was not shown in a second that is over.
    fn begin_second(&mut self, now: Instant, out: &mut dyn Write) -> io::Result<()> {
        let is_over = |since: Instant| now.duration_since(since) >= Duration::from_secs(1);
        if self.since.is_none_or(is_over) {
            self.sum_up(out)?;
            self.since = Some(now);
        }
        Ok(())
    }

    /// Tells what was not shown.
    fn sum_up(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let limit = self.limit;
        let seen = DropReason::ALL.into_iter().zip(&mut self.seen);
        for (reason, seen) in seen {
            if let Some(more) = seen.checked_sub(limit).filter(|more| *more > 0) {
                writeln!(out, "    and {more} more {reason}")?;
            }
            *seen = 0;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use sig_core::notation::base64;

    use super::*;

    fn packet(reason: DropReason) -> Line {
        let mut frame = vec![0; 14];
        frame.extend([
            0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 1, 0, 5, 10, 2, 0, 6,
        ]);
        frame.extend([0, 53, 0, 80, 0, 0, 0, 0]);
        Line::Packet(Packet {
            at: 1_000_000_000,
            interface: "lan0".to_owned(),
            event: "drop".to_owned(),
            kind: "inner".to_owned(),
            reason: Some(reason.name().to_owned()),
            length: 42,
            data: base64(&frame),
            ..Packet::default()
        })
    }

    #[test]
    fn a_flood_of_one_reason_hides_no_other() {
        let mut drops = Drops::new(false, 2);
        let (mut out, start) = (Vec::new(), Instant::now());
        for _ in 0..5 {
            drops
                .write(&packet(DropReason::NoRoute), start, &mut out)
                .expect("written");
        }
        drops
            .write(&packet(DropReason::NoPath), start, &mut out)
            .expect("written");
        let later = start + Duration::from_secs(1);
        drops
            .write(&packet(DropReason::NoRoute), later, &mut out)
            .expect("written");
        let line = |reason: &str| {
            format!(
                "00:00:01.000000 {reason} lan0 inner 10.1.0.5 -> 10.2.0.6 UDP 53 -> 80, 42 bytes"
            )
        };
        let text = String::from_utf8(out).expect("text");
        assert_eq!(
            text.lines().collect::<Vec<_>>(),
            [
                &*line("no_route"),
                &line("no_route"),
                &line("no_path"),
                "    and 3 more no_route",
                &line("no_route"),
            ]
        );
    }

    #[test]
    fn a_reason_is_explained_once() {
        let mut drops = Drops::new(true, 20);
        let (mut out, now) = (Vec::new(), Instant::now());
        let counted = Line::Dropped {
            at: 0,
            reason: "unknown_remote".to_owned(),
            place: "kernel".to_owned(),
            count: 7,
        };
        for _ in 0..2 {
            drops.write(&counted, now, &mut out).expect("written");
        }
        let text = String::from_utf8(out).expect("text");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "00:00:00.000000 unknown_remote kernel, 7 without a copy"
        );
        assert_eq!(lines[1], "    A SIG frame came from an unknown gateway.");
        assert!(lines[2].starts_with("    add its AS"));
        assert_eq!(lines[3], lines[0]);
        assert_eq!(lines.len(), 4);
    }
}
