//! Helpers: runs of the command, and captures to run it on.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use clap::Parser;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapReader, PcapWriter};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::{DataLink, Endianness};
use sig_common::wire::scion::path::Path as ScionPath;
use sig_common::wire::{PROTO_UDP, ipv4, scion, sig_frame, udp};

use super::*;

mod made_here;
mod refuses;
mod srv6;
mod the_references_captures;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    args: Args,
}

/// What a run prints, and the message it fails with.
fn dissect(arguments: &[&str]) -> (String, Result<(), String>) {
    let command = Command::parse_from(std::iter::once(&"sig").chain(arguments));
    let mut out = Vec::new();
    let result = run(&command.args, &mut out).map_err(|failure| match failure {
        Failure::Refused(message) | Failure::Failed(message) => message,
        Failure::OutputClosed => "output closed".to_owned(),
    });
    (String::from_utf8(out).unwrap(), result)
}

fn good(arguments: &[&str]) -> String {
    let (out, result) = dissect(arguments);
    assert_eq!(result, Ok(()));
    out
}

fn captured(name: &str) -> String {
    format!("{}/tests/data/{name}.pcap", env!("CARGO_MANIFEST_DIR"))
}

/// A file of its own, removed at the end.
struct File(String);

impl File {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("sig-dissect-{}-{number}", std::process::id());
        Self(std::env::temp_dir().join(name).display().to_string())
    }

    fn with(contents: &[u8]) -> Self {
        let file = Self::new();
        std::fs::write(&file.0, contents).unwrap();
        file
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // Some tests expect that it is not made.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The packets of a raw-IP pcap.
fn packets(file: &File) -> Vec<(Duration, Vec<u8>)> {
    let mut reader = PcapReader::new(std::fs::File::open(&file.0).unwrap()).unwrap();
    assert_eq!(reader.header().datalink, DataLink::RAW);
    std::iter::from_fn(|| {
        let packet = reader.next_packet()?.unwrap();
        Some((packet.timestamp, packet.data.into_owned()))
    })
    .collect()
}

/// An underlay packet with a SIG frame of stream 7, from its IP header on.
fn frame(sequence: u64, index: u16, payload: &[u8]) -> Vec<u8> {
    let sig = sig_frame::Header {
        session: 1,
        index,
        stream: 7,
        sequence,
    };
    let mut message = udp::Header {
        source_port: 65533,
        destination_port: 30056,
        length: (8 + 16 + payload.len()) as u16,
        checksum: 0,
    }
    .encode()
    .to_vec();
    message.extend(sig.encode());
    message.extend(payload);
    let header = scion::Header {
        traffic_class: 0,
        flow_id: 1,
        next_header: PROTO_UDP,
        payload_len: message.len() as u16,
        destination_isd_as: "1-ff00:0:110".parse().unwrap(),
        source_isd_as: "1-64512".parse().unwrap(),
        destination: "fd00::2".parse::<std::net::IpAddr>().unwrap().into(),
        source: "10.0.0.1".parse::<std::net::IpAddr>().unwrap().into(),
        path: ScionPath::Empty,
    };
    let mut packet = vec![0; header.len()];
    header.emit(&mut packet).unwrap();
    scion::udp::fill_checksum(&packet[12..], &mut message).unwrap();
    packet.extend(message);
    let outer = udp::Header {
        source_port: 50000,
        destination_port: 30056,
        length: (8 + packet.len()) as u16,
        checksum: 0,
    };
    let ip = ipv4::Header {
        tos: 0,
        total_len: (28 + packet.len()) as u16,
        identification: 0,
        dont_fragment: true,
        ttl: 64,
        protocol: PROTO_UDP,
        source: [10, 0, 0, 1],
        destination: [10, 0, 0, 2],
    };
    [&ip.encode()[..], &outer.encode(), &packet].concat()
}

/// An inner packet of `len` bytes.
fn inner(len: u16, mark: u8) -> Vec<u8> {
    let header = ipv4::Header {
        tos: 0,
        total_len: len,
        identification: 0,
        dont_fragment: false,
        ttl: 64,
        protocol: 253,
        source: [10, 1, 0, 1],
        destination: [10, 2, 0, 1],
    };
    let mut packet = header.encode().to_vec();
    packet.resize(usize::from(len), mark);
    packet
}

/// A raw-IP pcap of these packets, captured 10 µs apart from second 100 on.
fn pcap(packets: &[Vec<u8>]) -> Vec<u8> {
    let header = PcapHeader {
        datalink: DataLink::RAW,
        ..PcapHeader::default()
    };
    let mut writer = PcapWriter::with_header(Vec::new(), header).unwrap();
    for (i, packet) in packets.iter().enumerate() {
        let time = Duration::from_secs(100) + Duration::from_micros(10 * i as u64);
        let record = PcapPacket::new(time, packet.len() as u32, packet);
        writer.write_packet(&record).unwrap();
    }
    writer.into_writer()
}
