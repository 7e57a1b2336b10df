//! As in [`super::model`]: rules, one after the other.

use std::{net::IpAddr, ops::RangeInclusive, sync::Arc};

use ipnet::IpNet;
use sig_common::{
    srv6::{
        Sid,
        filter::{Action, Kind, Row},
        maps::Copied,
    },
    wire::{
        PROTO_TCP, PROTO_UDP,
        inner::InnerPacket,
        ipv6::{UpperLayer, upper_layer},
        srv6::{self, Reject, Srh},
    },
};
use sig_core::policy::{
    class::{Condition, Outer, parse_rule},
    rules::{self, Rule},
};
use sig_linux::bpf::Rules;

use super::{
    model::{IP, be16},
    packets::{IPV4, IPV6},
};
use crate::frames::LO;

/// The counters of the first rule; those of the others follow.
pub(crate) const FIRST_SLOT: u32 = 5000;
/// Where copies go.
pub(crate) const MIRROR: Copied = Copied {
    ifindex: 77,
    mac: [2, 0, 0, 0, 7, 7],
    ethertype: [0, 0],
};
/// The name that rules know the interface `lo` by.
pub(crate) const NAME: &str = "lo";

/// A rule, and the policy that it steers into.
#[derive(Clone, Debug)]
pub(crate) struct Ruled {
    pub(crate) rule: Rule,
    pub(crate) policy: u32,
}

pub(crate) fn ruled(condition: &str, action: Action, policy: u32) -> Ruled {
    Ruled {
        rule: Rule {
            condition: parse_rule(condition).unwrap_or_else(|error| panic!("{error}")),
            interfaces: Vec::new(),
            action,
        },
        policy,
    }
}

/// As the programs follow them; `None` if they are too complex.
pub(crate) fn compiled(ruled: &[Ruled]) -> Option<Rules> {
    let plain: Vec<_> = ruled.iter().map(|of| of.rule.clone()).collect();
    let tables = rules::compile(&plain).ok()?;
    let rows = tables.rows.iter().map(|(place, end)| {
        let Ruled { rule, policy } = &ruled[*place];
        Row {
            action: rule.action as u32,
            target: match rule.action {
                Action::Mirror => MIRROR.ifindex,
                _ => *policy,
            },
            slot: FIRST_SLOT + *place as u32,
            end: *end,
            mac: MIRROR.mac,
            reserved: 0,
        }
    });
    let interfaces = tables.interfaces.get(NAME).map(|class| (LO, *class));
    Some(Rules {
        rows: rows.collect(),
        interfaces: interfaces.into_iter().collect(),
        tables: Arc::new(tables),
    })
}

/// What rules are told of a packet.
struct Seen<'a> {
    packet: &'a [u8],
    inner: InnerPacket,
    /// Where that is.
    at: usize,
    destination: IpAddr,
    has_outer: bool,
    srh: Option<Srh>,
}

fn see(frame: &[u8], kind: Kind) -> Option<Seen<'_>> {
    let packet = &frame[IP..];
    let inner_at = |at: usize, end: usize, version: u8| {
        let inner = packet.get(at..end)?;
        (inner.first()? >> 4 == version && inner.len() > 1).then_some(())?;
        let inner = InnerPacket::parse(inner).ok()?;
        (!matches!(inner.upper(), UpperLayer::Unknown(_))).then_some(inner)
    };
    let plain = |version: u8| {
        let inner = inner_at(0, packet.len(), version)?;
        Some(Seen {
            packet,
            inner,
            at: 0,
            destination: inner.destination,
            has_outer: false,
            srh: None,
        })
    };
    if be16(frame, 12) == 0x0800 {
        return plain(4);
    }
    let srh = match srv6::parse(packet) {
        Ok(srh) => Some(srh),
        Err(Reject::Packet(_)) => return None,
        Err(_) => None,
    };
    if srh.is_none() && kind == Kind::Plain {
        return plain(6);
    }
    let (next, at) = match &srh {
        Some(srh) => (srh.next_header, srh.after().into()),
        None => (packet[6], 40),
    };
    let end = usize::from(be16(packet, 4)) + 40;
    let inside = match upper_layer(packet, next, at) {
        UpperLayer::At { protocol, offset } if offset < end => {
            let at = |version| (offset <= 4095).then(|| inner_at(offset, end, version))?;
            match protocol {
                IPV4 => Some((at(4)?, offset)),
                IPV6 => Some((at(6)?, offset)),
                _ => None,
            }
        }
        _ => None,
    };
    let seen = match inside {
        Some((inner, at)) => Seen {
            packet,
            inner,
            at,
            destination: inner.destination,
            has_outer: true,
            srh,
        },
        None => {
            let plain = plain(6)?;
            let last = srh
                .filter(|srh| srh.segments_left != 0)
                .and_then(|srh| srh.segment(packet, 0));
            Seen {
                has_outer: true,
                srh,
                destination: last.map_or(plain.destination, IpAddr::from),
                ..plain
            }
        }
    };
    Some(seen)
}

impl Seen<'_> {
    fn satisfies(&self, atom: &Condition) -> bool {
        let inner = &self.inner;
        let ports = inner
            .ports()
            .filter(|_| matches!(inner.upper_protocol(), Some(PROTO_TCP | PROTO_UDP)));
        match atom {
            Condition::Source(net) => net.contains(&inner.source),
            Condition::Destination(net) => net.contains(&self.destination),
            Condition::Dscp(code) => inner.tos >> 2 == *code,
            Condition::Tos(tos) => inner.tos == *tos,
            Condition::Protocol(number) => inner.upper_protocol() == Some(*number),
            Condition::SourcePort(range) => ports.is_some_and(|[port, _]| range.contains(&port)),
            Condition::DestinationPort(range) => {
                ports.is_some_and(|[_, port]| range.contains(&port))
            }
            Condition::Outer(outer) => self.has_outer && self.satisfies_outer(outer),
            _ => panic!("{atom} has parts"),
        }
    }

    fn satisfies_outer(&self, outer: &Outer) -> bool {
        let address = |at: usize, net: &IpNet| {
            let address: [u8; 16] = self.packet[at..at + 16].try_into().unwrap();
            net.contains(&IpAddr::from(address))
        };
        let segment = |back: i32, net: &IpNet| {
            self.srh.is_some_and(|srh| {
                let index = i32::from(srh.segments_left) + back;
                let segment = u8::try_from(index)
                    .ok()
                    .and_then(|index| srh.segment(self.packet, index));
                segment.is_some_and(|segment| net.contains(&IpAddr::from(segment)))
            })
        };
        let field = |of: fn(&Srh) -> u16, range: &RangeInclusive<u16>| {
            self.srh
                .as_ref()
                .is_some_and(|srh| range.contains(&of(srh)))
        };
        match outer {
            Outer::Source(net) => address(8, net),
            Outer::Sid(net) => address(24, net),
            Outer::Previous(net) => segment(1, net),
            Outer::Next(net) => segment(-1, net),
            Outer::Last(net) => self.srh.is_some_and(|srh| {
                let last = srh.segment(self.packet, 0);
                last.is_some_and(|last| net.contains(&IpAddr::from(last)))
            }),
            Outer::SegmentsLeft(range) => field(|srh| srh.segments_left.into(), range),
            Outer::LastEntry(range) => field(|srh| srh.last_entry.into(), range),
            Outer::HeaderLength(range) => field(|srh| srh.len / 8 - 1, range),
            Outer::NextHeader(number) => self.srh.is_some_and(|srh| srh.next_header == *number),
            Outer::Tag(range) => field(|srh| srh.tag, range),
        }
    }
}

/// What the rules say.
pub(crate) struct Verdict {
    /// `accept`, if none decides.
    pub(crate) action: Action,
    pub(crate) policy: u32,
    /// The rules that the packet was applied to.
    pub(crate) applied: Vec<usize>,
    /// Copies for mirrors, with their EtherType.
    pub(crate) copies: Vec<(u16, Vec<u8>)>,
}

/// What the rules say about a frame to a SID or to none; `None` if they cannot read it. `is_exempt`: it meets none.
pub(crate) fn judge(
    ruled: &[Ruled],
    frame: &[u8],
    sid: Option<&Sid>,
    is_exempt: bool,
) -> Option<Verdict> {
    let kind = match sid {
        None => Kind::Plain,
        Some(sid) if sid.arguments == 0 => Kind::Sid,
        Some(_) => Kind::Arguments,
    };
    let mut verdict = Verdict {
        action: Action::Accept,
        policy: 0,
        applied: Vec::new(),
        copies: Vec::new(),
    };
    if is_exempt || ruled.is_empty() {
        return Some(verdict);
    }
    let seen = see(frame, kind)?;
    for (place, Ruled { rule, policy }) in ruled.iter().enumerate() {
        let comes_in = rule.interfaces.is_empty() || rule.interfaces.iter().any(|of| of == NAME);
        let holds = || rule.condition.holds(&|atom| seen.satisfies(atom));
        if !comes_in || !rule.action.is_for(kind) || !holds() {
            continue;
        }
        verdict.applied.push(place);
        match rule.action {
            Action::Count => {}
            Action::Mirror => {
                let end = seen.at + usize::from(seen.inner.total_len);
                let inside = seen.packet[seen.at..end].to_vec();
                verdict.copies.push((seen.inner.ethertype(), inside));
            }
            action => {
                verdict.action = action;
                verdict.policy = *policy;
                break;
            }
        }
    }
    Some(verdict)
}
