//! What to do about packets that are dropped.

use sig_common::reason::DropReason;

/// Likely cause and remedy, for operators; in short what docs/troubleshooting.md says.
#[must_use]
pub const fn remedy(reason: DropReason) -> &'static str {
    use DropReason as R;
    match reason {
        R::BadIp | R::BadUdp | R::BadScionVersion | R::BadScionHeaderLen | R::BadAddressType => {
            "something other than SCION is sent to the data port, or a device on the way damages packets"
        }
        R::BadPath
        | R::UnknownPathType
        | R::BadExtension
        | R::BadScionPayloadLen
        | R::UnsupportedL4
        | R::BadL4 => {
            "the sender makes invalid SCION packets: find out who it is with \"sig dissect\""
        }
        R::BadFrameLen | R::BadFrameVersion => {
            "the sender is no gateway, or one of another protocol version"
        }
        R::BadChecksum => "corruption in transit, or a sender with wrong checksums",
        R::UnknownRemote => {
            "add its AS to the traffic policy, or the gateway to the \"sigs\" of its AS's topology; with [[remote]], correct \
             isd_as or gateway"
        }
        R::UnderlaySource => {
            "if it is a border router of this AS, update the daemon's topology file or add it to underlay_sources in [dataplane]"
        }
        R::Unprotected => {
            "somebody forges frames; if the remote itself sends them, see \"Protection\" in \"sig status\" on both sides"
        }
        R::UnknownKey => {
            "a few when a gateway has restarted; if they go on, see \"Protection\" in \"sig status\" on both sides"
        }
        R::Forged => "somebody forges or damages frames on the way",
        R::Replayed => "the network duplicates packets, or somebody sends recorded ones again",
        R::NoKey => "see \"Protection\" in \"sig status\" and the log",
        R::IndexOutOfRange | R::IndexMismatch | R::FrameInvalidPacket | R::FrameTooManyParts => {
            "the remote gateway makes invalid frames: compare versions"
        }
        R::FrameOld => "a path far slower than the one that took over, or old duplicates",
        R::FrameDuplicate => "harmless if rare: the network duplicates packets",
        R::FrameGap | R::FrameEvicted | R::FrameExpired => {
            "loss or delay on the path: see \"loss\" of the paths in \"sig status\""
        }
        R::StreamLimit => "raise streams_per_remote in [dataplane.limits]",
        R::NewStreamLimit => {
            "a flood of forged frames on an overloaded worker; known streams continue"
        }
        R::BufferLimit => {
            "raise packets_per_remote in [dataplane.limits]; if traffic does not suffer, somebody forges first parts"
        }
        R::InvalidPacket => "the host sends no valid IP packets",
        R::InnerSource => {
            "the site of the source must announce the address, and the routing policy accept it; with [[remote]], add it to prefixes"
        }
        R::InnerDestination => {
            "add the destination to [gateway] prefixes, or an \"advertise\" rule to the routing policy"
        }
        R::AddressScope => "such addresses do not cross networks: use others",
        R::TtlExpired => "traceroute does this on purpose; else there is a routing loop",
        R::EcnDrop => "the underlay is congested, and the host does not support ECN",
        R::NoRoute => {
            "the remote's routing policy must advertise the prefix and this one's accept it; with [[remote]], add it to prefixes"
        }
        R::Filtered => "a rule of rules_file says so: see \"sig chain status\"",
        R::NoChain => "see \"sig chain status\" for what is missing",
        R::NoSession => {
            "no class of the traffic policy takes the packet, or the class has no session: see \"Sessions\" in \"sig status\""
        }
        R::NoPath => {
            "no next hop answers (\"ip neighbour\", cable, border router), or all paths are dead or have expired: see \"sig status\""
        }
        R::NextHopUnresolved => "the next hop does not answer: see \"ip neighbour\"",
        R::RoutingLoop => {
            "the route leads back to the sending remote: check the prefixes of both sides"
        }
        R::PacketTooBig => "lower the MTU of the sender's interface, or raise mtu in [tunnel]",
        R::LinkDown => "ip link set INTERFACE up",
        R::NoFreeChunk => "raise ring_size in [dataplane], then chunks",
        R::QueueFull | R::TxRingFull => {
            "the worker cannot keep up: more workers, more queues, another CPU"
        }
        R::NoSocket => "see \"Workers\" in \"sig status\" and the log",
        R::RedirectFailed => "the outgoing device is down or takes no packets from XDP programs",
    }
}
