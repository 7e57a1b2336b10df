//! `[protection]`: frames that cannot be forged.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::model::{Protection, ProtectionMode, RemoteProtection};
use sig_core::document::{
    common::isd_as,
    section::{Kind as _, List, Special, Text, UnlessEmpty, Words},
    toml::Section,
};
use sig_core::protection::Identity;
use sig_core::section;

const MODES: Words<ProtectionMode> = Words(&[
    (ProtectionMode::Auto.word(), ProtectionMode::Auto),
    (ProtectionMode::Require.word(), ProtectionMode::Require),
    (ProtectionMode::Off.word(), ProtectionMode::Off),
]);

const PINS: List<Text<Identity>> = List(
    "[\"ed25519:...\"]",
    Text("\"ed25519:...\"", |text| text.parse()),
);

section! {
    /// `[protection]`, but for its `[[protection.remote]]` sections.
    pub struct General {}

    /// Whether frames are protected.
    mode: ProtectionMode = ProtectionMode::Auto, MODES;
    /// The file with the key that makes this gateway known to others; `None`: a new one at each start.
    identity_file: Option<PathBuf> = None, UnlessEmpty(Special(
        |item| item.text("\"/etc/sig/identity.key\"").map(|text| Some(PathBuf::from(text))),
        |path| path.as_ref().map(|path| path.display().to_string().into()),
    ));
}

pub(super) fn read(section: &Section<'_>) -> Option<Protection> {
    let general = General::read(section);
    let (mut remotes, mut known) = (Some(BTreeMap::new()), BTreeSet::new());
    for section in section.sections("remote") {
        let of = section.require(
            "isd_as",
            "the AS of the remote gateways, for example isd_as = \"1-ff00:0:111\"",
        );
        let of = of.and_then(|item| {
            let of = isd_as(&item)?;
            if !known.insert(of) {
                item.place.error(format!(
                    "there is another [[protection.remote]] with {of}; write all pins in one of them"
                ));
            }
            Some(of)
        });
        let mode = match section.get("mode") {
            Some(item) => MODES.read(&item),
            None => general.as_ref().map(|general| general.mode),
        };
        let pins = match section.get("pins") {
            Some(item) => PINS.read(&item),
            None => Some(Vec::new()),
        };
        let (Some(of), Some(mode), Some(pins)) = (of, mode, pins) else {
            remotes = None;
            continue;
        };
        if mode == ProtectionMode::Off && !pins.is_empty() {
            section.place.warn(
                "the pins have no effect, since frames are not protected; remove them, or mode = \"off\"",
            );
        }
        if let Some(remotes) = &mut remotes {
            remotes.insert(of, RemoteProtection { mode, pins });
        }
    }
    Some(Protection {
        general: general?,
        remotes: remotes?,
    })
}
