//! From IP packets to SIG frames: `Worker::process` over packets from the LAN.

use benches::pipeline::{
    settings::{self, measure},
    shape::Shape,
    traffic::{SIZES, Sizes, Traffic, Version},
    tunnel::Tunnel,
};
use criterion::{Criterion, criterion_group, criterion_main};

/// Packets that wait in chunks at once: one batch of the receive ring, read from the first caches.
const BATCH: usize = 64;

fn sizes(c: &mut Criterion) {
    for (shape, group) in [
        (Shape::OnePerFrame, "encapsulate, one packet per frame"),
        (Shape::Packed, "encapsulate, pack"),
        (Shape::Split, "encapsulate, split"),
    ] {
        for sizes in SIZES {
            let traffic = Traffic {
                version: Version::V4,
                sizes,
                flows: 1,
                alternate_classes: shape == Shape::OnePerFrame,
            };
            measure(
                c,
                group,
                &sizes.to_string(),
                traffic.packets(settings::PACKETS),
                |packets| Tunnel::new(shape.capacity(sizes), &[], packets, BATCH),
                Tunnel::encapsulate,
            );
        }
    }
}

fn circumstances(c: &mut Criterion) {
    let sizes = Sizes::Fixed(100);
    for (name, version, flows, routes, window) in settings::CIRCUMSTANCES {
        for shape in [Shape::OnePerFrame, Shape::Packed] {
            let traffic = Traffic {
                version,
                sizes,
                flows,
                alternate_classes: shape == Shape::OnePerFrame,
            };
            let window = window.unwrap_or(BATCH);
            measure(
                c,
                &format!("encapsulate 100 B, {shape}"),
                name,
                traffic.packets(settings::PACKETS),
                |packets| {
                    let routes = settings::routes(routes);
                    Tunnel::new(shape.capacity(sizes), &routes, packets, window)
                },
                Tunnel::encapsulate,
            );
        }
    }
}

criterion_group! {
    name = benches;
    config = settings::criterion();
    targets = sizes, circumstances
}
criterion_main!(benches);
