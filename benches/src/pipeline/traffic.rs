//! Inner packets.

use std::fmt;

use sig_common::wire::{
    PROTO_UDP,
    checksum::{Sum, ipv4_pseudo_header, ipv6_pseudo_header},
    ipv4, ipv6,
};

/// Lengths of inner IP packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// All of this many bytes, IP header included.
    Fixed(usize),
    /// The simple Internet mix: of twelve packets seven of 40, four of 576 and one of 1500 bytes.
    Mix,
}

/// The lengths that every benchmark runs over.
pub const SIZES: [Sizes; 6] = [
    Sizes::Fixed(64),
    Sizes::Fixed(100),
    Sizes::Fixed(512),
    Sizes::Fixed(1300),
    Sizes::Fixed(1500),
    Sizes::Mix,
];

/// The twelve packets of the mix, interleaved.
const MIX: [usize; 12] = [40, 576, 40, 40, 576, 40, 1500, 576, 40, 40, 576, 40];

impl Sizes {
    /// Length of packet number `n`.
    #[must_use]
    pub fn of(self, n: usize) -> usize {
        match self {
            Sizes::Fixed(len) => len,
            Sizes::Mix => MIX[n % MIX.len()],
        }
    }

    /// The longest.
    #[must_use]
    pub fn longest(self) -> usize {
        match self {
            Sizes::Fixed(len) => len,
            Sizes::Mix => 1500,
        }
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sizes::Fixed(len) => write!(f, "{len} B"),
            Sizes::Mix => f.write_str("IMIX"),
        }
    }
}

/// Version of the inner packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// IPv4, from 10.1.0.0/16 to 10.2.0.0/16.
    V4,
    /// IPv6, from fd00:1::/32 to fd00:2::/32.
    V6,
}

/// Traffic to be carried.
#[derive(Clone, Copy, Debug)]
pub struct Traffic {
    /// Version of the packets.
    pub version: Version,
    /// Their lengths.
    pub sizes: Sizes,
    /// Flows that take turns; each has addresses and ports of its own.
    pub flows: usize,
    /// Packets belong in turn to one and another traffic class, so that no two share a frame.
    pub alternate_classes: bool,
}

impl Traffic {
    /// UDP packets with correct checksums.
    #[must_use]
    pub fn packets(&self, count: usize) -> Vec<Vec<u8>> {
        (0..count)
            .map(|n| {
                let flow = (n % self.flows) as u16;
                let class = if self.alternate_classes && n % 2 == 1 {
                    0x28
                } else {
                    0
                };
                packet(self.version, self.sizes.of(n), flow, class)
            })
            .collect()
    }
}

fn packet(version: Version, len: usize, flow: u16, class: u8) -> Vec<u8> {
    let mut packet = vec![0; len];
    let [high, low] = flow.to_be_bytes();
    let (source, destination) = ([10, 1, high, low], [10, 2, low, high]);
    let wide = |[_, site, a, b]: [u8; 4]| [0xfd, 0, 0, site, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, a, b];
    let (header_len, pseudo) = match version {
        Version::V4 => {
            let header = ipv4::Header {
                tos: class,
                total_len: len as u16,
                identification: flow,
                dont_fragment: true,
                ttl: 64,
                protocol: PROTO_UDP,
                source,
                destination,
            };
            let header_len = header.emit(&mut packet).expect("room for IPv4");
            let udp_len = (len - header_len) as u16;
            let pseudo = ipv4_pseudo_header(source, destination, udp_len, PROTO_UDP);
            (header_len, pseudo)
        }
        Version::V6 => {
            let (source, destination) = (wide(source), wide(destination));
            let payload_len = (len - ipv6::HEADER_LEN) as u16;
            let header = ipv6::Header {
                traffic_class: class,
                flow_label: flow.into(),
                payload_len,
                next_header: PROTO_UDP,
                hop_limit: 64,
                source,
                destination,
            };
            let header_len = header.emit(&mut packet).expect("room for IPv6");
            let pseudo = ipv6_pseudo_header(&source, &destination, payload_len.into(), PROTO_UDP);
            (header_len, pseudo)
        }
    };
    let udp = &mut packet[header_len..];
    let udp_len = udp.len() as u16;
    udp[..2].copy_from_slice(&(0x8000 | flow).to_be_bytes());
    udp[2..4].copy_from_slice(&5001u16.to_be_bytes());
    udp[4..6].copy_from_slice(&udp_len.to_be_bytes());
    for (n, byte) in udp[8..].iter_mut().enumerate() {
        *byte = (n * 31 + usize::from(flow)) as u8;
    }
    let checksum = pseudo.combine(Sum::of(udp)).checksum();
    udp[6..8].copy_from_slice(&checksum.to_be_bytes());
    packet
}

/// Bytes of all packets.
#[must_use]
pub fn bytes(packets: &[Vec<u8>]) -> u64 {
    packets.iter().map(|packet| packet.len() as u64).sum()
}
