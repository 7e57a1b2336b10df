//! Two gateways in one process, over ports in memory: no privileges, no kernel, no network.
//!
//! A packet goes into the tunnel port of the one and comes out of the tunnel port of the other. In
//! place of [`sig_core::port::memory`], a program brings its own implementation of [`sig_core::port::Port`].
//!
//! `cargo run -p sig-userspace --no-default-features --example embedded`

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use sig::control::{Environment, Gateway, Neighbour, config};
use sig_core::{
    engine::WorkerPorts,
    port::memory::{self, MemoryWire},
    port::umem::Area,
};

/// A gateway with its two wires: SCION side, IP side.
fn gateway(
    number: u8,
    other: u8,
) -> Result<(Gateway, MemoryWire, MemoryWire), Box<dyn std::error::Error>> {
    let text = format!(
        r#"
        [gateway]
        isd_as = "1-ff00:0:11{number}"
        data_addr = "192.0.2.{number}:30056"
        prefixes = ["10.{number}.0.0/16"]
        [dataplane]
        pin = "never"
        [[remote]]
        isd_as = "1-ff00:0:11{other}"
        gateway = "192.0.2.{other}:30056"
        prefixes = ["10.{other}.0.0/16"]
        [[remote.path]]
        raw = "00002000 0100123466000000 003f00000001010203040506 003f000200000708090a0b0c"
        next_hop = "192.0.2.{other}:30056"
        mtu = 1472
        "#
    );
    let config = config::check(&text, "gateway.toml", &|path| std::fs::read(path))?;
    // Without a kernel somebody else must know the link-layer addresses.
    let neighbour = Neighbour {
        interface_mac: [2, 0, 0, 0, 0, number],
        mac: [2; 6],
        mtu: 1500,
    };
    let next_hop = format!("192.0.2.{other}").parse()?;
    let surroundings = Environment {
        neighbours: HashMap::from([(next_hop, neighbour)]),
        ..Environment::default()
    };
    let (area, pool) = Area::on_heap(1024);
    let (underlay, scion_side) = memory::pair(64);
    let (inner, ip_side) = memory::pair(64);
    let ports = WorkerPorts {
        underlay: vec![Box::new(underlay)],
        inner: vec![Box::new(inner)],
        ..WorkerPorts::default()
    };
    let gateway = Gateway::builder(config)
        .surroundings(surroundings)
        .ports(area, pool, vec![ports])
        .start()?;
    Ok((gateway, scion_side, ip_side))
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
