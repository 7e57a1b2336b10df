//! Walks a parsed TOML document, remembers where everything is written and collects what is wrong,
//! so that one run reports every mistake of a file.
//!
//! Readers return `None` when they have reported a problem (or, for optional keys, when the key is
//! absent); the caller goes on with the other keys.

use std::ops::RangeInclusive;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::schema::Schema;
use crate::problem::{Report, excerpt, printable};

/// A document that may be read: syntax errors are reported, and then there is none.
///
/// `longest` bytes are far more than any such file in use has.
pub fn parse<'a>(
    report: &Report<'_>,
    text: &'a str,
    longest: usize,
) -> Option<Spanned<DeTable<'a>>> {
    if text.len() > longest {
        let limit = longest >> 20;
        report.error(0, "", format!("the file is larger than {limit} MiB"));
        return None;
    }
    let (document, syntax) = DeTable::parse_recoverable(text);
    for error in &syntax {
        let at = error.span().map_or(0, |span| span.start);
        let message = printable(error.message());
        let key = error.span().and_then(|span| text.get(span));
        let which = match key {
            Some(key) if message == "duplicate key" => {
                format!(" \"{}\"; remove one of the two", excerpt(key.trim()))
            }
            _ => String::new(),
        };
        report.error(at, "", format!("not TOML: {message}{which}"));
    }
    // What the parser made up to go on would only add noise.
    syntax.is_empty().then_some(document)
}

/// The text of a key in a section of a file that may hold mistakes, as far as it can be read.
pub fn legible(text: &str, section: &str, key: &str) -> Option<String> {
    let (document, _) = DeTable::parse_recoverable(text);
    let DeValue::Table(section) = value_of(document.get_ref(), section)? else {
        return None;
    };
    match value_of(section, key)? {
        DeValue::String(text) if !text.is_empty() => Some(text.to_string()),
        _ => None,
    }
}

fn value_of<'t, 'a>(table: &'t DeTable<'a>, key: &str) -> Option<&'t DeValue<'a>> {
    let mut entries = table.iter();
    let (_, value) = entries.find(|(written, _)| is_same_key(written, key))?;
    Some(value.get_ref())
}

/// A place in the file: what messages about a key, or about its absence, point at.
#[derive(Clone)]
pub struct Place<'a> {
    report: &'a Report<'a>,
    at: usize,
    /// The key, with its section.
    pub key: String,
}

impl Place<'_> {
    /// The same place, for a key that is absent there.
    pub fn below(&self, key: &str) -> Self {
        Self {
            key: join(&self.key, key),
            ..self.clone()
        }
    }

    /// Reports an error here.
    pub fn error(&self, message: impl Into<String>) {
        self.report.error(self.at, &self.key, message);
    }

    /// Reports a warning here.
    pub fn warn(&self, message: impl Into<String>) {
        self.report.warn(self.at, &self.key, message);
    }

    /// Line of the file, counted from 1; 0 if there is no file.
    pub fn line(&self) -> usize {
        self.report.line(self.at)
    }

    /// Returns the key, and its line if there is a file, for a message about another place.
    pub fn shown(&self) -> String {
        match self.line() {
            0 => self.key.clone(),
            line => format!("{} (line {line})", self.key),
        }
    }

    /// Name of the file.
    pub fn file(&self) -> &str {
        self.report.file()
    }
}

/// A table of the document, or its absence: an absent section reads like an empty one.
pub struct Section<'a> {
    /// Where it is, or would be.
    pub place: Place<'a>,
    schema: &'static Schema,
    /// Name in the schema.
    name: String,
    table: Option<&'a DeTable<'a>>,
}

impl<'a> Section<'a> {
    /// The whole document. Unknown keys and sections that are none are reported here, once.
    pub fn root(report: &'a Report<'a>, table: &'a DeTable<'a>, schema: &'static Schema) -> Self {
        let place = Place {
            report,
            at: 0,
            key: String::new(),
        };
        let root = Self {
            place,
            schema,
            name: String::new(),
            table: Some(table),
        };
        root.report_unknown();
        root
    }

    fn report_unknown(&self) {
        let known = self.schema.keys(&self.name);
        let keys: Vec<_> = self
            .table
            .into_iter()
            .flatten()
            .map(|(key, _)| key)
            .collect();
        for key in &keys {
            let word = key.get_ref().as_ref();
            let (at, path) = (key.span().start, join(&self.place.key, &excerpt(word)));
            let report = self.place.report;
            match known.clone().find(|known| known.eq_ignore_ascii_case(word)) {
                None => report.error(at, &path, self.schema.advice(&self.name, word)),
                Some(known) => {
                    let same = |other: &&&Spanned<_>| is_same_key(other, word);
                    if keys.iter().filter(same).count() > 1 {
                        report.error(at, &path, format!("\"{known}\" is set twice; remove one"));
                    } else if known != word {
                        report.warn(
                            at,
                            &path,
                            format!("read as \"{known}\"; write it like that"),
                        );
                    }
                }
            }
        }
        for key in known {
            let name = join(&self.name, key);
            let Some(item) = self.get(key) else { continue };
            if self.schema.is_section(&name) {
                match item.value.get_ref() {
                    DeValue::Table(_) => self.section(key).report_unknown(),
                    _ => item.wrong_type(&format!("a section: [{name}]")),
                }
            } else if self.schema.is_section(&format!("{name}[]")) {
                let header = format!("one [[{}]] section each", name.replace("[]", ""));
                let DeValue::Array(elements) = item.value.get_ref() else {
                    item.wrong_type(&header);
                    continue;
                };
                for (i, value) in elements.iter().enumerate() {
                    if !matches!(value.get_ref(), DeValue::Table(_)) {
                        item.element(i, value).wrong_type(&header);
                    }
                }
                for section in self.sections(key) {
                    section.report_unknown();
                }
            }
        }
    }

    /// Whether the section is written in the file.
    pub fn is_present(&self) -> bool {
        self.table.is_some()
    }

    /// The value of `key`, when written.
    pub fn get(&self, key: &'static str) -> Option<Item<'a>> {
        debug_assert!(
            self.schema.keys(&self.name).any(|known| known == key),
            "{key} is missing in the list of keys"
        );
        let (key, value) = self
            .table?
            .iter()
            .find(|(written, _)| is_same_key(written, key))?;
        Some(Item {
            place: Place {
                report: self.place.report,
                at: key.span().start,
                key: join(&self.place.key, key.get_ref()),
            },
            value,
        })
    }

    /// The same, where an empty text means what the absence of the key means: the keys of the reference.
    pub fn get_unless_empty(&self, key: &'static str) -> Option<Item<'a>> {
        self.get(key).filter(|item| !item.is_word(""))
    }

    /// The value of `key`; its absence is an error that says what to `write`.
    pub fn require(&self, key: &'static str, write: &str) -> Option<Item<'a>> {
        let item = self.get(key);
        if item.is_none() {
            self.place
                .below(key)
                .error(format!("missing; write {write}"));
        }
        item
    }

    /// The sub-section `key`.
    pub fn section(&self, key: &'static str) -> Section<'a> {
        let name = join(&self.name, key);
        let item = self.get(key);
        let table = item.as_ref().and_then(|item| match item.value.get_ref() {
            DeValue::Table(table) => Some(table),
            _ => None,
        });
        let place = match item {
            Some(item) => item.place,
            None => self.place.below(key),
        };
        Section {
            place,
            schema: self.schema,
            name,
            table,
        }
    }

    /// The elements of the array of tables `key`, in the order of the file.
    pub fn sections(&self, key: &'static str) -> Vec<Section<'a>> {
        let Some(item) = self.get(key) else {
            return Vec::new();
        };
        let DeValue::Array(elements) = item.value.get_ref() else {
            return Vec::new();
        };
        let name = format!("{}[]", join(&self.name, key));
        let elements = elements.iter().enumerate();
        let tables = elements.filter_map(|(i, value)| match value.get_ref() {
            DeValue::Table(table) => Some(Section {
                place: item.element(i, value).place,
                schema: self.schema,
                name: name.clone(),
                table: Some(table),
            }),
            _ => None,
        });
        tables.collect()
    }
}

/// A section's value with the places that checks of the whole file point at.
pub struct Placed<'a, T> {
    /// The value.
    pub value: T,
    /// Where it is, or would be.
    pub place: Place<'a>,
}

/// The value of an optional key: `Some(default)` when absent, `None` when wrong.
pub fn or<'a, T>(
    section: &Section<'a>,
    key: &'static str,
    default: T,
    read: impl FnOnce(&Item<'a>) -> Option<T>,
) -> Option<T> {
    section.get(key).map_or(Some(default), |item| read(&item))
}

/// The same of a key of the reference, where an empty text means the default.
pub fn or_if_empty<'a, T>(
    section: &Section<'a>,
    key: &'static str,
    default: T,
    read: impl FnOnce(&Item<'a>) -> Option<T>,
) -> Option<T> {
    section
        .get_unless_empty(key)
        .map_or(Some(default), |item| read(&item))
}

/// An array whose elements are all read, also after a wrong one.
pub fn list<'a, T>(
    item: &Item<'a>,
    example: &str,
    read: impl Fn(&Item<'a>) -> Option<T>,
) -> Option<Vec<T>> {
    let elements = item.elements(example)?;
    let values: Vec<Option<T>> = elements.iter().map(read).collect();
    values.into_iter().collect()
}

/// A value of the document.
pub struct Item<'a> {
    /// Where it is.
    pub place: Place<'a>,
    value: &'a Spanned<DeValue<'a>>,
}

impl<'a> Item<'a> {
    fn element(&self, index: usize, value: &'a Spanned<DeValue<'a>>) -> Item<'a> {
        Item {
            place: Place {
                report: self.place.report,
                at: value.span().start,
                key: format!("{}[{index}]", self.place.key),
            },
            value,
        }
    }

    fn wrong_type(&self, wanted: &str) {
        let found = match self.value.get_ref() {
            DeValue::String(text) => format!("the string \"{}\"", excerpt(text)),
            DeValue::Integer(number) => format!("the number {}", excerpt(&number.to_string())),
            DeValue::Float(number) => format!("the number {}", excerpt(&number.to_string())),
            DeValue::Boolean(value) => value.to_string(),
            DeValue::Datetime(_) => "a date".to_owned(),
            DeValue::Array(_) => "an array".to_owned(),
            DeValue::Table(_) => "a table".to_owned(),
        };
        self.place.error(format!("{found} found; write {wanted}"));
    }

    /// The text of a string; `example` is what a correct value looks like, with its quotes.
    pub fn text(&self, example: &str) -> Option<&'a str> {
        match self.value.get_ref() {
            DeValue::String(text) => Some(text),
            _ => {
                self.wrong_type(&format!("a string, for example {example}"));
                None
            }
        }
    }

    /// A string that `parse` understands; its error is the message.
    pub fn parse<T>(
        &self,
        example: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        match parse(self.text(example)?) {
            Ok(value) => Some(value),
            Err(message) => {
                self.place.error(message);
                None
            }
        }
    }

    /// One of a few words.
    pub fn choice<T: Copy>(&self, words: &[(&str, T)]) -> Option<T> {
        let list = || {
            let quoted: Vec<_> = words.iter().map(|(w, _)| format!("\"{w}\"")).collect();
            match quoted.split_last() {
                Some((last, rest)) if !rest.is_empty() => {
                    format!("{} or {last}", rest.join(", "))
                }
                _ => quoted.concat(),
            }
        };
        let DeValue::String(text) = self.value.get_ref() else {
            self.wrong_type(&list());
            return None;
        };
        let found = words.iter().find(|(word, _)| *word == text.as_ref());
        if found.is_none() {
            let text = excerpt(text);
            self.place
                .error(format!("\"{text}\" is unknown; write {}", list()));
        }
        found.map(|(_, value)| *value)
    }

    /// Returns the boolean, or reports that this is none.
    pub fn boolean(&self) -> Option<bool> {
        match self.value.get_ref() {
            DeValue::Boolean(value) => Some(*value),
            _ => {
                self.wrong_type("true or false");
                None
            }
        }
    }

    /// An integer within `range`.
    pub fn number<T>(&self, range: RangeInclusive<T>) -> Option<T>
    where
        T: TryFrom<i64> + PartialOrd + std::fmt::Display,
    {
        let wanted = format!("a number from {} to {}", range.start(), range.end());
        let DeValue::Integer(number) = self.value.get_ref() else {
            self.wrong_type(&wanted);
            return None;
        };
        let value = i64::from_str_radix(number.as_str(), number.radix()).ok();
        let value = value.and_then(|v| T::try_from(v).ok());
        let value = value.filter(|v| range.contains(v));
        if value.is_none() {
            let number = excerpt(&number.to_string());
            self.place
                .error(format!("{number} is out of range; write {wanted}"));
        }
        value
    }

    /// Whether the value is the given word, for keys that take a word or something else.
    pub fn is_word(&self, word: &str) -> bool {
        matches!(self.value.get_ref(), DeValue::String(text) if text == word)
    }

    /// The elements of an array, or the one value that is written without one.
    pub fn one_or_more(&self, example: &str) -> Option<Vec<Item<'a>>> {
        if matches!(self.value.get_ref(), DeValue::Array(_)) {
            return self.elements(example);
        }
        Some(vec![Item {
            place: self.place.clone(),
            value: self.value,
        }])
    }

    /// The elements of an array; `example` is what a correct value looks like.
    pub fn elements(&self, example: &str) -> Option<Vec<Item<'a>>> {
        let DeValue::Array(values) = self.value.get_ref() else {
            self.wrong_type(&format!("an array, for example {example}"));
            return None;
        };
        let elements = values.iter().enumerate();
        Some(elements.map(|(i, v)| self.element(i, v)).collect())
    }
}

/// Whether a key of the file is the one of this name. Cases are the same, as in the reference.
fn is_same_key(written: &Spanned<DeString<'_>>, name: &str) -> bool {
    written.get_ref().eq_ignore_ascii_case(name)
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}
