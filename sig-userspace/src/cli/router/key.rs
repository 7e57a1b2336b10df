//! `sig router key`: which key hop fields are signed with.

use std::{io::Write, path::PathBuf};

use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::cli::Failure;
use sig_core::{
    document::{self, values::master_key},
    notation::{base64, to_hex},
    scion::HopKey,
};
use sig_router::config::MASTER_KEY_LEN;

/// Show the key that hop fields are signed with, or create a new master key.
///
/// Routers and control services derive it from the master key of the AS. To compare the keys of two hosts,
/// compare the fingerprints: the first 8 bytes of the SHA-256 of the key.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    source: Source,
    /// Show the key itself, in hexadecimal. Anyone who has it can forge paths through the AS.
    #[arg(long)]
    secret: bool,
    /// Print a JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct Source {
    /// The configuration file of a router.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The file with the master key, such as keys/master0.key.
    #[arg(long, value_name = "FILE")]
    master: Option<PathBuf>,
    /// Print a new master key in the format of keys/master0.key. All routers and control services of the AS must share it.
    #[arg(long, conflicts_with_all = ["secret", "json"])]
    new: bool,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    if args.source.new {
        let master: [u8; MASTER_KEY_LEN] = rand::random();
        writeln!(out, "{}", base64(&master))?;
        return Ok(());
    }
    let key = match (&args.source.config, &args.source.master) {
        (Some(file), _) => super::load(file)?.model.key,
        (None, Some(file)) => {
            let text = document::read_text(file, "; \"sig router key --new\" prints a new key")
                .map_err(|errors| Failure::Refused(errors.to_string()))?;
            master_key(&text).map_err(|error| {
                let file = file.display();
                Failure::Refused(format!(
                    "{file}: {error}; name a file with the master key of an AS in base64"
                ))
            })?
        }
        // Refused by the command line already.
        (None, None) => {
            return Err(Failure::Refused(
                "write --config, --master or --new".to_owned(),
            ));
        }
    };
    let fingerprint = fingerprint(&key);
    let secret = args.secret.then(|| to_hex(key.bytes()));
    if args.json {
        let mut object = json!({ "fingerprint": fingerprint });
        if let Some(secret) = secret {
            object["key"] = secret.into();
        }
        writeln!(out, "{object}")?;
    } else {
        writeln!(out, "fingerprint {fingerprint}")?;
        if let Some(secret) = secret {
            writeln!(out, "key {secret}")?;
        }
    }
    Ok(())
}

fn fingerprint(key: &HopKey) -> String {
    let digest = Sha256::digest(key.bytes());
    to_hex(digest.get(..8).unwrap_or(&digest))
}
