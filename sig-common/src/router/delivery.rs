//! Delivery to a host of the AS: its address, and which UDP port gets a packet.

use super::{Reason, passage::FIXED_LEN, procedure::Source};
use crate::{
    maps::Ip,
    wire::{
        Load, PROTO_TCP, PROTO_UDP,
        scion::{
            ENDHOST_PORT, NEXT_SCMP,
            address::{CODE_IPV6, CODE_SVC},
            common::HEADER_LEN,
            extension, scmp,
        },
        udp,
    },
};

/// Bytes of a TCP header without options.
const TCP_LEN: usize = 20;
/// Offsets of the ports in headers of UDP and TCP.
const SOURCE_PORT_OFFSET: usize = 0;
const DESTINATION_PORT_OFFSET: usize = 2;

/// Offsets are below this: a SCION header and two extension headers, twice, and an SCMP header.
const OFFSET_MASK: usize = 0x1fff;

/// The address of the host that a packet is for, whose address types are these.
///
/// # Errors
/// [`Reason::Service`]; [`Reason::DestinationAddress`] if no single host can have it: unspecified, multicast and
/// IPv4-mapped addresses. [`Reason::HeaderLength`] if it is out of reach.
#[inline(always)]
pub fn host<L: Load + ?Sized>(packet: &L, address_types: u8) -> Result<Ip, Reason> {
    match address_types >> 4 {
        CODE_SVC => Err(Reason::Service),
        CODE_IPV6 => {
            let host = Ip(packet.bytes(FIXED_LEN).ok_or(Reason::HeaderLength)?);
            if host.0 == [0; 16] || host.0[0] == 0xff || host.is_mapped() {
                return Err(Reason::DestinationAddress);
            }
            Ok(host)
        }
        _ => {
            let host = packet.bytes(FIXED_LEN).ok_or(Reason::HeaderLength)?;
            if host == [0; 4] || host[0] & 0xf0 == 0xe0 {
                return Err(Reason::DestinationAddress);
            }
            Ok(Ip::v4(host))
        }
    }
}

/// Whether packets for this port of a host go there; others go to [`ENDHOST_PORT`], unless a service of the topology is
/// at the port. `first` and `last` port of the range; 0 is never dispatched.
#[inline(always)]
pub const fn is_dispatched(port: u16, first: u16, last: u16) -> bool {
    port != 0 && port >= first && port <= last
}

/// The port that a packet of `len` bytes is for, whose SCION header has `header_len` bytes and says that `next_header`
/// follows: that of its transport (SCION "dispatcherless" design), or of the socket that waits for the SCMP message.
/// Whether it is dispatched is another question.
///
/// # Errors
/// [`Reason::DeepExtensions`], see [`extension::skip`]. [`Reason::NoPort`].
#[inline(always)]
pub fn port<S: Source + ?Sized>(
    source: &S,
    next_header: u8,
    header_len: usize,
    len: usize,
) -> Result<u16, Reason> {
    let packet = source.packet();
    let (protocol, at) =
        extension::skip(&packet, next_header, header_len, len).ok_or(Reason::DeepExtensions)?;
    match protocol {
        PROTO_UDP => number(&packet, at, DESTINATION_PORT_OFFSET, udp::HEADER_LEN, len),
        PROTO_TCP => number(&packet, at, DESTINATION_PORT_OFFSET, TCP_LEN, len),
        NEXT_SCMP => of_scmp(source, at, len),
        _ => Ok(ENDHOST_PORT),
    }
}

/// The port for an SCMP message: who asked gets the answer, who sent a packet gets errors about it; requests go to the end
/// host port.
#[inline(never)]
fn of_scmp<S: Source + ?Sized>(source: &S, at: usize, len: usize) -> Result<u16, Reason> {
    let packet = source.packet();
    let at = at & OFFSET_MASK;
    if at + scmp::HEADER_LEN > len {
        return Err(Reason::NoPort);
    }
    let [kind, _] = packet.bytes(at).ok_or(Reason::NoPort)?;
    let identifier = |size| number(&packet, at, scmp::IDENTIFIER_OFFSET, size, len);
    match kind {
        scmp::ECHO_REQUEST | scmp::TRACEROUTE_REQUEST => Ok(ENDHOST_PORT),
        scmp::ECHO_REPLY => identifier(scmp::ECHO_LEN),
        scmp::TRACEROUTE_REPLY => identifier(scmp::TRACEROUTE_LEN),
        kind => {
            let quote = scmp::quote_offset(kind).ok_or(Reason::NoPort)?;
            quoted_port(source, at + quote, len)
        }
    }
}

/// The port that sent the packet whose beginning is quoted at `at`, in a message that ends at `len`. Nothing of its header
/// is trusted but where it ends, and a quoted traceroute request may be cut behind its identifier.
///
/// # Errors
/// [`Reason::NoPort`], also for port 0 and for packets that nobody waits for errors about: errors and replies.
#[inline(never)]
pub fn quoted_port<S: Source + ?Sized>(source: &S, at: usize, len: usize) -> Result<u16, Reason> {
    let packet = source.packet();
    let at = at & OFFSET_MASK;
    if at + HEADER_LEN > len {
        return Err(Reason::NoPort);
    }
    let [version, _, _, _, next, words] = packet.bytes(at).ok_or(Reason::NoPort)?;
    if version >> 4 != 0 {
        return Err(Reason::NoPort);
    }
    let (protocol, at) =
        extension::skip(&packet, next, at + usize::from(words) * 4, len).ok_or(Reason::NoPort)?;
    let at = at & OFFSET_MASK;
    let port = match protocol {
        PROTO_UDP => number(&packet, at, SOURCE_PORT_OFFSET, udp::HEADER_LEN, len)?,
        NEXT_SCMP => {
            if at + scmp::ECHO_LEN > len {
                return Err(Reason::NoPort);
            }
            // At once: of two loads, the compiler would check the end of the packet for the second one only, in a way that
            // the verifier does not follow.
            let [kind, _, _, _, i0, i1] = packet.bytes(at).ok_or(Reason::NoPort)?;
            if !scmp::is_request(kind) {
                return Err(Reason::NoPort);
            }
            u16::from_be_bytes([i0, i1])
        }
        _ => return Err(Reason::NoPort),
    };
    if port == 0 {
        return Err(Reason::NoPort);
    }
    Ok(port)
}

/// The 16 bits at `offset` of a header at `at`, of which `size` bytes must be there.
#[inline(always)]
fn number<L: Load + ?Sized>(
    packet: &L,
    at: usize,
    offset: usize,
    size: usize,
    len: usize,
) -> Result<u16, Reason> {
    if at + size > len {
        return Err(Reason::NoPort);
    }
    packet
        .bytes((at & OFFSET_MASK) + offset)
        .map(u16::from_be_bytes)
        .ok_or(Reason::NoPort)
}
