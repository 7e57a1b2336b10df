//! Ways from one AS to another: segments, or parts of them, one after the other.

use std::collections::BTreeSet;

use super::{Budget, Network, PathsError, segment::Segment};
use crate::scion::Interface;

/// A part of a segment as a path uses it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece<'a> {
    pub(super) segment: &'a Segment,
    /// The first AS that is used, counted from the start of the segment. The last one is that of the segment.
    pub(super) first: usize,
    /// Packets go from its start to its end.
    pub(super) in_construction_direction: bool,
    /// Packets enter or leave the first AS by this peering link.
    pub(super) peering: Option<usize>,
}

/// A way: one to three pieces.
#[derive(Clone, Debug)]
pub(super) struct Combination<'a> {
    pub(super) pieces: Vec<Piece<'a>>,
}

impl Piece<'_> {
    /// Its ASes, in the order in which packets go through them.
    fn ases(&self) -> Vec<usize> {
        let ases = self.segment.ases.iter().skip(self.first).copied();
        self.in_order(ases)
    }

    /// Its links, likewise, without the peering link.
    fn links(&self) -> Vec<usize> {
        let links = self.segment.links.iter().skip(self.first).copied();
        self.in_order(links)
    }

    fn in_order(&self, places: impl DoubleEndedIterator<Item = usize>) -> Vec<usize> {
        if self.in_construction_direction {
            places.collect()
        } else {
            places.rev().collect()
        }
    }

    /// How many hop fields it takes.
    pub(super) fn hops(&self) -> usize {
        self.segment.ases.len().saturating_sub(self.first)
    }
}

impl Combination<'_> {
    /// The ASes in the order in which packets go through them. Where segments are joined, the AS is there once.
    fn ases(&self) -> Vec<usize> {
        let mut ases: Vec<usize> = Vec::new();
        for piece in &self.pieces {
            let joins = piece.peering.is_none() && !ases.is_empty();
            ases.extend(piece.ases().iter().skip(usize::from(joins)));
        }
        ases
    }

    fn links(&self) -> Vec<usize> {
        let mut links: Vec<usize> = Vec::new();
        for piece in &self.pieces {
            // Both pieces have the peering link; it comes before the second one.
            links.extend(piece.peering.filter(|_| piece.in_construction_direction));
            links.extend(piece.links());
        }
        links
    }

    /// How many hop fields it takes.
    pub(super) fn hops(&self) -> usize {
        self.pieces.iter().map(Piece::hops).sum()
    }

    /// The interfaces that packets go through.
    pub(super) fn interfaces(&self, network: &Network) -> Vec<Interface> {
        let mut interfaces = Vec::new();
        for (link, from) in self.links().into_iter().zip(self.ases()) {
            let Some((link, from)) = network.links.get(link).zip(network.ases.get(from)) else {
                continue;
            };
            let [mut near, mut far] = link.ends;
            if near.isd_as != from.isd_as {
                (near, far) = (far, near);
            }
            interfaces.extend([near, far].map(|end| Interface {
                isd_as: end.isd_as,
                id: end.interface.into(),
            }));
        }
        interfaces
    }

    /// The largest SCION packet that fits all ASes and links.
    pub(super) fn mtu(&self, network: &Network) -> u16 {
        let ases = self
            .ases()
            .into_iter()
            .filter_map(|at| network.ases.get(at));
        let links = self
            .links()
            .into_iter()
            .filter_map(|at| network.links.get(at));
        let mtus = ases
            .map(|found| found.mtu)
            .chain(links.map(|link| link.mtu));
        mtus.min().unwrap_or_default()
    }

    fn has_loop(&self) -> bool {
        let mut ases = self.ases();
        let count = ases.len();
        ases.sort_unstable();
        ases.dedup();
        ases.len() < count
    }
}

/// A way between an AS and the core: a segment, or none for an AS that is in the core.
#[derive(Clone, Copy)]
struct Choice<'a> {
    segment: Option<&'a Segment>,
    core: usize,
}

impl<'a> Choice<'a> {
    fn all(network: &Network, of: usize, segments: &'a [Segment]) -> Vec<Self> {
        let itself = network.is_core(of).then_some(Self {
            segment: None,
            core: of,
        });
        let segments = segments.iter().filter_map(|segment| {
            Some(Self {
                segment: Some(segment),
                core: *segment.ases.first()?,
            })
        });
        itself.into_iter().chain(segments).collect()
    }

    fn piece(self, in_construction_direction: bool) -> Option<Piece<'a>> {
        let segment = self.segment?;
        Some(Piece {
            segment,
            first: 0,
            in_construction_direction,
            peering: None,
        })
    }
}

/// Tells all ways from one AS to another one, without loops.
pub(super) fn ways(
    network: &Network,
    from: usize,
    to: usize,
    budget: &mut Budget,
    tell: &mut dyn FnMut(&Combination<'_>),
) -> Result<(), PathsError> {
    let ups = network.down_segments(from, budget)?;
    let downs = network.down_segments(to, budget)?;
    let ups = Choice::all(network, from, &ups);
    let downs = Choice::all(network, to, &downs);
    let mut tell = |pieces: Vec<Piece<'_>>| {
        let way = Combination { pieces };
        if !way.has_loop() {
            tell(&way);
        }
    };
    for up in &ups {
        for down in &downs {
            budget.spend()?;
            if up.core == down.core {
                tell(
                    [up.piece(false), down.piece(true)]
                        .into_iter()
                        .flatten()
                        .collect(),
                );
            }
            if let (Some(up), Some(down)) = (up.segment, down.segment) {
                below_the_core(network, up, down, budget, &mut tell)?;
            }
        }
    }
    let cores = |choices: &[Choice<'_>]| -> BTreeSet<usize> {
        choices.iter().map(|choice| choice.core).collect()
    };
    for left in cores(&ups) {
        for right in cores(&downs) {
            if left == right {
                continue;
            }
            for core in network.core_segments(right, left, budget)? {
                let core = Choice {
                    segment: Some(&core),
                    core: right,
                };
                for up in ups.iter().filter(|up| up.core == left) {
                    for down in downs.iter().filter(|down| down.core == right) {
                        budget.spend()?;
                        let pieces = [up.piece(false), core.piece(false), down.piece(true)];
                        tell(pieces.into_iter().flatten().collect());
                    }
                }
            }
        }
    }
    Ok(())
}

/// Ways from the end of one segment to that of another which do not go up to the core: by an AS that both have, or by a
/// peering link.
fn below_the_core(
    network: &Network,
    up: &Segment,
    down: &Segment,
    budget: &mut Budget,
    tell: &mut impl FnMut(Vec<Piece<'_>>),
) -> Result<(), PathsError> {
    for (i, left) in up.ases.iter().enumerate().skip(1) {
        for (j, right) in down.ases.iter().enumerate().skip(1) {
            budget.spend()?;
            let pieces = |peering| {
                [(up, i, false), (down, j, true)].map(
                    |(segment, first, in_construction_direction)| Piece {
                        segment,
                        first,
                        in_construction_direction,
                        peering,
                    },
                )
            };
            if left == right {
                // One that would be of this AS alone is not needed.
                tell(
                    pieces(None)
                        .into_iter()
                        .filter(|piece| piece.hops() > 1)
                        .collect(),
                );
            }
            for (link, peer) in network.peers(*left) {
                if peer == *right {
                    tell(pieces(Some(link)).into());
                }
            }
        }
    }
    Ok(())
}
