//! What is done to inner packets beside carrying them.

use std::net::IpAddr;

use sig_common::{
    reason::DropReason,
    wire::{
        PROTO_SCTP, PROTO_TCP, PROTO_UDP,
        checksum::{Sum, ipv4_pseudo_header, ipv6_pseudo_header},
        ethernet,
        inner::InnerPacket,
        ipv4,
        ipv6::{self, UpperLayer},
        tcp, udp,
    },
};

use crate::port::umem::{Area, Frame};

const ECN_MASK: u8 = 0b11;
const ECN_NOT_ECT: u8 = 0b00;
const ECN_CE: u8 = 0b11;

/// Whether a traffic class byte says that congestion was experienced.
#[inline]
pub(super) fn is_congestion(traffic_class: u8) -> bool {
    traffic_class & ECN_MASK == ECN_CE
}

/// Passes a congestion mark of the outside on to the packet (RFC 6040 section 4.2).
///
/// # Errors
///
/// If the packet's sender does not understand such marks: then the packet must be dropped.
pub(super) fn mark_congestion(
    packet: &mut [u8],
    summary: &mut InnerPacket,
) -> Result<(), DropReason> {
    if summary.tos & ECN_MASK == ECN_NOT_ECT {
        return Err(DropReason::EcnDrop);
    }
    summary.set_tos(packet, summary.tos | ECN_CE);
    Ok(())
}

/// Writes the Ethernet header of a packet: `macs` are those of destination and source.
#[inline]
pub(super) fn write_ethernet(frame: &mut [u8], macs: &[u8; 12], packet: &InnerPacket) {
    frame[..12].copy_from_slice(macs);
    frame[12..ethernet::HEADER_LEN].copy_from_slice(&packet.ethertype().to_be_bytes());
}

/// Puts an Ethernet header in front of the packet that `frame` holds, behind room for that.
#[inline]
pub(super) fn put_ethernet(frame: &mut Frame, area: &Area, macs: &[u8; 12], packet: &InnerPacket) {
    let len = ethernet::HEADER_LEN + frame.len();
    frame.place(frame.headroom() - ethernet::HEADER_LEN, len);
    write_ethernet(frame.bytes_mut(area), macs, packet);
}

/// Computes the TCP, UDP or SCTP checksum of a packet whose sender left that to its network card.
///
/// Such a packet has the folded sum of its pseudo header in the checksum field, or 0 for SCTP. A
/// finished checksum that happens to have the same value is computed again, to the same value. What is
/// within a tunnel (VXLAN, GRE), or behind a routing header that has not reached its end, is left alone.
pub(super) fn complete_checksum(packet: &mut [u8], summary: &InnerPacket) {
    let UpperLayer::At { protocol, offset } = summary.upper() else {
        return;
    };
    let Some(segment) = packet.get_mut(offset..) else {
        return;
    };
    let field = match protocol {
        PROTO_TCP => 16,
        PROTO_UDP => 6,
        PROTO_SCTP => return complete_sctp(segment),
        _ => return,
    };
    let len = segment.len();
    let pseudo = match (summary.source, summary.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            ipv4_pseudo_header(source.octets(), destination.octets(), len as u16, protocol)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => ipv6_pseudo_header(
            &source.octets(),
            &destination.octets(),
            len as u32,
            protocol,
        ),
        _ => return,
    };
    if segment.get(field..field + 2) != Some(&pseudo.fold().to_be_bytes()) {
        return;
    }
    // The field holds the pseudo header's sum, so the sum over the segment includes it.
    let sum = Sum::of(segment);
    let checksum = match protocol {
        PROTO_UDP => udp::checksum(sum),
        _ => sum.checksum(),
    };
    segment[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// Keeps a TCP connection from agreeing on segments that do not fit a frame with `capacity` bytes of payload, if the
/// packet opens one. Returns whether its maximum segment size was lowered.
#[inline]
pub(super) fn clamp_mss(packet: &mut [u8], summary: &InnerPacket, capacity: usize) -> bool {
    let UpperLayer::At {
        protocol: PROTO_TCP,
        offset,
    } = summary.upper()
    else {
        return false;
    };
    // The size leaves out the headers without options of either protocol (RFC 6691).
    let headers = tcp::HEADER_LEN
        + match summary.source {
            IpAddr::V4(_) => ipv4::HEADER_LEN,
            IpAddr::V6(_) => ipv6::HEADER_LEN,
        };
    let limit = capacity.saturating_sub(headers).max(SMALLEST_MSS);
    match (packet.get_mut(offset..), u16::try_from(limit)) {
        (Some(segment), Ok(limit)) => tcp::clamp_mss(segment, limit),
        // Without a path the capacity is beyond all sizes.
        _ => false,
    }
}

/// Below this, segments are rather split than made smaller: what every IPv4 host takes (RFC 9293, section 3.7.1).
const SMALLEST_MSS: usize = 536;

/// Writes the checksum of an SCTP packet (RFC 9260 section 6.8 and appendix A) that has none.
fn complete_sctp(packet: &mut [u8]) {
    const FIELD: std::ops::Range<usize> = 8..12;
    if packet.get(FIELD) == Some(&[0; 4]) {
        let checksum = crc32c(packet);
        packet[FIELD].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// CRC-32C (Castagnoli), bytes and bits reflected.
fn crc32c(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut byte = 0;
        while byte < 256 {
            let mut crc = byte as u32;
            let mut bit = 0;
            while bit < 8 {
                crc = (crc >> 1) ^ ((crc & 1) * 0x82f6_3b78);
                bit += 1;
            }
            table[byte] = crc;
            byte += 1;
        }
        table
    };
    let step = |crc: u32, byte: &u8| (crc >> 8) ^ TABLE[usize::from(crc as u8 ^ byte)];
    !bytes.iter().fold(!0, step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;

    fn udp(payload: &[u8], v6: bool) -> Vec<u8> {
        let mut packet = Vec::new();
        let ip = if v6 {
            PacketBuilder::ipv6([0xfd; 16], [0xfe; 16], 64)
        } else {
            PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        };
        ip.udp(4000, 5000)
            .write(&mut packet, payload)
            .expect("a packet");
        packet
    }

    #[test]
    fn a_checksum_left_to_the_card_is_finished_and_a_finished_one_stays() {
        for v6 in [false, true] {
            for payload in [&b"even"[..], &b"odd"[..], &[]] {
                let whole = udp(payload, v6);
                let summary = InnerPacket::parse(&whole[..]).expect("valid");
                let at = usize::from(summary.header_len) + 6;
                let mut partial = whole.clone();
                partial[at..at + 2].fill(0);
                let len = partial.len() - usize::from(summary.header_len);
                let pseudo = if v6 {
                    ipv6_pseudo_header(&[0xfd; 16], &[0xfe; 16], len as u32, PROTO_UDP)
                } else {
                    ipv4_pseudo_header([10, 0, 0, 1], [10, 0, 0, 2], len as u16, PROTO_UDP)
                };
                partial[at..at + 2].copy_from_slice(&pseudo.fold().to_be_bytes());
                complete_checksum(&mut partial, &summary);
                assert_eq!(partial, whole);
                complete_checksum(&mut partial, &summary);
                assert_eq!(partial, whole);
            }
        }
    }

    #[test]
    fn a_checksum_behind_ipv6_extension_headers_is_finished() {
        let plain = udp(b"data", true);
        // Destination options that hold padding only.
        let mut whole = plain.clone();
        whole.splice(40..40, [PROTO_UDP, 0, 1, 4, 0, 0, 0, 0]);
        whole[5] += 8;
        whole[6] = 60;
        let mut partial = whole.clone();
        let pseudo = ipv6_pseudo_header(&[0xfd; 16], &[0xfe; 16], 12, PROTO_UDP);
        partial[54..56].copy_from_slice(&pseudo.fold().to_be_bytes());
        let summary = InnerPacket::parse(&partial[..]).expect("valid");
        complete_checksum(&mut partial, &summary);
        assert_eq!(partial, whole);
    }

    #[test]
    fn an_sctp_checksum_left_to_the_card_is_finished_and_a_finished_one_stays() {
        // The check value of the algorithm.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        let mut packet = udp(b"", false)[..20].to_vec();
        packet[3] = 20 + 16;
        packet[9] = PROTO_SCTP;
        packet.extend([0x13, 0x88, 0x13, 0x89, 1, 2, 3, 4, 0, 0, 0, 0, 11, 0, 0, 4]);
        let summary = InnerPacket::parse(&packet[..]).expect("valid");
        complete_checksum(&mut packet, &summary);
        let mut without = packet[20..].to_vec();
        without[8..12].fill(0);
        assert_eq!(packet[28..32], crc32c(&without).to_le_bytes());
        packet[28] ^= 1;
        let wrong = packet.clone();
        complete_checksum(&mut packet, &summary);
        assert_eq!(packet, wrong);
    }

    #[test]
    fn congestion_is_passed_on_only_to_those_who_understand_it() {
        let mut packet = udp(b"x", false);
        let mut summary = InnerPacket::parse(&packet[..]).expect("valid");
        assert_eq!(
            mark_congestion(&mut packet, &mut summary),
            Err(DropReason::EcnDrop)
        );
        summary.set_tos(&mut packet[..], 0b10);
        assert_eq!(mark_congestion(&mut packet, &mut summary), Ok(()));
        assert_eq!(InnerPacket::parse(&packet[..]), Ok(summary));
        assert!(is_congestion(summary.tos));
        let view = ipv4::View::new_checked(&packet).expect("valid");
        assert!(view.checksum_is_valid());
    }
}
