//! Sets of IP addresses, exact, with the algebra that routing policies need.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// A set of IPv4 and IPv6 addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixSet {
    v4: Ranges,
    v6: Ranges,
}

/// Addresses of one version as numbers: disjoint ranges, both ends included, ascending, with a gap
/// between any two.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ranges {
    bits: u8,
    list: Vec<(u128, u128)>,
}

impl Default for PrefixSet {
    fn default() -> Self {
        Self {
            v4: Ranges::empty(32),
            v6: Ranges::empty(128),
        }
    }
}

impl<'a> FromIterator<&'a IpNet> for PrefixSet {
    /// All addresses in any of the prefixes; bits beyond a prefix's length do not count.
    fn from_iter<I: IntoIterator<Item = &'a IpNet>>(prefixes: I) -> Self {
        let mut set = Self::default();
        for prefix in prefixes {
            let (ranges, first, last) = match prefix {
                IpNet::V4(net) => (
                    &mut set.v4,
                    net.network().to_bits().into(),
                    net.broadcast().to_bits().into(),
                ),
                IpNet::V6(net) => (
                    &mut set.v6,
                    net.network().to_bits(),
                    net.broadcast().to_bits(),
                ),
            };
            ranges.list.push((first, last));
        }
        set.v4.tidy();
        set.v6.tidy();
        set
    }
}

impl PrefixSet {
    /// Whether no address is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.v4.list.is_empty() && self.v6.list.is_empty()
    }

    /// Whether an address is in it.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => self.v4.contains(address.to_bits().into()),
            IpAddr::V6(address) => self.v6.contains(address.to_bits()),
        }
    }

    /// Whether any address of the prefix is in it.
    #[must_use]
    pub fn overlaps(&self, prefix: &IpNet) -> bool {
        match prefix {
            IpNet::V4(net) => self.v4.overlaps(
                net.network().to_bits().into(),
                net.broadcast().to_bits().into(),
            ),
            IpNet::V6(net) => self
                .v6
                .overlaps(net.network().to_bits(), net.broadcast().to_bits()),
        }
    }

    /// What is in either.
    #[must_use]
    pub fn union(mut self, other: &Self) -> Self {
        self.v4.list.extend_from_slice(&other.v4.list);
        self.v6.list.extend_from_slice(&other.v6.list);
        self.v4.tidy();
        self.v6.tidy();
        self
    }

    /// What is in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self {
            v4: self.v4.intersection(&other.v4),
            v6: self.v6.intersection(&other.v6),
        }
    }

    /// What is not in it, of both versions.
    #[must_use]
    pub fn complement(&self) -> Self {
        Self {
            v4: self.v4.complement(),
            v6: self.v6.complement(),
        }
    }

    /// What is in it but not in the other.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.intersection(&other.complement())
    }

    /// The fewest prefixes that make it up: IPv4 before IPv6, ascending.
    #[must_use]
    pub fn prefixes(&self) -> Vec<IpNet> {
        // Both conversions fit: the ranges of each version hold addresses of that version.
        let v4 = self.v4.blocks().filter_map(|(first, length)| {
            let address = Ipv4Addr::from_bits(first.try_into().ok()?);
            Some(Ipv4Net::new(address, length).ok()?.into())
        });
        let v6 = self.v6.blocks().filter_map(|(first, length)| {
            let address = Ipv6Addr::from_bits(first);
            Some(Ipv6Net::new(address, length).ok()?.into())
        });
        v4.chain(v6).collect()
    }
}

impl Ranges {
    fn empty(bits: u8) -> Self {
        Self {
            bits,
            list: Vec::new(),
        }
    }

    /// The highest address.
    fn max(&self) -> u128 {
        u128::MAX >> (128 - self.bits)
    }

    /// Sorts the list and joins what overlaps or touches.
    fn tidy(&mut self) {
        self.list.sort_unstable();
        self.list.dedup_by(|next, kept| {
            let joined = next.0 <= kept.1.saturating_add(1);
            if joined {
                kept.1 = kept.1.max(next.1);
            }
            joined
        });
    }

    fn contains(&self, address: u128) -> bool {
        self.overlaps(address, address)
    }

    fn overlaps(&self, first: u128, last: u128) -> bool {
        let candidate = self.list.partition_point(|range| range.1 < first);
        self.list
            .get(candidate)
            .is_some_and(|range| range.0 <= last)
    }

    fn intersection(&self, other: &Self) -> Self {
        let mut both = Self::empty(self.bits);
        let (mut ours, mut theirs) = (self.list.iter().peekable(), other.list.iter().peekable());
        while let (Some(a), Some(b)) = (ours.peek(), theirs.peek()) {
            let (first, last) = (a.0.max(b.0), a.1.min(b.1));
            if first <= last {
                both.list.push((first, last));
            }
            if a.1 < b.1 {
                ours.next();
            } else {
                theirs.next();
            }
        }
        both
    }

    fn complement(&self) -> Self {
        let mut rest = Self::empty(self.bits);
        let mut next = Some(0);
        for (first, last) in &self.list {
            if let Some(start) = next.filter(|start| start < first) {
                rest.list.push((start, first - 1));
            }
            next = last.checked_add(1);
        }
        if let Some(start) = next.filter(|start| *start <= self.max()) {
            rest.list.push((start, self.max()));
        }
        rest
    }

    /// First address and prefix length of the fewest prefixes that make it up.
    fn blocks(&self) -> impl Iterator<Item = (u128, u8)> {
        self.list.iter().flat_map(move |&(first, last)| {
            let mut next = Some(first);
            std::iter::from_fn(move || {
                let start = next.filter(|start| *start <= last)?;
                // As many low bits as are free in the start and as the range has room for.
                let aligned = start.trailing_zeros().min(self.bits.into());
                let room = match (last - start).checked_add(1) {
                    Some(count) => count.ilog2(),
                    None => 128,
                };
                let size = aligned.min(room) as u8;
                let block_end = start | u128::MAX.checked_shr(128 - u32::from(size)).unwrap_or(0);
                next = block_end.checked_add(1);
                Some((start, self.bits - size))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().expect("a prefix")
    }

    fn set(prefixes: &[&str]) -> PrefixSet {
        let nets: Vec<IpNet> = prefixes.iter().map(|text| net(text)).collect();
        nets.iter().collect()
    }

    fn shown(set: &PrefixSet) -> String {
        let prefixes = set.prefixes();
        let texts: Vec<String> = prefixes.iter().map(ToString::to_string).collect();
        texts.join(",")
    }

    #[test]
    fn neighbours_become_one_prefix() {
        assert_eq!(shown(&set(&["10.0.1.0/24", "10.0.0.0/24"])), "10.0.0.0/23");
        assert_eq!(
            shown(&set(&["10.0.1.0/24", "10.0.2.0/24"])),
            "10.0.1.0/24,10.0.2.0/24"
        );
        assert_eq!(shown(&set(&["10.0.0.0/8", "10.1.0.0/16"])), "10.0.0.0/8");
        assert_eq!(shown(&set(&["10.0.0.7/8"])), "10.0.0.0/8");
    }

    #[test]
    fn the_ends_of_the_address_spaces_are_no_special_case() {
        let all = set(&["0.0.0.0/0", "::/0"]);
        assert_eq!(shown(&all), "0.0.0.0/0,::/0");
        assert!(all.complement().is_empty());
        assert_eq!(PrefixSet::default().complement(), all);
        let halves = set(&["0.0.0.0/1", "128.0.0.0/1", "8000::/1"]);
        assert_eq!(shown(&halves), "0.0.0.0/0,8000::/1");
        assert_eq!(shown(&halves.complement()), "::/1");
        let last = set(&[
            "255.255.255.255/32",
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128",
        ]);
        assert_eq!(last.complement().prefixes().len(), 32 + 128);
        assert_eq!(last.complement().complement(), last);
    }

    #[test]
    fn a_hole_splits_a_prefix() {
        let rest = set(&["10.0.0.0/22"]).difference(&set(&["10.0.1.0/24"]));
        assert_eq!(shown(&rest), "10.0.0.0/24,10.0.2.0/23");
        assert!(rest.overlaps(&net("10.0.1.0/23")));
        assert!(!rest.overlaps(&net("10.0.1.128/25")));
        assert!(!rest.overlaps(&net("::/0")));
    }

    /// Prefixes within 10.0.0.0/24 and 2001:db8::/120, so that every address can be looked at.
    fn prefixes() -> impl Strategy<Value = Vec<IpNet>> {
        let prefix = (any::<bool>(), any::<u8>(), 0..=8_u8).prop_map(|(v4, low, length)| {
            let net = if v4 {
                IpNet::new(Ipv4Addr::new(10, 0, 0, low).into(), 24 + length)
            } else {
                let address = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, low.into());
                IpNet::new(address.into(), 120 + length)
            };
            net.expect("a length")
        });
        prop::collection::vec(prefix, 0..12)
    }

    fn addresses() -> impl Iterator<Item = IpAddr> {
        let v4 = (0..=255).map(|low| Ipv4Addr::new(10, 0, 0, low).into());
        let v6 = (0..=255).map(|low| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, low).into());
        let around = [
            "9.255.255.255",
            "10.0.1.0",
            "2001:db8::100",
            "::",
            "255.255.255.255",
        ];
        let around = around.map(|text| text.parse().expect("an address"));
        v4.chain(v6).chain(around)
    }

    proptest! {
        #[test]
        fn the_algebra_agrees_with_looking_at_every_address(a in prefixes(), b in prefixes()) {
            let (left, right): (PrefixSet, PrefixSet) = (a.iter().collect(), b.iter().collect());
            let union = left.clone().union(&right);
            let (both, only) = (left.intersection(&right), left.difference(&right));
            let not = left.complement();
            for address in addresses() {
                let in_a = a.iter().any(|net| net.contains(&address));
                let in_b = b.iter().any(|net| net.contains(&address));
                prop_assert_eq!(left.contains(address), in_a);
                prop_assert_eq!(union.contains(address), in_a || in_b);
                prop_assert_eq!(both.contains(address), in_a && in_b);
                prop_assert_eq!(only.contains(address), in_a && !in_b);
                prop_assert_eq!(not.contains(address), !in_a);
            }
            for net in &b {
                let touched = a.iter().any(|own| own.contains(net) || net.contains(own));
                prop_assert_eq!(left.overlaps(net), touched);
            }
        }

        #[test]
        fn the_prefixes_of_a_set_are_it_and_no_two_could_be_one(a in prefixes()) {
            let set: PrefixSet = a.iter().collect();
            let prefixes = set.prefixes();
            prop_assert_eq!(&prefixes.iter().collect::<PrefixSet>(), &set);
            prop_assert!(prefixes.is_sorted());
            let fewest = IpNet::aggregate(&a.iter().map(IpNet::trunc).collect());
            prop_assert_eq!(prefixes.len(), fewest.len());
        }
    }
}
