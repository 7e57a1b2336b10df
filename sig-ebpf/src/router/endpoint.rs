//! Is a frame for this router? Ethernet, IP and UDP, and who may send to the endpoint.

use aya_ebpf::{bindings::xdp_md, helpers::bpf_xdp_get_buff_len};
use sig_common::{
    maps::Ip,
    router::{
        Reason,
        maps::{ANY_DEVICE, EndpointKey, PortKey, TAG_MASK},
    },
    wire::{Load as _, ethernet, ipv4, ipv6, udp},
};

use super::{
    maps,
    work::{Stop, Work},
};
use crate::packet::Packet;

/// Looks at the headers up to UDP.
#[inline(never)]
pub fn receive(ctx: *mut xdp_md, work: &mut Work) -> Result<(), Stop> {
    read(ctx, work).ok_or(Stop::NotOurs)?;
    // SAFETY: the context is of this program.
    work.outer.ifindex = unsafe { core::ptr::read_volatile(&raw const (*ctx).ingress_ifindex) };
    work.outer.generation = maps::generation();
    let mut key = EndpointKey {
        ip: work.outer.destination,
        ifindex: work.outer.ifindex,
        tags: work.outer.tags,
        port: work.outer.destination_port,
        generation: work.outer.generation,
    };
    let (endpoint, mac) = match maps::endpoint(&key) {
        Some(endpoint) => (endpoint, endpoint.mac),
        None => {
            (key.ifindex, key.tags) = (ANY_DEVICE, [0; 2]);
            let endpoint = maps::endpoint(&key).ok_or(Stop::NotOurs)?;
            let port = PortKey {
                ifindex: work.outer.ifindex,
                tags: work.outer.tags,
                generation: work.outer.generation.into(),
            };
            (endpoint, maps::port(&port).ok_or(Stop::NotOurs)?.mac)
        }
    };
    // Flooded by a switch, or the other half of a pair with one address: the kernel would not take it either.
    if work.outer.destination_mac != mac {
        return Err(Stop::NotOurs);
    }
    work.outer.slot = endpoint.slot;
    work.passage.ingress = endpoint.interface;
    if endpoint.refused != 0 {
        return Err(Reason::WrongDevice.into());
    }
    if work.passage.ingress != 0
        && !(work.outer.source == endpoint.remote && work.outer.source_port == endpoint.remote_port)
    {
        return Err(Reason::WrongPeer.into());
    }
    if work.outer.checksum == 0 && work.outer.ipv6 != 0 {
        return Err(Reason::NoChecksum.into());
    }
    Ok(())
}

/// Fills in what the headers say; `None` if they are not those of a whole UDP datagram.
#[inline(always)]
fn read(ctx: *mut xdp_md, work: &mut Work) -> Option<()> {
    let packet = Packet::of(ctx, 0);
    work.outer.destination_mac = packet.be64(0)? >> 16;
    let mut ethertype = packet.be16(12)?;
    let mut ip = ethernet::HEADER_LEN;
    work.outer.tags = [0; 2];
    work.outer.priority = 0;
    if ethernet::is_tag(ethertype) {
        let outer = packet.be32(12)?;
        work.outer.priority = outer & 0xf000;
        work.outer.tags[0] = vlan(outer);
        ip += ethernet::TAG_LEN;
        ethertype = packet.be16(16)?;
        if ethernet::is_tag(ethertype) {
            let inner = vlan(packet.be32(16)?);
            let place = usize::from(vlan(outer) != 0);
            work.outer.tags[place] = inner;
            ip += ethernet::TAG_LEN;
            ethertype = packet.be16(20)?;
        }
    }
    let (udp, len) = match ethertype {
        ethernet::ETHERTYPE_IPV4 => ipv4(&packet, ip, work)?,
        ethernet::ETHERTYPE_IPV6 => ipv6(&packet, ip, work)?,
        _ => return None,
    };
    work.outer.fragments = 0;
    let end = (udp + len) as u64;
    if end > packet.len() as u64 {
        // SAFETY: the context is of this program.
        if end > unsafe { bpf_xdp_get_buff_len(ctx) } {
            return None;
        }
        work.outer.fragments = 1;
    }
    let header = udp::Header::decode(&packet.bytes(udp)?);
    work.outer.source_port = header.source_port;
    work.outer.destination_port = header.destination_port;
    let udp_len = usize::from(header.length);
    work.outer.checksum = header.checksum.to_be();
    if udp_len < udp::HEADER_LEN || udp_len > len {
        return None;
    }
    work.outer.head = (udp + udp::HEADER_LEN) as u32;
    work.passage.len = (udp_len - udp::HEADER_LEN) as u32;
    Some(())
}

/// What maps hold of a tag; 0 if it is one without a VLAN.
#[inline(always)]
const fn vlan(tag: u32) -> u32 {
    if tag & 0x0fff == 0 { 0 } else { tag & TAG_MASK }
}

/// Offset and length of what an IPv4 header says to be UDP. Whether the frame has as many bytes is still to be seen.
#[inline(always)]
fn ipv4(packet: &Packet, ip: usize, work: &mut Work) -> Option<(usize, usize)> {
    let header = packet.bytes::<{ ipv4::HEADER_LEN }>(ip)?;
    let header_len = ipv4::header_len(header[0]);
    let total_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if !ipv4::is_around_udp(&header) || total_len < header_len {
        return None;
    }
    work.outer.ipv6 = 0;
    work.outer.source = Ip::v4([header[12], header[13], header[14], header[15]]);
    work.outer.destination = Ip::v4([header[16], header[17], header[18], header[19]]);
    Some((ip + header_len, total_len - header_len))
}

/// As [`ipv4`], for IPv6.
#[inline(always)]
fn ipv6(packet: &Packet, ip: usize, work: &mut Work) -> Option<(usize, usize)> {
    let header = packet.bytes(ip)?;
    if !ipv6::is_around_udp(&header) {
        return None;
    }
    let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    work.outer.ipv6 = 1;
    work.outer.source = address(packet, ip + 8)?;
    work.outer.destination = address(packet, ip + 24)?;
    // In the maps these would be IPv4 addresses, which nobody has in an IPv6 header.
    if work.outer.source.is_mapped() || work.outer.destination.is_mapped() {
        return None;
    }
    Some((ip + ipv6::HEADER_LEN, len))
}

/// An IPv6 address, read as numbers: arrays are copied byte by byte.
#[inline(always)]
fn address(packet: &Packet, at: usize) -> Option<Ip> {
    let (high, low) = (packet.be64(at)?, packet.be64(at + 8)?);
    let address = u128::from(high) << 64 | u128::from(low);
    Some(Ip(address.to_be_bytes()))
}
