//! IPv6 and the extension headers in front of the upper layer (RFC 8200).

use super::{Error, Load, PROTO_UDP, be16, split, split_mut};

/// Bytes of the header.
pub const HEADER_LEN: usize = 40;
/// How many extension headers are followed: hop-by-hop, destination, routing, fragment.
pub const MAX_EXTENSIONS: usize = 4;

/// Next header value of the hop-by-hop options.
pub const HOP_BY_HOP: u8 = 0;
/// Next header value of the routing header.
pub const ROUTING: u8 = 43;
/// Next header value of the fragment header.
pub const FRAGMENT: u8 = 44;
/// Next header value of the destination options.
pub const DESTINATION: u8 = 60;

/// Whether this is the beginning of an IPv6 header that a UDP datagram follows at once.
#[inline(always)]
#[must_use]
pub const fn is_around_udp(header: &[u8; 8]) -> bool {
    header[0] >> 4 == 6 && header[6] == PROTO_UDP
}

/// An IPv6 packet.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    fixed: &'a [u8; HEADER_LEN],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Takes `packet` for an IPv6 packet. Bytes beyond its payload length are left out.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::Version`], and [`Error::Length`] if the payload length is more
    /// than there is, or is the zero of a jumbogram.
    pub fn new_checked(packet: &'a [u8]) -> Result<Self, Error> {
        let (fixed, rest) = split::<HEADER_LEN>(packet)?;
        if fixed[0] >> 4 != 6 {
            return Err(Error::Version);
        }
        let len = be16(fixed[4], fixed[5]);
        if len == 0 && fixed[6] == HOP_BY_HOP {
            return Err(Error::Length);
        }
        let payload = rest.get(..usize::from(len)).ok_or(Error::Length)?;
        Ok(Self { fixed, payload })
    }

    /// Traffic class: DSCP and ECN.
    #[must_use]
    pub const fn traffic_class(&self) -> u8 {
        self.fixed[0] << 4 | self.fixed[1] >> 4
    }

    /// Flow label, 20 bits.
    #[must_use]
    pub const fn flow_label(&self) -> u32 {
        u32::from_be_bytes([0, self.fixed[1] & 0x0f, self.fixed[2], self.fixed[3]])
    }

    /// Bytes after the header.
    #[must_use]
    pub const fn payload_len(&self) -> u16 {
        be16(self.fixed[4], self.fixed[5])
    }

    /// What follows the header: an extension header or the upper layer.
    #[must_use]
    pub const fn next_header(&self) -> u8 {
        self.fixed[6]
    }

    /// Hop limit.
    #[must_use]
    pub const fn hop_limit(&self) -> u8 {
        self.fixed[7]
    }

    /// Source address.
    #[must_use]
    pub fn source(&self) -> [u8; 16] {
        core::array::from_fn(|i| self.fixed[8 + i])
    }

    /// Destination address.
    #[must_use]
    pub fn destination(&self) -> [u8; 16] {
        core::array::from_fn(|i| self.fixed[24 + i])
    }

    /// What follows the header, up to the payload length.
    #[must_use]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// What the extension headers end in. Its offset counts from [`View::payload`].
    #[must_use]
    pub fn upper_layer(&self) -> UpperLayer {
        upper_layer(self.payload, self.next_header(), 0)
    }
}

/// What the chain of extension headers ends in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpperLayer {
    /// The upper layer header, with its protocol and the offset it starts at.
    At {
        /// Next header value.
        protocol: u8,
        /// Offset into the packet.
        offset: usize,
    },
    /// A fragment header. The protocol behind it is no property of the datagram: only that of the
    /// first fragment counts (RFC 8200, section 4.5).
    Fragment,
    /// A header that is not followed (there are too many, or it is truncated), with its next header
    /// value.
    Unknown(u8),
}

/// Follows hop-by-hop, routing and destination headers, at most [`MAX_EXTENSIONS`].
///
/// `first` is the next header value of the IPv6 header and `offset` the end of that header.
#[inline(always)]
#[must_use]
pub fn upper_layer<L: Load + ?Sized>(packet: &L, first: u8, offset: usize) -> UpperLayer {
    let (mut protocol, mut offset) = (first, offset);
    for _ in 0..MAX_EXTENSIONS {
        match protocol {
            HOP_BY_HOP | ROUTING | DESTINATION => {
                let Some([next, len]) = packet.bytes(offset) else {
                    return UpperLayer::Unknown(protocol);
                };
                protocol = next;
                offset += (usize::from(len) + 1) * 8;
            }
            FRAGMENT => return UpperLayer::Fragment,
            _ => return UpperLayer::At { protocol, offset },
        }
    }
    match protocol {
        FRAGMENT => UpperLayer::Fragment,
        HOP_BY_HOP | ROUTING | DESTINATION => UpperLayer::Unknown(protocol),
        _ => UpperLayer::At { protocol, offset },
    }
}

/// An IPv6 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Traffic class: DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label; bits above the 20 of the field are cut off.
    pub flow_label: u32,
    /// Bytes after the header.
    pub payload_len: u16,
    /// Protocol of the payload.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub source: [u8; 16],
    /// Destination address.
    pub destination: [u8; 16],
}

impl Header {
    /// Writes the header to the start of `out`; returns the bytes written.
    ///
    /// # Errors
    /// [`Error::NoRoom`].
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, Error> {
        let (fixed, _) = split_mut::<HEADER_LEN>(out)?;
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | (self.flow_label & 0x000f_ffff);
        let (word, rest) = split_mut(fixed)?;
        *word = first.to_be_bytes();
        let (len, rest) = split_mut(rest)?;
        *len = self.payload_len.to_be_bytes();
        let (small, rest) = split_mut(rest)?;
        *small = [self.next_header, self.hop_limit];
        let (source, rest) = split_mut(rest)?;
        *source = self.source;
        let (destination, _) = split_mut(rest)?;
        *destination = self.destination;
        Ok(HEADER_LEN)
    }
}
