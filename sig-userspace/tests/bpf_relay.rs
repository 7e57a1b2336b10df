//! The real program `relay` over single datagrams.
#![cfg(feature = "xdp")]

mod support;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use sig::kernel::bpf::{Relay, XdpMode};
use sig_common::maps::{Ip, RelayKey, RelayValue};
use support::bpf::{LO, XDP_PASS, XDP_REDIRECT};
use support::netns::{Netns, root_or_skip, veth};
use support::packets::Underlay;

const PORT: u16 = 30042;

fn ip(text: &str) -> Ip {
    Ip::from(text.parse::<IpAddr>().unwrap())
}

/// A relay on `lo` of a namespace of its own: `from` becomes the source, `to` the destination of what was sent to `key`.
fn with_relay(key: &str, from: &str, to: &str, test: impl FnOnce(&Relay) + Send) {
    let netns = Netns::new("relay");
    netns.run(|| {
        let mut relay = Relay::load().unwrap();
        let _attachment = relay.attach(LO, Some(XdpMode::Generic)).unwrap();
        let key = RelayKey {
            ifindex: LO,
            port: PORT,
            reserved: 0,
            dst: ip(key),
        };
        let value = RelayValue {
            src: ip(from),
            dst: ip(to),
            src_port: 50000,
            dst_port: 30056,
            ifindex: LO,
            src_mac: [2, 0, 0, 0, 0, 0x11],
            dst_mac: [2, 0, 0, 0, 0, 0x99],
            reserved: 0,
        };
        relay.set(key, value).unwrap();
        test(&relay);
    });
}

/// What the relay shall make of a datagram with this payload.
fn expected(from: &str, to: &str, payload: &[u8]) -> Vec<u8> {
    let mut frame = Underlay {
        source: from.parse().unwrap(),
        ..Underlay::to(to, 30056)
    }
    .wrap(payload);
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 0x99]);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 0x11]);
    frame
}

/// Sets the UDP source port of a frame without VLAN tags and clears the checksum.
fn without_port_and_sum(mut frame: Vec<u8>, ip_len: usize) -> Vec<u8> {
    frame[14 + ip_len..14 + ip_len + 2].fill(0);
    frame[14 + ip_len + 6..14 + ip_len + 8].fill(0);
    frame
}

/// Whether the UDP checksum of an Ethernet frame is right.
fn udp_sum_is_valid(frame: &[u8]) -> bool {
    let packet = etherparse::PacketHeaders::from_ethernet_slice(frame).unwrap();
    let Some(etherparse::TransportHeader::Udp(udp)) = packet.transport else {
        panic!("not UDP");
    };
    let payload = packet.payload.slice();
    let computed = match packet.net {
        Some(etherparse::NetHeaders::Ipv4(ip, _)) => udp.calc_checksum_ipv4(&ip, payload),
        Some(etherparse::NetHeaders::Ipv6(ip, _)) => udp.calc_checksum_ipv6(&ip, payload),
        _ => panic!("not IP"),
    };
    computed.unwrap() == udp.checksum
}

#[test]
fn ipv4_datagrams_get_other_addresses_and_right_checksums() {
    if !root_or_skip() {
        return;
    }
    with_relay("10.0.0.3", "192.0.2.77", "192.0.2.200", |relay| {
        for payload in [&b"hello"[..], &[0xff; 1400], &[]] {
            let frame = Underlay::to("10.0.0.3", PORT).wrap(payload);
            let outcome = relay.test_run(&frame).unwrap();
            assert_eq!(outcome.action, XDP_REDIRECT);
            assert!(udp_sum_is_valid(&outcome.frame));
            assert_eq!(outcome.frame[34..36], 50000u16.to_be_bytes());
            assert_eq!(
                without_port_and_sum(outcome.frame, 20),
                without_port_and_sum(expected("192.0.2.77", "192.0.2.200", payload), 20),
            );
        }
        assert_eq!(relay.forwarded().unwrap(), 3);
    });
}

#[test]
fn ipv6_datagrams_get_other_addresses_and_right_checksums() {
    if !root_or_skip() {
        return;
    }
    with_relay("fd00::3", "2001:db8::77", "2001:db8:ffff::200", |relay| {
        let frame = Underlay::to("fd00::3", PORT).wrap(b"hello");
        let outcome = relay.test_run(&frame).unwrap();
        assert_eq!(outcome.action, XDP_REDIRECT);
        assert!(udp_sum_is_valid(&outcome.frame));
        assert_eq!(
            without_port_and_sum(outcome.frame, 40),
            without_port_and_sum(expected("2001:db8::77", "2001:db8:ffff::200", b"hello"), 40),
        );
    });
}

#[test]
fn an_absent_checksum_stays_absent() {
    if !root_or_skip() {
        return;
    }
    with_relay("10.0.0.3", "192.0.2.77", "192.0.2.200", |relay| {
        let mut frame = Underlay::to("10.0.0.3", PORT).wrap(b"hello");
        frame[40..42].fill(0);
        let outcome = relay.test_run(&frame).unwrap();
        assert_eq!(outcome.frame[40..42], [0, 0]);
    });
}

#[test]
fn other_packets_are_left_to_the_kernel() {
    if !root_or_skip() {
        return;
    }
    with_relay("10.0.0.3", "192.0.2.77", "192.0.2.200", |relay| {
        let ours = Underlay::to("10.0.0.3", PORT).wrap(b"hello");
        let changed = |offset: usize, value: u8| {
            let mut frame = ours.clone();
            frame[offset] = value;
            frame
        };
        for (that, frame) in [
            ("another port", Underlay::to("10.0.0.3", 1).wrap(b"hello")),
            (
                "another host",
                Underlay::to("10.0.0.4", PORT).wrap(b"hello"),
            ),
            ("IPv6", Underlay::to("fd00::3", PORT).wrap(b"hello")),
            ("TCP", changed(14 + 9, 6)),
            ("a fragment", changed(14 + 6, 0x20)),
            ("ARP", changed(13, 6)),
            ("cut off", ours[..41].to_vec()),
        ] {
            let outcome = relay.test_run(&frame).unwrap();
            assert_eq!(outcome.action, XDP_PASS, "{that}");
            assert_eq!(outcome.frame, frame, "{that}");
        }
    });
}

/// MAC address and interface index of a device.
fn device(netns: &Netns, name: &str) -> ([u8; 6], u32) {
    let line = netns.ip(&format!("-oneline link show {name}"));
    let index = line.split(':').next().unwrap().parse().unwrap();
    let mac = line.split("link/ether ").nth(1).unwrap();
    let bytes: Vec<u8> = mac[..17]
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).unwrap())
        .collect();
    (bytes.try_into().unwrap(), index)
}

#[test]
fn two_hosts_talk_through_the_relay_without_seeing_each_other() {
    if !root_or_skip() {
        return;
    }
    let (west, middle, east) = (Netns::new("west"), Netns::new("mid"), Netns::new("east"));
    veth((&west, "eth"), (&middle, "west"));
    veth((&middle, "east"), (&east, "eth"));
    for (netns, name, v4, v6) in [
        (&west, "eth", "10.0.0.1/24", "fd00::1/64"),
        (&middle, "west", "10.0.0.254/24", "fd00::254/64"),
        (&middle, "east", "10.0.1.254/24", "fd01::254/64"),
        (&east, "eth", "10.0.1.1/24", "fd01::1/64"),
    ] {
        netns.ip(&format!("addr add {v4} dev {name}"));
        netns.ip(&format!("addr add {v6} dev {name} nodad"));
    }
    // A veth device takes redirected frames only through NAPI, which GRO brings.
    west.exec("ethtool -K eth gro on");
    east.exec("ethtool -K eth gro on");

    let ((west_mac, _), (east_mac, _)) = (device(&west, "eth"), device(&east, "eth"));
    let (to_west, to_east) = (device(&middle, "west"), device(&middle, "east"));
    let mut relay = Relay::load().unwrap();
    let _attachments = middle.run(|| {
        [to_west.1, to_east.1].map(|ifindex| relay.attach(ifindex, Some(XdpMode::Native)).unwrap())
    });
    let mut set =
        |from: ([u8; 6], u32), key: &str, out: ([u8; 6], u32), src: &str, dst: &str, mac| {
            let [key, src, dst] = [key, src, dst].map(|text| text.parse::<SocketAddr>().unwrap());
            relay
                .set(
                    RelayKey {
                        ifindex: from.1,
                        port: key.port(),
                        reserved: 0,
                        dst: key.ip().into(),
                    },
                    RelayValue {
                        src: src.ip().into(),
                        dst: dst.ip().into(),
                        src_port: src.port(),
                        dst_port: dst.port(),
                        ifindex: out.1,
                        src_mac: out.0,
                        dst_mac: mac,
                        reserved: 0,
                    },
                )
                .unwrap();
        };
    for (west_host, west_router, east_router, east_host) in [
        (
            "10.0.0.1:30056",
            "10.0.0.254:30042",
            "10.0.1.254:30042",
            "10.0.1.1:30056",
        ),
        (
            "[fd00::1]:30056",
            "[fd00::254]:30042",
            "[fd01::254]:30042",
            "[fd01::1]:30056",
        ),
    ] {
        set(
            to_west,
            west_router,
            to_east,
            east_router,
            east_host,
            east_mac,
        );
        set(
            to_east,
            east_router,
            to_west,
            west_router,
            west_host,
            west_mac,
        );

        let bind = |netns: &Netns, address: &str| {
            let socket = netns.run(|| UdpSocket::bind(address)).unwrap();
            socket
                .set_read_timeout(Some(Duration::from_secs(5)))
                .unwrap();
            socket
        };
        let (at_west, at_east) = (bind(&west, west_host), bind(&east, east_host));
        let mut buffer = [0; 2000];
        for len in [1, 100, 1400] {
            at_west.send_to(&vec![7; len], west_router).unwrap();
            let (received, sender) = at_east.recv_from(&mut buffer).unwrap();
            assert_eq!((received, sender), (len, east_router.parse().unwrap()));
            at_east.send_to(&vec![9; len], east_router).unwrap();
            let (received, sender) = at_west.recv_from(&mut buffer).unwrap();
            assert_eq!((received, sender), (len, west_router.parse().unwrap()));
        }
    }
    assert_eq!(relay.forwarded().unwrap(), 12);
}
