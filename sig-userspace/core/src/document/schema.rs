//! Which keys a TOML file may have: the one list behind the check for unknown keys.

use strsim::levenshtein;

/// The sections of a file with their keys, in one list or several. Array elements are written `[]`; the
/// first section is the file itself, "".
pub struct Schema(pub &'static [(&'static str, &'static [&'static [&'static str]])]);

/// Sections that tell what a file is, with what checks it.
const KINDS: [(&[&str], &str, &str); 4] = [
    (
        &["dataplane", "gateway", "remote", "tunnel"],
        "a gateway",
        "sig config check FILE",
    ),
    (
        &["router", "xdp"],
        "a border router",
        "sig router check FILE",
    ),
    (&["srv6"], "an SRv6 node", "sig srv6 check FILE"),
    (
        &["peer"],
        "a tunnel of \"sig quick\"",
        "sig quick show FILE",
    ),
];

impl Schema {
    /// The keys of `section` (with `[]` for array elements); empty for a section that is not in the list.
    pub fn keys(&self, section: &str) -> impl Iterator<Item = &'static str> + Clone {
        let section = self.0.iter().find(|(name, _)| *name == section);
        let lists = section.map_or(&[][..], |(_, lists)| lists);
        lists.iter().copied().flatten().copied()
    }

    /// Whether `name` (with `[]` for array elements) is a section.
    pub fn is_section(&self, name: &str) -> bool {
        self.0.iter().any(|(section, _)| *section == name)
    }

    /// The remedy for `unknown`, which is not a key of `section`.
    pub fn advice(&self, section: &str, unknown: &str) -> String {
        let here = self.keys(section);
        let kind = KINDS.iter().find(|(words, ..)| words.contains(&unknown));
        if let (Some((_, kind, check)), "") = (kind, section) {
            return format!(
                "unknown key; it belongs in the configuration of {kind}, which \"{check}\" checks"
            );
        }
        if let Some(key) = nearest(here.clone(), unknown) {
            return format!("unknown key; did you mean \"{key}\"?");
        }
        let elsewhere = self
            .0
            .iter()
            .map(|(name, _)| *name)
            .find(|name| *name != section && self.keys(name).any(|key| key == unknown));
        if let Some(name) = elsewhere {
            return match name {
                "" => format!("unknown key; \"{unknown}\" belongs at the top level of the file"),
                name => match name.strip_suffix("[]") {
                    Some(array) => {
                        let array = array.replace("[]", "");
                        format!("unknown key here; it belongs in [[{array}]]")
                    }
                    None => format!("unknown key here; it belongs in [{name}]"),
                },
            };
        }
        format!(
            "unknown key; remove it or use one of: {}",
            here.collect::<Vec<_>>().join(", ")
        )
    }
}

/// Which of `known` is probably meant by `unknown`; long words are not worth comparing.
pub(super) fn nearest(
    known: impl Iterator<Item = &'static str>,
    unknown: &str,
) -> Option<&'static str> {
    if unknown.len() > 64 {
        return None;
    }
    let distances = known.map(|key| (levenshtein(unknown, key), key));
    let (distance, key) = distances.min()?;
    (distance <= 1 + key.len() / 4).then_some(key)
}
