//! What hosts send arrives, all of it and unchanged.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use crate::bed::Bed;
use testbed::{Family, Netns, Options, Site};

/// Bytes of the file sent each way.
const FILE: usize = 24 << 20;
const PATIENCE: Duration = Duration::from_secs(30);

/// Bytes that differ at every place, without a random generator to agree on: xorshift.
fn file(seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut bytes = Vec::with_capacity(FILE);
    while bytes.len() < FILE {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes
}

fn listen(netns: &Netns, ip: IpAddr) -> TcpListener {
    let address = SocketAddr::new(ip, 7000);
    netns
        .run(|| TcpListener::bind(address))
        .expect("the namespace")
        .expect("a free port")
}

/// Connects from one client to the other, sends a file each way at the same time and compares.
pub(crate) fn exchange_files(from: &Site, to: &Site, family: Family) {
    let ip = to.client_ip(family);
    let listener = listen(&to.client, ip);
    let connect = || TcpStream::connect_timeout(&SocketAddr::new(ip, 7000), PATIENCE);
    let ours = from
        .client
        .run(connect)
        .expect("the namespace")
        .expect("a connection");
    let (theirs, _) = listener.accept().expect("the connection");
    let (there, back) = (file(1), file(2));
    let send = |mut stream: &TcpStream, bytes: &[u8]| {
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        stream.write_all(bytes).expect("it is taken");
        stream.shutdown(std::net::Shutdown::Write).expect("an end");
    };
    let receive = |mut stream: &TcpStream| {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut bytes = Vec::with_capacity(FILE);
        stream.read_to_end(&mut bytes).expect("it arrives");
        bytes
    };
    thread::scope(|scope| {
        scope.spawn(|| send(&ours, &there));
        scope.spawn(|| send(&theirs, &back));
        let at_b = scope.spawn(|| receive(&theirs));
        // Not assert_eq: it would print the files.
        assert!(
            receive(&ours) == back,
            "the file to {} differs",
            from.isd_as()
        );
        assert!(
            at_b.join().expect("a file") == there,
            "the file to {} differs",
            to.isd_as()
        );
    });
}

#[test]
fn files_arrive_unchanged_both_ways() {
    let bed = Bed::running(&Options {
        path_mtu: 1400,
        ..Options::default()
    });
    for family in Family::ALL {
        exchange_files(&bed.network.a, &bed.network.b, family);
    }
    for site in [&bed.network.a, &bed.network.b] {
        assert_eq!(site.status().unwrap().dropped("bad_checksum"), 0);
    }
}

#[test]
fn files_arrive_unchanged_with_two_workers_on_one_queue() {
    let dataplane = "workers = 2".to_owned();
    let bed = Bed::running(&Options {
        dataplane,
        ..Options::default()
    });
    exchange_files(&bed.network.b, &bed.network.a, Family::V4);
}

/// In generic mode packets come as the kernel's stack has them. On a veth pair that may be 64 KiB that the sender left
/// to its network card to cut: these go through the kernel into the tunnel device, which cuts them.
#[test]
fn files_arrive_unchanged_in_generic_mode() {
    let dataplane = "mode = \"generic\"".to_owned();
    let bed = Bed::running(&Options {
        dataplane,
        ..Options::default()
    });
    let (a, b) = (&bed.network.a, &bed.network.b);
    for family in Family::ALL {
        exchange_files(a, b, family);
    }
    for site in [a, b] {
        let status = site.status().unwrap();
        assert_eq!(
            status.dropped("no_free_chunk") + status.dropped("packet_too_big"),
            0
        );
    }
}

#[test]
fn small_packets_at_full_rate_share_frames() {
    let bed = Bed::running(&Options {
        dataplane: "fast_path = \"off\"".into(),
        ..Options::default()
    });
    let (a, b) = (&bed.network.a, &bed.network.b);
    for family in Family::ALL {
        let (from, to) = (a.client_ip(family), b.client_ip(family));
        let bind = |netns: &Netns, ip| netns.run(|| UdpSocket::bind((ip, 7001))).unwrap().unwrap();
        let (sender, receiver) = (bind(&a.client, from), bind(&b.client, to));
        sender.connect((to, 7001)).unwrap();
        receiver
            .set_read_timeout(Some(Duration::from_millis(500)))
            .unwrap();
        let before = a.status().unwrap().counters;

        let counting = thread::spawn(move || {
            let (mut packets, mut bytes) = (0u64, [0; 100]);
            while let Ok(length) = receiver.recv(&mut bytes) {
                assert_eq!((length, bytes[0], bytes[63]), (64, 0x5a, 0x5a));
                packets += 1;
            }
            packets
        });
        let end = Instant::now() + Duration::from_secs(2);
        while Instant::now() < end {
            for _ in 0..64 {
                // A full queue of the client is its own loss.
                let _ = sender.send(&[0x5a; 64]);
            }
        }
        let arrived = counting.join().expect("a count");

        let after = a.status().unwrap().counters;
        let packets = after.packets_sent - before.packets_sent;
        let frames = after.frames_sent - before.frames_sent;
        assert!(
            arrived > 1000,
            "only {arrived} packets arrived of {packets} sent"
        );
        // How many share a frame is a matter of speed, and so of the machine; that some do is not.
        assert!(
            packets * 10 > frames * 11,
            "{packets} packets in {frames} frames: no packing"
        );
    }
}
