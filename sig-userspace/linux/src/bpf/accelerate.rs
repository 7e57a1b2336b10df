//! The programs that work beside a foreign gateway, and their maps.

use std::io;

use aya::{
    maps::{Array, HashMap, MapData, PerCpuArray, RingBuf},
    programs::TcAttachType,
};
use sig_common::accelerate::{
    CONFIG, Config, DELIVERED, Direction, ENTRANCES, FRAMES, HELD, LOCALS, NO_PATH, NO_SIGNATURE,
    PATHS, Path, REMOTES, SENT, SIGHTINGS, STATS, Sighting, Stat, WAYS, slot,
};
use sig_common::{fast_path::Traffic, maps::RemoteKey};
use tokio::io::{Interest, unix::AsyncFd};

use super::{
    errors,
    fast_path::sum,
    object::{Globals, Object, Program, ProgramFigures, TcAttachment, User},
};
use crate::{Error, tunnel_pair::TunnelPair};

/// The programs of an accelerator and their maps, attached to nothing at first.
pub struct AcceleratorPrograms {
    object: Object,
    config: Array<MapData, Config>,
    paths: HashMap<MapData, u32, Path>,
    frames: HashMap<MapData, u64, u32>,
    ways: HashMap<MapData, u64, u64>,
    remotes: HashMap<MapData, RemoteKey, u32>,
    locals: HashMap<MapData, RemoteKey, u32>,
    entrances: HashMap<MapData, u64, u32>,
    held: Array<MapData, u64>,
    sent: PerCpuArray<MapData, Traffic>,
    delivered: PerCpuArray<MapData, Traffic>,
    stats: PerCpuArray<MapData, u64>,
}

/// Programs on their devices. They leave them when this is dropped.
#[must_use = "the programs leave their devices when this is dropped"]
pub struct Attached {
    _links: Vec<TcAttachment>,
}

/// Where the programs are attached: interface indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// Device that frames leave and come in by.
    pub underlay: u32,
    /// The gateway's tunnel device.
    pub tunnel: u32,
    /// MTU of the tunnel device.
    pub tunnel_mtu: u32,
}

impl AcceleratorPrograms {
    /// Loads the programs into the kernel.
    ///
    /// # Errors
    /// Missing privileges (CAP_BPF, CAP_NET_ADMIN), or a kernel that does not take the programs.
    pub fn load() -> Result<(Self, Sightings), Error> {
        let mut object = Object::new(&Globals {
            user: User::Accelerator,
            ..Globals::default()
        })?;
        object.load(&[
            Program::AccTunnel,
            Program::AccMirror,
            Program::AccEncap,
            Program::AccFrames,
            Program::AccDecap,
            Program::AccBehind,
        ])?;
        let sightings = Sightings::new(object.map(SIGHTINGS)?)?;
        let programs = Self {
            config: object.map(CONFIG)?,
            paths: object.map(PATHS)?,
            frames: object.map(FRAMES)?,
            ways: object.map(WAYS)?,
            remotes: object.map(REMOTES)?,
            locals: object.map(LOCALS)?,
            entrances: object.map(ENTRANCES)?,
            held: object.map(HELD)?,
            sent: object.map(SENT)?,
            delivered: object.map(DELIVERED)?,
            stats: object.map(STATS)?,
            object,
        };
        Ok((programs, sightings))
    }

    /// Attaches the programs, which only watch at first.
    ///
    /// # Errors
    /// A device is gone, or the kernel has no TCX.
    pub fn attach(&mut self, places: Places, segmenter: &TunnelPair) -> Result<Attached, Error> {
        use TcAttachType::{Egress, Ingress};
        self.set_config(places, segmenter, false, 0)?;
        let object = &mut self.object;
        let far = segmenter.peer().ifindex;
        // Where a packet goes comes before where it comes from.
        let mirror = segmenter
            .netns()
            .run(|| object.attach_tcx(Program::AccMirror, far, Ingress))
            .map_err(Error::doing("work in the private network namespace"))??;
        let mut links = vec![mirror];
        for (program, ifindex, hook) in [
            (Program::AccEncap, segmenter.host().ifindex, Ingress),
            (Program::AccFrames, places.underlay, Egress),
            (Program::AccBehind, places.tunnel, Ingress),
            (Program::AccTunnel, places.tunnel, Egress),
            (Program::AccDecap, places.underlay, Ingress),
        ] {
            links.push(object.attach_tcx(program, ifindex, hook)?);
        }
        // They leave in this order: no packet is sent where nobody takes it any more.
        links.reverse();
        Ok(Attached { _links: links })
    }

    /// Lets the programs take packets. Segments of TCP are limited so that packets have at most `frame_size` bytes; 0: they are
    /// not limited.
    ///
    /// # Errors
    /// The kernel does not let us write.
    pub fn enable(
        &mut self,
        places: Places,
        segmenter: &TunnelPair,
        frame_size: u32,
    ) -> Result<(), Error> {
        self.set_config(places, segmenter, true, frame_size)
    }

    fn set_config(
        &mut self,
        places: Places,
        segmenter: &TunnelPair,
        enabled: bool,
        frame_size: u32,
    ) -> Result<(), Error> {
        let config = Config {
            underlay: places.underlay,
            tunnel: places.tunnel,
            segmenter: segmenter.host().ifindex,
            tunnel_mtu: places.tunnel_mtu,
            enabled: enabled.into(),
            frame_size,
        };
        self.config
            .set(0, config, 0)
            .map_err(|e| errors::of_map("tell the programs their devices".into(), e))
    }

    /// What the kernel tells of a program.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn figures(&self, program: Program) -> Result<ProgramFigures, Error> {
        self.object.figures(program)
    }

    /// Forgets how frames come in.
    ///
    /// # Errors
    /// The kernel does not let us write.
    pub fn forget_entrances(&mut self) -> Result<(), Error> {
        let failed = |e| errors::of_map("forget how frames come in".into(), e);
        let known: Result<Vec<u64>, _> = self.entrances.keys().collect();
        for entrance in known.map_err(failed)? {
            unless_missing(self.entrances.remove(&entrance)).map_err(failed)?;
        }
        Ok(())
    }

    /// Leaves all frames to the gateway until what it has at this time, in ns since boot, is through.
    ///
    /// # Errors
    /// The kernel does not let us write.
    pub fn hold_inbound(&mut self, now: u64) -> Result<(), Error> {
        self.held
            .set(Direction::In as u32, slot::mark(0, now, NO_SIGNATURE), 0)
            .map_err(|e| errors::of_map("hold frames".into(), e))
    }

    /// Sets a path, or removes it.
    ///
    /// # Errors
    /// The kernel does not let us write.
    pub fn set_path(&mut self, number: u32, path: Option<&Path>) -> Result<(), Error> {
        let done = match path {
            Some(path) => self.paths.insert(number, path, 0),
            None => unless_missing(self.paths.remove(&number)),
        };
        done.map_err(|e| errors::of_map(format!("set path {number}"), e))
    }

    /// A path, with what the programs have learned of it.
    #[must_use]
    pub fn path(&self, number: u32) -> Option<Path> {
        self.paths.get(&number, 0).ok()
    }

    /// Says what is done about frames of a form: their path, [`NO_PATH`] for nothing; `None`: they are reported.
    ///
    /// # Errors
    /// The kernel does not let us write.
    pub fn set_frame(&mut self, frame: u64, path: Option<u32>) -> Result<(), Error> {
        let done = match path {
            Some(path) => self.frames.insert(frame, path, 0),
            None => unless_missing(self.frames.remove(&frame)),
        };
        done.map_err(|e| errors::of_map("set what is done about frames".into(), e))
    }

    /// Says when the gateway sent something a way last, in ns since boot.
    ///
    /// # Errors
    /// The kernel does not let us write.
    pub fn set_way(&mut self, way: u64, time: u64) -> Result<(), Error> {
        self.ways
            .insert(way, time, 0)
            .map_err(|e| errors::of_map("set when a way was seen".into(), e))
    }

    /// When the gateway sent something this way last, in ns since boot.
    #[must_use]
    pub fn way(&self, way: u64) -> Option<u64> {
        self.ways.get(&way, 0).ok()
    }

    /// Sets a gateway that ours talks to, or removes it.
    ///
    /// # Errors
    /// The kernel does not let us write.
    pub fn set_remote(&mut self, remote: RemoteKey, place: Option<u32>) -> Result<(), Error> {
        let done = match place {
            Some(place) => self.remotes.insert(remote, place, 0),
            None => unless_missing(self.remotes.remove(&remote)),
        };
        done.map_err(|e| errors::of_map("set a remote".into(), e))
    }

    /// Adds an address of our gateway, or removes it.
    ///
    /// # Errors
    /// The kernel does not let us write.
    pub fn set_local(&mut self, local: RemoteKey, is_ours: bool) -> Result<(), Error> {
        let done = match is_ours {
            true => self.locals.insert(local, 0, 0),
            false => unless_missing(self.locals.remove(&local)),
        };
        done.map_err(|e| errors::of_map("set an address of the gateway".into(), e))
    }

    /// What was sent from this place of paths.
    ///
    /// # Errors
    /// The kernel does not let us read.
    pub fn sent(&self, place: u32) -> Result<Traffic, Error> {
        sum(&self.sent, place)
    }

    /// What was delivered from the remote at this place.
    ///
    /// # Errors
    /// The kernel does not let us read.
    pub fn delivered(&self, place: u32) -> Result<Traffic, Error> {
        sum(&self.delivered, place)
    }

    /// Packets or frames of a kind.
    ///
    /// # Errors
    /// The kernel does not let us read.
    pub fn stat(&self, stat: Stat) -> Result<u64, Error> {
        let counts = self
            .stats
            .get(&(stat as u32), 0)
            .map_err(|e| errors::of_map("read a counter".into(), e))?;
        Ok(counts.iter().fold(0, |sum, count| sum.wrapping_add(*count)))
    }
}

fn unless_missing(result: Result<(), aya::maps::MapError>) -> Result<(), aya::maps::MapError> {
    match result {
        Err(aya::maps::MapError::KeyNotFound) => Ok(()),
        Err(aya::maps::MapError::SyscallError(e))
            if e.io_error.raw_os_error() == Some(libc::ENOENT) =>
        {
            Ok(())
        }
        other => other,
    }
}

/// The clock of the programs: ns since boot, without the time the machine slept.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the structure is valid for the time of the call.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) } != 0;
    match failed {
        // Every Linux has this clock.
        true => 0,
        false => time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned(),
    }
}

const _: () = assert!(NO_PATH == 0, "numbers of paths begin at 1");

/// Sightings that are read in a row.
const MAX_AT_ONCE: u32 = 256;

/// What the programs report.
pub struct Sightings {
    ring: AsyncFd<RingBuf<MapData>>,
}

impl Sightings {
    fn new(ring: RingBuf<MapData>) -> Result<Self, Error> {
        // SAFETY: the ring owns its file descriptor, always answers with the same one, and is owned by the AsyncFd, which
        // takes it out of the reactor before it drops it.
        let ring = unsafe { AsyncFd::register_with_interest(ring, Interest::READABLE) };
        let doing = "watch the ring buffer of the programs";
        Ok(Self {
            ring: ring.map_err(|e| Error::doing(doing)(e.into()))?,
        })
    }

    /// Waits for the next ones, and hands each to `take`, at most 256: the caller has other things to do.
    ///
    /// # Errors
    /// An error of the ring's file descriptor.
    pub async fn next(&mut self, mut take: impl FnMut(&Sighting)) -> io::Result<()> {
        let mut ready = self.ring.readable_mut().await?;
        for _ in 0..MAX_AT_ONCE {
            let Some(item) = ready.get_inner_mut().next() else {
                ready.clear_ready();
                return Ok(());
            };
            if item.len() >= size_of::<Sighting>() {
                // SAFETY: as many bytes as that are there, and any bytes are a value of the type, which is made of integers.
                take(&unsafe { item.as_ptr().cast::<Sighting>().read_unaligned() });
            }
        }
        drop(ready);
        tokio::task::yield_now().await;
        Ok(())
    }
}
