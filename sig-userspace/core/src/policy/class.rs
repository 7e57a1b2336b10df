//! Traffic classes: conditions on inner packets, in the reference's language extended to IPv6.

mod parse;
mod print;
mod protocol;

#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;

use ipnet::IpNet;
use sig_common::wire::{PROTO_TCP, PROTO_UDP, inner::InnerPacket, ipv6::UpperLayer};

pub use parse::{ClassError, MAX_CONDITIONS, MAX_DEPTH, is_name, names, parse, parse_rule};
pub use protocol::{name as protocol_name, number as protocol_number};

/// A condition on a packet. Its text form is described in [`parse`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Condition {
    /// All of them hold; true without any.
    All(Vec<Condition>),
    /// One of them holds; true without any, as in the reference.
    Any(Vec<Condition>),
    /// It does not hold.
    Not(Box<Condition>),
    /// Always or never.
    Bool(bool),
    /// The source lies in the prefix.
    Source(IpNet),
    /// The destination lies in the prefix.
    Destination(IpNet),
    /// The differentiated services code point, 6 bits.
    Dscp(u8),
    /// The whole type of service octet, or traffic class.
    Tos(u8),
    /// The protocol; in IPv6, behind the extension headers.
    Protocol(u8),
    /// TCP or UDP source port.
    SourcePort(RangeInclusive<u16>),
    /// TCP or UDP destination port.
    DestinationPort(RangeInclusive<u16>),
    /// About SRv6 headers around the packet. Only [`parse_rule`] reads such conditions.
    Outer(Outer),
}

/// A condition on the outer IPv6 header and the segment routing header (RFC 8754) of a packet. Without them it does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outer {
    /// The source lies in the prefix.
    Source(IpNet),
    /// The active segment does: the destination of the outer header.
    Sid(IpNet),
    /// The segment before it does.
    Previous(IpNet),
    /// The segment after it does.
    Next(IpNet),
    /// The last segment does.
    Last(IpNet),
    /// Segments Left.
    SegmentsLeft(RangeInclusive<u16>),
    /// Last Entry.
    LastEntry(RangeInclusive<u16>),
    /// Hdr Ext Len: units of 8 bytes, without the first.
    HeaderLength(RangeInclusive<u16>),
    /// Next Header of the segment routing header.
    NextHeader(u8),
    /// Tag.
    Tag(RangeInclusive<u16>),
}

impl Condition {
    /// The condition of a class that takes every packet.
    pub const ALWAYS: Self = Self::Bool(true);

    /// Whether it holds for every packet, as far as can be told without one.
    #[must_use]
    pub fn is_always(&self) -> bool {
        match self {
            Self::Bool(value) => *value,
            Self::All(parts) => parts.iter().all(Self::is_always),
            Self::Any(parts) => parts.is_empty() || parts.iter().any(Self::is_always),
            _ => false,
        }
    }

    /// How many conditions it consists of, itself included.
    #[must_use]
    pub fn size(&self) -> usize {
        1 + self.parts().iter().map(Self::size).sum::<usize>()
    }

    /// How deeply conditions are nested in it; 1 without any inside.
    #[must_use]
    pub fn depth(&self) -> usize {
        1 + self.parts().iter().map(Self::depth).max().unwrap_or(0)
    }

    /// Whether it may hold for a packet: as [`Condition::matches`], but what cannot be told of a fragment may be so.
    #[must_use]
    pub fn may_match(&self, packet: &InnerPacket) -> bool {
        self.known(packet) != Some(false)
    }

    /// Whether it holds, as far as can be told.
    fn known(&self, packet: &InnerPacket) -> Option<bool> {
        let all = |parts: &[Self], of_one: bool| {
            let mut known = Some(!of_one);
            for part in parts {
                match part.known(packet) {
                    Some(value) if value == of_one => return Some(of_one),
                    Some(_) => {}
                    None => known = None,
                }
            }
            known
        };
        match self {
            Self::All(parts) => all(parts, false),
            Self::Any(parts) if parts.is_empty() => Some(true),
            Self::Any(parts) => all(parts, true),
            Self::Not(part) => part.known(packet).map(|value| !value),
            Self::Protocol(number) => packet.upper_protocol().map(|known| known == *number),
            Self::SourcePort(_) | Self::DestinationPort(_) => {
                let may_have_ports = packet
                    .upper_protocol()
                    .is_none_or(|protocol| matches!(protocol, PROTO_TCP | PROTO_UDP));
                match packet.upper() {
                    UpperLayer::Fragment | UpperLayer::Unknown(_) if may_have_ports => None,
                    _ => Some(self.matches(packet)),
                }
            }
            Self::Bool(_)
            | Self::Source(_)
            | Self::Destination(_)
            | Self::Dscp(_)
            | Self::Tos(_)
            | Self::Outer(_) => Some(self.matches(packet)),
        }
    }

    /// The same condition on the answers: source and destination have changed places.
    #[must_use]
    pub fn reversed(&self) -> Self {
        let all = |parts: &[Self]| parts.iter().map(Self::reversed).collect();
        match self {
            Self::All(parts) => Self::All(all(parts)),
            Self::Any(parts) => Self::Any(all(parts)),
            Self::Not(part) => Self::Not(Box::new(part.reversed())),
            Self::Source(prefix) => Self::Destination(*prefix),
            Self::Destination(prefix) => Self::Source(*prefix),
            Self::SourcePort(range) => Self::DestinationPort(range.clone()),
            Self::DestinationPort(range) => Self::SourcePort(range.clone()),
            Self::Bool(_) | Self::Dscp(_) | Self::Tos(_) | Self::Protocol(_) | Self::Outer(_) => {
                self.clone()
            }
        }
    }

    /// Whether more than the addresses of a packet decides.
    #[must_use]
    pub fn looks_beyond_addresses(&self) -> bool {
        match self {
            Self::Bool(_) | Self::Source(_) | Self::Destination(_) => false,
            Self::Dscp(_)
            | Self::Tos(_)
            | Self::Protocol(_)
            | Self::SourcePort(_)
            | Self::DestinationPort(_)
            | Self::Outer(_) => true,
            Self::All(parts) | Self::Any(parts) => parts.iter().any(Self::looks_beyond_addresses),
            Self::Not(part) => part.looks_beyond_addresses(),
        }
    }

    fn parts(&self) -> &[Self] {
        match self {
            Self::All(parts) | Self::Any(parts) => parts,
            Self::Not(part) => std::slice::from_ref(part),
            _ => &[],
        }
    }

    /// Whether it holds, if `holds` says so of the conditions that consist of no others.
    pub fn holds(&self, holds: &impl Fn(&Self) -> bool) -> bool {
        match self {
            Self::All(parts) => parts.iter().all(|part| part.holds(holds)),
            Self::Any(parts) => parts.is_empty() || parts.iter().any(|part| part.holds(holds)),
            Self::Not(part) => !part.holds(holds),
            Self::Bool(value) => *value,
            _ => holds(self),
        }
    }

    /// Whether it holds for a packet without SRv6 headers.
    #[must_use]
    pub fn matches(&self, packet: &InnerPacket) -> bool {
        match self {
            Self::All(parts) => parts.iter().all(|part| part.matches(packet)),
            Self::Any(parts) => parts.is_empty() || parts.iter().any(|part| part.matches(packet)),
            Self::Not(part) => !part.matches(packet),
            Self::Bool(value) => *value,
            Self::Outer(_) => false,
            Self::Source(prefix) => prefix.contains(&packet.source),
            Self::Destination(prefix) => prefix.contains(&packet.destination),
            Self::Dscp(code) => packet.tos >> 2 == *code,
            Self::Tos(tos) => packet.tos == *tos,
            Self::Protocol(number) => packet.upper_protocol() == Some(*number),
            Self::SourcePort(range) => ports(packet).is_some_and(|[port, _]| range.contains(&port)),
            Self::DestinationPort(range) => {
                ports(packet).is_some_and(|[_, port]| range.contains(&port))
            }
        }
    }
}

/// The ports of a TCP or UDP packet, source first; none in fragments.
fn ports(packet: &InnerPacket) -> Option<[u16; 2]> {
    let protocol = packet.upper_protocol();
    packet
        .ports()
        .filter(|_| matches!(protocol, Some(PROTO_TCP | PROTO_UDP)))
}
