//! The summary of an inner packet: what programs, routing, policing and framing ask of it, read once.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::ipv6::{UpperLayer, upper_layer};
use super::{
    Error, Load, PROTO_SCTP, PROTO_TCP, PROTO_UDP, Store, be16, checksum, ethernet, ipv4, ipv6,
};

/// Source MAC address of a decapsulated packet on its way through the tunnel device which must not
/// come back into the tunnel, for there its way leads to the remote that sent it. No device has it.
pub const BACK_TO_SENDER: [u8; 6] = [0x02, 0, 0, 0, 0, 0];

/// What the data plane needs to know of an IPv4 or IPv6 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InnerPacket {
    /// Source address.
    pub source: IpAddr,
    /// Destination address, of the same version.
    pub destination: IpAddr,
    /// Bytes of the whole packet; never more than there were.
    pub total_len: u16,
    /// Bytes of the IPv4 header with options, or of the IPv6 header without extension headers.
    pub header_len: u8,
    /// Type of service or traffic class: DSCP and ECN.
    pub tos: u8,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// Protocol of IPv4, or next header of the IPv6 header (perhaps an extension header).
    pub protocol: u8,
    /// Whether this is an IPv4 fragment other than the first.
    pub is_later_fragment: bool,
    upper: Upper,
    ports: Ports,
}

/// As [`UpperLayer`], with a value in every field whatever the kind. Where an enum has none, LLVM may compute with any
/// register, be it one that holds a pointer, which the BPF verifier refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Upper {
    kind: UpperKind,
    /// Of fragments what the header in front of them says.
    protocol: u8,
    offset: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UpperKind {
    At,
    Fragment,
    Unknown,
}

/// Both ports, or zeros; likewise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ports {
    are_there: bool,
    /// Source port in the upper half.
    both: u32,
}

impl InnerPacket {
    /// Reads the IPv4 or IPv6 packet that `packet` starts with, which must be there in full.
    ///
    /// Bytes beyond it (Ethernet padding) are ignored: see [`InnerPacket::total_len`]. The IPv4
    /// header checksum is not verified: see [`ipv4::View::checksum_is_valid`].
    ///
    /// # Errors
    /// Those of [`ipv4::View::new_checked`] and [`ipv6::View::new_checked`]; [`Error::Version`] for
    /// other versions; [`Error::Length`] for an IPv6 packet above 65 535 bytes, which the gateway
    /// does not carry.
    #[inline(always)]
    pub fn parse<L: Load + ?Sized>(packet: &L) -> Result<Self, Error> {
        let [first] = packet.bytes(0).ok_or(Error::Truncated)?;
        match first >> 4 {
            4 => Self::parse_v4(packet),
            6 => Self::parse_v6(packet),
            _ => Err(Error::Version),
        }
    }

    /// As [`InnerPacket::parse`], of bytes that begin with version 4.
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    pub fn parse_v4<L: Load + ?Sized>(packet: &L) -> Result<Self, Error> {
        let header = packet.bytes::<{ ipv4::HEADER_LEN }>(0);
        let header = header.ok_or(Error::Truncated)?;
        let header_len = (header[0] & 0x0f) * 4;
        if usize::from(header_len) < ipv4::HEADER_LEN {
            return Err(Error::HeaderLength);
        }
        let total_len = be16(header[2], header[3]);
        if usize::from(total_len) > packet.len() || total_len < header_len.into() {
            return Err(Error::Length);
        }
        let (fragment, protocol) = (be16(header[6], header[7]), header[9]);
        let upper = Upper {
            kind: match ipv4::is_fragment(fragment) {
                true => UpperKind::Fragment,
                false => UpperKind::At,
            },
            protocol,
            offset: header_len.into(),
        };
        let [.., s0, s1, s2, s3, d0, d1, d2, d3] = header;
        Ok(Self {
            source: IpAddr::V4(Ipv4Addr::from_octets([s0, s1, s2, s3])),
            destination: IpAddr::V4(Ipv4Addr::from_octets([d0, d1, d2, d3])),
            total_len,
            header_len,
            tos: header[1],
            ttl: header[8],
            protocol,
            is_later_fragment: ipv4::is_later_fragment(fragment),
            upper,
            ports: Ports::read(&Clipped(packet, total_len.into()), upper),
        })
    }

    /// As [`InnerPacket::parse`], of bytes that begin with version 6.
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    pub fn parse_v6<L: Load + ?Sized>(packet: &L) -> Result<Self, Error> {
        const HEADER_LEN: u16 = ipv6::HEADER_LEN as u16;
        // One by one: if all are loaded before any is checked, LLVM leaves out checks that the later
        // ones imply, and the BPF verifier cannot follow.
        let [b0, b1, _, _, l0, l1, protocol, ttl] = packet.bytes(0).ok_or(Error::Truncated)?;
        let source = packet.bytes::<16>(8).ok_or(Error::Truncated)?;
        let destination = packet.bytes::<16>(24).ok_or(Error::Truncated)?;
        let payload_len = be16(l0, l1);
        let is_jumbogram = payload_len == 0 && protocol == ipv6::HOP_BY_HOP;
        let total_len = payload_len.checked_add(HEADER_LEN).ok_or(Error::Length)?;
        if is_jumbogram || usize::from(total_len) > packet.len() {
            return Err(Error::Length);
        }
        let packet = Clipped(packet, total_len.into());
        let upper = Upper::of_ipv6(upper_layer(&packet, protocol, ipv6::HEADER_LEN));
        Ok(Self {
            source: IpAddr::V6(Ipv6Addr::from_octets(source)),
            destination: IpAddr::V6(Ipv6Addr::from_octets(destination)),
            total_len,
            header_len: ipv6::HEADER_LEN as u8,
            tos: b0 << 4 | b1 >> 4,
            ttl,
            protocol,
            is_later_fragment: false,
            upper,
            ports: Ports::read(&packet, upper),
        })
    }

    /// A packet of the flow with this [key](crate::fast_path::flow_key), as far as traffic classes ask about it; lengths and TTL are
    /// 0.
    #[must_use]
    pub fn of_flow(key: &[u64; 5]) -> Self {
        let [a, b, c, d, rest] = *key;
        let (source, destination, header_len) = match rest >> 56 & 0xf {
            6 => {
                let address = |high: u64, low: u64| {
                    IpAddr::from(Ipv6Addr::from_bits((high as u128) << 64 | low as u128))
                };
                (address(a, b), address(c, d), ipv6::HEADER_LEN)
            }
            _ => {
                let address = |bits: u32| IpAddr::from(Ipv4Addr::from_bits(bits));
                (
                    address((a >> 32) as u32),
                    address(a as u32),
                    ipv4::HEADER_LEN,
                )
            }
        };
        let protocol = (rest >> 32) as u8;
        Self {
            source,
            destination,
            total_len: 0,
            header_len: header_len as u8,
            tos: (rest >> 40) as u8,
            ttl: 0,
            protocol,
            is_later_fragment: false,
            upper: Upper {
                kind: UpperKind::At,
                protocol,
                offset: header_len as u16,
            },
            ports: Ports {
                are_there: matches!(protocol, PROTO_TCP | PROTO_UDP | PROTO_SCTP),
                both: rest as u32,
            },
        }
    }

    /// EtherType of the packet.
    #[inline(always)]
    #[must_use]
    pub const fn ethertype(&self) -> u16 {
        ethernet::ethertype(self.source)
    }

    /// Protocol of IPv4; in IPv6, behind the extension headers. `None` where it cannot be told.
    #[inline]
    #[must_use]
    pub const fn upper_protocol(&self) -> Option<u8> {
        match (self.upper.kind, self.source) {
            (UpperKind::At, _) | (_, IpAddr::V4(_)) => Some(self.upper.protocol),
            (_, IpAddr::V6(_)) => None,
        }
    }

    /// What is behind all headers that are followed. Offsets count from the start of the packet.
    #[inline(always)]
    #[must_use]
    pub const fn upper(&self) -> UpperLayer {
        let Upper {
            kind,
            protocol,
            offset,
        } = self.upper;
        match kind {
            UpperKind::At => UpperLayer::At {
                protocol,
                offset: offset as usize,
            },
            UpperKind::Fragment => UpperLayer::Fragment,
            UpperKind::Unknown => UpperLayer::Unknown(protocol),
        }
    }

    /// Source and destination port of TCP, UDP and SCTP; none in fragments.
    #[inline(always)]
    #[must_use]
    pub const fn ports(&self) -> Option<[u16; 2]> {
        let both = self.ports.both;
        match self.ports.are_there {
            true => Some([(both >> 16) as u16, both as u16]),
            false => None,
        }
    }

    /// What [`super::flow::flow_hash`] takes besides the addresses.
    #[inline(always)]
    pub(crate) const fn protocol_and_ports(&self) -> u64 {
        (self.upper.protocol as u64) << 32 | self.ports.both as u64
    }

    /// What follows the IPv4 or IPv6 header in `packet`, without padding. `None` if that is not the
    /// packet of this summary.
    #[must_use]
    pub fn payload<'a>(&self, packet: &'a [u8]) -> Option<&'a [u8]> {
        packet.get(self.header_len.into()..self.total_len.into())
    }

    /// Takes one from TTL or hop limit, here and in `packet`, and keeps the IPv4 checksum right (a wrong
    /// one stays wrong). `false`, and nothing is changed, if it is 0 or 1.
    #[inline(always)]
    #[must_use]
    pub fn decrement_ttl<P: Load + Store + ?Sized>(&mut self, packet: &mut P) -> bool {
        if self.ttl <= 1 {
            return false;
        }
        let ttl = self.ttl - 1;
        let stored = match self.source {
            IpAddr::V4(_) => store_ipv4(packet, 8, [ttl, self.protocol]),
            IpAddr::V6(_) => packet.store(7, [ttl]),
        };
        self.ttl = ttl;
        stored.is_some()
    }

    /// Sets type of service or traffic class, here and in `packet`, and keeps the IPv4 checksum right (a
    /// wrong one stays wrong).
    #[inline]
    pub fn set_tos<P: Load + Store + ?Sized>(&mut self, packet: &mut P, tos: u8) {
        self.tos = tos;
        let Some([first, second]) = packet.bytes(0) else {
            return;
        };
        match self.source {
            IpAddr::V4(_) => store_ipv4(packet, 0, [first, tos]),
            IpAddr::V6(_) => packet.store(0, [6 << 4 | tos >> 4, tos << 4 | second & 0x0f]),
        };
    }
}

/// Sets the two bytes at `offset`, which is even, in an IPv4 header, and its checksum (RFC 1624).
#[inline(always)]
fn store_ipv4<P: Load + Store + ?Sized>(
    packet: &mut P,
    offset: usize,
    bytes: [u8; 2],
) -> Option<()> {
    let old = packet.bytes(offset).map(u16::from_be_bytes)?;
    let checksum = packet.bytes(10).map(u16::from_be_bytes)?;
    packet.store(offset, bytes)?;
    let checksum = checksum::update(checksum, old, u16::from_be_bytes(bytes));
    packet.store(10, checksum.to_be_bytes())
}

impl Upper {
    /// Of an IPv6 packet that is there in full, so that the offset fits.
    #[inline(always)]
    const fn of_ipv6(upper: UpperLayer) -> Self {
        let (kind, protocol, offset) = match upper {
            UpperLayer::At { protocol, offset } => (UpperKind::At, protocol, offset),
            UpperLayer::Fragment => (UpperKind::Fragment, ipv6::FRAGMENT, 0),
            UpperLayer::Unknown(protocol) => (UpperKind::Unknown, protocol, 0),
        };
        Self {
            kind,
            protocol,
            offset: offset as u16,
        }
    }
}

impl Ports {
    /// Those of a packet whose protocol has them.
    #[inline(always)]
    fn read<L: Load + ?Sized>(packet: &L, upper: Upper) -> Self {
        let has_ports = matches!(upper.kind, UpperKind::At)
            && matches!(upper.protocol, PROTO_TCP | PROTO_UDP | PROTO_SCTP);
        let ports = match has_ports {
            true => packet.bytes(upper.offset.into()),
            false => None,
        };
        Self {
            are_there: ports.is_some(),
            both: ports.map_or(0, u32::from_be_bytes),
        }
    }
}

/// The first bytes of a packet, so many.
struct Clipped<'a, L: ?Sized>(&'a L, usize);

impl<L: Load + ?Sized> Load for Clipped<'_, L> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.1
    }

    #[inline(always)]
    fn bytes<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        if offset + N > self.1 {
            return None;
        }
        self.0.bytes(offset)
    }
}
