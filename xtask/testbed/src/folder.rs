//! A folder for configurations, logs and sockets.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use super::cleanup;

/// A folder for temporary files. It is removed, with what is in it, when dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Makes a folder. `label` is part of its name and must be unique in this process.
    ///
    /// # Errors
    /// The folder for temporary files cannot be written.
    pub fn new(label: &str) -> Result<Self> {
        let path = std::env::temp_dir().join(cleanup::own_name(label));
        let mut left = cleanup::left();
        left.add_folder(&path);
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        cleanup::delete_folder(&self.0);
    }
}
