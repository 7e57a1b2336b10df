//! Generators, the sink, and programs to put into devices under test.
//!
//! Rates and counts are of inner packets throughout, also where several share a SIG frame.

mod live_frames;
mod pace;
mod paced;
pub mod packet;
pub(super) mod processor;
pub mod programs;
pub mod run;
mod sink;
mod template;
#[cfg(test)]
mod tests;
pub(super) mod thread;

pub use live_frames::LiveFrames;
pub use paced::Paced;
pub use sink::{Arrived, Sink};

use std::time::Duration;

use super::trial::Rate;

/// A source of load on a device.
pub trait Generator {
    /// Starts to send, and returns when the first packet is on its way.
    ///
    /// # Errors
    ///
    /// It is running already, or the kernel refuses to send.
    fn start(&mut self, rate: Rate) -> anyhow::Result<()>;

    /// Stops. When this returns no more packets are sent.
    ///
    /// # Errors
    ///
    /// It was not started, or sending failed meanwhile.
    fn stop(&mut self) -> anyhow::Result<Sent>;
}

/// What a generator sent between start and stop.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sent {
    /// Inner packets.
    pub packets: u64,
    /// From the first packet to the call to stop.
    pub time: Duration,
}
