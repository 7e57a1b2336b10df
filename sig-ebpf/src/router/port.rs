//! Which UDP port of a host gets a packet: that of its transport, or the one that waits for an SCMP message.

use aya_ebpf::bindings::xdp_md;
use sig_common::{
    router::{Reason, maps::Config},
    wire::{
        Load as _, PROTO_TCP, PROTO_UDP,
        scion::{ENDHOST_PORT, NEXT_END_TO_END, NEXT_HOP_BY_HOP, NEXT_SCMP, common::HEADER_LEN},
    },
};

use super::{
    maps, parse,
    work::{Stop, Work},
};
use crate::packet::Packet;

/// SCMP types (SCION control message protocol).
mod scmp {
    pub const DESTINATION_UNREACHABLE: u8 = 1;
    pub const PACKET_TOO_BIG: u8 = 2;
    pub const PARAMETER_PROBLEM: u8 = 4;
    pub const EXTERNAL_INTERFACE_DOWN: u8 = 5;
    pub const INTERNAL_CONNECTIVITY_DOWN: u8 = 6;
    pub const ECHO_REQUEST: u8 = 128;
    pub const ECHO_REPLY: u8 = 129;
    pub const TRACEROUTE_REQUEST: u8 = 130;
    pub const TRACEROUTE_REPLY: u8 = 131;
    /// Bytes of type, code and checksum.
    pub const HEADER_LEN: u32 = 4;
    /// Bytes of an echo message: with identifier and sequence number.
    pub const ECHO_LEN: u32 = 8;
    /// Bytes of a traceroute message: with ISD-AS and interface as well.
    pub const TRACEROUTE_LEN: u32 = 24;
}

/// Bytes of the headers that must be whole.
const UDP_LEN: u32 = 8;
const TCP_LEN: u32 = 20;

/// Offsets are below this: a SCION header and two extension headers, twice, and an SCMP header.
const OFFSET_MASK: u32 = 0x1fff;

/// A protocol and where its header is.
struct Upper {
    protocol: u8,
    at: u32,
}

/// Finds the port for a packet to a host of ours.
#[inline(never)]
pub fn find(ctx: *mut xdp_md, work: &mut Work, config: &Config) -> Result<(), Stop> {
    let packet = parse::scion(ctx, work);
    let start = work.header_len & 0x3fc;
    let upper = upper(&packet, work.next_header, start, work.len).ok_or(Reason::DeepExtensions)?;
    work.host.destination_port = ENDHOST_PORT;
    match upper.protocol {
        PROTO_UDP => set(&packet, work, upper.at, UDP_LEN, 2)?,
        PROTO_TCP => set(&packet, work, upper.at, TCP_LEN, 2)?,
        NEXT_SCMP => of_scmp(ctx, work, upper.at)?,
        NEXT_HOP_BY_HOP | NEXT_END_TO_END => return Err(Reason::DeepExtensions.into()),
        _ => {}
    }
    let port = work.host.destination_port;
    let dispatched = port != 0 && port >= config.first_port && port <= config.last_port;
    if !dispatched && !maps::is_service(&work.service()) {
        work.host.destination_port = ENDHOST_PORT;
    }
    Ok(())
}

/// The port for an SCMP message: who asked gets the answer, who sent a packet gets errors about it.
#[inline(never)]
fn of_scmp(ctx: *mut xdp_md, work: &mut Work, at: u32) -> Result<(), Stop> {
    let packet = parse::scion(ctx, work);
    let at = at & OFFSET_MASK;
    if at + scmp::HEADER_LEN > work.len {
        return Err(Reason::NoPort.into());
    }
    let [kind, _] = packet.bytes(at as usize).ok_or(Reason::NoPort)?;
    let quote = match kind {
        scmp::ECHO_REQUEST | scmp::TRACEROUTE_REQUEST => return Ok(()),
        scmp::ECHO_REPLY => return set(&packet, work, at, scmp::ECHO_LEN, 4),
        scmp::TRACEROUTE_REPLY => return set(&packet, work, at, scmp::TRACEROUTE_LEN, 4),
        scmp::DESTINATION_UNREACHABLE | scmp::PACKET_TOO_BIG | scmp::PARAMETER_PROBLEM => 4,
        scmp::EXTERNAL_INTERFACE_DOWN => 16,
        scmp::INTERNAL_CONNECTIVITY_DOWN => 24,
        _ => return Err(Reason::NoPort.into()),
    };
    of_quote(ctx, work, at + scmp::HEADER_LEN + quote)
}

/// The port that sent a quoted packet.
#[inline(never)]
fn of_quote(ctx: *mut xdp_md, work: &mut Work, at: u32) -> Result<(), Stop> {
    let packet = parse::scion(ctx, work);
    let at = at & OFFSET_MASK;
    if at + HEADER_LEN as u32 > work.len {
        return Err(Reason::NoPort.into());
    }
    let [version, _, _, _, next, words] = packet.bytes(at as usize).ok_or(Reason::NoPort)?;
    if version >> 4 != 0 {
        return Err(Reason::NoPort.into());
    }
    let upper = upper(&packet, next, at + u32::from(words) * 4, work.len).ok_or(Reason::NoPort)?;
    match upper.protocol {
        PROTO_UDP => set(&packet, work, upper.at, UDP_LEN, 0)?,
        NEXT_SCMP => {
            if upper.at + scmp::ECHO_LEN > work.len {
                return Err(Reason::NoPort.into());
            }
            let [kind, _, _, _, i0, i1] = packet
                .bytes((upper.at & OFFSET_MASK) as usize)
                .ok_or(Reason::NoPort)?;
            if kind != scmp::ECHO_REQUEST && kind != scmp::TRACEROUTE_REQUEST {
                return Err(Reason::NoPort.into());
            }
            work.host.destination_port = u16::from_be_bytes([i0, i1]);
        }
        _ => return Err(Reason::NoPort.into()),
    }
    if work.host.destination_port == 0 {
        return Err(Reason::NoPort.into());
    }
    Ok(())
}

/// What is behind the extension headers: hop-by-hop, then end-to-end, each at most once.
#[inline(always)]
fn upper(packet: &Packet, next: u8, at: u32, end: u32) -> Option<Upper> {
    let mut upper = Upper { protocol: next, at };
    if upper.protocol == NEXT_HOP_BY_HOP {
        upper = behind(packet, upper, end)?;
    }
    if upper.protocol == NEXT_END_TO_END {
        upper = behind(packet, upper, end)?;
    }
    Some(upper)
}

/// What is behind one extension header.
#[inline(always)]
fn behind(packet: &Packet, extension: Upper, end: u32) -> Option<Upper> {
    let [protocol, words] = packet.bytes((extension.at & OFFSET_MASK) as usize)?;
    let at = extension.at + (u32::from(words) + 1) * 4;
    if at > end {
        return None;
    }
    Some(Upper { protocol, at })
}

/// Takes the 16 bits at `offset` of a header at `at`, of which `len` bytes must be there, for the port.
#[inline(always)]
fn set(packet: &Packet, work: &mut Work, at: u32, len: u32, offset: usize) -> Result<(), Stop> {
    if at + len > work.len {
        return Err(Reason::NoPort.into());
    }
    work.host.destination_port = packet
        .be16((at & OFFSET_MASK) as usize + offset)
        .ok_or(Reason::NoPort)?;
    Ok(())
}
