//! `sig accelerate status`: asks a running accelerator over its Unix socket.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::{
    accelerate::status::Status,
    cli::{
        Failure,
        socket::{self, FOLDER, Kind, only_socket},
        status::uptime,
        table::Table,
    },
};

/// Show what a running accelerator does: packets taken off the gateway, sessions, paths, and why packets were left to it.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The accelerator's socket [default: the only one in /run/sig].
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Print a JSON document.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let socket = match &args.socket {
        Some(socket) => socket.clone(),
        None => only_socket(Path::new(FOLDER), Kind::Accelerator).map_err(Failure::Failed)?,
    };
    if args.json {
        return socket::print_json(&socket, Kind::Accelerator, out);
    }
    Ok(write(&socket::fetch(&socket, Kind::Accelerator)?, out)?)
}

fn write(status: &Status, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "sig {}, accelerator of the gateway behind {} and {}, up {}",
        status.version,
        status.tunnel,
        status.underlay,
        uptime(status.uptime_ms)
    )?;
    if let Some(waiting) = &status.waiting_for {
        writeln!(out, "  waiting for {waiting}; the gateway works alone")?;
    }
    for problem in &status.problems {
        writeln!(out, "  {problem}")?;
    }
    let left = |prefix: &str| -> u64 {
        let of_prefix = status
            .left
            .iter()
            .filter(|(name, _)| name.starts_with(prefix) && !name.ends_with("_lost"));
        of_prefix.map(|(_, count)| count).sum()
    };
    let share = |taken: u64, left: u64| match taken + left {
        0 => "-".to_owned(),
        all => format!("{:.1} %", taken as f64 * 100.0 / all as f64),
    };
    let mut table = Table::new(&[
        "DIRECTION",
        ">ACCELERATED",
        ">BYTES",
        ">LEFT TO IT",
        ">SHARE",
    ]);
    for (name, packets, bytes, left) in [
        (
            "into the tunnel",
            status.packets_sent,
            status.bytes_sent,
            left("out_"),
        ),
        (
            "out of it",
            status.packets_delivered,
            status.bytes_delivered,
            left("in_"),
        ),
    ] {
        table.row([
            name.to_owned(),
            packets.to_string(),
            bytes.to_string(),
            left.to_string(),
            share(packets, left),
        ]);
    }
    writeln!(out)?;
    table.write(out)?;
    let mut table = Table::new(&["LEFT TO THE GATEWAY OR LOST", ">PACKETS"]);
    for (reason, count) in status.left.iter().filter(|(_, count)| **count != 0) {
        table.row([reason.replace('_', " "), count.to_string()]);
    }
    if !table.is_empty() {
        writeln!(out)?;
        table.write(out)?;
    }
    let mut table = Table::new(&["SESSION WITH", "HOST", ">NUMBER", "STATE", ">ANSWERED"]);
    for session in &status.sessions {
        table.row([
            session.isd_as.clone(),
            session.host.to_string(),
            session.session.to_string(),
            if session.is_up { "up" } else { "down" }.to_owned(),
            format!("{} ms ago", session.answered_ms),
        ]);
    }
    if !table.is_empty() {
        writeln!(out)?;
        table.write(out)?;
    }
    let mut table = Table::new(&[
        "PATH TO", ">SESSION", "NEXT HOP", ">LONGEST", "IN USE", ">SENT",
    ]);
    for path in &status.paths {
        table.row([
            path.isd_as.clone(),
            path.session.to_string(),
            path.next_hop.clone(),
            path.longest_packet.to_string(),
            if path.is_used { "yes" } else { "no" }.to_owned(),
            path.packets_sent.to_string(),
        ]);
    }
    if !table.is_empty() {
        writeln!(out)?;
        table.write(out)?;
    }
    let mut table = Table::new(&["FRAMES FROM", "HOST", ">DELIVERED"]);
    for remote in &status.remotes {
        table.row([
            remote.isd_as.clone(),
            remote.host.to_string(),
            remote.packets_delivered.to_string(),
        ]);
    }
    if !table.is_empty() {
        writeln!(out)?;
        table.write(out)?;
    }
    Ok(())
}
