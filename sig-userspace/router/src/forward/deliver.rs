//! To a host or a service of the AS.

use std::net::{IpAddr, SocketAddr};

use sig_common::{
    addr::HostAddr,
    router::Reason,
    wire::{
        Load as _, PROTO_TCP, PROTO_UDP,
        scion::{ENDHOST_PORT, NEXT_SCMP, common::Common, extension},
        udp,
    },
};

use super::{
    Context, Router, Way, code,
    halt::{Rejection, Reply},
    parameter,
    transit::is_mapped,
};
use sig_core::scion::scmp::Problem;

/// Bytes of a TCP header without options.
const TCP_HEADER_LEN: usize = 20;
/// Offsets of the ports in headers of UDP and TCP.
const SOURCE_PORT_OFFSET: usize = 0;
const DESTINATION_PORT_OFFSET: usize = 2;
/// Offset of the identifier in echo and traceroute messages.
const IDENTIFIER_OFFSET: usize = 4;
/// Service numbers with this bit mean all instances of the service; they go to any one, too.
const MULTICAST: u16 = 0x8000;

impl Router {
    /// Where a packet for this AS goes, and the reason for which the fast path leaves it alone.
    pub(super) fn deliver(
        &self,
        context: &Context<'_>,
    ) -> Result<(Way, Option<Reason>), Rejection> {
        let destination = context.header.destination;
        if let Some(HostAddr::Svc(number)) = destination {
            let Some(instance) = self.instance(number, context.header.flow_id()) else {
                let problem = Problem::Unreachable { code: 0 };
                let halt = Rejection::report(Reason::NoService, problem);
                return Err(halt.behind(Reason::Service));
            };
            return Ok((Way::Host(instance), Some(Reason::Service)));
        }
        let host = match destination.and_then(HostAddr::ip) {
            Some(ip) if !is_no_host(ip) => ip,
            _ => {
                // The reference points to nothing here.
                let problem = parameter(code::INVALID_DESTINATION, 0);
                return Err(Rejection::report(Reason::DestinationAddress, problem));
            }
        };
        let Some((protocol, upper)) = context.header.upper_layer() else {
            return Err(Rejection::silent(Reason::DeepExtensions));
        };
        let port = port(protocol, upper).ok_or(Rejection::silent(Reason::NoPort))?;
        let here = host == self.model.internal.ip();
        if here && is_echo_request(protocol, upper) {
            return Err(Rejection::new(Reason::Local, Reply::Echo));
        }
        let fast = here.then_some(Reason::Local);
        Ok((Way::Host(self.model.host_address(host, port)), fast))
    }

    /// An instance of a service; the packets of a flow go to the same one.
    fn instance(&self, number: u16, flow_id: u32) -> Option<SocketAddr> {
        let instances = match HostAddr::Svc(number & !MULTICAST) {
            HostAddr::SVC_CS => &self.model.control_services,
            HostAddr::SVC_DS => &self.model.discovery_services,
            _ => return None,
        };
        let index = (flow_id as usize).checked_rem(instances.len())?;
        instances.get(index).copied()
    }
}

/// Whether no single host can have an address.
fn is_no_host(ip: IpAddr) -> bool {
    ip.is_unspecified() || ip.is_multicast() || is_mapped(exactly(ip))
}

/// The address as it is: [`HostAddr::from`] makes mapped addresses IPv4.
fn exactly(ip: IpAddr) -> HostAddr {
    match ip {
        IpAddr::V4(ip) => HostAddr::V4(ip.octets()),
        IpAddr::V6(ip) => HostAddr::V6(ip.octets()),
    }
}

/// SCMP messages, as far as ports depend on them.
mod scmp {
    pub(super) const UNREACHABLE: u8 = 1;
    pub(super) const PACKET_TOO_BIG: u8 = 2;
    pub(super) const PARAMETER_PROBLEM: u8 = 4;
    pub(super) const INTERFACE_DOWN: u8 = 5;
    pub(super) const CONNECTIVITY_DOWN: u8 = 6;
    pub(super) const ECHO_REQUEST: u8 = 128;
    pub(super) const ECHO_REPLY: u8 = 129;
    pub(super) const TRACEROUTE_REQUEST: u8 = 130;
    pub(super) const TRACEROUTE_REPLY: u8 = 131;

    /// Bytes of an echo message without data.
    pub(super) const ECHO_LEN: usize = 8;
    /// Bytes of a traceroute message.
    pub(super) const TRACEROUTE_LEN: usize = 24;
}

fn is_echo_request(protocol: u8, message: &[u8]) -> bool {
    protocol == NEXT_SCMP && message.first() == Some(&scmp::ECHO_REQUEST)
}

/// The port that an upper layer is for, before [`crate::AsModel::host_address`]; `None` if it cannot be told.
fn port(protocol: u8, upper: &[u8]) -> Option<u16> {
    match protocol {
        PROTO_UDP if upper.len() >= udp::HEADER_LEN => number(upper, DESTINATION_PORT_OFFSET),
        PROTO_TCP if upper.len() >= TCP_HEADER_LEN => number(upper, DESTINATION_PORT_OFFSET),
        PROTO_UDP | PROTO_TCP => None,
        NEXT_SCMP => scmp_port(upper),
        _ => Some(ENDHOST_PORT),
    }
}

/// That of the socket whose packet the message answers; the end host port for requests.
fn scmp_port(message: &[u8]) -> Option<u16> {
    let [kind, _, _, _] = message.bytes(0)?;
    let quote = match kind {
        scmp::ECHO_REQUEST | scmp::TRACEROUTE_REQUEST => return Some(ENDHOST_PORT),
        scmp::ECHO_REPLY => return identifier(message, scmp::ECHO_LEN),
        scmp::TRACEROUTE_REPLY => return identifier(message, scmp::TRACEROUTE_LEN),
        scmp::UNREACHABLE | scmp::PACKET_TOO_BIG | scmp::PARAMETER_PROBLEM => 8,
        scmp::INTERFACE_DOWN => 20,
        scmp::CONNECTIVITY_DOWN => 28,
        _ => return None,
    };
    quoted_port(message.get(quote..)?).filter(|port| *port != 0)
}

/// The port of the socket that sent a packet, of which the beginning is quoted. Nothing of its header is trusted but
/// where it ends, and a quoted traceroute request may be cut behind its identifier.
fn quoted_port(packet: &[u8]) -> Option<u16> {
    let header = Common::decode(&packet.bytes(0)?).ok()?;
    let payload = packet.get(header.header_len()..)?;
    let (protocol, offset) = extension::skip(payload, header.next_header, 0, payload.len())?;
    let upper = payload.get(offset..)?;
    match (protocol, upper.first()) {
        (PROTO_UDP, _) if upper.len() >= udp::HEADER_LEN => number(upper, SOURCE_PORT_OFFSET),
        (NEXT_SCMP, Some(&(scmp::ECHO_REQUEST | scmp::TRACEROUTE_REQUEST))) => {
            identifier(upper, scmp::ECHO_LEN)
        }
        _ => None,
    }
}

/// The identifier of an echo or traceroute message that has at least `len` bytes.
fn identifier(message: &[u8], len: usize) -> Option<u16> {
    number(message, IDENTIFIER_OFFSET).filter(|_| message.len() >= len)
}

fn number(bytes: &[u8], offset: usize) -> Option<u16> {
    bytes.bytes(offset).map(u16::from_be_bytes)
}
