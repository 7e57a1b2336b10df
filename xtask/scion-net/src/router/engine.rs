//! What a border router does with a packet, apart from sending it.

use std::{net::SocketAddr, ops::Range, sync::Arc};

use sig::scion::{
    packet,
    scmp::{Problem, Quote, Scmp},
};
use sig_common::{
    addr::{HostAddr, IsdAs},
    wire::{
        PROTO_UDP,
        scion::{
            NEXT_SCMP, View,
            address::AddressHeader,
            path::{self, Path},
            udp,
        },
    },
};

use super::pointers::Pointers;
use crate::{
    link::Fate,
    paths::is_expired,
    topology::{As, Topology},
};

/// Where a packet came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A host of the AS, with this underlay address.
    Inside(SocketAddr),
    /// The neighbour at this interface.
    Link(u16),
}

/// What to do with a packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It goes to the neighbour at this interface.
    Forward { interface: u16, fate: Fate },
    /// It goes to this host of the AS.
    Deliver(SocketAddr),
    /// This goes back to where the packet came from.
    Answer(Vec<u8>),
    /// It has to be thrown away.
    Drop(&'static str),
}

/// Codes of SCMP Parameter Problem.
mod code {
    pub(super) const UNKNOWN_EGRESS: u8 = 50;
    pub(super) const INVALID_MAC: u8 = 51;
    pub(super) const PATH_EXPIRED: u8 = 52;
}

/// The router of an AS.
#[derive(Debug)]
pub(super) struct Engine {
    topology: Arc<Topology>,
    own: As,
}

impl Engine {
    pub(super) fn new(topology: Arc<Topology>, own: As) -> Self {
        Self { topology, own }
    }

    /// Decides about a packet, and changes it for the next router. `now` is in seconds since 1970.
    pub(super) fn process(&self, packet: &mut [u8], origin: Origin, now: u64) -> Verdict {
        let Ok(view) = View::new_checked(packet) else {
            return Verdict::Drop("malformed");
        };
        let addresses = view.addresses();
        let for_us = addresses.destination_isd_as == self.own.isd_as;
        match view.path() {
            Path::Empty if for_us && matches!(origin, Origin::Inside(_)) => {
                self.deliver(packet, origin)
            }
            Path::Scion(_) => {
                let transit = Transit {
                    router: self,
                    path: path_of(&view),
                    packet,
                    origin,
                    addresses,
                };
                transit.process(for_us, now)
            }
            _ => Verdict::Drop("path type"),
        }
    }

    /// To a host of this AS.
    fn deliver(&self, packet: &[u8], origin: Origin) -> Verdict {
        let Ok(view) = View::new_checked(packet) else {
            return Verdict::Drop("malformed");
        };
        let host = match view.addresses().destination {
            HostAddr::SVC_DS | HostAddr::SVC_CS => return Verdict::Deliver(self.own.resolution),
            host => match host.ip() {
                Some(ip) if !ip.is_unspecified() && !ip.is_multicast() => ip,
                _ => return Verdict::Drop("no host"),
            },
        };
        let port = match view.upper_layer() {
            Ok((PROTO_UDP, bytes)) => match udp::View::new_checked(bytes) {
                Ok(datagram) => datagram.header().destination_port,
                Err(_) => return Verdict::Drop("malformed"),
            },
            Ok((NEXT_SCMP, bytes)) => match Scmp::decode(bytes) {
                Some(Scmp::EchoRequest(_)) if host == self.own.router.ip() => {
                    return echo(packet, origin);
                }
                Some(message) => match message.underlay_port() {
                    Some(port) => port,
                    None => return Verdict::Drop("quote"),
                },
                None => return Verdict::Drop("malformed"),
            },
            _ => return Verdict::Drop("upper layer"),
        };
        let address = SocketAddr::new(host, port);
        if address == self.own.control_service {
            return Verdict::Deliver(address);
        }
        Verdict::Deliver(SocketAddr::new(host, self.own.delivery_port(port)))
    }
}

/// Where the path is in a packet.
fn path_of(view: &View<'_>) -> Range<usize> {
    let end = view.common().header_len();
    end - view.path().bytes().len()..end
}

/// Answers an echo request to the router itself.
fn echo(packet: &[u8], origin: Origin) -> Verdict {
    let Some(mut reply) = packet::parse(packet).ok().and_then(|p| p.echo_reply()) else {
        return Verdict::Drop("malformed");
    };
    if let Origin::Link(_) = origin
        && let Ok(view) = View::new_checked(&reply)
    {
        let path = path_of(&view);
        leave(&mut reply[path]);
    }
    Verdict::Answer(reply)
}

/// Moves a path on to the neighbour, unless it is no SCION path.
fn leave(path: &mut [u8]) {
    if let Some(mut path) = Pointers::new(path) {
        path.leave();
    }
}

/// A packet with a SCION path.
struct Transit<'a> {
    router: &'a Engine,
    packet: &'a mut [u8],
    path: Range<usize>,
    origin: Origin,
    addresses: AddressHeader,
}

impl Transit<'_> {
    fn process(mut self, for_us: bool, now: u64) -> Verdict {
        let router = self.router;
        let own = &router.own;
        let (origin, from_us) = (self.origin, self.addresses.source_isd_as == own.isd_as);
        let Some(mut path) = self.pointers() else {
            return Verdict::Drop("malformed");
        };
        // What an answer starts from.
        let arrived = path.meta();
        if let Origin::Link(interface) = origin {
            if path.ingress() != interface {
                return Verdict::Drop("wrong interface");
            }
            if path.is_at_end() != for_us || from_us {
                return Verdict::Drop("not on its way");
            }
            path.arrive();
        } else if !path.is_at_start() || !from_us || for_us {
            return Verdict::Drop("not on its way");
        }
        if let Some(problem) = self.check(now) {
            return self.parameter_problem(arrived, problem);
        }
        if let Origin::Link(interface) = origin
            && self.path().take_ingress_alert()
            && let Some(answer) = self.traceroute_reply(arrived, interface)
        {
            return answer;
        }
        if for_us {
            return router.deliver(self.packet, origin);
        }
        if matches!(origin, Origin::Link(_)) && self.path().is_at_crossover() {
            self.path().cross();
            if let Some(problem) = self.check(now) {
                return self.parameter_problem(arrived, problem);
            }
        }
        let mut path = self.path();
        let interface = path.egress();
        let alert = path.take_egress_alert();
        if path.is_at_end() {
            return Verdict::Drop("not on its way");
        }
        let Some((link, _)) = router.topology.at(own.isd_as, interface) else {
            return self.parameter_problem(arrived, code::UNKNOWN_EGRESS);
        };
        if alert && let Some(answer) = self.traceroute_reply(arrived, interface) {
            return answer;
        }
        let fate = link.fate(self.packet.len());
        match fate {
            Fate::InterfaceDown => {
                let problem = Problem::InterfaceDown {
                    isd_as: own.isd_as,
                    interface: interface.into(),
                };
                self.report(arrived, problem)
            }
            Fate::TooBig { mtu } => self.report(arrived, Problem::PacketTooBig { mtu }),
            Fate::Arrives { .. } | Fate::Vanishes => {
                self.path().leave();
                Verdict::Forward { interface, fate }
            }
        }
    }

    fn pointers(&mut self) -> Option<Pointers<'_>> {
        Pointers::new(&mut self.packet[self.path.clone()])
    }

    /// After [`Self::pointers`] has found nothing wrong.
    fn path(&mut self) -> Pointers<'_> {
        self.pointers().expect("a path that was checked")
    }

    /// What is wrong with the current hop.
    fn check(&mut self, now: u64) -> Option<u8> {
        let isd_as = self.router.own.isd_as;
        let path = self.path();
        let (info, hop) = (path.info(), path.hop());
        if is_expired(info.timestamp, hop.expiry, now) {
            return Some(code::PATH_EXPIRED);
        }
        (!path.has_mac_of(isd_as)).then_some(code::INVALID_MAC)
    }

    /// An answer to a traceroute request; `None` if the packet is something else.
    fn traceroute_reply(&mut self, arrived: path::Meta, interface: u16) -> Option<Verdict> {
        let view = View::new_checked(self.packet).ok()?;
        let Ok((NEXT_SCMP, message)) = view.upper_layer() else {
            return None;
        };
        let Scmp::TracerouteRequest { id, sequence } = Scmp::decode(message)? else {
            return None;
        };
        let reply = Scmp::TracerouteReply {
            id,
            sequence,
            isd_as: self.router.own.isd_as,
            interface: interface.into(),
        };
        Some(self.answer(arrived, &reply))
    }

    fn parameter_problem(&mut self, arrived: path::Meta, code: u8) -> Verdict {
        let pointer = self.path.start + self.path().offset_of_hop();
        let pointer = pointer as u16;
        self.report(arrived, Problem::Parameter { code, pointer })
    }

    fn report(&mut self, arrived: path::Meta, problem: Problem) -> Verdict {
        let upper_layer = View::new_checked(self.packet).map(|view| {
            let upper_layer = view.upper_layer().ok()?;
            (upper_layer.0 == NEXT_SCMP).then(|| Scmp::decode(upper_layer.1))?
        });
        if matches!(upper_layer, Ok(Some(message)) if message.is_error()) {
            return Verdict::Drop("error about an error");
        }
        let quote = Quote::new(self.packet);
        self.answer(arrived, &Scmp::Error { problem, quote })
    }

    /// A message to the sender, the way that the packet came.
    fn answer(&mut self, arrived: path::Meta, message: &Scmp) -> Verdict {
        let (origin, addresses) = (self.origin, self.addresses);
        let mut path = self.path();
        path.set_meta(arrived);
        let mut back = path.reversed();
        if matches!(origin, Origin::Link(_)) {
            leave(&mut back);
        }
        let own = &self.router.own;
        let us: (IsdAs, HostAddr) = (own.isd_as, own.router.ip().into());
        let sender = (addresses.source_isd_as, addresses.source);
        match packet::scmp(us, sender, path::SCION, &back, message) {
            Ok(answer) => Verdict::Answer(answer),
            Err(_) => Verdict::Drop("no way back"),
        }
    }
}
