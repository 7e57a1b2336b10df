//! ICMP errors to hosts behind the gateway, and what those of others are about (RFC 792, RFC 1812 section 4.3,
//! RFC 4443).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::PacketBuilder;
use sig_common::wire::{
    inner::InnerPacket,
    ipv4,
    ipv6::{self, UpperLayer},
};

/// Hop limit of the messages.
const TTL: u8 = 64;
/// An ICMP error over IPv4 is at most 576 bytes, over IPv6 at most 1280 (RFC 1812, RFC 4443).
const MAX_V4: usize = 576;
const MAX_V6: usize = 1280;
const V4_HEADERS: usize = 20 + 8;
const V6_HEADERS: usize = 40 + 8;

const PROTOCOL_ICMP: u8 = 1;
const PROTOCOL_ICMPV6: u8 = 58;

/// What the host is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// The packet's TTL or hop limit ran out here.
    TimeExceeded,
    /// There is no way to the destination now.
    Unreachable,
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
    let room = out.len();
    let mut writer = &mut out[..];
    let written = if inner.version() == 4 {
        let source = sources.v4?;
        let destination = Ipv4Addr::from(<[u8; 4]>::try_from(packet.get(12..16)?).ok()?);
        if !may_answer_v4(packet, destination) {
            return None;
        }
        let (kind, code) = match message {
            Message::TimeExceeded => (11, 0),
            Message::Unreachable => (3, 1),
        };
        let quote = &packet[..packet.len().min(MAX_V4 - V4_HEADERS)];
        PacketBuilder::ipv4(source.octets(), destination.octets(), TTL)
            .icmpv4_raw(kind, code, [0; 4])
            .write(&mut writer, quote)
    } else {
        let source = sources.v6?;
        let destination = Ipv6Addr::from(<[u8; 16]>::try_from(packet.get(8..24)?).ok()?);
        if !may_answer_v6(packet, destination) {
            return None;
        }
        let (kind, code) = match message {
            Message::TimeExceeded => (3, 0),
            Message::Unreachable => (1, 0),
        };
        let quote = &packet[..packet.len().min(MAX_V6 - V6_HEADERS)];
        PacketBuilder::ipv6(source.octets(), destination.octets(), TTL)
            .icmpv6_raw(kind, code, [0; 4])
            .write(&mut writer, quote)
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
    let message = packet.get(inner.header_len.into()..inner.total_len.into())?;
    let (kind, quote) = (*message.first()?, message.get(8..)?);
    match (inner.version(), inner.protocol) {
        _ if inner.is_fragment => None,
        (4, PROTOCOL_ICMP) if matches!(kind, 3 | 11 | 12) => quoted_v4(quote),
        (6, PROTOCOL_ICMPV6) if matches!(kind, 1..=4) => quoted_v6(quote),
        _ => None,
    }
}

fn quoted_v4(quote: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let header: &[u8; 20] = quote.first_chunk()?;
    let header_len = usize::from(header[0] & 0xf) * 4;
    let is_first = u16::from_be_bytes([header[6], header[7]]) & 0x1fff == 0;
    if header[0] >> 4 != 4 || header_len < 20 || !is_first {
        return None;
    }
    let is_error = header[9] == PROTOCOL_ICMP
        && quote
            .get(header_len)
            .is_none_or(|kind| !matches!(kind, 0 | 8 | 13 | 14));
    let address = |at: usize| Some(IpAddr::from(*header[at..].first_chunk::<4>()?));
    (!is_error).then_some((address(12)?, address(16)?))
}

fn quoted_v6(quote: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let header: &[u8; 40] = quote.first_chunk()?;
    let is_error = match ipv6::upper_layer(quote, header[6], header.len()) {
        UpperLayer::At { protocol, offset } => {
            protocol == PROTOCOL_ICMPV6 && quote.get(offset).is_none_or(|kind| *kind < 128)
        }
        // The first fragment of a packet that is no error: errors are never that long.
        UpperLayer::Fragment => false,
        UpperLayer::Unknown(_) => true,
    };
    let address = |at: usize| Some(IpAddr::from(*header[at..].first_chunk::<16>()?));
    (header[0] >> 4 == 6 && !is_error).then_some((address(8)?, address(24)?))
}

/// No error about an error, a later fragment, or to an address that is nobody's (RFC 1122 3.2.2).
fn may_answer_v4(packet: &[u8], source: Ipv4Addr) -> bool {
    let Ok(header) = ipv4::View::new_checked(packet) else {
        return false;
    };
    let is_error = header.protocol() == PROTOCOL_ICMP
        && header
            .payload()
            .first()
            .is_none_or(|kind| !matches!(kind, 0 | 8 | 13 | 14));
    !(is_error
        || header.fragment_offset() != 0
        || source.is_unspecified()
        || source.is_multicast()
        || source.is_broadcast()
        || source.is_loopback())
}

fn may_answer_v6(packet: &[u8], source: Ipv6Addr) -> bool {
    let is_error =
        packet.get(6) == Some(&PROTOCOL_ICMPV6) && packet.get(40).is_none_or(|kind| *kind < 128);
    !(is_error || source.is_unspecified() || source.is_multicast() || source.is_loopback())
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
