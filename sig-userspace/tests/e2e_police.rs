//! What a gateway does not carry, and what it tells about it.

mod e2e;

use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use e2e::Bed;
use testbed::{Family, Network, Options, Site, wait_until};

/// Waits until the gateway has counted so many drops for `reason`.
fn assert_dropped(site: &Site, reason: &str, count: u64) {
    let counted = wait_until(reason, Duration::from_secs(3), || {
        Ok(site.status()?.dropped(reason) >= count)
    });
    assert!(counted.is_ok(), "{counted:?}: {:#?}", site.status());
}

/// One echo request with this many hops to go, and what `ping` says about it.
fn probe(network: &Network, to: IpAddr, hops: u32) -> String {
    let output = network
        .a
        .client
        .command("ping")
        .args([
            "-n",
            "-c",
            "1",
            "-W",
            "2",
            "-t",
            &hops.to_string(),
            &to.to_string(),
        ])
        .output()
        .expect("ping");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn both_gateways_are_hops_on_the_way() {
    let bed = Bed::running(&Options::default());
    let network = &bed.network;
    for family in Family::ALL {
        let to = network.b.client_ip(family);
        for (hops, router) in [(1, &network.a), (2, &network.b)] {
            let answer = probe(network, to, hops);
            let from = format!("From {} ", router.gateway_ip(family));
            assert!(answer.contains(&from), "{hops} hops to {to}: {answer}");
            let exceeded = ["Time to live exceeded", "Time exceeded: Hop limit"];
            assert!(
                exceeded.iter().any(|text| answer.contains(text)),
                "{hops} hops to {to}: {answer}"
            );
        }
        let answer = probe(network, to, 3);
        assert!(answer.contains("1 received"), "3 hops to {to}: {answer}");
    }
}

#[test]
fn hosts_learn_of_a_smaller_mtu_behind_the_other_gateway() {
    let mut bed = Bed::new(&Options::default());
    for netns in [&bed.network.b.gateway, &bed.network.b.client] {
        netns.ip("link set lan mtu 1280").unwrap();
    }
    bed.network.start_gateways().unwrap();
    for family in Family::ALL {
        let to = bed.network.b.client_ip(family).to_string();
        let mut ping = bed.network.a.client.command("ping");
        let output = ping
            .args(["-n", "-c", "2", "-W", "2", "-M", "do", "-s", "1372", &to])
            .output()
            .expect("ping");
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).to_lowercase();
        let told = ["mtu = 1280", "mtu=1280", "mtu: 1280"];
        assert!(told.iter().any(|told| text.contains(told)), "{text}");
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
    e2e::assert_pings(&bed.network, Family::V4, 5, 64);
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
    e2e::assert_pings(&bed.network, Family::V6, 5, 1472);
}
