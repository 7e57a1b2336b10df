//! A way to another AS, as the SCION daemon describes it or the configuration spells it out.

use std::{
    fmt,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use sha2::{Digest as _, Sha256};
use sig_common::{
    addr::IsdAs,
    wire::scion::path::{HopField, InfoField, ScionPath},
};

use super::network::Validity;

/// Names the sequence of interfaces that a path goes through: SHA-256 over ISD-AS and interface number
/// (8 bytes each, network byte order) of all interfaces in order, as the reference computes it. Refreshed
/// hop fields do not change it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub [u8; 32]);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An interface of an AS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Interface {
    /// The AS.
    pub isd_as: IsdAs,
    /// Number of the interface within the AS.
    pub id: u64,
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.isd_as, self.id)
    }
}

/// A path to another AS. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// The path header (PathMeta, info and hop fields, network byte order, CurrINF and CurrHF 0), sent
    /// unchanged. Empty: path type 0, within the own AS.
    pub raw: Arc<[u8]>,
    /// Underlay address of the border router that packets go to first; for an empty path, of the
    /// destination.
    pub next_hop: SocketAddr,
    /// The interfaces it goes through: entry 2i and 2i+1 are the two ends of a link between ASes. Empty
    /// where they are not known (a configured path) or there are none (own AS).
    pub interfaces: Arc<[Interface]>,
    /// Largest SCION packet in bytes: SCION header and payload, without the underlay's headers.
    pub mtu: u16,
    /// When its first hop field expires; `None` if it is not known.
    pub expiry: Option<SystemTime>,
    /// What the ASes on the way announce as its one-way latency; `None` if any part is unknown.
    pub announced_latency: Option<Duration>,
    /// Discovery services of the destination AS that the path's metadata names.
    pub discovery: Arc<[SocketAddr]>,
    /// See [`Fingerprint`]. Of a path without known interfaces: over next hop and the interface numbers of
    /// its hop fields, which from one AS lead only one way.
    pub fingerprint: Fingerprint,
}

impl Path {
    /// A path of which nothing but its header is known.
    #[must_use]
    pub fn configured(raw: &[u8], next_hop: SocketAddr, mtu: u16) -> Self {
        let header = ScionPath::new_checked(raw).ok();
        let mut hash = Sha256::new();
        hash.update(next_hop.to_string().as_bytes());
        match &header {
            Some(header) => hops(header).for_each(|(info, hop)| {
                hash.update([info.construction_direction.into(), info.peering.into()]);
                hash.update(hop.ingress.to_be_bytes());
                hash.update(hop.egress.to_be_bytes());
            }),
            None => hash.update(raw),
        }
        let expiry = header.and_then(|header| expires_at(&header));
        Path {
            raw: raw.into(),
            next_hop,
            interfaces: Arc::default(),
            mtu,
            expiry: expiry.map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds)),
            announced_latency: None,
            discovery: Arc::default(),
            fingerprint: Fingerprint(hash.finalize().into()),
        }
    }

    /// The fingerprint of a path through these interfaces.
    #[must_use]
    pub fn fingerprint_of(interfaces: &[Interface]) -> Fingerprint {
        let mut hash = Sha256::new();
        for interface in interfaces {
            hash.update(interface.isd_as.to_bytes());
            hash.update(interface.id.to_be_bytes());
        }
        Fingerprint(hash.finalize().into())
    }

    /// Path type number of the SCION common header.
    #[must_use]
    pub fn path_type(&self) -> u8 {
        u8::from(!self.raw.is_empty())
    }

    /// Whether its hop fields are no longer valid.
    #[must_use]
    pub fn is_expired(&self, now: SystemTime) -> bool {
        self.expiry.is_some_and(|expiry| expiry <= now)
    }

    /// Whether it goes through this interface, in either direction.
    #[must_use]
    pub fn crosses(&self, interface: Interface) -> bool {
        self.interfaces.contains(&interface)
    }
}

/// The hop fields of a path, each with the info field of its segment.
fn hops(path: &ScionPath<'_>) -> impl Iterator<Item = (InfoField, HopField)> {
    let infos = path.infos().zip(path.meta().segments);
    let infos = infos.flat_map(|(info, hops)| std::iter::repeat_n(info, hops.into()));
    infos.zip(path.hops())
}

/// When the first hop field of a path expires, seconds since 1970.
pub fn expires_at(path: &ScionPath<'_>) -> Option<u64> {
    let expiries = hops(path).map(|(info, hop)| {
        Validity {
            timestamp: info.timestamp,
            expiry: hop.expiry,
        }
        .expires_at()
    });
    expiries.min()
}

/// The form of the reference: `Hops: [1-ff00:0:110 1>1 1-ff00:0:112] MTU: 1472 NextHop: 172.20.4.3:30042`.
impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hops: [")?;
        if let Some(first) = self.interfaces.first() {
            write!(f, "{}", first.isd_as)?;
        }
        for link in self.interfaces.chunks_exact(2) {
            write!(f, " {}>{} {}", link[0].id, link[1].id, link[1].isd_as)?;
        }
        write!(f, "] MTU: {} NextHop: {}", self.mtu, self.next_hop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(isd_as: &str, id: u64) -> Interface {
        Interface {
            isd_as: isd_as.parse().expect("an ISD-AS"),
            id,
        }
    }

    #[test]
    fn the_fingerprint_is_that_of_the_reference() {
        let ends = [interface("1-ff00:0:110", 1), interface("1-ff00:0:111", 2)];
        assert_eq!(
            Path::fingerprint_of(&ends).to_string(),
            "efb260740020b1046d8699703f18772b2e79df49cd094879276c76dcca887be5"
        );
    }

    #[test]
    fn a_path_prints_as_the_reference_prints_it() {
        let mut path = Path::configured(
            &[0; 4],
            "172.20.4.3:30042".parse().expect("an address"),
            1472,
        );
        path.interfaces = [interface("1-ff00:0:110", 1), interface("1-ff00:0:112", 1)].into();
        assert_eq!(
            path.to_string(),
            "Hops: [1-ff00:0:110 1>1 1-ff00:0:112] MTU: 1472 NextHop: 172.20.4.3:30042"
        );
    }
}
