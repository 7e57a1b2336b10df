//! Rules of an SR node as the tables that its programs follow ([`sig_common::srv6::filter`]).

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::{Ipv4Addr, Ipv6Addr},
    ops::RangeInclusive,
};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use sig_common::srv6::filter::{
    Action, Field, Head, Kind, MAX_CLASSES, MAX_NOTING, MAX_ROWS, NUMBERS, OCTETS, PREFIXES, WORDS,
};

use super::class::{Condition, Outer};

/// A rule, as far as it says which packets it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What holds for the packets.
    pub condition: Condition,
    /// The names of the interfaces that they come in by; none: any.
    pub interfaces: Vec<String>,
    /// What is done.
    pub action: Action,
}

/// Sets of rows, as bits.
pub type Class = [u64; WORDS];

/// The tables. Classes are numbers in [`Tables::classes`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tables {
    /// The small ones.
    pub head: Head,
    /// The class of each prefix of a field; there is always one of every address.
    pub prefixes: BTreeMap<(Field, IpNet), u16>,
    /// For each field of two octets, the class of every value; empty if no rule asks about it.
    pub numbers: [Vec<u16>; NUMBERS],
    /// The class of the interfaces that rules name.
    pub interfaces: BTreeMap<String, u16>,
    /// What is in the classes.
    pub classes: Vec<Class>,
    /// Of each row, the place of its rule, and the first row of the next rule.
    pub rows: Vec<(usize, u32)>,
}

/// Why rules are more than the tables hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany {
    /// The place of the rule that is one too many.
    pub rule: usize,
    /// Of what there are too many.
    pub what: &'static str,
    /// How many there may be.
    pub most: usize,
}

/// Conditions on one field each, all of which have to hold.
type Row = BTreeMap<Field, Condition>;

/// Makes tables of rules.
///
/// # Errors
/// They are too many, or too complex.
pub fn compile(rules: &[Rule]) -> Result<Tables, TooMany> {
    let mut rows: Vec<(usize, Row)> = Vec::new();
    for (place, rule) in rules.iter().enumerate() {
        let too_many = TooMany {
            rule: place,
            what: "alternatives",
            most: MAX_ROWS,
        };
        let of_rule = alternatives(&rule.condition, true).ok_or(too_many)?;
        rows.extend(of_rule.into_iter().map(|row| (place, row)));
        if rows.len() > MAX_ROWS {
            return Err(too_many);
        }
    }
    let mut noting = rules.iter().enumerate();
    let one_too_many = noting
        .by_ref()
        .filter(|(_, rule)| rule.action.is_noting())
        .nth(MAX_NOTING);
    if let Some((rule, _)) = one_too_many {
        return Err(TooMany {
            rule,
            what: "rules that count or mirror",
            most: MAX_NOTING,
        });
    }
    let made = Compiler {
        rules,
        rows: &rows,
        known: HashMap::new(),
        classes: Vec::new(),
    }
    .tables();
    if made.classes.len() > MAX_CLASSES {
        return Err(TooMany {
            rule: rules.len().saturating_sub(1),
            what: "different combinations of conditions",
            most: MAX_CLASSES,
        });
    }
    Ok(made)
}

/// The condition, or its contrary, as alternatives. `None` if they are too many.
fn alternatives(condition: &Condition, wanted: bool) -> Option<Vec<Row>> {
    let mut fields = BTreeSet::new();
    note_fields(condition, &mut fields);
    let mut fields = fields.into_iter();
    match (fields.next(), fields.next()) {
        (None, _) => Some(match condition.holds(&|_| false) == wanted {
            true => vec![Row::new()],
            false => Vec::new(),
        }),
        (Some(field), None) => Some(vec![Row::from([(
            field,
            match wanted {
                true => condition.clone(),
                false => Condition::Not(Box::new(condition.clone())),
            },
        )])]),
        _ => match condition {
            Condition::Not(part) => alternatives(part, !wanted),
            Condition::All(parts) if wanted => every(parts, wanted),
            Condition::Any(parts) if !wanted => every(parts, wanted),
            Condition::All(parts) | Condition::Any(parts) => some(parts, wanted),
            // Of one field.
            _ => None,
        },
    }
}

/// All of the parts, or none of them.
fn every(parts: &[Condition], wanted: bool) -> Option<Vec<Row>> {
    let mut all = vec![Row::new()];
    for part in parts {
        let more = alternatives(part, wanted)?;
        if all.len() * more.len() > MAX_ROWS {
            return None;
        }
        let pairs = all
            .iter()
            .flat_map(|row| more.iter().map(move |more| (row, more)));
        all = pairs.map(|(row, more)| both(row, more)).collect();
    }
    Some(all)
}

fn both(row: &Row, more: &Row) -> Row {
    let mut row = row.clone();
    for (field, condition) in more {
        let both = match row.remove(field) {
            Some(other) => Condition::All(vec![other, condition.clone()]),
            None => condition.clone(),
        };
        row.insert(*field, both);
    }
    row
}

/// One of the parts, or what is not one of them. Those about one field alone are one row together.
fn some(parts: &[Condition], wanted: bool) -> Option<Vec<Row>> {
    let mut alone: BTreeMap<Field, Vec<Condition>> = BTreeMap::new();
    let mut all = Vec::new();
    for part in parts {
        for mut row in alternatives(part, wanted)? {
            match (row.len(), row.pop_first()) {
                (0, _) => return Some(vec![Row::new()]),
                (1, Some((field, condition))) => alone.entry(field).or_default().push(condition),
                (_, Some((field, condition))) => {
                    row.insert(field, condition);
                    all.push(row);
                }
                (_, None) => {}
            }
        }
        if all.len() > MAX_ROWS {
            return None;
        }
    }
    let alone = alone.into_iter();
    all.extend(alone.map(|(field, conditions)| Row::from([(field, Condition::Any(conditions))])));
    Some(all)
}

fn note_fields(condition: &Condition, fields: &mut BTreeSet<Field>) {
    match condition {
        Condition::All(parts) | Condition::Any(parts) => {
            parts.iter().for_each(|part| note_fields(part, fields));
        }
        Condition::Not(part) => note_fields(part, fields),
        _ => fields.extend(field(condition)),
    }
}

/// What a condition without parts asks about.
const fn field(condition: &Condition) -> Option<Field> {
    Some(match condition {
        Condition::All(_) | Condition::Any(_) | Condition::Not(_) | Condition::Bool(_) => {
            return None;
        }
        Condition::Source(_) => Field::Source,
        Condition::Destination(_) => Field::Destination,
        Condition::Dscp(_) | Condition::Tos(_) => Field::Tos,
        Condition::Protocol(_) => Field::Protocol,
        Condition::SourcePort(_) => Field::SourcePort,
        Condition::DestinationPort(_) => Field::DestinationPort,
        Condition::Outer(outer) => match outer {
            Outer::Source(_) => Field::OuterSource,
            Outer::Sid(_) => Field::Sid,
            Outer::Previous(_) => Field::Previous,
            Outer::Next(_) => Field::Next,
            Outer::Last(_) => Field::Last,
            Outer::SegmentsLeft(_) => Field::SegmentsLeft,
            Outer::LastEntry(_) => Field::LastEntry,
            Outer::HeaderLength(_) => Field::HeaderLength,
            Outer::NextHeader(_) => Field::NextHeader,
            Outer::Tag(_) => Field::Tag,
        },
    })
}

const fn prefix(condition: &Condition) -> Option<&IpNet> {
    match condition {
        Condition::Source(net)
        | Condition::Destination(net)
        | Condition::Outer(
            Outer::Source(net)
            | Outer::Sid(net)
            | Outer::Previous(net)
            | Outer::Next(net)
            | Outer::Last(net),
        ) => Some(net),
        _ => None,
    }
}

const fn range(condition: &Condition) -> Option<&RangeInclusive<u16>> {
    match condition {
        Condition::SourcePort(range)
        | Condition::DestinationPort(range)
        | Condition::Outer(
            Outer::SegmentsLeft(range)
            | Outer::LastEntry(range)
            | Outer::HeaderLength(range)
            | Outer::Tag(range),
        ) => Some(range),
        _ => None,
    }
}

/// Whether a condition without parts holds for this value of its field.
fn holds(condition: &Condition, value: u16) -> bool {
    match condition {
        Condition::Dscp(code) => value >> 2 == u16::from(*code),
        Condition::Tos(octet) => value == u16::from(*octet),
        Condition::Protocol(number) | Condition::Outer(Outer::NextHeader(number)) => {
            value == u16::from(*number)
        }
        _ => range(condition).is_some_and(|range| range.contains(&value)),
    }
}

/// Calls `see` with all conditions without parts.
fn each(condition: &Condition, see: &mut impl FnMut(&Condition)) {
    match condition {
        Condition::All(parts) | Condition::Any(parts) => {
            parts.iter().for_each(|part| each(part, see));
        }
        Condition::Not(part) => each(part, see),
        _ => see(condition),
    }
}

struct Compiler<'a> {
    rules: &'a [Rule],
    rows: &'a [(usize, Row)],
    known: HashMap<Class, u16>,
    classes: Vec<Class>,
}

impl Compiler<'_> {
    fn tables(mut self) -> Tables {
        let mut head = Head::EMPTY;
        head.words = self.rows.len().div_ceil(64) as u32;
        head.used = Field::Kind.bit();
        let asked = self.rows.iter().flat_map(|(_, row)| row.keys());
        for field in asked {
            head.used |= field.bit();
        }
        let names: BTreeSet<String> = self
            .rules
            .iter()
            .flat_map(|rule| rule.interfaces.iter().cloned())
            .collect();
        if !names.is_empty() {
            head.used |= Field::Interface.bit();
        }
        let mut prefixes = BTreeMap::new();
        let mut numbers: [Vec<u16>; NUMBERS] = Default::default();
        for field in Self::FIELDS {
            let place = field as usize;
            if head.used & field.bit() == 0 {
                continue;
            }
            if let Some(absent) = head.absent.get_mut(place) {
                *absent = self.class(field, &|_| false);
            }
            if place < PREFIXES {
                for net in self.prefixes(field) {
                    let contains =
                        |atom: &Condition| prefix(atom).is_some_and(|of| of.contains(&net));
                    prefixes.insert((field, net), self.class(field, &contains));
                }
            } else if let Some(classes) = head.octets.get_mut(place - PREFIXES) {
                for (value, class) in (0..).zip(classes) {
                    *class = self.class(field, &|atom| holds(atom, value));
                }
            } else if let Some(classes) = numbers.get_mut(place - PREFIXES - OCTETS) {
                let mut starts = self.starts(field).into_iter().peekable();
                while let Some(start) = starts.next() {
                    let end = starts.peek().map_or(1 << 16, |next| usize::from(*next));
                    let class = self.class(field, &|atom| holds(atom, start));
                    classes.resize(end, class);
                }
            }
        }
        if let Some(classes) = head.octets.get_mut(Field::Kind as usize - PREFIXES) {
            for (kind, class) in [Kind::Plain, Kind::Sid, Kind::Arguments]
                .into_iter()
                .zip(classes)
            {
                *class = self.rows_of(|rule| rule.action.is_for(kind));
            }
        }
        let mut interfaces = BTreeMap::new();
        if !names.is_empty() {
            let any = self.rows_of(|rule| rule.interfaces.is_empty());
            if let Some(absent) = head.absent.get_mut(Field::Interface as usize) {
                *absent = any;
            }
        }
        for name in names {
            let class =
                self.rows_of(|rule| rule.interfaces.is_empty() || rule.interfaces.contains(&name));
            interfaces.insert(name, class);
        }
        Tables {
            head,
            prefixes,
            numbers,
            interfaces,
            classes: self.classes,
            rows: self
                .rows
                .chunk_by(|(rule, _), (next, _)| rule == next)
                .scan(0, |end, of_rule| {
                    *end += of_rule.len() as u32;
                    let end = *end;
                    Some(of_rule.iter().map(move |(rule, _)| (*rule, end)))
                })
                .flatten()
                .collect(),
        }
    }

    /// Those that conditions ask about.
    const FIELDS: [Field; Field::COUNT - 2] = [
        Field::Source,
        Field::Destination,
        Field::OuterSource,
        Field::Sid,
        Field::Previous,
        Field::Next,
        Field::Last,
        Field::Tos,
        Field::Protocol,
        Field::SegmentsLeft,
        Field::LastEntry,
        Field::HeaderLength,
        Field::NextHeader,
        Field::SourcePort,
        Field::DestinationPort,
        Field::Tag,
    ];

    /// The class of values for which `holds` says what conditions without parts hold.
    fn class(&mut self, field: Field, holds: &impl Fn(&Condition) -> bool) -> u16 {
        let is_in = |(_, row): &(usize, Row)| {
            row.get(&field)
                .is_none_or(|condition| condition.holds(holds))
        };
        let class = class_of(self.rows.iter().map(is_in));
        self.number(class)
    }

    /// The class of the rows of some rules.
    fn rows_of(&mut self, is_in: impl Fn(&Rule) -> bool) -> u16 {
        let rows = self.rows.iter();
        let class = class_of(rows.map(|(rule, _)| self.rules.get(*rule).is_some_and(&is_in)));
        self.number(class)
    }

    /// More classes than there may be have numbers of others; then the tables are not used.
    fn number(&mut self, class: Class) -> u16 {
        *self.known.entry(class).or_insert_with(|| {
            self.classes.push(class);
            (self.classes.len() - 1) as u16
        })
    }

    fn atoms(&self, field: Field, see: &mut impl FnMut(&Condition)) {
        for condition in self.rows.iter().filter_map(|(_, row)| row.get(&field)) {
            each(condition, see);
        }
    }

    fn prefixes(&self, field: Field) -> BTreeSet<IpNet> {
        let any_v4 = Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 0);
        let any_v6 = Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 0);
        let mut all = BTreeSet::from([any_v4.into(), any_v6.into()]);
        self.atoms(field, &mut |atom| all.extend(prefix(atom)));
        all
    }

    /// Where conditions may begin or cease to hold.
    fn starts(&self, field: Field) -> BTreeSet<u16> {
        let mut all = BTreeSet::from([0]);
        self.atoms(field, &mut |atom| {
            if let Some(range) = range(atom) {
                all.insert(*range.start());
                all.extend(range.end().checked_add(1));
            }
        });
        all
    }
}

fn class_of(is_in: impl Iterator<Item = bool>) -> Class {
    let mut class = [0; WORDS];
    for (row, _) in is_in.enumerate().filter(|(_, is_in)| *is_in) {
        if let Some(word) = class.get_mut(row / 64) {
            *word |= 1 << (row % 64);
        }
    }
    class
}
