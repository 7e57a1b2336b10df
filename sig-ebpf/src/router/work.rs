//! What is known of the packet at hand.

use sig_common::{
    maps::Ip,
    router::{
        Reason,
        maps::{NextHop, ServiceKey, Tags, Traffic},
    },
};

/// Why a packet is not forwarded.
#[derive(Clone, Copy)]
pub enum Stop {
    /// It is not for an endpoint of this router.
    NotOurs,
    /// Counted, and passed or dropped.
    Because(Reason),
}

impl From<Reason> for Stop {
    #[inline(always)]
    fn from(reason: Reason) -> Self {
        Self::Because(reason)
    }
}

/// What is known of the packet at hand, filled step by step.
///
/// It is in a map, not on the stack: for the verifier everything read from a map is unknown, so that it looks at what
/// follows once and not for every combination of headers before. Offsets read from here must be masked.
#[repr(C)]
pub struct Work {
    /// Nanoseconds of the boot clock.
    pub boot: u64,
    /// Outer source.
    pub source: Ip,
    /// Outer destination: ours.
    pub destination: Ip,
    pub source_port: u16,
    pub destination_port: u16,
    /// Outer UDP checksum, as in memory.
    pub checksum: u16,
    /// Of the configuration.
    pub generation: u16,
    /// Where it is counted as received.
    pub slot: u16,
    /// SCION interface it came in by; 0: from inside.
    pub ingress: u16,
    /// Of BFD from inside: the number of the sibling that sent it.
    pub sibling: u16,
    reserved: u16,
    /// Interface index of the device it came in by.
    pub ifindex: u32,
    /// Bytes before the SCION packet.
    pub head: u32,
    /// Bytes of the SCION packet.
    pub len: u32,
    /// The class of that.
    pub size_class: u32,
    /// MAC destination: the bytes as a number, big endian.
    pub destination_mac: u64,
    /// VLAN tags. One with id 0 is none: it has only a priority (IEEE 802.1Q).
    pub tags: Tags,
    /// Priority and drop eligibility of the first tag, in the bits that they have there.
    pub priority: u32,
    /// Not 0: the frame is in several buffers, of which the first one is seen.
    pub fragments: u32,
    /// Not 0: a program is using this.
    pub busy: u32,
    /// Not 0: the outer header is IPv6.
    pub ipv6: u32,
    /// Bytes of the SCION header.
    pub header_len: u32,
    /// ISD-AS.
    pub destination_isd_as: u64,
    pub source_isd_as: u64,
    /// Bytes after the SCION header, as the header says.
    pub payload_len: u16,
    /// Next header.
    pub next_header: u8,
    /// Types of the host addresses.
    pub address_types: u8,
    /// Offset of the path in the SCION packet.
    pub path: u32,
    /// Path meta header.
    pub meta: u32,
    /// Hop fields of the first segment, and of the first two.
    pub first: u32,
    pub second: u32,
    /// Hop fields and info fields of the path.
    pub hops: u32,
    pub infos: u32,
    /// Current pointers.
    pub hop: u32,
    pub info: u32,
    /// Current fields.
    pub fields: Fields,
    /// Path meta header and segment identifiers to write.
    pub new_meta: u32,
    pub changes: [Change; 2],
    /// How it is counted as sent, and where.
    pub traffic: Traffic,
    pub sent_slot: u16,
    /// Where it goes if that is a host.
    pub host: NextHop,
}

/// An info field and a hop field of its segment.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Fields {
    pub mac: u64,
    pub timestamp: u32,
    pub ingress: u16,
    pub egress: u16,
    pub segment_id: u16,
    pub info_flags: u8,
    pub hop_flags: u8,
    pub expiry: u8,
    pub reserved: [u8; 3],
}

/// A segment identifier before and after.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Change {
    /// Number of the info field.
    pub info: u32,
    pub old: u16,
    pub new: u16,
}

impl Change {
    pub const NONE: Self = Self {
        info: 0,
        old: 0,
        new: 0,
    };
}

impl Fields {
    /// Whether the hop is passed in the direction in which its segment was made.
    #[inline(always)]
    pub const fn is_forward(&self) -> bool {
        self.info_flags & 1 != 0
    }

    #[inline(always)]
    pub const fn is_peering(&self) -> bool {
        self.info_flags & 2 != 0
    }

    /// The interface that the packet comes in by.
    #[inline(always)]
    pub const fn way_in(&self) -> u16 {
        if self.is_forward() {
            self.ingress
        } else {
            self.egress
        }
    }

    /// The interface that it leaves by.
    #[inline(always)]
    pub const fn way_out(&self) -> u16 {
        if self.is_forward() {
            self.egress
        } else {
            self.ingress
        }
    }

    /// Whether the router at the way in shall answer.
    #[inline(always)]
    pub const fn alerts_in(&self) -> bool {
        self.hop_flags & if self.is_forward() { 2 } else { 1 } != 0
    }

    /// Whether the router at the way out shall answer.
    #[inline(always)]
    pub const fn alerts_out(&self) -> bool {
        self.hop_flags & if self.is_forward() { 1 } else { 2 } != 0
    }

    /// What the hop changes in the segment identifier.
    #[inline(always)]
    pub const fn beta(&self) -> u16 {
        (self.mac >> 32) as u16
    }
}

impl Work {
    /// The host and port that it is for, as a service.
    #[inline(always)]
    pub const fn service(&self) -> ServiceKey {
        ServiceKey {
            ip: self.host.destination,
            port: self.host.destination_port,
            generation: self.generation,
        }
    }

    /// The segment that a hop field is of.
    #[inline(always)]
    pub const fn segment_of(&self, hop: u32) -> u32 {
        if hop < self.first {
            0
        } else if hop < self.second {
            1
        } else {
            2
        }
    }
}
