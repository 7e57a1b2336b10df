//! Conditions as text, in the form that the reference prints.

use std::fmt;

use super::{Condition, Outer, protocol};

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
            Self::Protocol(number) => write_protocol(f, "protocol", *number),
            Self::SourcePort(range) => write!(f, "srcport={}-{}", range.start(), range.end()),
            Self::DestinationPort(range) => write!(f, "dstport={}-{}", range.start(), range.end()),
            Self::Outer(outer) => outer.fmt(f),
        }
    }
}

fn write_protocol(f: &mut fmt::Formatter<'_>, key: &str, number: u8) -> fmt::Result {
    match protocol::name(number) {
        Some(name) => write!(f, "{key}={name}"),
        None => write!(f, "{key}={number}"),
    }
}

impl fmt::Display for Outer {
    /// As [`Condition`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, range) = match self {
            Self::Source(prefix) => return write!(f, "outersrc={prefix}"),
            Self::Sid(prefix) => return write!(f, "sid={prefix}"),
            Self::Previous(prefix) => return write!(f, "previous={prefix}"),
            Self::Next(prefix) => return write!(f, "next={prefix}"),
            Self::Last(prefix) => return write!(f, "last={prefix}"),
            Self::NextHeader(number) => return write_protocol(f, "nextheader", *number),
            Self::SegmentsLeft(range) => ("segmentsleft", range),
            Self::LastEntry(range) => ("lastentry", range),
            Self::HeaderLength(range) => ("headerlength", range),
            Self::Tag(range) => ("tag", range),
        };
        write!(f, "{key}={}-{}", range.start(), range.end())
    }
}
