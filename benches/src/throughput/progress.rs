//! What runs, and how long it will take: a line that changes on a terminal, lines elsewhere.

use std::{
    io::{IsTerminal as _, stderr},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::trial::Trial;
use crate::throughput::report::number;

/// Shows on standard error what a run does.
pub struct Progress {
    bar: Option<ProgressBar>,
    started: Instant,
    /// Seconds of everything, and of what is done where that is an estimate.
    total: f64,
    done: Option<f64>,
    label: String,
}

impl Progress {
    /// For a run that takes as long as its work, which is estimated to be `total` seconds.
    pub fn of_work(total: f64) -> Self {
        Self::new(total, Some(0.0))
    }

    /// For a run that takes so long.
    pub fn of_length(length: Duration) -> Self {
        Self::new(length.as_secs_f64(), None)
    }

    fn new(total: f64, done: Option<f64>) -> Self {
        let bar = stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(1000), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{bar:24.cyan/dim} {prefix} {wide_msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Progress {
            bar,
            started: Instant::now(),
            total,
            done,
            label: String::new(),
        }
    }

    /// One that shows nothing, for tests.
    pub fn hidden() -> Self {
        Progress {
            bar: Some(ProgressBar::hidden()),
            started: Instant::now(),
            total: 0.0,
            done: None,
            label: String::new(),
        }
    }

    /// A line that stays.
    pub fn line(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.println(line),
            None => eprintln!("{line}"),
        }
    }

    /// The next thing that is measured.
    pub fn step(&mut self, label: String) {
        let left = self.left().map_or_else(String::new, |left| {
            let left = Duration::from_secs(left.as_secs());
            format!("{} left", humantime::format_duration(left))
        });
        match &self.bar {
            Some(bar) => {
                bar.set_position((1000.0 * self.share()) as u64);
                bar.set_prefix(left);
                bar.set_message(label.clone());
            }
            None => {
                let percent = 100.0 * self.share();
                eprintln!(
                    "[{percent:3.0} %{}{left}] {label}",
                    if left.is_empty() { "" } else { ", " }
                );
            }
        }
        self.label = label;
    }

    /// A trial of what is measured.
    pub fn trial(&self, number: u32, trial: &Trial) {
        let Some(bar) = &self.bar else { return };
        let offered = number::si(trial.offered());
        let lost = 100.0 * (1.0 - trial.delivery_ratio());
        bar.set_message(format!(
            "{}, trial {number}: {offered}pps offered, {lost:.2} % lost",
            self.label
        ));
    }

    /// Something is done that was estimated to take this many seconds.
    pub fn done(&mut self, estimate: f64) {
        if let Some(done) = &mut self.done {
            *done += estimate;
        }
    }

    /// The end.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn share(&self) -> f64 {
        let done = self.done.unwrap_or(self.started.elapsed().as_secs_f64());
        if self.total > 0.0 {
            (done / self.total).min(1.0)
        } else {
            0.0
        }
    }

    /// Time left, at the pace so far; none before anything is done. As long as little is done, its pace, which is that of
    /// setting up, tells less than the estimate.
    fn left(&self) -> Option<Duration> {
        let elapsed = self.started.elapsed().as_secs_f64();
        let left = match self.done {
            None => (self.total - elapsed).max(0.0),
            Some(0.0) => return None,
            Some(done) => {
                let credit = self.total / 4.0;
                let pace = (elapsed + credit) / (done + credit);
                pace * (self.total - done)
            }
        };
        Duration::try_from_secs_f64(left).ok()
    }
}
