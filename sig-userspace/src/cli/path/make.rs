//! `sig path make`: all paths between two ASes of a network whose keys are known.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use serde_json::{Value, json};
use sig_common::addr::IsdAs;

use crate::cli::{Failure, unix_now};
use sig_core::{
    network,
    notation::{rfc3339, to_hex},
    scion::{Interface, network::NetworkPath},
};

/// Create all paths between two ASes of a network whose keys are known, shortest first.
///
/// The paths can be used as `raw` in a [[remote.path]] of the gateway.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Network description: [[as]] with isd_as, core, mtu and master_key or master_key_file; [[link]] with
    /// a, b, type and mtu.
    network: PathBuf,
    /// Source AS.
    #[arg(long, value_name = "ISD-AS")]
    from: IsdAs,
    /// Destination AS.
    #[arg(long, value_name = "ISD-AS")]
    to: IsdAs,
    /// Print a JSON array of objects with raw, interfaces, mtu and expiry (seconds since 1970).
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let description =
        network::load(&args.network).map_err(|errors| Failure::Refused(errors.to_string()))?;
    let (from, to) = (args.from, args.to);
    if from == to {
        return Err(Failure::Refused(format!(
            "--from and --to are both {from}: the path within an AS is empty"
        )));
    }
    let now = u32::try_from(unix_now()).unwrap_or(u32::MAX);
    let paths = description
        .network
        .paths(from, to, description.validity(now));
    let paths =
        paths.map_err(|error| Failure::Refused(format!("{}: {error}", args.network.display())))?;
    if paths.is_empty() {
        return Err(Failure::Failed(format!(
            "there is no path from {from} to {to}"
        )));
    }
    if args.json {
        let paths: Vec<Value> = paths.iter().map(to_json).collect();
        writeln!(out, "{}", Value::from(paths))?;
    } else {
        for (number, path) in paths.iter().enumerate() {
            show(number, path, out)?;
        }
    }
    Ok(())
}

fn to_json(path: &NetworkPath) -> Value {
    let interface = |end: &Interface| json!({ "isd_as": end.isd_as.to_string(), "id": end.id });
    json!({
        "raw": to_hex(&path.raw),
        "interfaces": path.interfaces.iter().map(interface).collect::<Vec<_>>(),
        "mtu": path.mtu,
        "expiry": path.expiry,
    })
}

fn show(number: usize, path: &NetworkPath, out: &mut dyn Write) -> io::Result<()> {
    let links = path
        .interfaces
        .chunks_exact(2)
        .filter_map(|ends| match ends {
            [near, far] => Some(format!("{near} > {far}")),
            _ => None,
        });
    writeln!(out, "{number}: {}", links.collect::<Vec<_>>().join(", "))?;
    writeln!(out, "   MTU {}, until {}", path.mtu, rfc3339(path.expiry))?;
    writeln!(out, "   {}", to_hex(&path.raw))
}
