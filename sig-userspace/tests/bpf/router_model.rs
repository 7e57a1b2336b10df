//! The real program of the border router and the engine over random packets in random ASes: they must agree.
//!
//! `SIG_CASES` sets how many ASes are tried, `SIG_SEED` the first of them. A failure prints packet and seed.

use std::{collections::BTreeMap, env, fs};

use crate::router_support::{
    compare::{Hosts, Pair, Wrapping, load},
    random::{Dice, HOSTS, arrival, place},
};
use crate::support::netns::{Netns, root_or_skip, veth};
use sig_common::router::Reason;

/// Reasons that a single packet does not have.
const OTHERS: [Reason; 6] = [
    // Of the slow path alone.
    Reason::NoService,
    Reason::AnswersError,
    // Every address is everywhere here, and a checksum is open by chance alone.
    Reason::WrongDevice,
    Reason::OpenChecksum,
    // The kernel's tables lead everywhere, and there is no limit.
    Reason::NoHost,
    Reason::RateLimited,
];
/// ASes that are tried.
const CASES: u64 = 150;
/// Packets in each AS.
const PACKETS: usize = 40;

/// A number from the environment.
pub(crate) fn number(name: &str, default: u64) -> u64 {
    match env::var(name) {
        Ok(text) => text.parse().expect("a number"),
        Err(_) => default,
    }
}

/// A namespace that knows the hosts, and the one with which their link goes.
fn hosts() -> ([Netns; 2], Hosts) {
    let (netns, lan) = (Netns::new("model"), Netns::new("lan"));
    veth((&netns, "hosts"), (&lan, "router"));
    let theirs = "02:00:00:00:00:99";
    netns.ip("link set hosts address 02:00:00:00:00:11 mtu 1500");
    netns.ip("addr add 10.0.0.1/24 dev hosts");
    netns.ip("addr add fd00::1/64 dev hosts nodad");
    for neighbour in [HOSTS[0], HOSTS[2], "10.0.0.254", "fd00::254"] {
        netns.ip(&format!(
            "neigh add {neighbour} lladdr {theirs} dev hosts nud permanent"
        ));
    }
    netns.ip("route add default via 10.0.0.254");
    netns.ip("route add default via fd00::254");
    netns.run(|| {
        for family in ["ipv4", "ipv6"] {
            for device in ["all", "lo", "hosts"] {
                let file = format!("/proc/sys/net/{family}/conf/{device}/forwarding");
                fs::write(file, "1").expect("a setting of the kernel");
            }
        }
    });
    let line = netns.ip("-o link show hosts");
    let number = line.split(':').next().expect("a number");
    let hosts = Hosts::Known {
        ifindex: number.trim().parse().expect("a number"),
        ours: [2, 0, 0, 0, 0, 0x11],
        theirs: [2, 0, 0, 0, 0, 0x99],
        mtu: 1500,
    };
    ([netns, lan], hosts)
}

#[test]
fn the_program_does_what_the_engine_does() {
    if !root_or_skip() {
        return;
    }
    let (first, cases) = (number("SIG_SEED", 0), number("SIG_CASES", CASES));
    let ([netns, _lan], hosts) = hosts();
    let mut seen: BTreeMap<Option<Reason>, usize> = BTreeMap::new();
    netns.run(|| {
        let mut programs = load(hosts);
        for seed in first..first + cases {
            let mut dice = Dice::new(seed);
            let place = place(&mut dice);
            let pair = Pair::new(&mut programs, &place, hosts, &mut dice);
            for index in 0..PACKETS {
                let arrival = arrival(&mut dice, &place.model);
                let wrapping = Wrapping::any(&mut dice);
                match pair.check(&arrival.packet, arrival.ingress, &wrapping) {
                    Ok(reason) => *seen.entry(reason).or_default() += 1,
                    Err(difference) => {
                        panic!("SIG_SEED={seed}, packet {index}: {difference}");
                    }
                }
            }
        }
    });
    println!("{seen:?}");
    if cases < CASES {
        return;
    }
    // The comparison is worth what the packets reach.
    let unseen: Vec<_> = Reason::ALL
        .into_iter()
        .filter(|reason| !seen.contains_key(&Some(*reason)) && !OTHERS.contains(reason))
        .collect();
    assert!(unseen.is_empty(), "no packet has reached {unseen:?}");
    let forwarded = seen.get(&None).copied().unwrap_or(0);
    assert!(5 * forwarded > seen.values().sum(), "{forwarded} forwarded");
}
