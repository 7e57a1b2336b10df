//! XDP and TC programs of sig.
//!
//! | program | hook | takes |
//! |---|---|---|
//! | `sig_underlay` | XDP of underlay interfaces | SIG frames to our data address |
//! | `sig_lan` | XDP of LAN interfaces | IP packets to prefixes of remotes |
//! | `sig_trunk` | XDP of the interface below VLAN devices | frames of VLANs whose devices are underlay or LAN; goes on with the two above |
//! | `sig_tunnel` | XDP of the tunnel port's device | IP packets the kernel routed into the tunnel |
//! | `sig_inject` | TC ingress of the `sig` device | decapsulated packets |
//! | `sig_router` | XDP of a border router's devices | SCION packets to the router's underlay endpoints |
//! | `sig_srv6`, `sig_srv6_again` | XDP of an SR node's devices | IPv6 packets to SIDs, packets for policies, packets from functions |
//! | `sig_srv6_verify` | the same, tail-called | packets to SIDs whose HMAC is verified |
//! | `sig_srv6_process` | XDP of a device of an SR node's process | packets for functions in the process |
//! | `sig_router_cpu` | XDP of the CPU map that `sig_router` spreads packets over | the same |
//!
//! Those of `sig accelerate` are in [`accelerate`].
//!
//! All XDP programs take packets in several buffers: drivers with a large MTU ask for that, and so do programs that call each other.
//! Only the first buffer is within reach; headers are there.
//!
//! Modules decide; this file alone turns their verdicts into actions and counts those of the gateway.
#![no_std]
#![no_main]
// For atomic operations on words of the maps.
#![feature(asm_experimental_arch)]

mod accelerate;
mod fast;
mod inject;
mod lan;
mod maps;
mod packet;
mod router;
mod srv6;
mod trunk;
mod underlay;

use aya_ebpf::{
    bindings::{
        TC_ACT_OK, TC_ACT_SHOT,
        xdp_action::{XDP_DROP, XDP_PASS},
    },
    helpers::{bpf_redirect, bpf_redirect_neigh},
    macros::{classifier, xdp},
    programs::{TcContext, XdpContext},
};
use aya_log_ebpf::debug;
use sig_common::{
    maps::{QueueKey, Stat, TUNNEL_PORT},
    reason::DropReason,
};

use fast::Owner;

/// What an XDP program decided about a packet. A value in every field, whatever the kind: where an enum has none, LLVM may
/// store any register, be it one that the BPF verifier does not let it read.
pub struct Verdict {
    kind: Kind,
    /// The drop reason's number, the socket or the XDP action.
    value: u32,
    /// What a packet for a worker belongs to, and its place.
    owner: Owner,
    place: u32,
}

#[derive(Clone, Copy)]
enum Kind {
    Pass,
    Drop,
    ToWorker,
    NoSocket,
    Fast,
}

impl Verdict {
    /// Not for us.
    pub const PASS: Self = Self::new(Kind::Pass, 0);
    /// For a worker, but none listens on the queue.
    pub const NO_SOCKET: Self = Self::new(Kind::NoSocket, 0);

    /// Ours, and bad: the number of the [`DropReason`].
    #[inline(always)]
    pub const fn drop(reason: u32) -> Self {
        Self::new(Kind::Drop, reason)
    }

    /// It took the fast path: the action says where to.
    #[inline(always)]
    pub const fn fast(action: u32) -> Self {
        Self::new(Kind::Fast, action)
    }

    /// For the worker behind the socket with this index in `XSKS`.
    #[inline(always)]
    pub const fn to_worker(socket: u32, owner: Owner, place: u32) -> Self {
        Self {
            kind: Kind::ToWorker,
            value: socket,
            owner,
            place,
        }
    }

    #[inline(always)]
    const fn new(kind: Kind, value: u32) -> Self {
        Self {
            kind,
            value,
            owner: Owner::Nothing,
            place: 0,
        }
    }
}

/// What `sig_inject` decided about a packet.
pub enum Egress {
    /// Must not be forwarded.
    Drop(DropReason),
    /// Ready to be sent.
    Send {
        /// Index of the outgoing device.
        ifindex: u32,
    },
    /// Link-layer addresses are still to be found.
    Resolve {
        /// Index of the outgoing device.
        ifindex: u32,
    },
}

/// Counters of an XDP program.
struct Stats {
    redirected: Stat,
    fast: Stat,
    passed: Stat,
    no_socket: Stat,
    dropped: Stat,
    /// Whether the device is in a network namespace of its own, where its index may be that of another one.
    is_tunnel: bool,
}

impl Stats {
    /// The index of the device that a packet came in by, or [`TUNNEL_PORT`].
    #[inline(always)]
    fn device(&self, ifindex: u32) -> u32 {
        if self.is_tunnel {
            return TUNNEL_PORT;
        }
        ifindex
    }
}

const UNDERLAY: Stats = Stats {
    redirected: Stat::UnderlayRedirected,
    fast: Stat::UnderlayFast,
    passed: Stat::UnderlayPassed,
    no_socket: Stat::UnderlayNoSocket,
    dropped: Stat::UnderlayDropped,
    is_tunnel: false,
};

const LAN: Stats = Stats {
    redirected: Stat::LanRedirected,
    fast: Stat::LanFast,
    passed: Stat::LanPassed,
    no_socket: Stat::LanNoSocket,
    dropped: Stat::LanDropped,
    is_tunnel: false,
};

const TUNNEL: Stats = Stats {
    redirected: Stat::TunnelRedirected,
    fast: Stat::TunnelFast,
    passed: Stat::TunnelPassed,
    no_socket: Stat::TunnelNoSocket,
    dropped: Stat::TunnelDropped,
    is_tunnel: true,
};

/// SIG frames to our data address go to a worker; all else of this host stays with the kernel.
#[xdp(frags)]
pub fn sig_underlay(ctx: XdpContext) -> u32 {
    let verdict = underlay::take(&ctx);
    act(&ctx, &UNDERLAY, verdict)
}

/// Packets of the LAN to prefixes of remotes go to a worker.
#[xdp(frags)]
pub fn sig_lan(ctx: XdpContext) -> u32 {
    let Some(verdict) = lan::from_lan(&ctx, trunk::ingress(&ctx)) else {
        maps::count(LAN.passed);
        if !trunk::put_back(&ctx, trunk::end(&ctx).1) {
            return XDP_DROP;
        }
        // SAFETY: the context is of the running program, which ends here if there is another one.
        unsafe { maps::NEXT.tail_call(&ctx, 0) };
        return XDP_PASS;
    };
    act(&ctx, &LAN, verdict)
}

/// Frames of VLANs go on to the programs above; all others stay with the kernel.
#[xdp(frags)]
pub fn sig_trunk(ctx: XdpContext) -> u32 {
    trunk::go_on(&ctx);
    XDP_PASS
}

/// Packets that the kernel routed into the `sig` device go to a worker.
#[xdp(frags)]
pub fn sig_tunnel(ctx: XdpContext) -> u32 {
    let verdict = lan::from_kernel(&ctx);
    act(&ctx, &TUNNEL, verdict.unwrap_or(Verdict::PASS))
}

/// SCION packets to an endpoint of the border router are forwarded, by the CPUs they are spread over if so configured.
#[xdp(frags)]
pub fn sig_router(ctx: XdpContext) -> u32 {
    act_on_scion(router::route(ctx.ctx, router::Place::Device))
}

/// The work of `sig_router` on another CPU.
#[xdp(frags, map = "cpumap")]
pub fn sig_router_cpu(ctx: XdpContext) -> u32 {
    act_on_scion(router::route(ctx.ctx, router::Place::CpuMap))
}

/// Packets to SIDs, for policies and from functions are processed and forwarded.
#[xdp(frags)]
pub fn sig_srv6(ctx: XdpContext) -> u32 {
    srv6::receive(&ctx)
}

/// The same for packets that have another SID of this node next.
#[xdp(frags)]
pub fn sig_srv6_again(ctx: XdpContext) -> u32 {
    srv6::again(&ctx)
}

/// The HMAC of packets to SIDs is verified.
#[xdp(frags)]
pub fn sig_srv6_verify(ctx: XdpContext) -> u32 {
    srv6::verify::run(ctx.ctx)
}

#[xdp(frags)]
pub fn sig_srv6_process(_ctx: XdpContext) -> u32 {
    srv6::into_process()
}

/// Decapsulated packets go straight to the outgoing device if the kernel's tables allow it.
#[classifier]
pub fn sig_inject(ctx: TcContext) -> i32 {
    match inject::way_out(&ctx) {
        None => {
            maps::count(Stat::InjectPassed);
            TC_ACT_OK
        }
        Some(Egress::Drop(reason)) => {
            debug!(&ctx, "inject: dropped, reason {}", reason as u8);
            maps::count_drop(reason as u32);
            maps::count(Stat::InjectDropped);
            TC_ACT_SHOT
        }
        Some(Egress::Send { ifindex }) => {
            maps::count(Stat::InjectRedirected);
            // SAFETY: takes no pointer.
            unsafe { bpf_redirect(ifindex, 0) as i32 }
        }
        Some(Egress::Resolve { ifindex }) => {
            debug!(
                &ctx,
                "inject: resolving a neighbour on interface {}", ifindex
            );
            maps::count(Stat::InjectResolving);
            // SAFETY: no parameters, of length zero: the helper looks the next hop up itself.
            unsafe { bpf_redirect_neigh(ifindex, core::ptr::null_mut(), 0, 0) as i32 }
        }
    }
}

/// Packets on their way to a foreign gateway are cut and completed first.
#[classifier]
pub fn sig_acc_tunnel(ctx: TcContext) -> i32 {
    accelerate::into_tunnel(&ctx)
}

/// Cut and completed packets go back to where they came from.
#[classifier]
pub fn sig_acc_mirror(ctx: TcContext) -> i32 {
    accelerate::mirror(&ctx)
}

/// Packets on their way to a foreign gateway are encapsulated in its place.
#[classifier]
pub fn sig_acc_encap(ctx: TcContext) -> i32 {
    accelerate::encapsulate(&ctx)
}

/// Frames of a foreign gateway are watched.
#[classifier]
pub fn sig_acc_frames(ctx: TcContext) -> i32 {
    accelerate::frames(&ctx)
}

/// Frames to a foreign gateway are decapsulated in its place.
#[classifier]
pub fn sig_acc_decap(ctx: TcContext) -> i32 {
    accelerate::decapsulate(&ctx)
}

/// Packets that a foreign gateway decapsulated are watched.
#[classifier]
pub fn sig_acc_behind(ctx: TcContext) -> i32 {
    accelerate::behind_gateway(&ctx)
}

/// Where a verdict of the border router becomes an action. It has counted by itself.
#[inline(always)]
fn act_on_scion(verdict: router::Verdict) -> u32 {
    match verdict {
        router::Verdict::NotOurs | router::Verdict::Slow => XDP_PASS,
        router::Verdict::Drop => XDP_DROP,
        router::Verdict::Redirect(action) => action,
    }
}

/// Where a verdict of the gateway's XDP programs becomes an action.
#[inline(always)]
fn act(ctx: &XdpContext, stats: &Stats, verdict: Verdict) -> u32 {
    let Verdict {
        kind,
        value,
        owner,
        place,
    } = verdict;
    let (ifindex, tag) = trunk::end(ctx);
    match kind {
        Kind::Pass => {
            maps::count(stats.passed);
            pass(ctx, tag)
        }
        Kind::Drop => {
            debug!(ctx, "dropped, reason {}", value as u8);
            maps::count_drop(value);
            maps::count(stats.dropped);
            maps::show_drop(ctx.ctx, value, stats.device(ifindex));
            XDP_DROP
        }
        Kind::Fast => {
            maps::count(stats.fast);
            value
        }
        Kind::ToWorker => {
            if fast::is_there() {
                fast::hand_over(ctx, value, owner, place);
            }
            match maps::XSKS.redirect(value, XDP_PASS.into()) {
                Ok(action) => {
                    maps::count(stats.redirected);
                    action
                }
                Err(_) => {
                    maps::count(stats.no_socket);
                    pass(ctx, tag)
                }
            }
        }
        Kind::NoSocket => {
            maps::count(stats.no_socket);
            pass(ctx, tag)
        }
    }
}

/// Leaves a packet to the kernel, in the VLAN that it came in by.
#[inline(always)]
fn pass(ctx: &XdpContext, tag: u32) -> u32 {
    match trunk::put_back(ctx, tag) {
        true => XDP_PASS,
        false => XDP_DROP,
    }
}

/// The socket that takes packets with this hash from this queue of a port, whose number in `STEERING` is given. A socket takes
/// only packets of the queue it is bound to.
#[inline(always)]
fn socket(ctx: &XdpContext, port: u32, hash: u32) -> Option<u32> {
    let key = QueueKey {
        port,
        queue: ctx.rx_queue_index(),
    };
    // SAFETY: the value is copied at once; an update replaces it as a whole.
    let sockets = *unsafe { maps::STEERING.get(key) }?;
    sockets.pick(hash)
}

/// The verifier leaves no panic reachable.
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// The kernel offers its GPL-only helpers to programs with this licence.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
