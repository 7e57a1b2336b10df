//! `relay`: stands in for the border routers of a SCION network in the demo and in tests.
//!
//! It gives a UDP datagram other addresses and sends it on, as routers do with the underlay of a
//! SCION packet; it neither reads nor changes the SCION header. Not part of the gateway.

use sig_common::{
    maps::{Ip, RelayKey, RelayValue},
    wire::Load as _,
};

use crate::{
    Verdict,
    maps::RELAY,
    packet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, IP, Packet},
};

const UDP: u8 = 17;

/// Rewrites the addresses of a datagram that has an entry; `None` leaves it to the kernel.
#[inline(always)]
pub fn forward(packet: &mut Packet, ifindex: u32) -> Option<Verdict> {
    let entry = match packet.bytes::<2>(12)? {
        ETHERTYPE_IPV4 => ipv4(packet, ifindex)?,
        ETHERTYPE_IPV6 => ipv6(packet, ifindex)?,
        _ => return None,
    };
    let macs = packet.words_mut::<6>(0)?;
    for i in 0..3 {
        macs[i] = word(&entry.dst_mac, 2 * i);
        macs[3 + i] = word(&entry.src_mac, 2 * i);
    }
    Some(Verdict::Transmit {
        ifindex: entry.ifindex,
    })
}

/// Rewrites an IPv4 header without options, and the UDP header after it.
#[inline(always)]
fn ipv4(packet: &mut Packet, ifindex: u32) -> Option<&'static RelayValue> {
    let header = packet.bytes::<20>(IP)?;
    let is_fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
    if header[0] != 0x45 || header[9] != UDP || is_fragment {
        return None;
    }
    let dst = Ip::v4([header[16], header[17], header[18], header[19]]);
    let entry = lookup(ifindex, dst, packet.bytes::<2>(IP + 22)?)?;
    entry.src.to_v4()?;
    entry.dst.to_v4()?;
    let mut change = Change::default();
    let words = packet.words_mut::<14>(IP)?;
    for i in 0..2 {
        // An IPv4 address is the end of its mapped form.
        change.set(&mut words[6 + i], word(&entry.src.0, 12 + 2 * i));
        change.set(&mut words[8 + i], word(&entry.dst.0, 12 + 2 * i));
    }
    words[5] = change.apply(words[5]);
    set_udp(packet, IP + 20, entry, change)?;
    Some(entry)
}

/// Rewrites an IPv6 header, and the UDP header after it.
#[inline(always)]
fn ipv6(packet: &mut Packet, ifindex: u32) -> Option<&'static RelayValue> {
    let header = packet.bytes::<8>(IP)?;
    if header[0] >> 4 != 6 || header[6] != UDP {
        return None;
    }
    let dst = Ip(packet.bytes::<16>(IP + 24)?);
    let entry = lookup(ifindex, dst, packet.bytes::<2>(IP + 42)?)?;
    let mut change = Change::default();
    let words = packet.words_mut::<16>(IP + 8)?;
    for i in 0..8 {
        change.set(&mut words[i], word(&entry.src.0, 2 * i));
        change.set(&mut words[8 + i], word(&entry.dst.0, 2 * i));
    }
    set_udp(packet, IP + 40, entry, change)?;
    Some(entry)
}

#[inline(always)]
fn lookup(ifindex: u32, dst: Ip, port: [u8; 2]) -> Option<&'static RelayValue> {
    let key = RelayKey {
        ifindex,
        port: u16::from_be_bytes(port),
        reserved: 0,
        dst,
    };
    // SAFETY: the value is only read. An update in between could mix two entries; the datagram
    // would then be lost.
    unsafe { RELAY.get(key) }
}

/// Writes ports and checksum of the UDP header at `at`; `change` is that of the pseudo header.
#[inline(always)]
fn set_udp(packet: &mut Packet, at: usize, entry: &RelayValue, mut change: Change) -> Option<()> {
    let [src_port, dst_port, _, sum] = packet.words_mut::<4>(at)?;
    change.set(src_port, entry.src_port.to_be());
    change.set(dst_port, entry.dst_port.to_be());
    // Zero means that the sender made none (IPv4 only); it stays so.
    if *sum != 0 {
        let new = change.apply(*sum);
        *sum = if new == 0 { 0xffff } else { new };
    }
    Some(())
}

/// What changed in a message, as a checksum sees it (RFC 1624). Words are as in memory: sums do
/// not depend on the byte order (RFC 1071).
#[derive(Clone, Copy, Default)]
struct Change(u32);

impl Change {
    /// Sets a 16-bit word of the message.
    #[inline(always)]
    fn set(&mut self, word: &mut u16, new: u16) {
        // At most 18 times 17 bits: no overflow.
        self.0 += u32::from(!*word) + u32::from(new);
        *word = new;
    }

    /// The checksum after the change.
    #[inline(always)]
    fn apply(self, checksum: u16) -> u16 {
        let sum = self.0 + u32::from(!checksum);
        let sum = (sum >> 16) + (sum & 0xffff);
        let sum = (sum >> 16) + (sum & 0xffff);
        !(sum as u16)
    }
}

/// The two bytes at `at`, as in memory.
#[inline(always)]
fn word<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}
