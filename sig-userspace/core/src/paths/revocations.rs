//! What routers have reported to be down.

use std::{
    fmt,
    time::{Duration, Instant},
};

use sig_common::addr::IsdAs;

use super::Monitor;
use crate::scion::{Interface, Path};

/// How long a report counts.
const KEPT: Duration = Duration::from_secs(10);
/// Reports remembered.
const LIMIT: usize = 256;

/// Something that a router reports to be down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// A link between ASes (SCMP type 5, External Interface Down).
    Interface(Interface),
    /// The way through an AS (SCMP type 6, Internal Connectivity Down).
    Connectivity {
        /// The AS.
        isd_as: IsdAs,
        /// Interface at which packets enter it.
        ingress: u64,
        /// Interface at which they should leave it.
        egress: u64,
    },
}

impl fmt::Display for Failure {
    /// As in a path policy: `1-ff00:0:110#11`, `1-ff00:0:110#1,2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Interface(interface) => interface.fmt(f),
            Failure::Connectivity {
                isd_as,
                ingress,
                egress,
            } => write!(f, "{isd_as}#{ingress},{egress}"),
        }
    }
}

impl Failure {
    /// Whether packets on the path meet it.
    #[must_use]
    pub fn is_on(&self, path: &Path) -> bool {
        match *self {
            Failure::Interface(interface) => path.crosses(interface),
            Failure::Connectivity {
                isd_as,
                ingress,
                egress,
            } => {
                let through = [ingress, egress].map(|id| Interface { isd_as, id });
                path.interfaces.windows(2).any(|two| *two == through)
            }
        }
    }
}

/// The reports of the last seconds. One for all remotes: what is down in a transit AS is so for paths to
/// anywhere.
#[derive(Debug, Default)]
pub struct Revocations {
    /// Oldest report first.
    reports: Vec<(Failure, Instant)>,
}

impl Revocations {
    /// A router reports a failure. Whether it is believed: it must be on a path that one of these monitors
    /// watches, for anybody can send such a message. Paths that it is on count as revoked for 10 s, or until
    /// two probes in a row, sent later than this, are answered.
    pub fn report<'a>(
        &mut self,
        now: Instant,
        failure: Failure,
        monitors: impl IntoIterator<Item = &'a Monitor>,
    ) -> bool {
        let mut monitors = monitors.into_iter();
        if !monitors.any(|monitor| monitor.is_concerned_by(&failure)) {
            return false;
        }
        self.reports
            .retain(|&(known, when)| known != failure && is_recent(when, now));
        if self.reports.len() == LIMIT {
            self.reports.remove(0);
        }
        self.reports.push((failure, now));
        true
    }

    /// When failures on this path were reported.
    pub(super) fn on(&self, now: Instant, path: &Path) -> impl Iterator<Item = Instant> {
        self.reports
            .iter()
            .filter(move |(failure, when)| is_recent(*when, now) && failure.is_on(path))
            .map(|&(_, when)| when)
    }

    /// When the next report stops to count.
    #[must_use]
    pub fn next_deadline(&self, now: Instant) -> Option<Instant> {
        let recent = self.reports.iter().map(|&(_, when)| when);
        recent
            .filter(|&when| is_recent(when, now))
            .map(|when| when + KEPT)
            .min()
    }
}

fn is_recent(when: Instant, now: Instant) -> bool {
    now.saturating_duration_since(when) < KEPT
}
