//! The relay program, which stands in for border routers in the demo and in tests.

use aya::maps::{DevMapHash, HashMap, MapData, PerCpuArray, xdp::XdpMapError};
use sig_common::maps::{self, RelayKey, RelayValue, Stat};

use super::{
    Logging, errors,
    object::{Attachment, Object, Program, TestOutcome, XdpMode},
};
use crate::kernel::Error;

/// Gives UDP datagrams other addresses and sends them on, as border routers do with the underlay of SCION packets.
///
/// It neither reads nor checks SCION headers: not for production.
pub struct Relay {
    object: Object,
    entries: HashMap<MapData, RelayKey, RelayValue>,
    devices: DevMapHash<MapData>,
    stats: PerCpuArray<MapData, u64>,
}

impl Relay {
    /// Loads the program.
    ///
    /// # Errors
    /// As [`super::Programs::load`].
    pub fn load() -> Result<Self, Error> {
        let mut object = Object::new(Logging::Off)?;
        object.load(&[Program::Relay])?;
        Ok(Self {
            entries: object.map(maps::RELAY)?,
            devices: object.map(maps::RELAY_DEVICES)?,
            stats: object.map(maps::STATS)?,
            object,
        })
    }

    /// Attaches the program to a device of the calling thread's network namespace, and lets datagrams out through it.
    /// In native mode, a veth device sends only if its other end has an XDP program or GRO.
    ///
    /// # Errors
    /// As [`super::Programs::attach_underlay`].
    pub fn attach(&mut self, ifindex: u32, mode: Option<XdpMode>) -> Result<Attachment, Error> {
        self.devices
            .insert(ifindex, ifindex, None, 0)
            .map_err(|e| match e {
                XdpMapError::MapError(e) => {
                    errors::of_map(format!("send through {}", errors::device(ifindex)), e)
                }
                other => Error::Refused(other.to_string()),
            })?;
        self.object.attach_xdp(Program::Relay, ifindex, mode)
    }

    /// Adds or replaces an entry.
    ///
    /// # Errors
    /// Too many entries.
    pub fn set(&mut self, key: RelayKey, value: RelayValue) -> Result<(), Error> {
        self.entries
            .insert(key, value, 0)
            .map_err(|e| errors::of_map("set a relay entry".into(), e))
    }

    /// Datagrams sent on so far.
    ///
    /// # Errors
    /// The kernel does not let us read.
    pub fn forwarded(&self) -> Result<u64, Error> {
        let values = self
            .stats
            .get(&(Stat::RelayRedirected as u32), 0)
            .map_err(|e| errors::of_map("read BPF counters".into(), e))?;
        Ok(values.iter().sum())
    }

    /// Runs the program over a frame; see [`super::Programs::test_run`].
    ///
    /// # Errors
    /// As there.
    pub fn test_run(&self, frame: &[u8]) -> Result<TestOutcome, Error> {
        self.object.test_run(Program::Relay, frame)
    }
}
