//! A network of ASes whose keys are known, and the paths through it: what beaconing and path lookup would give, without
//! any control plane.
//!
//! Made for tests, measurements and static configurations. Segments are made and combined as SCION does it: up, core and
//! down segments, shortcuts and peering links; see [`Network::paths`].

mod combine;
mod segment;
mod sign;

#[cfg(test)]
pub mod tests;

use std::collections::{BTreeMap, HashMap};

pub use sig_common::router::maps::LinkType;
use sig_common::{
    addr::IsdAs,
    wire::scion::path::{self, MAX_HOPS},
};

use super::{HopKey, Interface};

/// An AS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct As {
    /// Its number.
    pub isd_as: IsdAs,
    /// Whether it is a core AS.
    pub core: bool,
    /// Largest SCION packet within it, bytes.
    pub mtu: u16,
    /// Signs its hop fields.
    pub key: HopKey,
}

/// An end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct End {
    /// The AS.
    pub isd_as: IsdAs,
    /// Number of the interface within it; not 0.
    pub interface: u16,
}

/// A link between two ASes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Both ends.
    pub ends: [End; 2],
    /// What the second end's AS is to the first one's.
    pub link_type: LinkType,
    /// Largest SCION packet on it, bytes.
    pub mtu: u16,
}

/// ASes and links that fit together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    ases: Vec<As>,
    links: Vec<Link>,
    places: BTreeMap<IsdAs, usize>,
    /// For each AS its links and which of their ends it has.
    links_of: Vec<Vec<(usize, usize)>>,
}

/// What does not fit, by its place in the lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// An AS.
    As(usize),
    /// A link.
    Link(usize),
}

/// Why ASes and links make no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Misfit {
    /// What does not fit.
    pub element: Element,
    /// Why, and what to do about it.
    pub message: String,
}

/// When the hop fields of paths are made, and how long they are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// When segments are made, seconds since 1970.
    pub timestamp: u32,
    /// Lifetime of hop fields in units of 337.5 s, less one.
    pub expiry: u8,
}

impl Validity {
    /// Until when hop fields are valid, seconds since 1970; half a second is left out.
    #[must_use]
    pub const fn expires_at(self) -> u64 {
        path::expires_at(self.timestamp, self.expiry) / 1_000_000_000
    }
}

/// A path between two ASes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkPath {
    /// The path header as its sender writes it.
    pub raw: Vec<u8>,
    /// The interfaces it goes through: entry 2i and 2i+1 are the two ends of a link.
    pub interfaces: Vec<Interface>,
    /// Largest SCION packet, bytes.
    pub mtu: u16,
    /// When its hop fields expire, seconds since 1970.
    pub expiry: u64,
}

/// Why there are no paths to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathsError {
    /// The network has no such AS.
    #[error("{0} is not an AS of this network")]
    UnknownAs(IsdAs),
    /// The network has so many ways that they cannot all be tried.
    #[error("the network has too many possible paths; describe a smaller part of it")]
    TooMany,
}

/// How many steps and combinations of segments are tried.
const MOST_TRIES: u32 = 1 << 20;

/// How much may still be tried.
struct Budget(u32);

impl Budget {
    fn spend(&mut self) -> Result<(), PathsError> {
        self.0 = self.0.checked_sub(1).ok_or(PathsError::TooMany)?;
        Ok(())
    }
}

impl Network {
    /// A network of these ASes and links.
    ///
    /// # Errors
    /// Everything that does not fit: ASes and interfaces that are there twice, links to unknown ASes or of the AS with
    /// itself, types of links that the ASes cannot have.
    pub fn new(ases: Vec<As>, links: Vec<Link>) -> Result<Self, Vec<Misfit>> {
        let mut misfits = Vec::new();
        let mut places = BTreeMap::new();
        for (place, known) in ases.iter().enumerate() {
            if places.insert(known.isd_as, place).is_some() {
                misfits.push(Misfit {
                    element: Element::As(place),
                    message: format!("{} is listed twice; remove one", known.isd_as),
                });
            }
        }
        let mut links_of = vec![Vec::new(); ases.len()];
        let mut taken: HashMap<End, usize> = HashMap::new();
        for (place, link) in links.iter().enumerate() {
            let mut misfit = |message| {
                misfits.push(Misfit {
                    element: Element::Link(place),
                    message,
                });
            };
            let mut known = Vec::new();
            for (number, end) in link.ends.iter().enumerate() {
                if end.interface == 0 {
                    misfit(format!(
                        "{} has no interface 0; write 1 to 65535",
                        end.isd_as
                    ));
                }
                if taken.insert(*end, place).is_some() {
                    let End { isd_as, interface } = end;
                    misfit(format!(
                        "{isd_as}#{interface} is listed twice; renumber one"
                    ));
                }
                match places
                    .get(&end.isd_as)
                    .and_then(|at| Some((*at, ases.get(*at)?)))
                {
                    Some((at, found)) => {
                        known.push(found);
                        if let Some(links) = links_of.get_mut(at) {
                            links.push((place, number));
                        }
                    }
                    None => misfit(format!(
                        "{} is not an AS of this network; add it",
                        end.isd_as
                    )),
                }
            }
            if let [a, b] = known[..]
                && let Err(message) = fits(a, b, link.link_type)
            {
                misfit(message);
            }
        }
        if !misfits.is_empty() {
            return Err(misfits);
        }
        Ok(Self {
            ases,
            links,
            places,
            links_of,
        })
    }

    /// The ASes.
    #[must_use]
    pub fn ases(&self) -> &[As] {
        &self.ases
    }

    /// The links.
    #[must_use]
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// The AS with this number.
    #[must_use]
    pub fn find(&self, isd_as: IsdAs) -> Option<&As> {
        self.ases.get(*self.places.get(&isd_as)?)
    }

    /// All paths from one AS to another that SCION allows, without loops: up, core and down segments, with shortcuts
    /// and peering links. Of several that go through the same interfaces, there is one. The shortest come first, and
    /// the order is always the same. Within an AS there are none.
    ///
    /// As in the reference, peering links of core ASes are not used.
    ///
    /// # Errors
    /// See [`PathsError`].
    pub fn paths(
        &self,
        from: IsdAs,
        to: IsdAs,
        validity: Validity,
    ) -> Result<Vec<NetworkPath>, PathsError> {
        let place = |isd_as| {
            let place = self.places.get(&isd_as).copied();
            place.ok_or(PathsError::UnknownAs(isd_as))
        };
        let (from, to) = (place(from)?, place(to)?);
        if from == to {
            return Ok(Vec::new());
        }
        let mut budget = Budget(MOST_TRIES);
        let mut found: BTreeMap<(usize, Vec<Interface>), NetworkPath> = BTreeMap::new();
        combine::ways(self, from, to, &mut budget, &mut |way| {
            let interfaces = way.interfaces(self);
            let hops = way.hops();
            if hops > MAX_HOPS {
                return;
            }
            let key = (interfaces.len(), interfaces);
            let longer = |other: &NetworkPath| other.raw.len() > sign::header_len(way);
            if found.get(&key).is_none_or(longer) {
                let path = NetworkPath {
                    raw: sign::header(self, way, validity),
                    interfaces: key.1.clone(),
                    mtu: way.mtu(self),
                    expiry: validity.expires_at(),
                };
                found.insert(key, path);
            }
        })?;
        Ok(found.into_values().collect())
    }
}

/// Whether `b` can be to `a` what the link says.
fn fits(a: &As, b: &As, link_type: LinkType) -> Result<(), String> {
    if a.isd_as == b.isd_as {
        return Err(format!(
            "both ends are in {}; write two different ASes",
            a.isd_as
        ));
    }
    let down = |parent: &As, child: &As| {
        if child.core {
            return Err(format!(
                "{} is a core AS and has no parent; write type \"core\"",
                child.isd_as
            ));
        }
        if parent.isd_as.isd() != child.isd_as.isd() {
            return Err(format!(
                "parent {} and child {} are in different ISDs; write ASes of the same ISD",
                parent.isd_as, child.isd_as
            ));
        }
        Ok(())
    };
    match link_type {
        LinkType::Core if a.core && b.core => Ok(()),
        LinkType::Core => {
            let plain = if a.core { b } else { a };
            Err(format!(
                "{} is not a core AS; write type \"child\" or \"peer\"",
                plain.isd_as
            ))
        }
        LinkType::Child => down(a, b),
        LinkType::Parent => down(b, a),
        LinkType::Peer => Ok(()),
    }
}
