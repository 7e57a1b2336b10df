//! `sig identity`: what other gateways know a gateway by.

use std::{
    fs::OpenOptions,
    io::Write,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use super::Failure;
use crate::control::identity;

/// Show the identity of a gateway for the pins of others, or make one.
///
/// Gateways that protect their frames prove to each other who they are with a key. Without identity_file in [protection], a gateway makes a
/// new one at each start, which cannot be pinned. "sig status" shows the identities of a running gateway and of its remotes.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The file that identity_file in [protection] names.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Make a new one, in a file that does not exist yet and that only its owner may read.
    #[arg(long)]
    new: bool,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let public = match args.new {
        true => make(&args.file)?,
        false => identity::read(&args.file)
            .map_err(Failure::Refused)?
            .public(),
    };
    writeln!(out, "{public}")?;
    Ok(())
}

fn make(file: &Path) -> Result<sig_core::protection::Identity, Failure> {
    let (identity, text) = identity::make().map_err(Failure::Failed)?;
    let failed = |error: std::io::Error| {
        Failure::Failed(format!("cannot write {}: {error}", file.display()))
    };
    let mut options = OpenOptions::new();
    let mut opened = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)
        .map_err(failed)?;
    opened.write_all(text.as_bytes()).map_err(failed)?;
    opened.sync_all().map_err(failed)?;
    Ok(identity.public())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_made_once_and_shown_again() {
        let folder = std::env::temp_dir().join(format!("sig-identity-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let shown = |new| {
            let (mut out, file) = (Vec::new(), folder.join("identity.key"));
            let result = run(&Args { file, new }, &mut out);
            result.map(|()| String::from_utf8(out).expect("text"))
        };
        assert!(shown(false).is_err());
        let made = shown(true).ok().expect("made");
        assert!(made.starts_with("ed25519:"), "{made}");
        assert_eq!(shown(false).ok(), Some(made));
        assert!(shown(true).is_err(), "never overwritten");
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}
