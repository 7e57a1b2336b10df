//! Longest-prefix match, by the number of prefixes of both IP versions together.

use std::{hint::black_box, net::IpAddr};

use benches::settings::{self, Random};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sig::dataplane::lpm::Lpm;

/// Addresses looked up in an iteration, in no order.
const ADDRESSES: usize = 4096;

fn lpm(c: &mut Criterion) {
    for prefixes in [10, 10_000, 1_000_000] {
        let routes = settings::routes(prefixes);
        let table: Lpm<u16> = routes.iter().map(|prefix| (*prefix, 1)).collect();
        let mut random = Random(1);
        for (name, v4) in [("IPv4", true), ("IPv6", false)] {
            let of_version: Vec<IpAddr> = routes
                .iter()
                .filter(|prefix| prefix.addr().is_ipv4() == v4)
                .map(|prefix| prefix.addr())
                .collect();
            let addresses: Vec<IpAddr> = (0..ADDRESSES)
                .map(|_| of_version[random.next() as usize % of_version.len()])
                .collect();
            assert!(
                addresses
                    .iter()
                    .all(|address| table.get(*address).is_some())
            );
            let mut group = c.benchmark_group(format!("lookup, {name}"));
            group.throughput(Throughput::Elements(ADDRESSES as u64));
            group.bench_function(format!("{prefixes} prefixes"), |b| {
                b.iter(|| {
                    for address in &addresses {
                        black_box(table.get(black_box(*address)));
                    }
                });
            });
            group.finish();
        }
    }
}

criterion_group! {
    name = benches;
    config = settings::criterion();
    targets = lpm
}
criterion_main!(benches);
