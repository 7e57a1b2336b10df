//! From SIG frames to IP packets: `Worker::process` over frames from the underlay.

use benches::pipeline::{
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
                |packets| {
                    Tunnel::new(
                        shape.capacity(sizes),
                        &[],
                        packets,
                        shape.packets_for_a_batch_of_frames(sizes),
                    )
                },
                Tunnel::decapsulate,
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
            let window = window.unwrap_or(shape.packets_for_a_batch_of_frames(sizes));
            measure(
                c,
                &format!("decapsulate 100 B, {shape}"),
                name,
                traffic.packets(settings::PACKETS),
                |packets| {
                    let routes = settings::routes(routes);
                    Tunnel::new(shape.capacity(sizes), &routes, packets, window)
                },
                Tunnel::decapsulate,
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
