//! What a border router does with a packet that has a SCION path (SCION data plane specification, "Processing at
//! Border Routers"). The specification leaves the order of the checks open. Here it is the reference implementation's: it
//! decides which error a packet with several faults gets.
//!
//! The XDP programs and the slow path run this source. They differ in how bytes are loaded, tables are looked up and
//! changes are written: see [`Router`].

use super::{
    Reason,
    maps::{self, LinkType, Traffic},
    passage::{Change, FIXED_LEN, Fields, Passage},
};
use crate::{
    maps::Ip,
    wire::{
        Load,
        scion::address::{self, CODE_IPV6},
    },
};

/// A SCION packet at hand.
pub trait Source {
    /// Its bytes, and maybe more behind them.
    fn packet(&self) -> impl Load;
}

impl Source for [u8] {
    #[inline(always)]
    fn packet(&self) -> impl Load {
        self
    }
}

/// A border router with a packet at hand, and what it knows of its AS.
pub trait Router: Source {
    /// What is known of an interface.
    type Interface: Interface;

    /// ISD-AS.
    fn isd_as(&self) -> u64;

    /// Nanoseconds since 1970.
    fn now(&self) -> u64;

    /// The number of the sibling that the packet comes from; 0 if from none.
    fn sender(&self) -> u16;

    /// An interface of the AS.
    fn interface(&self, number: u16) -> Option<Self::Interface>;

    /// Whether the AS has made this hop field.
    fn has_made(&self, fields: &Fields) -> bool;
}

/// An interface of the AS.
pub trait Interface {
    /// 0: a link of this router. Otherwise the number of the sibling that has it.
    fn owner(&self) -> u16;

    /// What is at its other end; `None` if that is not known.
    fn link_type(&self) -> Option<LinkType>;

    /// Whether packets may leave by it.
    fn is_up(&self) -> bool;

    /// Whether it is one of this router.
    #[inline(always)]
    fn is_here(&self) -> bool {
        self.owner() == 0
    }
}

impl Interface for &maps::Interface {
    #[inline(always)]
    fn owner(&self) -> u16 {
        self.owner
    }

    #[inline(always)]
    fn link_type(&self) -> Option<LinkType> {
        LinkType::from_number(self.link_type)
    }

    #[inline(always)]
    fn is_up(&self) -> bool {
        self.up != 0
    }
}

/// Where a packet goes.
#[derive(Clone, Copy, Debug)]
pub enum Exit<I> {
    /// To a host or service of the AS.
    Host,
    /// By an interface, of this router or a sibling.
    Out(I),
}

/// Checks a packet and decides where it goes. [`Passage::read_position`] has gone well; the passage then says what is to be
/// changed by the router where the packet enters the AS, as far as it got.
///
/// # Errors
/// The first check that fails.
#[inline(always)]
pub fn route<R: Router>(router: &R, passage: &mut Passage) -> Result<Exit<R::Interface>, Reason> {
    passage.read_fields(&router.packet())?;
    let outside = passage.is_from_outside();
    if !passage.fields.is_peering() && passage.has_segment_of_one_hop() {
        return Err(Reason::OneHopSegment);
    }
    let peering = passage.is_at_peering_link()?;
    passage.peering = peering;
    if passage.has_expired(router.now()) {
        return Err(Reason::Expired);
    }
    if outside && passage.ingress != passage.fields.way_in() {
        return Err(Reason::IngressInterface);
    }
    if passage.header_len.wrapping_add(passage.payload_len.into()) != passage.len {
        return Err(Reason::PayloadLength);
    }
    if !outside && !passage.is_first() {
        transit_source(router, passage)?;
    }
    addresses(router, passage)?;

    let old = passage.fields.segment_id;
    if outside && !passage.fields.is_forward() && !peering {
        passage.fields.segment_id ^= passage.fields.beta();
    }
    passage.changes = [
        Change {
            info: passage.info(),
            old,
            new: passage.fields.segment_id,
        },
        Change::default(),
    ];
    if !router.has_made(&passage.fields) {
        return Err(Reason::InvalidMac);
    }
    if outside && passage.fields.alerts(passage.fields.flag_in()) {
        return Err(Reason::IngressAlert);
    }
    if passage.destination_isd_as == router.isd_as() {
        return Ok(Exit::Host);
    }
    passage.crossing = !peering && passage.is_before_change();
    if passage.crossing {
        passage.advance();
        passage.read_fields(&router.packet())?;
        if passage.has_expired(router.now()) {
            return Err(Reason::Expired);
        }
        if !router.has_made(&passage.fields) {
            return Err(Reason::InvalidMac);
        }
        let segment_id = passage.fields.segment_id;
        passage.changes[1] = Change {
            info: passage.info(),
            old: segment_id,
            new: segment_id,
        };
    }
    let interface = router
        .interface(passage.fields.way_out())
        .ok_or(Reason::EgressInterface)?;
    let is_here = interface.is_here();
    // What comes from inside leaves by our own links.
    if !outside && !is_here {
        return Err(Reason::EgressInterface);
    }
    link_types(router, passage, &interface)?;
    // Before the state of the link, so that traceroute shows the link that failed.
    if is_here && passage.fields.alerts(passage.fields.flag_out()) {
        return Err(Reason::EgressAlert);
    }
    if !interface.is_up() {
        return Err(Reason::LinkDown);
    }
    if is_here && passage.is_last() {
        return Err(Reason::PathEnds);
    }
    Ok(Exit::Out(interface))
}

/// What the router does to the path where a packet leaves the AS; a sibling that it goes to does that itself.
#[inline(always)]
pub fn leave<I: Interface>(passage: &mut Passage, interface: &I) {
    if !interface.is_here() {
        return;
    }
    if passage.fields.is_forward() && !passage.peering {
        let beta = passage.fields.beta();
        let [first, second] = &mut passage.changes;
        if passage.crossing {
            second.new ^= beta;
        } else {
            first.new ^= beta;
        }
    }
    passage.advance();
}

/// How a packet that goes this way is counted as sent.
#[inline(always)]
pub fn traffic<I: Interface>(passage: &Passage, exit: &Exit<I>, isd_as: u64) -> Traffic {
    match exit {
        Exit::Host => Traffic::In,
        Exit::Out(interface) if !interface.is_here() => Traffic::InTransit,
        Exit::Out(_) if passage.source_isd_as == isd_as => Traffic::Out,
        Exit::Out(_) if passage.is_from_outside() => Traffic::BrTransit,
        Exit::Out(_) => Traffic::OutTransit,
    }
}

/// What is in transit and comes from inside must come from the router by which it entered the AS: hosts do not get around
/// its checks.
#[inline(never)]
fn transit_source<R: Router>(router: &R, passage: &Passage) -> Result<(), Reason> {
    let entered = if !passage.peering && passage.is_after_change() {
        passage.fields_before(&router.packet())?.way_in()
    } else {
        passage.fields.way_in()
    };
    let interface = router.interface(entered).ok_or(Reason::TransitSource)?;
    match router.sender() {
        0 => Err(Reason::TransitSource),
        sender if sender == interface.owner() => Ok(()),
        _ => Err(Reason::TransitSource),
    }
}

/// Source and destination must be on the sides of the AS that the packet comes from and goes to.
#[inline(always)]
fn addresses<R: Router>(router: &R, passage: &Passage) -> Result<(), Reason> {
    let from_here = passage.source_isd_as == router.isd_as();
    let to_here = passage.destination_isd_as == router.isd_as();
    if passage.is_from_outside() {
        if from_here {
            return Err(Reason::SourceAddress);
        }
        if to_here != passage.is_last() {
            return Err(Reason::DestinationAddress);
        }
    } else {
        if passage.is_first() && !from_here {
            return Err(Reason::SourceAddress);
        }
        if to_here {
            return Err(Reason::DestinationAddress);
        }
    }
    if from_here {
        source_host(router, passage)?;
    }
    Ok(())
}

/// Hosts of the AS do not write IPv4 addresses as IPv6.
#[inline(always)]
fn source_host<R: Router>(router: &R, passage: &Passage) -> Result<(), Reason> {
    if passage.address_types & 0x0f != CODE_IPV6 {
        return Ok(());
    }
    let destination = address::host_len(passage.address_types >> 4).ok_or(Reason::AddressType)?;
    let host = router
        .packet()
        .bytes(FIXED_LEN + destination)
        .ok_or(Reason::HeaderLength)?;
    if Ip(host).is_mapped() {
        return Err(Reason::SourceAddress);
    }
    Ok(())
}

/// Which kinds of links traffic may go between (SCION control plane specification, "Path Construction"): paths go up,
/// across and down, and segments are joined where they begin or end. Of what comes from inside, the router where it entered
/// has checked the segment.
#[inline(always)]
fn link_types<R: Router>(
    router: &R,
    passage: &Passage,
    egress: &R::Interface,
) -> Result<(), Reason> {
    use LinkType::{Child, Core, Parent, Peer};
    let crossing = passage.crossing;
    let refused = if crossing {
        Reason::SegmentChange
    } else {
        Reason::PathForbidden
    };
    if !passage.is_from_outside() {
        return if crossing { Err(refused) } else { Ok(()) };
    }
    let ingress = router.interface(passage.ingress).ok_or(refused)?;
    let types = (
        ingress.link_type().ok_or(refused)?,
        egress.link_type().ok_or(refused)?,
    );
    let allowed = if crossing {
        matches!(types, (Core, Child) | (Child, Core | Child))
    } else {
        matches!(
            types,
            (Core, Core) | (Child, Parent | Peer) | (Parent | Peer, Child)
        )
    };
    if allowed { Ok(()) } else { Err(refused) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use LinkType::{Child, Core, Parent, Peer};

    /// A router of which only the interfaces matter: number `n` is a link of type `n - 1`.
    struct Links;

    #[derive(Clone, Copy)]
    struct Link(LinkType);

    impl Source for Links {
        fn packet(&self) -> impl Load {
            const NONE: &[u8] = &[];
            NONE
        }
    }

    impl Router for Links {
        type Interface = Link;

        fn isd_as(&self) -> u64 {
            1
        }

        fn now(&self) -> u64 {
            0
        }

        fn sender(&self) -> u16 {
            0
        }

        fn interface(&self, number: u16) -> Option<Link> {
            let link = LinkType::ALL.get(usize::from(number.checked_sub(1)?));
            link.copied().map(Link)
        }

        fn has_made(&self, _: &Fields) -> bool {
            true
        }
    }

    impl Interface for Link {
        fn owner(&self) -> u16 {
            0
        }

        fn link_type(&self) -> Option<LinkType> {
            Some(self.0)
        }

        fn is_up(&self) -> bool {
            true
        }
    }

    /// Said once more than in the procedure, which both the XDP program and the slow path run: what they agree on need not
    /// be right.
    #[test]
    fn paths_go_up_across_and_down_and_segments_are_joined_where_they_end() {
        let within = [
            (Core, Core),
            (Child, Parent),
            (Parent, Child),
            (Child, Peer),
            (Peer, Child),
        ];
        let between = [(Core, Child), (Child, Core), (Child, Child)];
        for crossing in [false, true] {
            for (number, from) in (1..).zip(LinkType::ALL) {
                for to in LinkType::ALL {
                    let mut passage = Passage::default();
                    (passage.ingress, passage.crossing) = (number, crossing);
                    let found = link_types(&Links, &passage, &Link(to));
                    let expected = match crossing {
                        false if within.contains(&(from, to)) => Ok(()),
                        true if between.contains(&(from, to)) => Ok(()),
                        false => Err(Reason::PathForbidden),
                        true => Err(Reason::SegmentChange),
                    };
                    assert_eq!(found, expected, "{from:?} to {to:?}, {crossing}");
                }
            }
        }
    }

    #[test]
    fn what_comes_from_inside_changes_no_segment() {
        for to in LinkType::ALL {
            let mut passage = Passage::default();
            assert_eq!(link_types(&Links, &passage, &Link(to)), Ok(()));
            passage.crossing = true;
            let refused = link_types(&Links, &passage, &Link(to));
            assert_eq!(refused, Err(Reason::SegmentChange));
        }
    }
}
