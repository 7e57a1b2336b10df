//! What the underlay parser takes, leaves and refuses.

mod support;

use sig_common::addr::{HostAddr, IsdAs};
use sig_common::reason::DropReason;
use sig_common::wire::ethernet::{TPID_8021AD, TPID_8021Q, Tag};
use sig_common::wire::scion::path::{ONE_HOP_LEN, Path, ScionPath};
use sig_common::wire::scion::{NEXT_BFD, NEXT_END_TO_END, NEXT_HOP_BY_HOP, NEXT_SCMP};
use sig_common::wire::underlay::{Local, Parsed, parse};
use sig_common::wire::{PROTO_TCP, PROTO_UDP, scion, sig_frame};
use support::{Underlay, V1, V2, hex};

const DATA_PORT: u16 = 30056;

/// Offset of the SCION header behind Ethernet, IPv4 and UDP.
const SCION: usize = 14 + 20 + 8;
/// Offsets into a SCION packet like V1.
const PATH: usize = 36;
const L4: usize = 72;

fn local() -> Local {
    Local::new(
        IsdAs::new(1, 0xff00_0000_0111),
        "10.0.0.2".parse().unwrap(),
        DATA_PORT,
        true,
    )
}

/// The verdict on a SCION packet that arrives at the data port.
fn at_data_port(scion: &[u8]) -> Result<Option<Parsed>, DropReason> {
    let packet = Underlay::to("10.0.0.2", DATA_PORT).wrap(scion);
    let verdict = parse(&packet[..], &local());
    // The end host port takes the same frames, but malformed packets may be somebody else's there.
    let packet = Underlay::to("10.0.0.2", scion::ENDHOST_PORT).wrap(scion);
    let there = parse(&packet[..], &local());
    assert_eq!(there, Ok(verdict.unwrap_or(None)));
    // Without that port nothing is taken from it.
    let local = Local::new(
        local().isd_as(),
        "10.0.0.2".parse().unwrap(),
        DATA_PORT,
        false,
    );
    assert_eq!(parse(&packet[..], &local), Ok(None));
    verdict
}

fn changed(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut packet = hex(V1);
    change(&mut packet);
    packet
}

/// V1 with another path type and path.
fn with_path(path_type: u8, path: &[u8]) -> Vec<u8> {
    let v1 = hex(V1);
    let mut packet = v1[..PATH].to_vec();
    packet[8] = path_type;
    packet[5] = ((PATH + path.len()) / 4) as u8;
    packet.extend_from_slice(path);
    packet.extend_from_slice(&v1[L4..]);
    packet
}

/// V1 with extension headers of these types and lengths in bytes.
fn with_extensions(extensions: &[(u8, usize)]) -> Vec<u8> {
    let v1 = hex(V1);
    let mut packet = v1[..L4].to_vec();
    for (i, &(_, len)) in extensions.iter().enumerate() {
        let next = extensions.get(i + 1).map_or(PROTO_UDP, |next| next.0);
        let mut extension = vec![0; len];
        extension[0] = next;
        extension[1] = (len / 4 - 1) as u8;
        packet.extend_from_slice(&extension);
    }
    if let Some(first) = extensions.first() {
        packet[4] = first.0;
    }
    packet.extend_from_slice(&v1[L4..]);
    let payload_len = (packet.len() - L4) as u16;
    packet[6..8].copy_from_slice(&payload_len.to_be_bytes());
    packet
}

fn scion_path(segments: [u8; 3]) -> Vec<u8> {
    let infos = segments.iter().filter(|&&s| s != 0).count();
    let hops: usize = segments.iter().map(|&s| usize::from(s)).sum();
    let meta = u32::from(segments[0]) << 12 | u32::from(segments[1]) << 6 | u32::from(segments[2]);
    let mut path = meta.to_be_bytes().to_vec();
    path.resize(4 + 8 * infos + 12 * hops, 0x11);
    path
}

#[test]
fn a_frame_is_taken_under_a_priority_tag_and_its_offsets_follow() {
    let tag = Tag {
        tpid: TPID_8021Q,
        tci: 0xe000,
    };
    for (tag, shift) in [(None, 0), (Some(tag), 4)] {
        let underlay = Underlay {
            tags: [tag, None],
            tos: 0xb9,
            ..Underlay::to("10.0.0.2", DATA_PORT)
        };
        let packet = underlay.wrap(&changed(|p| p[..2].copy_from_slice(&[0x0b, 0x90])));
        let parsed = parse(&packet[..], &local()).unwrap().unwrap();
        assert_eq!((parsed.outer_tos, parsed.traffic_class), (0xb9, 0xb9));
        assert_eq!(parsed.underlay_source, HostAddr::V4([10, 0, 0, 99]));
        let at = |offset: u16| usize::from(offset) - shift;
        assert_eq!(at(parsed.ip), 14);
        assert_eq!(at(parsed.scion), SCION);
        assert_eq!(at(parsed.path), SCION + PATH);
        assert_eq!(at(parsed.l4), SCION + L4);
        assert_eq!(at(parsed.frame), SCION + L4 + 8);
        assert!(parsed.checksum_is_valid(&packet));
    }
}

#[test]
fn what_is_in_a_vlan_is_left() {
    let tag = |tpid, tci| Some(Tag { tpid, tci });
    for tags in [
        [tag(TPID_8021Q, 7), None],
        [tag(TPID_8021AD, 0x6123), None],
        [tag(TPID_8021AD, 0x6123), tag(TPID_8021Q, 7)],
        [tag(TPID_8021Q, 0), tag(TPID_8021Q, 0)],
    ] {
        let underlay = Underlay {
            tags,
            ..Underlay::to("10.0.0.2", DATA_PORT)
        };
        assert_eq!(parse(&underlay.wrap(&hex(V1))[..], &local()), Ok(None));
    }
}

#[test]
fn the_traffic_class_of_ipv6_is_found() {
    let local = Local::new(
        local().isd_as(),
        "fd00::2".parse().unwrap(),
        DATA_PORT,
        false,
    );
    let packet = Underlay {
        tos: 0xb9,
        ..Underlay::to("fd00::2", DATA_PORT)
    }
    .wrap(&hex(V2));
    let parsed = parse(&packet[..], &local).unwrap().unwrap();
    assert_eq!(parsed.outer_tos, 0xb9);
    assert!(matches!(parsed.source, HostAddr::V6(_)));
    // Scion hosts of one family in an underlay of the other do not match: both are our address.
    let packet = Underlay::to("10.0.0.2", DATA_PORT).wrap(&hex(V2));
    assert_eq!(parse(&packet[..], &local), Ok(None));
}

#[test]
fn ethernet_padding_is_ignored() {
    let mut packet = Underlay::to("10.0.0.2", DATA_PORT).wrap(&hex(V1));
    let expected = parse(&packet[..], &local());
    packet.extend_from_slice(&[0xff; 46]);
    assert_eq!(parse(&packet[..], &local()), expected);
}

#[test]
fn ipv4_options_are_skipped() {
    let mut packet = Underlay::to("10.0.0.2", DATA_PORT).wrap(&hex(V1));
    let total_len = (packet.len() - 14 + 40) as u16;
    packet[14] = 0x4f;
    packet[16..18].copy_from_slice(&total_len.to_be_bytes());
    packet.splice(34..34, [1; 40]);
    let parsed = parse(&packet[..], &local()).unwrap().unwrap();
    assert_eq!(usize::from(parsed.scion), SCION + 40);
}

#[test]
fn what_is_not_for_us_is_left() {
    let to_us = |change: fn(&mut Vec<u8>)| {
        let mut packet = Underlay::to("10.0.0.2", DATA_PORT).wrap(&hex(V1));
        change(&mut packet);
        parse(&packet[..], &local())
    };
    let none = Ok(None);
    assert_eq!(to_us(|p| p[13] = 6), none, "ARP");
    assert_eq!(
        to_us(|p| p[12..14].copy_from_slice(&[0x86, 0xdd])),
        none,
        "wrong EtherType"
    );
    assert_eq!(to_us(|p| p[23] = 6), none, "TCP");
    assert_eq!(to_us(|p| p[33] = 3), none, "another host in the underlay");
    assert_eq!(to_us(|p| p[37] = 0), none, "another port in the underlay");
    assert_eq!(to_us(|p| p[20] = 0x20), none, "a first fragment");
    assert_eq!(to_us(|p| p[21] = 1), none, "a later fragment");
    assert_eq!(to_us(|p| p[14] = 0x44), none, "no IPv4 header");
    assert_eq!(to_us(|p| p[14] = 0x65), none, "no IPv4 version");
    assert_eq!(to_us(|p| p[SCION + 19] = 0x12), none, "another ISD-AS");
    assert_eq!(to_us(|p| p[SCION + 31] = 3), none, "another SCION host");
    assert_eq!(to_us(|p| p[SCION + 9] = 0x40), none, "a service");
    assert_eq!(to_us(|p| p[SCION + L4 + 3] = 0), none, "another SCION port");
    for len in 0..SCION {
        let packet = Underlay::to("10.0.0.2", DATA_PORT).wrap(&hex(V1));
        assert_eq!(
            parse(&packet[..len], &local()),
            none,
            "cut in the outer headers"
        );
    }
}

#[test]
fn outer_lengths_beyond_the_packet_are_refused() {
    let packet = Underlay::to("10.0.0.2", DATA_PORT).wrap(&hex(V1));
    for len in SCION..packet.len() {
        assert_eq!(
            parse(&packet[..len], &local()),
            Err(DropReason::BadIp),
            "cut to {len}"
        );
    }
    let with = |at: usize, value: u16| {
        let mut packet = packet.clone();
        packet[at..at + 2].copy_from_slice(&value.to_be_bytes());
        parse(&packet[..], &local())
    };
    let len = packet.len() as u16;
    assert_eq!(with(16, len - 13), Err(DropReason::BadIp));
    assert_eq!(with(16, 27), Err(DropReason::BadIp));
    assert_eq!(with(16, len - 15), Err(DropReason::BadUdp));
    assert_eq!(with(38, 0), Err(DropReason::BadUdp));
    assert_eq!(with(38, 7), Err(DropReason::BadUdp));
    assert_eq!(with(38, len - 33), Err(DropReason::BadUdp));
    assert_eq!(with(38, len - 35), Err(DropReason::BadScionPayloadLen));
    assert_eq!(with(38, 8 + 27), Err(DropReason::BadScionHeaderLen));
}

#[test]
fn malformed_scion_headers_are_refused() {
    let refused = |change: fn(&mut Vec<u8>)| at_data_port(&changed(change)).unwrap_err();
    assert_eq!(refused(|p| p[0] = 0x10), DropReason::BadScionVersion);
    assert_eq!(refused(|p| p[5] = 0), DropReason::BadScionHeaderLen);
    assert_eq!(refused(|p| p[5] = 8), DropReason::BadScionHeaderLen);
    assert_eq!(refused(|p| p[5] = 255), DropReason::BadScionHeaderLen);
    assert_eq!(refused(|p| p[5] += 1), DropReason::BadPath);
    assert_eq!(refused(|p| p[5] -= 1), DropReason::BadPath);
    for code in [0x1, 0x2, 0x4, 0x5, 0x7, 0xc, 0xf] {
        let packet = changed(|p| p[9] = code);
        assert_eq!(
            at_data_port(&packet),
            Err(DropReason::BadAddressType),
            "source {code}"
        );
        if code != 0x4 {
            let packet = changed(|p| p[9] = code << 4);
            assert_eq!(
                at_data_port(&packet),
                Err(DropReason::BadAddressType),
                "{code}"
            );
        }
    }
    assert_eq!(refused(|p| p[7] += 1), DropReason::BadScionPayloadLen);
    assert_eq!(refused(|p| p[6] = 0xff), DropReason::BadScionPayloadLen);
    for protocol in [0, PROTO_TCP, NEXT_BFD, 253] {
        let packet = changed(|p| p[4] = protocol);
        assert_eq!(at_data_port(&packet), Err(DropReason::UnsupportedL4));
    }
}

#[test]
fn scmp_is_left_also_behind_extensions() {
    assert_eq!(at_data_port(&changed(|p| p[4] = NEXT_SCMP)), Ok(None));
    let mut packet = with_extensions(&[(NEXT_END_TO_END, 8)]);
    packet[L4] = NEXT_SCMP;
    assert_eq!(at_data_port(&packet), Ok(None));
}

#[test]
fn all_path_types_are_measured() {
    let mut epic = vec![0; 16];
    epic.extend_from_slice(&scion_path([2, 0, 0]));
    for (path_type, path) in [
        (0, vec![]),
        (1, scion_path([1, 0, 0])),
        (1, scion_path([2, 3, 0])),
        (1, scion_path([3, 3, 2])),
        (1, scion_path([63, 1, 0])),
        (1, scion_path([20, 22, 22])),
        (2, vec![0; ONE_HOP_LEN]),
        (3, epic.clone()),
    ] {
        let packet = with_path(path_type, &path);
        let parsed = at_data_port(&packet).unwrap().expect("a frame");
        assert_eq!(parsed.path_type, path_type);
        assert_eq!(usize::from(parsed.l4 - parsed.path), path.len());
        assert_eq!(parsed.frame_len, 39);
        let view = scion::View::new_checked(&packet).unwrap();
        assert_eq!(view.path().bytes(), path);
        assert_eq!(view.path(), Path::new_checked(path_type, &path).unwrap());
    }
    for (path_type, path) in [
        (0, vec![0; 4]),
        (1, vec![]),
        (1, scion_path([0, 0, 0])),
        (1, scion_path([0, 2, 0])),
        (1, scion_path([2, 0, 2])),
        (1, scion_path([0, 0, 2])),
        (1, scion_path([22, 22, 21])),
        (2, vec![0; ONE_HOP_LEN + 4]),
        (2, vec![0; ONE_HOP_LEN - 4]),
        (3, vec![0; 12]),
        (3, vec![0; 16]),
        (3, [epic.clone(), vec![0; 4]].concat()),
    ] {
        let packet = with_path(path_type, &path);
        assert_eq!(
            at_data_port(&packet),
            Err(DropReason::BadPath),
            "{path_type} {path:?}"
        );
        assert!(scion::View::new_checked(&packet).is_err());
    }
    for path_type in [4, 5, 255] {
        let packet = with_path(path_type, &[]);
        assert_eq!(at_data_port(&packet), Err(DropReason::UnknownPathType));
    }
}

#[test]
fn path_pointers_outside_the_path_are_refused() {
    for (info, hop) in [(1, 0), (3, 0), (0, 2), (0, 63)] {
        let packet = changed(|p| p[PATH] = info << 6 | hop);
        assert_eq!(at_data_port(&packet), Err(DropReason::BadPath));
        assert!(ScionPath::new_checked(&packet[PATH..L4]).is_err());
    }
    let arrived = changed(|p| p[PATH] = 1);
    assert!(at_data_port(&arrived).unwrap().is_some());
}

#[test]
fn extension_headers_are_skipped() {
    for (extensions, len) in [
        (&[(NEXT_HOP_BY_HOP, 4)][..], 4),
        (&[(NEXT_END_TO_END, 1024)], 1024),
        (&[(NEXT_HOP_BY_HOP, 8), (NEXT_END_TO_END, 12)], 20),
        (&[(NEXT_HOP_BY_HOP, 1024), (NEXT_END_TO_END, 1024)], 2048),
    ] {
        let packet = with_extensions(extensions);
        let parsed = at_data_port(&packet).unwrap().expect("a frame");
        assert_eq!(usize::from(parsed.l4), SCION + L4 + len);
        let view = scion::View::new_checked(&packet).unwrap();
        assert_eq!(
            view.upper_layer().unwrap(),
            (PROTO_UDP, &packet[L4 + len..])
        );
    }
}

#[test]
fn malformed_extension_headers_are_refused() {
    for extensions in [
        &[(NEXT_END_TO_END, 4), (NEXT_HOP_BY_HOP, 4)][..],
        &[(NEXT_HOP_BY_HOP, 4), (NEXT_HOP_BY_HOP, 4)],
        &[(NEXT_END_TO_END, 4), (NEXT_END_TO_END, 4)],
    ] {
        let packet = with_extensions(extensions);
        assert_eq!(at_data_port(&packet), Err(DropReason::BadExtension));
        assert!(
            scion::View::new_checked(&packet)
                .unwrap()
                .upper_layer()
                .is_err()
        );
    }
    let mut packet = with_extensions(&[(NEXT_END_TO_END, 4)]);
    // As long as all that follows is still inside, then one word more, then the most there is.
    for (words, verdict) in [
        (51 / 4, DropReason::BadL4),
        (51 / 4 + 1, DropReason::BadExtension),
        (256, DropReason::BadExtension),
    ] {
        packet[L4 + 1] = (words - 1) as u8;
        assert_eq!(at_data_port(&packet), Err(verdict), "{words} words");
    }
}

#[test]
fn the_udp_length_clips_the_frame() {
    let with_length = |len: u16| {
        at_data_port(&changed(|p| {
            p[L4 + 4..L4 + 6].copy_from_slice(&len.to_be_bytes())
        }))
        .map(|parsed| parsed.unwrap().frame_len)
    };
    assert_eq!(with_length(47), Ok(39));
    assert_eq!(with_length(46), Ok(38));
    assert_eq!(with_length(48), Ok(39));
    assert_eq!(with_length(0xffff), Ok(39));
    assert_eq!(with_length(0), Ok(39));
    assert_eq!(with_length(24), Ok(16));
    assert_eq!(with_length(23), Err(DropReason::BadFrameLen));
    assert_eq!(with_length(8), Err(DropReason::BadFrameLen));
    for len in 1..8 {
        assert_eq!(with_length(len), Err(DropReason::BadL4));
    }
}

#[test]
fn the_scion_payload_length_clips_the_frame() {
    let with_length =
        |len: u8| at_data_port(&changed(|p| p[7] = len)).map(|parsed| parsed.unwrap().frame_len);
    assert_eq!(with_length(47), Ok(39));
    assert_eq!(with_length(24), Ok(16));
    assert_eq!(with_length(23), Err(DropReason::BadFrameLen));
    assert_eq!(with_length(7), Err(DropReason::BadL4));
    assert_eq!(with_length(0), Err(DropReason::BadL4));
}

#[test]
fn only_version_0_of_frames_and_protected_ones_are_taken() {
    for version in [1, 2, 0x80, 0xad, 0xff] {
        let packet = changed(|p| p[L4 + 8] = version);
        assert_eq!(at_data_port(&packet), Err(DropReason::BadFrameVersion));
    }
}

#[test]
fn a_protected_frame_has_room_for_its_number_and_tag() {
    // V1 has a frame of 39 bytes.
    let protected = |len: usize| {
        let mut packet = changed(|p| p[L4 + 8] = sig_frame::VERSION_PROTECTED);
        packet.resize(L4 + 8 + len, 0x77);
        let segment = (8 + len) as u16;
        for at in [6, L4 + 4] {
            packet[at..at + 2].copy_from_slice(&segment.to_be_bytes());
        }
        at_data_port(&packet)
    };
    assert_eq!(protected(43), Err(DropReason::BadFrameLen));
    let parsed = protected(44).unwrap().unwrap();
    assert!(parsed.is_protected);
    assert_eq!(parsed.frame_len, 44);
    let plain = at_data_port(&hex(V1)).unwrap().unwrap();
    assert_eq!((parsed.header, plain.is_protected), (plain.header, false));
}

#[test]
fn reserved_bits_of_the_stream_are_ignored() {
    let packet = changed(|p| p[L4 + 12..L4 + 16].copy_from_slice(&[0xff, 0xfa, 0xbc, 0xde]));
    let parsed = at_data_port(&packet).unwrap().unwrap();
    assert_eq!(parsed.header.stream, 0xa_bcde);
}

#[test]
fn ipv6_extension_headers_in_the_underlay_are_left() {
    let local = Local::new(
        local().isd_as(),
        "fd00::2".parse().unwrap(),
        DATA_PORT,
        false,
    );
    for next_header in [0, 43, 44, 60] {
        let mut packet = Underlay::to("fd00::2", DATA_PORT).wrap(&hex(V2));
        packet[20] = next_header;
        assert_eq!(parse(&packet[..], &local), Ok(None));
    }
}

#[test]
fn a_mapped_local_address_is_ipv4() {
    let local = Local::new(
        local().isd_as(),
        "::ffff:10.0.0.2".parse().unwrap(),
        DATA_PORT,
        false,
    );
    assert_eq!(local.host(), HostAddr::V4([10, 0, 0, 2]));
    let packet = Underlay::to("10.0.0.2", DATA_PORT).wrap(&hex(V1));
    assert!(parse(&packet[..], &local).unwrap().is_some());
}
