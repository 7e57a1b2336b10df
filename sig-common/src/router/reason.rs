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
        "A BFD packet of a neighbour or sibling.";
    OneHop, "one_hop", Slow,
        "A one-hop path, as beacons between neighbouring ASes have.";
    EmptyPath, "empty_path", Slow,
        "An empty path: traffic within the AS.";
    Epic, "epic", Slow,
        "An EPIC path.";
    IngressAlert, "ingress_alert", Slow,
        "The router alert flag is set for the interface by which the packet came in.";
    EgressAlert, "egress_alert", Slow,
        "The router alert flag is set for the interface by which the packet is to leave.";
    Service, "service", Slow,
        "The destination is a service of the AS.";
    Local, "local", Slow,
        "The destination is the router's own internal address: an echo request, or a program on this host.";
    NoNeighbour, "no_neighbour", Slow,
        "The link-layer address of the next hop or host is not known yet.";
    NoFastWay, "no_fast_way", Slow,
        "The kernel does not let the packet leave directly: another local address, no forwarding, or a device of others.";
    FamilyChange, "family_change", Slow,
        "The packet changes between IPv4 and IPv6 in a way that needs a new checksum.";
    OpenChecksum, "open_checksum", Slow,
        "The sender left the UDP checksum to a device that did not fill it in (CHECKSUM_PARTIAL).";
    TooBig, "too_big", Slow,
        "The packet is larger than the MTU of the link that it is to leave by: it leaves in IP fragments, or is answered.";
    Stun, "stun", Slow,
        "A STUN request of a host to the internal address.";

    // What is answered with an SCMP error.
    Version, "version", Slow,
        "The packet is not SCION version 0.";
    HeaderLength, "header_length", Slow,
        "The SCION header length contradicts the addresses or the size of the datagram.";
    AddressType, "address_type", Slow,
        "A host address has an unknown type or length.";
    PathType, "path_type", Slow,
        "The path type is unknown.";
    PayloadLength, "payload_length", Slow,
        "The SCION payload length contradicts the size of the datagram.";
    Expired, "expired", Slow,
        "The hop field has expired.";
    IngressInterface, "ingress_interface", Slow,
        "The hop field is not for the interface by which the packet came in.";
    SourceAddress, "source_address", Slow,
        "The source ISD-AS or host cannot be where the packet came from.";
    DestinationAddress, "destination_address", Slow,
        "The destination ISD-AS or host cannot be where the path leads.";
    InvalidMac, "invalid_mac", Slow,
        "The hop field was not made by this AS.";
    EgressInterface, "egress_interface", Slow,
        "The hop field names an interface that this router does not send through.";
    PathForbidden, "path_forbidden", Slow,
        "Traffic may not go from this kind of link to that kind within a segment.";
    SegmentChange, "segment_change", Slow,
        "Segments may not be joined at links of these kinds.";
    LinkDown, "link_down", Slow,
        "The link by which the packet is to leave is down.";
    NoService, "no_service", Slow,
        "The AS has no such service.";

    // What is thrown away.
    WrongPeer, "wrong_peer", Drop,
        "The packet came to the address of a link, but not from its other end.";
    WrongDevice, "wrong_device", Drop,
        "The packet came to an address of the router by a device or VLAN that the address is not on.";
    NoChecksum, "no_checksum", Drop,
        "A UDP datagram over IPv6 without a checksum.";
    MalformedPath, "malformed_path", Drop,
        "The path has inconsistent segment lengths, pointers or size.";
    OneHopSegment, "one_hop_segment", Drop,
        "A segment has a single hop field and no peering link.";
    MalformedPeering, "malformed_peering", Drop,
        "The peering flag is set on a path that is not of two segments.";
    TransitSource, "transit_source", Drop,
        "A packet in transit came from inside, but not from the router that it entered the AS by.";
    PathEnds, "path_ends", Drop,
        "The path ends although the packet has not arrived.";
    NoHost, "no_host", Drop,
        "The kernel has no route to the host, or a route that forbids.";
    DeepExtensions, "deep_extensions", Drop,
        "There are more extension headers than one hop-by-hop and one end-to-end, or they are in the wrong order.";
    NoPort, "no_port", Drop,
        "An SCMP message that no port of a host can be found for.";
    RateLimited, "rate_limited", Drop,
        "More packets need the slow path than it takes for their reason.";
    AnswersError, "answers_error", Drop,
        "An answer would be due, but the packet is itself an SCMP error or cannot be answered.";
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
