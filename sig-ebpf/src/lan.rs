//! `sig_lan` and `sig_inner`: IP packets that go into the tunnel.

use aya_ebpf::maps::lpm_trie::Key;
use sig_common::{
    maps::{INNER_PORT, LanPort, LanRoute},
    scope::{may_cross_v4, may_cross_v6},
    wire::{Load as _, flow::flow_hash},
};

use crate::{
    Verdict,
    maps::{AlignedKey, LAN_V4, LAN_V6, PORTS},
    packet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, IP, Packet},
};

/// Packets from a LAN interface; `None` leaves them to the kernel: what is not addressed to the
/// interface, what has reached the end of its hops (the kernel answers with ICMP), what is longer
/// than the MTU because the kernel merged it, and what has no route into the tunnel.
#[inline(always)]
pub fn from_lan(packet: &Packet, ifindex: u32) -> Option<Verdict> {
    // SAFETY: the value is only read; an update replaces it as a whole.
    let port = unsafe { PORTS.get(ifindex) }?;
    if port.flags & LanPort::CHECK_MAC != 0 && packet.bytes::<6>(0)? != port.mac {
        return None;
    }
    if packet.len() > port.max_len as usize {
        return None;
    }
    let (destination, hops) = destination(packet)?;
    if hops <= 1 {
        return None;
    }
    let route = match destination {
        Destination::V4(address) => LAN_V4.get(Key::new(32, address)),
        Destination::V6(address) => LAN_V6.get(AlignedKey::new(address).key()),
    };
    if *route? != LanRoute::TUNNEL {
        return None;
    }
    Some(Verdict::ToWorker {
        port: ifindex,
        hash: worker_hash(packet),
    })
}

/// Packets that the kernel routed into the `sig` device: it looked at hops and route already.
#[inline(always)]
pub fn from_kernel(packet: &Packet) -> Option<Verdict> {
    destination(packet)?;
    Some(Verdict::ToWorker {
        port: INNER_PORT,
        hash: worker_hash(packet),
    })
}

/// All packets of a flow go to one worker. The engine takes the low bits of the same hash for the
/// choice of a path; with the same ones, each worker would use only some of the paths.
#[inline(always)]
fn worker_hash(packet: &Packet) -> u32 {
    flow_hash(packet, IP).rotate_left(16)
}

enum Destination {
    V4([u8; 4]),
    V6([u8; 16]),
}

/// Destination and hops left of an IP packet that can leave this network. VLAN tags make a packet
/// somebody else's.
#[inline(always)]
fn destination(packet: &Packet) -> Option<(Destination, u8)> {
    match packet.bytes::<2>(12)? {
        ETHERTYPE_IPV4 => ipv4(packet),
        ETHERTYPE_IPV6 => ipv6(packet),
        _ => None,
    }
}

#[inline(always)]
fn ipv4(packet: &Packet) -> Option<(Destination, u8)> {
    let header = packet.bytes::<20>(IP)?;
    let header_len = usize::from(header[0] & 0x0f) * 4;
    let total_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let valid = header[0] >> 4 == 4
        && header_len >= 20
        && total_len >= header_len
        && total_len + IP <= packet.len();
    let address = [header[16], header[17], header[18], header[19]];
    (valid && may_cross_v4(address)).then_some((Destination::V4(address), header[8]))
}

#[inline(always)]
fn ipv6(packet: &Packet) -> Option<(Destination, u8)> {
    let header = packet.bytes::<8>(IP)?;
    let payload_len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let valid = header[0] >> 4 == 6 && payload_len + 40 + IP <= packet.len();
    let address = packet.bytes::<16>(IP + 24)?;
    (valid && may_cross_v6(address)).then_some((Destination::V6(address), header[7]))
}
