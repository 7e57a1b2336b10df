//! As text, and as JSON.

use std::fmt::{self, Display, Formatter};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use serde::Serialize;
use sig_common::wire::inner::InnerPacket;
use sig_common::wire::srv6::{NEXT_IPV4, NEXT_IPV6, Problem, Tlv, View};
use sig_common::wire::{PROTO_ICMP, PROTO_ICMPV6, PROTO_SCTP, PROTO_TCP, PROTO_UDP, ethernet};

use super::super::capture::Packet;
use super::{Inner, Routing, Srv6};

/// Next header value where nothing follows.
const NO_NEXT_HEADER: u8 = 59;

/// The packet in one line.
pub(in super::super) fn text(packet: &Srv6<'_>) -> impl Display {
    fmt::from_fn(move |f| {
        let (source, destination) = (packet.source(), packet.destination());
        let hop_limit = packet.ip.hop_limit();
        write!(f, "{source} > {destination}  hop limit {hop_limit} ")?;
        match &packet.routing {
            Routing::None => write!(f, "no SRH")?,
            Routing::Srh(view) => srh(f, view, destination)?,
            Routing::Malformed {
                problem,
                pointer,
                fixed: [_, words, _, segments_left, last_entry, ..],
            } => {
                let len = (u16::from(*words) + 1) * 8;
                return write!(
                    f,
                    "malformed SRH: {problem} (segments left {segments_left}, last entry {last_entry}, {len} bytes), \
                     an ICMPv6 error points at byte {pointer}"
                );
            }
        }
        write!(f, "  {}", packet.inner)
    })
}

fn srh(f: &mut Formatter<'_>, srh: &View<'_>, destination: Ipv6Addr) -> fmt::Result {
    write!(f, "segments")?;
    for (i, segment) in srh.travel(destination.octets()).enumerate() {
        let segment = Ipv6Addr::from(segment);
        match i == srh.active_index() {
            true => write!(f, " [{segment}]")?,
            false => write!(f, " {segment}")?,
        }
    }
    write!(f, " left {}", srh.segments_left())?;
    if srh.is_first_left_out() {
        write!(f, ", the first not in the list")?;
    } else if srh.active() != Some(destination.octets()) {
        write!(f, ", the destination is another address")?;
    }
    if srh.tag() != 0 {
        write!(f, ", tag {:#06x}", srh.tag())?;
    }
    if srh.flags() != 0 {
        write!(f, ", flags {:#04x}", srh.flags())?;
    }
    for tlv in srh.tlvs() {
        match tlv {
            Ok(Tlv::Pad1 | Tlv::PadN(_)) => {}
            Ok(Tlv::Hmac(hmac)) => {
                write!(
                    f,
                    ", HMAC of {} bytes, key {:#x}",
                    hmac.mac.len(),
                    hmac.key_id
                )?;
                if hmac.destination_is_unverified() {
                    write!(f, ", D")?;
                }
            }
            Ok(Tlv::Other { kind, value }) => {
                write!(f, ", TLV {kind} of {} bytes", value.len())?;
            }
            Err(problem) => write!(f, ", {problem}")?,
        }
    }
    Ok(())
}

impl Display for Inner {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => write!(f, "not decoded"),
            Self::Fragment => write!(f, "a fragment"),
            Self::Ip(packet) => ip(f, packet),
            Self::Ethernet { header, ip, len } => ethernet(f, header, ip.as_ref(), *len),
            Self::Upper {
                protocol: NO_NEXT_HEADER,
                ..
            } => write!(f, "nothing inside"),
            Self::Upper {
                protocol,
                ports,
                len,
            } => {
                write!(f, "{}", protocol_name(*protocol))?;
                if let Some([source, destination]) = ports {
                    write!(f, " {source} > {destination}")?;
                }
                write!(f, ", {len} bytes")
            }
            Self::Broken {
                protocol,
                error,
                len,
            } => {
                let name = match *protocol {
                    NEXT_IPV4 => "IPv4",
                    NEXT_IPV6 => "IPv6",
                    _ => "Ethernet",
                };
                write!(f, "{name}, malformed: {error}, {len} bytes")
            }
        }
    }
}

fn ip(f: &mut Formatter<'_>, packet: &InnerPacket) -> fmt::Result {
    let (source, destination) = (packet.source, packet.destination);
    let version = if source.is_ipv4() { "IPv4" } else { "IPv6" };
    match packet.ports() {
        Some([from, to]) => {
            let (source, destination) = (
                SocketAddr::new(source, from),
                SocketAddr::new(destination, to),
            );
            write!(f, "{version} {source} > {destination}")?;
        }
        None => write!(f, "{version} {source} > {destination}")?,
    }
    match packet.upper_protocol() {
        Some(protocol) => write!(f, " {}", protocol_name(protocol))?,
        None => write!(f, " a fragment or unknown")?,
    }
    if packet.is_later_fragment {
        write!(f, ", a later fragment")?;
    }
    write!(f, ", {} bytes", packet.total_len)
}

fn ethernet(
    f: &mut Formatter<'_>,
    header: &ethernet::Header,
    inner: Option<&InnerPacket>,
    len: usize,
) -> fmt::Result {
    write!(
        f,
        "Ethernet {} > {}",
        mac(header.source),
        mac(header.destination)
    )?;
    for tag in header.tags.iter().flatten() {
        write!(f, " VLAN {}", tag.id())?;
    }
    match inner {
        Some(packet) => {
            write!(f, ", ")?;
            ip(f, packet)
        }
        None => write!(f, ", EtherType {:#06x}, {len} bytes", header.ethertype),
    }
}

fn mac(address: [u8; 6]) -> String {
    address.map(|byte| format!("{byte:02x}")).join(":")
}

fn protocol_name(protocol: u8) -> String {
    match protocol {
        PROTO_TCP => "TCP",
        PROTO_UDP => "UDP",
        PROTO_SCTP => "SCTP",
        PROTO_ICMP => "ICMP",
        PROTO_ICMPV6 => "ICMPv6",
        _ => return format!("protocol {protocol}"),
    }
    .to_owned()
}

/// The packet as a JSON object.
#[derive(Serialize)]
pub(in super::super) struct Json {
    kind: &'static str,
    time: f64,
    packet: u64,
    src: Ipv6Addr,
    dst: Ipv6Addr,
    traffic_class: u8,
    flow_label: u32,
    hop_limit: u8,
    segments: Option<Vec<Ipv6Addr>>,
    active: Option<usize>,
    reduced: Option<bool>,
    segments_left: Option<u8>,
    last_entry: Option<u8>,
    flags: Option<u8>,
    tag: Option<u16>,
    tlvs: Option<Vec<JsonTlv>>,
    next_header: u8,
    inner: Option<JsonInner>,
    error: Option<String>,
}

#[derive(Serialize)]
struct JsonTlv {
    #[serde(rename = "type")]
    kind: u8,
    length: usize,
    key_id: Option<u32>,
    d: Option<bool>,
    value: Option<String>,
}

#[derive(Default, Serialize)]
struct JsonInner {
    kind: &'static str,
    src_mac: Option<String>,
    dst_mac: Option<String>,
    vlans: Option<Vec<u16>>,
    ethertype: Option<u16>,
    src: Option<IpAddr>,
    dst: Option<IpAddr>,
    protocol: Option<u8>,
    src_port: Option<u16>,
    dst_port: Option<u16>,
    length: Option<usize>,
}

/// The packet, captured as `captured`.
pub(in super::super) fn json(captured: &Packet, packet: &Srv6<'_>) -> Json {
    let destination = packet.destination();
    let mut object = Json {
        kind: "srv6",
        time: captured.seconds(),
        packet: captured.number,
        src: packet.source(),
        dst: destination,
        traffic_class: packet.ip.traffic_class(),
        flow_label: packet.ip.flow_label(),
        hop_limit: packet.ip.hop_limit(),
        segments: None,
        active: None,
        reduced: None,
        segments_left: None,
        last_entry: None,
        flags: None,
        tag: None,
        tlvs: None,
        next_header: packet.ip.next_header(),
        inner: json_inner(&packet.inner),
        error: None,
    };
    match &packet.routing {
        Routing::None => object.kind = "ipv6_tunnel",
        Routing::Srh(srh) => {
            let segments = srh.travel(destination.octets()).map(Ipv6Addr::from);
            let tlvs: Result<Vec<_>, _> = srh.tlvs().collect();
            object.segments = Some(segments.collect());
            object.active = Some(srh.active_index());
            object.reduced = Some(srh.is_first_left_out());
            object.segments_left = Some(srh.segments_left());
            object.last_entry = Some(srh.last_entry());
            object.flags = Some(srh.flags());
            object.tag = Some(srh.tag());
            object.tlvs = Some(srh.tlvs().map_while(Result::ok).map(json_tlv).collect());
            object.next_header = srh.next_header();
            object.error = tlvs.err().map(|problem: Problem| problem.to_string());
        }
        Routing::Malformed {
            problem,
            fixed: [next_header, _, _, segments_left, last_entry, ..],
            ..
        } => {
            object.segments_left = Some(*segments_left);
            object.last_entry = Some(*last_entry);
            object.next_header = *next_header;
            object.error = Some(problem.to_string());
        }
    }
    if let Inner::Broken { error, .. } = &packet.inner {
        object.error.get_or_insert(error.to_string());
    }
    object
}

fn json_tlv(tlv: Tlv<'_>) -> JsonTlv {
    let hex = |value: &[u8]| value.iter().map(|byte| format!("{byte:02x}")).collect();
    let (kind, key_id, d, value) = match tlv {
        Tlv::Pad1 => (0, None, None, None),
        Tlv::PadN(_) => (4, None, None, None),
        Tlv::Hmac(hmac) => (
            5,
            Some(hmac.key_id),
            Some(hmac.destination_is_unverified()),
            Some(hex(hmac.mac)),
        ),
        Tlv::Other { kind, value } => (kind, None, None, Some(hex(value))),
    };
    JsonTlv {
        kind,
        length: tlv.len(),
        key_id,
        d,
        value,
    }
}

fn json_inner(inner: &Inner) -> Option<JsonInner> {
    let of_ip = |packet: &InnerPacket| JsonInner {
        kind: if packet.source.is_ipv4() {
            "ipv4"
        } else {
            "ipv6"
        },
        src: Some(packet.source),
        dst: Some(packet.destination),
        protocol: packet.upper_protocol(),
        src_port: packet.ports().map(|[source, _]| source),
        dst_port: packet.ports().map(|[_, destination]| destination),
        length: Some(packet.total_len.into()),
        ..JsonInner::default()
    };
    Some(match inner {
        Inner::Unknown => return None,
        Inner::Ip(packet) => of_ip(packet),
        Inner::Ethernet { header, ip, len } => JsonInner {
            kind: "ethernet",
            src_mac: Some(mac(header.source)),
            dst_mac: Some(mac(header.destination)),
            vlans: Some(header.tags.iter().flatten().map(|tag| tag.id()).collect()),
            ethertype: Some(header.ethertype),
            length: Some(*len),
            ..ip.as_ref().map(of_ip).unwrap_or_default()
        },
        Inner::Upper {
            protocol,
            ports,
            len,
        } => JsonInner {
            kind: "upper_layer",
            protocol: Some(*protocol),
            src_port: ports.map(|[source, _]| source),
            dst_port: ports.map(|[_, destination]| destination),
            length: Some(*len),
            ..JsonInner::default()
        },
        Inner::Fragment => JsonInner {
            kind: "fragment",
            ..JsonInner::default()
        },
        Inner::Broken { protocol, len, .. } => JsonInner {
            kind: match *protocol {
                NEXT_IPV4 => "ipv4",
                NEXT_IPV6 => "ipv6",
                _ => "ethernet",
            },
            length: Some(*len),
            ..JsonInner::default()
        },
    })
}
