//! ICMP errors to hosts behind the gateway, and what those of others are about (RFC 792, RFC 1812 section 4.3,
//! RFC 4443).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::PacketBuilder;
use sig_common::{
    scope::may_cross,
    wire::{
        PROTO_ICMP, PROTO_ICMPV6, TTL,
        inner::InnerPacket,
        ipv4,
        ipv6::{self, UpperLayer},
    },
};

/// An ICMP error over IPv4 is at most 576 bytes, over IPv6 at most 1280 (RFC 1812, RFC 4443).
const MAX_V4: usize = 576;
const MAX_V6: usize = 1280;
const V4_HEADERS: usize = ipv4::HEADER_LEN + 8;
const V6_HEADERS: usize = ipv6::HEADER_LEN + 8;

/// What the host is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// The packet's TTL or hop limit ran out here.
    TimeExceeded,
    /// There is no way to the destination now.
    Unreachable,
    /// No route leads to the destination.
    NoRoute,
    /// The packet is larger than this many bytes, which its way takes.
    TooBig(u32),
    /// The header field at this offset is wrong. Over IPv6 only.
    HeaderField(u32),
    /// What is at this offset is of no use to the SID that the packet was sent to (RFC 8986, section 4.1.1). Over IPv6 only.
    UpperLayer(u32),
}

/// Addresses that messages are sent from; without one for an IP version nothing is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// Source over IPv4.
    pub v4: Option<Ipv4Addr>,
    /// Source over IPv6.
    pub v6: Option<Ipv6Addr>,
}

/// Writes the error about `packet` (an inner IP packet, `inner` its summary) into `out` and returns
/// its length, or `None` if no error must or can be sent.
///
/// `out` must hold at least 1280 bytes.
pub fn error(
    message: Message,
    sources: &Sources,
    packet: &[u8],
    inner: &InnerPacket,
    out: &mut [u8],
) -> Option<usize> {
    if !may_answer(packet, inner) {
        return None;
    }
    let room = out.len();
    let mut writer = &mut out[..];
    let written = match inner.source {
        IpAddr::V4(destination) => {
            let (kind, code, value) = match message {
                Message::TimeExceeded => (11, 0, 0),
                Message::Unreachable => (3, 1, 0),
                Message::NoRoute => (3, 0, 0),
                Message::TooBig(mtu) => (3, 4, mtu.min(u16::MAX.into())),
                Message::HeaderField(_) | Message::UpperLayer(_) => return None,
            };
            let quote = &packet[..packet.len().min(MAX_V4 - V4_HEADERS)];
            PacketBuilder::ipv4(sources.v4?.octets(), destination.octets(), TTL)
                .icmpv4_raw(kind, code, value.to_be_bytes())
                .write(&mut writer, quote)
        }
        IpAddr::V6(destination) => {
            let (kind, code, value) = match message {
                Message::TimeExceeded => (3, 0, 0),
                Message::Unreachable | Message::NoRoute => (1, 0, 0),
                Message::TooBig(mtu) => (2, 0, mtu),
                Message::HeaderField(at) => (4, 0, at),
                Message::UpperLayer(at) => (4, 4, at),
            };
            let quote = &packet[..packet.len().min(MAX_V6 - V6_HEADERS)];
            PacketBuilder::ipv6(sources.v6?.octets(), destination.octets(), TTL)
                .icmpv6_raw(kind, code, value.to_be_bytes())
                .write(&mut writer, quote)
        }
    };
    written.ok()?;
    let left = writer.len();
    Some(room - left)
}

/// Source and destination of the packet that an ICMP error quotes: destination unreachable with packet too big,
/// time exceeded, parameter problem. `None` for any other packet, and for errors about what no error must be
/// about: another error, or a later fragment.
///
/// Nothing else of the quote is checked: routers cut it off, and change it before they quote it.
pub(super) fn quoted(packet: &[u8], inner: &InnerPacket) -> Option<(IpAddr, IpAddr)> {
    let message = inner.payload(packet)?;
    let (kind, quote) = (*message.first()?, message.get(8..)?);
    match (inner.source, inner.protocol) {
        _ if inner.upper() == UpperLayer::Fragment => None,
        (IpAddr::V4(_), PROTO_ICMP) if matches!(kind, 3 | 11 | 12) => quoted_v4(quote),
        (IpAddr::V6(_), PROTO_ICMPV6) if matches!(kind, 1..=4) => quoted_v6(quote),
        _ => None,
    }
}

fn quoted_v4(quote: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let header: &[u8; ipv4::HEADER_LEN] = quote.first_chunk()?;
    let header_len = usize::from(header[0] & 0xf) * 4;
    let is_later = ipv4::is_later_fragment(u16::from_be_bytes([header[6], header[7]]));
    if header[0] >> 4 != 4 || header_len < ipv4::HEADER_LEN || is_later {
        return None;
    }
    let is_error = is_error_v4(header[9], quote.get(header_len));
    let address = |at: usize| Some(IpAddr::from(*header[at..].first_chunk::<4>()?));
    (!is_error).then_some((address(12)?, address(16)?))
}

fn quoted_v6(quote: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let header: &[u8; ipv6::HEADER_LEN] = quote.first_chunk()?;
    let is_error = match ipv6::upper_layer(quote, header[6], header.len()) {
        UpperLayer::At { protocol, offset } => is_error_v6(protocol, quote.get(offset)),
        // The first fragment of a packet that is no error: errors are never that long.
        UpperLayer::Fragment => false,
        UpperLayer::Unknown(_) => true,
    };
    let address = |at: usize| Some(IpAddr::from(*header[at..].first_chunk::<16>()?));
    (header[0] >> 4 == 6 && !is_error).then_some((address(8)?, address(24)?))
}

/// No error about an error, a later fragment, to an address that is nobody's (RFC 1122 3.2.2), or about what many get (RFC 4443
/// 2.4).
fn may_answer(packet: &[u8], inner: &InnerPacket) -> bool {
    let is_error = match (inner.source, inner.upper()) {
        (IpAddr::V4(_), _) => {
            let kind = packet.get(usize::from(inner.header_len));
            is_error_v4(inner.protocol, kind)
        }
        (IpAddr::V6(_), UpperLayer::At { protocol, offset }) => {
            is_error_v6(protocol, packet.get(offset))
        }
        // The first fragment of a packet that is no error: errors are never that long.
        (IpAddr::V6(_), UpperLayer::Fragment) => false,
        (IpAddr::V6(_), UpperLayer::Unknown(_)) => true,
    };
    !is_error
        && !inner.is_later_fragment
        && !inner.destination.is_multicast()
        && may_cross(inner.source)
}

/// Whether an IPv4 packet of this protocol is an ICMP error; `kind` is its first byte, if that is there.
fn is_error_v4(protocol: u8, kind: Option<&u8>) -> bool {
    protocol == PROTO_ICMP && kind.is_none_or(|kind| !matches!(kind, 0 | 8 | 13 | 14))
}

/// The same for IPv6.
fn is_error_v6(protocol: u8, kind: Option<&u8>) -> bool {
    protocol == PROTO_ICMPV6 && kind.is_none_or(|kind| *kind < 128)
}

/// A token bucket: so many messages a second, so many at once.
#[derive(Clone, Debug)]
pub struct RateLimit {
    /// Nanoseconds that one message costs.
    cost: u64,
    /// Nanoseconds that can be saved up.
    burst: u64,
    credit: u64,
    last: u64,
}

impl RateLimit {
    /// At most `per_second` messages on average and `burst` at once.
    pub fn new(per_second: u32, burst: u32) -> Self {
        let cost = 1_000_000_000 / u64::from(per_second.max(1));
        let burst = cost * u64::from(burst.max(1));
        RateLimit {
            cost,
            burst,
            credit: burst,
            last: 0,
        }
    }

    /// Whether one more may go at `now` (nanoseconds).
    pub fn allow(&mut self, now: u64) -> bool {
        let gained = now.saturating_sub(self.last);
        self.last = self.last.max(now);
        self.credit = self.burst.min(self.credit.saturating_add(gained));
        let allowed = self.credit >= self.cost;
        if allowed {
            self.credit -= self.cost;
        }
        allowed
    }
}
