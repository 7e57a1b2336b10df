//! The engine sends what a worker finished for a LAN interface out of that interface, over ports in memory.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::examples::embedded::config;
use sig::{
    Engine,
    engine::{Environment, Neighbour},
};
use sig_common::reason::DropReason;
use sig_core::dataplane::lan::{LanFacts, LanNeighbour, LanRoute, LanTable};
use sig_core::engine::WorkerPorts;
use sig_core::port::memory::{self, MemoryPort, MemoryWire};
use sig_core::port::umem::{Area, Frame, FreeList};
use sig_core::{port::BATCH, port::Port};

const PATIENCE: Duration = Duration::from_secs(10);

/// A port whose link is down.
struct Unplugged {
    queued: Vec<Frame>,
}

impl Port for Unplugged {
    fn receive(&mut self, _: &mut Vec<Frame>) -> usize {
        0
    }

    fn transmit(&mut self, frames: &mut Vec<Frame>) {
        let room = 4usize.saturating_sub(self.queued.len()).min(frames.len());
        self.queued.extend(frames.drain(..room));
    }

    fn service(&mut self, _: &Area, _: &mut FreeList) -> io::Result<()> {
        if self.queued.is_empty() {
            return Ok(());
        }
        Err(io::ErrorKind::NetworkDown.into())
    }

    fn fd(&self) -> Option<RawFd> {
        None
    }

    fn is_transmitting(&self) -> bool {
        !self.queued.is_empty()
    }
}

fn boxed(port: MemoryPort) -> Box<dyn Port> {
    Box::new(port)
}

/// Gateway `number` with its wires: underlay, tunnel device, and the first queue of LAN interface 1. LAN interface 0 is
/// unplugged. Hosts 10.`number`.`port`.x are on LAN interface `port`; all with x below 100 are known.
fn gateway(number: u8, other: u8) -> (Engine, MemoryWire, MemoryWire, [MemoryWire; 2]) {
    let neighbour = Neighbour {
        interface_mac: [2, 0, 0, 0, 0, number],
        mac: [2; 6],
        mtu: 1500,
    };
    let next_hop = IpAddr::from([192, 0, 2, other]);
    let mut facts = LanFacts::default();
    for port in 0..2 {
        let prefix = format!("10.{number}.{port}.0/24").parse().unwrap();
        facts.routes.insert(prefix, LanRoute::OnLink { port });
        for host in 0..100 {
            let host = IpAddr::from([10, number, port as u8, host]);
            let neighbour = LanNeighbour {
                mac: [4, 0, 0, 0, 0, port as u8],
                interface_mac: [6; 6],
                mtu: 1500,
            };
            facts.neighbours.insert((port, host), neighbour);
        }
    }
    let environment = Environment {
        neighbours: HashMap::from([(next_hop, neighbour)]),
        lan: Arc::new(LanTable::new(&facts)),
        ..Environment::default()
    };
    let (area, pool) = Area::on_heap(2048);
    let (underlay, scion) = memory::pair(64);
    let (inner, tunnel) = memory::pair(64);
    let (first, first_wire) = memory::pair(64);
    let (second, second_wire) = memory::pair(64);
    let ports = WorkerPorts {
        underlay: vec![boxed(underlay)],
        tunnel: vec![boxed(inner)],
        lan: vec![
            vec![Box::new(Unplugged { queued: Vec::new() })],
            vec![boxed(first), boxed(second)],
        ],
    };
    let gateway = Engine::builder(config(number, other).unwrap())
        .environment(environment)
        .ports(area, pool, vec![ports])
        .start()
        .unwrap();
    (gateway, scion, tunnel, [first_wire, second_wire])
}

fn packet(destination: [u8; 4]) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([0x08, 0x00]);
    etherparse::PacketBuilder::ipv4([10, 0, 0, 5], destination, 64)
        .udp(4000, 5000)
        .write(&mut frame, &[0x5a; 1000])
        .unwrap();
    frame
}

/// Sends a packet through both gateways.
fn send(destination: [u8; 4], from: &MemoryWire, scion: [&MemoryWire; 2]) {
    from.send(&packet(destination));
    scion[1].send(&receive(scion[0]));
}

fn receive(wire: &MemoryWire) -> Vec<u8> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(frame) = wire.receive() {
            return frame;
        }
        assert!(Instant::now() < deadline, "nothing came");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn packets_leave_through_the_interface_of_their_next_hop_and_a_dead_one_stops_nobody() {
    let (_a, scion_a, _, [lan_a, _]) = gateway(0, 1);
    let (b, scion_b, tunnel_b, [lan_b, second_queue]) = gateway(1, 0);
    let scion = [&scion_a, &scion_b];
    // More than wait for a port before the worker takes no more: those for the dead link must not get there.
    let lost = 6 * BATCH as u64;
    for n in 0..lost {
        send([10, 1, 0, (n % 100) as u8], &lan_a, scion);
    }
    send([10, 1, 1, 7], &lan_a, scion);
    let frame = receive(&lan_b);
    assert_eq!(frame[..12], [4, 0, 0, 0, 0, 1, 6, 6, 6, 6, 6, 6]);
    let packet = packet([10, 1, 1, 7]);
    // Both gateways have taken one from the hops.
    assert_eq!((frame[22], &frame[34..]), (62, &packet[34..]));

    send([10, 1, 1, 200], &lan_a, scion);
    assert_eq!(receive(&tunnel_b)[22], 63, "an unknown host");
    let counters = &b.counters()[0];
    assert_eq!(counters.packets_straight.get(), lost + 1);
    assert_eq!(counters.received.packets.get(), lost + 2);
    assert!(counters.drops[DropReason::LinkDown as usize].get() > 0);
    assert_eq!(second_queue.receive(), None);
}

#[test]
fn an_interface_that_goes_and_comes_back_does_not_touch_the_others() {
    let (a, scion_a, _, [lan_a, _]) = gateway(0, 1);
    let (b, scion_b, tunnel_b, [lan_b, _]) = gateway(1, 0);
    let scion = [&scion_a, &scion_b];
    let marks = |frame: &[u8]| (frame[4], frame[5], frame[14 + 19]);
    send([10, 1, 1, 7], &lan_a, scion);
    assert_eq!(marks(&receive(&lan_b)), (0, 1, 7));

    // Interface 0 of B, whose link was down, gives way to one that works; its packets went nowhere.
    let sessions = |engine: &Engine| engine.counters()[0].sent.frames.get();
    let (port, wire) = memory::pair(64);
    let before = b.set_lan(0, vec![vec![boxed(port)]], false).unwrap();
    assert_eq!(before.wait().unwrap().len(), 1);
    send([10, 1, 0, 8], &lan_a, scion);
    assert_eq!(marks(&receive(&wire)), (0, 0, 8));

    // Without it, the kernel is asked for the way; the other interface stays.
    let before = b.set_lan(0, Vec::new(), false).unwrap().wait().unwrap();
    assert_eq!(before.len(), 1);
    send([10, 1, 0, 9], &lan_a, scion);
    assert_eq!(receive(&tunnel_b)[14 + 19], 9);
    send([10, 1, 1, 10], &lan_a, scion);
    assert_eq!(marks(&receive(&lan_b)), (0, 1, 10));

    // It returns, and another one comes; packets from there go out as well.
    let (port, wire) = memory::pair(64);
    let change = b.set_lan(0, vec![vec![boxed(port)]], false).unwrap();
    assert_eq!(change.wait().unwrap().len(), 0);
    send([10, 1, 0, 11], &lan_a, scion);
    assert_eq!(marks(&receive(&wire)), (0, 0, 11));
    let (port, fourth) = memory::pair(64);
    let change = a.set_lan(3, vec![vec![boxed(port)]], false).unwrap();
    assert_eq!(change.wait().unwrap().len(), 0);
    let sent = sessions(&a);
    send([10, 1, 1, 12], &fourth, scion);
    assert_eq!(marks(&receive(&lan_b)), (0, 1, 12));
    assert_eq!(sessions(&a), sent + 1);
    assert!(a.is_healthy() && b.is_healthy());
    assert_eq!(
        b.counters()[0].drops[DropReason::FrameGap as usize].get(),
        0
    );
}
