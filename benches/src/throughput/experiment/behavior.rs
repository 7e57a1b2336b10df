//! What an SR node does with a packet.

use std::fmt;

use serde::{Deserialize, Serialize};
use sig_common::srv6;

use super::Family;

/// What an SR node does with a packet; in files and records by the name in RFC 8986, such as `End.DX4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Behavior {
    /// Puts it behind new headers with two segments: `H.Encaps`.
    Encaps,
    /// Puts the Ethernet frame behind them: `H.Encaps.L2`.
    EncapsFrames,
    /// Inserts two segments into an IPv6 packet: `H.Insert`.
    Insert,
    /// The proxy `End.AD6` with headers for each flow, which has no name in an RFC: `End.AD6 per flow`.
    ProxyOfFlows,
    /// What the SID stands for that it is addressed to.
    Sid(srv6::Behavior),
}

impl Behavior {
    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Encaps => "H.Encaps",
            Self::EncapsFrames => "H.Encaps.L2",
            Self::Insert => "H.Insert",
            Self::ProxyOfFlows => "End.AD6 per flow",
            Self::Sid(sid) => sid.name(),
        }
    }

    /// Whether the packet goes to a function and comes back.
    pub fn is_proxy(self) -> bool {
        use srv6::Behavior::*;
        matches!(
            self,
            Self::ProxyOfFlows | Self::Sid(EndAs | EndAd4 | EndAd6 | EndAm)
        )
    }

    /// Whether it takes packets without segments.
    pub fn is_headend(self) -> bool {
        matches!(self, Self::Encaps | Self::EncapsFrames | Self::Insert)
    }

    /// Whether the packet leaves without outer headers.
    pub fn decapsulates(self) -> bool {
        match self {
            Self::Sid(sid) => !sid.is_transit() && !self.is_proxy(),
            _ => false,
        }
    }

    /// The only family that may be inside; none if either may.
    pub fn family(self) -> Option<Family> {
        use srv6::Behavior::*;
        match self {
            Self::Sid(EndDx4 | EndDt4 | EndAd4) => Some(Family::Ipv4),
            Self::Insert | Self::ProxyOfFlows | Self::Sid(EndDx6 | EndDt6 | EndAd6) => {
                Some(Family::Ipv6)
            }
            _ => None,
        }
    }
}

impl TryFrom<String> for Behavior {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let sids = srv6::Behavior::ALL.into_iter().map(Self::Sid);
        let others = [
            Self::Encaps,
            Self::EncapsFrames,
            Self::Insert,
            Self::ProxyOfFlows,
        ];
        others
            .into_iter()
            .chain(sids)
            .find(|behavior| behavior.name() == name)
            .ok_or_else(|| format!("there is no behavior {name}; write H.Encaps, End, End.X, …"))
    }
}

impl From<Behavior> for String {
    fn from(behavior: Behavior) -> Self {
        behavior.name().to_owned()
    }
}

impl fmt::Display for Behavior {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
