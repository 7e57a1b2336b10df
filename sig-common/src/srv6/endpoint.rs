//! A packet to a local SID: what it becomes and where it goes.

use super::sid::{Behavior, Flavors, Jump, Sid};
use crate::wire::{
    Load, PROTO_ICMPV6, ethernet,
    inner::InnerPacket,
    ipv6,
    srv6::{self, NEXT_ETHERNET, NEXT_IPV4, NEXT_IPV6, Reject, SEGMENTS_LEFT, Srh},
};

/// Offset of the hop limit in an IPv6 header.
const HOP_LIMIT: usize = 7;

/// What is to be done with a packet. Offsets and lengths count from the start of the IPv6 header.
///
/// Every field has a value, whatever is to be done: where an enum has none, LLVM may store any register, be it one that the
/// BPF verifier does not let programs read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The next segment becomes the active one: the hop limit and the Segments Left of the SRH are one less, and the
    /// destination is [`Step::destination`].
    pub advances: bool,
    /// The new destination, where there is one.
    pub destination: [u8; 16],
    /// The destination becomes [`Step::destination`] and the hop limit one less, but the SRH stays: a masquerade.
    pub masquerades: bool,
    /// The SRH is removed: what follows it is announced where it was.
    pub pops: bool,
    /// The SRH; zero if there is none.
    pub srh: Srh,
    /// This many bytes at the front are removed, after all else; 0: none.
    pub strip: u16,
    /// What is behind them: a next header value.
    pub exposed: u8,
    /// Where the packet goes then.
    pub way: Way,
    /// Number of what [`Step::way`] is about.
    pub target: u32,
}

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Way {
    /// Where a routing table leads it; 0 is the main one. As by any router, the hop limit of an exposed packet becomes one less.
    Table,
    /// To an adjacency, likewise.
    Adjacency,
    /// Out of a device, as the Ethernet frame that it is.
    Device,
    /// To a function.
    Function,
    /// To this host.
    Local,
}

/// Why a packet goes nowhere. As [`Step`], with a value in every field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub cause: Cause,
    /// What an ICMPv6 Parameter Problem points at: an offset in the packet.
    pub pointer: u16,
}

/// Why, and what the sender is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Cause {
    /// Not an IPv6 packet, or not all of it. Nothing is told.
    Malformed,
    /// ICMPv6 Time Exceeded, code 0: the hop limit ran out (RFC 8986, section 4.1).
    HopLimit,
    /// ICMPv6 Parameter Problem, code 0: the SRH is malformed, or has segments left where there must not be any.
    Header,
    /// ICMPv6 Parameter Problem, code 4: the SID has no use for what is behind the headers (RFC 8986, section 4.1.1).
    UpperLayer,
    /// What is inside is not the packet it was announced as. Nothing is told.
    Inner,
    /// A proxy needs an SRH with segments left to return to. Nothing is told.
    ChainEnd,
}

impl Cause {
    const fn refuse(self) -> Refusal {
        self.at(0)
    }

    const fn at(self, pointer: usize) -> Refusal {
        Refusal {
            cause: self,
            pointer: pointer as u16,
        }
    }
}

/// Decides what becomes of the IPv6 packet that `packet` starts with, whose destination is `sid`.
///
/// # Errors
/// See [`Cause`].
#[inline(always)]
pub fn process<L: Load + ?Sized>(packet: &L, sid: &Sid) -> Result<Step, Refusal> {
    let Some(behavior) = sid.behavior() else {
        return Err(Cause::Malformed.refuse());
    };
    let srh = match srv6::parse(packet) {
        Ok(srh) => Some(srh),
        Err(Reject::Absent) => None,
        Err(Reject::Packet(_)) => return Err(Cause::Malformed.refuse()),
        Err(Reject::Malformed { offset, .. }) => {
            return Err(Cause::Header.at(usize::from(offset) + SEGMENTS_LEFT));
        }
    };
    // Past segments, to the one before that which is to be the next.
    let srh = match (srh, sid.jump) {
        (Some(srh), Jump::SKIP) if srh.segments_left == 1 => {
            return Err(Cause::Header.at(usize::from(srh.offset) + SEGMENTS_LEFT));
        }
        (Some(srh), Jump::SKIP) if srh.segments_left > 1 => Some(Srh {
            segments_left: srh.segments_left - 1,
            ..srh
        }),
        (Some(srh), Jump::LAST) if srh.segments_left > 1 => Some(Srh {
            segments_left: 1,
            ..srh
        }),
        (srh, _) => srh,
    };
    match srh {
        Some(srh) if srh.segments_left > 0 => under_way(packet, sid, behavior, &srh),
        _ => at_the_end(packet, sid, behavior, srh),
    }
}

/// Of a packet with segments left.
#[inline(always)]
fn under_way<L: Load + ?Sized>(
    packet: &L,
    sid: &Sid,
    behavior: Behavior,
    srh: &Srh,
) -> Result<Step, Refusal> {
    let is_proxy = matches!(
        behavior,
        Behavior::EndAs | Behavior::EndAd4 | Behavior::EndAd6 | Behavior::EndAm | Behavior::EndAn
    );
    if !behavior.is_transit() && !is_proxy {
        return Err(Cause::Header.at(usize::from(srh.offset) + SEGMENTS_LEFT));
    }
    let Some([hop_limit]) = packet.bytes(HOP_LIMIT) else {
        return Err(Cause::Malformed.refuse());
    };
    if hop_limit <= 1 {
        return Err(Cause::HopLimit.refuse());
    }
    // The last segment is the first in the list.
    let destination = match behavior {
        Behavior::EndAm => srh.segment(packet, 0),
        _ => srh.next_segment(packet),
    };
    let Some(destination) = destination else {
        return Err(Cause::Malformed.refuse());
    };
    let mut step = Step {
        srh: *srh,
        destination,
        ..NOTHING
    };
    match behavior {
        Behavior::EndAm => {
            step.masquerades = true;
            step.way = Way::Function;
        }
        Behavior::EndAn => {
            step.advances = true;
            step.way = Way::Function;
        }
        Behavior::EndAs | Behavior::EndAd4 | Behavior::EndAd6 => {
            // A static proxy has its own headers for what comes back.
            step.advances = behavior != Behavior::EndAs;
            let (next, at) = upper_layer(packet, srh.next_header, srh.after().into())?;
            if !is_for(behavior, next) {
                return Err(Cause::UpperLayer.at(at));
            }
            expose(packet, &mut step, next, at)?;
            step.way = Way::Function;
        }
        _ => {
            step.advances = true;
            step.pops = srh.segments_left == 1 && sid.flavors.has(Flavors::PSP);
            step.way = match behavior {
                Behavior::EndX => Way::Adjacency,
                _ => Way::Table,
            };
        }
    }
    step.target = sid.target;
    Ok(step)
}

/// Of a packet without segments left, or without an SRH.
#[inline(always)]
fn at_the_end<L: Load + ?Sized>(
    packet: &L,
    sid: &Sid,
    behavior: Behavior,
    srh: Option<Srh>,
) -> Result<Step, Refusal> {
    let (next, at) = match &srh {
        Some(srh) => upper_layer(packet, srh.next_header, srh.after().into())?,
        None => {
            let Some([next]) = packet.bytes(6) else {
                return Err(Cause::Malformed.refuse());
            };
            upper_layer(packet, next, ipv6::HEADER_LEN)?
        }
    };
    let mut step = Step {
        srh: srh.unwrap_or(NO_SRH),
        target: sid.target,
        ..NOTHING
    };
    let is_decapsulated = match behavior.is_transit() {
        true => sid.flavors.has(Flavors::USD) && matches!(next, NEXT_IPV4 | NEXT_IPV6),
        false => is_for(behavior, next),
    };
    if !is_decapsulated {
        if next != PROTO_ICMPV6 {
            return Err(Cause::UpperLayer.at(at));
        }
        // As with the flavor USP in any case: not every kernel takes an SRH.
        step.pops = srh.is_some();
        step.way = Way::Local;
        return Ok(step);
    }
    let is_dynamic = matches!(behavior, Behavior::EndAd4 | Behavior::EndAd6);
    if is_dynamic && !sid.flavors.has(Flavors::LAST) {
        return Err(Cause::ChainEnd.refuse());
    }
    expose(packet, &mut step, next, at)?;
    step.way = match behavior {
        Behavior::EndX | Behavior::EndDx4 | Behavior::EndDx6 => Way::Adjacency,
        Behavior::EndDx2 => Way::Device,
        Behavior::EndAs | Behavior::EndAd4 | Behavior::EndAd6 => Way::Function,
        _ => Way::Table,
    };
    Ok(step)
}

/// Whether a decapsulating behavior takes this next header.
#[inline(always)]
const fn is_for(behavior: Behavior, next: u8) -> bool {
    match behavior {
        Behavior::EndDx2 => next == NEXT_ETHERNET,
        Behavior::EndDx4 | Behavior::EndDt4 | Behavior::EndAd4 => next == NEXT_IPV4,
        Behavior::EndDx6 | Behavior::EndDt6 | Behavior::EndAd6 => next == NEXT_IPV6,
        Behavior::EndDt46 => matches!(next, NEXT_IPV4 | NEXT_IPV6),
        // Nothing puts frames behind headers again.
        Behavior::EndAs => matches!(next, NEXT_IPV4 | NEXT_IPV6),
        Behavior::End | Behavior::EndX | Behavior::EndT | Behavior::EndAm | Behavior::EndAn => {
            false
        }
    }
}

/// What the extension headers from `at` on, which begin with `next`, end in. A routing header among them, such as a second SRH, must
/// not have segments left (RFC 8200, section 4.4).
#[inline(always)]
fn upper_layer<L: Load + ?Sized>(packet: &L, next: u8, at: usize) -> Result<(u8, usize), Refusal> {
    let (mut next, mut at) = (next, at);
    for _ in 0..ipv6::MAX_EXTENSIONS {
        match next {
            ipv6::HOP_BY_HOP | ipv6::DESTINATION | ipv6::ROUTING => {}
            // Nothing here takes fragments.
            ipv6::FRAGMENT => return Err(Cause::UpperLayer.at(at)),
            _ => return Ok((next, at)),
        }
        let Some([following, words, _, segments_left]) = packet.bytes(at) else {
            return Err(Cause::UpperLayer.at(at));
        };
        if next == ipv6::ROUTING && segments_left != 0 {
            return Err(Cause::Header.at(at + SEGMENTS_LEFT));
        }
        next = following;
        at += (usize::from(words) + 1) * 8;
    }
    match next {
        ipv6::HOP_BY_HOP | ipv6::DESTINATION | ipv6::ROUTING | ipv6::FRAGMENT => {
            Err(Cause::UpperLayer.at(at))
        }
        _ => Ok((next, at)),
    }
}

/// Removes all in front of the packet at `at`, after a look at that.
#[inline(always)]
fn expose<L: Load + ?Sized>(
    packet: &L,
    step: &mut Step,
    next: u8,
    at: usize,
) -> Result<(), Refusal> {
    let end = match packet.bytes::<2>(4) {
        Some(len) => usize::from(u16::from_be_bytes(len)) + ipv6::HEADER_LEN,
        None => return Err(Cause::Malformed.refuse()),
    };
    if at > Inner::<L>::MAX_AT || at > end {
        return Err(Cause::Malformed.refuse());
    }
    let inner = Inner::new(packet, at, end - at);
    let is_right = match next {
        NEXT_IPV4 => inner.starts_with(4) && InnerPacket::parse_v4(&inner).is_ok(),
        NEXT_IPV6 => inner.starts_with(6) && InnerPacket::parse_v6(&inner).is_ok(),
        _ => inner.len >= ethernet::HEADER_LEN,
    };
    if !is_right {
        return Err(Cause::Inner.refuse());
    }
    step.strip = at as u16;
    step.exposed = next;
    Ok(())
}

/// What is inside a packet.
pub(super) struct Inner<'a, L: ?Sized> {
    packet: &'a L,
    at: usize,
    len: usize,
}

impl<'a, L: Load + ?Sized> Inner<'a, L> {
    /// Highest offset. Bounded for the verifier to see; all headers together are shorter.
    pub(super) const MAX_AT: usize = 4095;

    /// So many bytes of the packet from `at` on.
    #[inline(always)]
    pub(super) const fn new(packet: &'a L, at: usize, len: usize) -> Self {
        Self {
            packet,
            at: at & Self::MAX_AT,
            len,
        }
    }

    #[inline(always)]
    pub(super) fn starts_with(&self, version: u8) -> bool {
        self.bytes(0)
            .is_some_and(|[first, _]: [u8; 2]| first >> 4 == version)
    }
}

impl<L: Load + ?Sized> Load for Inner<'_, L> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    fn bytes<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        if offset + N > self.len {
            return None;
        }
        self.packet.bytes(self.at + offset)
    }
}

const NO_SRH: Srh = Srh {
    offset: 0,
    announced_at: 0,
    len: 0,
    packet_len: 0,
    next_header: 0,
    segments_left: 0,
    last_entry: 0,
    flags: 0,
    tag: 0,
};

const NOTHING: Step = Step {
    advances: false,
    destination: [0; 16],
    masquerades: false,
    pops: false,
    srh: NO_SRH,
    strip: 0,
    exposed: 0,
    way: Way::Local,
    target: 0,
};
