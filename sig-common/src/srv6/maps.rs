//! Names, keys and values of the BPF maps of an SR node; see [`crate::maps`] for the rules of their layout.

use super::filter;
use crate::{fast_path::key, maps::Ip, reason::reasons, wire::inner::InnerPacket};

/// Devices that packets come in by: `u32` interface index to [`Port`].
pub const PORTS: &str = "S_PORTS";
/// Local SIDs: 16 bytes of address to [`super::Sid`].
pub const SIDS: &str = "S_SIDS";
/// Prefixes that SIDs are taken from, and those of SIDs with arguments: longest prefix to the `u32` bits of the arguments, or 0.
pub const LOCATORS: &str = "S_LOCATORS";
/// What is steered into a policy: longest prefix of a destination to the `u32` number of a [`Policy`].
pub const STEERED_V4: &str = "S_STEERED_V4";
/// The same for IPv6.
pub const STEERED_V6: &str = "S_STEERED_V6";
/// Headers that packets are put behind: number to [`Policy`].
pub const POLICIES: &str = "S_POLICIES";
/// Neighbours: number to [`Adjacency`].
pub const ADJACENCIES: &str = "S_ADJACENCIES";
/// Functions behind proxies: number to [`Function`].
pub const FUNCTIONS: &str = "S_FUNCTIONS";
/// Headers of the last packet to each function: number to [`Cache`].
pub const CACHES: &str = "S_CACHES";
/// Headers of the flows through functions that have them for each: [`FlowKey`] to [`Flow`]. What was not used for the longest time
/// makes room.
pub const FLOWS: &str = "S_FLOWS";
/// The socket of functions in the process.
pub const SOCKET: &str = "S_SOCKET";
/// Functions that answer to this node by a device that functions return packets by: [`Peer`] to `u32`, any value.
pub const PEERS: &str = "S_PEERS";
/// Devices that packets leave by, by interface index.
pub const DEVICES: &str = "S_DEVICES";
/// Those of [`DEVICES`] that send packets in several buffers: `u32` interface index to 1.
pub const FRAGMENTS: &str = "S_FRAGMENTS";
/// Per CPU, packets and bytes: counter slot to [`Traffic`].
pub const TRAFFIC: &str = "S_TRAFFIC";
/// Per CPU, what was not forwarded: [`Reason`] to `u64` packets.
pub const REASONS: &str = "S_REASONS";
/// What the control plane is told: [`Event`] and the bytes of a packet.
pub const EVENTS: &str = "S_EVENTS";
/// Per CPU, when the last event that an ICMP error answers was told, and what may be spent on the next: two `u64` nanoseconds.
pub const BUDGET: &str = "S_BUDGET";
/// Keys of HMACs: `u32` key id, in native byte order, to [`super::hmac::HmacKey`].
pub const HMAC_KEYS: &str = "S_HMAC_KEYS";
/// The programs that go on with a packet.
pub const AGAIN: &str = "S_AGAIN";

/// Place in [`AGAIN`] of the program for packets whose destination may be a local SID.
pub const PROCESS: u32 = 0;
/// Of the program for packets to local SIDs whose HMAC is to be verified first.
pub const VERIFY: u32 = 1;
/// Of the program that packets come to first, for those whose HMAC has been verified.
pub const ENTRY: u32 = 2;
/// What is in force besides: one `u32` of bits of [`Control`].
pub const CONTROL: &str = "S_CONTROL";
/// Small tables of rules: generation to [`filter::Head`].
pub const HEADS: &str = "S_HEADS";
/// Prefixes that rules ask about: [`filter::PrefixKey`] to the `u32` number of a class.
pub const PREFIXES: &str = "S_PREFIXES";
/// Numbers that rules ask about: for each generation and field, `[u16; 65536]` of classes.
pub const NUMBERS: &str = "S_NUMBERS";
/// Rows in each class, for each generation.
pub const CLASSES: &str = "S_CLASSES";
/// What rows stand for, for each generation: [`filter::Row`].
pub const ROWS: &str = "S_ROWS";
/// Copies for mirrors: [`Copied`] and an IP packet.
pub const COPIES: &str = "S_COPIES";

/// Entries of [`PREFIXES`].
pub const MAX_PREFIXES: u32 = 32_768;
/// Bytes of [`COPIES`].
pub const COPY_BYTES: u32 = 1 << 22;
/// Bytes of a packet in a copy at most: XDP programs see no longer ones in one piece.
pub const COPY_PACKET: usize = 4096 - size_of::<Copied>();

/// Entries of [`PORTS`] and [`DEVICES`].
pub const MAX_PORTS: u32 = 1024;
/// Entries of [`SIDS`].
pub const MAX_SIDS: u32 = 65_536;
/// Entries of [`LOCATORS`].
pub const MAX_LOCATORS: u32 = 256;
/// Entries of [`STEERED_V4`] and of [`STEERED_V6`].
pub const MAX_STEERED: u32 = 65_536;
/// Entries of [`POLICIES`].
pub const MAX_POLICIES: u32 = 4096;
/// Entries of [`ADJACENCIES`].
pub const MAX_ADJACENCIES: u32 = 4096;
/// Entries of [`FUNCTIONS`] and [`CACHES`].
pub const MAX_FUNCTIONS: u32 = 256;
/// Entries of [`FLOWS`]. Every packet to a function renews the entry of its flow, so that it is flows with packets within functions that
/// have to be there.
pub const MAX_FLOWS: u32 = 16_384;
/// Entries of [`TRAFFIC`].
pub const MAX_SLOTS: u32 = MAX_SIDS + MAX_POLICIES + MAX_FUNCTIONS + filter::MAX_ROWS as u32;
/// Entries of [`HMAC_KEYS`].
pub const MAX_HMAC_KEYS: u32 = 256;
/// Bytes of [`EVENTS`].
pub const EVENT_BYTES: u32 = 1 << 18;

/// Bytes that are put in front of a packet at most: XDP has 256, of which the kernel takes some when it sends the packet on.
pub const MAX_HEADERS: usize = 208;
/// Segments of a policy at most, if all are listed: an IPv6 header and an SRH of so many are no longer than [`MAX_HEADERS`].
pub const MAX_LISTED: usize = 10;

/// Of a SID that takes packets out of a chain: not a routing table of the kernel's, but the gateway's tunnel.
pub const TUNNEL: u32 = u32::MAX;
/// Number of the adjacency that is the engine of the gateway.
pub const ENGINE: u32 = 0;

/// A device that packets come in by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Port {
    /// Its MAC address: packets to others are not ours.
    pub mac: [u8; 6],
    /// Zero.
    pub reserved: u16,
    /// Bits, see below.
    pub flags: u32,
    /// Of a device that a function returns packets by: the number of the function. Of one that frames come in by: that of their policy.
    pub function: u32,
}

impl Port {
    /// SIDs may be reached by this device (RFC 8754, section 5).
    pub const TRUSTED: u32 = 1;
    /// Packets that come in by it are steered into policies.
    pub const STEERED: u32 = 2;
    /// A function returns packets by it.
    pub const RETURN: u32 = 4;
    /// The tunnel device of the gateway whose engine is behind it: packets have a [`crate::mark::Mark`].
    pub const ENGINE: u32 = 8;
    /// Every frame that comes in by it goes into a policy.
    pub const FRAMES: u32 = 16;
    /// The HMAC of packets to SIDs is verified.
    pub const VERIFIED: u32 = 32;
    /// With [`Port::VERIFIED`]: packets to SIDs must have one.
    pub const AUTHENTIC: u32 = 64;
    /// There are [`PEERS`] at it.
    pub const PEERS: u32 = 128;
    /// The device that functions in the process are behind: [`Function::mac`] tells which.
    pub const PROCESS: u32 = 256;
}

/// Headers that packets are put behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Policy {
    /// An IPv6 header, and an SRH unless the first segment is the only one: as on the wire, but for payload length, traffic class,
    /// flow label and the next header behind them.
    pub headers: [u8; MAX_HEADERS],
    /// Bytes of them.
    pub len: u16,
    /// Offset of the next header value for what is inside.
    pub next_header_at: u16,
    /// Bits, see below.
    pub flags: u32,
    /// Its counters.
    pub slot: u32,
    /// Largest packet that may become of it, headers included, bytes.
    pub mtu: u32,
}

impl Policy {
    /// The hop limit of IPv6 packets is copied to the outside, as Linux does.
    pub const INHERIT_HOP_LIMIT: u32 = 1;
    /// The SRH goes between the IPv6 header of a packet and what follows. Of the IPv6 header in front of it only the destination is
    /// used; the last segment, first in the list, is that of the packet.
    pub const INSERT: u32 = 2;
}

/// A neighbour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Adjacency {
    /// Interface index of the device.
    pub ifindex: u32,
    /// Largest IP packet that the device takes, bytes.
    pub mtu: u32,
    /// Destination, then source MAC address.
    pub macs: [u8; 12],
    /// 0 while the MAC address is not known.
    pub known: u32,
}

/// A function behind a proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Function {
    /// The way to it.
    pub to: Adjacency,
    /// Bits, see below.
    pub flags: u32,
    /// Of a static proxy: number of the policy for what it returns.
    pub policy: u32,
    /// Counters of what it returned.
    pub slot: u32,
    /// Of a dynamic proxy that remembers headers per flow: what [`FlowKey::function`] is, never that of another function. Else 0.
    pub flows: u32,
}

impl Function {
    /// It is alive.
    pub const UP: u32 = 1;
    /// While it is not, packets go on without it. Without this bit they are dropped.
    pub const BYPASS: u32 = 2;
    /// What it returns gets the headers of the last packet to it, or of its flow (dynamic proxy).
    pub const CACHED: u32 = 4;
    /// What it returns gets those of its policy (static proxy).
    pub const CONFIGURED: u32 = 8;
    /// What it returns has its SRH still (masquerading proxy).
    pub const MASQUERADED: u32 = 16;
    /// Packets without a further segment go to it too, and end their chain there.
    pub const LAST: u32 = 32;

    /// The link-layer address that packets to a function in the process have, and keep on their way back.
    #[must_use]
    pub const fn mac(number: u32) -> [u8; 6] {
        let [.., high, low] = number.to_be_bytes();
        [2, 0, 0, 0, high, low]
    }

    /// Number of the function whose packets have this address.
    #[inline(always)]
    #[must_use]
    pub const fn of_mac(mac: [u8; 6]) -> u32 {
        let [.., high, low] = mac;
        u32::from_be_bytes([0, 0, high, low])
    }
}

/// Headers of the last packet to a function.
///
/// Written by programs on any CPU: [`Cache::version`] is odd meanwhile, and who copies compares it before and afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Cache {
    /// Grows by two with every change, also of those of a flow. Many changes: several chains share a function that can serve one only.
    pub version: u64,
    /// Bytes of the headers; 0: none yet.
    pub len: u32,
    /// What was behind them: a next header value.
    pub exposed: u32,
    /// The headers, as they were when the packet had its next segment already; without traffic class, flow label and length.
    pub headers: [u8; MAX_HEADERS],
}

/// A function and this node as neighbours, IPv4 addresses as IPv4-mapped IPv6: what the one sends to the other is of no chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(C)]
pub struct Peer {
    /// Interface index of the device between them.
    pub ifindex: u32,
    /// Zero.
    pub reserved: u32,
    /// Address of the function.
    pub function: Ip,
    /// Address of this node.
    pub node: Ip,
}

/// What a probe through a function has in front of its bytes: [`IPV4_PROBE_AT`] or [`IPV6_PROBE_AT`]: the secret of this node, in
/// native byte order, by which it is known when it comes back.
pub type ProbeToken = u64;
/// Where the payload of an IPv4 packet without options begins that has a header of 8 bytes behind, as UDP.
pub const IPV4_PROBE_AT: usize = 28;
/// The same of IPv6.
pub const IPV6_PROBE_AT: usize = 48;
/// Name of the variable with the [`ProbeToken`].
pub const TOKEN: &str = "S_TOKEN";

/// A flow through a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(C)]
pub struct FlowKey {
    /// Version, addresses, protocol and ports of the packets, as in the keys of flows of `crate::fast_path`. Fragments, and packets of
    /// other protocols than TCP, UDP and SCTP, have no ports.
    pub packets: [u64; 5],
    /// [`Function::flows`].
    pub function: u64,
}

impl FlowKey {
    /// That of a packet to or from a function.
    #[inline(always)]
    #[must_use]
    pub fn of(packet: &InnerPacket, function: u32) -> Self {
        Self {
            packets: key(packet, packet.protocol_and_ports()),
            function: function as u64,
        }
    }
}

/// Headers of a flow. An entry of the map does not change: other headers make another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Flow {
    /// As [`Cache::headers`]. First, as they are read as words.
    pub headers: [u8; MAX_HEADERS],
    /// Bytes of them; 0: the flow ends its chain at the function.
    pub len: u32,
    /// Zero.
    pub reserved: u32,
}

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Traffic {
    /// IP packets.
    pub packets: u64,
    /// Bytes of them, as they came in.
    pub bytes: u64,
}

/// What the control plane is told about a packet, in front of its first bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Event {
    /// Number of the [`Reason`].
    pub reason: u32,
    /// What an ICMPv6 Parameter Problem points at, or the MTU that the packet exceeds.
    pub value: u32,
    /// Interface index of the device that the packet came in by; of a neighbour to resolve, of the device towards it.
    pub ifindex: u32,
    /// Bytes of the packet that follow, from the IP header on.
    pub len: u32,
    /// Of a neighbour to resolve: its address, IPv4 as IPv4-mapped IPv6.
    pub address: [u8; 16],
}

/// Bits of the word in [`CONTROL`].
pub struct Control;

impl Control {
    /// Which generation of the tables of rules is in force.
    pub const GENERATION: u32 = 1;
    /// There are rules.
    pub const RULES: u32 = 2;
    /// There are SIDs with arguments.
    pub const ARGUMENTS: u32 = 4;
}

/// In front of a packet for a mirror.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Copied {
    /// Interface index of the device that the copy leaves by.
    pub ifindex: u32,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// EtherType of the packet, big endian.
    pub ethertype: [u8; 2],
}

/// Bytes of a packet in an event at most: what an ICMPv6 error quotes of it.
pub const EVENT_PACKET: usize = 1280 - 48;

reasons! {
    /// Why a packet did not go on, or not by itself.
    Reason:

    Untrusted, "untrusted",
        "A packet to a SID or locator came in by an interface that is not trusted, or was inside another packet.";
    Malformed, "malformed",
        "A packet to a SID is no complete IPv6 packet, or rules or a policy cannot read one.";
    HopLimit, "hop_limit",
        "The hop limit of a packet ran out.";
    BadHeader, "bad_header",
        "The segment routing header is malformed, or has segments left at a SID that ends the list.";
    UpperLayer, "upper_layer",
        "The SID has no use for what is behind the headers of a packet.";
    BadInner, "bad_inner",
        "What is inside a packet is not what its headers say.";
    ChainEnd, "chain_end",
        "A packet to a proxy has no segment left to go on to.";
    NoAdjacency, "no_adjacency",
        "The neighbour that a SID leads to is not known, or does not answer.";
    NoDevice, "no_device",
        "The device that a SID leads to is gone or cannot send.";
    NoRoute, "no_route",
        "The routing table of a SID has no way to the destination.";
    TooBig, "too_big",
        "A packet is larger than its way allows.";
    TooLong, "too_long",
        "The headers of a packet are longer than a program can handle.";
    FunctionDown, "function_down",
        "The function of a proxy is down, and its packets are to be dropped.";
    NoPolicy, "no_policy",
        "The policy that a packet was for is no more.";
    NoHeaders, "no_headers",
        "A function returned a packet before any had been sent to it, or any of its flow.";
    Changing, "changing",
        "A function returned a packet while the headers for it were being changed.";
    NotReturned, "not_returned",
        "A function sent what is no packet of a chain: link-local, multicast, or of another protocol.";
    TooManySids, "too_many_sids",
        "A packet has more SIDs of this node in a row than are processed.";
    Filtered, "filtered",
        "A rule drops the packet.";
    BadArguments, "bad_arguments",
        "A rule asks for the arguments of a SID, and they mean nothing.";
    MirrorFull, "mirror_full",
        "A copy for a mirror was lost, as there was no room for it. The packet itself went on.";
    ToKernel, "to_kernel",
        "Processed, and left to the kernel to send.";
    Resolve, "resolve",
        "The address of a neighbour had to be asked for first.";
    Hmac, "hmac",
        "The HMAC of a packet to a SID is wrong or of an unknown key, or there is none though there must be.";
    PriorityTag, "priority_tag",
        "A packet has a priority tag (VLAN 0), which would hide it from rules and policies.";
    Probe, "probe",
        "A probe came back from a function.";
}

#[cfg(feature = "user")]
mod pod {
    use super::*;
    use crate::srv6::{Sid, hmac::HmacKey};

    macro_rules! pod {
        ($($name:ident)+) => {
            $(
                // SAFETY: `repr(C)` over integers and arrays of them, Copy, 'static, without padding (asserted below).
                unsafe impl aya::Pod for $name {}
            )+
        };
    }
    use filter::{Head, PrefixKey, Row};
    pod!(Port Peer Sid Policy Adjacency Function Cache Traffic HmacKey Head PrefixKey Row);
}

// Sizes are the sums of the fields: there is no implicit padding.
const _: () = {
    assert!(size_of::<Port>() == 6 + 2 + 4 + 4);
    assert!(size_of::<super::Sid>() == 4 + 4 + 4);
    assert!(size_of::<Policy>() == MAX_HEADERS + 2 + 2 + 4 + 4 + 4);
    assert!(size_of::<Adjacency>() == 4 + 4 + 12 + 4);
    assert!(size_of::<Function>() == size_of::<Adjacency>() + 4 * 4);
    assert!(size_of::<Cache>() == 8 + 4 + 4 + MAX_HEADERS && MAX_HEADERS.is_multiple_of(8));
    assert!(size_of::<Peer>() == 4 + 4 + 16 + 16);
    assert!(size_of::<FlowKey>() == 6 * 8);
    assert!(size_of::<Flow>() == MAX_HEADERS + 2 * 4);
    assert!(size_of::<Traffic>() == 16);
    assert!(size_of::<Copied>() == 4 + 6 + 2);
    assert!(size_of::<Event>() == 4 * 4 + 16);
    assert!(size_of::<super::hmac::HmacKey>() == 32 + 32 + 4);
};
