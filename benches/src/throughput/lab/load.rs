//! What the generator sends to a subject, and what the sink sees of it.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context as _, Result};
use sig_common::addr::IsdAs;
use sig_core::scion::{Endpoints, NextHop};

use super::{
    gateway::{DATA_PORT, OWN_AS, PATH, REMOTE, REMOTE_AS},
    network::Network,
    router, srv6,
};
use crate::throughput::{
    experiment::{Case, Size},
    instrument::packet::{Expect, IpLoad, Load, Outer},
    subject::Subject,
};

/// Most packets of a frame that the generator makes; fewer if not as many fit.
const PACKED: u16 = 40;

/// What the generator sends.
pub(super) fn load(subject: Subject, network: &Network, case: &Case) -> Result<Load> {
    let (left, right) = (&network.left, &network.right);
    let inner = IpLoad {
        source_mac: left.tester_mac,
        destination_mac: left.device_mac,
        source: left.tester_ip(case.family),
        destination: right.tester_ip(case.family),
        size: case.size,
        flows: case.flows,
        alternate_class: subject == Subject::Encapsulate && !case.packed,
    };
    if subject.is_router() {
        return Ok(Load::Scion(router::load(network, inner)?));
    }
    if subject.has_behaviors() {
        return srv6::load(network, case, inner);
    }
    if !is_decapsulation(subject) {
        return Ok(Load::Ip(inner));
    }
    let address = |ip: Ipv4Addr| SocketAddr::from((ip, DATA_PORT));
    let own = address(left.device_underlay());
    let outer = Outer {
        endpoints: Endpoints {
            local_isd_as: isd_as(REMOTE_AS)?,
            local: address(REMOTE.into()),
            remote_isd_as: isd_as(OWN_AS)?,
            remote: own,
        },
        next_hop: NextHop {
            address: own,
            source_mac: left.tester_mac,
            destination_mac: left.device_mac,
        },
        path_type: 1,
        path: arrived_path()?,
        session: 0,
        stream: 0x1000,
    };
    Ok(Load::SigFrames {
        inner,
        outer,
        per_frame: if case.packed { PACKED } else { 1 },
    })
}

fn isd_as(text: &str) -> Result<IsdAs> {
    text.parse().ok().with_context(|| format!("ISD-AS {text}"))
}

/// The path of the gateway's configuration as it looks at its end: the last hop field is the current one.
fn arrived_path() -> Result<Vec<u8>> {
    let digits: String = ["01002000", PATH].concat().split_whitespace().collect();
    (0..digits.len() / 2)
        .map(|byte| Ok(u8::from_str_radix(&digits[2 * byte..2 * byte + 2], 16)?))
        .collect()
}

/// What arrives behind a subject.
pub(super) fn expect(subject: Subject, network: &Network, case: &Case) -> Result<Expect> {
    Ok(match subject {
        _ if subject.is_router() => router::expect(network, case)?,
        _ if subject.has_behaviors() => srv6::expect(case)?,
        Subject::Encapsulate | Subject::EncapsulateFast => Expect::SigFrames {
            packet_len: match case.size {
                Size::Fixed(length) => length,
                Size::Mix(_) => 0,
            },
        },
        Subject::KernelVxlan => Expect::Ip { at: 14 + 50 },
        _ => Expect::Ip { at: 14 },
    })
}

/// Whether a subject takes SIG frames.
pub(super) fn is_decapsulation(subject: Subject) -> bool {
    matches!(
        subject,
        Subject::Decapsulate | Subject::DecapsulateHelper | Subject::DecapsulateFast
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arrived_path_is_that_of_two_ases() {
        let path = arrived_path().unwrap();
        assert_eq!(path.len(), 4 + 8 + 2 * 12);
        assert_eq!(path[..4], [1, 0, 0x20, 0]);
        assert!(isd_as(OWN_AS).is_ok() && isd_as(REMOTE_AS).is_ok());
    }
}
