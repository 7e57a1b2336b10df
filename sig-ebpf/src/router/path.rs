//! May the packet go on, and by which interface? The checks in the order of the reference, which decides what error
//! a packet with several gets.

use aya_ebpf::bindings::xdp_md;
use sig_common::{
    maps::Ip,
    router::{
        Reason,
        maps::{Config, Interface, LinkType, Traffic},
    },
    wire::{
        Load as _,
        scion::{address, common::HEADER_LEN},
    },
};

use super::{
    endpoint::is_mapped,
    maps, parse, verify,
    work::{Change, Stop, Work},
};

/// Where a packet goes.
pub enum Way {
    /// To a host of the AS.
    Host,
    /// By an interface, of this router or a sibling.
    Interface(&'static Interface),
}

/// Checks a parsed packet and decides what is to be written to its path.
#[inline(always)]
pub fn process(ctx: *mut xdp_md, work: &mut Work, config: &Config) -> Result<Way, Stop> {
    parse::current(ctx, work)?;
    let outside = work.ingress != 0;
    let peering = peering(work)?;
    if expired(work) {
        return Err(Reason::Expired.into());
    }
    if outside && work.ingress != work.fields.way_in() {
        return Err(Reason::IngressInterface.into());
    }
    if work.header_len + u32::from(work.payload_len) != work.len {
        return Err(Reason::PayloadLength.into());
    }
    if !outside && work.hop != 0 {
        transit_source(ctx, work, peering)?;
    }
    addresses(ctx, work, config)?;

    let old = work.fields.segment_id;
    if outside && !work.fields.is_forward() && !peering {
        work.fields.segment_id ^= work.fields.beta();
    }
    work.changes = [
        Change {
            info: work.info,
            old,
            new: work.fields.segment_id,
        },
        Change::NONE,
    ];
    verify::mac(work, config)?;
    if outside && work.fields.alerts_in() {
        return Err(Reason::IngressAlert.into());
    }
    work.new_meta = work.meta;
    if work.destination_isd_as == config.isd_as {
        work.traffic = Traffic::In;
        return Ok(Way::Host);
    }
    let crossing =
        !peering && work.hop + 1 < work.hops && work.segment_of(work.hop + 1) != work.info;
    if crossing {
        work.hop += 1;
        work.info = work.segment_of(work.hop);
        parse::current(ctx, work)?;
        if expired(work) {
            return Err(Reason::Expired.into());
        }
        verify::mac(work, config)?;
        let segment_id = work.fields.segment_id;
        work.changes[1] = Change {
            info: work.info,
            old: segment_id,
            new: segment_id,
        };
    }
    let egress =
        maps::interface(work.fields.way_out(), work.generation).ok_or(Reason::EgressInterface)?;
    let is_here = egress.owner == 0;
    if !outside && !is_here {
        return Err(Reason::EgressInterface.into());
    }
    link_types(work, egress, crossing)?;
    if is_here && work.fields.alerts_out() {
        return Err(Reason::EgressAlert.into());
    }
    if egress.up == 0 {
        return Err(Reason::LinkDown.into());
    }
    if is_here {
        leave(work, peering, crossing)?;
    }
    work.traffic = if !is_here {
        Traffic::InTransit
    } else if work.source_isd_as == config.isd_as {
        Traffic::Out
    } else if outside {
        Traffic::BrTransit
    } else {
        Traffic::OutTransit
    };
    work.new_meta = work.meta & 0x00ff_ffff | work.info << 30 | work.hop << 24;
    Ok(Way::Interface(egress))
}

/// Whether the current hop is one of the two at a peering link.
#[inline(always)]
fn peering(work: &Work) -> Result<bool, Stop> {
    let second = work.second - work.first;
    let third = work.hops - work.second;
    if !work.fields.is_peering() {
        if work.first == 1 || second == 1 || third == 1 {
            return Err(Reason::OneHopSegment.into());
        }
        return Ok(false);
    }
    if second == 0 || third != 0 {
        return Err(Reason::MalformedPeering.into());
    }
    Ok(work.hop + 1 == work.first || work.hop == work.first)
}

/// Hop fields live for their expiry, in units of 337.5 seconds, and one unit more.
#[inline(always)]
fn expired(work: &Work) -> bool {
    const SECOND: u64 = 1_000_000_000;
    const UNIT: u64 = 337 * SECOND + SECOND / 2;
    let until =
        u64::from(work.fields.timestamp) * SECOND + (u64::from(work.fields.expiry) + 1) * UNIT;
    until < work.boot.wrapping_add(maps::clock())
}

/// What is in transit must come from the router by which it entered the AS. Hosts may not pose as such.
#[inline(never)]
fn transit_source(ctx: *mut xdp_md, work: &mut Work, peering: bool) -> Result<(), Stop> {
    let entered = if !peering && work.info != 0 && work.segment_of(work.hop - 1) != work.info {
        let packet = parse::scion(ctx, work);
        parse::fields(&packet, work, work.info - 1, work.hop - 1)?.way_in()
    } else {
        work.fields.way_in()
    };
    let interface = maps::interface(entered, work.generation).ok_or(Reason::TransitSource)?;
    match maps::sibling(work) {
        Some(number) if number != 0 && number == interface.owner => Ok(()),
        _ => Err(Reason::TransitSource.into()),
    }
}

/// Source and destination must be on the sides of the AS that the packet comes from and goes to.
#[inline(always)]
fn addresses(ctx: *mut xdp_md, work: &Work, config: &Config) -> Result<(), Stop> {
    let from_here = work.source_isd_as == config.isd_as;
    let to_here = work.destination_isd_as == config.isd_as;
    if work.ingress == 0 {
        if work.hop == 0 && !from_here {
            return Err(Reason::SourceAddress.into());
        }
        if to_here {
            return Err(Reason::DestinationAddress.into());
        }
    } else {
        if from_here {
            return Err(Reason::SourceAddress.into());
        }
        if to_here != (work.hop + 1 == work.hops) {
            return Err(Reason::DestinationAddress.into());
        }
    }
    if from_here {
        source_host(ctx, work)?;
    }
    Ok(())
}

/// A source of the AS must not be a mapped address.
#[inline(always)]
fn source_host(ctx: *mut xdp_md, work: &Work) -> Result<(), Stop> {
    if work.address_types & 0x0f != address::CODE_IPV6 {
        return Ok(());
    }
    let destination_len = if work.address_types >> 4 == address::CODE_IPV6 {
        16
    } else {
        4
    };
    let host = parse::scion(ctx, work)
        .bytes(HEADER_LEN + address::ISD_AS_LEN + destination_len)
        .ok_or(Reason::HeaderLength)?;
    if is_mapped(&Ip(host)) {
        return Err(Reason::SourceAddress.into());
    }
    Ok(())
}

/// Paths go up, across and down, and segments are joined where they begin or end. Of what comes from inside, the router
/// where it entered has checked the segment.
#[inline(always)]
fn link_types(work: &Work, egress: &Interface, crossing: bool) -> Result<(), Stop> {
    use LinkType::{Child, Core, Parent, Peer};
    let refused = if crossing {
        Reason::SegmentChange
    } else {
        Reason::PathForbidden
    };
    if work.ingress == 0 {
        return if crossing {
            Err(refused.into())
        } else {
            Ok(())
        };
    }
    let ingress = maps::interface(work.ingress, work.generation).ok_or(refused)?;
    let types = (
        LinkType::from_number(ingress.link_type).ok_or(refused)?,
        LinkType::from_number(egress.link_type).ok_or(refused)?,
    );
    let allowed = if crossing {
        matches!(types, (Core, Child) | (Child, Core | Child))
    } else {
        matches!(
            types,
            (Core, Core) | (Child, Parent | Peer) | (Parent | Peer, Child)
        )
    };
    if allowed { Ok(()) } else { Err(refused.into()) }
}

/// What the router does where a packet leaves the AS.
#[inline(always)]
fn leave(work: &mut Work, peering: bool, crossing: bool) -> Result<(), Stop> {
    if work.fields.is_forward() && !peering {
        let beta = work.fields.beta();
        if crossing {
            work.changes[1].new ^= beta;
        } else {
            work.changes[0].new ^= beta;
        }
    }
    work.hop += 1;
    if work.hop >= work.hops {
        return Err(Reason::PathEnds.into());
    }
    work.info = work.segment_of(work.hop);
    Ok(())
}
