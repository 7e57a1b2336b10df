//! What to do about packets that are not forwarded, or not by the fast path.

use sig_common::router::Reason;

/// Likely cause and remedy, for operators; empty where nothing is wrong.
pub(crate) const fn remedy(reason: Reason) -> &'static str {
    use Reason as R;
    match reason {
        R::Bfd
        | R::OneHop
        | R::EmptyPath
        | R::Epic
        | R::IngressAlert
        | R::EgressAlert
        | R::Service
        | R::Local
        | R::FamilyChange
        | R::Stun
        | R::NoPort
        | R::AnswersError => "",
        R::NoNeighbour => {
            "the first packet to a host does this; if it goes on, the host does not answer: \"ip neighbour\""
        }
        R::NoFastWay => "\"sig router doctor\" says what is missing, such as IP forwarding",
        R::OpenChecksum => {
            "ethtool -K INTERFACE tx off, on the virtual device that the sender is behind"
        }
        R::TooBig => "lower the MTU of the hosts, or make the MTU of all links the same",
        R::Version
        | R::HeaderLength
        | R::AddressType
        | R::PathType
        | R::PayloadLength
        | R::NoChecksum
        | R::DeepExtensions => {
            "the sender makes invalid packets: find out who it is with \"sig dissect --interface\""
        }
        R::MalformedPath
        | R::OneHopSegment
        | R::MalformedPeering
        | R::PathForbidden
        | R::SegmentChange
        | R::PathEnds
        | R::DestinationAddress => {
            "the sender makes invalid paths, or forges them: find out who it is with \"sig dissect --interface\""
        }
        R::Expired => {
            "the sender uses an old path: its clock is wrong, or its static path has to be replaced"
        }
        R::IngressInterface => {
            "compare the interface numbers at both ends of the link in the topology files"
        }
        R::SourceAddress => {
            "the sender is not where its address says: a forged source, or a wrong ISD-AS"
        }
        R::InvalidMac => {
            "the key of this AS (master0.key) has changed, or is not that of its control service; otherwise the path is forged"
        }
        R::EgressInterface => {
            "the interface has been removed, or the topology file is old: \"sig router check\""
        }
        R::LinkDown => "see BFD of the link, and the router at its other end",
        R::NoService => "add its address to the topology file",
        R::WrongPeer => {
            "correct the remote address in the topology file, or find out who else sends to the link"
        }
        R::WrongDevice => "compare the addresses in the topology file with \"ip address\"",
        R::TransitSource => {
            "add the other router to the topology file; otherwise the source is forged"
        }
        R::NoHost => "the host is gone: \"ip route get ADDRESS\"",
        R::RateLimited => "raise the limit in [xdp] rate_limits, unless somebody floods the router",
    }
}
