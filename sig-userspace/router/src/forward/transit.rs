//! The procedure for a SCION path.

use std::time::Duration;

use sig_common::{
    addr::HostAddr,
    router::{Reason, maps::LinkType, maps::Traffic},
    wire::scion::common,
};

use super::{
    Context, Links, Origin, Router, Way, code,
    cursor::{Changes, Cursor},
    halt::{Alert, Rejection, Reply},
    parameter,
};
use crate::Owner;
use sig_core::scion::{MacInput, scmp::Problem};

/// Where the ISD-AS numbers are in a packet.
const DESTINATION_OFFSET: usize = common::HEADER_LEN;
const SOURCE_OFFSET: usize = common::HEADER_LEN + 8;

/// Largest packet that leaves although it exceeds the MTU, bytes: that of the buffers of the reference's router, which
/// loses longer ones.
const LARGEST_IN_FRAGMENTS: u16 = 9000;

/// How a packet goes on.
#[derive(Debug)]
pub(super) struct Passage {
    pub(super) way: Way,
    pub(super) traffic: Traffic,
    /// Why the fast path nevertheless leaves it alone.
    pub(super) fast: Option<Reason>,
}

/// A packet with a SCION path.
pub(super) struct Transit<'a> {
    router: &'a Router,
    context: &'a Context<'a>,
    /// Offset of the path in the packet.
    offset: usize,
    cursor: Cursor<'a>,
    peering: bool,
    /// The whole MAC of the hop field that was verified last.
    mac: [u8; 16],
}

impl<'a> Transit<'a> {
    /// `path` is the path, or that within the path of EPIC: the end of the SCION header.
    pub(super) fn new(
        router: &'a Router,
        context: &'a Context<'a>,
        path: &'a [u8],
    ) -> Result<Self, Rejection> {
        let header = context.header;
        let offset = header.path_offset() + header.path_bytes().len() - path.len();
        let cursor = Cursor::new(path).ok_or(Rejection::silent(Reason::MalformedPath))?;
        if !cursor.info().peering && cursor.has_segment_of_one_hop() {
            return Err(Rejection::silent(Reason::OneHopSegment));
        }
        let peering = cursor
            .is_peering()
            .ok_or(Rejection::silent(Reason::MalformedPeering))?;
        Ok(Self {
            router,
            context,
            offset,
            cursor,
            peering,
            mac: [0; 16],
        })
    }

    pub(super) fn cursor(&self) -> &Cursor<'a> {
        &self.cursor
    }

    /// The whole MAC of the hop field that was verified last; EPIC keys its own with it.
    pub(super) fn mac(&self) -> &[u8; 16] {
        &self.mac
    }

    /// What was to be changed so far.
    pub(super) fn changes(&self) -> Changes {
        self.cursor.changes(self.offset)
    }

    /// Goes through all steps, in the reference's order.
    pub(super) fn process(&mut self, links: &(impl Links + ?Sized)) -> Result<Passage, Rejection> {
        self.check_expiry()?;
        self.check_ingress()?;
        self.check_payload_length()?;
        self.check_transit_source()?;
        self.check_isd_as_numbers()?;
        self.check_source_host()?;
        if let Origin::Link(_) = self.context.origin
            && !self.cursor.info().construction_direction
            && !self.peering
        {
            self.cursor.chain();
        }
        self.verify_mac()?;
        self.check_ingress_alert()?;
        if self.context.header.destination_isd_as == self.router.model.isd_as {
            let (way, fast) = self.router.deliver(self.context)?;
            return Ok(Passage {
                way,
                traffic: Traffic::In,
                fast,
            });
        }
        let changes_segment = self.cursor.is_before_change() && !self.peering;
        if changes_segment {
            self.advance()?;
            self.check_expiry()?;
            self.verify_mac()?;
        }
        let way = self.way_out()?;
        self.check_link_types(changes_segment)?;
        self.check_egress_alert(way)?;
        self.check_up(way, links)?;
        let leaves = matches!(way, Way::Link(_));
        if leaves && self.cursor.is_last() {
            return Err(Rejection::silent(Reason::PathEnds));
        }
        let fast = self.check_size(way, links)?;
        if leaves {
            if self.cursor.info().construction_direction && !self.peering {
                self.cursor.chain();
            }
            self.advance()?;
        }
        Ok(Passage {
            way,
            traffic: self.traffic(way),
            fast,
        })
    }

    fn check_expiry(&self) -> Result<(), Rejection> {
        let (info, hop) = (self.cursor.info(), self.cursor.hop());
        if expiry(info.timestamp, hop.expiry) < self.context.now {
            return Err(self.report_hop(Reason::Expired, code::PATH_EXPIRED));
        }
        Ok(())
    }

    /// What a neighbour sends must be meant for this link.
    fn check_ingress(&self) -> Result<(), Rejection> {
        let Origin::Link(interface) = self.context.origin else {
            return Ok(());
        };
        if self.cursor.ingress() != interface {
            let code = if self.cursor.info().construction_direction {
                code::UNKNOWN_INGRESS
            } else {
                code::UNKNOWN_EGRESS
            };
            return Err(self.report_hop(Reason::IngressInterface, code));
        }
        Ok(())
    }

    fn check_payload_length(&self) -> Result<(), Rejection> {
        if !self.context.header.has_right_payload_length() {
            let problem = parameter(code::INVALID_SIZE, 0);
            return Err(Rejection::report(Reason::PayloadLength, problem));
        }
        Ok(())
    }

    /// What is in transit and comes from inside must come from the router by which it entered the AS: hosts do not
    /// get around its checks.
    fn check_transit_source(&self) -> Result<(), Rejection> {
        if matches!(self.context.origin, Origin::Link(_)) || self.cursor.is_first() {
            return Ok(());
        }
        let entered = match self.cursor.before_change() {
            Some(before) if !self.peering => before.ingress(),
            _ => self.cursor.ingress(),
        };
        match (self.owner(entered), self.context.origin) {
            (Some(Owner::Sibling(owner)), Origin::Sibling(sender)) if owner == sender => Ok(()),
            _ => Err(Rejection::silent(Reason::TransitSource)),
        }
    }

    fn check_isd_as_numbers(&self) -> Result<(), Rejection> {
        let header = self.context.header;
        let local = self.router.model.isd_as;
        let from_here = header.source_isd_as == local;
        let to_here = header.destination_isd_as == local;
        let (source_is_wrong, destination_is_wrong) = match self.context.origin {
            Origin::Link(_) => (from_here, self.cursor.is_last() != to_here),
            Origin::Sibling(_) | Origin::Host => (self.cursor.is_first() && !from_here, to_here),
        };
        if source_is_wrong {
            let problem = parameter(code::INVALID_SOURCE, SOURCE_OFFSET);
            return Err(Rejection::report(Reason::SourceAddress, problem));
        }
        if destination_is_wrong {
            let problem = parameter(code::INVALID_DESTINATION, DESTINATION_OFFSET);
            return Err(Rejection::report(Reason::DestinationAddress, problem));
        }
        Ok(())
    }

    /// Hosts of the AS do not write IPv4 addresses as IPv6.
    fn check_source_host(&self) -> Result<(), Rejection> {
        let header = self.context.header;
        if header.source_isd_as != self.router.model.isd_as {
            return Ok(());
        }
        if header.source.is_none_or(is_mapped) {
            // The reference points to nothing here.
            let problem = parameter(code::INVALID_SOURCE, 0);
            return Err(Rejection::report(Reason::SourceAddress, problem));
        }
        Ok(())
    }

    fn verify_mac(&mut self) -> Result<(), Rejection> {
        let (info, hop) = (self.cursor.info(), self.cursor.hop());
        self.mac = self.router.model.key.cmac(&MacInput {
            segment_id: info.segment_id,
            timestamp: info.timestamp,
            expiry: hop.expiry,
            ingress: hop.ingress,
            egress: hop.egress,
        });
        if !starts_with(&self.mac, &hop.mac) {
            return Err(self.report_hop(Reason::InvalidMac, code::INVALID_MAC));
        }
        Ok(())
    }

    fn check_ingress_alert(&self) -> Result<(), Rejection> {
        match (self.context.origin, self.cursor.ingress_alert()) {
            (Origin::Link(interface), Some(flag)) => {
                Err(self.alerted(Reason::IngressAlert, interface, flag))
            }
            _ => Ok(()),
        }
    }

    /// Where the current hop leads out of the AS. What comes from inside leaves by our own links.
    fn way_out(&self) -> Result<Way, Rejection> {
        let interface = self.cursor.egress();
        match (self.owner(interface), self.context.origin) {
            (Some(Owner::Here { .. }), _) => Ok(Way::Link(interface)),
            (Some(Owner::Sibling(sibling)), Origin::Link(_)) => Ok(Way::Sibling(sibling)),
            _ => {
                let code = if self.cursor.info().construction_direction {
                    code::UNKNOWN_EGRESS
                } else {
                    code::UNKNOWN_INGRESS
                };
                Err(self.report_hop(Reason::EgressInterface, code))
            }
        }
    }

    /// Which kinds of links traffic may go between. Within a segment, the router by which the packet entered has seen
    /// to it.
    fn check_link_types(&self, changes_segment: bool) -> Result<(), Rejection> {
        use LinkType::{Child, Core, Parent, Peer};
        let ingress = match self.context.origin {
            Origin::Link(interface) => self.link_type(interface),
            Origin::Sibling(_) | Origin::Host => None,
        };
        let egress = self.link_type(self.cursor.egress());
        let types = ingress.zip(egress);
        if changes_segment {
            return match types {
                Some((Core, Child) | (Child, Core | Child)) => Ok(()),
                _ => {
                    let pointer = self.offset + self.cursor.info_offset();
                    let problem = parameter(code::INVALID_SEGMENT_CHANGE, pointer);
                    Err(Rejection::report(Reason::SegmentChange, problem))
                }
            };
        }
        match types {
            None | Some((Core, Core) | (Child, Parent | Peer) | (Parent | Peer, Child)) => Ok(()),
            Some(_) => Err(self.report_hop(Reason::PathForbidden, code::INVALID_PATH)),
        }
    }

    /// Before the state of the link, so that traceroute shows the link that failed.
    fn check_egress_alert(&self, way: Way) -> Result<(), Rejection> {
        match (way, self.cursor.egress_alert()) {
            (Way::Link(interface), Some(flag)) => {
                Err(self.alerted(Reason::EgressAlert, interface, flag))
            }
            _ => Ok(()),
        }
    }

    fn alerted(&self, reason: Reason, interface: u16, flag: u8) -> Rejection {
        let offset = self.offset + self.cursor.hop_offset();
        let alert = Alert { offset, flag };
        Rejection::new(reason, Reply::Traceroute { interface, alert })
    }

    /// Whether the link is up, or the sibling that has it.
    fn check_up(&self, way: Way, links: &(impl Links + ?Sized)) -> Result<(), Rejection> {
        let isd_as = self.router.model.isd_as;
        let (up, problem) = match way {
            Way::Link(interface) => {
                let problem = Problem::InterfaceDown {
                    isd_as,
                    interface: interface.into(),
                };
                (links.is_interface_up(interface), problem)
            }
            Way::Sibling(sibling) => {
                let ingress = match self.context.origin {
                    Origin::Link(interface) => interface.into(),
                    Origin::Sibling(_) | Origin::Host => 0,
                };
                let problem = Problem::ConnectivityDown {
                    isd_as,
                    ingress,
                    egress: self.cursor.egress().into(),
                };
                (links.is_sibling_up(sibling), problem)
            }
            Way::Host(_) => return Ok(()),
        };
        if !up {
            return Err(Rejection::report(Reason::LinkDown, problem));
        }
        Ok(())
    }

    /// Whether the way takes packets of this size, and if so, why the fast path does not. The reference does not look at
    /// MTUs, and its control plane sends packets that exceed small ones: they go on in IP fragments.
    fn check_size(
        &self,
        way: Way,
        links: &(impl Links + ?Sized),
    ) -> Result<Option<Reason>, Rejection> {
        let model = &self.router.model;
        let (mtu, most) = match way {
            Way::Link(interface) => {
                let mtu = model
                    .interfaces
                    .get(&interface)
                    .map_or(model.mtu, |i| i.mtu);
                (mtu, links.most(interface))
            }
            Way::Sibling(_) => (model.mtu, None),
            Way::Host(_) => return Ok(None),
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

    fn traffic(&self, way: Way) -> Traffic {
        let from_here = self.context.header.source_isd_as == self.router.model.isd_as;
        match (way, self.context.origin) {
            (Way::Host(_), _) => Traffic::In,
            (Way::Sibling(_), _) => Traffic::InTransit,
            (Way::Link(_), _) if from_here => Traffic::Out,
            (Way::Link(_), Origin::Link(_)) => Traffic::BrTransit,
            (Way::Link(_), Origin::Sibling(_) | Origin::Host) => Traffic::OutTransit,
        }
    }

    fn advance(&mut self) -> Result<(), Rejection> {
        self.cursor
            .advance()
            .ok_or(Rejection::silent(Reason::PathEnds))
    }

    fn owner(&self, interface: u16) -> Option<Owner> {
        let interface = self.router.model.interfaces.get(&interface);
        interface.map(|interface| interface.owner)
    }

    fn link_type(&self, interface: u16) -> Option<LinkType> {
        let interface = self.router.model.interfaces.get(&interface);
        interface.map(|interface| interface.link_type)
    }

    /// A parameter problem of the current hop field.
    fn report_hop(&self, reason: Reason, code: u8) -> Rejection {
        let pointer = self.offset + self.cursor.hop_offset();
        Rejection::report(reason, parameter(code, pointer))
    }
}

/// When a hop field expires, since 1970: its unit is the 256th part of a day.
fn expiry(timestamp: u32, expiry: u8) -> Duration {
    const UNIT: Duration = Duration::from_millis(337_500);
    Duration::from_secs(timestamp.into()) + UNIT * (u32::from(expiry) + 1)
}

/// Whether a MAC is the beginning of another, in constant time.
pub(super) fn starts_with(mac: &[u8; 16], start: &[u8]) -> bool {
    let difference = |(a, b): (&u8, &u8)| a ^ b;
    start.len() <= mac.len() && mac.iter().zip(start).map(difference).fold(0, |a, b| a | b) == 0
}

/// Whether a host address is an IPv4 address in the guise of IPv6.
pub(super) fn is_mapped(host: HostAddr) -> bool {
    matches!(host, HostAddr::V6(address) if std::net::Ipv6Addr::from(address).to_ipv4_mapped().is_some())
}
