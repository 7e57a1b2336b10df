//! Frames: packets that fill one alone are delivered here, as the gateway would.

use aya_ebpf::{
    bindings::{__sk_buff, BPF_F_INGRESS, bpf_adj_room_mode::BPF_ADJ_ROOM_MAC},
    helpers,
    programs::TcContext,
};
use sig_common::accelerate::{Direction, Stat, kind, mix};
use sig_common::maps::RemoteKey;
use sig_common::wire::{
    Load as _, PROTO_UDP, checksum::Sum, datagram::Datagram, ipv4, ipv6, sig_frame, simple::Simple,
};

use super::{
    A_DELIVERED, A_ENTRANCES, A_LOCALS, A_REMOTES, DROP, GO_ON, LINEAR, config, count,
    count_traffic,
    inner::{self, Inner, Walk},
    look, now, pull, redirect, seed, segments,
};
use crate::{
    fast,
    packet::{IP, Packet},
};

/// Packets that come in by the underlay device.
pub fn take(ctx: &TcContext) -> i32 {
    let skb = ctx.skb.skb;
    let Some(config) = config() else {
        return GO_ON;
    };
    // SAFETY: the context is of the running program.
    let (to_others, tagged, segment) =
        unsafe { ((*skb).pkt_type, (*skb).vlan_present, (*skb).gso_size) };
    if to_others == PACKET_OTHERHOST || tagged != 0 || !look::may_be_udp(skb) {
        return GO_ON;
    }
    let mut datagram = Datagram::default();
    // Without memory, what is there is read.
    let _ = pull(skb, LINEAR);
    let is_read = look::parse(skb, &mut datagram);
    if segment != 0 || !is_read {
        let is_frame = segment != 0 || datagram.l4 != 0;
        if is_frame && to_others == 0 {
            unread(&datagram);
        }
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
    // Only a probe is looked at however it came: the gateway answers it.
    if to_others != 0 {
        return GO_ON;
    }
    if datagram.payload_len <= sig_frame::HEADER_LEN as u32 {
        return GO_ON;
    }
    let header = look::header(skb, &datagram);
    if remote == NOBODY {
        // Without a mark: strangers shall hold no flow.
        if header.is_some() {
            count(Stat::InUnknown);
        }
        return GO_ON;
    }
    let entrance = entrance(skb, &datagram);
    // SAFETY: the value is not looked at.
    let is_known = unsafe { A_ENTRANCES.get(entrance) }.is_some();
    let Some(header) = header else {
        // Of another version, the gateway takes nothing either.
        let version = look::payload(skb, &datagram).bytes(0);
        if is_known && version.is_some_and(|[version, _]| version == 0) {
            inner::hold(Direction::In, now());
        }
        return GO_ON;
    };
    let mut arrival = Arrival {
        now: now(),
        entrance,
        is_known: is_known.into(),
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
            leave_all(skb, &arrival);
            GO_ON
        }
        _ => GO_ON,
    }
}

/// Value of `pkt_type` (linux/if_packet.h).
const PACKET_OTHERHOST: u32 = 3;

/// No places of remotes.
const NOBODY: u32 = u32::MAX;
const NOT_OURS: u32 = NOBODY - 1;

/// The place of the gateway that sent a datagram to ours, as far as that was read. A function of its own: the stack is small.
#[inline(never)]
fn sender(datagram: &Datagram) -> u32 {
    if datagram.destination_isd_as == 0 {
        return NOT_OURS;
    }
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

/// How a frame came in: from which host of the underlay, to which address and to which ports. What is taken here is not seen by
/// the underlay's firewall, so it must come as what passed that before. A function of its own: the stack is small.
#[inline(never)]
fn entrance(skb: *mut __sk_buff, datagram: &Datagram) -> u64 {
    let step = |hash: u64, word: u64| mix(mix(hash, word), 1);
    let (hash, udp) = match datagram.over_ipv6 {
        0 => {
            let Some([addresses]) = Packet::of_skb(skb, IP + 12).words() else {
                return 0;
            };
            (step(seed(), addresses), IP + ipv4::HEADER_LEN)
        }
        _ => {
            let Some([a, b, c, d]) = Packet::of_skb(skb, IP + 8).words() else {
                return 0;
            };
            let hash = step(step(step(step(seed(), a), b), c), d);
            (hash, IP + ipv6::HEADER_LEN)
        }
    };
    let Some(outer_port) = Packet::of_skb(skb, udp).be16(2) else {
        return 0;
    };
    let ports = u64::from(outer_port) << 16 | u64::from(datagram.destination_port);
    step(hash, ports)
}

/// What cannot be read to the end, such as several datagrams in one or too long headers, is perhaps a frame if gateways are its
/// ends, which come early in it.
#[inline(never)]
fn unread(datagram: &Datagram) -> u32 {
    let remote = sender(datagram);
    if remote != NOBODY && remote != NOT_OURS {
        inner::hold(Direction::In, now());
    }
    0
}

/// A frame.
struct Arrival {
    now: u64,
    /// See [`entrance`], and whether it is among the known ones.
    entrance: u64,
    is_known: u32,
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
    let why = if arrival.is_known == 0 || arrival.enabled == 0 {
        Stat::InUnknown
    } else if !inner::is_free(Direction::In, &inner, arrival.now) {
        Stat::InBusy
    } else if !has_right_checksums(skb, datagram, arrival) {
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
        // Else what spreads packets by their hash would take all for one flow.
        // SAFETY: as above.
        unsafe { helpers::bpf_set_hash_invalid(skb) };
        count_traffic(&A_DELIVERED, arrival.remote, inner.len.into());
        return TAKEN;
    };
    count(why);
    inner::mark(Direction::In, &inner, arrival.now, arrival.entrance);
    LEFT
}

/// `BPF_F_ADJ_ROOM_DECAP_L3_IPV4` and its sibling (linux/bpf.h): what the packet is afterwards.
const DECAP_L3_IPV4: u64 = 1 << 7;
const DECAP_L3_IPV6: u64 = 1 << 8;

/// Marks all packets that begin in a frame.
#[inline(always)]
fn leave_all(skb: *mut __sk_buff, arrival: &Arrival) {
    // SAFETY: the context is of the running program.
    let len = unsafe { (*skb).len };
    let walk = Walk {
        now: arrival.now,
        note: arrival.entrance,
        start: arrival.start + arrival.index,
        end: arrival.end,
        marks: 1,
    };
    let is_seen = pull(skb, len) && inner::walk(skb, &walk) & inner::UNKNOWN == 0;
    // What comes in another way is perhaps no frame at all.
    if !is_seen && arrival.is_known != 0 {
        inner::hold(Direction::In, arrival.now);
    }
}

/// Whether the checksums of the outer IPv4 header and of UDP/SCION are right, of the latter as far as can be told from the one inside. A
/// function of its own: the stack is small.
#[inline(never)]
fn has_right_checksums(skb: *mut __sk_buff, datagram: &Datagram, arrival: &Arrival) -> bool {
    if datagram.over_ipv6 == 0 {
        let header = Packet::of_skb(skb, IP);
        let (Some([a, b]), Some(last)) = (header.words(), header.bytes(16)) else {
            return false;
        };
        if !fast::of_words([a, b, u32::from_ne_bytes(last).into()]).is_valid() {
            return false;
        }
    }
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
    if let Some(entrance) = inner::release(Direction::In, &inner, now()) {
        // What came in that way came out of the gateway: no firewall is against it, and the port is that of its data.
        // SAFETY: the value is not looked at.
        if unsafe { A_ENTRANCES.get(entrance) }.is_none() {
            // Without room, it is learned with the next packet.
            let _ = A_ENTRANCES.insert(entrance, 1, 0);
        }
    }
    GO_ON
}
