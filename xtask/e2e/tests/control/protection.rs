//! Frames that somebody forges who knows all addresses.

use std::{
    net::UdpSocket,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use sig_core::{
    framing::FrameHeader,
    scion::packet::{self, Addresses},
    status::Protection,
};
use testbed::{Family, Site};

use crate::{
    bed::{self, Bed, Files, known, status, wait},
    flows::Flows,
};

/// UDP port that nobody uses but he who forges.
const PORT: u16 = 7666;

/// How many frames are forged in a second, and for how long: the figures of docs/performance.md are made with more.
fn flood() -> (u64, Duration) {
    let number = |name, default| {
        let value = std::env::var(name)
            .ok()
            .and_then(|value| value.parse().ok());
        value.unwrap_or(default)
    };
    (
        number("SIG_FORGED_PPS", 2000),
        Duration::from_secs(number("SIG_FORGED_SECONDS", 2)),
    )
}

/// A SCION packet to `victim`'s gateway as if that of `in_name_of` had sent it, with a UDP datagram between the clients.
fn forged(victim: &Site, in_name_of: &Site, sequence: u64) -> Vec<u8> {
    let [source, destination] = [in_name_of, victim].map(|site| match site.client_ip(Family::V4) {
        std::net::IpAddr::V4(ip) => ip.octets(),
        std::net::IpAddr::V6(_) => [0; 4],
    });
    let mut inner = vec![0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0];
    inner.extend(source);
    inner.extend(destination);
    let sum: u32 = inner
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    inner[10..12].copy_from_slice(&checksum.to_be_bytes());
    inner.extend([PORT, PORT, 12, 0].map(u16::to_be_bytes).concat());
    inner.extend(*b"evil");
    let header = FrameHeader {
        session: 0,
        index: 0,
        // One that is not that of the true gateway: the forger wants to be heard, not to disturb.
        stream: 0x77,
        sequence,
    };
    let mut frame = header.encode().to_vec();
    frame.extend(inner);
    let end = |site: &Site| {
        let address = site.data_addr();
        let isd_as = site.isd_as().parse().expect("an ISD-AS");
        (isd_as, address.ip().into(), address.port())
    };
    let addresses = Addresses {
        source: end(in_name_of),
        destination: end(victim),
    };
    let path: Vec<u8> = [0, 0, 0x20, 0, 1, 0, 0, 0, 0x66, 0, 0, 0]
        .into_iter()
        .chain([0, 63, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6])
        .chain([0, 63, 0, 1, 0, 0, 7, 8, 9, 10, 11, 12])
        .collect();
    packet::udp(&addresses, 1, &path, &frame).expect("a packet")
}

/// Floods the gateway of `victim` from where its border router is; how many frames that were.
fn forge(victim: &Site, in_name_of: &Site) -> u64 {
    let (rate, duration) = flood();
    let from = (victim.router_inside().ip(), 0);
    let socket = victim.router.run(|| UdpSocket::bind(from));
    let socket = socket.expect("the namespace").expect("a socket");
    let start = Instant::now();
    let mut sent = 0;
    while start.elapsed() < duration {
        let due = (start.elapsed().as_secs_f64() * rate as f64) as u64;
        for sequence in sent..due {
            // What the kernel refuses is lost.
            let packet = forged(victim, in_name_of, sequence);
            let _ = socket.send_to(&packet, victim.data_addr());
        }
        sent = due;
        thread::sleep(Duration::from_micros(500));
    }
    sent
}

/// What arrives at a client for the forger's port, while `work` goes on.
fn evil_arrivals<T>(site: &Site, work: impl FnOnce() -> T) -> (T, u64) {
    let address = (site.client_ip(Family::V4), PORT);
    let socket = site.client.run(|| UdpSocket::bind(address));
    let socket = socket.expect("the namespace").expect("a socket");
    let time_out = Some(Duration::from_millis(50));
    socket.set_read_timeout(time_out).expect("a time-out");
    let (arrived, stop) = (AtomicU64::new(0), Arc::new(AtomicBool::new(false)));
    let result = thread::scope(|scope| {
        scope.spawn(|| {
            let mut bytes = [0; 100];
            while !stop.load(Relaxed) {
                arrived.fetch_add(socket.recv(&mut bytes).is_ok().into(), Relaxed);
            }
        });
        let result = work();
        thread::sleep(Duration::from_millis(300));
        stop.store(true, Relaxed);
        result
    });
    (result, arrived.into_inner())
}

fn protection(of: &Site, towards: &Site) -> Protection {
    let known = known(of, towards.isd_as()).expect("the other AS");
    known
        .gateways
        .first()
        .expect("a gateway")
        .protection
        .clone()
}

fn drops(site: &Site, reason: &str) -> u64 {
    let drops = status(site).drops.into_iter();
    drops
        .filter(|drop| drop.reason == reason)
        .map(|drop| drop.count)
        .sum()
}

#[test]
fn frames_are_protected_by_themselves_and_forged_ones_have_no_effect() {
    let mut bed = Bed::running(&bed::options(), Files::with_routing_policy);
    let (a, b) = (&bed.net.network.a, &bed.net.network.b);
    for (one, other) in [(a, b), (b, a)] {
        wait("both sides refuse other frames", || {
            let protection = protection(one, other);
            protection.sends && protection.strict
        });
    }
    let [seen, known] = [
        protection(a, b).identity,
        status(b).control.expect("found").identity,
    ];
    assert_eq!(seen, known);
    let flows = Flows::start(b, a, Family::V4, 2, 500);
    let (forged, arrived) = evil_arrivals(a, || forge(a, b));
    assert_eq!(arrived, 0, "of {forged}");
    let refused = drops(a, "unprotected");
    println!("{forged} frames were forged, {refused} refused by name");
    assert!(refused > 0);
    flows.stop().assert_perfect();
    for reason in [
        "forged",
        "replayed",
        "frame_gap",
        "buffer_limit",
        "stream_limit",
    ] {
        assert_eq!(drops(a, reason), 0, "{reason}");
    }
    bed.assert_pings(20);
}

#[test]
fn without_protection_they_are_delivered() {
    let bed = Bed::running(&bed::options(), |own, remote| {
        Files::with_routing_policy(own, remote).and("[protection]\nmode = \"off\"\n")
    });
    let (a, b) = (&bed.net.network.a, &bed.net.network.b);
    assert!(!protection(a, b).sends && !protection(a, b).strict);
    let flows = Flows::start(b, a, Family::V4, 2, 500);
    let (forged, arrived) = evil_arrivals(a, || forge(a, b));
    println!("{forged} frames were forged, {arrived} delivered");
    assert!(arrived > 0);
    for flow in flows.stop().flows {
        println!(
            "an honest flow of {} lost {}",
            flow.sent,
            flow.lost(0, flow.sent)
        );
    }
}
