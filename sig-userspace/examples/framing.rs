//! Only the framing: packs IP packets into SIG frames and takes them out again.
//!
//! `cargo run -p sig-userspace --no-default-features --example framing`

use sig_core::framing::{Encoder, FrameHeader, FrameRef, Limits, Piece, Reassembler, StreamKey};

/// An IPv4 packet of `len` bytes; the framing looks at version and length only.
fn packet(len: u16, fill: u8) -> Vec<u8> {
    let mut packet = vec![fill; len.into()];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&len.to_be_bytes());
    packet
}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let packets = [
        packet(100, 1),
        packet(60, 2),
        packet(1500, 3),
        packet(40, 4),
    ];

    // Frames with room for 600 bytes of packets.
    let mut encoder = Encoder::new(0, 4711, 600)?;
    let mut frames = Vec::new();
    for packet in &packets {
        encoder.push(packet, |frame| frames.push(frame.to_vec()))?;
    }
    encoder.flush(|frame| frames.push(frame.to_vec()));

    let mut reassembler = Reassembler::new(Limits::default(), 0)?;
    let mut received = Vec::new();
    for (n, frame) in frames.iter().enumerate() {
        let (header, payload) = frame.split_first_chunk().ok_or("shorter than a header")?;
        let header = FrameHeader::decode(header).map_err(|error| format!("{error:?}"))?;
        println!(
            "frame {}: index {:#06x}, {} bytes of packets",
            header.sequence,
            header.index,
            payload.len()
        );
        let key = StreamKey {
            remote: 0,
            src_port: 30056,
            session: header.session,
            stream: header.stream,
        };
        let frame = FrameRef {
            sequence: header.sequence,
            index: header.index,
            congestion: false,
            payload,
        };
        let now = n as u64 * 1000;
        let _ = reassembler.insert(now, key, frame, |_, piece, _| {
            received.push(match piece {
                Piece::InFrame(range) => payload[range].to_vec(),
                Piece::Assembled(packet) => packet.to_vec(),
            });
        });
    }
    assert_eq!(received, packets);
    println!("{} packets in {} frames", packets.len(), frames.len());
    Ok(())
}
