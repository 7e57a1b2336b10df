//! The generator that replays a capture.

use std::{fs::File, io::BufReader, path::Path};

use anyhow::{Context as _, Result, bail, ensure};
use pcap_file::{DataLink, pcap::PcapReader};
use testbed::Netns;

use super::{
    Generator, Sent, pace,
    sender::{Feed, ROOM, Sender},
};
use crate::throughput::{
    layout::{Progress, Setup},
    trial::Rate,
};

/// Addresses of Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Macs {
    /// Source.
    pub source: [u8; 6],
    /// Destination.
    pub destination: [u8; 6],
}

/// Sends the frames of a capture over and over, at an even rate whatever their times, with AF_XDP.
///
/// Frames count as packets. Sinks should look for [`Any`](super::packet::Expect::Any), as the packets
/// have no markers.
pub struct Replay(Sender<Capture>);

impl Replay {
    /// A generator of the frames in the pcap file `file` on queue 0 of `device`, whose thread runs on
    /// `cpu`. With `macs` the frames get these addresses.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is not of Ethernet, holds no frame or one that was cut off or is too
    /// long; or as for [`Paced`](super::Paced::new).
    pub fn new(
        netns: &Netns,
        device: &str,
        file: &Path,
        macs: Option<Macs>,
        cpu: Option<usize>,
    ) -> Result<Self> {
        let frames =
            read(file, macs).with_context(|| format!("cannot replay {}", file.display()))?;
        let capture = Capture {
            frames,
            next: 0,
            setup: Setup::default(),
            progress: Progress::default(),
        };
        Sender::new(netns, device, capture, cpu).map(Replay)
    }
}

impl Generator for Replay {
    fn start(&mut self, rate: Rate) -> Result<()> {
        self.0.start(rate)
    }

    fn stop(&mut self) -> Result<Sent> {
        self.0.stop()
    }
}

fn read(file: &Path, macs: Option<Macs>) -> Result<Vec<Vec<u8>>> {
    let mut reader = PcapReader::new(BufReader::new(File::open(file)?))?;
    let link = reader.header().datalink;
    ensure!(
        link == DataLink::ETHERNET,
        "it is of {link:?}, not Ethernet"
    );
    let mut frames = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let packet = packet?;
        let mut frame = packet.data.into_owned();
        let number = frames.len() + 1;
        if frame.len() != packet.orig_len as usize {
            bail!("frame {number} was cut off");
        }
        if !(14..=ROOM).contains(&frame.len()) {
            bail!(
                "frame {number} has {} bytes; 14 to {ROOM} are possible",
                frame.len()
            );
        }
        if let Some(macs) = macs {
            frame[..6].copy_from_slice(&macs.destination);
            frame[6..12].copy_from_slice(&macs.source);
        }
        frames.push(frame);
    }
    ensure!(!frames.is_empty(), "it holds no frame");
    Ok(frames)
}

/// Recorded frames.
struct Capture {
    frames: Vec<Vec<u8>>,
    next: usize,
    setup: Setup,
    progress: Progress,
}

impl Feed for Capture {
    fn begin(&mut self, rate: Rate) -> Result<()> {
        self.setup = pace::setup(self.setup, rate)?;
        pace::begin(&mut self.progress);
        Ok(())
    }

    fn next(&mut self, now: u64, room: &mut [u8]) -> Option<usize> {
        if !self.setup.take_turn(&mut self.progress, now, 1) {
            return None;
        }
        let frame = self.frames.get(self.next)?;
        self.next = (self.next + 1) % self.frames.len();
        room.get_mut(..frame.len())?.copy_from_slice(frame);
        Some(frame.len())
    }

    fn state(&self) -> (&Setup, &Progress) {
        (&self.setup, &self.progress)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_is_read_and_gets_other_addresses() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../sig-userspace/tests/data/data-single-v4.pcap");
        let macs = Macs {
            source: [2; 6],
            destination: [4; 6],
        };
        let recorded = read(&file, None).expect("a capture");
        let frames = read(&file, Some(macs)).expect("a capture");
        assert_eq!(recorded.len(), frames.len());
        for (recorded, frame) in recorded.iter().zip(&frames) {
            assert_eq!(frame[..6], [4; 6]);
            assert_eq!(frame[6..12], [2; 6]);
            assert_eq!(frame[12..], recorded[12..]);
        }
    }

    #[test]
    fn what_is_no_capture_is_refused() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        assert!(read(&file, None).is_err());
    }
}
