//! The machine's limits: programs that do nothing but get rid of a packet.

use aya_ebpf::{
    bindings::{
        TC_ACT_OK,
        xdp_action::{XDP_ABORTED, XDP_DROP, XDP_PASS},
    },
    helpers::bpf_redirect,
    macros::{classifier, map, xdp},
    maps::{Array, DevMap, PerCpuArray, XskMap},
    programs::{TcContext, XdpContext},
};

use crate::layout::Forwarding;

/// Where packets go.
#[map]
static FORWARDING: Array<Forwarding> = Array::with_max_entries(1, 0);

/// Packets that a program saw, per CPU.
#[map]
static FORWARDED: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

/// The device of `redirect`.
#[map]
static FORWARD_TO: DevMap = DevMap::with_max_entries(1, 0);

/// The socket of `to_socket`, of queue 0.
#[map]
static SOCKETS: XskMap = XskMap::with_max_entries(1, 0);

/// Drops every packet.
#[xdp]
pub fn drop(_ctx: XdpContext) -> u32 {
    count();
    XDP_DROP
}

/// Sends every packet through the device, but for one in [`Forwarding::drop_one_in`].
#[xdp]
pub fn redirect(_ctx: XdpContext) -> u32 {
    let seen = count();
    let Some(forwarding) = FORWARDING.get(0) else {
        return XDP_ABORTED;
    };
    let one_in = u64::from(forwarding.drop_one_in);
    if one_in != 0 && seen.is_multiple_of(one_in) {
        return XDP_DROP;
    }
    FORWARD_TO.redirect(0, 0).unwrap_or(XDP_ABORTED)
}

/// Gives every packet to the socket of its queue; without one the kernel gets it.
#[xdp]
pub fn to_socket(ctx: XdpContext) -> u32 {
    count();
    SOCKETS
        .redirect(ctx.rx_queue_index(), XDP_PASS.into())
        .unwrap_or(XDP_PASS)
}

/// Sends every packet through the device.
#[classifier]
pub fn tc_redirect(_ctx: TcContext) -> i32 {
    count();
    match FORWARDING.get(0) {
        // SAFETY: takes no pointer.
        Some(forwarding) => unsafe { bpf_redirect(forwarding.ifindex, 0) as i32 },
        None => TC_ACT_OK,
    }
}

/// Counts a packet and returns how many this CPU has seen.
#[inline(always)]
fn count() -> u64 {
    let Some(counter) = FORWARDED.get_ptr_mut(0) else {
        return 0;
    };
    // SAFETY: this CPU's element of a map that lives as long as the program, which is not preempted
    // by another that writes it.
    unsafe {
        *counter = (*counter).wrapping_add(1);
        *counter
    }
}
