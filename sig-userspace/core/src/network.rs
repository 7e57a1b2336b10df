//! The description of a network as a file (TOML): ASes with their keys, and the links between them.

use std::{io, path::Path};

use sig_common::addr::IsdAs;

use crate::{
    document::{
        self,
        common::{isd_as, one_as},
        schema::Schema,
        toml::{Item, Section, or},
        values::master_key,
    },
    problem::{Errors, Report, excerpt},
    scion::{
        HopKey,
        network::{As, Element, End, Link, LinkType, Network, Validity},
    },
};

const SCHEMA: &Schema = &Schema(&[
    ("", &[&["timestamp", "expiry", "as", "link"]]),
    (
        "as[]",
        &[&["isd_as", "core", "mtu", "master_key", "master_key_file"]],
    ),
    ("link[]", &[&["a", "b", "type", "mtu"]]),
]);

/// Longest text.
const LONGEST_TEXT: usize = 16 << 20;
/// Largest SCION packet where nothing else is said: what fits an Ethernet frame over IPv4.
const DEFAULT_MTU: u16 = 1472;
/// Relative expiry where nothing else is said: six hours.
const DEFAULT_EXPIRY: u8 = 63;

/// Reads the key files that a description names, relative to the folder of the description.
pub type ReadFile<'a> = &'a dyn Fn(&Path) -> io::Result<Vec<u8>>;

/// What a file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// ASes and links.
    pub network: Network,
    /// When segments are made, seconds since 1970; `None`: now.
    pub timestamp: Option<u32>,
    /// Lifetime of hop fields in units of 337.5 s, less one.
    pub expiry: u8,
}

impl Description {
    /// When the hop fields of paths are made, and how long they are valid; `now` is in seconds since 1970.
    #[must_use]
    pub fn validity(&self, now: u32) -> Validity {
        Validity {
            timestamp: self.timestamp.unwrap_or(now),
            expiry: self.expiry,
        }
    }
}

/// Reads and checks the description at `path`.
///
/// # Errors
///
/// As [`check`].
pub fn load(path: &Path) -> Result<Description, Errors> {
    let text = document::read_text(path, "")?;
    let folder = path.parent().unwrap_or(Path::new(""));
    check(&text, &path.display().to_string(), &|name| {
        document::read(&folder.join(name))
    })
}

/// Checks the description `text`; `file` is its name for messages.
///
/// # Errors
///
/// All problems of the file that can be told at once, in the order of lines.
pub fn check(text: &str, file: &str, read_file: ReadFile<'_>) -> Result<Description, Errors> {
    let report = Report::new(file, text);
    let description = document::toml::parse(&report, text, LONGEST_TEXT).and_then(|table| {
        let root = Section::root(&report, table.get_ref(), SCHEMA);
        read(&root, read_file)
    });
    match (description, report.take().0) {
        (Some(description), errors) if errors.is_empty() => Ok(description),
        (_, errors) => Err(Errors::new(errors)),
    }
}

fn read(root: &Section<'_>, read_file: ReadFile<'_>) -> Option<Description> {
    let timestamp = or(root, "timestamp", None, |item| {
        item.number(0..=u32::MAX).map(Some)
    });
    let expiry = or(root, "expiry", DEFAULT_EXPIRY, |item| {
        item.number(0..=u8::MAX)
    });
    let as_sections = root.sections("as");
    let link_sections = root.sections("link");
    let ases: Vec<_> = as_sections
        .iter()
        .map(|section| one(section, read_file))
        .collect();
    let links: Vec<_> = link_sections.iter().map(link).collect();
    if as_sections.is_empty() {
        root.place.error("no AS; write one [[as]] section each");
    }
    let ases: Option<Vec<As>> = ases.into_iter().collect();
    let links: Option<Vec<Link>> = links.into_iter().collect();
    let network = match Network::new(ases?, links?) {
        Ok(network) => network,
        Err(misfits) => {
            for misfit in misfits {
                let section = match misfit.element {
                    Element::As(place) => as_sections.get(place),
                    Element::Link(place) => link_sections.get(place),
                };
                if let Some(section) = section {
                    section.place.error(misfit.message);
                }
            }
            return None;
        }
    };
    Some(Description {
        network,
        timestamp: timestamp?,
        expiry: expiry?,
    })
}

fn one(section: &Section<'_>, read_file: ReadFile<'_>) -> Option<As> {
    let number = section
        .require("isd_as", "the AS, for example isd_as = \"1-ff00:0:110\"")
        .and_then(|item| isd_as(&item));
    let core = or(section, "core", false, Item::boolean);
    let mtu = mtu(section);
    let key = key(section, read_file);
    Some(As {
        isd_as: number?,
        core: core?,
        mtu: mtu?,
        key: key?,
    })
}

fn mtu(section: &Section<'_>) -> Option<u16> {
    or(section, "mtu", DEFAULT_MTU, |item| {
        item.number(1..=u16::MAX)
    })
}

fn key(section: &Section<'_>, read_file: ReadFile<'_>) -> Option<HopKey> {
    let file = section.get("master_key_file");
    if let Some(key) = section.get("master_key") {
        if let Some(file) = file {
            file.place
                .error("master_key is also set; remove one of the two");
            return None;
        }
        return key.parse("\"c2VjcmV0…\"", |text| {
            master_key(text).map_err(|error| format!("{error}; write the master key in base64"))
        });
    }
    let Some(file) = file else {
        section.require(
            "master_key",
            "the master key of the AS in base64, or name a file with it, master_key_file = \"master0.key\"",
        );
        return None;
    };
    file.parse("\"keys/master0.key\"", |name| {
        let shown = excerpt(name);
        let bytes = read_file(Path::new(name)).map_err(|error| {
            format!("\"{shown}\" cannot be read: {error}; write a name relative to this file")
        })?;
        str::from_utf8(&bytes)
            .map_err(|_| "not UTF-8 text".to_owned())
            .and_then(master_key)
            .map_err(|error| {
                format!("\"{shown}\": {error}; name a file with a master key in base64")
            })
    })
}

fn link(section: &Section<'_>) -> Option<Link> {
    let a = end(section, "a");
    let b = end(section, "b");
    let link_type = section
        .require(
            "type",
            "the link type, what b is to a, for example type = \"child\"",
        )
        .and_then(|item| {
            let types = [
                LinkType::Core,
                LinkType::Child,
                LinkType::Parent,
                LinkType::Peer,
            ];
            item.choice(&types.map(|link_type| (link_type.name(), link_type)))
        });
    let mtu = mtu(section);
    Some(Link {
        ends: [a?, b?],
        link_type: link_type?,
        mtu: mtu?,
    })
}

fn end(section: &Section<'_>, key: &'static str) -> Option<End> {
    let item = section.require(
        key,
        "an AS and its interface, for example \"1-ff00:0:110#1\"",
    )?;
    item.parse("\"1-ff00:0:110#1\"", |text| {
        let (isd_as, interface) = text.split_once('#').ok_or_else(|| {
            format!(
                "\"{}\" has no interface; write for example \"1-ff00:0:110#1\"",
                excerpt(text)
            )
        })?;
        let isd_as: IsdAs = one_as(isd_as)?;
        let digits = interface.bytes().all(|byte| byte.is_ascii_digit());
        let interface = interface
            .parse()
            .ok()
            .filter(|number| digits && *number != 0);
        let interface = interface.ok_or_else(|| {
            format!(
                "\"{}\" has no such interface; write a number from 1 to 65535",
                excerpt(text)
            )
        })?;
        Ok(End { isd_as, interface })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r##"
timestamp = 1700000000
[[as]]
isd_as = "1-ff00:0:110"
core = true
master_key = "dGVzdGtleV94eHh4eHh4eA=="
[[as]]
isd_as = "1-ff00:0:111"
mtu = 1400
master_key_file = "b.key"
[[link]]
a = "1-ff00:0:110#1"
b = "1-ff00:0:111#41"
type = "child"
"##;

    fn read(text: &str) -> Result<Description, Errors> {
        check(text, "net.toml", &|name| match name.to_str() {
            Some("b.key") => Ok(b"MjIyMg==\n".to_vec()),
            _ => Err(io::ErrorKind::NotFound.into()),
        })
    }

    fn errors_after(from: &str, to: &str) -> String {
        assert!(GOOD.contains(from), "{from}");
        read(&GOOD.replacen(from, to, 1)).unwrap_err().to_string()
    }

    #[test]
    fn a_description_is_a_network() {
        let description = read(GOOD).unwrap();
        assert_eq!(
            (description.timestamp, description.expiry),
            (Some(1_700_000_000), 63)
        );
        assert_eq!(description.validity(5).timestamp, 1_700_000_000);
        let [a, b] = description.network.ases() else {
            panic!("two ASes");
        };
        assert_eq!(
            (a.core, a.mtu, &a.key),
            (true, 1472, &HopKey::derive(b"testkey_xxxxxxxx"))
        );
        assert_eq!(
            (b.core, b.mtu, &b.key),
            (false, 1400, &HopKey::derive(b"2222"))
        );
        let [link] = description.network.links() else {
            panic!("one link");
        };
        assert_eq!(link.ends.map(|end| end.interface), [1, 41]);
        assert_eq!((link.link_type, link.mtu), (LinkType::Child, 1472));
        let untimed = read(&GOOD.replace("timestamp = 1700000000", "expiry = 5")).unwrap();
        let validity = Validity {
            timestamp: 7,
            expiry: 5,
        };
        assert_eq!(untimed.validity(7), validity);
    }

    #[test]
    fn problems_have_line_and_key() {
        for (from, to, message) in [
            (
                "type = ",
                "kind = ",
                "net.toml:11: link[0].type: missing; write the link type, what b is to a, for example type = \"child\"\nnet.toml:14: link[0].kind: unknown key; remove it or use one of: a, b, type, mtu",
            ),
            (
                "\"child\"",
                "\"friend\"",
                "net.toml:14: link[0].type: \"friend\" is unknown; write \"core\", \"child\", \"parent\" or \"peer\"",
            ),
            (
                "#41",
                "",
                "net.toml:13: link[0].b: \"1-ff00:0:111\" has no interface; write for example \"1-ff00:0:110#1\"",
            ),
            (
                "#41",
                "#0",
                "net.toml:13: link[0].b: \"1-ff00:0:111#0\" has no such interface; write a number from 1 to 65535",
            ),
            (
                "111#41",
                "112#41",
                "net.toml:11: link[0]: 1-ff00:0:112 is not an AS of this network; add it",
            ),
            (
                "\"b.key\"",
                "\"c.key\"",
                "net.toml:10: as[1].master_key_file: \"c.key\" cannot be read: entity not found; write a name relative to this file",
            ),
            (
                "\"dGVz",
                "\"!",
                "net.toml:6: as[0].master_key: \"!\" is not a digit of base64; write the master key in base64",
            ),
            (
                "mtu = 1400",
                "master_key = \"\"",
                "net.toml:10: as[1].master_key_file: master_key is also set; remove one of the two",
            ),
            (
                "master_key_file = \"b.key\"",
                "",
                "net.toml:7: as[1].master_key: missing; write the master key of the AS in base64, or name a file with it, master_key_file = \"master0.key\"",
            ),
        ] {
            assert_eq!(errors_after(from, to), message);
        }
        assert_eq!(
            read("").unwrap_err().to_string(),
            "net.toml:1: no AS; write one [[as]] section each"
        );
        assert!(read("[as").is_err());
    }

    #[test]
    fn the_path_in_the_documentation_is_that_of_its_network() {
        let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/border-router.md");
        let docs = std::fs::read_to_string(docs).unwrap();
        let (_, rest) = docs.split_once("```toml\n# timestamp").unwrap();
        let (rest, after) = rest.split_once("```").unwrap();
        let text = format!("timestamp{rest}");
        let key = b"dGVzdGtleV94eHh4eHh4eA==".to_vec();
        let description = check(&text, "docs", &|_| Ok(key.clone())).unwrap();
        let [from, to] = ["1-ff00:0:110", "1-ff00:0:111"].map(|text| text.parse().unwrap());
        let paths = description.network.paths(from, to, description.validity(0));
        let raw = crate::notation::to_hex(&paths.unwrap()[0].raw);
        assert!(after.contains(&raw), "{raw}");
    }
}
