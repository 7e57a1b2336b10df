//! Dependencies that no source file names.
//!
//! Like cargo-machete a search for words, and with its exemption: `package.metadata.cargo-machete.ignored`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use super::Package;

/// What a package depends on without naming it; `all` are those that it may depend on.
pub(super) fn of_package(package: &Package, all: &[Package]) -> Result<Vec<String>> {
    let folder = package.manifest_path.parent().context("no folder")?;
    let text = fs::read_to_string(&package.manifest_path)?;
    let manifest = toml::Value::Table(toml::from_str(&text)?);
    let ignored: Vec<&str> = ["package", "metadata", "cargo-machete", "ignored"]
        .iter()
        .try_fold(&manifest, |at, key| at.get(key))
        .and_then(toml::Value::as_array)
        .map(|names| names.iter().filter_map(toml::Value::as_str).collect())
        .unwrap_or_default();
    let sources = Sources::of(folder, package)?;
    Ok(package
        .dependencies
        .iter()
        .filter(|one| !ignored.contains(&&*one.name))
        .filter(|one| {
            let library = || all.iter().find(|other| other.name == one.name)?.library();
            let name = one.rename.as_deref().or_else(library).unwrap_or(&one.name);
            !sources.name(&name.replace('-', "_"), one.kind.as_deref())
        })
        .map(|one| {
            let kind = one.kind.as_deref().map(|kind| format!("{kind}-"));
            format!(
                "{}: {}dependency {} is not used",
                package.name,
                kind.unwrap_or_default(),
                one.name
            )
        })
        .collect())
}

/// What the table `workspace.dependencies` offers and no package takes.
pub(super) fn of_workspace(manifest: &str, packages: &[Package]) -> Result<Vec<String>> {
    let manifest: toml::Table = toml::from_str(manifest)?;
    let offered = manifest
        .get("workspace")
        .and_then(|at| at.get("dependencies"))
        .and_then(toml::Value::as_table);
    let taken: BTreeSet<_> = packages
        .iter()
        .filter(|package| package.is_ours())
        .flat_map(|package| &package.dependencies)
        .map(|one| one.rename.as_deref().unwrap_or(&one.name))
        .collect();
    Ok(offered
        .into_iter()
        .flat_map(toml::Table::keys)
        .filter(|name| !taken.contains(&***name))
        .map(|name| format!("workspace: dependency {name} is not used"))
        .collect())
}

/// Folders and files of tests, in a package and anywhere in its `src`.
const TESTS: [&str; 4] = ["tests", "tests.rs", "benches", "examples"];

/// The source files of a package.
#[derive(Default)]
struct Sources {
    /// Of library and programs.
    product: BTreeMap<PathBuf, String>,
    /// Of tests, benchmarks and examples.
    tests: BTreeMap<PathBuf, String>,
    /// Of the build script.
    build: BTreeMap<PathBuf, String>,
}

impl Sources {
    fn of(folder: &Path, package: &Package) -> Result<Self> {
        let folder = fs::canonicalize(folder)?;
        let mut sources = Sources::default();
        for target in &package.targets {
            let files = sources.of_kind(target.kind.first().map_or("", |kind| kind));
            add(&target.src_path, files)?;
        }
        let mut files = BTreeMap::new();
        collect(&folder, &mut files)?;
        for file in files.into_keys() {
            let inside = file.strip_prefix(&folder).unwrap_or(&file);
            let is_test = |part| TESTS.iter().any(|name| part == *name);
            let is_test = inside.iter().any(is_test);
            if sources.build.contains_key(&file) || !(is_test || inside.starts_with("src")) {
                continue;
            }
            add(&file, sources.of_kind(if is_test { "test" } else { "lib" }))?;
        }
        Ok(sources)
    }

    fn of_kind(&mut self, kind: &str) -> &mut BTreeMap<PathBuf, String> {
        match kind {
            "custom-build" => &mut self.build,
            "test" | "bench" | "example" => &mut self.tests,
            _ => &mut self.product,
        }
    }

    fn name(&self, name: &str, kind: Option<&str>) -> bool {
        let any = |files: &BTreeMap<_, String>| files.values().any(|text| names(text, name));
        match kind {
            Some("build") => any(&self.build),
            // Tests are also beside the code.
            Some(_) => any(&self.tests) || any(&self.product),
            None => any(&self.product),
        }
    }
}

/// All source files in a folder, but for those of other packages.
fn collect(folder: &Path, files: &mut BTreeMap<PathBuf, String>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            if !path.join("Cargo.toml").exists() && !path.join("CACHEDIR.TAG").exists() {
                collect(&path, files)?;
            }
        } else if path.extension().is_some_and(|e| e == "rs") {
            add(&path, files)?;
        }
    }
    Ok(())
}

/// A source file, and the modules that it names by path; a `mod.rs` brings its whole folder.
fn add(file: &Path, files: &mut BTreeMap<PathBuf, String>) -> Result<()> {
    let file = fs::canonicalize(file).with_context(|| file.display().to_string())?;
    if files.contains_key(&file) {
        return Ok(());
    }
    let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    files.insert(file.clone(), without_comments(&text));
    let folder = file.parent().context("no folder")?;
    for line in text.lines().map(str::trim_start) {
        let path = line.strip_prefix("#[path = \"");
        if let Some((path, _)) = path.and_then(|rest| rest.split_once('"')) {
            let path = folder.join(path);
            add(&path, files)?;
            if path.ends_with("mod.rs") {
                collect(path.parent().context("no folder")?, files)?;
            }
        }
    }
    Ok(())
}

fn without_comments(text: &str) -> String {
    let code = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    code.collect::<Vec<_>>().join("\n")
}

/// Whether a text has `name` as a word of its own that a path starts with, or that is imported.
fn names(text: &str, name: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(name).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + name.len()..]);
        let starts = !before.ends_with(is_word) && !after.starts_with(is_word);
        let inside = before
            .strip_suffix("::")
            .is_some_and(|path| path.ends_with(is_word));
        let imported =
            before.trim_end().ends_with("use") || before.trim_end().ends_with("extern crate");
        starts && !inside && (after.trim_start().starts_with("::") || imported)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_or_an_import_names_a_crate() {
        for text in [
            "use toml::Table;",
            "let x = toml::from_str(y);",
            "use toml;",
            "use toml as t;",
            "#[derive(toml::Nice)]",
            "fn f(x: &::toml::Table)",
        ] {
            assert!(names(text, "toml"), "{text}");
        }
        for text in [
            "mod toml;",
            "crate::document::toml::parse()",
            "let toml = 1;",
            "use mytoml::x;",
            "toml_edit::x()",
        ] {
            assert!(!names(text, "toml"), "{text}");
        }
    }

    #[test]
    fn a_comment_uses_nothing() {
        assert_eq!(without_comments("a\n  // toml::x\n/// toml::y\nb"), "a\nb");
    }

    #[test]
    fn what_no_package_takes_from_the_workspace_is_named() {
        let manifest = "[workspace.dependencies]\ntoml = \"1\"\n";
        let found = of_workspace(manifest, &[]).unwrap();
        assert_eq!(found, ["workspace: dependency toml is not used"]);
    }
}
