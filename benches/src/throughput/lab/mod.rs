//! Single devices under test between a generator and a sink, each in a network namespace of its own.
//!
//! ```text
//!   generator ── d0  device under test  d1 ── sink
//!   CPU `tester`     CPU `device`             CPU `tester`
//! ```
//!
//! Where a subject has a forwarding thread of its own (AF_XDP, the gateway), [`Layout`] says where the receive
//! side of d0 runs: in the generator's soft interrupt, or in a thread on the device's CPU. So it is with the gateway's fast path,
//! which loses its way where frames are lost. All others *are* the receive side, which is always in a thread on the device's CPU.
//!
//! [`Layout`]: super::experiment::Layout

mod af_xdp;
mod counters;
mod device;
mod gateway;
mod kernel;
mod load;
mod napi;
mod network;
mod programs;
mod refuse;
mod router;
mod srv6;
mod trials;

use super::{
    experiment::Case,
    subject::{Device, Refusal, Subject},
};
use af_xdp::AfXdp;
use device::UnderTest;
use gateway::{Gateway, Way};
use kernel::Kernel;
use network::{Links, Network, Side};
use programs::Program;
use refuse::MTU;
use trials::Bench;

/// Sets a subject of the lab up.
///
/// What it starts ends with the device, and at the latest with the thread that called this.
///
/// # Errors
///
/// [`Refusal::NotHere`] for other subjects, and for combinations that make no sense or that this machine cannot do.
pub fn open(subject: Subject, case: &Case) -> Result<Box<dyn Device>, Refusal> {
    refuse::check(subject, case)?;
    let network = Network::new(&links(subject, case))?;
    let under_test = start(subject, &network, case)?;
    Ok(Box::new(Bench::new(subject, case, network, under_test)?))
}

/// Starts what is under test.
fn start(subject: Subject, network: &Network, case: &Case) -> Result<Box<dyn UnderTest>, Refusal> {
    Ok(match subject {
        Subject::XdpDrop => Box::new(Program::drop(network, case)?),
        Subject::XdpRedirect => Box::new(Program::redirect(network, case)?),
        Subject::XdpRedirectSplit => Box::new(Program::redirect_split(network)?),
        Subject::TcRedirect => Box::new(Program::tc_redirect(network, case)?),
        Subject::AfXdpDrop => Box::new(AfXdp::start(network, case, false)?),
        Subject::AfXdpForward => Box::new(AfXdp::start(network, case, true)?),
        Subject::KernelForward => Box::new(Kernel::forward(network, case)?),
        Subject::KernelVxlan => Box::new(Kernel::vxlan(network, case)?),
        Subject::Encapsulate => Box::new(Gateway::start(network, Way::Encapsulate, case)?),
        Subject::Decapsulate => Box::new(Gateway::start(network, Way::Straight, case)?),
        Subject::DecapsulateHelper => Box::new(Gateway::start(network, Way::Helper, case)?),
        Subject::EncapsulateFast => Box::new(Gateway::start(network, Way::FastEncapsulate, case)?),
        Subject::DecapsulateFast => Box::new(Gateway::start(network, Way::FastDecapsulate, case)?),
        Subject::Router => Box::new(router::Router::start(network, case, true)?),
        Subject::RouterUnverified => Box::new(router::Router::start(network, case, false)?),
        Subject::RouterReference => Box::new(router::Reference::start(network, case)?),
        subject if subject.is_sr_node() => {
            Box::new(srv6::Node::start(network, case, subject.rules())?)
        }
        Subject::Srv6Kernel => Box::new(srv6::start_kernel(network, case)?),
        _ => {
            return Err(Refusal::NotHere(format!("{subject} is no single device")));
        }
    })
}

fn links(subject: Subject, case: &Case) -> Links {
    let plain = Links::PLAIN;
    match subject {
        Subject::KernelVxlan => Links {
            right: Side::Underlay,
            // The tunnel has no way to split packets.
            right_mtu: MTU + 50,
            ..plain
        },
        Subject::Encapsulate | Subject::EncapsulateFast => Links {
            right: Side::Underlay,
            ..plain
        },
        Subject::Decapsulate | Subject::DecapsulateHelper | Subject::DecapsulateFast => Links {
            left: Side::Underlay,
            // The generator splits no packets, so the longest need an underlay that takes them whole.
            left_mtu: MTU.max(refuse::longest(case.size) + gateway::OVERHEAD),
            ..plain
        },
        subject if subject.has_behaviors() => Links {
            left_mtu: srv6::LINK_MTU,
            right_mtu: srv6::LINK_MTU,
            ..plain
        },
        _ => plain,
    }
}
