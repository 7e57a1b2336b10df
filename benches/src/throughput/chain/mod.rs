//! The chain of two sites: client, gateway, router, router, gateway, client.
//!
//! ```text
//!   client-a ──lan── gateway-a ──underlay── router-a ══ router-b ──underlay── gateway-b ──lan── client-b
//! ```
//!
//! Namespaces, links, MAC and IP addresses are the same whatever stands in for gateways and routers ([`testbed::Network`]),
//! and so are the settings of all devices (`links`).

mod clock;
mod device;
mod ip;
mod links;
mod reference;
mod sig;
mod store;

use std::{net::IpAddr, time::Duration};

use anyhow::{Context as _, Result};
use testbed::{Netns, Network, Ping, Site, wait_until};

use super::{
    experiment::{Case, Family},
    subject::{Refusal, Subject},
};

pub use clock::process_time;
pub(in crate::throughput) use clock::{softirq_time, thread_time};
use sig::Way;
pub use store::Chains;

/// One of the two sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Where traffic comes from, unless something else is said.
    A,
    /// Where it goes.
    B,
}

impl End {
    /// Both.
    pub const ALL: [Self; 2] = [Self::A, Self::B];

    /// The other one.
    pub fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    fn site(self, network: &Network) -> &Site {
        match self {
            Self::A => &network.a,
            Self::B => &network.b,
        }
    }

    fn site_mut(self, network: &mut Network) -> &mut Site {
        match self {
            Self::A => &mut network.a,
            Self::B => &mut network.b,
        }
    }
}

/// The client of a site.
#[derive(Clone, Copy, Debug)]
pub struct Host<'a> {
    /// Where it lives.
    pub netns: &'a Netns,
    /// Its device in the LAN.
    pub device: &'static str,
    /// MAC address of that device.
    pub mac: [u8; 6],
    /// MAC address of the gateway in the same LAN.
    pub gateway_mac: [u8; 6],
    /// Its address.
    pub address: IpAddr,
}

/// What takes the place of the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients {
    /// Generator and sink. They leave nothing of the tester's CPU to anybody else.
    Instruments,
    /// Programs, wherever the scheduler puts them.
    Programs,
}

/// A series of pings from client A to client B.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pings {
    /// Length of the IP packets, header included.
    pub size: u16,
    /// Family.
    pub family: Family,
    /// How many.
    pub count: u32,
    /// How fast.
    pub pace: Pace,
}

impl Pings {
    /// Payload of the echo requests, bytes.
    pub fn payload(&self) -> u32 {
        let headers = match self.family {
            Family::Ipv4 => 20 + 8,
            Family::Ipv6 => 40 + 8,
        };
        u32::from(self.size).saturating_sub(headers)
    }
}

/// How fast pings follow each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// One each interval.
    Every(Duration),
    /// As soon as a reply comes, with this many requests without a reply at a time.
    Flood(u32),
}

/// A chain that carries packets from client A to client B and back.
pub trait Chain {
    /// The links and namespaces.
    fn network(&self) -> &Network;

    /// The clients.
    ///
    /// # Errors
    ///
    /// The hosts at the ends do not speak IP through the chain.
    fn client(&self, end: End, family: Family) -> Result<Host<'_>, Refusal> {
        let site = end.site(self.network());
        Ok(Host {
            netns: &site.client,
            device: "lan",
            mac: site.client_mac(),
            gateway_mac: site.gateway_mac(),
            address: site.client_ip(of(family)),
        })
    }

    /// The processes that do the work of gateways, of A and B, with those that help them; none if the kernel does it.
    fn gateways(&self) -> Vec<u32>;

    /// Kills the gateway of a site with SIGKILL and starts it again at once, as a supervisor would.
    /// Does not wait until it works.
    ///
    /// # Errors
    ///
    /// There is no gateway, or it does not start.
    fn restart(&mut self, end: End) -> Result<(), Refusal>;

    /// Pings client B from client A.
    ///
    /// # Errors
    ///
    /// `ping` cannot run, or the chain has nothing that pings like this.
    fn ping(&self, pings: &Pings) -> Result<Ping, Refusal> {
        let from = self.client(End::A, pings.family)?;
        let to = self.client(End::B, pings.family)?.address;
        let size = pings.payload();
        Ok(match pings.pace {
            Pace::Every(interval) => testbed::ping(from.netns, to, pings.count, size, interval)?,
            Pace::Flood(outstanding) => {
                testbed::flood(from.netns, to, pings.count, size, outstanding)?
            }
        })
    }

    /// Before each trial: where programs of the reference are part of the chain, stops all of its programs for a moment. Where nothing
    /// interrupts those of the reference, chains set up alike differ more from each other.
    fn interrupt(&self) {}

    /// The families that it carries.
    fn families(&self) -> &'static [Family] {
        &[Family::Ipv4, Family::Ipv6]
    }
}

/// Sets the chain up for a case and returns when it carries packets without loss.
///
/// # Errors
///
/// [`Refusal::NotHere`]: this machine lacks something, or the subject is no chain. [`Refusal::Failed`]: it did not come up.
pub fn build(subject: Subject, case: &Case, clients: Clients) -> Result<Box<dyn Chain>, Refusal> {
    let chain: Box<dyn Chain> = match subject {
        Subject::ChainIp => Box::new(ip::Ip::build()?),
        Subject::ChainScion => Box::new(reference::Scion::build()?),
        Subject::ChainReference
        | Subject::ChainReferenceTuned
        | Subject::ChainReferenceOverSigRouters
        | Subject::ChainAcceleratedOne
        | Subject::ChainAccelerated
        | Subject::ChainMixed => Box::new(reference::Reference::build(subject, case)?),
        Subject::ChainSig => Box::new(sig::Sig::build(case, clients, Way::Default)?),
        Subject::ChainSigEngine => Box::new(sig::Sig::build(case, clients, Way::Engine)?),
        Subject::ChainSigProtected => Box::new(sig::Sig::build(case, clients, Way::Protected)?),
        Subject::ChainSigSocket => Box::new(sig::Sig::build(case, clients, Way::Sockets)?),
        Subject::ChainSigOneHost => Box::new(sig::Sig::build(case, clients, Way::OneHost)?),
        Subject::ChainSigJumbo => Box::new(sig::Sig::build(case, clients, Way::Jumbo)?),
        other => {
            return Err(Refusal::NotHere(format!(
                "{other} is no chain of two sites"
            )));
        }
    };
    warm_up(chain.as_ref())?;
    Ok(chain)
}

/// Gives a chain its first load. The reference may lose packets for a second then, at rates that it carries afterwards.
fn warm_up(chain: &dyn Chain) -> Result<(), Refusal> {
    let flood = Pings {
        size: 100,
        family: Family::Ipv4,
        count: 6000,
        pace: Pace::Flood(65),
    };
    match chain.ping(&flood) {
        Ok(_) | Err(Refusal::NotHere(_)) => Ok(()),
        Err(failed) => Err(failed),
    }
}

/// Waits until packets cross both ways without loss.
fn wait_loss_free(chain: &dyn Chain, limit: Duration) -> Result<()> {
    /// Pings in a row that must be answered.
    const CLEAN: u32 = 10;
    for &family in chain.families() {
        let answered = |count| {
            let pings = Pings {
                size: 100,
                family,
                count,
                pace: Pace::Every(Duration::from_millis(10)),
            };
            chain.ping(&pings).map(|ping| ping.received == count)
        };
        // One first: a series without replies takes long.
        wait_until("packets cross the chain", limit, || {
            Ok(answered(1)? && answered(CLEAN)?)
        })
        .with_context(|| format!("{family:?}"))?;
    }
    Ok(())
}

/// Waits until packets take the fast path both ways. What is received by a worker first changes over in a gap of its
/// traffic, so there must be some traffic, and pauses in it.
fn wait_for_fast_path<C: Chain>(
    chain: &C,
    limit: Duration,
    takes_fast_path: impl Fn(&C) -> Result<bool>,
) -> Result<()> {
    let pings = Pings {
        size: 100,
        family: Family::Ipv4,
        count: 3,
        pace: Pace::Every(Duration::from_millis(10)),
    };
    wait_until("packets take the fast path both ways", limit, || {
        chain.ping(&pings)?;
        takes_fast_path(chain)
    })
    .map(drop)
}

/// The testbed's name of a family.
fn of(family: Family) -> testbed::Family {
    match family {
        Family::Ipv4 => testbed::Family::V4,
        Family::Ipv6 => testbed::Family::V6,
    }
}
