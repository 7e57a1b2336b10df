//! What the engine and the XDP programs share so that the programs can send and deliver simple packets by themselves.
//!
//! The engine decides, the programs repeat its decisions: a [slot] holds what the engine decided about a flow (the
//! path) or a pair of inner addresses (the next hop). A flow goes through the programs only while none of its packets is
//! with a worker: every packet handed over to a worker gets a [ticket](tickets) from its socket.
//!
//! Maps of words (`u64`, host byte order) are mapped into the engine's memory, which reads and writes them without a
//! system call. Nothing in them is believed to be consistent: what one side writes while the other reads shows.

use core::net::IpAddr;

use crate::addr::IsdAs;
use crate::maps::Ip;
use crate::wire::{ethernet, inner::InnerPacket, template::HeaderTemplate};

/// Decisions about flows: [`slot`]s.
pub const FLOWS: &str = "FLOWS";
/// Which slots of [`FLOWS`] had packets lately, a byte each: the programs set it to 1, the control plane to 0.
pub const FLOWS_USED: &str = "FLOWS_USED";
/// Decisions about pairs of inner addresses of packets from a remote: [`slot`]s.
pub const PAIRS: &str = "PAIRS";
/// As [`FLOWS_USED`], for [`PAIRS`].
pub const PAIRS_USED: &str = "PAIRS_USED";
/// Received streams: [`StreamKey`] to `u32`, its place in [`STREAM_SLOTS`].
pub const STREAMS: &str = "STREAMS";
/// State of received streams: [`stream`]s.
pub const STREAM_SLOTS: &str = "STREAM_SLOTS";
/// [`tickets`] of each socket, by its index in [`crate::maps::XSKS`].
pub const TICKETS: &str = "TICKETS";
/// Paths that the programs can send on: `u32` number to [`FastPath`].
pub const PATHS: &str = "PATHS";
/// [`sender`]s: streams of each path, by [`sender::place`].
pub const SENDERS: &str = "SENDERS";
/// Next hops on the LANs: `u32` number to [`Hop`].
pub const HOPS: &str = "HOPS";
/// Devices that the programs send through: `u32` place to device.
pub const OUTPUTS: &str = "OUTPUTS";
/// Per CPU, what the programs sent on each path: `u32` number of the path to [`Traffic`].
pub const SENT: &str = "SENT";
/// Per CPU, what the programs delivered of each remote: `u32` number of the remote to [`Traffic`].
pub const DELIVERED: &str = "DELIVERED";
/// [`control`] words.
pub const CONTROL: &str = "CONTROL";

/// Slots in [`FLOWS`]; a power of two.
pub const FLOW_SLOTS: u32 = 1 << 16;
/// Slots in [`PAIRS`]; a power of two.
pub const PAIR_SLOTS: u32 = 1 << 15;
/// Places in [`STREAM_SLOTS`], shared among the workers.
pub const MAX_STREAMS: u32 = 8192;
/// Numbers in [`PATHS`].
pub const MAX_PATHS: u32 = 4096;
/// Entries of [`HOPS`].
pub const MAX_HOPS: u32 = 16384;
/// Entries of [`OUTPUTS`].
pub const MAX_OUTPUTS: u32 = 64;
/// Entries of [`DELIVERED`].
pub const MAX_DELIVERED: u32 = 4096;

/// Longest headers that the programs put in front of a packet. XDP promises 256 bytes of room, of which the kernel takes some
/// for itself when a packet is redirected; the Ethernet header of the packet is used again.
pub const MAX_HEADERS: usize = 232;

/// What is written in front of a packet handed over to a worker: [`tickets::compose`].
pub const METADATA_LEN: usize = 8;

/// Words about all of the fast path.
pub mod control {
    /// Words.
    pub const WORDS: usize = 8;
    /// Generation of the decisions in force, in the low 16 bits; 0: the programs hand everything over. Decisions of
    /// the next one are taken too: those that are made while the tables change.
    pub const GENERATION: usize = 0;
    /// Packets that wait in a socket above which its worker is taken to be behind.
    pub const BACKLOG: usize = 1;
    /// Not 0: what is delivered is decided flow by flow, see [`super::pair_key`].
    pub const BY_FLOW: usize = 2;
}

/// A decision of the engine, in eight words.
///
/// Each word but [`slot::TICKET`] is combined with the first one (exclusive or), which is random. Several workers may write a slot at the
/// same time, and programs read it meanwhile: a mixture of two decisions matches no key.
pub mod slot {
    /// Words.
    pub const WORDS: usize = 8;
    /// Words that the engine writes.
    pub const SEALED: usize = 7;
    /// Place of the ticket of the packet of this slot that was handed over last, with the socket; written by the programs
    /// alone. Unused in [`super::PAIRS`].
    pub const TICKET: usize = 7;

    /// The words of a decision. `nonce`: random.
    #[must_use]
    pub fn seal(nonce: u64, generation: u16, state: u32, key: &[u64; 5]) -> [u64; SEALED] {
        let first = nonce & !0xffff | generation as u64;
        let [a, b, c, d, e] = *key;
        [
            first,
            first ^ state as u64,
            first ^ a,
            first ^ b,
            first ^ c,
            first ^ d,
            first ^ e,
        ]
    }

    /// The decision about `key` among these words, if it is one of `generation` or the next.
    #[inline(always)]
    #[must_use]
    pub fn open(words: &[u64; SEALED], generation: u16, key: &[u64; 5]) -> Option<u32> {
        let [first, state, a, b, c, d, e] = *words;
        let differences = a ^ first ^ key[0]
            | b ^ first ^ key[1]
            | c ^ first ^ key[2]
            | d ^ first ^ key[3]
            | e ^ first ^ key[4];
        let state = state ^ first;
        let age = (first as u16).wrapping_sub(generation);
        if differences != 0 || age > 1 || state >> 32 != 0 {
            return None;
        }
        Some(state as u32)
    }
}

/// The flow of a packet and what traffic classes ask of it beside, as the key of a [`slot`].
#[inline(always)]
#[must_use]
pub fn flow_key(packet: &InnerPacket) -> [u64; 5] {
    let rest = packet.protocol_and_ports() | (packet.tos as u64) << 40;
    key(packet, rest)
}

/// The key of a flow that has been through its chain: the gateway sees such a flow twice.
#[inline(always)]
#[must_use]
pub const fn returned_key(key: &[u64; 5]) -> [u64; 5] {
    let [a, b, c, d, rest] = *key;
    [a, b, c, d, rest | RETURNED]
}

/// Whether the flow of a key has been through its chain.
#[must_use]
pub const fn has_returned(key: &[u64; 5]) -> bool {
    key[4] & RETURNED != 0
}

/// Of the key of a flow, see [`returned_key`].
const RETURNED: u64 = 1 << 48;

/// The inner addresses of a packet and the number of the remote that sent it, as the key of a [`slot`]; where rules look at
/// more than addresses, `by_flow`, also the rest of the flow.
#[inline(always)]
#[must_use]
pub fn pair_key(packet: &InnerPacket, remote: u32, by_flow: bool) -> [u64; 5] {
    let flow = packet.protocol_and_ports() | (packet.tos as u64) << 40;
    key(packet, pair_rest(flow, remote, by_flow))
}

/// What is in the key of a pair beside the addresses and the version of IP. `flow`: protocol, ports and traffic class.
#[inline(always)]
#[must_use]
pub const fn pair_rest(flow: u64, remote: u32, by_flow: bool) -> u64 {
    let remote = remote as u64;
    match by_flow {
        false => remote,
        // There are 4096 remotes; the bits between belong to the version.
        true => flow | (remote & 0xff) << 48 | (remote >> 8 & 0xf) << 60,
    }
}

/// The number of the remote in the key of a pair.
#[must_use]
pub const fn remote_of_pair(key: &[u64; 5], by_flow: bool) -> u16 {
    match by_flow {
        false => key[4] as u16,
        true => (key[4] >> 48 & 0xff | (key[4] >> 60) << 8) as u16,
    }
}

/// Version and addresses of a packet, and the lower 56 bits of `rest`.
#[inline(always)]
pub(crate) fn key(packet: &InnerPacket, rest: u64) -> [u64; 5] {
    match (packet.source, packet.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let both = (source.to_bits() as u64) << 32 | destination.to_bits() as u64;
            [both, 0, 0, 0, rest | 4 << 56]
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let (source, destination) = (source.to_bits(), destination.to_bits());
            [
                (source >> 64) as u64,
                source as u64,
                (destination >> 64) as u64,
                destination as u64,
                rest | 6 << 56,
            ]
        }
        // There are no such packets.
        _ => [0; 5],
    }
}

/// Place of a pair of addresses in [`PAIRS`].
#[inline(always)]
#[must_use]
pub fn pair_place(key: &[u64; 5]) -> u32 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let [a, b, c, d, e] = *key;
    let mixed =
        (a ^ b.rotate_left(17) ^ c.rotate_left(31) ^ d.rotate_left(47) ^ e).wrapping_mul(FACTOR);
    (mixed >> 40) as u32 & (PAIR_SLOTS - 1)
}

/// Place of a flow in [`FLOWS`]; of one that has been through its chain, another one.
#[inline(always)]
#[must_use]
pub const fn flow_place(flow_hash: u32, returned: bool) -> u32 {
    (flow_hash ^ returned as u32) & (FLOW_SLOTS - 1)
}

/// A received stream, in eight words.
pub mod stream {
    /// Words.
    pub const WORDS: usize = 8;
    /// The sequence number expected next; with [`WITH_ENGINE`], the programs deliver nothing of the stream. The engine sets and clears that bit,
    /// the programs count up while it is not set.
    pub const NEXT: usize = 0;
    /// As [`super::slot::TICKET`].
    pub const TICKET: usize = 1;
    /// Behind the last frame that the programs dropped because the worker was behind; the gap is none. Believed up to [`MAX_DROPPED`]
    /// numbers from the one that is expected.
    pub const DROPPED: usize = 2;
    /// See [`DROPPED`].
    pub const MAX_DROPPED: u64 = 1 << 14;
    /// See [`NEXT`]. Streams with such numbers are the engine's.
    pub const WITH_ENGINE: u64 = 1 << 63;
}

/// Tickets of a socket, in sixteen words: both sides write, each to its own cache line.
///
/// A ticket is a number that grows by one with every packet handed over to the socket.
pub mod tickets {
    /// Words.
    pub const WORDS: usize = 16;
    /// The ticket given last.
    pub const GIVEN: usize = 0;
    /// The ticket given last when the worker was found to be behind: until it is done, the worker gets no more of what the
    /// programs could take themselves.
    pub const DRAINED: usize = 1;
    /// All packets up to this ticket have left the worker, as far as they leave.
    pub const DONE: usize = 8;
    /// The worker has taken all packets up to this ticket from the socket.
    pub const TAKEN: usize = 9;
    /// Bits of a ticket.
    pub const BITS: u32 = 48;

    /// A ticket with the number of its socket plus one, so that 0 is none.
    #[inline(always)]
    #[must_use]
    pub const fn compose(ticket: u64, socket: u32) -> u64 {
        ticket & ((1 << BITS) - 1) | (socket.wrapping_add(1) as u64) << BITS
    }

    /// The ticket, and the number of its socket plus one.
    #[inline(always)]
    #[must_use]
    pub const fn decompose(word: u64) -> (u64, u32) {
        (word & ((1 << BITS) - 1), (word >> BITS) as u32)
    }
}

/// A stream on a path, in two words. Each socket has one of its own on each path: its packets are those of one queue, which one
/// CPU handles at a time, and all packets of a flow go to one socket. Programs and engine number the frames together, and add
/// atomically.
pub mod sender {
    /// Words.
    pub const WORDS: usize = 2;
    /// Sequence number of the next frame.
    pub const SEQUENCE: usize = 0;
    /// Stream id.
    pub const STREAM: usize = 1;

    /// The place of a socket's stream on a path.
    #[inline(always)]
    #[must_use]
    pub const fn place(path: u32, socket: u32) -> u32 {
        socket.wrapping_mul(super::MAX_PATHS).wrapping_add(path)
    }
}

/// A path that the programs can send on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct FastPath {
    /// Place of the underlay device in [`OUTPUTS`].
    pub output: u16,
    /// Not 0: that device sends packets in several buffers.
    pub buffers: u16,
    /// Longest packet that fits a frame.
    pub capacity: u32,
    /// Outer headers.
    pub template: HeaderTemplate<MAX_HEADERS>,
}

/// A next hop on a LAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Hop {
    /// Place of the device in [`OUTPUTS`].
    pub output: u16,
    /// Not 0: that device sends packets in several buffers.
    pub buffers: u16,
    /// Longest packet that the device takes.
    pub mtu: u32,
    /// Destination MAC address, then source MAC address.
    pub macs: [u8; 12],
}

/// What tells one received stream from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct StreamKey {
    /// ISD-AS of the sender.
    pub isd_as: u64,
    /// SCION host address of the sender.
    pub host: Ip,
    /// Stream id of the frame header.
    pub stream: u32,
    /// UDP/SCION source port.
    pub source_port: u16,
    /// Session of the frame header.
    pub session: u8,
    /// Zero.
    pub reserved: u8,
}

impl StreamKey {
    /// The key of a stream.
    #[inline(always)]
    #[must_use]
    pub const fn new(isd_as: IsdAs, host: Ip, source_port: u16, session: u8, stream: u32) -> Self {
        Self {
            isd_as: isd_as.0,
            host,
            stream,
            source_port,
            session,
            reserved: 0,
        }
    }
}

/// Packets, one per frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Traffic {
    /// How many.
    pub packets: u64,
    /// Bytes of them, from the inner IP header on.
    pub bytes: u64,
}

#[cfg(feature = "user")]
mod pod {
    use super::*;

    macro_rules! pod {
        ($($name:ident)+) => {
            $(
                // SAFETY: `repr(C)` over integers and arrays of them, Copy, 'static, without padding
                // (asserted below).
                unsafe impl aya::Pod for $name {}
            )+
        };
    }
    pod!(FastPath Hop StreamKey Traffic);
}

const _: () = {
    assert!(MAX_HEADERS.is_multiple_of(8) && MAX_HEADERS > ethernet::HEADER_LEN);
    assert!(size_of::<FastPath>() == 4 + 4 + 16 + MAX_HEADERS);
    assert!(size_of::<Hop>() == 4 + 4 + 12);
    assert!(size_of::<StreamKey>() == 8 + 16 + 4 + 2 + 1 + 1);
    assert!(size_of::<Traffic>() == 8 + 8);
};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_decision_is_found_by_its_key_and_generation_only(
            nonce: u64, generation: u16, state: u32, key: [u64; 5], other: [u64; 5],
        ) {
            let words = slot::seal(nonce, generation, state, &key);
            prop_assert_eq!(slot::open(&words, generation, &key), Some(state));
            prop_assert_eq!(slot::open(&words, generation.wrapping_sub(1), &key), Some(state));
            prop_assert_eq!(slot::open(&words, generation.wrapping_add(1), &key), None);
            prop_assume!(key != other);
            prop_assert_eq!(slot::open(&words, generation, &other), None);
        }

        #[test]
        fn a_mixture_of_two_decisions_is_none(
            nonces: [u64; 2], states: [u32; 2], keys: [[u64; 5]; 2], from in 1u32..127,
        ) {
            prop_assume!(nonces[0] >> 16 != nonces[1] >> 16);
            let [a, b] = [0, 1].map(|n| slot::seal(nonces[n], 1, states[n], &keys[n]));
            let words: [u64; slot::SEALED] =
                core::array::from_fn(|n| if from >> n & 1 == 0 { a[n] } else { b[n] });
            for key in keys {
                prop_assert_eq!(slot::open(&words, 1, &key), None);
            }
        }
    }
}
