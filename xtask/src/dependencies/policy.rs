//! The policy in `deny.toml`: licences, bans and sources.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, anyhow};
use serde::Deserialize;
use spdx::{Expression, Licensee, ParseMode};

use super::Package;

/// What cargo-deny takes for known when no list of registries is given.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// The settings of cargo-deny that are in use. A key that is not known here is an error: it would not be checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Policy {
    graph: Graph,
    licenses: Licences,
    bans: Bans,
    #[expect(dead_code, reason = "there is one level of strictness")]
    sources: Sources,
    #[serde(rename = "advisories")]
    _advisories: toml::Table,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Graph {
    targets: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Licences {
    #[serde(deserialize_with = "licensees")]
    allow: Vec<Licensee>,
    exceptions: Vec<Exception>,
}

/// A crate that may have other licences too.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    #[serde(rename = "crate")]
    name: String,
    #[serde(deserialize_with = "licensees")]
    allow: Vec<Licensee>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Bans {
    #[expect(dead_code, reason = "there is one level of strictness")]
    multiple_versions: Warn,
    #[expect(dead_code, reason = "there is one level of strictness")]
    wildcards: Deny,
    allow_wildcard_paths: bool,
    deny: Vec<Banned>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Banned {
    #[serde(rename = "crate")]
    name: String,
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[expect(dead_code, reason = "there is one level of strictness")]
struct Sources {
    unknown_registry: Deny,
    unknown_git: Deny,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Deny {
    Deny,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Warn {
    Warn,
}

fn licensees<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<Licensee>, D::Error> {
    Vec::<String>::deserialize(from)?
        .iter()
        .map(|text| Licensee::parse(text).map_err(serde::de::Error::custom))
        .collect()
}

impl Policy {
    pub(super) fn parse(text: &str) -> Result<Self> {
        Ok(toml::from_str(text)?)
    }

    /// The platforms whose dependencies count.
    pub(super) fn targets(&self) -> &[String] {
        &self.graph.targets
    }

    /// One line for each rule that a package breaks.
    pub(super) fn violations(&self, packages: &[Package]) -> Vec<String> {
        let of = |package| {
            let broken = [
                self.licence(package).err().map(|e| format!("{e:#}")),
                self.ban(package),
                source(package),
                self.wildcard(package),
            ];
            let name = |what| format!("{} {}: {what}", package.name, package.version);
            broken.into_iter().flatten().map(name).collect::<Vec<_>>()
        };
        packages.iter().flat_map(of).collect()
    }

    fn licence(&self, package: &Package) -> Result<()> {
        let text = package.license.as_deref().context("names no licence")?;
        // Lax, as there are crates that write `/` for OR, and deprecated names.
        let terms = Expression::parse_mode(text, ParseMode::LAX)
            .map_err(|e| anyhow!("licence {text}: {}", e.reason))?;
        let exceptions = self.licenses.exceptions.iter();
        let allow: Vec<_> = exceptions
            .filter(|one| one.name == package.name)
            .flat_map(|one| &one.allow)
            .chain(&self.licenses.allow)
            .collect();
        if !terms.evaluate(|wanted| allow.iter().any(|one| one.satisfies(wanted))) {
            return Err(anyhow!("licence {text} is not allowed"));
        }
        Ok(())
    }

    fn ban(&self, package: &Package) -> Option<String> {
        let banned = self.bans.deny.iter().find(|one| one.name == package.name)?;
        Some(format!("banned: {}", banned.reason))
    }

    fn wildcard(&self, package: &Package) -> Option<String> {
        let dependency = package.dependencies.iter().find(|one| {
            one.req == "*" && !(self.bans.allow_wildcard_paths && one.path.is_some())
        })?;
        Some(format!("wants any version of {}", dependency.name))
    }

    /// One line for each crate that is there in more than one version.
    pub(super) fn duplicates(&self, packages: &BTreeSet<Package>) -> Vec<String> {
        let mut versions = BTreeMap::<_, BTreeSet<_>>::new();
        for package in packages {
            versions
                .entry(&*package.name)
                .or_default()
                .insert(&*package.version);
        }
        versions
            .into_iter()
            .filter(|(_, versions)| versions.len() > 1)
            .map(|(name, versions)| {
                let versions: Vec<_> = versions.into_iter().collect();
                format!("{name} is there as {}", versions.join(", "))
            })
            .collect()
    }
}

fn source(package: &Package) -> Option<String> {
    let source = package.source.as_deref()?;
    (source != CRATES_IO).then(|| format!("comes from {source}"))
}

#[cfg(test)]
mod tests {
    use super::{super::Dependency, *};

    const TEXT: &str = include_str!("../../../deny.toml");

    fn package(license: &str) -> Package {
        Package {
            name: "one".into(),
            version: "1.0.0".into(),
            license: Some(license.into()),
            source: Some(CRATES_IO.into()),
            manifest_path: "one/Cargo.toml".into(),
            dependencies: Vec::new(),
            targets: Vec::new(),
        }
    }

    fn broken(package: Package) -> Vec<String> {
        Policy::parse(TEXT).unwrap().violations(&[package])
    }

    #[test]
    fn a_licence_may_be_chosen_but_every_part_of_a_sum_counts() {
        for good in [
            "MIT",
            "MIT/Apache-2.0",
            "Unlicense OR MIT",
            "LGPL-2.1 OR BSD-2-Clause",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception",
        ] {
            assert_eq!(broken(package(good)), [""; 0], "{good}");
        }
        for bad in ["GPL-3.0-only", "MIT AND GPL-2.0-only", "MIT OR", "Mine"] {
            assert_eq!(broken(package(bad)).len(), 1, "{bad}");
        }
        let none = Package {
            license: None,
            ..package("")
        };
        assert_eq!(broken(none), ["one 1.0.0: names no licence"]);
    }

    #[test]
    fn other_sources_wildcards_and_banned_crates_are_named() {
        let mut one = package("MIT");
        one.source = Some("git+https://example.org/one#0".into());
        one.name = "aws-lc-sys".into();
        one.dependencies = vec![Dependency {
            name: "other".into(),
            rename: None,
            req: "*".into(),
            kind: None,
            path: None,
        }];
        let broken = broken(one).join("\n");
        for what in ["git+https", "any version of other", "banned"] {
            assert!(broken.contains(what), "{broken}");
        }
    }

    #[test]
    fn a_setting_that_nobody_here_would_check_is_refused() {
        let more = TEXT.replace("[bans]", "[bans]\nskip = []");
        assert!(Policy::parse(&more).is_err());
    }
}
