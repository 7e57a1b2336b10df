//! The SR node's program: packets to local SIDs, packets for policies, packets that functions return. Maps are described in
//! [`sig_common::srv6::maps`].
//!
//! | step | where |
//! |---|---|
//! | which of these is it? | here |
//! | do rules say something else? | `filter` |
//! | to a SID: what becomes of it? | `sig_common::srv6::process` |
//! | the same, done | `endpoint` |
//! | is the HMAC right, where that matters? | `verify` |
//! | into a policy | `encap` |
//! | from a function | `function` |
//! | from and to the gateway's engine | `engine` |
//! | out | `forward` |
//!
//! A packet whose next destination is a SID of this node as well starts over in a program of its own, [`again`].

mod encap;
mod endpoint;
mod engine;
mod filter;
mod forward;
mod function;
pub mod verify;

use aya_ebpf::{
    bindings::{
        bpf_fib_lookup as FibLookup,
        xdp_action::{XDP_DROP, XDP_PASS},
        xdp_md,
    },
    helpers,
    macros::map,
    maps::{
        Array, DevMapHash, HashMap, LpmTrie, LruHashMap, PerCpuArray, ProgramArray, RingBuf,
        XskMap, lpm_trie::Key,
    },
    programs::XdpContext,
};
use sig_common::{
    srv6::{
        Jump, Sid, Step,
        filter::{Action, Kind},
        maps::{
            Adjacency, Cache, Control, EVENT_BYTES, EVENT_PACKET, Event, Flow, FlowKey, Function,
            MAX_ADJACENCIES, MAX_FLOWS, MAX_FUNCTIONS, MAX_LOCATORS, MAX_POLICIES, MAX_PORTS,
            MAX_SIDS, MAX_SLOTS, MAX_STEERED, PROCESS, Peer, Policy, Port, ProbeToken, Reason,
            Traffic, VERIFY,
        },
    },
    wire::{Load as _, ethernet},
};

use crate::{
    maps::{AlignedKey, NO_PREALLOC},
    packet::{self, IP, Packet},
};

#[map]
static S_PORTS: HashMap<u32, Port> = HashMap::with_max_entries(MAX_PORTS, 0);

#[map]
static S_SIDS: HashMap<[u8; 16], Sid> = HashMap::with_max_entries(MAX_SIDS, NO_PREALLOC);

#[map]
static S_LOCATORS: LpmTrie<[u8; 16], u32> = LpmTrie::with_max_entries(MAX_LOCATORS, NO_PREALLOC);

#[map]
static S_STEERED_V4: LpmTrie<[u8; 4], u32> = LpmTrie::with_max_entries(MAX_STEERED, NO_PREALLOC);

#[map]
static S_STEERED_V6: LpmTrie<[u8; 16], u32> = LpmTrie::with_max_entries(MAX_STEERED, NO_PREALLOC);

#[map]
static S_POLICIES: HashMap<u32, Policy> = HashMap::with_max_entries(MAX_POLICIES, NO_PREALLOC);

#[map]
static S_ADJACENCIES: HashMap<u32, Adjacency> =
    HashMap::with_max_entries(MAX_ADJACENCIES, NO_PREALLOC);

#[map]
static S_FUNCTIONS: HashMap<u32, Function> = HashMap::with_max_entries(MAX_FUNCTIONS, 0);

#[map]
static S_CACHES: Array<Cache> = Array::with_max_entries(MAX_FUNCTIONS, 0);

#[map]
static S_FLOWS: LruHashMap<FlowKey, Flow> = LruHashMap::with_max_entries(MAX_FLOWS, 0);

#[map]
static S_SOCKET: XskMap = XskMap::with_max_entries(1, 0);

/// A packet for a function in the process.
#[inline(always)]
pub fn into_process() -> u32 {
    S_SOCKET
        .redirect(0, u64::from(XDP_DROP))
        .unwrap_or(XDP_DROP)
}

#[map]
static S_PEERS: HashMap<Peer, u32> = HashMap::with_max_entries(MAX_FUNCTIONS, NO_PREALLOC);

/// What probes through functions are known by, set when the programs are loaded: a number that nobody can guess.
#[unsafe(no_mangle)]
static S_TOKEN: ProbeToken = 0;

#[inline(always)]
fn token() -> ProbeToken {
    // SAFETY: the pointer is to a static. Volatile, or else the value of the source is taken.
    unsafe { (&raw const S_TOKEN).read_volatile() }
}

#[map]
static S_DEVICES: DevMapHash = DevMapHash::with_max_entries(MAX_PORTS, 0);

/// Those that send packets in several buffers.
#[map]
static S_FRAGMENTS: HashMap<u32, u32> = HashMap::with_max_entries(MAX_PORTS, 0);

#[map]
static S_TRAFFIC: PerCpuArray<Traffic> = PerCpuArray::with_max_entries(MAX_SLOTS, 0);

#[map]
static S_REASONS: PerCpuArray<u64> = PerCpuArray::with_max_entries(Reason::COUNT as u32, 0);

#[map]
static S_EVENTS: RingBuf = RingBuf::with_byte_size(EVENT_BYTES, 0);

/// Time of the last event that an ICMP error answers, and what may be spent on the next, both in nanoseconds.
#[map]
static S_BUDGET: PerCpuArray<[u64; 2]> = PerCpuArray::with_max_entries(1, 0);

/// Of a thousand a second, and 50 at once.
const EVENT_COST: u64 = 1_000_000;
const EVENT_BURST: u64 = 50 * EVENT_COST;

#[map]
static S_AGAIN: ProgramArray = ProgramArray::with_max_entries(3, 0);

#[map]
static S_WORK: PerCpuArray<Work> = PerCpuArray::with_max_entries(1, 0);

/// What is known of the packet at hand. In a map, as the stack is small.
#[repr(C, align(8))]
struct Work {
    /// Headers that move, or are remembered.
    flow: Flow,
    /// The flow that they are of.
    key: FlowKey,
    step: Step,
    /// What rules are asked.
    filtering: filter::Filtering,
    /// What the kernel is asked about the way.
    fib: FibLookup,
    /// What an ICMPv6 error points at.
    pointer: u32,
    /// The hop limit has been looked after already: the packet has just been made here.
    fresh: bool,
    /// Its HMAC has been verified. Only from the one program to the other.
    is_verified: bool,
}

/// A packet that has come in.
#[inline(always)]
pub fn receive(ctx: &XdpContext) -> u32 {
    let ifindex = ctx.ingress_ifindex() as u32;
    // SAFETY: as of all entries here: the value is only read, and an update replaces it as a whole.
    let Some(port) = (unsafe { S_PORTS.get(ifindex) }) else {
        // Not for the next packet on this CPU, if the port has gone after its HMAC was verified.
        take_verified();
        return XDP_PASS;
    };
    if port.flags & Port::RETURN != 0 {
        return function::returned(ctx.ctx, port);
    }
    if port.flags & Port::PROCESS != 0 {
        return function::from_process(ctx.ctx);
    }
    if port.flags & Port::ENGINE != 0 {
        return engine::receive(ctx);
    }
    if port.flags & Port::FRAMES != 0 {
        return encap::frame_into_policy(ctx.ctx, port);
    }
    let packet = Packet::of_xdp(ctx);
    // One after the other, as in `InnerPacket::parse_v6`.
    let Some(mac) = packet.bytes::<6>(0) else {
        return XDP_PASS;
    };
    if mac != port.mac {
        return XDP_PASS;
    }
    let Some(ethertype) = packet.be16(IP - 2) else {
        return XDP_PASS;
    };
    let is_trusted = port.flags & Port::TRUSTED != 0;
    let control = filter::control();
    if ethernet::is_tag(ethertype) {
        // The kernel takes a tag of no VLAN off, and forwards the packet as if it had come without.
        let is_looked_at =
            !is_trusted || control & Control::RULES != 0 || port.flags & Port::STEERED != 0;
        return match packet.be16(IP) {
            Some(tag) if tag & 0xfff == 0 && is_looked_at => refuse(Reason::PriorityTag),
            _ => XDP_PASS,
        };
    }
    let mut found = None;
    if ethertype == ethernet::ETHERTYPE_IPV6
        && let Some(destination) = packet.bytes::<16>(IP + 24)
    {
        found = sid_of(&destination, control);
        match found {
            Some(_) if is_trusted && port.flags & Port::VERIFIED != 0 && !take_verified() => {
                return enter(ctx.ctx, VERIFY);
            }
            Some(_) if is_trusted => {}
            // What is not a SID is the kernel's, unless a stranger tries one after the other.
            None if is_trusted || S_LOCATORS.get(AlignedKey::new(destination).key()).is_none() => {}
            _ => return refuse(Reason::Untrusted),
        }
    }
    let is_sid = found.is_some();
    let mut sid = found.copied().unwrap_or_default();
    let mut policy = NO_POLICY;
    if control & Control::RULES != 0 {
        match ruled(ctx.ctx, is_sid, &mut sid, &mut policy, control) {
            GO_ON => {}
            action => return action,
        }
    }
    if is_sid {
        return endpoint::run(ctx.ctx, &sid);
    }
    match port.flags & Port::STEERED {
        0 => XDP_PASS,
        _ => steer(ctx.ctx, policy),
    }
}

/// No action of XDP programs.
const GO_ON: u32 = u32::MAX;

/// What rules say: [`GO_ON`] with what became of SID and policy, or what becomes of the packet.
#[inline(always)]
fn ruled(ctx: *mut xdp_md, is_sid: bool, sid: &mut Sid, policy: &mut u32, control: u32) -> u32 {
    const DROP: u32 = Action::Drop as u32;
    const GO_NEXT: u32 = Action::GoNext as u32;
    const SKIP_NEXT: u32 = Action::SkipNext as u32;
    const GO_LAST: u32 = Action::GoLast as u32;
    const EVAL_ARGUMENTS: u32 = Action::EvalArguments as u32;
    const STEER: u32 = Action::Steer as u32;
    let Some(work) = work() else {
        return XDP_DROP;
    };
    let kind = match (is_sid, sid.arguments) {
        (false, _) => Kind::Plain,
        (true, 0) => Kind::Sid,
        (true, _) => Kind::Arguments,
    };
    let mut action = filter::run(ctx, work, control, kind);
    if action == EVAL_ARGUMENTS {
        action = match arguments(ctx, sid.arguments) {
            Some(action) => action as u32,
            // At the destination address.
            None => return tell(ctx, Reason::BadArguments as u32, 24, &[0; 16], 0),
        };
    }
    match action {
        filter::UNREADABLE => return refuse(Reason::Malformed),
        DROP => return refuse(Reason::Filtered),
        GO_NEXT => *sid = sid.as_end(Jump::default()),
        SKIP_NEXT => *sid = sid.as_end(Jump::SKIP),
        GO_LAST => *sid = sid.as_end(Jump::LAST),
        STEER => *policy = work.filtering.target,
        _ => {}
    }
    GO_ON
}

/// What the last bits of the destination stand for.
#[inline(always)]
fn arguments(ctx: *mut xdp_md, bits: u8) -> Option<Action> {
    let [a, b] = ip(ctx).bytes(38)?;
    let mask = (1_u32 << (bits & 31)).wrapping_sub(1);
    Action::of_arguments(u16::from_be_bytes([a, b]) & mask as u16)
}

/// The local SID that a packet is for.
#[inline(always)]
fn sid_of(destination: &[u8; 16], control: u32) -> Option<&'static Sid> {
    // SAFETY: as of all entries here: the value is only read, and an update replaces it as a whole.
    let sid = unsafe { S_SIDS.get(destination) };
    if sid.is_some() || control & Control::ARGUMENTS == 0 {
        return sid;
    }
    let bits = *S_LOCATORS.get(AlignedKey::new(*destination).key())?;
    if bits == 0 {
        return None;
    }
    let mask = u16::MAX.checked_shl(bits).unwrap_or(0).to_be_bytes();
    let mut base = *destination;
    base[14] &= mask[0];
    base[15] &= mask[1];
    // SAFETY: as above.
    unsafe { S_SIDS.get(base) }
}

/// Whether the HMAC of the packet at hand has been verified.
#[inline(always)]
fn take_verified() -> bool {
    match work() {
        Some(work) => core::mem::take(&mut work.is_verified),
        None => false,
    }
}

/// Numbers of policies begin at 1.
const NO_POLICY: u32 = 0;

/// Puts a packet that is not for a SID behind the headers of a policy: of this one, or of that for its destination.
#[inline(always)]
fn steer(ctx: *mut xdp_md, ruled: u32) -> u32 {
    let packet = Packet::of(ctx, 0);
    let Some(ethertype) = packet.be16(IP - 2) else {
        return XDP_PASS;
    };
    let policy = match ethertype {
        ethernet::ETHERTYPE_IPV4 => packet
            .bytes(IP + 16)
            .and_then(|destination| S_STEERED_V4.get(Key::new(32, destination))),
        ethernet::ETHERTYPE_IPV6 => packet
            .bytes(IP + 24)
            .and_then(|destination| S_STEERED_V6.get(AlignedKey::new(destination).key())),
        _ => None,
    };
    // The kernel drops what has such a source.
    if is_martian(&packet, ethertype) {
        return XDP_PASS;
    }
    let number = match policy {
        // This host and the link.
        Some(&NO_POLICY) => return XDP_PASS,
        _ if ruled != NO_POLICY => ruled,
        Some(policy) => *policy,
        None => return XDP_PASS,
    };
    encap::into_policy(ctx, number)
}

/// Whether an IPv6 packet is for an address of this host, or for the link.
#[inline(always)]
fn is_to_this_host(frame: &Packet) -> bool {
    let of_this = frame
        .bytes(IP + 24)
        .and_then(|destination| S_STEERED_V6.get(AlignedKey::new(destination).key()));
    of_this == Some(&NO_POLICY)
}

/// Whether the packet's source cannot be that of a packet to forward (RFC 1812, section 5.3.7; RFC 4291, section 2.5).
#[inline(always)]
fn is_martian(frame: &Packet, ethertype: u16) -> bool {
    match ethertype {
        ethernet::ETHERTYPE_IPV4 => match frame.bytes::<4>(IP + 12) {
            Some([first, ..]) => matches!(first, 0 | 127 | 224..),
            None => true,
        },
        _ => match frame.be64(IP + 8) {
            Some(0) => true,
            Some(words) => words >> 56 == 0xff || words >> 54 == 0xfe80 >> 6,
            None => true,
        },
    }
}

/// A packet that has been through here once, and has a new destination.
#[inline(always)]
pub fn again(ctx: &XdpContext) -> u32 {
    let Some(destination) = Packet::of_xdp(ctx).bytes::<16>(IP + 24) else {
        return XDP_DROP;
    };
    let Some(work) = work() else {
        return XDP_DROP;
    };
    let Some(sid) = sid_of(&destination, filter::control()) else {
        return forward::by_table(ctx.ctx, work, 0);
    };
    // Every SID on the way takes one from the hop limit (RFC 8986, section 4.1), also if no link is between two of them.
    if !work.fresh && work.step.exposed == 0 && endpoint::take_hop(ctx.ctx) != 0 {
        return refuse(Reason::Malformed);
    }
    endpoint::run(ctx.ctx, sid)
}

/// The IPv6 packet goes where its destination leads it, be that another SID of this node. `fresh`: it has just been made here.
#[inline(always)]
fn go_on(ctx: *mut xdp_md, work: &mut Work, fresh: bool) -> u32 {
    work.fresh = fresh;
    enter(ctx, PROCESS)
}

/// Another program goes on with the packet.
#[inline(always)]
fn enter(ctx: *mut xdp_md, program: u32) -> u32 {
    // SAFETY: the context is of the running program, which ends here.
    unsafe { S_AGAIN.tail_call(&XdpContext::new(ctx), program) };
    refuse(Reason::TooManySids)
}

/// What this CPU knows of its packet.
#[inline(always)]
fn work() -> Option<&'static mut Work> {
    let work = S_WORK.get_ptr_mut(0)?;
    // SAFETY: the pointer is to this CPU's element, valid for any bits that programs write; a program has one reference at a time,
    // and XDP programs do not interrupt each other.
    Some(unsafe { &mut *work })
}

/// The IP packet behind the Ethernet header.
#[inline(always)]
fn ip(ctx: *mut xdp_md) -> Packet {
    // Not as a packet of its own: of one whose length LLVM knows to be that up to the end, it leaves out the checks that the
    // verifier wants to see.
    Packet::of(ctx, 0).behind(IP)
}

/// The same, with what is in further buffers counted as there.
#[inline(always)]
fn whole_ip(ctx: *mut xdp_md) -> Packet {
    Packet::of(ctx, 0)
        .with_len(packet::whole_len(ctx))
        .behind(IP)
}

/// Whether the packet is in several buffers.
#[inline(always)]
fn is_in_pieces(ctx: *mut xdp_md) -> bool {
    packet::whole_len(ctx) != packet::len(ctx)
}

/// Counts a reason.
#[inline(always)]
fn note(reason: Reason) {
    if let Some(count) = S_REASONS.get_ptr_mut(reason as u32) {
        // SAFETY: the pointer is to this CPU's element.
        unsafe { *count = (*count).wrapping_add(1) };
    }
}

/// Drops a packet.
#[inline(always)]
fn refuse(reason: Reason) -> u32 {
    note(reason);
    XDP_DROP
}

/// Counts a packet.
#[inline(always)]
fn count(slot: u32, bytes: usize) {
    if let Some(traffic) = S_TRAFFIC.get_ptr_mut(slot) {
        // SAFETY: the pointer is to this CPU's element.
        unsafe {
            (*traffic).packets = (*traffic).packets.wrapping_add(1);
            (*traffic).bytes = (*traffic).bytes.wrapping_add(bytes as u64);
        }
    }
}

/// Whether this CPU may tell about another packet that an ICMP error would answer: no more than are sent, so that a flood does not
/// fill the ring.
#[inline(always)]
fn may_tell() -> bool {
    let Some(budget) = S_BUDGET.get_ptr_mut(0) else {
        return false;
    };
    // SAFETY: the pointer is to this CPU's element; the helper takes no pointer.
    unsafe {
        let now = helpers::bpf_ktime_get_ns();
        let [last, credit] = *budget;
        let gained = credit.saturating_add(now.wrapping_sub(last));
        let credit = if gained > EVENT_BURST {
            EVENT_BURST
        } else {
            gained
        };
        let may = credit >= EVENT_COST;
        *budget = [now, if may { credit - EVENT_COST } else { credit }];
        may
    }
}

/// What is written to the ring of events.
#[repr(C)]
struct Report {
    event: Event,
    packet: [u8; EVENT_PACKET],
}

/// Drops a packet, and tells the control plane about it.
#[inline(never)]
fn tell(ctx: *mut xdp_md, reason: u32, value: u32, address: &[u8; 16], ifindex: u32) -> u32 {
    if let Some(count) = S_REASONS.get_ptr_mut(reason) {
        // SAFETY: the pointer is to this CPU's element.
        unsafe { *count = (*count).wrapping_add(1) };
    }
    // Nobody but a function can send what counts as a probe.
    let is_limited = reason != Reason::Resolve as u32 && reason != Reason::Probe as u32;
    if is_limited && !may_tell() {
        return XDP_DROP;
    }
    let Some(mut report) = S_EVENTS.reserve::<Report>(0) else {
        return XDP_DROP;
    };
    let len = packet::whole_len(ctx).saturating_sub(IP);
    let len = packet::opaque(if len > EVENT_PACKET {
        EVENT_PACKET
    } else {
        len
    });
    let report_ptr = report.as_mut_ptr();
    // SAFETY: memory of the ring, of the right size; the helper writes `len` bytes at most, which is bounded by the array's length.
    let loaded = unsafe {
        (&raw mut (*report_ptr).event).write(Event {
            reason,
            value,
            ifindex,
            len: len as u32,
            address: *address,
        });
        if len == 0 || len > EVENT_PACKET {
            -1
        } else {
            helpers::bpf_xdp_load_bytes(
                ctx,
                IP as u32,
                (&raw mut (*report_ptr).packet).cast(),
                len as u32,
            )
        }
    };
    match loaded {
        0 => report.submit(0),
        _ => report.discard(0),
    }
    XDP_DROP
}
