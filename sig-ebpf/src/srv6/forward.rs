//! The way out: route, neighbour, device.

use aya_ebpf::{
    bindings::{
        BPF_FIB_LKUP_RET_FRAG_NEEDED, BPF_FIB_LKUP_RET_NO_NEIGH, BPF_FIB_LKUP_RET_SUCCESS,
        BPF_FIB_LOOKUP_DIRECT, BPF_FIB_LOOKUP_TBID, bpf_fib_lookup as FibLookup,
        bpf_fib_lookup__bindgen_ty_1, bpf_fib_lookup__bindgen_ty_2, bpf_fib_lookup__bindgen_ty_3,
        bpf_fib_lookup__bindgen_ty_4, bpf_fib_lookup__bindgen_ty_5,
        xdp_action::{XDP_PASS, XDP_REDIRECT},
        xdp_md,
    },
    helpers,
};
use sig_common::{
    maps::Ip,
    srv6::maps::{Adjacency, Reason, TUNNEL},
    wire::{Load as _, Store as _, checksum, ethernet},
};

use super::{S_DEVICES, S_FRAGMENTS, S_PORTS, Work, engine, ip, is_in_pieces, note, refuse, tell};
use crate::packet::{self, AF_INET, AF_INET6, IP, Packet};

/// No device.
const NO_DEVICE: u64 = XDP_PASS as u64;

/// Sends the packet where a table leads it; 0 is the main one, [`TUNNEL`] the gateway's tunnel.
#[inline(always)]
pub fn by_table(ctx: *mut xdp_md, work: &mut Work, table: u32) -> u32 {
    if table == TUNNEL {
        return engine::send(ctx, work);
    }
    let hops = match ask(ctx, work, table) {
        0 => return refuse(Reason::Malformed),
        hops => hops - 1,
    };
    let is_main = table == 0;
    if hops <= 1 && !work.fresh {
        return match is_main {
            true => to_kernel(ctx),
            // Nor do we know whether the main table leads back to the sender.
            false => refuse(Reason::HopLimit),
        };
    }
    let flags = match is_main {
        true => 0,
        false => BPF_FIB_LOOKUP_DIRECT | BPF_FIB_LOOKUP_TBID,
    };
    // SAFETY: context and parameters are valid for the time of the call, with the right length.
    let result = unsafe {
        helpers::bpf_fib_lookup(
            ctx.cast(),
            &raw mut work.fib,
            size_of::<FibLookup>() as i32,
            flags,
        )
    };
    match result as u32 {
        BPF_FIB_LKUP_RET_SUCCESS => {
            let device = redirect(ctx, work.fib.ifindex);
            match device {
                Ok(action) => match address(ctx, work) {
                    0 => action,
                    _ => refuse(Reason::Malformed),
                },
                // A device that takes no packets of XDP programs: the kernel's way is the same.
                Err(_) if is_main => to_kernel(ctx),
                Err(_) => refuse(Reason::NoDevice),
            }
        }
        // The kernel knows what to do, of its own main table.
        _ if is_main => to_kernel(ctx),
        BPF_FIB_LKUP_RET_NO_NEIGH => {
            let address = next_hop(&work.fib);
            tell(ctx, Reason::Resolve as u32, 0, &address, work.fib.ifindex)
        }
        BPF_FIB_LKUP_RET_FRAG_NEEDED => refuse(Reason::TooBig),
        _ => refuse(Reason::NoRoute),
    }
}

/// Sends the packet to a neighbour. `is_hop`: as a router does, which takes one from the hop limit.
#[inline(always)]
pub fn to(ctx: *mut xdp_md, work: &mut Work, adjacency: &Adjacency, is_hop: bool) -> u32 {
    if adjacency.known == 0 {
        return refuse(Reason::NoAdjacency);
    }
    let len = packet::whole_len(ctx).wrapping_sub(IP);
    if len > adjacency.mtu as usize {
        return tell(ctx, Reason::TooBig as u32, adjacency.mtu, &[0; 16], 0);
    }
    let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5] = adjacency.macs;
    work.fib.dmac = [d0, d1, d2, d3, d4, d5];
    work.fib.smac = [s0, s1, s2, s3, s4, s5];
    work.fresh = !is_hop;
    match redirect(ctx, adjacency.ifindex) {
        Ok(action) => match address(ctx, work) {
            0 => action,
            1 => tell(ctx, Reason::HopLimit as u32, 0, &[0; 16], 0),
            _ => refuse(Reason::Malformed),
        },
        Err(_) => refuse(Reason::NoDevice),
    }
}

/// The action that sends the packet by a device, which must take packets in several buffers if this is one.
#[inline(always)]
fn redirect(ctx: *mut xdp_md, ifindex: u32) -> Result<u32, u32> {
    // SAFETY: only whether there is an entry is of interest.
    if is_in_pieces(ctx) && unsafe { S_FRAGMENTS.get(ifindex) }.is_none() {
        return Err(XDP_PASS);
    }
    S_DEVICES.redirect(ifindex, NO_DEVICE)
}

/// Sends the frame as it is.
#[inline(always)]
pub fn frame_by(ctx: *mut xdp_md, ifindex: u32) -> u32 {
    match redirect(ctx, ifindex) {
        Ok(action) if action == XDP_REDIRECT => action,
        _ => refuse(Reason::NoDevice),
    }
}

#[inline(always)]
fn to_kernel(ctx: *mut xdp_md) -> u32 {
    note(Reason::ToKernel);
    pass(ctx)
}

/// Leaves the packet to the kernel, which takes what is addressed to the device.
#[inline(always)]
pub fn pass(ctx: *mut xdp_md) -> u32 {
    // SAFETY: the context is of the running program; the value is only read.
    let port = unsafe { S_PORTS.get((*ctx).ingress_ifindex) };
    if let Some(port) = port {
        let _ = Packet::of(ctx, 0).store(0, port.mac);
    }
    XDP_PASS
}

/// Writes the link-layer addresses in `work`, and takes one from the hop limit unless the packet is fresh. Returns 0, 1 if the hop
/// limit runs out, 2 if there is no such packet.
#[inline(never)]
fn address(ctx: *mut xdp_md, work: &Work) -> u32 {
    let mut frame = Packet::of(ctx, 0);
    let ethertype = frame.be16(12);
    if !work.fresh {
        let mut packet = ip(ctx);
        let taken = match ethertype {
            Some(ethernet::ETHERTYPE_IPV4) => take_hop_v4(&mut packet),
            _ => take_hop_v6(&mut packet),
        };
        match taken {
            Some(true) => {}
            Some(false) => return 1,
            None => return 2,
        }
    }
    let [d0, d1, d2, d3, d4, d5] = work.fib.dmac;
    let [s0, s1, s2, s3, s4, s5] = work.fib.smac;
    let macs = [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5];
    match frame.store(0, macs) {
        Some(()) => 0,
        None => 2,
    }
}

#[inline(always)]
fn take_hop_v6(ip: &mut Packet) -> Option<bool> {
    let [hops, _] = ip.bytes(7)?;
    if hops <= 1 {
        return Some(false);
    }
    ip.store(7, [hops - 1])?;
    Some(true)
}

#[inline(always)]
pub fn take_hop_v4(ip: &mut Packet) -> Option<bool> {
    let old = ip.be16(8)?;
    let sum = ip.be16(10)?;
    if old >> 8 <= 1 {
        return Some(false);
    }
    let new = old - 0x100;
    ip.store(8, new.to_be_bytes())?;
    ip.store(10, checksum::update(sum, old, new).to_be_bytes())?;
    Some(true)
}

/// Writes the question about the packet into `work`. Returns one more than its hop limit; 0 if it is no IP packet.
#[inline(never)]
fn ask(ctx: *mut xdp_md, work: &mut Work, table: u32) -> u32 {
    let packet = ip(ctx);
    let fib = &mut work.fib;
    // SAFETY: the context is of the running program.
    fib.ifindex = unsafe { (*ctx).ingress_ifindex };
    fib.sport = 0;
    fib.dport = 0;
    fib.l4_protocol = 0;
    fib.__bindgen_anon_5 = bpf_fib_lookup__bindgen_ty_5 { tbid: table };
    let hops = match Packet::of(ctx, 0).be16(12) {
        Some(ethernet::ETHERTYPE_IPV4) => ask_v4(&packet, fib, table),
        Some(ethernet::ETHERTYPE_IPV6) => ask_v6(&packet, fib),
        _ => None,
    };
    match hops {
        Some(hops) => u32::from(hops) + 1,
        None => 0,
    }
}

#[inline(always)]
fn ask_v4(packet: &Packet, fib: &mut FibLookup, table: u32) -> Option<u8> {
    let [version, tos, l0, l1] = packet.bytes(0)?;
    let [ttl, _] = packet.bytes(8)?;
    let source: [u8; 4] = packet.bytes(12)?;
    let destination: [u8; 4] = packet.bytes(16)?;
    if version != 0x45 && table == 0 {
        // Options are the kernel's. Of other tables it knows nothing, and options do not matter there.
        return Some(0);
    }
    fib.family = AF_INET;
    fib.__bindgen_anon_1 = bpf_fib_lookup__bindgen_ty_1 {
        tot_len: u16::from_be_bytes([l0, l1]),
    };
    fib.__bindgen_anon_2 = bpf_fib_lookup__bindgen_ty_2 { tos };
    fib.__bindgen_anon_3 = bpf_fib_lookup__bindgen_ty_3 {
        ipv4_src: u32::from_ne_bytes(source),
    };
    fib.__bindgen_anon_4 = bpf_fib_lookup__bindgen_ty_4 {
        ipv4_dst: u32::from_ne_bytes(destination),
    };
    Some(ttl)
}

#[inline(always)]
fn ask_v6(packet: &Packet, fib: &mut FibLookup) -> Option<u8> {
    let [first, f1, f2, f3, l0, l1, _, hops] = packet.bytes(0)?;
    let source: [u8; 16] = packet.bytes(8)?;
    let destination: [u8; 16] = packet.bytes(24)?;
    fib.family = AF_INET6;
    fib.__bindgen_anon_1 = bpf_fib_lookup__bindgen_ty_1 {
        tot_len: u16::from_be_bytes([l0, l1]).saturating_add(40),
    };
    fib.__bindgen_anon_2 = bpf_fib_lookup__bindgen_ty_2 {
        flowinfo: u32::from_ne_bytes([first & 0x0f, f1, f2, f3]),
    };
    fib.__bindgen_anon_3 = bpf_fib_lookup__bindgen_ty_3 {
        ipv6_src: words(source),
    };
    fib.__bindgen_anon_4 = bpf_fib_lookup__bindgen_ty_4 {
        ipv6_dst: words(destination),
    };
    Some(hops)
}

/// The next hop that the kernel named.
#[inline(always)]
fn next_hop(fib: &FibLookup) -> [u8; 16] {
    // SAFETY: numbers, whichever of them it is.
    unsafe {
        match fib.family {
            AF_INET => Ip::v4(fib.__bindgen_anon_4.ipv4_dst.to_ne_bytes()).0,
            _ => core::mem::transmute::<[u32; 4], [u8; 16]>(fib.__bindgen_anon_4.ipv6_dst),
        }
    }
}

#[inline(always)]
fn words(address: [u8; 16]) -> [u32; 4] {
    let (words, _) = address.as_chunks();
    [words[0], words[1], words[2], words[3]].map(u32::from_ne_bytes)
}
