//! A chain between a generator in client A and a sink in client B.

use std::{cell::RefCell, rc::Rc, time::Duration};

use anyhow::Result;

use super::{Chain, End};
use crate::throughput::{
    experiment::Case,
    instrument::{
        Paced, Sink,
        packet::{Expect, IpLoad, Load},
        run::{self, Limits, Snapshot},
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
                alternate_class: !case.packed,
            });
            let cpu = case.cpus.tester.into();
            (
                Paced::new(from.netns, from.device, &load, Some(cpu))?,
                Sink::attach(to.netns, to.device, &Expect::Ip { at: 14 })?,
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
        self.chain.borrow().interrupt();
        let (generator, sink) = (&mut self.generator, &mut self.sink);
        let mut read = || Ok(Snapshot::default());
        run::trial(&Limits::default(), generator, sink, rate, length, &mut read)
    }
}
