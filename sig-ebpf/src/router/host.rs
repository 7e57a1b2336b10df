//! Delivery to a host of the AS: its address and port, and what the kernel's tables say about the way there.

use aya_ebpf::{
    bindings::{
        BPF_FIB_LKUP_RET_BLACKHOLE, BPF_FIB_LKUP_RET_FRAG_NEEDED, BPF_FIB_LKUP_RET_NO_NEIGH,
        BPF_FIB_LKUP_RET_PROHIBIT, BPF_FIB_LKUP_RET_SUCCESS, BPF_FIB_LKUP_RET_UNREACHABLE,
        bpf_fib_lookup as FibLookup, xdp_md,
    },
    helpers,
};
use sig_common::{
    maps::Ip,
    router::{
        Reason, delivery,
        maps::{Config, INSIDE_SLOT, Sender},
    },
    wire::{PROTO_UDP, ipv4, ipv6, scion::ENDHOST_PORT, udp},
};

use super::{
    maps, parse,
    path::Xdp,
    work::{Stop, Work},
};

/// The loopback interface, whose number is 1 in every network namespace. The kernel forwards nothing that comes in by it, so
/// lookups in its name need forwarding on no device that packets come in by. Rules for the host's own packets, such as those
/// of the slow path, are those of `iif lo` too.
const LOOPBACK: u32 = 1;

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// Finds the way to the host that the packet is for.
#[inline(always)]
pub fn deliver(ctx: *mut xdp_md, work: &mut Work, config: &Config) -> Result<(), Stop> {
    let packet = parse::scion(ctx, &work.outer);
    work.host.destination = delivery::host(&packet, work.passage.address_types)?;
    port(ctx, work, config)?;
    if work.host.destination == config.internal {
        return Err(Reason::Local.into());
    }
    work.sent_slot = INSIDE_SLOT;
    work.host.source = config.internal;
    work.host.source_port = config.internal_port;
    look_up(ctx, work)
}

/// Finds the port of the host.
#[inline(never)]
fn port(ctx: *mut xdp_md, work: &mut Work, config: &Config) -> Result<(), Stop> {
    let xdp = Xdp {
        ctx,
        outer: &work.outer,
        config,
    };
    let passage = &work.passage;
    let header_len = (passage.header_len & 0x3fc) as usize;
    let port = delivery::port(&xdp, passage.next_header, header_len, passage.len as usize)?;
    work.host.destination_port = port;
    if !delivery::is_dispatched(port, config.first_port, config.last_port)
        && !maps::is_service(&work.service())
    {
        work.host.destination_port = ENDHOST_PORT;
    }
    Ok(())
}

/// Asks the kernel for device and link-layer addresses.
#[inline(never)]
fn look_up(ctx: *mut xdp_md, work: &mut Work) -> Result<(), Stop> {
    // SAFETY: integers, arrays and unions of them: all bits zero is a value of the type.
    let mut lookup: FibLookup = unsafe { core::mem::zeroed() };
    let len = work.passage.len as u16 + udp::HEADER_LEN as u16;
    let is_ipv4 = work.host.destination.is_mapped();
    if is_ipv4 != work.host.source.is_mapped() {
        return Err(Reason::NoFastWay.into());
    }
    if is_ipv4 {
        lookup.family = AF_INET;
        lookup.__bindgen_anon_1.tot_len = len + ipv4::HEADER_LEN as u16;
        lookup.__bindgen_anon_3.ipv4_src = word(&work.host.source, 12);
        lookup.__bindgen_anon_4.ipv4_dst = word(&work.host.destination, 12);
    } else {
        lookup.family = AF_INET6;
        lookup.__bindgen_anon_1.tot_len = len + ipv6::HEADER_LEN as u16;
        lookup.__bindgen_anon_3.ipv6_src = words(&work.host.source);
        lookup.__bindgen_anon_4.ipv6_dst = words(&work.host.destination);
    }
    lookup.l4_protocol = PROTO_UDP;
    lookup.sport = work.host.source_port.to_be();
    lookup.dport = work.host.destination_port.to_be();
    lookup.ifindex = LOOPBACK;
    // SAFETY: context and parameters are valid for the time of the call, with the right length.
    let result = unsafe {
        helpers::bpf_fib_lookup(
            ctx.cast(),
            &raw mut lookup,
            size_of::<FibLookup>() as i32,
            0,
        )
    };
    match result as u32 {
        BPF_FIB_LKUP_RET_SUCCESS => {}
        BPF_FIB_LKUP_RET_NO_NEIGH => return Err(Reason::NoNeighbour.into()),
        BPF_FIB_LKUP_RET_FRAG_NEEDED => return Err(Reason::TooBig.into()),
        BPF_FIB_LKUP_RET_BLACKHOLE | BPF_FIB_LKUP_RET_UNREACHABLE | BPF_FIB_LKUP_RET_PROHIBIT => {
            return Err(Reason::NoHost.into());
        }
        _ => return Err(Reason::NoFastWay.into()),
    }
    work.host.ifindex = lookup.ifindex;
    let sender = maps::sender(lookup.ifindex).copied().unwrap_or(Sender {
        tags: [0; 2],
        fragments: 0,
    });
    work.host.tags = sender.tags;
    work.host.fragments = sender.fragments as u8;
    work.host.mtu = 0;
    work.host.source_mac = lookup.smac;
    work.host.destination_mac = lookup.dmac;
    Ok(())
}

#[inline(always)]
fn words(ip: &Ip) -> [u32; 4] {
    [0, 4, 8, 12].map(|at| word(ip, at))
}

/// Four bytes of an address, as in memory. `at` is a multiple of 4.
#[inline(always)]
pub fn word(ip: &Ip, at: usize) -> u32 {
    // SAFETY: the masked offset and three more are within the 16 bytes. By pointer, as it would otherwise be read byte by byte.
    unsafe { ip.0.as_ptr().add(at & 12).cast::<u32>().read_unaligned() }
}
