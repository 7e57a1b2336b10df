//! Lists of what paths may and may not go through.

use std::{fmt, str::FromStr};

use super::hop::HopPredicate;
use crate::problem::excerpt;
use crate::scion::Path;

/// An access control list: for each interface of a path the first entry that names it decides, and
/// a path with a denied interface is denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl(Vec<AclEntry>);

/// An entry of an [`Acl`], written `+ HOP` or `- HOP`; without hop for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AclEntry {
    /// Whether interfaces that it names are allowed.
    pub allow: bool,
    /// The interfaces that it names.
    pub hop: HopPredicate,
}

impl Acl {
    /// A list of these entries.
    ///
    /// # Errors
    /// The last entry, and none before it, has to name everything; otherwise the error says what
    /// to write.
    pub fn new(entries: Vec<AclEntry>) -> Result<Self, String> {
        match entries.iter().position(|entry| entry.hop.is_any()) {
            None => Err(
                "no entry matches everything else; write \"+\" or \"-\" as the last one".to_owned(),
            ),
            Some(at) if at + 1 < entries.len() => Err(format!(
                "\"{}\" matches everything, so later entries have no effect; move it to the end",
                entries[at]
            )),
            Some(_) => Ok(Self(entries)),
        }
    }

    /// Whether all interfaces of a path are allowed.
    #[must_use]
    pub fn allows(&self, path: &Path) -> bool {
        path.interfaces.iter().enumerate().all(|(i, interface)| {
            // Interfaces come in pairs, one per link: leaving an AS, entering the next.
            let enters = i % 2 == 1;
            let mut entries = self.0.iter();
            entries
                .find(|entry| entry.hop.matches_interface(interface, enters))
                .is_some_and(|entry| entry.allow)
        })
    }

    /// The entries in their order.
    #[must_use]
    pub fn entries(&self) -> &[AclEntry] {
        &self.0
    }
}

impl FromStr for AclEntry {
    type Err = String;

    /// Reads `+`, `-`, `+ HOP` or `- HOP`, with one space; the error says what to write instead.
    fn from_str(text: &str) -> Result<Self, String> {
        let (action, hop) = match text.split_once(' ') {
            Some((action, hop)) => (action, hop.parse()?),
            None => (text, HopPredicate::ANY),
        };
        let allow = match action {
            "+" => true,
            "-" => false,
            _ => {
                return Err(format!(
                    "\"{}\" is not an ACL entry; write \"+\" or \"-\", a space and a hop, for example \"- \
                     1-ff00:0:110\"",
                    excerpt(text)
                ));
            }
        };
        Ok(Self { allow, hop })
    }
}

impl fmt::Display for AclEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", if self.allow { '+' } else { '-' }, self.hop)
    }
}
