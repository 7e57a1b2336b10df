//! From SIG frames to IP packets: `Worker::process` over frames from the underlay.

use benches::{
    settings::{self, measure},
    shape::Shape,
    traffic::{SIZES, Sizes, Traffic, Version},
    tunnel::Tunnel,
};
use criterion::{Criterion, criterion_group, criterion_main};

fn sizes(c: &mut Criterion) {
    for (shape, group) in [
        (Shape::OnePerFrame, "decapsulate, one packet per frame"),
        (Shape::Packed, "decapsulate, packed"),
        (Shape::Split, "decapsulate, reassemble"),
    ] {
        for sizes in SIZES {
            let packets = Traffic {
                version: Version::V4,
                sizes,
                flows: 1,
                alternate_classes: shape == Shape::OnePerFrame,
            };
            let packets = packets.packets(settings::PACKETS);
            let window = shape.packets_for_a_batch_of_frames(sizes);
            let mut tunnel = Tunnel::new(shape.capacity(sizes), &[], packets, window);
            let packets = tunnel.packets().to_vec();
            measure(c, group, &sizes.to_string(), &packets, |n| {
                tunnel.decapsulate(n)
            });
        }
    }
}

fn circumstances(c: &mut Criterion) {
    let sizes = Sizes::Fixed(100);
    for (name, version, flows, routes, window) in settings::CIRCUMSTANCES {
        for shape in [Shape::OnePerFrame, Shape::Packed] {
            let packets = Traffic {
                version,
                sizes,
                flows,
                alternate_classes: shape == Shape::OnePerFrame,
            };
            let packets = packets.packets(settings::PACKETS);
            let routes = settings::routes(routes);
            let batch = shape.packets_for_a_batch_of_frames(sizes);
            let mut tunnel = Tunnel::new(
                shape.capacity(sizes),
                &routes,
                packets,
                window.unwrap_or(batch),
            );
            let group = format!("decapsulate 100 B, {shape}");
            let packets = tunnel.packets().to_vec();
            measure(c, &group, name, &packets, |n| tunnel.decapsulate(n));
        }
    }
}

criterion_group! {
    name = benches;
    config = settings::criterion();
    targets = sizes, circumstances
}
criterion_main!(benches);
