//! Paths through a topology, as daemons tell them.

use std::{
    net::SocketAddr,
    time::{Duration, SystemTime},
};

use sig_common::addr::IsdAs;
use sig_core::scion::{
    Interface,
    network::{self, Network, NetworkPath, Validity},
};

use crate::{link::Link, topology::Topology};

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

    fn validity(self) -> Validity {
        Validity {
            timestamp: self.expires_at.saturating_sub(HOP_LIFETIME) as u32,
            expiry: HOP_EXPIRY,
        }
    }
}

impl Topology {
    /// All paths from `from` to `to` without loops that SCION allows, those with the fewest links first. Links that
    /// `usable` refuses are not used.
    ///
    /// # Panics
    /// If the ASes and links make no network.
    #[must_use]
    pub fn paths(
        &self,
        from: IsdAs,
        to: IsdAs,
        lifetime: Lifetime,
        usable: impl Fn(&Link) -> bool,
    ) -> Vec<PathInfo> {
        let ases = self.ases().iter().map(|known| network::As {
            isd_as: known.isd_as,
            core: known.core,
            mtu: known.mtu,
            key: known.key(),
        });
        let links = self.links().iter().filter(|link| usable(link));
        let links = links.map(|link| network::Link {
            ends: link.ends.map(|end| network::End {
                isd_as: end.isd_as,
                interface: end.interface,
            }),
            link_type: self.link_type(link, 0),
            mtu: link.mtu,
        });
        let network = Network::new(ases.collect(), links.collect());
        let network = network.unwrap_or_else(|misfits| panic!("{misfits:?}"));
        let paths = network.paths(from, to, lifetime.validity());
        let paths = paths.unwrap_or_default();
        paths
            .into_iter()
            .filter_map(|path| self.tell(path, lifetime))
            .collect()
    }

    fn tell(&self, path: NetworkPath, lifetime: Lifetime) -> Option<PathInfo> {
        let first = self.find(path.interfaces.first()?.isd_as)?;
        let mut latency = Vec::new();
        for end in path.interfaces.iter().step_by(2) {
            if !latency.is_empty() {
                latency.push(Some(Duration::ZERO));
            }
            let (link, _) = self.at(end.isd_as, u16::try_from(end.id).ok()?)?;
            latency.push(link.announced_latency);
        }
        Some(PathInfo {
            raw: path.raw,
            next_hop: first.router,
            interfaces: path.interfaces,
            mtu: path.mtu,
            expiry: lifetime.expiry(),
            latency,
        })
    }
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
    fn hop_fields_expire_when_the_path_does() {
        let topology = triangle();
        for path in topology.paths(A, B, lifetime(), |_| true) {
            let header = ScionPath::new_checked(&path.raw).unwrap();
            for (info, hop) in header.infos().zip(header.hops()) {
                let validity = Validity {
                    timestamp: info.timestamp,
                    expiry: hop.expiry,
                };
                assert_eq!(validity.expires_at(), lifetime().expires_at);
            }
        }
    }
}
