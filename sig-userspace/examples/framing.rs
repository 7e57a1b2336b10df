//! Only the framing: packs IP packets into SIG frames and takes them out again.
//!
//! `cargo run -p sig-userspace --no-default-features --example framing`

use sig::framing::{Decoder, Encoder, Limits};

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

    // From one remote gateway, whose data port is 30056.
    let limits = Limits {
        remotes: 1,
        ..Limits::default()
    };
    let mut decoder = Decoder::new(limits, 0)?;
    let mut received = Vec::new();
    for (n, frame) in frames.iter().enumerate() {
        let now = n as u64 * 1000;
        let outcome = decoder.push(now, 0, 30056, frame, |packet| {
            received.push(packet.to_vec());
        })?;
        println!("frame of {} bytes: {outcome:?}", frame.len());
    }
    assert_eq!(received, packets);
    println!("{} packets in {} frames", packets.len(), frames.len());
    Ok(())
}
