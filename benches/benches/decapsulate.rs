//! From SIG frames to IP packets: `Worker::process` over frames from the underlay.

use benches::pipeline::{settings, shape::Shape, tunnel::Tunnel};
use criterion::{Criterion, criterion_group, criterion_main};

fn decapsulate(c: &mut Criterion) {
    let shapes = [
        (Shape::OnePerFrame, "one packet per frame"),
        (Shape::Packed, "packed"),
        (Shape::Split, "reassemble"),
    ];
    let window = Shape::packets_for_a_batch_of_frames;
    settings::direction(c, "decapsulate", shapes, window, Tunnel::decapsulate);
}

criterion_group! {
    name = benches;
    config = settings::criterion();
    targets = decapsulate
}
criterion_main!(benches);
