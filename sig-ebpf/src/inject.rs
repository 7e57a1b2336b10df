//! `sig_inject`: decapsulated packets on their way out.
//!
//! What a router does for most packets is done here: look up route and neighbour, take one from
//! the hop limit, put the link-layer addresses in, send. Everything with more to it (delivery to
//! this host, ICMP errors, fragmentation, IPv4 options) goes up the kernel's stack, unchanged.

use core::net::IpAddr;

use aya_ebpf::{
    EbpfContext as _,
    bindings::{BPF_FIB_LKUP_RET_NO_NEIGH, BPF_FIB_LKUP_RET_SUCCESS, bpf_fib_lookup as FibLookup},
    helpers,
    programs::TcContext,
};
use sig_common::{
    mark::Mark,
    reason::DropReason,
    wire::{
        Load as _, PROTO_TCP, PROTO_UDP, Store as _,
        inner::{BACK_TO_SENDER, InnerPacket},
        ipv4, ipv6,
    },
};

use crate::{
    Egress,
    packet::{AF_INET, AF_INET6, IP, Packet},
};

/// Headers looked at: Ethernet, IPv6, and the ports.
const LINEAR: u32 = (IP + ipv6::HEADER_LEN + 4) as u32;

/// The way out for a packet; `None` leaves it to the kernel.
#[inline(always)]
pub fn way_out(ctx: &TcContext) -> Option<Egress> {
    let linear = ctx.data_end() - ctx.data();
    if linear < LINEAR as usize && linear < ctx.len() as usize {
        ctx.pull_data(LINEAR.min(ctx.len())).ok()?;
    }
    let mut packet = Packet::of_tc(ctx);
    let ethertype = packet.be16(IP - 2)?;
    // Whose the packet was is not there; it must not go without its chain.
    if Mark::of(packet.bytes::<6>(0)?).is_some() {
        return Some(Egress::Drop(DropReason::NoChain));
    }
    let mut ip = packet.ip();
    let mut inner = InnerPacket::parse(&ip).ok()?;
    if ethertype != inner.ethertype() || inner.ttl <= 1 {
        return None;
    }
    let mut question = question(&inner, &ip)?;
    let lookup = &mut question.0;
    // SAFETY: the context is of this program, and the kernel fills this field.
    let ingress = unsafe { (*ctx.skb.skb).ifindex };
    lookup.ifindex = ingress;
    // SAFETY: context and parameters are valid for the time of the call, with the right length.
    let result = unsafe {
        helpers::bpf_fib_lookup(
            ctx.as_ptr(),
            &raw mut *lookup,
            size_of::<FibLookup>() as i32,
            0,
        )
    };
    let resolved = match result as u32 {
        BPF_FIB_LKUP_RET_SUCCESS => true,
        BPF_FIB_LKUP_RET_NO_NEIGH => false,
        // Local delivery, too big, unreachable, prohibited, forwarding switched off.
        _ => return None,
    };
    // Into the tunnel again, as from spoke to spoke over a hub, but not to where the packet came from.
    let turns = lookup.ifindex == ingress;
    if turns && packet.bytes::<6>(6)? == BACK_TO_SENDER {
        return Some(Egress::Drop(DropReason::RoutingLoop));
    }
    if !inner.decrement_ttl(&mut ip) {
        return None;
    }
    if turns {
        // The worker behind the device looks at no link-layer address.
        return Some(Egress::Send { ifindex: ingress });
    }
    if !resolved {
        return Some(Egress::Resolve {
            ifindex: lookup.ifindex,
        });
    }
    let [d0, d1, d2, d3, d4, d5] = lookup.dmac;
    let [s0, s1, s2, s3, s4, s5] = lookup.smac;
    packet.store(0, [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5])?;
    Some(Egress::Send {
        ifindex: lookup.ifindex,
    })
}

/// What the kernel is asked, at a multiple of eight: the verifier forbids stores of words elsewhere on the stack.
#[repr(C, align(8))]
struct Question(FibLookup);

/// What to look up for a packet.
#[inline(always)]
fn question(inner: &InnerPacket, ip: &Packet) -> Option<Question> {
    let mut question = empty_question();
    let lookup = &mut question.0;
    lookup.l4_protocol = inner.protocol;
    lookup.__bindgen_anon_1.tot_len = inner.total_len;
    match (inner.source, inner.destination) {
        // Options are for the kernel.
        (IpAddr::V4(_), _) if usize::from(inner.header_len) != ipv4::HEADER_LEN => return None,
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            lookup.family = AF_INET;
            lookup.__bindgen_anon_2.tos = inner.tos;
            lookup.__bindgen_anon_3.ipv4_src = source.to_bits().to_be();
            lookup.__bindgen_anon_4.ipv4_dst = destination.to_bits().to_be();
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            lookup.family = AF_INET6;
            // Traffic class and flow label.
            let [first, f1, f2, f3] = ip.bytes(0)?;
            lookup.__bindgen_anon_2.flowinfo = u32::from_ne_bytes([first & 0x0f, f1, f2, f3]);
            lookup.__bindgen_anon_3.ipv6_src = words(source.octets());
            lookup.__bindgen_anon_4.ipv6_dst = words(destination.octets());
        }
        _ => return None,
    }
    // Ports matter to rules and to the choice among several next hops.
    if let (PROTO_TCP | PROTO_UDP, Some([source, destination])) = (inner.protocol, inner.ports()) {
        lookup.sport = source.to_be();
        // Volatile, or else both are stored as one word, at an address where the stack takes none.
        // SAFETY: the place is borrowed from the structure.
        unsafe { core::ptr::write_volatile(&raw mut lookup.dport, destination.to_be()) };
    }
    Some(question)
}

#[inline(always)]
fn empty_question() -> Question {
    // SAFETY: integers, arrays and unions of them: all bits zero is a value of the type.
    Question(unsafe { core::mem::zeroed() })
}

#[inline(always)]
fn words(address: [u8; 16]) -> [u32; 4] {
    let (words, _) = address.as_chunks();
    [words[0], words[1], words[2], words[3]].map(u32::from_ne_bytes)
}
