//! Traffic of the reference gateway through the parsers.

mod support;

use std::fs::File;
use std::path::PathBuf;

use pcap_file::pcap::PcapReader;
use sig_common::addr::IsdAs;
use sig_common::wire::underlay::{Local, parse};
use sig_common::wire::{ethernet, ipv4, scion, sig_frame, udp};

fn packets(name: &str) -> Vec<Vec<u8>> {
    let path: PathBuf = [
        env!("CARGO_MANIFEST_DIR"),
        "../sig-userspace/tests/data",
        name,
    ]
    .iter()
    .collect();
    let mut reader = PcapReader::new(File::open(path).unwrap()).unwrap();
    let mut packets = Vec::new();
    while let Some(packet) = reader.next_packet() {
        packets.push(packet.unwrap().data.into_owned());
    }
    packets
}

fn gateways() -> [Local; 2] {
    let gateway =
        |asn, host: &str| Local::new(IsdAs::new(1, asn), host.parse().unwrap(), 30056, true);
    [
        gateway(0xff00_0000_0110, "10.10.0.2"),
        gateway(0xff00_0000_0111, "10.11.0.2"),
    ]
}

/// Captured on the uplink of gateway A, where frames to gateway B have the border router as
/// underlay destination: they become what gateway B will see.
fn delivered(mut packet: Vec<u8>) -> Vec<u8> {
    if packet[30..34] == [10, 10, 0, 1] {
        packet[30..34].copy_from_slice(&[10, 11, 0, 2]);
        packet[36..38].copy_from_slice(&30041u16.to_be_bytes());
    }
    packet
}

fn frames(name: &str) -> usize {
    let gateways = gateways();
    let mut found = 0;
    for packet in packets(name) {
        let packet = delivered(packet);
        for (local, peer) in gateways.iter().zip(gateways.iter().rev()) {
            let Some(parsed) = parse(&packet[..], local).expect("no malformed packets") else {
                continue;
            };
            found += 1;
            assert!(parsed.checksum_is_valid(&packet));
            assert_eq!(parsed.source_isd_as, peer.isd_as());
            assert_eq!(parsed.source, peer.host());
            assert_eq!(parsed.source_port, 65533);
            assert_eq!(parsed.payload().end, packet.len());
            let index = usize::from(parsed.header.index);
            if parsed.header.index != sig_frame::NO_PACKET_STARTS {
                assert_eq!(packet[parsed.payload()][index] >> 4, 4);
            }
        }
    }
    found
}

#[test]
fn every_frame_of_a_ping_is_found() {
    assert_eq!(frames("data-single-v4.pcap"), 40);
}

#[test]
fn every_frame_of_split_packets_is_found() {
    assert_eq!(frames("data-fragmented-v4.pcap"), 60);
}

#[test]
fn every_frame_of_packed_packets_is_found() {
    assert_eq!(frames("data-aggregated-v4.pcap"), 100);
}

#[test]
fn no_frame_is_found_in_control_traffic() {
    for name in [
        "control-gateway-startup.pcap",
        "control-steady-state.pcap",
        "control-interas-startup.pcap",
    ] {
        assert_eq!(frames(name), 0);
    }
}

#[test]
fn every_scion_header_is_emitted_again_byte_for_byte() {
    let mut seen = 0;
    for (name, count) in [
        ("data-single-v4.pcap", 40),
        ("data-fragmented-v4.pcap", 60),
        ("data-aggregated-v4.pcap", 100),
        ("control-gateway-startup.pcap", 200),
        ("control-steady-state.pcap", 150),
        ("control-interas-startup.pcap", 200),
    ] {
        let packets = packets(name);
        assert_eq!(packets.len(), count);
        for packet in packets {
            let ethernet = ethernet::View::new_checked(&packet).unwrap();
            if ethernet.ethertype() != ethernet::ETHERTYPE_IPV4 {
                continue;
            }
            let ip = ipv4::View::new_checked(ethernet.payload()).unwrap();
            assert!(ip.checksum_is_valid());
            if ip.protocol() != 17 {
                continue;
            }
            let Ok(udp) = udp::View::new_checked(ip.payload()) else {
                continue;
            };
            // Everything with SCION in it; the other datagrams are between host and AS services.
            let Ok(view) = scion::View::new_checked(udp.payload()) else {
                assert_ne!(udp.payload()[..4], [0, 0, 0, 1], "a SCION packet in {name}");
                continue;
            };
            seen += 1;
            let mut out = [0; scion::MAX_HEADER_LEN];
            let len = view.header().emit(&mut out).unwrap();
            assert_eq!(out[..len], udp.payload()[..len]);
            assert_eq!(len + view.payload().len(), udp.payload().len());
            assert!(view.upper_layer().is_ok());
        }
    }
    assert!(seen > 300, "{seen} SCION packets");
}
