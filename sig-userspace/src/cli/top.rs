//! What changes between two looks at a status, again and again.

use std::{
    io::{self, IsTerminal as _, Write},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use super::{
    Failure,
    socket::{self, Kind},
};

/// How often, and for how long.
#[derive(clap::Args)]
pub(super) struct Updates {
    /// Seconds between updates.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = interval)]
    interval: f64,
    /// Exit after this many updates.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

fn interval(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("write a number of seconds from 0.1 to 3600".to_owned()),
    }
}

/// Writes what changed in the status of what listens there: the one before, the one now, and the seconds between them.
pub(super) fn show<S: serde::de::DeserializeOwned>(
    updates: &Updates,
    socket: &Path,
    asked: Kind,
    write: impl Fn(&S, &S, f64, &mut dyn Write) -> io::Result<()>,
) -> Result<(), Failure> {
    // Home, and clear the rest: the terminal keeps what was above.
    const REDRAW: &str = "\x1b[H\x1b[2J";
    let mut out = io::stdout().lock();
    let redraws = out.is_terminal();
    let mut before: Option<(S, Instant)> = None;
    let mut looks = 0;
    loop {
        let status = socket::fetch(socket, asked)?;
        let now = Instant::now();
        if let Some((earlier, then)) = &before {
            let seconds = (now - *then).as_secs_f64();
            if redraws {
                out.write_all(REDRAW.as_bytes())?;
            }
            write(earlier, &status, seconds, &mut out)?;
            out.flush()?;
            looks += 1;
        }
        if updates.count == Some(looks) {
            return Ok(());
        }
        before = Some((status, now));
        thread::sleep(Duration::from_secs_f64(updates.interval));
    }
}
