//! The programs of the reference implementation.

use std::{
    ffi::OsString,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use super::subject::Refusal;

/// Names the folder of the programs.
const VARIABLE: &str = "REF_BIN";

/// All that are needed.
const NAMES: [&str; 7] = [
    "control",
    "daemon",
    "dispatcher",
    "gateway",
    "router",
    "scion",
    "scion-pki",
];

/// A folder with all of them.
#[derive(Clone, Debug)]
pub struct Programs(PathBuf);

impl Programs {
    /// Those that `$REF_BIN` names.
    ///
    /// # Errors
    ///
    /// [`Refusal::NotHere`]: it names nothing, or programs are missing.
    pub fn find() -> Result<Self, Refusal> {
        Self::named(std::env::var_os(VARIABLE))
    }

    fn named(folder: Option<OsString>) -> Result<Self, Refusal> {
        let Some(folder) = folder else {
            return Err(Refusal::NotHere(format!(
                "{VARIABLE} is not set: it names the folder with the reference implementation's programs {}",
                NAMES.join(", ")
            )));
        };
        let folder = PathBuf::from(folder);
        let missing: Vec<_> = NAMES
            .into_iter()
            .filter(|name| !is_program(&folder.join(name)))
            .collect();
        if missing.is_empty() {
            // They are started in other folders.
            let folder = folder.canonicalize().map_err(anyhow::Error::from)?;
            return Ok(Self(folder));
        }
        Err(Refusal::NotHere(format!(
            "the folder that {VARIABLE} names has no program {}",
            missing.join(", ")
        )))
    }

    /// Where one of them is.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

fn is_program(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use testbed::Folder;

    use super::*;

    fn refused(folder: Option<OsString>) -> String {
        match Programs::named(folder) {
            Err(Refusal::NotHere(reason)) => reason,
            other => panic!("not refused: {other:?}"),
        }
    }

    #[test]
    fn without_the_variable_there_are_none() {
        assert!(refused(None).contains("REF_BIN is not set"));
    }

    #[test]
    fn missing_programs_are_named() {
        let folder = Folder::new("reference-programs").unwrap();
        let name = || Some(folder.path().as_os_str().to_owned());
        assert!(refused(name()).contains("control, daemon, dispatcher, gateway"));
        for program in NAMES {
            fs::write(folder.path().join(program), "").unwrap();
        }
        // Files that cannot be run are no programs.
        assert!(refused(name()).contains("scion-pki"));
        for program in NAMES {
            let path = folder.path().join(program);
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        assert!(Programs::named(name()).is_ok());
        fs::remove_file(folder.path().join("router")).unwrap();
        assert!(refused(name()).ends_with("no program router"));
    }
}
