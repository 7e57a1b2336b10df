//! `sig_lan` and `sig_tunnel`: IP packets that go into the tunnel.

use core::net::IpAddr;

use aya_ebpf::{maps::lpm_trie::Key, programs::XdpContext};
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
        Some(take(ctx, inner, ifindex, Way::Lan, flags))
    })
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
    with_inner(packet, |inner| {
        Some(take(ctx, inner, TUNNEL_PORT, way, flags))
    })
}

/// How a packet has come here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Lan,
    Kernel,
    Chain,
}

/// A packet that goes into the tunnel: by the fast path, or to the worker of its flow. `flags` are those of [`LanPort`].
#[inline(always)]
fn take(ctx: &XdpContext, inner: &InnerPacket, port: u32, way: Way, flags: u16) -> Verdict {
    let flow_hash = flow_hash(inner);
    let Some(socket) = socket(ctx, port, worker_hash(flow_hash)) else {
        return Verdict::NO_SOCKET;
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
        let outcome = match inner.source {
            IpAddr::V4(_) => egress::send::<false>(ctx, &origin),
            IpAddr::V6(_) => egress::send::<true>(ctx, &origin),
        };
        match outcome {
            Outcome::Declined => {}
            Outcome::Done(action) => return Verdict::fast(action),
            Outcome::Dropped => return Verdict::drop(DropReason::QueueFull as u32),
        }
    }
    Verdict::to_worker(socket, owner, place)
}

/// All packets of a flow go to one worker. The engine takes the low bits of the same hash for the
/// choice of a path; with the same ones, each worker would use only some of the paths.
#[inline(always)]
fn worker_hash(flow_hash: u32) -> u32 {
    flow_hash.rotate_left(16)
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
