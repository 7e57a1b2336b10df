//! Packets on their way along segments.

use std::net::Ipv6Addr;

use serde_json::{Value, json};
use sig_common::wire::ipv6;
use sig_common::wire::srv6::{Header, Hmac, NEXT_ETHERNET, NEXT_IPV4, NEXT_IPV6, Tlv};

use super::*;

const FIRST: &str = "fc00:2::e";
const LAST: &str = "fc00:3::d6";

fn address(text: &str) -> [u8; 16] {
    text.parse::<Ipv6Addr>().unwrap().octets()
}

/// An IPv6 packet from fc00:a::1.
fn outer(destination: &str, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let header = ipv6::Header {
        traffic_class: 0xb8,
        flow_label: 0x12345,
        payload_len: payload.len() as u16,
        next_header,
        hop_limit: 63,
        source: address("fc00:a::1"),
        destination: address(destination),
    };
    let mut packet = vec![0; ipv6::HEADER_LEN];
    header.emit(&mut packet).unwrap();
    packet.extend(payload);
    packet
}

/// An SRH through both segments, and what is behind it.
fn srh(next_header: u8, reduced: bool, tag: u16, tlvs: &[Tlv<'_>], inner: &[u8]) -> Vec<u8> {
    let segments = [address(FIRST), address(LAST)];
    let header = Header {
        next_header,
        segments: &segments,
        reduced,
        flags: 0,
        tag,
        tlvs,
    };
    let mut bytes = vec![0; header.len().unwrap()];
    header.emit(&mut bytes).unwrap();
    bytes.extend(inner);
    bytes
}

fn encapsulated(inner: &[u8]) -> Vec<u8> {
    outer(FIRST, ipv6::ROUTING, &srh(NEXT_IPV4, false, 0, &[], inner))
}

/// A UDP datagram of IPv6, from port 5000 to 53.
fn datagram() -> Vec<u8> {
    let udp = udp::Header {
        source_port: 5000,
        destination_port: 53,
        length: 16,
        checksum: 0,
    };
    let mut packet = outer("fd00::2", PROTO_UDP, &[&udp.encode()[..], &[7; 8]].concat());
    packet[8..24].copy_from_slice(&address("fd00::1"));
    packet
}

/// The lines about these packets, without number, time and sums.
fn lines(packets: &[Vec<u8>], arguments: &[&str]) -> Vec<String> {
    let file = File::with(&pcap(packets));
    let text = good(&[&[&file.0[..]], arguments].concat());
    text.lines()
        .take_while(|line| !line.is_empty())
        .map(|line| line.get(21..).unwrap_or_default().to_owned())
        .collect()
}

fn objects(packets: &[Vec<u8>], arguments: &[&str]) -> Vec<Value> {
    let file = File::with(&pcap(packets));
    let text = good(&[&[&file.0[..], "--json"], arguments].concat());
    let parse = |line| serde_json::from_str(line).unwrap();
    text.lines().map(parse).collect()
}

#[test]
fn are_shown_with_their_segments_and_the_packet_inside() {
    let mac: [u8; 32] = [0xab; 32];
    let tlvs = [
        Tlv::Hmac(Hmac::new(true, 0x10, &mac)),
        Tlv::Other {
            kind: 124,
            value: &[1, 2, 3],
        },
    ];
    let frame = [
        &[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x81, 0, 0, 5, 8, 0][..],
        &inner(60, 0),
    ]
    .concat();
    let arp = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1, 8, 6], &[0; 28]].concat();
    let mut later = encapsulated(&inner(100, 0));
    later[43] = 0;
    later[24..40].copy_from_slice(&address(LAST));
    let mut elsewhere = encapsulated(&inner(100, 0));
    elsewhere[24..40].copy_from_slice(&address(LAST));
    let in_options = [
        &[ipv6::ROUTING, 0, 1, 4, 0, 0, 0, 0][..],
        &srh(59, false, 0, &[], &[]),
    ];
    let packets = [
        outer(
            FIRST,
            ipv6::ROUTING,
            &srh(NEXT_IPV6, false, 0, &[], &datagram()),
        ),
        encapsulated(&inner(100, 0)),
        later,
        elsewhere,
        outer(
            FIRST,
            ipv6::ROUTING,
            &srh(NEXT_IPV4, true, 0x1234, &tlvs, &inner(100, 0)),
        ),
        outer(
            FIRST,
            ipv6::ROUTING,
            &srh(NEXT_ETHERNET, false, 0, &[], &frame),
        ),
        outer(
            FIRST,
            ipv6::ROUTING,
            &srh(NEXT_ETHERNET, false, 0, &[], &arp),
        ),
        outer(
            FIRST,
            ipv6::ROUTING,
            &srh(PROTO_UDP, false, 0, &[], &datagram()[40..]),
        ),
        outer(
            FIRST,
            ipv6::ROUTING,
            &srh(ipv6::FRAGMENT, false, 0, &[], &[0; 16]),
        ),
        outer(FIRST, ipv6::DESTINATION, &in_options.concat()),
    ];
    let head = "fc00:a::1 > fc00:2::e  hop limit 63 segments [fc00:2::e] fc00:3::d6 left 1";
    let ipv4 = "IPv4 10.1.0.1 > 10.2.0.1 protocol 253";
    assert_eq!(
        lines(&packets, &[]),
        [
            format!("{head}  IPv6 [fd00::1]:5000 > [fd00::2]:53 UDP, 56 bytes"),
            format!("{head}  {ipv4}, 100 bytes"),
            format!(
                "fc00:a::1 > fc00:3::d6  hop limit 63 segments fc00:2::e [fc00:3::d6] left 0  {ipv4}, 100 bytes"
            ),
            format!(
                "fc00:a::1 > fc00:3::d6  hop limit 63 segments [fc00:2::e] fc00:3::d6 left 1, \
                 the destination is another address  {ipv4}, 100 bytes"
            ),
            format!(
                "{head}, the first not in the list, tag 0x1234, HMAC of 32 bytes, key 0x10, D, \
                 TLV 124 of 3 bytes  {ipv4}, 100 bytes"
            ),
            format!(
                "{head}  Ethernet 02:00:00:00:00:01 > 02:00:00:00:00:02 VLAN 5, {ipv4}, 60 bytes"
            ),
            format!(
                "{head}  Ethernet 02:00:00:00:00:01 > ff:ff:ff:ff:ff:ff, EtherType 0x0806, 42 bytes"
            ),
            format!("{head}  UDP 5000 > 53, 16 bytes"),
            format!("{head}  a fragment"),
            format!("{head}  nothing inside"),
        ]
    );
}

#[test]
fn are_told_what_is_malformed() {
    let mut left = encapsulated(&inner(100, 0));
    left[43] = 3;
    let mut last = encapsulated(&inner(100, 0));
    last[44] = 2;
    let mut length = encapsulated(&[]);
    length[41] = 5;
    let mut tlv = outer(
        FIRST,
        ipv6::ROUTING,
        &srh(
            NEXT_IPV4,
            false,
            0,
            &[Tlv::Other {
                kind: 9,
                value: &[0; 6],
            }],
            &inner(100, 0),
        ),
    );
    tlv[40 + 40 + 1] = 7;
    let mut no_packet = encapsulated(&inner(100, 0));
    no_packet[80] = 0x65;
    let packets = [left, last, length, tlv, no_packet];
    let head = "fc00:a::1 > fc00:2::e  hop limit 63";
    let segments = "segments [fc00:2::e] fc00:3::d6 left 1";
    assert_eq!(
        lines(&packets, &[]),
        [
            format!(
                "{head} malformed SRH: more segments left than there are (segments left 3, last entry 1, 40 bytes), \
                 an ICMPv6 error points at byte 43"
            ),
            format!(
                "{head} malformed SRH: the segment list is longer than the header (segments left 1, last entry 2, \
                 40 bytes), an ICMPv6 error points at byte 43"
            ),
            format!(
                "{head} malformed SRH: longer than the packet (segments left 1, last entry 1, 48 bytes), an ICMPv6 \
                 error points at byte 43"
            ),
            format!(
                "{head} {segments}, malformed TLV  IPv4 10.1.0.1 > 10.2.0.1 protocol 253, 100 bytes"
            ),
            format!("{head} {segments}  IPv4, malformed: unexpected version, 100 bytes"),
        ]
    );
    let errors: Vec<_> = objects(&packets, &[])
        .iter()
        .map(|object| object["error"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(
        errors,
        [
            "more segments left than there are",
            "the segment list is longer than the header",
            "longer than the packet",
            "malformed TLV",
            "unexpected version",
        ]
    );
    let file = File::with(&pcap(&packets));
    let text = good(&[&file.0]);
    assert!(
        text.contains("\n  SRv6 packets       5  4 of them malformed\n"),
        "{text}"
    );
    assert!(!text.contains("No SIG frames"), "{text}");
}

#[test]
fn without_srh_are_shown_on_demand() {
    let frame = [&[2; 12][..], &[8, 0], &inner(60, 0)].concat();
    let packets = [
        outer(LAST, NEXT_IPV4, &inner(100, 0)),
        outer(LAST, NEXT_IPV6, &datagram()),
        outer(LAST, NEXT_ETHERNET, &frame),
        datagram(),
    ];
    assert_eq!(objects(&packets, &[]), [] as [Value; 0]);
    let head = "fc00:a::1 > fc00:3::d6  hop limit 63 no SRH";
    assert_eq!(
        lines(&packets, &["--all"]),
        [
            format!("{head}  IPv4 10.1.0.1 > 10.2.0.1 protocol 253, 100 bytes"),
            format!("{head}  IPv6 [fd00::1]:5000 > [fd00::2]:53 UDP, 56 bytes"),
            format!(
                "{head}  Ethernet 02:02:02:02:02:02 > 02:02:02:02:02:02, IPv4 10.1.0.1 > 10.2.0.1 protocol 253, \
                 60 bytes"
            ),
        ]
    );
    let objects = objects(&packets, &["--all"]);
    assert_eq!(objects.len(), 3);
    assert_eq!(objects[0]["kind"], "ipv6_tunnel");
    assert_eq!(objects[0]["segments"], Value::Null);
    assert_eq!(objects[1]["inner"]["dst_port"], 53);
}

#[test]
fn read_as_objects_of_their_own_kind_beside_frames() {
    let tlvs = [Tlv::Hmac(Hmac::new(true, 0x10, &[0xab; 8]))];
    let packets = [
        frame(0, 0, &inner(100, 0)),
        outer(
            FIRST,
            ipv6::ROUTING,
            &srh(NEXT_IPV6, true, 7, &tlvs, &datagram()),
        ),
    ];
    let objects = objects(&packets, &[]);
    assert_eq!(objects[0]["kind"], Value::Null);
    assert_eq!(objects[0]["completed"], 1);
    assert_eq!(
        objects[1],
        json!({
            "kind": "srv6",
            "time": 100.00001,
            "packet": 2,
            "src": "fc00:a::1",
            "dst": "fc00:2::e",
            "traffic_class": 0xb8,
            "flow_label": 0x12345,
            "hop_limit": 63,
            "segments": ["fc00:2::e", "fc00:3::d6"],
            "active": 0,
            "reduced": true,
            "segments_left": 1,
            "last_entry": 0,
            "flags": 0,
            "tag": 7,
            "tlvs": [
                {"type": 5, "length": 16, "key_id": 16, "d": true, "value": "abababababababab"},
            ],
            "next_header": 41,
            "inner": {
                "kind": "ipv6",
                "src_mac": null,
                "dst_mac": null,
                "vlans": null,
                "ethertype": null,
                "src": "fd00::1",
                "dst": "fd00::2",
                "protocol": 17,
                "src_port": 5000,
                "dst_port": 53,
                "length": 56,
            },
            "error": null,
        })
    );
}

#[test]
fn are_found_behind_every_kind_of_link_header() {
    let raw = encapsulated(&inner(100, 1));
    let ethernet = [&[2; 12][..], &[0x81, 0, 0, 2, 0x86, 0xdd], &raw].concat();
    let cooked = [&[0; 14][..], &[0x86, 0xdd], &raw].concat();
    let cooked2 = [&[0x86, 0xdd][..], &[0; 18], &raw].concat();
    for (link, data) in [
        (DataLink::RAW, raw),
        (DataLink::ETHERNET, ethernet),
        (DataLink::LINUX_SLL, cooked),
        (DataLink::LINUX_SLL2, cooked2),
    ] {
        let decoded = decode::packet(link, &data, &[30056]);
        assert!(matches!(decoded, Decoded::Srv6(_)), "{link:?}");
    }
}

#[test]
fn leave_frames_behind_an_srh_to_be_frames() {
    let ipv4 = frame(0, 0, &inner(100, 0));
    let packet = outer(
        FIRST,
        ipv6::ROUTING,
        &srh(PROTO_UDP, false, 0, &[], &ipv4[20..]),
    );
    let objects = objects(&[packet], &[]);
    assert_eq!(objects[0]["completed"], 1);
}

#[test]
fn end_with_the_count() {
    let packets = vec![encapsulated(&inner(100, 0)); 3];
    assert_eq!(lines(&packets, &["--count", "2"]).len(), 2);
    assert_eq!(objects(&packets, &["--count", "9"]).len(), 3);
}
