//! What the reference sent.

use std::{fs::File, path::PathBuf};

use pcap_file::pcap::PcapReader;
use sig_common::wire::{ethernet, ipv4, udp};

use super::*;

/// A datagram over SCION: destination, ports of source and destination, payload.
type Datagram = (HostAddr, u16, u16, Vec<u8>);

fn datagrams(name: &str) -> Vec<Datagram> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/data")
        .join(name);
    let mut reader = PcapReader::new(File::open(path).expect("the capture")).expect("a capture");
    let mut datagrams = Vec::new();
    while let Some(frame) = reader.next_packet() {
        let frame = frame.expect("a frame").data;
        let datagram = || {
            let ethernet = ethernet::View::new_checked(&frame).ok()?;
            let ip = ipv4::View::new_checked(ethernet.payload()).ok()?;
            (ip.protocol() == 17).then_some(())?;
            let underlay = udp::View::new_checked(ip.payload()).ok()?;
            let packet = packet::parse(underlay.payload()).ok()?;
            match packet.content {
                Content::Udp {
                    source_port,
                    destination_port,
                    payload,
                } => Some((
                    packet.destination.1,
                    source_port,
                    destination_port,
                    payload.to_vec(),
                )),
                Content::Scmp(_) => None,
            }
        };
        datagrams.extend(datagram());
    }
    datagrams
}

#[test]
fn service_resolutions_of_the_reference_are_understood() {
    let mut resolved = 0;
    for name in ["control-gateway-startup.pcap", "control-steady-state.pcap"] {
        let datagrams = datagrams(name);
        for (destination, asking_port, port, payload) in &datagrams {
            if *destination != HostAddr::SVC_DS {
                continue;
            }
            assert_eq!((*port, payload.len()), (0, 0));
            let (.., answer) = datagrams
                .iter()
                .find(|(_, from, to, _)| (*from, to) == (0, asking_port))
                .expect("an answer");
            assert_eq!(
                checked::service_address(answer),
                Ok("10.11.0.1:30252".parse().unwrap())
            );
            resolved += 1;
        }
    }
    assert_eq!(resolved, 4);
}

#[test]
fn session_probes_of_the_reference_get_its_own_answers() {
    let datagrams = datagrams("control-steady-state.pcap");
    let to_port = |wanted: u16| {
        datagrams
            .iter()
            .filter(move |(_, _, to, _)| *to == wanted)
            .map(|(.., payload)| payload)
    };
    let from_port = |wanted: u16| {
        datagrams
            .iter()
            .filter(move |(_, from, _, _)| *from == wanted)
            .map(|(.., payload)| payload)
    };
    assert!(to_port(DEFAULT_PROBE_PORT).count() > 10);
    assert!(from_port(DEFAULT_PROBE_PORT).count() > 10);
    for request in to_port(DEFAULT_PROBE_PORT) {
        assert_eq!(request, &probe::request(0, b""));
        let answer = probe::answer(request).expect("an answer");
        assert!(from_port(DEFAULT_PROBE_PORT).all(|theirs| *theirs == answer));
    }
}

#[test]
fn quic_of_the_reference_is_never_taken_for_the_answer_to_a_service_resolution() {
    let datagrams = datagrams("control-steady-state.pcap");
    let quic: Vec<_> = datagrams
        .iter()
        .filter(|(_, from, to, _)| [from, to].iter().any(|port| [30252, 30256].contains(*port)))
        .collect();
    assert!(quic.len() > 20);
    for (.., payload) in quic {
        assert_ne!(payload[0] & 0x40, 0);
    }
}
