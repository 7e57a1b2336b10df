//! What the benchmarks have in common.

use std::time::Duration;

use criterion::{Criterion, Throughput};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::pipeline::{
    shape::Shape,
    traffic::{self, SIZES, Sizes, Traffic, Version},
    tunnel::Tunnel,
};

/// Packets of one iteration: a multiple of every number of flows.
pub const PACKETS: usize = 4096;

/// What makes carrying 100-byte packets dearer: name, IP version, flows, further prefixes, and
/// packets that wait at once, if other than a batch. 4096 waiting packets lie in 16 MiB, and so come
/// from the last cache, as those that a network card has just written do.
const CIRCUMSTANCES: [(&str, Version, usize, usize, Option<usize>); 7] = [
    ("1 flow", Version::V4, 1, 0, None),
    ("1 flow, IPv6", Version::V6, 1, 0, None),
    ("64 flows", Version::V4, 64, 0, None),
    ("4096 flows", Version::V4, 4096, 0, None),
    (
        "4096 flows, 10 000 prefixes",
        Version::V4,
        4096,
        10_000,
        None,
    ),
    ("1 flow, 4096 packets wait", Version::V4, 1, 0, Some(4096)),
    (
        "64 flows, 4096 packets wait",
        Version::V4,
        64,
        0,
        Some(4096),
    ),
];

/// Few samples of a second each: the machine's noise is larger than what more would show.
#[must_use]
pub fn criterion() -> Criterion {
    Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .without_plots()
        .configure_from_args()
}

/// Measures a function that takes all `packets` through what `make` makes of them, as often as it is
/// told, and returns the time of that.
pub fn measure<T>(
    criterion: &mut Criterion,
    group: &str,
    name: &str,
    packets: Vec<Vec<u8>>,
    make: impl FnOnce(Vec<Vec<u8>>) -> T,
    mut take: impl FnMut(&mut T, u64) -> Duration,
) {
    let mut group = criterion.benchmark_group(group);
    group.throughput(Throughput::ElementsAndBytes {
        elements: packets.len() as u64,
        bytes: traffic::bytes(&packets),
    });
    // Made when the benchmark is not filtered out, once.
    let (mut parts, mut made) = (Some((packets, make)), None);
    group.bench_function(name, |bencher| {
        if let Some((packets, make)) = parts.take() {
            made = Some(make(packets));
        }
        if let Some(made) = &mut made {
            bencher.iter_custom(|iterations| take(made, iterations));
        }
    });
    group.finish();
}

/// Measures the worker of one gateway: packets of all lengths in each shape, which have these names, and packets of 100
/// bytes in all circumstances. `window` packets wait at once.
pub fn direction(
    criterion: &mut Criterion,
    name: &str,
    shapes: [(Shape, &str); 3],
    window: fn(Shape, Sizes) -> usize,
    take: fn(&mut Tunnel, u64) -> Duration,
) {
    let traffic = |version, sizes, flows, shape| Traffic {
        version,
        sizes,
        flows,
        alternate_classes: shape == Shape::OnePerFrame,
    };
    for (shape, group) in shapes {
        for sizes in SIZES {
            measure(
                criterion,
                &format!("{name}, {group}"),
                &sizes.to_string(),
                traffic(Version::V4, sizes, 1, shape).packets(PACKETS),
                |packets| Tunnel::new(shape.capacity(sizes), &[], packets, window(shape, sizes)),
                take,
            );
        }
    }
    let sizes = Sizes::Fixed(100);
    for (circumstances, version, flows, prefixes, waiting) in CIRCUMSTANCES {
        for shape in [Shape::OnePerFrame, Shape::Packed] {
            let window = waiting.unwrap_or(window(shape, sizes));
            measure(
                criterion,
                &format!("{name} 100 B, {shape}"),
                circumstances,
                traffic(version, sizes, flows, shape).packets(PACKETS),
                |packets| Tunnel::new(shape.capacity(sizes), &routes(prefixes), packets, window),
                take,
            );
        }
    }
}

/// Prefixes of a large table, of both versions in turn, of lengths as in the Internet (mostly /24 and
/// /48), none of which holds an address of the traffic.
#[must_use]
pub fn routes(count: usize) -> Vec<IpNet> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    (0..count)
        .map(|n| {
            let bits = random.next();
            let length = bits >> 32;
            if n % 2 == 0 {
                let length = [24, 24, 24, 24, 22, 20, 23, 16][length as usize % 8];
                let address = (bits as u32 & 0x7fff_ffff) | 0x4000_0000;
                IpNet::V4(Ipv4Net::new_assert(address.into(), length).trunc())
            } else {
                let length = [48, 48, 48, 48, 32, 40, 44, 29][length as usize % 8];
                let address = 0x2000 << 112 | u128::from(random.next()) << 51 >> 3;
                IpNet::V6(Ipv6Net::new_assert(address.into(), length).trunc())
            }
        })
        .collect()
}

/// Numbers that are the same in every run (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next number.
    #[expect(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}
