//! Segments: what beacons would have found.

use sig_common::{router::maps::LinkType, wire::scion::path::MAX_HOPS};

use super::{Budget, Network, PathsError};

/// ASes in the direction in which a beacon goes through them, and the links between them, by their places in the network.
/// There is one link less than there are ASes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) ases: Vec<usize>,
    pub(super) links: Vec<usize>,
}

/// Most ASes of a segment: what the path header has room for.
const LONGEST: usize = MAX_HOPS - 1;

impl Network {
    /// The links of an AS at whose other end is what `link_type` says, with the AS there.
    fn neighbours(&self, of: usize, link_type: LinkType) -> impl Iterator<Item = (usize, usize)> {
        let links = self.links_of.get(of).map_or(&[][..], Vec::as_slice);
        links.iter().filter_map(move |&(link, end)| {
            let found = self.links.get(link)?;
            // The type is what the second end is to the first.
            let seen = match (end, found.link_type) {
                (1, LinkType::Child) => LinkType::Parent,
                (1, LinkType::Parent) => LinkType::Child,
                (_, same) => same,
            };
            let other = found.ends.get(1 - end)?.isd_as;
            let other = self.places.get(&other)?;
            (seen == link_type).then_some((link, *other))
        })
    }

    /// The peering links of an AS, with the AS at the other end.
    pub(super) fn peers(&self, of: usize) -> impl Iterator<Item = (usize, usize)> {
        self.neighbours(of, LinkType::Peer)
    }

    pub(super) fn is_core(&self, place: usize) -> bool {
        self.ases.get(place).is_some_and(|found| found.core)
    }

    /// All segments from any core AS down to this one, which is none itself.
    pub(super) fn down_segments(
        &self,
        to: usize,
        budget: &mut Budget,
    ) -> Result<Vec<Segment>, PathsError> {
        let mut search = Search {
            network: self,
            link_type: LinkType::Parent,
            is_end: &|place| self.is_core(place),
            ases: vec![to],
            links: Vec::new(),
            found: Vec::new(),
        };
        if !self.is_core(to) {
            search.extend(to, budget)?;
        }
        Ok(search.found)
    }

    /// All segments between two core ASes.
    pub(super) fn core_segments(
        &self,
        from: usize,
        to: usize,
        budget: &mut Budget,
    ) -> Result<Vec<Segment>, PathsError> {
        let mut search = Search {
            network: self,
            link_type: LinkType::Core,
            is_end: &|place| place == from,
            ases: vec![to],
            links: Vec::new(),
            found: Vec::new(),
        };
        search.extend(to, budget)?;
        Ok(search.found)
    }
}

/// Goes from the end of segments to where they begin.
struct Search<'a> {
    network: &'a Network,
    link_type: LinkType,
    is_end: &'a dyn Fn(usize) -> bool,
    ases: Vec<usize>,
    links: Vec<usize>,
    found: Vec<Segment>,
}

impl Search<'_> {
    fn extend(&mut self, at: usize, budget: &mut Budget) -> Result<(), PathsError> {
        if self.ases.len() == LONGEST {
            return Ok(());
        }
        for (link, next) in self.network.neighbours(at, self.link_type) {
            budget.spend()?;
            if self.ases.contains(&next) {
                continue;
            }
            self.ases.push(next);
            self.links.push(link);
            if (self.is_end)(next) {
                self.found.push(Segment {
                    ases: self.ases.iter().rev().copied().collect(),
                    links: self.links.iter().rev().copied().collect(),
                });
            } else {
                self.extend(next, budget)?;
            }
            self.ases.pop();
            self.links.pop();
        }
        Ok(())
    }
}
