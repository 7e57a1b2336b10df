//! Why a packet was dropped.
//!
//! One numbering for all who drop packets: the XDP and TC programs (per-CPU array indexed by the
//! number), the engine and the control plane. Numbers are not stable between versions; names are.

/// Declares an enumeration of reasons, or of other things that are counted, so that number, name and description
/// cannot get out of step.
macro_rules! reasons {
    ($(#[$meta:meta])+ $reasons:ident: $($variant:ident, $name:literal, $description:literal;)+) => {
        $(#[$meta])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum $reasons {
            $(#[doc = $description] $variant,)+
        }

        impl $reasons {
            /// All, in the order of the numbers.
            pub const ALL: [Self; Self::COUNT] = [$(Self::$variant,)+];

            /// How many there are: the size of every table indexed by them.
            pub const COUNT: usize = [$($name,)+].len();

            /// The name in counters, metrics and status: snake case, stable between versions.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// One sentence for operators.
            #[must_use]
            pub const fn describe(self) -> &'static str {
                match self {
                    $(Self::$variant => $description,)+
                }
            }
        }
    };
}
pub(crate) use reasons;

reasons! {
    /// Why a packet was dropped.
    DropReason:

    // Headers of a packet to the underlay data port.
    BadIp, "bad_ip",
        "The outer IP length of a packet to the data port does not match its size.";
    BadUdp, "bad_udp",
        "The outer UDP length of a packet to the data port does not match the IP header.";
    BadScionVersion, "bad_scion_version",
        "A packet to the data port is not SCION version 0.";
    BadScionHeaderLen, "bad_scion_header_len",
        "The SCION header length does not match the addresses or the datagram size.";
    BadAddressType, "bad_address_type",
        "A SCION host address has a type or length that is not supported for frames.";
    BadPath, "bad_path",
        "The SCION path has inconsistent segment lengths, pointers or size.";
    UnknownPathType, "unknown_path_type",
        "The SCION path type is not empty, SCION, one-hop or EPIC.";
    BadExtension, "bad_extension",
        "The SCION extension headers are truncated, repeated or out of order.";
    BadScionPayloadLen, "bad_scion_payload_len",
        "The SCION payload length exceeds the datagram.";
    UnsupportedL4, "unsupported_l4",
        "A SCION packet to the data port carries neither UDP nor SCMP.";
    BadL4, "bad_l4",
        "The UDP/SCION header is truncated or its length is impossible.";
    BadFrameLen, "bad_frame_len",
        "A SIG frame is shorter than its 16-byte header.";
    BadFrameVersion, "bad_frame_version",
        "A SIG frame has a version that is neither 0 nor that of protected frames.";
    BadChecksum, "bad_checksum",
        "The UDP/SCION checksum of a frame is wrong: it was corrupted in transit.";

    // Admission.
    UnknownRemote, "unknown_remote",
        "A SIG frame came from an unknown gateway.";
    UnderlaySource, "underlay_source",
        "A SIG frame from a remote was forwarded by a host that is not a border router of this AS.";

    // Protection.
    Unprotected, "unprotected",
        "A SIG frame without protection came from a remote that protects its frames: it is forged, or the remote has started anew.";
    UnknownKey, "unknown_key",
        "A protected SIG frame names a key that this gateway does not have.";
    Forged, "forged",
        "A protected SIG frame is not authentic: it was forged, or damaged on the way.";
    Replayed, "replayed",
        "A protected SIG frame was received before, or is too old to tell.";
    NoKey, "no_key",
        "No key is left to protect frames to the remote with.";

    // Frames and reassembly.
    IndexOutOfRange, "index_out_of_range",
        "The index of a SIG frame points outside its payload.";
    IndexMismatch, "index_mismatch",
        "The index of a SIG frame does not match the end of the pending packet.";
    FrameOld, "frame_old",
        "A SIG frame arrived too late for the reorder window, or its stream had moved on.";
    FrameDuplicate, "frame_duplicate",
        "A SIG frame was received twice.";
    FrameGap, "frame_gap",
        "The rest of a packet was discarded because earlier frames were lost.";
    FrameEvicted, "frame_evicted",
        "Buffered frames were discarded because a later frame ended the wait for a missing one.";
    FrameExpired, "frame_expired",
        "Buffered frames were discarded because the missing part did not arrive in time.";
    FrameInvalidPacket, "frame_invalid_packet",
        "A SIG frame does not contain an IPv4 or IPv6 packet where one must start.";
    FrameTooManyParts, "frame_too_many_parts",
        "A packet spans more SIG frames than the limit.";
    StreamLimit, "stream_limit",
        "A remote has more streams open than its limit.";
    NewStreamLimit, "new_stream_limit",
        "A frame would have evicted a stream while the worker was overloaded.";
    BufferLimit, "buffer_limit",
        "The reassembly memory of a stream, a remote or the gateway is exhausted.";

    // Policing of inner packets.
    InvalidPacket, "invalid_packet",
        "An inner packet is not valid IPv4 or IPv6.";
    InnerSource, "inner_source",
        "The inner source address lies outside the prefixes accepted from the remote.";
    InnerDestination, "inner_destination",
        "The inner destination address lies outside the prefixes served here.";
    AddressScope, "address_scope",
        "An inner address is multicast, loopback, link-local, unspecified or reserved.";
    TtlExpired, "ttl_expired",
        "The inner TTL or hop limit expired at this gateway.";
    EcnDrop, "ecn_drop",
        "The outer packet was marked with congestion experienced, but the inner packet does not support ECN (RFC 6040).";

    // Forwarding.
    NoRoute, "no_route",
        "No remote announces the destination of the packet.";
    Filtered, "filtered",
        "A rule says that the packet is dropped.";
    NoChain, "no_chain",
        "The service chain that the packet has to pass is not there.";
    NoSession, "no_session",
        "No session of the remote matches this traffic class.";
    NoPath, "no_path",
        "The remote currently has no usable path.";
    NextHopUnresolved, "next_hop_unresolved",
        "The link-layer address of the next hop is not known yet.";
    RoutingLoop, "routing_loop",
        "A packet from a remote would be routed back to that remote.";
    PacketTooBig, "packet_too_big",
        "The packet is larger than the outgoing link allows.";
    LinkDown, "link_down",
        "The outgoing link is down.";

    // Resources of the data plane.
    NoFreeChunk, "no_free_chunk",
        "The packet memory (UMEM) has no free chunk left.";
    QueueFull, "queue_full",
        "A queue inside the gateway is full.";
    TxRingFull, "tx_ring_full",
        "The transmit ring of the outgoing port is full.";
    NoSocket, "no_socket",
        "No worker serves the receive queue of the packet.";
    RedirectFailed, "redirect_failed",
        "The kernel could not hand the packet to the worker or the outgoing device.";
}

impl DropReason {
    /// The reason with this number, if there is one.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        if (number as usize) < Self::COUNT {
            Some(Self::ALL[number as usize])
        } else {
            None
        }
    }
}

impl core::fmt::Display for DropReason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::DropReason;

    #[test]
    fn numbers_follow_the_order_of_all() {
        for (number, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, number);
            assert_eq!(DropReason::from_number(number as u8), Some(reason));
        }
        assert_eq!(DropReason::from_number(DropReason::COUNT as u8), None);
    }

    #[test]
    fn names_are_unique_and_snake_case() {
        for (i, reason) in DropReason::ALL.iter().enumerate() {
            let name = reason.name();
            assert!(
                name.bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
            );
            assert!(
                DropReason::ALL[..i]
                    .iter()
                    .all(|other| other.name() != name)
            );
        }
    }

    #[test]
    fn descriptions_are_sentences() {
        for reason in DropReason::ALL {
            let text = reason.describe();
            assert!(text.starts_with(|c: char| c.is_ascii_uppercase()), "{text}");
            assert!(text.ends_with('.'), "{text}");
        }
    }
}
