//! Conditions as text, in the form that the reference prints.

use std::fmt;

use super::{Condition, protocol};

impl fmt::Display for Condition {
    /// The canonical form, which [`parse`](super::parse) reads back; the names of classes are
    /// replaced by what they stand for. A condition without parts, which no text can say, prints
    /// as `all()` or `any()`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, parts: &[Condition]| {
            for (i, part) in parts.iter().enumerate() {
                f.write_str(if i > 0 { "," } else { "" })?;
                part.fmt(f)?;
            }
            f.write_str(")")
        };
        match self {
            Self::All(parts) => f.write_str("all(").and_then(|()| list(f, parts)),
            Self::Any(parts) => f.write_str("any(").and_then(|()| list(f, parts)),
            Self::Not(part) => write!(f, "not({part})"),
            Self::Bool(value) => write!(f, "BOOL={value}"),
            Self::Source(prefix) => write!(f, "src={prefix}"),
            Self::Destination(prefix) => write!(f, "dst={prefix}"),
            Self::Dscp(code) => write!(f, "dscp={code:#x}"),
            Self::Tos(tos) => write!(f, "tos={tos:#x}"),
            Self::Protocol(number) => match protocol::name(*number) {
                Some(name) => write!(f, "protocol={name}"),
                None => write!(f, "protocol={number}"),
            },
            Self::SourcePort(range) => write!(f, "srcport={}-{}", range.start(), range.end()),
            Self::DestinationPort(range) => write!(f, "dstport={}-{}", range.start(), range.end()),
        }
    }
}
