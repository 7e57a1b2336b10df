//! Regular expressions over the hops of a path.

use std::{fmt, str::FromStr};

use sig_common::addr::IsdAs;

use super::hop::{HopPredicate, Interfaces};
use crate::problem::excerpt;
use crate::scion::Path;

/// How deeply parentheses may be nested.
const MAX_DEPTH: usize = 64;
/// How many hops a sequence may name.
const MAX_HOPS: usize = 1024;

/// A regular expression over hops, as in the reference: hops one after the other, `|` for either of
/// two (which binds more tightly than the order of hops), `?`, `+` and `*` behind what may be absent,
/// repeated or both, and parentheses. A path has one hop per AS; where it starts, the ingress interface
/// is 0, and where it ends, the egress interface.
///
/// The empty sequence matches every path. Displayed as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequence {
    text: String,
    program: Vec<Step>,
}

/// A step of a machine that follows all ways through the expression at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Takes a hop and goes to the next step.
    Hop(HopPredicate),
    /// Goes two ways.
    Split(usize, usize),
    /// Goes elsewhere.
    Jump(usize),
}

/// An expression as written.
enum Expression {
    Hop(HopPredicate),
    Either(Vec<Expression>),
    Then(Vec<Expression>),
    Repeated {
        inner: Box<Expression>,
        absent: bool,
        again: bool,
    },
}

impl Sequence {
    /// Whether a path consists of such hops. A path with an odd number of interfaces does not, as
    /// it has no hops to speak of.
    #[must_use]
    pub fn matches(&self, path: &Path) -> bool {
        if self.program.is_empty() {
            return true;
        }
        let interfaces = &path.interfaces;
        if !interfaces.len().is_multiple_of(2) {
            return false;
        }
        let mut states = States::new(self.program.len() + 1);
        states.add(&self.program, 0);
        if let [first, middle @ .., last] = &**interfaces {
            self.advance(&mut states, first.isd_as, 0, first.id);
            for hop in middle.chunks_exact(2) {
                self.advance(&mut states, hop[0].isd_as, hop[0].id, hop[1].id);
            }
            self.advance(&mut states, last.isd_as, last.id, 0);
        }
        states.contains(self.program.len())
    }

    fn advance(&self, states: &mut States, isd_as: IsdAs, ingress: u64, egress: u64) {
        let mut next = States::new(self.program.len() + 1);
        for at in states.list.drain(..) {
            if let Some(Step::Hop(hop)) = self.program.get(at)
                && hop.matches_hop(isd_as, ingress, egress)
            {
                next.add(&self.program, at + 1);
            }
        }
        *states = next;
    }
}

/// Steps that the machine is at. One behind the last step means that the expression is complete.
struct States {
    list: Vec<usize>,
    known: Vec<bool>,
}

impl States {
    fn new(steps: usize) -> Self {
        Self {
            list: Vec::new(),
            known: vec![false; steps],
        }
    }

    fn contains(&self, at: usize) -> bool {
        self.known.get(at).copied().unwrap_or(false)
    }

    /// Adds a step and those that are reached from it without a hop.
    fn add(&mut self, program: &[Step], at: usize) {
        let mut open = vec![at];
        while let Some(at) = open.pop() {
            match self.known.get_mut(at) {
                Some(known) if !*known => *known = true,
                _ => continue,
            }
            match program.get(at) {
                Some(Step::Split(a, b)) => open.extend([*a, *b]),
                Some(Step::Jump(to)) => open.push(*to),
                Some(Step::Hop(_)) | None => self.list.push(at),
            }
        }
    }
}

impl Expression {
    fn compile(&self, program: &mut Vec<Step>) {
        match self {
            Self::Hop(hop) => program.push(Step::Hop(*hop)),
            Self::Then(parts) => parts.iter().for_each(|part| part.compile(program)),
            Self::Either(parts) => {
                let mut exits = Vec::new();
                for (i, part) in parts.iter().enumerate() {
                    let split = program.len();
                    if i + 1 < parts.len() {
                        program.push(Step::Split(split + 1, 0));
                    }
                    part.compile(program);
                    if i + 1 < parts.len() {
                        exits.push(program.len());
                        program.push(Step::Jump(0));
                        program[split] = Step::Split(split + 1, program.len());
                    }
                }
                for exit in exits {
                    program[exit] = Step::Jump(program.len());
                }
            }
            Self::Repeated {
                inner,
                absent,
                again,
            } => {
                let start = program.len();
                if *absent {
                    program.push(Step::Jump(0));
                }
                let body = program.len();
                inner.compile(program);
                if *again {
                    program.push(Step::Split(body, program.len() + 1));
                }
                if *absent {
                    program[start] = Step::Split(body, program.len());
                }
            }
        }
    }
}

impl FromStr for Sequence {
    type Err = String;

    /// Parses a sequence; the error says where and what is wrong.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut program = Vec::new();
        if !text.is_empty() {
            let mut parser = Parser {
                text,
                at: 0,
                hops: 0,
            };
            let expression = parser.sequence(1)?;
            if !parser.rest().is_empty() {
                return Err(parser.unexpected("a hop, an operator or nothing more"));
            }
            expression.compile(&mut program);
        }
        Ok(Self {
            text: text.to_owned(),
            program,
        })
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    hops: usize,
}

impl<'a> Parser<'a> {
    /// What is left, without leading white space.
    fn rest(&mut self) -> &'a str {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let trimmed = rest.trim_start_matches([' ', '\t', '\r', '\n']);
        self.at += rest.len() - trimmed.len();
        trimmed
    }

    fn unexpected(&mut self, wanted: &str) -> String {
        let found = match excerpt(self.rest()) {
            end if end.is_empty() => "the end".to_owned(),
            rest => format!("\"{rest}\""),
        };
        let at = self.at + 1;
        format!("at character {at}: {found} found; expected {wanted}")
    }

    fn take(&mut self, symbol: char) -> bool {
        let found = self.rest().starts_with(symbol);
        self.at += usize::from(found);
        found
    }

    fn sequence(&mut self, depth: usize) -> Result<Expression, String> {
        let mut parts = vec![self.either(depth)?];
        while self
            .rest()
            .starts_with(|c: char| c == '(' || c.is_ascii_digit())
        {
            parts.push(self.either(depth)?);
        }
        Ok(Expression::Then(parts))
    }

    fn either(&mut self, depth: usize) -> Result<Expression, String> {
        let mut parts = vec![self.repeated(depth)?];
        while self.take('|') {
            parts.push(self.repeated(depth)?);
        }
        Ok(Expression::Either(parts))
    }

    fn repeated(&mut self, depth: usize) -> Result<Expression, String> {
        let inner = if self.take('(') {
            if depth >= MAX_DEPTH {
                return Err(format!(
                    "more than {MAX_DEPTH} levels of parentheses; simplify the sequence"
                ));
            }
            let inner = self.sequence(depth + 1)?;
            if !self.take(')') {
                return Err(self.unexpected("a hop, an operator or \")\""));
            }
            inner
        } else {
            Expression::Hop(self.hop()?)
        };
        // Several operators behind each other are one: what may be absent or come again.
        let (mut absent, mut again) = (false, false);
        loop {
            if self.take('?') {
                absent = true;
            } else if self.take('+') {
                again = true;
            } else if self.take('*') {
                (absent, again) = (true, true);
            } else {
                break;
            }
        }
        Ok(if absent || again {
            Expression::Repeated {
                inner: Box::new(inner),
                absent,
                again,
            }
        } else {
            inner
        })
    }

    fn hop(&mut self) -> Result<HopPredicate, String> {
        self.hops += 1;
        if self.hops > MAX_HOPS {
            return Err(format!(
                "more than {MAX_HOPS} hops; write a shorter sequence"
            ));
        }
        let isd = self.number("a hop, for example 0, 1-0, 1-ff00:0:110 or 1-ff00:0:110#1,2")?;
        let isd: u16 = isd.parse().map_err(|_| {
            let isd = excerpt(isd);
            format!("ISD {isd} is out of range; write a number from 0 to 65535")
        })?;
        if !self.take('-') {
            return Ok(HopPredicate {
                isd_as: IsdAs::new(isd, 0),
                interfaces: Interfaces::Either(0),
            });
        }
        // No white space here.
        let rest = self.text.get(self.at..).unwrap_or_default();
        let is_part = |c: char| c.is_ascii_hexdigit() || c == ':';
        let asn = &rest[..rest.len() - rest.trim_start_matches(is_part).len()];
        let padded = asn.split(':').any(is_padded);
        let isd_as = format!("{isd}-{asn}").parse().ok().filter(|_| !padded);
        let Some(isd_as) = isd_as else {
            return Err(self.unexpected("an AS number, for example 64512 or ff00:0:110"));
        };
        self.at += asn.len();
        let interfaces = if self.take('#') {
            let first = self.interface()?;
            if self.take(',') {
                Interfaces::InOut(first, self.interface()?)
            } else {
                Interfaces::Either(first)
            }
        } else {
            Interfaces::Either(0)
        };
        Ok(HopPredicate { isd_as, interfaces })
    }

    fn interface(&mut self) -> Result<u64, String> {
        let digits = self.number("the number of an interface, 0 for any")?;
        digits.parse().map_err(|_| {
            let digits = excerpt(digits);
            format!("interface {digits} is out of range; write a smaller number")
        })
    }

    /// Decimal digits. Leading zeros, which the reference takes for numbers of their own, are
    /// refused.
    fn number(&mut self, wanted: &str) -> Result<&'a str, String> {
        let rest = self.rest();
        let is_digit = |c: char| c.is_ascii_digit();
        let digits = &rest[..rest.len() - rest.trim_start_matches(is_digit).len()];
        if digits.is_empty() || is_padded(digits) {
            return Err(self.unexpected(wanted));
        }
        self.at += digits.len();
        Ok(digits)
    }
}

fn is_padded(digits: &str) -> bool {
    digits.len() > 1 && digits.starts_with('0')
}
