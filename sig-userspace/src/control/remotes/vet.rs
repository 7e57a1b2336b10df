//! Which prefixes are believed of a remote AS. What an operator wrote is not for doubting here, and whether a
//! prefix would capture the gateway's own traffic depends on the networks of this host: the data plane's owner
//! decides that, from [`Plan::must_reach`](crate::control::plan::Plan::must_reach).

use ipnet::IpNet;
use sig_common::addr::IsdAs;

use crate::control::{config::DefaultRoute, log_limit::Say};
use sig_core::document::prefix;

/// Prefixes shorter than this count as default routes: halves of everything, or 2000::/3, do what a default
/// route does.
const SHORTEST: u8 = 8;

/// What must not be routed into the tunnel because a remote says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Own {
    /// Prefixes served here.
    pub(super) served: Vec<IpNet>,
    /// Whether default routes are learned.
    pub(super) default_route: DefaultRoute,
}

/// Why a prefix is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Refusal {
    /// It is a default route, and the configuration refuses those.
    DefaultRoute,
    /// It is, or is part of, a prefix served here.
    Served,
    /// It is, or is part of, a prefix that the traffic policy gives to another AS.
    OtherAs,
    /// Its addresses are never routed between networks.
    Scope,
}

impl Refusal {
    /// One word for metrics.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::DefaultRoute => "default_route",
            Self::Served => "overlaps_served",
            Self::OtherAs => "overlaps_other_as",
            Self::Scope => "address_scope",
        }
    }

    /// For a log line.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::DefaultRoute => "`[control] default_route` refuses prefixes shorter than /8",
            Self::Served => {
                "it is served here, or is part of a prefix served here; to delegate a part to the \
                 remote AS, list that part in an accept rule"
            }
            Self::OtherAs => {
                "the traffic policy gives it to another AS (`Nets`); to delegate a part to this AS, \
                 list that part in an accept rule"
            }
            Self::Scope => "its addresses are never routed between networks",
        }
    }
}

/// How many refused prefixes are logged in a minute: peers can announce other ones for ever.
pub(super) const LINES: u64 = 64;

/// Logs a refused prefix, unless there have been too many lately.
pub(super) fn log(said: Say, isd_as: IsdAs, prefix: IpNet, refusal: Refusal) {
    match said {
        Say::Line => {
            tracing::warn!(%isd_as, %prefix, "rejected a prefix: {}", refusal.reason());
        }
        Say::Last => tracing::warn!(
            "{LINES} prefixes rejected within a minute; further ones are counted but not logged for now"
        ),
        Say::Nothing => {}
    }
}

impl Own {
    /// Whether a prefix that a remote AS announces, and that the routing policy accepts, is believed. A prefix
    /// that is wider than what it overlaps does no harm: the longest prefix wins. `others` are the prefixes that
    /// the traffic policy gives to other ASes; `is_named` tells whether the routing policy itself names the
    /// first prefix as a part of the second one.
    pub(super) fn accepts(
        &self,
        prefix: &IpNet,
        others: &[IpNet],
        is_named: impl Fn(&IpNet, &IpNet) -> bool,
    ) -> Result<(), Refusal> {
        if self.default_route == DefaultRoute::Refuse && prefix.prefix_len() < SHORTEST {
            return Err(Refusal::DefaultRoute);
        }
        if prefix::refused(prefix).is_some() {
            return Err(Refusal::Scope);
        }
        let is_taken = |whole: &IpNet| whole.contains(prefix) && !is_named(prefix, whole);
        if self.served.iter().any(is_taken) {
            return Err(Refusal::Served);
        }
        if others.iter().any(is_taken) {
            return Err(Refusal::OtherAs);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().expect("a prefix")
    }

    #[test]
    fn the_longest_prefix_wins_and_only_what_is_at_home_elsewhere_is_refused() {
        let mut own = Own {
            served: vec![net("192.168.10.0/24")],
            default_route: DefaultRoute::Accept,
        };
        let others = [net("192.168.12.0/24")];
        let named = net("192.168.10.64/26");
        let believed = |own: &Own, text: &str| {
            own.accepts(&net(text), &others, |part, whole| {
                whole.contains(&named) && named.contains(part)
            })
        };
        for text in [
            "192.168.11.0/24",
            "fd00:b::/64",
            // Aggregates around what is served here and elsewhere.
            "192.168.0.0/16",
            "192.168.12.0/23",
            "10.0.0.0/8",
            "0.0.0.0/0",
            "::/0",
            // Special ranges inside are never routed there.
            "0.0.0.0/1",
            "64.0.0.0/2",
            "128.0.0.0/1",
            "192.0.0.0/2",
            "2000::/3",
            // A part of what is served here that the policy names.
            "192.168.10.64/26",
        ] {
            assert_eq!(believed(&own, text), Ok(()), "{text}");
        }
        assert_eq!(believed(&own, "192.168.10.0/24"), Err(Refusal::Served));
        assert_eq!(believed(&own, "192.168.10.128/25"), Err(Refusal::Served));
        assert_eq!(believed(&own, "192.168.12.7/32"), Err(Refusal::OtherAs));
        for text in [
            "127.0.0.0/8",
            "224.0.0.0/8",
            "240.0.0.0/4",
            "224.0.0.0/3",
            "169.254.1.0/24",
            "fe80::/64",
            "ff02::/16",
            "::ffff:0:0/96",
            "0.0.0.0/8",
        ] {
            assert_eq!(believed(&own, text), Err(Refusal::Scope), "{text}");
        }
        own.default_route = DefaultRoute::Refuse;
        for text in ["0.0.0.0/0", "::/0", "0.0.0.0/1", "64.0.0.0/2", "2000::/3"] {
            assert_eq!(believed(&own, text), Err(Refusal::DefaultRoute), "{text}");
        }
        assert_eq!(believed(&own, "10.0.0.0/8"), Ok(()));
        assert_eq!(believed(&own, "fd00::/8"), Ok(()));
    }
}
