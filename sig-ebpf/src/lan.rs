//! `sig_lan` and `sig_tunnel`: IP packets that go into the tunnel.

use core::net::IpAddr;

use aya_ebpf::{bindings::xdp_md, maps::lpm_trie::Key, programs::XdpContext};
use sig_common::{
    fast_path::flow_place,
    maps::{LanPort, LanRoute, TUNNEL_PORT},
    mark::Mark,
    reason::DropReason,
    scope::may_cross,
    wire::{Load as _, ethernet, flow::flow_hash, inner::InnerPacket},
};

use crate::{
    Verdict,
    fast::{
        self, Outcome, Owner,
        egress::{self, Origin},
    },
    maps::{AlignedKey, LAN_V4, LAN_V6, PORTS},
    packet::{self, IP, Packet},
    socket,
};

/// Packets from a LAN interface; `None` leaves them to the kernel: what is not addressed to the
/// interface, what has reached the end of its hops (the kernel answers with ICMP), what is longer
/// than the MTU because the kernel merged it, and what has no route into the tunnel.
#[inline(always)]
pub fn from_lan(ctx: &XdpContext, ifindex: u32) -> Option<Verdict> {
    // Whether all of it is there is seen below.
    let packet = &Packet::of_xdp(ctx).endless();
    // SAFETY: the value is only read; an update replaces it as a whole.
    let port = unsafe { PORTS.get(ifindex) }?;
    if port.flags & LanPort::CHECK_MAC != 0 && packet.bytes::<6>(0)? != port.mac {
        return None;
    }
    if packet::checked_len(ctx.ctx) > port.max_len {
        return None;
    }
    let flags = port.flags;
    let looked_at = match version(packet)? {
        Version::V4 => look_at::<false, true>(ctx.ctx),
        Version::V6 => look_at::<true, true>(ctx.ctx),
    };
    take(ctx, looked_at, ifindex, Way::Lan, flags)
}

/// Packets that the kernel routed into the `sig` device, or that have been through a chain: hops and route have been looked at
/// already.
#[inline(always)]
pub fn from_kernel(ctx: &XdpContext) -> Option<Verdict> {
    const RETURNED: [u8; 6] = Mark::Returned.address();
    if packet::checked_len(ctx.ctx) == packet::CUT {
        return None;
    }
    let packet = &Packet::of_xdp(ctx).endless();
    let (way, flags) = match packet.bytes::<6>(0)? == RETURNED {
        true => (Way::Chain, LanPort::FAST | LanPort::PARTIAL_CHECKSUMS),
        false => (Way::Kernel, LanPort::FAST),
    };
    let looked_at = match version(packet)? {
        Version::V4 => look_at::<false, false>(ctx.ctx),
        Version::V6 => look_at::<true, false>(ctx.ctx),
    };
    take(ctx, looked_at, TUNNEL_PORT, way, flags)
}

/// Version of an IP packet. VLAN tags make a packet somebody else's.
#[inline(always)]
fn version(packet: &Packet) -> Option<Version> {
    let [first] = packet.bytes(IP)?;
    match (packet.be16(IP - 2)?, first >> 4) {
        (ethernet::ETHERTYPE_IPV4, 4) => Some(Version::V4),
        (ethernet::ETHERTYPE_IPV6, 6) => Some(Version::V6),
        _ => None,
    }
}

enum Version {
    V4,
    V6,
}

/// The packet can leave this network; with the hash of its flow in the low 32 bits.
const CAN_LEAVE: u64 = 1 << 32;
/// Its addresses are of IPv6.
const IS_V6: u64 = 1 << 33;

/// Whether an IP packet can leave this network, and by `ROUTED` whether hops are left and a route leads into the tunnel: bits, 0
/// if not.
///
/// A function of its own: of all that it looks at, a number is left. Otherwise the verifier would follow what comes behind for
/// every combination of headers and addresses. It is compiled once for each version of IP: behind the point where both meet again,
/// LLVM may compute with what a packet of the other version does not have, be it in a register that holds a pointer, and the
/// verifier refuses that.
#[inline(never)]
fn look_at<const V6: bool, const ROUTED: bool>(ctx: *mut xdp_md) -> u64 {
    // The caller has seen that all of it is there.
    let ip = Packet::of(ctx, 0).endless().behind(IP);
    let parsed = match V6 {
        true => InnerPacket::parse_v6(&ip),
        false => InnerPacket::parse_v4(&ip),
    };
    let Ok(inner) = parsed else { return 0 };
    if !may_cross(inner.destination) {
        return 0;
    }
    if ROUTED {
        if inner.ttl <= 1 {
            return 0;
        }
        let route = match inner.destination {
            IpAddr::V4(address) => LAN_V4.get(Key::new(32, address.octets())),
            IpAddr::V6(address) => LAN_V6.get(AlignedKey::new(address.octets()).key()),
        };
        if route.is_none_or(|route| *route != LanRoute::TUNNEL) {
            return 0;
        }
    }
    let version = if V6 { IS_V6 } else { 0 };
    CAN_LEAVE | version | u64::from(flow_hash(&inner))
}

/// How a packet has come here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Lan,
    Kernel,
    Chain,
}

/// A packet that goes into the tunnel: by the fast path, or to the worker of its flow. `looked_at` are the bits of [`look_at`], `flags`
/// those of [`LanPort`].
#[inline(always)]
fn take(ctx: &XdpContext, looked_at: u64, port: u32, way: Way, flags: u16) -> Option<Verdict> {
    if looked_at & CAN_LEAVE == 0 {
        return None;
    }
    let flow_hash = looked_at as u32;
    let Some(socket) = socket(ctx, port, worker_hash(flow_hash)) else {
        return Some(Verdict::NO_SOCKET);
    };
    let has_returned = way == Way::Chain;
    let place = flow_place(flow_hash, has_returned);
    let mut owner = Owner::Nothing;
    if flags & LanPort::FAST != 0 && fast::is_there() {
        owner = Owner::Flow;
        let origin = Origin {
            flow_hash,
            socket,
            is_hop: way == Way::Lan,
            has_returned,
            partial: flags & LanPort::PARTIAL_CHECKSUMS != 0,
        };
        let outcome = match looked_at & IS_V6 {
            0 => egress::send::<false>(ctx, &origin),
            _ => egress::send::<true>(ctx, &origin),
        };
        match outcome {
            Outcome::Declined => {}
            Outcome::Done(action) => return Some(Verdict::fast(action)),
            Outcome::Dropped => return Some(Verdict::drop(DropReason::QueueFull as u32)),
        }
    }
    Some(Verdict::to_worker(socket, owner, place))
}

/// All packets of a flow go to one worker. The engine takes the low bits of the same hash for the
/// choice of a path; with the same ones, each worker would use only some of the paths.
#[inline(always)]
fn worker_hash(flow_hash: u32) -> u32 {
    flow_hash.rotate_left(16)
}
