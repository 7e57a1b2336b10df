//! What is known of the packet at hand.

use sig_common::{
    maps::Ip,
    router::{
        Reason,
        maps::{NextHop, ServiceKey, Tags, Traffic},
        passage::Passage,
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

/// What is known of the packet at hand, filled step by step. In a map: see [`Passage`].
#[repr(C)]
pub struct Work {
    /// What is in front of the SCION packet.
    pub outer: Outer,
    /// The SCION packet.
    pub passage: Passage,
    /// Not 0: a program is using this.
    pub busy: u32,
    /// How it is counted as sent, and where.
    pub traffic: Traffic,
    pub sent_slot: u16,
    /// Where it goes if that is a host.
    pub host: NextHop,
}

/// What is in front of the SCION packet.
#[repr(C)]
pub struct Outer {
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
    /// Of BFD from inside: the number of the sibling that sent it.
    pub sibling: u16,
    /// Interface index of the device it came in by.
    pub ifindex: u32,
    /// Bytes before the SCION packet.
    pub head: u32,
    /// The class of the SCION packet's length.
    pub size_class: u32,
    /// MAC destination: the bytes as a number, big endian.
    pub destination_mac: u64,
    /// VLAN tags. One with id 0 is none: it has only a priority (IEEE 802.1Q).
    pub tags: Tags,
    /// Priority and drop eligibility of the first tag, in the bits that they have there.
    pub priority: u32,
    /// Not 0: the frame is in several buffers, of which the first one is seen.
    pub fragments: u32,
    /// Not 0: the outer header is IPv6.
    pub ipv6: u32,
}

impl Work {
    /// The host and port that it is for, as a service.
    #[inline(always)]
    pub const fn service(&self) -> ServiceKey {
        ServiceKey {
            ip: self.host.destination,
            port: self.host.destination_port,
            generation: self.outer.generation,
        }
    }
}
