//! SCION paths: the procedure that the XDP program runs, too, on the model of the AS; and what the sender of a packet is
//! told that goes no further.

use std::cell::Cell;

use sig_common::{
    router::{
        Reason,
        maps::{LinkType, Traffic},
        passage::{Fields, Passage},
        procedure::{self, Interface, Router as _, Source},
    },
    wire::{
        Load,
        scion::{common, scmp::code},
    },
};

use super::{
    Context, Exit, Links, Origin, Router,
    halt::{Alert, Rejection, Reply},
    parameter,
};
use crate::{Owner, model::sibling_number};
use sig_core::scion::scmp::Problem;

/// Where the ISD-AS numbers are in a packet.
const DESTINATION_OFFSET: usize = common::HEADER_LEN;
const SOURCE_OFFSET: usize = common::HEADER_LEN + 8;

/// Largest packet that leaves although it exceeds the MTU, bytes: that of the buffers of the reference's router, which
/// loses longer ones.
const LARGEST_IN_FRAGMENTS: u16 = 9000;

/// How a packet goes on.
#[derive(Debug)]
pub(super) struct Passed {
    pub(super) exit: Exit,
    pub(super) traffic: Traffic,
    /// Why the fast path nevertheless leaves it alone.
    pub(super) fast: Option<Reason>,
}

/// A packet with a SCION path.
pub(super) struct Transit<'a, L: ?Sized> {
    router: &'a Router,
    context: &'a Context<'a>,
    links: &'a L,
    /// The whole MAC of the hop field that was verified last.
    mac: Cell<[u8; 16]>,
}

/// What the procedure asks of an interface.
pub(super) struct Link {
    number: u16,
    owner: Owner,
    link_type: LinkType,
    up: bool,
}

impl Interface for Link {
    fn owner(&self) -> u16 {
        match self.owner {
            Owner::Here { .. } => 0,
            Owner::Sibling(place) => sibling_number(place),
        }
    }

    fn link_type(&self) -> Option<LinkType> {
        Some(self.link_type)
    }

    fn is_up(&self) -> bool {
        self.up
    }
}

impl Link {
    const fn exit(&self) -> Exit {
        match self.owner {
            Owner::Here { .. } => Exit::Link(self.number),
            Owner::Sibling(place) => Exit::Sibling(place),
        }
    }
}

impl<L: ?Sized> Source for Transit<'_, L> {
    fn packet(&self) -> impl Load {
        self.context.packet
    }
}

impl<L: Links + ?Sized> procedure::Router for Transit<'_, L> {
    type Interface = Link;

    fn isd_as(&self) -> u64 {
        self.router.model.isd_as.0
    }

    fn now(&self) -> u64 {
        u64::try_from(self.context.now.as_nanos()).unwrap_or(u64::MAX)
    }

    fn sender(&self) -> u16 {
        match self.context.origin {
            Origin::Sibling(place) => sibling_number(place),
            Origin::Link(_) | Origin::Host => 0,
        }
    }

    fn interface(&self, number: u16) -> Option<Link> {
        let interface = self.router.model.interfaces.get(&number)?;
        let up = match interface.owner {
            Owner::Here { .. } => self.links.is_interface_up(number),
            Owner::Sibling(place) => self.links.is_sibling_up(place),
        };
        Some(Link {
            number,
            owner: interface.owner,
            link_type: interface.link_type,
            up,
        })
    }

    fn has_made(&self, fields: &Fields) -> bool {
        let mac = self.router.model.key.cmac(&fields.mac_input());
        self.mac.set(mac);
        let [a, b, c, d, e, f, ..] = mac;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f]) == fields.mac
    }
}

impl<'a, L: Links + ?Sized> Transit<'a, L> {
    pub(super) fn new(router: &'a Router, context: &'a Context<'a>, links: &'a L) -> Self {
        Self {
            router,
            context,
            links,
            mac: Cell::default(),
        }
    }

    /// The whole MAC of the hop field that was verified last; EPIC keys its own with it.
    pub(super) fn mac(&self) -> [u8; 16] {
        self.mac.get()
    }

    /// Goes through all steps. `passage` then says what is to be changed, as far as the packet got.
    pub(super) fn process(&self, passage: &mut Passage) -> Result<Passed, Rejection> {
        let exit =
            procedure::route(self, passage).map_err(|reason| self.reject(reason, passage))?;
        let traffic = procedure::traffic(passage, &exit, self.isd_as());
        let (exit, fast) = match &exit {
            procedure::Exit::Host => self.router.deliver(self.context, passage)?,
            procedure::Exit::Out(link) => {
                let fast = self.check_size(link.exit())?;
                procedure::leave(passage, link);
                (link.exit(), fast)
            }
        };
        Ok(Passed {
            exit,
            traffic,
            fast,
        })
    }

    /// Whether the way takes packets of this size, and if so, why the fast path does not. The reference does not look at
    /// MTUs, and its control plane sends packets that exceed small ones: they go on in IP fragments.
    fn check_size(&self, exit: Exit) -> Result<Option<Reason>, Rejection> {
        let model = &self.router.model;
        let (mtu, most) = match exit {
            Exit::Link(interface) => {
                let mtu = model
                    .interfaces
                    .get(&interface)
                    .map_or(model.mtu, |i| i.mtu);
                (mtu, self.links.most(interface))
            }
            _ => (model.mtu, None),
        };
        let len = self.context.packet.len();
        let most = most.unwrap_or(mtu.max(LARGEST_IN_FRAGMENTS));
        if len > usize::from(most) {
            let mtu = mtu.min(most);
            return Err(Rejection::report(
                Reason::TooBig,
                Problem::PacketTooBig { mtu },
            ));
        }
        Ok((len > usize::from(mtu)).then_some(Reason::TooBig))
    }

    /// What the sender is told of a packet that the procedure stops for `reason`.
    fn reject(&self, reason: Reason, passage: &Passage) -> Rejection {
        let fields = &passage.fields;
        let hop = |code| parameter(code, passage.current_hop_offset());
        let (ingress, egress) = if fields.is_forward() {
            (code::UNKNOWN_INGRESS, code::UNKNOWN_EGRESS)
        } else {
            (code::UNKNOWN_EGRESS, code::UNKNOWN_INGRESS)
        };
        let problem = match reason {
            Reason::Expired => hop(code::PATH_EXPIRED),
            Reason::IngressInterface => hop(ingress),
            Reason::EgressInterface => hop(egress),
            Reason::InvalidMac => hop(code::INVALID_MAC),
            Reason::PathForbidden => hop(code::INVALID_PATH),
            Reason::SegmentChange => {
                parameter(code::INVALID_SEGMENT_CHANGE, passage.current_info_offset())
            }
            Reason::PayloadLength => parameter(code::INVALID_SIZE, 0),
            Reason::SourceAddress => parameter(code::INVALID_SOURCE, self.source_offset(passage)),
            Reason::DestinationAddress => parameter(code::INVALID_DESTINATION, DESTINATION_OFFSET),
            Reason::LinkDown => self.down(passage),
            Reason::IngressAlert => {
                return alerted(reason, passage, fields.way_in(), fields.flag_in());
            }
            Reason::EgressAlert => {
                return alerted(reason, passage, fields.way_out(), fields.flag_out());
            }
            _ => return Rejection::silent(reason),
        };
        Rejection::report(reason, problem)
    }

    /// Where the wrong source is: the ISD-AS number is on the wrong side, or else it is the host, for which the reference
    /// points to nothing.
    fn source_offset(&self, passage: &Passage) -> usize {
        let from_here = passage.source_isd_as == self.isd_as();
        if from_here == passage.is_from_outside() {
            SOURCE_OFFSET
        } else {
            0
        }
    }

    /// The link is down, or the sibling that has it.
    fn down(&self, passage: &Passage) -> Problem {
        let isd_as = self.router.model.isd_as;
        let egress = passage.fields.way_out();
        match self.interface(egress).map(|interface| interface.exit()) {
            Some(Exit::Link(interface)) => Problem::InterfaceDown {
                isd_as,
                interface: interface.into(),
            },
            _ => Problem::ConnectivityDown {
                isd_as,
                ingress: passage.ingress.into(),
                egress: egress.into(),
            },
        }
    }
}

fn alerted(reason: Reason, passage: &Passage, interface: u16, flag: u8) -> Rejection {
    let offset = passage.current_hop_offset();
    let alert = Alert { offset, flag };
    Rejection::new(reason, Reply::Traceroute { interface, alert })
}
