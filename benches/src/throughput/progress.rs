//! What runs, and how far it is.

use std::time::Instant;

/// Lines on standard error.
pub struct Progress {
    is_shown: bool,
    started: Instant,
    /// Seconds that everything is estimated to take, and what is done.
    total: f64,
    done: f64,
}

impl Progress {
    /// For a run that is estimated to take `total` seconds.
    pub fn of(total: f64) -> Self {
        Self {
            is_shown: true,
            started: Instant::now(),
            total,
            done: 0.0,
        }
    }

    /// One that shows nothing, for tests.
    pub fn hidden() -> Self {
        Self {
            is_shown: false,
            ..Self::of(0.0)
        }
    }

    /// A line.
    pub fn line(&self, line: &str) {
        if self.is_shown {
            eprintln!("{line}");
        }
    }

    /// The next thing that is measured.
    pub fn step(&self, label: &str) {
        let percent = 100.0 * (self.done / self.total.max(self.done).max(1e-9));
        let seconds = self.started.elapsed().as_secs();
        self.line(&format!("[{seconds:4} s, {percent:3.0} %] {label}"));
    }

    /// Something is done that was estimated to take so many seconds.
    pub fn done(&mut self, estimate: f64) {
        self.done += estimate;
    }
}
