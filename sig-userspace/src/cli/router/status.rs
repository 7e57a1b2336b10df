//! `sig router status`: asks a running router over its Unix socket.

use std::io::{self, Write};

use sig_common::router::Reason;

use super::Choice;
use crate::cli::{
    Failure,
    socket::{self, Kind},
    status::uptime,
    table::Table,
};
use sig_router::status::{Interface, Status};

/// Show what a running router does: interfaces, BFD, packets, packets that left the fast path, and drops.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Print the JSON document of the router instead of tables.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    router: Choice,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let socket = args.router.socket()?;
    if args.json {
        return socket::print_json(&socket, Kind::Router, out);
    }
    Ok(write(&socket::fetch(&socket, Kind::Router)?, out)?)
}

fn write(status: &Status, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "sig {}, router \"{}\" of {} at {}, up {}",
        status.version,
        status.id,
        status.isd_as,
        status.internal,
        uptime(status.uptime_ms)
    )?;
    paths(status, out)?;
    interfaces(status, out)?;
    siblings(status, out)?;
    reasons(status, out)
}

/// Fast and slow path.
fn paths(status: &Status, out: &mut dyn Write) -> io::Result<()> {
    match &status.fast_path {
        Some(fast) => {
            let devices = fast.devices.iter().map(|device| {
                let silent = if device.transmits {
                    ""
                } else {
                    ", receives only"
                };
                let lost = match device.not_sent {
                    0 => String::new(),
                    packets => format!(", {packets} not sent"),
                };
                format!("{} ({}{silent}{lost})", device.name, device.mode)
            });
            let devices: Vec<_> = devices.collect();
            writeln!(out, "fast path on {}", devices.join(", "))?;
            if fast.not_taken > 0 {
                writeln!(
                    out,
                    "{} packets lost or in flight between CPUs",
                    fast.not_taken
                )?;
            }
        }
        None => writeln!(out, "no fast path: the slow path forwards everything")?,
    }
    if !status.slow_path {
        writeln!(out, "slow path: another router on this host")?;
    }
    Ok(())
}

fn interfaces(status: &Status, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\nInterfaces")?;
    let mut table = Table::new(&[
        ">number",
        "neighbour",
        "type",
        "local",
        "remote",
        "link",
        "BFD",
        "MAC",
        ">received",
        ">sent",
    ]);
    for interface in &status.interfaces {
        let is_inside = interface.interface == 0;
        let inside = |text: &str| text.to_owned();
        table.row([
            interface.label(),
            interface.neighbour.clone(),
            if is_inside {
                inside("inside")
            } else {
                interface.link_type.clone()
            },
            interface.local.to_string(),
            interface
                .remote
                .map_or_else(|| inside("-"), |remote| remote.to_string()),
            if interface.up { "up" } else { "DOWN" }.to_owned(),
            interface
                .bfd
                .as_ref()
                .map_or_else(|| inside("-"), |bfd| bfd.state.clone()),
            interface
                .next_hop_mac
                .clone()
                .unwrap_or_else(|| inside("-")),
            interface
                .total(sig_router::status::INPUT)
                .packets
                .to_string(),
            interface.sent().packets.to_string(),
        ]);
    }
    table.write(out)?;
    for interface in &status.interfaces {
        if let Some(problem) = &interface.problem {
            writeln!(out, "  interface {}: {problem}", interface.interface)?;
        }
        if interface.bfd.as_ref().is_some_and(|bfd| bfd.flaps) {
            writeln!(
                out,
                "  interface {} is up but was flapping: it is used again once it has been stable for a while",
                interface.interface
            )?;
        } else if !interface.up {
            writeln!(
                out,
                "  interface {} is down: the router at {} sends no BFD packets, or receives none of ours",
                interface.interface,
                interface
                    .remote
                    .map_or_else(String::new, |remote| remote.to_string())
            )?;
        }
    }
    Ok(())
}

fn siblings(status: &Status, out: &mut dyn Write) -> io::Result<()> {
    if status.siblings.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nOther routers of the AS")?;
    let mut table = Table::new(&["name", "address", "state", "BFD", "MAC", "interfaces"]);
    for sibling in &status.siblings {
        let numbers: Vec<_> = sibling.interfaces.iter().map(u16::to_string).collect();
        table.row([
            sibling.name.clone(),
            sibling.internal.to_string(),
            if sibling.up { "up" } else { "DOWN" }.to_owned(),
            sibling
                .bfd
                .as_ref()
                .map_or("-", |bfd| &bfd.state)
                .to_owned(),
            sibling
                .next_hop_mac
                .clone()
                .unwrap_or_else(|| "-".to_owned()),
            numbers.join(", "),
        ]);
    }
    table.write(out)?;
    for sibling in &status.siblings {
        if let Some(problem) = &sibling.problem {
            writeln!(out, "  {}: {problem}", sibling.name)?;
        }
    }
    Ok(())
}

fn reasons(status: &Status, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\nSlow path and drops")?;
    let mut table = Table::new(&[
        "interface",
        "reason",
        ">fast path",
        ">slow path",
        ">dropped",
        "meaning",
    ]);
    let rows = |interface: &Interface| {
        let label = interface.label();
        let row = move |reason: &sig_router::status::Reason| {
            let known = Reason::ALL.into_iter().find(|r| r.name() == reason.reason);
            [
                label.clone(),
                reason.reason.clone(),
                reason.fast.to_string(),
                reason.slow.to_string(),
                reason.dropped.to_string(),
                known.map_or("", Reason::describe).to_owned(),
            ]
        };
        interface.reasons.iter().map(row).collect::<Vec<_>>()
    };
    status
        .interfaces
        .iter()
        .flat_map(rows)
        .for_each(|row| table.row(row));
    if table.is_empty() {
        return writeln!(out, "  none");
    }
    table.write(out)
}
