//! What a border router does with a packet: bytes in, verdict out.
//!
//! Pure: the slow path runs it over every packet that the fast path leaves alone. What the XDP program does as well is the
//! same source, in [`sig_common::router`]; what both do with a packet is compared by tests all the same.
//!
//! | step | where |
//! |---|---|
//! | kind of packet: STUN, BFD, path types | here |
//! | what is where in it | `header` |
//! | SCION paths, step by step | [`sig_common::router::procedure`], by way of `transit` |
//! | EPIC's own checks | `epic` |
//! | one-hop paths | `one_hop` |
//! | to a host or service of the AS | `deliver`; of hosts [`sig_common::router::delivery`] |
//! | SCMP answers and the way back | `answer` |
//!
//! A packet is written to when it is certain that it is forwarded, and not before.

mod answer;
mod changes;
mod deliver;
mod epic;
mod halt;
mod header;
mod one_hop;
mod transit;

use std::{net::SocketAddr, ops::Range, sync::Arc, time::Duration};

pub use sig_common::router::{Reason, maps::Traffic};
use sig_common::{
    router::passage::Passage,
    wire::{
        Load as _,
        scion::{common, path, scmp::code},
        stun,
    },
};

use self::{
    changes::Changes,
    epic::Proof,
    halt::{Rejection, Reply},
    header::Header,
    transit::Transit,
};
use super::{AsModel, Owner};
use sig_core::scion::scmp::Problem;

/// Where a packet came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ingress {
    /// At the internal address; who sent it in the underlay: a host or a sibling.
    Internal(SocketAddr),
    /// At our end of the link at this interface, from its other end.
    External(u16),
}

/// What changes by itself about the ways out.
pub trait Links {
    /// Whether the link at an interface of this router is up.
    fn is_interface_up(&self, interface: u16) -> bool;

    /// Whether a sibling, by its place in [`AsModel::siblings`], is within reach.
    fn is_sibling_up(&self, sibling: usize) -> bool;

    /// The largest SCION packet that can be sent on a link of this router at all, in bytes. `None`: as an underlay of IP
    /// carries it, which fragments what is longer than the MTU.
    fn most(&self, _interface: u16) -> Option<u16> {
        None
    }
}

/// Links of which all are up.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllUp;

impl Links for AllUp {
    fn is_interface_up(&self, _interface: u16) -> bool {
        true
    }

    fn is_sibling_up(&self, _sibling: usize) -> bool {
        true
    }
}

/// What becomes of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What to do.
    pub verdict: Verdict,
    /// Why the packet was not plainly forwarded; of [`Verdict::Drop`] the same.
    pub reason: Option<Reason>,
    /// The reason for which the fast path leaves the packet alone; `None` if it forwards it. What only the kernel knows
    /// (neighbours, routes to hosts) is left out.
    pub fast: Option<Reason>,
    /// Of a packet with a SCION path that is forwarded: how it is counted.
    pub traffic: Option<Traffic>,
}

/// What to do with a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It leaves by the link at this interface of ours, as it is now.
    Forward {
        /// Number of the interface.
        interface: u16,
    },
    /// It goes to this sibling (a place in [`AsModel::siblings`]), as it is now.
    Sibling(usize),
    /// It goes to this host of the AS, as it is now.
    Deliver(SocketAddr),
    /// This packet goes back to where the other one came from.
    Answer(Vec<u8>),
    /// A BFD packet.
    Bfd {
        /// Whose.
        peer: Peer,
        /// Where the BFD message is in the packet.
        message: Range<usize>,
    },
    /// A STUN message.
    Stun,
    /// It goes nowhere.
    Drop(Reason),
}

/// The other end of a BFD session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Peer {
    /// The neighbour at this interface of ours.
    Interface(u16),
    /// This sibling, a place in [`AsModel::siblings`].
    Sibling(usize),
}

/// Who sent a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// The neighbour at this interface of ours.
    Link(u16),
    /// A sibling.
    Sibling(usize),
    /// Some host of the AS.
    Host,
}

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exit {
    Link(u16),
    Sibling(usize),
    Host(SocketAddr),
}

/// A border router.
#[derive(Clone, Debug)]
pub struct Router {
    model: Arc<AsModel>,
}

/// What can be told of a packet without its path.
struct Context<'a> {
    packet: &'a [u8],
    header: &'a Header<'a>,
    origin: Origin,
    now: Duration,
}

impl Router {
    /// The router that `model` is about.
    #[must_use]
    pub fn new(model: Arc<AsModel>) -> Self {
        Self { model }
    }

    /// What it knows of its AS.
    #[must_use]
    pub fn model(&self) -> &Arc<AsModel> {
        &self.model
    }

    /// Decides about a packet: the payload of an underlay datagram. `now` is the time since 1970.
    ///
    /// The packet is changed in place if the verdict is [`Verdict::Forward`], [`Verdict::Sibling`] or
    /// [`Verdict::Deliver`], and else not.
    pub fn process(
        &self,
        packet: &mut [u8],
        ingress: Ingress,
        now: Duration,
        links: &(impl Links + ?Sized),
    ) -> Outcome {
        let is_stun = |first| stun::is_message(first, packet.len());
        if matches!(ingress, Ingress::Internal(_)) && packet.bytes(0).is_some_and(is_stun) {
            return Outcome::stopped(Verdict::Stun, Reason::Stun);
        }
        let origin = match ingress {
            Ingress::External(interface) => Origin::Link(interface),
            Ingress::Internal(source) => match self.model.sibling_at(source) {
                Some(sibling) => Origin::Sibling(sibling),
                None => Origin::Host,
            },
        };
        if let Origin::Link(interface) = origin
            && !self.has_link(interface)
        {
            return Outcome::dropped(Reason::WrongPeer);
        }
        let (outcome, changes) = self.decide(packet, origin, now, links);
        changes.write(packet);
        outcome
    }

    /// Whether an interface is one of this router.
    fn has_link(&self, interface: u16) -> bool {
        let interface = self.model.interfaces.get(&interface);
        interface.is_some_and(|interface| matches!(interface.owner, Owner::Here { .. }))
    }

    fn decide(
        &self,
        packet: &[u8],
        origin: Origin,
        now: Duration,
        links: &(impl Links + ?Sized),
    ) -> (Outcome, Changes) {
        let unchanged = Changes::default();
        let ingress = match origin {
            Origin::Link(interface) => interface,
            Origin::Sibling(_) | Origin::Host => 0,
        };
        let mut passage = Passage::new(packet.len(), ingress);
        let first_glance = passage.read_header(packet);
        let Some(header) = Header::parse(packet) else {
            let reason = first_glance.err().unwrap_or(Reason::HeaderLength);
            return (Outcome::dropped(reason), unchanged);
        };
        let context = Context {
            packet,
            header: &header,
            origin,
            now,
        };
        if let Err(reason) = first_glance {
            let problem = match reason {
                Reason::Version => parameter(code::UNKNOWN_VERSION, 0),
                Reason::AddressType => {
                    parameter(code::UNKNOWN_ADDRESS_FORMAT, common::ADDRESS_TYPES_OFFSET)
                }
                _ => return (Outcome::dropped(reason), unchanged),
            };
            let halt = Rejection::report(reason, problem);
            return (self.halted(&context, halt, &unchanged), unchanged);
        }
        if let Some(outcome) = bfd(&context, &passage) {
            return (outcome, unchanged);
        }
        match passage.path_type {
            path::EMPTY => (self.within(&context), unchanged),
            path::ONE_HOP => self.one_hop(&context, &passage),
            path::SCION => self.transit(&context, passage, None, links),
            path::EPIC => self.epic(&context, passage, links),
            _ => (Outcome::dropped(Reason::PathType), unchanged),
        }
    }

    /// A packet with a SCION path; with EPIC, also with the proof in front of it.
    fn transit(
        &self,
        context: &Context<'_>,
        mut passage: Passage,
        proof: Option<&Proof>,
        links: &(impl Links + ?Sized),
    ) -> (Outcome, Changes) {
        let packet = context.packet;
        let read = passage.read_isd_as(packet);
        if let Err(reason) = read.and_then(|()| passage.read_position(packet)) {
            return (Outcome::dropped(reason), Changes::default());
        }
        let transit = Transit::new(self, context, links);
        let hops_behind = passage.hops_behind();
        match transit.process(&mut passage) {
            Ok(passed) => {
                let forged = |p: &Proof| !p.holds(context, hops_behind, &passage, &transit.mac());
                if proof.is_some_and(forged) {
                    return (Outcome::dropped(Reason::Epic), Changes::default());
                }
                let outcome = Outcome {
                    verdict: passed.exit.into(),
                    reason: passed.fast,
                    fast: passed.fast,
                    traffic: Some(passed.traffic),
                };
                (outcome, Changes::of(&passage))
            }
            Err(halt) => {
                let outcome = self.halted(context, halt, &Changes::of(&passage));
                (outcome, Changes::default())
            }
        }
    }

    /// An empty path: within the AS, where hosts send to each other and not through a router. Only an echo request to
    /// the router itself is answered.
    fn within(&self, context: &Context<'_>) -> Outcome {
        let local = self.model.isd_as;
        let addresses = context.header;
        let ours = addresses.source_isd_as == local && addresses.destination_isd_as == local;
        if ours
            && !matches!(context.origin, Origin::Link(_))
            && let Some(echo) = self.echo(context)
            && let Some(answer) = self.answer(context, &echo)
        {
            return Outcome::stopped(Verdict::Answer(answer), Reason::EmptyPath);
        }
        Outcome::dropped(Reason::EmptyPath)
    }

    /// A packet goes no further: answers it, if its sender is to be told why. `changes` are those made until then:
    /// errors quote the packet as it stands where they are found, as those of the reference do.
    fn halted(&self, context: &Context<'_>, halt: Rejection, changes: &Changes) -> Outcome {
        let answer = match halt.reply {
            Reply::Nothing => {
                return Outcome {
                    verdict: Verdict::Drop(halt.reason),
                    reason: Some(halt.reason),
                    fast: Some(halt.fast),
                    traffic: None,
                };
            }
            Reply::Problem(problem) => self.report(context, problem, changes),
            Reply::Traceroute { interface, alert } => {
                self.traceroute_reply(context, interface, alert)
            }
            Reply::Echo => self
                .echo(context)
                .and_then(|echo| self.answer(context, &echo)),
        };
        let unanswered = match halt.reply {
            Reply::Problem(_) => Reason::AnswersError,
            _ => halt.reason,
        };
        match answer {
            Some(answer) => Outcome {
                verdict: Verdict::Answer(answer),
                reason: Some(halt.reason),
                fast: Some(halt.fast),
                traffic: None,
            },
            None => Outcome {
                verdict: Verdict::Drop(unanswered),
                reason: Some(unanswered),
                fast: Some(halt.fast),
                traffic: None,
            },
        }
    }
}

impl Outcome {
    fn stopped(verdict: Verdict, reason: Reason) -> Self {
        Self {
            verdict,
            reason: Some(reason),
            fast: Some(reason),
            traffic: None,
        }
    }

    fn dropped(reason: Reason) -> Self {
        Self::stopped(Verdict::Drop(reason), reason)
    }
}

impl From<Exit> for Verdict {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Link(interface) => Self::Forward { interface },
            Exit::Sibling(sibling) => Self::Sibling(sibling),
            Exit::Host(address) => Self::Deliver(address),
        }
    }
}

/// A BFD packet, of the neighbour or sibling that sent it.
fn bfd(context: &Context<'_>, passage: &Passage) -> Option<Outcome> {
    let peer = match context.origin {
        Origin::Link(interface) => Peer::Interface(interface),
        Origin::Sibling(sibling) => Peer::Sibling(sibling),
        Origin::Host => return None,
    };
    let message = context.header.payload_range(context.packet);
    let bfd = Verdict::Bfd { peer, message };
    passage.is_bfd().then(|| Outcome::stopped(bfd, Reason::Bfd))
}

/// Parameter problem (SCMP type 4) with this code.
const fn parameter(code: u8, pointer: usize) -> Problem {
    Problem::Parameter {
        code,
        // Pointers lie within the SCION header, which has at most 1020 bytes.
        pointer: pointer as u16,
    }
}
