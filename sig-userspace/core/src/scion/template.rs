//! The outer headers of a path, built once and patched per frame.
//!
//! A frame on the wire is Ethernet, IPv4 or IPv6, UDP, SCION common, address and path header,
//! UDP/SCION and the SIG frame header. For one path and one stream only lengths, checksums, traffic
//! class, flow id, index and sequence differ from frame to frame, so the rest is a template, and the
//! checksums start from sums over it.

use std::net::{IpAddr, SocketAddr};

use sig_common::{
    addr::{HostAddr, IsdAs},
    wire::checksum::Sum,
};
use thiserror::Error;

/// UDP header, also UDP/SCION.
const UDP_LEN: usize = 8;
/// SIG frame header.
const SIG_LEN: usize = 16;
/// SCION common header.
const COMMON_LEN: usize = 12;
/// Protocol number of UDP, in IP and in SCION.
const UDP: u8 = 17;
/// Hop limit of the outer IP packet.
const OUTER_TTL: u8 = 64;
/// HdrLen counts in units of four bytes in one byte.
const MAX_SCION_HEADER: usize = 255 * 4;
/// Bits of a SCION flow id.
const FLOW_ID_MASK: u32 = 0x000f_ffff;

/// The two ends of the tunnel that a path belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// ISD-AS of this gateway.
    pub local_isd_as: IsdAs,
    /// Data address of this gateway: source of the outer packet and of UDP/SCION.
    pub local: SocketAddr,
    /// ISD-AS of the remote gateway.
    pub remote_isd_as: IsdAs,
    /// Data address of the remote gateway: destination of UDP/SCION.
    pub remote: SocketAddr,
}

/// Where frames on a path go first: the border router, or the remote gateway itself within an AS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// Outer destination.
    pub address: SocketAddr,
    /// MAC address of the underlay interface.
    pub source_mac: [u8; 6],
    /// MAC address of the neighbour through which `address` is reached.
    pub destination_mac: [u8; 6],
}

/// Why a path cannot have a template.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TemplateError {
    /// The outer packet would need source and destination of different IP versions.
    #[error("next hop {0} and the local data address are of different IP versions")]
    NextHopFamily(SocketAddr),
    /// The SCION header would exceed the 1020 bytes that its length field can express.
    #[error("a SCION header of {0} bytes exceeds the maximum of {MAX_SCION_HEADER}")]
    HeaderTooLong(usize),
    /// Path headers come in units of four bytes.
    #[error("a path of {0} bytes is not a multiple of four")]
    PathLength(usize),
}

/// What differs from frame to frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameFields {
    /// DSCP and ECN of the inner packets, for the outer IP header and the SCION traffic class
    /// (RFC 6040, normal mode).
    pub traffic_class: u8,
    /// Hash of the inner flow; its low 20 bits become the SCION flow id, with 1 in place of 0.
    pub flow_hash: u32,
    /// Stream id, 20 bits.
    pub stream: u32,
    /// Sequence number within the stream.
    pub sequence: u64,
    /// Offset of the first packet that starts in the frame, 0xFFFF if none does.
    pub index: u16,
}

/// The outer headers of one path.
#[derive(Clone, Debug)]
pub struct Template {
    bytes: Box<[u8]>,
    /// Offsets in `bytes`.
    ip: usize,
    scion: usize,
    l4: usize,
    sig: usize,
    ipv4: bool,
    /// Sums over what does not change, in the order the checksums need them.
    ip_sum: Sum,
    outer_sum: Sum,
    scion_pseudo_sum: Sum,
    l4_sum: Sum,
}

impl Template {
    /// The template of a path.
    ///
    /// `path_type` and `path` are the SCION path type number and the path header as it goes on the
    /// wire; an empty path (type 0) has no bytes. `session` is the SIG session id.
    ///
    /// # Errors
    ///
    /// If the headers cannot be expressed, see [`TemplateError`].
    pub fn new(
        ends: &Endpoints,
        next_hop: &NextHop,
        path_type: u8,
        path: &[u8],
        session: u8,
    ) -> Result<Self, TemplateError> {
        if !path.len().is_multiple_of(4) {
            return Err(TemplateError::PathLength(path.len()));
        }
        let mut bytes = Vec::with_capacity(256);
        bytes.extend(next_hop.destination_mac);
        bytes.extend(next_hop.source_mac);
        let (ip, ipv4) = (bytes.len() + 2, ends.local.is_ipv4());
        match (ends.local.ip(), next_hop.address.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                bytes.extend([0x08, 0x00]);
                // Version 4, five words; don't fragment: the path MTU is known.
                bytes.extend([0x45, 0, 0, 0, 0, 0, 0x40, 0, OUTER_TTL, UDP, 0, 0]);
                bytes.extend(source.octets());
                bytes.extend(destination.octets());
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                bytes.extend([0x86, 0xdd]);
                bytes.extend([0x60, 0, 0, 0, 0, 0, UDP, OUTER_TTL]);
                bytes.extend(source.octets());
                bytes.extend(destination.octets());
            }
            _ => return Err(TemplateError::NextHopFamily(next_hop.address)),
        }
        let addresses = bytes.len() - if ipv4 { 8 } else { 32 };
        let mut outer_sum = Sum::of(&bytes[addresses..]).add_u16(UDP.into());
        let udp = bytes.len();
        bytes.extend(ends.local.port().to_be_bytes());
        bytes.extend(next_hop.address.port().to_be_bytes());
        bytes.extend([0; 4]);

        let scion = bytes.len();
        let (source, destination) = (host(ends.local.ip()), host(ends.remote.ip()));
        let header_len = COMMON_LEN + 16 + destination.1.len() + source.1.len() + path.len();
        if header_len > MAX_SCION_HEADER {
            return Err(TemplateError::HeaderTooLong(header_len));
        }
        bytes.extend([0, 0, 0, 0, UDP, (header_len / 4) as u8, 0, 0, path_type]);
        bytes.extend([(destination.0 << 4) | source.0, 0, 0]);
        let address_header = bytes.len();
        bytes.extend(ends.remote_isd_as.0.to_be_bytes());
        bytes.extend(ends.local_isd_as.0.to_be_bytes());
        bytes.extend(&destination.1);
        bytes.extend(&source.1);
        let scion_pseudo_sum = Sum::of(&bytes[address_header..]).add_u16(UDP.into());
        bytes.extend(path);

        let l4 = bytes.len();
        bytes.extend(ends.local.port().to_be_bytes());
        bytes.extend(ends.remote.port().to_be_bytes());
        bytes.extend([0; 4]);
        let l4_sum = Sum::of(&bytes[l4..]);
        outer_sum = outer_sum.combine(Sum::of(&bytes[udp..l4]));
        let sig = bytes.len();
        bytes.extend([0, session]);
        bytes.extend([0; SIG_LEN - 2]);
        Ok(Template {
            ip_sum: Sum::of(&bytes[ip..ip + 20]),
            bytes: bytes.into(),
            ip,
            scion,
            l4,
            sig,
            ipv4,
            outer_sum,
            scion_pseudo_sum,
            l4_sum,
        })
    }

    /// Bytes of all headers, from Ethernet to the end of the SIG frame header.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Never: a template holds at least the fixed headers.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Bytes of inner packets that a frame can carry over a path on which SCION packets of at most
    /// `path_mtu` bytes pass, sent through an interface whose MTU is `link_mtu` bytes. Zero if not
    /// even the headers fit.
    pub fn capacity(&self, path_mtu: usize, link_mtu: usize) -> usize {
        let scion_packet = path_mtu.min(link_mtu.saturating_sub(self.scion - self.ip));
        scion_packet.saturating_sub(self.bytes.len() - self.scion)
    }

    /// Writes the headers of a frame into its first [`Template::len`] bytes; the inner packets are
    /// already in place behind them.
    ///
    /// # Panics
    ///
    /// If `frame` is shorter than the headers.
    #[inline]
    pub fn write(&self, frame: &mut [u8], fields: &FrameFields) {
        let (headers, payload) = frame.split_at_mut(self.bytes.len());
        headers.copy_from_slice(&self.bytes);

        let sig = &mut headers[self.sig..][..SIG_LEN];
        sig[2..4].copy_from_slice(&fields.index.to_be_bytes());
        sig[4..8].copy_from_slice(&fields.stream.to_be_bytes());
        sig[8..16].copy_from_slice(&fields.sequence.to_be_bytes());
        let segment_len = (UDP_LEN + SIG_LEN + payload.len()) as u16;
        let segment_sum = Sum::of(sig).combine(Sum::of(payload)).add_u16(segment_len);

        // UDP/SCION: pseudo header, then the segment. The length stands in both.
        let l4 = &mut headers[self.l4..][..UDP_LEN];
        l4[4..6].copy_from_slice(&segment_len.to_be_bytes());
        let l4_sum = self.l4_sum.combine(segment_sum);
        let checksum = self
            .scion_pseudo_sum
            .combine(l4_sum)
            .add_u16(segment_len)
            .checksum();
        l4[6..8].copy_from_slice(&checksum.to_be_bytes());

        let flow_id = match fields.flow_hash & FLOW_ID_MASK {
            0 => 1,
            id => id,
        };
        let first_word = (u32::from(fields.traffic_class) << 20) | flow_id;
        let scion = &mut headers[self.scion..][..COMMON_LEN];
        scion[..4].copy_from_slice(&first_word.to_be_bytes());
        scion[6..8].copy_from_slice(&segment_len.to_be_bytes());

        // Outer UDP covers the SCION header and the segment, whose sum is known by now.
        let outer_sum = self
            .outer_sum
            .combine(Sum::of(&first_word.to_be_bytes()))
            .add_u16(segment_len)
            .combine(l4_sum)
            .add_u16(checksum);
        self.write_outer(headers, outer_sum, segment_len, fields.traffic_class);
    }

    #[inline]
    fn write_outer(&self, headers: &mut [u8], sum: Sum, segment_len: u16, traffic_class: u8) {
        let udp_len = (UDP_LEN + self.l4 - self.scion) as u16 + segment_len;
        // The length stands in the pseudo header and in the UDP header.
        let checksum = match sum.add_u16(udp_len).add_u16(udp_len).checksum() {
            0 => 0xffff,
            checksum => checksum,
        };
        let udp = &mut headers[self.scion - UDP_LEN..self.scion];
        udp[4..6].copy_from_slice(&udp_len.to_be_bytes());
        udp[6..8].copy_from_slice(&checksum.to_be_bytes());
        let ip = &mut headers[self.ip..self.scion - UDP_LEN];
        if self.ipv4 {
            let total_len = 20 + udp_len;
            ip[1] = traffic_class;
            ip[2..4].copy_from_slice(&total_len.to_be_bytes());
            let checksum = self
                .ip_sum
                .add_u16(total_len)
                .add_u16(traffic_class.into())
                .checksum();
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        } else {
            ip[0] = 0x60 | (traffic_class >> 4);
            ip[1] = traffic_class << 4;
            ip[4..6].copy_from_slice(&udp_len.to_be_bytes());
        }
    }
}

/// Type/length code and bytes of a host address in the SCION address header; IPv4-mapped IPv6
/// addresses are written as IPv4.
fn host(address: IpAddr) -> (u8, Vec<u8>) {
    match HostAddr::from(address.to_canonical()) {
        HostAddr::V4(octets) => (0, octets.to_vec()),
        HostAddr::V6(octets) => (3, octets.to_vec()),
        HostAddr::Svc(number) => (4, [number.to_be_bytes(), [0; 2]].concat()),
    }
}

#[cfg(test)]
mod tests {
    use sig_common::wire::underlay::{self, Local};

    use super::*;

    const PATH: &str = "0000200001001234660000\
                        00003f00000001010203040506003f000200000708090a0b0c";

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
        digits
            .chunks(2)
            .map(|pair| (pair[0] << 4 | pair[1]) as u8)
            .collect()
    }

    fn ends(local: &str, remote: &str) -> Endpoints {
        Endpoints {
            local_isd_as: "1-ff00:0:110".parse().expect("an ISD-AS"),
            local: local.parse().expect("an address"),
            remote_isd_as: "1-ff00:0:111".parse().expect("an ISD-AS"),
            remote: remote.parse().expect("an address"),
        }
    }

    fn next_hop(address: &str) -> NextHop {
        NextHop {
            address: address.parse().expect("an address"),
            source_mac: [2, 0, 0, 0, 0, 1],
            destination_mac: [2, 0, 0, 0, 0, 2],
        }
    }

    const FIELDS: FrameFields = FrameFields {
        traffic_class: 0,
        flow_hash: 1,
        stream: 2,
        sequence: 0,
        index: 0,
    };

    fn frame(template: &Template, payload: &[u8], fields: &FrameFields) -> Vec<u8> {
        let mut frame = vec![0xaa; template.len()];
        frame.extend(payload);
        template.write(&mut frame, fields);
        frame
    }

    /// The reference's serialisation of a data frame, from the SCION header on.
    #[test]
    fn a_frame_over_ipv4_hosts_is_byte_for_byte_that_of_the_reference() {
        let ends = ends("10.0.0.1:32000", "10.0.0.2:30056");
        let template = Template::new(&ends, &next_hop("10.0.0.9:30042"), 1, &hex(PATH), 1)
            .expect("a template");
        let payload = hex("4000001700000000000000000000000000000000010203");
        let expected = hex("000000011112002f010000000001ff00000001110001ff0000000110\
             0a0000020a000001000020000100123466000000003f00000001010203040506\
             003f000200000708090a0b0c7d007568002fb4e300010000000000020000000000000000\
             4000001700000000000000000000000000000000010203");
        assert_eq!(frame(&template, &payload, &FIELDS)[42..], expected);
    }

    #[test]
    fn a_frame_over_ipv6_hosts_is_byte_for_byte_that_of_the_reference() {
        let ends = ends("[fd00::1]:32000", "[fd00::2]:30056");
        let template = Template::new(&ends, &next_hop("[fd00::9]:30042"), 1, &hex(PATH), 1)
            .expect("a template");
        let payload = hex("4000001700000000000000000000000000000000010203");
        let bytes = frame(&template, &payload, &FIELDS);
        let l4 = 14 + 48 + 12 + 48 + 36;
        assert_eq!(bytes[62..74], hex("000000011118002f01330000"));
        assert_eq!(bytes[l4..l4 + 8], hex("7d007568002fcee1"));
    }

    #[test]
    fn outer_checksums_are_right_whatever_varies() {
        for (local, remote, hop) in [
            ("10.0.0.1:30056", "10.0.0.2:30056", "10.0.0.9:30042"),
            ("[fd00::1]:30056", "[fd00::2]:30056", "[fd00::9]:30042"),
        ] {
            let template = Template::new(&ends(local, remote), &next_hop(hop), 1, &hex(PATH), 7)
                .expect("a template");
            for length in [0usize, 1, 20, 63, 64, 1376] {
                for seed in 0..64u32 {
                    let payload: Vec<u8> = (0..length)
                        .map(|n| (n as u32 * 31 + seed * 7) as u8)
                        .collect();
                    let fields = FrameFields {
                        traffic_class: (seed * 37) as u8,
                        flow_hash: seed.wrapping_mul(0x9e37_79b9),
                        stream: seed * 8191,
                        sequence: u64::from(seed) << 33,
                        index: if length == 0 {
                            0xffff
                        } else {
                            (seed % 60) as u16
                        },
                    };
                    let bytes = frame(&template, &payload, &fields);
                    check_with_etherparse(&bytes, fields.traffic_class);
                    let local = Local::new(
                        "1-ff00:0:111".parse().expect("an ISD-AS"),
                        remote.parse::<SocketAddr>().expect("an address").ip(),
                        30056,
                        false,
                    );
                    check_with_our_parser(&deliver(&bytes, remote), &local, &payload, &fields);
                }
            }
        }
    }

    /// What the last border router does: the outer destination becomes the remote gateway.
    fn deliver(bytes: &[u8], remote: &str) -> Vec<u8> {
        let remote: SocketAddr = remote.parse().expect("an address");
        let mut bytes = bytes.to_vec();
        let udp = match remote.ip() {
            IpAddr::V4(v4) => {
                bytes[30..34].copy_from_slice(&v4.octets());
                34
            }
            IpAddr::V6(v6) => {
                bytes[38..54].copy_from_slice(&v6.octets());
                54
            }
        };
        bytes[udp + 2..udp + 4].copy_from_slice(&remote.port().to_be_bytes());
        bytes
    }

    fn check_with_etherparse(bytes: &[u8], traffic_class: u8) {
        use etherparse::{NetSlice, SlicedPacket, TransportSlice};
        let packet = SlicedPacket::from_ethernet(bytes).expect("a packet");
        let Some(TransportSlice::Udp(udp)) = packet.transport else {
            panic!("UDP")
        };
        let header = udp.to_header();
        let checksum = match packet.net.expect("an IP header") {
            NetSlice::Ipv4(ip) => {
                let ip = ip.header().to_header();
                assert_eq!(ip.header_checksum, ip.calc_header_checksum());
                assert_eq!(ip.dscp.value() << 2 | ip.ecn.value(), traffic_class);
                header.calc_checksum_ipv4(&ip, udp.payload())
            }
            NetSlice::Ipv6(ip) => {
                let ip = ip.header().to_header();
                assert_eq!(ip.traffic_class, traffic_class);
                header.calc_checksum_ipv6(&ip, udp.payload())
            }
            NetSlice::Arp(_) => panic!("IP"),
        };
        assert_eq!(header.checksum, checksum.expect("a checksum"));
    }

    fn check_with_our_parser(bytes: &[u8], local: &Local, payload: &[u8], fields: &FrameFields) {
        let parsed = underlay::parse(bytes, local)
            .expect("well-formed")
            .expect("for us");
        assert!(parsed.checksum_is_valid(bytes));
        assert_eq!(parsed.traffic_class, fields.traffic_class);
        assert_eq!(parsed.header.sequence, fields.sequence);
        assert_eq!(parsed.header.stream, fields.stream);
        assert_eq!(parsed.header.index, fields.index);
        assert_eq!(parsed.header.session, 7);
        assert_eq!(&bytes[parsed.payload()], payload);
    }

    #[test]
    fn the_flow_id_is_never_zero() {
        let template = Template::new(
            &ends("10.0.0.1:30056", "10.0.0.2:30056"),
            &next_hop("10.0.0.9:30042"),
            1,
            &hex(PATH),
            0,
        )
        .expect("a template");
        let fields = FrameFields {
            flow_hash: 0x5550_0000,
            ..FIELDS
        };
        assert_eq!(frame(&template, &[0; 20], &fields)[42..46], [0, 0, 0, 1]);
    }

    #[test]
    fn the_capacity_is_what_path_and_link_leave() {
        let template = Template::new(
            &ends("10.0.0.1:30056", "10.0.0.2:30056"),
            &next_hop("10.0.0.9:30042"),
            1,
            &hex(PATH),
            0,
        )
        .expect("a template");
        // 1472 less 72 bytes of SCION header, 8 of UDP/SCION and 16 of the SIG frame header.
        assert_eq!(template.capacity(1472, 1500), 1376);
        assert_eq!(template.capacity(9000, 1500), 1376);
        assert_eq!(template.capacity(1280, 1500), 1184);
        assert_eq!(template.capacity(50, 1500), 0);
    }
}
