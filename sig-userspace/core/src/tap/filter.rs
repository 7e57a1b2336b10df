//! Which packets are wanted: `host 10.1.0.5 and (port 443 or proto icmp) and not remote 1-ff00:0:112`.

use std::{fmt, net::IpAddr, str::FromStr};

use ipnet::IpNet;
use sig_common::{addr::IsdAs, wire::inner::InnerPacket};

use super::{Outer, remote_of};
use crate::{dataplane::Tables, policy::class::protocol_number};

/// Deepest nesting.
const MAX_DEPTH: usize = 16;
/// Longest text, bytes.
const MAX_LENGTH: usize = 512;

/// A condition on a packet. Words: `host ADDRESS`, `src ADDRESS`, `dst ADDRESS`, `net PREFIX`, `port NUMBER`, `proto NAME`, `remote
/// ISD-AS`, joined by `and`, `or`, `not` and parentheses; `and` binds more strongly than `or`. It holds for a SIG frame if it holds for
/// its own addresses and ports, or for the first packet that starts in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter(Expression);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Expression {
    All(Vec<Self>),
    Any(Vec<Self>),
    Not(Box<Self>),
    Host(IpNet),
    Source(IpNet),
    Destination(IpNet),
    Port(u16),
    Protocol(u8),
    Remote(IsdAs),
}

/// What is wrong with a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterError(String);

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "filter: {}", self.0)
    }
}

impl std::error::Error for FilterError {}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        if text.len() > MAX_LENGTH {
            return Err(FilterError(format!("longer than {MAX_LENGTH} bytes")));
        }
        let spaced = text.replace('(', " ( ").replace(')', " ) ");
        let mut words = Words(spaced.split_whitespace().peekable());
        if words.0.peek().is_none() {
            return Ok(Filter(Expression::All(Vec::new())));
        }
        let expression = words.any(0).map_err(FilterError)?;
        match words.0.next() {
            None => Ok(Filter(expression)),
            Some(word) => Err(FilterError(format!(
                "\"{word}\" where \"and\" or \"or\" is expected"
            ))),
        }
    }
}

struct Words<'a>(std::iter::Peekable<std::str::SplitWhitespace<'a>>);

impl Words<'_> {
    fn any(&mut self, depth: usize) -> Result<Expression, String> {
        let mut parts = vec![self.all(depth)?];
        while self.0.next_if_eq(&"or").is_some() {
            parts.push(self.all(depth)?);
        }
        Ok(one(parts, Expression::Any))
    }

    fn all(&mut self, depth: usize) -> Result<Expression, String> {
        let mut parts = vec![self.single(depth)?];
        while self.0.next_if_eq(&"and").is_some() {
            parts.push(self.single(depth)?);
        }
        Ok(one(parts, Expression::All))
    }

    fn single(&mut self, depth: usize) -> Result<Expression, String> {
        if depth > MAX_DEPTH {
            return Err(format!("nested more than {MAX_DEPTH} deep"));
        }
        let Some(word) = self.0.next() else {
            return Err("ends where a condition is expected".to_owned());
        };
        match word {
            "not" => Ok(Expression::Not(Box::new(self.single(depth + 1)?))),
            "(" => {
                let inside = self.any(depth + 1)?;
                match self.0.next() {
                    Some(")") => Ok(inside),
                    _ => Err("a \")\" is missing".to_owned()),
                }
            }
            "host" | "net" => self
                .value(word, "an address or prefix", net)
                .map(Expression::Host),
            "src" => self
                .value(word, "an address or prefix", net)
                .map(Expression::Source),
            "dst" => self
                .value(word, "an address or prefix", net)
                .map(Expression::Destination),
            "port" => self
                .value(word, "a port", |text| text.parse().ok())
                .map(Expression::Port),
            "proto" => self
                .value(word, "a protocol such as tcp or 47", protocol_number)
                .map(Expression::Protocol),
            "remote" => self
                .value(word, "an ISD-AS", |text| text.parse().ok())
                .map(Expression::Remote),
            other => Err(format!(
                "\"{other}\" is none of host, net, src, dst, port, proto, remote, not and \"(\""
            )),
        }
    }

    fn value<T>(
        &mut self,
        word: &str,
        wanted: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<T, String> {
        let text = self.0.next().unwrap_or("");
        read(text).ok_or_else(|| match text {
            "" => format!("\"{word}\" needs {wanted}"),
            text => format!("\"{word}\" takes {wanted}, not \"{text}\""),
        })
    }
}

fn one(mut parts: Vec<Expression>, of: fn(Vec<Expression>) -> Expression) -> Expression {
    match (parts.len(), parts.pop()) {
        (1, Some(part)) => part,
        (_, last) => {
            parts.extend(last);
            of(parts)
        }
    }
}

fn net(text: &str) -> Option<IpNet> {
    let net = text.parse::<IpNet>().ok().map(|net| net.trunc());
    net.or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}

/// What is asked about a packet.
struct Facts<'a> {
    packet: Option<InnerPacket>,
    remote: &'a dyn Fn() -> Option<IsdAs>,
}

impl Filter {
    /// Whether an IP packet is wanted. `is_outer`: it is one of the underlay.
    pub(super) fn takes(
        &self,
        packet: &[u8],
        (is_outer, incoming): (bool, bool),
        tables: &Tables,
    ) -> bool {
        if self.0 == Expression::All(Vec::new()) {
            return true;
        }
        let summary = InnerPacket::parse(packet).ok();
        if !is_outer {
            return self.0.holds(&Facts {
                packet: summary,
                remote: &|| summary.and_then(|packet| remote_of(tables, &packet)),
            });
        }
        let frame = Outer::parse(packet);
        let remote = frame.map(|frame| match incoming {
            true => frame.source,
            false => frame.destination,
        });
        let remote = || remote;
        let of = |packet| Facts {
            packet,
            remote: &remote,
        };
        let inner = frame.and_then(|frame| frame.inner);
        self.0.holds(&of(summary)) || inner.is_some() && self.0.holds(&of(inner))
    }
}

impl Expression {
    fn holds(&self, facts: &Facts<'_>) -> bool {
        let Facts { packet, remote } = facts;
        let packet = packet.as_ref();
        match self {
            Self::All(parts) => parts.iter().all(|part| part.holds(facts)),
            Self::Any(parts) => parts.iter().any(|part| part.holds(facts)),
            Self::Not(part) => !part.holds(facts),
            Self::Host(net) => {
                packet.is_some_and(|of| net.contains(&of.source) || net.contains(&of.destination))
            }
            Self::Source(net) => packet.is_some_and(|of| net.contains(&of.source)),
            Self::Destination(net) => packet.is_some_and(|of| net.contains(&of.destination)),
            Self::Port(port) => packet
                .and_then(InnerPacket::ports)
                .is_some_and(|ports| ports.contains(port)),
            Self::Protocol(number) => packet.and_then(InnerPacket::upper_protocol) == Some(*number),
            Self::Remote(isd_as) => remote() == Some(*isd_as),
        }
    }
}
