//! What tests over real devices share.

use std::{fs::File, net::Ipv4Addr};

use anyhow::Result;
use benches::throughput::{
    experiment::Size,
    instrument::{packet::IpLoad, run::Limits},
};
use testbed::Netns;

/// Whether this test can run; says so if not.
pub(crate) fn root_or_skip() -> bool {
    // SAFETY: no arguments, cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        eprintln!("left out: needs root for network namespaces");
    }
    root
}

/// Generator, device under test and sink: g0 – d0 | d1 – s0.
pub(crate) struct Wires {
    pub(crate) generator: Netns,
    pub(crate) device: Netns,
    pub(crate) sink: Netns,
    /// One test at a time.
    _lock: File,
}

impl Wires {
    /// Makes them.
    pub(crate) fn new() -> Result<Self> {
        let wires = Wires {
            _lock: testbed::exclusive()?,
            generator: Netns::new("gen")?,
            device: Netns::new("dut")?,
            sink: Netns::new("sink")?,
        };
        wires.device.ip(&format!(
            "link add d0 type veth peer name g0 netns {}\n\
             link add d1 type veth peer name s0 netns {}\n\
             link set d0 up\nlink set d1 up",
            wires.generator.name(),
            wires.sink.name()
        ))?;
        wires.generator.ip("link set g0 up")?;
        wires.sink.ip("link set s0 up")?;
        Ok(wires)
    }
}

/// IPv4 packets of 100 bytes.
pub(crate) fn load() -> IpLoad {
    IpLoad {
        source_mac: [2, 0, 0, 0, 0, 1],
        destination_mac: [2, 0, 0, 0, 0, 2],
        source: Ipv4Addr::new(10, 1, 0, 1).into(),
        destination: Ipv4Addr::new(10, 2, 0, 1).into(),
        size: Size::Fixed(100),
        flows: 4,
        alternate_class: true,
    }
}

/// A machine that others use too.
pub(crate) const SHARED: Limits = Limits {
    rate: 0.02,
    surplus: 0.001,
    steal: f64::INFINITY,
    other: f64::INFINITY,
};
