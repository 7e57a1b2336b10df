//! From captured bytes to a SIG frame, or to what else they are.

use pcap_file::DataLink;
use sig_common::addr::{HostAddr, IsdAs};
use sig_common::reason::DropReason;
use sig_common::wire::ipv6::UpperLayer;
use sig_common::wire::scion::{self, NEXT_BFD, NEXT_SCMP};
use sig_common::wire::{PROTO_TCP, PROTO_UDP, ethernet, ipv4, ipv6, sig_frame, udp};

use super::srv6::{self, Srv6};

/// What a captured packet is.
pub(super) enum Decoded<'a> {
    /// A SIG frame.
    Sig(Frame<'a>),
    /// UDP/SCION to the port of SIG frames, but no frame.
    BadFrame(Ends, DropReason),
    /// Another SCION packet, with the UDP destination port it has, if any.
    Scion(Ends, String, Option<u16>),
    /// In the underlay to the port of SIG frames, but not SCION: what is wrong.
    BadScion(String),
    /// No SCION packet, but an IPv6 packet with a segment routing header, or around another packet.
    Srv6(Srv6<'a>),
    /// A fragment of an underlay packet, which SCION does not use.
    Fragment,
    /// Anything else.
    Other,
}

/// Source and destination of a SCION packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Ends {
    pub(super) source_isd_as: IsdAs,
    pub(super) source: HostAddr,
    pub(super) destination_isd_as: IsdAs,
    pub(super) destination: HostAddr,
}

/// A SIG frame with the addresses around it.
pub(super) struct Frame<'a> {
    pub(super) ends: Ends,
    pub(super) source_port: u16,
    pub(super) destination_port: u16,
    pub(super) header: sig_frame::Header,
    pub(super) payload: &'a [u8],
    pub(super) checksum_ok: bool,
}

/// Decodes one captured packet. Any address is accepted; `ports` are the UDP/SCION destination
/// ports of SIG frames.
pub(super) fn packet<'a>(link: DataLink, data: &'a [u8], ports: &[u16]) -> Decoded<'a> {
    let Some(ip) = ip_packet(link, data) else {
        return Decoded::Other;
    };
    match scion_in(ip, ports) {
        Decoded::Other => srv6::packet(ip).map_or(Decoded::Other, Decoded::Srv6),
        Decoded::Fragment => srv6::packet(ip).map_or(Decoded::Fragment, Decoded::Srv6),
        decoded => decoded,
    }
}

/// What SCION makes of an IP packet.
fn scion_in<'a>(ip: &'a [u8], ports: &[u16]) -> Decoded<'a> {
    let datagram = match underlay(ip) {
        Underlay::Udp(datagram) => datagram,
        Underlay::Fragment => return Decoded::Fragment,
        Underlay::Other => return Decoded::Other,
    };
    // The header first: of a packet captured in part it may be all there is.
    let Some((header, payload)) = datagram.split_first_chunk() else {
        return Decoded::Other;
    };
    let outer = udp::Header::decode(header);
    let payload = match udp::View::new_checked(datagram) {
        Ok(view) => view.payload(),
        Err(_) => payload,
    };
    let scion = match scion::View::new_checked(payload) {
        Ok(scion) => scion,
        Err(error) if ports.contains(&outer.destination_port) => {
            return Decoded::BadScion(format!("not a SCION packet: {error}"));
        }
        Err(_) => return Decoded::Other,
    };
    scion_packet(&scion, ports)
}

fn scion_packet<'a>(scion: &scion::View<'a>, ports: &[u16]) -> Decoded<'a> {
    let addresses = scion.addresses();
    let ends = Ends {
        source_isd_as: addresses.source_isd_as,
        source: addresses.source,
        destination_isd_as: addresses.destination_isd_as,
        destination: addresses.destination,
    };
    let (protocol, upper) = match scion.upper_layer() {
        Ok(upper) => upper,
        Err(error) => return Decoded::Scion(ends, error.to_string(), None),
    };
    if protocol != PROTO_UDP {
        return Decoded::Scion(ends, describe(protocol, upper), None);
    }
    let udp = match scion::udp::View::new_checked(upper) {
        Ok(udp) => udp,
        Err(error) => return Decoded::Scion(ends, format!("UDP: {error}"), None),
    };
    let header = udp.header();
    if !ports.contains(&header.destination_port) {
        let text = format!(
            "UDP {} > {}, {} bytes",
            header.source_port,
            header.destination_port,
            udp.payload().len()
        );
        return Decoded::Scion(ends, text, Some(header.destination_port));
    }
    if let Ok(frame) = sig_frame::ProtectedView::new_checked(udp.payload()) {
        return Decoded::Scion(ends, protected(&frame), None);
    }
    let frame = match sig_frame::View::new_checked(udp.payload()) {
        Ok(frame) => frame,
        Err(sig_common::wire::Error::Version) => {
            return Decoded::BadFrame(ends, DropReason::BadFrameVersion);
        }
        Err(_) => return Decoded::BadFrame(ends, DropReason::BadFrameLen),
    };
    Decoded::Sig(Frame {
        ends,
        source_port: header.source_port,
        destination_port: header.destination_port,
        header: frame.header(),
        payload: frame.payload(),
        checksum_ok: udp.checksum_is_valid(scion.address_bytes()),
    })
}

/// What can be told of a frame without its key.
fn protected(frame: &sig_frame::ProtectedView<'_>) -> String {
    let (header, extension) = (frame.header(), frame.extension());
    let payload = frame.sealed().len().saturating_sub(sig_frame::TAG_LEN);
    format!(
        "protected SIG frame, session {}, stream {}, sequence {}, key {:08x}, worker {}, number {}, {payload} bytes encrypted",
        header.session,
        header.stream,
        header.sequence,
        extension.key,
        extension.lane(),
        extension.count(),
    )
}

/// The IP packet in a captured one.
fn ip_packet(link: DataLink, data: &[u8]) -> Option<&[u8]> {
    // Protocol and payload of the Linux "cooked" headers, which captures of "any" interface have.
    let cooked = |protocol: usize, payload: usize| {
        let ethertype = data.get(protocol..)?.first_chunk::<2>()?;
        let payload = data.get(payload..)?;
        matches!(
            u16::from_be_bytes(*ethertype),
            ethernet::ETHERTYPE_IPV4 | ethernet::ETHERTYPE_IPV6
        )
        .then_some(payload)
    };
    match link {
        DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 => Some(data),
        DataLink::ETHERNET => {
            let frame = ethernet::View::new_checked(data).ok()?;
            matches!(
                frame.ethertype(),
                ethernet::ETHERTYPE_IPV4 | ethernet::ETHERTYPE_IPV6
            )
            .then(|| frame.payload())
        }
        DataLink::LINUX_SLL => cooked(14, 16),
        DataLink::LINUX_SLL2 => cooked(0, 20),
        _ => None,
    }
}

enum Underlay<'a> {
    Udp(&'a [u8]),
    Fragment,
    Other,
}

/// The UDP datagram in an IP packet.
fn underlay(ip: &[u8]) -> Underlay<'_> {
    if let Ok(v4) = ipv4::View::new_checked(ip) {
        return match v4.protocol() {
            PROTO_UDP if v4.is_fragment() => Underlay::Fragment,
            PROTO_UDP => Underlay::Udp(v4.payload()),
            _ => Underlay::Other,
        };
    }
    if let Ok(v6) = ipv6::View::new_checked(ip) {
        return match v6.upper_layer() {
            UpperLayer::At {
                protocol: PROTO_UDP,
                offset,
            } => v6
                .payload()
                .get(offset..)
                .map_or(Underlay::Other, Underlay::Udp),
            UpperLayer::Fragment => Underlay::Fragment,
            _ => Underlay::Other,
        };
    }
    Underlay::Other
}

/// A few words about the upper layer of another SCION packet.
fn describe(protocol: u8, upper: &[u8]) -> String {
    match (protocol, upper) {
        (NEXT_SCMP, [kind, code, ..]) => {
            let name = match kind {
                1 => "destination unreachable",
                2 => "packet too big",
                4 => "parameter problem",
                5 => "external interface down",
                6 => "internal connectivity down",
                128 => "echo request",
                129 => "echo reply",
                130 => "traceroute request",
                131 => "traceroute reply",
                _ => return format!("SCMP type {kind} code {code}, {} bytes", upper.len()),
            };
            format!("SCMP {name}, {} bytes", upper.len())
        }
        (NEXT_SCMP, _) => "SCMP, truncated".to_owned(),
        (NEXT_BFD, _) => format!("BFD, {} bytes", upper.len()),
        (PROTO_TCP, _) => format!("TCP, {} bytes", upper.len()),
        _ => format!("protocol {protocol}, {} bytes", upper.len()),
    }
}
