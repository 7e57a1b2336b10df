//! SCMP: numbers and offsets of the SCION Control Message Protocol (SCION SCMP specification, "Message types").
//!
//! Each message begins with type, code and checksum ([`HEADER_LEN`] bytes), then a block that depends on the type. Errors
//! end with a quote: the first bytes of the packet that they are about.

/// Error: destination unreachable.
pub const UNREACHABLE: u8 = 1;
/// Error: packet too big.
pub const PACKET_TOO_BIG: u8 = 2;
/// Error: parameter problem, with one of [`code`].
pub const PARAMETER_PROBLEM: u8 = 4;
/// Error: external interface down.
pub const INTERFACE_DOWN: u8 = 5;
/// Error: internal connectivity down.
pub const CONNECTIVITY_DOWN: u8 = 6;
/// Informational: echo request.
pub const ECHO_REQUEST: u8 = 128;
/// Informational: echo reply.
pub const ECHO_REPLY: u8 = 129;
/// Informational: traceroute request.
pub const TRACEROUTE_REQUEST: u8 = 130;
/// Informational: traceroute reply.
pub const TRACEROUTE_REPLY: u8 = 131;

/// Types below this are errors.
pub const FIRST_INFORMATIONAL: u8 = 128;

/// Bytes of type, code and checksum.
pub const HEADER_LEN: usize = 4;
/// Offset of the checksum.
pub const CHECKSUM_OFFSET: usize = 2;
/// Offset of the identifier in echo and traceroute messages.
pub const IDENTIFIER_OFFSET: usize = 4;
/// Bytes of an echo message without data: with identifier and sequence number.
pub const ECHO_LEN: usize = 8;
/// Bytes of a traceroute message: with ISD-AS and interface as well.
pub const TRACEROUTE_LEN: usize = 24;

/// Codes of parameter problems.
pub mod code {
    /// The SCION version is not known.
    pub const UNKNOWN_VERSION: u8 = 17;
    /// The payload length is not that of the packet.
    pub const INVALID_SIZE: u8 = 19;
    /// A host address has an unknown type or length.
    pub const UNKNOWN_ADDRESS_FORMAT: u8 = 21;
    /// The source address is not one that packets from there have.
    pub const INVALID_SOURCE: u8 = 33;
    /// The destination address is not one that packets that go there have.
    pub const INVALID_DESTINATION: u8 = 34;
    /// Traffic may not go between these interfaces.
    pub const INVALID_PATH: u8 = 48;
    /// The hop field's ingress interface, in construction direction, is not the right one.
    pub const UNKNOWN_INGRESS: u8 = 49;
    /// The hop field's egress interface, in construction direction, is not the right one.
    pub const UNKNOWN_EGRESS: u8 = 50;
    /// The hop field's MAC is not that of the AS.
    pub const INVALID_MAC: u8 = 51;
    /// The hop field has expired.
    pub const PATH_EXPIRED: u8 = 52;
    /// Segments may not be joined at these interfaces.
    pub const INVALID_SEGMENT_CHANGE: u8 = 53;
}

/// Offset of the quote in an error message of this type; `None` for types that quote nothing.
#[inline(always)]
#[must_use]
pub const fn quote_offset(kind: u8) -> Option<usize> {
    match kind {
        UNREACHABLE | PACKET_TOO_BIG | PARAMETER_PROBLEM => Some(HEADER_LEN + 4),
        INTERFACE_DOWN => Some(HEADER_LEN + 8 + 8),
        CONNECTIVITY_DOWN => Some(HEADER_LEN + 8 + 2 * 8),
        _ => None,
    }
}

/// Whether messages of this type ask for an answer.
#[inline(always)]
#[must_use]
pub const fn is_request(kind: u8) -> bool {
    matches!(kind, ECHO_REQUEST | TRACEROUTE_REQUEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_quote_and_others_do_not() {
        let offsets = [1, 2, 4, 5, 6].map(quote_offset);
        assert_eq!(offsets, [Some(8), Some(8), Some(8), Some(20), Some(28)]);
        for kind in (0..=u8::MAX).filter(|kind| ![1, 2, 4, 5, 6].contains(kind)) {
            assert_eq!(quote_offset(kind), None);
        }
    }
}
