//! The outer headers of a path, built once and patched per frame.
//!
//! A frame on the wire is Ethernet, IPv4 or IPv6, UDP, SCION common, address and path header,
//! UDP/SCION and the SIG frame header. For one path and one stream only lengths, checksums, traffic
//! class, flow id, index and sequence number differ from frame to frame, so the rest is a template,
//! and the checksums start from sums over it.
//!
//! A template is plain data: the engine keeps it in its tables, and an XDP program can have it as
//! the value of a map. Both write a frame in two steps, the headers as they are, then
//! [`HeaderTemplate::patch`]; [`HeaderTemplate::write`] does both for a frame in memory.

use core::fmt;
use core::net::{IpAddr, SocketAddr};

use super::checksum::{Sum, ipv4_pseudo_header, ipv6_pseudo_header, scion_pseudo_header};
use super::scion::{self, common, path::Path};
use super::{Error, PROTO_UDP, Store, TTL, ethernet, ipv4, ipv6, sig_frame, udp};
use crate::addr::IsdAs;

/// Bytes of the longest headers: over IPv6, with the longest SCION header.
pub const MAX_LEN: usize = ethernet::HEADER_LEN
    + ipv6::HEADER_LEN
    + udp::HEADER_LEN
    + scion::MAX_HEADER_LEN
    + udp::HEADER_LEN
    + sig_frame::HEADER_LEN;

/// Bytes of the headers of UDP/SCION and SIG frame.
const SEGMENT_HEADERS: u16 = (udp::HEADER_LEN + sig_frame::HEADER_LEN) as u16;

/// Offsets are below this power of two. The BPF verifier needs to see it.
const OFFSETS: usize = MAX_LEN.next_power_of_two();

/// The two ends of the tunnel that a path belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// ISD-AS of this gateway.
    pub local_isd_as: IsdAs,
    /// Data address of this gateway: source of the outer packet and of UDP/SCION.
    pub local: SocketAddr,
    /// ISD-AS of the remote gateway.
    pub remote_isd_as: IsdAs,
    /// Data address of the remote gateway: destination of UDP/SCION.
    pub remote: SocketAddr,
}

/// Where frames on a path go first: the border router, or the remote gateway itself within an AS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// Outer destination.
    pub address: SocketAddr,
    /// MAC address of the underlay interface.
    pub source_mac: [u8; 6],
    /// MAC address of the neighbour through which `address` is reached.
    pub destination_mac: [u8; 6],
}

/// Why a path cannot have a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateError {
    /// The outer packet would need source and destination of different IP versions.
    NextHopFamily(SocketAddr),
    /// The path is malformed, or too long for a SCION header or the template.
    Header(Error),
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NextHopFamily(address) => write!(
                f,
                "next hop {address} and the local data address have different IP versions"
            ),
            Self::Header(error) => write!(f, "no headers can be made for the path: {error}"),
        }
    }
}

impl core::error::Error for TemplateError {}

impl From<Error> for TemplateError {
    fn from(error: Error) -> Self {
        Self::Header(error)
    }
}

/// What differs from frame to frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameFields {
    /// DSCP and ECN of the inner packets, for the outer IP header and the SCION traffic class
    /// (RFC 6040, normal mode).
    pub traffic_class: u8,
    /// Hash of the inner flow; its low 20 bits become the SCION flow id, with 1 in place of 0.
    pub flow_hash: u32,
    /// Stream id, 20 bits.
    pub stream: u32,
    /// Sequence number within the stream.
    pub sequence: u64,
    /// Offset of the first packet that starts in the frame, 0xFFFF if none does.
    pub index: u16,
}

/// The outer headers of one path, at most `CAPACITY` bytes, which is even.
///
/// A program that has less room in front of its packets takes a smaller capacity; paths that are too
/// long for it have no such template. Without padding, and any bytes are valid: those that
/// [`HeaderTemplate::new`] did not make are written as wrong headers, or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct HeaderTemplate<const CAPACITY: usize> {
    /// Sums over what never changes, host byte order: of the IPv4 header,
    ip_sum: u16,
    /// of the outer UDP checksum, with the part that UDP/SCION's own checksum cancels out,
    udp_sum: u16,
    /// and of the UDP/SCION checksum.
    segment_sum: u16,
    /// Offset of the outer IP header.
    ip: u16,
    /// Offset of the SCION header, behind the outer UDP header.
    scion: u16,
    /// Offset of the UDP/SCION header, which the SIG frame header follows.
    l4: u16,
    /// Bytes of all headers.
    len: u16,
    session: u8,
    /// Version of the frames.
    version: u8,
    bytes: [u8; CAPACITY],
}

#[cfg(feature = "user")]
// SAFETY: `repr(C)`, made of integers only, and any bytes are valid. The fields in front take 16 bytes and
// the capacity is even, so there is no padding (asserted below).
unsafe impl aya::Pod for Template {}

const _: () = assert!(size_of::<Template>() == 16 + MAX_LEN);

/// A template with room for any headers.
pub type Template = HeaderTemplate<MAX_LEN>;

const _: () = assert!(size_of::<Template>() == 16 + MAX_LEN && align_of::<Template>() == 2);

impl<const CAPACITY: usize> HeaderTemplate<CAPACITY> {
    /// The template of a path.
    ///
    /// `path_type` and `path` are the SCION path type number and the path header as it goes on the
    /// wire; an empty path (type 0) has no bytes. `session` is the SIG session id.
    ///
    /// # Errors
    ///
    /// If the headers cannot be expressed, see [`TemplateError`].
    pub fn new(
        ends: &Endpoints,
        next_hop: &NextHop,
        path_type: u8,
        path: &[u8],
        session: u8,
    ) -> Result<Self, TemplateError> {
        const { assert!(CAPACITY.is_multiple_of(2), "there would be padding") };
        let mut bytes = [0; CAPACITY];
        let (source, destination) = (ends.local, next_hop.address);
        let ethernet = ethernet::Header {
            destination: next_hop.destination_mac,
            source: next_hop.source_mac,
            tags: [None; ethernet::MAX_TAGS],
            ethertype: ethernet::ethertype(source.ip()),
        };
        let ip = ethernet.emit(&mut bytes)?;
        let (udp, ip_sum, pseudo_sum) = match (source.ip(), destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let (source, destination) = (source.octets(), destination.octets());
                let header = ipv4::Header {
                    tos: 0,
                    total_len: 0,
                    identification: 0,
                    // The path MTU is known.
                    dont_fragment: true,
                    ttl: TTL,
                    protocol: PROTO_UDP,
                    source,
                    destination,
                };
                let end = ip + header.emit(behind(&mut bytes, ip))?;
                // The checksum is the complement of the sum over the rest.
                let ip_sum = !super::be16(bytes[ip + 10], bytes[ip + 11]);
                let pseudo_sum = ipv4_pseudo_header(source, destination, 0, PROTO_UDP);
                (end, ip_sum, pseudo_sum)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let (source, destination) = (source.octets(), destination.octets());
                let header = ipv6::Header {
                    traffic_class: 0,
                    flow_label: 0,
                    payload_len: 0,
                    next_header: PROTO_UDP,
                    hop_limit: TTL,
                    source,
                    destination,
                };
                let end = ip + header.emit(behind(&mut bytes, ip))?;
                let pseudo_sum = ipv6_pseudo_header(&source, &destination, 0, PROTO_UDP);
                (end, 0, pseudo_sum)
            }
            _ => return Err(TemplateError::NextHopFamily(destination)),
        };
        let ports = |destination: SocketAddr| udp::Header {
            source_port: source.port(),
            destination_port: destination.port(),
            ..udp::Header::default()
        };
        let scion = udp + ports(destination).emit(behind(&mut bytes, udp))?;
        let header = scion::Header {
            traffic_class: 0,
            flow_id: 0,
            next_header: PROTO_UDP,
            payload_len: 0,
            destination_isd_as: ends.remote_isd_as,
            source_isd_as: ends.local_isd_as,
            destination: ends.remote.ip().into(),
            source: source.ip().into(),
            path: Path::new_checked(path_type, path)?,
        };
        let l4 = scion + header.emit(behind(&mut bytes, scion))?;
        let sig = l4 + ports(ends.remote).emit(behind(&mut bytes, l4))?;
        let header = sig_frame::Header {
            session,
            ..sig_frame::Header::default()
        };
        let len = sig + header.emit(behind(&mut bytes, sig))?;

        let addresses = scion + common::HEADER_LEN..l4 - path.len();
        // UDP/SCION's checksum makes the sum over addresses, protocol, length and segment zero. The outer
        // checksum covers the same but for the protocol; the length is that of the SCION payload.
        let udp_sum = pseudo_sum
            .add_bytes(&bytes[udp..addresses.start])
            .add_bytes(path)
            .add_u16(!u16::from(PROTO_UDP));
        let segment_sum =
            scion_pseudo_header(&bytes[addresses], 0, PROTO_UDP).add_bytes(&bytes[l4..len]);
        Ok(Self {
            ip_sum,
            udp_sum: udp_sum.fold(),
            segment_sum: segment_sum.fold(),
            ip: ip as u16,
            scion: scion as u16,
            l4: l4 as u16,
            len: len as u16,
            session,
            version: sig_frame::VERSION,
            bytes,
        })
    }

    /// The headers, from Ethernet to the end of the SIG frame header, without what differs from frame
    /// to frame.
    #[inline]
    #[must_use]
    pub fn headers(&self) -> &[u8] {
        self.bytes.get(..self.len.into()).unwrap_or_default()
    }

    /// The same for protected frames. What comes behind the headers is for the caller to write, before anything else.
    ///
    /// The XDP programs do not know of it: they write frames of version 0.
    #[must_use]
    pub fn protected(mut self) -> Self {
        let version = u16::from(sig_frame::VERSION_PROTECTED) << 8;
        self.segment_sum = Sum::ZERO.add_u16(self.segment_sum).add_u16(version).fold();
        self.version = sig_frame::VERSION_PROTECTED;
        self
    }

    /// [`HeaderTemplate::headers`], and what is behind them.
    #[inline(always)]
    #[must_use]
    pub const fn bytes(&self) -> &[u8; CAPACITY] {
        &self.bytes
    }

    /// The same template with another capacity; `None` if that is too small.
    #[must_use]
    pub fn resize<const OTHER: usize>(&self) -> Option<HeaderTemplate<OTHER>> {
        let headers = self.headers();
        let mut bytes = [0; OTHER];
        bytes.get_mut(..headers.len())?.copy_from_slice(headers);
        Some(HeaderTemplate {
            ip_sum: self.ip_sum,
            udp_sum: self.udp_sum,
            segment_sum: self.segment_sum,
            ip: self.ip,
            scion: self.scion,
            l4: self.l4,
            len: self.len,
            session: self.session,
            version: self.version,
            bytes,
        })
    }

    /// Bytes of all headers, from Ethernet to the end of the SIG frame header.
    #[inline(always)]
    #[expect(clippy::len_without_is_empty, reason = "headers are never empty")]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Bytes of inner packets that a frame can carry over a path on which SCION packets of at most
    /// `path_mtu` bytes pass, sent through an interface whose MTU is `link_mtu` bytes. Zero if not
    /// even the headers fit.
    #[must_use]
    pub fn capacity(&self, path_mtu: usize, link_mtu: usize) -> usize {
        let outer = usize::from(self.scion.saturating_sub(self.ip));
        let headers = usize::from(self.len.saturating_sub(self.scion));
        let scion_packet = path_mtu.min(link_mtu.saturating_sub(outer));
        scion_packet.saturating_sub(headers)
    }

    /// Writes the headers of a frame into its first [`HeaderTemplate::len`] bytes; the inner packets are
    /// already in place behind them. `None` if the frame is shorter than the headers.
    #[inline]
    pub fn write(&self, frame: &mut [u8], fields: &FrameFields) -> Option<()> {
        let headers = self.headers();
        let (room, payload) = frame.split_at_mut_checked(headers.len())?;
        room.copy_from_slice(headers);
        self.patch(room, fields, Sum::of(payload), payload.len() as u16)?;
        let frame = usize::from(self.l4) + udp::HEADER_LEN;
        *room.get_mut(frame)? = self.version;
        Some(())
    }

    /// The SIG frame header that a frame with these fields gets.
    #[inline]
    #[must_use]
    pub const fn frame_header(&self, fields: &FrameFields) -> sig_frame::Header {
        sig_frame::Header {
            session: self.session,
            index: fields.index,
            stream: fields.stream & sig_frame::STREAM_MASK,
            sequence: fields.sequence,
        }
    }

    /// Writes what is its own into a frame that starts with [`HeaderTemplate::headers`]. `payload` is the sum
    /// over the inner packets, of `payload_len` bytes. `None` if the frame is shorter than the headers;
    /// some fields may then be written.
    #[inline(always)]
    pub fn patch<S: Store + ?Sized>(
        &self,
        frame: &mut S,
        fields: &FrameFields,
        payload: Sum,
        payload_len: u16,
    ) -> Option<()> {
        let [ip, scion, l4] = [self.ip, self.scion, self.l4].map(|at| usize::from(at) % OFFSETS);
        let constant = |sum: u16| Sum::ZERO.add_u16(sum);

        let header = self.frame_header(fields);
        frame.store(l4 + udp::HEADER_LEN, header.encode())?;

        // UDP/SCION: the length stands in the pseudo header, too.
        let segment_len = payload_len.wrapping_add(SEGMENT_HEADERS);
        let checksum = constant(self.segment_sum)
            .add_u16(header.index)
            .add_u32(header.stream)
            .add_u64(header.sequence)
            .combine(payload)
            .add_u16(segment_len)
            .add_u16(segment_len)
            .checksum();
        frame.store(l4 + 4, pair(segment_len, checksum))?;

        let class = fields.traffic_class;
        let flow_id = match fields.flow_hash & common::FLOW_ID_MASK {
            0 => 1,
            id => id,
        };
        let first = common::encode_first_word(class, flow_id);
        frame.store(scion, first)?;
        frame.store(
            scion + common::PAYLOAD_LEN_OFFSET,
            segment_len.to_be_bytes(),
        )?;

        // As above.
        let headers_len = self.l4.wrapping_sub(self.scion);
        let udp_len = segment_len
            .wrapping_add(headers_len)
            .wrapping_add(udp::HEADER_LEN as u16);
        let sum = constant(self.udp_sum)
            .add_u32(u32::from_be_bytes(first))
            .add_u16(udp_len)
            .add_u16(udp_len);
        let checksum = udp::checksum(sum);
        frame.store(scion.wrapping_sub(4) % OFFSETS, pair(udp_len, checksum))?;

        if self.scion.wrapping_sub(self.ip) == (ipv4::HEADER_LEN + udp::HEADER_LEN) as u16 {
            let total_len = udp_len.wrapping_add(ipv4::HEADER_LEN as u16);
            let checksum = constant(self.ip_sum)
                .add_u16(class.into())
                .add_u16(total_len)
                .checksum();
            let [l0, l1] = total_len.to_be_bytes();
            frame.store(ip + 1, [class, l0, l1])?;
            frame.store(ip + 10, checksum.to_be_bytes())
        } else {
            frame.store(ip, [6 << 4 | class >> 4, class << 4])?;
            frame.store(ip + 4, udp_len.to_be_bytes())
        }
    }
}

/// What is behind the first `at` bytes; nothing if there are fewer.
fn behind(bytes: &mut [u8], at: usize) -> &mut [u8] {
    bytes.get_mut(at..).unwrap_or_default()
}

#[inline(always)]
const fn pair(first: u16, second: u16) -> [u8; 4] {
    ((first as u32) << 16 | second as u32).to_be_bytes()
}
