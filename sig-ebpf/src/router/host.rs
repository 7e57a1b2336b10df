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
        Reason,
        maps::{Config, INSIDE_SLOT, Sender},
    },
    wire::{
        Load as _, PROTO_UDP, ipv4, ipv6,
        scion::{address, common::HEADER_LEN},
        udp,
    },
};

use super::{
    endpoint::is_mapped,
    maps, parse, port,
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
    let code = work.address_types >> 4;
    if code == address::CODE_SVC {
        return Err(Reason::Service.into());
    }
    work.host.destination = host(ctx, work, code == address::CODE_IPV6)?;
    port::find(ctx, work, config)?;
    if work.host.destination == config.internal {
        return Err(Reason::Local.into());
    }
    work.sent_slot = INSIDE_SLOT;
    work.host.source = config.internal;
    work.host.source_port = config.internal_port;
    look_up(ctx, work)
}

/// The address of the host.
#[inline(always)]
fn host(ctx: *mut xdp_md, work: &Work, is_ipv6: bool) -> Result<Ip, Stop> {
    let packet = parse::scion(ctx, work);
    let at = HEADER_LEN + address::ISD_AS_LEN;
    let host = if is_ipv6 {
        let host = Ip(packet.bytes(at).ok_or(Reason::HeaderLength)?);
        if host.0 == [0; 16] || host.0[0] == 0xff || is_mapped(&host) {
            return Err(Reason::DestinationAddress.into());
        }
        host
    } else {
        let host = packet.bytes(at).ok_or(Reason::HeaderLength)?;
        if host == [0; 4] || host[0] & 0xf0 == 0xe0 {
            return Err(Reason::DestinationAddress.into());
        }
        Ip::v4(host)
    };
    Ok(host)
}

/// Asks the kernel for device and link-layer addresses.
#[inline(never)]
fn look_up(ctx: *mut xdp_md, work: &mut Work) -> Result<(), Stop> {
    // SAFETY: integers, arrays and unions of them: all bits zero is a value of the type.
    let mut lookup: FibLookup = unsafe { core::mem::zeroed() };
    let len = work.len as u16 + udp::HEADER_LEN as u16;
    let is_ipv4 = is_mapped(&work.host.destination);
    if is_ipv4 != is_mapped(&work.host.source) {
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
