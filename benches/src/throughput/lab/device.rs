//! A device under test between generator and sink.

use anyhow::Result;

use super::counters;
use crate::throughput::{
    instrument::{programs::Usage, run::Snapshot},
    measure::PROGRAM,
    trial::Trial,
};

/// What forwards packets between the two ports.
pub(super) trait UnderTest {
    /// Adds its counters and its CPU time.
    ///
    /// # Errors
    ///
    /// It has ended, or does not answer.
    fn read(&mut self, snapshot: &mut Snapshot) -> Result<()>;

    /// The counter of packets that ended here; none if they go on to the sink.
    fn own_sink(&self) -> Option<&'static str> {
        None
    }

    /// Whether it does what it is to do only after some packets at a low rate, in order and without loss, as
    /// [`UnderTest::judge`] can tell.
    fn starts_slowly(&self) -> bool {
        false
    }

    /// Looks whether a trial measured what it claims to.
    fn judge(&self, _trial: &mut Trial) {}
}

/// Adds runs and run time of the program under test.
pub(super) fn add_program(snapshot: &mut Snapshot, usage: Usage) {
    snapshot.counters.insert(PROGRAM.into(), usage.runs);
    let seconds = usage.time.as_secs_f64();
    snapshot.cpu.insert(PROGRAM.into(), seconds);
}

/// Adds the time of NAPI threads.
pub(super) fn add_napi(snapshot: &mut Snapshot, threads: &[u32]) {
    if threads.is_empty() {
        return;
    }
    let seconds = threads
        .iter()
        .filter_map(|thread| counters::thread_seconds(*thread, *thread));
    snapshot.cpu.insert("napi".into(), seconds.sum());
}
