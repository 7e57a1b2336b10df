//! Whole border routers, two of them on one link: `sig router run` in network namespaces.

mod bed;
use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::support::netns::{root_or_skip, veth, wait_until};
use bed::{
    Bed, PATIENCE, STANDALONE, Transit, datagram, host, http, internal, isd_as, parse, receive,
    socket, topology,
};
use sig_common::{
    addr::{HostAddr, IsdAs},
    wire::scion::path::SCION,
};
use sig_core::scion::{
    HopKey,
    packet::{self, Content},
    reverse,
    scmp::{Echo, Problem, Scmp},
};
use sig_linux::ethtool::{Ethtool, Offload};
use sig_router::bfd::{Control, Envelope, State};

const PORT_A: u16 = 40_000;
const PORT_B: u16 = 41_000;

/// Sessions that a busy machine does not take down.
const PATIENT: &str =
    r#""detect_mult": 20, "desired_min_tx_interval": "500ms", "required_min_rx_interval": "500ms""#;

fn scmp(bytes: &[u8]) -> Scmp {
    match parse(bytes).content {
        Content::Scmp(message) => message,
        other => panic!("no SCMP message: {other:?}"),
    }
}

fn problem(bytes: &[u8]) -> Problem {
    match scmp(bytes) {
        Scmp::Error { problem, .. } => problem,
        other => panic!("no SCMP error: {other:?}"),
    }
}

fn text(bytes: &[u8]) -> Vec<u8> {
    match parse(bytes).content {
        Content::Udp { payload, .. } => payload.to_vec(),
        other => panic!("no UDP datagram: {other:?}"),
    }
}

#[test]
fn two_routers_carry_packets_and_answer_those_that_go_no_further() {
    if !root_or_skip() {
        return;
    }
    let bed = Bed::new();
    let a = bed.start('a', STANDALONE, PATIENT);
    let mut b = bed.start('b', STANDALONE, PATIENT);
    for router in [&a, &b] {
        router.wait_for_link(true);
        router.wait_for_next_hop();
        assert_eq!(router.interface(1).bfd.unwrap().state, "up");
    }
    let host_a = socket(&bed.host_a, "10.1.0.2:40000");
    let host_b = socket(&bed.host_b, "10.2.0.2:41000");
    let path = bed.path('a', 'b', 0);
    let there = datagram(host('a', PORT_A), host('b', PORT_B), &path, b"there");
    let exchange = || {
        host_a.send_to(&there, internal('a')).unwrap();
        let arrived = receive(&host_b);
        assert_eq!(text(&arrived), b"there");
        let (_, back) = reverse::reply_path(&parse(&arrived).path).unwrap();
        let back = datagram(host('b', PORT_B), host('a', PORT_A), &back, b"back");
        host_b.send_to(&back, internal('b')).unwrap();
        assert_eq!(text(&receive(&host_a)), b"back");
    };
    // The kernel resolves the hosts for the first ones.
    exchange();

    // The processes stand still: what gets through now is forwarded in the kernel.
    for router in [&a, &b] {
        router.signal(libc::SIGSTOP);
    }
    for _ in 0..20 {
        exchange();
    }
    for router in [&a, &b] {
        router.signal(libc::SIGCONT);
    }
    wait_until("the counters show it", PATIENCE, || {
        let interface = a.interface(1);
        interface.total("out").packets >= 21 && interface.total("input").packets >= 21
    });
    assert!(a.interface(0).total("in").packets >= 21);
    assert!(b.interface(0).total("out").packets == 0);

    // Answered by the far router: it is asked by the alert flag, and as a host.
    let probe = packet::path_probe(
        (host('a', 0).0, host('a', 0).1),
        isd_as('b'),
        &path,
        PORT_A,
        7,
    );
    host_a.send_to(&probe.unwrap(), internal('a')).unwrap();
    assert_eq!(
        scmp(&receive(&host_a)),
        Scmp::TracerouteReply {
            id: PORT_A,
            sequence: 7,
            isd_as: isd_as('b'),
            interface: 1
        }
    );
    let echo = Echo {
        id: PORT_A,
        sequence: 8,
        data: b"hello".to_vec(),
    };
    let ask = packet::scmp(
        (isd_as('a'), host('a', 0).1),
        (isd_as('b'), HostAddr::V4([10, 2, 0, 1])),
        SCION,
        &path,
        &Scmp::EchoRequest(echo.clone()),
    );
    host_a.send_to(&ask.unwrap(), internal('a')).unwrap();
    assert_eq!(scmp(&receive(&host_a)), Scmp::EchoReply(echo));

    // Answered by the near router.
    let expired = bed.path('a', 'b', 100_000);
    let expired = datagram(host('a', PORT_A), host('b', PORT_B), &expired, b"old");
    host_a.send_to(&expired, internal('a')).unwrap();
    assert!(matches!(
        problem(&receive(&host_a)),
        Problem::Parameter { code: 52, .. }
    ));
    let mut forged = path.clone();
    forged[18] ^= 1;
    let forged = datagram(host('a', PORT_A), host('b', PORT_B), &forged, b"forged");
    host_a.send_to(&forged, internal('a')).unwrap();
    assert!(matches!(
        problem(&receive(&host_a)),
        Problem::Parameter { code: 51, .. }
    ));
    assert_eq!(a.reason(0, "invalid_mac").slow, 1);

    // A router that stops says so, however patient the session is.
    b.signal(libc::SIGTERM);
    assert!(b.wait());
    a.wait_for_link(false);
}

#[test]
fn a_link_that_is_cut_is_told_with_scmp_and_comes_back() {
    if !root_or_skip() {
        return;
    }
    let bed = Bed::new();
    let a = bed.start('a', STANDALONE, "");
    let b = bed.start('b', STANDALONE, "");
    a.wait_for_link(true);
    b.wait_for_link(true);
    let host_a = socket(&bed.host_a, "10.1.0.2:40000");
    bed.router_b.ip("link set x0 down");
    a.wait_for_link(false);
    let path = bed.path('a', 'b', 0);
    let lost = datagram(host('a', PORT_A), host('b', PORT_B), &path, b"lost");
    host_a.send_to(&lost, internal('a')).unwrap();
    assert_eq!(
        problem(&receive(&host_a)),
        Problem::InterfaceDown {
            isd_as: isd_as('a'),
            interface: 1
        }
    );
    bed.router_b.ip("link set x0 up");
    a.wait_for_link(true);
    b.wait_for_link(true);
    let host_b = socket(&bed.host_b, "10.2.0.2:41000");
    host_a.send_to(&lost, internal('a')).unwrap();
    assert_eq!(text(&receive(&host_b)), b"lost");
}

#[test]
fn a_reload_loses_no_packet_and_a_wrong_one_changes_nothing() {
    if !root_or_skip() {
        return;
    }
    const PACKETS: u32 = 2_000;
    let bed = Bed::new();
    let a = bed.start('a', STANDALONE, PATIENT);
    let b = bed.start('b', STANDALONE, PATIENT);
    a.wait_for_link(true);
    b.wait_for_link(true);
    let host_a = socket(&bed.host_a, "10.1.0.2:40000");
    let host_b = socket(&bed.host_b, "10.2.0.2:41000");
    let path = bed.path('a', 'b', 0);
    let first = datagram(host('a', PORT_A), host('b', PORT_B), &path, b"first");
    host_a.send_to(&first, internal('a')).unwrap();
    receive(&host_b);

    let more = r#", "2": {"underlay": {"local": "10.9.0.1:50001", "remote": "10.9.0.2:50001"},
        "isd_as": "1-ff00:0:112", "link_to": "CHILD", "mtu": 1472}"#;
    let changes = a.interface(1).bfd.unwrap().changes;
    let sent_all = AtomicBool::new(false);
    thread::scope(|scope| {
        // At once, because a socket holds only some hundred packets.
        scope.spawn(|| {
            let mut arrived = vec![false; PACKETS as usize];
            while arrived.contains(&false) {
                let text = text(&receive(&host_b));
                arrived[u32::from_be_bytes(text.try_into().unwrap()) as usize] = true;
            }
        });
        scope.spawn(|| {
            for number in 0..PACKETS {
                let text = number.to_be_bytes();
                let packet = datagram(host('a', PORT_A), host('b', PORT_B), &path, &text);
                host_a.send_to(&packet, internal('a')).unwrap();
                thread::sleep(Duration::from_millis(1));
            }
            sent_all.store(true, Ordering::Relaxed);
        });
        let mut reloads = 0;
        while !sent_all.load(Ordering::Relaxed) {
            let with_link = reloads % 2 == 0;
            let topology = topology('a', PATIENT, if with_link { more } else { "" });
            let output = a.reload(&topology);
            assert!(output.status.success(), "{output:?}");
            let told = String::from_utf8_lossy(&output.stdout);
            let what = if with_link { "new" } else { "gone" };
            assert_eq!(told.trim_end(), format!("interface 2: {what}"));
            reloads += 1;
        }
        assert!(reloads >= 2);
    });
    assert_eq!(a.interface(1).bfd.unwrap().changes, changes);

    for (wrong, word) in [
        ("{", "topology.json"),
        (
            &*topology('a', PATIENT, "").replace("CHILD", "COUSIN"),
            "link_to",
        ),
        // Nobody has that address: the sockets cannot be opened.
        (
            &*topology('a', PATIENT, "").replace("10.1.0.1:30042", "10.1.0.77:30042"),
            "10.1.0.77",
        ),
    ] {
        let output = a.reload(wrong);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && told.contains(word), "{told}");
        host_a.send_to(&first, internal('a')).unwrap();
        assert_eq!(text(&receive(&host_b)), b"first");
    }
    assert_eq!(a.status().reloads_refused, 3);
}

/// For longer than three default intervals of BFD.
const FLOOD: Duration = Duration::from_millis(1_500);

#[test]
fn floods_of_what_the_slow_path_works_on_change_no_bfd_state() {
    if !root_or_skip() {
        return;
    }
    let bed = Bed::new();
    // Detection times as in a network: 600 ms.
    // Rates that every flood is above, however slow this machine is.
    let limits = "[xdp.rate_limits]\nlocal = 100\nservice = 100\ninvalid_mac = 100\n";
    let a = bed.start('a', limits, "");
    let b = bed.start('b', STANDALONE, "");
    for router in [&a, &b] {
        router.wait_for_link(true);
        router.wait_for_next_hop();
    }
    // From another AS, so that it comes by the link that BFD is on.
    let host_b = socket(&bed.host_b, "10.2.0.2:41000");
    let path = bed.path('b', 'a', 0);
    let from = host('b', PORT_B);
    let router = HostAddr::V4([10, 1, 0, 1]);
    let echo = Scmp::EchoRequest(Echo {
        id: PORT_B,
        sequence: 1,
        data: vec![0; 40],
    });
    let (source, to) = ((from.0, from.1), isd_as('a'));
    let echo = packet::scmp(source, (to, router), SCION, &path, &echo).unwrap();
    let closed = datagram(from, (to, router, PORT_A), &path, b"closed");
    let service = datagram(from, (to, HostAddr::SVC_CS, PORT_A), &path, b"service");
    let mut forged = path.clone();
    *forged.last_mut().unwrap() ^= 1;
    let forged = datagram(from, host('a', PORT_A), &forged, b"forged");
    let state = |router: &bed::Router| {
        let bfd = router.interface(1).bfd.unwrap();
        (bfd.changes, bfd.state)
    };
    let before = [state(&a), state(&b)];
    for (kind, packet) in [
        ("local", echo),
        ("local", closed),
        ("service", service),
        ("invalid_mac", forged),
    ] {
        let limited = a.reason(1, "rate_limited");
        let end = Instant::now() + FLOOD;
        while Instant::now() < end {
            for _ in 0..1000 {
                host_b.send_to(&packet, internal('b')).unwrap();
            }
        }
        if [state(&a), state(&b)] != before {
            for (router, netns) in [(&a, &bed.router_a), (&b, &bed.router_b)] {
                eprintln!("{:#?}", router.interface(1));
                eprintln!("{}", netns.ip("-s link show dev x0"));
            }
        }
        assert_eq!([state(&a), state(&b)], before, "{kind}");
        let seen = a.reason(1, kind);
        assert!(seen.fast + seen.slow > 0, "{kind}");
        let now = a.reason(1, "rate_limited");
        assert!(
            now.fast + now.dropped > limited.fast + limited.dropped,
            "{kind}"
        );
    }
}

#[test]
fn a_neighbour_that_flaps_is_damped_and_disturbs_no_other_link() {
    if !root_or_skip() {
        return;
    }
    const PACKETS: u64 = 20_000;
    let bed = Bed::new();
    let a = bed.start('a', STANDALONE, "");
    let b = bed.start('b', STANDALONE, "");
    let more = r#", "2": {"underlay": {"local": "10.9.0.1:50001", "remote": "10.9.0.2:50001"},
        "isd_as": "1-ff00:0:112", "link_to": "CHILD", "mtu": 1472}"#;
    assert!(a.reload(&topology('a', "", more)).status.success());
    a.wait_for_link(true);
    b.wait_for_link(true);
    let neighbour = socket(&bed.router_b, "10.9.0.2:50001");
    let control = |state| {
        let control = Control {
            diagnostic: 0,
            state,
            poll: false,
            last: false,
            detect_mult: 3,
            my_discriminator: 7,
            your_discriminator: 7,
            desired_min_tx: Duration::from_millis(200),
            required_min_rx: Duration::from_millis(200),
        };
        let envelope = Envelope::Link {
            isd_as: "1-ff00:0:112".parse().unwrap(),
            neighbour: isd_as('a'),
            interface: 9,
            local: [10, 9, 0, 2].into(),
            remote: [10, 9, 0, 1].into(),
        };
        envelope.seal(&control, &HopKey::new([0; 16]), 0).unwrap()
    };
    let packets = [State::Down, State::Init].map(control);
    let others = a.interface(1).bfd.unwrap().changes;
    for number in 0..PACKETS {
        let packet = &packets[number as usize % 2];
        neighbour.send_to(packet, "10.9.0.1:50001").unwrap();
    }
    // Until nothing of it waits in a socket.
    let mut looked_at = 0;
    wait_until("all has been looked at", PATIENCE, || {
        let now = a.reason(2, "bfd").slow;
        std::mem::replace(&mut looked_at, now) == now && now > 0
    });
    let flapping = a.interface(2);
    let bfd = flapping.bfd.unwrap();
    assert!(bfd.received > 0 && bfd.changes < PACKETS / 20, "{bfd:?}");
    assert!(!flapping.up);
    let limited = a.reason(2, "rate_limited");
    assert!(limited.fast + limited.dropped > PACKETS / 2, "{limited:?}");
    let other = a.interface(1).bfd.unwrap();
    assert_eq!((other.changes, &*other.state), (others, "up"));
}

#[test]
fn packets_over_the_mtu_go_on_in_fragments() {
    if !root_or_skip() {
        return;
    }
    let bed = Bed::new();
    let a = bed.start('a', STANDALONE, PATIENT);
    let b = bed.start('b', STANDALONE, PATIENT);
    a.wait_for_link(true);
    b.wait_for_link(true);
    let host_a = socket(&bed.host_a, "10.1.0.2:40000");
    let host_b = socket(&bed.host_b, "10.2.0.2:41000");
    // More than the MTU of link and devices, as QUIC packets of the control plane have on narrow links.
    let long = vec![7; 1_700];
    let path = bed.path('a', 'b', 0);
    let packet = datagram(host('a', PORT_A), host('b', PORT_B), &path, &long);
    host_a.send_to(&packet, internal('a')).unwrap();
    assert_eq!(text(&receive(&host_b)), long);
    let counted = a.reason(0, "too_big");
    assert_eq!((counted.slow, counted.dropped), (1, 0));
    assert_eq!(a.interface(1).total("out").packets, 1);
}

#[test]
fn the_program_is_on_the_devices_that_the_router_needs() {
    if !root_or_skip() {
        return;
    }
    let bed = Bed::new();
    veth((&bed.router_a, "m0"), (&bed.host_a, "m0"));
    bed.router_a.ip("addr add 10.77.0.1/24 dev m0");
    let _a = bed.start('a', STANDALONE, PATIENT);
    let has_program = |device: &str| {
        let shown = bed.router_a.ip(&format!("link show {device}"));
        shown.contains("prog/xdp")
    };
    assert!(has_program("x0") && has_program("i0"));
    assert!(!has_program("m0"), "a device of something else");
}

#[test]
fn the_program_is_on_the_device_that_leads_to_a_silent_neighbour() {
    if !root_or_skip() {
        return;
    }
    let bed = Bed::new();
    bed.router_a.ip("addr del 10.9.0.1/30 dev x0");
    bed.router_a.ip("addr add 10.9.0.1/32 dev lo");
    bed.router_a.ip("addr del 10.1.0.1/24 dev i0");
    bed.router_a.ip("addr add 10.1.0.1/32 dev lo");
    bed.router_a.ip("addr add 10.1.0.3/24 dev i0");
    bed.router_a.ip("addr add 10.8.0.1/24 dev x0");
    bed.router_a.ip("route add 10.9.0.2/32 dev x0");
    let a = bed.start('a', STANDALONE, PATIENT);
    let devices = a.status().fast_path.unwrap().devices;
    let devices: Vec<&str> = devices.iter().map(|d| &*d.name).collect();
    assert_eq!(devices, ["i0", "x0"]);
    // It does not belong to the inside, although both addresses are on the loopback interface.
    let stranger = socket(&bed.router_b, "10.9.0.2:40001");
    bed.router_b.ip("route add 10.1.0.0/24 dev x0");
    stranger.send_to(b"hello", internal('a')).unwrap();
    wait_until("the packet is refused", PATIENCE, || {
        a.reason(0, "wrong_device").dropped == 1
    });
}

#[test]
fn devices_of_the_program_and_of_the_inside_can_be_named() {
    if !root_or_skip() {
        return;
    }
    let bed = Bed::new();
    veth((&bed.router_a, "m0"), (&bed.host_a, "m0"));
    bed.host_a.ip("addr add 10.77.0.2/24 dev m0");
    bed.host_a.ip("route add 10.1.0.1/32 dev m0");
    let named = "devices = [\"x0\", \"m0\"]\nexclude = [\"x0\"]\ninternal_devices = [\"m0\"]\n";
    let a = bed.start('a', named, PATIENT);
    let devices = a.status().fast_path.unwrap().devices;
    let devices: Vec<&str> = devices.iter().map(|d| &*d.name).collect();
    assert_eq!(devices, ["m0"]);
    // By a device that is inside by name alone.
    let host = socket(&bed.host_a, "10.77.0.2:40000");
    let junk = [0x10; 60];
    host.send_to(&junk, internal('a')).unwrap();
    wait_until("the packet is seen", PATIENCE, || {
        a.reason(0, "version").fast == 1
    });
    assert_eq!(a.reason(0, "wrong_device").dropped, 0);
}

#[test]
fn bfd_by_another_device_is_not_heard() {
    if !root_or_skip() {
        return;
    }
    let bed = Bed::new();
    let a = bed.start('a', STANDALONE, "");
    // Inside, somebody has the neighbour's address.
    bed.host_a.ip("addr add 10.9.0.2/32 dev lo");
    bed.host_a.ip("route add 10.9.0.1/32 via 10.1.0.1");
    for device in ["all", "i0"] {
        let all = format!("sysctl -qw net.ipv4.conf.{device}.rp_filter=0");
        bed.router_a.exec(&all);
    }
    let stranger = socket(&bed.host_a, "10.9.0.2:50000");
    let envelope = Envelope::Link {
        isd_as: isd_as('b'),
        neighbour: isd_as('a'),
        interface: 1,
        local: [10, 9, 0, 2].into(),
        remote: [10, 9, 0, 1].into(),
    };
    let control = Control {
        diagnostic: 0,
        state: State::Down,
        poll: false,
        last: false,
        detect_mult: 3,
        my_discriminator: 7,
        your_discriminator: 0,
        desired_min_tx: Duration::from_millis(200),
        required_min_rx: Duration::from_millis(200),
    };
    let mut packet = envelope.seal(&control, &HopKey::new([0; 16]), 0).unwrap();
    stranger.send_to(&packet, "10.9.0.1:50000").unwrap();
    // In fragments, which no program sees.
    packet.resize(1_000, 0);
    bed.host_a.ip("link set h0 mtu 600");
    stranger.send_to(&packet, "10.9.0.1:50000").unwrap();
    wait_until("both are refused", PATIENCE, || {
        let refused = a.reason(1, "wrong_device");
        (refused.fast, refused.slow) == (1, 1)
    });
    let bfd = a.interface(1).bfd.unwrap();
    assert_eq!((bfd.received, &*bfd.state), (0, "down"));
}

#[test]
fn a_reload_that_a_device_refuses_changes_nothing() {
    if !root_or_skip() {
        return;
    }
    let bed = Bed::new();
    // No native program runs on a bridge.
    bed.router_a.ip("link add br0 type bridge");
    bed.router_a.ip("addr add 10.8.0.1/30 dev br0");
    bed.router_a.ip("link set br0 up");
    let a = bed.start('a', "mode = \"native\"\n", PATIENT);
    let more = r#", "2": {"underlay": {"local": "10.8.0.1:50001", "remote": "10.8.0.2:50001"},
        "isd_as": "1-ff00:0:112", "link_to": "CHILD", "mtu": 1472}"#;
    let output = a.reload(&topology('a', PATIENT, more));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && told.contains("br0"), "{told}");
    let status = a.status();
    let numbers: Vec<u16> = status.interfaces.iter().map(|i| i.interface).collect();
    assert_eq!(numbers, [0, 1]);
    let output = a.reload(&topology('a', PATIENT, ""));
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn hosts_get_packets_from_the_fast_path_without_plain_ip_being_forwarded() {
    if !root_or_skip() {
        return;
    }
    let bed = Bed::new();
    for router in [&bed.router_a, &bed.router_b] {
        router.exec("sysctl -qw net.ipv4.ip_forward=0");
        router.exec("sysctl -qw net.ipv4.conf.lo.forwarding=1");
    }
    let a = bed.start('a', STANDALONE, PATIENT);
    let b = bed.start('b', STANDALONE, PATIENT);
    for router in [&a, &b] {
        router.wait_for_link(true);
        router.wait_for_next_hop();
    }
    let host_a = socket(&bed.host_a, "10.1.0.2:40000");
    let host_b = socket(&bed.host_b, "10.2.0.2:41000");
    let path = bed.path('a', 'b', 0);
    let there = datagram(host('a', PORT_A), host('b', PORT_B), &path, b"there");
    // The kernel resolves the host for the first ones.
    let exchange = || {
        host_a.send_to(&there, internal('a')).unwrap();
        assert_eq!(text(&receive(&host_b)), b"there");
    };
    exchange();
    let slow = |router: &bed::Router| router.reason(1, "no_fast_way").fast;
    let before = slow(&b);
    for _ in 0..20 {
        exchange();
    }
    assert_eq!(slow(&b), before, "delivered by the slow path");

    bed.router_b.ip("route add 10.1.0.0/24 via 10.9.0.1");
    bed.host_a.ip("route add 10.9.0.0/30 via 10.1.0.1");
    let ping = bed.router_b.try_exec("ping -c 1 -W 1 10.9.0.1");
    assert!(ping.status.success(), "the way to the router: {ping:?}");
    let ping = bed.router_b.try_exec("ping -c 1 -W 1 10.1.0.2");
    assert!(!ping.status.success(), "the router forwards plain IP");
}

#[test]
fn a_neighbour_does_not_pass_for_a_host_of_the_as() {
    if !root_or_skip() {
        return;
    }
    let bed = Bed::new();
    let a = bed.start('a', STANDALONE, PATIENT);
    let b = bed.start('b', STANDALONE, PATIENT);
    for router in [&a, &b] {
        router.wait_for_link(true);
        router.wait_for_next_hop();
    }
    // The neighbour's machine sends by the link, in the name of a host of the other AS.
    bed.router_b.ip("route add 10.1.0.0/24 via 10.9.0.1");
    let stranger = socket(&bed.router_b, "10.9.0.2:40001");
    let path = bed.path('a', 'b', 0);
    let posing = datagram(host('a', PORT_A), host('b', PORT_B), &path, b"posing");
    let forwarded = || a.interface(1).total("out").packets;
    let before = forwarded();
    for _ in 0..5 {
        stranger.send_to(&posing, internal('a')).unwrap();
    }
    // In fragments, which no program takes for what they are.
    let long = datagram(host('a', PORT_A), host('b', PORT_B), &path, &[7; 1200]);
    bed.router_b.ip("link set x0 mtu 600");
    stranger.send_to(&long, internal('a')).unwrap();
    let refused = || a.reason(0, "wrong_device").dropped;
    wait_until("the router has dealt with all", PATIENCE, || {
        forwarded() - before + refused() == 6
    });
    assert_eq!(forwarded(), before, "sent on in the name of the AS");
    let refused = a.reason(0, "wrong_device");
    assert_eq!((refused.fast, refused.slow), (5, 1));
}

#[test]
fn datagrams_with_open_checksums_arrive() {
    if !root_or_skip() {
        return;
    }
    const NATIVE: &str = "mode = \"native\"\n";
    let bed = Bed::new();
    for (host, open) in [(&bed.host_a, true), (&bed.host_b, false)] {
        host.run(|| {
            let ethtool = Ethtool::open().unwrap();
            let set = |offload, on| ethtool.set_offload("h0", offload, on).unwrap();
            set(Offload::TxChecksum, open);
            // Without, a native program sends nothing through the other end of the pair.
            set(Offload::GenericReceive, true);
        });
    }
    let a = bed.start('a', NATIVE, PATIENT);
    let b = bed.start('b', NATIVE, PATIENT);
    for router in [&a, &b] {
        router.wait_for_link(true);
        router.wait_for_next_hop();
        wait_until("the program sends through all devices", PATIENCE, || {
            let devices = router.status().fast_path.unwrap().devices;
            devices.iter().all(|d| d.transmits && d.mode == "native")
        });
    }
    let host_a = socket(&bed.host_a, "10.1.0.2:40000");
    let host_b = socket(&bed.host_b, "10.2.0.2:41000");
    let path = bed.path('a', 'b', 0);
    for number in 0..100 {
        let packet = datagram(host('a', PORT_A), host('b', PORT_B), &path, &[number; 50]);
        host_a.send_to(&packet, internal('a')).unwrap();
        assert_eq!(text(&receive(&host_b)), [number; 50]);
    }
    assert_eq!(a.reason(0, "open_checksum").fast, 100);
}

#[test]
fn beside_another_router_its_sockets_get_what_is_not_forwarded() {
    if !root_or_skip() {
        return;
    }
    const BESIDE: &str = "slow_path = false\n";
    let bed = Bed::new();
    let other = socket(&bed.router_a, "10.1.0.1:30042");
    let a = bed.start('a', BESIDE, r#""disable": true"#);
    let _b = bed.start('b', STANDALONE, r#""disable": true"#);
    a.wait_for_next_hop();
    let host_a = socket(&bed.host_a, "10.1.0.2:40000");
    let host_b = socket(&bed.host_b, "10.2.0.2:41000");
    let path = bed.path('a', 'b', 0);
    let there = datagram(host('a', PORT_A), host('b', PORT_B), &path, b"there");
    host_a.send_to(&there, internal('a')).unwrap();
    assert_eq!(text(&receive(&host_b)), b"there");
    let expired = bed.path('a', 'b', 100_000);
    let expired = datagram(host('a', PORT_A), host('b', PORT_B), &expired, b"old");
    host_a.send_to(&expired, internal('a')).unwrap();
    assert_eq!(receive(&other), expired);
}

#[test]
fn a_killed_router_leaves_nothing_behind() {
    if !root_or_skip() {
        return;
    }
    let bed = Bed::new();
    let mut a = bed.start('a', STANDALONE, "");
    assert!(bed.router_a.ip("link show").contains("prog/xdp"));
    a.signal(libc::SIGKILL);
    assert!(!a.wait());
    wait_until("the programs are gone", PATIENCE, || {
        !bed.router_a.ip("link show").contains("prog/xdp")
    });
    // And another one can start.
    bed.start('a', STANDALONE, "");
}

#[test]
fn two_routers_of_an_as_hand_packets_in_transit_to_each_other() {
    if !root_or_skip() {
        return;
    }
    let bed = Transit::new();
    let first = bed.start(1);
    let mut second = bed.start(2);
    for router in [&first, &second] {
        wait_until("the other router is within reach", PATIENCE, || {
            let sibling = router.status().siblings.remove(0);
            sibling.up && sibling.next_hop_mac.is_some()
        });
        router.wait_for_next_hop();
    }
    let neighbour_1 = socket(&bed.neighbour_1, "10.9.1.2:50000");
    let neighbour_2 = socket(&bed.neighbour_2, "10.9.2.2:50000");
    let host = |number: u64| {
        let isd_as = IsdAs::new(1, 0xff00_0000_0110 + number);
        (isd_as, HostAddr::V4([192, 0, 2, number as u8]), PORT_A)
    };
    let packet = datagram(host(1), host(2), &bed.path(), b"through");
    let to = SocketAddr::from(([10, 9, 1, 1], 50_000));
    let exchange = || {
        neighbour_1.send_to(&packet, to).unwrap();
        assert_eq!(text(&receive(&neighbour_2)), b"through");
    };
    exchange();
    for router in [&first, &second] {
        router.signal(libc::SIGSTOP);
    }
    for _ in 0..20 {
        exchange();
    }
    for router in [&first, &second] {
        router.signal(libc::SIGCONT);
    }
    assert!(first.interface(0).total("in_transit").packets >= 21);
    assert!(second.interface(2).total("out_transit").packets >= 21);

    let get = |address: &str, path: &str| http(&bed.neighbour_1, address, &format!("GET {path}"));
    let (pages, api) = ("10.9.1.1:80", "10.9.1.1:81");
    let interfaces = get(api, "/api/v1/interfaces");
    let bfd = serde_json::json!({
        "desired_minimum_tx_interval": "200ms", "detection_multiplier": 20,
        "enabled": false, "required_minimum_receive": "200ms",
    });
    let expected = serde_json::json!({
        "interfaces": [{
            "bfd": bfd, "interface_id": 1, "internal_interface": "[fd00:1::1]:30042",
            "neighbor": {"address": "10.9.1.2:50000", "isd_as": "1-ff00:0:111"},
            "relationship": "child", "scion_mtu": 1400, "state": "up",
        }],
        "sibling_interfaces": [{
            "interface_id": 2, "internal_interface": "[fd00:1::2]:30042",
            "neighbor": {"isd_as": "1-ff00:0:112"},
            "relationship": "child", "scion_mtu": 1400, "state": "up",
        }],
    });
    let found: serde_json::Value = serde_json::from_str(&interfaces).unwrap();
    assert_eq!(found, expected);
    let description = get(api, "/openapi.json");
    for path in ["interfaces", "info", "config", "log/level"] {
        assert!(
            description.contains(&format!("\"/{path}\":{{\"get\"")),
            "{path}"
        );
        assert!(get(api, "/").contains(&format!("/api/v1/{path}")), "{path}");
        get(api, &format!("/api/v1/{path}"));
    }
    assert!(get(pages, "/config").contains("detect_mult = 20"));
    assert!(get(pages, "/topology").contains("\"br-2\""));
    assert!(get(pages, "/info").contains("router"));
    let told = http(
        &bed.neighbour_1,
        api,
        "PUT /api/v1/log/level\n{\"level\":\"warn\"}",
    );
    assert_eq!(told, get(pages, "/log/level"));

    second.signal(libc::SIGTERM);
    assert!(second.wait());
    wait_until("the other router is out of reach", PATIENCE, || {
        !first.status().siblings.remove(0).up
    });
    neighbour_1.send_to(&packet, to).unwrap();
    assert_eq!(
        problem(&receive(&neighbour_1)),
        Problem::ConnectivityDown {
            isd_as: isd_as('a'),
            ingress: 1,
            egress: 2
        }
    );
}
