//! The network itself, without gateways: what the other end-to-end tests stand on.

mod e2e;

use std::net::UdpSocket;
use std::time::Duration;

use testbed::{Options, Underlay};

#[test]
fn routers_carry_datagrams_from_gateway_to_gateway() {
    for underlay in [Underlay::V4, Underlay::V6] {
        let bed = e2e::Bed::new(&Options {
            underlay,
            ..Options::default()
        });
        let (a, b) = (&bed.network.a, &bed.network.b);
        let socket = |site: &testbed::Site| {
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
        };
        let (at_a, at_b) = (socket(a), socket(b));
        for (from, to, router, length) in [
            (&at_a, &at_b, (a.router_inside(), b.router_inside()), 1),
            (&at_b, &at_a, (b.router_inside(), a.router_inside()), 1400),
        ] {
            let sent = vec![length as u8; length];
            from.send_to(&sent, router.0).unwrap();
            let mut received = [0; 2000];
            let (n, source) = to.recv_from(&mut received).unwrap();
            assert_eq!((&received[..n], source), (&*sent, router.1));
        }
    }
}
