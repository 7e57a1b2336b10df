//! Paths through a topology: which there are, and their headers.
//!
//! Hop fields have MACs as in SCION: over the fields, the timestamp and what the MACs of the segment so far leave in the
//! segment id. The algorithm is another one, which nobody but routers can tell.

use std::{
    net::SocketAddr,
    time::{Duration, SystemTime},
};

use sha2::{Digest as _, Sha256};
use sig::scion::Interface;
use sig_common::{
    addr::IsdAs,
    wire::scion::path::{META_LEN, Meta},
};

use crate::{link::Link, topology::Topology};

/// The most links of a path.
const MAX_LINKS: usize = 8;
/// Lifetime of hop fields in units of 337.5 s, less one.
const HOP_EXPIRY: u8 = 63;
/// The same in seconds: 6 hours.
const HOP_LIFETIME: u64 = 21600;

/// A path as a daemon tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathInfo {
    /// The path header.
    pub raw: Vec<u8>,
    /// The internal address of the router that it leaves the first AS by.
    pub next_hop: SocketAddr,
    /// The interfaces it goes through.
    pub interfaces: Vec<Interface>,
    /// Largest SCION packet, in bytes.
    pub mtu: u16,
    /// When its hop fields expire.
    pub expiry: SystemTime,
    /// Latency between neighbouring interfaces, where announced.
    pub latency: Vec<Option<Duration>>,
}

/// How long paths are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// Seconds since 1970 at which they expire.
    expires_at: u64,
}

impl Lifetime {
    /// Until `expiry`, cut to full seconds.
    #[must_use]
    pub fn until(expiry: SystemTime) -> Self {
        let since_epoch = expiry.duration_since(SystemTime::UNIX_EPOCH);
        Self {
            expires_at: since_epoch.map_or(0, |time| time.as_secs()),
        }
    }

    /// For `lifetime` from now, cut to full seconds.
    #[must_use]
    pub fn of(lifetime: Duration) -> Self {
        Self::until(SystemTime::now() + lifetime)
    }

    /// When they expire.
    #[must_use]
    pub fn expiry(self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(self.expires_at)
    }
}

/// Whether a hop field with this expiry is valid no more at `now`, seconds since 1970.
pub(crate) fn is_expired(timestamp: u32, expiry: u8, now: u64) -> bool {
    2 * u64::from(timestamp) + 675 * (u64::from(expiry) + 1) < 2 * now
}

/// A link, and the end it is entered by.
type Step<'t> = (&'t Link, usize);

/// The kinds of segments, in the order in which a path may have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Up,
    Core,
    Down,
}

impl Topology {
    /// All paths from `from` to `to` without loops that SCION allows, those with the fewest links first. Links that
    /// `usable` refuses are not used.
    #[must_use]
    pub fn paths(
        &self,
        from: IsdAs,
        to: IsdAs,
        lifetime: Lifetime,
        usable: impl Fn(&Link) -> bool,
    ) -> Vec<PathInfo> {
        let mut found = Vec::new();
        if from != to {
            self.extend(from, to, &mut Vec::new(), &usable, &mut found);
        }
        found.sort_by_key(Vec::len);
        found
            .iter()
            .filter_map(|steps| self.path(steps, lifetime))
            .collect()
    }

    fn extend<'t>(
        &'t self,
        from: IsdAs,
        to: IsdAs,
        steps: &mut Vec<Step<'t>>,
        usable: &impl Fn(&Link) -> bool,
        found: &mut Vec<Vec<Step<'t>>>,
    ) {
        for (link, near) in self.links_of(from) {
            let next = link.ends[1 - near].isd_as;
            let seen = steps
                .iter()
                .any(|(link, near)| link.ends[*near].isd_as == next);
            let last = steps.last().map(|step| self.kind(*step));
            let goes_on = last.is_none_or(|last| last <= self.kind((link, near)));
            if seen || !goes_on || steps.len() >= MAX_LINKS || !usable(link) {
                continue;
            }
            steps.push((link, near));
            if next == to {
                found.push(steps.clone());
            } else {
                self.extend(next, to, steps, usable, found);
            }
            steps.pop();
        }
    }

    fn kind(&self, (link, near): Step<'_>) -> Kind {
        let [near_is_core, far_is_core] = [near, 1 - near].map(|end| {
            let isd_as = link.ends[end].isd_as;
            self.find(isd_as).is_some_and(|known| known.core)
        });
        match (near_is_core, far_is_core) {
            (true, true) => Kind::Core,
            (true, false) => Kind::Down,
            (false, true) => Kind::Up,
            (false, false) if near == 0 => Kind::Down,
            (false, false) => Kind::Up,
        }
    }

    fn path(&self, steps: &[Step<'_>], lifetime: Lifetime) -> Option<PathInfo> {
        let first = self.find(steps.first()?.0.ends[steps.first()?.1].isd_as)?;
        let interfaces: Vec<_> = steps
            .iter()
            .flat_map(|(link, near)| [link.ends[*near], link.ends[1 - near]])
            .map(|end| Interface {
                isd_as: end.isd_as,
                id: end.interface.into(),
            })
            .collect();
        let ases = interfaces.iter().filter_map(|end| self.find(end.isd_as));
        let mtus = ases
            .map(|known| known.mtu)
            .chain(steps.iter().map(|(link, _)| link.mtu));
        let mut latency = Vec::new();
        for (link, _) in steps {
            if !latency.is_empty() {
                latency.push(Some(Duration::ZERO));
            }
            latency.push(link.announced_latency);
        }
        Some(PathInfo {
            raw: self.header(steps, lifetime),
            next_hop: first.router,
            mtu: mtus.min()?,
            interfaces,
            expiry: lifetime.expiry(),
            latency,
        })
    }

    /// The path header: a segment for each series of links of the same kind.
    fn header(&self, steps: &[Step<'_>], lifetime: Lifetime) -> Vec<u8> {
        let timestamp = lifetime.expires_at.saturating_sub(HOP_LIFETIME) as u32;
        let mut meta = Meta {
            current_info: 0,
            current_hop: 0,
            segments: [0; 3],
        };
        let (mut infos, mut hops) = (Vec::new(), Vec::new());
        let segments = steps.chunk_by(|a, b| self.kind(*a) == self.kind(*b));
        for (number, steps) in segments.enumerate() {
            let segment = Segment::new(steps, self.kind(steps[0]), timestamp);
            meta.segments[number] = segment.hops.len() as u8;
            infos.extend([u8::from(segment.in_construction_direction), 0]);
            infos.extend(segment.id.to_be_bytes());
            infos.extend(timestamp.to_be_bytes());
            hops.extend(segment.hops.concat());
        }
        let mut raw = Vec::with_capacity(META_LEN + infos.len() + hops.len());
        raw.extend(meta.encode());
        raw.extend(infos);
        raw.extend(hops);
        raw
    }
}

/// A segment as a path uses it.
struct Segment {
    in_construction_direction: bool,
    /// As the sender writes it.
    id: u16,
    /// In the order in which packets pass them.
    hops: Vec<[u8; 12]>,
}

impl Segment {
    fn new(steps: &[Step<'_>], kind: Kind, timestamp: u32) -> Self {
        let near = |(link, near): Step<'_>| link.ends[near];
        let far = |(link, near): Step<'_>| link.ends[1 - near];
        let (first, last) = (near(steps[0]), far(steps[steps.len() - 1]));
        // Both directions of a path use the same segments.
        let forward = match kind {
            Kind::Up => false,
            Kind::Core => first.isd_as < last.isd_as,
            Kind::Down => true,
        };
        // AS, interface in, interface out, in the order in which packets pass them.
        let mut passed = vec![(first.isd_as, 0, first.interface)];
        for pair in steps.windows(2) {
            let (into, out) = (far(pair[0]), near(pair[1]));
            passed.push((into.isd_as, into.interface, out.interface));
        }
        passed.push((last.isd_as, last.interface, 0));
        if !forward {
            passed.reverse();
            for (_, ingress, egress) in &mut passed {
                std::mem::swap(ingress, egress);
            }
        }
        let mut id = initial_id(&passed);
        let (mut first_id, mut last_id) = (id, id);
        let mut hops = Vec::new();
        for (isd_as, ingress, egress) in passed {
            last_id = id;
            let mac = mac(isd_as, id, timestamp, HOP_EXPIRY, ingress, egress);
            id ^= u16::from_be_bytes([mac[0], mac[1]]);
            let mut hop = [0; 12];
            hop[1] = HOP_EXPIRY;
            hop[2..4].copy_from_slice(&ingress.to_be_bytes());
            hop[4..6].copy_from_slice(&egress.to_be_bytes());
            hop[6..].copy_from_slice(&mac);
            hops.push(hop);
        }
        if !forward {
            hops.reverse();
            std::mem::swap(&mut first_id, &mut last_id);
        }
        Self {
            in_construction_direction: forward,
            id: first_id,
            hops,
        }
    }
}

fn initial_id(hops: &[(IsdAs, u16, u16)]) -> u16 {
    let mut hash = Sha256::new();
    for (isd_as, ingress, egress) in hops {
        hash.update(isd_as.to_bytes());
        hash.update(ingress.to_be_bytes());
        hash.update(egress.to_be_bytes());
    }
    let hash = hash.finalize();
    u16::from_be_bytes([hash[0], hash[1]])
}

/// The MAC of a hop field of `isd_as`; ingress and egress are those in construction direction.
pub(crate) fn mac(
    isd_as: IsdAs,
    segment_id: u16,
    timestamp: u32,
    expiry: u8,
    ingress: u16,
    egress: u16,
) -> [u8; 6] {
    let mut hash = Sha256::new();
    hash.update(b"secret of ");
    hash.update(isd_as.to_bytes());
    hash.update(segment_id.to_be_bytes());
    hash.update(timestamp.to_be_bytes());
    hash.update([expiry]);
    hash.update(ingress.to_be_bytes());
    hash.update(egress.to_be_bytes());
    let hash = hash.finalize();
    std::array::from_fn(|i| hash[i])
}

#[cfg(test)]
mod tests {
    use sig_common::wire::scion::path::ScionPath;

    use super::*;
    use crate::topology::tests::{A, B, CORE, triangle};

    fn lifetime() -> Lifetime {
        Lifetime::until(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000))
    }

    fn ids(path: &PathInfo) -> Vec<u64> {
        path.interfaces
            .iter()
            .map(|interface| interface.id)
            .collect()
    }

    #[test]
    fn paths_take_each_way_and_the_shortest_come_first() {
        let topology = triangle();
        let paths = topology.paths(A, B, lifetime(), |_| true);
        let ways: Vec<_> = paths.iter().map(ids).collect();
        assert_eq!(ways, [vec![1, 1], vec![2, 2], vec![3, 1, 2, 3]]);
        let mtus: Vec<_> = paths.iter().map(|path| path.mtu).collect();
        assert_eq!(mtus, [1472, 1400, 1300]);
        assert_eq!(paths[0].latency, [None]);
        let latency = Duration::from_millis(7);
        assert_eq!(
            paths[2].latency,
            [latency, Duration::ZERO, latency].map(Some)
        );
        for path in &paths {
            assert_eq!(path.next_hop, topology.find(A).unwrap().router);
            assert_eq!(path.expiry, lifetime().expiry());
        }
    }

    #[test]
    fn there_is_no_path_to_the_own_as_or_to_an_unknown_one() {
        for to in [A, IsdAs(1)] {
            assert_eq!(triangle().paths(A, to, lifetime(), |_| true), []);
        }
    }

    #[test]
    fn links_that_are_refused_are_not_used() {
        let topology = triangle();
        let link = &topology.links()[0];
        let paths = topology.paths(A, B, lifetime(), |other| !std::ptr::eq(other, &**link));
        assert_eq!(paths.len(), 2);
        assert!(paths.iter().all(|path| ids(path) != [1, 1]));
    }

    #[test]
    fn a_path_never_goes_down_and_up_again() {
        // From the core AS to A there is the link between them, and the ways via B: down, then from B to A up.
        let paths = triangle().paths(CORE, A, lifetime(), |_| true);
        assert_eq!(paths.iter().map(ids).collect::<Vec<_>>(), [[1, 3]]);
    }

    #[test]
    fn headers_are_well_formed_and_the_same_each_time() {
        let topology = triangle();
        for (from, to) in [(A, B), (B, A), (A, CORE), (CORE, B)] {
            let paths = topology.paths(from, to, lifetime(), |_| true);
            assert_eq!(paths, topology.paths(from, to, lifetime(), |_| true));
            for path in paths {
                let header = ScionPath::new_checked(&path.raw).unwrap();
                let links = path.interfaces.len() / 2;
                assert_eq!(header.hops().len(), header.infos().len() + links);
                assert_eq!(
                    (header.meta().current_info, header.meta().current_hop),
                    (0, 0)
                );
                let info = header.infos().next().unwrap();
                let expiry = u64::from(info.timestamp) + HOP_LIFETIME;
                assert_eq!(expiry, lifetime().expires_at);
                assert!(!is_expired(info.timestamp, HOP_EXPIRY, expiry));
                assert!(is_expired(info.timestamp, HOP_EXPIRY, expiry + 1));
            }
        }
    }

    #[test]
    fn the_way_back_uses_the_same_segments() {
        let topology = triangle();
        let [there, back] = [(A, B), (B, A)].map(|(from, to)| {
            topology
                .paths(from, to, lifetime(), |_| true)
                .swap_remove(2)
                .raw
        });
        let hops = |raw: &[u8]| -> Vec<_> {
            let path = ScionPath::new_checked(raw).unwrap();
            path.hops().collect()
        };
        let mut back = hops(&back);
        back.reverse();
        assert_eq!(hops(&there), back);
    }
}
