//! The parsers on the road of every packet.

use std::hint::black_box;

use benches::pipeline::{
    settings,
    shape::Shape,
    traffic::{SIZES, Traffic, Version},
    tunnel::Tunnel,
};
use criterion::{
    BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime,
};
use sig_common::wire::{flow::flow_hash, inner::InnerPacket, underlay};

const COUNT: usize = 64;

fn over(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    packets: &[Vec<u8>],
    mut take: impl FnMut(&[u8]),
) {
    group.throughput(Throughput::ElementsAndBytes {
        elements: packets.len() as u64,
        bytes: benches::pipeline::traffic::bytes(packets),
    });
    group.bench_function(name, |b| {
        b.iter(|| packets.iter().for_each(|packet| take(black_box(packet))));
    });
}

fn parse_underlay(c: &mut Criterion) {
    let mut parse = c.benchmark_group("parse, underlay frame");
    for sizes in SIZES {
        let (local, frames) = frames(sizes);
        over(&mut parse, &sizes.to_string(), &frames, |frame| {
            let parsed = underlay::parse(frame, &local);
            assert!(black_box(parsed).is_ok_and(|parsed| parsed.is_some()));
        });
    }
    parse.finish();
    let mut verify = c.benchmark_group("parse, underlay frame with checksum");
    for sizes in SIZES {
        let (local, frames) = frames(sizes);
        over(&mut verify, &sizes.to_string(), &frames, |frame| {
            let parsed = underlay::parse(frame, &local);
            assert!(matches!(parsed, Ok(Some(parsed)) if parsed.checksum_is_valid(frame)));
        });
    }
}

fn frames(sizes: benches::pipeline::traffic::Sizes) -> (underlay::Local, Vec<Vec<u8>>) {
    let shape = Shape::OnePerFrame;
    let packets = Traffic {
        version: Version::V4,
        sizes,
        flows: 1,
        alternate_classes: true,
    };
    let mut tunnel = Tunnel::new(shape.capacity(sizes), &[], packets.packets(COUNT), COUNT);
    (tunnel.receiver(), tunnel.frames())
}

fn parse_inner(c: &mut Criterion) {
    for (name, version) in [("IPv4", Version::V4), ("IPv6", Version::V6)] {
        let packets = Traffic {
            version,
            sizes: benches::pipeline::traffic::Sizes::Fixed(100),
            flows: COUNT,
            alternate_classes: false,
        };
        let packets = packets.packets(COUNT);
        let mut group = c.benchmark_group("parse, inner packet");
        over(&mut group, name, &packets, |packet| {
            assert!(black_box(InnerPacket::parse(packet)).is_ok());
        });
        group.finish();
        let mut group = c.benchmark_group("parse and hash, inner packet");
        over(&mut group, name, &packets, |packet| {
            black_box(InnerPacket::parse(packet).map(|packet| flow_hash(&packet))).ok();
        });
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = settings::criterion();
    targets = parse_underlay, parse_inner
}
criterion_main!(benches);
