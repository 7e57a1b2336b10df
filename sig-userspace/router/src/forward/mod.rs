//! What a border router does with a packet: bytes in, verdict out.
//!
//! Pure, and plain rather than fast: the slow path runs it over every packet that the fast path leaves alone, and tests
//! hold the XDP program against it. It follows the order of the reference's checks, which settles the error that wins.
//!
//! | step | where |
//! |---|---|
//! | kind of packet: STUN, BFD, path types | here |
//! | what is where in it | `header` |
//! | SCION paths, step by step | `transit`, on a `cursor` |
//! | EPIC's own checks | `epic` |
//! | one-hop paths | `one_hop` |
//! | to a host or service of the AS | `deliver` |
//! | SCMP answers and the way back | `answer` |
//!
//! A packet is written to when it is certain that it is forwarded, and not before.

mod answer;
mod cursor;
mod deliver;
mod epic;
mod halt;
mod header;
mod one_hop;
mod transit;

use std::{net::SocketAddr, ops::Range, sync::Arc, time::Duration};

pub use sig_common::router::{Reason, maps::Traffic};
use sig_common::wire::scion::{NEXT_BFD, path};

use self::{
    cursor::Changes,
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
enum Way {
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
        if matches!(ingress, Ingress::Internal(_)) && is_stun(packet) {
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
        let header = match Header::parse(packet) {
            Ok(header) => header,
            Err(reason) => return (Outcome::dropped(reason), unchanged),
        };
        let context = Context {
            packet,
            header: &header,
            origin,
            now,
        };
        if let Err(halt) = header.check() {
            return (self.halted(&context, halt, &unchanged), unchanged);
        }
        if let Some(outcome) = bfd(&context) {
            return (outcome, unchanged);
        }
        match header.path_type() {
            path::EMPTY => (self.within(&context), unchanged),
            path::ONE_HOP => self.one_hop(&context),
            path::SCION => self.transit(&context, header.path_bytes(), None, links),
            path::EPIC => self.epic(&context, links),
            _ => (Outcome::dropped(Reason::PathType), unchanged),
        }
    }

    /// A packet with a SCION path; with EPIC, also with the proof in front of it.
    fn transit(
        &self,
        context: &Context<'_>,
        path: &[u8],
        proof: Option<&Proof>,
        links: &(impl Links + ?Sized),
    ) -> (Outcome, Changes) {
        let mut transit = match Transit::new(self, context, path) {
            Ok(transit) => transit,
            Err(halt) => {
                let unchanged = Changes::default();
                return (self.halted(context, halt, &unchanged), unchanged);
            }
        };
        let hops_behind = transit.cursor().hops_behind();
        match transit.process(links) {
            Ok(_) if proof.is_some_and(|p| !p.holds(context, hops_behind, &transit)) => {
                (Outcome::dropped(Reason::Epic), Changes::default())
            }
            Ok(passage) => {
                let outcome = Outcome {
                    verdict: passage.way.into(),
                    reason: passage.fast,
                    fast: passage.fast,
                    traffic: Some(passage.traffic),
                };
                (outcome, transit.changes())
            }
            Err(halt) => {
                let outcome = self.halted(context, halt, &transit.changes());
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

impl From<Way> for Verdict {
    fn from(way: Way) -> Self {
        match way {
            Way::Link(interface) => Self::Forward { interface },
            Way::Sibling(sibling) => Self::Sibling(sibling),
            Way::Host(address) => Self::Deliver(address),
        }
    }
}

/// Whether a packet is a STUN message (RFC 8489): its magic cookie is in the place of SCION's next header, where it is
/// none.
fn is_stun(packet: &[u8]) -> bool {
    const HEADER_LEN: usize = 20;
    const COOKIE: [u8; 4] = [0x21, 0x12, 0xa4, 0x42];
    packet.len() >= HEADER_LEN
        && packet.first().is_some_and(|byte| byte & 0xc0 == 0)
        && packet.get(4..8) == Some(&COOKIE)
}

/// A BFD packet: a message without extension headers in front, from a neighbour with a one-hop path, from a sibling
/// with an empty one.
fn bfd(context: &Context<'_>) -> Option<Outcome> {
    let header = context.header;
    let peer = match (context.origin, header.path_type()) {
        (Origin::Link(interface), path::ONE_HOP) => Peer::Interface(interface),
        (Origin::Sibling(sibling), path::EMPTY) => Peer::Sibling(sibling),
        _ => return None,
    };
    let message = header.payload_range(context.packet);
    let bfd = Verdict::Bfd { peer, message };
    (header.next_header() == NEXT_BFD).then(|| Outcome::stopped(bfd, Reason::Bfd))
}

/// Parameter problem (SCMP type 4) with this code.
const fn parameter(code: u8, pointer: usize) -> Problem {
    Problem::Parameter {
        code,
        // Pointers lie within the SCION header, which has at most 1020 bytes.
        pointer: pointer as u16,
    }
}

/// Codes of parameter problems.
mod code {
    pub(super) const UNKNOWN_VERSION: u8 = 17;
    pub(super) const INVALID_SIZE: u8 = 19;
    pub(super) const UNKNOWN_ADDRESS_FORMAT: u8 = 21;
    pub(super) const INVALID_SOURCE: u8 = 33;
    pub(super) const INVALID_DESTINATION: u8 = 34;
    pub(super) const INVALID_PATH: u8 = 48;
    pub(super) const UNKNOWN_INGRESS: u8 = 49;
    pub(super) const UNKNOWN_EGRESS: u8 = 50;
    pub(super) const INVALID_MAC: u8 = 51;
    pub(super) const PATH_EXPIRED: u8 = 52;
    pub(super) const INVALID_SEGMENT_CHANGE: u8 = 53;
}
