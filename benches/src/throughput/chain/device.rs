//! A chain between a generator in client A and a sink in client B.

use std::{cell::RefCell, rc::Rc, time::Duration};

use anyhow::Result;

use super::{Chain, End, process_time};
use crate::throughput::{
    experiment::Case,
    instrument::{
        Paced, Sink,
        packet::{Expect, IpLoad, Load},
        run::{self, Snapshot},
    },
    subject::{Device, Refusal},
    trial::{Rate, Trial},
};

/// A chain, for several users.
pub(super) type Shared = Rc<RefCell<Box<dyn Chain>>>;

/// The fields are dropped in this order: what is on the clients' devices goes before their namespaces.
pub(super) struct ChainDevice {
    generator: Paced,
    sink: Sink,
    chain: Shared,
}

impl ChainDevice {
    /// Puts generator and sink on the clients' devices. The generator is an AF_XDP socket at every rate: live frames
    /// would need NAPI in the gateways, which a forwarding kernel does not have.
    pub(super) fn new(chain: &Shared, case: &Case) -> Result<Self, Refusal> {
        let (generator, sink) = {
            let chain = chain.borrow();
            let from = chain.client(End::A, case.family)?;
            let to = chain.client(End::B, case.family)?;
            let load = Load::Ip(IpLoad {
                source_mac: from.mac,
                destination_mac: from.gateway_mac,
                source: from.address,
                destination: to.address,
                size: case.size,
                flows: case.flows,
                first_flow: 0,
                alternate_class: !case.packed,
            });
            let cpu = case.cpus.tester.into();
            (
                Paced::new(from.netns, from.device, &load, Some(cpu))?,
                Sink::attach(to.netns, to.device, &Expect::Ip { at: 14 }, None)?,
            )
        };
        Ok(Self {
            generator,
            sink,
            chain: chain.clone(),
        })
    }
}

impl Device for ChainDevice {
    fn trial(&mut self, rate: Rate, length: Duration) -> Result<Trial> {
        let chain = self.chain.borrow();
        chain.interrupt();
        let mut read = || {
            let mut snapshot = Snapshot {
                counters: chain.counters()?,
                ..Snapshot::default()
            };
            for gateway in chain.gateways() {
                let name = match gateway.end {
                    End::A => "gateway a",
                    End::B => "gateway b",
                };
                let seconds = process_time(gateway.pid)?.as_secs_f64();
                snapshot.cpu.insert(name.into(), seconds);
            }
            Ok(snapshot)
        };
        // The gateways of most chains are on any CPU, so there is no distance to look at.
        let (generator, sink) = (&mut self.generator, &mut self.sink);
        run::trial(generator, sink, rate, length, None, &mut read)
    }
}
