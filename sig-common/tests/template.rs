//! The header template against the reference's frames, etherparse and our own parser.

use std::net::{IpAddr, SocketAddr};

use sig_common::wire::Error;
use sig_common::wire::checksum::Sum;
use sig_common::wire::template::{
    Endpoints, FrameFields, HeaderTemplate, NextHop, Template, TemplateError,
};
use sig_common::wire::underlay::{self, Local};

const PATH: &str = "0000200001001234660000\
                    00003f00000001010203040506003f000200000708090a0b0c";

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits
        .chunks(2)
        .map(|pair| (pair[0] << 4 | pair[1]) as u8)
        .collect()
}

fn ends(local: &str, remote: &str) -> Endpoints {
    Endpoints {
        local_isd_as: "1-ff00:0:110".parse().expect("an ISD-AS"),
        local: local.parse().expect("an address"),
        remote_isd_as: "1-ff00:0:111".parse().expect("an ISD-AS"),
        remote: remote.parse().expect("an address"),
    }
}

fn next_hop(address: &str) -> NextHop {
    NextHop {
        address: address.parse().expect("an address"),
        source_mac: [2, 0, 0, 0, 0, 1],
        destination_mac: [2, 0, 0, 0, 0, 2],
    }
}

const FIELDS: FrameFields = FrameFields {
    traffic_class: 0,
    flow_hash: 1,
    stream: 2,
    sequence: 0,
    index: 0,
};

fn frame(template: &Template, payload: &[u8], fields: &FrameFields) -> Vec<u8> {
    let mut frame = vec![0xaa; template.len()];
    frame.extend(payload);
    template
        .write(&mut frame, fields)
        .expect("room for the headers");
    frame
}

/// The reference's serialisation of a data frame, from the SCION header on.
#[test]
fn a_frame_over_ipv4_hosts_is_byte_for_byte_that_of_the_reference() {
    let ends = ends("10.0.0.1:32000", "10.0.0.2:30056");
    let template =
        Template::new(&ends, &next_hop("10.0.0.9:30042"), 1, &hex(PATH), 1).expect("a template");
    let payload = hex("4000001700000000000000000000000000000000010203");
    let expected = hex("000000011112002f010000000001ff00000001110001ff0000000110\
         0a0000020a000001000020000100123466000000003f00000001010203040506\
         003f000200000708090a0b0c7d007568002fb4e300010000000000020000000000000000\
         4000001700000000000000000000000000000000010203");
    assert_eq!(frame(&template, &payload, &FIELDS)[42..], expected);
}

#[test]
fn a_frame_over_ipv6_hosts_is_byte_for_byte_that_of_the_reference() {
    let ends = ends("[fd00::1]:32000", "[fd00::2]:30056");
    let template =
        Template::new(&ends, &next_hop("[fd00::9]:30042"), 1, &hex(PATH), 1).expect("a template");
    let payload = hex("4000001700000000000000000000000000000000010203");
    let bytes = frame(&template, &payload, &FIELDS);
    let l4 = 14 + 48 + 12 + 48 + 36;
    assert_eq!(bytes[62..74], hex("000000011118002f01330000"));
    assert_eq!(bytes[l4..l4 + 8], hex("7d007568002fcee1"));
}

#[test]
fn outer_checksums_are_right_whatever_varies() {
    for (local, remote, hop) in [
        ("10.0.0.1:30056", "10.0.0.2:30056", "10.0.0.9:30042"),
        ("[fd00::1]:30056", "[fd00::2]:30056", "[fd00::9]:30042"),
    ] {
        let template = Template::new(&ends(local, remote), &next_hop(hop), 1, &hex(PATH), 7)
            .expect("a template");
        for length in [0usize, 1, 20, 63, 64, 1376] {
            for seed in 0..64u32 {
                let payload: Vec<u8> = (0..length)
                    .map(|n| (n as u32 * 31 + seed * 7) as u8)
                    .collect();
                let fields = FrameFields {
                    traffic_class: (seed * 37) as u8,
                    flow_hash: seed.wrapping_mul(0x9e37_79b9),
                    stream: seed * 8191,
                    sequence: u64::from(seed) << 33,
                    index: if length == 0 {
                        0xffff
                    } else {
                        (seed % 60) as u16
                    },
                };
                let bytes = frame(&template, &payload, &fields);
                check_with_etherparse(&bytes, fields.traffic_class);
                let local = Local::new(
                    "1-ff00:0:111".parse().expect("an ISD-AS"),
                    remote.parse::<SocketAddr>().expect("an address").ip(),
                    30056,
                    false,
                );
                check_with_our_parser(&deliver(&bytes, remote), &local, &payload, &fields);
            }
        }
    }
}

/// What the last border router does: the outer destination becomes the remote gateway.
fn deliver(bytes: &[u8], remote: &str) -> Vec<u8> {
    let remote: SocketAddr = remote.parse().expect("an address");
    let mut bytes = bytes.to_vec();
    let udp = match remote.ip() {
        IpAddr::V4(v4) => {
            bytes[30..34].copy_from_slice(&v4.octets());
            34
        }
        IpAddr::V6(v6) => {
            bytes[38..54].copy_from_slice(&v6.octets());
            54
        }
    };
    bytes[udp + 2..udp + 4].copy_from_slice(&remote.port().to_be_bytes());
    bytes
}

fn check_with_etherparse(bytes: &[u8], traffic_class: u8) {
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};
    let packet = SlicedPacket::from_ethernet(bytes).expect("a packet");
    let Some(TransportSlice::Udp(udp)) = packet.transport else {
        panic!("UDP")
    };
    let header = udp.to_header();
    let checksum = match packet.net.expect("an IP header") {
        NetSlice::Ipv4(ip) => {
            let ip = ip.header().to_header();
            assert_eq!(ip.header_checksum, ip.calc_header_checksum());
            assert_eq!(ip.dscp.value() << 2 | ip.ecn.value(), traffic_class);
            header.calc_checksum_ipv4(&ip, udp.payload())
        }
        NetSlice::Ipv6(ip) => {
            let ip = ip.header().to_header();
            assert_eq!(ip.traffic_class, traffic_class);
            header.calc_checksum_ipv6(&ip, udp.payload())
        }
        NetSlice::Arp(_) => panic!("IP"),
    };
    assert_eq!(header.checksum, checksum.expect("a checksum"));
}

fn check_with_our_parser(bytes: &[u8], local: &Local, payload: &[u8], fields: &FrameFields) {
    let parsed = underlay::parse(bytes, local)
        .expect("well-formed")
        .expect("for us");
    assert!(parsed.checksum_is_valid(bytes));
    assert_eq!(parsed.traffic_class, fields.traffic_class);
    assert_eq!(parsed.header.sequence, fields.sequence);
    assert_eq!(parsed.header.stream, fields.stream);
    assert_eq!(parsed.header.index, fields.index);
    assert_eq!(parsed.header.session, 7);
    assert_eq!(&bytes[parsed.payload()], payload);
}

#[test]
fn the_flow_id_is_never_zero() {
    let template = Template::new(
        &ends("10.0.0.1:30056", "10.0.0.2:30056"),
        &next_hop("10.0.0.9:30042"),
        1,
        &hex(PATH),
        0,
    )
    .expect("a template");
    let fields = FrameFields {
        flow_hash: 0x5550_0000,
        ..FIELDS
    };
    assert_eq!(frame(&template, &[0; 20], &fields)[42..46], [0, 0, 0, 1]);
}

#[test]
fn the_capacity_is_what_path_and_link_leave() {
    let template = Template::new(
        &ends("10.0.0.1:30056", "10.0.0.2:30056"),
        &next_hop("10.0.0.9:30042"),
        1,
        &hex(PATH),
        0,
    )
    .expect("a template");
    // 1472 less 72 bytes of SCION header, 8 of UDP/SCION and 16 of the SIG frame header.
    assert_eq!(template.capacity(1472, 1500), 1376);
    assert_eq!(template.capacity(9000, 1500), 1376);
    assert_eq!(template.capacity(1280, 1500), 1184);
    assert_eq!(template.capacity(50, 1500), 0);
}

#[test]
fn a_template_with_less_room_holds_the_same_headers_and_no_longer_ones() {
    let ends = ends("10.0.0.1:30056", "10.0.0.2:30056");
    let hop = next_hop("10.0.0.9:30042");
    let whole = Template::new(&ends, &hop, 1, &hex(PATH), 3).expect("a template");
    let small = HeaderTemplate::<138>::new(&ends, &hop, 1, &hex(PATH), 3).expect("a template");
    assert_eq!(small.headers(), whole.headers());
    assert_eq!(size_of_val(&small), 16 + small.len(), "no padding");
    let [mut by_whole, mut by_small] = [[0x5a; 200]; 2];
    assert!(whole.write(&mut by_whole, &FIELDS).is_some());
    assert!(small.write(&mut by_small, &FIELDS).is_some());
    assert_eq!(by_whole, by_small);
    assert_eq!(
        HeaderTemplate::<136>::new(&ends, &hop, 1, &hex(PATH), 3),
        Err(TemplateError::Header(Error::NoRoom))
    );
}

#[test]
fn a_frame_shorter_than_the_headers_is_refused() {
    let ends = ends("[fd00::1]:30056", "[fd00::2]:30056");
    let template =
        Template::new(&ends, &next_hop("[fd00::9]:30042"), 1, &hex(PATH), 3).expect("a template");
    for len in 0..template.len() {
        let mut frame = vec![0; len];
        assert_eq!(template.write(&mut frame, &FIELDS), None);
        assert_eq!(template.patch(&mut frame[..], &FIELDS, Sum::ZERO, 0), None);
    }
    assert!(
        template
            .write(&mut vec![0; template.len()], &FIELDS)
            .is_some()
    );
}

#[test]
fn what_has_no_headers_is_refused() {
    let ends = ends("10.0.0.1:30056", "10.0.0.2:30056");
    let hop = next_hop("[fd00::9]:30042");
    assert_eq!(
        Template::new(&ends, &hop, 1, &hex(PATH), 0),
        Err(TemplateError::NextHopFamily(hop.address))
    );
    let hop = next_hop("10.0.0.9:30042");
    let path = hex(PATH);
    for (path_type, path, error) in [
        (1, &path[..35], Error::Path),
        (0, &path[..], Error::Path),
        (9, &path[..], Error::PathType),
    ] {
        assert_eq!(
            Template::new(&ends, &hop, path_type, path, 0),
            Err(TemplateError::Header(error))
        );
    }
}
