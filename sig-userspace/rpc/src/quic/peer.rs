//! Addresses of peers: SCION's, and those that quinn knows instead.

use std::{
    fmt,
    net::{IpAddr, SocketAddr, SocketAddrV6},
};

use sig_common::addr::{HostAddr, IsdAs};

use sig_core::scion::packet::Endpoint;

/// A UDP endpoint in an AS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Peer {
    /// The AS.
    pub isd_as: IsdAs,
    /// Host and UDP/SCION port.
    pub address: SocketAddr,
}

impl Peer {
    /// `None` for a service.
    pub(super) fn from_endpoint((isd_as, host, port): Endpoint) -> Option<Self> {
        Some(Peer {
            isd_as,
            address: SocketAddr::new(host.ip()?, port),
        })
    }

    pub(super) fn endpoint(self) -> Endpoint {
        let host = HostAddr::from(self.address.ip().to_canonical());
        (self.isd_as, host, self.address.port())
    }

    /// The address that stands for this peer in quinn, which knows nothing but socket addresses. The ISD-AS is in
    /// flow information and scope, so that each peer has an address of its own, whatever the path to it is.
    pub(crate) fn synthetic(self) -> SocketAddr {
        let ip = match self.address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let (high, low) = ((self.isd_as.0 >> 32) as u32, self.isd_as.0 as u32);
        SocketAddrV6::new(ip, self.address.port(), high, low).into()
    }

    /// The peer that a [`synthetic`](Self::synthetic) address stands for.
    pub(crate) fn from_synthetic(address: SocketAddr) -> Self {
        let (high, low) = match address {
            SocketAddr::V6(v6) => (v6.flowinfo(), v6.scope_id()),
            SocketAddr::V4(_) => (0, 0),
        };
        Peer {
            isd_as: IsdAs(u64::from(high) << 32 | u64::from(low)),
            address: SocketAddr::new(address.ip().to_canonical(), address.port()),
        }
    }

    /// Name of the peer in URLs: `scion4-1-ff00-0-110_10-0-0-1:30256`. Nobody looks at it.
    pub(crate) fn authority(self) -> String {
        let (family, host) = match self.address.ip() {
            IpAddr::V4(ip) => ("scion4", ip.to_string().replace('.', "-")),
            IpAddr::V6(ip) => ("scion6", ip.to_string().replace(':', "-")),
        };
        let isd_as = self.isd_as.to_string().replace(':', "-");
        format!("{family}-{isd_as}_{host}:{}", self.address.port())
    }
}

/// `1-ff00:0:110,10.0.0.1:30256`, with brackets around an IPv6 address.
impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.isd_as, self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(isd_as: &str, address: &str) -> Peer {
        Peer {
            isd_as: isd_as.parse().unwrap(),
            address: address.parse().unwrap(),
        }
    }

    #[test]
    fn a_peer_and_its_synthetic_address_lead_to_each_other() {
        for isd_as in [
            "1-ff00:0:110",
            "1-ff00:0:111",
            "65535-ffff:ffff:ffff",
            "2-64512",
        ] {
            for address in [
                "10.0.0.1:30256",
                "[fd00::1]:30256",
                "[fd00::1]:1",
                "0.0.0.0:0",
            ] {
                let peer = peer(isd_as, address);
                assert!(peer.synthetic().is_ipv6());
                assert_eq!(Peer::from_synthetic(peer.synthetic()), peer);
            }
        }
    }

    #[test]
    fn peers_that_differ_in_their_as_only_have_different_addresses() {
        assert_ne!(
            peer("1-ff00:0:110", "10.0.0.1:1").synthetic(),
            peer("1-ff00:0:111", "10.0.0.1:1").synthetic()
        );
        assert_ne!(
            peer("1-ff00:0:110", "10.0.0.1:1").synthetic(),
            peer("2-ff00:0:110", "10.0.0.1:1").synthetic()
        );
    }

    #[test]
    fn authorities_are_those_of_the_reference() {
        assert_eq!(
            peer("1-ff00:0:110", "10.0.0.1:31000").authority(),
            "scion4-1-ff00-0-110_10-0-0-1:31000"
        );
        assert_eq!(
            peer("1-ff00:0:110", "[::1]:31000").authority(),
            "scion6-1-ff00-0-110_--1:31000"
        );
    }
}
