//! `sig_inject`: decapsulated packets on their way out.
//!
//! What a router does for most packets is done here: look up route and neighbour, take one from
//! the hop limit, put the link-layer addresses in, send. Everything with more to it (delivery to
//! this host, ICMP errors, fragmentation, IPv4 options) goes up the kernel's stack, unchanged.

use aya_ebpf::{
    EbpfContext as _,
    bindings::{BPF_FIB_LKUP_RET_NO_NEIGH, BPF_FIB_LKUP_RET_SUCCESS, bpf_fib_lookup as FibLookup},
    helpers,
    programs::TcContext,
};
use sig_common::{
    reason::DropReason,
    wire::{Load as _, checksum, inner::BACK_TO_SENDER},
};

use crate::{
    Egress,
    packet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, IP, Packet},
};

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Headers looked at: Ethernet, IPv6, and the ports.
const LINEAR: u32 = 14 + 40 + 4;

/// The way out for a packet; `None` leaves it to the kernel.
#[inline(always)]
pub fn way_out(ctx: &TcContext) -> Option<Egress> {
    let mut packet = Packet::of_tc(ctx);
    if packet.len() < LINEAR as usize && packet.len() < ctx.len() as usize {
        ctx.pull_data(LINEAR.min(ctx.len())).ok()?;
        packet = Packet::of_tc(ctx);
    }
    let ethertype = packet.bytes::<2>(12)?;
    let (mut question, hops) = match ethertype {
        ETHERTYPE_IPV4 => ipv4(&packet)?,
        ETHERTYPE_IPV6 => ipv6(&packet)?,
        _ => return None,
    };
    if hops <= 1 {
        return None;
    }
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
    let header = packet.bytes_mut::<20>(IP)?;
    if ethertype == ETHERTYPE_IPV4 {
        let old = u16::from_be_bytes([header[8], header[9]]);
        header[8] = hops - 1;
        let new = u16::from_be_bytes([header[8], header[9]]);
        let sum = u16::from_be_bytes([header[10], header[11]]);
        [header[10], header[11]] = checksum::update(sum, old, new).to_be_bytes();
    } else {
        header[7] = hops - 1;
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
    let macs = packet.bytes_mut::<12>(0)?;
    let [d0, d1, d2, d3, d4, d5] = lookup.dmac;
    let [s0, s1, s2, s3, s4, s5] = lookup.smac;
    *macs = [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5];
    Some(Egress::Send {
        ifindex: lookup.ifindex,
    })
}

/// What the kernel is asked, at a multiple of eight: the verifier forbids stores of words elsewhere on the stack.
#[repr(C, align(8))]
struct Question(FibLookup);

/// What to look up for an IPv4 packet, and the hops it has left.
#[inline(always)]
fn ipv4(packet: &Packet) -> Option<(Question, u8)> {
    let header = packet.bytes::<20>(IP)?;
    // Options are for the kernel.
    if header[0] != 0x45 {
        return None;
    }
    let mut question = empty_question();
    let lookup = &mut question.0;
    lookup.family = AF_INET;
    lookup.l4_protocol = header[9];
    lookup.__bindgen_anon_1.tot_len = u16::from_be_bytes([header[2], header[3]]);
    lookup.__bindgen_anon_2.tos = header[1];
    lookup.__bindgen_anon_3.ipv4_src =
        u32::from_ne_bytes([header[12], header[13], header[14], header[15]]);
    lookup.__bindgen_anon_4.ipv4_dst =
        u32::from_ne_bytes([header[16], header[17], header[18], header[19]]);
    let is_fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
    if !is_fragment {
        set_ports(lookup, packet, IP + 20);
    }
    Some((question, header[8]))
}

/// What to look up for an IPv6 packet, and the hops it has left.
#[inline(always)]
fn ipv6(packet: &Packet) -> Option<(Question, u8)> {
    let header = packet.bytes::<40>(IP)?;
    if header[0] >> 4 != 6 {
        return None;
    }
    let payload_len = u16::from_be_bytes([header[4], header[5]]);
    let mut question = empty_question();
    let lookup = &mut question.0;
    lookup.family = AF_INET6;
    lookup.l4_protocol = header[6];
    lookup.__bindgen_anon_1.tot_len = payload_len.checked_add(40)?;
    // Traffic class and flow label.
    lookup.__bindgen_anon_2.flowinfo =
        u32::from_ne_bytes([header[0] & 0x0f, header[1], header[2], header[3]]);
    lookup.__bindgen_anon_3.ipv6_src = words(header, 8);
    lookup.__bindgen_anon_4.ipv6_dst = words(header, 24);
    set_ports(lookup, packet, IP + 40);
    Some((question, header[7]))
}

/// Ports matter to rules and to the choice among several next hops.
#[inline(always)]
fn set_ports(lookup: &mut FibLookup, packet: &Packet, offset: usize) {
    if !matches!(lookup.l4_protocol, TCP | UDP) {
        return;
    }
    if let Some([s0, s1, d0, d1]) = packet.bytes::<4>(offset) {
        lookup.sport = u16::from_ne_bytes([s0, s1]);
        // Volatile, or else both are stored as one word, at an address where the stack takes none.
        // SAFETY: the place is borrowed from the structure.
        unsafe { core::ptr::write_volatile(&raw mut lookup.dport, u16::from_ne_bytes([d0, d1])) };
    }
}

#[inline(always)]
fn empty_question() -> Question {
    // SAFETY: integers, arrays and unions of them: all bits zero is a value of the type.
    Question(unsafe { core::mem::zeroed() })
}

#[inline(always)]
fn words(header: [u8; 40], at: usize) -> [u32; 4] {
    let word = |i: usize| {
        let i = at + 4 * i;
        u32::from_ne_bytes([header[i], header[i + 1], header[i + 2], header[i + 3]])
    };
    [word(0), word(1), word(2), word(3)]
}
