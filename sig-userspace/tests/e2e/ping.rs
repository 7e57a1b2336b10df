//! Packets of all sizes cross the tunnel, in every way a gateway can be set up.

use crate::bed::{Bed, assert_pings};
use testbed::{Family, Options, Route, Underlay};

/// Payloads of echo requests: a small one, one that fills a frame, one that fills the LAN's MTU (over IPv4), and one
/// that leaves as a train of IP fragments.
const SIZES: [u32; 4] = [64, 1400, 1472, 8972];

fn all_sizes_cross(options: &Options) -> Bed {
    let bed = Bed::running(options);
    for family in Family::ALL {
        for size in SIZES {
            assert_pings(&bed.network, family, 20, size);
        }
    }
    bed
}

#[test]
fn packets_larger_than_a_frame_cross_at_a_path_mtu_of_1280() {
    all_sizes_cross(&Options {
        path_mtu: 1280,
        ..Options::default()
    });
}

#[test]
fn packets_larger_than_a_frame_cross_at_a_path_mtu_of_1472() {
    all_sizes_cross(&Options::default());
}

#[test]
fn all_sizes_cross_over_an_ipv6_underlay() {
    let underlay = Underlay::V6;
    all_sizes_cross(&Options {
        underlay,
        path_mtu: 1452,
        ..Options::default()
    });
}

#[test]
fn all_sizes_cross_with_two_workers_on_one_queue() {
    let dataplane = "workers = 2".to_owned();
    let bed = all_sizes_cross(&Options {
        dataplane,
        ..Options::default()
    });
    assert_eq!(bed.network.a.status().unwrap().workers.len(), 2);
}

#[test]
fn all_sizes_cross_in_generic_mode() {
    let dataplane = "mode = \"generic\"".to_owned();
    let bed = all_sizes_cross(&Options {
        dataplane,
        ..Options::default()
    });
    let ports = bed.network.b.status().unwrap().ports;
    for port in ports.iter().filter(|port| port.role != "tunnel") {
        assert_eq!(port.mode, "generic", "{}", port.interface);
    }
}

#[test]
fn the_gateway_host_itself_reaches_the_other_side() {
    let bed = Bed::running(&Options::default());
    for family in Family::ALL {
        let to = bed.network.b.client_ip(family);
        let interval = std::time::Duration::from_millis(20);
        let ping = testbed::ping(&bed.network.a.gateway, to, 20, 1400, interval).unwrap();
        assert_eq!(ping.received, ping.sent, "{to}");
    }
}

#[test]
fn all_sizes_cross_through_a_third_as() {
    all_sizes_cross(&Options {
        route: Route::Crossing,
        ..Options::default()
    });
}
