//! Longest-prefix match, by the number of prefixes of both IP versions together.

use std::{hint::black_box, net::IpAddr};

use benches::pipeline::settings::{self, Random};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sig_core::dataplane::{flow_cache::FlowCache, lpm::Lpm};

/// Addresses looked up in an iteration, in no order.
const ADDRESSES: usize = 65_536;

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

/// A hit in the memory in front of the tables, by the number of flows.
fn flow_cache(c: &mut Criterion) {
    for flows in [1u32, 64, 1024] {
        let pairs: Vec<[IpAddr; 2]> = (0..flows)
            .map(|n| [0x0a01_0000, 0x0a02_0000].map(|site| IpAddr::V4((site + n).into())))
            .collect();
        let mut cache = FlowCache::<u16>::default();
        let mut group = c.benchmark_group("lookup, flow cache");
        group.throughput(Throughput::Elements(flows.into()));
        group.bench_function(
            match flows {
                1 => "1 flow".to_owned(),
                flows => format!("{flows} flows"),
            },
            |b| {
                b.iter(|| {
                    for pair in &pairs {
                        let [source, destination] = black_box(*pair);
                        black_box(cache.get_or_decide(1, source, destination, |_| true, || 1));
                    }
                });
            },
        );
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = settings::criterion();
    targets = lpm, flow_cache
}
criterion_main!(benches);
