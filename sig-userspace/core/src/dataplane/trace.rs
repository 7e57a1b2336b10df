//! What would be done with a packet, and which entries of the tables decide that.
//!
//! The decisions are those of the functions that decide about packets. Nothing is counted, marked, copied or sent.

use std::net::IpAddr;

use ipnet::IpNet;
use sig_common::{
    reason::DropReason,
    wire::{flow::flow_hash, inner::InnerPacket},
};

use super::{
    filter::{Decision, Direction},
    police,
    tables::{Session, Tables, Target, Used},
};
use crate::{fast_path::teacher::has_all_of_its_flow, framing::MAX_FRAMES_PER_PACKET};

/// A packet to a remote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Egress {
    /// The longest prefix with the destination; `None`: there is none, or an address may not cross.
    pub route: Option<(IpNet, Route)>,
    /// The places of the filter's rules of this direction that hold for it.
    pub rules: Vec<usize>,
    /// What they say.
    pub decision: Decision,
    /// The place of the session in the tables.
    pub session: Option<u16>,
    /// The part of the session's flows that its flow belongs to, where flows are spread over several paths.
    pub bucket: Option<usize>,
    /// The place of the path in the tables.
    pub path: Option<u16>,
    /// How many frames it takes.
    pub frames: usize,
    /// Whether the first packet of the flow lets the programs send those that follow, if they can send on the path.
    pub is_simple: bool,
    /// Why it is dropped; `Ok` if it is sent, or goes through the chain of the decision.
    pub verdict: Result<(), DropReason>,
}

/// Where a prefix leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// It is at home here.
    Home,
    /// To a site whose packets all go the same way.
    Site,
    /// To a site with classes of packets: the place of the one that this belongs to, if there is one.
    Class(Option<usize>),
}

/// A packet from a remote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ingress {
    /// The longest prefix with the source that is accepted from the remote.
    pub accepted: Option<IpNet>,
    /// The longest prefix with the source that is at home here.
    pub home: Option<IpNet>,
    /// The longest prefix with the destination that is served here; `None` also where all are that lead into no tunnel.
    pub served: Option<IpNet>,
    /// The places of the filter's rules of this direction that hold for it.
    pub rules: Vec<usize>,
    /// What they say.
    pub decision: Decision,
    /// Where it is delivered.
    pub delivery: Option<Delivery>,
    /// Why it is dropped; `Ok` if it is delivered, or goes through the chain of the decision.
    pub verdict: Result<(), DropReason>,
}

/// Where a packet from a remote is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Straight to a neighbour.
    Lan {
        /// Number of the LAN interface.
        port: u16,
        /// The neighbour.
        address: IpAddr,
        /// Its MAC address.
        mac: [u8; 6],
        /// Whether programs deliver what follows the first packet.
        fast: bool,
    },
    /// By the kernel's routes, through the tunnel device.
    Kernel {
        /// Whether it is dropped if they lead into the tunnel again, back to where it came from.
        but_not_back: bool,
    },
}

impl Tables {
    /// What is done with a packet of a LAN host.
    #[must_use]
    pub fn trace_egress(&self, packet: &InnerPacket) -> Egress {
        let (decision, rules) = self.filter.explain(Direction::Egress, packet);
        let mut trace = Egress {
            route: None,
            rules,
            decision,
            session: None,
            bucket: None,
            path: None,
            frames: 1,
            is_simple: false,
            verdict: Ok(()),
        };
        trace.verdict = self.follow_egress(packet, &mut trace);
        trace
    }

    /// As `Encap::classify` goes about it.
    fn follow_egress(&self, packet: &InnerPacket, trace: &mut Egress) -> Result<(), DropReason> {
        let found = self.target(packet.source, packet.destination);
        if found != Err(DropReason::AddressScope) {
            let route = |target| match target {
                Target::Home => Route::Home,
                Target::Fixed(_) => Route::Site,
                Target::Rules(site) => Route::Class(self.routing.class(site, packet)),
            };
            let entry = self.routing.find(packet.destination);
            trace.route = entry.map(|(prefix, target)| (prefix, route(target)));
        }
        let target = found?;
        if packet.ttl <= 1 {
            return Err(DropReason::TtlExpired);
        }
        match trace.decision {
            Decision::Carry { .. } => {}
            Decision::Drop => return Err(DropReason::Filtered),
            Decision::Chain(chain) if u32::from(packet.total_len) > chain.room => {
                return Err(DropReason::PacketTooBig);
            }
            Decision::Chain(_) => return Ok(()),
        }
        let session = self.session_to(target, packet)?;
        trace.session = Some(session);
        let hash = flow_hash(packet);
        if let Some(Session::ManyPaths(..)) = self.sessions.get(usize::from(session)) {
            trace.bucket = Some(Used::bucket(hash));
        }
        let place = self.path_to(target, packet, |spread| spread.look_up(hash))?;
        trace.path = Some(place);
        if let Some(path) = self.paths.get(usize::from(place)) {
            let capacity = path.packer.capacity();
            trace.frames = usize::from(packet.total_len).div_ceil(capacity).max(1);
            if trace.frames > MAX_FRAMES_PER_PACKET {
                return Err(DropReason::PacketTooBig);
            }
        }
        trace.is_simple =
            trace.frames == 1 && trace.decision.is_plain() && has_all_of_its_flow(packet);
        Ok(())
    }

    /// What is done with a packet of the remote at this place of [`Tables::remotes`].
    #[must_use]
    pub fn trace_ingress(&self, slot: u16, packet: &InnerPacket) -> Ingress {
        let (decision, rules) = self.filter.explain(Direction::Ingress, packet);
        let remote = self.remotes.get(usize::from(slot));
        let at_home = self.routing.find(packet.source);
        let mut trace = Ingress {
            accepted: remote
                .and_then(|remote| remote.accepted.find(packet.source))
                .map(|(prefix, _)| prefix),
            home: at_home
                .filter(|(_, target)| *target == Target::Home)
                .map(|(prefix, _)| prefix),
            served: self
                .served
                .as_ref()
                .and_then(|served| served.find(packet.destination))
                .map(|(prefix, _)| prefix),
            rules,
            decision,
            delivery: None,
            verdict: Ok(()),
        };
        trace.verdict = self.follow_ingress(slot, packet, &mut trace);
        trace
    }

    /// As `decap::finish` goes about it.
    fn follow_ingress(
        &self,
        slot: u16,
        packet: &InnerPacket,
        trace: &mut Ingress,
    ) -> Result<(), DropReason> {
        let delivery = police::decide(self, slot, packet.source, packet.destination)?;
        let goes_back = delivery == police::Delivery::KernelButNotBack;
        match trace.decision {
            Decision::Carry { .. } => {}
            Decision::Drop => return Err(DropReason::Filtered),
            Decision::Chain(_) if goes_back => return Err(DropReason::RoutingLoop),
            Decision::Chain(chain) if u32::from(packet.total_len) > chain.room => {
                return Err(DropReason::PacketTooBig);
            }
            Decision::Chain(_) => return Ok(()),
        }
        if let police::Delivery::Lan(place) | police::Delivery::LanThisOne(place) = delivery {
            let neighbours = self.lan.in_order();
            let hop = self.lan.hop(place).filter(|hop| hop.takes(packet));
            if let (Some(_), Some(((port, address), neighbour))) =
                (hop, neighbours.get(place as usize))
            {
                let number = self.fast_hops.get(place as usize).copied().unwrap_or(0);
                trace.delivery = Some(Delivery::Lan {
                    port: *port,
                    address: *address,
                    mac: neighbour.mac,
                    fast: number != 0 && trace.decision.is_plain(),
                });
                return Ok(());
            }
        }
        trace.delivery = Some(Delivery::Kernel {
            but_not_back: goes_back,
        });
        if u32::from(packet.total_len) > self.tunnel_mtu {
            return Err(DropReason::PacketTooBig);
        }
        Ok(())
    }

    /// Whether an address is one of a SID behind this gateway, with which no packets cross.
    #[must_use]
    pub fn is_sid(&self, address: IpAddr) -> bool {
        self.filter.is_sid(address)
    }
}
