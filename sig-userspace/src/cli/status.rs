//! `sig status`: asks a running gateway over its Unix socket.

mod control;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use sig_common::reason::DropReason;

use super::Failure;
use super::notation::{Format, Notation};
use super::socket::{Choice, Kind, answer, expect};
use super::table::Table;
use sig_core::notation::rfc3339;
use sig_core::status::{FastPath, Lan, Remote, Status, Underlay, Worker};

/// A gateway that does not answer within this time is stuck.
const PATIENCE: Duration = Duration::from_secs(5);

/// Show what a running gateway does: workers, interfaces, remotes, paths, counters, drops, and discovered gateways, paths and sessions.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    notation: Notation,
    #[command(flatten)]
    gateway: Choice,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let socket = args.gateway.socket()?;
    expect(&socket, Kind::Gateway, "status").map_err(Failure::Failed)?;
    // No line: gateways of every version answer that with the status.
    let document = answer(&socket, "", PATIENCE)?;
    let strange = |error: serde_json::Error| {
        let socket = socket.display();
        Failure::Failed(format!(
            "{socket}: not a status that this version understands: {error}"
        ))
    };
    match args.notation.format() {
        Format::Human => {
            let status = serde_json::from_slice(&document).map_err(strange)?;
            write_human(&status, out)?;
        }
        Format::Json => {
            // Passed on as it is, so that keys of another version are not lost.
            serde_json::from_slice::<serde::de::IgnoredAny>(&document).map_err(strange)?;
            out.write_all(document.trim_ascii_end())?;
            writeln!(out)?;
        }
    }
    Ok(())
}

fn write_human(status: &Status, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "sig {}, gateway \"{}\" at {},{}, up {}",
        status.version,
        status.id,
        status.isd_as,
        status.data_addr,
        uptime(status.uptime_ms)
    )?;
    if !status.prefixes.is_empty() {
        writeln!(out, "serves {}", join(&status.prefixes))?;
    } else if status.control.is_none() {
        writeln!(
            out,
            "serves no prefixes: set prefixes in [gateway], or all received packets are dropped"
        )?;
    }
    if status.reloads > 0 || status.reloads_refused > 0 {
        let (applied, refused) = (status.reloads, status.reloads_refused);
        writeln!(out, "reloads: {applied} applied, {refused} refused")?;
    }
    if status.draining {
        writeln!(
            out,
            "draining: advertises no prefixes, has no kernel routes; \"sig drain --undo\" ends it"
        )?;
    }
    write_ports(status, out)?;
    write_workers(&status.workers, out)?;
    write_underlay(&status.underlay, out)?;
    write_lan(&status.lan, out)?;
    write_fast_path(&status.fast_path, out)?;
    if let Some(known) = &status.control {
        control::write(status, known, out)?;
    }
    write_remotes(status, out)?;
    write_counters(status, out)?;
    write_drops(status, out)
}

fn write_ports(status: &Status, out: &mut dyn Write) -> io::Result<()> {
    let ports = &status.ports;
    writeln!(out, "\nPorts")?;
    if ports.is_empty() {
        return writeln!(
            out,
            "  none: check underlay and lan in [dataplane], then \"sig doctor\""
        );
    }
    let mut table = Table::new(&[
        "interface",
        "role",
        "link",
        "driver",
        "XDP",
        "buffers",
        ">queues",
        ">MTU",
        ">received",
        ">sent",
    ]);
    for port in ports {
        table.row([
            match &port.trunk {
                Some(trunk) if *trunk != port.interface => {
                    format!("{} on {trunk}", port.interface)
                }
                _ => port.interface.clone(),
            },
            port.role.as_str().to_owned(),
            if port.up { "up" } else { "down" }.to_owned(),
            port.driver.clone().unwrap_or_else(|| "?".to_owned()),
            port.mode.as_str().to_owned(),
            if port.zero_copy { "zero-copy" } else { "copy" }.to_owned(),
            port.queues.to_string(),
            port.mtu.to_string(),
            port.rx_packets.to_string(),
            port.tx_packets.to_string(),
        ]);
    }
    table.write(out)?;
    for port in ports.iter().filter(|port| !port.up) {
        writeln!(
            out,
            "  {} is down: ip link set {} up",
            port.interface, port.interface
        )?;
    }
    for left_out in &status.lan.left_out {
        writeln!(
            out,
            "  {} is not in service: {}",
            left_out.interface, left_out.reason
        )?;
    }
    Ok(())
}

fn write_workers(workers: &[Worker], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\nWorkers")?;
    if workers.is_empty() {
        return writeln!(out, "  none: the data plane is not running; see the log");
    }
    let mut table = Table::new(&[
        ">worker",
        ">CPU",
        ">received",
        ">sent",
        ">directly to the LAN",
        ">via helper",
        ">sleeps",
    ]);
    for worker in workers {
        table.row([
            worker.number.to_string(),
            worker
                .cpu
                .map_or_else(|| "any".to_owned(), |c| c.to_string()),
            worker.rx_packets.to_string(),
            worker.tx_packets.to_string(),
            worker.counts.packets_straight.to_string(),
            worker.counts.packets_via_helper.to_string(),
            worker.counts.sleeps.to_string(),
        ]);
    }
    table.write(out)
}

fn write_underlay(underlay: &Underlay, out: &mut dyn Write) -> io::Result<()> {
    if underlay.unchecked.is_none() && underlay.refused.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nFrom the underlay")?;
    if let Some(why) = &underlay.unchecked {
        writeln!(
            out,
            "  frames from remotes are accepted from any address: {why}"
        )?;
    }
    for address in &underlay.refused {
        writeln!(
            out,
            "  frames from {address} were dropped: if it is a border router of this AS, add it to underlay_sources in [dataplane]"
        )?;
    }
    Ok(())
}

fn write_lan(lan: &Lan, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\nTo the LAN")?;
    writeln!(
        out,
        "  direct to {} known {}; the rest via the helper",
        lan.neighbours,
        if lan.neighbours == 1 {
            "neighbour"
        } else {
            "neighbours"
        },
    )?;
    for text in &lan.helped {
        writeln!(out, "  via the helper: {text}")?;
    }
    Ok(())
}

fn write_fast_path(fast_path: &FastPath, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\nFast path in the kernel")?;
    match fast_path.on {
        true => writeln!(
            out,
            "  {} packets sent to remotes, {} delivered to the LAN",
            fast_path.packets_sent, fast_path.packets_delivered
        )?,
        false => writeln!(out, "  off")?,
    }
    for text in &fast_path.problems {
        writeln!(out, "  {text}")?;
    }
    Ok(())
}

fn write_remotes(status: &Status, out: &mut dyn Write) -> io::Result<()> {
    let remotes: &[Remote] = &status.remotes;
    let is_configured = status.control.is_none();
    writeln!(out, "\nRemotes")?;
    if remotes.is_empty() {
        let advice = if is_configured {
            "add a [[remote]] to the configuration; \"sig config sample\" shows one"
        } else {
            "the control plane has found no remote gateway with prefixes yet"
        };
        return writeln!(out, "  none: {advice}");
    }
    let mut table = Table::new(&[
        "ISD-AS",
        "gateway",
        ">session",
        ">frames received",
        ">packets received",
        "prefixes",
    ]);
    for remote in remotes {
        table.row([
            remote.isd_as.clone(),
            remote.gateway.to_string(),
            remote.session.to_string(),
            remote.frames_received.to_string(),
            remote.packets_received.to_string(),
            if remote.prefixes.is_empty() {
                if is_configured {
                    "none: set prefixes in its [[remote]]"
                } else {
                    "none"
                }
                .to_owned()
            } else {
                join(&remote.prefixes)
            },
        ]);
    }
    table.write(out)?;

    writeln!(out, "\nPaths")?;
    let mut table = Table::new(&[
        "ISD-AS",
        "path",
        "next hop",
        "MAC",
        ">MTU",
        "expires",
        ">packets sent",
        ">frames sent",
        ">bytes sent",
        "streams",
    ]);
    let mut unresolved = BTreeMap::new();
    let mut problems = Vec::new();
    for remote in remotes {
        for path in &remote.paths {
            if path.expired {
                problems.push(format!(
                    "{} path {} has expired: replace it and run \"sig reload\"",
                    remote.isd_as, path.name
                ));
            } else if let (Some(problem), Some(_)) = (&path.problem, &path.next_hop_mac) {
                problems.push(format!("{} path {}: {problem}", remote.isd_as, path.name));
            }
            if path.next_hop_mac.is_none() {
                unresolved
                    .entry(path.next_hop.ip())
                    .or_insert(path.problem.as_deref());
            }
            table.row([
                remote.isd_as.clone(),
                path.name.clone(),
                path.next_hop.to_string(),
                path.next_hop_mac
                    .clone()
                    .unwrap_or_else(|| "unresolved".to_owned()),
                path.mtu.to_string(),
                match path.expires_at {
                    _ if path.expired => "expired".to_owned(),
                    Some(at) => rfc3339(at),
                    None => "never".to_owned(),
                },
                path.packets_sent.to_string(),
                path.frames_sent.to_string(),
                path.bytes_sent.to_string(),
                if path.streams.is_empty() {
                    "none".to_owned()
                } else {
                    join(&path.streams)
                },
            ]);
        }
    }
    if table.is_empty() {
        let advice = if is_configured {
            "add a [[remote.path]] to each remote"
        } else {
            "no usable path to any remote"
        };
        return writeln!(out, "  none: {advice}");
    }
    table.write(out)?;
    for problem in problems {
        writeln!(out, "  {problem}")?;
    }
    for (ip, problem) in unresolved {
        match problem {
            Some(problem) => writeln!(out, "  {problem}")?,
            None => writeln!(
                out,
                "  {ip} does not answer: check that the router is up and on the underlay, \
                 \"ip neighbour show {ip}\""
            )?,
        }
    }
    Ok(())
}

fn write_counters(status: &Status, out: &mut dyn Write) -> io::Result<()> {
    let c = &status.counters;
    writeln!(out, "\nTraffic")?;
    if c.packets_sent == 0 && c.frames_received == 0 {
        writeln!(
            out,
            "  none yet: send a packet from a prefix served here to a prefix of a remote"
        )?;
        return Ok(());
    }
    let mut table = Table::new(&[
        "",
        ">packets",
        ">bytes",
        ">frames",
        ">frame bytes",
        ">packets/frame",
    ]);
    let mut row = |name: &str, packets: u64, bytes: u64, frames: u64, frame_bytes: u64| {
        let ratio = match frames {
            0 => "-".to_owned(),
            frames => format!("{:.2}", packets as f64 / frames as f64),
        };
        table.row([
            name.to_owned(),
            packets.to_string(),
            bytes.to_string(),
            frames.to_string(),
            frame_bytes.to_string(),
            ratio,
        ]);
    };
    row(
        "sent",
        c.packets_sent,
        c.packet_bytes_sent,
        c.frames_sent,
        c.frame_bytes_sent,
    );
    row(
        "received",
        c.packets_received,
        c.packet_bytes_received,
        c.frames_received,
        c.frame_bytes_received,
    );
    table.write(out)?;
    if c.counts.frames_held > 0 || c.counts.gaps > 0 {
        writeln!(
            out,
            "  reordering: {} frames waited for an earlier one, {} gaps abandoned, {} frames late",
            c.counts.frames_held, c.counts.gaps, c.counts.frames_late
        )?;
    }
    Ok(())
}

fn write_drops(status: &Status, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\nDrops")?;
    let mut table = Table::new(&["reason", "where", ">count", "meaning"]);
    for drop in status.drops.iter().filter(|drop| drop.count > 0) {
        let reason = DropReason::ALL.iter().find(|r| r.name() == drop.reason);
        table.row([
            drop.reason.clone(),
            drop.place.as_str().to_owned(),
            drop.count.to_string(),
            reason.map_or("", |r| r.describe()).to_owned(),
        ]);
    }
    if table.is_empty() {
        return writeln!(out, "  none");
    }
    table.write(out)
}

fn join<T: ToString>(values: &[T]) -> String {
    const SHOWN: usize = 8;
    let shown: Vec<_> = values.iter().take(SHOWN).map(T::to_string).collect();
    let mut text = shown.join(", ");
    if values.len() > SHOWN {
        text += &format!(" and {} more", values.len() - SHOWN);
    }
    text
}

/// A time in words.
pub(super) fn uptime(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    let (days, hours, minutes) = (seconds / 86400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min {} s", seconds % 60),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests;
