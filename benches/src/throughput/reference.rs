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

    #[test]
    fn missing_programs_are_named() {
        let refused = |folder| match Programs::named(folder) {
            Err(Refusal::NotHere(reason)) => reason,
            other => panic!("not refused: {other:?}"),
        };
        assert!(refused(None).contains("REF_BIN is not set"));
        let folder = Folder::new("reference-programs").unwrap();
        for program in NAMES {
            let reason = refused(Some(folder.path().into()));
            assert!(reason.contains(program), "{reason}");
            let path = folder.path().join(program);
            fs::write(&path, "").unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        assert!(Programs::named(Some(folder.path().into())).is_ok());
    }
}
