//! Why a packet was not forwarded by the fast path, or not at all.
//!
//! One numbering for XDP programs, slow path, status and metrics. Numbers are not stable between versions; names are.

use crate::reason::reasons;

/// What the fast path does with a packet that it does not forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Disposition {
    /// Goes up the stack unchanged, within the rate limit of its reason.
    Slow,
    /// Is thrown away.
    Drop,
}

/// Declares the reasons together with what the fast path does.
macro_rules! disposed {
    ($($variant:ident, $name:literal, $disposition:ident, $description:literal;)+) => {
        reasons! {
            /// Why a packet was not forwarded by the fast path, or not at all.
            Reason:
            $($variant, $name, $description;)+
        }

        impl Reason {
            /// What the fast path does with such a packet.
            #[inline(always)]
            #[must_use]
            pub const fn disposition(self) -> Disposition {
                match self {
                    $(Self::$variant => Disposition::$disposition,)+
                }
            }
        }
    };
}

disposed! {
    // What the fast path leaves to the slow path because it is rare or needs more than forwarding.
    Bfd, "bfd", Slow,
        "A BFD packet from a neighbour or sibling.";
    OneHop, "one_hop", Slow,
        "A one-hop path, as used by beacons between neighbouring ASes.";
    EmptyPath, "empty_path", Slow,
        "An empty path: traffic within the AS.";
    Epic, "epic", Slow,
        "An EPIC path.";
    IngressAlert, "ingress_alert", Slow,
        "The router alert flag is set for the ingress interface.";
    EgressAlert, "egress_alert", Slow,
        "The router alert flag is set for the egress interface.";
    Service, "service", Slow,
        "The destination is a service of the AS.";
    Local, "local", Slow,
        "The destination is the router's own internal address: an echo request, or a program on this host.";
    NoNeighbour, "no_neighbour", Slow,
        "The link-layer address of the next hop or host is not known yet.";
    NoFastWay, "no_fast_way", Slow,
        "The fast path cannot send the packet: its destination is another address of this host, forwarding is disabled, or XDP programs cannot send through the outgoing device.";
    FamilyChange, "family_change", Slow,
        "The underlay changes between IPv4 and IPv6 in a way that needs a new checksum.";
    OpenChecksum, "open_checksum", Slow,
        "The sender left the UDP checksum to an offload that did not fill it in (CHECKSUM_PARTIAL).";
    TooBig, "too_big", Slow,
        "The packet exceeds the MTU of the egress link: it is fragmented or answered with an SCMP error.";
    Stun, "stun", Slow,
        "A STUN request from a host to the internal address.";

    // What is answered with an SCMP error.
    Version, "version", Slow,
        "The packet is not SCION version 0.";
    HeaderLength, "header_length", Slow,
        "The SCION header length does not match the addresses or the datagram size.";
    AddressType, "address_type", Slow,
        "A host address has an unknown type or length.";
    PathType, "path_type", Slow,
        "The path type is unknown.";
    PayloadLength, "payload_length", Slow,
        "The SCION payload length does not match the datagram size.";
    Expired, "expired", Slow,
        "The hop field has expired.";
    IngressInterface, "ingress_interface", Slow,
        "The hop field does not match the ingress interface.";
    SourceAddress, "source_address", Slow,
        "The source ISD-AS or host does not match where the packet came from.";
    DestinationAddress, "destination_address", Slow,
        "The destination ISD-AS or host does not match where the path ends.";
    InvalidMac, "invalid_mac", Slow,
        "The MAC of the hop field is wrong: this AS did not sign it.";
    EgressInterface, "egress_interface", Slow,
        "The hop field names an egress interface that this router does not have.";
    PathForbidden, "path_forbidden", Slow,
        "Traffic may not cross between these link types within a segment.";
    SegmentChange, "segment_change", Slow,
        "Segments may not be joined at links of these types.";
    LinkDown, "link_down", Slow,
        "The egress link is down.";
    NoService, "no_service", Slow,
        "The AS has no such service.";

    // What is thrown away.
    WrongPeer, "wrong_peer", Drop,
        "The packet was sent to the address of a link, but not from its remote end.";
    WrongDevice, "wrong_device", Drop,
        "The packet was sent to an address of the router, but arrived on a device or VLAN that does not have it.";
    NoChecksum, "no_checksum", Drop,
        "A UDP datagram over IPv6 without a checksum.";
    MalformedPath, "malformed_path", Drop,
        "The path has inconsistent segment lengths, pointers or size.";
    OneHopSegment, "one_hop_segment", Drop,
        "A segment has a single hop field and no peering link.";
    MalformedPeering, "malformed_peering", Drop,
        "The peering flag is set on a path that does not have two segments.";
    TransitSource, "transit_source", Drop,
        "A transit packet came from inside the AS, but not from the router where it entered.";
    PathEnds, "path_ends", Drop,
        "The path ends before the destination.";
    NoHost, "no_host", Drop,
        "The kernel has no route to the host, or one that rejects packets.";
    DeepExtensions, "deep_extensions", Drop,
        "There are more extension headers than one hop-by-hop and one end-to-end, or they are in the wrong order.";
    NoPort, "no_port", Drop,
        "No host port could be found for an SCMP message.";
    RateLimited, "rate_limited", Drop,
        "Rate limit of the slow path for this reason exceeded.";
    AnswersError, "answers_error", Drop,
        "An answer was due, but the packet is itself an SCMP error or cannot be answered.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_numbered_in_the_order_of_all() {
        for (number, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, number);
        }
    }
}
