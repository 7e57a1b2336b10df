//! The underlay parser and the checked views are written apart: they must agree about every frame.

mod support;

use std::net::IpAddr;

use proptest::prelude::*;
use sig_common::addr::{HostAddr, IsdAs};
use sig_common::wire::ethernet::{self, TPID_8021AD, TPID_8021Q, Tag};
use sig_common::wire::flow::flow_hash;
use sig_common::wire::inner::InnerPacket;
use sig_common::wire::underlay::{Local, Parsed, parse};
use sig_common::wire::{PROTO_UDP, inner, ipv4, ipv6, scion, sig_frame, udp};
use support::{Underlay, V1, V2, V3, V4, V5, hex};

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
    let ip = ethernet.payload();
    let (outer_tos, destination, protocol, payload): (_, IpAddr, _, _) = match ethernet.ethertype()
    {
        ethernet::ETHERTYPE_IPV4 => {
            let view = ipv4::View::new_checked(ip)
                .ok()
                .filter(|v| !v.is_fragment())?;
            (
                view.tos(),
                view.destination().into(),
                view.protocol(),
                view.payload(),
            )
        }
        ethernet::ETHERTYPE_IPV6 => {
            let view = ipv6::View::new_checked(ip).ok()?;
            (
                view.traffic_class(),
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
    let frame = sig_frame::View::new_checked(udp.payload()).ok()?;
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
        source_isd_as: addresses.source_isd_as,
        source: addresses.source,
        source_port: udp.header().source_port,
        destination_port: udp.header().destination_port,
        header: frame.header(),
    };
    assert_eq!(
        parsed.checksum_is_valid(packet),
        udp.checksum_is_valid(scion.address_bytes())
    );
    assert_eq!(&packet[parsed.payload()], frame.payload());
    Some(parsed)
}

fn check(packet: &[u8]) -> Result<(), TestCaseError> {
    for local in locals() {
        let parsed = parse(packet, &local).unwrap_or(None);
        prop_assert_eq!(parsed, by_views(packet, &local));
        if let Some(parsed) = parsed {
            prop_assert!(parsed.payload().end <= packet.len());
        }
    }
    Ok(())
}

/// Everything that takes bytes takes any bytes.
fn touch(bytes: &[u8]) {
    for offset in [0, 14, bytes.len(), bytes.len() + 1] {
        let _ = flow_hash(bytes, offset);
    }
    let _ = ipv4::View::new_checked(bytes).map(|v| v.checksum_is_valid());
    let _ = ipv6::View::new_checked(bytes).map(|v| v.upper_layer());
    let _ = scion::View::new_checked(bytes).map(|v| v.upper_layer().map(|_| ()));
    let mut copy = bytes.to_vec();
    let summary = InnerPacket::parse(bytes);
    let decremented = inner::decrement_ttl(&mut copy);
    inner::set_tos(&mut copy, 0xff);
    if let Ok(summary) = summary {
        assert!(usize::from(summary.total_len) <= bytes.len());
        assert_eq!(decremented, summary.ttl > 1);
        let after = InnerPacket::parse(&copy).unwrap();
        assert_eq!(
            after,
            InnerPacket {
                tos: 0xff,
                ttl: summary.ttl - u8::from(decremented),
                ..summary
            }
        );
        if let (Ok(before), Ok(after)) = (
            ipv4::View::new_checked(bytes),
            ipv4::View::new_checked(&copy),
        ) {
            // A wrong checksum is not mended.
            assert_eq!(before.checksum_is_valid(), after.checksum_is_valid());
        }
    }
}

prop_compose! {
    /// A good packet with some bytes changed, cut or padded.
    fn mutant()(
        vector in prop::sample::select(vec![V1, V1, V1, V2, V2, V3, V4, V5]),
        ipv6 in any::<bool>(),
        port in prop::sample::select(vec![30056u16, 30056, 30041, 30256]),
        tags in 0usize..3,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        len in prop::option::weighted(0.2, any::<prop::sample::Index>()),
        padding in 0usize..8,
        matching in prop::bool::weighted(0.9),
    ) -> Vec<u8> {
        let scion = hex(vector);
        // The underlay mostly has the family of the addresses.
        let ipv6 = if matching { vector == V2 } else { ipv6 };
        let mut underlay = Underlay::to(if ipv6 { "fd00::2" } else { "10.0.0.2" }, port);
        for (i, tag) in underlay.tags.iter_mut().take(tags).enumerate() {
            *tag = Some(Tag { tpid: [TPID_8021AD, TPID_8021Q][i], tci: 5 });
        }
        let mut packet = underlay.wrap(&scion);
        for (at, value) in changes {
            let at = at.index(packet.len());
            packet[at] = value;
        }
        if let Some(len) = len {
            packet.truncate(len.index(packet.len()));
        }
        packet.resize(packet.len() + padding, 0x5a);
        packet
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn parser_and_views_agree_about_damaged_packets(packet in mutant()) {
        check(&packet)?;
        touch(&packet);
        touch(packet.get(14..).unwrap_or_default());
        touch(packet.get(42..).unwrap_or_default());
    }

    #[test]
    fn parser_and_views_agree_about_any_bytes(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        start in prop::sample::select(vec![&[][..], &[0x45], &[0x60], &[0, 0, 0, 1]]),
    ) {
        let bytes = [start, &bytes].concat();
        check(&bytes)?;
        touch(&bytes);
    }

    #[test]
    fn any_bytes_behind_the_outer_headers_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        fixed in prop::bool::ANY,
    ) {
        let mut packet = Underlay::to("10.0.0.2", 30056).wrap(&bytes);
        if fixed && bytes.len() > 40 {
            let good = hex(V1);
            packet[42..42 + 36].copy_from_slice(&good[..36]);
            packet[42 + 5] = 4 * (bytes[5] % 20);
        }
        check(&packet)?;
    }
}

#[test]
fn every_change_of_one_byte_gets_the_same_verdict_from_parser_and_views() {
    for (vector, destination) in [(V1, "10.0.0.2"), (V2, "fd00::2")] {
        let good = Underlay::to(destination, 30056).wrap(&hex(vector));
        for at in 0..good.len() {
            let mut packet = good.clone();
            for value in 0..=255 {
                packet[at] = value;
                check(&packet).unwrap_or_else(|e| panic!("byte {at} = {value}: {e}"));
            }
        }
    }
}
