//! The maps. Names are those of `sig_common::maps`.

use aya_ebpf::{
    macros::map,
    maps::{HashMap, LpmTrie, PerCpuArray, XskMap},
};
use sig_common::{
    maps::{
        LanPort, LanRoute, MAX_PORTS, MAX_PREFIXES, MAX_QUEUES, MAX_REMOTES, MAX_SOCKETS, QueueKey,
        RemoteKey, RemoteValue, Sockets, Stat,
    },
    reason::DropReason,
    wire::underlay::Local,
};

/// Memory of a map is taken per entry, not for the maximum.
const NO_PREALLOC: u32 = aya_ebpf::bindings::BPF_F_NO_PREALLOC;

#[map]
pub static LOCAL: HashMap<u32, Local> = HashMap::with_max_entries(MAX_PORTS, 0);

#[map]
pub static REMOTES: HashMap<RemoteKey, RemoteValue> =
    HashMap::with_max_entries(MAX_REMOTES, NO_PREALLOC);

#[map]
pub static STEERING: HashMap<QueueKey, Sockets> = HashMap::with_max_entries(MAX_QUEUES, 0);

#[map]
pub static XSKS: XskMap = XskMap::with_max_entries(MAX_SOCKETS, 0);

#[map]
pub static PORTS: HashMap<u32, LanPort> = HashMap::with_max_entries(MAX_PORTS, 0);

#[map]
pub static LAN_V4: LpmTrie<[u8; 4], LanRoute> = LpmTrie::with_max_entries(MAX_PREFIXES, 0);

#[map]
pub static LAN_V6: LpmTrie<[u8; 16], LanRoute> = LpmTrie::with_max_entries(MAX_PREFIXES, 0);

#[map]
static DROPS: PerCpuArray<u64> = PerCpuArray::with_max_entries(DropReason::COUNT as u32, 0);

#[map]
static STATS: PerCpuArray<u64> = PerCpuArray::with_max_entries(Stat::COUNT as u32, 0);

/// Counts a drop by its reason.
#[inline(always)]
pub fn count_drop(reason: DropReason) {
    add_one(&DROPS, reason as u32);
}

/// Counts a verdict.
#[inline(always)]
pub fn count(stat: Stat) {
    add_one(&STATS, stat as u32);
}

#[inline(always)]
fn add_one(map: &PerCpuArray<u64>, index: u32) {
    if let Some(counter) = map.get_ptr_mut(index) {
        // SAFETY: the pointer is to this CPU's element of the map, which lives as long as the
        // program; programs are not preempted by others that write the same element, and a lost
        // increment would only be a miscount.
        unsafe { *counter = (*counter).wrapping_add(1) };
    }
}
