//! What the kernel leaves to a network card: cutting long packets, and transport checksums.

use sig_common::wire::{
    PROTO_TCP, PROTO_UDP,
    checksum::{Sum, ipv4_pseudo_header, ipv6_pseudo_header},
    ipv4, ipv6, tcp, udp,
};

/// Bytes of [`VnetHeader`].
pub(super) const VNET_HEADER_LEN: usize = 10;

const NEEDS_CHECKSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCP_V4: u8 = 1;
const GSO_TCP_V6: u8 = 4;
const GSO_UDP: u8 = 5;
/// Beside a number above.
const GSO_ECN: u8 = 0x80;

/// `struct virtio_net_hdr` of `linux/virtio_net.h`: what is left to do with a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct VnetHeader {
    flags: u8,
    gso_type: u8,
    gso_size: u16,
    checksum_start: u16,
    checksum_offset: u16,
}

impl VnetHeader {
    pub(super) fn decode(bytes: &[u8; VNET_HEADER_LEN]) -> Self {
        let number = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        Self {
            flags: bytes[0],
            gso_type: bytes[1] & !GSO_ECN,
            gso_size: number(4),
            checksum_start: number(6),
            checksum_offset: number(8),
        }
    }

    /// Whether the packet is to be cut.
    pub(super) const fn is_long(&self) -> bool {
        self.gso_type != GSO_NONE
    }

    /// Finishes the checksum of a packet that is not to be cut. The field holds the sum over the pseudo header. `None`: there
    /// is no such field in the packet.
    pub(super) fn finish(&self, packet: &mut [u8]) -> Option<()> {
        if self.flags & NEEDS_CHECKSUM == 0 {
            return Some(());
        }
        let segment = packet.get_mut(usize::from(self.checksum_start)..)?;
        let sum = Sum::of(segment);
        // The offset tells which protocol it is: UDP has 0 for "none".
        let checksum = match self.checksum_offset {
            UDP_CHECKSUM => udp::checksum(sum),
            _ => sum.checksum(),
        };
        let at = usize::from(self.checksum_offset);
        let field = segment.get_mut(at..at + 2)?;
        field.copy_from_slice(&checksum.to_be_bytes());
        Some(())
    }
}

const TCP_CHECKSUM: u16 = 16;
const UDP_CHECKSUM: u16 = 6;

/// Flags of TCP that only the last, and only the first, segment of several has.
const FIN_PSH: u8 = 0x09;
const CWR: u8 = 0x80;

/// A packet that is being cut.
#[derive(Debug)]
pub(super) struct Segments {
    is_tcp: bool,
    is_v6: bool,
    /// Offset of TCP or UDP.
    l4: usize,
    /// Bytes of all headers.
    headers: usize,
    /// Bytes of payload of a segment.
    size: usize,
    /// Bytes of payload that have been cut off.
    done: usize,
    /// Segments that have.
    count: u16,
}

impl Segments {
    /// `None`: the packet is not what its header says.
    pub(super) fn of(header: &VnetHeader, packet: &[u8]) -> Option<Self> {
        let is_v6 = packet.first()? >> 4 == 6;
        let is_tcp = match (header.gso_type, is_v6) {
            (GSO_TCP_V4, false) | (GSO_TCP_V6, true) => true,
            (GSO_UDP, _) => false,
            _ => return None,
        };
        let l4 = usize::from(header.checksum_start);
        let least = if is_v6 {
            ipv6::HEADER_LEN
        } else {
            ipv4::HEADER_LEN
        };
        let transport = packet.get(l4..).filter(|_| l4 >= least)?;
        let l4_len = if is_tcp {
            let len = usize::from(transport.get(12)? >> 4) * 4;
            if len < tcp::HEADER_LEN {
                return None;
            }
            len
        } else {
            udp::HEADER_LEN
        };
        let headers = l4 + l4_len;
        let size = usize::from(header.gso_size);
        (packet.len() > headers && size > 0).then_some(Self {
            is_tcp,
            is_v6,
            l4,
            headers,
            size,
            done: 0,
            count: 0,
        })
    }

    /// Writes the next segment of the packet, with whole checksums, and returns its length. `None`: there is none left, or not enough
    /// room.
    pub(super) fn next(&mut self, packet: &[u8], into: &mut [u8]) -> Option<usize> {
        let payload = packet.get(self.headers + self.done..)?;
        let payload = &payload[..payload.len().min(self.size)];
        if payload.is_empty() {
            return None;
        }
        let len = self.headers + payload.len();
        let segment = into.get_mut(..len)?;
        segment[..self.headers].copy_from_slice(packet.get(..self.headers)?);
        segment[self.headers..].copy_from_slice(payload);
        let is_last = len + self.done == packet.len();
        let (ip, transport) = segment.split_at_mut(self.l4);
        let pseudo = self.finish_ip(ip, transport.len())?;
        let checksum_at = if self.is_tcp {
            let sequence = u32::from_be_bytes(*transport.get(4..)?.first_chunk()?);
            let sequence = sequence.wrapping_add(self.done as u32);
            transport[4..8].copy_from_slice(&sequence.to_be_bytes());
            if !is_last {
                transport[13] &= !FIN_PSH;
            }
            if self.count > 0 {
                transport[13] &= !CWR;
            }
            TCP_CHECKSUM
        } else {
            let len = transport.len() as u16;
            transport[4..6].copy_from_slice(&len.to_be_bytes());
            UDP_CHECKSUM
        };
        let field = usize::from(checksum_at)..usize::from(checksum_at) + 2;
        transport.get_mut(field.clone())?.fill(0);
        let sum = pseudo.combine(Sum::of(transport));
        let checksum = if self.is_tcp {
            sum.checksum()
        } else {
            udp::checksum(sum)
        };
        transport[field].copy_from_slice(&checksum.to_be_bytes());
        self.done += payload.len();
        self.count = self.count.wrapping_add(1);
        Some(len)
    }

    /// How many segments of a packet of this length have not been cut off.
    pub(super) const fn left(&self, packet_len: usize) -> usize {
        packet_len
            .saturating_sub(self.headers + self.done)
            .div_ceil(self.size)
    }

    /// Lengths, identification and checksum of IP. Returns the sum over the pseudo header.
    fn finish_ip(&self, ip: &mut [u8], l4_len: usize) -> Option<Sum> {
        let protocol = if self.is_tcp { PROTO_TCP } else { PROTO_UDP };
        if self.is_v6 {
            let payload = (ip.len() - ipv6::HEADER_LEN + l4_len) as u16;
            ip[4..6].copy_from_slice(&payload.to_be_bytes());
            let source = ip.get(8..24)?.first_chunk()?;
            let destination = ip.get(24..40)?.first_chunk()?;
            return Some(ipv6_pseudo_header(
                source,
                destination,
                l4_len as u32,
                protocol,
            ));
        }
        let total = (ip.len() + l4_len) as u16;
        ip[2..4].copy_from_slice(&total.to_be_bytes());
        let identification = u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(self.count);
        ip[4..6].copy_from_slice(&identification.to_be_bytes());
        ip[10..12].fill(0);
        let checksum = Sum::of(ip).checksum();
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        let source = *ip.get(12..16)?.first_chunk()?;
        let destination = *ip.get(16..20)?.first_chunk()?;
        Some(ipv4_pseudo_header(
            source,
            destination,
            l4_len as u16,
            protocol,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sig_common::wire::{ipv4, ipv6};

    fn header(gso_type: u8, size: u16, l4: usize, offset: u16) -> VnetHeader {
        VnetHeader {
            flags: NEEDS_CHECKSUM,
            gso_type,
            gso_size: size,
            checksum_start: l4 as u16,
            checksum_offset: offset,
        }
    }

    /// A packet as long as its payload, with numbers for bytes, without right checksums.
    fn packet(v6: bool, protocol: u8, payload: usize) -> (Vec<u8>, usize) {
        let l4_len = if protocol == PROTO_TCP { 32 } else { 8 };
        let mut bytes = vec![0; 40];
        let l4 = if v6 {
            let header = ipv6::Header {
                traffic_class: 0,
                flow_label: 7,
                payload_len: 0,
                next_header: protocol,
                hop_limit: 64,
                source: [1; 16],
                destination: [2; 16],
            };
            header.emit(&mut bytes).expect("room")
        } else {
            let header = ipv4::Header {
                tos: 0,
                total_len: 0,
                identification: 0xffff,
                dont_fragment: true,
                ttl: 64,
                protocol,
                source: [10, 0, 0, 1],
                destination: [10, 0, 0, 2],
            };
            header.emit(&mut bytes).expect("room")
        };
        bytes.truncate(l4);
        let mut transport = vec![0; l4_len];
        transport[..4].copy_from_slice(&[0x12, 0x34, 0x56, 0x78]);
        if protocol == PROTO_TCP {
            transport[4..8].copy_from_slice(&(u32::MAX - 100).to_be_bytes());
            transport[12] = 8 << 4;
            transport[13] = 0x10 | FIN_PSH | CWR;
        }
        bytes.extend(transport);
        bytes.extend((0..payload).map(|n| n as u8));
        (bytes, l4)
    }

    fn pseudo(segment: &[u8], v6: bool, protocol: u8, l4: usize) -> Sum {
        let len = segment.len() - l4;
        if v6 {
            ipv6_pseudo_header(&[1; 16], &[2; 16], len as u32, protocol)
        } else {
            ipv4_pseudo_header([10, 0, 0, 1], [10, 0, 0, 2], len as u16, protocol)
        }
    }

    #[test]
    fn segments_are_whole_packets_that_make_up_the_long_one() {
        for v6 in [false, true] {
            for (protocol, kind) in [
                (PROTO_TCP, if v6 { GSO_TCP_V6 } else { GSO_TCP_V4 }),
                (PROTO_UDP, GSO_UDP),
            ] {
                for (payload, size) in [(1, 1448), (1448, 1448), (2897, 1448), (60_000, 1339)] {
                    let (packet, l4) = packet(v6, protocol, payload);
                    let mut segments =
                        Segments::of(&header(kind, size, l4, 0), &packet).expect("consistent");
                    let headers = segments.headers;
                    let mut room = [0; 2048];
                    let mut seen = Vec::new();
                    let mut number = 0;
                    while let Some(len) = segments.next(&packet, &mut room) {
                        let segment = &room[..len];
                        let is_last = seen.len() + len - headers == payload;
                        if v6 {
                            let length = u16::from_be_bytes([segment[4], segment[5]]);
                            assert_eq!(usize::from(length), len - 40);
                        } else {
                            let view = ipv4::View::new_checked(segment).expect("a packet");
                            assert!(view.checksum_is_valid());
                            let id = u16::from_be_bytes([segment[4], segment[5]]);
                            assert_eq!(id, 0xffff_u16.wrapping_add(number));
                        }
                        let sum = pseudo(segment, v6, protocol, l4);
                        assert!(sum.combine(Sum::of(&segment[l4..])).is_valid());
                        if protocol == PROTO_TCP {
                            let at = u32::from_be_bytes(*segment[l4 + 4..].first_chunk().unwrap());
                            assert_eq!(at, (u32::MAX - 100).wrapping_add(seen.len() as u32));
                            let flags = segment[l4 + 13];
                            assert_eq!(flags & FIN_PSH == FIN_PSH, is_last);
                            assert_eq!(flags & CWR != 0, number == 0);
                        } else {
                            let length = u16::from_be_bytes([segment[l4 + 4], segment[l4 + 5]]);
                            assert_eq!(usize::from(length), len - l4);
                        }
                        seen.extend_from_slice(&segment[headers..]);
                        number += 1;
                        assert_eq!(
                            segments.left(packet.len()),
                            (packet.len() - headers - seen.len()).div_ceil(size.into())
                        );
                    }
                    assert_eq!(seen, packet[headers..]);
                }
            }
        }
    }

    #[test]
    fn a_checksum_that_is_left_open_is_finished() {
        for (protocol, offset) in [(PROTO_TCP, TCP_CHECKSUM), (PROTO_UDP, UDP_CHECKSUM)] {
            let (mut packet, l4) = packet(true, protocol, 99);
            let field = l4 + usize::from(offset);
            let open = pseudo(&packet, true, protocol, l4).fold();
            packet[field..field + 2].copy_from_slice(&open.to_be_bytes());
            let header = header(GSO_NONE, 0, l4, offset);
            header.finish(&mut packet).expect("there is a field");
            let sum = pseudo(&packet, true, protocol, l4);
            assert!(sum.combine(Sum::of(&packet[l4..])).is_valid());
        }
    }

    #[test]
    fn what_the_header_says_need_not_be_true() {
        let (tcp, l4) = packet(false, PROTO_TCP, 10);
        for header in [
            header(GSO_TCP_V4, 0, l4, 0),
            header(GSO_TCP_V6, 5, l4, 0),
            header(GSO_TCP_V4, 5, 19, 0),
            header(GSO_TCP_V4, 5, tcp.len() - 1, 0),
            header(GSO_TCP_V4, 5, 65_000, 0),
            header(3, 5, l4, 0),
        ] {
            assert!(Segments::of(&header, &tcp).is_none(), "{header:?}");
        }
        assert!(Segments::of(&header(GSO_TCP_V4, 5, l4, 0), &[]).is_none());
        assert_eq!(header(GSO_NONE, 0, 65_000, 6).finish(&mut [0; 40]), None);
        assert_eq!(header(GSO_NONE, 0, 20, 65_000).finish(&mut [0; 40]), None);
    }
}
