//! The SCION header: common header, addresses, and where the path is at.

use aya_ebpf::bindings::xdp_md;
use sig_common::{
    router::Reason,
    wire::{
        Load as _,
        scion::{
            NEXT_BFD, address,
            common::HEADER_LEN,
            path::{self, HOP_LEN, INFO_LEN, META_LEN},
        },
    },
};

use super::{
    maps,
    work::{Fields, Stop, Work},
};
use crate::packet::Packet;

/// Bytes of common header and both ISD-AS numbers.
const FIXED_LEN: usize = HEADER_LEN + address::ISD_AS_LEN;

/// Cookie of STUN messages (RFC 8489), and bytes of their header.
const STUN_COOKIE: u32 = 0x2112_a442;
const STUN_LEN: u32 = 20;

/// The SCION packet. Headers before it are at most 90 bytes.
#[inline(always)]
pub fn scion(ctx: *mut xdp_md, work: &Work) -> Packet {
    Packet::of(ctx, (work.head & 0x7f) as usize)
}

/// Reads the header and checks what its parts say of each other.
#[inline(never)]
pub fn parse(ctx: *mut xdp_md, work: &mut Work) -> Result<(), Stop> {
    let packet = scion(ctx, work);
    if work.ingress == 0 && work.len >= STUN_LEN {
        let word = packet.be64(0).ok_or(Reason::HeaderLength)?;
        if word >> 62 == 0 && word as u32 == STUN_COOKIE {
            return Err(Reason::Stun.into());
        }
    }
    if work.len < HEADER_LEN as u32 {
        return Err(Reason::HeaderLength.into());
    }
    let header = packet.bytes::<HEADER_LEN>(0).ok_or(Reason::HeaderLength)?;
    if header[0] >> 4 != 0 {
        return Err(Reason::Version.into());
    }
    work.next_header = header[4];
    work.header_len = u32::from(header[5]) * 4;
    work.payload_len = u16::from_be_bytes([header[6], header[7]]);
    work.address_types = header[9];
    let path_type = header[8];
    let hosts = match (host_len(header[9] >> 4), host_len(header[9] & 0x0f)) {
        (Some(destination), Some(source)) => destination + source,
        _ => return Err(Reason::AddressType.into()),
    };
    work.path = FIXED_LEN as u32 + hosts;
    if work.header_len < work.path || work.header_len > work.len {
        return Err(Reason::HeaderLength.into());
    }
    if work.next_header == NEXT_BFD && is_of_session(work, path_type) {
        return Err(Reason::Bfd.into());
    }
    match path_type {
        path::SCION => {}
        path::EMPTY => return Err(Reason::EmptyPath.into()),
        path::ONE_HOP => return Err(Reason::OneHop.into()),
        path::EPIC => return Err(Reason::Epic.into()),
        _ => return Err(Reason::PathType.into()),
    }
    work.destination_isd_as = packet.be64(HEADER_LEN).ok_or(Reason::HeaderLength)?;
    work.source_isd_as = packet.be64(HEADER_LEN + 8).ok_or(Reason::HeaderLength)?;
    pointers(&packet, work)
}

/// Whether a path is one that BFD packets have: of neighbours a one-hop path, of siblings the empty one. What hosts send is
/// not let through without limit.
#[inline(always)]
fn is_of_session(work: &mut Work, path_type: u8) -> bool {
    if work.ingress != 0 {
        return path_type == path::ONE_HOP;
    }
    work.sibling = maps::sibling(work).unwrap_or(0);
    path_type == path::EMPTY && work.sibling != 0
}

/// Reads the path meta header.
#[inline(always)]
fn pointers(packet: &Packet, work: &mut Work) -> Result<(), Stop> {
    let meta = packet
        .be32((work.path & 0x7f) as usize)
        .ok_or(Reason::MalformedPath)?;
    let [first, second, third] = [meta >> 12 & 0x3f, meta >> 6 & 0x3f, meta & 0x3f];
    work.meta = meta;
    work.first = first;
    work.second = first + second;
    work.hops = first + second + third;
    work.infos = 1 + u32::from(second != 0) + u32::from(third != 0);
    work.info = meta >> 30;
    work.hop = meta >> 24 & 0x3f;
    let end =
        work.path + META_LEN as u32 + INFO_LEN as u32 * work.infos + HOP_LEN as u32 * work.hops;
    if first == 0
        || (second == 0 && third != 0)
        || work.hops > path::MAX_HOPS as u32
        || work.hop >= work.hops
        || work.info != work.segment_of(work.hop)
        || end != work.header_len
    {
        return Err(Reason::MalformedPath.into());
    }
    Ok(())
}

/// Reads the info field and the hop field at the pointers.
#[inline(always)]
pub fn current(ctx: *mut xdp_md, work: &mut Work) -> Result<(), Stop> {
    work.fields = fields(&scion(ctx, work), work, work.info, work.hop)?;
    Ok(())
}

/// Reads an info field and a hop field.
#[inline(always)]
pub fn fields(packet: &Packet, work: &Work, info: u32, hop: u32) -> Result<Fields, Stop> {
    let infos = work.path + META_LEN as u32;
    let at = infos + INFO_LEN as u32 * info;
    let info = packet
        .be64((at & 0x7f) as usize)
        .ok_or(Reason::MalformedPath)?;
    let at = infos + INFO_LEN as u32 * work.infos + HOP_LEN as u32 * hop;
    let hop = packet
        .bytes::<HOP_LEN>((at & 0x3ff) as usize)
        .ok_or(Reason::MalformedPath)?;
    let [flags, expiry, i0, i1, e0, e1, m0, m1, m2, m3, m4, m5] = hop;
    Ok(Fields {
        mac: u64::from_be_bytes([e0, e1, m0, m1, m2, m3, m4, m5]) & 0xffff_ffff_ffff,
        timestamp: info as u32,
        ingress: u16::from_be_bytes([i0, i1]),
        egress: u16::from_be_bytes([e0, e1]),
        segment_id: (info >> 32) as u16,
        info_flags: (info >> 56) as u8,
        hop_flags: flags,
        expiry,
        reserved: [0; 3],
    })
}

/// Bytes of a host address of a type.
#[inline(always)]
const fn host_len(code: u8) -> Option<u32> {
    match code {
        address::CODE_IPV4 | address::CODE_SVC => Some(4),
        address::CODE_IPV6 => Some(16),
        _ => None,
    }
}
