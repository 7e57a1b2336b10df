//! Segment routing headers: written by hand from RFC 8754, and any bytes.

#[path = "support/srh.rs"]
mod srh;

use proptest::prelude::*;
use sig_common::wire::srv6::{
    FIXED_LEN, Header, Hmac, MAX_LEN, MAX_SEGMENTS, NEXT_IPV4, NEXT_IPV6, Problem, Reject, Tlv,
    View, len, parse,
};
use sig_common::wire::{Error, ipv6};
use srh::{check, wrap};

type Segment = [u8; 16];

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace())
        .map(|digit| (digit as char).to_digit(16).unwrap() as u8)
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

fn segment(text: &str) -> Segment {
    text.parse::<std::net::Ipv6Addr>().unwrap().octets()
}

/// By way of fc00:2::e to fc00:3::d6, around an IPv6 packet.
const TWO: &str =
    "29040401 01000000 fc0000030000000000000000000000d6 fc00000200000000000000000000000e";

fn two() -> [Segment; 2] {
    [segment("fc00:2::e"), segment("fc00:3::d6")]
}

fn header(segments: &[Segment]) -> Header<'_> {
    Header {
        next_header: NEXT_IPV6,
        segments,
        reduced: false,
        flags: 0,
        tag: 0,
        tlvs: &[],
    }
}

fn emit(header: &Header<'_>) -> Vec<u8> {
    let mut out = vec![0xee; MAX_LEN];
    let written = header.emit(&mut out).unwrap();
    assert_eq!(header.len(), Some(written));
    assert!(out[written..].iter().all(|byte| *byte == 0xee));
    out.truncate(written);
    out
}

#[test]
fn a_list_of_two() {
    let bytes = hex(TWO);
    assert_eq!(emit(&header(&two())), bytes);

    let view = View::new_checked(&bytes).unwrap();
    let [first, last] = two();
    assert_eq!(view.next_header(), NEXT_IPV6);
    assert_eq!((view.len(), view.payload().len()), (40, 0));
    assert_eq!((view.segments_left(), view.last_entry()), (1, 1));
    assert_eq!((view.flags(), view.tag()), (0, 0));
    assert_eq!(view.list(), [last, first]);
    assert!(!view.is_first_left_out());
    assert_eq!(view.active(), Some(first));
    assert_eq!(view.active_index(), 0);
    assert_eq!(view.travel(first).collect::<Vec<_>>(), [first, last]);
    assert_eq!(view.tlvs().count(), 0);

    let packet = wrap(&[], &[&bytes[..], &[1, 2, 3]].concat());
    let srh = parse(&packet[..]).unwrap();
    assert_eq!((srh.offset, srh.announced_at, srh.len), (40, 6, 40));
    assert_eq!((srh.after(), srh.tlvs(), srh.packet_len), (80, 80, 83));
    assert_eq!(srh.next_header, NEXT_IPV6);
    assert_eq!((srh.segments_left, srh.last_entry), (1, 1));
    assert_eq!(srh.segment(&packet[..], 0), Some(last));
    assert_eq!(srh.segment(&packet[..], 1), Some(first));
    assert_eq!(srh.segment(&packet[..], 2), None);
    assert_eq!(srh.next_segment(&packet[..]), Some(last));
}

#[test]
fn at_the_last_segment_none_is_next() {
    let mut bytes = hex(TWO);
    bytes[3] = 0;
    let packet = wrap(&[], &bytes);
    assert_eq!(parse(&packet[..]).unwrap().next_segment(&packet[..]), None);
    let view = View::new_checked(&bytes).unwrap();
    assert_eq!(view.active(), Some(segment("fc00:3::d6")));
    assert_eq!(view.active_index(), 1);
}

#[test]
fn a_reduced_list_leaves_the_first_segment_to_the_destination_address() {
    let [first, last] = two();
    let bytes = emit(&Header {
        next_header: NEXT_IPV4,
        reduced: true,
        flags: 0x08,
        tag: 0x1234,
        ..header(&two())
    });
    assert_eq!(
        bytes,
        hex("04020401 00081234 fc0000030000000000000000000000d6")
    );
    let view = View::new_checked(&bytes).unwrap();
    assert!(view.is_first_left_out());
    assert_eq!(view.active(), None);
    assert_eq!(view.active_index(), 0);
    assert_eq!(view.travel(first).collect::<Vec<_>>(), [first, last]);
    assert_eq!((view.flags(), view.tag()), (0x08, 0x1234));
    // A single segment stays, since there is no empty list.
    let alone = [first];
    let one = Header {
        reduced: true,
        ..header(&alone)
    };
    assert_eq!(
        emit(&one),
        hex("29020400 00000000 fc00000200000000000000000000000e")
    );
}

#[test]
fn options_in_front_are_skipped() {
    let bytes = hex(TWO);
    for (before, offset) in [(&[60][..], 48), (&[0], 48), (&[0, 60], 56), (&[60, 60], 56)] {
        let srh = parse(&wrap(before, &bytes)[..]).unwrap();
        assert_eq!((srh.offset, srh.announced_at), (offset, offset - 8));
    }
    // Hop-by-hop options come first or not at all, and more than two headers are not followed.
    for before in [&[60, 0][..], &[0, 0], &[60, 60, 60], &[44]] {
        assert_eq!(parse(&wrap(before, &bytes)[..]), Err(Reject::Absent));
    }
}

#[test]
fn what_is_malformed_points_at_segments_left() {
    let reject = |srh: &[u8], before: &[u8]| parse(&wrap(before, srh)[..]).unwrap_err();
    let changed = |at: usize, value| {
        let mut bytes = hex(TWO);
        bytes[at] = value;
        bytes
    };
    for (bytes, problem) in [
        // Last Entry: the list has two elements. Segments Left: three is two more than the index of the last one.
        (changed(4, 2), Problem::LastEntry),
        (changed(4, 255), Problem::LastEntry),
        (changed(3, 3), Problem::SegmentsLeft),
        (changed(3, 255), Problem::SegmentsLeft),
        (changed(1, 5), Problem::Length),
        (changed(1, 255), Problem::Length),
        // No room for any segment.
        (changed(1, 1), Problem::LastEntry),
        (changed(1, 0), Problem::LastEntry),
        (hex(TWO)[..39].to_vec(), Problem::Length),
        (hex(TWO)[..8].to_vec(), Problem::Length),
    ] {
        assert_eq!(View::new_checked(&bytes).unwrap_err(), problem);
        for (before, offset) in [(&[][..], 40), (&[0, 60], 56)] {
            let found = reject(&bytes, before);
            assert_eq!(found, Reject::Malformed { problem, offset });
            assert_eq!(found.pointer(), Some(offset + 3));
        }
    }
    let truncated = &hex(TWO)[..7];
    assert_eq!(
        View::new_checked(truncated).unwrap_err(),
        Problem::Truncated
    );
    assert_eq!(reject(truncated, &[]), Reject::Packet(Error::Truncated));
    assert_eq!(reject(truncated, &[]).pointer(), None);
    let other = changed(2, 3);
    assert_eq!(View::new_checked(&other).unwrap_err(), Problem::RoutingType);
    assert_eq!(reject(&other, &[]), Reject::Absent);
}

#[test]
fn an_srh_beyond_the_payload_length_is_malformed_even_if_bytes_follow() {
    let mut packet = wrap(&[], &hex(TWO));
    packet[5] -= 1;
    let found = parse(&packet[..]).unwrap_err();
    assert_eq!(
        found,
        Reject::Malformed {
            problem: Problem::Length,
            offset: 40
        }
    );
    // Not even the fixed fields.
    packet[5] = 7;
    let found = parse(&packet[..]).unwrap_err();
    assert_eq!(found, Reject::Packet(Error::Truncated));
    check(&packet);
}

#[test]
fn packets_that_are_not_there_in_full_or_of_another_kind() {
    let packet = wrap(&[], &hex(TWO));
    for len in 0..packet.len() {
        let error = match len {
            ..40 => Error::Truncated,
            _ => Error::Length,
        };
        assert_eq!(parse(&packet[..len]), Err(Reject::Packet(error)));
    }
    let mut ipv4 = packet.clone();
    ipv4[0] = 0x45;
    assert_eq!(parse(&ipv4[..]), Err(Reject::Packet(Error::Version)));
    let mut plain = packet;
    plain[6] = NEXT_IPV6;
    assert_eq!(parse(&plain[..]), Err(Reject::Absent));
}

#[test]
fn the_longest_list() {
    let segments: Vec<Segment> = (0..=MAX_SEGMENTS).map(|i| [i as u8; 16]).collect();
    let full = emit(&header(&segments[..MAX_SEGMENTS]));
    assert_eq!(full.len(), FIXED_LEN + 127 * 16);
    assert_eq!(full[1..5], [254, 4, 126, 126]);
    check(&full);
    let reduced = Header {
        reduced: true,
        ..header(&segments)
    };
    let reduced = emit(&reduced);
    assert_eq!(reduced[1..5], [254, 4, 127, 126]);
    check(&reduced);
    let view = View::new_checked(&reduced).unwrap();
    assert_eq!(view.travel(segments[0]).collect::<Vec<_>>(), segments);
    for before in [&[][..], &[0, 60]] {
        let packet = wrap(before, &full);
        let srh = parse(&packet[..]).unwrap();
        assert_eq!(srh.segment(&packet[..], 126), Some(segments[0]));
    }
    let too_long = header(&segments).emit(&mut [0; 4096]);
    assert_eq!(too_long, Err(Error::NoRoom));
    assert_eq!(header(&[]).emit(&mut [0; 4096]), Err(Error::NoRoom));
}

#[test]
fn lengths() {
    assert_eq!(len(0, false, 0), None);
    assert_eq!(len(1, false, 0), Some(24));
    assert_eq!(len(1, true, 0), Some(24));
    assert_eq!(len(2, true, 0), Some(24));
    assert_eq!(len(2, false, 0), Some(40));
    assert_eq!(len(2, false, 1), Some(48));
    assert_eq!(len(2, false, 40), Some(80));
    assert_eq!(len(127, false, 8), Some(2048));
    assert_eq!(len(127, false, 9), None);
    assert_eq!(len(128, true, 8), Some(2048));
    assert_eq!(len(usize::MAX, true, usize::MAX), None);
}

#[test]
fn tlvs_and_what_an_hmac_authenticates() {
    let mac: [u8; 32] = core::array::from_fn(|i| i as u8);
    let hmac = Hmac::new(true, 0x0102_0304, &mac);
    let tlvs = [
        Tlv::Hmac(hmac),
        Tlv::Other {
            kind: 124,
            value: &[7, 8, 9],
        },
    ];
    let [first, last] = two();
    let bytes = emit(&Header {
        reduced: true,
        flags: 0x80,
        tlvs: &tlvs,
        ..header(&[first, last])
    });
    // 40 bytes of HMAC, 5 of the other, 3 of padding.
    assert_eq!(
        bytes,
        hex(
            "29080401 00800000 fc0000030000000000000000000000d6 0526 8000 01020304 \
             000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f 7c03 070809 0401 00"
        )
    );
    let view = View::new_checked(&bytes).unwrap();
    let read: Vec<_> = view.tlvs().map(Result::unwrap).collect();
    assert_eq!(read, [tlvs[0], tlvs[1], Tlv::PadN(1)]);
    assert!(hmac.destination_is_unverified());
    let source = segment("fc00:1::1");
    assert_eq!(
        view.hmac_text(source, &hmac).parts().concat(),
        hex(
            "fc000001000000000000000000000001 00 80 8000 01020304 fc0000030000000000000000000000d6"
        )
    );
}

#[test]
fn padding_to_eight_bytes() {
    for (value, padding) in [
        (&[][..], &[4, 4, 0, 0, 0, 0][..]),
        (&[1], &[4, 3, 0, 0, 0]),
        (&[1; 4], &[4, 0]),
        (&[1; 5], &[0]),
        (&[1; 6], &[]),
        (&[1; 7], &[4, 5, 0, 0, 0, 0, 0]),
    ] {
        let tlvs = [Tlv::Other { kind: 9, value }];
        let bytes = emit(&Header {
            tlvs: &tlvs,
            ..header(&two())
        });
        assert_eq!(bytes[40 + 2 + value.len()..], *padding);
        check(&bytes);
    }
}

#[test]
fn tlvs_that_are_malformed_end_the_list() {
    let with = |tlvs: &str| {
        let mut bytes = hex(TWO);
        bytes[1] += 1;
        bytes.extend(hex(tlvs));
        bytes
    };
    let read = |tlvs: &str| {
        let bytes = with(tlvs);
        let view = View::new_checked(&bytes).unwrap();
        check(&bytes);
        view.tlvs()
            .map(|tlv| tlv.map(|tlv| tlv.len()))
            .collect::<Vec<_>>()
    };
    assert_eq!(read("00 7c01 00 0402 0000"), [Ok(1), Ok(3), Ok(4)]);
    // The value, or the length itself, is beyond the end.
    assert_eq!(read("7c07 000000000000"), [Err(Problem::Tlv)]);
    assert_eq!(read("00 0405 0000000000"), [Ok(1), Ok(7)]);
    assert_eq!(read("00 0406 0000000000"), [Ok(1), Err(Problem::Tlv)]);
    assert_eq!(read("0405 0000000000 7c"), [Ok(7), Err(Problem::Tlv)]);
    // An HMAC of no bytes, and one shorter than its own header.
    assert_eq!(read("0506 0000 00000001"), [Err(Problem::Tlv)]);
    assert_eq!(read("0502 0000 0402 0000"), [Err(Problem::Tlv)]);
}

#[test]
fn tlvs_that_no_srh_can_have_are_not_written() {
    let long = [0; 256];
    for tlv in [
        Tlv::Hmac(Hmac::new(false, 1, &[0; 7])),
        Tlv::Hmac(Hmac::new(false, 1, &[])),
        Tlv::Hmac(Hmac::new(false, 1, &[0; 40])),
        Tlv::Other {
            kind: 9,
            value: &long,
        },
        Tlv::Other {
            kind: 0,
            value: &[],
        },
        Tlv::Other {
            kind: 4,
            value: &[1],
        },
        Tlv::Other {
            kind: 5,
            value: &[1],
        },
    ] {
        let tlvs = [tlv];
        let header = Header {
            tlvs: &tlvs,
            ..header(&[[1; 16]])
        };
        assert_eq!(header.emit(&mut [0; 4096]), Err(Error::NoRoom));
    }
}

/// A TLV that owns its value.
#[derive(Clone, Debug)]
enum Owned {
    Pad1,
    PadN(u8),
    Hmac(u16, u32, Vec<u8>),
    Other(u8, Vec<u8>),
}

impl Owned {
    fn tlv(&self) -> Tlv<'_> {
        match self {
            Self::Pad1 => Tlv::Pad1,
            Self::PadN(more) => Tlv::PadN(*more),
            Self::Hmac(bits, key_id, mac) => Tlv::Hmac(Hmac {
                bits: *bits,
                key_id: *key_id,
                mac,
            }),
            Self::Other(kind, value) => Tlv::Other { kind: *kind, value },
        }
    }
}

fn tlv() -> impl Strategy<Value = Owned> {
    let bytes = |len| prop::collection::vec(any::<u8>(), len);
    prop_oneof![
        Just(Owned::Pad1),
        any::<u8>().prop_map(Owned::PadN),
        (any::<u16>(), any::<u32>(), 1usize..=4)
            .prop_flat_map(move |(bits, key, words)| (
                Just(bits),
                Just(key),
                bytes(words * 8..words * 8 + 1)
            ))
            .prop_map(|(bits, key, mac)| Owned::Hmac(bits, key, mac)),
        (6u8.., bytes(0..20)).prop_map(|(kind, value)| Owned::Other(kind, value)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn what_is_written_is_read(
        next_header in any::<u8>(),
        segments in prop::collection::vec(any::<Segment>(), 1..20),
        reduced in any::<bool>(),
        flags in any::<u8>(),
        tag in any::<u16>(),
        tlvs in prop::collection::vec(tlv(), 0..4),
    ) {
        let tlvs: Vec<_> = tlvs.iter().map(Owned::tlv).collect();
        let header = Header { next_header, segments: &segments, reduced, flags, tag, tlvs: &tlvs };
        let bytes = emit(&header);
        check(&bytes);
        let view = View::new_checked(&bytes).unwrap();
        prop_assert_eq!(view.next_header(), next_header);
        prop_assert_eq!((view.flags(), view.tag()), (flags, tag));
        prop_assert_eq!(usize::from(view.segments_left()), segments.len() - 1);
        prop_assert_eq!(view.active_index(), 0);
        prop_assert_eq!(view.travel(segments[0]).collect::<Vec<_>>(), &segments[..]);
        let read = view.tlvs().map(Result::unwrap).collect::<Vec<_>>();
        prop_assert_eq!(&read[..tlvs.len()], &tlvs[..]);
        prop_assert!(read.len() <= tlvs.len() + 1);
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        check(&bytes);
    }

    #[test]
    fn damaged_headers_are_survived(
        segments in prop::collection::vec(any::<Segment>(), 1..6),
        tlvs in prop::collection::vec(tlv(), 0..4),
        before in prop::collection::vec(prop::sample::select(vec![0u8, 60, 43, 44]), 0..3),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        len in prop::option::weighted(0.2, any::<prop::sample::Index>()),
        padding in 0usize..4,
    ) {
        let tlvs: Vec<_> = tlvs.iter().map(Owned::tlv).collect();
        let srh = emit(&Header { tlvs: &tlvs, ..header(&segments) });
        let mut packet = wrap(&before, &srh);
        for (at, value) in changes {
            let at = at.index(packet.len());
            packet[at] = value;
        }
        if let Some(len) = len {
            packet.truncate(len.index(packet.len()));
        }
        packet.resize(packet.len() + padding, 0x5a);
        check(&packet);
        check(packet.get(ipv6::HEADER_LEN..).unwrap_or_default());
    }
}
