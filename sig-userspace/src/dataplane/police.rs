//! Which inner packets are carried: addresses that may cross a gateway, prefixes of its remotes and
//! of its own. And where they go, because that is asked about the same addresses.

use std::net::IpAddr;

use sig_common::reason::DropReason;

use super::{
    flow_cache::FlowCache,
    tables::{Tables, Way},
};

/// Whether an address may be source or destination of a packet that crosses the gateway: not
/// unspecified, loopback, link-local, multicast or broadcast.
#[inline]
pub(crate) fn may_cross(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let v4 = u32::from(v4);
            let first = v4 >> 24;
            // 0/8, 127/8, 169.254/16, 224/4 and 240/4 with the broadcast address.
            first != 0 && first != 127 && v4 >> 16 != 0xa9fe && first < 224
        }
        IpAddr::V6(v6) => {
            let v6 = u128::from(v6);
            // ff00::/8, fe80::/10, ::, ::1 and the other forms that embed nothing but IPv4.
            v6 >> 120 != 0xff && v6 >> 118 != 0x3fa && v6 >> 48 != 0
        }
    }
}

/// The place of the next hop in [`Tables::lan`], without one if the kernel finds it, or why the
/// packet is not delivered.
type Verdict = Result<Option<u32>, DropReason>;

/// Decides whether packets from remotes are delivered, and where.
#[derive(Default)]
pub(super) struct Police {
    /// Number of the remote, and the verdict.
    decisions: FlowCache<(u16, Verdict)>,
}

impl Police {
    /// Where a packet from remote number `remote` of the tables, from inner `source` to inner
    /// `destination`, is delivered, if it may be.
    ///
    /// # Errors
    ///
    /// The reason why not.
    #[inline]
    pub(super) fn admit(
        &mut self,
        tables: &Tables,
        remote: u16,
        source: IpAddr,
        destination: IpAddr,
    ) -> Verdict {
        let (_, verdict) = self.decisions.get_or_decide(
            tables.generation,
            source,
            destination,
            |(of, _)| *of == remote,
            || (remote, decide(tables, remote, source, destination)),
        );
        verdict
    }
}

fn decide(tables: &Tables, remote: u16, source: IpAddr, destination: IpAddr) -> Verdict {
    if !may_cross(source) || !may_cross(destination) {
        return Err(DropReason::AddressScope);
    }
    let remote = tables
        .remotes
        .get(usize::from(remote))
        .ok_or(DropReason::UnknownRemote)?;
    remote.accepted.get(source).ok_or(DropReason::InnerSource)?;
    let served = match &tables.served {
        Some(served) => served.get(destination).is_some(),
        None => matches!(tables.routing.way(destination), None | Some(Way::Home)),
    };
    if !served {
        return Err(DropReason::InnerDestination);
    }
    Ok(tables.lan.find(destination))
}

#[cfg(test)]
mod tests {
    use super::*;
    fn crosses(text: &str) -> bool {
        may_cross(text.parse().expect("an address"))
    }

    #[test]
    fn only_unicast_addresses_of_networks_cross() {
        for good in [
            "10.0.0.1",
            "192.168.1.1",
            "223.255.255.255",
            "2001:db8::1",
            "fd00::1",
            "64:ff9b::1",
        ] {
            assert!(crosses(good), "{good}");
        }
        for bad in [
            "0.0.0.0",
            "127.0.0.1",
            "169.254.1.1",
            "224.0.0.1",
            "239.255.255.255",
            "255.255.255.255",
            "::",
            "::1",
            "fe80::1",
            "ff02::1",
            "::ffff:10.0.0.1",
        ] {
            assert!(!crosses(bad), "{bad}");
        }
    }
}
