//! What holds for any bytes; shared with the fuzz target `scion_header`.

use std::net::IpAddr;

use sig_common::addr::{HostAddr, IsdAs};
use sig_common::wire::flow::flow_hash;
use sig_common::wire::inner::InnerPacket;
use sig_common::wire::ipv6::UpperLayer;
use sig_common::wire::scion::path::{Path, ScionPath};
use sig_common::wire::underlay::{Local, Parsed, parse};
use sig_common::wire::{Error, PROTO_SCTP, PROTO_TCP, PROTO_UDP};
use sig_common::wire::{ethernet, ipv4, ipv6, scion, sig_frame, udp};

fn locals() -> [Local; 2] {
    ["10.0.0.2", "fd00::2"].map(|host| {
        Local::new(
            IsdAs::new(1, 0xff00_0000_0111),
            host.parse().unwrap(),
            30056,
            true,
        )
    })
}

/// Where `part` starts in `packet`.
fn offset(packet: &[u8], part: &[u8]) -> u16 {
    (part.as_ptr().addr() - packet.as_ptr().addr()) as u16
}

/// The parser once more, by the views. `None` is all that is not a frame for us.
fn by_views(packet: &[u8], local: &Local) -> Option<Parsed> {
    let ethernet = ethernet::View::new_checked(packet).ok()?;
    let is_priority = |tag: &ethernet::Tag| tag.tpid == ethernet::TPID_8021Q && tag.id() == 0;
    if ethernet
        .tags()
        .into_iter()
        .flatten()
        .enumerate()
        .any(|(i, tag)| i > 0 || !is_priority(&tag))
    {
        return None;
    }
    let ip = ethernet.payload();
    let (outer_tos, underlay_source, destination, protocol, payload): (_, _, IpAddr, _, _) =
        match ethernet.ethertype() {
            ethernet::ETHERTYPE_IPV4 => {
                let view = ipv4::View::new_checked(ip)
                    .ok()
                    .filter(|v| !v.is_fragment())?;
                (
                    view.tos(),
                    HostAddr::V4(view.source()),
                    view.destination().into(),
                    view.protocol(),
                    view.payload(),
                )
            }
            ethernet::ETHERTYPE_IPV6 => {
                let view = ipv6::View::new_checked(ip).ok()?;
                (
                    view.traffic_class(),
                    HostAddr::V6(view.source()),
                    view.destination().into(),
                    view.next_header(),
                    view.payload(),
                )
            }
            _ => return None,
        };
    if protocol != PROTO_UDP || local.host().ip() != Some(destination) {
        return None;
    }
    let outer_udp = udp::View::new_checked(payload).ok()?;
    if ![local.data_port(), scion::ENDHOST_PORT].contains(&outer_udp.header().destination_port) {
        return None;
    }
    let scion = scion::View::new_checked(outer_udp.payload()).ok()?;
    let addresses = scion.addresses();
    if addresses.destination_isd_as != local.isd_as()
        || addresses.destination != local.host()
        || matches!(addresses.source, HostAddr::Svc(_))
    {
        return None;
    }
    let (protocol, upper) = scion.upper_layer().ok()?;
    if protocol != PROTO_UDP {
        return None;
    }
    let udp = scion::udp::View::new_checked(upper).ok()?;
    if udp.header().destination_port != local.data_port() {
        return None;
    }
    let frame = udp.payload();
    let (header, is_protected) = match sig_frame::View::new_checked(frame) {
        Ok(view) => (view.header(), false),
        Err(_) => (
            sig_frame::ProtectedView::new_checked(frame).ok()?.header(),
            true,
        ),
    };
    let header_start = offset(packet, outer_udp.payload());
    let parsed = Parsed {
        ip: offset(packet, ip),
        scion: header_start,
        path: header_start + 12 + scion.address_bytes().len() as u16,
        l4: offset(packet, upper),
        frame: offset(packet, udp.payload()),
        frame_len: udp.payload().len() as u16,
        outer_tos,
        traffic_class: scion.common().traffic_class,
        path_type: scion.common().path_type,
        underlay_source,
        source_isd_as: addresses.source_isd_as,
        source: addresses.source,
        source_port: udp.header().source_port,
        destination_port: udp.header().destination_port,
        header,
        is_protected,
    };
    assert_eq!(
        parsed.checksum_is_valid(packet),
        udp.checksum_is_valid(scion.address_bytes())
    );
    assert_eq!(packet[parsed.payload()], frame[sig_frame::HEADER_LEN..]);
    Some(parsed)
}

/// Parser and views say the same of `packet`.
pub fn check(packet: &[u8]) {
    for local in locals() {
        let parsed = parse(packet, &local).unwrap_or(None);
        assert_eq!(parsed, by_views(packet, &local), "{packet:02x?}");
        if let Some(parsed) = parsed {
            assert!(parsed.payload().end <= packet.len());
        }
    }
}

/// Everything that takes bytes takes any bytes.
pub fn touch(bytes: &[u8]) {
    let _ = ipv4::View::new_checked(bytes).map(|v| v.checksum_is_valid());
    let _ = ipv6::View::new_checked(bytes).map(|v| v.upper_layer());
    if let Ok(view) = scion::View::new_checked(bytes) {
        let _ = view.upper_layer();
        emit_again(bytes, &view);
    }
    let summary = InnerPacket::parse(bytes);
    let read = summary.as_ref().map(Summary::of).map_err(|error| *error);
    assert_eq!(read, inner_by_views(bytes), "{bytes:02x?}");
    if let Ok(summary) = summary {
        assert!(usize::from(summary.total_len) <= bytes.len());
        let _ = flow_hash(&summary);
        let (mut after, mut copy) = (summary, bytes.to_vec());
        let decremented = after.decrement_ttl(&mut copy[..]);
        assert_eq!(decremented, summary.ttl > 1);
        after.set_tos(&mut copy[..], 0xff);
        let mut expected = summary;
        expected.tos = 0xff;
        expected.ttl -= u8::from(decremented);
        assert_eq!(after, expected);
        assert_eq!(InnerPacket::parse(&copy[..]), Ok(expected));
        if let (Ok(before), Ok(after)) = (
            ipv4::View::new_checked(bytes),
            ipv4::View::new_checked(&copy),
        ) {
            // A wrong checksum is not mended.
            assert_eq!(before.checksum_is_valid(), after.checksum_is_valid());
        }
    }
}

/// What a summary says.
#[derive(Debug, PartialEq)]
struct Summary {
    source: IpAddr,
    destination: IpAddr,
    total_len: u16,
    header_len: u8,
    tos: u8,
    ttl: u8,
    protocol: u8,
    upper: UpperLayer,
    ports: Option<[u16; 2]>,
    is_later_fragment: bool,
}

impl Summary {
    fn of(packet: &InnerPacket) -> Self {
        Summary {
            source: packet.source,
            destination: packet.destination,
            total_len: packet.total_len,
            header_len: packet.header_len,
            tos: packet.tos,
            ttl: packet.ttl,
            protocol: packet.protocol,
            upper: packet.upper(),
            ports: packet.ports(),
            is_later_fragment: packet.is_later_fragment,
        }
    }
}

/// The summary once more, by the views.
fn inner_by_views(packet: &[u8]) -> Result<Summary, Error> {
    let ports = |upper, payload: &[u8], offset: usize| match upper {
        UpperLayer::At {
            protocol: PROTO_TCP | PROTO_UDP | PROTO_SCTP,
            ..
        } => {
            let ports = payload.get(offset..)?.first_chunk::<4>()?;
            let (source, destination) = ports.split_at(2);
            let port = |bytes: &[u8]| u16::from_be_bytes(bytes.try_into().unwrap());
            Some([port(source), port(destination)])
        }
        _ => None,
    };
    let version = packet.first().ok_or(Error::Truncated)? >> 4;
    if version == 6 {
        let view = ipv6::View::new_checked(packet)?;
        let (upper, at) = match view.upper_layer() {
            UpperLayer::At { protocol, offset } => {
                let behind = offset + ipv6::HEADER_LEN;
                let upper = UpperLayer::At {
                    protocol,
                    offset: behind,
                };
                (upper, offset)
            }
            upper => (upper, 0),
        };
        return Ok(Summary {
            source: view.source().into(),
            destination: view.destination().into(),
            total_len: view.payload_len().checked_add(40).ok_or(Error::Length)?,
            header_len: 40,
            tos: view.traffic_class(),
            ttl: view.hop_limit(),
            protocol: view.next_header(),
            upper,
            ports: ports(upper, view.payload(), at),
            is_later_fragment: false,
        });
    }
    if version != 4 {
        return Err(Error::Version);
    }
    let view = ipv4::View::new_checked(packet)?;
    let upper = if view.is_fragment() {
        UpperLayer::Fragment
    } else {
        UpperLayer::At {
            protocol: view.protocol(),
            offset: view.header_len(),
        }
    };
    Ok(Summary {
        source: view.source().into(),
        destination: view.destination().into(),
        total_len: view.total_len(),
        header_len: view.header_len() as u8,
        tos: view.tos(),
        ttl: view.ttl(),
        protocol: view.protocol(),
        upper,
        ports: ports(upper, view.payload(), 0),
        is_later_fragment: view.fragment_offset() != 0,
    })
}

/// What was read is written again byte for byte, but for reserved fields.
fn emit_again(bytes: &[u8], view: &scion::View<'_>) {
    let mut out = [0; scion::MAX_HEADER_LEN];
    let len = view
        .header()
        .emit(&mut out)
        .expect("it was read from a header");
    assert_eq!(out[..10], bytes[..10]);
    let packet = [&out[..len], &bytes[len..]].concat();
    let again = scion::View::new_checked(&packet).unwrap();
    assert_eq!(again.common(), view.common());
    assert_eq!(again.addresses(), view.addresses());
    assert_eq!(again.path(), view.path());
    if let Path::Scion(path) | Path::Epic(_, path) = view.path() {
        assert_eq!(path.infos().count(), path.meta().infos());
        assert_eq!(path.hops().count(), path.meta().hops());
        let len = path.emit_reversed(&mut out).unwrap();
        let reversed = ScionPath::new_checked(&out[..len]).unwrap();
        let mut back = [0; scion::MAX_HEADER_LEN];
        let len = reversed.emit_reversed(&mut back).unwrap();
        // The first byte behind the pointers has reserved bits.
        let mut expected = path.bytes().to_vec();
        expected[1] &= 0x03;
        assert_eq!(back[..len], expected);
    }
}
