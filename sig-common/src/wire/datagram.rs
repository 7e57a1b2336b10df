//! UDP/SCION datagrams from and to whomever: what is beside a gateway can only look at its packets.
//!
//! [`super::underlay::parse`] tells a gateway what is for it, and what is wrong with that. This takes only the plain form, without
//! VLAN tags, options and extension headers, and says nothing of anything else.

use super::scion::address::{CODE_IPV4, CODE_IPV6};
use super::scion::{
    common::{self, Common},
    path,
};
use super::{Load, PROTO_UDP, be16, ethernet, ipv4, ipv6, udp};
use crate::maps::Ip;

/// A datagram. Offsets count from the start of the Ethernet frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Datagram {
    /// Destination ISD-AS.
    pub destination_isd_as: u64,
    /// Source ISD-AS.
    pub source_isd_as: u64,
    /// Destination host.
    pub destination: Ip,
    /// Source host.
    pub source: Ip,
    /// Offset of the SCION header, behind the outer UDP header.
    pub scion: u32,
    /// Offset of the UDP/SCION header. Also set if all before it was read, but not that header.
    pub l4: u32,
    /// Bytes behind the UDP/SCION header.
    pub payload_len: u32,
    /// UDP/SCION source port.
    pub source_port: u16,
    /// UDP/SCION destination port.
    pub destination_port: u16,
    /// Source port of the outer header.
    pub outer_source_port: u16,
    /// SCION path type.
    pub path_type: u8,
    /// Type of service or traffic class of the outer IP header.
    pub outer_class: u8,
    /// SCION traffic class.
    pub traffic_class: u8,
    /// 1 over IPv6.
    pub over_ipv6: u8,
}

impl Datagram {
    /// Offset of what is behind the UDP/SCION header.
    #[inline(always)]
    #[must_use]
    pub const fn payload(&self) -> usize {
        self.l4 as usize + udp::HEADER_LEN
    }
}

/// Bytes of the addresses in front of the hosts.
const ISD_AS_LEN: usize = 8;

/// Reads the Ethernet frame that `packet` is into `out`; `None` if it is not such a datagram, or not whole. Some fields may then be
/// written.
#[inline(always)]
pub fn parse<L: Load + ?Sized>(packet: &L, out: &mut Datagram) -> Option<()> {
    const IP: usize = ethernet::HEADER_LEN;
    let [e0, e1] = packet.bytes(IP - 2)?;
    let (scion, end) = match be16(e0, e1) {
        ethernet::ETHERTYPE_IPV4 => {
            let header = packet.bytes::<{ ipv4::HEADER_LEN }>(IP)?;
            if header[0] != 0x45 || !ipv4::is_around_udp(&header) {
                return None;
            }
            out.outer_class = header[1];
            out.over_ipv6 = 0;
            let end = IP + usize::from(be16(header[2], header[3]));
            (IP + ipv4::HEADER_LEN + udp::HEADER_LEN, end)
        }
        ethernet::ETHERTYPE_IPV6 => {
            let header = packet.bytes::<8>(IP)?;
            if !ipv6::is_around_udp(&header) {
                return None;
            }
            out.outer_class = header[0] << 4 | header[1] >> 4;
            out.over_ipv6 = 1;
            let behind = IP + ipv6::HEADER_LEN;
            let end = behind + usize::from(be16(header[4], header[5]));
            (behind + udp::HEADER_LEN, end)
        }
        _ => return None,
    };
    let outer = udp::Header::decode(&packet.bytes(scion - udp::HEADER_LEN)?);
    if end > packet.len() || scion - udp::HEADER_LEN + usize::from(outer.length) != end {
        return None;
    }
    let header = Common::decode(&packet.bytes(scion)?).ok()?;
    if header.next_header != PROTO_UDP || !matches!(header.path_type, path::EMPTY | path::SCION) {
        return None;
    }
    let at = scion + common::HEADER_LEN;
    out.destination_isd_as = u64::from_be_bytes(packet.bytes(at)?);
    out.source_isd_as = u64::from_be_bytes(packet.bytes(at + ISD_AS_LEN)?);
    let at = at + 2 * ISD_AS_LEN;
    let (destination, at) = host(packet, header.address_types >> 4, at)?;
    let (source, at) = host(packet, header.address_types & 0x0f, at)?;
    out.destination = destination;
    out.source = source;
    let l4 = scion + header.header_len();
    if l4 < at || l4 + usize::from(header.payload_len) != end {
        return None;
    }
    if usize::from(header.payload_len) < udp::HEADER_LEN {
        return None;
    }
    let path_len = match header.path_type {
        path::EMPTY => 0,
        _ => path::Meta::decode(packet.bytes(at)?).path_len()?,
    };
    if l4 - at != path_len {
        return None;
    }
    out.l4 = l4 as u32;
    let inner = udp::Header::decode(&packet.bytes(l4)?);
    if usize::from(inner.length) != end - l4 {
        out.l4 = 0;
        return None;
    }
    out.payload_len = inner.length.checked_sub(udp::HEADER_LEN as u16)?.into();
    out.scion = scion as u32;
    out.source_port = inner.source_port;
    out.destination_port = inner.destination_port;
    out.outer_source_port = outer.source_port;
    out.path_type = header.path_type;
    out.traffic_class = header.traffic_class;
    Some(())
}

/// The host with this type and length, and the offset behind it.
#[inline(always)]
fn host<L: Load + ?Sized>(packet: &L, code: u8, at: usize) -> Option<(Ip, usize)> {
    match code {
        CODE_IPV4 => Some((Ip::v4(packet.bytes(at)?), at + 4)),
        // An IPv4 address is written as one.
        CODE_IPV6 => {
            let bytes: [u8; 16] = packet.bytes(at)?;
            let is_mapped = u128::from_be_bytes(bytes) >> 32 == 0xffff;
            (!is_mapped).then_some((Ip(bytes), at + 16))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use core::net::SocketAddr;
    use std::vec;

    use super::*;
    use crate::addr::{HostAddr, IsdAs};
    use crate::wire::template::{Endpoints, FrameFields, NextHop, Template};
    use crate::wire::underlay::{self, Local};
    use proptest::prelude::*;

    fn hosts(v6: bool) -> [SocketAddr; 2] {
        match v6 {
            false => [([10, 0, 0, 1], 4000).into(), ([10, 0, 0, 2], 30056).into()],
            true => [
                ([0xfd00, 0, 0, 0, 0, 0, 0, 1], 4000).into(),
                ([0xfd00, 0, 0, 0, 0, 0, 0, 2], 30056).into(),
            ],
        }
    }

    proptest! {
        #[test]
        fn what_it_reads_a_gateway_reads_alike(
            v6: bool, payload in 0usize..90, changes in prop::collection::vec((0usize..200, any::<u8>()), 0..3),
        ) {
            let [local, remote] = hosts(v6);
            let ends = Endpoints {
                local_isd_as: IsdAs(0x0001_ff00_0000_0110),
                local,
                remote_isd_as: IsdAs(0x0001_ff00_0000_0111),
                remote,
            };
            let next_hop = NextHop { address: remote, source_mac: [2; 6], destination_mac: [4; 6] };
            let template = Template::new(&ends, &next_hop, 0, &[], 7).unwrap();
            let fields = FrameFields { traffic_class: 8, flow_hash: 5, stream: 3, sequence: 4, index: 0 };
            let mut frame = vec![0; template.len() + payload];
            template.write(&mut frame, &fields).unwrap();
            for (at, value) in &changes {
                if let Some(byte) = frame.get_mut(*at) {
                    *byte = *value;
                }
            }
            let mut datagram = Datagram::default();
            let found = parse(frame.as_slice(), &mut datagram);
            prop_assert!(found.is_some() || !changes.is_empty());
            let local = Local::new(ends.remote_isd_as, remote.ip(), remote.port(), false);
            let wanted = underlay::parse(frame.as_slice(), &local);
            let (Some(()), Ok(Some(wanted))) = (found, wanted) else {
                return Ok(());
            };
            prop_assert_eq!(datagram.scion, u32::from(wanted.scion));
            prop_assert_eq!(datagram.l4, u32::from(wanted.l4));
            prop_assert_eq!(datagram.payload(), usize::from(wanted.frame));
            prop_assert_eq!(datagram.payload_len, u32::from(wanted.frame_len));
            prop_assert_eq!(datagram.source_isd_as, wanted.source_isd_as.0);
            prop_assert_eq!(Some(datagram.source), Ip::of_host(wanted.source));
            prop_assert_eq!(Some(datagram.destination), Ip::of_host(HostAddr::from(remote.ip())));
            prop_assert_eq!(datagram.source_port, wanted.source_port);
            prop_assert_eq!(datagram.destination_port, wanted.destination_port);
            prop_assert_eq!(datagram.outer_class, wanted.outer_tos);
            prop_assert_eq!(datagram.traffic_class, wanted.traffic_class);
        }
    }
}
