//! `sig drain`: a running gateway leaves its traffic to others.

use std::{
    io::Write,
    path::Path,
    thread::sleep,
    time::{Duration, Instant},
};

use serde::Deserialize;
use sig_core::{notation::counted, status::Status};

use super::{
    Failure,
    socket::{Choice, Kind, answer, expect, fetch},
};

/// Routes are withdrawn within this time.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at the counters.
const LOOK: Duration = Duration::from_secs(1);
/// So many quiet looks in a row, and there is no more traffic.
const QUIET_LOOKS: u32 = 3;
/// Remote gateways have asked for prefixes by then, and follow what they were told.
const ASKED: Duration = Duration::from_secs(10);
/// Packets between two looks that are none to wait for, such as those of somebody who tries.
const QUIET: u64 = 2;

/// Have a running gateway leave its traffic to the other gateways of the AS, before it is stopped.
///
/// Remote gateways that ask are told no prefixes, and the kernel routes into the tunnel go, which routing daemons withdraw. What still comes
/// from remotes and by the interfaces in [dataplane] lan is carried; other packets follow the host's other routes at once. It ends with "sig
/// drain --undo", or with the gateway.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Take the traffic again.
    #[arg(long, conflicts_with = "wait")]
    undo: bool,
    /// Wait until remote gateways have asked (10 seconds) and there is no traffic for three seconds, at most so many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(..=86_400))]
    wait: Option<u64>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    gateway: Choice,
}

/// The gateway's answer.
#[derive(Deserialize)]
struct Drained {
    tells_remotes: bool,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let socket = args.gateway.socket()?;
    expect(&socket, Kind::Gateway, "drain").map_err(Failure::Failed)?;
    let wanted = if args.undo { "off" } else { "on" };
    let drained = answer(&socket, &format!("drain {wanted}\n"), PATIENCE)?;
    let drained: Drained = serde_json::from_slice(&drained).map_err(|error| {
        Failure::Failed(format!(
            "{}: not an answer that this version understands: {error}",
            socket.display()
        ))
    })?;
    let told = match (args.undo, drained.tells_remotes) {
        (true, _) => "draining has ended",
        (false, true) => {
            "draining: remote gateways are told no prefixes when they ask next, within seconds; kernel routes are withdrawn"
        }
        (false, false) => {
            "draining: kernel routes are withdrawn; remotes are in the configuration file, and their gateways are not told: change them there"
        }
    };
    if !args.json {
        writeln!(out, "{told}")?;
        out.flush()?;
    }
    let waited = args
        .wait
        .map(|seconds| wait(&socket, Duration::from_secs(seconds)));
    let left = waited.transpose()?;
    if args.json {
        let document = serde_json::json!({
            "draining": !args.undo,
            "tells_remotes": drained.tells_remotes,
            "is_quiet": left.map(|left| left.is_none()),
        });
        writeln!(out, "{document}")?;
    }
    match left {
        Some(Some(packets)) => Err(Failure::Failed(format!(
            "the time is over, with {} in the last second; see \"sig top\"",
            counted(usize::try_from(packets).unwrap_or(usize::MAX), "packet")
        ))),
        Some(None) if !args.json => Ok(writeln!(out, "no more traffic")?),
        _ => Ok(()),
    }
}

/// Waits until there is no traffic: `None`, or the packets of the last second when the time is over.
fn wait(socket: &Path, most: Duration) -> Result<Option<u64>, Failure> {
    let start = Instant::now();
    let carried = || -> Result<u64, Failure> {
        let status: Status = fetch(socket, Kind::Gateway)?;
        if !status.draining {
            return Err(Failure::Failed(
                "the gateway does not drain any more: it was restarted, or somebody ended it"
                    .into(),
            ));
        }
        Ok(status.counters.packets_sent + status.counters.packets_received)
    };
    let (mut before, mut quiet) = (carried()?, 0);
    loop {
        sleep(LOOK);
        let now = carried()?;
        let packets = now.saturating_sub(before);
        before = now;
        quiet = if packets > QUIET { 0 } else { quiet + 1 };
        if quiet >= QUIET_LOOKS && start.elapsed() >= ASKED {
            return Ok(None);
        }
        if start.elapsed() >= most {
            return Ok(Some(packets));
        }
    }
}
