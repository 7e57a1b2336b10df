//! Rules of an SR node: which of them a packet satisfies, with one look at the packet whatever their number.
//!
//! A rule is one or more *rows*: each asks that several [`Field`]s of a packet have one of some values. For each field that a rule asks
//! about, a table leads from the packet's value to a *class*: the set of rows that this value satisfies, as bits. What is in the
//! classes of all fields is satisfied. Negations cost nothing, as they are in the tables.

use core::net::IpAddr;

use super::endpoint::Inner;
use crate::wire::{
    Load, PROTO_TCP, PROTO_UDP,
    inner::InnerPacket,
    ipv6::{self, UpperLayer},
    srv6::{self, NEXT_IPV4, NEXT_IPV6, Reject, Srh},
};

/// Rows of all rules at most.
pub const MAX_ROWS: usize = 512;
/// Words of a class.
pub const WORDS: usize = MAX_ROWS / 64;
/// Classes at most.
pub const MAX_CLASSES: usize = 4096;
/// Rules that count or mirror at most: such a rule does not decide, and each that a packet satisfies takes time.
pub const MAX_NOTING: usize = 32;

/// What rules ask about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Field {
    /// Source address of the packet inside.
    Source,
    /// Its destination address.
    Destination,
    /// Source address of the outer IPv6 header.
    OuterSource,
    /// Its destination address: the active segment.
    Sid,
    /// The segment before the active one.
    Previous,
    /// The segment after the active one.
    Next,
    /// The last segment.
    Last,
    /// Index of the interface that the packet came in by, big endian.
    Interface,
    /// Type of service or traffic class of the packet inside.
    Tos,
    /// Its protocol; in IPv6, behind the extension headers.
    Protocol,
    /// Segments Left of the SRH.
    SegmentsLeft,
    /// Last Entry of the SRH.
    LastEntry,
    /// Hdr Ext Len of the SRH: units of 8 bytes, without the first.
    HeaderLength,
    /// Next Header of the SRH.
    NextHeader,
    /// Where the packet leads: a number of [`Kind`].
    Kind,
    /// TCP or UDP source port of the packet inside.
    SourcePort,
    /// Its destination port.
    DestinationPort,
    /// Tag of the SRH.
    Tag,
}

/// Fields whose table is a trie of prefixes: the first ones.
pub const PREFIXES: usize = Field::Tos as usize;
/// Fields of an octet: those after them.
pub const OCTETS: usize = Field::SourcePort as usize - PREFIXES;
/// Fields of two octets: the rest.
pub const NUMBERS: usize = Field::COUNT - OCTETS - PREFIXES;

impl Field {
    /// How many there are.
    pub const COUNT: usize = Self::Tag as usize + 1;

    /// Its bit among those of [`Head::used`] and [`Facts::present`].
    #[inline(always)]
    #[must_use]
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// Where a packet leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Not to a SID of this node.
    Plain,
    /// To a SID.
    Sid,
    /// To a SID with arguments.
    Arguments,
}

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Action {
    /// The packet goes on.
    Accept,
    /// It does not.
    Drop,
    /// It is counted, and later rules decide.
    Count,
    /// A copy of what is inside leaves by a device, and later rules decide.
    Mirror,
    /// As at `End`, whatever the SID's behavior is.
    GoNext,
    /// The same, past the next segment.
    SkipNext,
    /// The same, to the last segment.
    GoLast,
    /// The arguments of the SID decide.
    EvalArguments,
    /// Into a policy.
    Steer,
}

impl Action {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 9] = [
        Self::Accept,
        Self::Drop,
        Self::Count,
        Self::Mirror,
        Self::GoNext,
        Self::SkipNext,
        Self::GoLast,
        Self::EvalArguments,
        Self::Steer,
    ];

    /// The word in configuration and status.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Drop => "drop",
            Self::Count => "count",
            Self::Mirror => "mirror",
            Self::GoNext => "go-next",
            Self::SkipNext => "skip-next",
            Self::GoLast => "go-last",
            Self::EvalArguments => "eval-args",
            Self::Steer => "steer",
        }
    }

    /// Whether later rules still matter to a packet.
    #[must_use]
    pub const fn is_noting(self) -> bool {
        matches!(self, Self::Count | Self::Mirror)
    }

    /// Whether it can be done to such packets. To others the rule does not apply.
    #[must_use]
    pub const fn is_for(self, kind: Kind) -> bool {
        match self {
            Self::Accept | Self::Drop | Self::Count | Self::Mirror => true,
            Self::GoNext | Self::SkipNext | Self::GoLast => !matches!(kind, Kind::Plain),
            Self::EvalArguments => matches!(kind, Kind::Arguments),
            Self::Steer => matches!(kind, Kind::Plain),
        }
    }

    /// What the arguments of a SID stand for.
    #[inline(always)]
    #[must_use]
    pub const fn of_arguments(arguments: u16) -> Option<Self> {
        Some(match arguments {
            0 => Self::Accept,
            1 => Self::Drop,
            2 => Self::GoNext,
            3 => Self::SkipNext,
            4 => Self::GoLast,
            _ => return None,
        })
    }
}

/// What a row stands for, in the BPF map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Row {
    /// Number of the [`Action`] of its rule.
    pub action: u32,
    /// Of `steer` the number of the policy, of `mirror` the index of the interface.
    pub target: u32,
    /// The counters of its rule.
    pub slot: u32,
    /// The first row of the next rule.
    pub end: u32,
    /// Of `mirror`, the MAC address that copies are sent from.
    pub mac: [u8; 6],
    /// Zero.
    pub reserved: u16,
}

/// Key of the trie of prefixes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PrefixKey {
    /// Bits that count: those of `table`, and those of the prefix.
    pub len: u32,
    /// Generation, number of the field, version of IP, zero.
    pub table: [u8; 4],
    /// The address as on the wire, IPv4 in the first half of the first word.
    pub address: [u64; 2],
}

impl PrefixKey {
    /// A prefix of so many bits.
    #[inline(always)]
    #[must_use]
    pub const fn new(field: Field, version: u8, address: [u64; 2], bits: u32) -> Self {
        Self {
            len: 32 + bits,
            table: [0, field as u8, version, 0],
            address,
        }
    }
}

/// All tables that are small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Head {
    /// Bits of the fields that rules ask about.
    pub used: u32,
    /// Words of classes that are in use.
    pub words: u32,
    /// For each field, the class of packets without it.
    pub absent: [u16; Field::COUNT],
    /// For each field of an octet, the class of every value.
    pub octets: [[u16; 256]; OCTETS],
}

impl Head {
    /// Without any rule.
    pub const EMPTY: Self = Self {
        used: 0,
        words: 0,
        absent: [0; Field::COUNT],
        octets: [[0; 256]; OCTETS],
    };
}

/// What rules are told of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Facts {
    /// Values of the fields with prefixes.
    pub keys: [PrefixKey; PREFIXES],
    /// Bits of the fields that are there.
    pub present: u32,
    /// Offset and length of what a mirror gets: the packet inside, or all.
    pub inside: [u16; 2],
    /// Values of the fields of two octets.
    pub numbers: [u16; NUMBERS],
    /// Values of the fields of an octet.
    pub octets: [u8; OCTETS],
    /// Zero.
    pub reserved: [u8; 3],
}

impl Facts {
    /// Reads the packet that `packet` starts with. `is_v4`: what its link-layer header says. Of fields that are not `used`, some are
    /// left out. `false` if it is no complete IP packet, or has more extension headers than are followed: what rules ask about
    /// might be behind them.
    #[inline(always)]
    pub fn read<L: Load + ?Sized>(
        &mut self,
        packet: &L,
        is_v4: bool,
        kind: Kind,
        used: u32,
    ) -> bool {
        self.present = 0;
        self.octet(Field::Kind, kind as u8);
        if is_v4 {
            return self.read_inside(packet, true, 0, packet.len());
        }
        let srh = match srv6::parse(packet) {
            Ok(srh) => Some(srh),
            // With a malformed one it is a packet all the same, and may be forwarded.
            Err(Reject::Absent | Reject::Malformed { .. }) => None,
            Err(Reject::Packet(_)) => return false,
        };
        if srh.is_none() && matches!(kind, Kind::Plain) {
            return self.read_inside(packet, false, 0, packet.len());
        }
        let Some([l0, l1, first, _]) = packet.bytes(4) else {
            return false;
        };
        let end = usize::from(u16::from_be_bytes([l0, l1])) + ipv6::HEADER_LEN;
        if self.address(packet, Field::OuterSource, 8).is_none() {
            return false;
        }
        if self.address(packet, Field::Sid, 24).is_none() {
            return false;
        }
        let (next, at) = match &srh {
            Some(srh) => (srh.next_header, usize::from(srh.after())),
            None => (first, ipv6::HEADER_LEN),
        };
        if let Some(srh) = &srh {
            self.read_srh(packet, srh, used);
        }
        if let UpperLayer::At { protocol, offset } = ipv6::upper_layer(packet, next, at)
            && matches!(protocol, NEXT_IPV4 | NEXT_IPV6)
            && offset < end
        {
            // Not by its outer header: then rules would not see what somebody further on might take for a packet.
            return offset <= Inner::<L>::MAX_AT
                && self.read_inside(packet, protocol == NEXT_IPV4, offset, end - offset);
        }
        if !self.read_inside(packet, false, 0, packet.len()) {
            return false;
        }
        // Without a packet inside, this is one that an SRH has been inserted in: it is bound for the last segment. If that has
        // become the destination, the list does not count any more, whatever it holds.
        if let Some(srh) = &srh
            && srh.segments_left != 0
            && let Some(offset) = srh.segment_at(0)
        {
            return self.address(packet, Field::Destination, offset).is_some();
        }
        true
    }

    #[inline(always)]
    fn read_srh<L: Load + ?Sized>(&mut self, packet: &L, srh: &Srh, used: u32) {
        self.octet(Field::SegmentsLeft, srh.segments_left);
        self.octet(Field::LastEntry, srh.last_entry);
        self.octet(Field::HeaderLength, (srh.len / 8).wrapping_sub(1) as u8);
        self.octet(Field::NextHeader, srh.next_header);
        self.number(Field::Tag, srh.tag);
        if let Some(index) = srh.segments_left.checked_add(1) {
            self.segment(packet, srh, used, Field::Previous, index);
        }
        if let Some(index) = srh.segments_left.checked_sub(1) {
            self.segment(packet, srh, used, Field::Next, index);
        }
        self.segment(packet, srh, used, Field::Last, 0);
    }

    #[inline(always)]
    fn segment<L: Load + ?Sized>(
        &mut self,
        packet: &L,
        srh: &Srh,
        used: u32,
        field: Field,
        index: u8,
    ) {
        if used & field.bit() != 0
            && let Some(offset) = srh.segment_at(index)
        {
            self.address(packet, field, offset);
        }
    }

    /// Reads the packet at an offset.
    #[inline(always)]
    fn read_inside<L: Load + ?Sized>(
        &mut self,
        packet: &L,
        is_v4: bool,
        at: usize,
        len: usize,
    ) -> bool {
        let inner = Inner::new(packet, at, len);
        let version = if is_v4 { 4 } else { 6 };
        if !inner.starts_with(version) {
            return false;
        }
        // One after the other, as in `encap`.
        let parsed = match is_v4 {
            true => InnerPacket::parse_v4(&inner),
            false => InnerPacket::parse_v6(&inner),
        };
        let Ok(parsed) = parsed else {
            return false;
        };
        if matches!(parsed.upper(), UpperLayer::Unknown(_)) {
            return false;
        }
        self.key(Field::Source, of_ip(parsed.source), version);
        self.key(Field::Destination, of_ip(parsed.destination), version);
        self.inside = [at as u16, parsed.total_len];
        self.octet(Field::Tos, parsed.tos);
        let Some(protocol) = parsed.upper_protocol() else {
            return true;
        };
        self.octet(Field::Protocol, protocol);
        if matches!(protocol, PROTO_TCP | PROTO_UDP)
            && let Some([source, destination]) = parsed.ports()
        {
            self.number(Field::SourcePort, source);
            self.number(Field::DestinationPort, destination);
        }
        true
    }

    /// Whether what is inside is an IPv4 packet.
    #[inline(always)]
    #[must_use]
    pub const fn is_v4(&self) -> bool {
        self.keys[Field::Source as usize].table[2] == 4
    }

    /// The interface that the packet came in by.
    #[inline(always)]
    pub fn came_in_by(&mut self, ifindex: u32) {
        self.key(Field::Interface, of_interface(ifindex), 0);
    }

    #[inline(always)]
    fn key(&mut self, field: Field, address: [u64; 2], version: u8) {
        self.keys[field as usize] = PrefixKey::new(field, version, address, 128);
        self.present |= field.bit();
    }

    #[inline(always)]
    fn address<L: Load + ?Sized>(&mut self, packet: &L, field: Field, at: usize) -> Option<()> {
        self.key(field, of_ipv6(packet.bytes(at)?), 6);
        Some(())
    }

    #[inline(always)]
    fn octet(&mut self, field: Field, value: u8) {
        self.octets[field as usize - PREFIXES] = value;
        self.present |= field.bit();
    }

    #[inline(always)]
    fn number(&mut self, field: Field, value: u16) {
        self.numbers[field as usize - PREFIXES - OCTETS] = value;
        self.present |= field.bit();
    }
}

/// An address as in a [`PrefixKey`].
#[inline(always)]
#[must_use]
pub fn of_ip(address: IpAddr) -> [u64; 2] {
    match address {
        IpAddr::V4(address) => of_ipv4(address.octets()),
        IpAddr::V6(address) => of_ipv6(address.octets()),
    }
}

#[inline(always)]
const fn of_ipv4([a, b, c, d]: [u8; 4]) -> [u64; 2] {
    [u64::from_ne_bytes([a, b, c, d, 0, 0, 0, 0]), 0]
}

#[inline(always)]
fn of_ipv6(address: [u8; 16]) -> [u64; 2] {
    let (words, _) = address.as_chunks();
    [words[0], words[1]].map(u64::from_ne_bytes)
}

/// An interface as in a [`PrefixKey`].
#[inline(always)]
#[must_use]
pub const fn of_interface(ifindex: u32) -> [u64; 2] {
    of_ipv4(ifindex.to_be_bytes())
}

/// Where the tables are.
pub trait Tables {
    /// The class of the longest prefix.
    fn of_prefix(&self, key: &PrefixKey) -> Option<u16>;
    /// The class of an octet.
    fn of_octet(&self, field: usize, value: u8) -> u16;
    /// The class of a number.
    fn of_number(&self, field: usize, value: u16) -> u16;
    /// The class of packets without the field.
    fn absent(&self, field: usize) -> u16;
    /// Leaves those rows that are in the class as well.
    fn keep(&self, rows: &mut [u64; WORDS], class: u16);
}

/// The rows that a packet satisfies.
#[inline(always)]
pub fn select<T: Tables>(facts: &Facts, used: u32, tables: &T, rows: &mut [u64; WORDS]) {
    *rows = [u64::MAX; WORDS];
    let mut field = 0;
    while field < Field::COUNT {
        let bit = 1 << field;
        if used & bit != 0 {
            let class = if facts.present & bit == 0 {
                tables.absent(field)
            } else if field < PREFIXES {
                match tables.of_prefix(&facts.keys[field]) {
                    Some(class) => class,
                    None => tables.absent(field),
                }
            } else if field < PREFIXES + OCTETS {
                let of = field - PREFIXES;
                tables.of_octet(of, facts.octets[of])
            } else {
                let of = field - PREFIXES - OCTETS;
                tables.of_number(of, facts.numbers[of])
            };
            tables.keep(rows, class);
        }
        field += 1;
    }
}

/// The first of the rows from `from` on; [`MAX_ROWS`] if there is none.
#[inline(always)]
#[must_use]
pub fn first(rows: &[u64; WORDS], from: u32) -> u32 {
    let mut word = 0;
    while word < WORDS {
        let start = word as u32 * 64;
        let mut bits = rows[word];
        if from > start {
            // Bits below are not looked at again.
            bits = match from - start {
                below @ 0..64 => bits & (u64::MAX << below),
                _ => 0,
            };
        }
        if bits != 0 {
            return start + bits.trailing_zeros();
        }
        word += 1;
    }
    MAX_ROWS as u32
}

// There is no implicit padding.
const _: () = {
    assert!(size_of::<Row>() == 4 * 4 + 6 + 2);
    assert!(size_of::<PrefixKey>() == 4 + 4 + 16);
    assert!(size_of::<Head>() == 4 + 4 + 2 * Field::COUNT + OCTETS * 512);
};
