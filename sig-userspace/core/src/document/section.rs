//! Sections of a configuration as tables of keys: one row says what a key is called, what it means, its default, and how
//! its value is read and written.

use std::{
    fmt::{Display, Write as _},
    ops::RangeInclusive,
    time::Duration,
};

use toml::Value;

use super::{
    common,
    toml::{Item, Section},
};
use crate::notation::show_duration;

/// What values a key takes.
pub trait Kind<T> {
    /// Reads a value; `None` after an error has been reported.
    fn read(&self, item: &Item<'_>) -> Option<T>;

    /// Returns the value as it is written; `None`: by leaving the key out.
    fn write(&self, value: &T) -> Option<Value>;

    /// Whether an empty text means what the absence of the key means, as with keys of the reference.
    fn may_be_empty(&self) -> bool {
        false
    }
}

/// Declares a section of a configuration: a struct with a field per key. First come fields that the rows do not read,
/// which are given to `read`: values that follow from several keys, and sub-sections. Then one row per key: field,
/// type, default, and the [`Kind`] of its values. A default may refer to rows above it, as `Option`s. A section that has
/// rows only implements [`Default`].
///
/// ```text
/// section! {
///     /// `[tunnel]`: the tunnel device.
///     pub struct Tunnel {}
///
///     /// Interface name, at most 15 bytes.
///     name: String = "sig".to_owned(), text("\"sig\"", values::interface);
/// }
/// ```
#[macro_export]
macro_rules! section {
    (@default $section:ident) => {
        impl Default for $section {
            /// Returns the defaults of the configuration file.
            fn default() -> Self {
                Self::with_defaults()
            }
        }
    };
    (@default $section:ident $($given:ident)+) => {};
    (
        $(#[$attribute:meta])*
        pub struct $section:ident {
            $($(#[$given_attribute:meta])* pub $given:ident: $given_type:ty,)*
        }

        $($(#[$row_attribute:meta])* $key:ident: $type:ty = $default:expr, $kind:expr;)+
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $section {
            $($(#[$given_attribute])* pub $given: $given_type,)*
            $($(#[$row_attribute])* pub $key: $type,)+
        }

        impl $section {
            /// The keys of the rows.
            pub const KEYS: &[&str] = &[$(stringify!($key)),+];

            /// Reads the section; all that is wrong with it is reported.
            #[doc(hidden)]
            pub fn read(
                section: &$crate::document::toml::Section<'_>,
                $($given: Option<$given_type>,)*
            ) -> Option<Self> {
                $(let $key: Option<$type> = $crate::document::section::value(
                    section,
                    stringify!($key),
                    || $default,
                    &$kind,
                );)+
                Some(Self { $($given: $given?,)* $($key: $key?,)+ })
            }

            /// Returns the section with the default of every row.
            #[doc(hidden)]
            #[must_use]
            pub fn with_defaults($($given: $given_type),*) -> Self {
                $(let $key: Option<$type> = Some($default);)+
                Self { $($given,)* $($key: $key.unwrap_or_else(|| $default),)+ }
            }

            /// Writes the rows.
            #[doc(hidden)]
            pub fn write(&self, file: &mut $crate::document::section::File) {
                $(file.row(stringify!($key), &self.$key, &$kind);)+
            }
        }

        $crate::section!(@default $section $($given)*);
    };
}

/// The value of a row's key: the default where it is absent, `None` where it is wrong.
pub fn value<T>(
    section: &Section<'_>,
    key: &'static str,
    default: impl FnOnce() -> T,
    kind: &impl Kind<T>,
) -> Option<T> {
    let item = if kind.may_be_empty() {
        section.get_unless_empty(key)
    } else {
        section.get(key)
    };
    item.map_or_else(|| Some(default()), |item| kind.read(&item))
}

/// A file being written.
#[derive(Default)]
pub struct File(String);

impl File {
    /// Begins a section.
    pub fn section(&mut self, header: &str) {
        let gap = if self.0.is_empty() { "" } else { "\n" };
        let _ = writeln!(self.0, "{gap}{header}");
    }

    /// Writes a key.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) {
        let _ = writeln!(self.0, "{key} = {}", value.into());
    }

    /// Writes a key whose value is a string.
    pub fn text(&mut self, key: &str, value: impl Display) {
        self.set(key, value.to_string());
    }

    /// The same, if there is a value.
    pub fn maybe(&mut self, key: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.text(key, value);
        }
    }

    /// Writes a key whose value is a list of strings.
    pub fn list(&mut self, key: &str, values: &[impl Display]) {
        let values = values.iter().map(|value| Value::String(value.to_string()));
        self.set(key, Value::Array(values.collect()));
    }

    /// Writes the key of a row.
    pub fn row<T>(&mut self, key: &str, value: &T, kind: &impl Kind<T>) {
        if let Some(value) = kind.write(value) {
            self.set(key, value);
        }
    }

    /// Returns what has been written.
    #[must_use]
    pub fn finish(self) -> String {
        self.0
    }
}

/// `true` or `false`.
pub struct Boolean;

impl Kind<bool> for Boolean {
    fn read(&self, item: &Item<'_>) -> Option<bool> {
        item.boolean()
    }

    fn write(&self, value: &bool) -> Option<Value> {
        Some((*value).into())
    }
}

/// A number within the range.
pub struct Number<T>(pub RangeInclusive<T>);

impl<T: TryFrom<i64> + Into<i64> + PartialOrd + Display + Copy> Kind<T> for Number<T> {
    fn read(&self, item: &Item<'_>) -> Option<T> {
        item.number(*self.0.start()..=*self.0.end())
    }

    fn write(&self, value: &T) -> Option<Value> {
        Some(Value::Integer((*value).into()))
    }
}

/// A duration from the first to the second one.
pub struct Time(pub Duration, pub Duration);

impl Kind<Duration> for Time {
    fn read(&self, item: &Item<'_>) -> Option<Duration> {
        common::time(item, self.0, self.1)
    }

    fn write(&self, value: &Duration) -> Option<Value> {
        Some(show_duration(*value).into())
    }
}

/// A string that looks like the example, with its quotes, and that the function understands.
pub struct Text<T>(pub &'static str, pub fn(&str) -> Result<T, String>);

impl<T: Display> Kind<T> for Text<T> {
    fn read(&self, item: &Item<'_>) -> Option<T> {
        item.parse(self.0, self.1)
    }

    fn write(&self, value: &T) -> Option<Value> {
        Some(value.to_string().into())
    }
}

/// An array that looks like the example, of values of a kind.
pub struct List<K>(pub &'static str, pub K);

impl<T, K: Kind<T>> Kind<Vec<T>> for List<K> {
    fn read(&self, item: &Item<'_>) -> Option<Vec<T>> {
        super::toml::list(item, self.0, |element| self.1.read(element))
    }

    fn write(&self, value: &Vec<T>) -> Option<Value> {
        let elements = value.iter().filter_map(|element| self.1.write(element));
        Some(Value::Array(elements.collect()))
    }
}

/// One of these words.
pub struct Words<T: 'static>(pub &'static [(&'static str, T)]);

impl<T: Copy + PartialEq> Kind<T> for Words<T> {
    fn read(&self, item: &Item<'_>) -> Option<T> {
        item.choice(self.0)
    }

    fn write(&self, value: &T) -> Option<Value> {
        let (word, _) = self.0.iter().find(|(_, meaning)| meaning == value)?;
        Some((*word).into())
    }
}

/// One of these words, or a value of another kind, and how to convert to and from that.
pub struct WordsOr<T, U, K, const N: usize> {
    /// The words.
    pub words: [(&'static str, T); N],
    /// What else there may be.
    pub kind: K,
    /// What that means.
    pub wrap: fn(U) -> T,
    /// Where there is no word for it: the value to be written.
    pub unwrap: fn(&T) -> Option<&U>,
}

impl<T: Clone + PartialEq, U, K: Kind<U>, const N: usize> Kind<T> for WordsOr<T, U, K, N> {
    fn read(&self, item: &Item<'_>) -> Option<T> {
        let written = self.words.iter().find(|(word, _)| item.is_word(word));
        match written {
            Some((_, meaning)) => Some(meaning.clone()),
            None => self.kind.read(item).map(self.wrap),
        }
    }

    fn write(&self, value: &T) -> Option<Value> {
        match self.words.iter().find(|(_, meaning)| meaning == value) {
            Some((word, _)) => Some((*word).into()),
            None => self.kind.write((self.unwrap)(value)?),
        }
    }
}

/// `"auto"`, or a value of a kind.
pub fn auto<U: Clone + PartialEq, K: Kind<U>>(kind: K) -> WordsOr<Option<U>, U, K, 1> {
    WordsOr {
        words: [("auto", None)],
        kind,
        wrap: Some,
        unwrap: Option::as_ref,
    }
}

/// A kind of which not every value can be used. The function says what is wrong.
pub struct Checked<K, T>(pub K, pub fn(T) -> Result<T, String>);

impl<T, K: Kind<T>> Kind<T> for Checked<K, T> {
    fn read(&self, item: &Item<'_>) -> Option<T> {
        match (self.1)(self.0.read(item)?) {
            Ok(value) => Some(value),
            Err(message) => {
                item.place.error(message);
                None
            }
        }
    }

    fn write(&self, value: &T) -> Option<Value> {
        self.0.write(value)
    }
}

/// A kind whose values may be left out, also by an empty text.
pub struct UnlessEmpty<K>(pub K);

impl<T, K: Kind<T>> Kind<T> for UnlessEmpty<K> {
    fn read(&self, item: &Item<'_>) -> Option<T> {
        self.0.read(item)
    }

    fn write(&self, value: &T) -> Option<Value> {
        self.0.write(value)
    }

    fn may_be_empty(&self) -> bool {
        true
    }
}

/// What is like nothing else: a function that reads, and one that writes.
pub struct Special<T>(pub fn(&Item<'_>) -> Option<T>, pub fn(&T) -> Option<Value>);

impl<T> Kind<T> for Special<T> {
    fn read(&self, item: &Item<'_>) -> Option<T> {
        (self.0)(item)
    }

    fn write(&self, value: &T) -> Option<Value> {
        (self.1)(value)
    }
}
