//! Ethernet, VLAN, IPv4, IPv6 and UDP against etherparse.

use etherparse::{
    Ethernet2Slice, Ipv4Slice, Ipv6Slice, PacketBuilder, SingleVlanSlice, UdpSlice, VlanId,
};
use proptest::prelude::*;
use sig_common::wire::ipv6::UpperLayer;
use sig_common::wire::{ethernet, ipv4, ipv6, udp};

fn same_ipv4(bytes: &[u8]) -> Result<(), TestCaseError> {
    let ours = ipv4::View::new_checked(bytes);
    // etherparse also reads an authentication header, which may be malformed.
    if ours.is_ok_and(|v| v.protocol() == 51) {
        return Ok(());
    }
    let theirs = Ipv4Slice::from_slice(bytes);
    prop_assert_eq!(ours.is_ok(), theirs.is_ok());
    let (Ok(ours), Ok(theirs)) = (ours, theirs) else {
        return Ok(());
    };
    let header = theirs.header();
    prop_assert_eq!(ours.header_len(), header.slice().len());
    prop_assert_eq!(ours.tos(), header.dcp().value() << 2 | header.ecn().value());
    prop_assert_eq!(ours.total_len(), header.total_len());
    prop_assert_eq!(ours.identification(), header.identification());
    prop_assert_eq!(ours.dont_fragment(), header.dont_fragment());
    prop_assert_eq!(ours.more_fragments(), header.more_fragments());
    prop_assert_eq!(
        ours.fragment_offset(),
        header.fragments_offset().byte_offset()
    );
    prop_assert_eq!(ours.is_fragment(), header.is_fragmenting_payload());
    prop_assert_eq!(ours.ttl(), header.ttl());
    prop_assert_eq!(ours.protocol(), header.protocol().0);
    prop_assert_eq!(ours.checksum(), header.header_checksum());
    prop_assert_eq!(ours.source(), header.source());
    prop_assert_eq!(ours.destination(), header.destination());
    prop_assert_eq!(ours.options(), header.options());
    prop_assert_eq!(ours.payload(), theirs.payload().payload);
    let valid = header.to_header().calc_header_checksum() == header.header_checksum();
    // 0xffff and 0 are the same sum; senders write the one, others may see the other.
    if header.header_checksum() != 0xffff {
        prop_assert_eq!(ours.checksum_is_valid(), valid);
    }
    Ok(())
}

fn same_ipv6(bytes: &[u8]) -> Result<(), TestCaseError> {
    let ours = ipv6::View::new_checked(bytes);
    let Ok(theirs) = Ipv6Slice::from_slice(bytes) else {
        // etherparse also reads the extension headers.
        let extensions = ours.is_ok_and(|v| {
            !matches!(v.upper_layer(), UpperLayer::At { offset: 0, .. })
                || [51, 135, 139, 140].contains(&v.next_header())
        });
        prop_assert!(extensions || ours.is_err());
        return Ok(());
    };
    if theirs.header().payload_length() == 0 {
        // There, as many bytes as there are; here, none.
        return Ok(());
    }
    prop_assert!(ours.is_ok());
    let ours = ours.unwrap();
    let header = theirs.header();
    prop_assert_eq!(ours.traffic_class(), header.traffic_class());
    prop_assert_eq!(ours.flow_label(), header.flow_label().value());
    prop_assert_eq!(ours.payload_len(), header.payload_length());
    prop_assert_eq!(ours.next_header(), header.next_header().0);
    prop_assert_eq!(ours.hop_limit(), header.hop_limit());
    prop_assert_eq!(ours.source(), header.source());
    prop_assert_eq!(ours.destination(), header.destination());
    if let UpperLayer::At { protocol, offset } = ours.upper_layer()
        && theirs.extensions().slice().len() == offset
    {
        prop_assert_eq!(protocol, theirs.payload().ip_number.0);
        prop_assert_eq!(&ours.payload()[offset..], theirs.payload().payload);
    }
    Ok(())
}

fn same_udp(bytes: &[u8]) -> Result<(), TestCaseError> {
    let ours = udp::View::new_checked(bytes);
    let theirs = UdpSlice::from_slice(bytes).ok().filter(|u| u.length() != 0);
    prop_assert_eq!(ours.is_ok(), theirs.is_some());
    if let (Ok(ours), Some(theirs)) = (ours, theirs) {
        let header = theirs.to_header();
        prop_assert_eq!(
            ours.header(),
            udp::Header {
                source_port: header.source_port,
                destination_port: header.destination_port,
                length: header.length,
                checksum: header.checksum,
            }
        );
        prop_assert_eq!(ours.payload(), theirs.payload());
        prop_assert_eq!(ours.header().encode(), header.to_bytes());
    }
    Ok(())
}

fn same_ethernet(bytes: &[u8]) -> Result<(), TestCaseError> {
    let Ok(theirs) = Ethernet2Slice::from_slice_without_fcs(bytes) else {
        prop_assert!(ethernet::View::new_checked(bytes).is_err());
        return Ok(());
    };
    let (mut ethertype, mut payload) = (theirs.ether_type().0, theirs.payload_slice());
    let mut tags = vec![];
    while tags.len() < 2 && [0x8100, 0x88a8].contains(&ethertype) {
        let Ok(tag) = SingleVlanSlice::from_slice(payload) else {
            prop_assert!(ethernet::View::new_checked(bytes).is_err());
            return Ok(());
        };
        tags.push((ethertype, tag.vlan_identifier().value()));
        (ethertype, payload) = (tag.ether_type().0, tag.payload_slice());
    }
    let ours = ethernet::View::new_checked(bytes).unwrap();
    prop_assert_eq!(ours.source(), theirs.source());
    prop_assert_eq!(ours.destination(), theirs.destination());
    prop_assert_eq!(ours.ethertype(), ethertype);
    prop_assert_eq!(ours.payload(), payload);
    let our_tags: Vec<_> = ours
        .tags()
        .iter()
        .flatten()
        .map(|t| (t.tpid, t.id()))
        .collect();
    prop_assert_eq!(our_tags, tags);
    let mut out = vec![0; bytes.len()];
    let len = ours.header().emit(&mut out).unwrap();
    prop_assert_eq!(&out[..len], &bytes[..len]);
    prop_assert_eq!(len + payload.len(), bytes.len());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes_are_read_alike(
        start in prop::sample::select(vec![0x45u8, 0x46, 0x4f, 0x44, 0x60, 0x6f, 0x50]),
        len in any::<prop::sample::Index>(),
        mut bytes in prop::collection::vec(any::<u8>(), 40..200),
        next in prop::sample::select(vec![0u8, 6, 17, 43, 44, 51, 60, 59]),
    ) {
        bytes[0] = start;
        bytes[6] = next;
        // Lengths near the truth, for both versions.
        let len = len.index(bytes.len() + 8) as u16;
        if start >> 4 == 4 {
            bytes[2..4].copy_from_slice(&len.to_be_bytes());
        } else {
            bytes[4..6].copy_from_slice(&len.to_be_bytes());
        }
        same_ipv4(&bytes)?;
        same_ipv6(&bytes)?;
        same_udp(&bytes)?;
        same_udp(&bytes[2..])?;
        same_ethernet(&bytes)?;
    }

    #[test]
    fn tags_are_read_alike(
        mut bytes in prop::collection::vec(any::<u8>(), 12..40),
        types in prop::collection::vec(
            prop::sample::select(vec![0x8100u16, 0x88a8, 0x0800, 0x9100]), 3..4),
    ) {
        for (i, ethertype) in types.iter().enumerate() {
            if let Some(at) = bytes.get_mut(12 + 4 * i..14 + 4 * i) {
                at.copy_from_slice(&ethertype.to_be_bytes());
            }
        }
        same_ethernet(&bytes)?;
    }

    #[test]
    fn what_one_builds_the_other_reads(
        payload in prop::collection::vec(any::<u8>(), 0..64),
        ports in any::<(u16, u16)>(),
        (s4, d4) in any::<([u8; 4], [u8; 4])>(),
        (s6, d6) in any::<([u8; 16], [u8; 16])>(),
        ttl in any::<u8>(),
        tag in 0u16..4096,
    ) {
        let ethernet = || PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let id = VlanId::try_new(tag).unwrap();
        let mut v4 = vec![];
        ethernet().single_vlan(id).ipv4(s4, d4, ttl).udp(ports.0, ports.1)
            .write(&mut v4, &payload).unwrap();
        let mut v6 = vec![];
        ethernet().double_vlan(id, id).ipv6(s6, d6, ttl).udp(ports.0, ports.1)
            .write(&mut v6, &payload).unwrap();

        let mut out = vec![0; 256];
        let link = ethernet::View::new_checked(&v4).unwrap();
        let ip = ipv4::View::new_checked(link.payload()).unwrap();
        prop_assert!(ip.checksum_is_valid());
        let datagram = udp::View::new_checked(ip.payload()).unwrap();
        let mut at = link.header().emit(&mut out).unwrap();
        let header = ipv4::Header {
            tos: ip.tos(),
            total_len: ip.total_len(),
            identification: ip.identification(),
            dont_fragment: ip.dont_fragment(),
            ttl: ip.ttl(),
            protocol: ip.protocol(),
            source: ip.source(),
            destination: ip.destination(),
        };
        at += header.emit(&mut out[at..]).unwrap();
        at += datagram.header().emit(&mut out[at..]).unwrap();
        out[at..at + payload.len()].copy_from_slice(datagram.payload());
        prop_assert_eq!(&out[..at + payload.len()], &v4);

        let link = ethernet::View::new_checked(&v6).unwrap();
        let ip = ipv6::View::new_checked(link.payload()).unwrap();
        let datagram = udp::View::new_checked(ip.payload()).unwrap();
        let mut at = link.header().emit(&mut out).unwrap();
        let header = ipv6::Header {
            traffic_class: ip.traffic_class(),
            flow_label: ip.flow_label(),
            payload_len: ip.payload_len(),
            next_header: ip.next_header(),
            hop_limit: ip.hop_limit(),
            source: ip.source(),
            destination: ip.destination(),
        };
        at += header.emit(&mut out[at..]).unwrap();
        at += datagram.header().emit(&mut out[at..]).unwrap();
        out[at..at + payload.len()].copy_from_slice(datagram.payload());
        prop_assert_eq!(&out[..at + payload.len()], &v6);
    }
}
