//! Numbered packets of many flows. All bytes of one follow from its label.

use std::net::IpAddr;

use etherparse::PacketBuilder;
use sig_common::wire::checksum::Sum;
use sig_common::wire::{ethernet, inner::InnerPacket};
use testbed::{Family, Site};

/// Smallest and largest packet, bytes; headers and label need a bit more than that in TCP over IPv6.
const SIZES: [usize; 2] = [64, 1500];
const MAGIC: u32 = 0x6f72_6465;
const TTL: u8 = 64;
const FIRST_PORT: u16 = 20_000;
const PORT: u16 = 9_000;

/// What a packet is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Label {
    pub(crate) round: u16,
    pub(crate) flow: u16,
    /// Counts the packets of a flow in a round from 0.
    pub(crate) number: u32,
}

/// Bytes of a label in a packet.
const LABEL_LEN: usize = 12;

impl Label {
    fn bytes(self) -> [u8; LABEL_LEN] {
        let words = [
            MAGIC,
            u32::from(self.round) << 16 | u32::from(self.flow),
            self.number,
        ];
        let mut bytes = [0; LABEL_LEN];
        for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }

    /// The label in an IP packet, if it has one.
    pub(crate) fn of(packet: &[u8]) -> Option<Self> {
        let inner = InnerPacket::parse(packet).ok()?;
        let transport = match inner.protocol {
            6 => 20,
            17 => 8,
            _ => return None,
        };
        let label = packet.get(usize::from(inner.header_len) + transport..)?;
        let (words, _) = label.first_chunk::<LABEL_LEN>()?.as_chunks::<4>();
        let [magic, flow, number] = [0, 1, 2].map(|at| u32::from_be_bytes(words[at]));
        (magic == MAGIC).then_some(Self {
            round: (flow >> 16) as u16,
            flow: flow as u16,
            number,
        })
    }

    fn seed(self) -> u64 {
        u64::from(self.round) << 48 | u64::from(self.flow) << 32 | u64::from(self.number)
    }

    pub(crate) fn family(self) -> Family {
        Family::ALL[usize::from(self.flow % 2)]
    }

    pub(crate) fn is_tcp(self) -> bool {
        self.flow / 2 % 2 == 1
    }
}

/// Splitmix64: a number that has nothing in common with that of the next seed.
fn scatter(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Appends bytes that follow from `seed`, up to a length of `len`.
pub(crate) fn fill(bytes: &mut Vec<u8>, seed: u64, len: usize) {
    let mut state = scatter(seed);
    while bytes.len() < len {
        state = scatter(state);
        let word = state.to_le_bytes();
        bytes.extend_from_slice(&word[..word.len().min(len - bytes.len())]);
    }
}

/// A packet that arrived: its label, or the bytes of one that was not sent like that.
pub(crate) type Arrival = Result<Label, Vec<u8>>;

/// From the client of one site to an address of the other, at which nobody answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) source_mac: [u8; 6],
    pub(crate) gateway_mac: [u8; 6],
    /// By family.
    pub(crate) sources: [IpAddr; 2],
    pub(crate) sinks: [IpAddr; 2],
}

impl Way {
    pub(crate) fn new(from: &Site, to: &Site) -> Self {
        Self {
            source_mac: from.client_mac(),
            gateway_mac: from.gateway_mac(),
            sources: Family::ALL.map(|family| from.client_ip(family)),
            sinks: sinks(to),
        }
    }

    /// The Ethernet frame that the client sends.
    pub(crate) fn frame(&self, label: Label) -> Vec<u8> {
        let family = usize::from(label.flow % 2);
        let ethernet = PacketBuilder::ethernet2(self.source_mac, self.gateway_mac);
        let ip = match (self.sources[family], self.sinks[family]) {
            (IpAddr::V4(source), IpAddr::V4(sink)) => {
                ethernet.ipv4(source.octets(), sink.octets(), TTL)
            }
            (IpAddr::V6(source), IpAddr::V6(sink)) => {
                ethernet.ipv6(source.octets(), sink.octets(), TTL)
            }
            _ => unreachable!("both addresses are of one family"),
        };
        let port = FIRST_PORT + label.flow;
        let random = scatter(label.seed()) as usize;
        // Many small ones, many large ones that need two frames, and some of each size between.
        let size = match random % 4 {
            0 | 1 => SIZES[0] + random / 4 % 100,
            2 => SIZES[1] - random / 4 % 100,
            _ => SIZES[0] + random / 4 % (SIZES[1] - SIZES[0] + 1),
        };
        let headers = match label.family() {
            Family::V4 => 20,
            Family::V6 => 40,
        };
        let mut payload = label.bytes().to_vec();
        let mut frame = Vec::with_capacity(ethernet::HEADER_LEN + SIZES[1]);
        let written = if label.is_tcp() {
            fill(
                &mut payload,
                label.seed(),
                size.saturating_sub(headers + 20),
            );
            // Never where the segment before ended: segments that continue each other may be merged on receipt.
            let sequence = label.number << 16;
            let step = ip.tcp(port, PORT, sequence, u16::MAX).ack(1);
            step.write(&mut frame, &payload)
        } else {
            fill(&mut payload, label.seed(), size.saturating_sub(headers + 8));
            ip.udp(port, PORT).write(&mut frame, &payload)
        };
        written.expect("a packet with room for its payload");
        frame
    }

    /// What a frame that reached the other client holds; nothing if it is for another address.
    pub(crate) fn arrival(&self, frame: &[u8]) -> Option<Arrival> {
        let packet = frame.get(ethernet::HEADER_LEN..)?;
        let inner = InnerPacket::parse(packet).ok()?;
        if !self.sinks.contains(&inner.destination) {
            return None;
        }
        let unchanged = |label: &Label| {
            let sent = self.frame(*label);
            without_ttl(packet) == without_ttl(&sent[ethernet::HEADER_LEN..])
        };
        let whole = packet[0] >> 4 == 6 || Sum::of(&packet[..20]).is_valid();
        let label = Label::of(packet).filter(|label| whole && unchanged(label));
        Some(label.ok_or_else(|| packet.to_vec()))
    }
}

/// A packet without what routers change.
fn without_ttl(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    if packet[0] >> 4 == 4 {
        packet[8] = 0;
        packet[10..12].fill(0);
    } else {
        packet[7] = 0;
    }
    packet
}

/// Addresses in the LAN of a site that no host has.
pub(crate) fn sinks(site: &Site) -> [IpAddr; 2] {
    Family::ALL.map(|family| match site.client_ip(family) {
        IpAddr::V4(ip) => {
            let [a, b, c, _] = ip.octets();
            [a, b, c, 77].into()
        }
        IpAddr::V6(ip) => {
            let mut segments = ip.segments();
            segments[7] = 0x77;
            segments.into()
        }
    })
}

#[test]
fn what_differs_in_one_byte_is_damaged() {
    let ip = |n: u8| {
        [
            [10, 0, 0, n].into(),
            [0xfd00, 0, 0, 0, 0, 0, 0, u16::from(n)].into(),
        ]
    };
    let way = Way {
        source_mac: [2; 6],
        gateway_mac: [4; 6],
        sources: ip(1),
        sinks: ip(2),
    };
    for number in 0..64 {
        let label = Label {
            round: 3,
            flow: number as u16,
            number,
        };
        let frame = way.frame(label);
        let size = frame.len() - ethernet::HEADER_LEN;
        assert!((64..=1500).contains(&size), "{size}");
        assert_eq!(way.arrival(&frame), Some(Ok(label)));
        for at in [1, 22, size - 1] {
            let mut frame = frame.clone();
            frame[ethernet::HEADER_LEN + at] ^= 1;
            let arrival = way.arrival(&frame);
            assert!(matches!(arrival, Some(Err(_))), "{at}: {arrival:?}");
        }
        let arrival = way.arrival(&[&frame[..], &[0]].concat());
        assert!(matches!(arrival, Some(Err(_))), "{arrival:?}");
    }
}
