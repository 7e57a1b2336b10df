//! The sink.

use std::{
    collections::BTreeSet,
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use aya::{
    Ebpf,
    maps::{Array, MapData, PerCpuArray},
    programs::xdp::XdpLink,
};
use hdrhistogram::Histogram;
use testbed::Netns;

use super::{packet::Expect, programs, thread};
use crate::throughput::{
    layout::{Expected, Totals, histogram, kind},
    trial::Latency,
};

/// Priority of the thread that receives: behind a generator on the same CPU it must come first.
const PRIORITY: i32 = 10;

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
    /// With `threaded` the device's packets are received by a kernel thread of its own, bound to that
    /// CPU, which goes before ordinary threads. Without it they are received by whatever sent them, on
    /// its CPU.
    ///
    /// # Errors
    ///
    /// There is no such device, it has another program, or privileges are missing.
    pub fn attach(
        netns: &Netns,
        device: &str,
        expect: &Expect,
        threaded: Option<usize>,
    ) -> Result<Sink> {
        let mut sink = Sink::load(expect)?;
        let mut attach = || programs::xdp_link(netns, &mut sink.ebpf, "sink", device);
        sink.link = Some(match threaded {
            Some(cpu) => receive_on(netns, device, cpu, attach)?,
            None => attach()?,
        });
        Ok(sink)
    }

    /// The program and its maps, not on a device yet.
    pub(super) fn load(expect: &Expect) -> Result<Sink> {
        let none = Expected::default();
        let settings = match *expect {
            Expect::Any => Expected {
                kind: kind::ANY,
                ..none
            },
            Expect::Ip { at } => Expected {
                kind: kind::IP,
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
        let mut times = Histogram::<u64>::new(3)?;
        for (bucket, (now, before)) in (0..).zip(self.buckets()?.iter().zip(&self.latency_before)) {
            // Also recording a value no times would make it the shortest or longest.
            if now > before {
                let (first, width) = histogram::range(bucket);
                times.record_n(first + width / 2, now - before)?;
            }
        }
        let microseconds = |nanoseconds: u64| nanoseconds as f64 / 1000.0;
        let at = |quantile| microseconds(times.value_at_quantile(quantile));
        Ok((!times.is_empty()).then(|| Latency {
            samples: times.len(),
            min: microseconds(times.min()),
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            max: microseconds(times.max()),
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

/// Does `attach`, and lets a kernel thread on `cpu` receive the packets of the device.
fn receive_on<T>(
    netns: &Netns,
    device: &str,
    cpu: usize,
    attach: impl FnOnce() -> Result<T>,
) -> Result<T> {
    // Devices of one name in several namespaces cannot be told apart by their threads' names, so the new
    // ones are looked for. A device that had one before must give it up first; that it cannot is no matter.
    let _ = switch_threads(netns, device, false);
    let before = receivers(device)?;
    let attached = attach()?;
    // Possible only now: without a program a veth does not receive by itself.
    switch_threads(netns, device, true)?;
    let all = receivers(device)?;
    let mut found: Vec<i32> = all.difference(&before).copied().collect();
    if found.is_empty() {
        // Before Linux 6.17 threads stay.
        found.extend(all);
    }
    ensure!(
        !found.is_empty(),
        "the kernel made no thread that receives from {device}"
    );
    for id in found {
        thread::pin(id, cpu).with_context(|| format!("cannot bind the receiver of {device}"))?;
        thread::make_realtime(id, PRIORITY)?;
    }
    Ok(attached)
}

fn switch_threads(netns: &Netns, device: &str, on: bool) -> Result<()> {
    let value = u8::from(on);
    // In a namespace only `ip netns exec` shows its devices in /sys.
    let switch = format!("echo {value} > /sys/class/net/{device}/threaded");
    let output = netns.command("sh").args(["-c", &switch]).output()?;
    ensure!(
        output.status.success(),
        "cannot receive from {device} by a thread: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

/// Ids of the kernel threads that receive from devices of this name, in any namespace.
fn receivers(device: &str) -> Result<BTreeSet<i32>> {
    let prefix = format!("napi/{device}-");
    let mut found = BTreeSet::new();
    for entry in fs::read_dir("/proc")
        .context("cannot list /proc")?
        .flatten()
    {
        let id = entry.file_name().to_string_lossy().parse::<i32>();
        let name = fs::read_to_string(entry.path().join("comm"));
        if let (Ok(id), Ok(name)) = (id, name)
            && name.starts_with(&prefix)
        {
            found.insert(id);
        }
    }
    Ok(found)
}
