//! Walks a JSON document, remembers where everything is written and collects what is wrong, so that
//! one run reports every mistake of a file.
//!
//! Readers return `None` when they have reported a problem.

use std::{borrow::Cow, collections::BTreeMap, fmt, marker::PhantomData, ops::RangeInclusive};

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::schema;
use crate::problem::{Report, excerpt, printable};

/// A value of the document.
#[derive(Clone)]
pub struct Node<'a> {
    report: &'a Report<'a>,
    text: &'a str,
    value: &'a RawValue,
    /// Dotted path of the keys that lead here.
    pub key: String,
}

/// The members of an object by the names that are known; see [`Node::fields`].
pub type Fields<'a> = BTreeMap<&'static str, Node<'a>>;

/// What is done about unknown keys of an object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// They are ignored, as by the reference, with a warning.
    Warn,
    /// They are errors.
    Refuse,
}

impl<'a> Node<'a> {
    /// The whole document; `None` after a syntax error, which is reported.
    pub fn document(report: &'a Report<'a>, text: &'a str) -> Option<Self> {
        match serde_json::from_str::<&RawValue>(text) {
            Ok(value) => Some(Node {
                report,
                text,
                value,
                key: String::new(),
            }),
            Err(error) => {
                let before = text
                    .split_inclusive('\n')
                    .take(error.line().saturating_sub(1));
                let at = before.map(str::len).sum();
                let message = error.to_string();
                // The line is part of the problem already.
                let message = message.split(" at line ").next().unwrap_or_default();
                let message = if error.is_eof() {
                    "not JSON: the file ends before a string, array or object is closed".to_owned()
                } else {
                    format!(
                        "not JSON, column {}: {}",
                        error.column(),
                        printable(message)
                    )
                };
                report.error(at, "", message);
                None
            }
        }
    }

    /// The same value, its problems reported to somebody else.
    pub fn reporting_to<'b>(&self, report: &'b Report<'b>) -> Node<'b>
    where
        'a: 'b,
    {
        Node {
            report,
            ..self.clone()
        }
    }

    fn at(&self) -> usize {
        // The value borrows from the text.
        self.value.get().as_ptr() as usize - self.text.as_ptr() as usize
    }

    /// Reports an error here.
    pub fn error(&self, message: impl Into<String>) {
        self.report.error(self.at(), &self.key, message);
    }

    /// Reports a warning here.
    pub fn warn(&self, message: impl Into<String>) {
        self.report.warn(self.at(), &self.key, message);
    }

    /// A value in an object or array.
    fn child(&self, value: &'a RawValue, key: String) -> Self {
        Node {
            value,
            key,
            ..self.clone()
        }
    }

    fn wrong_type(&self, wanted: &str) {
        let found = match self.value.get().as_bytes().first() {
            Some(b'{') => "an object".to_owned(),
            Some(b'[') => "an array".to_owned(),
            Some(b'"') => format!("the string {}", excerpt(self.value.get())),
            _ => excerpt(self.value.get()),
        };
        self.error(format!("{found} found; write {wanted}"));
    }

    /// Whether this is `null`.
    pub fn is_null(&self) -> bool {
        self.value.get() == "null"
    }

    /// Whether this is a number below zero.
    pub fn is_negative(&self) -> bool {
        self.value.get().parse().is_ok_and(|number: i64| number < 0)
    }

    /// Whether this is a string.
    pub fn is_string(&self) -> bool {
        self.value.get().starts_with('"')
    }

    /// The text of a string; `wanted` says what to write instead of something else.
    pub fn string(&self, wanted: &str) -> Option<Cow<'a, str>> {
        match serde_json::from_str::<BorrowedOrOwned<'a>>(self.value.get()) {
            Ok(BorrowedOrOwned(text)) => Some(text),
            Err(_) => {
                self.wrong_type(wanted);
                None
            }
        }
    }

    /// A string that `parse` understands; its error is the message.
    pub fn parse<T>(
        &self,
        wanted: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let text = self.string(wanted)?;
        parse(&text).map_err(|message| self.error(message)).ok()
    }

    /// Returns the boolean, or reports that this is none.
    pub fn boolean(&self) -> Option<bool> {
        let value = serde_json::from_str(self.value.get()).ok();
        if value.is_none() {
            self.wrong_type("true or false");
        }
        value
    }

    /// A whole number within `range`.
    pub fn integer<T>(&self, range: RangeInclusive<T>) -> Option<T>
    where
        T: serde::de::DeserializeOwned + PartialOrd + fmt::Display,
    {
        let value = serde_json::from_str(self.value.get()).ok();
        let value = value.filter(|value| range.contains(value));
        if value.is_none() {
            let (first, last) = (range.start(), range.end());
            self.wrong_type(&format!("a whole number from {first} to {last}"));
        }
        value
    }

    /// A share in percent, 0 to 100, as parts per million.
    pub fn percent(&self) -> Option<u32> {
        let value: Option<f64> = serde_json::from_str(self.value.get()).ok();
        let value = value.filter(|value| (0.0..=100.0).contains(value));
        if value.is_none() {
            self.wrong_type("a percentage from 0 to 100, for example 0.5");
        }
        value.map(|value| (value * 10_000.0).round() as u32)
    }

    /// The elements of an array; `null` stands for none.
    pub fn elements(&self, wanted: &str) -> Option<Vec<Self>> {
        if self.is_null() {
            return Some(Vec::new());
        }
        let Ok(values) = serde_json::from_str::<Vec<&'a RawValue>>(self.value.get()) else {
            self.wrong_type(wanted);
            return None;
        };
        let elements = values.into_iter().enumerate();
        Some(
            elements
                .map(|(i, value)| self.child(value, format!("{}[{i}]", self.key)))
                .collect(),
        )
    }

    /// The members of an object in the order of the text, doubles included; `null` stands for none.
    pub fn members(&self, wanted: &str) -> Option<Vec<(String, Self)>> {
        if self.is_null() {
            return Some(Vec::new());
        }
        let Ok(Members(members)) = serde_json::from_str::<Members<'a>>(self.value.get()) else {
            self.wrong_type(wanted);
            return None;
        };
        let members = members.into_iter().map(|(name, value)| {
            let key = self.member_key(&excerpt(&name));
            (name, self.child(value, key))
        });
        Some(members.collect())
    }

    /// The member `key` of this object; its absence is an error that says what to `write`.
    pub fn require(&self, fields: &Fields<'a>, key: &'static str, write: &str) -> Option<Self> {
        let member = fields.get(key).cloned();
        if member.is_none() {
            let key = self.member_key(key);
            let message = format!("missing; write {write}");
            self.report.error(self.at(), &key, message);
        }
        member
    }

    fn member_key(&self, name: &str) -> String {
        if self.key.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.key)
        }
    }

    /// The members of an object by name. Case does not matter; of members with the same name the
    /// last one counts, and `null` stands for an absent one: as in the reference.
    pub fn fields(&self, known: &[&'static str], unknown: Unknown) -> Option<Fields<'a>> {
        let mut fields = Fields::new();
        for (name, node) in self.members("an object: {…}")? {
            let field = known.iter().find(|known| known.eq_ignore_ascii_case(&name));
            match field {
                Some(field) => {
                    if let Some(earlier) = fields.insert(*field, node) {
                        earlier.warn("is set twice; the last one wins");
                    }
                }
                None if unknown == Unknown::Warn => {
                    let mean = schema::nearest(known.iter().copied(), &name);
                    let mean = mean.map(|key| format!("; did you mean \"{key}\"?"));
                    node.warn(format!(
                        "unknown key, which has no effect{}",
                        mean.unwrap_or_default()
                    ));
                }
                None => node.error(format!("unknown key; write one of: {}", known.join(", "))),
            }
        }
        fields.retain(|_, node| !node.is_null());
        Some(fields)
    }
}

/// A string, borrowed from the text if nothing in it is escaped.
#[derive(serde::Deserialize)]
struct BorrowedOrOwned<'a>(#[serde(borrow)] Cow<'a, str>);

/// The members of an object.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder<'a>(PhantomData<&'a ()>);

        impl<'de: 'a, 'a> Visitor<'de> for InOrder<'a> {
            type Value = Members<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(InOrder(PhantomData))
    }
}
