//! `sig router doctor`: whether a border router can run on this host, and what to do. Changes nothing and sends nothing.

use std::{io::Write, path::PathBuf};

use crate::cli::{
    Failure, doctor,
    notation::Notation,
    socket::{Kind, kind},
};

/// Check this host for a border router: kernel, privileges, interfaces. Changes nothing, sends nothing.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Check the interfaces that this router uses.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    notation: Notation,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let mut is_running = false;
    let own = match &args.config {
        Some(file) => {
            let settings = super::load(file)?;
            is_running = kind(&settings.status_socket) == Some(Kind::Router);
            let model = &settings.model;
            let links = model.links().map(|(_, _, local, _)| local.ip());
            Some(
                [model.internal.ip()]
                    .into_iter()
                    .chain(links)
                    .collect::<Vec<_>>(),
            )
        }
        None => None,
    };
    doctor::router(args.notation.format(), own.as_deref(), is_running, out)
}
