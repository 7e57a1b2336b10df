//! Writing: new Ethernet, IP and UDP headers, and what changed in the path. Until the first byte is written, everything that
//! can fail has been done.

use aya_ebpf::{
    bindings::{xdp_action::XDP_PASS, xdp_md},
    helpers,
};
use sig_common::{
    router::{Reason, maps::NextHop},
    wire::{Load as _, PROTO_UDP, ethernet, ipv4, ipv6, udp},
};

use super::{
    host::word,
    maps,
    work::{Stop, Work},
};
use crate::packet::{IP, Packet};

/// Of new headers: the hops that the underlay may have between two routers.
const TTL: u8 = 64;

/// Addresses the packet to the next hop and redirects it; returns the action.
#[inline(never)]
pub fn send(ctx: *mut xdp_md, work: &Work, next_hop: &NextHop) -> Result<u32, Stop> {
    let is_ipv4 = next_hop.destination.is_mapped();
    let ip_len = if is_ipv4 {
        ipv4::HEADER_LEN
    } else {
        ipv6::HEADER_LEN
    } as u32;
    let len = ip_len + udp::HEADER_LEN as u32 + work.passage.len;
    if next_hop.mtu != 0 && len > u32::from(next_hop.mtu) {
        return Err(Reason::TooBig.into());
    }
    if work.outer.checksum == 0 && !is_ipv4 {
        return Err(Reason::FamilyChange.into());
    }
    if work.outer.checksum == pseudo_header(work) {
        return Err(Reason::OpenChecksum.into());
    }
    if work.outer.fragments != 0 && next_hop.fragments == 0 {
        return Err(Reason::NoFastWay.into());
    }
    let tags_len = match next_hop.tags {
        [0, _] => 0,
        [_, 0] => ethernet::TAG_LEN as u32,
        _ => 2 * ethernet::TAG_LEN as u32,
    };
    let head = ethernet::HEADER_LEN as u32 + tags_len + ip_len + udp::HEADER_LEN as u32;
    let action = maps::R_DEVICES
        .redirect(next_hop.ifindex, XDP_PASS.into())
        .map_err(|_| Reason::NoFastWay)?;
    if head != work.outer.head {
        // SAFETY: the context is of this program; no pointer into the packet is used after this.
        let result =
            unsafe { helpers::bpf_xdp_adjust_head(ctx, work.outer.head as i32 - head as i32) };
        if result != 0 {
            return Err(Reason::FamilyChange.into());
        }
    }
    // What is behind the datagram. Of a frame in several buffers that is nothing, or nothing that matters.
    let padding = Packet::of(ctx, 0).len() as i32 - (head + work.passage.len) as i32;
    if padding > 0 {
        // SAFETY: as for the head.
        unsafe { helpers::bpf_xdp_adjust_tail(ctx, -padding) };
    }
    // From here on only the verifier sees ways to fail.
    write(ctx, work, next_hop, tags_len, is_ipv4).ok_or(Reason::NoFastWay)?;
    Ok(action)
}

/// Writes all headers. Offsets are of frames without tags, of which the part behind the MAC addresses begins later by the
/// length of the tags.
#[inline(always)]
fn write(
    ctx: *mut xdp_md,
    work: &Work,
    next_hop: &NextHop,
    tags_len: u32,
    is_ipv4: bool,
) -> Option<()> {
    macs_and_tags(&mut Packet::of(ctx, 0), work, next_hop, tags_len)?;
    let shift = (tags_len & 0xc) as usize;
    let mut packet = Packet::of(ctx, shift);
    let udp_len = udp::HEADER_LEN as u16 + work.passage.len as u16;
    let (ethertype, ip_len) = if is_ipv4 {
        ipv4_header(packet.bytes_mut(IP)?, next_hop, udp_len);
        (ethernet::ETHERTYPE_IPV4, ipv4::HEADER_LEN)
    } else {
        ipv6_header(packet.bytes_mut(IP)?, next_hop, udp_len);
        (ethernet::ETHERTYPE_IPV6, ipv6::HEADER_LEN)
    };
    *packet.bytes_mut(IP - 2)? = ethertype.to_be_bytes();

    let mut packet = Packet::of(ctx, shift + IP + ip_len);
    let mut change = Sum::default();
    change.addresses(work, next_hop, is_ipv4);
    change.word(work.outer.source_port.to_be(), next_hop.source_port.to_be());
    change.word(
        work.outer.destination_port.to_be(),
        next_hop.destination_port.to_be(),
    );
    path(&mut packet, work, &mut change)?;
    let header = packet.bytes_mut::<{ udp::HEADER_LEN }>(0)?;
    set(header, 0, next_hop.source_port.to_be_bytes());
    set(header, 2, next_hop.destination_port.to_be_bytes());
    set(header, 4, udp_len.to_be_bytes());
    set(header, 6, change.apply(work.outer.checksum).to_ne_bytes());
    Some(())
}

#[inline(always)]
fn macs_and_tags(
    packet: &mut Packet,
    work: &Work,
    next_hop: &NextHop,
    tags_len: u32,
) -> Option<()> {
    let macs = packet.bytes_mut::<12>(0)?;
    for half in 0..3 {
        set(macs, 2 * half, part(&next_hop.destination_mac, half));
        set(macs, 6 + 2 * half, part(&next_hop.source_mac, half));
    }
    if tags_len == 0 {
        return Some(());
    }
    *packet.bytes_mut(12)? = (next_hop.tags[0] | work.outer.priority).to_be_bytes();
    if tags_len > ethernet::TAG_LEN as u32 {
        *packet.bytes_mut(16)? = (next_hop.tags[1] | work.outer.priority).to_be_bytes();
    }
    Some(())
}

/// An IPv4 header without options that forbids fragments, so that it needs no identification (RFC 6864).
#[inline(always)]
fn ipv4_header(header: &mut [u8; ipv4::HEADER_LEN], next_hop: &NextHop, udp_len: u16) {
    let (source, destination) = (word(&next_hop.source, 12), word(&next_hop.destination, 12));
    let len = u32::from(udp_len + ipv4::HEADER_LEN as u16);
    let words = [
        (0x4500_0000 | len).to_be(),
        0x4000_u32.to_be(),
        (u32::from(TTL) << 24 | u32::from(PROTO_UDP) << 16).to_be(),
        source,
        destination,
    ];
    let [a, b, c, d, e] = words.map(u64::from);
    let sum = !Sum(a + b + c + d + e).fold();
    for (place, word) in words.into_iter().enumerate() {
        set(header, 4 * place, word.to_ne_bytes());
    }
    set(header, 10, sum.to_ne_bytes());
}

#[inline(always)]
fn ipv6_header(header: &mut [u8; ipv6::HEADER_LEN], next_hop: &NextHop, udp_len: u16) {
    let first = 6 << 60 | u64::from(udp_len) << 16 | u64::from(PROTO_UDP) << 8 | u64::from(TTL);
    set(header, 0, first.to_be_bytes());
    for place in 0..4 {
        let at = 4 * place;
        set(header, 8 + at, word(&next_hop.source, at).to_ne_bytes());
        set(
            header,
            24 + at,
            word(&next_hop.destination, at).to_ne_bytes(),
        );
    }
}

/// Two bytes of a MAC address: `place` is 0, 1 or 2.
#[inline(always)]
fn part(mac: &[u8; 6], place: usize) -> [u8; 2] {
    // SAFETY: two bytes within the six. By pointer, as it would otherwise be read byte by byte.
    let part = unsafe {
        mac.as_ptr()
            .add(2 * (place % 3))
            .cast::<u16>()
            .read_unaligned()
    };
    part.to_ne_bytes()
}

/// Writes the bytes of a number. `at` and the length are constants that fit.
#[inline(always)]
fn set<const N: usize, const M: usize>(header: &mut [u8; M], at: usize, bytes: [u8; N]) {
    if let Some(part) = header.get_mut(at..at + N) {
        part.copy_from_slice(&bytes);
    }
}

/// Pointers and segment identifiers. `packet` begins with the UDP header.
#[inline(always)]
fn path(packet: &mut Packet, work: &Work, change: &mut Sum) -> Option<()> {
    let at = udp::HEADER_LEN + (work.passage.path & 0x7c) as usize;
    let (old, new) = work.passage.meta();
    if new != old {
        let new = new.to_be();
        change.double_word(old.to_be(), new);
        *packet.bytes_mut(at)? = new.to_ne_bytes();
    }
    for segment in &work.passage.changes {
        if segment.new != segment.old {
            let new = segment.new.to_be();
            change.word(segment.old.to_be(), new);
            *packet.bytes_mut(at + segment.offset())? = new.to_ne_bytes();
        }
    }
    Some(())
}

/// The sum over the pseudo-header of the UDP datagram (RFC 768, RFC 8200), as in memory. A checksum that is this was left
/// open (`CHECKSUM_PARTIAL`): whoever sends the packet on is to add the rest, which would be lost with the changes made here.
/// One right checksum in 65 536 is the same by chance.
#[inline(always)]
fn pseudo_header(work: &Work) -> u16 {
    let len = udp::HEADER_LEN as u32 + work.passage.len;
    let mut sum = u64::from((len + u32::from(PROTO_UDP)).to_be());
    for at in [0, 4, 8, 12] {
        // Of mapped addresses, the words before the IPv4 address are zeros and all ones: nothing in this sum.
        sum +=
            u64::from(word(&work.outer.source, at)) + u64::from(word(&work.outer.destination, at));
    }
    Sum(sum).fold()
}

/// A sum of 16-bit words in one's complement (RFC 1071), as in memory: it does not depend on the byte order.
#[derive(Clone, Copy, Default)]
struct Sum(u64);

impl Sum {
    /// A word of the message changes (RFC 1624).
    #[inline(always)]
    fn word(&mut self, old: u16, new: u16) {
        self.0 += u64::from(!old) + u64::from(new);
    }

    /// Two words next to each other change.
    #[inline(always)]
    fn double_word(&mut self, old: u32, new: u32) {
        self.0 += u64::from(!old) + u64::from(new);
    }

    /// The addresses change. IPv4 addresses are mapped ones; the words before them in the mapping are zeros and
    /// all ones, which is the same in this sum.
    #[inline(always)]
    fn addresses(&mut self, work: &Work, next_hop: &NextHop, is_ipv4: bool) {
        self.double_word(word(&work.outer.source, 12), word(&next_hop.source, 12));
        self.double_word(
            word(&work.outer.destination, 12),
            word(&next_hop.destination, 12),
        );
        if !is_ipv4 || work.outer.ipv6 != 0 {
            for at in [0, 4, 8] {
                self.double_word(word(&work.outer.source, at), word(&next_hop.source, at));
                self.double_word(
                    word(&work.outer.destination, at),
                    word(&next_hop.destination, at),
                );
            }
        }
    }

    #[inline(always)]
    fn fold(self) -> u16 {
        let sum = (self.0 >> 32) + (self.0 & 0xffff_ffff);
        let sum = (sum >> 16) + (sum & 0xffff);
        let sum = (sum >> 16) + (sum & 0xffff);
        let sum = (sum >> 16) + (sum & 0xffff);
        sum as u16
    }

    /// The UDP checksum after the changes. None (IPv4 only) stays none.
    #[inline(always)]
    fn apply(self, checksum: u16) -> u16 {
        if checksum == 0 {
            return 0;
        }
        match !Self(self.0 + u64::from(!checksum)).fold() {
            0 => u16::MAX,
            new => new,
        }
    }
}
