//! How packets from the other AS reach the client: straight from the worker, or through the kernel's tables.

use std::thread;
use std::time::Duration;

use crate::bed::{Bed, assert_pings};
use testbed::{Family, Netns, Options, Site, Status, ping, wait_until};

const PATIENCE: Duration = Duration::from_secs(10);

fn status(site: &Site) -> Status {
    site.status().unwrap_or_else(|e| panic!("{e:#}"))
}

/// Waits until both gateways have learned from the kernel how to reach both addresses of their clients.
fn learn(bed: &Bed) {
    for family in Family::ALL {
        assert_pings(&bed.network, family, 1, 64);
    }
    for site in [&bed.network.a, &bed.network.b] {
        wait_until("the neighbours are known", PATIENCE, || {
            Ok(site.status()?.lan.neighbours >= 2)
        })
        .unwrap_or_else(|e| panic!("{e:#}: {:#?}", site.status()));
    }
}

#[test]
fn known_hosts_are_sent_to_without_the_kernel() {
    for workers in [1, 2] {
        let bed = Bed::running(&Options {
            dataplane: format!("workers = {workers}"),
            ..Options::default()
        });
        learn(&bed);
        let (a, b) = (&bed.network.a, &bed.network.b);
        let before = [status(a).counters, status(b).counters];
        for family in Family::ALL {
            assert_pings(&bed.network, family, 50, 1000);
        }
        for (site, before) in [a, b].into_iter().zip(before) {
            let now = status(site);
            assert_eq!(now.lan.helped, [""; 0]);
            assert!(
                now.counters.packets_straight >= before.packets_straight + 100,
                "{before:?} {now:#?}"
            );
            // Neighbour discovery of IPv6 may send a few packets more, but the pings are not among them.
            assert!(
                now.counters.packets_via_helper < before.packets_via_helper + 10,
                "{before:?} {now:#?}"
            );
        }
    }
}

#[test]
fn packets_that_need_a_router_still_get_one() {
    let bed = Bed::running(&Options::default());
    learn(&bed);
    let (a, b) = (&bed.network.a, &bed.network.b);
    // One hop to the gateway of A, one to the gateway of B, which has none left for the client.
    let to = b.client_ip(Family::V4);
    let before = status(b).counters.packets_via_helper;
    let output = a
        .client
        .command("ping")
        .args(["-n", "-c", "3", "-i", "0.2", "-W", "2", "-t", "2"])
        .arg(to.to_string())
        .output()
        .expect("ping is installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("Time to live exceeded"), "{text}");
    assert!(status(b).counters.packets_via_helper >= before + 3);

    // What is too long for the client's link: the kernel asks the sender for less, or fragments.
    for netns in [&b.gateway, &b.client] {
        netns.ip("link set lan mtu 1280").expect("a link");
    }
    wait_until("the smaller MTU", PATIENCE, || {
        let before = b.status()?.counters.packets_via_helper;
        ping(&a.client, to, 1, 1400, Duration::from_millis(20))?;
        Ok(b.status()?.counters.packets_via_helper > before)
    })
    .unwrap_or_else(|e| panic!("{e:#}"));
    assert_pings(&bed.network, Family::V4, 10, 1400);
}

#[test]
fn a_client_with_a_new_mac_address_is_found_again() {
    let bed = Bed::running(&Options::default());
    learn(&bed);
    let (a, b) = (&bed.network.a, &bed.network.b);
    a.client
        .ip("link set lan address 02:00:00:00:77:01")
        .expect("the client's link");
    // As after any such change, the client loses its own neighbours and asks for the gateway.
    for family in Family::ALL {
        wait_until("an answer to the new address", PATIENCE, || {
            let to = b.client_ip(family);
            Ok(ping(&a.client, to, 1, 64, Duration::from_millis(20))?.received == 1)
        })
        .unwrap_or_else(|e| panic!("{e:#}: {:#?}", a.status()));
    }
    learn(&bed);
    let before = status(a).counters.packets_straight;
    assert_pings(&bed.network, Family::V4, 20, 64);
    assert!(status(a).counters.packets_straight >= before + 20);
}

#[test]
fn the_helper_carries_everything_where_the_configuration_says_so() {
    let bed = Bed::running(&Options {
        dataplane: "lan_transmit = \"helper\"".into(),
        ..Options::default()
    });
    for family in Family::ALL {
        assert_pings(&bed.network, family, 20, 1000);
    }
    for site in [&bed.network.a, &bed.network.b] {
        let now = status(site);
        assert_eq!((now.counters.packets_straight, now.lan.neighbours), (0, 0));
        assert!(now.counters.packets_via_helper >= 40, "{now:#?}");
        assert!(now.lan.helped[0].contains("lan_transmit"), "{now:#?}");
    }
}

/// Packets that the kernel of a gateway forwarded, netfilter's FORWARD chain included.
fn forwarded(site: &Site) -> u64 {
    let output = site
        .gateway
        .command("cat")
        .arg("/proc/net/snmp")
        .output()
        .expect("cat is installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Ip: "));
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let mut columns = names.split(' ').zip(values.split(' '));
    let column = columns.find(|(name, _)| *name == "ForwDatagrams");
    column.and_then(|(_, n)| n.parse().ok()).expect("a number")
}

#[test]
fn the_kernel_forwards_everything_where_the_configuration_says_so() {
    let bed = Bed::running(&Options {
        dataplane: "lan_transmit = \"kernel\"".into(),
        ..Options::default()
    });
    let sites = [&bed.network.a, &bed.network.b];
    let before = sites.map(forwarded);
    for family in Family::ALL {
        assert_pings(&bed.network, family, 20, 1000);
    }
    for (site, before) in sites.into_iter().zip(before) {
        let (now, status) = (forwarded(site), status(site));
        assert!(now >= before + 20, "{before} {now} {status:#?}");
        assert!(status.lan.helped[0].contains("lan_transmit"), "{status:#?}");
    }
}

#[test]
fn changing_between_the_two_ways_loses_no_packet() {
    let bed = Bed::running(&Options::default());
    learn(&bed);
    let (a, b) = (&bed.network.a, &bed.network.b);
    let before = status(b).counters;
    thread::scope(|scope| {
        scope.spawn(|| {
            // About as long as the pings.
            for _ in 0..60 {
                for site in [a, b] {
                    site.gateway.ip("neigh flush dev lan").expect("a flush");
                }
                thread::sleep(Duration::from_millis(100));
            }
        });
        for family in Family::ALL {
            assert_pings(&bed.network, family, 150, 64);
        }
    });
    let now = status(b).counters;
    assert!(
        now.packets_straight > before.packets_straight
            && now.packets_via_helper > before.packets_via_helper,
        "{before:?} {now:?}"
    );
}

/// Waits until client A gets an answer from this address.
fn assert_answers(bed: &Bed, to: &str) {
    let to = to.parse().expect("an address");
    wait_until(&format!("an answer of {to}"), PATIENCE, || {
        Ok(ping(&bed.network.a.client, to, 1, 64, Duration::from_millis(20))?.received == 1)
    })
    .unwrap_or_else(|e| panic!("{e:#}: {:#?}", bed.network.a.status()));
}

#[test]
fn what_the_kernel_would_keep_is_not_taken_into_the_tunnel() {
    // Within the prefixes of B: a management network of gateway A, and behind it a network that a route leads to.
    let mut bed = Bed::new(&Options::default());
    let elsewhere = Netns::new("elsewhere").expect("a namespace");
    let gateway = |line: &str| bed.network.a.gateway.ip(line).expect(line);
    gateway("link add mg0 type veth peer name mg1");
    gateway(&format!("link set mg1 netns {}", elsewhere.name()));
    for line in [
        "addr add 192.168.11.201/29 dev mg0",
        "addr add fd00:11::201/120 dev mg0 nodad",
        "link set mg0 up",
    ] {
        gateway(line);
    }
    for line in [
        "addr add 192.168.11.202/29 dev mg1",
        "addr add fd00:11::202/120 dev mg1 nodad",
        "link set mg1 up",
        "link set lo up",
        "addr add 192.168.11.70/32 dev lo",
        "addr add fd00:11::770/128 dev lo",
        "route add default via 192.168.11.201",
        "route add default via fd00:11::201",
    ] {
        elsewhere.ip(line).expect(line);
    }
    bed.network
        .start_gateways()
        .unwrap_or_else(|e| panic!("{e:#}"));
    let gateway = |line: &str| bed.network.a.gateway.ip(line).expect(line);
    for to in [
        "192.168.11.201",
        "192.168.11.202",
        "fd00:11::201",
        "fd00:11::202",
    ] {
        assert_answers(&bed, to);
    }
    // What comes while the gateway runs.
    gateway("route add 192.168.11.64/26 via 192.168.11.202");
    gateway("route add fd00:11::700/120 via fd00:11::202");
    gateway("addr add 192.168.11.99/32 dev lan");
    gateway("addr add fd00:11::99/128 dev lan nodad");
    for to in [
        "192.168.11.70",
        "192.168.11.99",
        "fd00:11::770",
        "fd00:11::99",
    ] {
        assert_answers(&bed, to);
    }
    for family in Family::ALL {
        assert_pings(&bed.network, family, 3, 64);
    }

    // The prefixes of B become networks of this host, and then no longer are.
    gateway("addr add 192.168.0.1/16 dev mg0");
    gateway("addr add fd00:11::1:201/64 dev mg0 nodad");
    let leads_to = |device: &str| {
        // While neither leads there, the kernel says that it is unreachable.
        let way = |to: &str| {
            let found = bed.network.a.gateway.ip(&format!("route get {to}"));
            found.is_ok_and(|way| way.contains(&format!(" dev {device} ")))
        };
        let done = wait_until(&format!("routes to {device}"), PATIENCE, || {
            Ok(way("192.168.11.2") && way("fd00:11::2"))
        });
        done.unwrap_or_else(|e| panic!("{e:#}: {}", gateway("route show table all")));
    };
    leads_to("mg0");
    gateway("addr del 192.168.0.1/16 dev mg0");
    gateway("addr del fd00:11::1:201/64 dev mg0");
    leads_to("sig");
    for family in Family::ALL {
        assert_pings(&bed.network, family, 3, 64);
    }
}
