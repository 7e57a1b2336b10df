//! The simplest things that can be done with a packet, as programs on a device: the machine's limits.

use std::{collections::BTreeMap, fs, os::fd::AsRawFd, time::Duration};

use anyhow::{Context as _, Result};
use aya::{
    Ebpf, EbpfLoader, Pod,
    maps::{Array, DevMap, Map, MapError, PerCpuArray, XskMap},
    programs::{
        ProgramInfo, SchedClassifier, TcAttachType, Xdp, XdpMode, tc::SchedClassifierLink,
        xdp::XdpLink,
    },
};
use testbed::Netns;

use crate::throughput::layout::{
    Expected, Forwarding, Next, Progress, Seen, Setup, Template, Totals,
};

/// The object with all programs of the harness, built by the build script.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/measure"));

macro_rules! pod {
    ($($name:ty),*) => {$(
        // SAFETY: `repr(C)`, made of integers only, no padding, and any bits are valid.
        unsafe impl Pod for $name {}
    )*};
}

pod!(
    Forwarding, Expected, Totals, Next, Seen, Setup, Progress, Template
);

/// A program on a device. It leaves the device when this is dropped.
#[derive(Debug)]
#[must_use = "the program leaves the device when this is dropped"]
pub struct Attached {
    // The link before the object: the program leaves the device before its maps go.
    _link: Link,
    ebpf: Ebpf,
    name: &'static str,
}

#[derive(Debug)]
#[expect(dead_code, reason = "held to be dropped")]
enum Link {
    Xdp(XdpLink),
    Tc(SchedClassifierLink),
}

/// XDP on `device` drops every packet.
///
/// # Errors
///
/// The device is not there, has another program, or the driver has no XDP of its own.
pub fn drop(netns: &Netns, device: &str) -> Result<Attached> {
    attach_xdp(netns, load()?, "drop", device)
}

/// XDP on `device` sends every packet through the device `to`, both in `netns`; with `drop_one_in` it
/// drops one packet in that many.
///
/// A veth `to` delivers only if its peer has an XDP program, or GRO switched on.
///
/// # Errors
///
/// As for [`drop()`].
pub fn redirect(
    netns: &Netns,
    device: &str,
    to: &str,
    drop_one_in: Option<u32>,
) -> Result<Attached> {
    let mut ebpf = load()?;
    let to = index_of(netns, to)?;
    set_forwarding(&mut ebpf, to, drop_one_in)?;
    let mut devices: DevMap<_> = map(&mut ebpf, "FORWARD_TO")?;
    // The kernel looks the device up in the namespace of the caller.
    netns
        .run(|| devices.set(0, to, None, 0))?
        .context("cannot name the device to send through")?;
    attach_xdp(netns, ebpf, "redirect", device)
}

/// XDP on `device` gives every packet to the AF_XDP socket of its queue, see
/// [`Attached::set_socket`].
///
/// # Errors
///
/// As for [`drop()`].
pub fn to_socket(netns: &Netns, device: &str) -> Result<Attached> {
    attach_xdp(netns, load()?, "to_socket", device)
}

/// TC at the ingress of `device` sends every packet through the device `to`, both in `netns`.
///
/// # Errors
///
/// A device is not there.
pub fn tc_redirect(netns: &Netns, device: &str, to: &str) -> Result<Attached> {
    let mut ebpf = load()?;
    set_forwarding(&mut ebpf, index_of(netns, to)?, None)?;
    let name = "tc_redirect";
    let program: &mut SchedClassifier = ebpf
        .program_mut(name)
        .context("the BPF object has no program tc_redirect")?
        .try_into()?;
    program.load().context("cannot load tc_redirect")?;
    let link = netns
        .run(|| {
            let id = program.attach(device, TcAttachType::Ingress)?;
            program.take_link(id)
        })?
        .with_context(|| format!("cannot attach tc_redirect to {device}"))?;
    Ok(Attached {
        _link: Link::Tc(link),
        ebpf,
        name,
    })
}

impl Attached {
    /// Packets that the program has seen.
    ///
    /// # Errors
    ///
    /// The kernel does not tell.
    pub fn seen(&self) -> Result<u64> {
        let counters: PerCpuArray<_, u64> = self
            .ebpf
            .map("FORWARDED")
            .context("the BPF object has no map FORWARDED")?
            .try_into()?;
        Ok(counters.get(&0, 0)?.iter().sum())
    }

    /// What the kernel counts of the program while it keeps statistics.
    ///
    /// # Errors
    ///
    /// The kernel does not tell.
    pub fn usage(&self) -> Result<Usage> {
        let program = self.ebpf.program(self.name).context("its own program")?;
        Ok(Usage::of(&program.info()?))
    }

    /// Names the socket that gets the packets of queue 0.
    ///
    /// # Errors
    ///
    /// The socket is none of AF_XDP with a receive ring.
    pub fn set_socket(&mut self, socket: &impl AsRawFd) -> Result<()> {
        let mut sockets: XskMap<_> = self
            .ebpf
            .map_mut("SOCKETS")
            .context("the BPF object has no map SOCKETS")?
            .try_into()?;
        sockets
            .set(0, socket.as_raw_fd(), 0)
            .context("the program cannot use the socket")
    }
}

/// What the kernel counts of a program while it keeps statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// How often it ran.
    pub runs: u64,
    /// For how long, altogether.
    pub time: Duration,
}

impl Usage {
    /// What a program's information says.
    pub fn of(program: &ProgramInfo) -> Self {
        Self {
            runs: program.run_count(),
            time: program.run_time(),
        }
    }

    /// What the programs that another process holds were used: the runs of the one that runs most, and the time of all.
    ///
    /// # Errors
    ///
    /// There is no such process.
    pub fn of_process(process: u32) -> Result<Self> {
        // By number: a process may hold a program more than once.
        let mut programs = BTreeMap::new();
        for entry in fs::read_dir(format!("/proc/{process}/fdinfo"))? {
            // One that was closed meanwhile is no program that is under load.
            let text = fs::read_to_string(entry?.path()).unwrap_or_default();
            programs.extend(Self::of_descriptor(&text));
        }
        let mut all = Self::default();
        for program in programs.into_values() {
            all.runs = all.runs.max(program.runs);
            all.time += program.time;
        }
        Ok(all)
    }

    /// Number and usage of a program by what the kernel says of its descriptor; none of other descriptors.
    fn of_descriptor(text: &str) -> Option<(u64, Self)> {
        let value = |key: &str| {
            let of_key =
                |line: &str| Some(line.strip_prefix(key)?.strip_prefix(':')?.trim().parse());
            text.lines().find_map(of_key)?.ok()
        };
        let usage = Self {
            runs: value("run_cnt")?,
            time: Duration::from_nanos(value("run_time_ns")?),
        };
        Some((value("prog_id")?, usage))
    }
}

/// The object, its maps made.
pub(super) fn load() -> Result<Ebpf> {
    EbpfLoader::new()
        .load(OBJECT)
        .context("cannot load the BPF object of the harness (it needs root)")
}

/// Takes a map out.
pub(super) fn map<M: TryFrom<Map, Error = MapError>>(ebpf: &mut Ebpf, name: &str) -> Result<M> {
    let map = ebpf
        .take_map(name)
        .with_context(|| format!("the BPF object has no map {name}"))?;
    M::try_from(map).with_context(|| format!("cannot use the BPF map {name}"))
}

/// Sets the only element of an array.
pub(super) fn set<V: Pod>(ebpf: &mut Ebpf, name: &str, value: V) -> Result<()> {
    let mut array: Array<_, V> = ebpf
        .map_mut(name)
        .with_context(|| format!("the BPF object has no map {name}"))?
        .try_into()?;
    array
        .set(0, value, 0)
        .with_context(|| format!("cannot write the BPF map {name}"))
}

/// The index of a device.
pub(in super::super) fn index_of(netns: &Netns, device: &str) -> Result<u32> {
    let name = std::ffi::CString::new(device)?;
    // SAFETY: the name is a string with its end mark.
    match netns.run(|| unsafe { libc::if_nametoindex(name.as_ptr()) })? {
        0 => anyhow::bail!("there is no device {device} in {}", netns.name()),
        index => Ok(index),
    }
}

fn set_forwarding(ebpf: &mut Ebpf, ifindex: u32, drop_one_in: Option<u32>) -> Result<()> {
    let forwarding = Forwarding {
        ifindex,
        drop_one_in: drop_one_in.unwrap_or(0),
    };
    set(ebpf, "FORWARDING", forwarding)
}

fn attach_xdp(netns: &Netns, mut ebpf: Ebpf, name: &'static str, device: &str) -> Result<Attached> {
    let link = xdp_link(netns, &mut ebpf, name, device)?;
    Ok(Attached {
        _link: Link::Xdp(link),
        ebpf,
        name,
    })
}

/// Puts an XDP program into the kernel.
pub(super) fn load_xdp<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut Xdp> {
    let program: &mut Xdp = ebpf
        .program_mut(name)
        .with_context(|| format!("the BPF object has no program {name}"))?
        .try_into()?;
    if program.fd().is_err() {
        program
            .load()
            .with_context(|| format!("cannot load {name}"))?;
    }
    Ok(program)
}

/// Attaches an XDP program to a device, in the driver.
pub(super) fn xdp_link(
    netns: &Netns,
    ebpf: &mut Ebpf,
    name: &str,
    device: &str,
) -> Result<XdpLink> {
    let program = load_xdp(ebpf, name)?;
    netns
        .run(|| {
            let id = program.attach(device, XdpMode::Driver)?;
            program.take_link(id)
        })?
        .with_context(|| format!("cannot attach {name} to {device}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_told_from_other_descriptors() {
        let program = "pos:\t0\nflags:\t02000002\nprog_type:\t6\nprog_id:\t41\nrun_time_ns:\t1200\nrun_cnt:\t3\n";
        let usage = Usage {
            runs: 3,
            time: Duration::from_nanos(1200),
        };
        assert_eq!(Usage::of_descriptor(program), Some((41, usage)));
        // A link has the number of its program, and no usage.
        let link = "pos:\t0\nlink_type:\txdp\nlink_id:\t7\nprog_id:\t41\nifindex:\t2\n";
        assert_eq!(Usage::of_descriptor(link), None);
        assert!(Usage::of_process(std::process::id()).is_ok());
        // Beyond the largest process id there is.
        assert!(Usage::of_process((1 << 22) + 1).is_err());
    }
}
