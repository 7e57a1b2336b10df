//! The real program `relay` over single datagrams.
#![cfg(feature = "xdp")]

mod support;

use sig::kernel::bpf::{Relay, XdpMode};
use sig_common::maps::{Ip, RelayKey, RelayValue};
use support::bpf::{LO, XDP_PASS, XDP_REDIRECT};
use support::netns::{Netns, root_or_skip};
use support::packets::Underlay;

const PORT: u16 = 30042;

fn ip(text: &str) -> Ip {
    Ip::from(text.parse::<std::net::IpAddr>().unwrap())
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
