//! Which inner packets are carried: addresses that may cross a gateway, and a memory of recent
//! decisions in front of the prefix tables.

use std::net::IpAddr;

use sig_common::reason::DropReason;

use super::tables::Tables;

/// Entries of the decision cache; a power of two.
const ENTRIES: usize = 1024;

/// Whether an address may be source or destination of a packet that crosses the gateway: not
/// unspecified, loopback, link-local, multicast or broadcast.
#[inline]
pub(super) fn may_cross(address: IpAddr) -> bool {
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

#[derive(Clone, Copy)]
struct Entry {
    source: IpAddr,
    destination: IpAddr,
    remote: u16,
    verdict: Result<(), DropReason>,
}

/// Decides whether a packet from a remote is delivered. Direct-mapped memory of decisions, because
/// packets of a flow come one after the other and a prefix lookup costs more than this.
pub(super) struct Police {
    generation: u64,
    entries: Box<[Option<Entry>; ENTRIES]>,
}

impl Default for Police {
    fn default() -> Self {
        Police {
            generation: 0,
            entries: Box::new([None; ENTRIES]),
        }
    }
}

impl Police {
    /// Whether a packet from remote number `remote` of the tables, from inner `source` to inner
    /// `destination`, may be delivered.
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
    ) -> Result<(), DropReason> {
        if self.generation != tables.generation {
            self.entries.fill(None);
            self.generation = tables.generation;
        }
        let slot = slot(source, destination);
        if let Some(entry) = &self.entries[slot]
            && entry.remote == remote
            && entry.source == source
            && entry.destination == destination
        {
            return entry.verdict;
        }
        let verdict = decide(tables, remote, source, destination);
        self.entries[slot] = Some(Entry {
            source,
            destination,
            remote,
            verdict,
        });
        verdict
    }
}

fn decide(
    tables: &Tables,
    remote: u16,
    source: IpAddr,
    destination: IpAddr,
) -> Result<(), DropReason> {
    if !may_cross(source) || !may_cross(destination) {
        return Err(DropReason::AddressScope);
    }
    let remote = tables
        .remotes
        .get(usize::from(remote))
        .ok_or(DropReason::UnknownRemote)?;
    remote.accepted.get(source).ok_or(DropReason::InnerSource)?;
    tables
        .served
        .get(destination)
        .ok_or(DropReason::InnerDestination)?;
    Ok(())
}

/// Where the decision about a pair of addresses is kept.
#[inline]
pub(super) fn slot(source: IpAddr, destination: IpAddr) -> usize {
    let word = |address| match address {
        IpAddr::V4(v4) => u64::from(u32::from(v4)),
        IpAddr::V6(v6) => {
            let v6 = u128::from(v6);
            (v6 as u64) ^ ((v6 >> 64) as u64).rotate_left(23)
        }
    };
    let mixed =
        (word(source).rotate_left(32) ^ word(destination)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 54) as usize
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

    #[test]
    fn slots_stay_within_the_cache() {
        for n in 0..10_000u32 {
            assert!(
                slot(
                    IpAddr::V4(n.into()),
                    IpAddr::V6((u128::from(n) << 77).into())
                ) < ENTRIES
            );
        }
    }
}
