use proptest::prelude::*;
use sig_common::wire::{
    scion::{ENDHOST_PORT, path},
    sig_frame,
};

use super::*;
use crate::scion::scmp::{Echo, Problem, Quote, QuotedContent};

const A: IsdAs = IsdAs::new(1, 0xff00_0000_0110);
const B: IsdAs = IsdAs::new(1, 0xff00_0000_0111);
const HOST_A: HostAddr = HostAddr::V4([10, 0, 0, 1]);
const HOST_B: HostAddr = HostAddr::V4([10, 0, 0, 2]);

const PATH: &str = "00002000 0100123466000000 003f00000001010203040506 003f000200000708090a0b0c";
const REVERSED: &str =
    "00002000 0000123466000000 003f000200000708090a0b0c 003f00000001010203040506";

// Made with the serialisers of the reference.
const V1: &str = "
    00000001 1112002f 01000000 0001ff0000000111 0001ff0000000110 0a000002 0a000001
    00002000 0100123466000000 003f00000001010203040506 003f000200000708090a0b0c
    7d00 7568 002f b4e3
    0001000000000002 0000000000000000 40000017 00000000000000000000000000000000 010203";
const V2: &str = "
    00000001 1118002f 01330000 0001ff0000000111 0001ff0000000110
    fd000000000000000000000000000002 fd000000000000000000000000000001
    00002000 0100123466000000 003f00000001010203040506 003f000200000708090a0b0c
    7d00 7568 002f cee1
    0001000000000002 0000000000000000 40000017 00000000000000000000000000000000 010203";
const V3: &str = "
    00000001 1109000c 00000000 0001ff0000000111 0001ff0000000110 0a000002 0a000001
    7d01 7888 000c e41d 0a020805";
const V4: &str = "
    00000001 ca120018 01400000 0001ff0000000111 0001ff0000000110 ffff0000 0a000001
    00002000 0100123466000000 003f00000001010203040506 023f000200000708090a0b0c
    82 00 f5f3 7d02 0001 0000000000000000 0000000000000000";
const V5: &str = "
    00000001 11120008 01400000 0001ff0000000111 0001ff0000000110 00010000 0a000001
    00002000 0100123466000000 003f00000001010203040506 003f000200000708090a0b0c
    7d03 0000 0008 78b4";

/// Bytes from hexadecimal digits; white space is ignored.
pub(in crate::scion) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter_map(|c| Some(c.to_digit(16)? as u8))
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

fn to_b(source_port: u16, host: HostAddr, port: u16) -> Addresses {
    Addresses {
        source: (A, HOST_A, source_port),
        destination: (B, host, port),
    }
}

fn scmp_to_b(message: &Scmp) -> Vec<u8> {
    scmp((A, HOST_A), (B, HOST_B), SCION, &hex(PATH), message).expect("a packet")
}

fn message(packet: &[u8]) -> Scmp {
    match parse(packet).expect("a packet").content {
        Content::Scmp(message) => message,
        Content::Udp { .. } => panic!("UDP"),
    }
}

/// Builds a parsed packet again.
fn rebuilt(packet: &Packet<'_>) -> Vec<u8> {
    let (path_type, raw) = (packet.path.path_type(), packet.path.bytes());
    match &packet.content {
        Content::Udp {
            source_port,
            destination_port,
            payload,
        } => {
            let addresses = Addresses {
                source: (packet.source.0, packet.source.1, *source_port),
                destination: (
                    packet.destination.0,
                    packet.destination.1,
                    *destination_port,
                ),
            };
            udp(&addresses, path_type, raw, payload)
        }
        Content::Scmp(message) => scmp(packet.source, packet.destination, path_type, raw, message),
    }
    .expect("a packet")
}

#[test]
fn a_session_probe_is_that_of_the_reference() {
    let addresses = to_b(32001, HOST_B, 30856);
    let packet = udp(&addresses, path::EMPTY, &[], &hex("0a020805"));
    assert_eq!(packet, Ok(hex(V3)));
}

#[test]
fn a_path_probe_is_that_of_the_reference() {
    let packet = path_probe((A, HOST_A), B, &hex(PATH), 32002, 1);
    assert_eq!(packet, Ok(hex(V4)));
}

#[test]
fn a_service_resolution_is_that_of_the_reference() {
    let addresses = to_b(32003, HostAddr::SVC_DS, 0);
    let packet = udp(&addresses, SCION, &hex(PATH), &[]);
    assert_eq!(packet, Ok(hex(V5)));
}

#[test]
fn every_vector_of_the_reference_is_parsed_and_built_again_byte_for_byte() {
    for vector in [V1, V2, V3, V4, V5] {
        let bytes = hex(vector);
        let packet = parse(&bytes).expect("a packet");
        assert_eq!((packet.source.0, packet.destination.0), (A, B));
        assert_eq!(rebuilt(&packet), bytes);
    }
}

#[test]
fn a_frame_is_read_as_udp() {
    let bytes = hex(V2);
    let packet = parse(&bytes).expect("a packet");
    assert_eq!(packet.path.bytes(), hex(PATH));
    assert_eq!(packet.underlay_port(), Some(30056));
    let Content::Udp {
        source_port,
        payload,
        ..
    } = packet.content
    else {
        panic!("SCMP");
    };
    assert_eq!((source_port, payload.len()), (32000, 39));
    assert!(sig_frame::View::new_checked(payload).is_ok());
}

#[test]
fn an_echo_request_is_answered_on_the_way_back() {
    let request = Echo {
        id: 7,
        sequence: 9,
        data: vec![1, 2, 3],
    };
    let mut bytes = scmp_to_b(&Scmp::EchoRequest(request.clone()));
    // The routers on the way have moved the pointer.
    bytes[36] = 1;
    let reply = parse(&bytes)
        .expect("a packet")
        .echo_reply()
        .expect("a reply");
    let reply = parse(&reply).expect("a packet");
    assert_eq!(reply.source, (B, HOST_B));
    assert_eq!(reply.destination, (A, HOST_A));
    assert_eq!(reply.path.bytes(), hex(REVERSED));
    assert_eq!(reply.underlay_port(), Some(7));
    assert_eq!(reply.echo_reply(), None, "replies are not answered");
    assert_eq!(reply.content, Content::Scmp(Scmp::EchoReply(request)));
}

#[test]
fn echoes_that_no_single_host_asked_for_are_not_answered() {
    for source in [
        HostAddr::SVC_CS,
        HostAddr::V4([224, 0, 0, 1]),
        HostAddr::V4([0; 4]),
    ] {
        let request = Scmp::EchoRequest(Echo {
            id: 7,
            sequence: 9,
            data: Vec::new(),
        });
        let bytes = scmp((A, source), (B, HOST_B), path::EMPTY, &[], &request).expect("a packet");
        assert_eq!(parse(&bytes).expect("a packet").echo_reply(), None);
    }
}

#[test]
fn every_scmp_message_is_read_as_it_was_built() {
    let error = |problem| Scmp::Error {
        problem,
        quote: Quote::new(&hex(V1)),
    };
    let echo = Echo {
        id: 0x1234,
        sequence: 0xfedc,
        data: vec![5; 33],
    };
    for (built, len) in [
        (error(Problem::Unreachable { code: 4 }), 8 + 119),
        (error(Problem::PacketTooBig { mtu: 1472 }), 8 + 119),
        (
            error(Problem::Parameter {
                code: 52,
                pointer: 40,
            }),
            8 + 119,
        ),
        (
            error(Problem::InterfaceDown {
                isd_as: B,
                interface: 41,
            }),
            20 + 119,
        ),
        (
            error(Problem::ConnectivityDown {
                isd_as: B,
                ingress: 41,
                egress: 1 << 40,
            }),
            28 + 119,
        ),
        (Scmp::EchoRequest(echo.clone()), 8 + 33),
        (Scmp::EchoReply(echo), 8 + 33),
        (
            Scmp::TracerouteRequest {
                id: 32002,
                sequence: 1,
            },
            24,
        ),
        (
            Scmp::TracerouteReply {
                id: 32002,
                sequence: 1,
                isd_as: B,
                interface: 41,
            },
            24,
        ),
    ] {
        let bytes = scmp_to_b(&built);
        assert_eq!(bytes.len(), 72 + len, "{built:?}");
        assert_eq!(message(&bytes), built);
        for cut in 0..len {
            let message = &bytes[72..72 + cut];
            assert_eq!(Scmp::decode(message).is_some(), cut >= fixed_len(&built));
        }
    }
}

/// Bytes of a message without quote or data.
fn fixed_len(message: &Scmp) -> usize {
    match message {
        Scmp::Error { quote, .. } => message.encode().len() - quote.bytes().len(),
        Scmp::EchoRequest(_) | Scmp::EchoReply(_) => 8,
        Scmp::TracerouteRequest { .. } | Scmp::TracerouteReply { .. } => 24,
    }
}

#[test]
fn the_wire_form_of_an_interface_that_is_down_is_that_of_the_specification() {
    let bytes = scmp_to_b(&Scmp::Error {
        problem: Problem::ConnectivityDown {
            isd_as: B,
            ingress: 2,
            egress: 3,
        },
        quote: Quote::new(&[]),
    });
    let checksum = &bytes[74..76];
    assert_ne!(checksum, [0, 0]);
    assert_eq!(bytes[72..74], [6, 0]);
    assert_eq!(
        bytes[76..],
        hex("0001ff0000000111 0000000000000002 0000000000000003")
    );
}

#[test]
fn a_quote_names_the_packet_that_was_sent() {
    let quote = Quote::new(&hex(V1));
    assert_eq!(quote.sender_port(), Some(32000));
    let packet = quote.packet().expect("a packet");
    assert_eq!(packet.source, (A, HOST_A));
    assert_eq!(packet.destination, (B, HOST_B));
    assert_eq!((packet.path_type, &packet.path[..]), (1, &hex(PATH)[..]));
    assert_eq!(
        packet.content,
        Some(QuotedContent::Udp {
            source_port: 32000,
            destination_port: 30056
        })
    );
    let quote = Quote::new(&hex(V4));
    assert_eq!(quote.sender_port(), Some(32002));
    assert_eq!(
        quote.packet().expect("a packet").content,
        Some(QuotedContent::Request {
            id: 32002,
            sequence: 1
        })
    );
}

#[test]
fn of_a_quote_that_is_cut_off_what_is_there_is_read() {
    let bytes = hex(V1);
    assert_eq!(Quote::new(&bytes[..80]).sender_port(), Some(32000));
    let cut = Quote::new(&bytes[..79]);
    assert_eq!(cut.sender_port(), None);
    assert_eq!(
        cut.packet().map(|packet| packet.destination),
        Some((B, HOST_B))
    );
    assert_eq!(Quote::new(&bytes[..71]).packet(), None);
    assert_eq!(Quote::new(&[]).packet(), None);
}

#[test]
fn a_quoted_scmp_error_has_no_sender_to_be_told() {
    let error = Scmp::Error {
        problem: Problem::Unreachable { code: 0 },
        quote: Quote::new(&hex(V1)),
    };
    let quote = Quote::new(&scmp_to_b(&error));
    assert_eq!(quote.sender_port(), None);
    assert!(quote.packet().is_some());
}

#[test]
fn errors_are_cut_to_the_size_that_passes_everywhere() {
    let error = Scmp::Error {
        problem: Problem::PacketTooBig { mtu: 1280 },
        quote: Quote::new(&[hex(V1), vec![0xab; 1500]].concat()),
    };
    let bytes = scmp_to_b(&error);
    assert_eq!(bytes.len(), MAX_ERROR_PACKET);
    let Scmp::Error { quote, .. } = message(&bytes) else {
        panic!("no error");
    };
    assert_eq!(quote.bytes().len(), MAX_ERROR_PACKET - 72 - 8);
    assert_eq!(quote.sender_port(), Some(32000));
}

#[test]
fn messages_go_to_the_socket_that_they_answer() {
    let error = |packet: &str| Scmp::Error {
        problem: Problem::Unreachable { code: 0 },
        quote: Quote::new(&hex(packet)),
    };
    assert_eq!(error(V1).underlay_port(), Some(32000));
    assert_eq!(error(V4).underlay_port(), Some(32002));
    assert_eq!(error("00").underlay_port(), None);
    let request = Scmp::TracerouteRequest { id: 7, sequence: 0 };
    assert_eq!(request.underlay_port(), Some(ENDHOST_PORT));
}

#[test]
fn damage_is_found_and_a_checksum_of_zero_is_none() {
    for vector in [V1, V2, V3, V4, V5] {
        let bytes = hex(vector);
        let header_len = usize::from(bytes[5]) * 4;
        let mut damaged = bytes.clone();
        // Host address of the destination, and the last byte (of V5: of the checksum).
        damaged[31] ^= 0x40;
        assert_eq!(parse(&damaged), Err(ParseError::Checksum));
        damaged = bytes.clone();
        *damaged.last_mut().expect("bytes") ^= 0x40;
        assert_eq!(parse(&damaged), Err(ParseError::Checksum));

        let checksum = header_len + if bytes[4] == PROTO_UDP { 6 } else { 2 };
        damaged[checksum..checksum + 2].fill(0);
        assert!(parse(&damaged).is_ok());
    }
}

#[test]
fn extension_headers_are_skipped() {
    let mut bytes = hex(V3);
    // Hop-by-hop with eight bytes, end-to-end with four.
    bytes.splice(36..36, hex("c9 01 0000 00000000 11 00 0000"));
    bytes[4] = 200;
    bytes[7] += 12;
    let packet = parse(&bytes).expect("a packet");
    assert_eq!(rebuilt(&packet), hex(V3));
}

#[test]
fn the_length_of_udp_clips_the_payload_and_zero_takes_the_rest() {
    let payload = |length: u16| {
        let mut bytes = hex(V3);
        bytes[40..42].copy_from_slice(&length.to_be_bytes());
        bytes[42..44].fill(0);
        match parse(&bytes)?.content {
            Content::Udp { payload, .. } => Ok(payload.len()),
            Content::Scmp(_) => panic!("SCMP"),
        }
    };
    assert_eq!(payload(0), Ok(4));
    assert_eq!(payload(8), Ok(0));
    assert_eq!(payload(10), Ok(2));
    assert_eq!(payload(100), Ok(4));
    for length in 1..8 {
        assert_eq!(
            payload(length),
            Err(ParseError::Header(wire::Error::Length))
        );
    }
}

#[test]
fn other_protocols_and_unknown_scmp_types_are_refused() {
    let mut bytes = hex(V3);
    bytes[4] = 203;
    assert_eq!(parse(&bytes), Err(ParseError::Protocol(203)));
    let mut bytes = hex(V4);
    bytes[72] = 132;
    assert_eq!(parse(&bytes), Err(ParseError::Scmp));
}

#[test]
fn a_packet_that_ends_early_is_refused() {
    for vector in [V1, V3, V4] {
        let bytes = hex(vector);
        for len in 0..bytes.len() {
            assert!(matches!(parse(&bytes[..len]), Err(ParseError::Header(_))));
        }
    }
}

#[test]
fn what_does_not_fit_a_packet_is_not_built() {
    let addresses = to_b(1, HOST_B, 2);
    assert_eq!(
        udp(&addresses, path::EMPTY, &[], &[0; 65528]),
        Err(wire::Error::Length)
    );
    assert!(udp(&addresses, path::EMPTY, &[], &[0; 65527]).is_ok());
    assert_eq!(
        udp(&addresses, SCION, &hex(PATH)[1..], &[]),
        Err(wire::Error::Path)
    );
    assert_eq!(udp(&addresses, 77, &[], &[]), Err(wire::Error::PathType));
    assert_eq!(
        path_probe((A, HOST_A), B, &[], 1, 1),
        Err(wire::Error::Path)
    );
}

fn host() -> impl Strategy<Value = HostAddr> {
    prop_oneof![
        any::<[u8; 4]>().prop_map(HostAddr::V4),
        any::<[u8; 16]>().prop_map(HostAddr::V6),
        any::<u16>().prop_map(HostAddr::Svc),
    ]
}

proptest! {
    #[test]
    fn a_datagram_is_read_as_it_was_built(
        source in (any::<u64>(), host(), any::<u16>()),
        destination in (any::<u64>(), host(), any::<u16>()),
        empty_path in any::<bool>(),
        payload in proptest::collection::vec(any::<u8>(), 0..600),
    ) {
        let addresses = Addresses {
            source: (IsdAs(source.0), source.1, source.2),
            destination: (IsdAs(destination.0), destination.1, destination.2),
        };
        let (path_type, raw) = if empty_path { (0, Vec::new()) } else { (1, hex(PATH)) };
        let bytes = udp(&addresses, path_type, &raw, &payload).expect("a packet");
        let packet = parse(&bytes).expect("a packet");
        prop_assert_eq!(packet.path.bytes(), raw);
        prop_assert_eq!(packet.source, (IsdAs(source.0), source.1));
        prop_assert_eq!(packet.destination, (IsdAs(destination.0), destination.1));
        prop_assert_eq!(packet.content, Content::Udp {
            source_port: source.2,
            destination_port: destination.2,
            payload: &payload,
        });
    }

    #[test]
    fn no_bytes_make_the_parsers_panic(
        vector in prop_oneof![Just(V1), Just(V2), Just(V3), Just(V4), Just(V5)],
        quoted in any::<bool>(),
        at in proptest::collection::vec((0usize..160, any::<u8>()), 0..8),
        len in 0usize..200,
    ) {
        let mut bytes = hex(vector);
        if quoted {
            bytes = scmp_to_b(&Scmp::Error {
                problem: Problem::Unreachable { code: 0 },
                quote: Quote::new(&bytes),
            });
            // Damage is to be met behind the checksum.
            bytes[74..76].fill(0);
        }
        for (at, byte) in at {
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
        }
        bytes.truncate(len);
        let _ = Quote::new(&bytes).sender_port();
        if let Ok(packet) = parse(&bytes) {
            let _ = packet.echo_reply();
            let _ = (packet.underlay_port(), reverse::arrived_by(&packet.path));
            let again = rebuilt(&packet);
            let again = parse(&again).expect("what was parsed can be built");
            prop_assert_eq!(packet, again);
        }
    }
}
