//! The network itself, without gateways: what the other end-to-end tests stand on.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::time::Duration;

use crate::bed::Bed;
use sig_common::addr::HostAddr;
use sig_core::scion::packet::{Addresses, parse, udp};
use testbed::{Options, Route, Site, Underlay};

/// Bytes of common header and of the address header of hosts that have addresses of this family.
fn in_front_of_path(underlay: Underlay) -> usize {
    match underlay {
        Underlay::V4 => 12 + 16 + 2 * 4,
        Underlay::V6 => 12 + 16 + 2 * 16,
    }
}

/// The path in the configuration of a site's gateway.
pub(crate) fn path(site: &Site) -> Vec<u8> {
    let text = std::fs::read_to_string(site.config_file()).unwrap();
    let raw = text.lines().find_map(|line| line.strip_prefix("raw = "));
    let digits: Vec<u8> = raw.unwrap().bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// A socket at the gateway's data address.
fn socket(site: &Site) -> UdpSocket {
    let address = site.data_addr();
    let socket = site
        .gateway
        .run(|| UdpSocket::bind(address))
        .unwrap()
        .unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(2)))
        .unwrap();
    socket
}

/// A datagram from gateway to gateway.
fn datagram(from: &Site, to: &Site, payload: &[u8]) -> Vec<u8> {
    let end = |site: &Site| {
        let address = site.data_addr();
        let host = HostAddr::from(address.ip());
        (site.isd_as().parse().unwrap(), host, address.port())
    };
    let addresses = Addresses {
        source: end(from),
        destination: end(to),
    };
    udp(&addresses, 1, &path(from), payload).unwrap()
}

fn routers_carry_datagrams(options: &Options) {
    let bed = Bed::new(options);
    let (a, b) = (&bed.network.a, &bed.network.b);
    let (at_a, at_b) = (socket(a), socket(b));
    // The first ones wait for neighbours to be resolved.
    for length in [1, 2, 3, 1000] {
        for (from, to, source, destination) in [(&at_a, &at_b, a, b), (&at_b, &at_a, b, a)] {
            let payload = vec![length as u8; length];
            let packet = datagram(source, destination, &payload);
            from.send_to(&packet, source.router_inside()).unwrap();
            let mut received = [0; 2000];
            let (n, router) = to.recv_from(&mut received).unwrap();
            assert_eq!(router, destination.router_inside());
            let arrived = parse(&received[..n]).unwrap();
            assert!(received[..n].ends_with(&payload), "{arrived:?}");
        }
    }
}

#[test]
fn routers_carry_datagrams_from_gateway_to_gateway() {
    for underlay in [Underlay::V4, Underlay::V6] {
        routers_carry_datagrams(&Options {
            underlay,
            ..Options::default()
        });
    }
}

#[test]
fn routers_carry_datagrams_through_a_third_as() {
    for underlay in [Underlay::V4, Underlay::V6] {
        routers_carry_datagrams(&Options {
            underlay,
            route: Route::Crossing,
            ..Options::default()
        });
    }
}

#[test]
fn no_router_carries_a_datagram_whose_path_nobody_signed() {
    let options = Options {
        route: Route::Crossing,
        ..Options::default()
    };
    let bed = Bed::new(&options);
    let (a, b) = (&bed.network.a, &bed.network.b);
    let (at_a, at_b) = (socket(a), socket(b));
    let genuine = datagram(a, b, b"genuine");
    // Four hop fields behind meta header and two info fields; the first byte of each one's MAC.
    let first_mac = in_front_of_path(options.underlay) + 4 + 2 * 8 + 6;
    for hop in 0..4 {
        let mut forged = datagram(a, b, b"forged");
        forged[first_mac + 12 * hop] ^= 1;
        at_a.send_to(&forged, a.router_inside()).unwrap();
    }
    at_a.send_to(&genuine, a.router_inside()).unwrap();
    let mut received = [0; 2000];
    let (n, _) = at_b.recv_from(&mut received).unwrap();
    assert!(received[..n].ends_with(b"genuine"));
    at_b.set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    let nothing = at_b.recv_from(&mut received).unwrap_err();
    assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
    let refused: u64 = bed
        .network
        .routers()
        .iter()
        .flat_map(|router| router.status().unwrap().interfaces)
        .flat_map(|interface| interface.reasons)
        .filter(|reason| reason.reason == "invalid_mac")
        .map(|reason| reason.slow)
        .sum();
    assert_eq!(refused, 4);
}
