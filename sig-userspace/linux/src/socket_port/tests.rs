//! Over the loopback interface.

use std::{net::Ipv4Addr, thread, time::Duration};

use sig_common::wire::{scion::common, sig_frame};

use super::*;
use sig_core::port::umem::Pool;

const DATA_PORT: u16 = 30056;
/// Index of the interface, in every network namespace.
const LOOPBACK: u8 = 1;
const ANY: [&str; 2] = ["127.0.0.1:0", "[::1]:0"];

struct Bench {
    area: Arc<Area>,
    pool: Arc<Pool>,
    free: FreeList,
}

impl Bench {
    fn new() -> Self {
        let (area, pool) = Area::on_heap(8192);
        let free = FreeList::new(pool.clone(), 128);
        Self { area, pool, free }
    }

    fn port(&self, socket: UdpSocket) -> SocketPort {
        SocketPort::new(socket, self.area.clone()).expect("a bound socket")
    }

    /// A frame as the engine makes them, with headers that only addresses, port and DSCP of are looked at.
    fn frame(&mut self, to: SocketAddr, tos: u8, payload: &[u8]) -> Frame {
        let datagram = Datagram {
            len: payload.len(),
            // The other way round: it is the destination that the port looks for.
            from: SocketAddr::new(to.ip(), 1),
            tos,
            interface: 0,
        };
        let mut frame = self.free.take().expect("a chunk is free");
        frame.chunk_mut(&self.area)[HEADROOM..][..payload.len()].copy_from_slice(payload);
        put_headers(&mut frame, &self.area, &datagram, to).expect("one family");
        frame
    }

    /// Sends frames and returns those that arrive at the other port.
    fn carry(
        &mut self,
        from: &mut SocketPort,
        to: &mut SocketPort,
        mut frames: Vec<Frame>,
        count: usize,
    ) -> Vec<Vec<u8>> {
        let area = self.area.clone();
        let mut seen = Vec::new();
        for _ in 0..1000 {
            from.transmit(&mut frames);
            from.service(&area, &mut self.free).expect("it never fails");
            to.service(&area, &mut self.free).expect("it never fails");
            let mut received = Vec::new();
            to.receive(&mut received);
            for frame in received {
                seen.push(frame.bytes(&area).to_vec());
                self.free.put(frame);
            }
            if seen.len() >= count {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        seen
    }
}

fn sockets(workers: u16, with_rest: bool, any: &str) -> Group {
    Group::open(
        any.parse().expect("an address"),
        DATA_PORT,
        workers,
        with_rest,
    )
    .expect("a free port")
}

fn only(any: &str) -> UdpSocket {
    sockets(1, false, any).workers.remove(0)
}

#[test]
fn frames_cross_in_order_with_their_traffic_class_and_chunks_come_back() {
    for any in ANY {
        let mut bench = Bench::new();
        let (mut from, mut to) = (bench.port(only(any)), bench.port(only(any)));
        // Runs of one length, a shorter end of a run, another class, longer ones again.
        let packets: Vec<(u8, Vec<u8>)> = (0..300u16)
            .map(|n| {
                let len = if n % 50 == 49 { 77 } else { 1200 };
                let mut payload = vec![0; len + usize::from(n / 100) * 10];
                payload[..2].copy_from_slice(&n.to_be_bytes());
                (if n < 150 { 0 } else { 0xb9 }, payload)
            })
            .collect();
        let local = to.local;
        let frames = packets
            .iter()
            .map(|(tos, payload)| bench.frame(local, *tos, payload));
        let frames = frames.collect();
        let seen = bench.carry(&mut from, &mut to, frames, packets.len());
        assert_eq!(seen.len(), packets.len());
        for (frame, (tos, payload)) in seen.iter().zip(&packets) {
            let (header, class) = match local {
                SocketAddr::V4(_) => (42, frame[15]),
                SocketAddr::V6(_) => (62, frame[14] << 4 | frame[15] >> 4),
            };
            assert_eq!((&frame[header..], class), (&payload[..], *tos));
            assert_eq!(frame[6..12], [0, 0, 0, LOOPBACK, 0, 0]);
            let source = u16::from_be_bytes([frame[header - 8], frame[header - 7]]);
            assert_eq!(source, from.local.port());
        }
        assert!(from.counters.wakeups.get() < 20, "many at once");
        let held = (from.empty.len() + to.empty.len()) as u64;
        drop((bench.free, from, to));
        assert_eq!(bench.pool.len() as u64 + held, 8192);
    }
}

#[test]
fn a_frame_that_is_too_long_or_has_no_way_is_dropped_and_counted_and_the_others_go() {
    let mut bench = Bench::new();
    let (mut from, mut to) = (bench.port(only(ANY[0])), bench.port(only(ANY[0])));
    let nowhere = SocketAddr::from((Ipv4Addr::BROADCAST, 9));
    let frames = vec![
        bench.frame(to.local, 0, &[1; 100]),
        bench.frame(nowhere, 0, &[2; 100]),
        bench.frame(nowhere, 0, &[3; 100]),
        bench.frame(to.local, 0, &[4; 100]),
    ];
    let local = to.local;
    let seen = bench.carry(&mut from, &mut to, frames, 2);
    let first: Vec<u8> = seen.iter().map(|frame| frame[42]).collect();
    assert_eq!(first, [1, 4]);
    assert_eq!(from.counters.tx_refused.get(), 2);
    // Headers that do not even end.
    let mut short = bench.frame(local, 0, &[5; 100]);
    short.place(short.headroom(), 30);
    let frames = vec![short, bench.frame(local, 0, &[6; 100])];
    let seen = bench.carry(&mut from, &mut to, frames, 1);
    assert_eq!(seen[0][42], 6);
    assert_eq!(from.counters.tx_too_short.get(), 1);
}

#[test]
fn what_the_kernel_does_not_take_waits_and_the_oldest_goes() {
    let mut bench = Bench::new();
    let mut port = bench.port(only(ANY[0]));
    let to = port.local;
    let frames = QUEUE + 5;
    let mut frames: Vec<Frame> = (0..frames)
        .map(|n| bench.frame(to, 0, &n.to_ne_bytes()))
        .collect();
    port.transmit(&mut frames);
    assert!(frames.is_empty() && port.is_transmitting());
    assert_eq!((port.queue.len(), port.dropped.len()), (QUEUE, 5));
    assert_eq!(port.counters.tx_queue_full.get(), 5);
    assert_eq!(
        port.queue[0].bytes(&bench.area)[42..][..2],
        5u16.to_le_bytes()
    );
}

/// A packet of a stream with SCION headers of so many words.
fn packet(next_header: u8, words: u8, stream: u32) -> Vec<u8> {
    let scion = usize::from(words) * 4;
    let mut packet = vec![0; scion + udp::HEADER_LEN];
    packet[scion + 2..scion + 4].copy_from_slice(&DATA_PORT.to_be_bytes());
    (packet[common::NEXT_HEADER_OFFSET], packet[5]) = (next_header, words);
    let header = sig_frame::Header {
        stream,
        ..sig_frame::Header::default()
    };
    packet.extend(header.encode());
    packet
}

#[test]
fn each_worker_gets_its_streams_and_what_is_no_frame_goes_to_the_rest() {
    for any in ANY {
        let group = sockets(3, true, any);
        let rest = group.rest.as_ref().expect("wanted");
        let address = rest.local_addr().expect("an address");
        let sender = UdpSocket::bind(any).expect("a free port");
        let at = |number: u32| group.workers.get(number as usize).unwrap_or(rest);
        let udp = PROTO_UDP;
        let mut to_another = packet(udp, 9, 1);
        to_another[38] ^= 1;
        let cases = [
            (3, to_another),
            (0, packet(udp, 9, 0)),
            (1, packet(udp, 9, 1)),
            (2, packet(udp, 255, 2)),
            (0, packet(udp, 30, 3)),
            // The top bit of those of XDP programs.
            ((1 << 19 | 4) % 3, packet(udp, 9, 1 << 19 | 4)),
            (3, packet(202, 9, 1)),
            (3, packet(201, 9, 1)),
            // Too short to tell.
            (0, vec![1]),
            (0, packet(udp, 200, 1)[..700].to_vec()),
        ];
        for (number, bytes) in cases {
            sender.send_to(&bytes, address).expect("it is sent");
            let mut buffer = [0; 2000];
            at(number).set_nonblocking(false).expect("an option");
            let limit = Some(Duration::from_secs(10));
            at(number).set_read_timeout(limit).expect("an option");
            let received = at(number).recv(&mut buffer);
            assert_eq!(&buffer[..received.expect("it arrives")], bytes);
        }
        // Nobody else gets the address.
        let error = UdpSocket::bind(address).expect_err("taken");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        let error = Group::open(address, DATA_PORT, 1, false).expect_err("taken");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
