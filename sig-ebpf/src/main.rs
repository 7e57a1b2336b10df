//! XDP and TC programs of sig.
//!
//! | program | hook | takes |
//! |---|---|---|
//! | `sig_underlay` | XDP of underlay interfaces | SIG frames to our data address |
//! | `sig_lan` | XDP of LAN interfaces | IP packets to prefixes of remotes |
//! | `sig_tunnel` | XDP of the tunnel port's device | IP packets the kernel routed into the tunnel |
//! | `sig_inject` | TC ingress of the `sig` device | decapsulated packets |
//! | `sig_router` | XDP of a border router's devices | SCION packets to the router's underlay endpoints |
//! | `sig_router_cpu` | XDP of the CPU map that `sig_router` spreads packets over | the same |
//!
//! Modules decide; this file alone turns their verdicts into actions and counts those of the gateway.
#![no_std]
#![no_main]

mod inject;
mod lan;
mod maps;
mod packet;
mod router;
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
    maps::{QueueKey, Stat},
    reason::DropReason,
};

use packet::Packet;

/// What an XDP program decided about a packet.
pub enum Verdict {
    /// Not for us.
    Pass,
    /// Ours, and bad.
    Drop(DropReason),
    /// For one of the workers on this queue of the port.
    ToWorker {
        /// Number of the port in `STEERING`.
        port: u32,
        /// Chooses the worker.
        hash: u32,
    },
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
    passed: Stat,
    no_socket: Stat,
    dropped: Stat,
}

const UNDERLAY: Stats = Stats {
    redirected: Stat::UnderlayRedirected,
    passed: Stat::UnderlayPassed,
    no_socket: Stat::UnderlayNoSocket,
    dropped: Stat::UnderlayDropped,
};

const LAN: Stats = Stats {
    redirected: Stat::LanRedirected,
    passed: Stat::LanPassed,
    no_socket: Stat::LanNoSocket,
    dropped: Stat::LanPassed,
};

const TUNNEL: Stats = Stats {
    redirected: Stat::TunnelRedirected,
    passed: Stat::TunnelPassed,
    no_socket: Stat::TunnelNoSocket,
    dropped: Stat::TunnelPassed,
};

/// SIG frames to our data address go to a worker; all else of this host stays with the kernel.
#[xdp]
pub fn sig_underlay(ctx: XdpContext) -> u32 {
    let verdict = underlay::admit(&Packet::of_xdp(&ctx), ctx.ingress_ifindex() as u32);
    act(&ctx, &UNDERLAY, verdict)
}

/// Packets of the LAN to prefixes of remotes go to a worker.
#[xdp]
pub fn sig_lan(ctx: XdpContext) -> u32 {
    let verdict = lan::from_lan(&Packet::of_xdp(&ctx), ctx.ingress_ifindex() as u32);
    act(&ctx, &LAN, verdict.unwrap_or(Verdict::Pass))
}

/// Packets that the kernel routed into the `sig` device go to a worker.
#[xdp]
pub fn sig_tunnel(ctx: XdpContext) -> u32 {
    let verdict = lan::from_kernel(&Packet::of_xdp(&ctx));
    act(&ctx, &TUNNEL, verdict.unwrap_or(Verdict::Pass))
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
            maps::count_drop(reason);
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
    let redirected = match verdict {
        Verdict::Pass => {
            maps::count(stats.passed);
            return XDP_PASS;
        }
        Verdict::Drop(reason) => {
            debug!(ctx, "dropped, reason {}", reason as u8);
            maps::count_drop(reason);
            maps::count(stats.dropped);
            return XDP_DROP;
        }
        Verdict::ToWorker { port, hash } => to_worker(ctx, port, hash),
    };
    match redirected {
        Some(action) => {
            maps::count(stats.redirected);
            action
        }
        None => {
            maps::count(stats.no_socket);
            XDP_PASS
        }
    }
}

/// Redirects to a socket of this queue. A socket takes only packets of the queue it is bound to.
#[inline(always)]
fn to_worker(ctx: &XdpContext, port: u32, hash: u32) -> Option<u32> {
    let key = QueueKey {
        port,
        queue: ctx.rx_queue_index(),
    };
    // SAFETY: the value is copied at once; an update replaces it as a whole.
    let sockets = *unsafe { maps::STEERING.get(key) }?;
    maps::XSKS
        .redirect(sockets.pick(hash)?, XDP_PASS.into())
        .ok()
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
