//! The framing alone, byte-wise: packets to frames and frames to packets.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use benches::pipeline::{
    settings::{self, PACKETS, measure},
    shape::Shape,
    traffic::{SIZES, Sizes, Traffic, Version},
};
use criterion::{Criterion, criterion_group, criterion_main};
use sig_common::wire::sig_frame;
use sig_core::framing::{Encoder, FrameRef, Limits, Reassembler, StreamKey};

fn packets(sizes: Sizes) -> Vec<Vec<u8>> {
    Traffic {
        version: Version::V4,
        sizes,
        flows: 1,
        alternate_classes: false,
    }
    .packets(PACKETS)
}

fn encode(encoder: &mut Encoder, packets: &[Vec<u8>], mut emit: impl FnMut(&[u8])) {
    for packet in packets {
        encoder.push(packet, &mut emit).expect("a valid packet");
    }
    encoder.flush(emit);
}

fn pack_and_split(c: &mut Criterion) {
    for (shape, group) in [
        (Shape::Packed, "framing, pack"),
        (Shape::Split, "framing, split"),
    ] {
        for sizes in SIZES {
            measure(
                c,
                group,
                &sizes.to_string(),
                packets(sizes),
                |packets| (encoder(shape, sizes), packets),
                |(encoder, packets), iterations| {
                    let start = Instant::now();
                    for _ in 0..iterations {
                        encode(encoder, packets, |frame| {
                            black_box(frame);
                        });
                    }
                    start.elapsed()
                },
            );
        }
    }
}

fn reassemble(c: &mut Criterion) {
    for (shape, group) in [
        (Shape::Packed, "framing, unpack"),
        (Shape::Split, "framing, reassemble"),
    ] {
        for sizes in SIZES {
            measure(
                c,
                group,
                &sizes.to_string(),
                packets(sizes),
                |packets| {
                    let reassembler = Reassembler::new(Limits::default(), 1);
                    (
                        encoder(shape, sizes),
                        reassembler.expect("valid limits"),
                        packets,
                    )
                },
                |(encoder, reassembler, packets), iterations| {
                    let mut time = Duration::ZERO;
                    for _ in 0..iterations {
                        let mut frames = Vec::new();
                        encode(encoder, packets, |frame| frames.push(frame.to_vec()));
                        let mut delivered = 0;
                        let start = Instant::now();
                        for frame in &frames {
                            delivered += insert(reassembler, frame);
                        }
                        time += start.elapsed();
                        assert_eq!(delivered, packets.len(), "every packet arrives");
                    }
                    time
                },
            );
        }
    }
}

fn encoder(shape: Shape, sizes: Sizes) -> Encoder {
    Encoder::new(0, 1, shape.capacity(sizes)).expect("a capacity")
}

fn insert(reassembler: &mut Reassembler, frame: &[u8]) -> usize {
    let frame = sig_frame::View::new_checked(frame).expect("a frame");
    let header = frame.header();
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
        payload: frame.payload(),
    };
    let outcome = reassembler.insert(1, key, frame, |_, piece, _| {
        black_box(piece);
    });
    outcome.delivered as usize
}

criterion_group! {
    name = benches;
    config = settings::criterion();
    targets = pack_and_split, reassemble
}
criterion_main!(benches);
