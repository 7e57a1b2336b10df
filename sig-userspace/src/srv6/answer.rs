//! ICMP errors about packets that the programs refused.

use std::{io, net::SocketAddr};

use sig_common::{
    srv6::maps::{Event, Reason},
    wire::inner::InnerPacket,
};
use sig_core::dataplane::icmp::{self, Message, RateLimit, Sources};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// Messages per second, and at once: as many as Linux sends.
const PER_SECOND: u32 = 1000;
const BURST: u32 = 50;

/// Sends them.
pub(crate) struct Answerer {
    v4: Socket,
    v6: Socket,
    sources: Sources,
    limit: RateLimit,
    /// How many were sent.
    pub(crate) sent: u64,
}

/// Protocol number of raw sockets that give the IP header too.
const RAW: i32 = 255;

impl Answerer {
    /// # Errors
    /// CAP_NET_RAW is missing.
    pub(crate) fn open(sources: Sources) -> io::Result<Self> {
        let open = |domain| {
            let socket = Socket::new(domain, Type::RAW, Some(Protocol::from(RAW)))?;
            socket.set_nonblocking(true)?;
            Ok::<_, io::Error>(socket)
        };
        Ok(Self {
            v4: open(Domain::IPV4)?,
            v6: open(Domain::IPV6)?,
            sources,
            limit: RateLimit::new(PER_SECOND, BURST),
            sent: 0,
        })
    }

    /// The addresses that messages are sent from.
    pub(crate) fn set_sources(&mut self, sources: Sources) {
        self.sources = sources;
    }

    /// Tells the sender of `packet`, of which there may be the first bytes only, at the monotonic time `now` in nanoseconds.
    pub(crate) fn answer(&mut self, now: u64, event: &Event, packet: &[u8]) {
        let Some(message) = message(event) else {
            return;
        };
        // The rest does not matter, as no message quotes that much; but it has to be there to tell a ping from an error.
        let mut whole = packet.to_vec();
        whole.resize(packet.len().max(claimed_len(packet)), 0);
        let Ok(inner) = InnerPacket::parse(&whole[..]) else {
            return;
        };
        if !self.limit.allow(now) {
            return;
        }
        let mut out = [0; 1280];
        let Some(len) = icmp::error(message, &self.sources, &whole, &inner, &mut out) else {
            return;
        };
        let (socket, to) = match inner.source.is_ipv4() {
            true => (&self.v4, SocketAddr::new(inner.source, 0)),
            false => (&self.v6, SocketAddr::new(inner.source, 0)),
        };
        match socket.send_to(&out[..len], &SockAddr::from(to)) {
            Ok(_) => self.sent += 1,
            Err(error) => tracing::debug!("cannot send an ICMP error to {}: {error}", inner.source),
        }
    }
}

/// What the length fields say, no more than an IP packet can have.
fn claimed_len(packet: &[u8]) -> usize {
    match packet {
        [first, _, l0, l1, ..] if first >> 4 == 4 => u16::from_be_bytes([*l0, *l1]).into(),
        [_, _, _, _, l0, l1, ..] => usize::from(u16::from_be_bytes([*l0, *l1])) + 40,
        _ => 0,
    }
}

fn message(event: &Event) -> Option<Message> {
    let is = |reason: Reason| event.reason == reason as u32;
    if is(Reason::HopLimit) {
        Some(Message::TimeExceeded)
    } else if is(Reason::BadHeader) || is(Reason::Hmac) || is(Reason::BadArguments) {
        Some(Message::HeaderField(event.value))
    } else if is(Reason::UpperLayer) {
        Some(Message::UpperLayer(event.value))
    } else if is(Reason::TooBig) {
        Some(Message::TooBig(event.value))
    } else if is(Reason::NoRoute) {
        Some(Message::NoRoute)
    } else {
        None
    }
}
