//! Paths to remote ASes: which there are, which of them work and how well, and which a session uses.
//!
//! | | |
//! |---|---|
//! | [`Monitor`] | all paths to one AS: probes, round trip times, loss, liveness, path MTU |
//! | [`Revocations`] | interfaces that were reported down, for all ASes together |
//! | [`Selector`] | the paths that one session uses, steadily and by a [`Ranking`] |
//! | [`flows::Buckets`] | which flow of a session goes over which of them |
//!
//! Pure: nothing here sends, receives or asks for the time. One round of the owner of these machines:
//! give [`Monitor`] the answers that have arrived, send what [`Monitor::poll_probes`] hands out, let every
//! [`Selector`] choose from [`Monitor::states`], tell the monitor what is used
//! ([`Monitor::set_in_use`]), and sleep until the earliest of the deadlines.

mod estimate;
pub mod flows;
mod monitor;
mod prober;
mod ranking;
mod revocations;
mod selector;
mod state;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use monitor::{Counters, Monitor, Probe, Settings};
pub use ranking::{Criterion, Margin, Ranking};
pub use revocations::{Failure, Revocations};
pub use selector::{Availability, Selection, Selector};
pub use state::{Liveness, PathState, enters_through};
