//! Rules about inner packets: which are carried, counted, copied, or sent through a service chain.

use std::{net::IpAddr, sync::Arc};

use sig_common::{mark::Mark, wire::inner::InnerPacket};

use super::{context::Context, inner, lpm::Lpm};
use crate::{
    counter::Counter,
    policy::class::Condition,
    port::umem::{Frame, HEADROOM},
};

/// Rules of both directions. None holds: the packet is carried.
#[derive(Debug, Default)]
pub struct Filter {
    egress: Box<[FilterRule]>,
    ingress: Box<[FilterRule]>,
    /// Prefixes of the SIDs behind this gateway: nothing from remotes is delivered there (RFC 8754, section 5).
    locators: Lpm<()>,
    by_flow: bool,
}

/// A rule.
#[derive(Clone, Debug)]
pub struct FilterRule {
    /// Which packets.
    pub condition: Arc<Condition>,
    /// What is done with them.
    pub action: FilterAction,
    /// Per worker, what the rule held for.
    pub hits: Arc<[Hits]>,
}

/// What is done with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterAction {
    /// It is carried, whatever later rules say.
    Accept,
    /// It is dropped.
    Drop,
    /// It is counted; later rules decide.
    Count,
    /// A copy leaves by the device that the SR node knows under this number; later rules decide.
    Mirror(u32),
    /// It goes through a chain, and is carried when it returns.
    Chain(Chain),
    /// What answers it goes through a chain that takes packets of this many bytes at most; later rules decide.
    Answered(u32),
}

/// A chain, as the engine knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Number of the SR node's policy.
    pub policy: u32,
    /// Longest packet that fits it and the way there, bytes.
    pub room: u32,
    /// Longest packet that fits this chain and that of the answers: what TCP connections are kept to.
    pub segment: u32,
}

/// What a rule held for. Aligned so that workers do not share cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Hits {
    /// Packets.
    pub packets: Counter,
    /// Bytes of these.
    pub bytes: Counter,
}

/// What the rules say about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is carried.
    Carry {
        /// So are all packets of its flow, and nothing else is done with them.
        repeats: bool,
        /// What TCP connections are kept to, bytes.
        segment: u32,
    },
    /// It is dropped.
    Drop,
    /// It goes through a chain first.
    Chain(Chain),
}

impl Decision {
    /// Whether all packets of the flow are carried, and nothing else is done with them.
    #[must_use]
    pub const fn is_plain(self) -> bool {
        matches!(self, Self::Carry { repeats: true, .. })
    }

    /// What TCP connections are kept to, bytes.
    pub(super) const fn segment(self) -> usize {
        match self {
            Self::Carry { segment, .. } => segment as usize,
            Self::Chain(chain) => chain.segment as usize,
            Self::Drop => usize::MAX,
        }
    }
}

impl Filter {
    /// These rules, of packets to remotes and of packets from there. The first one that decides counts.
    #[must_use]
    pub fn new(egress: Vec<FilterRule>, ingress: Vec<FilterRule>, locators: Lpm<()>) -> Self {
        // What is kept to a size opens a connection, and is a worker's anyway.
        let looks_further = |rule: &FilterRule| {
            !matches!(rule.action, FilterAction::Answered(_))
                && rule.condition.looks_beyond_addresses()
        };
        Filter {
            by_flow: ingress.iter().any(looks_further),
            egress: egress.into(),
            ingress: ingress.into(),
            locators,
        }
    }

    /// Whether packets from remotes between the same addresses may be decided differently.
    #[must_use]
    pub fn by_flow(&self) -> bool {
        self.by_flow
    }

    /// Whether there are rules about packets to remotes.
    #[must_use]
    pub fn looks_at_egress(&self) -> bool {
        !self.egress.is_empty()
    }

    /// Whether the address is one of a SID behind this gateway.
    pub(super) fn is_sid(&self, address: IpAddr) -> bool {
        self.locators.get(address).is_some()
    }

    /// What is done with packets like this one to a remote; nothing is counted or copied.
    #[must_use]
    pub fn of_egress(&self, packet: &InnerPacket) -> Decision {
        decide(&self.egress, packet, |_| {})
    }

    /// As [`Filter::of_egress`] and [`Filter::of_ingress`], and the places of the rules that held among those of the direction.
    pub(super) fn explain(
        &self,
        direction: Direction,
        packet: &InnerPacket,
    ) -> (Decision, Vec<usize>) {
        let rules = match direction {
            Direction::Egress => &self.egress,
            Direction::Ingress => &self.ingress,
        };
        let mut held = Vec::new();
        let decision = decide(rules, packet, |rule| {
            held.extend(rules.iter().position(|of| std::ptr::eq(of, rule)));
        });
        (decision, held)
    }

    /// The same for packets from a remote.
    #[must_use]
    pub fn of_ingress(&self, packet: &InnerPacket) -> Decision {
        decide(&self.ingress, packet, |_| {})
    }
}

impl FilterRule {
    /// Nothing gets around a function or a prohibition in fragments.
    fn holds(&self, packet: &InnerPacket) -> bool {
        match self.action {
            FilterAction::Drop | FilterAction::Chain(_) => self.condition.may_match(packet),
            FilterAction::Accept
            | FilterAction::Count
            | FilterAction::Mirror(_)
            | FilterAction::Answered(_) => self.condition.matches(packet),
        }
    }
}

fn decide(
    rules: &[FilterRule],
    packet: &InnerPacket,
    mut holds: impl FnMut(&FilterRule),
) -> Decision {
    let (mut repeats, mut segment) = (true, u32::MAX);
    for rule in rules.iter().filter(|rule| rule.holds(packet)) {
        holds(rule);
        match rule.action {
            FilterAction::Accept => break,
            FilterAction::Drop => return Decision::Drop,
            FilterAction::Chain(chain) => return Decision::Chain(chain),
            FilterAction::Count | FilterAction::Mirror(_) => repeats = false,
            FilterAction::Answered(room) => segment = segment.min(room),
        }
    }
    Decision::Carry { repeats, segment }
}

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// To a remote.
    Egress,
    /// From one.
    Ingress,
}

/// What is done with the packet that `frame` holds. It is counted and copied as well.
#[inline]
pub(super) fn apply(
    context: &mut Context<'_>,
    direction: Direction,
    frame: &Frame,
    packet: &InnerPacket,
) -> Decision {
    let tables = context.tables;
    let rules = match direction {
        Direction::Egress => &tables.filter.egress,
        Direction::Ingress => &tables.filter.ingress,
    };
    if rules.is_empty() {
        return Decision::Carry {
            repeats: true,
            segment: u32::MAX,
        };
    }
    let worker = context.worker;
    decide(rules, packet, |rule| {
        if let Some(hits) = rule.hits.get(worker) {
            hits.packets.add(1);
            hits.bytes.add(packet.total_len.into());
        }
        if let FilterAction::Mirror(number) = rule.action {
            copy(context, Mark::Mirror(number), frame, packet);
        }
    })
}

/// Puts an Ethernet header with the mark in front of the packet that `frame` holds, behind room for that.
pub(super) fn mark(context: &Context<'_>, mark: Mark, frame: &mut Frame, packet: &InnerPacket) {
    let mut macs = context.tables.tunnel_macs;
    macs[..6].copy_from_slice(&mark.address());
    inner::put_ethernet(frame, context.area, &macs, packet);
}

/// Sends a copy of the packet that `frame` holds, unless no chunk is free or the tunnel device does not take it.
#[cold]
fn copy(context: &mut Context<'_>, with: Mark, frame: &Frame, packet: &InnerPacket) {
    let bytes = frame.bytes(context.area);
    let copy = match bytes.len() <= context.tables.tunnel_mtu as usize {
        true => context.free.take_for(bytes.len()),
        false => None,
    };
    let Some(mut copy) = copy else {
        context.counters.mirror_lost.add(1);
        return;
    };
    copy.place(HEADROOM, bytes.len());
    copy.bytes_mut(context.area).copy_from_slice(bytes);
    mark(context, with, &mut copy, packet);
    context.to_tunnel.push(copy);
}
