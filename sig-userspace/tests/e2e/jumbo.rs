//! Frames and packets larger than a packet buffer.

use std::time::Duration;

use crate::{
    bed::{Bed, assert_pings},
    traffic::exchange_files,
};
use testbed::{Family, Options, Route, Site};

/// Payloads of echo requests: small, larger than a buffer, of a full frame, larger than a frame, and a train of IP fragments.
const SIZES: [u32; 6] = [64, 3600, 8000, 8700, 8952, 20_000];

fn jumbo(dataplane: &str) -> Options {
    Options {
        path_mtu: 8900,
        lan_mtu: 9000,
        tunnel_mtu: 9000,
        dataplane: dataplane.to_owned(),
        ..Options::default()
    }
}

fn all_cross(options: &Options) -> Bed {
    let bed = Bed::running(options);
    for family in Family::ALL {
        for size in SIZES {
            assert_pings(&bed.network, family, 5, size);
        }
    }
    bed
}

fn assert_nothing_dropped(site: &Site) {
    let status = site.status().expect("a status");
    let lost = ["no_free_chunk", "packet_too_big", "bad_checksum"].map(|why| status.dropped(why));
    assert_eq!(lost, [0; 3], "{status:#?}");
}

#[test]
fn jumbo_packets_cross_in_frames_of_their_size() {
    let bed = all_cross(&jumbo(""));
    let (a, b) = (&bed.network.a, &bed.network.b);
    for family in Family::ALL {
        exchange_files(a, b, family);
    }
    for site in [a, b] {
        assert_nothing_dropped(site);
        let counters = site.status().expect("a status").counters;
        let mean = counters.frame_bytes_sent / counters.frames_sent.max(1);
        assert!(mean > 2000, "frames of {mean} bytes on average");
    }
}

#[test]
fn jumbo_packets_cross_through_the_workers_alone() {
    let bed = all_cross(&jumbo("fast_path = \"off\"\nworkers = 2"));
    let (a, b) = (&bed.network.a, &bed.network.b);
    exchange_files(a, b, Family::V4);
    [a, b].into_iter().for_each(assert_nothing_dropped);
}

#[test]
fn jumbo_packets_cross_in_generic_mode_and_through_a_third_as() {
    all_cross(&Options {
        route: Route::Crossing,
        ..jumbo("mode = \"generic\"")
    });
}

/// One side has jumbo frames on its LAN, the other does not, and neither has the way between them.
#[test]
fn a_jumbo_lan_speaks_with_one_that_has_none() {
    let mut bed = Bed::new(&Options {
        path_mtu: 1472,
        ..jumbo("")
    });
    let b = &bed.network.b;
    for netns in [&b.client, &b.gateway] {
        netns.ip("link set lan mtu 1500").expect("a device");
    }
    bed.network
        .start_gateways()
        .unwrap_or_else(|e| panic!("{e:#}"));
    let (a, b) = (&bed.network.a, &bed.network.b);
    for family in Family::ALL {
        // The first packet that is too large for the other LAN is answered with an error.
        let to = b.client_ip(family);
        let _ = testbed::ping(&a.client, to, 1, 8000, Duration::from_millis(20));
        for size in [64, 1400, 8000] {
            assert_pings(&bed.network, family, 10, size);
        }
        exchange_files(a, b, family);
    }
}
