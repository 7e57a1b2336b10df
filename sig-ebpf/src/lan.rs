//! `sig_lan` and `sig_tunnel`: IP packets that go into the tunnel.

use core::net::IpAddr;

use aya_ebpf::maps::lpm_trie::Key;
use sig_common::{
    maps::{LanPort, LanRoute, TUNNEL_PORT},
    scope::may_cross,
    wire::{Load as _, ethernet, flow::flow_hash, inner::InnerPacket},
};

use crate::{
    Verdict,
    maps::{AlignedKey, LAN_V4, LAN_V6, PORTS},
    packet::{IP, Packet},
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
    with_inner(packet, |inner| {
        if inner.ttl <= 1 {
            return None;
        }
        let route = match inner.destination {
            IpAddr::V4(address) => LAN_V4.get(Key::new(32, address.octets())),
            IpAddr::V6(address) => LAN_V6.get(AlignedKey::new(address.octets()).key()),
        };
        if *route? != LanRoute::TUNNEL {
            return None;
        }
        Some(Verdict::ToWorker {
            port: ifindex,
            hash: worker_hash(inner),
        })
    })
}

/// Packets that the kernel routed into the `sig` device: it looked at hops and route already.
#[inline(always)]
pub fn from_kernel(packet: &Packet) -> Option<Verdict> {
    with_inner(packet, |inner| {
        Some(Verdict::ToWorker {
            port: TUNNEL_PORT,
            hash: worker_hash(inner),
        })
    })
}

/// All packets of a flow go to one worker. The engine takes the low bits of the same hash for the
/// choice of a path; with the same ones, each worker would use only some of the paths.
#[inline(always)]
fn worker_hash(packet: &InnerPacket) -> u32 {
    flow_hash(packet).rotate_left(16)
}

/// What is done with an IP packet that can leave this network. VLAN tags make a packet somebody else's.
///
/// It is compiled once for each version of IP: behind the point where both meet again, LLVM may compute with what a
/// packet of the other version does not have, be it in a register that holds a pointer, and the verifier refuses that.
#[inline(always)]
fn with_inner(
    packet: &Packet,
    decide: impl Fn(&InnerPacket) -> Option<Verdict>,
) -> Option<Verdict> {
    let ip = packet.ip();
    let [first] = ip.bytes(0)?;
    let decide = |inner: InnerPacket| match may_cross(inner.destination) {
        true => decide(&inner),
        false => None,
    };
    match (packet.be16(IP - 2)?, first >> 4) {
        (ethernet::ETHERTYPE_IPV4, 4) => decide(InnerPacket::parse_v4(&ip).ok()?),
        (ethernet::ETHERTYPE_IPV6, 6) => decide(InnerPacket::parse_v6(&ip).ok()?),
        _ => None,
    }
}
