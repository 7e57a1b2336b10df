//! IPv6 packets on their way along segments, or around another packet.

mod show;

use std::net::Ipv6Addr;

use sig_common::wire::inner::InnerPacket;
use sig_common::wire::ipv6::{self, UpperLayer, upper_layer};
use sig_common::wire::srv6::{
    FIXED_LEN, NEXT_ETHERNET, NEXT_IPV4, NEXT_IPV6, Problem, Reject, View, parse,
};
use sig_common::wire::{Error, Load as _, PROTO_SCTP, PROTO_TCP, PROTO_UDP, ethernet};

pub(super) use show::{json, text};

/// An IPv6 packet with a segment routing header, or around another packet.
pub(super) struct Srv6<'a> {
    ip: ipv6::View<'a>,
    routing: Routing<'a>,
    inner: Inner,
}

enum Routing<'a> {
    /// No SRH.
    None,
    Srh(View<'a>),
    Malformed {
        problem: Problem,
        pointer: u16,
        fixed: [u8; FIXED_LEN],
    },
}

/// What the headers of the outer packet end in.
enum Inner {
    /// Not looked for, behind a malformed SRH.
    Unknown,
    Ip(InnerPacket),
    Ethernet {
        header: ethernet::Header,
        ip: Option<InnerPacket>,
        len: usize,
    },
    /// No packet, but an upper layer: the SRH was inserted.
    Upper {
        protocol: u8,
        ports: Option<[u16; 2]>,
        len: usize,
    },
    Fragment,
    /// Announced, but something else.
    Broken {
        protocol: u8,
        error: Error,
        len: usize,
    },
}

impl Srv6<'_> {
    pub(super) fn has_srh(&self) -> bool {
        !matches!(self.routing, Routing::None)
    }

    pub(super) fn is_malformed(&self) -> bool {
        match &self.routing {
            Routing::None => false,
            Routing::Srh(srh) => srh.tlvs().any(|tlv| tlv.is_err()),
            Routing::Malformed { .. } => true,
        }
    }

    fn source(&self) -> Ipv6Addr {
        self.ip.source().into()
    }

    fn destination(&self) -> Ipv6Addr {
        self.ip.destination().into()
    }
}

/// Takes an IP packet for one with an SRH, or for one around another packet.
pub(super) fn packet(packet: &[u8]) -> Option<Srv6<'_>> {
    let ip = ipv6::View::new_checked(packet).ok()?;
    let (routing, inner) = match parse(packet) {
        Ok(srh) => {
            let packet = packet.get(..srh.packet_len.into())?;
            let view = View::new_checked(packet.get(srh.offset.into()..)?).ok()?;
            let upper = upper_layer(packet, srh.next_header, srh.after().into());
            (Routing::Srh(view), inner(upper, packet))
        }
        Err(reject @ Reject::Malformed { problem, offset }) => {
            let routing = Routing::Malformed {
                problem,
                pointer: reject.pointer()?,
                fixed: packet.bytes(offset.into())?,
            };
            (routing, Inner::Unknown)
        }
        Err(Reject::Absent | Reject::Packet(_)) => match ip.upper_layer() {
            upper @ UpperLayer::At {
                protocol: NEXT_IPV4 | NEXT_IPV6 | NEXT_ETHERNET,
                ..
            } => (Routing::None, inner(upper, ip.payload())),
            _ => return None,
        },
    };
    Some(Srv6 { ip, routing, inner })
}

/// Of what is behind the headers; the offset in `upper` counts from the start of `packet`.
fn inner(upper: UpperLayer, packet: &[u8]) -> Inner {
    let (protocol, bytes) = match upper {
        UpperLayer::At { protocol, offset } => (protocol, packet.get(offset..).unwrap_or_default()),
        UpperLayer::Fragment => return Inner::Fragment,
        UpperLayer::Unknown(protocol) => (protocol, &[][..]),
    };
    let len = bytes.len();
    let broken = |error| Inner::Broken {
        protocol,
        error,
        len,
    };
    match protocol {
        NEXT_IPV4 | NEXT_IPV6 => {
            let version = if protocol == NEXT_IPV4 { 4 } else { 6 };
            match bytes.first() {
                Some(first) if first >> 4 != version => broken(Error::Version),
                _ => InnerPacket::parse(bytes).map_or_else(broken, Inner::Ip),
            }
        }
        NEXT_ETHERNET => match ethernet::View::new_checked(bytes) {
            Ok(frame) => Inner::Ethernet {
                header: frame.header(),
                ip: InnerPacket::parse(frame.payload())
                    .ok()
                    .filter(|ip| ip.ethertype() == frame.ethertype()),
                len,
            },
            Err(error) => broken(error),
        },
        _ => {
            let has_ports = matches!(protocol, PROTO_TCP | PROTO_UDP | PROTO_SCTP);
            let ports = bytes.bytes(0).filter(|_| has_ports);
            Inner::Upper {
                protocol,
                ports: ports.map(|[s0, s1, d0, d1]| {
                    [u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1])]
                }),
                len,
            }
        }
    }
}
