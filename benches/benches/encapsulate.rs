//! From IP packets to SIG frames: `Worker::process` over packets from the LAN.

use benches::pipeline::{settings, shape::Shape, tunnel::Tunnel};
use criterion::{Criterion, criterion_group, criterion_main};

/// Packets that wait in chunks at once: one batch of the receive ring, read from the first caches.
const BATCH: usize = 64;

fn encapsulate(c: &mut Criterion) {
    let shapes = [
        (Shape::OnePerFrame, "one packet per frame"),
        (Shape::Packed, "pack"),
        (Shape::Split, "split"),
    ];
    settings::direction(c, "encapsulate", shapes, |_, _| BATCH, Tunnel::encapsulate);
}

criterion_group! {
    name = benches;
    config = settings::criterion();
    targets = encapsulate
}
criterion_main!(benches);
