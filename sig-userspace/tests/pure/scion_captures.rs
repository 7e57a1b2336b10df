//! What the reference gateway, its control service and its router sent, read and built again.

use std::{collections::BTreeMap, fs::File, path::Path};

use pcap_file::pcap::PcapReader;
use sig_common::wire::{ethernet, ipv4, scion, udp};
use sig_core::scion::{
    packet::{self, Addresses, Content, ParseError},
    scmp::Scmp,
};

/// The SCION packets of a capture.
fn scion_packets(name: &str) -> Vec<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name);
    let mut reader = PcapReader::new(File::open(path).expect("the capture")).expect("a capture");
    let mut packets = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let packet = packet.expect("a packet").data.into_owned();
        let datagram = || {
            let ethernet = ethernet::View::new_checked(&packet).ok()?;
            let ip = ipv4::View::new_checked(ethernet.payload()).ok()?;
            (ip.protocol() == 17).then_some(())?;
            let payload = udp::View::new_checked(ip.payload())
                .ok()?
                .payload()
                .to_vec();
            scion::View::new_checked(&payload)
                .is_ok()
                .then_some(payload)
        };
        packets.extend(datagram());
    }
    packets
}

/// How often each kind of packet occurs. Each is built again from what was read.
fn kinds(name: &str) -> BTreeMap<&'static str, usize> {
    let mut kinds = BTreeMap::new();
    for bytes in scion_packets(name) {
        let kind = match packet::parse(&bytes) {
            Ok(packet) => {
                let (kind, again) = rebuilt(&packet);
                assert_eq!(again, bytes, "{kind} in {name}");
                kind
            }
            Err(ParseError::Protocol(scion::NEXT_BFD)) => "BFD",
            Err(error) => panic!("{error} in {name}: {bytes:02x?}"),
        };
        *kinds.entry(kind).or_default() += 1;
    }
    kinds
}

fn rebuilt(packet: &packet::Packet<'_>) -> (&'static str, Vec<u8>) {
    let (path_type, raw) = (packet.path.path_type(), packet.path.bytes());
    let (source, destination) = (packet.source, packet.destination);
    let (kind, bytes) = match &packet.content {
        Content::Udp {
            source_port,
            destination_port,
            payload,
        } => {
            let addresses = Addresses {
                source: (source.0, source.1, *source_port),
                destination: (destination.0, destination.1, *destination_port),
            };
            let bytes = packet::udp(&addresses, path_type, raw, payload);
            let kind = if destination.1.ip().is_some() {
                "UDP"
            } else {
                "UDP to a service"
            };
            (kind, bytes)
        }
        Content::Scmp(message) => {
            let kind = match message {
                Scmp::Error { .. } => "error",
                Scmp::EchoRequest(_) | Scmp::EchoReply(_) => "echo",
                Scmp::TracerouteRequest { id, sequence } => {
                    assert_eq!(path_type, 1);
                    probe_is_ours(source, destination, raw, *id, *sequence);
                    "traceroute request"
                }
                Scmp::TracerouteReply { .. } => "traceroute reply",
            };
            let bytes = packet::scmp(source, destination, path_type, raw, message);
            (kind, bytes)
        }
    };
    (kind, bytes.expect("a packet"))
}

/// The probe that we would send has the alert where the reference has it.
fn probe_is_ours(
    source: packet::Host,
    destination: packet::Host,
    raw: &[u8],
    id: u16,
    sequence: u16,
) {
    assert_eq!(destination.1, sig_common::addr::HostAddr::SVC_NONE);
    let mut without_alert = raw.to_vec();
    let last = raw.len() - 12;
    assert_ne!(without_alert[last], 0);
    without_alert[last] = 0;
    let probe = packet::path_probe(source, destination.0, &without_alert, id, sequence);
    let probe = probe.expect("a packet");
    let probe = packet::parse(&probe).expect("a packet");
    assert_eq!(probe.path.bytes(), raw);
}

#[test]
fn control_traffic_is_read_and_built_again_byte_for_byte() {
    for (name, expected) in [
        (
            "control-gateway-startup.pcap",
            &[
                ("UDP", 156),
                ("UDP to a service", 2),
                ("traceroute reply", 21),
                ("traceroute request", 21),
            ][..],
        ),
        (
            "control-steady-state.pcap",
            &[
                ("UDP", 116),
                ("UDP to a service", 2),
                ("traceroute reply", 16),
                ("traceroute request", 16),
            ],
        ),
        (
            "control-interas-startup.pcap",
            &[
                ("BFD", 63),
                ("UDP", 93),
                ("UDP to a service", 4),
                ("traceroute reply", 20),
                ("traceroute request", 20),
            ],
        ),
    ] {
        assert_eq!(kinds(name), expected.iter().copied().collect(), "{name}");
    }
}

#[test]
fn frames_are_read_and_built_again_byte_for_byte() {
    for (name, frames) in [
        ("data-single-v4.pcap", 40),
        ("data-fragmented-v4.pcap", 60),
        ("data-aggregated-v4.pcap", 100),
    ] {
        assert_eq!(kinds(name), BTreeMap::from([("UDP", frames)]));
    }
}
