//! The maps. Names are those of `sig_common::maps`.

use aya_ebpf::{
    bindings::{BPF_RB_AVAIL_DATA, BPF_RB_NO_WAKEUP, xdp_md},
    helpers,
    macros::map,
    maps::{Array, HashMap, LpmTrie, PerCpuArray, ProgramArray, RingBuf, XskMap, lpm_trie::Key},
};
use sig_common::{
    maps::{
        DROPPED_BYTES, DROPPED_PACKET, Dropped, Ip, LanPort, LanRoute, MAX_PORTS, MAX_PREFIXES,
        MAX_QUEUES, MAX_REMOTES, MAX_SOCKETS, MAX_SOURCES, QueueKey, RemoteKey, RemoteValue,
        Sockets, Stat, UnderlayPort,
    },
    reason::DropReason,
};

use crate::packet;

/// Memory of a map is taken per entry, not for the maximum.
pub const NO_PREALLOC: u32 = aya_ebpf::bindings::BPF_F_NO_PREALLOC;

#[map]
pub static LOCAL: HashMap<u32, UnderlayPort> = HashMap::with_max_entries(MAX_PORTS, 0);

#[map]
pub static REMOTES: HashMap<RemoteKey, RemoteValue> =
    HashMap::with_max_entries(MAX_REMOTES, NO_PREALLOC);

#[map]
pub static SOURCES: LpmTrie<[u8; 16], u32> = LpmTrie::with_max_entries(MAX_SOURCES, 0);

#[map]
static REFUSED: PerCpuArray<Ip> = PerCpuArray::with_max_entries(1, 0);

#[map]
pub static STEERING: HashMap<QueueKey, Sockets> = HashMap::with_max_entries(MAX_QUEUES, 0);

#[map]
pub static NEXT: ProgramArray = ProgramArray::with_max_entries(1, 0);

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

#[map]
static DROPS_WANTED: Array<u32> = Array::with_max_entries(1, 0);

#[map]
static DROPPED: RingBuf = RingBuf::with_byte_size(DROPPED_BYTES, 0);

/// With more in the ring, there is no room for another copy.
const DROPPED_FULL: u64 = DROPPED_BYTES as u64 - 512;

#[map]
static DROPPED_COPY: PerCpuArray<DroppedCopy> = PerCpuArray::with_max_entries(1, 0);

/// What is written to the ring, as far as there is a packet.
#[repr(C, align(8))]
struct DroppedCopy {
    head: Dropped,
    packet: [u8; DROPPED_PACKET],
}

/// A key of 16 bytes that lie at a multiple of eight: the verifier forbids stores of words elsewhere on the stack.
#[repr(C, align(8))]
pub struct AlignedKey {
    _before: u32,
    key: Key<[u8; 16]>,
}

impl AlignedKey {
    /// The key to look an address up.
    #[inline(always)]
    pub fn new(address: [u8; 16]) -> Self {
        Self {
            _before: 0,
            key: Key::new(128, address),
        }
    }

    /// As maps take it.
    #[inline(always)]
    pub fn key(&self) -> &Key<[u8; 16]> {
        &self.key
    }
}

/// Keeps a refused underlay source, for operators to see.
#[inline(always)]
pub fn keep_refused(source: Ip) {
    if let Some(kept) = REFUSED.get_ptr_mut(0) {
        // SAFETY: as in `add_one`; an address that is read while it is written would be shown wrong, no more.
        unsafe { *kept = source };
    }
}

/// Counts a drop by the number of its [`DropReason`].
#[inline(always)]
pub fn count_drop(reason: u32) {
    add_one(&DROPS, reason);
}

/// Copies a dropped packet for those who want to see it, as long as the ring has room: in a flood, a full one must cost nothing, and CPUs
/// must not wait for its lock.
#[inline(always)]
pub fn show_drop(ctx: *mut xdp_md, reason: u32, ifindex: u32) {
    // SAFETY: as in `add_one`; a word is read as a whole.
    let wanted = DROPS_WANTED
        .get_ptr(0)
        .map_or(0, |of| unsafe { of.read_volatile() });
    if wanted != 0 && DROPPED.query(BPF_RB_AVAIL_DATA.into()) <= DROPPED_FULL {
        copy_drop(ctx, reason, ifindex);
    }
}

#[inline(never)]
fn copy_drop(ctx: *mut xdp_md, reason: u32, ifindex: u32) -> u32 {
    let Some(copy) = DROPPED_COPY.get_ptr_mut(0) else {
        return 0;
    };
    let whole = packet::whole_len(ctx);
    // Checked as one less: before Linux 6.8, the verifier does not conclude from `len != 0` that it is at least 1.
    let rest = packet::opaque(if whole > DROPPED_PACKET {
        DROPPED_PACKET - 1
    } else {
        whole.wrapping_sub(1)
    });
    if rest >= DROPPED_PACKET {
        return 0;
    }
    let len = rest + 1;
    // SAFETY: the pointer is to this CPU's element, of which the helper writes no more than its length; the context is of the running
    // program.
    unsafe {
        (&raw mut (*copy).head).write(Dropped {
            at: helpers::bpf_ktime_get_ns(),
            reason,
            ifindex,
            len: whole as u32,
            reserved: 0,
        });
        let packet = (&raw mut (*copy).packet).cast();
        if helpers::bpf_xdp_load_bytes(ctx, 0, packet, len as u32) == 0 {
            let bytes = core::slice::from_raw_parts(copy.cast::<u8>(), size_of::<Dropped>() + len);
            // A full ring: it is counted all the same.
            let _ = DROPPED.output::<[u8]>(bytes, BPF_RB_NO_WAKEUP.into());
        }
    }
    0
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
