//! What generators send and sinks look for.

use std::net::IpAddr;

use sig_common::wire::scion::address::AddressHeader;
use sig_core::scion::{Endpoints, NextHop};

use crate::throughput::experiment::Size;

/// UDP packets, straight in Ethernet frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpLoad {
    /// Source of the Ethernet frames.
    pub source_mac: [u8; 6],
    /// Destination of the Ethernet frames.
    pub destination_mac: [u8; 6],
    /// Source of the IP packets; of the same family as the destination.
    pub source: IpAddr,
    /// Destination of the IP packets.
    pub destination: IpAddr,
    /// Lengths of the IP packets: at least 44 bytes, over IPv6 64.
    pub size: Size,
    /// Flows that take turns: UDP source ports.
    pub flows: u16,
    /// Neighbouring packets differ in their DSCP, so that they never share a SIG frame.
    pub alternate_class: bool,
}

/// What a generator sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Load {
    /// IP packets.
    Ip(IpLoad),
    /// IP packets behind an IPv6 header and what follows it.
    Behind {
        /// The packets.
        inner: IpLoad,
        /// The headers; the payload length of the first is filled in.
        headers: Vec<u8>,
    },
    /// SIG frames that hold IP packets.
    SigFrames {
        /// The packets; MAC addresses are not used.
        inner: IpLoad,
        /// The headers around them.
        outer: Outer,
        /// Inner packets per frame, at most 40, and as many as fit.
        per_frame: u16,
    },
    /// SCION packets.
    Scion(ScionLoad),
}

/// UDP/SCION packets, as they arrive at a border router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScionLoad {
    /// The packets of the underlay, all of one length. Flows differ in their UDP/SCION source ports, and, up to
    /// 16 of them, in their flow ids.
    pub underlay: IpLoad,
    /// UDP source and destination port in the underlay.
    pub ports: [u16; 2],
    /// SCION addresses.
    pub addresses: AddressHeader,
    /// SCION path, as it arrives.
    pub path: Vec<u8>,
}

/// Headers of generated SIG frames, as they arrive at the receiving gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outer {
    /// `local` is the gateway that the frames are from, `remote` the one that they are for.
    pub endpoints: Endpoints,
    /// MAC addresses, and the underlay address the frames are sent to: that of the receiving gateway.
    pub next_hop: NextHop,
    /// SCION path type.
    pub path_type: u8,
    /// SCION path, as it arrives.
    pub path: Vec<u8>,
    /// SIG session.
    pub session: u8,
    /// SIG stream.
    pub stream: u32,
}

/// What a sink looks for; packets that are something else go to the kernel, uncounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Generated IP packets.
    Ip {
        /// Offset of their IP header: 14 in plain frames, 64 behind VXLAN over IPv4.
        at: u16,
    },
    /// Generated IP packets with something between their IP and UDP headers.
    Udp {
        /// Offset of the UDP header.
        at: u16,
    },
    /// SIG frames that hold generated IP packets.
    SigFrames {
        /// Length of every inner packet, bytes: packets are counted by payload bytes, whatever frames
        /// they lie in. 0: lengths differ, packets are counted by their headers.
        packet_len: u16,
    },
    /// Generated SCION packets whose path header starts with these bytes.
    Scion {
        /// Offset of the UDP/SCION header.
        at: u16,
        /// Offset of the path header.
        path_at: u16,
        /// Where the packet is, and the segment identifier of the first segment.
        path: [u8; 8],
    },
}
