//! A checked summary of an inner packet: what routing, policing and framing ask of it.

use core::net::IpAddr;

use super::ipv6::UpperLayer;
use super::{Error, ipv4, ipv6};

/// Source MAC address of a decapsulated packet on its way through the tunnel device which must not
/// come back into the tunnel, for there its way leads to the remote that sent it. No device has it.
pub const BACK_TO_SENDER: [u8; 6] = [0x02, 0, 0, 0, 0, 0];

/// What the data plane needs to know of an IPv4 or IPv6 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InnerPacket {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Bytes of the whole packet; never more than there were.
    pub total_len: u16,
    /// Bytes of the IPv4 header with options, or of the IPv6 header without extension headers.
    pub header_len: u8,
    /// Type of service or traffic class: DSCP and ECN.
    pub tos: u8,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// Protocol of IPv4, or next header of the IPv6 header (perhaps an extension header).
    pub protocol: u8,
    /// Whether this is a fragment (IPv6: as far as extension headers are followed).
    pub is_fragment: bool,
}

impl InnerPacket {
    /// Checks that `packet` starts with an IPv4 or IPv6 packet that is there in full.
    ///
    /// Bytes beyond it (Ethernet padding) are ignored: see [`InnerPacket::total_len`]. The IPv4
    /// header checksum is not verified: see [`ipv4::View::checksum_is_valid`].
    ///
    /// # Errors
    /// Those of [`ipv4::View::new_checked`] and [`ipv6::View::new_checked`]; [`Error::Version`] for
    /// other versions; [`Error::Length`] for an IPv6 packet above 65 535 bytes, which the gateway
    /// does not carry.
    #[inline]
    pub fn parse(packet: &[u8]) -> Result<Self, Error> {
        match packet.first().ok_or(Error::Truncated)? >> 4 {
            4 => {
                let view = ipv4::View::new_checked(packet)?;
                Ok(Self {
                    source: IpAddr::V4(view.source().into()),
                    destination: IpAddr::V4(view.destination().into()),
                    total_len: view.total_len(),
                    header_len: view.header_len() as u8,
                    tos: view.tos(),
                    ttl: view.ttl(),
                    protocol: view.protocol(),
                    is_fragment: view.is_fragment(),
                })
            }
            6 => {
                let view = ipv6::View::new_checked(packet)?;
                let total_len = view
                    .payload_len()
                    .checked_add(ipv6::HEADER_LEN as u16)
                    .ok_or(Error::Length)?;
                Ok(Self {
                    source: IpAddr::V6(view.source().into()),
                    destination: IpAddr::V6(view.destination().into()),
                    total_len,
                    header_len: ipv6::HEADER_LEN as u8,
                    tos: view.traffic_class(),
                    ttl: view.hop_limit(),
                    protocol: view.next_header(),
                    is_fragment: view.upper_layer() == UpperLayer::Fragment,
                })
            }
            _ => Err(Error::Version),
        }
    }

    /// 4 or 6.
    #[inline]
    #[must_use]
    pub const fn version(&self) -> u8 {
        match self.source {
            IpAddr::V4(_) => 4,
            IpAddr::V6(_) => 6,
        }
    }
}

/// Takes one from TTL or hop limit of the IP packet, keeping the IPv4 checksum right. `false`, and
/// nothing is changed, if it is 0 or 1, or if this is no IP packet.
#[inline]
#[must_use]
pub fn decrement_ttl(packet: &mut [u8]) -> bool {
    match packet.first().map(|first| first >> 4) {
        Some(4) => ipv4::Patch::new_checked(packet).is_ok_and(|mut p| p.decrement_ttl()),
        Some(6) => ipv6::Patch::new_checked(packet).is_ok_and(|mut p| p.decrement_hop_limit()),
        _ => false,
    }
}

/// Sets type of service or traffic class of the IP packet, keeping the IPv4 checksum right. Bytes
/// that are no IP packet are left as they are.
#[inline]
pub fn set_tos(packet: &mut [u8], tos: u8) {
    match packet.first().map(|first| first >> 4) {
        Some(4) => {
            if let Ok(mut patch) = ipv4::Patch::new_checked(packet) {
                patch.set_tos(tos);
            }
        }
        Some(6) => {
            if let Ok(mut patch) = ipv6::Patch::new_checked(packet) {
                patch.set_traffic_class(tos);
            }
        }
        _ => {}
    }
}
