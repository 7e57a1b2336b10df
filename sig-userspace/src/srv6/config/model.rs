//! What the sections say.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
    time::Duration,
};

use ipnet::IpNet;
use sig_common::srv6::{Behavior, Flavors, filter::Action, hmac::HmacKey};
use sig_core::policy::rules::{Rule, Tables};

use super::sections::Node;

/// `[srv6]` and all sections below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Srv6 {
    pub(crate) node: Node,
    pub(crate) sids: Vec<LocalSid>,
    pub(crate) policies: Vec<Steering>,
    pub(crate) functions: Vec<Service>,
    /// By the id of each.
    pub(crate) hmac_keys: Vec<(u32, HmacKey)>,
    pub(crate) rules: Vec<NamedRule>,
    /// What follows from the rules; none without any.
    pub(crate) tables: Option<Arc<Tables>>,
}

/// What a wire takes, unless written otherwise, and what packets that never reach one may have.
const ON_A_WIRE: u32 = 1500;
const WITHIN: u32 = 9216;

impl Default for Srv6 {
    /// Of a node that only makes copies.
    fn default() -> Self {
        Self {
            node: Node::with_defaults(),
            sids: Vec::new(),
            policies: Vec::new(),
            functions: Vec::new(),
            hmac_keys: Vec::new(),
            rules: Vec::new(),
            tables: None,
        }
    }
}

impl Srv6 {
    /// With what was in `old` and is here no more.
    pub(crate) fn with(&self, old: &Self) -> Self {
        let mut both = self.clone();
        let sid = |old: &&LocalSid| self.sids.iter().all(|new| new.sid != old.sid);
        both.sids.extend(old.sids.iter().filter(sid).cloned());
        let policy = |old: &&Steering| self.policies.iter().all(|new| new.name != old.name);
        both.policies
            .extend(old.policies.iter().filter(policy).cloned());
        let function = |old: &&Service| {
            let is_apart = |new: &Service| {
                new.name != old.name && new.return_interface != old.return_interface
            };
            self.functions.iter().all(is_apart)
        };
        both.functions
            .extend(old.functions.iter().filter(function).cloned());
        let key = |old: &&(u32, HmacKey)| self.hmac_keys.iter().all(|new| new.0 != old.0);
        both.hmac_keys
            .extend(old.hmac_keys.iter().filter(key).cloned());
        both
    }

    /// Largest packet with the headers of a policy, bytes: if all segments are SIDs of this node, its headers do not reach a wire.
    pub(crate) fn mtu(&self, policy: &Steering) -> u32 {
        // Where the headers may leave with the packet.
        let leaves =
            |behavior| matches!(behavior, Behavior::EndX | Behavior::EndT | Behavior::EndAm);
        let stays = |segment: &Ipv6Addr| {
            let mut sids = self.sids.iter();
            sids.any(|sid| sid.sid == *segment && !leaves(sid.behavior))
        };
        let default = match policy.segments.iter().all(stays) {
            true => WITHIN,
            false => ON_A_WIRE,
        };
        policy.mtu.unwrap_or(default)
    }
}

/// Hop limit of the headers that packets are put behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HopLimit {
    /// That of the packet inside, if that is IPv6; else 64.
    Inherit,
    /// This.
    Of(u8),
}

impl HopLimit {
    pub(super) const fn number(&self) -> Option<&u8> {
        match self {
            Self::Of(number) => Some(number),
            Self::Inherit => None,
        }
    }
}

/// What becomes of packets to SIDs by their HMAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HmacRule {
    /// It is not looked at.
    Ignore,
    /// Packets with a wrong one are dropped.
    Check,
    /// Those without one too.
    Require,
}

/// A SID of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocalSid {
    pub(crate) sid: Ipv6Addr,
    pub(crate) behavior: Behavior,
    pub(crate) flavors: Flavors,
    /// Bits of the address that are arguments.
    pub(crate) arguments: u8,
    pub(crate) target: Target,
}

/// What a SID leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The main table.
    Main,
    /// A routing table.
    Table(u32),
    /// The tunnel of the gateway that the node is part of.
    Tunnel,
    /// A neighbour.
    NextHop(IpAddr),
    /// A device.
    Interface(String),
    /// A function, by its name.
    Function(String),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Main => f.write_str("main table"),
            Self::Table(table) => write!(f, "table {table}"),
            Self::Tunnel => f.write_str("tunnel"),
            Self::NextHop(address) => write!(f, "via {address}"),
            Self::Interface(name) => write!(f, "{name}"),
            Self::Function(name) => write!(f, "function {name}"),
        }
    }
}

/// A list of segments, and the packets that are put behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Steering {
    pub(crate) name: String,
    /// In the order of the way; at least one.
    pub(crate) segments: Vec<Ipv6Addr>,
    /// The first segment is left out of the SRH.
    pub(crate) reduced: bool,
    /// The segments are inserted into IPv6 packets.
    pub(crate) insert: bool,
    /// The key that the header is signed with.
    pub(crate) hmac: Option<u32>,
    /// Largest packet with its headers, bytes; `None`: see [`Srv6::mtu`].
    pub(crate) mtu: Option<u32>,
    /// Packets to these are steered; none: packets of functions alone.
    pub(crate) destinations: Vec<IpNet>,
    /// All frames that come in by these devices are steered.
    pub(crate) frames_from: Vec<String>,
}

/// A function behind a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Service {
    pub(crate) name: String,
    /// The way to it.
    pub(crate) interface: String,
    /// The way back.
    pub(crate) return_interface: String,
    pub(crate) address: ServiceAddress,
    /// While it is down, packets go on without it.
    pub(crate) bypass: bool,
    /// Of a static proxy: the name of the policy for what it returns.
    pub(crate) policy: Option<String>,
    /// Of a dynamic proxy: which headers it remembers.
    pub(crate) headers: Remembered,
    /// How it is asked whether it is alive, besides by its links and as a neighbour.
    pub(crate) probe: Option<Probe>,
}

/// A probe of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Probe {
    pub(crate) kind: ProbeKind,
    /// Between one and the next.
    pub(crate) interval: Duration,
}

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeKind {
    /// ICMP echo request to its address as a neighbour.
    Ping,
    /// A connection to this TCP port of the same address.
    Tcp(u16),
    /// A packet that it returns.
    Through { source: IpAddr, destination: IpAddr },
}

/// The headers that a dynamic proxy remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remembered {
    /// Those of the latest packet.
    Latest,
    /// Those of each flow.
    OfFlows,
}

/// A rule about packets that come in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedRule {
    pub(crate) name: String,
    pub(crate) rule: Rule,
    /// Of `mirror` the device that copies leave by, of `steer` the name of the policy.
    pub(crate) target: Option<String>,
}

impl NamedRule {
    /// The device that copies leave by.
    pub(crate) fn mirror(&self) -> Option<&String> {
        let is_mirror = self.rule.action == Action::Mirror;
        self.target.as_ref().filter(|_| is_mirror)
    }

    /// The policy that packets go into.
    pub(crate) fn policy(&self) -> Option<&String> {
        let is_steer = self.rule.action == Action::Steer;
        self.target.as_ref().filter(|_| is_steer)
    }
}

/// How a function is addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServiceAddress {
    /// As this neighbour, which is asked for its MAC address and thereby watched.
    NextHop(IpAddr),
    /// By its MAC address; it counts as alive while its interface has a carrier.
    Mac([u8; 6]),
    /// In the process that the node runs in.
    Process,
}
