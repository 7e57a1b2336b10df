//! An SR node between generator and sink: ours and the kernel's, with the same SIDs, routes and packets.
//!
//! ```text
//!   generator ── d0  node  d1 ── sink: on to the next segments, fc00:b::/64, and to what is inside packets
//!                f0 ── f1        the function of proxies: a wire that returns everything
//! ```

mod kernel;
mod ours;

use std::net::{IpAddr, Ipv6Addr};

use anyhow::{Context as _, Result};
use sig_common::{
    srv6::Behavior as Sid,
    wire::{
        ethernet, ipv6,
        srv6::{self, NEXT_ETHERNET, NEXT_IPV4, NEXT_IPV6},
    },
};

use super::{network::Network, refuse::MTU};
use crate::throughput::{
    experiment::{Behavior, Case, Family},
    instrument::packet::{Expect, IpLoad, Load},
    subject::{Refusal, Subject},
};

pub(super) use kernel::start as start_kernel;
pub(super) use ours::Node;

/// What packets to SIDs are addressed to.
const SID: Ipv6Addr = Ipv6Addr::new(0xfc00, 0xa, 0, 0, 0, 0, 0, 1);
/// Where they have been before, if the SID is their last.
const PREVIOUS: Ipv6Addr = Ipv6Addr::new(0xfc00, 0xc, 0, 0, 0, 0, 0, 1);
/// The segments behind the node.
const NEXT: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfc00, 0xb, 0, 0, 0, 0, 0, 1),
    Ipv6Addr::new(0xfc00, 0xb, 0, 0, 0, 0, 0, 2),
];
/// Their prefix.
const NEXT_NET: &str = "fc00:b::/64";
/// Routing table of `End.T` and `End.DT…`.
const TABLE: u32 = 100;

/// Bytes of an IPv6 header and an SRH of two segments.
const HEADERS_LEN: usize = ipv6::HEADER_LEN + srv6::FIXED_LEN + 2 * srv6::SEGMENT_LEN;
/// Bytes of an IPv6 header and an SRH of three segments, the last of which is that of the packet.
const INSERTED_LEN: usize = HEADERS_LEN + srv6::SEGMENT_LEN;
/// MTU of both links: nothing is too long with its headers.
pub(super) const LINK_MTU: u16 = MTU + (HEADERS_LEN + ethernet::HEADER_LEN) as u16;

/// Complains about behaviors that the kernel does not have, and packets that a behavior does not take.
pub(super) fn check(subject: Subject, case: &Case) -> Result<(), Refusal> {
    let Some(behavior) = case.behavior else {
        return Err(Refusal::NotHere(format!("{subject} needs a behavior")));
    };
    if behavior
        .family()
        .is_some_and(|family| family != case.family)
    {
        let reason = format!("{behavior} is for packets of the other family");
        return Err(Refusal::NotHere(reason));
    }
    if subject == Subject::Srv6Kernel {
        kernel::check(behavior)?;
    }
    Ok(())
}

fn behavior(case: &Case) -> Result<Behavior> {
    case.behavior.context("an SR node needs a behavior")
}

/// What the generator sends: `inner` behind headers, unless the node is to put them there.
pub(super) fn load(network: &Network, case: &Case, inner: IpLoad) -> Result<Load> {
    let behavior = behavior(case)?;
    if behavior.is_headend() {
        return Ok(Load::Ip(inner));
    }
    let IpAddr::V6(source) = network.left.tester_ip(Family::Ipv6) else {
        anyhow::bail!("the generator has no IPv6 address");
    };
    let is_frame = behavior == Behavior::Sid(Sid::EndDx2);
    let next = match (is_frame, case.family) {
        (true, _) => NEXT_ETHERNET,
        (false, Family::Ipv4) => NEXT_IPV4,
        (false, Family::Ipv6) => NEXT_IPV6,
    };
    let mut headers = match behavior.decapsulates() {
        true => at_its_end(source, [PREVIOUS, SID], next)?,
        false => headers(source, [SID, NEXT[0]], next)?,
    };
    if is_frame {
        headers.extend([network.right.tester_mac, network.right.device_mac].concat());
        let ethertype = match case.family {
            Family::Ipv4 => ethernet::ETHERTYPE_IPV4,
            Family::Ipv6 => ethernet::ETHERTYPE_IPV6,
        };
        headers.extend(ethertype.to_be_bytes());
    }
    Ok(Load::Behind { inner, headers })
}

/// What arrives behind the node.
pub(super) fn expect(case: &Case) -> Result<Expect> {
    let behavior = behavior(case)?;
    if behavior == Behavior::Insert {
        return Ok(Expect::Udp {
            at: (ethernet::HEADER_LEN + INSERTED_LEN) as u16,
        });
    }
    let headers = match behavior {
        Behavior::EncapsFrames => HEADERS_LEN + ethernet::HEADER_LEN,
        behavior if behavior.decapsulates() => 0,
        _ => HEADERS_LEN,
    };
    Ok(Expect::Ip {
        at: (ethernet::HEADER_LEN + headers) as u16,
    })
}

/// The headers of a packet on its way to the first of its segments. The payload length is missing.
fn headers<const N: usize>(
    source: Ipv6Addr,
    segments: [Ipv6Addr; N],
    next_header: u8,
) -> Result<Vec<u8>> {
    let outer = ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        payload_len: 0,
        next_header: ipv6::ROUTING,
        hop_limit: 64,
        source: source.octets(),
        destination: segments[0].octets(),
    };
    let srh = srv6::Header {
        next_header,
        segments: &segments.map(|segment| segment.octets()),
        reduced: false,
        flags: 0,
        tag: 0,
        tlvs: &[],
    };
    let mut headers = vec![0; ipv6::HEADER_LEN + srv6::FIXED_LEN + N * srv6::SEGMENT_LEN];
    let at = outer.emit(&mut headers)?;
    srh.emit(&mut headers[at..])?;
    Ok(headers)
}

/// The same on its way to the last.
fn at_its_end(source: Ipv6Addr, segments: [Ipv6Addr; 2], next_header: u8) -> Result<Vec<u8>> {
    let mut headers = headers(source, segments, next_header)?;
    headers[ipv6::HEADER_LEN + srv6::SEGMENTS_LEFT] = 0;
    headers[24..ipv6::HEADER_LEN].copy_from_slice(&segments[1].octets());
    Ok(headers)
}

/// Routes to what is behind the node, in the main table and in that of SIDs.
fn add_routes(network: &Network) -> Result<()> {
    let right = &network.right;
    let device = &right.device;
    let [v4, v6] = [Family::Ipv4, Family::Ipv6].map(|family| right.tester_ip(family));
    network.device.ip(&format!(
        "route add {NEXT_NET} via {v6} dev {device}\n\
         route add {NEXT_NET} via {v6} dev {device} table {TABLE}\n\
         route add {v6}/128 dev {device} table {TABLE}\n\
         route add {v4}/32 dev {device} table {TABLE}\n"
    ))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_those_of_rfc_8754() {
        let source = Ipv6Addr::LOCALHOST;
        let under_way = headers(source, [SID, NEXT[0]], NEXT_IPV4).unwrap();
        assert_eq!(under_way[24..40], SID.octets());
        // Inner IPv4, four units of eight bytes behind the first, type 4, one segment left, the last entry is 1.
        assert_eq!(under_way[40..48], [4, 4, 4, 1, 1, 0, 0, 0]);
        assert_eq!(under_way[48..64], NEXT[0].octets());
        let ended = at_its_end(source, [PREVIOUS, SID], NEXT_ETHERNET).unwrap();
        assert_eq!(ended[24..40], SID.octets());
        assert_eq!(ended[40..48], [143, 4, 4, 0, 1, 0, 0, 0]);
        assert_eq!(ended[48..64], SID.octets());
    }

    #[test]
    fn what_a_behavior_does_not_take_is_refused() {
        let refused = |subject, name: &str, family| {
            let case = Case {
                family,
                behavior: Some(name.to_owned().try_into().unwrap()),
                ..Case::of(100)
            };
            matches!(check(subject, &case), Err(Refusal::NotHere(_)))
        };
        assert!(refused(Subject::Srv6, "End.DX4", Family::Ipv6));
        assert!(!refused(Subject::Srv6, "End.DX4", Family::Ipv4));
        assert!(!refused(Subject::Srv6Kernel, "End.DX4", Family::Ipv4));
        assert!(refused(Subject::Srv6Kernel, "End.DT4", Family::Ipv4));
        assert!(refused(Subject::Srv6Kernel, "End.AM", Family::Ipv6));
    }
}
