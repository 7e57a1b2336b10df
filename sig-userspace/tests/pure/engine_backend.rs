//! A port backend of its own in one file: two gateways exchange packets over channels.

use std::{
    io,
    os::fd::RawFd,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
};

use sig::{Engine, engine::Neighbour};

use crate::examples::embedded::config;
use sig_core::{
    engine::WorkerPorts,
    port::BATCH,
    port::Counters,
    port::Monitor,
    port::Port,
    port::Statistics,
    port::umem::{Area, Frame, FreeList, HEADROOM},
};

const PATIENCE: Duration = Duration::from_secs(10);

/// A port whose network is a pair of channels.
struct ChannelPort {
    incoming: Receiver<Vec<u8>>,
    outgoing: Sender<Vec<u8>>,
    received: Vec<Frame>,
    queued: Vec<Frame>,
    counters: Arc<Counters>,
}

struct ChannelMonitor(Arc<Counters>);

impl Port for ChannelPort {
    fn receive(&mut self, into: &mut Vec<Frame>) -> usize {
        let count = self.received.len();
        into.append(&mut self.received);
        self.counters.rx_packets.add(count as u64);
        count
    }

    fn transmit(&mut self, frames: &mut Vec<Frame>) {
        self.counters.tx_packets.add(frames.len() as u64);
        self.queued.append(frames);
    }

    fn service(&mut self, area: &Area, free: &mut FreeList) -> io::Result<()> {
        for frame in self.queued.drain(..) {
            let sent = self.outgoing.send(frame.bytes(area).to_vec());
            free.put(frame);
            sent.map_err(|_| io::ErrorKind::NetworkDown)?;
        }
        while self.received.len() < BATCH {
            let Some(mut frame) = free.take() else { break };
            let Ok(bytes) = self.incoming.try_recv() else {
                free.put(frame);
                break;
            };
            frame.place(HEADROOM, bytes.len());
            frame.bytes_mut(area).copy_from_slice(&bytes);
            self.received.push(frame);
        }
        Ok(())
    }

    fn fd(&self) -> Option<RawFd> {
        None
    }

    fn is_transmitting(&self) -> bool {
        !self.queued.is_empty()
    }
}

impl Monitor for ChannelMonitor {
    fn counters(&self) -> &Counters {
        &self.0
    }

    fn statistics(&self) -> io::Result<Statistics> {
        Ok(Statistics::default())
    }
}

/// The far end of a port: what goes in, what comes out.
type Wire = (Sender<Vec<u8>>, Receiver<Vec<u8>>);

fn port((outgoing, incoming): Wire) -> (Box<dyn Port>, ChannelMonitor) {
    let counters = Arc::<Counters>::default();
    let port = ChannelPort {
        incoming,
        outgoing,
        received: Vec::new(),
        queued: Vec::new(),
        counters: counters.clone(),
    };
    (Box::new(port), ChannelMonitor(counters))
}

/// Two ends of one cable.
fn cable() -> (Wire, Wire) {
    let ((there, from_here), (back, from_there)) = (channel(), channel());
    ((there, from_there), (back, from_here))
}

/// A gateway on a cable, its tunnel side, and what is counted on the cable.
fn gateway(number: u8, cable_end: Wire) -> (Engine, Wire, ChannelMonitor) {
    let other = 1 - number;
    let neighbour = Neighbour {
        interface_mac: [2; 6],
        mac: [2; 6],
        mtu: 1500,
    };
    let (tunnel, hosts) = cable();
    let (underlay, monitor) = port(cable_end);
    let (inner, _) = port(tunnel);
    let (area, pool) = Area::on_heap(1024);
    let ports = WorkerPorts {
        underlay: vec![underlay],
        tunnel: vec![inner],
        ..WorkerPorts::default()
    };
    let gateway = Engine::builder(config(number, other).unwrap())
        .neighbour([192, 0, 2, other].into(), neighbour)
        .ports(area, pool, vec![ports])
        .start()
        .unwrap();
    (gateway, hosts, monitor)
}

#[test]
fn packets_cross_two_gateways_over_a_backend_made_here() {
    let (west, east) = cable();
    let (a, (hosts_a, _), monitor_a) = gateway(0, west);
    let (b, (_, hosts_b), monitor_b) = gateway(1, east);
    let mut packet = vec![2; 12];
    packet.extend([0x08, 0x00]);
    etherparse::PacketBuilder::ipv4([10, 0, 0, 5], [10, 1, 0, 6], 64)
        .udp(4000, 5000)
        .write(&mut packet, &[0x5a; 1000])
        .unwrap();
    for _ in 0..100 {
        hosts_a.send(packet.clone()).unwrap();
    }
    for _ in 0..100 {
        let delivered = hosts_b.recv_timeout(PATIENCE).expect("a packet");
        assert_eq!(delivered[14..], packet[14..]);
    }
    assert_eq!(a.counters()[0].sent.packets.get(), 100);
    assert_eq!(b.counters()[0].received.packets.get(), 100);
    let frames = a.counters()[0].sent.frames.get();
    assert_eq!(monitor_a.counters().tx_packets.get(), frames);
    assert_eq!(monitor_b.counters().rx_packets.get(), frames);
    assert_eq!(monitor_b.statistics().unwrap(), Statistics::default());
}
