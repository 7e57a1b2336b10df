//! Packets of the slow path: what the control plane sends and receives.

use sig_common::{
    addr::{HostAddr, IsdAs},
    wire::{
        self, PROTO_UDP,
        checksum::{Sum, scion_pseudo_header},
        scion::{
            Header, NEXT_SCMP, View, common,
            path::{Path, SCION},
            scmp::CHECKSUM_OFFSET,
            udp as scion_udp,
        },
        udp as udp_header,
    },
};
use thiserror::Error;

use super::{
    reverse,
    scmp::{MAX_ERROR_PACKET, Scmp},
};

/// A host: ISD-AS and host address.
pub type Host = (IsdAs, HostAddr);
/// A UDP endpoint: ISD-AS, host address and UDP/SCION port.
pub type Endpoint = (IsdAs, HostAddr, u16);

/// Flow id of all our packets: it must not be 0, and the reference sends 1.
const FLOW_ID: u32 = 1;
/// Offset of the checksum in a UDP header.
const UDP_CHECKSUM_OFFSET: usize = 6;

/// The two ends of a UDP datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Sender.
    pub source: Endpoint,
    /// Receiver. A service has port 0.
    pub destination: Endpoint,
}

/// What tells the packets of one flow from others, on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Traffic class: DSCP and ECN.
    pub traffic_class: u8,
    /// Flow id, 20 bits.
    pub flow_id: u32,
}

impl Default for Flow {
    /// That of all our own packets.
    fn default() -> Self {
        Self {
            traffic_class: 0,
            flow_id: FLOW_ID,
        }
    }
}

/// A UDP datagram over SCION. `raw_path` is the path header as it goes on the wire.
///
/// # Errors
/// [`wire::Error::Path`] and [`wire::Error::PathType`] for a malformed path, [`wire::Error::NoRoom`] for one
/// that is too long for a SCION header, [`wire::Error::Length`] for a payload that is too long for UDP.
pub fn udp(
    addresses: &Addresses,
    path_type: u8,
    raw_path: &[u8],
    payload: &[u8],
) -> Result<Vec<u8>, wire::Error> {
    let (source_isd_as, source, source_port) = addresses.source;
    let (destination_isd_as, destination, destination_port) = addresses.destination;
    let header = udp_header::Header {
        source_port,
        destination_port,
        length: u16::try_from(udp_header::HEADER_LEN + payload.len())
            .map_err(|_| wire::Error::Length)?,
        checksum: 0,
    };
    let head = Head {
        source: (source_isd_as, source),
        destination: (destination_isd_as, destination),
        path: Path::new_checked(path_type, raw_path)?,
        flow: Flow::default(),
    };
    head.packet(PROTO_UDP, &[&header.encode(), payload], UDP_CHECKSUM_OFFSET)
}

/// A SCION packet with an SCMP message. The quote of an error is cut so that the packet has at most
/// [`MAX_ERROR_PACKET`] bytes.
///
/// # Errors
/// As [`udp`].
pub fn scmp(
    source: Host,
    destination: Host,
    path_type: u8,
    raw_path: &[u8],
    message: &Scmp,
) -> Result<Vec<u8>, wire::Error> {
    scmp_in_flow(
        Flow::default(),
        source,
        destination,
        path_type,
        raw_path,
        message,
    )
}

/// The same as [`scmp()`], as part of a flow.
///
/// # Errors
/// As [`udp`].
pub fn scmp_in_flow(
    flow: Flow,
    source: Host,
    destination: Host,
    path_type: u8,
    raw_path: &[u8],
    message: &Scmp,
) -> Result<Vec<u8>, wire::Error> {
    let head = Head {
        source,
        destination,
        path: Path::new_checked(path_type, raw_path)?,
        flow,
    };
    let mut bytes = message.encode();
    if message.is_error() {
        bytes.truncate(MAX_ERROR_PACKET.saturating_sub(head.header(NEXT_SCMP, 0).len()));
    }
    head.packet(NEXT_SCMP, &[&bytes], CHECKSUM_OFFSET)
}

/// A probe of a SCION path: an SCMP traceroute request that the router answers by which the path enters
/// `destination`, the last AS. `id` is the port of the asking socket; the answer comes there.
///
/// # Errors
/// [`wire::Error::Path`] if `raw_path` is no SCION path, else as [`udp`].
pub fn path_probe(
    source: Host,
    destination: IsdAs,
    raw_path: &[u8],
    id: u16,
    sequence: u16,
) -> Result<Vec<u8>, wire::Error> {
    scmp(
        source,
        (destination, HostAddr::SVC_NONE),
        SCION,
        &reverse::with_alert_at_last_hop(raw_path)?,
        &Scmp::TracerouteRequest { id, sequence },
    )
}

/// What comes before the upper layer.
struct Head<'a> {
    source: Host,
    destination: Host,
    path: Path<'a>,
    flow: Flow,
}

impl<'a> Head<'a> {
    fn header(&self, next_header: u8, payload_len: u16) -> Header<'a> {
        Header {
            traffic_class: self.flow.traffic_class,
            flow_id: self.flow.flow_id,
            next_header,
            payload_len,
            destination_isd_as: self.destination.0,
            source_isd_as: self.source.0,
            destination: self.destination.1,
            source: self.source.1,
            path: self.path,
        }
    }

    /// The packet with the message that `parts` form together; its checksum at `checksum` bytes from the
    /// message's start is filled in.
    fn packet(
        &self,
        protocol: u8,
        parts: &[&[u8]],
        checksum: usize,
    ) -> Result<Vec<u8>, wire::Error> {
        let message_len: usize = parts.iter().map(|part| part.len()).sum();
        let payload_len = u16::try_from(message_len).map_err(|_| wire::Error::Length)?;
        let header = self.header(protocol, payload_len);
        let header_len = header.len();
        let mut packet = Vec::with_capacity(header_len + message_len);
        packet.resize(header_len, 0);
        header.emit(&mut packet)?;
        let addresses = common::HEADER_LEN..header_len - self.path.bytes().len();
        let pseudo_header =
            scion_pseudo_header(&packet[addresses], u32::from(payload_len), protocol);
        parts.iter().for_each(|part| packet.extend(*part));
        let sum = pseudo_header.add_bytes(&packet[header_len..]);
        packet[header_len + checksum..][..2].copy_from_slice(&sum.checksum().to_be_bytes());
        Ok(packet)
    }
}

/// A received packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Who sent it.
    pub source: Host,
    /// Whom to.
    pub destination: Host,
    /// The path as it arrived.
    pub path: Path<'a>,
    /// What it carries.
    pub content: Content<'a>,
}

/// What a packet carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// A UDP datagram.
    Udp {
        /// Port of the sender.
        source_port: u16,
        /// Port of the receiver.
        destination_port: u16,
        /// What follows the UDP header.
        payload: &'a [u8],
    },
    /// An SCMP message.
    Scmp(Scmp),
}

/// Why bytes are not a packet for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ParseError {
    /// The SCION or UDP header is malformed.
    #[error(transparent)]
    Header(#[from] wire::Error),
    /// It carries neither UDP nor SCMP.
    #[error("upper layer protocol {0}")]
    Protocol(u8),
    /// An SCMP message that is cut off or of a type that is not defined.
    #[error("truncated or unknown SCMP message")]
    Scmp,
    /// The checksum of the upper layer is wrong.
    #[error("wrong checksum")]
    Checksum,
}

/// Takes the payload of an underlay datagram for a SCION packet with UDP or SCMP. Extension headers are
/// skipped. Checksums are verified, unless they are zero: some senders do not fill them in.
///
/// # Errors
/// See [`ParseError`].
pub fn parse(bytes: &[u8]) -> Result<Packet<'_>, ParseError> {
    let view = View::new_checked(bytes)?;
    let (protocol, upper) = view.upper_layer()?;
    let content = match protocol {
        PROTO_UDP => {
            let datagram = scion_udp::View::new_checked(upper)?;
            let header = datagram.header();
            if header.checksum != 0 && !datagram.checksum_is_valid(view.address_bytes()) {
                return Err(ParseError::Checksum);
            }
            Content::Udp {
                source_port: header.source_port,
                destination_port: header.destination_port,
                payload: datagram.payload(),
            }
        }
        NEXT_SCMP => {
            let message = Scmp::decode(upper).ok_or(ParseError::Scmp)?;
            let checksum = upper.get(CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2);
            // The length fits: it is at most the payload length of the SCION header.
            let sum = scion_pseudo_header(view.address_bytes(), upper.len() as u32, NEXT_SCMP)
                .combine(Sum::of(upper));
            if checksum != Some(&[0, 0]) && !sum.is_valid() {
                return Err(ParseError::Checksum);
            }
            Content::Scmp(message)
        }
        other => return Err(ParseError::Protocol(other)),
    };
    let addresses = view.addresses();
    Ok(Packet {
        source: (addresses.source_isd_as, addresses.source),
        destination: (addresses.destination_isd_as, addresses.destination),
        path: view.path(),
        content,
    })
}

impl Packet<'_> {
    /// The underlay port at which the destination host gets the packet, as border routers choose it (see
    /// [`Scmp::underlay_port`]); outside of the AS's dispatched range, the end host port takes its place.
    #[must_use]
    pub fn underlay_port(&self) -> Option<u16> {
        match &self.content {
            Content::Udp {
                destination_port, ..
            } => Some(*destination_port),
            Content::Scmp(message) => message.underlay_port(),
        }
    }

    /// The answer to an SCMP echo request; `None` if it is something else or cannot be answered.
    #[must_use]
    pub fn echo_reply(&self) -> Option<Vec<u8>> {
        let Content::Scmp(Scmp::EchoRequest(echo)) = &self.content else {
            return None;
        };
        let asker = self.source.1.ip()?;
        if asker.is_multicast() || asker.is_unspecified() {
            return None;
        }
        let (path_type, raw_path) = reverse::reply_path(&self.path).ok()?;
        let reply = Scmp::EchoReply(echo.clone());
        scmp(self.destination, self.source, path_type, &raw_path, &reply).ok()
    }
}

#[cfg(test)]
pub(super) mod tests;
