//! Two gateways in one process, over ports in memory: no privileges, no kernel, no network.
//!
//! A packet goes into the tunnel port of the one and comes out of the tunnel port of the other. In
//! place of [`sig::port::memory`], a program brings its own implementation of [`sig::port::Port`].
//!
//! `cargo run -p sig-userspace --no-default-features --example embedded`

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use sig::{
    Config, Engine,
    config::{Dataplane, Errors, IpNet, IsdAs, Path, Pin, Remote},
    engine::{Neighbour, WorkerPorts},
    port::memory::{self, MemoryWire},
    port::umem::Area,
};

/// One segment with two hops; the SCION daemon gives such bytes.
const PATH: [u8; 36] = [
    0, 0, 0x20, 0, 1, 0, 0x12, 0x34, 0x66, 0, 0, 0, // PathMeta, info field
    0, 63, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, // first hop
    0, 63, 0, 2, 0, 0, 7, 8, 9, 10, 11, 12, // second hop
];

/// The configuration of gateway `number`, which serves 10.`number`.0.0/16 and knows the `other` one.
pub(crate) fn config(number: u8, other: u8) -> Result<Config, Errors> {
    let isd_as = |number: u8| IsdAs::new(1, 0xff00_0000_0110 + u64::from(number));
    let address = |number| SocketAddr::from(([192, 0, 2, number], 30056));
    let prefix = |number| IpNet::new_assert([10, number, 0, 0].into(), 16);
    Config::builder(isd_as(number), address(number))
        .prefixes([prefix(number)])
        .remote(
            Remote::new(isd_as(other), address(other))
                .prefixes([prefix(other)])
                .path(Path::new(PATH, address(other), 1472)),
        )
        .dataplane(Dataplane {
            pin: Pin::Never,
            ..Dataplane::default()
        })
        .build()
}

/// A gateway with its two wires: SCION side, IP side.
fn gateway(
    number: u8,
    other: u8,
) -> Result<(Engine, MemoryWire, MemoryWire), Box<dyn std::error::Error>> {
    let (area, pool) = Area::on_heap(1024);
    let (underlay, scion_side) = memory::pair(64);
    let (inner, ip_side) = memory::pair(64);
    let ports = WorkerPorts {
        underlay: vec![Box::new(underlay)],
        tunnel: vec![Box::new(inner)],
        ..WorkerPorts::default()
    };
    // Without a kernel somebody else must know the link-layer addresses.
    let neighbour = Neighbour {
        interface_mac: [2, 0, 0, 0, 0, number],
        mac: [2; 6],
        mtu: 1500,
    };
    let engine = Engine::builder(config(number, other)?)
        .neighbour([192, 0, 2, other].into(), neighbour)
        .ports(area, pool, vec![ports])
        .start()?;
    Ok((engine, scion_side, ip_side))
}

/// Waits for a frame, at most five seconds.
fn receive(wire: &MemoryWire) -> Result<Vec<u8>, &'static str> {
    let deadline = Instant::now() + Duration::from_secs(5);
    while Instant::now() < deadline {
        if let Some(frame) = wire.receive() {
            return Ok(frame);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err("nothing came")
}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (a, scion_a, ip_a) = gateway(0, 1)?;
    let (b, scion_b, ip_b) = gateway(1, 0)?;

    let mut ethernet = vec![2; 12];
    ethernet.extend([0x08, 0x00]);
    etherparse::PacketBuilder::ipv4([10, 0, 0, 5], [10, 1, 0, 6], 64)
        .udp(4000, 5000)
        .write(&mut ethernet, b"hello from the other side")?;
    ip_a.send(&ethernet);

    // The wire between the two: what the one sends, the other receives.
    let frame = receive(&scion_a)?;
    println!("a SIG frame of {} bytes on the wire", frame.len());
    scion_b.send(&frame);

    let delivered = receive(&ip_b)?;
    assert_eq!(delivered[14..], ethernet[14..]);
    println!("delivered {} bytes of IP", delivered.len() - 14);
    assert_eq!(a.counters()[0].sent.frames.get(), 1);
    assert_eq!(b.counters()[0].received.packets.get(), 1);
    Ok(())
}
