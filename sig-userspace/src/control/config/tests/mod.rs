//! What an operator sees for a right and for a wrong file.

use std::collections::HashMap;
use std::io;
use std::path::Path as FilePath;

use super::keys;
use super::*;

mod accepts;
mod reference;
mod refuses;
mod renders;

/// The smallest useful file; tests append to it or replace in it.
const SMALL: &str = r#"[gateway]
isd_as = "1-ff00:0:110"
data_addr = "10.10.0.2"
prefixes = ["10.1.0.0/24"]

[[remote]]
isd_as = "1-ff00:0:111"
gateway = "10.11.0.2"
prefixes = ["10.2.0.0/24", "fd00:2::/64"]
[[remote.path]]
raw = "00002000 0100123466000000 003f00000001010203040506 003f000200000708090a0b0c"
next_hop = "10.10.0.1:30042"
mtu = 1472
"#;

fn no_files(_: &FilePath) -> io::Result<Vec<u8>> {
    Err(io::Error::from(io::ErrorKind::NotFound))
}

fn read(text: &str) -> Result<Config, Errors> {
    check(text, "gateway.toml", &no_files)
}

fn good(text: &str) -> Config {
    read(text).unwrap_or_else(|errors| panic!("{errors}"))
}

/// The messages for a wrong file, one per line.
fn errors(text: &str) -> String {
    read(text).expect_err("the file is wrong").to_string()
}

/// The messages after one change to the small file.
fn errors_after(from: &str, to: &str) -> String {
    assert!(SMALL.contains(from), "{from}");
    errors(&SMALL.replacen(from, to, 1))
}

fn warnings(text: &str) -> Vec<String> {
    good(text)
        .warnings()
        .iter()
        .map(Problem::to_string)
        .collect()
}

#[test]
fn the_sample_names_every_key() {
    for (section, lists) in keys::SCHEMA.0 {
        let keys = lists.concat();
        for key in &keys {
            let path = if section.is_empty() {
                (*key).to_owned()
            } else {
                format!("{section}.{key}")
            };
            let named = SAMPLE.contains(&format!("{key} = "))
                || SAMPLE.contains(&format!("[{}", path.replace("[]", "")));
            assert!(named, "{path}");
        }
    }
}

/// The file of the documentation that describes every key.
fn reference() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/configuration.md");
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn the_documentation_has_every_key_and_no_other() {
    let text = reference();
    let mut known: Vec<&str> = Vec::new();
    for (section, lists) in keys::SCHEMA.0 {
        let keys = lists.concat();
        let header = match section.strip_suffix("[]") {
            Some(name) => format!("`[[{}]]`", name.replace("[]", "")),
            None => format!("`[{section}]`"),
        };
        // `log` has nothing of its own.
        assert!(
            text.contains(&header) || ["", "log"].contains(section),
            "{header}"
        );
        known.extend(&keys);
        for key in &keys {
            assert!(
                section.is_empty()
                    || text.contains(&format!("`{key}`"))
                    || *key == "console"
                    || *key == "limits",
                "{section}.{key}"
            );
        }
    }
    let rows = text
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    for key in rows.filter(|key| !key.starts_with('[')) {
        assert!(known.contains(&key), "{key} is no key");
    }
}

/// Section, key and what is written as its default, of each line that `row` takes for a key's.
fn defaults<'a>(
    text: &'a str,
    row: impl Fn(&'a str) -> Option<(&'a str, &'a str)>,
) -> Vec<(&'a str, &'a str, &'a str)> {
    let mut section = "";
    let mut found = Vec::new();
    for line in text.lines() {
        let header = line.trim_start_matches(['#', ' ', '`']);
        if let Some((name, _)) = header.strip_prefix('[').and_then(|h| h.split_once(']')) {
            section = name;
        }
        found.extend(row(line).map(|(key, default)| (section, key, default)));
    }
    found
}

#[test]
fn defaults_are_written_as_they_are() {
    let in_force: toml::Table = good("").to_toml().parse().unwrap();
    let sample = defaults(SAMPLE, |line| line.strip_prefix('#')?.split_once(" = "));
    let text = reference();
    let documentation = defaults(&text, |line| {
        // The default is in front of the meaning, in quotes if it can be written like that.
        let cells: Vec<&str> = line.split(" | ").collect();
        let [key, .., default, _] = &cells[..] else {
            return None;
        };
        let key = key.strip_prefix("| `")?.strip_suffix('`')?;
        Some((key, default.strip_prefix('`')?.strip_suffix('`')?))
    });
    for (written, least) in [(sample, 40), (documentation, 40)] {
        let mut compared = 0;
        for (section, key, default) in written {
            let mut path = section.split('.');
            let value = path
                .try_fold(&in_force, |table, name| table.get(name)?.as_table())
                .and_then(|table| table.get(key));
            if let Some(value) = value.filter(|_| section != "gateway") {
                assert_eq!(value.to_string(), default, "[{section}] {key}");
                compared += 1;
            }
        }
        assert!(compared >= least, "{compared}");
    }
}

#[test]
fn the_examples_of_the_documentation_are_right() {
    let text = reference();
    for example in text.split("```toml\n").skip(1) {
        let example = example.split("```").next().unwrap();
        assert_eq!(warnings(example), Vec::<String>::new());
    }
}
