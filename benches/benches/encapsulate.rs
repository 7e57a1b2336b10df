//! From IP packets to SIG frames: `Worker::process` over packets from the LAN.

use benches::{
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
            let packets = Traffic {
                version: Version::V4,
                sizes,
                flows: 1,
                alternate_classes: shape == Shape::OnePerFrame,
            };
            let packets = packets.packets(settings::PACKETS);
            let mut tunnel = Tunnel::new(shape.capacity(sizes), &[], packets, BATCH);
            let packets = tunnel.packets().to_vec();
            measure(c, group, &sizes.to_string(), &packets, |n| {
                tunnel.encapsulate(n)
            });
        }
    }
}

fn circumstances(c: &mut Criterion) {
    for (name, version, flows, routes, window) in settings::CIRCUMSTANCES {
        for shape in [Shape::OnePerFrame, Shape::Packed] {
            let packets = Traffic {
                version,
                sizes: Sizes::Fixed(100),
                flows,
                alternate_classes: shape == Shape::OnePerFrame,
            };
            let packets = packets.packets(settings::PACKETS);
            let routes = settings::routes(routes);
            let capacity = shape.capacity(Sizes::Fixed(100));
            let mut tunnel = Tunnel::new(capacity, &routes, packets, window.unwrap_or(BATCH));
            let group = format!("encapsulate 100 B, {shape}");
            let packets = tunnel.packets().to_vec();
            measure(c, &group, name, &packets, |n| tunnel.encapsulate(n));
        }
    }
}

criterion_group! {
    name = benches;
    config = settings::criterion();
    targets = sizes, circumstances
}
criterion_main!(benches);
