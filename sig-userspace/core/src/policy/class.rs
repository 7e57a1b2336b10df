//! Traffic classes: conditions on inner packets, in the reference's language extended to IPv6.

mod parse;
mod print;
mod protocol;

#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;

use ipnet::IpNet;
use sig_common::wire::{
    PROTO_TCP, PROTO_UDP,
    inner::InnerPacket,
    ipv6::{self, UpperLayer},
};

pub use parse::{ClassError, MAX_CONDITIONS, MAX_DEPTH, is_name, names, parse};

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
}

/// What conditions ask of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Addresses and type of service.
    pub packet: InnerPacket,
    /// Protocol of the upper layer; `None` where it cannot be told.
    pub protocol: Option<u8>,
    /// TCP or UDP ports, source first; none in fragments.
    pub ports: Option<(u16, u16)>,
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

    fn parts(&self) -> &[Self] {
        match self {
            Self::All(parts) | Self::Any(parts) => parts,
            Self::Not(part) => std::slice::from_ref(part),
            _ => &[],
        }
    }

    /// Whether it holds for a packet.
    #[must_use]
    pub fn matches(&self, facts: &Facts) -> bool {
        match self {
            Self::All(parts) => parts.iter().all(|part| part.matches(facts)),
            Self::Any(parts) => parts.is_empty() || parts.iter().any(|part| part.matches(facts)),
            Self::Not(part) => !part.matches(facts),
            Self::Bool(value) => *value,
            Self::Source(prefix) => prefix.contains(&facts.packet.source),
            Self::Destination(prefix) => prefix.contains(&facts.packet.destination),
            Self::Dscp(code) => facts.packet.tos >> 2 == *code,
            Self::Tos(tos) => facts.packet.tos == *tos,
            Self::Protocol(number) => facts.protocol == Some(*number),
            Self::SourcePort(range) => facts.ports.is_some_and(|(port, _)| range.contains(&port)),
            Self::DestinationPort(range) => {
                facts.ports.is_some_and(|(_, port)| range.contains(&port))
            }
        }
    }
}

impl Facts {
    /// The facts of `bytes`, of which `packet` is the summary.
    #[must_use]
    pub fn of(packet: &InnerPacket, bytes: &[u8]) -> Self {
        // Not what the link padded it with.
        let bytes = bytes.get(..packet.total_len.into()).unwrap_or(bytes);
        let (protocol, at) = match packet.version() {
            4 => (Some(packet.protocol), usize::from(packet.header_len)),
            _ => match ipv6::upper_layer(bytes, packet.protocol, ipv6::HEADER_LEN) {
                UpperLayer::At { protocol, offset } => (Some(protocol), offset),
                _ => (None, 0),
            },
        };
        let has_ports = matches!(protocol, Some(PROTO_TCP | PROTO_UDP)) && !packet.is_fragment;
        let ports = has_ports
            .then(|| bytes.get(at..)?.first_chunk())
            .flatten()
            .map(|[a, b, c, d]| (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d])));
        Facts {
            packet: *packet,
            protocol,
            ports,
        }
    }
}
