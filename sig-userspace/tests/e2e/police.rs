//! What a gateway does not carry, and what it tells about it.

use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use crate::bed::Bed;
use testbed::{Family, Options, Site, wait_until};

/// Waits until the gateway has counted so many drops for `reason`.
fn assert_dropped(site: &Site, reason: &str, count: u64) {
    let counted = wait_until(reason, Duration::from_secs(3), || {
        Ok(site.status()?.dropped(reason) >= count)
    });
    assert!(counted.is_ok(), "{counted:?}: {:#?}", site.status());
}

/// The gateways have no `[tunnel] src_ipv4`: the kernel of B chooses what its errors come from.
#[test]
fn both_gateways_are_hops_on_the_way_and_tell_of_a_smaller_mtu() {
    let bed = Bed::running(&Options::default());
    let network = &bed.network;
    let ask = |family, arguments: &[&str]| {
        let mut ping = network.a.client.command("ping");
        ping.args(["-n", "-c", "1", "-W", "2"]).args(arguments);
        let to = network.b.client_ip(family).to_string();
        let output = ping.arg(to).output().expect("ping");
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&text).into_owned()
    };
    for family in Family::ALL {
        for (hops, router) in [("1", &network.a), ("2", &network.b)] {
            let answer = ask(family, &["-t", hops]);
            let own = [router.gateway_ip(family), router.data_addr().ip()];
            let from = own.map(|address| format!("From {address} "));
            let is_from = from.iter().any(|from| answer.contains(from));
            let exceeded = ["Time to live exceeded", "Time exceeded: Hop limit"];
            let is_exceeded = exceeded.iter().any(|text| answer.contains(text));
            assert!(is_from && is_exceeded, "{hops} hops: {answer}");
        }
        let answer = ask(family, &["-t", "3"]);
        assert!(answer.contains("1 received"), "3 hops: {answer}");
    }
    for netns in [&network.b.gateway, &network.b.client] {
        netns.ip("link set lan mtu 1280").unwrap();
    }
    for family in Family::ALL {
        let mut answer = String::new();
        let told = wait_until("the smaller MTU", Duration::from_secs(5), || {
            answer = ask(family, &["-M", "do", "-s", "1372"]).to_lowercase();
            let told = ["mtu = 1280", "mtu=1280", "mtu: 1280"];
            Ok(told.iter().any(|told| answer.contains(told)))
        });
        assert!(told.is_ok(), "{told:?}: {answer}");
    }
}

#[test]
fn packets_with_a_source_of_another_network_are_dropped_and_counted() {
    let bed = Bed::running(&Options::default());
    let (a, b) = (&bed.network.a, &bed.network.b);
    for (family, spoofed, length) in [
        (Family::V4, "172.16.66.6", 32),
        (Family::V6, "fd00:66::6", 128),
    ] {
        let nodad = if family == Family::V6 { "nodad" } else { "" };
        a.client
            .ip(&format!("address add {spoofed}/{length} dev lan {nodad}"))
            .unwrap();
        let spoofed: IpAddr = spoofed.parse().unwrap();
        let to = b.client_ip(family);
        let bind = |site: &Site, ip| {
            let socket = site
                .client
                .run(|| UdpSocket::bind((ip, 7003)))
                .unwrap()
                .unwrap();
            socket
                .set_read_timeout(Some(Duration::from_millis(500)))
                .unwrap();
            socket
        };
        let (sender, receiver) = (bind(a, spoofed), bind(b, to));
        let dropped = |site: &Site| site.status().unwrap().dropped("inner_source");
        let before = [a, b].map(dropped);
        for _ in 0..10 {
            sender.send_to(b"spoofed", (to, 7003)).unwrap();
        }
        assert_dropped(b, "inner_source", before[1] + 10);
        assert_eq!(dropped(a), before[0], "the receiver polices");
        let mut bytes = [0; 100];
        assert!(
            receiver.recv(&mut bytes).is_err(),
            "a packet with a spoofed source arrived"
        );
    }
    crate::bed::assert_pings(&bed.network, Family::V4, 5, 64);
}

#[test]
fn what_is_no_frame_is_dropped_and_counted_and_the_tunnel_goes_on() {
    let bed = Bed::running(&Options::default());
    let b = &bed.network.b;
    // The router of AS B sends to the gateway's data port.
    let garbage = b
        .router
        .run(|| UdpSocket::bind((b.router_inside().ip(), 0)))
        .unwrap()
        .unwrap();
    let to = b.data_addr();
    for length in [0, 1, 11, 12, 100, 1400] {
        garbage.send_to(&vec![0xff; length], to).unwrap();
    }
    let counted = wait_until("counted", Duration::from_secs(3), || {
        Ok(b.status()?.frames_discarded() >= 6)
    });
    assert!(counted.is_ok(), "{:#?}", b.status());
    crate::bed::assert_pings(&bed.network, Family::V6, 5, 1472);
}
