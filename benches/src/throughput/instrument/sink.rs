//! The sink.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use aya::{
    Ebpf,
    maps::{Array, MapData, PerCpuArray},
    programs::xdp::XdpLink,
};
use testbed::Netns;

use super::{packet::Expect, programs};
use crate::throughput::{
    layout::{Expected, Totals, histogram, kind},
    trial::Latency,
};

/// Counts generated packets that arrive at a device, looks at sequence numbers and times, and drops
/// them. Everything else goes to the kernel.
pub struct Sink {
    // The link before the rest: the program leaves the device before its maps go.
    link: Option<XdpLink>,
    pub(super) ebpf: Ebpf,
    expected: Array<MapData, Expected>,
    totals: PerCpuArray<MapData, Totals>,
    latency: PerCpuArray<MapData, u64>,
    settings: Expected,
    before: Totals,
    latency_before: Vec<u64>,
}

/// What arrived since [`Sink::begin`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrived {
    /// Inner packets.
    pub packets: u64,
    /// Ethernet frames that held them.
    pub frames: u64,
    /// Inner packets with a sequence number that had arrived before; of SIG frames, the frames.
    pub duplicates: u64,
    /// Inner packets behind a later one of their flow; of SIG frames, frames behind a later one of their
    /// stream.
    pub reordered: u64,
    /// Packets that were something else.
    pub foreign: u64,
}

impl Sink {
    /// A sink on `device`.
    ///
    /// # Errors
    ///
    /// There is no such device, it has another program, or privileges are missing.
    pub fn attach(netns: &Netns, device: &str, expect: &Expect) -> Result<Sink> {
        let mut sink = Sink::load(expect)?;
        sink.link = Some(programs::xdp_link(netns, &mut sink.ebpf, "sink", device)?);
        Ok(sink)
    }

    /// The program and its maps, not on a device yet.
    pub(super) fn load(expect: &Expect) -> Result<Sink> {
        let none = Expected::default();
        let settings = match *expect {
            Expect::Ip { at } => Expected {
                kind: kind::IP,
                at: at.into(),
                ..none
            },
            Expect::Udp { at } => Expected {
                kind: kind::UDP,
                at: at.into(),
                ..none
            },
            Expect::SigFrames { packet_len } => Expected {
                kind: kind::SIG_FRAMES,
                packet_len: packet_len.into(),
                ..none
            },
            Expect::Scion { at, path_at, path } => Expected {
                kind: kind::SCION,
                at: at.into(),
                path_at: path_at.into(),
                path,
                ..none
            },
        };
        for at in [settings.at, settings.path_at] {
            ensure!(at < 256, "a header at offset {at} is too far behind");
        }
        let mut ebpf = programs::load()?;
        programs::set(&mut ebpf, "EXPECTED", settings)?;
        programs::load_xdp(&mut ebpf, "sink")?;
        let mut sink = Sink {
            link: None,
            expected: programs::map(&mut ebpf, "EXPECTED")?,
            totals: programs::map(&mut ebpf, "TOTALS")?,
            latency: programs::map(&mut ebpf, "LATENCY")?,
            ebpf,
            settings,
            before: Totals::default(),
            latency_before: Vec::new(),
        };
        sink.begin()?;
        Ok(sink)
    }

    /// Starts counting anew, and forgets sequence numbers.
    ///
    /// # Errors
    ///
    /// The kernel refuses access to the maps.
    pub fn begin(&mut self) -> Result<()> {
        self.settings.epoch = self.settings.epoch.wrapping_add(1);
        self.expected.set(0, self.settings, 0)?;
        self.before = self.totals()?;
        self.latency_before = self.buckets()?;
        Ok(())
    }

    /// What arrived since the beginning.
    ///
    /// # Errors
    ///
    /// As for [`Sink::begin`].
    pub fn arrived(&self) -> Result<Arrived> {
        let (now, before) = (self.totals()?, &self.before);
        let bytes = now.bytes - before.bytes;
        let packets = match u64::from(self.settings.packet_len) {
            0 => now.packets - before.packets,
            len => bytes / len,
        };
        Ok(Arrived {
            packets,
            frames: now.frames - before.frames,
            duplicates: now.duplicates - before.duplicates,
            reordered: now.reordered - before.reordered,
            foreign: now.foreign - before.foreign,
        })
    }

    /// Times from generator to sink since the beginning; of SIG frames, those of the first packet in each.
    /// None if nothing arrived.
    ///
    /// # Errors
    ///
    /// As for [`Sink::begin`].
    pub fn latency(&self) -> Result<Option<Latency>> {
        let now = self.buckets()?;
        let times: Vec<_> = (0..)
            .zip(now.iter().zip(&self.latency_before))
            .map(|(bucket, (now, before))| {
                let (first, width) = histogram::range(bucket);
                ((first + width / 2) as f64 / 1000.0, now - before)
            })
            .filter(|(_, count)| *count > 0)
            .collect();
        let samples: u64 = times.iter().map(|(_, count)| count).sum();
        let at = |share: f64| {
            let mut left = share * samples as f64;
            let found = times.iter().find(|(_, count)| {
                left -= *count as f64;
                left <= 0.0
            });
            found.or(times.last()).map_or(0.0, |(time, _)| *time)
        };
        Ok((samples > 0).then(|| Latency {
            samples,
            p50: at(0.5),
            p99: at(0.99),
            max: at(1.0),
        }))
    }

    /// Waits until nothing has arrived for the time `quiet`, or `wanted` packets have, at most for
    /// `patience`.
    ///
    /// # Errors
    ///
    /// As for [`Sink::begin`].
    pub fn settle(&self, wanted: u64, quiet: Duration, patience: Duration) -> Result<()> {
        let start = Instant::now();
        let mut last = (self.arrived()?.packets, start);
        while last.0 < wanted && last.1.elapsed() < quiet && start.elapsed() < patience {
            std::thread::sleep(Duration::from_millis(2));
            let packets = self.arrived()?.packets;
            if packets != last.0 {
                last = (packets, Instant::now());
            }
        }
        Ok(())
    }

    fn totals(&self) -> Result<Totals> {
        let mut sum = Totals::default();
        for of_cpu in self.totals.get(&0, 0)?.iter() {
            sum.frames += of_cpu.frames;
            sum.packets += of_cpu.packets;
            sum.bytes += of_cpu.bytes;
            sum.duplicates += of_cpu.duplicates;
            sum.reordered += of_cpu.reordered;
            sum.foreign += of_cpu.foreign;
        }
        Ok(sum)
    }

    fn buckets(&self) -> Result<Vec<u64>> {
        (0..histogram::BUCKETS)
            .map(|bucket| Ok(self.latency.get(&bucket, 0)?.iter().sum()))
            .collect()
    }
}
