//! The maps of the gateway's fast path.

use std::{
    io,
    num::NonZeroUsize,
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
    ptr::NonNull,
    sync::{Arc, Mutex, PoisonError},
};

use aya::maps::{DevMap, HashMap, Map, MapData, PerCpuArray, PerCpuValues};
use sig_common::fast_path::{
    CONTROL, DELIVERED, FLOW_SLOTS, FLOWS, FLOWS_USED, FastPath, HOPS, Hop, MAX_PATHS, MAX_STREAMS,
    OUTPUTS, PAIR_SLOTS, PAIRS, PAIRS_USED, PATHS, SENDERS, SENT, STREAM_SLOTS, STREAMS, StreamKey,
    TICKETS, Traffic, control, sender, slot, stream, tickets,
};
use sig_common::maps::MAX_SOCKETS;
use sig_core::fast_path::{Shared, StreamIndex, Words};

use super::{errors, object::Object};
use crate::Error;

/// What is decided when the programs are loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FastPathOptions {
    /// Indexes of sockets in the table of [`super::Programs::set_socket`] are below this.
    pub sockets: u32,
    /// Packets that open TCP connections are left to the workers.
    pub clamp_mss: bool,
    /// Checksums of received frames are looked at.
    pub verify_checksums: bool,
}

/// What the control plane writes and reads, and the memory that workers share with the programs.
pub struct FastPathMaps {
    shared: Arc<Shared>,
    paths: HashMap<MapData, u32, FastPath>,
    hops: HashMap<MapData, u32, Hop>,
    outputs: DevMap<MapData>,
    /// The same map, for what the library does not do with it.
    outputs_fd: OwnedFd,
    sent: PerCpuArray<MapData, Traffic>,
    delivered: PerCpuArray<MapData, Traffic>,
}

impl FastPathMaps {
    pub(super) fn take(object: &mut Object, sockets: u32) -> Result<Self, Error> {
        let mut words = |name: &str, elements: u32, words: usize| {
            map_words(object, name, elements as usize * words)
        };
        let shared = Shared {
            flows: words(FLOWS, FLOW_SLOTS, slot::WORDS)?,
            flows_used: words(FLOWS_USED, FLOW_SLOTS / 8, 1)?,
            pairs: words(PAIRS, PAIR_SLOTS, slot::WORDS)?,
            pairs_used: words(PAIRS_USED, PAIR_SLOTS / 8, 1)?,
            streams: words(STREAM_SLOTS, MAX_STREAMS, stream::WORDS)?,
            tickets: words(TICKETS, MAX_SOCKETS, tickets::WORDS)?,
            senders: words(SENDERS, sockets, sender::WORDS * MAX_PATHS as usize)?,
            control: words(CONTROL, 1, control::WORDS)?,
            index: Box::new(Index(Mutex::new(object.map(STREAMS)?))),
        };
        let outputs = object.raw_map(OUTPUTS)?;
        let Map::DevMap(data) = &outputs else {
            return Err(Error::Refused(format!(
                "the BPF map {OUTPUTS} holds no devices"
            )));
        };
        let outputs_fd = data.fd().as_fd().try_clone_to_owned();
        let outputs_fd =
            outputs_fd.map_err(Error::doing("copy the file descriptor of a BPF map"))?;
        Ok(Self {
            shared: Arc::new(shared),
            paths: object.map(PATHS)?,
            hops: object.map(HOPS)?,
            outputs: DevMap::try_from(outputs)
                .map_err(|e| errors::of_map(format!("use the BPF map {OUTPUTS}"), e))?,
            outputs_fd,
            sent: object.map(SENT)?,
            delivered: object.map(DELIVERED)?,
        })
    }

    /// The memory that workers share with the programs.
    #[must_use]
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Sets a path, or removes it.
    ///
    /// # Errors
    /// The kernel does not let us write.
    pub fn set_path(&mut self, number: u32, path: Option<&FastPath>) -> Result<(), Error> {
        match path {
            Some(path) => self.paths.insert(number, path, 0),
            None => self.paths.remove(&number),
        }
        .map_err(|e| errors::of_map(format!("set path {number} of the fast path"), e))
    }

    /// Sets a next hop on a LAN, or removes it.
    ///
    /// # Errors
    /// The kernel does not let us write.
    pub fn set_hop(&mut self, number: u32, hop: Option<&Hop>) -> Result<(), Error> {
        match hop {
            Some(hop) => self.hops.insert(number, hop, 0),
            None => self.hops.remove(&number),
        }
        .map_err(|e| errors::of_map(format!("set next hop {number} of the fast path"), e))
    }

    /// Sets the device behind a place of the outputs.
    ///
    /// # Errors
    /// No such device.
    pub fn set_output(&mut self, place: u32, ifindex: u32) -> Result<(), Error> {
        self.outputs.set(place, ifindex, None, 0).map_err(|e| {
            Error::Refused(format!(
                "cannot set output {place} of the fast path to interface {ifindex}: {e}"
            ))
        })
    }

    /// Leaves a place of the outputs without a device, which may be gone already.
    ///
    /// # Errors
    /// The kernel does not let us write.
    pub fn clear_output(&mut self, place: u32) -> Result<(), Error> {
        /// As in `union bpf_attr`.
        #[repr(C)]
        struct Delete {
            map_fd: u32,
            _padding: u32,
            key: u64,
        }
        const BPF_MAP_DELETE_ELEM: libc::c_int = 3;
        let delete = Delete {
            map_fd: self.outputs_fd.as_raw_fd() as u32,
            _padding: 0,
            key: std::ptr::from_ref(&place) as u64,
        };
        // SAFETY: the kernel reads the attributes, and the key that they point to, during the call only.
        let result = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                BPF_MAP_DELETE_ELEM,
                &raw const delete,
                size_of::<Delete>(),
            )
        };
        if result == 0 {
            return Ok(());
        }
        match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            error => Err(Error::Refused(format!(
                "cannot clear output {place} of the fast path: {error}"
            ))),
        }
    }

    /// What the programs sent on a path since [`Self::forget_sent`].
    ///
    /// # Errors
    /// The kernel does not let us read.
    pub fn sent(&self, path: u32) -> Result<Traffic, Error> {
        sum(&self.sent, path)
    }

    /// Begins to count what is sent on a path at 0. The programs must not know it.
    ///
    /// # Errors
    /// The kernel does not let us write.
    pub fn forget_sent(&mut self, path: u32) -> Result<(), Error> {
        let failed = |e| errors::of_map(format!("reset the counters of path {path}"), e);
        let now = self.sent.get(&path, 0).map_err(failed)?;
        let zeros = vec![Traffic::default(); now.len()];
        let zeros = PerCpuValues::try_from(zeros)
            .map_err(Error::doing(format!("reset the counters of path {path}")))?;
        self.sent.set(path, zeros, 0).map_err(failed)
    }

    /// What the programs delivered of the remote with this number.
    ///
    /// # Errors
    /// The kernel does not let us read.
    pub fn delivered(&self, remote: u32) -> Result<Traffic, Error> {
        sum(&self.delivered, remote)
    }
}

pub(super) fn sum(map: &PerCpuArray<MapData, Traffic>, place: u32) -> Result<Traffic, Error> {
    let values = map
        .get(&place, 0)
        .map_err(|e| errors::of_map("read the counters of the fast path".into(), e))?;
    Ok(values.iter().fold(Traffic::default(), |sum, cpu| Traffic {
        packets: sum.packets.wrapping_add(cpu.packets),
        bytes: sum.bytes.wrapping_add(cpu.bytes),
    }))
}

/// The streams that the programs may deliver.
struct Index(Mutex<HashMap<MapData, StreamKey, u32>>);

impl StreamIndex for Index {
    fn insert(&self, key: &StreamKey, place: u32) -> io::Result<()> {
        let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        map.insert(key, place, 0).map_err(io::Error::other)
    }

    fn remove(&self, key: &StreamKey) {
        let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // It may have gone with the programs.
        let _ = map.remove(key);
    }
}

/// Maps a map of words into memory.
fn map_words(object: &mut Object, name: &str, len: usize) -> Result<Words, Error> {
    let Map::Array(data) = object.raw_map(name)? else {
        return Err(Error::Refused(format!("the BPF map {name} is no array")));
    };
    let mapping = Mapping::new(&data, len * size_of::<u64>())
        .map_err(Error::doing(format!("map the BPF map {name} into memory")))?;
    let start = mapping.start;
    let owner = Arc::new((mapping, data));
    // SAFETY: the mapping is as long, starts at a page, is shared with the kernel's programs only and lives as long as the owner.
    Ok(unsafe { Words::new(start, len, owner) })
}

/// Memory of a map.
struct Mapping {
    start: NonNull<u64>,
    len: NonZeroUsize,
}

// SAFETY: the memory belongs to no thread; it is accessed through `Words`.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(map: &MapData, len: usize) -> io::Result<Self> {
        // SAFETY: plain system call.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let page = usize::try_from(page).map_err(io::Error::other)?;
        let len = len.next_multiple_of(page);
        // SAFETY: a new shared mapping at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.fd().as_fd().as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        match (NonNull::new(start.cast()), NonZeroUsize::new(len)) {
            (Some(start), Some(len)) => Ok(Mapping { start, len }),
            _ => Err(io::Error::other("a BPF map was mapped at address zero")),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length; nothing refers to it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len.get()) };
    }
}
