//! Text to conditions.

use std::{fmt, ops::RangeInclusive, str::FromStr};

use ipnet::IpNet;

use super::{Condition, Outer, protocol};
use crate::document::prefix;
use crate::problem::excerpt;

/// How deeply conditions may be nested, named classes included.
pub const MAX_DEPTH: usize = 64;
/// How many conditions a class may consist of, named classes included.
pub const MAX_CONDITIONS: usize = 4096;

/// Why a text is no condition, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassError {
    /// Byte of the text at which the trouble starts.
    pub at: usize,
    /// What is wrong and what to write instead.
    pub message: String,
}

impl fmt::Display for ClassError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at character {}: {}", self.at + 1, self.message)
    }
}

impl std::error::Error for ClassError {}

/// Parses the reference's language for traffic classes, in which keywords are all lower or all upper
/// case and white space stands between any two words:
///
/// ```text
/// all(C, …)  any(C, …)  not(C)  bool=true  bool=false
/// src=PREFIX  dst=PREFIX  dscp=0xHH  tos=0xHH  protocol=NAME
/// srcport=N  srcport=N-M  dstport=N  dstport=N-M  cls=CLASS
/// ```
///
/// Beyond the reference: IPv6 prefixes, protocols by number and names with digits, classes with
/// names other than numbers. Stray characters, which the reference skips, are refused.
///
/// `class` gives the condition of a named class; its error is the message.
///
/// # Errors
///
/// The first thing that is wrong.
pub fn parse(
    text: &str,
    class: &dyn Fn(&str) -> Result<Condition, String>,
) -> Result<Condition, ClassError> {
    whole(Parser {
        text,
        at: 0,
        conditions: 0,
        is_rule: false,
        class,
    })
}

/// As [`parse`], for rules of an SR node. They have no named classes, and may ask about SRv6 headers as well:
///
/// ```text
/// outersrc=PREFIX  sid=PREFIX  previous=PREFIX  next=PREFIX  last=PREFIX
/// segmentsleft=N  segmentsleft=N-M  lastentry=N  headerlength=N  tag=N  nextheader=NAME
/// ```
///
/// # Errors
///
/// The first thing that is wrong.
pub fn parse_rule(text: &str) -> Result<Condition, ClassError> {
    whole(Parser {
        text,
        at: 0,
        conditions: 0,
        is_rule: true,
        class: &|_| Err("rules have no named classes; write the conditions".to_owned()),
    })
}

fn whole(mut parser: Parser<'_>) -> Result<Condition, ClassError> {
    let condition = parser.condition(1)?;
    parser.skip_space();
    if parser.rest().is_empty() {
        Ok(condition)
    } else {
        Err(parser.unexpected("nothing more"))
    }
}

impl FromStr for Condition {
    type Err = ClassError;

    /// As [`parse`], without named classes.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text, &|name| {
            Err(format!("there is no traffic class \"{}\"", excerpt(name)))
        })
    }
}

/// Whether a text can be the name of a class: letters, digits, `.`, `_` and `-`.
#[must_use]
pub fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(is_name_byte)
}

/// The names of classes that a text refers to, as far as it can be read.
#[must_use]
pub fn names(text: &str) -> Vec<String> {
    let names = std::cell::RefCell::new(Vec::new());
    let note = |name: &str| {
        names.borrow_mut().push(name.to_owned());
        Ok(Condition::ALWAYS)
    };
    // What is wrong is told when the class is read for good.
    let _ = parse(text, &note);
    names.into_inner()
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._-".contains(&byte)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    conditions: usize,
    /// SRv6 headers may be asked about.
    is_rule: bool,
    class: &'a dyn Fn(&str) -> Result<Condition, String>,
}

type Parsed<T> = Result<T, ClassError>;

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
    }

    fn error(&self, at: usize, message: impl Into<String>) -> ClassError {
        ClassError {
            at,
            message: message.into(),
        }
    }

    fn unexpected(&self, wanted: &str) -> ClassError {
        let found = match excerpt(self.rest()) {
            end if end.is_empty() => "the end".to_owned(),
            rest => format!("\"{rest}\""),
        };
        self.error(self.at, format!("{found} found; expected {wanted}"))
    }

    /// The longest run of bytes of a kind, after white space.
    fn run(&mut self, is_part: impl Fn(u8) -> bool) -> (usize, &'a str) {
        self.skip_space();
        let rest = self.rest();
        let len = rest.bytes().take_while(|byte| is_part(*byte)).count();
        let start = self.at;
        self.at += len;
        (start, &rest[..len])
    }

    /// Whether this symbol comes next, after white space; if so, it is passed.
    fn take(&mut self, symbol: &str) -> bool {
        self.skip_space();
        let found = self.rest().starts_with(symbol);
        self.at += if found { symbol.len() } else { 0 };
        found
    }

    fn expect(&mut self, symbol: &str) -> Parsed<()> {
        if self.take(symbol) {
            Ok(())
        } else {
            Err(self.unexpected(&format!("\"{symbol}\"")))
        }
    }

    fn condition(&mut self, depth: usize) -> Parsed<Condition> {
        let (start, word) = self.run(|byte| byte.is_ascii_alphabetic());
        self.count(start, depth, 1)?;
        let keyword = if word.bytes().all(|byte| byte.is_ascii_uppercase()) {
            word.to_ascii_lowercase()
        } else {
            word.to_owned()
        };
        // Only this one has no upper-case form and no space before "=".
        if word == "cls" && self.rest().starts_with('=') {
            self.at += 1;
            return self.named(depth);
        }
        Ok(match keyword.as_str() {
            "all" => Condition::All(self.list(depth)?),
            "any" => Condition::Any(self.list(depth)?),
            "not" => {
                self.expect("(")?;
                let part = self.condition(depth + 1)?;
                self.expect(")")?;
                Condition::Not(Box::new(part))
            }
            "bool" => Condition::Bool(self.truth()?),
            "src" => Condition::Source(self.prefix()?),
            "dst" => Condition::Destination(self.prefix()?),
            "dscp" => Condition::Dscp(self.octet()?),
            "tos" => Condition::Tos(self.octet()?),
            "protocol" => Condition::Protocol(self.protocol()?),
            "srcport" => Condition::SourcePort(self.ports()?),
            "dstport" => Condition::DestinationPort(self.ports()?),
            _ => match self.outer(&keyword)? {
                Some(outer) if self.is_rule => Condition::Outer(outer),
                Some(_) => {
                    let message = format!(
                        "{keyword}= is about SRv6 headers, which only the rules of an SR node see; write conditions on the packet itself"
                    );
                    return Err(self.error(start, message));
                }
                None => {
                    self.at = start;
                    return Err(self.unexpected(match self.is_rule {
                        true => {
                            "all(…), any(…), not(…), src=, dst=, dscp=0x, tos=0x, protocol=, srcport=, dstport=, bool=, \
                             outersrc=, sid=, previous=, next=, last=, segmentsleft=, lastentry=, headerlength=, nextheader= \
                             or tag=, entirely in lower or upper case"
                        }
                        false => {
                            "all(…), any(…), not(…), src=, dst=, dscp=0x, tos=0x, protocol=, srcport=, dstport=, \
                             bool= or cls=, entirely in lower or upper case"
                        }
                    }));
                }
            },
        })
    }

    /// A condition on SRv6 headers, if it is one.
    fn outer(&mut self, keyword: &str) -> Parsed<Option<Outer>> {
        Ok(Some(match keyword {
            "outersrc" => Outer::Source(self.prefix_v6()?),
            "sid" => Outer::Sid(self.prefix_v6()?),
            "previous" => Outer::Previous(self.prefix_v6()?),
            "next" => Outer::Next(self.prefix_v6()?),
            "last" => Outer::Last(self.prefix_v6()?),
            "segmentsleft" => Outer::SegmentsLeft(self.octets()?),
            "lastentry" => Outer::LastEntry(self.octets()?),
            "headerlength" => Outer::HeaderLength(self.octets()?),
            "nextheader" => Outer::NextHeader(self.protocol()?),
            "tag" => Outer::Tag(self.numbers(u16::MAX, "a tag from 0 to 65535")?),
            _ => return Ok(None),
        }))
    }

    fn count(&mut self, at: usize, depth: usize, conditions: usize) -> Parsed<()> {
        self.conditions += conditions;
        if depth > MAX_DEPTH {
            let message =
                format!("more than {MAX_DEPTH} levels of parentheses; simplify the expression");
            return Err(self.error(at, message));
        }
        if self.conditions > MAX_CONDITIONS {
            let message =
                format!("more than {MAX_CONDITIONS} conditions; split it into several classes");
            return Err(self.error(at, message));
        }
        Ok(())
    }

    fn list(&mut self, depth: usize) -> Parsed<Vec<Condition>> {
        self.expect("(")?;
        let mut parts = vec![self.condition(depth + 1)?];
        while self.take(",") {
            parts.push(self.condition(depth + 1)?);
        }
        if self.take(")") {
            Ok(parts)
        } else {
            Err(self.unexpected("\",\" or \")\""))
        }
    }

    fn named(&mut self, depth: usize) -> Parsed<Condition> {
        let (start, name) = self.run(is_name_byte);
        if name.is_empty() {
            return Err(self.unexpected("the name of a traffic class"));
        }
        let condition = (self.class)(name).map_err(|message| self.error(start, message))?;
        self.count(start, depth - 1 + condition.depth(), condition.size() - 1)?;
        Ok(condition)
    }

    fn truth(&mut self) -> Parsed<bool> {
        self.expect("=")?;
        let (start, word) = self.run(|byte| byte.is_ascii_alphanumeric());
        match word {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => {
                self.at = start;
                Err(self.unexpected("true or false"))
            }
        }
    }

    fn prefix(&mut self) -> Parsed<IpNet> {
        self.expect("=")?;
        let (start, text) = self.run(|byte| byte.is_ascii_hexdigit() || b".:/".contains(&byte));
        let prefix = prefix::parse(text).map_err(|message| self.error(start, message))?;
        Ok(prefix.trunc())
    }

    fn octet(&mut self) -> Parsed<u8> {
        self.expect("=0x")?;
        let (start, digits) = self.run(|byte| byte.is_ascii_alphanumeric());
        u8::from_str_radix(digits, 16).map_err(|_| {
            self.at = start;
            self.unexpected("hexadecimal digits for one octet, for example 2e")
        })
    }

    fn protocol(&mut self) -> Parsed<u8> {
        self.expect("=")?;
        let (start, name) = self.run(|byte| byte.is_ascii_alphanumeric());
        protocol::number(name).ok_or_else(|| {
            self.at = start;
            self.unexpected("a protocol, for example TCP, UDP, ICMPv6 or a number from 0 to 255")
        })
    }

    fn prefix_v6(&mut self) -> Parsed<IpNet> {
        let start = self.at;
        let prefix = self.prefix()?;
        match prefix {
            IpNet::V6(_) => Ok(prefix),
            IpNet::V4(_) => Err(self.error(
                start,
                format!(
                    "{prefix} is an IPv4 prefix; write an IPv6 prefix, for example 2001:db8:a::/48"
                ),
            )),
        }
    }

    fn ports(&mut self) -> Parsed<RangeInclusive<u16>> {
        self.numbers(u16::MAX, "a port from 0 to 65535")
    }

    fn octets(&mut self) -> Parsed<RangeInclusive<u16>> {
        self.numbers(u8::MAX.into(), "a number from 0 to 255")
    }

    fn numbers(&mut self, most: u16, wanted: &str) -> Parsed<RangeInclusive<u16>> {
        self.expect("=")?;
        let first = self.number(most, wanted)?;
        let last = match self.take("-") {
            true => self.number(most, wanted)?,
            false => first,
        };
        Ok(first..=last)
    }

    fn number(&mut self, most: u16, wanted: &str) -> Parsed<u16> {
        let (start, digits) = self.run(|byte| byte.is_ascii_alphanumeric());
        let padded = digits.len() > 1 && digits.starts_with('0');
        match digits.parse() {
            Ok(number) if !padded && number <= most => Ok(number),
            _ => {
                self.at = start;
                Err(self.unexpected(wanted))
            }
        }
    }
}
