//! What changes between two looks at a status, again and again.

mod gateway;

pub(super) use gateway::{Args, run};

use std::{
    io::{self, IsTerminal as _, Write},
    path::Path,
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use super::{
    Failure,
    dissect::live::until_signal,
    socket::{self, Kind},
};
use sig_linux::terminal::{INTERRUPT, Keys};

/// How long a signal to end may go unnoticed.
const NOTICE: Duration = Duration::from_millis(200);

/// How often, and for how long.
#[derive(clap::Args)]
pub(super) struct Updates {
    /// Seconds between updates.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = interval)]
    interval: f64,
    /// Exit after this many updates.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Exit after the first update.
    #[arg(long, conflicts_with = "count")]
    once: bool,
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
    show_as(updates, true, socket, asked, write, |_| false)
}

/// The same. On a terminal an update takes the place of the one before, if it `clears`; then `press` is told of keys, and
/// says whether the update is to be written again. The key q ends it, as Ctrl-C does.
fn show_as<S: serde::de::DeserializeOwned>(
    updates: &Updates,
    clears: bool,
    socket: &Path,
    asked: Kind,
    write: impl Fn(&S, &S, f64, &mut dyn Write) -> io::Result<()>,
    press: impl Fn(u8) -> bool,
) -> Result<(), Failure> {
    // Home, and clear the rest: the terminal keeps what was above.
    const REDRAW: &str = "\x1b[H\x1b[2J";
    let mut out = io::stdout().lock();
    let count = if updates.once { Some(1) } else { updates.count };
    let redraws = clears && count != Some(1) && out.is_terminal();
    // The terminal must be as it was before also after a signal.
    let keys = match redraws.then(Keys::open).flatten() {
        Some(keys) => Some((keys, until_signal().map_err(Failure::from)?)),
        None => None,
    };
    let mut draw = |earlier: &(S, Instant), latest: &(S, Instant)| -> io::Result<()> {
        if redraws {
            out.write_all(REDRAW.as_bytes())?;
        }
        let seconds = (latest.1 - earlier.1).as_secs_f64();
        write(&earlier.0, &latest.0, seconds, &mut out)?;
        out.flush()
    };
    let look = || Ok::<_, Failure>((socket::fetch(socket, asked)?, Instant::now()));
    let mut looks = 0;
    let mut earlier = None;
    let mut latest = look()?;
    while count != Some(looks) {
        let next = latest.1 + Duration::from_secs_f64(updates.interval);
        match &keys {
            None => thread::sleep(next.saturating_duration_since(Instant::now())),
            Some((keys, ended)) => {
                while Instant::now() < next {
                    match (keys.next(next.min(Instant::now() + NOTICE)), &earlier) {
                        _ if ended.load(Ordering::Relaxed) => return Ok(()),
                        (Some(b'q' | INTERRUPT), _) => return Ok(()),
                        (Some(key), Some(earlier)) if press(key) => draw(earlier, &latest)?,
                        _ => {}
                    }
                }
            }
        }
        let now = look()?;
        draw(&latest, &now)?;
        looks += 1;
        earlier = Some(std::mem::replace(&mut latest, now));
    }
    Ok(())
}
