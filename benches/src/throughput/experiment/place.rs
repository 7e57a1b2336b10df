//! Where something stands in a TOML file.

use toml::de::{DeTable, DeValue};

pub use sig::control::config::Problem;

/// Line of byte `at`, from 1.
pub(super) fn line(text: &str, at: usize) -> usize {
    let before = text.as_bytes().iter().take(at);
    1 + before.filter(|byte| **byte == b'\n').count()
}

/// Path of the innermost key whose key or value is written at byte `at`.
pub(super) fn key_at(table: &DeTable<'_>, at: usize) -> String {
    let mut path = String::new();
    for (key, value) in table {
        if key.span().contains(&at) {
            return key.get_ref().to_string();
        }
        if let Some(below) = within(value.get_ref(), value.span().contains(&at), at) {
            path = key.get_ref().to_string() + &below;
        }
    }
    path
}

/// Path below a value that may hold byte `at`. The parts of a `[[table]]` are not within its span.
fn within(value: &DeValue<'_>, here: bool, at: usize) -> Option<String> {
    match value {
        DeValue::Table(table) => {
            let below = key_at(table, at);
            if below.is_empty() {
                here.then(String::new)
            } else {
                Some(format!(".{below}"))
            }
        }
        DeValue::Array(values) => {
            let inside = values.iter().enumerate().find_map(|(index, value)| {
                let below = within(value.get_ref(), value.span().contains(&at), at)?;
                Some(format!("[{index}]{below}"))
            });
            inside.or_else(|| here.then(String::new))
        }
        _ => here.then(String::new),
    }
}

/// Byte at which `key` of experiment number `index` is written; of the experiment's header if the key
/// is not written.
pub(super) fn of_key(table: &DeTable<'_>, index: usize, key: &str) -> usize {
    let Some(DeValue::Array(experiments)) = table.get("experiment").map(|value| value.get_ref())
    else {
        return 0;
    };
    let Some(experiment) = experiments.get(index) else {
        return 0;
    };
    let written = match experiment.get_ref() {
        DeValue::Table(table) => table.get_key_value(key).map(|(key, _)| key.span().start),
        _ => None,
    };
    written.unwrap_or(experiment.span().start)
}
