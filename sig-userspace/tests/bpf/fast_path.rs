//! The real programs with a fast path, and the engine over random packets: what they send and deliver must be the same.
//!
//! `SIG_CASES` sets how many gateways are tried, `SIG_SEED` the first of them. A failure prints packet and seed.

mod gateway;
mod model;
mod packets;
mod plan;

use std::os::fd::AsFd as _;

use ipnet::IpNet;
use sig_common::maps::{LanRoute, TUNNEL_PORT};
use sig_common::wire::{PROTO_TCP, PROTO_UDP};
use sig_linux::bpf::{FastPathOptions, Logging, Programs};

use crate::frames::{LO, xdp_socket};
use crate::router_model::number;
use crate::support::netns::root_or_skip;
use gateway::Settings;
use model::{Bed, Model, SOCKETS, Seen, count};
use plan::Follower;

/// Gateways that are tried.
const CASES: u64 = 20;
/// One that was different once: what was dropped of a stream behind number 2^63 was not told to its worker.
const FOUND: u64 = 9_000_329;
/// What happens to each.
const STEPS: usize = 150;

fn check(settings: Settings, other: u64) {
    if !root_or_skip() {
        return;
    }
    let options = FastPathOptions {
        sockets: SOCKETS.iter().map(|sockets| sockets.count).sum(),
        clamp_mss: settings.clamp_mss,
        verify_checksums: settings.verify_checksums,
    };
    let (mut programs, maps) = Programs::load_with_fast_path(Logging::Off, options).unwrap();
    let sockets: Vec<_> = (0..options.sockets).map(|_| xdp_socket()).collect();
    for (index, socket) in (0..).zip(&sockets) {
        programs.set_socket(index, socket.as_fd()).unwrap();
    }
    for (port, sockets) in [LO, TUNNEL_PORT].into_iter().zip(SOCKETS) {
        programs.set_steering(port, 0, sockets).unwrap();
    }
    let everywhere =
        ["0.0.0.0/0", "::/0"].map(|net| (net.parse::<IpNet>().unwrap(), LanRoute::TUNNEL));
    programs.set_lan_routes(everywhere).unwrap();
    let mut bed = Bed {
        programs,
        follower: Follower::new(maps, settings.buffers),
        settings,
        generation: 0,
        next_path: 1,
    };
    let (first, cases) = (number("SIG_SEED", other), number("SIG_CASES", CASES));
    let mut seen = Seen::new();
    for seed in (first..first + cases).chain([FOUND]) {
        let mut model = Model::new(&mut bed, seed, &mut seen);
        let result = (0..STEPS)
            .try_for_each(|_| model.step())
            .and_then(|()| model.end());
        if let Err(difference) = result {
            panic!(
                "{}SIG_SEED={seed} {settings:?}: {difference}",
                model.story()
            );
        }
    }
    println!("{seen:#?}");
    if cases < CASES {
        return;
    }
    let jumbo = ["Lan", "Underlay"].map(|side| count(&seen, &format!("{side}: fast, jumbo")));
    assert_eq!(jumbo.map(|count| count > 0), [settings.buffers; 2]);
    // The comparison is worth what takes the fast path.
    for side in ["Lan", "Tunnel", "Underlay"] {
        let [fast, worker] =
            ["fast, IP", "worker"].map(|way| count(&seen, &format!("{side}: {way}")));
        assert!(25 * fast > worker, "{side}: {fast} fast, {worker} not");
        for version in [4, 6] {
            for protocol in [PROTO_TCP, PROTO_UDP] {
                let what = format!("{side}: fast, IPv{version}, protocol {protocol}");
                assert!(seen.contains_key(&what), "{what}: never");
            }
        }
    }
    for what in [
        "Lan: fast, padded",
        "Lan: fast, no checksum",
        "Lan: fast, partial checksum",
        "Lan: fast, UDP shorter",
        "Tunnel: fast, last hop",
        "Underlay: worker behind",
        "plan: another one",
    ] {
        assert!(count(&seen, what) > 0, "{what}: never");
    }
}

#[test]
fn the_programs_do_what_the_engine_does() {
    check(
        Settings {
            clamp_mss: true,
            verify_checksums: true,
            partial_checksums: true,
            buffers: true,
        },
        0,
    );
}

#[test]
fn so_they_do_without_looking_at_checksums_and_segment_sizes_or_sending_several_buffers() {
    check(
        Settings {
            clamp_mss: false,
            verify_checksums: false,
            partial_checksums: false,
            buffers: false,
        },
        1_000_000,
    );
}
