//! The SCION header: common header, addresses, and where the path is at.

use aya_ebpf::bindings::xdp_md;
use sig_common::{
    router::Reason,
    wire::{Load as _, scion::path, stun},
};

use super::{
    maps,
    work::{Outer, Stop, Work},
};
use crate::packet::Packet;

/// The SCION packet. Headers before it are at most 90 bytes.
#[inline(always)]
pub fn scion(ctx: *mut xdp_md, outer: &Outer) -> Packet {
    Packet::of(ctx, (outer.head & 0x7f) as usize)
}

/// Reads the header and checks what its parts say of each other.
#[inline(never)]
pub fn parse(ctx: *mut xdp_md, work: &mut Work) -> Result<(), Stop> {
    let packet = scion(ctx, &work.outer);
    let passage = &mut work.passage;
    if !passage.is_from_outside() && passage.len >= stun::HEADER_LEN as u32 {
        let first = packet.bytes(0).ok_or(Reason::HeaderLength)?;
        if stun::is_message(first, passage.len as usize) {
            return Err(Reason::Stun.into());
        }
    }
    passage.read_header(&packet)?;
    if passage.is_bfd() {
        work.outer.sibling = maps::sibling(&work.outer).unwrap_or(0);
        if passage.is_from_outside() || work.outer.sibling != 0 {
            return Err(Reason::Bfd.into());
        }
    }
    match passage.path_type {
        path::SCION => {
            passage.read_isd_as(&packet)?;
            Ok(passage.read_position(&packet)?)
        }
        path::EMPTY => Err(Reason::EmptyPath.into()),
        path::ONE_HOP => Err(Reason::OneHop.into()),
        path::EPIC => Err(Reason::Epic.into()),
        _ => Err(Reason::PathType.into()),
    }
}
