//! Packet headers: checked constructors, then accessors that cannot panic.
//!
//! Every header module has the same shape:
//!
//! * `View::new_checked(&[u8])` borrows a packet and checks every length that an accessor relies
//!   on. After that no accessor can panic: fixed fields are read from arrays of known size.
//! * `Header` is the plain form, with `emit(&mut [u8])` that returns the bytes written.
//!
//! [`underlay::parse`], [`inner::InnerPacket`] and [`template::HeaderTemplate`] are the code on the
//! road of every packet. They are generic over [`Load`] and [`Store`], so that the XDP programs and the
//! engine run the same source.
//!
//! All multi-byte fields are in network byte order on the wire and in host order in Rust values.

pub mod checksum;
pub mod datagram;
pub mod ethernet;
pub mod flow;
pub mod inner;
pub mod ipv4;
pub mod ipv6;
pub mod scion;
pub mod sig_frame;
pub mod simple;
pub mod srv6;
pub mod stun;
pub mod tcp;
pub mod template;
pub mod udp;
pub mod underlay;

/// Protocol number of UDP (IP protocol, and next header of SCION).
pub const PROTO_UDP: u8 = 17;
/// Protocol number of TCP.
pub const PROTO_TCP: u8 = 6;
/// Protocol number of SCTP.
pub const PROTO_SCTP: u8 = 132;
/// Protocol number of ICMP for IPv4.
pub const PROTO_ICMP: u8 = 1;
/// Protocol number of ICMP for IPv6.
pub const PROTO_ICMPV6: u8 = 58;

/// Time to live or hop limit of packets that begin here.
pub const TTL: u8 = 64;

/// Why bytes are not the header they were taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Error {
    /// Fewer bytes than the header needs.
    Truncated,
    /// The version field has another value.
    Version,
    /// The header length field is impossible.
    HeaderLength,
    /// The packet or payload length field is impossible or exceeds the bytes at hand.
    Length,
    /// A SCION host address of a type and length that is not defined.
    AddressType,
    /// A path whose segment lengths, pointers or size contradict each other.
    Path,
    /// A SCION path type that is not defined.
    PathType,
    /// SCION extension headers that are truncated, repeated or out of order.
    Extension,
    /// A value that does not fit its field, or a buffer too small to emit into.
    NoRoom,
}

impl core::fmt::Display for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Truncated => "truncated header",
            Self::Version => "unexpected version",
            Self::HeaderLength => "impossible header length",
            Self::Length => "length exceeds the packet or is too small",
            Self::AddressType => "unknown SCION address type",
            Self::Path => "inconsistent SCION path",
            Self::PathType => "unknown SCION path type",
            Self::Extension => "malformed SCION extension headers",
            Self::NoRoom => "header does not fit",
        })
    }
}

impl core::error::Error for Error {}

/// Bounds-checked loads from a packet.
///
/// Implemented for byte slices, and by the XDP programs for their context. The parsers only use
/// offsets that are bounded by constants (below 16 384), as the BPF verifier demands.
#[expect(
    clippy::len_without_is_empty,
    reason = "a packet is never asked whether it is empty"
)]
pub trait Load {
    /// Bytes of the whole packet. May exceed what [`Load::bytes`] reaches, when only the first
    /// part of a packet is mapped.
    fn len(&self) -> usize;

    /// The `N` bytes at `offset`; `None` if they are not all within reach.
    fn bytes<const N: usize>(&self, offset: usize) -> Option<[u8; N]>;
}

impl Load for [u8] {
    #[inline(always)]
    fn len(&self) -> usize {
        <[u8]>::len(self)
    }

    #[inline(always)]
    fn bytes<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.get(offset..)?.first_chunk().copied()
    }
}

impl<L: Load + ?Sized> Load for &L {
    #[inline(always)]
    fn len(&self) -> usize {
        (**self).len()
    }

    #[inline(always)]
    fn bytes<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        (**self).bytes(offset)
    }
}

/// Bounds-checked stores to a packet.
///
/// Implemented for byte slices, and by the XDP programs for their context. As with [`Load`], offsets
/// are bounded by constants.
pub trait Store {
    /// Writes `bytes` at `offset`; `None` if they are not all within reach.
    fn store<const N: usize>(&mut self, offset: usize, bytes: [u8; N]) -> Option<()>;
}

impl Store for [u8] {
    #[inline(always)]
    fn store<const N: usize>(&mut self, offset: usize, bytes: [u8; N]) -> Option<()> {
        *self.get_mut(offset..)?.first_chunk_mut()? = bytes;
        Some(())
    }
}

/// Splits the first `N` bytes off.
#[inline(always)]
fn split<const N: usize>(bytes: &[u8]) -> Result<(&[u8; N], &[u8]), Error> {
    bytes.split_first_chunk().ok_or(Error::Truncated)
}

/// Splits the first `N` bytes off, to be written.
#[inline(always)]
fn split_mut<const N: usize>(bytes: &mut [u8]) -> Result<(&mut [u8; N], &mut [u8]), Error> {
    bytes.split_first_chunk_mut().ok_or(Error::NoRoom)
}

/// The big-endian number in the first two bytes of an array's part.
#[inline(always)]
const fn be16(high: u8, low: u8) -> u16 {
    u16::from_be_bytes([high, low])
}
