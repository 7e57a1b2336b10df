//! `sig srv6 status`: asks a running node over its Unix socket.

use std::io::{self, Write};

use super::Choice;
use crate::{
    cli::{
        Failure,
        socket::{self, Kind},
        status::uptime,
        table::Table,
    },
    srv6::status::Status,
};

/// Show what a running node does: rules, SIDs, policies, functions, and why packets did not go on.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    choice: Choice,
    /// Print a JSON document.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let socket = args.choice.socket()?;
    if args.json {
        return socket::print_json(&socket, Kind::SrNode, out);
    }
    Ok(write(&socket::fetch(&socket, Kind::SrNode)?, out)?)
}

fn write(status: &Status, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "sig {}, SR node {}, up {}",
        status.version,
        status.id,
        uptime(status.uptime_ms)
    )?;
    for problem in &status.problems {
        writeln!(out, "  {problem}")?;
    }
    write_tables(status, out)
}

/// Interfaces, SIDs, policies, functions, and what did not go on.
pub(in crate::cli) fn write_tables(status: &Status, out: &mut dyn Write) -> io::Result<()> {
    let mut tables = Vec::new();
    let mut table = Table::new(&["INTERFACE", "XDP"]);
    for interface in &status.interfaces {
        let xdp = interface
            .xdp
            .clone()
            .unwrap_or_else(|| "not running".to_owned());
        table.row([interface.name.clone(), xdp]);
    }
    tables.push(table);
    let mut table = Table::new(&["RULE", "ACTION", ">PACKETS", ">BYTES"]);
    for rule in &status.rules {
        table.row([
            rule.name.clone(),
            rule.action.clone(),
            rule.packets.to_string(),
            rule.bytes.to_string(),
        ]);
    }
    tables.push(table);
    let mut table = Table::new(&["COPIES FOR MIRRORS", ">PACKETS"]);
    if status.copies_sent + status.copies_lost != 0 {
        table.row(["sent".to_owned(), status.copies_sent.to_string()]);
        table.row(["lost".to_owned(), status.copies_lost.to_string()]);
    }
    tables.push(table);
    let mut table = Table::new(&["SID", "BEHAVIOR", "TARGET", ">PACKETS", ">BYTES"]);
    for sid in &status.sids {
        table.row([
            sid.sid.clone(),
            sid.behavior.clone(),
            sid.target.clone(),
            sid.packets.to_string(),
            sid.bytes.to_string(),
        ]);
    }
    tables.push(table);
    let mut table = Table::new(&["POLICY", "SEGMENTS", ">PACKETS", ">BYTES"]);
    for policy in &status.policies {
        table.row([
            policy.name.clone(),
            policy.segments.join(", "),
            policy.packets.to_string(),
            policy.bytes.to_string(),
        ]);
    }
    tables.push(table);
    let mut table = Table::new(&[
        "FUNCTION",
        "STATE",
        "ON FAILURE",
        ">RETURNED",
        ">HEADER CHANGES",
    ]);
    for function in &status.functions {
        table.row([
            function.name.clone(),
            match (&function.why_down, function.is_up) {
                (_, true) => "up".to_owned(),
                (Some(why), _) => format!("down ({why})"),
                (None, _) => "down".to_owned(),
            },
            function.on_failure.clone(),
            function.packets_returned.to_string(),
            function.header_changes.to_string(),
        ]);
    }
    tables.push(table);
    let mut table = Table::new(&["NOT FORWARDED, OR NOT BY THE PROGRAM", ">PACKETS"]);
    for (reason, count) in status.refused.iter().filter(|(_, count)| *count != 0) {
        table.row([reason.replace('_', " "), count.to_string()]);
    }
    tables.push(table);
    for table in tables.iter().filter(|table| !table.is_empty()) {
        writeln!(out)?;
        table.write(out)?;
    }
    Ok(())
}
