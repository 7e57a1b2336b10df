//! Frames: packets that fill one alone are delivered here, as the gateway would.

use aya_ebpf::{
    bindings::{__sk_buff, BPF_F_INGRESS, bpf_adj_room_mode::BPF_ADJ_ROOM_MAC},
    helpers,
    programs::TcContext,
};
use sig_common::accelerate::{Stat, kind};
use sig_common::maps::RemoteKey;
use sig_common::wire::{PROTO_UDP, checksum::Sum, datagram::Datagram, sig_frame, simple::Simple};

use super::{
    A_DELIVERED, A_LOCALS, A_PORTS, A_REMOTES, DROP, GO_ON, config, count, count_traffic,
    inner::{self, Inner, Walk, Way},
    look, now, pull, redirect, segments,
};
use crate::{
    fast,
    packet::{IP, Packet},
};

/// Headers in front of what is behind the inner IP header's transport header.
const LINEAR: u32 = 448;

/// Packets that come in by the underlay device.
pub fn take(ctx: &TcContext) -> i32 {
    let skb = ctx.skb.skb;
    let Some(config) = config() else {
        return GO_ON;
    };
    // SAFETY: the context is of the running program.
    let (to_others, tagged, segments) =
        unsafe { ((*skb).pkt_type, (*skb).vlan_present, (*skb).gso_segs) };
    let mut datagram = Datagram::default();
    if to_others != 0
        || tagged != 0
        || segments > 1
        || !pull(skb, LINEAR)
        || !look::parse(skb, &mut datagram)
    {
        return GO_ON;
    }
    let remote = sender(&datagram);
    if remote == NOT_OURS {
        return GO_ON;
    }
    if look::is_probe(skb, &datagram) {
        look::sight_own(skb, &datagram, kind::ANSWER);
        return GO_ON;
    }
    if datagram.payload_len <= sig_frame::HEADER_LEN as u32 {
        return GO_ON;
    }
    let Some(header) = look::header(skb, &datagram) else {
        return GO_ON;
    };
    let mut arrival = Arrival {
        now: now(),
        start: datagram.payload() as u32 + sig_frame::HEADER_LEN as u32,
        end: datagram.payload() as u32 + datagram.payload_len,
        remote,
        enabled: config.enabled,
        tunnel_mtu: config.tunnel_mtu,
        version: 0,
        index: header.index.into(),
    };
    match deliver(skb, &datagram, &mut arrival) {
        TAKEN => {
            count(Stat::Delivered);
            redirect(config.tunnel, BPF_F_INGRESS.into())
        }
        LOST => {
            count(Stat::InLost);
            DROP
        }
        ODD => {
            count(Stat::InOdd);
            leave_all(skb, &datagram, &arrival);
            GO_ON
        }
        _ => GO_ON,
    }
}

/// No places of remotes.
const NOBODY: u32 = u32::MAX;
const NOT_OURS: u32 = NOBODY - 1;

/// The place of the gateway that sent a datagram to ours. A function of its own: the stack is small.
#[inline(never)]
fn sender(datagram: &Datagram) -> u32 {
    let key = |isd_as, host| RemoteKey { isd_as, host };
    let local = key(datagram.destination_isd_as, datagram.destination);
    // SAFETY: the value is not looked at.
    if unsafe { A_LOCALS.get(local) }.is_none() {
        return NOT_OURS;
    }
    let remote = key(datagram.source_isd_as, datagram.source);
    // SAFETY: a word that is copied at once.
    unsafe { A_REMOTES.get(remote) }.copied().unwrap_or(NOBODY)
}

/// A frame.
struct Arrival {
    now: u64,
    /// Where its packets begin and end.
    start: u32,
    end: u32,
    /// Place of who sent it.
    remote: u32,
    enabled: u32,
    tunnel_mtu: u32,
    /// Of IP, of the only packet.
    version: u32,
    /// Where the first packet begins, behind `start`.
    index: u32,
}

const LEFT: u32 = 0;
const TAKEN: u32 = 1;
const LOST: u32 = 2;
const ODD: u32 = 3;

/// Takes the headers off, or leaves the frame to the gateway. A function of its own: the stack is small.
#[inline(never)]
fn deliver(skb: *mut __sk_buff, datagram: &Datagram, arrival: &mut Arrival) -> u32 {
    let mut inner = Inner::NONE;
    if arrival.index == 0 {
        inner::read(skb, arrival.start, &mut inner);
    }
    let is_alone = inner.odd == 0 && inner.len == arrival.end - arrival.start;
    if !is_alone || inner.len > arrival.tunnel_mtu {
        return ODD;
    }
    arrival.version = inner.version;
    let port = A_PORTS.get(datagram.destination_port.into());
    let why = if arrival.remote == NOBODY || port != Some(&1) || arrival.enabled == 0 {
        Stat::InUnknown
    } else if !inner::is_free(Way::In, &inner, arrival.now) {
        Stat::InBusy
    } else if !has_right_checksum(skb, datagram, arrival) {
        Stat::InChecksum
    } else {
        let delta = arrival.start as i32 - IP as i32;
        let family: u64 = match inner.version {
            4 => DECAP_L3_IPV4,
            _ => DECAP_L3_IPV6,
        };
        // SAFETY: the context is of the running program. Pointers into the packet from before are not used any more.
        let shrunk = unsafe { helpers::bpf_skb_adjust_room(skb, -delta, BPF_ADJ_ROOM_MAC, family) };
        if shrunk != 0 {
            return LOST;
        }
        count_traffic(&A_DELIVERED, arrival.remote, inner.len.into());
        return TAKEN;
    };
    count(why);
    inner::mark(
        Way::In,
        &inner,
        arrival.now,
        datagram.destination_port.into(),
    );
    LEFT
}

/// `BPF_F_ADJ_ROOM_DECAP_L3_IPV4` and its sibling (linux/bpf.h): what the packet is afterwards.
const DECAP_L3_IPV4: u64 = 1 << 7;
const DECAP_L3_IPV6: u64 = 1 << 8;

/// Marks all packets that begin in a frame.
#[inline(always)]
fn leave_all(skb: *mut __sk_buff, datagram: &Datagram, arrival: &Arrival) {
    // SAFETY: the context is of the running program.
    let len = unsafe { (*skb).len };
    if pull(skb, len) {
        let walk = Walk {
            now: arrival.now,
            note: datagram.destination_port.into(),
            start: arrival.start + arrival.index,
            end: arrival.end,
            marks: 1,
        };
        let _ = inner::walk(skb, &walk);
    }
}

/// Whether the UDP/SCION checksum is right, as far as can be told from the one inside. A function of its own: the stack is
/// small.
#[inline(never)]
fn has_right_checksum(skb: *mut __sk_buff, datagram: &Datagram, arrival: &Arrival) -> bool {
    let packet = Packet::of_skb(skb, arrival.start as usize & 0x7ff);
    let sum = match arrival.version {
        4 => Simple::<false>::parse(&packet).and_then(|simple| simple.known_sum(&packet)),
        _ => Simple::<true>::parse(&packet).and_then(|simple| simple.known_sum(&packet)),
    };
    let (Some(sum), Some(words)) = (
        sum,
        Packet::of_skb(skb, datagram.l4 as usize & 0x7ff).words(),
    ) else {
        return false;
    };
    let [.., c0, c1] = words[0].to_ne_bytes();
    let ip = |bytes: [u8; 16]| {
        // The prefix of a mapped IPv4 address is no part of the sum.
        let bits = u128::from_be_bytes(bytes);
        match bits >> 32 {
            0xffff => Sum::ZERO.add_u32(bits as u32),
            _ => Sum::ZERO.add_u64((bits >> 64) as u64).add_u64(bits as u64),
        }
    };
    let len = datagram.payload_len as u16 + 8;
    [c0, c1] == [0, 0]
        || sum
            .add_u64(datagram.destination_isd_as)
            .add_u64(datagram.source_isd_as)
            .combine(ip(datagram.destination.0))
            .combine(ip(datagram.source.0))
            .add_u16(PROTO_UDP.into())
            .add_u16(len)
            .combine(fast::of_words(words))
            .is_valid()
}

/// Packets that the gateway writes to its tunnel device: looked at, and left as they are.
pub fn behind_gateway(ctx: &TcContext) -> i32 {
    let skb = ctx.skb.skb;
    if !pull(skb, LINEAR) {
        return GO_ON;
    }
    let mut inner = Inner::NONE;
    inner::read(skb, 0, &mut inner);
    if let Some(config) = config() {
        segments::clamp(skb, 0, &inner, config.frame_size);
    }
    if let Some(port) = inner::release(Way::In, &inner, now())
        && let Some(confirmed) = A_PORTS.get_ptr_mut(port as u32 & 0xffff)
    {
        // What came in to this port came out of the gateway: it is the gateway's data port.
        // SAFETY: an element of a map; a byte is written as a whole.
        unsafe { *confirmed = 1 };
    }
    GO_ON
}
