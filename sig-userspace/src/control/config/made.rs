//! Paths that the gateway makes itself, from the description of a network whose keys are known.

use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use sig_common::addr::IsdAs;

use super::ReadFile;
use super::model::Made;
use sig_core::document::common::one_as;
use sig_core::document::toml::{Item, Section, list};
use sig_core::network;
use sig_core::problem::excerpt;
use sig_core::scion::{
    Interface,
    network::{NetworkPath, Validity},
};

impl Made {
    /// The path as made at this time, seconds since 1970.
    ///
    /// # Errors
    ///
    /// Why there is none.
    pub fn at(&self, timestamp: u32) -> Result<NetworkPath, String> {
        let validity = Validity {
            timestamp: timestamp.saturating_sub(self.age),
            expiry: self.description.expiry,
        };
        let network = &self.description.network;
        let paths = network
            .paths(self.from, self.to, validity)
            .map_err(|error| error.to_string())?;
        let goes_there = |path: &NetworkPath| self.via.iter().all(|i| path.interfaces.contains(i));
        let found = paths.into_iter().find(goes_there);
        found.ok_or_else(|| {
            let through = self
                .via
                .iter()
                .map(|interface| format!(" through {interface}"));
            format!(
                "there is no path from {} to {}{}",
                self.from,
                self.to,
                through.collect::<Vec<_>>().join(" and")
            )
        })
    }

    /// For how long a path is valid, seconds.
    #[must_use]
    pub fn lifetime(&self) -> u64 {
        let validity = Validity {
            timestamp: 0,
            expiry: self.description.expiry,
        };
        validity.expires_at().saturating_sub(self.age.into())
    }
}

/// Reads `network`, the key of `item`, and `via`. Tells how the path is made, and what it is at time 0.
pub(super) fn made(
    section: &Section<'_>,
    item: &Item<'_>,
    ends: (Option<IsdAs>, Option<IsdAs>),
    read_file: ReadFile<'_>,
) -> Option<(Made, NetworkPath)> {
    let via = match section.get("via") {
        None => Some(Vec::new()),
        Some(via) => {
            let example = "[\"1-ff00:0:110#1\"]";
            list(&via, example, |element| element.parse(example, interface))
        }
    };
    let name = item.text("\"network.toml\"")?;
    let shown = excerpt(name);
    let file = PathBuf::from(name);
    let bytes = read_file(&file).map_err(|error| {
        format!(
            "\"{shown}\" cannot be read: {error}; write a name relative to the configuration file"
        )
    });
    let text = bytes.and_then(|bytes| {
        String::from_utf8(bytes).map_err(|_| format!("\"{shown}\" is not UTF-8 text"))
    });
    let folder = file.parent().unwrap_or(FilePath::new(""));
    let description = text.and_then(|text| {
        let read_key = |key: &FilePath| read_file(&folder.join(key));
        let description = network::check(&text, name, &read_key);
        description.map_err(|errors| errors.to_string())
    });
    let description = match description {
        Ok(description) if description.timestamp.is_none() => description,
        Ok(_) => {
            item.place.error(format!(
                "\"{shown}\" has a timestamp, so its paths could not be renewed; remove it"
            ));
            return None;
        }
        Err(problems) => {
            // One of this file for each of the other.
            for problem in problems.lines() {
                item.place.error(problem);
            }
            return None;
        }
    };
    let made = Made {
        file,
        description: Arc::new(description),
        from: ends.0?,
        to: ends.1?,
        via: via?,
        age: age(),
    };
    match made.at(0) {
        Ok(path) => Some((made, path)),
        Err(problem) => {
            item.place.error(format!(
                "{problem}; \"sig path make {shown} --from {} --to {}\" lists the existing ones",
                made.from, made.to
            ));
            None
        }
    }
}

/// How old paths are when they are made, in seconds: for tests of what happens when they expire, as hop fields live for 337 seconds
/// or more.
fn age() -> u32 {
    let age = std::env::var("SIG_TEST_PATH_AGE_S").ok();
    age.and_then(|age| age.parse().ok()).unwrap_or(0)
}

/// Such as `1-ff00:0:110#1`.
fn interface(text: &str) -> Result<Interface, String> {
    let wrong = || {
        format!(
            "\"{}\" is not an interface; write AS and number, for example \"1-ff00:0:110#1\"",
            excerpt(text)
        )
    };
    let (isd_as, id) = text.split_once('#').ok_or_else(wrong)?;
    let id: u16 = id.parse().ok().filter(|id| *id != 0).ok_or_else(wrong)?;
    Ok(Interface {
        isd_as: one_as(isd_as)?,
        id: id.into(),
    })
}
