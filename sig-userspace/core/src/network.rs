//! The description of a network as a file (TOML): ASes with their keys, and the links between them. Both may come from the
//! topology files of the ASes.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use sig_common::addr::IsdAs;

use crate::{
    document::{
        self,
        common::{isd_as, one_as},
        schema::Schema,
        toml::{Item, Section, or},
        values::master_key,
    },
    problem::{Errors, Problem, Report, excerpt},
    scion::{
        HopKey,
        network::{As, Element, End, Link, LinkType, Network, NetworkPath, Validity},
    },
    topology::{self, Ends},
};

const SCHEMA: &Schema = &Schema(&[
    ("", &[&["timestamp", "expiry", "as", "link"]]),
    (
        "as[]",
        &[&[
            "isd_as",
            "core",
            "mtu",
            "topology",
            "master_key",
            "master_key_file",
        ]],
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
    /// Of interfaces in topology files, the routers that have them: where these get packets of hosts.
    pub routers: BTreeMap<End, SocketAddr>,
}

impl Description {
    /// The router that packets of hosts on this path go to first, if it is known.
    #[must_use]
    pub fn next_hop(&self, path: &NetworkPath) -> Option<SocketAddr> {
        let first = path.interfaces.first()?;
        let end = End {
            isd_as: first.isd_as,
            interface: u16::try_from(first.id).ok()?,
        };
        self.routers.get(&end).copied()
    }

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
    let text = document::read_text(path, "; \"sig path make --help\" shows what one holds")?;
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
    let files = Files {
        read: read_file,
        folder: Path::new(file).parent().unwrap_or(Path::new("")),
        errors: RefCell::default(),
    };
    let description = document::toml::parse(&report, text, LONGEST_TEXT).and_then(|table| {
        let root = Section::root(&report, table.get_ref(), SCHEMA);
        read(&root, &files)
    });
    let mut errors = report.take().0;
    errors.append(&mut files.errors.take());
    match description {
        Some(description) if errors.is_empty() => Ok(description),
        _ => Err(Errors::new(errors)),
    }
}

/// The files that a description names.
struct Files<'a> {
    read: ReadFile<'a>,
    /// The folder of the description, for messages.
    folder: &'a Path,
    /// What is wrong with topologies.
    errors: RefCell<Vec<Problem>>,
}

fn read(root: &Section<'_>, files: &Files<'_>) -> Option<Description> {
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
        .map(|section| one(section, files))
        .collect();
    let links: Vec<_> = link_sections.iter().map(link).collect();
    if as_sections.is_empty() {
        root.place.error("no AS; write one [[as]] section each");
    }
    let ases: Option<Vec<Known>> = ases.into_iter().collect();
    let links: Option<Vec<Link>> = links.into_iter().collect();
    let (ases, mut links) = (ases?, links?);
    // Behind those of the file, those of topologies, with the places of the ASes that have them.
    let (more, of_ases): (Vec<Link>, Vec<usize>) =
        links_of(&ases, &as_sections)?.into_iter().unzip();
    links.extend(more);
    let routers = ases.iter().flat_map(Known::routers).collect();
    let ases = ases.into_iter().map(|known| known.of).collect();
    let network = match Network::new(ases, links) {
        Ok(network) => network,
        Err(misfits) => {
            for misfit in misfits {
                let section = match misfit.element {
                    Element::As(place) => as_sections.get(place),
                    Element::Link(place) => link_sections.get(place).or_else(|| {
                        let of = of_ases.get(place - link_sections.len())?;
                        as_sections.get(*of)
                    }),
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
        routers,
    })
}

/// An AS, and what its topology says of its links.
struct Known {
    of: As,
    /// `None` without a topology.
    doors: Option<Vec<Door>>,
}

/// An interface of a topology.
struct Door {
    number: u16,
    neighbour: IsdAs,
    neighbour_interface: Option<u16>,
    link_type: LinkType,
    mtu: u16,
    /// Both ends of the link in the underlay, this AS's first.
    ends: Option<[SocketAddr; 2]>,
    /// The router that has it.
    router: SocketAddr,
}

impl Known {
    fn end(&self, interface: u16) -> End {
        End {
            isd_as: self.of.isd_as,
            interface,
        }
    }

    fn routers(&self) -> impl Iterator<Item = (End, SocketAddr)> {
        let doors = self.doors.iter().flatten();
        doors.map(|door| (self.end(door.number), door.router))
    }

    /// The doors to another AS.
    fn doors_to(&self, other: &Self) -> impl Iterator<Item = &Door> {
        let doors = self.doors.iter().flatten();
        doors.filter(|door| door.neighbour == other.of.isd_as)
    }

    /// The other end, here, of the link behind a door of another AS: the one that either of them names, or that has the same
    /// addresses, or the only one that there is.
    fn other_end(&self, door: &Door, of: &Self) -> Option<&Door> {
        let fits = |other: &&Door| {
            door.neighbour_interface
                .is_none_or(|number| number == other.number)
                && other
                    .neighbour_interface
                    .is_none_or(|number| number == door.number)
        };
        let candidates: Vec<&Door> = self.doors_to(of).filter(fits).collect();
        let reversed = door.ends.map(|[near, far]| [far, near]);
        let same_addresses = |other: &&&Door| reversed.is_some() && other.ends == reversed;
        let by_address = candidates.iter().find(same_addresses).copied();
        let is_named = door.neighbour_interface.is_some() || of.doors_to(self).count() == 1;
        by_address.or(match candidates[..] {
            [only] if is_named => Some(only),
            _ => None,
        })
    }
}

/// The links of ASes with topologies, and the places of these ASes. `None` if something does not fit, which is reported.
fn links_of(ases: &[Known], sections: &[Section<'_>]) -> Option<Vec<(Link, usize)>> {
    let mut links = Vec::new();
    let mut fits = true;
    for (place, (known, section)) in ases.iter().zip(sections).enumerate() {
        for door in known.doors.iter().flatten() {
            let neighbour = door.neighbour;
            let is_it = |(_, other): &(usize, &Known)| other.of.isd_as == neighbour;
            // No path of this network leads elsewhere.
            let Some((at, other)) = ases.iter().enumerate().find(is_it) else {
                continue;
            };
            let near = known.end(door.number);
            let far = match (&other.doors, other.other_end(door, known)) {
                (None, _) => door.neighbour_interface.map(|number| (number, door.mtu)),
                (Some(_), None) => None,
                (Some(_), Some(far)) => {
                    let expected = match door.link_type {
                        LinkType::Child => LinkType::Parent,
                        LinkType::Parent => LinkType::Child,
                        same => same,
                    };
                    if far.link_type != expected {
                        section.place.error(format!(
                            "by the topology of {}, {neighbour} is its {} on interface {}, but by that of {neighbour} the other way round \
                             it is a {}; correct \"link_to\" in one of them",
                            known.of.isd_as,
                            door.link_type.name(),
                            door.number,
                            far.link_type.name()
                        ));
                        fits = false;
                    }
                    Some((far.number, far.mtu))
                }
            };
            let Some((number, mtu)) = far else {
                section.place.error(format!(
                    "the topologies do not say which interface of {neighbour} is at the other end of interface {} of {}; write \
                     \"remote_interface_id\" there",
                    door.number, known.of.isd_as
                ));
                fits = false;
                continue;
            };
            // Those between two topologies are found twice.
            if other.doors.is_none() || place < at {
                let link = Link {
                    ends: [near, other.end(number)],
                    link_type: door.link_type,
                    mtu: door.mtu.min(mtu),
                };
                links.push((link, place));
            }
        }
    }
    fits.then_some(links)
}

/// An AS as its topology file has it.
fn of_topology(section: &Section<'_>, item: &Item<'_>, files: &Files<'_>) -> Option<Known> {
    for key in ["isd_as", "core", "mtu"] {
        if let Some(item) = section.get(key) {
            item.place
                .error("comes from the topology; remove one of the two");
        }
    }
    let name = item.text("\"topology.json\"")?;
    let shown = excerpt(name);
    let text = (files.read)(Path::new(name))
        .map_err(|error| {
            format!("\"{shown}\" cannot be read: {error}; write a name relative to this file")
        })
        .and_then(|bytes| {
            String::from_utf8(bytes).map_err(|_| format!("\"{shown}\" is not UTF-8 text"))
        });
    let text = text.map_err(|problem| item.place.error(problem)).ok()?;
    let has_key = ["master_key", "master_key_file"].map(|key| section.get(key).is_some());
    let key = if has_key == [false, false] {
        let beside = Path::new(name).with_file_name("keys").join("master0.key");
        key_of(&beside.display().to_string(), files.read)
            .map_err(|error| item.place.error(format!("{error}, or set master_key_file")))
            .ok()
    } else {
        key(section, files.read)
    };
    let file: PathBuf = files.folder.join(name).components().collect();
    let file = file.display().to_string();
    let report = Report::new(&file, &text);
    let known = topology::read(&report, &text, Ends::All).map(|topology| {
        let doors = topology.routers.iter().flat_map(|router| {
            router.interfaces.iter().map(|interface| Door {
                number: interface.number,
                neighbour: interface.neighbour,
                neighbour_interface: interface.neighbour_interface,
                link_type: interface.link_type,
                mtu: interface.mtu,
                ends: interface
                    .underlay
                    .as_ref()
                    .map(|[near, far]| [near.0, far.0]),
                router: router.internal.0,
            })
        });
        let doors: Vec<Door> = doors.collect();
        (topology.isd_as, topology.core, topology.mtu, doors)
    });
    files.errors.borrow_mut().append(&mut report.take().0);
    let (isd_as, core, mtu, doors) = known?;
    Some(Known {
        of: As {
            isd_as,
            core,
            mtu,
            key: key?,
        },
        doors: Some(doors),
    })
}

fn one(section: &Section<'_>, files: &Files<'_>) -> Option<Known> {
    if let Some(item) = section.get("topology") {
        return of_topology(section, &item, files);
    }
    let number = section
        .require(
            "isd_as",
            "the AS, isd_as = \"1-ff00:0:110\", or its topology file, topology = \"topology.json\"",
        )
        .and_then(|item| isd_as(&item));
    let core = or(section, "core", false, Item::boolean);
    let mtu = mtu(section);
    let key = key(section, files.read);
    let of = As {
        isd_as: number?,
        core: core?,
        mtu: mtu?,
        key: key?,
    };
    Some(Known { of, doors: None })
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
    file.parse("\"keys/master0.key\"", |name| key_of(name, read_file))
}

/// The key in a file.
fn key_of(name: &str, read_file: ReadFile<'_>) -> Result<HopKey, String> {
    let shown = excerpt(name);
    let bytes = read_file(Path::new(name)).map_err(|error| {
        format!("\"{shown}\" cannot be read: {error}; write a name relative to this file")
    })?;
    str::from_utf8(&bytes)
        .map_err(|_| "not UTF-8 text".to_owned())
        .and_then(master_key)
        .map_err(|error| format!("\"{shown}\": {error}; name a file with a master key in base64"))
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

    /// Two topologies with a link between them, and an AS that nothing is known of.
    fn topologies(file: &Path) -> io::Result<Vec<u8>> {
        let one = |isd_as, other, link_to, number, local, remote| {
            let attributes = if link_to == "child" { "\"core\"" } else { "" };
            format!(
                r#"{{"isd_as": "{isd_as}", "mtu": 1400, "attributes": [{attributes}], "border_routers": {{"br": {{
                "internal_addr": "10.0.0.{number}:30042", "interfaces": {{
                "{number}": {{"isd_as": "{other}", "link_to": "{link_to}", "mtu": 13{number},
                 "underlay": {{"local": "{local}", "remote": "{remote}"}}}},
                "9": {{"isd_as": "1-ff00:0:119", "link_to": "child", "underlay": {{"local": ":5", "remote": "192.0.2.9:5"}}}}
                }}}}}}}}"#
            )
        };
        let (a, b) = ("192.0.2.1:50000", "192.0.2.2:50000");
        let [first, second] = ["1-ff00:0:110", "1-ff00:0:111"];
        match file.to_str() {
            Some("a/topology.json") => Ok(one(first, second, "child", 10, a, b).into()),
            Some("b/topology.json") => Ok(one(second, first, "parent", 41, b, a).into()),
            Some("c/topology.json") => Ok(one(second, first, "peer", 41, b, a).into()),
            Some("a/keys/master0.key" | "b.key") => Ok(b"MjIyMg==".to_vec()),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    #[test]
    fn topologies_describe_ases_links_and_routers() {
        let text = "[[as]]\ntopology = \"a/topology.json\"\n[[as]]\ntopology = \"b/topology.json\"\n\
                    master_key_file = \"b.key\"\n";
        let description = check(text, "x/net.toml", &topologies).unwrap();
        let [link] = description.network.links() else {
            panic!("one link");
        };
        assert_eq!(link.ends.map(|end| end.interface), [10, 41]);
        assert_eq!((link.link_type, link.mtu), (LinkType::Child, 1310));
        let [a, b] = ["1-ff00:0:110", "1-ff00:0:111"].map(|text| text.parse().unwrap());
        let paths = description.network.paths(b, a, description.validity(0));
        let next_hop = description.next_hop(&paths.unwrap()[0]);
        assert_eq!(next_hop, Some("10.0.0.41:30042".parse().unwrap()));

        for (from, to, expected) in [
            (
                "b/topology",
                "c/topology",
                "x/net.toml:1: as[0]: by the topology of 1-ff00:0:110, 1-ff00:0:111 is its child",
            ),
            (
                "master_key_file = \"b.key\"",
                "",
                "x/net.toml:4: as[1].topology: \"b/keys/master0.key\" cannot be read",
            ),
            (
                "topology = \"b/topology.json\"",
                "isd_as = \"1-ff00:0:111\"",
                "x/net.toml:1: as[0]: the topologies do not say which interface",
            ),
            (
                "a/",
                "none/",
                "x/net.toml:2: as[0].topology: \"none/topology.json\" cannot be read",
            ),
            (
                "a/topology.json\"",
                "a/topology.json\"\ncore = true",
                "x/net.toml:3: as[0].core: comes from the topology",
            ),
        ] {
            let text = text.replacen(from, to, 1);
            let error = check(&text, "x/net.toml", &topologies)
                .unwrap_err()
                .to_string();
            assert!(error.contains(expected), "{error}");
        }
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
