//! Which prefixes are believed of a remote AS. What an operator wrote is not for doubting here: whether it would
//! capture the gateway's own traffic depends on the networks of this host.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::dataplane::may_cross;

/// What must never be routed into the tunnel because a remote says so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Own {
    /// Addresses that frames travel by: our own, and those of border routers.
    pub(super) underlay: Vec<IpAddr>,
    /// Prefixes served here.
    pub(super) served: Vec<IpNet>,
}

/// Why a prefix is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Refusal {
    /// It contains every address.
    DefaultRoute,
    /// It contains an address that frames travel by: they would be sent into the tunnel that makes them.
    Underlay,
    /// It overlaps a prefix served here.
    Served,
    /// It overlaps a prefix that the traffic policy gives to another AS.
    OtherAs,
    /// Its addresses are never routed between networks.
    Scope,
}

impl Refusal {
    /// One word for metrics.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::DefaultRoute => "default_route",
            Self::Underlay => "contains_underlay",
            Self::Served => "overlaps_served",
            Self::OtherAs => "overlaps_other_as",
            Self::Scope => "address_scope",
        }
    }

    /// For a log line.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::DefaultRoute => "it is a default route",
            Self::Underlay => "it contains an address that this gateway's own frames travel by",
            Self::Served => "it overlaps a prefix that is served here",
            Self::OtherAs => "it overlaps a prefix that the traffic policy gives to another AS",
            Self::Scope => "its addresses are not routed between networks",
        }
    }
}

impl Own {
    /// Whether a prefix that a remote AS announces is believed. `others` are the prefixes that the traffic
    /// policy gives to other ASes.
    pub(super) fn believes<'a>(
        &self,
        prefix: &IpNet,
        others: impl IntoIterator<Item = &'a IpNet>,
    ) -> Result<(), Refusal> {
        if prefix.prefix_len() == 0 {
            return Err(Refusal::DefaultRoute);
        }
        if self.underlay.iter().any(|ip| prefix.contains(ip)) {
            return Err(Refusal::Underlay);
        }
        if !may_cross(prefix.network()) {
            return Err(Refusal::Scope);
        }
        if self.served.iter().any(|served| overlap(served, prefix)) {
            return Err(Refusal::Served);
        }
        if others.into_iter().any(|other| overlap(other, prefix)) {
            return Err(Refusal::OtherAs);
        }
        Ok(())
    }
}

fn overlap(a: &IpNet, b: &IpNet) -> bool {
    a.contains(b) || b.contains(a)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().expect("a prefix")
    }

    #[test]
    fn only_prefixes_that_hurt_nobody_are_believed() {
        let own = Own {
            underlay: ["10.10.0.2", "10.10.0.1", "fd00:a::2"]
                .map(|ip| ip.parse().expect("an address"))
                .into(),
            served: vec![net("192.168.10.0/24")],
        };
        let others = [net("192.168.12.0/24")];
        let believed = |text: &str| own.believes(&net(text), &others);
        assert_eq!(believed("192.168.11.0/24"), Ok(()));
        assert_eq!(believed("fd00:b::/64"), Ok(()));
        assert_eq!(believed("0.0.0.0/0"), Err(Refusal::DefaultRoute));
        assert_eq!(believed("::/0"), Err(Refusal::DefaultRoute));
        assert_eq!(believed("10.0.0.0/8"), Err(Refusal::Underlay));
        assert_eq!(believed("fd00::/16"), Err(Refusal::Underlay));
        assert_eq!(believed("192.168.0.0/16"), Err(Refusal::Served));
        assert_eq!(believed("192.168.10.128/25"), Err(Refusal::Served));
        assert_eq!(believed("192.168.12.7/32"), Err(Refusal::OtherAs));
        for text in [
            "127.0.0.0/8",
            "224.0.0.0/8",
            "169.254.1.0/24",
            "fe80::/64",
            "ff02::/16",
            "0.0.0.0/8",
        ] {
            assert_eq!(believed(text), Err(Refusal::Scope), "{text}");
        }
    }
}
