//! Longest-prefix match over IPv4 and IPv6 prefixes.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use prefix_trie::PrefixMap;

/// Prefixes of both IP versions, each with a value.
#[derive(Clone, Debug)]
pub struct Lpm<T> {
    v4: PrefixMap<(u32, u8), T>,
    v6: PrefixMap<(u128, u8), T>,
}

impl<T> Default for Lpm<T> {
    fn default() -> Self {
        Lpm {
            v4: PrefixMap::new(),
            v6: PrefixMap::new(),
        }
    }
}

impl<T> Lpm<T> {
    /// Adds a prefix and returns the value that it replaces.
    pub fn insert(&mut self, prefix: IpNet, value: T) -> Option<T> {
        match prefix {
            IpNet::V4(net) => self.v4.insert(v4_key(net), value),
            IpNet::V6(net) => self.v6.insert(v6_key(net), value),
        }
    }

    /// The value of the longest prefix that holds the address.
    #[inline]
    pub fn get(&self, address: IpAddr) -> Option<&T> {
        match address {
            IpAddr::V4(v4) => self.v4.get_lpm(&(v4.into(), 32)).map(|(_, value)| value),
            IpAddr::V6(v6) => self.v6.get_lpm(&(v6.into(), 128)).map(|(_, value)| value),
        }
    }

    /// The longest prefix that holds the address, and its value.
    pub fn find(&self, address: IpAddr) -> Option<(IpNet, &T)> {
        match address {
            IpAddr::V4(v4) => {
                let ((bits, len), value) = self.v4.get_lpm(&(v4.into(), 32))?;
                let net = Ipv4Net::new(bits.into(), len).ok()?;
                Some((net.trunc().into(), value))
            }
            IpAddr::V6(v6) => {
                let ((bits, len), value) = self.v6.get_lpm(&(v6.into(), 128))?;
                let net = Ipv6Net::new(bits.into(), len).ok()?;
                Some((net.trunc().into(), value))
            }
        }
    }

    /// Whether a prefix holds all of this one.
    pub fn holds(&self, prefix: IpNet) -> bool {
        match prefix {
            IpNet::V4(net) => self.v4.get_lpm(&v4_key(net)).is_some(),
            IpNet::V6(net) => self.v6.get_lpm(&v6_key(net)).is_some(),
        }
    }

    /// Whether there is no prefix.
    pub fn is_empty(&self) -> bool {
        self.v4.len() == 0 && self.v6.len() == 0
    }

    /// Number of prefixes.
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }
}

impl<T> FromIterator<(IpNet, T)> for Lpm<T> {
    fn from_iter<I: IntoIterator<Item = (IpNet, T)>>(prefixes: I) -> Self {
        let mut lpm = Lpm::default();
        for (prefix, value) in prefixes {
            lpm.insert(prefix, value);
        }
        lpm
    }
}

fn v4_key(net: Ipv4Net) -> (u32, u8) {
    (net.network().into(), net.prefix_len())
}

fn v6_key(net: Ipv6Net) -> (u128, u8) {
    (net.network().into(), net.prefix_len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn the_longest_prefix_wins_and_versions_never_match_each_other() {
        let lpm: Lpm<u8> = [
            ("10.0.0.0/8", 1),
            ("10.1.0.0/16", 2),
            ("::/0", 6),
            ("2001:db8::/32", 7),
        ]
        .into_iter()
        .map(|(prefix, value)| (prefix.parse().expect("a prefix"), value))
        .collect();
        assert_eq!(lpm.get(address("10.1.2.3")), Some(&2));
        assert_eq!(lpm.get(address("10.2.2.3")), Some(&1));
        assert_eq!(lpm.get(address("11.2.2.3")), None);
        assert_eq!(lpm.get(address("2001:db8::1")), Some(&7));
        assert_eq!(lpm.get(address("2001:db9::1")), Some(&6));
        let found = lpm.find(address("10.1.2.3"));
        let found = found.map(|(prefix, value)| (prefix.to_string(), *value));
        assert_eq!(found, Some(("10.1.0.0/16".to_owned(), 2)));
        assert_eq!(lpm.find(address("11.2.2.3")), None);
        let holds = |prefix: &str| lpm.holds(prefix.parse().expect("a prefix"));
        assert!(holds("10.1.0.0/16") && holds("10.128.0.0/9") && holds("::/0"));
        assert!(!holds("11.0.0.0/8") && !holds("8.0.0.0/6") && !holds("0.0.0.0/0"));
    }
}
