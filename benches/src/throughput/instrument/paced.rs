//! The generator for even load: AF_XDP, short bursts, asleep in between.

use anyhow::Result;
use testbed::Netns;

use super::{
    Generator, Sent, pace,
    packet::Load,
    sender::{Feed, Sender},
    template::Templates,
};
use crate::throughput::{
    layout::{Progress, Setup, write},
    trial::Rate,
};

/// Sends through a device with AF_XDP.
///
/// The packets bypass the device's own queueing discipline; its peer needs nothing. At low rates it
/// leaves the CPU to others between bursts of at most 50 µs and 64 packets.
pub struct Paced(Sender<Frames>);

impl Paced {
    /// A generator of `load` on queue 0 of `device`, whose thread runs on `cpu`.
    ///
    /// # Errors
    ///
    /// The load is impossible, there is no such device, another AF_XDP socket uses it, or privileges
    /// are missing.
    pub fn new(netns: &Netns, device: &str, load: &Load, cpu: Option<usize>) -> Result<Self> {
        let frames = Frames {
            templates: Templates::new(load)?,
            setup: Setup::default(),
            progress: pace::fresh(),
        };
        Sender::new(netns, device, frames, cpu).map(Paced)
    }
}

impl Generator for Paced {
    fn start(&mut self, rate: Rate) -> Result<()> {
        self.0.start(rate)
    }

    fn stop(&mut self) -> Result<Sent> {
        self.0.stop()
    }
}

/// Frames from templates.
struct Frames {
    templates: Templates,
    setup: Setup,
    progress: Progress,
}

impl Feed for Frames {
    fn begin(&mut self, rate: Rate) -> Result<()> {
        self.setup = pace::setup(self.templates.setup, rate)?;
        pace::begin(&mut self.progress);
        Ok(())
    }

    fn next(&mut self, now: u64, room: &mut [u8]) -> Option<usize> {
        let template = self.templates.frames.get(self.progress.template as usize)?;
        let packets = template.packets.into();
        if !self.setup.take_turn(&mut self.progress, now, packets) {
            return None;
        }
        let len = write(room, template, &self.setup, &mut self.progress, now);
        self.progress.step(&self.setup);
        len
    }

    fn state(&self) -> (&Setup, &Progress) {
        (&self.setup, &self.progress)
    }
}
