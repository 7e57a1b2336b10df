//! A line that tells what happens now.

use std::{
    io::{self, IsTerminal as _, Write as _},
    time::Instant,
};

/// Counts steps. On a terminal one line is overwritten, elsewhere each step gets a line.
pub(super) struct Progress {
    steps: usize,
    step: usize,
    start: Instant,
    overwrite: bool,
}

impl Progress {
    pub(super) fn new(steps: usize) -> Self {
        Self {
            steps,
            step: 0,
            start: Instant::now(),
            overwrite: io::stdout().is_terminal(),
        }
    }

    /// The next step begins.
    pub(super) fn step(&mut self, what: &str) {
        self.step += 1;
        let line = format!(
            "[{:>2}/{}] {:>3} s  {what}",
            self.step,
            self.steps,
            self.start.elapsed().as_secs()
        );
        let mut out = io::stdout().lock();
        // Nothing is lost when nobody reads it.
        let _ = if self.overwrite {
            write!(out, "\r\x1b[K{line}").and_then(|()| out.flush())
        } else {
            writeln!(out, "{line}")
        };
    }

    /// All steps are done.
    pub(super) fn done(self) {
        if self.overwrite {
            print!("\r\x1b[K");
        }
        println!("done in {} s", self.start.elapsed().as_secs());
    }
}
