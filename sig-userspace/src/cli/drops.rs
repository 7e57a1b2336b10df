//! `sig drops`: what a running gateway drops, as it happens.

use std::io::{self, Write};

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

/// Packets that are shown of the same reason in a second; more are counted.
const PER_SECOND: u32 = 20;

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
        drops_per_second: if args.all { 0 } else { PER_SECOND },
        ..Wanted::default()
    };
    wanted
        .filter
        .parse::<sig_core::tap::Filter>()
        .map_err(|error| Failure::Refused(error.to_string()))?;
    let socket = args.gateway.socket()?;
    let mut watch = Watch::begin(&socket, &wanted, &args.limits, "drops")?;
    let mut drops = Drops::new(args.verbose);
    while let Some(line) = watch.next(|| Ok(out.flush()?))? {
        if args.json {
            serde_json::to_writer(&mut *out, &line)
                .map_err(|error| Failure::from(io::Error::from(error)))?;
            writeln!(out)?;
        } else {
            drops.write(&line, out)?;
        }
    }
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

/// What has been explained.
struct Drops {
    verbose: bool,
    explained: [bool; DropReason::COUNT],
}

impl Drops {
    const fn new(verbose: bool) -> Self {
        Drops {
            verbose,
            explained: [false; DropReason::COUNT],
        }
    }

    fn write(&mut self, line: &Line, out: &mut dyn Write) -> io::Result<()> {
        let name = match line {
            Line::Packet(Packet {
                reason: Some(reason),
                ..
            })
            | Line::Dropped { reason, .. }
            | Line::More { reason, .. } => reason,
            Line::Packet(_) | Line::Alive { .. } => return Ok(()),
        };
        match line {
            Line::Packet(packet) => {
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
            Line::More { at, count, .. } => writeln!(out, "{} {name}, {count} more", time(*at))?,
            Line::Alive { .. } => {}
        }
        let reason = DropReason::ALL.into_iter().find(|of| of.name() == name);
        if let Some(reason) = reason.filter(|_| self.verbose)
            && !std::mem::replace(&mut self.explained[reason as usize], true)
        {
            writeln!(out, "    {}", reason.describe())?;
            writeln!(out, "    {}", remedy(reason))?;
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
    fn a_packet_and_those_beyond_the_limit_are_a_line_each() {
        let mut drops = Drops::new(false);
        let mut out = Vec::new();
        let more = Line::More {
            at: 2_000_000_000,
            reason: "no_route".to_owned(),
            count: 3,
        };
        for line in [packet(DropReason::NoRoute), more] {
            drops.write(&line, &mut out).expect("written");
        }
        assert_eq!(
            String::from_utf8(out).expect("text"),
            "00:00:01.000000 no_route lan0 inner 10.1.0.5 -> 10.2.0.6 UDP 53 -> 80, 42 bytes\n\
             00:00:02.000000 no_route, 3 more\n"
        );
    }

    #[test]
    fn a_reason_is_explained_once() {
        let mut drops = Drops::new(true);
        let mut out = Vec::new();
        let counted = Line::Dropped {
            at: 0,
            reason: "unknown_remote".to_owned(),
            place: "kernel".to_owned(),
            count: 7,
        };
        for _ in 0..2 {
            drops.write(&counted, &mut out).expect("written");
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
