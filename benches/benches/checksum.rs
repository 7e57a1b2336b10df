//! The Internet checksum over the bytes of a packet.

use std::hint::black_box;

use benches::pipeline::{settings, traffic::SIZES, traffic::Sizes};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sig_common::wire::checksum::Sum;

fn sum(c: &mut Criterion) {
    let mut group = c.benchmark_group("checksum");
    for sizes in SIZES {
        let Sizes::Fixed(len) = sizes else { continue };
        let bytes: Vec<u8> = (0..len).map(|n| (n * 31) as u8).collect();
        group.throughput(Throughput::ElementsAndBytes {
            elements: 1,
            bytes: len as u64,
        });
        group.bench_function(sizes.to_string(), |b| {
            b.iter(|| Sum::of(black_box(&bytes)).checksum());
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = settings::criterion();
    targets = sum
}
criterion_main!(benches);
