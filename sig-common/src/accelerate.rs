//! What `sig accelerate` and its TC programs share: acceleration beside a foreign gateway, whose frames and packets are all
//! that is known of it.
//!
//! ```text
//!   kernel ── tunnel device ──> gateway ──> underlay device        what the gateway does
//!               │    ▲                        │         ▲
//!               └────┼── encapsulate ─────────┼─────────┘           what the programs do, for flows that they have
//!                    └───────── decapsulate ──┘                     seen the gateway send, and frames like its own
//! ```
//!
//! Order is kept by [`slot`]s: a packet that is left to the gateway marks the slot of its flow, and releases it when it is seen
//! behind the gateway. While a slot is marked, packets of its flow go through the gateway, too.
//!
//! Numbers are in host byte order unless a header says otherwise.

use crate::maps::{Ip, RemoteKey};
use crate::wire::{
    Load, PROTO_TCP, PROTO_UDP, flow::hash_of_key, simple::Simple, template::HeaderTemplate,
};

/// [`Config`], one element.
pub const CONFIG: &str = "A_CONFIG";
/// Flows and their paths: [`FlowKey`] to [`Flow`].
pub const FLOWS: &str = "A_FLOWS";
/// Paths: `u32` number to [`Path`]. Numbers are never used twice.
pub const PATHS: &str = "A_PATHS";
/// Paths by what their frames look like: `u64` [`Sighting::frame`] to `u32` number, or [`NO_PATH`].
pub const FRAMES: &str = "A_FRAMES";
/// Ways through the network: `u64` [`Sighting::way`] to `u64` time at which the gateway sent something over it last.
pub const WAYS: &str = "A_WAYS";
/// Who probes whom, as far as ports tell of a probe: [`ProbeKey`] to `u64`, see [`probes`].
pub const PROBES: &str = "A_PROBES";
/// Sequence numbers of the frames of each path, per CPU: `u32` [`Path::place`] to `u64`.
pub const SEQUENCES: &str = "A_SEQUENCES";
/// What was sent over each path, per CPU: `u32` [`Path::place`] to [`crate::fast_path::Traffic`].
pub const SENT: &str = "A_SENT";
/// Gateways that ours exchanges frames or probes with: [`crate::maps::RemoteKey`] to `u32` place in [`DELIVERED`].
pub const REMOTES: &str = "A_REMOTES";
/// SCION addresses of our gateway: [`crate::maps::RemoteKey`] to nothing.
pub const LOCALS: &str = "A_LOCALS";
/// By which hosts of the underlay and to which ports frames come in whose packets come out of the gateway: `u64` hash to nothing.
/// LRU.
pub const ENTRANCES: &str = "A_ENTRANCES";
/// Which peer the gateway has chosen last for packets to a destination: `u32` [`Path::peer`] by [`target_place`].
pub const TARGETS: &str = "A_TARGETS";
/// What was delivered of each remote, per CPU: `u32` to [`crate::fast_path::Traffic`].
pub const DELIVERED: &str = "A_DELIVERED";
/// [`slot`]s of flows into the tunnel.
pub const OUTBOUND: &str = "A_OUTBOUND";
/// [`slot`]s of flows out of the tunnel.
pub const INBOUND: &str = "A_INBOUND";
/// [`slot`]s of pairs of hosts, for packets that are in no flow, such as fragments; first those into the tunnel.
pub const PAIRS: &str = "A_PAIRS";
/// [`slot`]s of all packets of a [`Direction`], for what was left to the gateway without being looked at.
pub const HELD: &str = "A_HELD";
/// [`Stat`]s, per CPU.
pub const STATS: &str = "A_STATS";
/// [`Sighting`]s, a ring buffer.
pub const SIGHTINGS: &str = "A_SIGHTINGS";

/// Slots of [`OUTBOUND`] and [`INBOUND`]; a power of two.
pub const SLOTS: u32 = 1 << 16;
/// Slots of [`PAIRS`] in each direction; a power of two.
pub const PAIR_SLOTS: u32 = 1 << 12;
/// Entries of [`TARGETS`]; a power of two.
pub const MAX_TARGETS: u32 = 1 << 16;
/// Entries of [`ENTRANCES`].
pub const MAX_ENTRANCES: u32 = 1024;
/// Entries of [`FLOWS`].
pub const MAX_FLOWS: u32 = 1 << 17;
/// Places of paths.
pub const MAX_PATHS: u32 = 1024;
/// Places of remotes.
pub const MAX_REMOTES: u32 = 1024;
/// Entries of [`FRAMES`].
pub const MAX_FRAMES: u32 = 4096;
/// Entries of [`PROBES`].
pub const MAX_PROBES: u32 = 4096;
/// Bytes of the ring buffer.
pub const SIGHTINGS_LEN: u32 = 1 << 18;

/// The port on which gateways answer session probes.
pub const PROBE_PORT: u16 = 30856;

/// Longest headers of a path, from Ethernet to the SIG frame header.
pub const MAX_HEADERS: usize = 320;

/// Value of [`FRAMES`] for frames that are not accelerated.
pub const NO_PATH: u32 = 0;

/// The programs' streams have this bit in their 20-bit id, which the reference's never have.
pub const STREAM_BIT: u32 = 1 << 19;
/// Bits of a stream id that tell CPUs apart.
pub const CPU_BITS: u32 = 8;

/// A way over which the gateway has sent nothing for this long may not be its choice any more, in ns. Gateways probe twice a
/// second.
pub const WAY_LIFETIME: u64 = 1_200_000_000;
/// A flow that paused for this long is asked about again: the gateway may have another path for it by now, in ns.
pub const FLOW_LIFETIME: u64 = 30_000_000_000;

/// What the programs are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Config {
    /// Device that frames leave and come in by.
    pub underlay: u32,
    /// The gateway's tunnel device.
    pub tunnel: u32,
    /// Device through which packets pass that must be cut and completed.
    pub segmenter: u32,
    /// MTU of the tunnel device.
    pub tunnel_mtu: u32,
    /// 1: packets may be taken. 0: everything is only watched.
    pub enabled: u32,
    /// Longest packet that fits a frame on every path, to which segments of TCP are limited; 0: they are not.
    pub frame_size: u32,
}

/// A flow with its DSCP: what a gateway may choose a path by. See [`flow_key`].
pub type FlowKey = [u64; 5];

/// What is known of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Flow {
    /// [`flow_tag`]: what is kept of a flow may become another's while a program reads it. In front, so that it is written first;
    /// it is read last.
    pub tag: u64,
    /// Number of its path.
    pub path: u32,
    /// [`Path::peer`] of that.
    pub peer: u32,
    /// What was in [`TARGETS`] when the gateway sent a packet of it last. Something else since: it is asked again.
    pub target: u32,
    /// Zero.
    pub reserved: u32,
    /// When a packet of it was sent last, ns.
    pub used: u64,
}

/// A path: what the gateway's frames over it look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Path {
    /// Key in [`WAYS`].
    pub way: u64,
    /// Its number, and what differs each time that it is written: it may be replaced while a program reads what follows.
    pub number: u32,
    /// See there.
    pub serial: u32,
    /// What stands for remote and session, never 0.
    pub peer: u32,
    /// Place in [`SEQUENCES`] and [`SENT`].
    pub place: u32,
    /// Stream id of the first CPU's frames; the other CPUs' follow.
    pub stream: u32,
    /// Longest packet that the gateway has sent in one frame, or part of a packet; the programs count up.
    pub capacity: u32,
    /// DSCP and ECN of the gateway's frames.
    pub traffic_class: u32,
    /// Bytes of packets in a frame that had no room for the last one; 0: none was seen yet.
    pub full: u32,
    /// Headers.
    pub template: HeaderTemplate<MAX_HEADERS>,
}

/// Which way packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Direction {
    /// Into the tunnel.
    Out,
    /// Out of it.
    In,
}

impl Direction {
    /// How many there are.
    pub const COUNT: u32 = 2;
}

/// Something that user space must see: sent by the gateway, or for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Sighting {
    /// When, ns since boot.
    pub time: u64,
    /// Hash of what frames and probes of a session have in common that go the same way to the same host: all headers but ports
    /// and what is behind, and the session.
    pub way: u64,
    /// [`Sighting::way`] with ports.
    pub frame: u64,
    /// One of [`kind`].
    pub kind: u32,
    /// Bytes of headers in [`Sighting::bytes`]: of a frame up to the end of the SIG header, of a probe up to the end of
    /// the UDP/SCION header.
    pub headers: u32,
    /// Bytes behind the headers.
    pub payload: u32,
    /// Session of a probe.
    pub session: u32,
    /// The headers.
    pub bytes: [u8; MAX_HEADERS],
}

/// What was seen.
pub mod kind {
    /// The gateway sent a frame with a packet that had come through the tunnel device, in a form that is not in
    /// [`super::FRAMES`].
    pub const FRAME: u32 = 1;
    /// A session probe of the gateway left.
    pub const PROBE: u32 = 2;
    /// An answer to one came in.
    pub const ANSWER: u32 = 3;
}

/// Between which ports a probe and its answer travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ProbeKey {
    /// The remote gateway.
    pub remote: RemoteKey,
    /// UDP/SCION port here.
    pub local_port: u32,
    /// UDP/SCION port there.
    pub remote_port: u32,
}

/// Probes and answers look alike. Whichever side was first between two ports probes, and the other answers. Else a probe of a
/// stranger, over a path of its own, would draw an answer that passes for a probe of our gateway over that path.
pub mod probes {
    /// Value of [`super::PROBES`]: our gateway probes. Any other value is when something came in last.
    pub const OWN: u64 = u64::MAX;
    /// A gateway has answered within this time, in ns.
    const ANSWERED: u64 = 100_000_000;

    /// Whether what leaves now is a probe of our gateway.
    #[inline(always)]
    #[must_use]
    pub const fn is_own(known: u64, now: u64) -> bool {
        known == OWN || now.saturating_sub(known) > ANSWERED
    }

    /// Whether a datagram between these ports, from the prober's to the other, can be a probe.
    #[inline(always)]
    #[must_use]
    pub const fn has_ports(prober: u16, other: u16) -> bool {
        other == super::PROBE_PORT && prober != super::PROBE_PORT
    }
}

/// Counters of the programs, in packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Stat {
    /// Into the tunnel: encapsulated and sent.
    Sent,
    /// Into the tunnel, left to the gateway: of a kind that the programs do not take.
    OutOdd,
    /// Left to the gateway: it has not been seen to send such packets in frames of one yet.
    OutUnknown,
    /// Left to the gateway: it still has packets of the flow.
    OutBusy,
    /// Left to the gateway: longer than what it has been seen to send in one frame.
    OutLong,
    /// Lost while it was encapsulated.
    OutLost,
    /// Frames: decapsulated and delivered.
    Delivered,
    /// Frames left to the gateway: parts of packets, or several.
    InOdd,
    /// Frames left to the gateway: from nobody that it talks to, or not to its data port.
    InUnknown,
    /// Frames left to the gateway: it still has packets of the flow.
    InBusy,
    /// Frames left to the gateway: the checksum of UDP/SCION or of the outer IPv4 header is wrong.
    InChecksum,
    /// Lost while it was decapsulated.
    InLost,
    /// Segments that open a TCP connection, whose maximum segment size was lowered.
    MssClamped,
}

impl Stat {
    /// How many there are.
    pub const COUNT: usize = Self::ALL.len();
    /// All of them, by number.
    pub const ALL: [Self; 13] = [
        Self::Sent,
        Self::OutOdd,
        Self::OutUnknown,
        Self::OutBusy,
        Self::OutLong,
        Self::OutLost,
        Self::Delivered,
        Self::InOdd,
        Self::InUnknown,
        Self::InBusy,
        Self::InChecksum,
        Self::InLost,
        Self::MssClamped,
    ];
}

/// Whether the gateway has packets of a flow: a word with the time (32 bits, in units of 2^14 ns) of the last packet left
/// to it, and that packet's [`signature`]; or 0 in place of that, and the time at which it was seen behind the gateway.
pub mod slot {
    /// Bits of ns below the unit.
    const UNIT: u32 = 14;
    /// 500 ms: a packet that was not seen behind the gateway for this long was lost. A full queue of a TUN device, 1000 packets,
    /// takes 120 ms at 100 Mbit/s.
    const LOST: u32 = 30_518;
    /// 200 µs: what was seen leaving on another CPU has left by then.
    const GUARD: u32 = 12;

    /// Bit of a signature that several packets have which were left to the gateway in a row. Which of them was seen behind it,
    /// nobody can tell, so none of them releases the slot.
    const SEVERAL: u32 = 1 << 31;

    const fn word(now: u64, signature: u32) -> u64 {
        ((now >> UNIT) as u32 as u64) << 32 | signature as u64
    }

    /// A packet with this signature is left to the gateway; `before` is what was there.
    #[inline(always)]
    #[must_use]
    pub const fn mark(before: u64, now: u64, signature: u32) -> u64 {
        let same = before as u32 & !SEVERAL == signature && signature > super::NO_SIGNATURE;
        word(now, if same { signature | SEVERAL } else { signature })
    }

    /// Whether `word` waits for the packet with this signature.
    #[inline(always)]
    #[must_use]
    pub const fn waits_for(word: u64, signature: u32) -> bool {
        word as u32 == signature && signature > super::NO_SIGNATURE
    }

    /// The packet was seen behind the gateway.
    #[inline(always)]
    #[must_use]
    pub const fn release(now: u64) -> u64 {
        word(now, 0)
    }

    /// Whether the gateway has no packet of the flow.
    #[inline(always)]
    #[must_use]
    pub const fn is_free(word: u64, now: u64) -> bool {
        let age = ((now >> UNIT) as u32).wrapping_sub((word >> 32) as u32);
        let least = if word as u32 == 0 { GUARD } else { LOST };
        word == 0 || age >= least
    }
}

/// Signature of packets that cannot be recognised.
pub const NO_SIGNATURE: u32 = 1;

/// The flow of a simple packet, with its DSCP; ECN is not part of it.
#[inline(always)]
#[must_use]
pub const fn flow_key<const V6: bool>(packet: &Simple<V6>) -> FlowKey {
    let [a, b, c, d, rest] = packet.flow_key();
    [a, b, c, d, rest & !(3 << 40)]
}

/// Place of a flow among the [`slot`]s. With a secret `seed`, nobody can choose flows that share one.
#[inline(always)]
#[must_use]
pub const fn flow_place(key: &FlowKey, seed: u64) -> u32 {
    let [a, b, c, d, rest] = *key;
    hash_of_key(&[a ^ seed, b, c, d, rest]) & (SLOTS - 1)
}

/// Place of a pair of hosts among the [`slot`]s of [`PAIRS`], likewise.
#[inline(always)]
#[must_use]
pub const fn pair_place([a, b, c, d]: [u64; 4], seed: u64, direction: Direction) -> u32 {
    let place = hash_of_key(&[a ^ seed, b, c, d, 6 << 56]) & (PAIR_SLOTS - 1);
    place + direction as u32 * PAIR_SLOTS
}

/// Place of a destination with a DSCP in [`TARGETS`], likewise.
#[inline(always)]
#[must_use]
pub const fn target_place(key: &FlowKey, seed: u64) -> u32 {
    let [a, _, c, d, rest] = *key;
    let v4 = match rest >> 56 {
        6 => 0,
        _ => a as u32 as u64,
    };
    let class = rest & 0xff << 40 | 6 << 56;
    hash_of_key(&[v4 ^ seed, 0, c, d, class | class >> 40 & 0xff]) & (MAX_TARGETS - 1)
}

/// What tells a flow from others.
#[inline(always)]
#[must_use]
pub const fn flow_tag([a, b, c, d, rest]: &FlowKey) -> u64 {
    mix(mix(mix(mix(mix(0, *a), *b), *c), *d), *rest)
}

/// What tells a packet from others of its flow, before and behind a gateway: length, identification and what follows the
/// ports, checksums included, which have been completed wherever this is called. Below 2^31, above [`NO_SIGNATURE`] or that.
#[inline(always)]
pub fn signature<const V6: bool, L: Load + ?Sized>(packet: &L, simple: &Simple<V6>) -> u32 {
    let at = Simple::<V6>::HEADER_LEN;
    let words = match simple.protocol {
        // Sequence and acknowledgement number; flags, window, checksum, urgent pointer.
        PROTO_TCP => [packet.bytes::<8>(at + 4), packet.bytes::<8>(at + 12)],
        // Ports, length, checksum; payload. Tunnels begin theirs with what all their packets have in common.
        PROTO_UDP if usize::from(simple.total_len) >= at + 16 => {
            [packet.bytes::<8>(at), packet.bytes::<8>(at + 8)]
        }
        _ if usize::from(simple.total_len) >= at + 8 => [packet.bytes::<8>(at), Some([0; 8])],
        _ => [None, None],
    };
    let [Some(a), Some(b)] = words else {
        return NO_SIGNATURE;
    };
    let identification = match V6 {
        true => [0, 0],
        false => packet.bytes(4).unwrap_or_default(),
    };
    let [i0, i1] = identification;
    let [l0, l1] = simple.total_len.to_be_bytes();
    let first = u64::from_be_bytes([simple.protocol, 0, 0, 0, i0, i1, l0, l1]);
    let hash = mix(
        mix(mix(0, first), u64::from_be_bytes(a)),
        u64::from_be_bytes(b),
    );
    match (hash >> 33) as u32 {
        0 | NO_SIGNATURE => 2,
        signature => signature,
    }
}

/// One step of a hash over words.
#[inline(always)]
#[must_use]
pub const fn mix(hash: u64, word: u64) -> u64 {
    let product = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ product >> 32
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
    pod!(Config Flow Path);
}

const _: () = {
    assert!(size_of::<Config>() == 6 * 4);
    assert!(size_of::<Flow>() == 4 * 4 + 2 * 8);
    assert!(size_of::<Path>() == 8 + 8 * 4 + 16 + MAX_HEADERS && MAX_HEADERS.is_multiple_of(8));
    assert!(size_of::<Sighting>() == 3 * 8 + 4 * 4 + MAX_HEADERS);
    assert!(size_of::<ProbeKey>() == 24 + 2 * 4);
    assert!(size_of::<Ip>() == 16);
};

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_slot_is_free_when_its_packet_was_seen_or_must_be_lost() {
        let now = 77_000 * MS;
        assert!(slot::is_free(0, now));
        let marked = slot::mark(0, now, 9);
        assert!(slot::waits_for(marked, 9) && !slot::waits_for(marked, 10));
        assert!(!slot::is_free(marked, now + 490 * MS));
        assert!(slot::is_free(marked, now + 510 * MS));
        let released = slot::release(now);
        assert!(!slot::is_free(released, now));
        assert!(slot::is_free(released, now + MS));
        assert!(!slot::waits_for(
            slot::mark(0, now, NO_SIGNATURE),
            NO_SIGNATURE
        ));
    }

    #[test]
    fn destinations_are_told_apart_by_address_and_dscp() {
        let v4 = |source: u64, destination: u64, dscp: u64| {
            [
                source << 32 | destination,
                0,
                0,
                0,
                dscp << 42 | 4 << 56 | source,
            ]
        };
        let place = |key| target_place(&key, 77);
        assert_eq!(place(v4(1, 5, 0)), place(v4(2, 5, 0)));
        assert_ne!(place(v4(1, 5, 0)), place(v4(1, 6, 0)));
        assert_ne!(place(v4(1, 5, 0)), place(v4(1, 5, 46)));
        let v6 = |source: u64, destination: u64| [source, source, 7, destination, 6 << 56 | source];
        assert_eq!(place(v6(1, 5)), place(v6(2, 5)));
        assert_ne!(place(v6(1, 5)), place(v6(1, 6)));
        assert_ne!(target_place(&v6(1, 5), 77), target_place(&v6(1, 5), 78));
    }

    #[test]
    fn directions_have_pairs_of_their_own() {
        let place = |direction| pair_place([1, 0, 0, 0], 77, direction);
        assert!(place(Direction::Out) < PAIR_SLOTS);
        assert_eq!(place(Direction::In), place(Direction::Out) + PAIR_SLOTS);
    }

    #[test]
    fn what_answers_a_stranger_is_no_probe_of_ours() {
        let now = 77_000 * MS;
        assert!(probes::is_own(0, now), "nothing came in before");
        assert!(!probes::is_own(now - MS, now));
        assert!(probes::is_own(now - 200 * MS, now));
        assert!(probes::is_own(probes::OWN, now));
        assert!(probes::has_ports(40_000, PROBE_PORT));
        assert!(!probes::has_ports(PROBE_PORT, PROBE_PORT));
        assert!(!probes::has_ports(PROBE_PORT, 40_000));
    }

    #[test]
    fn packets_that_are_the_same_are_not_taken_for_each_other() {
        let now = 77_000 * MS;
        let mut word = slot::mark(0, now, 9);
        for _ in 0..4 {
            word = slot::mark(word, now, 9);
            assert!(!slot::waits_for(word, 9), "one of several may be seen");
            assert!(!slot::is_free(word, now + 490 * MS));
        }
        // Another one behind them tells that they have passed.
        word = slot::mark(word, now, 10);
        assert!(slot::waits_for(word, 10) && !slot::waits_for(word, 9));
    }

    #[test]
    fn datagrams_that_begin_alike_have_signatures_of_their_own() {
        let mut packet = [0; 60];
        packet[..10].copy_from_slice(&[0x45, 0, 0, 60, 0, 0, 0x40, 0, 64, PROTO_UDP]);
        packet[20..28].copy_from_slice(&[0, 1, 0, 2, 0, 40, 0x12, 0x34]);
        let signature_of = |packet: &[u8]| {
            let simple = Simple::<false>::parse(packet).expect("simple");
            signature(packet, &simple)
        };
        let first = signature_of(&packet);
        assert_eq!(signature_of(&packet), first);
        assert!(first > NO_SIGNATURE && first >> 31 == 0);
        // A counter that comes later, and so another checksum.
        (packet[27], packet[50]) = (0x33, 1);
        assert_ne!(signature_of(&packet), first);
        packet[9] = PROTO_TCP;
        packet[32] = 0x50;
        let first = signature_of(&packet);
        // The same segment with another checksum, as by a time stamp option.
        packet[37] = 1;
        assert_ne!(signature_of(&packet), first);
    }
}
