//! The programs of `sig accelerate`, which work beside a foreign gateway. Maps are described in [`sig_common::accelerate`].
//!
//! | program | hook | sees |
//! |---|---|---|
//! | `sig_acc_tunnel` | TC egress of the tunnel device | packets for the gateway, which it sends through the segmenter |
//! | `sig_acc_mirror` | TC ingress of the segmenter's far end | the same, cut and complete, which it sends back |
//! | `sig_acc_encap` | TC ingress of the segmenter | the same, which it encapsulates, or gives to the gateway |
//! | `sig_acc_frames` | TC egress of the underlay device | frames and probes of the gateway |
//! | `sig_acc_decap` | TC ingress of the underlay device | frames, which it decapsulates, or leaves to the gateway |
//! | `sig_acc_behind` | TC ingress of the tunnel device | packets that the gateway decapsulated |
//!
//! The segmenter is a pair of devices without offloads: what a card would have done is done when a packet passes it.

mod inbound;
mod inner;
mod look;
mod outbound;
mod segments;

use aya_ebpf::{
    bindings::{__sk_buff, BPF_F_NO_PREALLOC, TC_ACT_SHOT, TC_ACT_UNSPEC},
    helpers,
    macros::map,
    maps::{Array, HashMap, LruHashMap, PerCpuArray, RingBuf},
    programs::TcContext,
};
use sig_common::accelerate::{
    Config, Direction, Flow, FlowKey, MAX_ENTRANCES, MAX_FLOWS, MAX_FRAMES, MAX_PATHS, MAX_PROBES,
    MAX_REMOTES, MAX_TARGETS, PAIR_SLOTS, Path, ProbeKey, SIGHTINGS_LEN, SLOTS, Sighting, Stat,
};
use sig_common::{fast_path::Traffic, maps::RemoteKey, wire::ethernet};

#[map]
static A_CONFIG: Array<Config> = Array::with_max_entries(1, 0);

#[map]
static A_FLOWS: LruHashMap<FlowKey, Flow> = LruHashMap::with_max_entries(MAX_FLOWS, 0);

#[map]
static A_PATHS: HashMap<u32, Path> = HashMap::with_max_entries(MAX_PATHS, BPF_F_NO_PREALLOC);

#[map]
static A_FRAMES: LruHashMap<u64, u32> = LruHashMap::with_max_entries(MAX_FRAMES, 0);

#[map]
static A_WAYS: LruHashMap<u64, u64> = LruHashMap::with_max_entries(MAX_FRAMES, 0);

#[map]
static A_PROBES: LruHashMap<ProbeKey, u64> = LruHashMap::with_max_entries(MAX_PROBES, 0);

#[map]
static A_SEQUENCES: PerCpuArray<u64> = PerCpuArray::with_max_entries(MAX_PATHS, 0);

#[map]
static A_SENT: PerCpuArray<Traffic> = PerCpuArray::with_max_entries(MAX_PATHS, 0);

#[map]
static A_REMOTES: HashMap<RemoteKey, u32> =
    HashMap::with_max_entries(MAX_REMOTES, BPF_F_NO_PREALLOC);

#[map]
static A_LOCALS: HashMap<RemoteKey, u32> =
    HashMap::with_max_entries(MAX_REMOTES, BPF_F_NO_PREALLOC);

#[map]
static A_ENTRANCES: LruHashMap<u64, u32> = LruHashMap::with_max_entries(MAX_ENTRANCES, 0);

#[map]
static A_TARGETS: Array<u32> = Array::with_max_entries(MAX_TARGETS, 0);

#[map]
static A_DELIVERED: PerCpuArray<Traffic> = PerCpuArray::with_max_entries(MAX_REMOTES, 0);

#[map]
static A_OUTBOUND: Array<[u64; 2]> = Array::with_max_entries(SLOTS, 0);

#[map]
static A_INBOUND: Array<[u64; 2]> = Array::with_max_entries(SLOTS, 0);

#[map]
static A_PAIRS: Array<[u64; 2]> = Array::with_max_entries(PAIR_SLOTS * Direction::COUNT, 0);

#[map]
static A_HELD: Array<u64> = Array::with_max_entries(Direction::COUNT, 0);

#[map]
static A_STATS: PerCpuArray<u64> = PerCpuArray::with_max_entries(Stat::COUNT as u32, 0);

#[map]
static A_SIGHTINGS: RingBuf = RingBuf::with_byte_size(SIGHTINGS_LEN, 0);

#[map]
static A_SCRATCH: PerCpuArray<Sighting> = PerCpuArray::with_max_entries(1, 0);

/// A secret, set when the programs are loaded, for hashes over what strangers choose.
#[unsafe(no_mangle)]
static A_SEED: u64 = 0;

#[inline(always)]
fn seed() -> u64 {
    // SAFETY: the pointer is to a static. Volatile, or else the value of the source is taken.
    unsafe { (&raw const A_SEED).read_volatile() }
}

/// The hook goes on with what comes after this program.
const GO_ON: i32 = TC_ACT_UNSPEC;
const DROP: i32 = TC_ACT_SHOT;

/// Bytes up to what is behind the inner IP header's transport header.
const LINEAR: u32 = 448;

/// Packets on their way to the gateway.
pub fn into_tunnel(ctx: &TcContext) -> i32 {
    let Some(config) = config() else {
        return GO_ON;
    };
    let skb = ctx.skb.skb;
    // SAFETY: the context is of the running program.
    let (from, protocol) = unsafe { ((*skb).ingress_ifindex, (*skb).protocol as u16) };
    let is_ip = protocol == ethernet::ETHERTYPE_IPV4.to_be()
        || protocol == ethernet::ETHERTYPE_IPV6.to_be();
    if from == config.segmenter || !is_ip {
        return GO_ON;
    }
    // SAFETY: the context is of the running program. The device has no header in front of IP, the segmenter does.
    if unsafe { helpers::bpf_skb_change_head(skb, ethernet::HEADER_LEN as u32, 0) } != 0 {
        // Without memory. The gateway would get it ahead of packets that are in the segmenter.
        count(Stat::OutLost);
        return DROP;
    }
    if ctx.store(ethernet::HEADER_LEN - 2, &protocol, 0).is_err() {
        return DROP;
    }
    redirect(config.segmenter, 0)
}

/// Packets that have passed the segmenter: back to its near end, without a queue in between.
pub fn mirror(ctx: &TcContext) -> i32 {
    // SAFETY: the context is of the running program; the helper takes no pointer.
    unsafe { helpers::bpf_redirect_peer((*ctx.skb.skb).ifindex, 0) as i32 }
}

pub use inbound::{behind_gateway, take as decapsulate};
pub use look::frames;
pub use outbound::take as encapsulate;

#[inline(always)]
fn redirect(ifindex: u32, flags: u64) -> i32 {
    // SAFETY: takes no pointer.
    unsafe { helpers::bpf_redirect(ifindex, flags) as i32 }
}

/// What user space has told, once it has.
#[inline(always)]
fn config() -> Option<&'static Config> {
    A_CONFIG.get(0).filter(|config| config.tunnel != 0)
}

#[inline(always)]
fn now() -> u64 {
    // SAFETY: takes nothing.
    unsafe { helpers::bpf_ktime_get_ns() }
}

#[inline(always)]
fn count(stat: Stat) {
    if let Some(counter) = A_STATS.get_ptr_mut(stat as u32) {
        // SAFETY: this CPU's element; a lost increment would only be a miscount.
        unsafe { *counter = (*counter).wrapping_add(1) };
    }
}

#[inline(always)]
fn count_traffic(map: &PerCpuArray<Traffic>, place: u32, bytes: u64) {
    if let Some(traffic) = map.get_ptr_mut(place) {
        // SAFETY: as above.
        unsafe {
            (*traffic).packets = (*traffic).packets.wrapping_add(1);
            (*traffic).bytes = (*traffic).bytes.wrapping_add(bytes);
        }
    }
}

/// Makes so many bytes of the packet reachable, or all there are.
#[inline(always)]
fn pull(skb: *mut __sk_buff, len: u32) -> bool {
    // SAFETY: the context is of the running program. Pointers into the packet from before are not used any more.
    unsafe {
        let linear = (*skb).data_end.wrapping_sub((*skb).data);
        linear >= len
            || linear == (*skb).len
            || helpers::bpf_skb_pull_data(skb, len.min((*skb).len)) == 0
    }
}
