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
    for (section, keys) in keys::SCHEMA.0 {
        for key in *keys {
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
    for (section, keys) in keys::SCHEMA.0 {
        let header = match section.strip_suffix("[]") {
            Some(name) => format!("`[[{}]]`", name.replace("[]", "")),
            None => format!("`[{section}]`"),
        };
        // `log` has nothing of its own.
        assert!(
            text.contains(&header) || ["", "log"].contains(section),
            "{header}"
        );
        known.extend(*keys);
        for key in *keys {
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

#[test]
fn the_examples_of_the_documentation_are_right() {
    let text = reference();
    for example in text.split("```toml\n").skip(1) {
        let example = example.split("```").next().unwrap();
        assert_eq!(warnings(example), Vec::<String>::new());
    }
}
